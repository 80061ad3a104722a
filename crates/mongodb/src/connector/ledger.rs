//! Loads and their entries, in collections beside those they describe.
//!
//! ```text
//! _forebay_loads         one per stream { _id: stream's digits, pipeline, stream, into, load_id,
//!                                         load: JSON, swaps }
//! _forebay_ledger        one per unit   { _id: stream's and unit's digits, of: stream's digits,
//!                                         load_id, unit, state: "begun" | "committed",
//!                                         entry: JSON }
//! _forebay_undone        one per unit   { _id, of, load_id, unit, into }: abandoned and removed
//! _forebay_dead_letters  one per row    { _id, pipeline, stream, load, unit, position, reason,
//!                                         row }
//! ```
//!
//! Only the entries of the last load are kept. Earlier loads are only in the rows.
//!
//! Invariants:
//! * An entry is `begun` before the first document of its unit is visible to readers, and
//!   `committed` after the last one is; both are on disk by then. So documents of an uncommitted
//!   unit are always known, and found by their ids.
//! * An entry of another load is deleted only after its documents, if it was not committed.
//! * What is removed of an abandoned load is removed again when the next one is finished, and when
//!   the following one starts: a command of a killed run may still have been in progress.

use std::sync::Arc;
use std::time::Duration;

use forebay_sdk::batch::DeadRow;
use forebay_sdk::connector::{LedgerEntry, Load, Result};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::settings::TargetSettings;
use futures_util::TryStreamExt as _;
use mongodb::Collection;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Document, doc};
use xxhash_rust::xxh3::xxh3_128;

use super::bulk::{Concern, Documents, Verb, acknowledged, write};
use super::connect::{Server, refused};
use super::encode::Refused;
use super::names::digits_of;

const LOADS: &str = "_forebay_loads";
const ENTRIES: &str = "_forebay_ledger";
const UNDONE: &str = "_forebay_undone";
const DEAD: &str = "_forebay_dead_letters";

/// How often removed documents are checked for reappearance.
const LOOK_EVERY: Duration = Duration::from_millis(150);
/// Number of consecutive checks that must find nothing, and maximum number of checks.
const QUIET: u32 = 2;
const LOOKS_MAX: u32 = 400;

/// Ids of the documents of one unit: a 16-byte prefix of the unit, and the number of the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ids([u8; 16]);

impl Ids {
    pub(super) fn of(settings: &TargetSettings, load: &str, unit: &str) -> Self {
        let digits = digits_of(&[&settings.pipeline, &settings.stream, &settings.into, load, unit]);
        Self(xxh3_128(digits.as_bytes()).to_be_bytes())
    }

    /// The bytes of a row's id.
    pub(super) fn row(&self, number: u64) -> [u8; 24] {
        let mut id = [0; 24];
        let (unit, row) = id.split_at_mut(16);
        unit.copy_from_slice(&self.0);
        row.copy_from_slice(&number.to_be_bytes());
        id
    }

    /// All of them, as a query.
    fn filter(&self) -> Document {
        let binary =
            |number| Binary { subtype: BinarySubtype::Generic, bytes: self.row(number).to_vec() };
        doc! { "_id": { "$gte": binary(0), "$lte": binary(u64::MAX) } }
    }
}

/// The record of a stream's last load.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub(super) load: Load,
    pub(super) into: String,
    /// Whether a rename to the final collection is in progress.
    pub(super) swaps: bool,
}

/// An entry of a unit.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) unit: String,
    pub(super) load_id: String,
    /// The entry itself; `None` if it is not committed.
    pub(super) entry: Option<LedgerEntry>,
}

/// The ledger of one stream.
#[derive(Debug, Clone)]
pub(super) struct Ledger {
    server: Server,
    settings: Arc<TargetSettings>,
    of: String,
}

impl Ledger {
    pub(super) fn new(server: &Server, settings: &TargetSettings) -> Self {
        let of = digits_of(&[&settings.pipeline, &settings.stream]);
        Self { server: server.clone(), settings: Arc::new(settings.clone()), of }
    }

    async fn collection(&self, name: &str) -> Result<Collection<Document>> {
        Ok(self.server.database().await?.collection(name))
    }

    /// The last load.
    pub(super) async fn load(&self) -> Result<Option<Known>> {
        let act = |error| refused("read the ledger", error);
        let loads = self.collection(LOADS).await?;
        let Some(found) = loads.find_one(doc! { "_id": &self.of }).await.map_err(act)? else {
            return Ok(None);
        };
        let load = serde_json::from_str(text(&found, "load")?).map_err(broken)?;
        let into = text(&found, "into")?.to_owned();
        Ok(Some(Known { load, into, swaps: found.get_bool("swaps").unwrap_or(false) }))
    }

    /// All entries, of any load.
    pub(super) async fn entries(&self) -> Result<Vec<Entry>> {
        let act = |error| refused("read the ledger", error);
        let found = self.collection(ENTRIES).await?.find(doc! { "of": &self.of }).await;
        let found: Vec<Document> = found.map_err(act)?.try_collect().await.map_err(act)?;
        found.iter().map(entry).collect()
    }

    /// Stores the current state of the load.
    pub(super) async fn put(&self, load: &Load, swaps: bool) -> Result<()> {
        let TargetSettings { pipeline, stream, into, .. } = &*self.settings;
        let json = serde_json::to_string(load).map_err(broken)?;
        let document = doc! {
            "_id": &self.of, "pipeline": pipeline, "stream": stream, "into": into,
            "load_id": &load.id, "load": json, "swaps": swaps,
        };
        self.replace(LOADS, &self.of, document).await
    }

    /// Records that documents of a unit will be written. Returns whether this was recorded before
    /// and the unit is not committed.
    pub(super) async fn begin(&self, load: &Load, unit: &str) -> Result<bool> {
        let id = self.entry_id(unit);
        let act = |error| refused("read the ledger", error);
        let found = self.collection(ENTRIES).await?.find_one(doc! { "_id": &id }).await;
        let before = found.map_err(act)?.as_ref().map(entry).transpose()?;
        match before {
            Some(Entry { entry: Some(_), .. }) => Err(ConnectorError::Refused {
                act: format!("write the unit {unit:?}"),
                source: "it is committed already".into(),
            }),
            Some(before) if before.load_id == load.id => Ok(true),
            Some(_) => Err(other_load(load)),
            None => {
                let document = doc! {
                    "_id": &id, "of": &self.of, "load_id": &load.id, "unit": unit, "state": "begun",
                };
                self.replace(ENTRIES, &id, document).await?;
                Ok(false)
            }
        }
    }

    /// Records that a unit is committed.
    pub(super) async fn commit(&self, entry: &LedgerEntry) -> Result<()> {
        let id = self.entry_id(&entry.unit);
        let document = doc! {
            "_id": &id, "of": &self.of, "load_id": &entry.load, "unit": &entry.unit,
            "state": "committed", "entry": serde_json::to_string(entry).map_err(broken)?,
        };
        self.replace(ENTRIES, &id, document).await
    }

    /// Deletes an entry.
    pub(super) async fn drop_entry(&self, unit: &str) -> Result<()> {
        let id = self.entry_id(unit);
        self.delete(ENTRIES, doc! { "_id": id }).await.map(drop)
    }

    /// Deletes the load.
    pub(super) async fn drop_load(&self) -> Result<()> {
        self.delete(LOADS, doc! { "_id": &self.of }).await.map(drop)
    }

    /// Removes the documents of a unit from a collection, and its dead letters.
    pub(super) async fn undo(&self, collection: &str, load: &str, unit: &str) -> Result<()> {
        let ids = Ids::of(&self.settings, load, unit).filter();
        self.delete(collection, ids.clone()).await?;
        self.delete(DEAD, ids).await.map(drop)
    }

    /// Removes the remains of a unit whose load is abandoned, until no more of it appears: its ids
    /// are not used again, so nothing else would meet a command in progress.
    pub(super) async fn give_up(&self, collection: &str, load: &str, unit: &str) -> Result<()> {
        let id = format!("{}-{}", self.of, digits_of(&[load, unit]));
        let into = &self.settings.into;
        let document =
            doc! { "_id": &id, "of": &self.of, "load_id": load, "unit": unit, "into": into };
        self.replace(UNDONE, &id, document).await?;
        let ids = Ids::of(&self.settings, load, unit).filter();
        let mut quiet = 0;
        for _ in 0..LOOKS_MAX {
            let removed = self.delete(collection, ids.clone()).await?;
            quiet = if removed == 0 { quiet + 1 } else { 0 };
            if quiet == QUIET {
                return self.delete(DEAD, ids).await.map(drop);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Err(ConnectorError::Busy {
            act: format!("remove the remains of the unit {unit:?} from {collection}"),
            source: "documents of a killed run are still arriving".into(),
        })
    }

    /// Abandoned units, by load, and where their documents were written.
    pub(super) async fn given_up(&self) -> Result<Vec<(String, String, String)>> {
        let act = |error| refused("read the ledger", error);
        let found = self.collection(UNDONE).await?.find(doc! { "of": &self.of }).await;
        let found: Vec<Document> = found.map_err(act)?.try_collect().await.map_err(act)?;
        let fields = |document: &Document| {
            let field = |name| text(document, name).map(ToOwned::to_owned);
            Ok((field("load_id")?, field("unit")?, field("into")?))
        };
        found.iter().map(fields).collect()
    }

    /// Deletes the records of abandoned units.
    pub(super) async fn forget_given_up(&self) -> Result<()> {
        self.delete(UNDONE, doc! { "of": &self.of }).await.map(drop)
    }

    /// Stores dead letters of a unit.
    pub(super) async fn bury(&self, entry: &LedgerEntry, dead: &[DeadRow]) -> Result<()> {
        let ids = Ids::of(&self.settings, &entry.load, &entry.unit);
        let LedgerEntry { pipeline, stream, load, unit, .. } = entry;
        let mut documents = Documents::default();
        let mut refused = Refused::new();
        for (number, DeadRow { position, reason, row }) in dead.iter().enumerate() {
            let bytes = ids.row(number as u64).to_vec();
            let document = doc! {
                "_id": Binary { subtype: BinarySubtype::Generic, bytes },
                "pipeline": pipeline, "stream": stream, "load": load, "unit": unit,
                "position": position, "reason": reason, "row": row,
            };
            match document.to_vec() {
                Ok(document) => documents.add_whole(&document),
                Err(error) => drop(refused.insert(number, error.to_string())),
            }
        }
        if let Some((number, error)) = refused.into_iter().next() {
            let place = format!("{stream} {unit}, dead letter {number}");
            return Err(ConnectorError::data(place, error));
        }
        for range in documents.commands() {
            let durable = Concern::Durable;
            let failed =
                write(&self.server, Verb::Insert, DEAD, &documents, range, durable).await?;
            if let Some(failed) = failed.into_iter().next() {
                return Err(ConnectorError::Refused {
                    act: format!("store dead letters of {unit}"),
                    source: failed.message.into(),
                });
            }
        }
        Ok(())
    }

    /// Checks that a load is the one that was prepared.
    pub(super) async fn check(&self, load: &Load) -> Result<Known> {
        match self.load().await? {
            Some(known) if known.load.id == load.id => Ok(known),
            _ => Err(other_load(load)),
        }
    }

    fn entry_id(&self, unit: &str) -> String {
        format!("{}-{}", self.of, digits_of(&[unit]))
    }

    /// Replaces or inserts a document by its id; it is on disk on return.
    async fn replace(&self, collection: &str, id: &str, document: Document) -> Result<()> {
        let act = "write the ledger";
        let broken = |error: mongodb::bson::error::Error| ConnectorError::Refused {
            act: act.into(),
            source: error.into(),
        };
        let statement = doc! { "q": { "_id": id }, "u": document, "upsert": true };
        let mut documents = Documents::default();
        documents.add_whole(&statement.to_vec().map_err(broken)?);
        let durable = Concern::Durable;
        let failed =
            write(&self.server, Verb::Update, collection, &documents, 0..1, durable).await?;
        match failed.into_iter().next() {
            None => Ok(()),
            Some(failed) => {
                Err(ConnectorError::Refused { act: act.into(), source: failed.message.into() })
            }
        }
    }

    /// Returns the number of removed documents.
    async fn delete(&self, collection: &str, filter: Document) -> Result<i64> {
        let command = doc! {
            "delete": collection, "deletes": [{ "q": filter, "limit": 0 }],
            "writeConcern": { "w": "majority", "j": true },
        };
        let act = format!("remove documents of {collection}");
        acknowledged(&act, &self.server.run(&act, command).await?)
    }
}

fn other_load(load: &Load) -> ConnectorError {
    ConnectorError::Refused {
        act: "continue the load".into(),
        source: format!("the load {} is not the one that was prepared", load.id).into(),
    }
}

fn entry(document: &Document) -> Result<Entry> {
    let committed = document.get_str("state").is_ok_and(|state| state == "committed");
    let entry = match committed {
        true => Some(serde_json::from_str(text(document, "entry")?).map_err(broken)?),
        false => None,
    };
    Ok(Entry {
        unit: text(document, "unit")?.to_owned(),
        load_id: text(document, "load_id")?.to_owned(),
        entry,
    })
}

/// A field of a record of ours that is a text.
pub(super) fn text<'a>(document: &'a Document, field: &str) -> Result<&'a str> {
    document.get_str(field).map_err(|error| ConnectorError::Refused {
        act: "read the ledger".into(),
        source: error.into(),
    })
}

fn broken(error: serde_json::Error) -> ConnectorError {
    ConnectorError::Refused { act: "use the ledger".into(), source: error.into() }
}
