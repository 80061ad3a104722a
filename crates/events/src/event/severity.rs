//! The severity of an event, on the scale of OCSF (`severity_id`).

/// The scale of OCSF 1.x `severity_id`, including 99 ("other").
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Unknown.
    #[default]
    Unknown,
    /// Informational: no action needed.
    Informational,
    /// Low.
    Low,
    /// Medium.
    Medium,
    /// High: action is needed.
    High,
    /// Critical: action is needed immediately.
    Critical,
    /// Fatal: too late for action.
    Fatal,
    /// A severity that the scale does not define.
    Other,
}

impl Severity {
    /// The number OCSF gives it.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Unknown => 0,
            Self::Informational => 1,
            Self::Low => 2,
            Self::Medium => 3,
            Self::High => 4,
            Self::Critical => 5,
            Self::Fatal => 6,
            Self::Other => 99,
        }
    }

    /// The severity of a number of OCSF; `None` for a number it does not define.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::Unknown,
            1 => Self::Informational,
            2 => Self::Low,
            3 => Self::Medium,
            4 => Self::High,
            5 => Self::Critical,
            6 => Self::Fatal,
            99 => Self::Other,
            _ => return None,
        })
    }

    /// Its name in lower case.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Informational => "informational",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Critical => "critical",
            Self::Fatal => "fatal",
            Self::Other => "other",
        }
    }

    /// The severity of a name as [`name`](Self::name) gives it, in any case.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [
            Self::Unknown,
            Self::Informational,
            Self::Low,
            Self::Medium,
            Self::High,
            Self::Critical,
            Self::Fatal,
            Self::Other,
        ]
        .into_iter()
        .find(|severity| severity.name().eq_ignore_ascii_case(name))
    }
}
