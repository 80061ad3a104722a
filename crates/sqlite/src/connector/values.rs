//! Types and values between Arrow and SQLite.
//!
//! SQLite has integers, reals, texts and blobs. A column's declared type defines their meaning, and
//! how texts that look like numbers are stored. So types whose texts do are declared with a name
//! that contains `TEXT`, which stores them unchanged
//! (<https://sqlite.org/datatype3.html#determination_of_column_affinity>).
//!
//! Invariant: a declaration contains the name of a column's type only if that was parsed: it may come
//! from the metadata of a file.

#![deny(clippy::indexing_slicing)]

use forebay_pgcopy::{Column, TypeName, Wire};
use forebay_sdk::values::read::Builder;
use forebay_sdk::values::types;
use rusqlite::types::ValueRef;

use super::quoted;

/// The declared type of a column, as SQL.
pub(super) fn declaration(column: &Column) -> String {
    match column.wire {
        // Brackets are allowed in the name of a type only if it is quoted.
        Wire::Array { .. } => quoted(&declared(column)),
        _ => declared(column),
    }
}

/// The declared type of a column.
pub(super) fn declared(column: &Column) -> String {
    let of = TypeName::parse(&column.sql_type);
    let of = of.as_ref().map_or("", TypeName::sql);
    let size = of.strip_prefix("character varying").filter(|size| size.starts_with('('));
    match &column.wire {
        Wire::Bool => "BOOLEAN".into(),
        Wire::Int2 => "INT2".into(),
        Wire::Int4 => "INT4".into(),
        Wire::Int8 | Wire::Money => "BIGINT".into(),
        Wire::Oid => "OID".into(),
        Wire::Float4 => "FLOAT4".into(),
        Wire::Float8 => "DOUBLE PRECISION".into(),
        Wire::Decimal { precision, scale } => format!("NUMERIC TEXT({precision},{scale})"),
        Wire::Numeric => "NUMERIC TEXT".into(),
        Wire::Jsonb => "JSONB TEXT".into(),
        Wire::Text if types::is_json(column) => "JSON TEXT".into(),
        Wire::Bytes | Wire::Opaque => "BLOB".into(),
        Wire::Date => "DATE".into(),
        Wire::Time => "TIME".into(),
        Wire::TimeTz => "TIMETZ".into(),
        Wire::Timestamp => "TIMESTAMP".into(),
        Wire::TimestampTz => "TIMESTAMPTZ".into(),
        Wire::Interval => "INTERVAL".into(),
        Wire::Uuid => "UUID".into(),
        Wire::Inet => "INET".into(),
        Wire::Cidr => "CIDR".into(),
        Wire::Array { .. } if !of.is_empty() => format!("{of} TEXT"),
        Wire::Text => size.map_or_else(|| "TEXT".into(), |size| format!("VARCHAR{size}")),
        _ => "TEXT".into(),
    }
}

/// The column for a declared type, if its name determines it.
pub(super) fn column_of(name: &str, declared: &str) -> Option<Column> {
    let lower = declared.to_ascii_lowercase();
    let kept_as_text = lower.contains(" text");
    let lower = if kept_as_text { lower.replacen(" text", "", 1) } else { lower };
    let mut column = types::column(name, &lower)?;
    match column.wire {
        // Its integers have 64 bits, under any name without a size.
        Wire::Int4 if !matches!(&*lower, "int4" | "mediumint") => {
            (column.wire, column.sql_type) = (Wire::Int8, "bigint".into());
        }
        // Its reals have 64 bits.
        Wire::Float4 if lower != "float4" => {
            (column.wire, column.sql_type) = (Wire::Float8, "double precision".into());
        }
        // Digits that were not stored as text may differ from the declared ones.
        Wire::Decimal { .. } if !kept_as_text => {
            (column.wire, column.sql_type) = (Wire::Numeric, "numeric".into());
        }
        _ => {}
    }
    Some(column)
}

/// Appends a value to a column.
///
/// # Errors
/// The expected value.
pub(super) fn append(builder: &mut Builder, value: ValueRef<'_>) -> Result<(), String> {
    match value {
        ValueRef::Null => {
            builder.null();
            Ok(())
        }
        ValueRef::Integer(value) => builder.text(&value.to_string()),
        ValueRef::Real(value) if value == f64::INFINITY => builder.text("Infinity"),
        ValueRef::Real(value) if value == f64::NEG_INFINITY => builder.text("-Infinity"),
        ValueRef::Real(value) => builder.text(&format!("{value:?}")),
        ValueRef::Text(text) => match std::str::from_utf8(text) {
            Ok(text) => builder.text(text),
            Err(_) => Err("its text is not UTF-8".into()),
        },
        ValueRef::Blob(bytes) => builder.bytes(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_declaration_has_the_name_of_a_type_or_none() {
        let column = |sql_type: &str, wire| {
            let (name, sql_type) = ("c".to_owned(), sql_type.to_owned());
            declaration(&Column { name, sql_type, wire, nullable: true })
        };
        let array = || Wire::Array { element: Box::new(Wire::Text), element_oid: 25 };
        assert_eq!(column("character varying(20)", Wire::Text), "VARCHAR(20)");
        assert_eq!(column("character varying", Wire::Text), "TEXT");
        assert_eq!(column("text[]", array()), "\"text[] TEXT\"");
        let hostile = "character varying(5)); drop table kept; --";
        assert_eq!(column(hostile, Wire::Text), "TEXT");
        assert_eq!(column("text[]\"; drop table kept; --", array()), "\"TEXT\"");
    }
}
