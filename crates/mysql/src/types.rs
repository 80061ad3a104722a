//! Types of columns: from the name of a type in MySQL to a column of PostgreSQL, in which every value of it has an
//! exact form.
//!
//! | MySQL | column |
//! |---|---|
//! | `tinyint`, `smallint`, `mediumint`, `int`, `bigint`, `year` | the smallest integer type that has all its values |
//! | `bigint unsigned` | `numeric(20,0)` |
//! | `decimal`, `float`, `double` | `numeric` of the same size, `real`, `double precision` |
//! | `bit(n)` | `bit(n)` |
//! | `date`, `datetime`, `timestamp` | `date`, `timestamp`, `timestamptz` |
//! | `time` | `interval`: it reaches from -838 to 838 hours |
//! | `char`, `varchar`, `text`, `enum`, `set` | `character varying`, `text` |
//! | `json` | `json`, as the server writes it |
//! | `binary`, `varbinary`, `blob`, geometries, vectors | `bytea` |
//! | `uuid`, `inet4`, `inet6` (MariaDB) | `uuid`, `inet` |

use forebay_pgcopy::Wire;

use crate::catalog::TableColumn;

/// What the values of a column are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Integer {
        is_unsigned: bool,
    },
    Decimal {
        precision: u8,
        scale: u8,
    },
    Float,
    Double,
    /// Number of bits.
    Bits(u8),
    Date,
    Datetime,
    Timestamp,
    Time,
    Text,
    /// Texts that are ordered by their number in the definition.
    Enumerated,
    Json,
    Bytes,
    /// A text in a column of another type: `uuid`, `inet4`.
    Written,
}

/// A type: what its values are, and the column for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Type {
    pub(crate) kind: Kind,
    pub(crate) wire: Wire,
    pub(crate) sql: String,
}

impl Type {
    fn new(kind: Kind, wire: Wire, sql: impl Into<String>) -> Self {
        Self { kind, wire, sql: sql.into() }
    }

    /// The type of a column; `None` if it is unknown.
    pub(crate) fn of(column: &TableColumn) -> Option<Self> {
        let full = column.full_type.to_ascii_lowercase();
        let arguments = || arguments(&full);
        let size = || arguments().first().copied();
        // Only what follows the arguments: the values of an enumeration are not looked at.
        let is_unsigned = full.rsplit(')').next().is_some_and(|end| {
            end.split_whitespace().any(|word| matches!(word, "unsigned" | "zerofill"))
        });
        let integer = Kind::Integer { is_unsigned };
        Some(match (&*column.data_type, is_unsigned) {
            ("tinyint", _) | ("smallint", false) | ("year", _) => {
                Self::new(integer, Wire::Int2, "smallint")
            }
            ("smallint", true) | ("mediumint", _) | ("int", false) => {
                Self::new(integer, Wire::Int4, "integer")
            }
            ("int", true) | ("bigint", false) => Self::new(integer, Wire::Int8, "bigint"),
            ("bigint", true) => {
                Self::new(integer, Wire::Decimal { precision: 20, scale: 0 }, "numeric(20,0)")
            }
            ("decimal", _) => {
                let (precision, scale) = match arguments().as_slice() {
                    [precision, scale, ..] => (*precision, *scale),
                    [precision] => (*precision, 0),
                    [] => (10, 0),
                };
                let (precision, scale) = (u8::try_from(precision).ok()?, u8::try_from(scale).ok()?);
                let wire = Wire::Decimal { precision, scale: i8::try_from(scale).ok()? };
                if precision == 0 || precision > 76 || scale > precision {
                    return None;
                }
                let sql = format!("numeric({precision},{scale})");
                Self::new(Kind::Decimal { precision, scale }, wire, sql)
            }
            ("float", _) => Self::new(Kind::Float, Wire::Float4, "real"),
            ("double", _) => Self::new(Kind::Double, Wire::Float8, "double precision"),
            ("bit", _) => {
                let bits =
                    u8::try_from(size().unwrap_or(1)).ok().filter(|it| (1..=64).contains(it))?;
                Self::new(Kind::Bits(bits), Wire::Bits, format!("bit({bits})"))
            }
            ("date", _) => Self::new(Kind::Date, Wire::Date, "date"),
            ("datetime", _) => {
                Self::new(Kind::Datetime, Wire::Timestamp, "timestamp without time zone")
            }
            ("timestamp", _) => {
                Self::new(Kind::Timestamp, Wire::TimestampTz, "timestamp with time zone")
            }
            ("time", _) => Self::new(Kind::Time, Wire::Interval, "interval"),
            ("char" | "varchar", _) => Self::new(
                Kind::Text,
                Wire::Text,
                match size() {
                    Some(size @ 1..) => format!("character varying({size})"),
                    _ => "text".to_owned(),
                },
            ),
            ("tinytext" | "text" | "mediumtext" | "longtext", _) => {
                Self::new(Kind::Text, Wire::Text, "text")
            }
            ("enum" | "set", _) => Self::new(Kind::Enumerated, Wire::Text, "text"),
            ("json", _) => Self::new(Kind::Json, Wire::Text, "json"),
            (
                "binary" | "varbinary" | "tinyblob" | "blob" | "mediumblob" | "longblob" | "vector"
                | "geometry" | "point" | "linestring" | "polygon" | "multipoint"
                | "multilinestring" | "multipolygon" | "geometrycollection" | "geomcollection",
                _,
            ) => Self::new(Kind::Bytes, Wire::Bytes, "bytea"),
            ("uuid", _) => Self::new(Kind::Written, Wire::Uuid, "uuid"),
            ("inet4" | "inet6", _) => Self::new(Kind::Written, Wire::Inet, "inet"),
            _ => return None,
        })
    }

    /// What is changed in transit, for a reader of the list of streams.
    pub(crate) fn note(&self, column: &TableColumn) -> Option<String> {
        let is_same = |name: &str| column.data_type == name;
        match self.kind {
            Kind::Bytes
                if !column.data_type.contains("bin") && !column.data_type.contains("blob") =>
            {
                Some("the bytes that the server stores".to_owned())
            }
            Kind::Time => Some("interval, since it may exceed a day".to_owned()),
            Kind::Enumerated | Kind::Integer { .. } if !is_same(&self.sql) => {
                Some(format!("as {}", self.sql))
            }
            _ => None,
        }
    }
}

/// The numbers in the parentheses of a type.
fn arguments(full: &str) -> Vec<u32> {
    let inside = full.split_once('(').and_then(|(_, rest)| rest.split_once(')'));
    let numbers = inside.map(|(inside, _)| inside.split(',').map(|it| it.trim().parse().ok()));
    numbers.and_then(|numbers| numbers.collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(data_type: &str, full: &str) -> Option<(Wire, String)> {
        let column = TableColumn {
            name: "c".into(),
            data_type: data_type.into(),
            full_type: full.into(),
            nullable: true,
            extra: String::new(),
            default: String::new(),
        };
        Type::of(&column).map(|ty| (ty.wire, ty.sql))
    }

    #[test]
    fn a_type_has_the_smallest_column_that_holds_its_values() {
        for (data_type, full, sql) in [
            ("tinyint", "tinyint(3) unsigned zerofill", "smallint"),
            ("tinyint", "tinyint(1)", "smallint"),
            ("smallint", "smallint(6)", "smallint"),
            ("smallint", "smallint(5) unsigned", "integer"),
            ("mediumint", "mediumint unsigned", "integer"),
            ("int", "int", "integer"),
            ("int", "int(10) unsigned", "bigint"),
            ("bigint", "bigint(20)", "bigint"),
            ("bigint", "bigint unsigned", "numeric(20,0)"),
            ("decimal", "decimal(65,30)", "numeric(65,30)"),
            ("decimal", "decimal(10,0) unsigned", "numeric(10,0)"),
            ("bit", "bit(64)", "bit(64)"),
            ("varchar", "varchar(20)", "character varying(20)"),
            ("varchar", "varchar(0)", "text"),
            ("enum", "enum('a)unsigned','b')", "text"),
            ("time", "time(6)", "interval"),
        ] {
            assert_eq!(of(data_type, full).map(|(_, sql)| sql).as_deref(), Some(sql), "{full}");
        }
        assert_eq!(of("decimal", "decimal(80,0)"), None);
        assert_eq!(of("bit", "bit(65)"), None);
        assert_eq!(of("period", "period"), None);
    }
}
