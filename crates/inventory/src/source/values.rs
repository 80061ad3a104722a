//! Parsing the fields of a row, from text or numbers.
//!
//! An invalid value becomes a reason, as text, for the invalid row; no value is replaced by a more
//! convenient one.

use std::sync::Arc;

use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::Offset;

use crate::object::{ClassId, Classes, Kind, Month};

/// The largest size an object may have.
const SIZE_MAX: u64 = i64::MAX as u64;
/// The class whose objects have tiers.
const TIERED: &[u8] = b"INTELLIGENT_TIERING";
/// Number of cached classes.
const RECENT_MAX: usize = 32;
/// Maximum number of bytes of a value in a message.
const SHOWN_MAX: usize = 60;

/// A value for a message: as text, shortened.
pub(crate) fn shown(value: &[u8]) -> String {
    let shown = value.get(..SHOWN_MAX).unwrap_or(value);
    let more = if shown.len() < value.len() { "..." } else { "" };
    format!("{:?}{more}", String::from_utf8_lossy(shown))
}

/// A size, from its decimal digits.
pub(crate) fn size(text: &[u8]) -> Result<u64, String> {
    let digits = text.trim_ascii();
    if digits.is_empty() {
        return Err("there is no size".to_owned());
    }
    let mut size = 0_u64;
    for &byte in digits {
        if !byte.is_ascii_digit() {
            let negative = digits.first() == Some(&b'-') && digits.len() > 1;
            let what = if negative { "is negative" } else { "is not a whole number" };
            return Err(format!("the size {} {what}", shown(text)));
        }
        let next = size.checked_mul(10).and_then(|size| size.checked_add(u64::from(byte - b'0')));
        size = next.filter(|&size| size <= SIZE_MAX).ok_or_else(|| too_large(&shown(text)))?;
    }
    Ok(size)
}

/// A size, from a signed number.
#[inline]
pub(crate) fn size_from_i64(size: i64) -> Result<u64, String> {
    u64::try_from(size).map_err(|_| format!("the size {size} is negative"))
}

/// A size, from a wide number.
pub(crate) fn size_from_i128(size: i128) -> Result<u64, String> {
    if size < 0 {
        return Err(format!("the size {size} is negative"));
    }
    let fits = u64::try_from(size).ok().filter(|&size| size <= SIZE_MAX);
    fits.ok_or_else(|| too_large(&size.to_string()))
}

/// A size, from a decimal number that is whole, such as 4096.00.
///
/// * `scale`: number of its digits after the point.
pub(crate) fn size_from_decimal(unscaled: i128, scale: i8) -> Result<u64, String> {
    let unit = 10_i128.checked_pow(u32::from(scale.unsigned_abs()));
    let whole = match (unit, scale) {
        (Some(unit), 1..) => (unscaled % unit == 0).then(|| unscaled / unit),
        (Some(unit), _) => unscaled.checked_mul(unit),
        (None, _) => None,
    };
    let wrong =
        || format!("the size {unscaled}e{} is not a whole number that fits", -i16::from(scale));
    size_from_i128(whole.ok_or_else(wrong)?)
}

/// A size, from a floating-point number: only values that it represents exactly.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
pub(crate) fn size_from_f64(size: f64) -> Result<u64, String> {
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    if (0.0..=EXACT_MAX).contains(&size) && size.fract() == 0.0 {
        return Ok(size as u64);
    }
    Err(format!("the size {size} is not a whole number from 0 to 2^53"))
}

fn too_large(size: &str) -> String {
    format!("the size {size} is greater than 2^63 - 1")
}

/// A boolean: `true` or `false` in any case.
pub(crate) fn boolean(text: &[u8]) -> Result<bool, String> {
    match text {
        _ if text.eq_ignore_ascii_case(b"true") => Ok(true),
        _ if text.eq_ignore_ascii_case(b"false") => Ok(false),
        _ => Err(format!("{} is neither true nor false", shown(text))),
    }
}

/// The version kind of an object, from its fields.
#[inline]
pub(crate) fn kind(is_latest: Option<bool>, is_delete_marker: Option<bool>) -> Kind {
    match (is_latest, is_delete_marker) {
        (_, Some(true)) => Kind::DeleteMarker,
        (Some(false), _) => Kind::Noncurrent,
        _ => Kind::Current,
    }
}

/// Distinguishes a version from the others of its key; 0 without an id.
#[inline]
pub(crate) fn version(id: &[u8]) -> u64 {
    if id.is_empty() { 0 } else { xxhash_rust::xxh3::xxh3_64(id).max(1) }
}

/// The month of a date, in the forms of ISO 8601 and RFC 3339. An empty date is unknown.
pub(crate) fn month(text: &[u8]) -> Result<Month, String> {
    if let Some(month) = month_in_utc(text) {
        return Ok(month);
    }
    let text = text.trim_ascii();
    if text.is_empty() {
        return Ok(Month::UNKNOWN);
    }
    let wrong = || format!("{} is not a date", shown(text));
    // It may as well be a number of some unit, or a size in the wrong column.
    if text.iter().all(u8::is_ascii_digit) {
        return Err(format!("{}, digits alone", wrong()));
    }
    let spelled = std::str::from_utf8(text).map_err(|_| wrong())?;
    let moment = spelled.parse::<Timestamp>().ok().or_else(|| {
        let local = spelled.parse::<DateTime>().ok();
        let local = local
            .or_else(|| Some(spelled.parse::<Date>().ok()?.to_datetime(jiff::civil::Time::MIN)));
        Offset::UTC.to_timestamp(local?).ok()
    });
    Ok(Month::from_unix_ms(moment.ok_or_else(wrong)?.as_millisecond()))
}

/// The month of `2024-02-29T12:34:56.789Z`, the most common form: with or without a fraction, with
/// a blank for the `T`, and in UTC, stated or not.
#[inline]
fn month_in_utc(text: &[u8]) -> Option<Month> {
    let (seconds, rest) = text.split_at_checked(19)?;
    let zone = match rest.strip_prefix(b".") {
        None => rest,
        Some(fraction) => {
            let digits = fraction.iter().take_while(|byte| byte.is_ascii_digit()).count();
            fraction.get(digits..).filter(|_| (1..=9).contains(&digits))?
        }
    };
    let separators = [(4, b'-'), (7, b'-'), (13, b':'), (16, b':')];
    let fits = matches!(zone, b"Z" | b"" | b"+00" | b"+00:00")
        && matches!(seconds.get(10), Some(b'T' | b' '))
        && separators.iter().all(|&(at, separator)| seconds.get(at) == Some(&separator));
    if !fits {
        return None;
    }
    let number = |from: usize, to: usize| {
        seconds.get(from..to)?.iter().try_fold(0_u16, |number, digit| {
            digit.is_ascii_digit().then(|| number * 10 + u16::from(digit - b'0'))
        })
    };
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let fits = number(11, 13)? < 24 && number(14, 16)? < 60 && number(17, 19)? < 60;
    // The last days of a month are left to the general parser.
    let fits = fits && (1970..7000).contains(&year) && (1..=12).contains(&month);
    let fits = fits && (1..=28).contains(&day);
    fits.then(|| Month::from_number((year - 1970) * 12 + month))
}

/// The classes of a build, and a cache by their bytes, so that few are looked up by name.
#[derive(Debug)]
pub(crate) struct ClassNames {
    classes: Arc<Classes>,
    recent: Vec<Met>,
    /// The most recently used of `recent`, which is tried first.
    last: usize,
}

/// A class and a tier in raw form, and their number.
#[derive(Debug)]
struct Met {
    class: Box<[u8]>,
    tier: Box<[u8]>,
    id: ClassId,
}

impl Met {
    #[inline]
    fn is(&self, class: &[u8], tier: &[u8]) -> bool {
        self.class.as_ref() == class && self.tier.as_ref() == tier
    }
}

impl ClassNames {
    pub(crate) fn new(classes: Arc<Classes>) -> Self {
        Self { classes, recent: Vec::new(), last: 0 }
    }

    /// The number of a class, with the tier of an object that has one. `class` is `None` if the
    /// source has no classes.
    #[inline]
    pub(crate) fn id(&mut self, class: Option<&[u8]>, tier: &[u8]) -> Result<ClassId, String> {
        let class = class.unwrap_or(if tier.is_empty() { b"" } else { TIERED });
        match self.recent.get(self.last) {
            Some(met) if met.is(class, tier) => Ok(met.id),
            _ => self.look_up(class, tier),
        }
    }

    fn look_up(&mut self, class: &[u8], tier: &[u8]) -> Result<ClassId, String> {
        let known = self.recent.iter().enumerate().find(|(_, met)| met.is(class, tier));
        if let Some((at, met)) = known {
            self.last = at;
            return Ok(met.id);
        }
        let text = |bytes| {
            std::str::from_utf8(bytes)
                .map_err(|_| format!("the storage class {} is not UTF-8", shown(bytes)))
        };
        let id = if class == TIERED && !tier.is_empty() {
            self.classes.id(&format!("{}:{}", text(class)?, text(tier)?))
        } else {
            self.classes.id(text(class)?)
        };
        let id = id.map_err(|e| e.to_string())?;
        if self.recent.len() >= RECENT_MAX {
            self.recent.clear();
        }
        self.last = self.recent.len();
        self.recent.push(Met { class: class.into(), tier: tier.into(), id });
        Ok(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_whole_and_below_two_to_the_63() {
        assert_eq!(size(b"0"), Ok(0));
        assert_eq!(size(b" 9223372036854775807"), Ok(SIZE_MAX));
        let reasons = [
            (&b""[..], "there is no size"),
            (b"-1", "the size \"-1\" is negative"),
            (b"1.5", "the size \"1.5\" is not a whole number"),
            (b"9223372036854775808", "the size \"9223372036854775808\" is greater than 2^63 - 1"),
            (b"99999999999999999999999", "is greater than 2^63 - 1"),
        ];
        for (text, reason) in reasons {
            assert!(size(text).unwrap_err().contains(reason), "{reason}");
        }
        assert_eq!(size_from_f64(4096.0), Ok(4096));
        for wrong in [0.5, -1.0, f64::NAN, f64::INFINITY, 1e300] {
            assert!(size_from_f64(wrong).is_err(), "{wrong}");
        }
        assert_eq!(size_from_decimal(409_600, 2), Ok(4096));
        assert_eq!(size_from_decimal(4, -3), Ok(4000));
        for (unscaled, scale) in [(409_601, 2), (-100, 2), (1, 127), (i128::MAX, -1), (1, -19)] {
            assert!(size_from_decimal(unscaled, scale).is_err(), "{unscaled} {scale}");
        }
        assert!(size_from_i128(1 << 63).is_err());
        assert!(size_from_i128(-1).is_err());
        assert!(size_from_i64(-1).is_err());
    }

    #[test]
    fn every_spelling_of_a_moment_is_in_its_month() {
        let february = month(b"2024-02-29T23:59:59.000Z").unwrap();
        assert_eq!(february.to_string(), "2024-02");
        for text in [
            "2024-02-01T00:00:00Z",
            "2024-02-01T00:00:00.123Z",
            "2024-02-28T23:59:59.123456Z",
            "2024-03-01T00:30:00+01:00",
            "2024-01-31T23:30:00-01:00",
            "2024-02-10 12:00:00",
            "2024-02-10T12:00:00",
            "2024-02-10 12:00:00.123456+00",
            "2024-02-29 12:00:00.5",
            "2024-02-10",
        ] {
            assert_eq!(month(text.as_bytes()), Ok(february), "{text}");
        }
        assert_eq!(month(b""), Ok(Month::UNKNOWN));
        for text in
            ["2023-02-29T00:00:00Z", "yesterday", "2024-13-01T00:00:00Z", "20240210", "1709164800"]
        {
            assert!(month(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn tiers_are_classes_of_their_own() {
        let classes = Arc::new(Classes::new());
        let mut names = ClassNames::new(Arc::clone(&classes));
        let name = |id: ClassId| classes.names()[usize::from(id.0)].clone();
        assert_eq!(names.id(None, b"").unwrap(), ClassId::STANDARD);
        let tiered = names.id(Some(b"INTELLIGENT_TIERING"), b"ARCHIVE").unwrap();
        assert_eq!(name(tiered), "INTELLIGENT_TIERING:ARCHIVE");
        assert_eq!(names.id(None, b"ARCHIVE").unwrap(), tiered);
        assert_eq!(name(names.id(Some(b"GLACIER"), b"ARCHIVE").unwrap()), "GLACIER");
        assert_eq!(
            name(names.id(Some(b"INTELLIGENT_TIERING"), b"").unwrap()),
            "INTELLIGENT_TIERING"
        );
        assert!(names.id(Some(b"\xff"), b"").unwrap_err().contains("not UTF-8"));
    }
}
