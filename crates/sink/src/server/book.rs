//! State of a server's sink in memory: position, namespaces, and the open transaction.
//!
//! Invariant: apart from the additions of the open transaction, this is the server's last answer,
//! and is read again after every failure; it alone never decides what is committed.

use std::collections::HashMap;

use crate::error::SinkError;
use crate::name::{check_namespace, shown};
use crate::schema::TableSchema;
use crate::sink::{Identity, Position};
use crate::transaction::{Transaction, check_number};

/// A namespace: its table or collection, its columns, and its counts.
#[derive(Debug)]
pub struct Namespace {
    /// Its name.
    pub name: String,
    /// From 1, in the order the namespaces came into being.
    pub number: u64,
    /// The table or collection.
    pub table: String,
    /// Its columns, those of the open transaction included.
    pub schema: TableSchema,
    /// How many rows it has, those of the open transaction included.
    pub row_count: u64,
    /// The largest id in it, those of the open transaction included.
    pub last_id: Option<u64>,
    /// Rows of the open transaction.
    pub rows_pending: u64,
    /// Id of a row that was taken out, for another one to take its place.
    vacant: Option<u64>,
    /// It is in the list of those the next commit saves.
    is_dirty: bool,
}

impl Namespace {
    /// A namespace without columns and rows.
    ///
    /// * `number`: [`Book::next_number`] for a new one.
    #[must_use]
    pub fn new(name: String, number: u64, table: String) -> Namespace {
        Namespace {
            name,
            number,
            table,
            schema: TableSchema::default(),
            row_count: 0,
            last_id: None,
            rows_pending: 0,
            vacant: None,
            is_dirty: false,
        }
    }

    /// Checks a row's id and time and counts the row.
    ///
    /// # Errors
    /// [`SinkError::TooLarge`] and [`SinkError::IdOrder`]; the row is not counted.
    pub fn admit(&mut self, id: u64, received_ms: u64) -> Result<(), SinkError> {
        check_number("id", id)?;
        check_number("time", received_ms)?;
        let last = self.last_id.filter(|&last| id <= last);
        if let Some(last) = last.filter(|_| self.vacant != Some(id)) {
            return Err(SinkError::IdOrder { namespace: self.name.clone(), id, last });
        }
        self.vacant = None;
        self.last_id = self.last_id.max(Some(id));
        self.row_count += 1;
        self.rows_pending += 1;
        Ok(())
    }

    /// Records that rows were removed.
    pub fn removed(&mut self, rows: u64) {
        self.row_count = self.row_count.saturating_sub(rows);
    }

    /// Permits a row with an id that was given before, next.
    ///
    /// # Errors
    /// [`SinkError::NoRow`] if it never was.
    pub fn vacate(&mut self, id: u64) -> Result<(), SinkError> {
        let last = self.last_id.unwrap_or(0);
        if self.last_id.is_none_or(|last| id > last) {
            return Err(SinkError::NoRow { namespace: self.name.clone(), id, last });
        }
        self.vacant = Some(id);
        Ok(())
    }

    /// Records that ids up to this one have been given.
    ///
    /// # Errors
    /// [`SinkError::TooLarge`].
    pub fn pass(&mut self, id: u64) -> Result<(), SinkError> {
        check_number("id", id)?;
        self.last_id = self.last_id.max(Some(id));
        Ok(())
    }
}

/// The work of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Commit {
    /// None: the position is committed already.
    Nothing,
    /// Start a transaction, for the position alone, and store it.
    Begin,
    /// Store what was written, and the position.
    Store,
}

/// What a sink knows about itself.
#[derive(Debug)]
pub struct Book {
    /// The identity of the sink.
    pub identity: Identity,
    /// The position of the last commit.
    pub position: Option<Position>,
    /// The state of the open transaction.
    pub transaction: Transaction,
    /// The namespaces, those of the open transaction included. A namespace keeps its index.
    pub namespaces: Vec<Namespace>,
    /// Whether writes at the position itself are admitted; see
    /// [`RowSink::amend`](crate::RowSink::amend).
    pub amends: bool,
    by_name: HashMap<String, usize>,
    /// Those written to since the last commit.
    dirty: Vec<usize>,
}

impl Book {
    /// The committed state of a sink, as its server reported it.
    #[must_use]
    pub fn new(identity: Identity, position: Option<Position>, namespaces: Vec<Namespace>) -> Book {
        let names = namespaces.iter().map(|namespace| namespace.name.clone());
        let by_name = names.zip(0..).collect();
        let transaction = Transaction::Idle;
        let (amends, dirty) = (false, Vec::new());
        Book { identity, position, transaction, namespaces, amends, by_name, dirty }
    }

    /// Checks a write of `at` to `namespace`; returns `false` if its position is committed already.
    ///
    /// # Errors
    /// [`SinkError::RolledBack`] after a failed write, [`SinkError::TooLarge`] and
    /// [`SinkError::Namespace`].
    pub fn admits(&self, at: Position, namespace: &str) -> Result<bool, SinkError> {
        if self.transaction == Transaction::Failed {
            return Err(SinkError::RolledBack);
        }
        check_number("position", at.0)?;
        check_namespace(namespace)
            .map_err(|reason| SinkError::Namespace { namespace: shown(namespace), reason })?;
        Ok(self.position.is_none_or(|stored| at > stored || (self.amends && at == stored)))
    }

    /// Records that the open transaction has a write of `at`.
    pub fn note(&mut self, at: Position) {
        if let Transaction::Open { written } = &mut self.transaction {
            *written = Some(written.map_or(at, |written| written.max(at)));
        }
    }

    /// The index of `namespace` in [`namespaces`](Self::namespaces).
    #[must_use]
    pub fn find(&self, namespace: &str) -> Option<usize> {
        self.by_name.get(namespace).copied()
    }

    /// The namespace with this name.
    fn get(&self, namespace: &str) -> Option<&Namespace> {
        self.find(namespace).and_then(|index| self.namespaces.get(index))
    }

    /// The number of the next namespace.
    #[must_use]
    pub fn next_number(&self) -> u64 {
        self.namespaces.iter().map(|namespace| namespace.number).max().map_or(1, |last| last + 1)
    }

    /// Adds a namespace and returns its index.
    pub fn push(&mut self, namespace: Namespace) -> usize {
        let index = self.namespaces.len();
        self.by_name.insert(namespace.name.clone(), index);
        self.namespaces.push(namespace);
        index
    }

    /// Adds a namespace to the list of those that the next commit saves.
    pub fn touch(&mut self, index: usize) {
        if let Some(namespace) = self.namespaces.get_mut(index).filter(|found| !found.is_dirty) {
            namespace.is_dirty = true;
            self.dirty.push(index);
        }
    }

    /// Those written to since the last commit.
    pub fn dirty(&self) -> impl Iterator<Item = &Namespace> {
        self.dirty.iter().filter_map(|index| self.namespaces.get(*index))
    }

    /// The work of a commit at `position`.
    ///
    /// # Errors
    /// [`SinkError::RolledBack`], [`SinkError::PositionBehind`] and [`SinkError::TooLarge`]; each ends
    /// the transaction.
    pub fn commit(&self, position: Position) -> Result<Commit, SinkError> {
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

    /// Records that the open transaction was committed at `position`.
    pub fn committed(&mut self, position: Position) {
        for index in self.dirty.drain(..) {
            if let Some(namespace) = self.namespaces.get_mut(index) {
                namespace.is_dirty = false;
                namespace.rows_pending = 0;
            }
        }
        self.position = Some(position);
        self.amends = false;
        self.transaction = Transaction::Idle;
    }

    /// The largest id in `namespace`; see [`DocumentSink::last_id`](crate::DocumentSink::last_id).
    ///
    /// # Errors
    /// [`SinkError::RolledBack`] after a failed write.
    pub fn last_id(&self, namespace: &str) -> Result<Option<u64>, SinkError> {
        if self.transaction == Transaction::Failed {
            return Err(SinkError::RolledBack);
        }
        Ok(self.get(namespace).and_then(|found| found.last_id))
    }

    /// The columns of `namespace`; see [`RowSink::columns`](crate::RowSink::columns).
    ///
    /// # Errors
    /// [`SinkError::RolledBack`] after a failed write.
    pub fn columns(&self, namespace: &str) -> Result<Option<&TableSchema>, SinkError> {
        if self.transaction == Transaction::Failed {
            return Err(SinkError::RolledBack);
        }
        Ok(self.get(namespace).map(|found| &found.schema))
    }
}
