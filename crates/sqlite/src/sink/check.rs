//! Checking everything in a database: its structure, every row, every count and digest.
//!
//! Invariants: nothing is changed; a byte of a row, of a column, of a schema or of a position that
//! was altered is reported, and so is a row that is missing or there although it was never written.

use std::collections::HashMap;

use forebay_base::rows::{RowHasher, RowSet};
use rusqlite::Connection;

use super::changes;
use super::fault::{Checked, Fault};
use super::history;
use super::layout;
use super::rows::{self, at};
use super::state::{self, NamespaceRow};

/// Maximum number of findings of SQLite's own check, and of damaged rows that are named.
pub(super) const FINDINGS_MAX: u32 = 100;

/// A fault found by [`SqliteReader::check`](super::SqliteReader::check).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Its namespace; `None` for the database as a whole.
    pub namespace: Option<String>,
    /// The fault.
    pub found: String,
}

/// What a namespace held at some earlier time, as something other than the database remembers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extent {
    /// The namespace.
    pub namespace: String,
    /// Its rows.
    pub rows: RowSet,
    /// The largest id among them.
    pub last_id: u64,
}

/// * `extents`: what the namespaces held at the log position `at`.
pub(super) fn check(db: &Connection, extents: &[Extent], at: u64) -> Checked<Vec<Damage>> {
    let whole = |found: String| Damage { namespace: None, found };
    let mut damage: Vec<Damage> = integrity(db)?.into_iter().map(whole).collect();
    // In a damaged file, further checks would only report the same damage again.
    if !damage.is_empty() {
        return Ok(damage);
    }
    if let Some(found) = own_tables(db)? {
        return Ok(vec![whole(found)]);
    }
    let known: HashMap<&str, &Extent> =
        extents.iter().map(|extent| (extent.namespace.as_str(), extent)).collect();
    let state = state::state(db)?;
    let namespaces = state::namespace_rows(db, state.namespaces)?;
    for extent in extents {
        if !namespaces.iter().any(|row| row.name == extent.namespace) {
            let found = format!("the namespace is missing, and {} rows", extent.rows.count);
            damage.push(Damage { namespace: Some(extent.namespace.clone()), found });
        }
    }
    for row in &namespaces {
        let mut found = Vec::new();
        let extent = known.get(row.name.as_str()).copied();
        match namespace(db, row, extent.map(|extent| (extent, at)), &mut found) {
            Ok(()) => {}
            Err(fault) => found.push(fault.damage()?),
        }
        let named = |found| Damage { namespace: Some(row.name.clone()), found };
        damage.extend(found.into_iter().map(named));
    }
    let changes: u64 = namespaces.iter().map(|row| row.changed.rows.count).sum();
    let found: u64 = db.query_row("SELECT count(*) FROM _forebay_changes", [], |row| row.get(0))?;
    if found != changes {
        damage.push(whole(format!("{found} changes of rows, expected {changes}")));
    }
    let strays = history::strays(db)?;
    if strays > 0 {
        damage.push(whole(format!("{strays} changes of columns of namespaces that do not exist")));
    }
    damage.sort_by(|a, b| a.namespace.cmp(&b.namespace));
    Ok(damage)
}

/// SQLite's own check.
fn integrity(db: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut statement = db.prepare(&format!("PRAGMA integrity_check({FINDINGS_MAX})"))?;
    let lines = statement.query_map([], |row| row.get::<_, String>(0))?;
    let lines: Vec<String> = lines.collect::<rusqlite::Result<_>>()?;
    Ok(lines.into_iter().filter(|line| line != "ok").collect())
}

/// Compares the SQL of the sink's own tables with what makes them.
fn own_tables(db: &Connection) -> rusqlite::Result<Option<String>> {
    type Made = (String, String, String, Option<String>);
    let sql_of = |db: &Connection| -> rusqlite::Result<Vec<Made>> {
        let mut statement = db.prepare(
            "SELECT type, name, tbl_name, sql FROM sqlite_schema
             WHERE name LIKE '\\_forebay\\_%' ESCAPE '\\'
               OR tbl_name LIKE '\\_forebay\\_%' ESCAPE '\\' ORDER BY name",
        )?;
        let row = |row: &rusqlite::Row<'_>| -> rusqlite::Result<Made> {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        };
        let found = statement.query_map([], row)?;
        found.collect()
    };
    let model = Connection::open_in_memory()?;
    layout::create_tables(&model)?;
    let same = sql_of(db)? == sql_of(&model)?;
    Ok((!same).then(|| "the sink's own tables are not as it makes them".to_owned()))
}

/// Checks one namespace: its columns, every row, and the set of them.
fn namespace(
    db: &Connection,
    row: &NamespaceRow,
    extent: Option<(&Extent, u64)>,
    damage: &mut Vec<String>,
) -> Checked<()> {
    let schema = state::schema(db, row)?;
    let mut statement =
        db.prepare(&format!("{} ORDER BY _id", rows::select(&row.table, &schema)))?;
    let mut stored = statement.query([])?;
    let (mut found, mut before) = (RowSet::default(), RowSet::default());
    let (mut first, mut last, mut bad) = (None, None, 0_u32);
    let mut hasher = RowHasher::default();
    while let Some(stored) = stored.next()? {
        let checksum = match rows::verify(&mut hasher, &row.name, stored, schema.columns().len()) {
            Ok((_, checksum)) => checksum,
            Err(Fault::Damaged(what)) => {
                bad += 1;
                if bad <= FINDINGS_MAX {
                    damage.push(what);
                }
                0
            }
            Err(fault) => return Err(fault),
        };
        let id: i64 = stored.get(at::ID)?;
        let id = id.cast_unsigned();
        first = first.or(Some(id));
        last = Some(id);
        found.insert(checksum);
        if extent.is_some_and(|(extent, _)| id <= extent.last_id) {
            before.insert(checksum);
        }
    }
    if bad > FINDINGS_MAX {
        damage.push(format!("{} more rows do not match their checksums", bad - FINDINGS_MAX));
    }
    let ends = changes::check(db, row, (first, last), damage)?;
    damage.extend(compare(row, found, ends.0, ends.1, bad));
    if let Some((extent, at)) = extent
        && bad == 0
        // Of rows that were dropped since, nothing is comparable.
        && row.changed.dropped.is_none_or(|dropped| dropped.at <= at)
    {
        let since = changes::since(db, row, at, extent.last_id)?;
        before.count = before.count.saturating_add(since.deleted);
        // Of rows that got other values since, only the number is comparable.
        let is_rewritten = since.any || row.rewritten_at.is_some_and(|rewritten| rewritten > at);
        let same_rows = is_rewritten || before.digest == extent.rows.digest;
        if before.count == extent.rows.count && same_rows {
            return Ok(());
        }
        damage.push(if before.count == extent.rows.count {
            format!("the rows up to id {} are not those that were stored", extent.last_id)
        } else {
            let (count, expected) = (before.count, extent.rows.count);
            format!("{count} rows up to id {}, but {expected} were stored", extent.last_id)
        });
    }
    Ok(())
}

fn compare(
    row: &NamespaceRow,
    found: RowSet,
    first: Option<u64>,
    last: Option<u64>,
    bad: u32,
) -> Option<String> {
    if found.count != row.rows.count {
        return Some(format!("{} rows, expected {}", found.count, row.rows.count));
    }
    if last != row.last_id {
        return Some(format!("largest id {last:?}, expected {:?}", row.last_id));
    }
    if bad > 0 {
        return None;
    }
    if first != row.first_id {
        return Some(format!("smallest id {first:?}, expected {:?}", row.first_id));
    }
    (found.digest != row.rows.digest)
        .then(|| "the rows do not match the digest of those that were stored".to_owned())
}
