//! Rows that change after they were written: replaced, deleted, or all of a namespace dropped.
//!
//! ```text
//! _forebay_changes     namespace, id -> position and kind of the newest change of that row
//! ```
//!
//! A deleted row leaves nothing but its change. So a row that was deleted is distinguished from one that
//! is missing, and a follower learns by position what has changed. When a namespace is dropped its rows
//! and changes are removed, and its own row keeps the position and the last id: no id is given twice.
//!
//! Invariants: each change has a checksum, and the namespace's row has the count and digest of its
//! changes and the number of deleted rows, all stored in the transaction that changes the rows; a row
//! that does not match its checksum is not replaced or deleted, but reported.

use std::ops::Range;

use forebay_base::rows::{RowHasher, RowSet};
use forebay_pgcopy::quote_identifier;
use forebay_sink::transaction::check_number;
use forebay_sink::{Position, SinkError, TableSchema, Written};
use rusqlite::{Connection, Row};

use super::check::FINDINGS_MAX;
use super::fault::{Checked, Fault, sink_error};
use super::layout::Namespace;
use super::state::{self, NamespaceRow, number};
use super::{SqliteSink, abandon, history, rows};

const CHANGE: &str = "SELECT id, at, kind, checksum FROM _forebay_changes WHERE namespace = ?1";

/// What happened to a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// It has another document.
    Replaced = 1,
    /// It is gone.
    Deleted = 2,
}

/// The newest change of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// The row's id.
    pub id: u64,
    /// Position of the change.
    pub at: u64,
    /// What happened.
    pub kind: ChangeKind,
}

/// Changes in the order of their positions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChangePage {
    /// The position of the state that was read.
    pub position: Option<Position>,
    /// Position at which all rows were dropped, if that is after the position asked for.
    pub dropped_at: Option<u64>,
    /// The largest id at that time.
    pub dropped_id: Option<u64>,
    /// The changes, of each row the newest.
    pub changes: Vec<Change>,
    /// Whether more follow.
    pub more: bool,
}

/// When all rows of a namespace were dropped last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Dropped {
    pub(super) at: u64,
    /// The largest id at that time.
    pub(super) last_id: u64,
}

/// What a namespace's row says of the changes of its rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Changed {
    /// The set of its rows of `_forebay_changes`.
    pub(super) rows: RowSet,
    /// How many of these are deletions.
    pub(super) deleted: u64,
    /// Position of the newest change, or drop.
    pub(super) changed_at: Option<u64>,
    /// Position of the newest deletion, or drop.
    pub(super) removed_at: Option<u64>,
    pub(super) dropped: Option<Dropped>,
}

impl Changed {
    pub(super) fn hash(&self, hasher: &mut RowHasher) {
        hasher.integer(self.rows.count.cast_signed());
        hasher.integer(self.rows.digest.cast_signed());
        hasher.integer(self.deleted.cast_signed());
        for value in [self.changed_at, self.removed_at] {
            number(hasher, value);
        }
        number(hasher, self.dropped.map(|dropped| dropped.at));
        number(hasher, self.dropped.map(|dropped| dropped.last_id));
    }

    /// Reads the seven columns from `first` on.
    pub(super) fn read(row: &Row<'_>, first: usize) -> Checked<Self> {
        let (at, last_id): (Option<u64>, Option<u64>) = (row.get(first + 5)?, row.get(first + 6)?);
        let digest = row.get::<_, i64>(first + 1)?.cast_unsigned();
        let dropped = match (at, last_id) {
            (Some(at), Some(last_id)) => Some(Dropped { at, last_id }),
            (None, None) => None,
            _ => return Err(Fault::Damaged("a namespace was dropped at no position".to_owned())),
        };
        Ok(Self {
            rows: RowSet { count: row.get(first)?, digest },
            deleted: row.get(first + 2)?,
            changed_at: row.get(first + 3)?,
            removed_at: row.get(first + 4)?,
            dropped,
        })
    }
}

impl NamespaceRow {
    /// Whether all its rows were dropped, and none was written since.
    pub(super) fn is_dropped(&self) -> bool {
        self.changed.dropped.is_some_and(|dropped| self.last_id == Some(dropped.last_id))
    }
}

impl ChangeKind {
    fn of(code: i64) -> Option<Self> {
        [Self::Replaced, Self::Deleted].into_iter().find(|kind| *kind as i64 == code)
    }
}

impl Change {
    fn checksum(&self, namespace: &str) -> u64 {
        let mut hasher = RowHasher::default();
        hasher.start().text(b"_forebay_changes").text(namespace.as_bytes());
        hasher.integer(self.id.cast_signed()).integer(self.at.cast_signed());
        hasher.integer(self.kind as i64).finish()
    }

    /// Reads and verifies a row of [`CHANGE`].
    fn read(row: &Row<'_>, namespace: &str) -> Checked<Self> {
        let id: i64 = row.get(0)?;
        let found = (|| {
            let (id, at) = (u64::try_from(id).ok()?, row.get(1).ok()?);
            let change = Self { id, at, kind: ChangeKind::of(row.get(2).ok()?)? };
            let stored = row.get::<_, i64>(3).ok()?.cast_unsigned();
            (change.checksum(namespace) == stored).then_some(change)
        })();
        found.ok_or_else(|| {
            Fault::Damaged(format!(
                "the change of the row with id {id} of the namespace {namespace} does not match its \
                 checksum"
            ))
        })
    }
}

/// Removes the row with an id from a namespace's table; returns the number of rows removed.
pub(super) fn take_out(db: &Connection, namespace: &mut Namespace, id: u64) -> Checked<u64> {
    let Namespace { row, schema, .. } = namespace;
    let id = id.cast_signed();
    let select = format!("{} WHERE _id = ?1", rows::select(&row.table, schema));
    let checksum = {
        let mut statement = db.prepare_cached(&select)?;
        let mut found = statement.query([id])?;
        let Some(found) = found.next()? else { return Ok(0) };
        rows::verify(&mut RowHasher::default(), &row.name, found, schema.columns().len())?.1
    };
    let delete = format!("DELETE FROM {} WHERE _id = ?1", quote_identifier(&row.table));
    db.prepare_cached(&delete)?.execute([id])?;
    row.rows.remove(checksum);
    Ok(1)
}

/// Removes the rows up to an id one by one.
fn take_up_to(db: &Connection, namespace: &mut Namespace, last_id: u64) -> Checked<()> {
    let table = quote_identifier(&namespace.row.table);
    let sql = format!("SELECT _id FROM {table} WHERE _id <= ?1 LIMIT 1000");
    loop {
        let ids: Vec<u64> = {
            let mut statement = db.prepare_cached(&sql)?;
            let ids = statement.query_map([last_id.cast_signed()], |row| row.get(0))?;
            ids.collect::<rusqlite::Result<_>>()?
        };
        if ids.is_empty() {
            return Ok(());
        }
        for id in ids {
            take_out(db, namespace, id)?;
        }
    }
}

/// Removes the changes of rows up to an id; returns what the others are.
fn forget(db: &Connection, row: &NamespaceRow, last_id: u64) -> Checked<Changed> {
    db.prepare_cached("DELETE FROM _forebay_changes WHERE namespace = ?1 AND id <= ?2")?
        .execute((&row.name, last_id.cast_signed()))?;
    let mut changed = Changed::default();
    let mut statement = db.prepare_cached(CHANGE)?;
    let mut found = statement.query([&row.name])?;
    while let Some(found) = found.next()? {
        let change = Change::read(found, &row.name)?;
        changed.rows.insert(change.checksum(&row.name));
        changed.deleted += u64::from(change.kind == ChangeKind::Deleted);
    }
    Ok(changed)
}

/// The smallest id that was given of those that have a row or a change.
fn smallest(db: &Connection, row: &NamespaceRow) -> Checked<Option<u64>> {
    let table = quote_identifier(&row.table);
    let sql = format!(
        "SELECT min(id) FROM (SELECT min(_id) AS id FROM {table} UNION ALL
           SELECT min(id) FROM _forebay_changes WHERE namespace = ?1)"
    );
    Ok(db.query_row(&sql, [&row.name], |row| row.get(0))?)
}

/// Records the newest change of a row.
pub(super) fn record(
    db: &Connection,
    row: &mut NamespaceRow,
    id: u64,
    at: u64,
    kind: ChangeKind,
) -> Checked<()> {
    if let Some(before) = change(db, &row.name, id)? {
        row.changed.rows.remove(before.checksum(&row.name));
        let was_deleted = u64::from(before.kind == ChangeKind::Deleted);
        row.changed.deleted = row.changed.deleted.saturating_sub(was_deleted);
    }
    let change = Change { id, at, kind };
    let checksum = change.checksum(&row.name);
    row.changed.rows.insert(checksum);
    row.changed.changed_at = row.changed.changed_at.max(Some(at));
    if kind == ChangeKind::Deleted {
        row.changed.deleted += 1;
        row.changed.removed_at = row.changed.removed_at.max(Some(at));
    }
    let mut statement = db.prepare_cached(
        "INSERT INTO _forebay_changes (namespace, id, at, kind, checksum) VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT (namespace, id) DO UPDATE SET at = ?3, kind = ?4, checksum = ?5",
    )?;
    statement.execute((
        &row.name,
        id.cast_signed(),
        at.cast_signed(),
        kind as i64,
        checksum.cast_signed(),
    ))?;
    Ok(())
}

/// The newest change of a row, if it has changed.
fn change(db: &Connection, namespace: &str, id: u64) -> Checked<Option<Change>> {
    let mut statement = db.prepare_cached(&format!("{CHANGE} AND id = ?2"))?;
    let mut found = statement.query((namespace, id.cast_signed()))?;
    found.next()?.map(|row| Change::read(row, namespace)).transpose()
}

/// Position of the newest change of a row, or of the drop of all.
pub(super) fn newest(db: &Connection, row: &NamespaceRow, id: u64) -> Checked<Option<u64>> {
    let changed = change(db, &row.name, id)?.map(|change| change.at);
    let dropped = row.changed.dropped.filter(|dropped| id <= dropped.last_id);
    Ok(changed.max(dropped.map(|dropped| dropped.at)))
}

/// Whether all rows with these ids were deleted.
pub(super) fn are_deleted(db: &Connection, row: &NamespaceRow, ids: Range<u64>) -> Checked<bool> {
    let sql = format!("{CHANGE} AND id >= ?2 AND id < ?3 AND kind = 2");
    let mut statement = db.prepare_cached(&sql)?;
    let limits = (&row.name, ids.start.cast_signed(), ids.end.cast_signed());
    let mut found = statement.query(limits)?;
    let mut count = 0;
    while let Some(found) = found.next()? {
        Change::read(found, &row.name)?;
        count += 1;
    }
    Ok(count == ids.end - ids.start)
}

/// A page of the changes after a position.
pub(super) fn page(
    db: &Connection,
    row: &NamespaceRow,
    position: Option<Position>,
    after: u64,
    changes_max: usize,
) -> Checked<ChangePage> {
    let dropped = row.changed.dropped.filter(|dropped| dropped.at > after);
    let mut page = ChangePage {
        position,
        dropped_at: dropped.map(|dropped| dropped.at),
        dropped_id: dropped.map(|dropped| dropped.last_id),
        ..ChangePage::default()
    };
    if row.changed.changed_at.is_none_or(|changed| changed <= after) {
        return Ok(page);
    }
    let mut statement = db.prepare_cached(&format!("{CHANGE} AND at > ?2 ORDER BY at, id"))?;
    let mut found = statement.query((&row.name, i64::try_from(after).unwrap_or(i64::MAX)))?;
    while let Some(found) = found.next()? {
        let change = Change::read(found, &row.name)?;
        // Changes at one position belong together.
        let is_new = page.changes.last().is_none_or(|last| last.at != change.at);
        if page.changes.len() >= changes_max && is_new {
            page.more = true;
            break;
        }
        page.changes.push(change);
    }
    Ok(page)
}

/// What has changed among the rows up to an id after a position.
pub(super) struct Since {
    /// Number of rows that were deleted.
    pub(super) deleted: u64,
    /// Whether any was changed.
    pub(super) any: bool,
}

/// Reads what has changed among the rows up to `last_id` after the position `at`.
pub(super) fn since(db: &Connection, row: &NamespaceRow, at: u64, last_id: u64) -> Checked<Since> {
    let sql = format!("{CHANGE} AND at > ?2 AND id <= ?3");
    let mut statement = db.prepare(&sql)?;
    let mut found = statement.query((&row.name, at.cast_signed(), last_id.cast_signed()))?;
    let mut since = Since { deleted: 0, any: false };
    while let Some(found) = found.next()? {
        let change = Change::read(found, &row.name)?;
        since.any = true;
        since.deleted += u64::from(change.kind == ChangeKind::Deleted);
    }
    Ok(since)
}

impl SqliteSink {
    /// See [`RowSink::remove`](forebay_sink::RowSink::remove).
    pub(super) fn remove_row(
        &mut self,
        at: Position,
        name: &str,
        id: u64,
    ) -> Result<Written, SinkError> {
        let number = check_number("id", id);
        let removed = number.and_then(|_| self.enter(at, name)).and_then(|is_new| {
            if !is_new {
                return Ok(Written::replay());
            }
            let rows = self.remove_entered(at, name, id);
            let rows = rows.map_err(|fault| sink_error("delete a row", &self.path, fault))?;
            Ok(Written { rows, ..Written::default() })
        });
        self.ended(removed)
    }

    fn remove_entered(&mut self, at: Position, name: &str, id: u64) -> Checked<u64> {
        self.grow_columns(at, name, &[])?;
        let Some(namespace) = self.namespaces.get_mut(name) else { return Ok(0) };
        let rows = take_out(&self.connection, namespace, id)?;
        let row = &mut namespace.row;
        let is_new = row.last_id.is_none_or(|last| id > last);
        if rows == 0 && !is_new {
            let before = change(&self.connection, name, id)?;
            let is_older = row.changed.dropped.is_some_and(|dropped| id <= dropped.last_id);
            if is_older || before.is_some_and(|before| before.kind == ChangeKind::Deleted) {
                return Ok(0);
            }
        }
        row.first_id = row.first_id.or(Some(id));
        row.last_id = row.last_id.max(Some(id));
        record(&self.connection, row, id, at.0, ChangeKind::Deleted)?;
        Ok(rows)
    }

    /// See [`RowSink::clear`](forebay_sink::RowSink::clear).
    pub(super) fn clear_namespace(
        &mut self,
        at: Position,
        name: &str,
        last_id: u64,
    ) -> Result<Written, SinkError> {
        let number = check_number("id", last_id);
        let cleared = number.and_then(|_| self.enter(at, name)).and_then(|is_new| {
            if !is_new {
                return Ok(Written::replay());
            }
            let rows = self.clear_entered(at, name, last_id);
            let rows = rows.map_err(|fault| sink_error("drop the rows", &self.path, fault))?;
            Ok(Written { rows, ..Written::default() })
        });
        self.ended(cleared)
    }

    fn clear_entered(&mut self, at: Position, name: &str, last_id: u64) -> Checked<u64> {
        self.grow_columns(at, name, &[])?;
        let Some(namespace) = self.namespaces.get_mut(name) else { return Ok(0) };
        let before = namespace.row.rows.count;
        if namespace.row.last_id.is_none_or(|last| last <= last_id) {
            let delete = format!("DELETE FROM {}", quote_identifier(&namespace.row.table));
            self.connection.execute(&delete, [])?;
            namespace.row.rows = RowSet::default();
        } else {
            take_up_to(&self.connection, namespace, last_id)?;
        }
        let row = &mut namespace.row;
        row.last_id = row.last_id.max(Some(last_id));
        row.changed = forget(&self.connection, row, last_id)?;
        row.changed.changed_at = Some(at.0);
        row.changed.removed_at = Some(at.0);
        row.changed.dropped = Some(Dropped { at: at.0, last_id });
        row.first_id = smallest(&self.connection, row)?;
        let rows = before - row.rows.count;
        if row.rows.count > 0 {
            return Ok(rows);
        }
        row.undecided = false;
        namespace.reshaped |= history::forget(&self.connection, name)?;
        if !namespace.schema.columns().is_empty() {
            super::reshape::make_again(
                &self.connection,
                namespace,
                &TableSchema::default(),
                &[],
                &mut |_, _| {},
            )?;
            state::replace_columns(&self.connection, name, &TableSchema::default())?;
            namespace.schema = TableSchema::default();
            namespace.reshaped = true;
            namespace.prepare_insert();
        }
        Ok(rows)
    }

    /// Returns `result`; an error ends the transaction.
    fn ended(&mut self, result: Result<Written, SinkError>) -> Result<Written, SinkError> {
        if result.is_err() {
            abandon(&self.connection, &mut self.transaction);
        }
        result
    }
}

/// Compares the changes of a namespace with its rows, of which the ids are from `first` to `last`;
/// returns the smallest and the largest id that were given.
pub(super) fn check(
    db: &Connection,
    row: &NamespaceRow,
    (first, last): (Option<u64>, Option<u64>),
    damage: &mut Vec<String>,
) -> Checked<(Option<u64>, Option<u64>)> {
    let exists =
        format!("SELECT EXISTS (SELECT 1 FROM {} WHERE _id = ?1)", quote_identifier(&row.table));
    let mut exists = db.prepare(&exists)?;
    let mut statement = db.prepare(&format!("{CHANGE} ORDER BY id"))?;
    let mut stored = statement.query([&row.name])?;
    let (mut found, mut deleted, mut named) = (RowSet::default(), 0, 0);
    let (mut lowest, mut highest) = (first, last);
    while let Some(stored) = stored.next()? {
        let change = Change::read(stored, &row.name)?;
        found.insert(change.checksum(&row.name));
        let is_there: bool = exists.query_row([change.id.cast_signed()], |row| row.get(0))?;
        let fault = match change.kind {
            ChangeKind::Deleted => {
                deleted += 1;
                lowest = Some(lowest.map_or(change.id, |lowest| lowest.min(change.id)));
                highest = highest.max(Some(change.id));
                is_there.then_some("was deleted, but is there")
            }
            ChangeKind::Replaced => (!is_there).then_some("was replaced, but is missing"),
        };
        if let Some(fault) = fault.filter(|_| named < FINDINGS_MAX) {
            named += 1;
            damage.push(format!("the row with id {} {fault}", change.id));
        }
    }
    if found != row.changed.rows || deleted != row.changed.deleted {
        damage.push("the changes do not match the digest of those that were stored".to_owned());
    }
    let dropped = row.changed.dropped.map(|dropped| dropped.last_id);
    Ok((lowest, highest.max(dropped)))
}
