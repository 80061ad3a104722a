//! Civil times in the forms that logs use, as a whole field or at the start of a line.
//!
//! A form is recognised by its separators and the number of its digits, so each is read once.

use std::ops::ControlFlow;

use super::{Cursor, Unit, When, civil, epoch, without_year};

/// Maximum size of a field that is a time, in bytes: JavaScript writes the zone's name in full.
const TEXT_SIZE_MAX: usize = 96;

/// Parses a field that is a time: RFC 3339 and its variants (`2017-07-14 15:00:00,123`), the basic
/// form of ISO 8601, `Jul 14 2017 15:00:00.123`, RFC 2822, `14/Jul/2017:15:00:00 +0200`, ctime's
/// and others, also without the year if `now_ms` is given; or a number, or `/Date(number)/`.
pub(in crate::input) fn text(text: &str, now_ms: Option<i64>) -> Option<When> {
    let text = text.trim_ascii();
    let text = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    if text.len() > TEXT_SIZE_MAX {
        return None;
    }
    if let Some(number) = text.strip_prefix("/Date(").and_then(|text| text.strip_suffix(")/")) {
        let end = number.get(1..)?.find(['+', '-']).map_or(number.len(), |end| end + 1);
        return epoch(number.get(..end)?, Unit::Guess).map(When::exact);
    }
    if let Some(when) = super::own::dmtf(text) {
        return Some(when);
    }
    // A date has a separator after its year, and a number of seconds has none.
    let number = match text.as_bytes() {
        [b'0'..=b'9', _, _, _, b'-' | b'/', ..] => false,
        [b'0'..=b'9' | b'-', ..] => true,
        _ => false,
    };
    if number && let Some(ns) = epoch(text, Unit::Guess) {
        return Some(When::exact(ns));
    }
    let mut cursor = Cursor { rest: text.as_bytes() };
    let when = read(&mut cursor, now_ms)?;
    match cursor.rest.trim_ascii() {
        [] => Some(when),
        // The zone's name after its offset.
        [b'(', .., b')'] | [b'[', .., b']'] if when.zoned => Some(when),
        _ => None,
    }
}

/// Parses the time that a line begins with, which may be in brackets or quotes; returns what
/// follows it. A number of seconds or milliseconds counts if a space, tab, comma or bracket follows.
pub(in crate::input) fn leading(line: &[u8], now_ms: Option<i64>) -> Option<(When, &[u8])> {
    let mut cursor = Cursor { rest: line };
    let open = cursor.eat_any(b"[\"(");
    if !cursor.rest.first().is_some_and(u8::is_ascii_alphanumeric) {
        return None;
    }
    let when = match seconds(&mut cursor) {
        Some(when) => when,
        None => read(&mut cursor, now_ms)?,
    };
    let closed = match open {
        Some(b'[') => cursor.eat(b']'),
        Some(b'(') => cursor.eat(b')'),
        Some(_) => cursor.eat(b'"'),
        None => true,
    };
    let bounded = match cursor.rest.first() {
        None => true,
        Some(next) => next.is_ascii_whitespace() || b"],;|:\"-[".contains(next),
    };
    // A bracket may hold more than the time, and quotes a whole line of a table.
    let is_longer = open == Some(b'[')
        || open == Some(b'"') && cursor.rest.first().is_some_and(u8::is_ascii_whitespace);
    (bounded && (closed || is_longer)).then_some((when, cursor.rest))
}

/// A number of seconds or milliseconds since 1970, followed by a separator.
fn seconds(cursor: &mut Cursor<'_>) -> Option<When> {
    let digits = cursor.digits();
    if !matches!(digits, 10 | 13 | 16 | 19) {
        return None;
    }
    let fraction = match cursor.rest.get(digits..) {
        Some([b'.', rest @ ..]) => 1 + rest.iter().take_while(|it| it.is_ascii_digit()).count(),
        _ => 0,
    };
    let (number, rest) = cursor.rest.split_at_checked(digits + fraction)?;
    if !rest.first().is_none_or(|next| b" \t,]:;|\"".contains(next)) {
        return None;
    }
    let ns = epoch(std::str::from_utf8(number).ok()?, Unit::Guess)?;
    cursor.rest = rest;
    Some(When::exact(ns))
}

/// Parses the civil time at the cursor, with its offset if it has one.
pub(in crate::input) fn read(cursor: &mut Cursor<'_>, now_ms: Option<i64>) -> Option<When> {
    let mut at = *cursor;
    at.weekday();
    let mut parts = date(&mut at)?;
    let mut offset = at.zone();
    if parts.year.is_none() {
        parts.year = year_behind(&mut at);
        if parts.year.is_some() && offset.is_none() {
            offset = at.zone();
        }
    }
    if offset.is_none() && at.at_ambiguous_zone() {
        return None;
    }
    let mut behind = at;
    if offset.is_none()
        && behind.spaces()
        && let Some(name) = super::zone::name(behind.rest)
    {
        let ns = parts.time(0, now_ms)?;
        behind.skip(name.len());
        *cursor = behind;
        return When { ns, zoned: false }.in_zone(name)?.plausible();
    }
    // Go writes the zone's name after its offset.
    let mut named = at;
    if offset.is_some()
        && named.rest.starts_with(b" ")
        && named.zone() == Some(0)
        && offset == Some(0)
    {
        at = named;
    }
    let ns = parts.time(offset.unwrap_or(0), now_ms)?;
    *cursor = at;
    When { ns, zoned: offset.is_some() }.plausible()
}

/// A year after the time of day, as ctime writes it.
fn year_behind(cursor: &mut Cursor<'_>) -> Option<i64> {
    let mut at = *cursor;
    if !at.spaces() || at.digits() != 4 {
        return None;
    }
    let year = at.number(4, 4).filter(|year| (1980..2100).contains(year))?;
    let bounded = !at.rest.first().is_some_and(|next| {
        next.is_ascii_alphanumeric() || matches!(next, b'-' | b'.' | b'/' | b'_')
    });
    if bounded {
        *cursor = at;
    }
    bounded.then_some(year)
}

/// A date and a time of day.
#[derive(Debug, Clone, Copy)]
pub(in crate::input) struct Bsd {
    year: Option<i64>,
    month: i64,
    day: i64,
    clock: i128,
}

impl Bsd {
    /// Returns the time, at an offset in seconds; without a year the latest one near `now_ms`.
    pub(in crate::input) fn time(self, offset: i64, now_ms: Option<i64>) -> Option<i64> {
        match self.year {
            Some(year) => civil((year, self.month, self.day), self.clock, offset),
            None => without_year(self.month, self.day, self.clock, offset, now_ms?),
        }
    }
}

/// Parses `Jul 14 15:00:00`, with an optional year before the time of day and a fraction after it.
pub(in crate::input) fn bsd(cursor: &mut Cursor<'_>) -> Option<Bsd> {
    let month = cursor.month()?;
    if !cursor.spaces() {
        cursor.eat_any(b"-/.")?;
    }
    let day = cursor.number(1, 2)?;
    cursor.eat_any(b",-/");
    cursor.spaces();
    let year = match (cursor.digits(), cursor.rest.get(4)) {
        (4, Some(b' ' | b',' | b'T' | b':')) => Some(cursor.number(4, 4)?),
        _ => None,
    };
    cursor.eat(b',');
    cursor.eat(b'T');
    if year.is_some() {
        cursor.eat(b':');
    }
    cursor.spaces();
    for word in [&b"@ "[..], b"at "] {
        cursor.rest = cursor.rest.strip_prefix(word).unwrap_or(cursor.rest);
    }
    Some(Bsd { year, month, day, clock: cursor.clock()? })
}

/// Parses `0714 15:00:00.123456 `, as it follows the level in the lines of klog and glog.
pub(in crate::input) fn klog(cursor: &mut Cursor<'_>, now_ms: i64) -> Option<When> {
    let mut at = *cursor;
    if at.digits() != 4 {
        return None;
    }
    let (month, day) = (at.number(2, 2)?, at.number(2, 2)?);
    if !at.spaces() || at.digits() != 2 {
        return None;
    }
    let clock = at.clock()?;
    let ns = Bsd { year: None, month, day, clock }.time(0, Some(now_ms))?;
    *cursor = at;
    at.rest.starts_with(b" ").then_some(When { ns, zoned: false })?.plausible()
}

/// Parses `2017-07-14T15:00:00` and a fraction, the most frequent form, at fixed places.
fn fixed(cursor: &mut Cursor<'_>) -> Option<Bsd> {
    let text = cursor.rest.first_chunk::<19>()?;
    let [_, _, _, _, b'-', _, _, b'-', _, _, b'T' | b' ' | b't', _, _, b':', _, _, b':', _, _] =
        text
    else {
        return None;
    };
    let digit = |at: usize| i64::from(text[at].wrapping_sub(b'0'));
    let pair = |at: usize| digit(at) * 10 + digit(at + 1);
    if [0, 1, 2, 3, 5, 6, 8, 9, 11, 12, 14, 15, 17, 18].iter().any(|at| digit(*at) > 9) {
        return None;
    }
    let (hour, minute, second) = (pair(11), pair(14), pair(17));
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let mut at = Cursor { rest: cursor.rest.get(19..)? };
    let nanos = match at.rest {
        [b'.' | b',', digit, ..] if digit.is_ascii_digit() && at.at_fraction() => {
            at.skip(1);
            at.fraction()?
        }
        // Of milliseconds after a colon, and of AM or PM.
        [b':' | b' ' | b'A' | b'P' | b'a' | b'p', ..] => return None,
        _ => 0,
    };
    *cursor = at;
    let seconds = i128::from(hour * 3_600 + minute * 60 + second);
    let clock = seconds * super::SECOND + i128::from(nanos);
    Some(Bsd { year: Some(pair(0) * 100 + pair(2)), month: pair(5), day: pair(8), clock })
}

/// Parses a date and a time of day in any of the forms.
fn date(cursor: &mut Cursor<'_>) -> Option<Bsd> {
    if let Some(parts) = fixed(cursor) {
        return Some(parts);
    }
    let (year, month, day) = match cursor.digits() {
        0 => return bsd(cursor),
        1 | 2 => match day_first(cursor) {
            ControlFlow::Continue(date) => date?,
            ControlFlow::Break(parts) => return parts,
        },
        4 => year_first(cursor)?,
        8 => (cursor.number(4, 4)?, cursor.number(2, 2)?, cursor.number(2, 2)?),
        14 => {
            let date = (cursor.number(4, 4)?, cursor.number(2, 2)?, cursor.number(2, 2)?);
            return compact(cursor, date);
        }
        _ => return None,
    };
    let separator = cursor.eat_any(b"Tt _,-:;\t")?;
    if separator != b'T' {
        cursor.eat(b'T');
        cursor.spaces();
    }
    let parts = (Some(year), month, day);
    if cursor.digits() == 6 {
        return compact(cursor, (year, month, day));
    }
    for word in [&b"@ "[..], b"at ", b"- "] {
        cursor.rest = cursor.rest.strip_prefix(word).unwrap_or(cursor.rest);
    }
    let clock = match (separator, cursor.rest) {
        (b'-', [_, _, b'.', _, _, b'.', ..]) => dotted(cursor)?,
        _ => cursor.clock()?,
    };
    Some(Bsd { year: parts.0, month, day, clock })
}

/// The time of day with points, as Db2 writes it: `15.00.00.123456`.
fn dotted(cursor: &mut Cursor<'_>) -> Option<i128> {
    let hour = cursor.number(2, 2).filter(|hour| *hour < 24)?;
    let minute = cursor.eat(b'.').then(|| cursor.number(2, 2))?.filter(|minute| *minute < 60)?;
    let second = cursor.eat(b'.').then(|| cursor.number(2, 2))?.filter(|second| *second <= 60)?;
    let nanos = if cursor.eat(b'.') { cursor.fraction()? } else { 0 };
    let seconds = i128::from(hour * 3_600 + minute * 60 + second);
    Some(seconds * super::SECOND + i128::from(nanos))
}

/// The time of day as six digits.
pub(super) fn compact(cursor: &mut Cursor<'_>, (year, month, day): (i64, i64, i64)) -> Option<Bsd> {
    let hour = cursor.number(2, 2).filter(|hour| *hour < 24)?;
    let minute = cursor.number(2, 2).filter(|minute| *minute < 60)?;
    let second = cursor.number(2, 2).filter(|second| *second <= 60)?;
    let nanos = match cursor.rest {
        [b'.' | b',', digit, ..] if digit.is_ascii_digit() && cursor.at_fraction() => {
            cursor.skip(1);
            cursor.fraction()?
        }
        _ => 0,
    };
    let seconds = i128::from(hour * 3_600 + minute * 60 + second);
    let clock = seconds * super::SECOND + i128::from(nanos);
    Some(Bsd { year: Some(year), month, day, clock })
}

/// `2023-10-11`, `2023/10/11`, `2023.10.11`, `2023-Oct-11`, `2023 Oct 11`.
fn year_first(cursor: &mut Cursor<'_>) -> Option<(i64, i64, i64)> {
    let year = cursor.number(4, 4)?;
    let separator = cursor.eat_any(b"-/. ")?;
    let month = match cursor.rest.first()? {
        byte if byte.is_ascii_alphabetic() => cursor.month()?,
        _ if separator == b' ' => return None,
        _ => cursor.number(1, 2)?,
    };
    if !cursor.eat(separator) {
        return None;
    }
    cursor.spaces();
    Some((year, month, cursor.number(1, 2)?))
}

/// `11/Oct/2023`, `11-Oct-2023`, `11 Oct 2023`, `11.10.2023`, and `13/10/2023` or `10/13/2023`,
/// where only one of the numbers can be a month. Breaks with a date without a year.
fn day_first(cursor: &mut Cursor<'_>) -> ControlFlow<Option<Bsd>, Option<(i64, i64, i64)>> {
    let mut parts = || {
        let first = cursor.number(1, 2)?;
        let separator = cursor.eat_any(b"/-. ")?;
        if cursor.rest.first()?.is_ascii_alphabetic() {
            let month = cursor.month()?;
            cursor.eat(b'.');
            if !(cursor.eat(separator) || cursor.eat(b' ')) {
                return None;
            }
            return match cursor.digits() {
                4 => Some((Some(cursor.number(4, 4)?), month, first)),
                // Without a year: the time of day follows.
                _ => Some((None, month, first)),
            };
        }
        let second = cursor.number(1, 2).filter(|_| separator != b' ')?;
        let year = cursor.eat(separator).then(|| cursor.number(4, 4))??;
        let (day, month) = match separator {
            b'.' => (first, second),
            _ if first > 12 => (first, second),
            _ if second > 12 => (second, first),
            _ if first == second => (first, second),
            _ => return None,
        };
        Some((Some(year), month, day))
    };
    match parts() {
        None => ControlFlow::Continue(None),
        Some((Some(year), month, day)) => ControlFlow::Continue(Some((year, month, day))),
        Some((None, month, day)) => {
            cursor.spaces();
            let clock = cursor.clock();
            ControlFlow::Break(clock.map(|clock| Bsd { year: None, month, day, clock }))
        }
    }
}
