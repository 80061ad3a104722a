//! Values between their binary form and the text PostgreSQL writes for them.
//!
//! For the types Arrow has none for: `numeric` of any size, `timetz`, `inet`, `cidr`, `macaddr`,
//! `macaddr8`, `bit`, `varbit` and `uuid`. Each pair of functions appends: `to_text` to a text, `from_text` to a field.
//!
//! Invariant: a field that a server sent, made text and made a field again, has the same bytes.

#![deny(clippy::indexing_slicing)]

pub mod bits;
pub mod macaddr;
pub mod network;
pub mod numeric;
pub mod timetz;
pub mod uuid;

/// Appends the decimal digits of `value`, with zeros before them up to `width`.
fn put_padded(value: u64, width: usize, out: &mut Vec<u8>) {
    let mut buffer = itoa::Buffer::new();
    let digits = buffer.format(value).as_bytes();
    out.extend(std::iter::repeat_n(b'0', width.saturating_sub(digits.len())));
    out.extend_from_slice(digits);
}

/// The value of at most `digits_max` decimal digits, and nothing else.
fn number(text: &str, digits_max: usize) -> Option<u32> {
    let digits = text.len() <= digits_max && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits { text.parse().ok() } else { None }
}

/// The value of a hexadecimal digit.
fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Appends a byte as two hexadecimal digits. The crate `hex` has no form that appends, and this is
/// called for every byte of every UUID that is copied.
fn put_hex(byte: u8, out: &mut Vec<u8>) {
    for digit in [byte >> 4, byte & 15] {
        out.push(HEX.get(usize::from(digit)).copied().unwrap_or(b'0'));
    }
}
