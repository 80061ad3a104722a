//! The times of log records, exactly: nanoseconds since 1970-01-01 UTC, without floating-point
//! arithmetic.
//!
//! Invariants: a time outside the range of an `i64` of nanoseconds (1677 to 2262) is not valid; a
//! civil time without an offset is UTC.

/// Nanoseconds of a second.
const SECOND: i128 = 1_000_000_000;
/// Maximum number of significant digits after the point.
const FRACTION_DIGITS: usize = 9;

/// The unit of a number since 1970-01-01 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    /// Milliseconds.
    Millis,
    /// Seconds below 1e11, otherwise milliseconds below 1e14, otherwise microseconds below 1e17,
    /// otherwise nanoseconds: each range covers times from 1973 to 5138.
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
    let nanos = i128::from(nanos);
    i64::try_from(if negative { -nanos } else { nanos }).ok()
}

/// `whole.fraction` of the unit, in nanoseconds.
fn fixed(whole: &str, fraction: &str, unit: Unit) -> Option<u64> {
    if whole.is_empty() || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let whole = whole.bytes().try_fold(0u64, |sum, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })?;
    let places: u32 = match (unit, whole) {
        (Unit::Millis, _) => 6,
        (Unit::Guess, 0..100_000_000_000) => 9,
        (Unit::Guess, 100_000_000_000..100_000_000_000_000) => 6,
        (Unit::Guess, 100_000_000_000_000..100_000_000_000_000_000) => 3,
        (Unit::Guess, _) => 0,
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

/// Parses a time: RFC 3339 and its variants (`2017-07-14T15:00:00.123456+0000`, a space for the
/// `T`, a comma for the point, no offset), `Jul 14 2017 15:00:00.123`, also without the year if
/// `now_ms` is given, or a number.
pub(super) fn text(text: &str, now_ms: Option<i64>) -> Option<i64> {
    let text = text.trim_ascii();
    let bytes = text.as_bytes();
    match bytes {
        [_, _, _, _, b'-', ..] => rfc3339(bytes),
        [first, ..] if first.is_ascii_alphabetic() => named_month(bytes, now_ms),
        _ => epoch(text, Unit::Guess),
    }
}

/// A reader of the parts of a civil time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cursor<'a> {
    pub(super) rest: &'a [u8],
}

impl Cursor<'_> {
    /// A number of `least` to `most` digits.
    pub(super) fn number(&mut self, least: usize, most: usize) -> Option<i64> {
        let digits = self.rest.iter().take(most).take_while(|byte| byte.is_ascii_digit()).count();
        if digits < least {
            return None;
        }
        let (digits, rest) = self.rest.split_at_checked(digits)?;
        self.rest = rest;
        Some(digits.iter().fold(0, |sum, &digit| sum * 10 + i64::from(digit - b'0')))
    }

    /// Consumes the next byte if it is this one; returns whether it was.
    pub(super) fn eat(&mut self, byte: u8) -> bool {
        let found = self.rest.first() == Some(&byte);
        self.rest = self.rest.get(usize::from(found)..).unwrap_or_default();
        found
    }

    /// Parses a month's English name, of which three letters count.
    pub(super) fn month(&mut self) -> Option<i64> {
        const NAMES: &[u8; 36] = b"janfebmaraprmayjunjulaugsepoctnovdec";
        let name = self.rest.get(..3)?.to_ascii_lowercase();
        let month = NAMES.chunks_exact(3).position(|known| known == name)?;
        let letters = self.rest.iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
        self.rest = self.rest.get(letters..)?;
        i64::try_from(month).ok().map(|month| month + 1)
    }

    /// Digits of a fraction of a second, in nanoseconds.
    pub(super) fn fraction(&mut self) -> Option<i64> {
        let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (fraction, rest) = self.rest.split_at_checked(digits)?;
        let nanos = fraction.iter().map(|digit| i64::from(digit - b'0'));
        let nanos = nanos.chain(std::iter::repeat(0)).take(FRACTION_DIGITS);
        let nanos = nanos.fold(0, |sum, digit| sum * 10 + digit);
        self.rest = rest;
        (digits > 0).then_some(nanos)
    }

    /// Parses `HH:mm:ss` and an optional fraction, in nanoseconds of the day; a leap second is the
    /// next one.
    pub(super) fn clock(&mut self) -> Option<i128> {
        let hour = self.number(1, 2).filter(|hour| *hour < 24)?;
        let minute = self.eat(b':').then(|| self.number(2, 2))?.filter(|minute| *minute < 60)?;
        let second =
            if self.eat(b':') { self.number(2, 2).filter(|second| *second <= 60)? } else { 0 };
        let nanos = if self.eat(b'.') || self.eat(b',') { self.fraction()? } else { 0 };
        Some(i128::from(hour * 3_600 + minute * 60 + second) * SECOND + i128::from(nanos))
    }

    /// Parses an offset in seconds: `Z`, `UTC`, `GMT`, `+01:00`, `+0100`, `+01`; without one it is
    /// UTC.
    pub(super) fn offset(&mut self) -> Option<i64> {
        for name in ["Z", "z", "UTC", "GMT"] {
            if let Some(rest) = self.rest.strip_prefix(name.as_bytes()) {
                self.rest = rest;
                return Some(0);
            }
        }
        let sign = match self.rest.first() {
            Some(b'+') => 1,
            Some(b'-') => -1,
            _ => return Some(0),
        };
        self.rest = self.rest.get(1..)?;
        let hours = self.number(2, 2).filter(|hours| *hours < 24)?;
        let colon = self.eat(b':');
        let minutes = match self.number(2, 2) {
            Some(minutes) if minutes < 60 => minutes,
            None if !colon => 0,
            _ => return None,
        };
        Some(sign * (hours * 3_600 + minutes * 60))
    }
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

/// RFC 3339, loosely; a date alone is its midnight.
pub(super) fn rfc3339(text: &[u8]) -> Option<i64> {
    let mut cursor = Cursor { rest: text };
    let year = cursor.number(4, 4)?;
    let month = cursor.eat(b'-').then(|| cursor.number(2, 2))??;
    let day = cursor.eat(b'-').then(|| cursor.number(2, 2))??;
    if cursor.rest.is_empty() {
        return civil((year, month, day), 0, 0);
    }
    if !(cursor.eat(b'T') || cursor.eat(b't') || cursor.eat(b' ')) {
        return None;
    }
    let clock = cursor.clock()?;
    cursor.eat(b' ');
    let offset = cursor.offset()?;
    if cursor.rest.is_empty() { civil((year, month, day), clock, offset) } else { None }
}

/// Parses `Jul 14 2017 15:00:00.123 UTC`; without a year `now_ms` determines it.
fn named_month(text: &[u8], now_ms: Option<i64>) -> Option<i64> {
    let mut cursor = Cursor { rest: text };
    let parts = bsd(&mut cursor)?;
    while cursor.eat(b' ') {}
    let offset = cursor.offset()?;
    if !cursor.rest.is_empty() {
        return None;
    }
    parts.time(offset, now_ms)
}

/// A time with a month's name, as [`bsd`] reads it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bsd {
    year: Option<i64>,
    month: i64,
    day: i64,
    clock: i128,
}

impl Bsd {
    /// Returns the time, at an offset in seconds; without a year the latest one near `now_ms`.
    pub(super) fn time(self, offset: i64, now_ms: Option<i64>) -> Option<i64> {
        match self.year {
            Some(year) => civil((year, self.month, self.day), self.clock, offset),
            None => without_year(self.month, self.day, self.clock, offset, now_ms?),
        }
    }
}

/// Parses `Jul 14 15:00:00`, with an optional year before the time of day and a fraction after it.
pub(super) fn bsd(cursor: &mut Cursor<'_>) -> Option<Bsd> {
    let month = cursor.month()?;
    while cursor.eat(b' ') {}
    let day = cursor.number(1, 2)?;
    cursor.eat(b',');
    while cursor.eat(b' ') {}
    let year = match cursor.rest {
        [_, _, _, _, b' ', ..] => Some(cursor.number(4, 4)?),
        _ => None,
    };
    while cursor.eat(b' ') {}
    Some(Bsd { year, month, day, clock: cursor.clock()? })
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

/// Parses a time by a pattern of Java's `SimpleDateFormat` (`y M d H h m s S a z Z X E`, quoted
/// and literal text), as in LEEF's `devTimeFormat`.
pub(super) fn pattern(text: &str, pattern: &str, now_ms: i64) -> Option<i64> {
    let mut cursor = Cursor { rest: text.trim_ascii().as_bytes() };
    let (mut year, mut month, mut day, mut offset, mut nanos) = (None, 1, 1, 0, 0);
    let (mut hour, mut minute, mut second, mut afternoon) = (0, 0, 0, None);
    let mut rest = pattern.trim_ascii().as_bytes();
    let mut quoted = false;
    while let Some(&letter) = rest.first() {
        let run = rest.iter().take_while(|byte| **byte == letter).count();
        if letter == b'\'' || quoted || !letter.is_ascii_alphabetic() {
            rest = rest.get(1..)?;
            match letter {
                b'\'' => quoted = !quoted,
                _ if !cursor.eat(letter) => return None,
                _ => {}
            }
            continue;
        }
        rest = rest.get(run..)?;
        match letter {
            b'y' | b'u' if run == 2 => year = Some(2000 + cursor.number(2, 2)?),
            b'y' | b'u' => year = Some(cursor.number(4, 4)?),
            b'M' | b'L' if run >= 3 => month = cursor.month()?,
            b'M' | b'L' => month = cursor.number(1, 2)?,
            b'd' => {
                cursor.eat(b' ');
                day = cursor.number(1, 2)?;
            }
            b'H' | b'h' | b'K' | b'k' => hour = cursor.number(1, 2)?,
            b'm' => minute = cursor.number(1, 2)?,
            b's' => second = cursor.number(1, 2)?,
            b'S' => nanos = cursor.fraction()?,
            b'a' => {
                let mark = cursor.rest.get(..2)?.to_ascii_lowercase();
                cursor.rest = cursor.rest.get(2..)?;
                afternoon = Some(mark == b"pm");
            }
            b'E' => {
                let name = cursor.rest.iter().take_while(|byte| byte.is_ascii_alphabetic());
                cursor.rest = cursor.rest.get(name.count()..)?;
            }
            b'z' | b'Z' | b'X' => offset = cursor.offset()?,
            _ => return None,
        }
    }
    let hour = match afternoon {
        Some(afternoon) => hour % 12 + if afternoon { 12 } else { 0 },
        None => hour % 24,
    };
    if !cursor.rest.is_empty() || minute > 59 || second > 60 {
        return None;
    }
    let clock = i128::from(hour * 3_600 + minute * 60 + second) * SECOND + i128::from(nanos);
    match year {
        Some(year) => civil((year, month, day), clock, offset),
        None => without_year(month, day, clock, offset, now_ms),
    }
}
