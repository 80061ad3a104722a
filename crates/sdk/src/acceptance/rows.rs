//! Rows of every type, with values at the limits of each.

use arrow::array::RecordBatch;
use forebay_pgcopy::column::schema;
use forebay_pgcopy::{Column, Wire};

use super::Lacks;
use crate::error::ConnectorError;
use crate::values::read::Builder;
use crate::values::types;

/// Types, and values of each as text. A zero with a sign is not among them, since not every
/// database keeps it.
const TYPES: &[(&str, &[&str])] = &[
    ("boolean", &["true", "false"]),
    ("smallint", &["-32768", "32767", "0"]),
    ("integer", &["-2147483648", "2147483647"]),
    ("bigint", &["-9223372036854775808", "9223372036854775807", "0"]),
    ("oid", &["4294967295", "0"]),
    ("real", &["1.1", "NaN", "-Infinity", "0.0", "1e-40"]),
    ("double precision", &["0.1", "NaN", "Infinity", "-0.5", "5e-324", "1.7976931348623157e308"]),
    ("numeric(10,2)", &["12345678.90", "-0.01", "0.00"]),
    ("numeric(38,10)", &["-1234567890123456789012345678.0123456789"]),
    (
        "numeric(60,5)",
        &["1234567890123456789012345678901234567890123456789012345.54321", "0.00000"],
    ),
    ("numeric", &["NaN", "1.10", "-123456789012345678901234567890.000", "0"]),
    ("text", &["", " ", "NULL", "\\N", "a,\"b\"\r\nc\td", "grüße ✓ 😀", "null", "{}", "1"]),
    ("character varying(20)", &["x", "'; drop table t; --"]),
    ("json", &["{\"a\": [1, 2.50, null]}", "null", "\"x\"", "1.10"]),
    ("jsonb", &["{\"k\": \"v\"}", "[]"]),
    ("bytea", &["", "AP9cJyIKDQ=="]),
    ("date", &["2024-02-29", "-4712-01-01", "+12345-06-07", "infinity", "-infinity"]),
    ("time", &["00:00:00", "23:59:59.999999", "24:00:00"]),
    ("timestamp", &["1969-12-31T23:59:59.999999", "-0043-03-15T12:00:00", "infinity"]),
    ("timestamptz", &["2024-05-06T07:08:09.000001Z", "+12345-01-01T00:00:00Z", "-infinity"]),
    ("interval", &["P14M-3DT4.000005S", "P-1M", "PT0S", "PT-0.5S"]),
    ("uuid", &["00000000-0000-0000-0000-000000000000", "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"]),
    ("inet", &["192.168.0.1/24", "::1"]),
    ("bigint[]", &["[]", "[1,null,-3]"]),
    ("text[]", &["[\"\",null,\"a,{}\\\"\\\\\"]"]),
    ("numeric(10,2)[]", &["[1.50,null]"]),
    ("interval[]", &["[\"P1M\",null]"]),
    ("timestamptz[]", &["[\"2024-05-06T07:08:09Z\",\"infinity\"]"]),
];

/// Columns of every type, with names that always have to be quoted.
#[must_use]
pub fn columns() -> Vec<Column> {
    let mut columns: Vec<Column> = vec![key()];
    let named = TYPES.iter().enumerate().filter_map(|(at, (type_name, _))| {
        let name = match at % 5 {
            0 => format!("{type_name} column"),
            1 => format!("\"{type_name}\""),
            2 => format!("größe-{type_name}-✓"),
            3 => format!("Select '{type_name}'; -- `x`"),
            _ => type_name.to_uppercase(),
        };
        types::column(&name, type_name)
    });
    columns.extend(named);
    let money = ("Money,€", "money", Wire::Money);
    let (name, sql_type, wire) = money;
    columns.push(Column { name: name.into(), sql_type: sql_type.into(), wire, nullable: true });
    columns
}

/// The column that identifies rows.
fn key() -> Column {
    Column { name: "id".into(), sql_type: "bigint".into(), wire: Wire::Int8, nullable: false }
}

/// A few columns of types that every format has.
#[must_use]
pub fn plain_columns() -> Vec<Column> {
    let named = [("note", "text"), ("amount", "double precision"), ("is it", "boolean")];
    let named = named.iter().filter_map(|(name, type_name)| types::column(name, type_name));
    std::iter::once(key()).chain(named).collect()
}

/// Rows of these columns, starting at `ids.start`: values of the column's type in turn, with NULLs
/// between.
///
/// # Panics
/// If a column is neither of [`columns`] nor of [`plain_columns`].
#[must_use]
pub fn rows(columns: &[Column], ids: std::ops::Range<usize>) -> RecordBatch {
    rows_lacking(columns, ids, Lacks::default())
}

/// The same for any columns.
///
/// # Errors
/// There are no values for the type of a column.
pub fn try_rows(
    columns: &[Column],
    ids: std::ops::Range<usize>,
) -> Result<RecordBatch, ConnectorError> {
    made(columns, ids, Lacks::default())
}

/// The same without what a server lacks.
///
/// # Panics
/// As [`rows`].
#[must_use]
pub fn rows_lacking(columns: &[Column], ids: std::ops::Range<usize>, lacks: Lacks) -> RecordBatch {
    made(columns, ids, lacks).expect("the values are of their type")
}

/// Whether a server that lacks something has a value.
fn has(lacks: Lacks, wire: &Wire, text: &str) -> bool {
    match wire {
        Wire::Float4 | Wire::Float8 => {
            !(lacks.not_finite && matches!(text, "NaN" | "Infinity" | "-Infinity"))
        }
        Wire::Date | Wire::Timestamp | Wire::TimestampTz => {
            let is_far = text.starts_with(['-', '+']) || text.contains("infinity");
            !(lacks.far_times && is_far)
        }
        Wire::Array { element, .. } => has(lacks, element, text),
        _ => true,
    }
}

fn made(
    columns: &[Column],
    ids: std::ops::Range<usize>,
    lacks: Lacks,
) -> Result<RecordBatch, ConnectorError> {
    let array = |(at, column): (usize, &Column)| {
        let mut builder = Builder::new(column);
        let known = TYPES.iter().find(|(name, _)| {
            types::wire_of(name).is_some_and(|(_, sql_type)| sql_type == column.sql_type)
        });
        let values = known.map_or(&["1234", "-5"][..], |(_, values)| values);
        let values: Vec<&str> =
            values.iter().copied().filter(|value| has(lacks, &column.wire, value)).collect();
        for id in ids.clone() {
            let is_array = matches!(column.wire, Wire::Array { .. });
            let value = match (id + at) % (values.len() + 1) {
                0 => (is_array && lacks.null_arrays).then_some("[]"),
                turn => values.get(turn - 1).copied(),
            };
            let taken = match value {
                _ if column.name == "id" => builder.text(&id.to_string()),
                Some(value) => builder.text(value),
                None => {
                    builder.null();
                    Ok(())
                }
            };
            taken.map_err(|found| {
                let place = format!("values of {:?} ({})", column.name, column.sql_type);
                ConnectorError::data(place, found)
            })?;
        }
        Ok(builder.finish())
    };
    let arrays =
        columns.iter().enumerate().map(array).collect::<Result<Vec<_>, ConnectorError>>()?;
    RecordBatch::try_new(schema(columns).into(), arrays)
        .map_err(|error| ConnectorError::data("generated rows", error.to_string()))
}
