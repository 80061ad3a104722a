//! Infers the columns of a collection from a limited sample of its documents.
//!
//! The sample is the first and the last documents by id, so that a repeated inference finds the
//! same as long as nothing is written. Documents may differ: a field that some lack is nullable,
//! and a field with values of several kinds becomes JSON, which can represent all of them.

use std::collections::{BTreeMap, HashMap};

use forebay_pgcopy::Column;
use mongodb::bson::raw::{RawBsonRef, RawDocument};
use mongodb::bson::spec::{BinarySubtype, ElementType};

use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use forebay_sdk::values::types;

/// Maximum number of columns of a stream.
const COLUMNS_MAX: usize = 1_600;

/// Statistics of a field.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    /// Number of documents in which it is present and not null.
    count: u64,
    kind: Option<Kind>,
}

/// Kinds of values that one column can hold.
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
    /// Documents, arrays, and all types without an SQL equivalent.
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

    /// The kind that covers both.
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

/// A column, and a note for the reader of the plan.
#[derive(Debug, Clone)]
pub(super) struct InferredColumn {
    pub(super) column: Column,
    /// Whether its type was specified.
    pub(super) is_given: bool,
    pub(super) note: Option<String>,
}

/// Collects the fields of documents.
#[derive(Debug, Default)]
pub(super) struct Sample {
    fields: HashMap<String, Seen>,
    /// In the order of their first occurrence.
    names: Vec<String>,
    documents: u64,
}

impl Sample {
    /// Adds a document.
    ///
    /// # Errors
    /// Invalid BSON, or more fields than a stream may have columns.
    pub(super) fn add(&mut self, place: &str, document: &RawDocument) -> Result<()> {
        self.documents += 1;
        for field in document {
            let (name, value) = field.map_err(|error| {
                ConnectorError::data(place, format!("a document's BSON is invalid: {error}"))
            })?;
            let name = name.as_str();
            if !self.fields.contains_key(name) {
                if self.names.len() == COLUMNS_MAX {
                    return Err(ConnectorError::unsupported(
                        format!(
                            "the documents of {place} have more than {COLUMNS_MAX} different fields"
                        ),
                        "list the required ones in the stream's `columns` and in `types`",
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

    /// The columns: `_id` first, then fields by first occurrence, then those that only `types`
    /// lists.
    ///
    /// # Errors
    /// An unknown type.
    pub(super) fn columns(
        mut self,
        given: &BTreeMap<String, String>,
    ) -> Result<Vec<InferredColumn>> {
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

    fn column(&self, name: &str, given: Option<&String>) -> Result<InferredColumn> {
        let seen = self.fields.get(name).copied().unwrap_or_default();
        let sql_type = match (given, seen.kind) {
            (Some(given), _) => given.as_str(),
            (None, Some(kind)) => kind.sql_type(),
            // Only null was found: JSON can represent any later value.
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
            (None, None) => Some(format!("null in all {} examined documents", self.documents)),
            _ => None,
        };
        Ok(InferredColumn { column, is_given: given.is_some(), note })
    }
}

/// The name of ids of a type, if they can be distinguished by order; `None` for types whose order
/// is not that of one kind of values.
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
