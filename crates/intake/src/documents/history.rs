//! The columns of a namespace, and how they became what they are.
//!
//! Invariants: the changes of one commit are one change, whatever the number of columns; nothing is
//! derived here: the document database records a change in the transaction that makes it.

use forebay_sink::Column;
use forebay_sqlite::{ColumnChange, NamespaceInfo, SchemaHistory};
use serde::Serialize;

use super::ingest::{ColumnAnswer, WidenedColumn};
use crate::Intake;
use crate::answer::time_text;
use crate::error::IntakeError;
use crate::names::Namespace;

/// Where a namespace's documents are stored, and how its columns became what they are.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[schema(as = DocumentSchemaHistory)]
pub struct SchemaHistoryAnswer {
    /// Namespace.
    pub namespace: String,
    /// `table` or `collection`.
    pub target: &'static str,
    /// Whether there are too few documents to decide between table and collection. They are kept as
    /// a collection until there are enough.
    pub undecided: bool,
    /// Number of its documents.
    pub documents: u64,
    /// All columns.
    pub columns: Vec<ColumnAnswer>,
    /// Changes of the columns, oldest first.
    pub changes: Vec<SchemaChange>,
    /// Number of older changes of single columns that are no longer kept.
    pub changes_dropped: u64,
}

/// Columns that changed together.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[schema(as = DocumentSchemaChange)]
pub struct SchemaChange {
    /// When the request was received that changed them.
    #[schema(format = DateTime)]
    pub changed: String,
    /// Id of the newest document before; null if there was none.
    #[schema(required)]
    pub after_id: Option<u64>,
    /// Columns that the table gained.
    pub columns_added: Vec<ColumnAnswer>,
    /// Columns that got another type.
    pub columns_changed: Vec<WidenedColumn>,
    /// Columns that the table lost.
    pub columns_removed: Vec<ColumnAnswer>,
}

impl Intake {
    /// The columns of a namespace, and how they became what they are; `None` if there is no such
    /// namespace.
    ///
    /// # Errors
    /// [`IntakeError`] if the document database cannot be queried.
    pub async fn schema_history(
        &self,
        namespace: &Namespace,
    ) -> Result<Option<SchemaHistoryAnswer>, IntakeError> {
        self.inner.shown(namespace).await?;
        let name = namespace.clone();
        let found = self.ask(move |inner| {
            inner.namespaces.with_reader(|reader| reader.schema_history(name.as_str()))
        });
        let found = found.await?.filter(|(info, _)| !info.is_dropped);
        Ok(found.map(|(info, history)| SchemaHistoryAnswer::of(&info, &history)))
    }
}

impl SchemaHistoryAnswer {
    fn of(info: &NamespaceInfo, history: &SchemaHistory) -> Self {
        let mut changes: Vec<(u64, SchemaChange)> = Vec::new();
        for change in &history.changes {
            match changes.last_mut() {
                Some((at, group)) if *at == change.at => group.push(change),
                _ => {
                    let mut group = SchemaChange::before(change);
                    group.push(change);
                    changes.push((change.at, group));
                }
            }
        }
        let oldest = history.changes.first().map_or(1, |change| change.number);
        Self {
            namespace: info.name.clone(),
            target: info.kind.name(),
            undecided: info.undecided,
            documents: info.row_count,
            columns: history.schema.columns().iter().map(ColumnAnswer::of).collect(),
            changes: changes.into_iter().map(|(_, group)| group).collect(),
            changes_dropped: oldest.saturating_sub(1),
        }
    }
}

impl SchemaChange {
    /// A change at the same time as `change`, of no column yet.
    fn before(change: &ColumnChange) -> Self {
        Self {
            changed: time_text(i64::try_from(change.changed_ms).unwrap_or(i64::MAX)),
            after_id: change.after_id,
            columns_added: Vec::new(),
            columns_changed: Vec::new(),
            columns_removed: Vec::new(),
        }
    }

    fn push(&mut self, change: &ColumnChange) {
        let column = |ty| Column { path: change.path.clone(), name: change.name.clone(), ty };
        match (change.before, change.after) {
            (None, Some(after)) => self.columns_added.push(ColumnAnswer::of(&column(after))),
            (Some(before), Some(after)) => {
                self.columns_changed.push(WidenedColumn::of(&(column(before), after)));
            }
            (Some(before), None) => self.columns_removed.push(ColumnAnswer::of(&column(before))),
            (None, None) => {}
        }
    }
}
