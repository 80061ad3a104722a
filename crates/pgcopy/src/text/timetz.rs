//! `timetz`: microseconds of the day (8 bytes), then seconds *west* of Greenwich (4 bytes).
//!
//! The text is `13:45:06.789+02`: fractions without zeros at their end, the zone with as many of hours,
//! minutes and seconds as it needs, and positive towards the east.

use super::{number, put_padded};
use crate::error::CellError;

const MALFORMED: CellError = CellError::Malformed("time with time zone");
/// 24:00:00 is a time.
pub(crate) const DAY_US: i64 = 86_400_000_000;
/// Zones are less than 16 hours from Greenwich (`MAX_TZDISP_HOUR`).
const ZONE_SECONDS_END: i32 = 16 * 3600;

/// Appends a field as text.
///
/// # Errors
/// The field is malformed.
pub fn to_text(field: &[u8], out: &mut Vec<u8>) -> Result<(), CellError> {
    let length = CellError::Length { expected: 12, found: field.len() };
    let whole: &[u8; 12] = field.try_into().map_err(|_| length)?;
    let (Some(time), Some(zone)) = (whole.first_chunk::<8>(), whole.last_chunk::<4>()) else {
        return Err(MALFORMED);
    };
    let (time, zone) = (i64::from_be_bytes(*time), i32::from_be_bytes(*zone));
    if !(0..=DAY_US).contains(&time) || zone <= -ZONE_SECONDS_END || zone >= ZONE_SECONDS_END {
        return Err(MALFORMED);
    }
    put_time(time.unsigned_abs(), out);
    out.push(if zone > 0 { b'-' } else { b'+' });
    let zone = u64::from(zone.unsigned_abs());
    put_padded(zone / 3600, 2, out);
    let (minutes, seconds) = (zone / 60 % 60, zone % 60);
    if minutes > 0 || seconds > 0 {
        out.push(b':');
        put_padded(minutes, 2, out);
    }
    if seconds > 0 {
        out.push(b':');
        put_padded(seconds, 2, out);
    }
    Ok(())
}

fn put_time(time: u64, out: &mut Vec<u8>) {
    let (seconds, fraction) = (time / 1_000_000, time % 1_000_000);
    put_padded(seconds / 3600, 2, out);
    out.push(b':');
    put_padded(seconds / 60 % 60, 2, out);
    out.push(b':');
    put_padded(seconds % 60, 2, out);
    if fraction > 0 {
        out.push(b'.');
        put_padded(fraction, 6, out);
        while out.last() == Some(&b'0') {
            out.pop();
        }
    }
}

/// Appends the field of a text.
///
/// # Errors
/// The text is not of the form that [`to_text`] writes, or its zone is `Z`.
pub fn from_text(text: &str, out: &mut Vec<u8>) -> Result<(), CellError> {
    let (time, zone) = parse(text).ok_or(MALFORMED)?;
    out.extend_from_slice(&time.to_be_bytes());
    out.extend_from_slice(&zone.to_be_bytes());
    Ok(())
}

fn parse(text: &str) -> Option<(i64, i32)> {
    let (time, zone) = match text.strip_suffix(['Z', 'z']) {
        Some(time) => (time, 0),
        None => {
            let at = text.rfind(['+', '-'])?;
            let (time, zone) = text.split_at_checked(at)?;
            (time, parse_zone(zone)?)
        }
    };
    let (clock, fraction) = time.split_once('.').unwrap_or((time, ""));
    let mut parts = clock.split(':').map(|part| number(part, 2));
    let (hours, minutes) = (parts.next()??, parts.next()??);
    let seconds = match parts.next() {
        Some(seconds) => seconds?,
        None => 0,
    };
    if parts.next().is_some() || hours > 24 || minutes > 59 || seconds > 60 {
        return None;
    }
    let digits = u32::try_from(fraction.len()).ok().filter(|digits| *digits <= 6)?;
    let micros = match fraction {
        "" => 0,
        fraction => number(fraction, 6)? * 10_u32.pow(6 - digits),
    };
    let time = i64::from(hours * 3600 + minutes * 60 + seconds) * 1_000_000 + i64::from(micros);
    (time <= DAY_US).then_some((time, zone))
}

/// Seconds west of Greenwich.
fn parse_zone(zone: &str) -> Option<i32> {
    let (west, zone) = match zone.strip_prefix('-') {
        Some(zone) => (1, zone),
        None => (-1, zone.strip_prefix('+')?),
    };
    let mut seconds = 0;
    for (part, unit) in zone.split(':').zip([3600, 60, 1]) {
        let value = i32::try_from(number(part, 2)?).ok()?;
        seconds += (unit == 3600 || value < 60).then_some(value * unit)?;
    }
    let parts = zone.split(':').count();
    (parts <= 3 && seconds < ZONE_SECONDS_END).then_some(west * seconds)
}
