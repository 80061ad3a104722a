//! The columns of a collection, from a bounded sample of its documents.
//!
//! The sample is the first documents by id and the last ones, so that looking again finds the same as long
//! as nobody writes. Documents need not look alike: a field that some have not may be NULL, and where
//! values are of several kinds the column is JSON, which every value has a form in.

use std::collections::{BTreeMap, HashMap};

use forebay_pgcopy::Column;
use mongodb::bson::raw::{RawBsonRef, RawDocument};
use mongodb::bson::spec::{BinarySubtype, ElementType};

use crate::connector::Result;
use crate::error::ConnectorError;
use crate::native::values::types;

/// Columns a stream may have.
const COLUMNS_MAX: usize = 1_600;

/// What a field has been seen to hold.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    /// Documents that have it, and not as null.
    count: u64,
    kind: Option<Kind>,
}

/// Kinds of values that one column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Boolean,
    Whole,
    Real,
    Decimal,
    Text,
    ObjectId,
    Bytes,
    Uuid,
    Moment,
    /// Documents, arrays, and whatever has no type of its own in SQL.
    Other,
    /// Values of several kinds.
    Mixed,
}

impl Kind {
    fn of(value: &RawBsonRef<'_>) -> Option<Self> {
        Some(match value {
            RawBsonRef::Null | RawBsonRef::Undefined => return None,
            RawBsonRef::Boolean(_) => Self::Boolean,
            RawBsonRef::Int32(_) | RawBsonRef::Int64(_) => Self::Whole,
            RawBsonRef::Double(_) => Self::Real,
            RawBsonRef::Decimal128(_) => Self::Decimal,
            RawBsonRef::String(_) => Self::Text,
            RawBsonRef::ObjectId(_) => Self::ObjectId,
            RawBsonRef::Binary(binary) => match binary.subtype {
                BinarySubtype::Generic => Self::Bytes,
                BinarySubtype::Uuid if binary.bytes.len() == 16 => Self::Uuid,
                _ => Self::Other,
            },
            RawBsonRef::DateTime(_) => Self::Moment,
            _ => Self::Other,
        })
    }

    /// The kind that holds values of both.
    fn with(self, other: Self) -> Self {
        match (self, other) {
            (one, other) if one == other => one,
            (Self::Whole, Self::Real) | (Self::Real, Self::Whole) => Self::Real,
            (Self::Decimal, Self::Whole | Self::Real)
            | (Self::Whole | Self::Real, Self::Decimal) => Self::Decimal,
            _ => Self::Mixed,
        }
    }

    fn sql_type(self) -> &'static str {
        match self {
            Self::Boolean => "boolean",
            Self::Whole => "bigint",
            Self::Real => "double precision",
            Self::Decimal => "numeric",
            Self::Text | Self::ObjectId => "text",
            Self::Bytes => "bytea",
            Self::Uuid => "uuid",
            Self::Moment => "timestamptz",
            Self::Other | Self::Mixed => "json",
        }
    }
}

/// A column, and what a reader of the plan should know of it.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) column: Column,
    /// Whether its type was given.
    pub(super) is_given: bool,
    pub(super) note: Option<String>,
}

/// Collects what documents look like.
#[derive(Debug, Default)]
pub(super) struct Sample {
    fields: HashMap<String, Seen>,
    /// In the order they were met.
    names: Vec<String>,
    documents: u64,
}

impl Sample {
    /// Adds a document.
    ///
    /// # Errors
    /// Broken BSON, or more fields than a stream may have columns.
    pub(super) fn add(&mut self, place: &str, document: &RawDocument) -> Result<()> {
        self.documents += 1;
        for field in document {
            let (name, value) = field.map_err(|error| {
                ConnectorError::data(place, format!("a document's BSON is broken: {error}"))
            })?;
            let name = name.as_str();
            if !self.fields.contains_key(name) {
                if self.names.len() == COLUMNS_MAX {
                    return Err(ConnectorError::unsupported(
                        format!(
                            "documents of {place} have more than {COLUMNS_MAX} fields together"
                        ),
                        "name those that are wanted in the stream's `columns` and in `types`",
                    ));
                }
                self.names.push(name.to_owned());
                self.fields.insert(name.to_owned(), Seen::default());
            }
            if let (Some(kind), Some(seen)) = (Kind::of(&value), self.fields.get_mut(name)) {
                seen.count += 1;
                seen.kind = Some(seen.kind.map_or(kind, |before| before.with(kind)));
            }
        }
        Ok(())
    }

    /// The columns: `_id` first, then fields as they were met, then those that only `types` names.
    ///
    /// # Errors
    /// A type that is none.
    pub(super) fn columns(mut self, given: &BTreeMap<String, String>) -> Result<Vec<Found>> {
        if !self.fields.contains_key("_id") {
            self.names.push("_id".into());
            self.fields.insert("_id".into(), Seen { count: 0, kind: Some(Kind::ObjectId) });
        }
        self.names.sort_by_key(|name| name != "_id");
        for name in given.keys() {
            if !self.fields.contains_key(name) {
                self.names.push(name.clone());
            }
        }
        self.names.iter().map(|name| self.column(name, given.get(name))).collect()
    }

    fn column(&self, name: &str, given: Option<&String>) -> Result<Found> {
        let seen = self.fields.get(name).copied().unwrap_or_default();
        let sql_type = match (given, seen.kind) {
            (Some(given), _) => given.as_str(),
            (None, Some(kind)) => kind.sql_type(),
            // Nothing but null was met: JSON takes whatever there may be.
            (None, None) => "json",
        };
        let mut column = types::column(name, sql_type).ok_or_else(|| {
            ConnectorError::unsupported(
                format!("field {name:?} cannot be given the type {sql_type:?}"),
                "name a type of PostgreSQL such as bigint, numeric(10,2) or timestamptz",
            )
        })?;
        column.nullable = name != "_id";
        let note = match (given, seen.kind) {
            (Some(_), _) => None,
            (None, Some(Kind::Mixed)) => Some("values of several kinds, as JSON".to_owned()),
            (None, None) => Some(format!("null in all {} documents looked at", self.documents)),
            _ => None,
        };
        Ok(Found { column, is_given: given.is_some(), note })
    }
}

/// What ids of a type are called, where they can be told apart by their order; nothing for types whose
/// order is not that of one kind of values.
pub(super) fn id_class(of: ElementType) -> Option<&'static str> {
    Some(match of {
        ElementType::ObjectId => "ObjectId",
        ElementType::String => "string",
        ElementType::Int32 | ElementType::Int64 | ElementType::Double | ElementType::Decimal128 => {
            "number"
        }
        ElementType::DateTime => "date",
        ElementType::Binary => "binary",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use mongodb::bson::{DateTime, rawdoc};

    use super::*;

    #[test]
    fn columns_hold_what_was_met() {
        let mut sample = Sample::default();
        let now = DateTime::from_millis(0);
        sample.add("c", &rawdoc! { "a": 1, "_id": 1, "b": 1.5, "e": "x", "n": null }).unwrap();
        sample.add("c", &rawdoc! { "_id": 2, "b": 2, "c": { "d": 1 }, "e": 5, "w": now }).unwrap();
        let given =
            BTreeMap::from([("z".to_owned(), "int".to_owned()), ("a".into(), "text".into())]);
        let columns = sample.columns(&given).unwrap();
        let found: Vec<_> = columns
            .iter()
            .map(|found| (&*found.column.name, &*found.column.sql_type, found.column.nullable))
            .collect();
        assert_eq!(
            found,
            [
                ("_id", "bigint", false),
                ("a", "text", true),
                ("b", "double precision", true),
                ("e", "json", true),
                ("n", "json", true),
                ("c", "json", true),
                ("w", "timestamp with time zone", true),
                ("z", "integer", true),
            ]
        );
        assert!(columns.iter().any(|found| found.note.is_some()));
    }
}
