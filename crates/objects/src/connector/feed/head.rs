//! The ledger of a feed: its position, and which files of changes are valid (`docs/formats/pipeline-files.md`).
//!
//! ```text
//! PATH/_forebay/PIPELINE.feed/ledger.json            replaced as a whole with every unit: the atomic switch
//! PATH/_forebay/PIPELINE.feed/segments/<last>-<id>.json   the units before, each naming the segment before it
//! ```
//!
//! Invariants:
//! - The ledger has at most [`TAIL_MAX`] units: when there are more, they are moved to a segment, which never changes.
//!   So what is written for a unit does not grow with the number of units.
//! - A ledger or segment that was changed does not match its checksum, and is refused.

use forebay_sdk::changes::feed::Feed;
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The version of this format.
const VERSION: u32 = 1;
/// Maximum number of units in the ledger itself.
pub(super) const TAIL_MAX: usize = 128;

/// A file of changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LogFile {
    /// The stream, by its name at the destination.
    pub(super) into: String,
    #[serde(flatten)]
    pub(super) file: PartName,
}

/// Name, number of rows and size of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PartName {
    pub(super) name: String,
    pub(super) rows: u64,
    pub(super) bytes: u64,
}

/// A unit: its files became valid at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Unit {
    pub(super) number: u64,
    /// The position up to which the files have the changes.
    pub(super) position: String,
    pub(super) files: Vec<LogFile>,
}

/// A reference to a segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Previous {
    pub(super) name: String,
    /// The number of its last unit.
    pub(super) last: u64,
    /// SHA-256 of the segment.
    pub(super) checksum: String,
}

/// Units that are not in the ledger any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Segment {
    version: u32,
    pub(super) units: Vec<Unit>,
    pub(super) previous: Option<Previous>,
}

/// The ledger of a feed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Head {
    pub(super) version: u32,
    pub(super) pipeline: String,
    /// `None`: there is no feed any more.
    pub(super) feed: Option<Feed>,
    /// Names the log: files of another one are not valid. A feed that begins again has another one.
    pub(super) log: String,
    /// The number of the last unit; 0: there is none.
    pub(super) last: u64,
    /// The newest units.
    pub(super) tail: Vec<Unit>,
    pub(super) previous: Option<Previous>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sealed<'a> {
    #[serde(borrow)]
    ledger: &'a serde_json::value::RawValue,
    checksum: String,
}

impl Head {
    pub(super) fn new(pipeline: &str) -> Self {
        Self {
            version: VERSION,
            pipeline: pipeline.to_owned(),
            feed: None,
            log: String::new(),
            last: 0,
            tail: Vec::new(),
            previous: None,
        }
    }

    /// Reads a ledger.
    ///
    /// # Errors
    /// It is damaged, of another version, or of another pipeline.
    pub(super) fn decode(bytes: &[u8], place: &str, pipeline: &str) -> Result<Self> {
        let head: Self = unsealed(bytes, place)?;
        check_version(head.version, place)?;
        if head.pipeline != pipeline {
            return Err(ConnectorError::unsupported(
                format!("{place} belongs to the pipeline {:?}", head.pipeline),
                "rename this pipeline, or give it another `path`",
            ));
        }
        Ok(head)
    }

    pub(super) fn encode(&self) -> Result<Vec<u8>> {
        sealed(self)
    }

    /// The units that are moved to a segment, if there are too many.
    pub(super) fn surplus(&self) -> Option<(Segment, u64)> {
        let last = self.tail.last().filter(|_| self.tail.len() >= TAIL_MAX)?.number;
        let (units, previous) = (self.tail.clone(), self.previous.clone());
        Some((Segment { version: VERSION, units, previous }, last))
    }

    /// Whether a file of this name is valid, as far as the ledger alone shows: one of an earlier unit was the only one
    /// of its number, since others are removed before a unit begins.
    ///
    /// * `into`: the stream.
    pub(super) fn has(&self, into: &str, name: &str) -> bool {
        let Some(of) = Name::parse(name) else { return false };
        let first = self.tail.first().map_or(self.last.saturating_add(1), |unit| unit.number);
        if of.log != self.log || of.unit > self.last {
            return false;
        }
        let files = self.tail.iter().flat_map(|unit| &unit.files);
        of.unit < first || files.into_iter().any(|it| it.into == into && it.file.name == name)
    }
}

impl Segment {
    pub(super) fn encode(&self) -> Result<Vec<u8>> {
        sealed(self)
    }

    /// Reads a segment.
    ///
    /// # Errors
    /// It is damaged, or of another version.
    #[cfg(test)]
    pub(super) fn decode(bytes: &[u8], place: &str) -> Result<Self> {
        let segment: Self = unsealed(bytes, place)?;
        check_version(segment.version, place)?;
        Ok(segment)
    }
}

fn check_version(version: u32, place: &str) -> Result<()> {
    if version == VERSION {
        return Ok(());
    }
    let found = format!("it has version {version}; this Forebay supports version {VERSION}");
    Err(ConnectorError::data(place, found))
}

/// SHA-256 in hexadecimal digits.
pub(super) fn checksum(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

fn sealed(what: &impl Serialize) -> Result<Vec<u8>> {
    let ledger = serde_json::to_string(what).map_err(|error| ConnectorError::Refused {
        act: "encode the ledger of a feed".into(),
        source: error.into(),
    })?;
    let checksum = checksum(ledger.as_bytes());
    Ok(format!("{{\"ledger\":{ledger},\"checksum\":\"{checksum}\"}}").into_bytes())
}

fn unsealed<T: DeserializeOwned>(bytes: &[u8], place: &str) -> Result<T> {
    let refused = |found: String| {
        ConnectorError::data(
            place,
            format!(
                "{found}; nothing was changed. Restore it from a backup, or remove it and run with \
                 `--from-scratch`, which begins another log"
            ),
        )
    };
    let sealed: Sealed<'_> = serde_json::from_slice(bytes)
        .map_err(|error| refused(format!("it is not the ledger of a feed: {error}")))?;
    if checksum(sealed.ledger.get().as_bytes()) != sealed.checksum {
        return Err(refused("it is damaged: its contents do not match its checksum".into()));
    }
    serde_json::from_str(sealed.ledger.get())
        .map_err(|error| refused(format!("it is not the ledger of a feed: {error}")))
}

/// The name of a file of changes: `log-<log>-<unit>-<part>-<attempt>.<ending>`, in the order of commits.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Name<'a> {
    pub(super) log: &'a str,
    pub(super) unit: u64,
}

impl<'a> Name<'a> {
    pub(super) fn write(log: &str, unit: u64, part: u64, attempt: &str, ending: &str) -> String {
        format!("log-{log}-{unit:012}-{part:06}-{attempt}.{ending}")
    }

    pub(super) fn parse(name: &'a str) -> Option<Self> {
        let (stem, _) = name.strip_prefix("log-")?.split_once('.')?;
        let mut parts = stem.split('-');
        let [log, unit, part, attempt] =
            [parts.next()?, parts.next()?, parts.next()?, parts.next()?];
        let is_id = |id: &str| id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_number =
            |text: &str| text.len() >= 6 && text.bytes().all(|byte| byte.is_ascii_digit());
        let is_name = is_id(log) && is_id(attempt) && is_number(part) && is_number(unit);
        (is_name && parts.next().is_none()).then(|| Some(Self { log, unit: unit.parse().ok()? }))?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_a_ledger_counts() {
        let mut head = Head::new("p");
        head.log = "0123456789abcdef".into();
        let bytes = head.encode().unwrap();
        assert_eq!(Head::decode(&bytes, "x", "p").unwrap(), head);
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(Head::decode(&changed, "x", "p").is_err(), "byte {at}");
        }
        let error = Head::decode(&bytes, "x", "q").unwrap_err().to_string();
        assert!(error.contains("belongs to the pipeline \"p\""), "{error}");
    }

    #[test]
    fn names_of_files_are_in_the_order_of_units_and_nothing_else_is_one() {
        let name =
            |unit, part| Name::write("0123456789abcdef", unit, part, "fedcba9876543210", "csv.gz");
        let names = [name(1, 0), name(1, 1), name(2, 0), name(10, 0), name(999_999_999_999, 0)];
        assert!(names.is_sorted());
        assert_eq!(Name::parse(&names[3]), Some(Name { log: "0123456789abcdef", unit: 10 }));
        for other in
            ["log-a.csv", "part-0123456789abcdef-0123456789abcdef.csv", "log.csv", "log--0--.csv"]
        {
            assert_eq!(Name::parse(other), None, "{other}");
        }
    }
}
