//! `macaddr` (6 bytes) and `macaddr8` (8 bytes): pairs of hexadecimal digits with colons between.

use super::{nibble, put_hex};
use crate::error::CellError;

const MALFORMED: CellError = CellError::Malformed("MAC address");

/// Appends a field of `size` bytes as text.
///
/// # Errors
/// The field has another size.
pub fn to_text(field: &[u8], size: u8, out: &mut Vec<u8>) -> Result<(), CellError> {
    let expected = usize::from(size);
    if field.len() != expected {
        return Err(CellError::Length { expected, found: field.len() });
    }
    for (index, byte) in field.iter().enumerate() {
        if index > 0 {
            out.push(b':');
        }
        put_hex(*byte, out);
    }
    Ok(())
}

/// Appends the field of an address of `size` bytes. Colons and hyphens between bytes are taken.
///
/// # Errors
/// The text is no such address.
pub fn from_text(text: &str, size: u8, out: &mut Vec<u8>) -> Result<(), CellError> {
    let before = out.len();
    for pair in text.as_bytes().split(|byte| matches!(byte, b':' | b'-')) {
        let byte = match pair {
            [high, low] => nibble(*high).zip(nibble(*low)).map(|(high, low)| high << 4 | low),
            _ => None,
        };
        out.push(byte.ok_or(MALFORMED)?);
    }
    if out.len() - before == usize::from(size) { Ok(()) } else { Err(MALFORMED) }
}
