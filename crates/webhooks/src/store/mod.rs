//! The state: hooks, positions and deliveries, in SQLite.
//!
//! What a client created or changed is on stable storage when a call returns. Progress is handed to the kernel:
//! a power cut may take back the last steps, so that their events are sent again, with the same ids. A step is one
//! transaction: the result of an attempt, what it means for the hook, and the position.
//!
//! Invariants: every row has a checksum, which is verified whenever the row is read; of a hook at most
//! `deliveries_kept` ended deliveries are kept.

mod deliveries;
mod schema;

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::{Connection, OptionalExtension as _, Transaction, params};

pub(crate) use deliveries::Waiting;

use crate::error::StoreError;
use crate::event::Point;
use crate::hook::{Cursor, Delivery, Hook, HookId};
use schema::{checksum, differs};

/// What an operation returns.
pub(crate) type Stored<T> = Result<T, StoreError>;

/// Name of the database in the directory.
pub(crate) const FILE: &str = "state.sqlite";

/// The state, opened for writing.
#[derive(Debug)]
pub(crate) struct Store {
    connection: Connection,
}

/// What is known of one hook.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    pub(crate) hook: Hook,
    pub(crate) cursors: Vec<Cursor>,
}

impl Store {
    pub(crate) fn open(path: &Path) -> Stored<Self> {
        Ok(Self { connection: schema::open(path)? })
    }

    /// Opens the state of webhooks that do not run.
    pub(crate) fn open_stopped(path: &Path) -> Stored<Self> {
        Ok(Self { connection: schema::open_to_read(path)? })
    }

    /// Reads every hook.
    pub(crate) fn load(&self) -> Stored<BTreeMap<HookId, Kept>> {
        let mut hooks = BTreeMap::new();
        let mut statement = self.connection.prepare("SELECT id, record, checksum FROM hooks")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (id, record): ([u8; 16], String) = (row.get(0)?, row.get(1)?);
            if row.get::<_, i64>(2)? != hook_checksum(&id, &record) {
                return Err(differs("hooks", hex::encode(id)));
            }
            let hook = parsed("hooks", &record)?;
            let id = HookId(u128::from_be_bytes(id));
            hooks.insert(id, Kept { hook, cursors: Vec::new() });
        }
        let mut statement = self.connection.prepare(
            "SELECT hook, source, log, position, item, time_ms, checksum FROM cursors
             ORDER BY hook, source",
        )?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let id: [u8; 16] = row.get(0)?;
            let cursor = Cursor {
                source: row.get(1)?,
                log: row.get(2)?,
                point: Point { position: row.get::<_, i64>(3)?.cast_unsigned(), item: row.get(4)? },
                time_ms: row.get::<_, i64>(5)?.cast_unsigned(),
            };
            if row.get::<_, i64>(6)? != cursor_checksum(&id, &cursor) {
                return Err(differs("cursors", format!("{} {}", hex::encode(id), cursor.source)));
            }
            match hooks.get_mut(&HookId(u128::from_be_bytes(id))) {
                Some(kept) => kept.cursors.push(cursor),
                None => {
                    let found = format!("a position belongs to no hook: {}", hex::encode(id));
                    return Err(StoreError::Damaged { found });
                }
            }
        }
        Ok(hooks)
    }

    /// The value that identifies the keys that secrets were derived of; `None` before the first.
    pub(crate) fn fingerprint(&self) -> Stored<Option<[u8; 16]>> {
        let found: Option<([u8; 16], i64)> = self
            .connection
            .query_row("SELECT fingerprint, checksum FROM meta", [], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .optional()?;
        match found {
            Some((fingerprint, sum)) if sum != meta_checksum(&fingerprint) => {
                Err(differs("meta", 1))
            }
            found => Ok(found.map(|(fingerprint, _)| fingerprint)),
        }
    }

    /// Stores that value, and hooks that changed with it.
    pub(crate) fn set_fingerprint(
        &mut self,
        fingerprint: &[u8; 16],
        changed: &[(HookId, Hook)],
    ) -> Stored<()> {
        self.durably(|transaction| {
            transaction.execute(
                "INSERT OR REPLACE INTO meta (one, fingerprint, checksum) VALUES (1, ?1, ?2)",
                params![fingerprint, meta_checksum(fingerprint)],
            )?;
            changed.iter().try_for_each(|(id, hook)| put_hook(transaction, *id, hook))
        })
    }

    /// Stores a new hook.
    pub(crate) fn create(&mut self, id: HookId, kept: &Kept) -> Stored<()> {
        self.durably(|transaction| {
            put_hook(transaction, id, &kept.hook)?;
            kept.cursors.iter().try_for_each(|cursor| put_cursor(transaction, id, cursor))
        })
    }

    /// Stores a changed hook.
    pub(crate) fn change(&mut self, id: HookId, hook: &Hook) -> Stored<()> {
        self.durably(|transaction| put_hook(transaction, id, hook))
    }

    /// Removes a hook and all that is known of it.
    pub(crate) fn remove(&mut self, id: HookId) -> Stored<()> {
        let key = id.to_bytes();
        self.durably(|transaction| {
            transaction.execute("DELETE FROM deliveries WHERE hook = ?1", [key])?;
            transaction.execute("DELETE FROM cursors WHERE hook = ?1", [key])?;
            transaction.execute("DELETE FROM hooks WHERE id = ?1", [key])?;
            Ok(())
        })
    }

    /// Stores how far a hook has come without an event.
    pub(crate) fn progress(&mut self, id: HookId, cursors: &[Cursor]) -> Stored<()> {
        self.quickly(|transaction| {
            cursors.iter().try_for_each(|cursor| put_cursor(transaction, id, cursor))
        })
    }

    /// Stores the result of an attempt. Returns the number of the delivery.
    ///
    /// * `kept`: ended deliveries of the hook that stay.
    pub(crate) fn attempted(
        &mut self,
        id: HookId,
        hook: &Hook,
        delivery: &Delivery,
        cursor: Option<&Cursor>,
        kept: usize,
    ) -> Stored<u64> {
        self.quickly(|transaction| {
            put_hook(transaction, id, hook)?;
            if let Some(cursor) = cursor {
                put_cursor(transaction, id, cursor)?;
            }
            let number = deliveries::put(transaction, id, delivery)?;
            deliveries::prune(transaction, id, kept)?;
            Ok(number)
        })
    }

    fn durably<T>(&mut self, work: impl FnOnce(&Transaction<'_>) -> Stored<T>) -> Stored<T> {
        self.connection.pragma_update(None, "synchronous", "FULL")?;
        self.within(work)
    }

    fn quickly<T>(&mut self, work: impl FnOnce(&Transaction<'_>) -> Stored<T>) -> Stored<T> {
        self.connection.pragma_update(None, "synchronous", "NORMAL")?;
        self.within(work)
    }

    fn within<T>(&mut self, work: impl FnOnce(&Transaction<'_>) -> Stored<T>) -> Stored<T> {
        let transaction = self.connection.transaction()?;
        let done = work(&transaction)?;
        transaction.commit()?;
        Ok(done)
    }

    /// Limits the size of the database, so that a test sees it full.
    pub(crate) fn limit(&self, pages: i64) -> Stored<()> {
        Ok(self.connection.pragma_update(None, "max_page_count", pages)?)
    }
}

fn parsed<T: serde::de::DeserializeOwned>(table: &str, record: &str) -> Stored<T> {
    serde_json::from_str(record).map_err(|error| StoreError::Damaged {
        found: format!("a record of the table {table} cannot be read: {error}"),
    })
}

fn written(record: &impl serde::Serialize) -> Stored<String> {
    serde_json::to_string(record).map_err(|error| {
        StoreError::Database(rusqlite::Error::ToSqlConversionFailure(error.into()))
    })
}

fn put_hook(transaction: &Transaction<'_>, id: HookId, hook: &Hook) -> Stored<()> {
    let (id, record) = (id.to_bytes(), written(hook)?);
    transaction
        .prepare_cached("INSERT OR REPLACE INTO hooks (id, record, checksum) VALUES (?1, ?2, ?3)")?
        .execute(params![id, record, hook_checksum(&id, &record)])?;
    Ok(())
}

fn put_cursor(transaction: &Transaction<'_>, id: HookId, cursor: &Cursor) -> Stored<()> {
    let id = id.to_bytes();
    transaction
        .prepare_cached(
            "INSERT OR REPLACE INTO cursors (hook, source, log, position, item, time_ms, checksum)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?
        .execute(params![
            id,
            cursor.source,
            cursor.log,
            cursor.point.position.cast_signed(),
            cursor.point.item,
            cursor.time_ms.cast_signed(),
            cursor_checksum(&id, cursor),
        ])?;
    Ok(())
}

fn meta_checksum(fingerprint: &[u8; 16]) -> i64 {
    checksum("meta", |hasher| {
        hasher.blob(fingerprint);
    })
}

fn hook_checksum(id: &[u8; 16], record: &str) -> i64 {
    checksum("hooks", |hasher| {
        hasher.blob(id).text(record.as_bytes());
    })
}

fn cursor_checksum(id: &[u8; 16], cursor: &Cursor) -> i64 {
    checksum("cursors", |hasher| {
        hasher
            .blob(id)
            .text(cursor.source.as_bytes())
            .blob(&cursor.log)
            .integer(cursor.point.position.cast_signed())
            .integer(cursor.point.item.into())
            .integer(cursor.time_ms.cast_signed());
    })
}
