//! The times of log records, exactly: nanoseconds since 1970-01-01 UTC, without floating-point
//! arithmetic.
//!
//! [`text`] reads the time of a field, [`leading`] the one a line begins with, [`own()`] that of a line in
//! the form of one product, [`epoch`] a number.
//! Invariants:
//! - A time is one that a log can have: 1980 to 2099. Anything else is not recognised, because a
//!   value such as 0 or 1601-01-01 means that the source knows no time.
//! - A time that can be read in two ways, such as 10/11/2023, is not recognised.
//! - A civil time without an offset is returned as if it were UTC, with `zoned` unset.

mod cursor;
mod own;
mod pattern;
mod written;
mod zone;

pub(super) use cursor::Cursor;
pub(super) use own::{own, spreadsheet};
pub(super) use pattern::pattern;
pub(super) use written::{bsd, klog, leading, read, text};
pub(super) use zone::shifted as in_zone;

use crate::event::TimeSource;

/// Nanoseconds of a second.
const SECOND: i128 = 1_000_000_000;
/// Maximum number of significant digits after the point.
const FRACTION_DIGITS: usize = 9;
/// 1980-01-01 UTC, the first time that a log can have, in seconds.
const FIRST_S: u64 = 315_532_800;
/// 2100-01-01 UTC, after the last time that a log can have, in seconds.
const END_S: u64 = 4_102_444_800;
/// Seconds from 1601-01-01, where Windows begins to count, to 1970-01-01.
const WINDOWS_S: u64 = 11_644_473_600;
/// Seconds from 0001-01-01, where .NET begins to count, to 1970-01-01.
const NET_S: u64 = 62_135_596_800;

/// A time as it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct When {
    /// Nanoseconds since 1970-01-01 UTC.
    pub(super) ns: i64,
    /// Whether it had an offset, or needs none. Otherwise `ns` reads it as UTC.
    pub(super) zoned: bool,
}

impl When {
    /// A time that is known exactly.
    pub(super) const fn exact(ns: i64) -> Self {
        Self { ns, zoned: true }
    }

    /// Where it is from, as an event has it.
    pub(super) fn source(self) -> TimeSource {
        if self.zoned { TimeSource::Event } else { TimeSource::Assumed }
    }

    /// This time, if a log can have it.
    fn plausible(self) -> Option<Self> {
        let seconds = u64::try_from(self.ns / 1_000_000_000).ok()?;
        (FIRST_S..END_S).contains(&seconds).then_some(self)
    }

    /// A time without an offset inside a record whose header has one: an offset that makes both the
    /// same, give or take two minutes, is the one it was written with. Without such an offset the
    /// time stays as it is.
    pub(super) fn aligned(self, header: Option<Self>) -> Self {
        const QUARTER: i64 = 900_000_000_000;
        const NEAR: i64 = 120_000_000_000;
        const OFFSET_MAX: i64 = 14 * 4;
        let Some(header) = header.filter(|header| header.zoned && !self.zoned) else { return self };
        let apart = self.ns.saturating_sub(header.ns);
        let quarters = apart.saturating_add(QUARTER / 2).div_euclid(QUARTER);
        if quarters.abs() > OFFSET_MAX || (apart - quarters * QUARTER).abs() > NEAR {
            return self;
        }
        Self::exact(self.ns - quarters * QUARTER)
    }
}

/// The unit of a number since 1970-01-01 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    /// Seconds, of any year.
    Seconds,
    /// Seconds, milliseconds, microseconds or nanoseconds since 1970, or intervals of 100
    /// nanoseconds since 1601 (Windows) or the year 1 (.NET): the unit in which the number is a
    /// time from 1980 to 2099. No number is one in two units, but for nanoseconds of late 1989 and
    /// 1990.
    Guess,
}

/// Parses a number of some unit, with an optional decimal fraction and exponent; digits beyond the
/// nanosecond are dropped.
pub(super) fn epoch(text: &str, unit: Unit) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (digits, exponent) = match digits.split_once(['e', 'E']) {
        Some((digits, exponent)) => (digits, exponent.parse::<i32>().ok()?),
        None => (digits, 0),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let nanos = match exponent {
        0 => fixed(whole, fraction, unit)?,
        exponent => shifted(whole, fraction, exponent, unit)?,
    };
    if negative && unit == Unit::Guess {
        return None;
    }
    let nanos = i128::from(nanos);
    i64::try_from(if negative { -nanos } else { nanos }).ok()
}

/// `whole.fraction` of the unit, in nanoseconds.
fn fixed(whole: &str, fraction: &str, unit: Unit) -> Option<u64> {
    const MILLI: u64 = 1_000;
    const MICRO: u64 = 1_000_000;
    const NANO: u64 = 1_000_000_000;
    const TICK: u64 = 10_000_000;
    if whole.is_empty() || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let whole = whole.bytes().try_fold(0u64, |sum, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })?;
    let within =
        |scale: u64, from: u64| ((FIRST_S + from) * scale..(END_S + from) * scale).contains(&whole);
    let places: u32 = match unit {
        Unit::Seconds => 9,
        Unit::Guess if within(1, 0) => 9,
        Unit::Guess if within(MILLI, 0) => 6,
        Unit::Guess if within(MICRO, 0) => 3,
        Unit::Guess if within(TICK, WINDOWS_S) => return Some((whole - WINDOWS_S * TICK) * 100),
        Unit::Guess if within(TICK, NET_S) => return Some((whole - NET_S * TICK) * 100),
        Unit::Guess if within(NANO, 0) => 0,
        Unit::Guess => return None,
    };
    let digits = fraction.bytes().map(|byte| u64::from(byte - b'0'));
    let digits = digits.chain(std::iter::repeat(0)).take(places as usize);
    let fraction = digits.fold(0, |sum, digit| sum * 10 + digit);
    whole.checked_mul(10u64.pow(places))?.checked_add(fraction)
}

/// The same with an exponent, which clocks do not write.
fn shifted(whole: &str, fraction: &str, exponent: i32, unit: Unit) -> Option<u64> {
    const DIGITS_MAX: usize = 64;
    if whole.len() + fraction.len() > DIGITS_MAX || !(-40..=40).contains(&exponent) {
        return None;
    }
    let mut digits = format!("{whole}{fraction}");
    let mut point = i32::try_from(whole.len()).ok()? + exponent;
    while point < 1 {
        digits.insert(0, '0');
        point += 1;
    }
    let point = usize::try_from(point).ok()?;
    while digits.len() < point {
        digits.push('0');
    }
    let (whole, fraction) = digits.split_at_checked(point)?;
    fixed(whole, fraction, unit)
}

/// The time of a date, a time of day in nanoseconds and an offset in seconds.
fn civil(date: (i64, i64, i64), clock: i128, offset: i64) -> Option<i64> {
    let days = days(date)?;
    let seconds = i128::from(days) * 86_400 - i128::from(offset);
    i64::try_from(seconds * SECOND + clock).ok()
}

/// Days from 1970-01-01 to a date of the Gregorian calendar.
fn days((year, month, day): (i64, i64, i64)) -> Option<i64> {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=length).contains(&day) {
        return None;
    }
    // Years that begin in March, in eras of 400 of them.
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    Some(era * 146_097 + year * 365 + year / 4 - year / 100 + day_of_year - 719_468)
}

/// The latest such time that is not more than a day ahead of `now_ms`.
fn without_year(month: i64, day: i64, clock: i128, offset: i64, now_ms: i64) -> Option<i64> {
    const DAY_MS: i64 = 86_400_000;
    let limit = i128::from(now_ms.saturating_add(DAY_MS)) * 1_000_000;
    let year = 1970 + now_ms.div_euclid(DAY_MS * 1461 / 4);
    // February 29 may lie eight years back.
    (year - 8..=year + 1)
        .rev()
        .filter_map(|year| civil((year, month, day), clock, offset))
        .find(|time| i128::from(*time) <= limit)
}
