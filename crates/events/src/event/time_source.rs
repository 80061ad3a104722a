//! Where the time of an event is from.

/// Where the time of an event is from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TimeSource {
    /// Unknown: the event was stored by a version that did not record it, or the producer set the
    /// time without saying.
    #[default]
    Unknown,
    /// The event itself, with an offset or in a unit that needs none.
    Event,
    /// The event itself, without an offset: it was read as UTC, or in a zone whose clocks show it
    /// twice or never.
    Assumed,
    /// The time of appending, because no time was recognised in the event.
    Received,
}

impl TimeSource {
    /// The number it is stored as; [`Unknown`](Self::Unknown) is not stored.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Unknown => 0,
            Self::Event => 1,
            Self::Assumed => 2,
            Self::Received => 3,
        }
    }

    /// The source of a stored number; `None` for one that is never stored.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Event,
            2 => Self::Assumed,
            3 => Self::Received,
            _ => return None,
        })
    }

    /// Its name in lower case.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Event => "event",
            Self::Assumed => "assumed",
            Self::Received => "received",
        }
    }

    /// The source of a name as [`name`](Self::name) gives it.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Unknown, Self::Event, Self::Assumed, Self::Received]
            .into_iter()
            .find(|source| source.name() == name)
    }
}
