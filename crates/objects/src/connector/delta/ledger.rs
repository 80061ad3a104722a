//! The ledger of a Delta table: domain metadata in its log.
//!
//! | domain | contents |
//! |---|---|
//! | `forebay.<id>.load` | the last load of the stream, and the files of dead letters ([`Head`]) |
//! | `forebay.<id>.unit.<unit>` | the entry of one of its units, and its file ([`Committed`]) |
//!
//! `<id>` is of the pipeline and the stream, so several of them may write one table. Every commit that
//! changes one of these domains also has a `txn` action for [`app_id`], whose version is greater by one:
//! that is what two runs collide on. `docs/formats/pipeline-delta.md` has the argument.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use forebay_sdk::connector::{LedgerEntry, Load};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::settings::TargetSettings;

/// The version of this format.
const VERSION: u32 = 1;

/// The last load of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Head {
    version: u32,
    /// The pipeline that writes here.
    pub(super) pipeline: String,
    pub(super) stream: String,
    /// `None` if the record was deleted on request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) load: Option<Load>,
    /// Whether it replaces all rows when it ends.
    pub(super) is_replace: bool,
    /// The number of the run that writes it: the version of the transaction that prepared it.
    pub(super) run: i64,
    /// Files with the dead letters of earlier loads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) dead: Vec<String>,
    /// Differs in every commit, so that a writer recognizes its own.
    pub(super) commit: String,
}

/// A committed unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Committed {
    version: u32,
    pub(super) entry: LedgerEntry,
    /// Its file. Those of an unfinished load that replaces all rows are not in the table yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) file: Option<DataFile>,
    /// Its file with dead letters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) dead: Option<String>,
    /// As in [`Head`].
    pub(super) commit: String,
}

/// A data file of a unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DataFile {
    /// Its name in the directory of the table.
    pub(super) path: String,
    pub(super) bytes: u64,
    /// When it was written, in ms since 1970.
    pub(super) at_ms: i64,
    /// The statistics of the `add` action, as JSON.
    pub(super) stats: String,
}

/// The records of a stream in a table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Ledger {
    pub(super) head: Option<Head>,
    /// By domain.
    pub(super) units: BTreeMap<String, Committed>,
}

impl Head {
    pub(super) fn new(settings: &TargetSettings, load: &Load, is_replace: bool, run: i64) -> Self {
        Self {
            version: VERSION,
            pipeline: settings.pipeline.clone(),
            stream: settings.stream.clone(),
            load: Some(load.clone()),
            is_replace,
            run,
            dead: Vec::new(),
            commit: token(),
        }
    }

    /// The record that remains when that of the load is deleted.
    pub(super) fn forgotten(&self, dead: Vec<String>, run: i64) -> Self {
        Self { load: None, is_replace: false, run, dead, commit: token(), ..self.clone() }
    }

    /// The same record in another commit.
    pub(super) fn again(&self) -> Self {
        Self { commit: token(), ..self.clone() }
    }

    /// Whether it is of this load.
    pub(super) fn is_of(&self, load: &str) -> bool {
        self.load.as_ref().is_some_and(|it| it.id == load)
    }

    /// Whether its load is finished.
    pub(super) fn is_finished(&self) -> bool {
        self.load.as_ref().is_some_and(|load| load.is_finished)
    }
}

impl Committed {
    pub(super) fn new(entry: LedgerEntry, file: Option<DataFile>, dead: Option<String>) -> Self {
        Self { version: VERSION, entry, file, dead, commit: token() }
    }
}

impl Ledger {
    /// The records of a stream among the domains of a table.
    ///
    /// # Errors
    /// One of them is not in this format.
    pub(super) fn decode<'a>(
        domains: impl Iterator<Item = (&'a str, &'a str)>,
        settings: &TargetSettings,
        place: &str,
    ) -> Result<Self, ConnectorError> {
        let (head, units) = (load_domain(settings), units_prefix(settings));
        let mut ledger = Self::default();
        for (domain, json) in domains {
            let in_place = || format!("the domain {domain:?} in the log of {place}");
            if domain == head {
                ledger.head = Some(decode_head(json, place)?);
            } else if domain.starts_with(&units) {
                let found: Committed = decode(json, &in_place)?;
                check_version(found.version, &in_place)?;
                ledger.units.insert(domain.to_owned(), found);
            }
        }
        Ok(ledger)
    }

    /// Its load if it is the given one.
    pub(super) fn of(&self, load: &Load) -> Option<&Head> {
        self.head.as_ref().filter(|head| head.is_of(&load.id))
    }

    /// All files with dead letters.
    pub(super) fn dead(&self) -> impl Iterator<Item = &String> {
        let earlier = self.head.iter().flat_map(|head| &head.dead);
        earlier.chain(self.units.values().filter_map(|unit| unit.dead.as_ref()))
    }
}

/// The record of a load.
///
/// # Errors
/// It is not in this format.
pub(super) fn decode_head(json: &str, place: &str) -> Result<Head, ConnectorError> {
    let place = || format!("the record of a load in the log of {place}");
    let head: Head = decode(json, &place)?;
    check_version(head.version, &place)?;
    Ok(head)
}

fn decode<'a, T: Deserialize<'a>>(
    json: &'a str,
    place: &dyn Fn() -> String,
) -> Result<T, ConnectorError> {
    serde_json::from_str(json).map_err(|error| {
        ConnectorError::data(place(), format!("it is not a record of a load: {error}"))
    })
}

fn check_version(version: u32, place: &dyn Fn() -> String) -> Result<(), ConnectorError> {
    match version {
        VERSION => Ok(()),
        _ => Err(ConnectorError::data(
            place(),
            format!("it has version {version}; this Forebay supports version {VERSION}"),
        )),
    }
}

/// The configuration of a domain.
pub(super) fn encode(record: &impl Serialize) -> Result<String, ConnectorError> {
    serde_json::to_string(record).map_err(|error| ConnectorError::Refused {
        act: "encode the record of a load".into(),
        source: error.into(),
    })
}

/// The first 16 hexadecimal digits of the SHA-256 of a text.
fn short(text: &str) -> String {
    hex::encode(Sha256::digest(text.as_bytes()).get(..8).unwrap_or_default())
}

/// A text that no other commit has.
fn token() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}

/// The `appId` of a stream's transactions.
pub(super) fn app_id(settings: &TargetSettings) -> String {
    format!("forebay.{}", id(settings))
}

fn id(settings: &TargetSettings) -> String {
    short(&format!("{}\0{}", settings.pipeline, settings.stream))
}

/// The domain of a stream's load.
pub(super) fn load_domain(settings: &TargetSettings) -> String {
    format!("forebay.{}.load", id(settings))
}

/// The start of the domains of a stream's units.
fn units_prefix(settings: &TargetSettings) -> String {
    format!("forebay.{}.unit.", id(settings))
}

/// The domain of a unit.
pub(super) fn unit_domain(settings: &TargetSettings, unit: &str) -> String {
    format!("{}{}", units_prefix(settings), short(unit))
}

/// The start of the names of all files of a load.
pub(super) fn load_prefix(settings: &TargetSettings, load: &str) -> String {
    format!("part-{}-{}-", id(settings), short(load))
}

/// The name of a new file of a unit, without its ending. No other file ever has it.
pub(super) fn stem(settings: &TargetSettings, load: &str, run: i64, unit: &str) -> String {
    let prefix = load_prefix(settings, load);
    format!("{prefix}{run:08}-{}-{}", short(unit), &token().get(..12).unwrap_or_default())
}

/// The name of a new file with the rows of others. No other file ever has it.
pub(super) fn merged_name(settings: &TargetSettings) -> String {
    format!("{}{}.parquet", merged_prefix(settings), token())
}

fn merged_prefix(settings: &TargetSettings) -> String {
    format!("merged-{}-", id(settings))
}

/// Whether a name is that of a data file of a stream.
pub(super) fn is_data_file(settings: &TargetSettings, name: &str) -> bool {
    let starts = [format!("part-{}-", id(settings)), merged_prefix(settings)];
    let is_own = starts.iter().any(|start| name.starts_with(start));
    is_own && name.ends_with(".parquet") && !name.contains(['/', '\\'])
}

/// The name of a new list of files that a table loses at a time, in ms since 1970.
pub(super) fn list_name(settings: &TargetSettings, at_ms: i64) -> String {
    format!("{}-{at_ms:013}-{}.json", id(settings), token().get(..12).unwrap_or_default())
}

/// When a list of a stream was written, by its name; `None` if it is another's.
pub(super) fn list_time(settings: &TargetSettings, name: &str) -> Option<i64> {
    let (at_ms, rest) = name.strip_prefix(&format!("{}-", id(settings)))?.split_once('-')?;
    at_ms.parse().ok().filter(|_| rest.ends_with(".json"))
}

/// The run that wrote a file of a load; `None` if the name is another's.
pub(super) fn run_of(name: &str, prefix: &str) -> Option<i64> {
    let (run, rest) = name.strip_prefix(prefix)?.split_once('-')?;
    let is_rest = rest.ends_with(".parquet") || rest.ends_with(".dead.ndjson");
    run.parse().ok().filter(|_| is_rest && run.bytes().all(|byte| byte.is_ascii_digit()))
}
