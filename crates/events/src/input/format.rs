//! The formats of log records, by name and by content type: `docs/formats/http-api.md`, events.

use std::fmt;
use std::str::FromStr;

/// Declares the formats once: variant, name, description, and whether a record can be a JSON object.
macro_rules! formats {
    ($($(#[$meta:meta])* $variant:ident = $name:literal, $about:literal, $json:literal;)+) => {
        /// A format of log records.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
        pub enum Format {
            $(#[doc = $about] $(#[$meta])* $variant,)+
        }

        impl Format {
            /// Every format.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            /// Its name, in lower case.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// What it is, for help texts.
            #[must_use]
            pub const fn about(self) -> &'static str {
                match self {
                    $(Self::$variant => $about,)+
                }
            }

            /// Whether its records are, or can be, JSON objects.
            #[must_use]
            pub const fn is_json(self) -> bool {
                match self {
                    $(Self::$variant => $json,)+
                }
            }
        }
    };
}

formats! {
    #[default]
    Auto = "auto", "Detected for each record", true;
    Ndjson = "ndjson", "One JSON object per line, of any form", true;
    Ocsf = "ocsf", "OCSF events, one JSON object per line", true;
    Zeek = "zeek", "Zeek logs, as JSON or as tab-separated values with their `#` header", true;
    Suricata = "suricata", "Suricata's EVE log", true;
    Cef = "cef", "ArcSight's Common Event Format, alone or after a syslog header", false;
    Leef = "leef", "QRadar's Log Event Extended Format, alone or after a syslog header", false;
    Syslog = "syslog", "Syslog: RFC 5424, RFC 3164, and files of syslog daemons", false;
    Clf = "clf", "Access logs of web servers: Common Log Format or combined", false;
    Kv = "kv", "Lines of key=value pairs, alone or after a syslog header", false;
    W3c = "w3c", "W3C extended logs (IIS, CloudFront), whose `#Fields:` line names the columns", false;
    Windows = "windows", "Windows events as XML, one per line", false;
    Text = "text", "Lines that have a time, such as error logs of web servers", false;
    Raw = "raw", "Any line; no fields are extracted", false;
}

/// A name that is not a format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown format {found:?}; use {}", Format::names())]
pub struct FormatError {
    /// The name, at most 64 characters of it.
    pub found: String,
}

impl Format {
    /// The names of all formats, for messages: `auto, ndjson, ... or raw`.
    #[must_use]
    pub fn names() -> String {
        let names: Vec<_> = Self::ALL.into_iter().map(Self::name).collect();
        match names.split_last() {
            Some((last, others)) => format!("{} or {last}", others.join(", ")),
            None => String::new(),
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
