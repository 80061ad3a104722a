//! Time to live, as written in the text protocol.

/// Maximum in milliseconds: what the engine's deadlines can hold, added to any current time.
const MS_MAX: u64 = i64::MAX as u64 / 4;

/// Milliseconds of `30`, `30s`, `5m`, `2h`, `7d` or `1y`. `None`: not a TTL.
pub(super) fn parse(text: &[u8]) -> Option<u64> {
    let (&last, head) = text.split_last()?;
    let (digits, unit_s) = match last.to_ascii_lowercase() {
        b's' => (head, 1),
        b'm' => (head, 60),
        b'h' => (head, 3_600),
        b'd' => (head, 86_400),
        b'y' => (head, 31_536_000),
        _ => (text, 1),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    number.checked_mul(unit_s * 1_000).filter(|&ms| ms <= MS_MAX)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn a_ttl_is_a_number_with_or_without_a_unit() {
        for (text, seconds) in [
            ("30", 30),
            ("30s", 30),
            ("5m", 300),
            ("2H", 7_200),
            ("7d", 604_800),
            ("1y", 31_536_000),
            ("0", 0),
        ] {
            assert_eq!(parse(text.as_bytes()), Some(seconds * 1_000), "{text}");
        }
        for text in
            ["", "s", "-5s", "+5", "5 s", "5w", "1.5h", "99999999999999999999", "9000000000y"]
        {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }
}
