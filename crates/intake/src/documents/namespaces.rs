//! The state of each namespace of documents: target, columns, next id.
//!
//! This lock orders the commits of a namespace, so a commit adds exactly the columns that the table
//! lacks at its position in the log, and ids increase in log order. The state here is ahead of the
//! document database by the commits that it has not applied yet.
//!
//! Invariant: a namespace that is not held here has no pending commit, so the database knows it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use forebay_log::Lsn;
use forebay_sink::{Column, Field, NamespaceKind, ReadError, StoredDocument, TableSchema};
use forebay_sqlite::{self as sqlite, DocumentPage, NamespaceInfo, PageLimits, SqliteReader};
use parking_lot::Mutex;

use super::decide::{Decision, Wish, decide};
use super::profile::Profile;
use crate::error::IntakeError;
use crate::format::TargetCode;
use crate::names::Namespace;
use crate::options::DecisionOptions;

/// Idle connections kept open.
const IDLE_MAX: usize = 4;

/// The state of a namespace after its newest commit.
#[derive(Debug, Clone)]
pub(crate) struct NamespaceState {
    /// Its target; `None` before its first documents.
    pub(crate) target: Option<TargetCode>,
    pub(crate) schema: TableSchema,
    pub(crate) next_id: u64,
    /// End of its newest commit in the log.
    pub(crate) last_end: Lsn,
}

/// The effect of a batch on its namespace.
#[derive(Debug, Clone)]
pub(crate) struct Planned {
    pub(crate) decision: Decision,
    pub(crate) added: Vec<Column>,
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
    idle: Mutex<Vec<SqliteReader>>,
    pub(crate) states: Mutex<HashMap<Namespace, NamespaceState>>,
}

impl Namespaces {
    pub(crate) fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            idle: Mutex::new(Vec::new()),
            states: Mutex::new(HashMap::new()),
        }
    }

    /// The state of a namespace from the database alone. The caller holds the lock on `states`, or
    /// accepts a state that is a moment old.
    pub(crate) fn load(&self, namespace: &Namespace) -> Result<NamespaceState, IntakeError> {
        self.with_reader(|reader| {
            let mut state = NamespaceState {
                target: None,
                schema: TableSchema::default(),
                next_id: 1,
                last_end: Lsn(0),
            };
            if let Some(info) = reader.namespace(namespace.as_str())? {
                state.next_id = info.last_id.unwrap_or(0) + 1;
                state.target = Some(match info.kind {
                    NamespaceKind::Table => TargetCode::Table,
                    NamespaceKind::Collection => TargetCode::Collection,
                });
                if let Some(schema) = reader.schema(namespace.as_str())? {
                    state.schema = schema;
                }
            }
            Ok(state)
        })
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

    fn with_reader<T>(
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

impl NamespaceState {
    /// Decides where a batch is stored and which columns its table would gain.
    pub(crate) fn plan(
        &self,
        namespace: &Namespace,
        profile: &Profile,
        options: &DecisionOptions,
        wish: Wish,
    ) -> Planned {
        let decision = decide(profile, options, self.target, wish);
        if decision.target == TargetCode::Collection {
            let (added, ddl, refused, unfit) = Default::default();
            return Planned { decision, added, ddl, refused, unfit };
        }
        let fields: Vec<Field<'_>> = profile.columns().collect();
        let existing = self.target.is_some().then_some(&self.schema);
        let (ddl, plan) = sqlite::plan(namespace.as_str(), existing, &fields);
        let refused = plan
            .refused
            .into_iter()
            .map(|refused| (refused.path, refused.reason.to_string()))
            .collect();
        let unfit = profile.fields().iter().filter_map(|(path, field)| {
            let added = || plan.added.iter().find(|column| *column.path == **path);
            let column = self.schema.column(path).or_else(added)?;
            let unfit = field.valued() - field.fitting(column.ty);
            (unfit > 0).then(|| (column.clone(), unfit))
        });
        let unfit = unfit.collect();
        Planned { decision, added: plan.added, ddl, refused, unfit }
    }

    /// Records a committed batch.
    pub(crate) fn advance(&mut self, planned: &Planned, count: u64, end: Lsn) {
        self.target = Some(planned.decision.target);
        if !planned.added.is_empty() {
            let columns = self.schema.columns().iter().chain(&planned.added).cloned();
            self.schema = columns.collect();
        }
        self.next_id += count;
        self.last_end = end;
    }
}
