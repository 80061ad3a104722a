//! State of a server's sink in memory: position, namespaces, and the open transaction.
//!
//! Invariant: apart from the additions of the open transaction, this is the server's last answer,
//! and is read again after every failure; it alone never decides what is committed.

use std::collections::HashMap;

use crate::error::SinkError;
use crate::name::{check_namespace, shown};
use crate::schema::TableSchema;
use crate::sink::Position;
use crate::sqlite::Identity;
use crate::transaction::{Transaction, check_number};

/// A namespace: its table or collection, its columns, and its counts.
#[derive(Debug)]
pub(crate) struct Namespace {
    pub(crate) name: String,
    /// From 1, in the order the namespaces came into being.
    pub(crate) number: u64,
    /// The table or collection.
    pub(crate) table: String,
    pub(crate) schema: TableSchema,
    pub(crate) row_count: u64,
    pub(crate) last_id: Option<u64>,
    /// Rows of the open transaction.
    pub(crate) rows_pending: u64,
    /// It is in the list of those the next commit saves.
    is_dirty: bool,
}

impl Namespace {
    pub(crate) fn new(name: String, number: u64, table: String) -> Namespace {
        Namespace {
            name,
            number,
            table,
            schema: TableSchema::default(),
            row_count: 0,
            last_id: None,
            rows_pending: 0,
            is_dirty: false,
        }
    }

    /// Checks a row's id and time and counts the row.
    pub(crate) fn admit(&mut self, id: u64, received_ms: u64) -> Result<(), SinkError> {
        check_number("id", id)?;
        check_number("time", received_ms)?;
        if let Some(last) = self.last_id.filter(|&last| id <= last) {
            return Err(SinkError::IdOrder { namespace: self.name.clone(), id, last });
        }
        self.last_id = Some(id);
        self.row_count += 1;
        self.rows_pending += 1;
        Ok(())
    }
}

/// The work of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Commit {
    /// None: the position is committed already.
    Nothing,
    /// Start a transaction, for the position alone, and store it.
    Begin,
    /// Store what was written, and the position.
    Store,
}

/// What a sink knows about itself.
#[derive(Debug)]
pub(crate) struct Book {
    pub(crate) identity: Identity,
    pub(crate) position: Option<Position>,
    pub(crate) transaction: Transaction,
    pub(crate) namespaces: Vec<Namespace>,
    by_name: HashMap<String, usize>,
    /// Those written to since the last commit.
    dirty: Vec<usize>,
}

impl Book {
    pub(crate) fn new(
        identity: Identity,
        position: Option<Position>,
        namespaces: Vec<Namespace>,
    ) -> Book {
        let names = namespaces.iter().map(|namespace| namespace.name.clone());
        let by_name = names.zip(0..).collect();
        let transaction = Transaction::Idle;
        Book { identity, position, transaction, namespaces, by_name, dirty: Vec::new() }
    }

    /// Checks a write of `at` to `namespace`; returns `false` if its position is committed already.
    pub(crate) fn admits(&self, at: Position, namespace: &str) -> Result<bool, SinkError> {
        if self.transaction == Transaction::Failed {
            return Err(SinkError::RolledBack);
        }
        check_number("position", at.0)?;
        check_namespace(namespace)
            .map_err(|reason| SinkError::Namespace { namespace: shown(namespace), reason })?;
        Ok(self.position.is_none_or(|stored| at > stored))
    }

    /// Records that the open transaction has a write of `at`.
    pub(crate) fn note(&mut self, at: Position) {
        if let Transaction::Open { written } = &mut self.transaction {
            *written = Some(written.map_or(at, |written| written.max(at)));
        }
    }

    /// Where `namespace` is in [`namespaces`](Self::namespaces).
    pub(crate) fn find(&self, namespace: &str) -> Option<usize> {
        self.by_name.get(namespace).copied()
    }

    /// The namespace with this name.
    fn get(&self, namespace: &str) -> Option<&Namespace> {
        self.find(namespace).and_then(|index| self.namespaces.get(index))
    }

    /// The number of the next namespace.
    pub(crate) fn next_number(&self) -> u64 {
        self.namespaces.iter().map(|namespace| namespace.number).max().map_or(1, |last| last + 1)
    }

    /// Adds a namespace.
    pub(crate) fn push(&mut self, namespace: Namespace) -> usize {
        let index = self.namespaces.len();
        self.by_name.insert(namespace.name.clone(), index);
        self.namespaces.push(namespace);
        index
    }

    /// Adds a namespace to the list of those that the next commit saves.
    pub(crate) fn touch(&mut self, index: usize) {
        if let Some(namespace) = self.namespaces.get_mut(index).filter(|found| !found.is_dirty) {
            namespace.is_dirty = true;
            self.dirty.push(index);
        }
    }

    /// Those written to since the last commit.
    pub(crate) fn dirty(&self) -> impl Iterator<Item = &Namespace> {
        self.dirty.iter().filter_map(|index| self.namespaces.get(*index))
    }

    /// The work of a commit at `position`. An error ends the transaction.
    pub(crate) fn commit(&self, position: Position) -> Result<Commit, SinkError> {
        check_number("position", position.0)?;
        match self.transaction {
            Transaction::Failed => Err(SinkError::RolledBack),
            Transaction::Idle if self.position.is_some_and(|stored| position <= stored) => {
                Ok(Commit::Nothing)
            }
            Transaction::Idle => Ok(Commit::Begin),
            Transaction::Open { written } => {
                match written.or(self.position).filter(|&written| written > position) {
                    Some(written) => Err(SinkError::PositionBehind { position, written }),
                    None => Ok(Commit::Store),
                }
            }
        }
    }

    /// The open transaction was committed at `position`.
    pub(crate) fn committed(&mut self, position: Position) {
        for index in self.dirty.drain(..) {
            if let Some(namespace) = self.namespaces.get_mut(index) {
                namespace.is_dirty = false;
                namespace.rows_pending = 0;
            }
        }
        self.position = Some(position);
        self.transaction = Transaction::Idle;
    }

    /// The largest id in `namespace`; see [`DocumentSink::last_id`](crate::DocumentSink::last_id).
    pub(crate) fn last_id(&self, namespace: &str) -> Result<Option<u64>, SinkError> {
        if self.transaction == Transaction::Failed {
            return Err(SinkError::RolledBack);
        }
        Ok(self.get(namespace).and_then(|found| found.last_id))
    }

    /// The columns of `namespace`; see [`RowSink::columns`](crate::RowSink::columns).
    pub(crate) fn columns(&self, namespace: &str) -> Result<Option<&TableSchema>, SinkError> {
        if self.transaction == Transaction::Failed {
            return Err(SinkError::RolledBack);
        }
        Ok(self.get(namespace).map(|found| &found.schema))
    }
}
