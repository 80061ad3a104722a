//! Times as people write them in a query.

/// Nanoseconds of a second.
const SECOND: i64 = 1_000_000_000;

/// Parses a time: RFC 3339 with an offset, a date (midnight UTC), or seconds since 1970-01-01 UTC
/// with a fraction of up to nine digits. Exact to the nanosecond; `None`: anything else, or a time
/// outside the range of 64 bits of nanoseconds (1677 to 2262).
#[must_use]
pub fn parse_time(text: &str) -> Option<i64> {
    let text = text.trim();
    if let Some(nanos) = seconds(text) {
        return Some(nanos);
    }
    let time = match text.len() {
        10 => format!("{text}T00:00:00Z").parse::<jiff::Timestamp>(),
        _ => text.parse(),
    };
    i64::try_from(time.ok()?.as_nanosecond()).ok()
}

fn seconds(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || fraction.is_empty() || fraction.len() > 9 {
        return None;
    }
    if !number(whole) || !number(fraction) {
        return None;
    }
    let nanos = whole.parse::<i64>().ok()?.checked_mul(SECOND)?;
    let nanos = nanos.checked_add(format!("{fraction:0<9}").parse().ok()?)?;
    Some(if negative { -nanos } else { nanos })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_to_the_nanosecond() {
        for (text, nanos) in [
            ("0", 0),
            ("1732184400", 1_732_184_400 * SECOND),
            ("1732184400.5", 1_732_184_400 * SECOND + SECOND / 2),
            ("1732184400.000000001", 1_732_184_400 * SECOND + 1),
            ("-1.25", -SECOND - SECOND / 4),
            ("2024-11-21T10:20:00Z", 1_732_184_400 * SECOND),
            ("2024-11-21t11:20:00.000000007+01:00", 1_732_184_400 * SECOND + 7),
            ("2024-11-21", 1_732_147_200 * SECOND),
        ] {
            assert_eq!(parse_time(text), Some(nanos), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_none() {
        for text in [
            "",
            "-",
            ".",
            "1.",
            ".5",
            "1e9",
            "yesterday",
            "2024-13-01",
            "2024-11-21T10:20:00",
            "1732184400000000",
            "99999999999999999999",
            "+5",
            "1.0000000001",
            "0.+1",
        ] {
            assert_eq!(parse_time(text), None, "{text}");
        }
    }
}
