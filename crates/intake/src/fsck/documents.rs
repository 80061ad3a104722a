//! The document database in `fsck`: every row by its checksum, all of it by what the log remembers of
//! it, and the documents that the log still has one by one.
//!
//! Invariant: a document that was acknowledged and is not in the database as it was stored is found,
//! whether or not the log still has it.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use forebay_base::error_chain::chain;
use forebay_base::rows::RowSet;
use forebay_log::{Log, Lsn, ReadError};
use forebay_sink::column::Fit;
use forebay_sink::{Column, Position};
use forebay_sqlite::{Damage, Extent, OwnedValue, PageLimits, SqliteReader, StoredRow};

use super::Finding;
use crate::documents::DocumentError;
use crate::documents::flatten::{Bounds, read};
use crate::documents::work::Work;
use crate::documents::write::{read_documents, value_of};
use crate::error::{ApplyError, OpenError};
use crate::format::{ChangeAction, DocumentExtents, Entry};
use crate::intake::layout;
use crate::opening::{documents_error, open_documents};

/// Maximum number of documents that are named.
const FINDINGS_MAX: usize = 100;
/// Rows read at a time.
const PAGE: PageLimits = PageLimits { rows_max: 1_000, bytes_max: 8 << 20 };
/// Objects are flattened at most this deep in search of a column's value.
const FLATTEN_DEPTH_MAX: usize = 16;

/// What is known of the document database without it.
pub(super) struct Known<'a> {
    /// Documents below this position may have been erased from the log.
    pub(super) bound: u64,
    /// Position of the newest entry of extents.
    pub(super) extents_at: Option<u64>,
    /// The log, if it is sound.
    pub(super) log: Option<&'a Log>,
}

/// The document database, as far as it can be read.
#[derive(Debug)]
pub(super) struct Documents {
    path: PathBuf,
    /// `None` if there is none, or it cannot be opened.
    reader: Option<SqliteReader>,
    /// Position up to which it reflects the log; `None` if that cannot be read.
    pub(super) position: Option<Position>,
}

impl Documents {
    /// Opens the database; one of an older layout is upgraded, as at a start.
    pub(super) fn open(dir: &Path, findings: &mut Vec<Finding>) -> Result<Self, OpenError> {
        let path = dir.join(layout::DOCUMENTS);
        let nothing = Self { path: path.clone(), reader: None, position: None };
        if !path.exists() {
            return Ok(nothing);
        }
        let opened = match SqliteReader::open(&path) {
            Err(forebay_sink::OpenError::Version { found, expected, .. }) if found < expected => {
                open_documents(&path).and_then(|sink| sink.reader().map_err(documents_error))
            }
            other => other.map_err(documents_error),
        };
        let reader = match opened {
            Ok(reader) => reader,
            Err(OpenError::DocumentsDamaged { found, .. }) => {
                findings.push(finding(&path, found, None));
                return Ok(nothing);
            }
            Err(error) => return Err(error),
        };
        // What cannot be read here is reported by the check of everything.
        let position = reader.position().unwrap_or(None);
        Ok(Self { path, reader: Some(reader), position })
    }

    /// Checks everything; returns the number of documents.
    pub(super) fn check(
        &self,
        known: &Known<'_>,
        findings: &mut Vec<Finding>,
    ) -> Result<u64, OpenError> {
        let (extents, bound) = (known.extents()?, known.bound);
        let position = self.position.map_or(0, |position| position.0);
        let Some(reader) = &self.reader else {
            if !self.path.exists() {
                self.missing(known, extents.as_ref(), findings)?;
            }
            return Ok(0);
        };
        let is_readable = self.position.is_some() || reader.position().is_ok();
        if position < bound && is_readable {
            findings.push(self.older(position, bound));
        }
        let (expected, at) = match &extents {
            Some(extents) if extents.position <= position => (expected(extents), extents.position),
            _ => (Vec::new(), 0),
        };
        let damage = match reader.check_against(&expected, Position(at)) {
            Ok(damage) => damage,
            Err(error) => {
                findings.push(finding(&self.path, chain(&error).to_string(), None));
                return Ok(0);
            }
        };
        let whole = damage.iter().all(|damage| damage.namespace.is_some());
        let bad: HashSet<String> =
            damage.iter().filter_map(|damage| damage.namespace.clone()).collect();
        for Damage { namespace, found } in damage {
            findings.push(finding(&self.path, found, namespace));
        }
        let infos = reader.namespaces().unwrap_or_default();
        if whole {
            for info in infos.iter().filter(|info| !bad.contains(&info.name)) {
                self.columns(reader, &info.name, findings);
            }
            if let Some(log) = known.log {
                self.compare(reader, log, &bad, findings)?;
            }
        }
        Ok(infos.iter().map(|info| info.row_count).sum())
    }

    /// Reports a database that is missing although there are documents.
    fn missing(
        &self,
        known: &Known<'_>,
        extents: Option<&DocumentExtents>,
        findings: &mut Vec<Finding>,
    ) -> Result<(), OpenError> {
        let bound = known.bound;
        if bound > 0 {
            let lost = extents.map_or_else(
                || "documents".to_owned(),
                |extents| {
                    let count: u64 = extents.namespaces.iter().map(|extent| extent.count).sum();
                    format!("{count} documents")
                },
            );
            let message = format!(
                "the document database is missing: it held {lost}, of which the log no longer has \
                 those before position {bound}; restore it from a backup, and the next start adds \
                 what was stored since"
            );
            findings.push(finding(&self.path, message, None));
            return Ok(());
        }
        let Some(log) = known.log else { return Ok(()) };
        let (mut documents, mut lost) = (0, 0);
        let mut last: HashMap<String, u64> = HashMap::new();
        each_work(log, u64::MAX, &mut |log, (lsn, _), work| {
            let Work::Commit(commit) = work else { return Ok(()) };
            documents += commit.count;
            let last = last.entry(commit.namespace.as_str().to_owned()).or_insert(0);
            lost += commit.first_id.saturating_sub(last.saturating_add(1));
            *last = commit.first_id.saturating_add(commit.count).saturating_sub(1);
            match read_documents::<ApplyError>(log, lsn, commit, &mut |_, _| Ok(())) {
                Err(ApplyError::Read { source: ReadError::Erased { .. }, .. }) => {
                    lost += commit.count;
                    Ok(())
                }
                other => other,
            }
        })?;
        let message = match (documents, lost) {
            (0, _) => return Ok(()),
            (_, 0) => format!(
                "the document database is missing: the log has all {documents} documents, and the \
                 next start builds it again"
            ),
            _ => format!(
                "the document database is missing, and the log no longer has {lost} of its \
                 documents; restore it from a backup"
            ),
        };
        findings.push(finding(&self.path, message, None));
        Ok(())
    }

    fn older(&self, position: u64, bound: u64) -> Finding {
        let message = format!(
            "the document database ends at position {position}, but the log no longer has the \
             documents before {bound}: it was emptied or replaced by an older copy; restore a newer \
             one"
        );
        finding(&self.path, message, None)
    }

    /// Compares each document that the log has with the one that is stored.
    fn compare(
        &self,
        reader: &SqliteReader,
        log: &Log,
        bad: &HashSet<String>,
        findings: &mut Vec<Finding>,
    ) -> Result<(), OpenError> {
        let position = self.position.map_or(0, |position| position.0);
        let mut differing = 0;
        each_work(log, position, &mut |log, (lsn, end), work| {
            let namespace = work.namespace();
            if bad.contains(namespace) || differing >= FINDINGS_MAX {
                return Ok(());
            }
            let received_ms = work.received_ms().max(0).cast_unsigned();
            let mut compare = |id, raw: Option<&[u8]>| {
                let is_same = is_as_logged(reader, (namespace, id), end, (raw, received_ms));
                if !is_same && differing < FINDINGS_MAX {
                    differing += 1;
                    let message =
                        format!("the document with id {id} is not the one that the log has");
                    findings.push(finding(&self.path, message, Some(namespace.to_owned())));
                }
            };
            let commit = match work {
                Work::Commit(commit) => commit,
                Work::Change(change) => {
                    let raw = match &change.action {
                        ChangeAction::Replace { document, .. } => Some(*document),
                        ChangeAction::Delete => None,
                    };
                    compare(change.id, raw);
                    return Ok(());
                }
                Work::Drop(_) => {
                    let info = reader.namespace(namespace);
                    let is_known = info
                        .is_ok_and(|info| info.is_some_and(|info| info.dropped_at >= Some(end.0)));
                    if !is_known {
                        let message = "its documents were dropped, but are there".to_owned();
                        findings.push(finding(&self.path, message, Some(namespace.to_owned())));
                    }
                    return Ok(());
                }
            };
            let compared = read_documents::<ApplyError>(log, lsn, commit, &mut |first_id, run| {
                (first_id..).zip(run).for_each(|(id, raw)| compare(id, Some(raw)));
                Ok(())
            });
            match compared {
                // The commit stayed for its idempotency key, the chunks have left the log.
                Err(ApplyError::Read { source: ReadError::Erased { .. }, .. }) => Ok(()),
                other => other,
            }
        })
    }

    /// Compares the columns of each row with the values in its document.
    fn columns(&self, reader: &SqliteReader, namespace: &str, findings: &mut Vec<Finding>) {
        let mut after = None;
        let mut named = 0;
        loop {
            let page = match reader.rows(namespace, after, PAGE) {
                Ok(page) => page,
                Err(error) => {
                    let (message, name) = (chain(&error).to_string(), namespace.to_owned());
                    findings.push(finding(&self.path, message, Some(name)));
                    return;
                }
            };
            let columns = page.schema.columns();
            for row in &page.rows {
                after = Some(row.id);
                if let Some(column) = not_derived(columns, row)
                    && named < FINDINGS_MAX
                {
                    named += 1;
                    let message = format!(
                        "the column {:?} of the row with id {} is not what its document says",
                        column.name, row.id
                    );
                    findings.push(finding(&self.path, message, Some(namespace.to_owned())));
                }
            }
            if columns.is_empty() || !page.more {
                return;
            }
        }
    }
}

fn finding(path: &Path, message: String, namespace: Option<String>) -> Finding {
    let names = namespace.into_iter().collect();
    Finding { kind: "documents", message, sha256: None, path: Some(path.to_owned()), names }
}

impl Known<'_> {
    /// What the newest entry of extents in the log says.
    fn extents(&self) -> Result<Option<DocumentExtents>, OpenError> {
        let (Some(log), Some(lsn)) = (self.log, self.extents_at) else { return Ok(None) };
        let failed = OpenError::Replay;
        let payload =
            log.read(Lsn(lsn)).map_err(|source| failed(ApplyError::Read { lsn, source }))?;
        match Entry::decode(&payload) {
            Ok(Entry::DocumentExtents(extents)) => Ok(Some(extents)),
            Ok(_) => Err(failed(ApplyError::NotExtents { lsn })),
            Err(source) => Err(failed(ApplyError::Decode { lsn, source })),
        }
    }
}

fn expected(extents: &DocumentExtents) -> Vec<Extent> {
    let extent = |extent: &crate::format::NamespaceExtent| Extent {
        namespace: extent.namespace.as_str().to_owned(),
        rows: RowSet { count: extent.count, digest: extent.digest },
        last_id: extent.last_id,
    };
    extents.namespaces.iter().map(extent).collect()
}

/// Whether a document is what an entry that ends at `end` made it, or was changed later.
///
/// * `made`: its bytes, `None` if it was deleted; and when it was received.
fn is_as_logged(
    reader: &SqliteReader,
    (namespace, id): (&str, u64),
    end: Lsn,
    (raw, received_ms): (Option<&[u8]>, u64),
) -> bool {
    let is_same = match reader.document(namespace, id) {
        Ok(Some(stored)) => raw == Some(&stored.raw) && stored.received_ms == received_ms,
        Ok(None) => raw.is_none(),
        Err(_) => return false,
    };
    is_same || reader.newest_change(namespace, id).is_ok_and(|newest| newest > Some(end.0))
}

/// Called with an entry of documents, its position and its end.
type Each<'e> = dyn FnMut(&Log, (Lsn, Lsn), &Work<'_>) -> Result<(), ApplyError> + 'e;

/// Calls `each` with the entries of documents that the log has and that end at `until` or before.
fn each_work(log: &Log, until: u64, each: &mut Each<'_>) -> Result<(), OpenError> {
    let mut reader = log.reader(log.start());
    loop {
        let lsn = reader.position().0;
        let next =
            reader.next().map_err(|source| OpenError::Replay(ApplyError::Read { lsn, source }))?;
        let Some(entry) = next else { return Ok(()) };
        if entry.next.0 > until {
            return Ok(());
        }
        let lsn = entry.lsn;
        let decoded = Entry::decode(entry.payload)
            .map_err(|source| OpenError::Replay(ApplyError::Decode { lsn: lsn.0, source }))?;
        if let Some(work) = Work::of(decoded) {
            each(log, (lsn, entry.next), &work).map_err(OpenError::Replay)?;
        }
    }
}

/// A column whose value is not what the row's document has at its path. NULL is right for every
/// document: the column may be younger, or the value may not fit.
fn not_derived<'c>(columns: &'c [Column], row: &StoredRow) -> Option<&'c Column> {
    let document = row.document.as_ref()?;
    let mut wanted: HashMap<&str, (&Column, &OwnedValue)> = HashMap::new();
    for (column, value) in columns.iter().zip(&row.values) {
        if *value != OwnedValue::Null {
            wanted.insert(&column.path, (column, value));
        }
    }
    let mut path = String::new();
    // How deep objects were flattened is a setting, which may have changed.
    for flatten_depth in (1..=FLATTEN_DEPTH_MAX).rev() {
        if wanted.is_empty() {
            return None;
        }
        let bounds = Bounds { depth_max: usize::MAX, key_size_max: usize::MAX, flatten_depth };
        let Ok(members) = read(document, &bounds) else { break };
        let read = members.leaves::<DocumentError>(&bounds, &mut path, &mut |path, leaf, _| {
            let is_right = wanted
                .get(path)
                .is_some_and(|(column, value)| is_fit(&column.ty.fit(value_of(&leaf)), value));
            if is_right {
                wanted.remove(path);
            }
            Ok(())
        });
        if read.is_err() {
            break;
        }
    }
    columns.iter().find(|column| wanted.contains_key(column.path.as_str()))
}

/// Whether a column stores `value` for what fits it.
fn is_fit(fit: &Fit<'_>, value: &OwnedValue) -> bool {
    match (fit, value) {
        (Fit::Integer(fit), OwnedValue::Integer(value)) => fit == value,
        (Fit::Real(fit), OwnedValue::Real(value)) => fit == value,
        (Fit::Text(fit), OwnedValue::Text(value)) => fit == value,
        (Fit::Bytes(fit), OwnedValue::Bytes(value)) => fit == value,
        _ => false,
    }
}
