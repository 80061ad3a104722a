//! Deliveries: those that wait, and the last that ended.

use rusqlite::{Row, Transaction, params};

use super::schema::{checksum, differs};
use super::{Store, Stored, parsed, written};
use crate::error::StoreError;
use crate::hook::{Delivery, DeliveryState, HookId};

/// The deliveries of a hook that wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Waiting {
    /// Their number.
    pub(crate) count: usize,
    /// Whether the later events wait for one of them.
    pub(crate) holds: bool,
    /// When the next is due, in milliseconds since 1970.
    pub(crate) due_ms: Option<u64>,
    /// Time of the oldest event, in milliseconds since 1970.
    pub(crate) oldest_ms: Option<u64>,
}

const COLUMNS: &str = "number, hook, state, due_ms, record, checksum";

impl Store {
    /// What waits of a hook.
    pub(crate) fn waiting(&self, id: HookId) -> Stored<Waiting> {
        let mut waiting = Waiting::default();
        for delivery in self.all_waiting(id)? {
            waiting.count += 1;
            waiting.holds |= delivery.record.holds.is_some();
            let least = |kept: Option<u64>, new: Option<u64>| match (kept, new) {
                (Some(kept), Some(new)) => Some(kept.min(new)),
                (kept, new) => kept.or(new),
            };
            waiting.due_ms = least(waiting.due_ms, delivery.due_ms);
            waiting.oldest_ms = least(waiting.oldest_ms, Some(delivery.record.event_ms));
        }
        Ok(waiting)
    }

    /// The delivery of a hook that is due first.
    pub(crate) fn first_due(&self, id: HookId) -> Stored<Option<Delivery>> {
        Ok(self
            .all_waiting(id)?
            .into_iter()
            .min_by_key(|delivery| (delivery.due_ms, delivery.number)))
    }

    /// Their number is limited: see [`ASIDE_MAX`](crate::judge::ASIDE_MAX).
    fn all_waiting(&self, id: HookId) -> Stored<Vec<Delivery>> {
        let mut statement = self.connection.prepare_cached(&format!(
            "SELECT {COLUMNS} FROM deliveries WHERE hook = ?1 AND state = 0 ORDER BY number"
        ))?;
        collected(statement.query([id.to_bytes()])?)
    }

    /// Deliveries of a hook, the newest first.
    ///
    /// * `before`: only those with a smaller number.
    pub(crate) fn deliveries(
        &self,
        id: HookId,
        state: Option<DeliveryState>,
        before: u64,
        limit: usize,
    ) -> Stored<Vec<Delivery>> {
        let mut statement = self.connection.prepare_cached(&format!(
            "SELECT {COLUMNS} FROM deliveries
             WHERE hook = ?1 AND (?2 IS NULL OR state = ?2) AND number < ?3
             ORDER BY number DESC LIMIT ?4"
        ))?;
        let state = state.map(DeliveryState::code);
        let before = i64::try_from(before).unwrap_or(i64::MAX);
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        collected(statement.query(params![id.to_bytes(), state, before, limit])?)
    }

    /// One delivery of a hook.
    pub(crate) fn delivery(&self, id: HookId, number: u64) -> Stored<Option<Delivery>> {
        let Ok(number) = i64::try_from(number) else { return Ok(None) };
        let mut statement = self.connection.prepare_cached(&format!(
            "SELECT {COLUMNS} FROM deliveries WHERE hook = ?1 AND number = ?2"
        ))?;
        Ok(collected(statement.query(params![id.to_bytes(), number])?)?.pop())
    }

    /// Lets a delivery wait again, due at once.
    pub(crate) fn wait_again(
        &mut self,
        id: HookId,
        mut delivery: Delivery,
        now_ms: u64,
    ) -> Stored<()> {
        if delivery.state != DeliveryState::Waiting {
            delivery.record.attempts = 0;
        }
        (delivery.state, delivery.due_ms) = (DeliveryState::Waiting, Some(now_ms));
        self.durably(|transaction| put(transaction, id, &delivery).map(drop))
    }

    /// Lets all deliveries of a hook that wait be due at once.
    pub(crate) fn hurry(&mut self, id: HookId, now_ms: u64) -> Stored<()> {
        let waiting = self.all_waiting(id)?;
        self.quickly(|transaction| {
            waiting.into_iter().try_for_each(|delivery| {
                let due_ms = delivery.due_ms.map(|due_ms| due_ms.min(now_ms));
                put(transaction, id, &Delivery { due_ms, ..delivery }).map(drop)
            })
        })
    }

    /// Reads and verifies every delivery. Returns their number.
    pub(crate) fn verify_deliveries(&self) -> Stored<u64> {
        let mut statement =
            self.connection.prepare(&format!("SELECT {COLUMNS} FROM deliveries"))?;
        let mut rows = statement.query([])?;
        let mut count = 0;
        while let Some(row) = rows.next()? {
            read(row)?;
            count += 1;
        }
        Ok(count)
    }
}

fn collected(mut rows: rusqlite::Rows<'_>) -> Stored<Vec<Delivery>> {
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(read(row)?);
    }
    Ok(found)
}

fn read(row: &Row<'_>) -> Stored<Delivery> {
    let (number, hook, state): (i64, [u8; 16], i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
    let (due_ms, record): (Option<i64>, String) = (row.get(3)?, row.get(4)?);
    if row.get::<_, i64>(5)? != checksum_of(&hook, state, due_ms, &record) {
        return Err(differs("deliveries", number));
    }
    let state = DeliveryState::of(state).ok_or_else(|| StoreError::Damaged {
        found: format!("delivery {number} has the unknown state {state}"),
    })?;
    let due_ms = due_ms.map(i64::cast_unsigned);
    Ok(Delivery {
        number: number.cast_unsigned(),
        state,
        due_ms,
        record: parsed("deliveries", &record)?,
    })
}

/// Stores a delivery; returns its number.
pub(super) fn put(transaction: &Transaction<'_>, id: HookId, delivery: &Delivery) -> Stored<u64> {
    let (hook, record) = (id.to_bytes(), written(&delivery.record)?);
    let (state, due_ms) = (delivery.state.code(), delivery.due_ms.map(u64::cast_signed));
    let sum = checksum_of(&hook, state, due_ms, &record);
    if delivery.number == 0 {
        transaction
            .prepare_cached(
                "INSERT INTO deliveries (hook, state, due_ms, record, checksum)
                 VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![hook, state, due_ms, record, sum])?;
        return Ok(transaction.last_insert_rowid().cast_unsigned());
    }
    transaction
        .prepare_cached(
            "UPDATE deliveries SET state = ?3, due_ms = ?4, record = ?5, checksum = ?6
             WHERE hook = ?1 AND number = ?2",
        )?
        .execute(params![hook, delivery.number.cast_signed(), state, due_ms, record, sum])?;
    Ok(delivery.number)
}

/// Removes ended deliveries of a hook but the last ones.
pub(super) fn prune(transaction: &Transaction<'_>, id: HookId, kept: usize) -> Stored<()> {
    let kept = i64::try_from(kept).unwrap_or(i64::MAX);
    transaction
        .prepare_cached(
            "DELETE FROM deliveries WHERE hook = ?1 AND state <> 0 AND number <= (
               SELECT number FROM deliveries WHERE hook = ?1 AND state <> 0
               ORDER BY number DESC LIMIT 1 OFFSET ?2)",
        )?
        .execute(params![id.to_bytes(), kept])?;
    Ok(())
}

fn checksum_of(hook: &[u8; 16], state: i64, due_ms: Option<i64>, record: &str) -> i64 {
    checksum("deliveries", |hasher| {
        hasher.blob(hook).integer(state);
        match due_ms {
            Some(due_ms) => hasher.integer(due_ms),
            None => hasher.null(),
        };
        hasher.text(record.as_bytes());
    })
}
