//! What a key is limited to: a namespace, stream, index, pipeline, or prefix of cache keys.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Maximum length of a name in a limit, in bytes.
const NAME_SIZE_MAX: usize = 512;

/// A kind of named resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Area {
    /// A namespace of files.
    Files,
    /// A namespace of documents.
    Documents,
    /// A stream of events.
    Events,
    /// An inventory index.
    Inventories,
    /// A pipeline.
    Pipelines,
    /// Keys of the cache that begin with the name.
    Cache,
}

impl Area {
    const ALL: [(Self, &'static str); 6] = [
        (Self::Files, "files"),
        (Self::Documents, "documents"),
        (Self::Events, "events"),
        (Self::Inventories, "inventories"),
        (Self::Pipelines, "pipelines"),
        (Self::Cache, "cache"),
    ];

    fn word(self) -> &'static str {
        Self::ALL.iter().find(|(area, _)| *area == self).map_or("", |(_, word)| word)
    }
}

/// One resource that a limited key may use: `files:reports`, `events:auth`, `cache:session:`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Limit {
    area: Area,
    name: String,
}

impl Limit {
    /// Returns whether it permits the resource of this name. Names are compared exactly, except
    /// that those of the cache are compared as prefixes.
    pub fn permits(&self, area: Area, name: &str) -> bool {
        self.area == area
            && if area == Area::Cache { name.starts_with(&self.name) } else { name == self.name }
    }

    /// Returns its area.
    pub fn area(&self) -> Area {
        self.area
    }

    /// Returns its name in the area.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            "must be AREA:NAME, with an AREA of files, documents, events, inventories, pipelines or \
             cache"
                .to_owned()
        };
        let (area, name) = text.split_once(':').ok_or_else(wrong)?;
        let (area, _) = Area::ALL.iter().find(|(_, word)| *word == area).ok_or_else(wrong)?;
        if name.is_empty() || name.len() > NAME_SIZE_MAX || name.chars().any(char::is_control) {
            return Err(format!(
                "a name must have 1 to {NAME_SIZE_MAX} bytes and no control characters"
            ));
        }
        Ok(Self { area: *area, name: name.to_owned() })
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.area.word(), self.name)
    }
}

impl From<Limit> for String {
    fn from(limit: Limit) -> Self {
        limit.to_string()
    }
}

impl TryFrom<String> for Limit {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_an_area_and_a_name() {
        let limit: Limit = "files:reports".parse().unwrap();
        assert_eq!(limit.to_string(), "files:reports");
        assert!(limit.permits(Area::Files, "reports"));
        assert!(
            !limit.permits(Area::Files, "reports2") && !limit.permits(Area::Documents, "reports")
        );
        let prefix: Limit = "cache:user:7:".parse().unwrap();
        assert!(
            prefix.permits(Area::Cache, "user:7:name") && !prefix.permits(Area::Cache, "user:77")
        );
        for wrong in ["", "files", "files:", "bucket:x", "files:a\nb"] {
            assert!(wrong.parse::<Limit>().is_err(), "{wrong:?}");
        }
    }
}
