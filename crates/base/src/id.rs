//! Ids of 128 bits, as texts.

/// Parses an id of 32 hexadecimal digits in lower case; `None` for anything else, so that an id has one
/// spelling.
///
/// ```
/// use forebay_base::id::parse_id;
/// let id = 0x0199_f3c2_a5d0_7b12_a3c4_d5e6_f7a8_b9c0_u128;
/// assert_eq!(parse_id(&format!("{id:032x}")), Some(id));
/// assert_eq!(parse_id(&format!("{id:032X}")), None);
/// ```
#[must_use]
pub fn parse_id(text: &str) -> Option<u128> {
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let is_valid = text.len() == 32 && text.bytes().all(is_hex);
    u128::from_str_radix(text, 16).ok().filter(|_| is_valid)
}
