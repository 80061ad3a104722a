//! Columns by the names of their SQL types, as written in settings and `CREATE TABLE`.

#![deny(clippy::indexing_slicing)]

use forebay_pgcopy::{Column, Wire, catalog};

/// Maximum length of a type's name.
const NAME_SIZE_MAX: usize = 128;

/// The wire form of a type's name, and its name as `format_type` writes it.
///
/// Accepts the names of PostgreSQL and their equivalents in other databases.
pub fn wire_of(name: &str) -> Option<(Wire, String)> {
    if name.len() > NAME_SIZE_MAX {
        return None;
    }
    let name = name.trim().to_ascii_lowercase();
    if let Some(element) = name.strip_suffix("[]") {
        let (element, sql) = wire_of(element)?;
        let element_oid = catalog::oid_of(&sql)?;
        return Some((Wire::Array { element: Box::new(element), element_oid }, format!("{sql}[]")));
    }
    let (word, arguments) = match name.split_once('(') {
        Some((word, rest)) => {
            let (arguments, after) = rest.split_once(')')?;
            // `timestamp(3) with time zone`
            (format!("{}{}", word.trim_end(), after), numbers(arguments)?)
        }
        None => (name.clone(), Vec::new()),
    };
    let (wire, sql) = match word.as_str() {
        "bool" | "boolean" => (Wire::Bool, "boolean"),
        "int2" | "smallint" | "tinyint" => (Wire::Int2, "smallint"),
        "int4" | "int" | "integer" | "mediumint" => (Wire::Int4, "integer"),
        "int8" | "bigint" => (Wire::Int8, "bigint"),
        "oid" => (Wire::Oid, "oid"),
        "float4" | "real" => (Wire::Float4, "real"),
        "float8" | "double" | "float" | "double precision" => (Wire::Float8, "double precision"),
        "numeric" | "decimal" => return decimal(&arguments),
        "text" | "string" | "clob" => (Wire::Text, "text"),
        "varchar" | "character varying" | "nvarchar" => {
            return sized("character varying", &arguments);
        }
        "char" | "character" | "nchar" | "bpchar" => return sized("character", &arguments),
        "json" => (Wire::Text, "json"),
        "jsonb" => (Wire::Jsonb, "jsonb"),
        "bytea" | "blob" | "binary" | "varbinary" => (Wire::Bytes, "bytea"),
        "date" => (Wire::Date, "date"),
        "time" | "time without time zone" => (Wire::Time, "time without time zone"),
        "timetz" | "time with time zone" => (Wire::TimeTz, "time with time zone"),
        "timestamp" | "datetime" | "timestamp without time zone" => {
            (Wire::Timestamp, "timestamp without time zone")
        }
        "timestamptz" | "timestamp with time zone" => {
            (Wire::TimestampTz, "timestamp with time zone")
        }
        "interval" => (Wire::Interval, "interval"),
        "uuid" => (Wire::Uuid, "uuid"),
        "inet" => (Wire::Inet, "inet"),
        "cidr" => (Wire::Cidr, "cidr"),
        _ => return None,
    };
    Some((wire, sql.to_owned()))
}

/// The column for a type's name; it is nullable.
pub fn column(name: &str, type_name: &str) -> Option<Column> {
    let (wire, sql_type) = wire_of(type_name)?;
    Some(Column { name: name.to_owned(), sql_type, wire, nullable: true })
}

/// Whether a column's text is JSON, to be written as such.
pub fn is_json(column: &Column) -> bool {
    column.wire == Wire::Jsonb || (column.wire == Wire::Text && column.sql_type == "json")
}

fn numbers(arguments: &str) -> Option<Vec<u32>> {
    arguments.split(',').map(|number| number.trim().parse().ok()).collect()
}

fn decimal(arguments: &[u32]) -> Option<(Wire, String)> {
    let (precision, scale) = match arguments {
        [] => return Some((Wire::Numeric, "numeric".into())),
        [precision] => (*precision, 0),
        [precision, scale] => (*precision, *scale),
        _ => return None,
    };
    let sql = format!("numeric({precision},{scale})");
    let wire = match (u8::try_from(precision), i8::try_from(scale)) {
        (Ok(precision @ 1..=76), Ok(scale)) if scale.unsigned_abs() <= precision => {
            Wire::Decimal { precision, scale }
        }
        _ => Wire::Numeric,
    };
    Some((wire, sql))
}

fn sized(name: &str, arguments: &[u32]) -> Option<(Wire, String)> {
    match arguments {
        // Other databases' `char` without a size may be longer than PostgreSQL's.
        [] if name == "character" => Some((Wire::Text, "text".into())),
        [] => Some((Wire::Text, name.into())),
        [size @ 1..=10_485_760] => Some((Wire::Text, format!("{name}({size})"))),
        _ => None,
    }
}
