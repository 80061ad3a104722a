//! What an operator says about the records of a stream: which fields have the time, host and type,
//! and the zone of times without an offset.

use std::collections::BTreeMap;

use jiff::tz::{Offset, TimeZone};

use crate::event::TimeSource;

/// Where the fields of a stream's events are. What is not set is recognised.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Mapping {
    /// The key of the time, with dots between nested ones.
    pub time_field: Option<String>,
    /// The key of the host.
    pub host_field: Option<String>,
    /// The key of the type.
    pub type_field: Option<String>,
    /// The zone of times without an offset; UTC if it is not set.
    pub zone: Option<TimeZone>,
}

/// The mappings of streams.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Mappings {
    /// That of streams without their own.
    pub default: Mapping,
    /// Those of streams, by name; what they leave out is as in `default`.
    pub streams: BTreeMap<String, Mapping>,
}

impl Mappings {
    /// Returns the mapping of a stream.
    #[must_use]
    pub fn of(&self, stream: &str) -> Mapping {
        match self.streams.get(stream) {
            Some(own) => self.default.clone().overridden(own.clone()),
            None => self.default.clone(),
        }
    }
}

/// A zone that is not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown time zone {found:?}; use UTC, an offset such as +02:00, or a name such as Europe/Paris"
)]
pub struct ZoneError {
    /// The text, at most 64 characters of it.
    pub found: String,
}

impl Mapping {
    /// Returns this mapping with what `other` sets.
    #[must_use]
    pub fn overridden(self, other: Self) -> Self {
        Self {
            time_field: other.time_field.or(self.time_field),
            host_field: other.host_field.or(self.host_field),
            type_field: other.type_field.or(self.type_field),
            zone: other.zone.or(self.zone),
        }
    }

    /// Parses the name of a zone: `UTC`, `+02:00`, or a name of the system's database of zones.
    ///
    /// # Errors
    /// [`ZoneError`]: there is no such zone on this machine.
    pub fn zone(text: &str) -> Result<TimeZone, ZoneError> {
        let text = text.trim();
        let failed = || ZoneError { found: text.chars().take(64).collect() };
        if ["UTC", "Z", "GMT"].iter().any(|name| name.eq_ignore_ascii_case(text)) {
            return Ok(TimeZone::UTC);
        }
        if text.starts_with(['+', '-']) {
            let mut cursor = super::time::Cursor { rest: text.as_bytes() };
            let seconds = cursor.zone().filter(|_| cursor.rest.is_empty()).ok_or_else(failed)?;
            let seconds = i32::try_from(seconds).map_err(|_| failed())?;
            return Offset::from_seconds(seconds).map(TimeZone::fixed).map_err(|_| failed());
        }
        TimeZone::get(text).map_err(|_| failed())
    }

    /// Returns a time that was read as UTC, in the zone; of a time that exists twice the first, of
    /// one that does not exist the one after the gap: either is assumed. `None`: no zone is set.
    pub(super) fn shifted(&self, ns: i64) -> Option<(i64, TimeSource)> {
        let (ns, is_sure) = super::time::in_zone(ns, self.zone.as_ref()?)?;
        Some((ns, if is_sure { TimeSource::Event } else { TimeSource::Assumed }))
    }
}
