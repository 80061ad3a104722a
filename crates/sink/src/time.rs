//! Timestamps and dates as JSON texts have them, and the numbers that databases store for them.
//!
//! A timestamp is one of RFC 3339 with its offset; a date is its `full-date`. What a database would
//! round, move or refuse is neither: more than six digits of a second, a leap second, the year 0.
//!
//! Invariant: pure; any text is accepted and answered.

/// Microseconds in a second.
const US: i64 = 1_000_000;

/// Microseconds from 1970-01-01T00:00:00Z to a timestamp such as `2026-01-02T03:04:05.25+01:00`;
/// `None` if the text is none.
#[must_use]
pub fn timestamp_us(text: &str) -> Option<i64> {
    let (day, rest) = text.as_bytes().split_first_chunk::<10>()?;
    let (clock, rest) = rest.split_first_chunk::<9>()?;
    let [b'T' | b't' | b' ', h0, h1, b':', m0, m1, b':', s0, s1] = *clock else { return None };
    let (hour, minute, second) = (two(h0, h1)?, two(m0, m1)?, two(s0, s1)?);
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let (fraction_us, zone) = fraction(rest)?;
    let offset = match *zone {
        [b'Z' | b'z'] => 0,
        [sign @ (b'+' | b'-'), h0, h1, b':', m0, m1] => {
            let (hours, minutes) = (two(h0, h1)?, two(m0, m1)?);
            if hours > 23 || minutes > 59 {
                return None;
            }
            let seconds = (hours * 60 + minutes) * 60;
            if sign == b'-' { -seconds } else { seconds }
        }
        _ => return None,
    };
    let seconds = i64::from(days(day)?) * 86_400 + (hour * 60 + minute) * 60 + second - offset;
    Some(seconds * US + fraction_us)
}

/// Days from 1970-01-01 to a date such as `2026-01-02`; `None` if the text is none.
#[must_use]
pub fn date_days(text: &str) -> Option<i32> {
    days(text.as_bytes().try_into().ok()?)
}

/// The fraction of a second at the start of `text` in microseconds, and what follows it.
fn fraction(text: &[u8]) -> Option<(i64, &[u8])> {
    let Some(digits) = text.strip_prefix(b".") else { return Some((0, text)) };
    let count = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if !(1..=6).contains(&count) {
        return None;
    }
    let (digits, rest) = digits.split_at_checked(count)?;
    let padded = digits.iter().copied().chain(std::iter::repeat(b'0')).take(6);
    Some((padded.fold(0, |us, digit| us * 10 + i64::from(digit - b'0')), rest))
}

fn days(text: &[u8; 10]) -> Option<i32> {
    let [y0, y1, y2, y3, b'-', m0, m1, b'-', d0, d1] = *text else { return None };
    let year = two(y0, y1)? * 100 + two(y2, y3)?;
    let (month, day) = (two(m0, m1)?, two(d0, d1)?);
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        2 => 28 + i64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if year == 0 || !(1..=last).contains(&day) {
        return None;
    }
    // Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", `days_from_civil`.
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year / 400, year % 400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    i32::try_from(days).ok()
}

/// The number that two digits are.
fn two(tens: u8, ones: u8) -> Option<i64> {
    let both = tens.is_ascii_digit() && ones.is_ascii_digit();
    both.then(|| i64::from(tens - b'0') * 10 + i64::from(ones - b'0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_counted_in_microseconds_of_utc() {
        for (text, us) in [
            ("1970-01-01T00:00:00Z", 0),
            ("1970-01-01t00:00:00.000001z", 1),
            ("1970-01-01 01:00:00.5+01:00", 500_000),
            ("1969-12-31T23:59:59.999999-00:00", -1),
            ("2000-02-29T12:00:00-05:30", 951_845_400 * US),
            ("2026-01-02T03:04:05Z", 1_767_323_045 * US),
            ("0001-01-01T00:00:00Z", -62_135_596_800 * US),
            ("9999-12-31T23:59:59Z", 253_402_300_799 * US),
        ] {
            assert_eq!(timestamp_us(text), Some(us), "{text}");
        }
    }

    #[test]
    fn what_a_database_would_change_is_no_timestamp() {
        for text in [
            "",
            "2026-01-02",
            "2026-01-02T03:04:05",
            "2026-01-02T03:04:05.Z",
            "2026-01-02T03:04:05.1234567Z",
            "2026-01-02T03:04:60Z",
            "2026-01-02T24:00:00Z",
            "2026-01-02T03:04:05+24:00",
            "2026-01-02T03:04:05+0100",
            "2026-01-02T03:04:05Z ",
            "2026-02-29T00:00:00Z",
            "0000-01-01T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "+026-01-01T00:00:00Z",
            "2026-01-02T03:04:0\u{e9}Z",
        ] {
            assert_eq!(timestamp_us(text), None, "{text}");
        }
    }

    #[test]
    fn dates_are_counted_in_days() {
        for (text, days) in
            [("1970-01-01", 0), ("1969-12-31", -1), ("2000-03-01", 11_017), ("2026-01-02", 20_455)]
        {
            assert_eq!(date_days(text), Some(days), "{text}");
        }
        for text in ["2026-1-2", "2026-01-32", "2026-04-31", "1900-02-29", "20260102", "0000-12-31"]
        {
            assert_eq!(date_days(text), None, "{text}");
        }
    }
}
