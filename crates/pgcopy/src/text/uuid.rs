//! `uuid`: 16 bytes, as 32 hexadecimal digits with hyphens after the 8th, 12th, 16th and 20th.

use super::{nibble, put_hex};
use crate::error::CellError;

/// Appends a field as text.
pub fn to_text(field: &[u8; 16], out: &mut Vec<u8>) {
    for (index, byte) in field.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            out.push(b'-');
        }
        put_hex(*byte, out);
    }
}

/// The field of a text: 32 hexadecimal digits, hyphens between them anywhere, braces around them.
///
/// # Errors
/// The text is no such thing.
pub fn from_text(text: &str) -> Result<[u8; 16], CellError> {
    const MALFORMED: CellError = CellError::Malformed("UUID");
    let inner = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or(text);
    let mut digits = inner.bytes().filter(|byte| *byte != b'-').map(nibble);
    let mut field = [0; 16];
    for byte in &mut field {
        let (high, low) = (digits.next().flatten(), digits.next().flatten());
        let (high, low) = high.zip(low).ok_or(MALFORMED)?;
        *byte = high << 4 | low;
    }
    if digits.next().is_some() { Err(MALFORMED) } else { Ok(field) }
}
