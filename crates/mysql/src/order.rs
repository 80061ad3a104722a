//! The order of a column's values, by which an incremental stream is read, and values of a cursor as text.
//!
//! Invariant: a value is compared as one of the column's type. MySQL would compare a decimal with a text as doubles.

use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use mysql_async::Value;

use crate::catalog::{Table, TableColumn};
use crate::columns::no_column;
use crate::sql::ident;
use crate::types::{Kind, Type};
use crate::values;

/// A column with an order.
#[derive(Debug, Clone)]
pub(crate) struct Ordered {
    /// Its name.
    pub(crate) name: String,
    /// Its name, quoted.
    pub(crate) sql: String,
    pub(crate) kind: Kind,
}

impl Ordered {
    /// The column of this name.
    ///
    /// # Errors
    /// There is none, or its values have no order that a later run can continue.
    pub(crate) fn of(table: &Table, name: &str) -> Result<Self> {
        let column = table.column(name).ok_or_else(|| no_column(table, name))?;
        match Type::of(column).map(|ty| ty.kind) {
            Some(
                kind @ (Kind::Integer { .. }
                | Kind::Decimal { .. }
                | Kind::Float
                | Kind::Double
                | Kind::Date
                | Kind::Datetime
                | Kind::Timestamp
                | Kind::Text),
            ) => Ok(Self { name: name.to_owned(), sql: ident(name), kind }),
            Some(Kind::Bytes) if is_bytes(column) => {
                Ok(Self { name: name.to_owned(), sql: ident(name), kind: Kind::Bytes })
            }
            _ => Err(ConnectorError::unsupported(
                format!("column {name:?} of {} has the type {}", table.name, column.full_type),
                "set `cursor_field` and `tie_breaker_field` to columns of numbers, times or texts",
            )),
        }
    }

    /// Where a value enters a statement.
    pub(crate) fn placeholder(&self) -> String {
        match self.kind {
            Kind::Decimal { precision, scale } => {
                format!("CAST(? AS DECIMAL({precision},{scale}))")
            }
            Kind::Date => "CAST(? AS DATE)".to_owned(),
            Kind::Datetime | Kind::Timestamp => "CAST(? AS DATETIME(6))".to_owned(),
            Kind::Bytes => "UNHEX(?)".to_owned(),
            _ => "?".to_owned(),
        }
    }

    /// A value of a cursor as a parameter.
    ///
    /// # Errors
    /// It is not a value of this column: the type was changed since the last run.
    pub(crate) fn parameter(&self, text: &str) -> Result<Value> {
        let value = match self.kind {
            Kind::Integer { .. } => {
                text.parse().map(Value::Int).or_else(|_| text.parse().map(Value::UInt)).ok()
            }
            Kind::Float | Kind::Double => text.parse().map(Value::Double).ok(),
            _ => Some(Value::Bytes(text.as_bytes().to_vec())),
        };
        value.ok_or_else(|| {
            ConnectorError::data(
                "the cursor of the last run",
                format!("{text:?} is not a value of {:?}; run with `--from-scratch`", self.name),
            )
        })
    }

    /// A value as a cursor has it.
    ///
    /// # Errors
    /// It is not valid.
    pub(crate) fn text(&self, value: &Value) -> Result<String> {
        let text = match (self.kind, value) {
            (Kind::Bytes, Value::Bytes(bytes)) => Ok(hex::encode_upper(bytes)),
            // Without the zone, which a server may not know.
            (Kind::Timestamp, value) => values::text(Kind::Datetime, value),
            // A shorter number than that of the same double.
            (_, Value::Float(number)) => Ok(format!("{:?}", f64::from(*number))),
            (kind, value) => values::text(kind, value),
        };
        text.map_err(|_| {
            ConnectorError::data(
                format!("the last value of {:?}", self.name),
                "it is not a valid value of its type".to_owned(),
            )
        })
    }
}

/// Whether the bytes of a type have an order: those of a geometry have none.
fn is_bytes(column: &TableColumn) -> bool {
    column.data_type.contains("binary") || column.data_type.contains("blob")
}
