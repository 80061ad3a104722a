//! Times in a form that the source names itself.

use super::{Cursor, SECOND, When, civil, without_year};

/// Parses a time by a pattern of Java's `SimpleDateFormat` (`y M d H h m s S a z Z X E`, quoted
/// and literal text), as in LEEF's `devTimeFormat`.
pub(in crate::input) fn pattern(text: &str, pattern: &str, now_ms: i64) -> Option<When> {
    let mut cursor = Cursor { rest: text.trim_ascii().as_bytes() };
    let (mut year, mut month, mut day, mut offset, mut nanos) = (None, 1, 1, None, 0);
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
            b'z' | b'Z' | b'X' => offset = Some(cursor.zone()?),
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
    let seconds = offset.unwrap_or(0);
    let ns = match year {
        Some(year) => civil((year, month, day), clock, seconds),
        None => without_year(month, day, clock, seconds, now_ms),
    }?;
    When { ns, zoned: offset.is_some() }.plausible()
}
