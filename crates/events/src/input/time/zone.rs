//! Zones that are written beside a time: offsets, abbreviations, and names of the system's database
//! of zones, such as `Europe/Paris`.
//!
//! Invariant: a time is never read in another zone than the one beside it. If that is not known, the
//! time is none.

use jiff::Timestamp;
use jiff::tz::{Offset, TimeZone};

use super::{Cursor, When};

/// The first parts of names.
const AREAS: [&str; 14] = [
    "Africa",
    "America",
    "Antarctica",
    "Arctic",
    "Asia",
    "Atlantic",
    "Australia",
    "Brazil",
    "Canada",
    "Etc",
    "Europe",
    "Indian",
    "Pacific",
    "US",
];
/// Maximum size of a name in bytes: the longest has 32.
const NAME_SIZE_MAX: usize = 40;

impl When {
    /// This time in the zone that is written beside it, unless it has an offset. `None`: the zone
    /// has several meanings, or is not known on this machine. Other texts are no zones.
    pub(in crate::input) fn in_zone(self, text: &str) -> Option<Self> {
        let text = text.trim_ascii();
        if self.zoned {
            return Some(self);
        }
        // `(GMT-5:00)Eastern Time(US & Canada)`: the offset precedes a description.
        let offset = text.strip_prefix('(').and_then(|rest| rest.split_once(')'));
        let text = offset.map_or(text, |(offset, _)| offset);
        let mut cursor = Cursor { rest: text.as_bytes() };
        if let Some(offset) = cursor.zone().filter(|_| cursor.rest.is_empty()) {
            return Some(Self::exact(self.ns - offset * 1_000_000_000));
        }
        if (Cursor { rest: text.as_bytes() }).at_ambiguous_zone() {
            return None;
        }
        if name(text.as_bytes()).is_none_or(|name| name.len() < text.len()) {
            return Some(self);
        }
        let zone = TimeZone::get(text).ok()?;
        shifted(self.ns, &zone).map(|(ns, _)| Self::exact(ns))
    }
}

/// The name of a zone at the front of a text.
pub(super) fn name(text: &[u8]) -> Option<&str> {
    let fits = |byte: &u8| byte.is_ascii_alphanumeric() || b"/_-+".contains(byte);
    let size = text.iter().take(NAME_SIZE_MAX).take_while(|byte| fits(byte)).count();
    let name = std::str::from_utf8(text.get(..size)?).ok()?;
    let (area, place) = name.split_once('/')?;
    (AREAS.contains(&area) && !place.is_empty()).then_some(name)
}

/// Returns a time that was read as UTC, in a zone; of a time that exists twice the first, of one that
/// does not exist the one after the gap. Also returns whether it exists exactly once.
pub(in crate::input) fn shifted(ns: i64, zone: &TimeZone) -> Option<(i64, bool)> {
    let time = Timestamp::from_nanosecond(i128::from(ns)).ok()?;
    let civil = Offset::UTC.to_datetime(time);
    let found = zone.to_ambiguous_timestamp(civil);
    let is_sure = !found.is_ambiguous();
    let exact = found.compatible().ok()?;
    Some((i64::try_from(exact.as_nanosecond()).ok()?, is_sure))
}
