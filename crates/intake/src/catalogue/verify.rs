//! Verifying the whole catalogue: every row, the count and digest of every table, and the index that
//! lookups by digest depend on.
//!
//! Runs at every start, before the catalogue is used, then on a schedule beside everything else, and in
//! `fsck`.
//!
//! Invariants: nothing is changed; a byte that was altered in any column of any row is found, and so
//! is a row that is missing, or there although no change made it.

use std::sync::atomic::{AtomicBool, Ordering};

use forebay_base::rows::{RowHasher, RowSet};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};

use super::query::CatalogueTotals;
use super::rows::{
    BLOB_COLUMNS, BLOBS, Checked, FILE_COLUMNS, FILES, NAMESPACE_COLUMNS, NAMESPACES,
    REQUEST_COLUMNS, REQUESTS, Table, VERSION_COLUMNS, VERSIONS,
};
use super::schema;
use super::state::State;
use crate::error::CatalogueFault;

/// How many rows are read before the order to stop is looked at again.
const STOP_EVERY: u64 = 4_096;

/// Returns what does not match, at most `findings_max` findings.
///
/// * `stop`: makes it return soon, without having verified everything.
pub(super) fn verify(
    connection: &Connection,
    state: &State,
    findings_max: usize,
    stop: &AtomicBool,
) -> Result<Vec<String>, CatalogueFault> {
    let mut check = Check { connection, stop, findings: Vec::new(), findings_max };
    // The names that are in the index by digest, from their rows.
    let (mut named, mut of_name) = (RowSet::default(), RowHasher::default());
    let checked = check.table(FILES, FILE_COLUMNS, state.files, |row| {
        if row.get_ref(10)? == ValueRef::Integer(0) {
            let key = [row.get_ref(3)?, row.get_ref(0)?, row.get_ref(1)?];
            named.insert(key_checksum(&mut of_name, key));
        }
        Ok(())
    });
    check.settle(checked)?;
    for (table, columns, expected) in [
        (BLOBS, BLOB_COLUMNS, state.blobs),
        (REQUESTS, REQUEST_COLUMNS, state.requests),
        (NAMESPACES, NAMESPACE_COLUMNS, state.namespaces),
        (VERSIONS, VERSION_COLUMNS, state.versions),
    ] {
        let checked = check.table(table, columns, expected, |_| Ok(()));
        check.settle(checked)?;
    }
    let checked = check.index(named);
    check.settle(checked)?;
    let checked = schema::check(connection);
    check.settle(checked)?;
    Ok(check.findings)
}

/// Sums over the rows of names and blobs, all of which are verified.
pub(super) fn totals(connection: &Connection, state: &State) -> Checked<CatalogueTotals> {
    let stop = AtomicBool::new(false);
    let mut check = Check { connection, stop: &stop, findings: Vec::new(), findings_max: 1 };
    let mut totals = CatalogueTotals::default();
    check.table(FILES, FILE_COLUMNS, state.files, |row| {
        totals.files += 1;
        totals.file_bytes += row.get::<_, i64>(4)?.cast_unsigned();
        Ok(())
    })?;
    check.table(BLOBS, BLOB_COLUMNS, state.blobs, |row| {
        if row.get::<_, i64>(3)? > 0 {
            totals.blobs += 1;
            totals.blob_bytes += row.get::<_, i64>(1)?.cast_unsigned();
        }
        Ok(())
    })?;
    match check.findings.pop() {
        Some(found) => Err(CatalogueFault::Damaged { found }),
        None => Ok(totals),
    }
}

struct Check<'c> {
    connection: &'c Connection,
    stop: &'c AtomicBool,
    findings: Vec<String>,
    findings_max: usize,
}

impl Check<'_> {
    /// Turns damage into a finding.
    fn settle(&mut self, checked: Checked<()>) -> Checked<()> {
        match checked {
            Err(fault) if fault.is_damage() => {
                if self.findings.len() < self.findings_max {
                    self.findings.push(fault.to_string());
                }
                Ok(())
            }
            other => other,
        }
    }

    fn is_stopped(&self, rows: u64) -> bool {
        rows.is_multiple_of(STOP_EVERY) && self.stop.load(Ordering::Relaxed)
    }

    /// Verifies the rows of a table, calls `each` with those that match, and compares their count and
    /// digest.
    fn table(
        &mut self,
        table: Table,
        columns: &str,
        expected: RowSet,
        mut each: impl FnMut(&Row<'_>) -> Checked<()>,
    ) -> Checked<()> {
        let name = table.name;
        let mut statement = self.connection.prepare(&format!("SELECT {columns} FROM {name}"))?;
        let mut rows = statement.query([])?;
        let mut hasher = RowHasher::default();
        let (mut found, mut bad) = (RowSet::default(), false);
        if self.is_stopped(0) {
            return Ok(());
        }
        while let Some(row) = rows.next()? {
            match table.verify(&mut hasher, row, 0) {
                Ok(checksum) => {
                    found.insert(checksum);
                    each(row)?;
                }
                Err(fault) => {
                    bad = true;
                    found.insert(0);
                    self.settle(Err(fault))?;
                }
            }
            if self.is_stopped(found.count) {
                return Ok(());
            }
        }
        let found = if found.count != expected.count {
            format!("the table {name} has {} rows, expected {}", found.count, expected.count)
        } else if !bad && found.digest != expected.digest {
            format!("the rows of the table {name} do not match their digest")
        } else {
            return Ok(());
        };
        Err(CatalogueFault::Damaged { found })
    }

    /// Compares the index of names by digest with the rows it was made of.
    ///
    /// * `named`: the names that have to be in it.
    fn index(&mut self, named: RowSet) -> Checked<()> {
        let mut statement = self.connection.prepare(
            "SELECT digest, namespace, name FROM files INDEXED BY files_by_digest
             WHERE first = 0 ORDER BY digest",
        )?;
        let mut rows = statement.query([])?;
        let (mut hasher, mut found) = (RowHasher::default(), RowSet::default());
        while let Some(row) = rows.next()? {
            let key = [row.get_ref(0)?, row.get_ref(1)?, row.get_ref(2)?];
            found.insert(key_checksum(&mut hasher, key));
            if self.is_stopped(found.count) {
                return Ok(());
            }
        }
        if found == named || self.stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        let found = "the index files_by_digest does not match its table".to_owned();
        Err(CatalogueFault::Damaged { found })
    }
}

fn key_checksum(hasher: &mut RowHasher, key: [ValueRef<'_>; 3]) -> u64 {
    hasher.start();
    for value in key {
        match value {
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => hasher.blob(bytes),
            _ => hasher.null(),
        };
    }
    hasher.finish()
}
