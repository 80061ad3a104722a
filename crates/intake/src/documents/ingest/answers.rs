//! Answers to requests with documents.
//!
//! Invariant: these types are what is serialised, stored for repeated requests, and described.

use forebay_sink::{Column, ColumnType};
use serde::Serialize;

use crate::documents::decide::Rule;

/// A refused document.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub struct RefusedDocument {
    /// Its index among the documents of the body, from 0.
    pub index: u64,
    /// The line it starts on, from 1.
    pub line: u64,
    /// The byte it starts at, from 0.
    pub byte: u64,
    /// The reason.
    pub reason: String,
}

/// A column a batch adds.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[schema(as = DocumentColumn)]
pub struct ColumnAnswer {
    /// Path of keys in the document.
    pub path: String,
    /// Name in the table.
    pub column: String,
    /// Its type.
    pub r#type: &'static str,
}

/// A column whose type was changed to one that also holds other values.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub struct WidenedColumn {
    /// Path of keys in the document.
    pub path: String,
    /// Name in the table.
    pub column: String,
    /// Its type before.
    pub from: &'static str,
    /// Its type from now on, for the documents before as well.
    pub to: &'static str,
}

/// A column that does not hold all values of its field.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[schema(as = UnfitColumn)]
pub struct UnfitAnswer {
    /// Path of keys in the document.
    pub path: String,
    /// Name in the table.
    pub column: String,
    /// Its type.
    pub r#type: &'static str,
    /// Number of values of this request that are NULL in the column, because they are of another
    /// type. The documents keep them.
    pub values: u64,
}

/// The result of a body of documents.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[schema(as = StoredDocuments)]
pub struct DocumentsAnswer {
    /// Namespace.
    pub namespace: String,
    /// Number of accepted documents.
    pub accepted: u64,
    /// Number of refused documents.
    pub rejected: u64,
    /// The refused documents, up to a limit.
    pub errors: Vec<RefusedDocument>,
    /// Number of refused documents that are not listed.
    pub errors_omitted: u64,
    /// `table` or `collection`; null if no document was accepted.
    #[schema(required)]
    pub target: Option<&'static str>,
    /// The decisive rule; null if no document was accepted.
    #[schema(required)]
    pub decided_by: Option<&'static str>,
    /// Every rule with what it measured.
    pub rules: Vec<Rule>,
    /// Whether there are too few documents to decide between table and collection. They are kept as
    /// a collection until there are enough.
    pub undecided: bool,
    /// Columns that the table gains.
    pub columns_added: Vec<ColumnAnswer>,
    /// Columns whose type is widened, so that they hold values that did not fit.
    pub columns_widened: Vec<WidenedColumn>,
    /// Fields that get no column, with the reason.
    pub fields_without_column: Vec<String>,
    /// Columns in which values are NULL because they are of another type; the documents keep them.
    pub values_without_column: Vec<UnfitAnswer>,
    /// The statements that create or extend the table.
    pub ddl: Vec<String>,
    /// Id of the first accepted document.
    #[schema(required)]
    pub first_id: Option<u64>,
    /// Id of the last accepted document.
    #[schema(required)]
    pub last_id: Option<u64>,
    /// Whether this was a dry run.
    pub dry_run: bool,
}

impl DocumentsAnswer {
    /// Status of the answer, as the log keeps it for repeated requests: 200, 201, 207 or 422.
    #[must_use]
    pub fn status(&self) -> u16 {
        match (self.accepted, self.rejected) {
            (0, 1..) => 422,
            (1.., 1..) => 207,
            (1.., 0) if !self.dry_run => 201,
            _ => 200,
        }
    }
}

impl ColumnAnswer {
    pub(in crate::documents) fn of(column: &Column) -> Self {
        let Column { path, name, ty } = column.clone();
        Self { path, column: name, r#type: ty.name() }
    }
}

impl WidenedColumn {
    pub(in crate::documents) fn of((column, to): &(Column, ColumnType)) -> Self {
        let Column { path, name, ty } = column.clone();
        Self { path, column: name, from: ty.name(), to: to.name() }
    }
}

impl UnfitAnswer {
    pub(in crate::documents) fn of((column, values): &(Column, u64)) -> Self {
        let Column { path, name, ty } = column.clone();
        Self { path, column: name, r#type: ty.name(), values: *values }
    }
}
