//! Verifying the whole catalogue: every row, the count and digest of every table, and the index that
//! lookups by digest depend on.
//!
//! Runs at every start, before the catalogue is used, and in `fsck`.
//!
//! Invariants: nothing is changed; a byte that was altered in any column of any row is found, and so
//! is a row that is missing, or there although no change made it.

use forebay_base::rows::{RowHasher, RowSet};
use rusqlite::Connection;
use rusqlite::types::ValueRef;

use super::rows::{
    BLOB_COLUMNS, BLOBS, Checked, FILE_COLUMNS, FILES, REQUEST_COLUMNS, REQUESTS, Table,
};
use super::schema;
use super::state::State;
use crate::error::CatalogueFault;

/// Returns what does not match, at most `findings_max` findings.
pub(super) fn verify(
    connection: &Connection,
    state: &State,
    findings_max: usize,
) -> Result<Vec<String>, CatalogueFault> {
    let mut check =
        Check { connection, findings: Vec::new(), findings_max, named: RowSet::default() };
    for (table, columns, expected) in [
        (FILES, FILE_COLUMNS, state.files),
        (BLOBS, BLOB_COLUMNS, state.blobs),
        (REQUESTS, REQUEST_COLUMNS, state.requests),
    ] {
        let checked = check.table(table, columns, expected);
        check.settle(checked)?;
    }
    let checked = check.index();
    check.settle(checked)?;
    let checked = schema::check(connection);
    check.settle(checked)?;
    Ok(check.findings)
}

struct Check<'c> {
    connection: &'c Connection,
    findings: Vec<String>,
    findings_max: usize,
    /// The names that are in the index by digest, from their rows.
    named: RowSet,
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

    fn table(&mut self, table: Table, columns: &str, expected: RowSet) -> Checked<()> {
        let name = table.name;
        let mut statement = self.connection.prepare(&format!("SELECT {columns} FROM {name}"))?;
        let mut rows = statement.query([])?;
        let (mut hasher, mut of_name) = (RowHasher::default(), RowHasher::default());
        let (mut found, mut bad) = (RowSet::default(), false);
        while let Some(row) = rows.next()? {
            match table.verify(&mut hasher, row, 0) {
                Ok(checksum) => found.insert(checksum),
                Err(fault) => {
                    bad = true;
                    found.insert(0);
                    self.settle(Err(fault))?;
                }
            }
            if name == FILES.name && row.get_ref(9)? == ValueRef::Integer(0) {
                let key = [row.get_ref(3)?, row.get_ref(0)?, row.get_ref(1)?];
                self.named.insert(key_checksum(&mut of_name, key));
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
    fn index(&mut self) -> Checked<()> {
        let mut statement = self.connection.prepare(
            "SELECT digest, namespace, name FROM files INDEXED BY files_by_digest
             WHERE first = 0 ORDER BY digest",
        )?;
        let mut rows = statement.query([])?;
        let (mut hasher, mut found) = (RowHasher::default(), RowSet::default());
        while let Some(row) = rows.next()? {
            let key = [row.get_ref(0)?, row.get_ref(1)?, row.get_ref(2)?];
            found.insert(key_checksum(&mut hasher, key));
        }
        if found == self.named {
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
