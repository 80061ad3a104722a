//! The search index in `fsck`: verified by its checksums and by SQLite, and compared with the
//! catalogue.
//!
//! An index that is missing, or of another version or log, is no fault: the next start builds it again.
//!
//! Invariants: nothing is repaired; what is damaged is described and stops no other part of the check.

use std::collections::HashSet;
use std::path::Path;

use forebay_base::error_chain::chain;
use forebay_log::{Log, Lsn};
use rusqlite::Connection;

use super::schema::{self, COLUMNS, Checked, Indexed, SCHEMA_VERSION, State, check_schema};
use crate::catalogue::{CatalogueReader, FileFilter, FileRecord};
use crate::error::{CatalogueError, CatalogueFault, OpenError};
use crate::format::{Amended, Entry, NewestErased};
use crate::pending::NameKey;

/// Maximum number of findings.
const FINDINGS_MAX: usize = 20;
/// Names read from the catalogue at a time.
const PAGE: usize = 1_000;

/// The catalogue to compare with.
pub(crate) struct Sound<'a> {
    pub(crate) reader: &'a CatalogueReader,
    /// Position up to which it reflects the log.
    pub(crate) position: u64,
    /// The log, which was checked.
    pub(crate) log: &'a Log,
}

/// Checks the index at `path`.
///
/// * `catalogue`: a catalogue that was verified, if there is one.
/// * Returns the number of files in the index, and the findings.
///
/// # Errors
/// [`OpenError`]: the index or the catalogue could not be read for another reason than damage.
pub(crate) fn check(
    path: &Path,
    catalogue: Option<Sound<'_>>,
) -> Result<(u64, Vec<String>), OpenError> {
    let found = path.try_exists();
    let exists = found.map_err(|source| OpenError::Prepare { path: path.to_owned(), source })?;
    if !exists {
        return Ok((0, Vec::new()));
    }
    let mut findings = Vec::new();
    let checked = schema::open_reader(path).and_then(|connection| {
        let transaction = connection.unchecked_transaction()?;
        examine(&transaction, catalogue, &mut findings)
    });
    match checked {
        Ok(files) => Ok((files, findings)),
        Err(fault) if fault.is_damage() => {
            findings.push(fault.to_string());
            Ok((0, findings))
        }
        Err(fault) => Err(OpenError::Search(CatalogueError::new("read the search index", fault))),
    }
}

fn examine(
    connection: &Connection,
    catalogue: Option<Sound<'_>>,
    findings: &mut Vec<String>,
) -> Checked<u64> {
    if schema::version_of(connection)? != SCHEMA_VERSION {
        return Ok(0);
    }
    check_schema(connection)?;
    let state = State::load(connection)?;
    let Some(state) = state else { return Ok(0) };
    let mut integrity = connection.prepare("PRAGMA integrity_check(20)")?;
    let messages = integrity.query_map([], |row| row.get::<_, String>(0))?;
    for message in messages {
        let message = message?;
        if message != "ok" {
            findings.push(message);
        }
    }
    let files = count(connection, &state)?;
    for table in ["words", "pieces"] {
        let sql = format!(
            "SELECT (SELECT count(*) FROM {table}_docsize),
               (SELECT count(*) FROM files WHERE id NOT IN (SELECT id FROM {table}_docsize))"
        );
        let (count, missing): (u64, u64) =
            connection.query_row(&sql, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
        if count != files || missing != 0 {
            findings.push(format!(
                "the table {table} has {count} files, of which {missing} of {files} are missing"
            ));
        }
    }
    if let Some(catalogue) = catalogue.filter(|catalogue| catalogue.log.id() == state.log) {
        compare(connection, &state, &catalogue, findings)?;
    }
    Ok(files)
}

/// Verifies and counts every row.
fn count(connection: &Connection, state: &State) -> Checked<u64> {
    let (mut files, mut texts, mut text_bytes) = (0, 0, 0u64);
    let mut statement = connection.prepare(&format!("SELECT {COLUMNS} FROM files"))?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let file = Indexed::read(row)?;
        files += 1;
        texts += u64::from(file.text_size > 0);
        text_bytes = text_bytes.saturating_add(file.text_size);
    }
    if (files, texts, text_bytes) == (state.files, state.texts, state.text_bytes) {
        return Ok(files);
    }
    Err(CatalogueFault::Damaged {
        found: format!(
            "the table meta counts {} files with {} texts, and {files} with {texts} were found",
            state.files, state.texts
        ),
    })
}

/// Compares the rows with the names of the catalogue, which reflects at least as much of the log. Both
/// are read in the order of names, so memory does not grow with their number.
fn compare(
    connection: &Connection,
    state: &State,
    catalogue: &Sound<'_>,
    findings: &mut Vec<String>,
) -> Checked<()> {
    let again = referred_again(catalogue.log, state.position)?;
    let sql = format!("SELECT {COLUMNS} FROM files ORDER BY namespace, name");
    let mut statement = connection.prepare(&sql)?;
    let mut rows = statement.query([])?;
    let mut next = rows.next()?.map(Indexed::read).transpose()?;
    let mut gone = 0u64;
    let mut after: Option<FileRecord> = None;
    loop {
        let last = after.as_ref().map(|file| (file.namespace.as_str(), file.name.as_str()));
        let page = catalogue.reader.list(&FileFilter::default(), last, PAGE);
        let page = page.map_err(|error| error.source)?;
        let Some(last) = page.last() else { break };
        after = Some(last.clone());
        for file in page {
            let key = (file.namespace.as_str(), file.name.as_str());
            let mut found = None;
            while let Some(row) = next.take_if(|row| (&*row.namespace, &*row.name) <= key) {
                if (&*row.namespace, &*row.name) == key {
                    found = Some(row);
                } else {
                    gone += 1;
                }
                next = rows.next()?.map(Indexed::read).transpose()?;
            }
            let is_right = match found {
                Some(row) if row.id == file.id => is_same(&row, &file),
                // The index has not come to the entry that gave the name what it has now, or that made it
                // refer to this file again.
                _ => {
                    file.id >= state.position
                        || again.contains(&(file.namespace.clone(), file.name.clone()))
                }
            };
            if !is_right && findings.len() < FINDINGS_MAX {
                let name = format!("{}/{}", key.0, key.1);
                findings.push(format!("the file {name:?} is not as the catalogue has it"));
            }
        }
    }
    while next.is_some() {
        gone += 1;
        next = rows.next()?.map(Indexed::read).transpose()?;
    }
    if state.position >= catalogue.position && gone > 0 {
        findings.push(format!("{gone} names do not exist any more"));
    }
    Ok(())
}

/// Names that entries from a position on made refer to an earlier file again, or to one with other attributes.
fn referred_again(log: &Log, from: u64) -> Checked<HashSet<NameKey>> {
    let damaged = |error: &dyn std::error::Error| CatalogueFault::Damaged {
        found: format!("the log behind the index cannot be read: {}", chain(error)),
    };
    let mut names = HashSet::new();
    let mut reader = log.reader(Lsn(from).max(log.start()));
    while let Some(entry) = reader.next().map_err(|error| damaged(&error))? {
        let decoded = Entry::decode(entry.payload).map_err(|error| damaged(&error))?;
        if let Entry::NewestErased(NewestErased { namespace, name, .. })
        | Entry::Amended(Amended { namespace, name, .. }) = decoded
        {
            names.insert((namespace, name));
        }
    }
    Ok(names)
}

fn is_same(row: &Indexed, file: &FileRecord) -> bool {
    row.mime == file.mime
        && row.category == file.category
        && row.size == file.size
        && row.created_ms == file.created_ms
}
