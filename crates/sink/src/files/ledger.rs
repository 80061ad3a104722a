//! The transaction shared by both kinds of files: committed, pending, and failed state.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::manifest::{Entry, Manifest};
use super::sink_io;
use crate::error::SinkError;
use crate::name::{check_namespace, shown};
use crate::sink::Position;

/// Counts what is written and replaces the manifest when it is committed.
#[derive(Debug)]
pub(super) struct Ledger {
    dir: PathBuf,
    format: &'static str,
    committed: Manifest,
    /// Namespaces written to since the last commit, as they are to be.
    pending: BTreeMap<String, Entry>,
    written: Option<Position>,
    failed: bool,
}

impl Ledger {
    pub(super) fn new(dir: PathBuf, format: &'static str, committed: Manifest) -> Ledger {
        Ledger { dir, format, committed, pending: BTreeMap::new(), written: None, failed: false }
    }

    pub(super) fn committed(&self) -> &Manifest {
        &self.committed
    }

    pub(super) fn pending(&self) -> &BTreeMap<String, Entry> {
        &self.pending
    }

    /// Starts a write; returns `false` if its position is committed already.
    pub(super) fn admit(&mut self, at: Position, namespace: &str) -> Result<bool, SinkError> {
        if self.failed {
            return Err(SinkError::RolledBack);
        }
        check_number("position", at.0)?;
        check_namespace(namespace)
            .map_err(|reason| SinkError::Namespace { namespace: shown(namespace), reason })?;
        if self.committed.position.is_some_and(|stored| at <= stored) {
            return Ok(false);
        }
        self.written = Some(self.written.map_or(at, |written| written.max(at)));
        if !self.pending.contains_key(namespace) {
            let entry = self.committed.namespaces.get(namespace).copied().unwrap_or_default();
            self.pending.insert(namespace.to_owned(), entry);
        }
        Ok(true)
    }

    /// What `namespace` will hold; changed by the sink as it writes.
    pub(super) fn entry(&mut self, namespace: &str) -> &mut Entry {
        self.pending.entry(namespace.to_owned()).or_default()
    }

    /// Records that a write failed and returns its error.
    pub(super) fn settle<T>(&mut self, result: Result<T, SinkError>) -> Result<T, SinkError> {
        self.failed |= result.is_err();
        result
    }

    /// Whether anything was written, or went wrong, since the last commit.
    pub(super) fn is_idle(&self) -> bool {
        !self.failed && self.pending.is_empty()
    }

    /// Whether a commit at `position` would change anything; an error if it is not permitted.
    pub(super) fn check_commit(&self, position: Position) -> Result<bool, SinkError> {
        if self.failed {
            return Err(SinkError::RolledBack);
        }
        check_number("position", position.0)?;
        if let Some(written) = self.written.filter(|&written| written > position) {
            return Err(SinkError::PositionBehind { position, written });
        }
        Ok(self.written.is_some() || self.committed.position.is_none_or(|at| position > at))
    }

    /// Commits what is pending; the rows themselves must be on stable storage.
    pub(super) fn commit(
        &mut self,
        position: Position,
        renames: Vec<(String, String)>,
    ) -> Result<(), SinkError> {
        let mut next = self.committed.clone();
        next.position = Some(position);
        next.renames = renames;
        next.namespaces.append(&mut self.pending.clone());
        next.write(&self.dir, self.format)
            .map_err(sink_io("replace the manifest in", &self.dir))?;
        self.committed = next;
        self.pending.clear();
        self.written = None;
        Ok(())
    }

    /// Reads the manifest again: a failed commit may have replaced it all the same.
    pub(super) fn reload(&mut self) -> Result<(), SinkError> {
        let read = Manifest::read(&self.dir, self.format).map_err(SinkError::Reread)?;
        self.committed = read.ok_or_else(|| SinkError::Corrupt {
            act: "roll back",
            path: self.dir.clone(),
            found: "the manifest no longer exists".to_owned(),
        })?;
        Ok(())
    }

    /// Discards pending changes.
    pub(super) fn roll_back(&mut self) {
        self.pending.clear();
        self.written = None;
        self.failed = false;
    }
}

/// Checks a row's id and time against what its namespace holds, and counts it.
pub(super) fn admit_row(
    entry: &mut Entry,
    namespace: &str,
    id: u64,
    received_ms: u64,
) -> Result<(), SinkError> {
    check_number("id", id)?;
    check_number("time", received_ms)?;
    if let Some(last) = entry.last_id.filter(|&last| id <= last) {
        return Err(SinkError::IdOrder { namespace: namespace.to_owned(), id, last });
    }
    entry.last_id = Some(id);
    entry.rows += 1;
    Ok(())
}

fn check_number(what: &'static str, value: u64) -> Result<(), SinkError> {
    match i64::try_from(value) {
        Ok(_) => Ok(()),
        Err(_) => Err(SinkError::TooLarge { what, value }),
    }
}
