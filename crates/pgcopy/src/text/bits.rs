//! `bit` and `varbit`: a count of bits (4 bytes), then the bits, the first in the highest place.

use crate::error::CellError;

const MALFORMED: CellError = CellError::Malformed("bit string");

/// Appends a field as `0` and `1`.
///
/// # Errors
/// The count does not fit the bytes, or bits beyond it are set.
pub fn to_text(field: &[u8], out: &mut Vec<u8>) -> Result<(), CellError> {
    let (count, bytes) = field.split_first_chunk::<4>().ok_or(MALFORMED)?;
    let count = usize::try_from(i32::from_be_bytes(*count)).map_err(|_| MALFORMED)?;
    if bytes.len() != count.div_ceil(8) {
        return Err(MALFORMED);
    }
    let spare = bytes.len() * 8 - count;
    if bytes.last().is_some_and(|last| last.trailing_zeros() < u32::try_from(spare).unwrap_or(0)) {
        return Err(MALFORMED);
    }
    out.reserve(count);
    let bits = bytes.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1));
    out.extend(bits.take(count).map(|bit| b'0' + bit));
    Ok(())
}

/// Appends the field of a text of `0` and `1`.
///
/// # Errors
/// The text has anything else.
pub fn from_text(text: &str, out: &mut Vec<u8>) -> Result<(), CellError> {
    let count = i32::try_from(text.len()).map_err(|_| CellError::Range("bit strings"))?;
    if !text.bytes().all(|digit| matches!(digit, b'0' | b'1')) {
        return Err(MALFORMED);
    }
    out.extend_from_slice(&count.to_be_bytes());
    out.extend(text.as_bytes().chunks(8).map(|eight| {
        let bits = eight.iter().fold(0, |byte, digit| byte << 1 | (digit & 1));
        bits << (8 - eight.len())
    }));
    Ok(())
}
