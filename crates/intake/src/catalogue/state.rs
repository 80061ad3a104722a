//! The table `meta`: how far the catalogue has come, and what its tables hold in all.
//!
//! Each row is a number. The row `checksum` covers the others, and these have the count and digest
//! of every table ([`RowSet`]), so that a row that is missing anywhere is noticed.
//!
//! Invariant: stored in the transaction that changes what it describes.

use std::collections::BTreeMap;

use forebay_base::rows::{RowHasher, RowSet};
use rusqlite::{Connection, params};

use super::rows::Checked;
use super::schema::SCHEMA_VERSION;
use crate::digest::Digest;
use crate::error::CatalogueFault;

const CHECKSUM: &str = "checksum";
const SCHEMA: &str = "schema";

/// Everything in `meta` but the version.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct State {
    /// Log position up to which entries are applied.
    pub(super) position: u64,
    /// Below this position all documents were erased from the log.
    pub(super) documents_erased: u64,
    /// Below this position documents may have been erased from the log.
    pub(super) documents_bound: u64,
    /// Position of the newest entry that says what the document database held; 0 if there is none.
    pub(super) extents_at: u64,
    /// What it is used with.
    pub(super) companions: Companions,
    pub(super) files: RowSet,
    pub(super) blobs: RowSet,
    pub(super) requests: RowSet,
    pub(super) namespaces: RowSet,
    pub(super) versions: RowSet,
}

/// The log and the document database that a catalogue is used with: the beginnings of their ids, 0 where that is
/// not known yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Companions {
    /// The log.
    pub(crate) log: u64,
    /// The document database.
    pub(crate) documents: u64,
}

impl Companions {
    /// The identity of a document database that is made for a log: the same each time.
    pub(crate) fn identity(log: [u8; 16]) -> [u8; 16] {
        let digest = Digest::of_parts(&[b"documents of", &log]);
        digest.0.first_chunk().copied().unwrap_or_default()
    }

    pub(crate) fn of(log: [u8; 16], documents: [u8; 16]) -> Self {
        let mark =
            |id: [u8; 16]| id.first_chunk().map_or(0, |first| u64::from_le_bytes(*first)).max(1);
        Self { log: mark(log), documents: mark(documents) }
    }
}

/// What `meta` holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StoredState {
    /// Nothing: the catalogue is new.
    Nothing,
    /// The state of a catalogue of another version, from whose tables nothing else is used.
    Other {
        /// Below this position documents were erased from the log.
        documents_erased: u64,
    },
    /// The state.
    State(State),
}

impl State {
    fn values(&self) -> [(&'static str, i64); 17] {
        [
            (SCHEMA, SCHEMA_VERSION),
            ("position", self.position.cast_signed()),
            ("documents_erased", self.documents_erased.cast_signed()),
            ("documents_bound", self.documents_bound.cast_signed()),
            ("extents_at", self.extents_at.cast_signed()),
            ("log", self.companions.log.cast_signed()),
            ("documents", self.companions.documents.cast_signed()),
            ("files", self.files.count.cast_signed()),
            ("files_digest", self.files.digest.cast_signed()),
            ("blobs", self.blobs.count.cast_signed()),
            ("blobs_digest", self.blobs.digest.cast_signed()),
            ("requests", self.requests.count.cast_signed()),
            ("requests_digest", self.requests.digest.cast_signed()),
            ("namespaces", self.namespaces.count.cast_signed()),
            ("namespaces_digest", self.namespaces.digest.cast_signed()),
            ("versions", self.versions.count.cast_signed()),
            ("versions_digest", self.versions.digest.cast_signed()),
        ]
    }

    fn of(found: &BTreeMap<String, i64>) -> Option<Self> {
        let number = |key: &str| found.get(key).map(|value| value.cast_unsigned());
        let set = |count: &str, digest: &str| {
            Some(RowSet { count: number(count)?, digest: number(digest)? })
        };
        Some(Self {
            position: number("position")?,
            documents_erased: number("documents_erased")?,
            documents_bound: number("documents_bound")?,
            extents_at: number("extents_at")?,
            // Absent before they were recorded.
            companions: Companions {
                log: number("log").unwrap_or(0),
                documents: number("documents").unwrap_or(0),
            },
            files: set("files", "files_digest")?,
            blobs: set("blobs", "blobs_digest")?,
            requests: set("requests", "requests_digest")?,
            namespaces: set("namespaces", "namespaces_digest")?,
            versions: set("versions", "versions_digest")?,
        })
    }

    /// Stores everything.
    pub(super) fn save(&self, connection: &Connection) -> rusqlite::Result<()> {
        let mut store = connection
            .prepare_cached("INSERT OR REPLACE INTO meta (key, value) VALUES (?1, ?2)")?;
        let values = BTreeMap::from(self.values().map(|(key, value)| (key.to_owned(), value)));
        for (key, value) in &values {
            store.execute(params![key, value])?;
        }
        store.execute(params![CHECKSUM, checksum(&values).cast_signed()])?;
        Ok(())
    }

    /// Reads and verifies everything.
    pub(super) fn load(connection: &Connection) -> Checked<StoredState> {
        let damaged = || {
            let found = "the table meta does not match its checksum".to_owned();
            CatalogueFault::Damaged { found }
        };
        let mut found = BTreeMap::new();
        let mut statement = connection.prepare_cached("SELECT key, value FROM meta")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            found.insert(row.get::<_, String>(0)?, row.get::<_, i64>(1)?);
        }
        let stored = found.remove(CHECKSUM);
        match (stored, found.get(SCHEMA)) {
            (None, None) if found.is_empty() => Ok(StoredState::Nothing),
            // Versions before the fourth had no checksum.
            (None, Some(1..=3)) => {
                let erased = found.get("documents_erased").copied().unwrap_or(0);
                Ok(StoredState::Other { documents_erased: erased.cast_unsigned() })
            }
            (Some(stored), Some(schema)) if stored.cast_unsigned() == checksum(&found) => {
                let erased = found.get("documents_erased").copied().unwrap_or(0);
                match Self::of(&found) {
                    Some(state) if *schema == SCHEMA_VERSION => Ok(StoredState::State(state)),
                    _ => Ok(StoredState::Other { documents_erased: erased.cast_unsigned() }),
                }
            }
            _ => Err(damaged()),
        }
    }
}

fn checksum(values: &BTreeMap<String, i64>) -> u64 {
    let mut hasher = RowHasher::default();
    hasher.start().text(b"meta");
    for (key, value) in values {
        hasher.text(key.as_bytes()).integer(*value);
    }
    hasher.finish()
}
