//! The ledger of a directory of files: which files are valid, and which load wrote them.
//!
//! `_forebay/STREAM/ledger.json` beside the stream's own directory. It is replaced as a whole and
//! is authoritative: a file in the directory that it does not list was left by a killed run, and is
//! removed before the next load. If `next` is set, the load replaces all files: its own wait in
//! `_forebay/STREAM/next` until it is finished. Once `is_switching` is set they are moved, and the
//! next run that opens the directory first completes that. `docs/formats/pipeline-files.md`
//! describes every key.
//!
//! ```json
//! {"version": 1, "pipeline": "..", "stream": "..",
//!  "columns": [{"name": "id", "type": "bigint"}],
//!  "files": [{"name": "part-LOAD-UNIT.parquet", "rows": 10, "bytes": 812}],
//!  "next": null, "is_switching": false,
//!  "load": {..}, "entries": [{..}], "dead": [], "runs": 1, "checksum": "64 digits"}
//! ```
//!
//! `checksum` is the SHA-256 of all bytes before the comma in front of it. It comes last and nothing
//! follows it, so no byte of the ledger can change unnoticed. Ledgers of earlier builds have none.

use forebay_pgcopy::Column;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use forebay_sdk::connector::{LedgerEntry, Load};
use forebay_sdk::error::ConnectorError;

/// The version of this format.
const VERSION: u32 = 1;
/// Maximum size of a ledger, in bytes.
pub(super) const LEDGER_SIZE_MAX: u64 = 256 << 20;
/// Size of the end of a ledger from the comma in front of the checksum, in bytes.
const CHECKSUM_SIZE: usize = r#","checksum":""}"#.len() + 64;
/// What to do about a ledger that is damaged.
const RESTORE: &str = "nothing was changed. Restore it from a backup, or move the stream's directory and its \
                       state in `_forebay` elsewhere to copy everything again";

/// The contents of a ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ledger {
    version: u32,
    /// The pipeline that writes here.
    pub(super) pipeline: String,
    pub(super) stream: String,
    /// Columns of the files.
    pub(super) columns: Vec<Kept>,
    /// The valid files.
    pub(super) files: Vec<PartFile>,
    /// The files that replace them when the load is finished.
    pub(super) next: Option<Next>,
    /// Whether they are being replaced now.
    pub(super) is_switching: bool,
    pub(super) load: Option<Load>,
    pub(super) entries: Vec<LedgerEntry>,
    /// Files with the dead letters of all loads.
    #[serde(default)]
    pub(super) dead: Vec<PartFile>,
    /// Number of runs that prepared a load, so that no run overwrites what another wrote after it
    /// read.
    #[serde(default)]
    pub(super) runs: u64,
    /// Read, so that a ledger that has one elsewhere than at its end is recognized. The encoding
    /// appends it.
    #[serde(default, skip_serializing)]
    checksum: Option<String>,
}

/// A column of the files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Kept {
    pub(super) name: String,
    #[serde(rename = "type")]
    pub(super) sql_type: String,
}

/// A file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PartFile {
    pub(super) name: String,
    pub(super) rows: u64,
    pub(super) bytes: u64,
}

/// The files of a load that replaces all others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Next {
    pub(super) columns: Vec<Kept>,
    pub(super) files: Vec<PartFile>,
}

impl Ledger {
    /// The ledger of an empty directory.
    pub(super) fn new(pipeline: &str, stream: &str) -> Self {
        Self {
            version: VERSION,
            pipeline: pipeline.to_owned(),
            stream: stream.to_owned(),
            columns: Vec::new(),
            files: Vec::new(),
            next: None,
            is_switching: false,
            load: None,
            entries: Vec::new(),
            dead: Vec::new(),
            runs: 0,
            checksum: None,
        }
    }

    /// Reads a ledger.
    pub(super) fn decode(bytes: &[u8], place: &str) -> Result<Self, ConnectorError> {
        let refused = |found: String| ConnectorError::data(place, found);
        let is_sealed = is_sealed(bytes);
        let mut ledger: Self = serde_json::from_slice(bytes)
            .map_err(|error| refused(format!("it is not a ledger of files: {error}; {RESTORE}")))?;
        if ledger.checksum.take().is_some() && !is_sealed {
            return Err(refused(format!(
                "it is damaged: its contents do not match its checksum; {RESTORE}"
            )));
        }
        if ledger.version != VERSION {
            let version = ledger.version;
            return Err(refused(format!(
                "it has version {version}; this Forebay supports version {VERSION}"
            )));
        }
        Ok(ledger)
    }

    /// The ledger's bytes.
    pub(super) fn encode(&self) -> Result<Vec<u8>, ConnectorError> {
        let encoded = serde_json::to_vec(self).map_err(|error| ConnectorError::Refused {
            act: "encode the ledger of files".into(),
            source: error.into(),
        });
        let mut bytes = encoded?;
        // The brace at the end, which follows the checksum now.
        bytes.pop();
        let checksum = checksum(&bytes);
        bytes.extend_from_slice(&checksum);
        Ok(bytes)
    }

    /// Starts a load. Files that an abandoned load prepared become invalid.
    pub(super) fn begin(&mut self, load: &Load, columns: Vec<Kept>, is_replace: bool) {
        self.next = None;
        if is_replace {
            self.next = Some(Next { columns, files: Vec::new() });
        } else if self.files.is_empty() {
            self.columns = columns;
        } else {
            let new: Vec<Kept> =
                columns.into_iter().filter(|column| !self.columns.contains(column)).collect();
            self.columns.extend(new);
        }
        self.entries.clear();
        self.load = Some(load.clone());
    }

    /// Whether it has a load with this id.
    pub(super) fn has(&self, load: &Load) -> bool {
        self.load.as_ref().is_some_and(|it| it.id == load.id)
    }
}

/// The end of a ledger whose other bytes are these.
fn checksum(before: &[u8]) -> Vec<u8> {
    format!(",\"checksum\":\"{}\"}}", hex::encode(Sha256::digest(before))).into_bytes()
}

/// Whether a ledger ends with the checksum of its other bytes.
fn is_sealed(bytes: &[u8]) -> bool {
    let before = bytes.len().checked_sub(CHECKSUM_SIZE).and_then(|at| bytes.split_at_checked(at));
    before.is_some_and(|(before, end)| end == checksum(before))
}

/// The columns in the form of the ledger.
pub(super) fn kept(columns: &[Column]) -> Vec<Kept> {
    let kept =
        |column: &Column| Kept { name: column.name.clone(), sql_type: column.sql_type.clone() };
    columns.iter().map(kept).collect()
}

/// The name of a unit's file.
pub(super) fn file_name(load: &Load, unit: &str, ending: &str) -> String {
    let short = |text: &str| hex::encode(&Sha256::digest(text.as_bytes())[..8]);
    format!("part-{}-{}.{ending}", short(&load.id), short(unit))
}

/// Whether a file with this name may be written by a load.
pub(super) fn is_ours(name: &str) -> bool {
    let stem = name.strip_prefix("part-").and_then(|rest| rest.split_once('.'));
    let ids = stem.and_then(|(stem, _)| stem.split_once('-'));
    let is_id = |id: &str| id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    ids.is_some_and(|(load, unit)| is_id(load) && is_id(unit))
}

/// The name of a stream's directory: its own name, with unsuitable characters escaped.
///
/// `%`, `/`, `\`, control characters and a leading `.` or `_` become `%XX`.
pub(super) fn directory_name(into: &str) -> Result<String, ConnectorError> {
    let mut name = String::with_capacity(into.len());
    for (at, char) in into.char_indices() {
        let is_leading = at == 0 && matches!(char, '.' | '_');
        if is_leading || char.is_control() || matches!(char, '%' | '/' | '\\') {
            let mut bytes = [0; 4];
            for byte in char.encode_utf8(&mut bytes).bytes() {
                name.push_str(&format!("%{byte:02X}"));
            }
        } else {
            name.push(char);
        }
    }
    if name.is_empty() || name.len() > 200 {
        return Err(ConnectorError::unsupported(
            format!("{into:?} cannot be used as the name of a directory"),
            "give the stream a name of 1 to 200 bytes with `into`",
        ));
    }
    Ok(name)
}
