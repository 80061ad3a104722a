//! Dates, times and intervals as text: RFC 3339 within its range of years, ISO 8601 with signed
//! years beyond.
//!
//! The ranges are PostgreSQL's (4713 BC to 294276 AD), wider than those of date libraries, so the
//! calendar is computed here: the proleptic Gregorian one, with a year 0. PostgreSQL's infinities
//! are the largest and smallest numbers in Arrow, and `infinity`, `-infinity` as text.

#![deny(clippy::indexing_slicing)]

use std::io::Write as _;

use arrow::datatypes::IntervalMonthDayNano;

/// Microseconds of a day.
const DAY_US: i64 = 86_400_000_000;
/// Maximum year accepted, on either side: beyond what an `i32` of days can represent.
const YEAR_MAX: i64 = 6_000_000;

/// Days since 1970-01-01 of a date in the Gregorian calendar.
///
/// After Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", `days_from_civil`.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Year, month and day of days since 1970-01-01; the same source's `civil_from_days`.
fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

/// Formats into memory, which cannot fail.
macro_rules! put {
    ($out:expr, $($format:tt)*) => {
        // Writing into a `Vec` returns no error.
        drop(write!($out, $($format)*))
    };
}

fn put_date(days: i64, out: &mut Vec<u8>) {
    let (year, month, day) = date_of(days);
    match year {
        0..=9999 => put!(out, "{year:04}"),
        10_000.. => put!(out, "+{year}"),
        _ => put!(out, "-{:04}", -year),
    }
    put!(out, "-{month:02}-{day:02}");
}

/// A date: days since 1970-01-01.
pub fn write_date(days: i32, out: &mut Vec<u8>) {
    match days {
        i32::MAX => out.extend_from_slice(b"infinity"),
        i32::MIN => out.extend_from_slice(b"-infinity"),
        days => put_date(i64::from(days), out),
    }
}

/// A time of day: microseconds since midnight, up to `24:00:00`.
pub fn write_time(us: i64, out: &mut Vec<u8>) {
    let seconds = us / 1_000_000;
    put!(out, "{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    match us % 1_000_000 {
        0 => {}
        fraction => put!(out, ".{fraction:06}"),
    }
}

/// A point in time: microseconds since 1970; with `Z` if it is in UTC.
pub fn write_timestamp(us: i64, is_utc: bool, out: &mut Vec<u8>) {
    match us {
        i64::MAX => out.extend_from_slice(b"infinity"),
        i64::MIN => out.extend_from_slice(b"-infinity"),
        us => {
            put_date(us.div_euclid(DAY_US), out);
            out.push(b'T');
            write_time(us.rem_euclid(DAY_US), out);
            if is_utc {
                out.push(b'Z');
            }
        }
    }
}

/// An interval as an ISO 8601 duration: months, days and seconds, each with its own sign.
pub fn write_interval(interval: IntervalMonthDayNano, out: &mut Vec<u8>) {
    let IntervalMonthDayNano { months, days, nanoseconds } = interval;
    out.push(b'P');
    if months != 0 {
        put!(out, "{months}M");
    }
    if days != 0 {
        put!(out, "{days}D");
    }
    if nanoseconds != 0 || (months == 0 && days == 0) {
        let sign = if nanoseconds < 0 { "-" } else { "" };
        let size = nanoseconds.unsigned_abs();
        put!(out, "T{sign}{}", size / 1_000_000_000);
        match size % 1_000_000_000 {
            0 => {}
            fraction => {
                let digits = format!("{fraction:09}");
                put!(out, ".{}", digits.trim_end_matches('0'));
            }
        }
        out.push(b'S');
    }
}

/// A number of `1..=count_max` digits, and the rest.
fn digits(text: &str, count_max: usize) -> Option<(i64, &str)> {
    let count = text.bytes().take(count_max).take_while(u8::is_ascii_digit).count();
    let (number, rest) = text.split_at_checked(count)?;
    Some((number.parse().ok()?, rest))
}

/// Two digits.
fn pair(text: &str) -> Option<(i64, &str)> {
    let (number, rest) = text.split_at_checked(2)?;
    number.bytes().all(|byte| byte.is_ascii_digit()).then_some(())?;
    Some((number.parse().ok()?, rest))
}

fn take_date(text: &str) -> Option<(i64, &str)> {
    let (is_signed, sign, unsigned) = match text.as_bytes().first()? {
        b'-' => (true, -1, text.get(1..)?),
        b'+' => (true, 1, text.get(1..)?),
        _ => (false, 1, text),
    };
    let (year, rest) = digits(unsigned, if is_signed { 7 } else { 4 })?;
    if unsigned.len() - rest.len() < 4 || year > YEAR_MAX {
        return None;
    }
    let (month, rest) = pair(rest.strip_prefix('-')?)?;
    let (day, rest) = pair(rest.strip_prefix('-')?)?;
    let year = sign * year;
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days_max = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 => 28 + i64::from(is_leap),
        _ => return None,
    };
    (1..=days_max).contains(&day).then(|| (days_of(year, month, day), rest))
}

fn take_time(text: &str) -> Option<(i64, &str)> {
    let (hour, rest) = pair(text)?;
    let (minute, rest) = pair(rest.strip_prefix(':')?)?;
    let (second, rest) = match rest.strip_prefix(':') {
        Some(rest) => pair(rest)?,
        None => (0, rest),
    };
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(fraction) => {
            let (number, after) = digits(fraction, 6)?;
            let scale = u32::try_from(6 - (fraction.len() - after.len())).ok()?;
            // Further digits are a loss unless they are zeros.
            let after_zeros = after.trim_start_matches('0');
            (number * 10_i64.pow(scale), after_zeros)
        }
        None => (0, rest),
    };
    let us = (hour * 3600 + minute * 60 + second) * 1_000_000 + fraction;
    let fits = hour <= 24 && minute < 60 && second < 60 && us <= DAY_US;
    fits.then_some((us, rest))
}

/// Seconds east of UTC: `Z`, `+02`, `+02:00`, `+0200`, `+02:00:30`.
fn take_offset(text: &str) -> Option<(i64, &str)> {
    let sign = match text.as_bytes().first()? {
        b'Z' | b'z' => return Some((0, text.get(1..)?)),
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (hours, mut rest) = pair(text.get(1..)?)?;
    let mut seconds = hours * 3600;
    for unit in [60, 1] {
        match pair(rest.strip_prefix(':').unwrap_or(rest)) {
            Some((number, after)) if number < 60 => {
                (seconds, rest) = (seconds + number * unit, after)
            }
            _ => break,
        }
    }
    (hours < 16).then_some((sign * seconds, rest))
}

/// Parses a date.
pub fn read_date(text: &str) -> Option<i32> {
    match text {
        "infinity" => Some(i32::MAX),
        "-infinity" => Some(i32::MIN),
        text => match take_date(text)? {
            (days, "") => {
                i32::try_from(days).ok().filter(|days| ![i32::MAX, i32::MIN].contains(days))
            }
            _ => None,
        },
    }
}

/// Parses a time of day.
pub fn read_time(text: &str) -> Option<i64> {
    take_time(text).filter(|(_, rest)| rest.is_empty()).map(|(us, _)| us)
}

/// Parses a point in time. If `is_utc`, an offset from UTC is required; otherwise it is not
/// allowed.
pub fn read_timestamp(text: &str, is_utc: bool) -> Option<i64> {
    match text {
        "infinity" => return Some(i64::MAX),
        "-infinity" => return Some(i64::MIN),
        _ => {}
    }
    let (days, rest) = take_date(text)?;
    let (us, rest) = take_time(rest.strip_prefix(['T', 't', ' '])?)?;
    let (offset_s, rest) = match is_utc {
        true => take_offset(rest.trim_start_matches(' '))?,
        false => (0, rest),
    };
    let us = days.checked_mul(DAY_US)?.checked_add(us)?.checked_sub(offset_s * 1_000_000)?;
    (rest.is_empty() && us != i64::MAX && us != i64::MIN).then_some(us)
}

/// Parses an ISO 8601 duration, whose parts have their own signs.
pub fn read_interval(text: &str) -> Option<IntervalMonthDayNano> {
    let mut rest = text.strip_prefix('P')?;
    let (mut months, mut days, mut ns) = (0_i64, 0_i64, 0_i64);
    let (mut in_time, mut parts) = (false, 0);
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('T').filter(|_| !in_time) {
            (in_time, rest) = (true, after);
            continue;
        }
        let unsigned = rest.strip_prefix('-');
        let sign = if unsigned.is_some() { -1 } else { 1 };
        let (number, after) = digits(unsigned.unwrap_or(rest), 19)?;
        let (fraction_ns, after) = match after.strip_prefix('.') {
            Some(fraction) => {
                let (digits_of, end) = digits(fraction, 9)?;
                let scale = u32::try_from(9 - (fraction.len() - end.len())).ok()?;
                (digits_of * 10_i64.pow(scale), end)
            }
            None => (0, after),
        };
        let unit = *after.as_bytes().first()?;
        rest = after.get(1..)?;
        let (into, scale) = match (in_time, unit) {
            (false, b'Y') => (&mut months, 12_i64),
            (false, b'M') => (&mut months, 1),
            (false, b'W') => (&mut days, 7),
            (false, b'D') => (&mut days, 1),
            (true, b'H') => (&mut ns, 3_600_000_000_000),
            (true, b'M') => (&mut ns, 60_000_000_000),
            (true, b'S') => (&mut ns, 1_000_000_000),
            _ => return None,
        };
        if fraction_ns != 0 && (!in_time || unit != b'S') {
            return None;
        }
        // In 128 bits: the smallest number has no positive counterpart.
        let value = i128::from(number) * i128::from(scale) + i128::from(fraction_ns);
        *into = i64::try_from(i128::from(*into) + i128::from(sign) * value).ok()?;
        parts += 1;
    }
    let (months, days) = (i32::try_from(months).ok()?, i32::try_from(days).ok()?);
    (parts > 0).then_some(IntervalMonthDayNano { months, days, nanoseconds: ns })
}
