//! Comparing a catalogue with one that was built from the log alone.
//!
//! Where the bytes of a blob are may differ: of several copies a replay may choose another. So names,
//! the sizes and reference counts of blobs that have names, and remembered requests are compared; that
//! the bytes are where a blob says is checked by reading them.
//!
//! Invariant: neither catalogue is changed.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use forebay_base::rows::RowHasher;
use rusqlite::Connection;

use super::rows::{
    Checked, FILE_COLUMNS, NAMESPACE_COLUMNS, REQUEST_COLUMNS, VERSION_COLUMNS, read_file,
    read_namespace, read_request, read_version,
};
use super::{Catalogue, FileRecord, NamespaceRecord, VersionRecord};
use crate::error::CatalogueError;

/// What a catalogue lacks or has in excess of the log, at most `findings_max` findings.
///
/// # Errors
/// [`CatalogueError`]: one of the two cannot be read.
pub(crate) fn compare(
    catalogue: &Catalogue,
    reference: &Catalogue,
    findings_max: usize,
) -> Result<Vec<String>, CatalogueError> {
    let mut findings = Vec::new();
    let (found, expected) = (&catalogue.connection, &reference.connection);
    names(found, expected, findings_max, &mut findings)
        .and_then(|()| blobs(found, expected, findings_max, &mut findings))
        .and_then(|()| versions(found, expected, findings_max, &mut findings))
        .and_then(|()| namespaces(found, expected, findings_max, &mut findings))
        .and_then(|()| requests(found, expected, findings_max, &mut findings))
        .map_err(|source| CatalogueError::new("compare the catalogue with the log", source))?;
    Ok(findings)
}

fn names(
    found: &Connection,
    expected: &Connection,
    findings_max: usize,
    findings: &mut Vec<String>,
) -> Checked<()> {
    let all = format!("SELECT {FILE_COLUMNS} FROM files ORDER BY namespace, name");
    let (mut found, mut expected) = (found.prepare(&all)?, expected.prepare(&all)?);
    let (mut found, mut expected) = (found.query([])?, expected.query([])?);
    let mut hasher = RowHasher::default();
    let mut next = |rows: &mut rusqlite::Rows<'_>| -> Checked<Option<FileRecord>> {
        rows.next()?.map(|row| Ok(read_file(&mut hasher, row)?.0)).transpose()
    };
    let (mut one, mut other) = (next(&mut found)?, next(&mut expected)?);
    while findings.len() < findings_max {
        let key = |file: &FileRecord| format!("{}/{}", file.namespace, file.name);
        let order = match (&one, &other) {
            (None, None) => return Ok(()),
            (Some(one), Some(other)) => {
                (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name))
            }
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
        };
        match (order, &one, &other) {
            (Ordering::Less, Some(file), _) => {
                findings.push(format!("the name {:?} is not in the log", key(file)));
            }
            (Ordering::Greater, _, Some(file)) => {
                findings.push(format!("the name {:?} is in the log and missing here", key(file)));
            }
            (_, Some(file), Some(logged)) if file != logged => {
                findings.push(format!("the name {:?} differs from the log", key(file)));
            }
            _ => {}
        }
        if order != Ordering::Greater {
            one = next(&mut found)?;
        }
        if order != Ordering::Less {
            other = next(&mut expected)?;
        }
    }
    Ok(())
}

fn blobs(
    found: &Connection,
    expected: &Connection,
    findings_max: usize,
    findings: &mut Vec<String>,
) -> Checked<()> {
    type Named = ([u8; 32], i64, i64);
    let all = "SELECT digest, size, refs FROM blobs WHERE refs > 0 ORDER BY digest";
    let (mut found, mut expected) = (found.prepare(all)?, expected.prepare(all)?);
    let read = |row: &rusqlite::Row<'_>| -> rusqlite::Result<Named> {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?))
    };
    let (mut found, mut expected) = (found.query_map([], read)?, expected.query_map([], read)?);
    while findings.len() < findings_max {
        match (found.next().transpose()?, expected.next().transpose()?) {
            (None, None) => break,
            (one, other) if one == other => {}
            (one, other) => {
                // Everything after the first difference would be reported as one as well.
                let digest = one.or(other).map(|(digest, ..)| hex::encode(digest));
                let digest = digest.unwrap_or_default();
                findings.push(format!("the blobs differ from the log from {digest} on"));
                break;
            }
        }
    }
    Ok(())
}

fn versions(
    found: &Connection,
    expected: &Connection,
    findings_max: usize,
    findings: &mut Vec<String>,
) -> Checked<()> {
    let all = format!("SELECT {VERSION_COLUMNS} FROM versions ORDER BY namespace, name, id");
    let (mut found, mut expected) = (found.prepare(&all)?, expected.prepare(&all)?);
    let (mut found, mut expected) = (found.query([])?, expected.query([])?);
    let mut hasher = RowHasher::default();
    let mut next = |rows: &mut rusqlite::Rows<'_>| -> Checked<Option<VersionRecord>> {
        rows.next()?.map(|row| Ok(read_version(&mut hasher, row)?.0)).transpose()
    };
    while findings.len() < findings_max {
        match (next(&mut found)?, next(&mut expected)?) {
            (None, None) => break,
            (one, other) if one == other => {}
            (one, other) => {
                // Everything after the first difference would be reported as one as well.
                let file = one.or(other).map(|version| version.file);
                let name = file.map(|file| format!("{}/{}", file.namespace, file.name));
                let name = name.unwrap_or_default();
                findings.push(format!("versions differ from the log from {name:?} on"));
                break;
            }
        }
    }
    Ok(())
}

fn namespaces(
    found: &Connection,
    expected: &Connection,
    findings_max: usize,
    findings: &mut Vec<String>,
) -> Checked<()> {
    let read = |connection: &Connection| -> Checked<BTreeMap<String, NamespaceRecord>> {
        let mut all = connection.prepare(&format!("SELECT {NAMESPACE_COLUMNS} FROM namespaces"))?;
        let (mut rows, mut hasher) = (all.query([])?, RowHasher::default());
        let mut records = BTreeMap::new();
        while let Some(row) = rows.next()? {
            let record = read_namespace(&mut hasher, row)?.0;
            records.insert(record.namespace.as_str().to_owned(), record);
        }
        Ok(records)
    };
    let (found, expected) = (read(found)?, read(expected)?);
    let names: BTreeSet<&String> = found.keys().chain(expected.keys()).collect();
    for name in names {
        if findings.len() < findings_max && found.get(name) != expected.get(name) {
            findings.push(format!("the record of the namespace {name} differs from the log"));
        }
    }
    Ok(())
}

/// Requests that were forgotten meanwhile may still be in the log, so only those that are here are
/// looked for there.
fn requests(
    found: &Connection,
    expected: &Connection,
    findings_max: usize,
    findings: &mut Vec<String>,
) -> Checked<()> {
    let mut all = found.prepare(&format!("SELECT {REQUEST_COLUMNS} FROM requests"))?;
    let mut logged =
        expected.prepare(&format!("SELECT {REQUEST_COLUMNS} FROM requests WHERE key = ?1"))?;
    let mut rows = all.query([])?;
    let mut hasher = RowHasher::default();
    while let Some(row) = rows.next()?
        && findings.len() < findings_max
    {
        let key: [u8; 32] = row.get(0)?;
        let one = read_request(&mut hasher, row)?;
        let mut same = logged.query([key])?;
        let other = same.next()?.map(|row| read_request(&mut hasher, row)).transpose()?;
        if other.as_ref() != Some(&one) {
            let key = hex::encode(key);
            findings.push(format!("the remembered request {key} differs from the log"));
        }
    }
    Ok(())
}
