//! The formats of log records, by name and by content type: `docs/formats/http-api.md`, events.

use std::fmt;
use std::str::FromStr;

/// A format of log records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Format {
    /// Detected for each record.
    #[default]
    Auto,
    /// One JSON object per line, of any form.
    Ndjson,
    /// OCSF events, one JSON object per line.
    Ocsf,
    /// Zeek logs, as JSON or as tab-separated values with their `#` header.
    Zeek,
    /// Suricata's EVE log.
    Suricata,
    /// ArcSight's Common Event Format, alone or after a syslog header.
    Cef,
    /// `QRadar`'s Log Event Extended Format, alone or after a syslog header.
    Leef,
    /// Syslog, RFC 5424 or RFC 3164.
    Syslog,
    /// Any line; no fields are extracted.
    Raw,
}

/// A name that is not a format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown format {found:?}; use auto, ndjson, ocsf, zeek, suricata, cef, leef, syslog or raw"
)]
pub struct FormatError {
    /// The name, at most 64 characters of it.
    pub found: String,
}

impl Format {
    /// Every format.
    pub const ALL: [Self; 9] = [
        Self::Auto,
        Self::Ndjson,
        Self::Ocsf,
        Self::Zeek,
        Self::Suricata,
        Self::Cef,
        Self::Leef,
        Self::Syslog,
        Self::Raw,
    ];

    /// Its name, in lower case.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Ndjson => "ndjson",
            Self::Ocsf => "ocsf",
            Self::Zeek => "zeek",
            Self::Suricata => "suricata",
            Self::Cef => "cef",
            Self::Leef => "leef",
            Self::Syslog => "syslog",
            Self::Raw => "raw",
        }
    }

    /// Returns the format of a content type: NDJSON by its registered and customary names, the
    /// others as `application/x-NAME` or `text/x-NAME` (Zeek, Suricata and OCSF also with `+json`),
    /// `text/plain` as [`Auto`](Self::Auto). Ignores parameters and case. `None`: any other.
    #[must_use]
    pub fn from_content_type(content_type: &str) -> Option<Self> {
        let essence = content_type.split(';').next()?.trim().to_ascii_lowercase();
        match essence.as_str() {
            "application/x-ndjson"
            | "application/ndjson"
            | "application/jsonl"
            | "application/x-jsonlines"
            | "application/jsonlines" => return Some(Self::Ndjson),
            "text/plain" => return Some(Self::Auto),
            "application/octet-stream" => return Some(Self::Raw),
            _ => {}
        }
        let (_, subtype) = essence.split_once('/')?;
        let name = subtype.strip_suffix("+json").unwrap_or(subtype);
        let name = name.strip_prefix("x-").or_else(|| name.strip_prefix("vnd."))?;
        match name {
            "eve" => Some(Self::Suricata),
            "auto" => None,
            name => name.parse().ok(),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl FromStr for Format {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Self, FormatError> {
        Self::ALL
            .into_iter()
            .find(|format| format.name().eq_ignore_ascii_case(text))
            .ok_or_else(|| FormatError { found: text.chars().take(64).collect() })
    }
}
