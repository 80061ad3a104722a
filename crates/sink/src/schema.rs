//! The structure of a namespace, and how it grows.
//!
//! Invariants: writing rows only adds columns, at the end, and never changes one; types change and
//! columns are removed only by [`RowSink::reshape`](crate::RowSink::reshape), which also derives the
//! values of all rows again. The name of a path's column never changes. The path of a column is
//! stored beside its name, so that neither has to be inferred from the other. Planning
//! ([`TableSchema::plan`]) is pure: the same result serves a dry run and a write.

use std::collections::{HashMap, HashSet};

use crate::column::ColumnType;
use crate::name::{PATH_LEN_MAX, distinct_identifier, shown};

/// Maximum number of columns of a namespace, not counting the sink's own.
pub const COLUMNS_MAX: usize = 200;

/// A field of a document: where it is and what it mostly holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field<'a> {
    /// The path that names it, such as `customer.name`; opaque to a sink, one column each.
    pub path: &'a str,
    /// The type its column gets if it has none yet.
    pub ty: ColumnType,
}

/// A column of a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// The path of the field it holds.
    pub path: String,
    /// Its name in the table.
    pub name: String,
    /// What it holds.
    pub ty: ColumnType,
}

/// Whether a namespace has columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamespaceKind {
    /// Documents only.
    Collection,
    /// Documents and columns lifted out of them.
    Table,
}

impl NamespaceKind {
    /// The kind's name as shown to people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            NamespaceKind::Collection => "collection",
            NamespaceKind::Table => "table",
        }
    }
}

/// Why a field has no column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The namespace has [`COLUMNS_MAX`] columns already.
    TooManyColumns,
    /// The path is longer than [`PATH_LEN_MAX`].
    PathTooLong,
    /// The same path was given before in the same call.
    Repeated,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refusal::TooManyColumns => {
                write!(f, "the namespace already has {COLUMNS_MAX} columns, the maximum")
            }
            Refusal::PathTooLong => write!(f, "the path is longer than {PATH_LEN_MAX} bytes"),
            Refusal::Repeated => f.write_str("the path was given twice"),
        }
    }
}

/// A field that has no column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedField {
    /// Its path, shortened.
    pub path: String,
    /// Why.
    pub reason: Refusal,
}

/// The columns of a namespace, in the order they were added.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableSchema {
    columns: Vec<Column>,
    /// Where each path's column is in `columns`.
    by_path: HashMap<String, usize>,
}

/// The changes that are needed before rows with certain fields can be written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// The columns to add, in order.
    pub added: Vec<Column>,
    /// For each field the index of its column, counting the added ones; `None` when refused.
    pub slots: Vec<Option<usize>>,
    /// The fields without a column.
    pub refused: Vec<RefusedField>,
}

impl TableSchema {
    /// The columns, in the order they were added.
    #[must_use]
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The column of the field at `path`.
    #[must_use]
    pub fn column(&self, path: &str) -> Option<&Column> {
        self.by_path.get(path).and_then(|&at| self.columns.get(at))
    }

    /// A table with columns, or a collection without.
    #[must_use]
    pub fn kind(&self) -> NamespaceKind {
        if self.columns.is_empty() { NamespaceKind::Collection } else { NamespaceKind::Table }
    }

    /// The columns that `fields` have or would get. Changes nothing.
    #[must_use]
    pub fn plan(&self, fields: &[Field<'_>]) -> Plan {
        self.plan_beside(fields, &[])
    }

    /// As [`plan`](Self::plan), for a table that also has its own columns named `reserved`.
    #[must_use]
    pub fn plan_beside(&self, fields: &[Field<'_>], reserved: &[&str]) -> Plan {
        let mut plan = Plan::default();
        let mut names: Option<HashSet<String>> = None;
        let mut seen: HashSet<&str> = HashSet::with_capacity(fields.len());
        for field in fields {
            let refusal = if !seen.insert(field.path) {
                Some(Refusal::Repeated)
            } else if let Some(&at) = self.by_path.get(field.path) {
                plan.slots.push(Some(at));
                continue;
            } else if field.path.len() > PATH_LEN_MAX {
                Some(Refusal::PathTooLong)
            } else if self.columns.len() + plan.added.len() >= COLUMNS_MAX {
                Some(Refusal::TooManyColumns)
            } else {
                None
            };
            if let Some(reason) = refusal {
                plan.slots.push(None);
                plan.refused.push(RefusedField { path: shown(field.path), reason });
                continue;
            }
            let names =
                names.get_or_insert_with(|| self.columns.iter().map(|c| c.name.clone()).collect());
            let name = distinct_identifier(field.path, |name| {
                names.contains(name) || reserved.contains(&name)
            });
            names.insert(name.clone());
            plan.slots.push(Some(self.columns.len() + plan.added.len()));
            plan.added.push(Column { path: field.path.to_owned(), name, ty: field.ty });
        }
        plan
    }

    /// The columns after [`RowSink::reshape`](crate::RowSink::reshape) with `fields`, in a table that
    /// also has its own columns named `reserved`: those of known paths keep their names and their
    /// order, and the others follow. The slots of the plan refer to the new columns.
    #[must_use]
    pub fn reshaped(&self, fields: &[Field<'_>], reserved: &[&str]) -> (TableSchema, Plan) {
        // Of a repeated path the first field counts, as in a plan.
        let types: HashMap<&str, ColumnType> =
            fields.iter().rev().map(|field| (field.path, field.ty)).collect();
        let kept = self.columns.iter().filter_map(|column| {
            let ty = *types.get(column.path.as_str())?;
            Some(Column { ty, ..column.clone() })
        });
        let mut schema: TableSchema = kept.collect();
        let plan = schema.plan_beside(fields, reserved);
        plan.added.iter().for_each(|column| schema.push(column.clone()));
        (schema, plan)
    }

    /// Appends a column.
    pub fn push(&mut self, column: Column) {
        self.by_path.insert(column.path.clone(), self.columns.len());
        self.columns.push(column);
    }
}

impl FromIterator<Column> for TableSchema {
    fn from_iter<T: IntoIterator<Item = Column>>(columns: T) -> TableSchema {
        let mut schema = TableSchema::default();
        for column in columns {
            schema.push(column);
        }
        schema
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reshaped_columns_keep_their_names_and_others_follow() {
        let field = |path, ty| Field { path, ty };
        let before = [field("a.b", ColumnType::Integer), field("a_b", ColumnType::Text)];
        let old: TableSchema = TableSchema::default().plan(&before).added.into_iter().collect();
        let (new, plan) = old.reshaped(
            &[
                field("c", ColumnType::Date),
                field("a_b", ColumnType::Json),
                field("c", ColumnType::Text),
            ],
            &[],
        );
        let found: Vec<_> = new.columns().iter().map(|it| (&*it.path, &*it.name, it.ty)).collect();
        let name = &*old.column("a_b").unwrap().name;
        assert_eq!(found, [("a_b", name, ColumnType::Json), ("c", "c", ColumnType::Date)]);
        assert_eq!(plan.slots, [Some(1), Some(0), None]);
    }
}
