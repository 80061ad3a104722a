//! The state of each namespace of documents: target, columns, next id; what a batch does to it.
//!
//! This lock orders the commits of a namespace, so a commit adds exactly the columns that the table
//! lacks at its position in the log, and ids increase in log order. The state here is ahead of the
//! document database by the commits that it has not applied yet.
//!
//! Invariant: a namespace that is not held here has no pending commit, so the database knows it.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use forebay_log::Lsn;
use forebay_sink::{
    Column, ColumnType, Field, NamespaceKind, ReadError, StoredDocument, TableSchema,
};
use forebay_sqlite::{
    self as sqlite, ChangePage, DocumentPage, NamespaceInfo, PageLimits, SqliteReader,
};
use parking_lot::Mutex;

use super::DocumentError;
use super::decide::{Decision, Wish, decide};
use super::flatten::{Bounds, read};
use super::profile::Profile;
use crate::error::IntakeError;
use crate::format::TargetCode;
use crate::intake::layout;
use crate::names::Namespace;
use crate::options::{DecisionOptions, IntakeOptions};

/// Idle connections kept open.
const IDLE_MAX: usize = 4;
/// Documents read at a time for their profile.
const PAGE: PageLimits = PageLimits { rows_max: 1_000, bytes_max: 8 << 20 };

/// The state of a namespace after its newest commit.
#[derive(Debug, Clone)]
pub(crate) struct NamespaceState {
    /// Its target; `None` before its first documents.
    pub(crate) target: Option<TargetCode>,
    pub(crate) schema: TableSchema,
    pub(crate) next_id: u64,
    /// End of its newest commit in the log.
    pub(crate) last_end: Lsn,
    /// The profile of its documents, as long as these are too few to decide.
    pub(crate) undecided: Option<Profile>,
    /// Paths of whole numbers beyond those that doubles keep, received since it was read.
    exceeding: HashSet<String>,
    /// End of the newest change of each document that was changed and that the database may lack.
    pub(crate) changing: HashMap<u64, Lsn>,
    /// End of the newest change since the start.
    pub(crate) changed_end: Lsn,
    /// End of the entry that dropped all documents last, since the start.
    pub(crate) dropped_end: Lsn,
    /// Position of the newest deletion, or drop.
    pub(crate) removed_at: Option<u64>,
}

/// The effect of a batch on its namespace.
#[derive(Debug, Clone)]
pub(crate) struct Planned {
    pub(crate) decision: Decision,
    pub(crate) added: Vec<Column>,
    /// Columns that get a wider type, as they are, and the type.
    pub(crate) widened: Vec<(Column, ColumnType)>,
    /// Whether the values of the documents before are derived again.
    pub(crate) reshapes: bool,
    /// The columns from here on.
    pub(crate) schema: TableSchema,
    /// The profile of all documents, if the namespace stays undecided.
    undecided: Option<Profile>,
    /// Paths of whole numbers beyond those that doubles keep.
    exceeding: Vec<String>,
    pub(crate) ddl: Vec<String>,
    /// Paths that get no column, and why.
    pub(crate) refused: Vec<(String, String)>,
    /// Columns that do not hold all values of their field, and the number of these values.
    pub(crate) unfit: Vec<(Column, u64)>,
}

/// The namespaces, and read access to the document database.
#[derive(Debug)]
pub(crate) struct Namespaces {
    path: PathBuf,
    bounds: Bounds,
    /// Maximum number of fields in a profile.
    fields_max: usize,
    idle: Mutex<Vec<SqliteReader>>,
    pub(crate) states: Mutex<HashMap<Namespace, NamespaceState>>,
}

impl Namespaces {
    pub(crate) fn new(bounds: Bounds, options: &IntakeOptions) -> Self {
        Self {
            path: options.dir.join(layout::DOCUMENTS),
            bounds,
            fields_max: profile_fields_max(&options.decision),
            idle: Mutex::new(Vec::new()),
            states: Mutex::new(HashMap::new()),
        }
    }

    /// The state of a namespace from the database alone. The caller holds the lock on `states`, or
    /// accepts a state that is a moment old.
    pub(crate) fn load(&self, namespace: &Namespace) -> Result<NamespaceState, IntakeError> {
        let mut state = NamespaceState::new();
        let Some((info, schema)) = self.info(namespace)? else { return Ok(state) };
        state.next_id = info.last_id.unwrap_or(0) + 1;
        state.removed_at = info.removed_at;
        if info.is_dropped {
            return Ok(state);
        }
        state.target = Some(match info.kind {
            NamespaceKind::Table => TargetCode::Table,
            NamespaceKind::Collection => TargetCode::Collection,
        });
        state.schema = schema;
        if info.undecided {
            let mut profile = Profile::new(self.fields_max);
            self.profile(namespace, None, state.next_id, &mut profile)?;
            state.undecided = Some(profile);
        }
        Ok(state)
    }

    /// Adds the documents with ids after `after` and below `until` to a profile.
    pub(crate) fn profile(
        &self,
        namespace: &Namespace,
        mut after: Option<u64>,
        until: u64,
        profile: &mut Profile,
    ) -> Result<(), IntakeError> {
        loop {
            let page = self.documents(namespace, after, PAGE)?;
            for document in page.documents.iter().filter(|document| document.id < until) {
                // It passed the checks of the day when it was accepted. One that does not pass
                // today's is counted with what can be read of it.
                let bounds =
                    Bounds { depth_max: usize::MAX, key_size_max: usize::MAX, ..self.bounds };
                let profiled = read(&document.raw, &bounds)
                    .and_then(|members| profile.add(&members, &bounds, &mut |_, _, _| {}));
                if let Err(error) = profiled {
                    return Err(unreadable(document.id, &error));
                }
                after = Some(document.id);
            }
            let is_done = page.documents.last().is_none_or(|last| last.id >= until);
            if is_done || !page.more {
                return Ok(());
            }
        }
    }

    /// Whether a column may hold whole numbers that no double is exactly, as far as the database
    /// has been applied.
    fn exceeds_doubles(&self, namespace: &Namespace, column: &Column) -> Result<bool, IntakeError> {
        self.with_reader(|reader| reader.exceeds_doubles(namespace.as_str(), &column.name))
    }

    pub(crate) fn documents(
        &self,
        namespace: &Namespace,
        after: Option<u64>,
        limits: PageLimits,
    ) -> Result<DocumentPage, IntakeError> {
        self.with_reader(|reader| reader.documents(namespace.as_str(), after, limits))
    }

    pub(crate) fn document(
        &self,
        namespace: &Namespace,
        id: u64,
    ) -> Result<Option<StoredDocument>, IntakeError> {
        self.with_reader(|reader| reader.document(namespace.as_str(), id))
    }

    pub(crate) fn changes(
        &self,
        namespace: &Namespace,
        after: u64,
        changes_max: usize,
    ) -> Result<ChangePage, IntakeError> {
        self.with_reader(|reader| reader.changes(namespace.as_str(), after, changes_max))
    }

    pub(crate) fn list(&self) -> Result<Vec<NamespaceInfo>, IntakeError> {
        self.with_reader(SqliteReader::namespaces)
    }

    pub(crate) fn info(
        &self,
        namespace: &Namespace,
    ) -> Result<Option<(NamespaceInfo, TableSchema)>, IntakeError> {
        self.with_reader(|reader| {
            let Some(info) = reader.namespace(namespace.as_str())? else { return Ok(None) };
            let schema = reader.schema(namespace.as_str())?.unwrap_or_default();
            Ok(Some((info, schema)))
        })
    }

    pub(crate) fn with_reader<T>(
        &self,
        ask: impl FnOnce(&SqliteReader) -> Result<T, ReadError>,
    ) -> Result<T, IntakeError> {
        let idle = self.idle.lock().pop();
        let reader = match idle {
            Some(reader) => reader,
            None => SqliteReader::open(&self.path).map_err(IntakeError::open_documents)?,
        };
        let answer = ask(&reader).map_err(IntakeError::documents);
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_MAX {
            idle.push(reader);
        }
        answer
    }
}

/// Maximum number of fields that a profile tracks.
pub(crate) fn profile_fields_max(options: &DecisionOptions) -> usize {
    options.columns_max * 2
}

fn unreadable(id: u64, error: &DocumentError) -> IntakeError {
    IntakeError::Damaged { digest: format!("document {id}"), found: error.to_string() }
}

impl NamespaceState {
    /// The state of a namespace without documents.
    pub(crate) fn new() -> Self {
        Self {
            target: None,
            schema: TableSchema::default(),
            next_id: 1,
            last_end: Lsn(0),
            undecided: None,
            exceeding: HashSet::new(),
            changing: HashMap::new(),
            changed_end: Lsn(0),
            dropped_end: Lsn(0),
            removed_at: None,
        }
    }

    /// Decides where a batch is stored and which columns its table would gain or widen.
    ///
    /// # Errors
    /// The database cannot be queried.
    pub(crate) fn plan(
        &self,
        namespaces: &Namespaces,
        namespace: &Namespace,
        profile: &Profile,
        options: &DecisionOptions,
        wish: Wish,
    ) -> Result<Planned, IntakeError> {
        let whole = self.undecided.as_ref().map(|before| {
            let mut whole = before.clone();
            whole.merge(profile);
            whole
        });
        let existing = self.target.filter(|_| whole.is_none());
        let decision = decide(whole.as_ref().unwrap_or(profile), options, existing, wish);
        let mut planned = Planned {
            decision,
            added: Vec::new(),
            widened: Vec::new(),
            reshapes: false,
            schema: TableSchema::default(),
            undecided: None,
            exceeding: Vec::new(),
            ddl: Vec::new(),
            refused: Vec::new(),
            unfit: Vec::new(),
        };
        if planned.decision.target == TargetCode::Collection {
            if planned.decision.undecided {
                planned.undecided = Some(whole.unwrap_or_else(|| profile.clone()));
            }
            return Ok(planned);
        }
        // Documents that came before the decision have no columns yet.
        planned.reshapes = whole.is_some() && self.next_id > 1;
        planned.widened = self.widened(namespaces, namespace, profile)?;
        planned.reshapes |= !planned.widened.is_empty();
        let fields: Vec<Field<'_>> = whole.as_ref().unwrap_or(profile).columns().collect();
        let (ddl, plan) = sqlite::plan(namespace.as_str(), existing.map(|_| &self.schema), &fields);
        let wider = |column: &Column| {
            let ty = planned.widened.iter().find(|(known, _)| known.path == column.path);
            Column { ty: ty.map_or(column.ty, |(_, ty)| *ty), ..column.clone() }
        };
        planned.schema =
            self.schema.columns().iter().map(wider).chain(plan.added.iter().cloned()).collect();
        planned.refused =
            plan.refused.into_iter().map(|it| (it.path, it.reason.to_string())).collect();
        let schema = &planned.schema;
        let unfit = profile.fields().iter().filter_map(|(path, field)| {
            let column = schema.column(path)?;
            let unfit = field.valued() - field.fitting(column.ty);
            (unfit > 0).then(|| (column.clone(), unfit))
        });
        planned.unfit = unfit.collect();
        let exceeding = profile.fields().iter().filter(|(path, field)| {
            field.no_double > 0
                && schema.column(path).is_some_and(|column| column.ty == ColumnType::Integer)
        });
        planned.exceeding = exceeding.map(|(path, _)| path.clone().into_string()).collect();
        (planned.ddl, planned.added) = (ddl, plan.added);
        Ok(planned)
    }

    /// The columns that a batch widens, and the types they get.
    fn widened(
        &self,
        namespaces: &Namespaces,
        namespace: &Namespace,
        profile: &Profile,
    ) -> Result<Vec<(Column, ColumnType)>, IntakeError> {
        let mut widened = Vec::new();
        for (path, field) in profile.fields() {
            let Some(column) = self.schema.column(path) else { continue };
            let mut failed = None;
            let ty = field.widened(column.ty, || {
                let exceeding = match self.exceeding.contains(&**path) {
                    true => Ok(true),
                    false => namespaces.exceeds_doubles(namespace, column),
                };
                exceeding.unwrap_or_else(|error| {
                    failed = Some(error);
                    true
                })
            });
            if let Some(error) = failed {
                return Err(error);
            }
            if ty != column.ty {
                widened.push((column.clone(), ty));
            }
        }
        Ok(widened)
    }

    /// Records a committed batch.
    pub(crate) fn advance(&mut self, planned: Planned, count: u64, end: Lsn) {
        self.target = Some(planned.decision.target);
        self.schema = planned.schema;
        self.undecided = planned.undecided;
        self.exceeding.extend(planned.exceeding);
        self.next_id += count;
        self.last_end = end;
    }

    /// Records a decision that was made again.
    pub(crate) fn decided(&mut self, target: TargetCode, schema: TableSchema, end: Lsn) {
        self.target = Some(target);
        self.schema = schema;
        self.undecided = None;
        self.last_end = end;
    }
}

impl Planned {
    /// The columns that the commit names: all of them if it reshapes its namespace, otherwise those
    /// that it adds.
    pub(crate) fn columns(&self) -> &[Column] {
        if self.reshapes { self.schema.columns() } else { &self.added }
    }
}
