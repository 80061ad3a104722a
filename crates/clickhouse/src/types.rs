//! How columns are stored in ClickHouse.
//!
//! | type in SQL | type of ClickHouse |
//! |---|---|
//! | `boolean`, `smallint`, `integer`, `bigint`, `real`, `double precision` | `Bool`, `Int16`, `Int32`, `Int64`, `Float32`, `Float64` |
//! | `money` (its smallest unit), `oid` | `Int64`, `UInt32` |
//! | `numeric(p, s)` up to 76 digits | `Decimal(p, s)` |
//! | `date` | `Date32` |
//! | `timestamp`, `timestamptz` | `DateTime64(6, 'UTC')` |
//! | `uuid` | `UUID` |
//! | `text` and its like, `bytea`, `json`, `jsonb`, `inet`, `bit`, any other `numeric` | `String` |
//! | `time`, `interval` | `String`, as text |
//! | an array of a type that is not stored as text | `Array(Nullable(...))` |
//! | any other array | `String`, as JSON |
//!
//! A column that may be NULL is `Nullable`, except an `Array`, which cannot be.

use std::fmt;

use forebay_pgcopy::{Column, Wire};

/// Digits after the second that moments have.
const MOMENT_DIGITS: u8 = 6;

/// A type of ClickHouse.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Type {
    pub(crate) base: Base,
    pub(crate) is_nullable: bool,
}

/// A type without its nullability.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Base {
    Bool,
    Int {
        bits: u16,
        is_signed: bool,
    },
    Float {
        bits: u16,
    },
    Decimal {
        precision: u8,
        scale: u8,
    },
    Text,
    Date,
    /// `DateTime64(6, zone)`. Every zone has the same values, and shows them differently.
    Moment {
        zone: Option<String>,
    },
    Uuid,
    Array(Box<Type>),
    /// What no column of a stream is stored as.
    Other(String),
}

/// How a type of a table fits the one that a column needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fit {
    /// It has every value.
    Holds,
    /// The needed type has every value of it, and more.
    Narrower,
    /// None of both.
    Other,
}

impl Type {
    /// The type that stores a column.
    pub(crate) fn of(column: &Column) -> Self {
        let base = plain(&column.wire).unwrap_or(Base::Text);
        let is_nullable = column.nullable && !matches!(base, Base::Array(_));
        Self { base, is_nullable }
    }

    /// A type as the server writes it.
    pub(crate) fn parse(name: &str) -> Self {
        if let Some(inner) = argument(name, "Nullable") {
            return Self { is_nullable: true, ..Self::parse(inner) };
        }
        if let Some(inner) = argument(name, "LowCardinality") {
            return Self::parse(inner);
        }
        Self { base: parse_base(name), is_nullable: false }
    }

    /// How this type of a table fits a needed one, nullability apart.
    pub(crate) fn fits(&self, needed: &Self) -> Fit {
        if holds(&self.base, &needed.base) {
            Fit::Holds
        } else if holds(&needed.base, &self.base) {
            Fit::Narrower
        } else {
            Fit::Other
        }
    }
}

/// The type that has the values of a wire form as they are, if there is one.
fn plain(wire: &Wire) -> Option<Base> {
    let int = |bits| Base::Int { bits, is_signed: true };
    Some(match wire {
        Wire::Bool => Base::Bool,
        Wire::Int2 => int(16),
        Wire::Int4 => int(32),
        Wire::Int8 | Wire::Money => int(64),
        Wire::Oid => Base::Int { bits: 32, is_signed: false },
        Wire::Float4 => Base::Float { bits: 32 },
        Wire::Float8 => Base::Float { bits: 64 },
        Wire::Decimal { precision: precision @ 1..=76, scale } => {
            let scale = u8::try_from(*scale).ok().filter(|scale| scale <= precision)?;
            Base::Decimal { precision: *precision, scale }
        }
        Wire::Numeric
        | Wire::Text
        | Wire::Jsonb
        | Wire::Bytes
        | Wire::Opaque
        | Wire::TimeTz
        | Wire::Inet
        | Wire::Cidr
        | Wire::MacAddr { .. }
        | Wire::Bits => Base::Text,
        Wire::Date => Base::Date,
        Wire::Timestamp | Wire::TimestampTz => Base::Moment { zone: Some("UTC".into()) },
        Wire::Uuid => Base::Uuid,
        Wire::Array { element, .. } => {
            Base::Array(Box::new(Type { base: plain(element)?, is_nullable: true }))
        }
        // `time`, `interval`, and what is new.
        _ => return None,
    })
}

/// Whether values are stored as text that is not their own form.
pub(crate) fn is_text(wire: &Wire) -> bool {
    plain(wire).is_none()
}

/// Whether values are read back as bytes: texts, and what is stored as text.
pub(crate) fn is_bytes(wire: &Wire) -> bool {
    matches!(plain(wire), None | Some(Base::Text | Base::Uuid))
}

/// Whether values are moments without a zone, or lists of them: a table shows them as they are in UTC only.
pub(crate) fn is_local(wire: &Wire) -> bool {
    match wire {
        Wire::Timestamp => true,
        Wire::Array { element, .. } => is_local(element),
        _ => false,
    }
}

/// The type of a column as it is sent, in the structure of `input`.
pub(crate) fn sent(column: &Column) -> String {
    match plain(&column.wire) {
        Some(Base::Array(element)) => format!("Array(Nullable({}))", sent_base(&element.base)),
        Some(base) => format!("Nullable({})", sent_base(&base)),
        None => "Nullable(String)".into(),
    }
}

/// UUIDs are sent as text: their bytes have had different orders in different versions.
fn sent_base(base: &Base) -> String {
    match base {
        Base::Uuid => Base::Text.to_string(),
        base => base.to_string(),
    }
}

/// A column that was sent, as it is stored.
///
/// * `sent`: its name there.
pub(crate) fn received(column: &Column, sent: &str) -> String {
    match plain(&column.wire) {
        // A cast to a nullable type would make NULL of what it cannot read.
        Some(Base::Uuid) => format!("toUUID({sent})"),
        Some(Base::Array(element)) if element.base == Base::Uuid => {
            format!("arrayMap(x -> toUUID(x), {sent})")
        }
        _ => sent.to_owned(),
    }
}

/// A column of a table, as it is read back.
///
/// * `quoted`: its name.
pub(crate) fn read(column: &Column, quoted: &str) -> String {
    match plain(&column.wire) {
        None => format!("CAST({quoted} AS Nullable(String))"),
        Some(Base::Array(element)) => match read_base(&element.base) {
            Some(base) => format!("CAST({quoted} AS Array(Nullable({base})))"),
            None => quoted.to_owned(),
        },
        Some(base) => match read_base(&base) {
            Some(base) => format!("CAST({quoted} AS Nullable({base}))"),
            None => quoted.to_owned(),
        },
    }
}

/// The value of a column in rows of a table that lacks it.
pub(crate) fn absent(column: &Column) -> String {
    match Type::of(column).base {
        Base::Array(element) => format!("CAST([] AS Array({element}))"),
        base => format!("CAST(NULL AS Nullable({base}))"),
    }
}

/// The type that values are cast to, if they are not read as they are.
fn read_base(base: &Base) -> Option<String> {
    match base {
        Base::Text | Base::Uuid => Some("String".into()),
        Base::Moment { .. } => Some(base.to_string()),
        _ => None,
    }
}

/// Whether a type has every value of another.
fn holds(base: &Base, of: &Base) -> bool {
    match (base, of) {
        (Base::Int { bits, is_signed }, Base::Int { bits: of_bits, is_signed: of_is_signed }) => {
            match (is_signed, of_is_signed) {
                (true, true) | (false, false) => bits >= of_bits,
                (true, false) => bits > of_bits,
                (false, true) => false,
            }
        }
        (Base::Float { bits }, Base::Float { bits: of }) => bits >= of,
        (
            Base::Decimal { precision, scale },
            Base::Decimal { precision: of_precision, scale: of_scale },
        ) => scale >= of_scale && precision - scale >= of_precision - of_scale,
        (Base::Moment { .. }, Base::Moment { .. }) => true,
        (Base::Array(element), Base::Array(of)) => {
            (element.is_nullable || !of.is_nullable) && holds(&element.base, &of.base)
        }
        (Base::Other(_), _) => false,
        (base, of) => base == of,
    }
}

fn parse_base(name: &str) -> Base {
    let other = || Base::Other(name.to_owned());
    if let Some(element) = argument(name, "Array") {
        return Base::Array(Box::new(Type::parse(element)));
    }
    if let Some(arguments) = argument(name, "Decimal") {
        let numbers = arguments.split_once(',');
        let numbers = numbers.map(|(p, s)| (p.trim().parse(), s.trim().parse()));
        return match numbers {
            Some((Ok(precision), Ok(scale))) if scale <= precision => {
                Base::Decimal { precision, scale }
            }
            _ => other(),
        };
    }
    if let Some(arguments) = argument(name, "DateTime64") {
        let (digits, zone) = match arguments.split_once(',') {
            Some((digits, zone)) => (digits, Some(zone.trim().trim_matches('\'').to_owned())),
            None => (arguments, None),
        };
        return match digits.trim().parse() {
            Ok(MOMENT_DIGITS) => Base::Moment { zone },
            _ => other(),
        };
    }
    // Arrow has no wider ones.
    let bits = |prefix| name.strip_prefix(prefix)?.parse().ok().filter(|bits| *bits <= 64);
    match name {
        "Bool" => Base::Bool,
        "String" => Base::Text,
        "Date32" => Base::Date,
        "UUID" => Base::Uuid,
        _ => match (bits("Int"), bits("UInt"), bits("Float")) {
            (Some(bits), _, _) => Base::Int { bits, is_signed: true },
            (_, Some(bits), _) => Base::Int { bits, is_signed: false },
            (_, _, Some(bits)) => Base::Float { bits },
            _ => other(),
        },
    }
}

/// What is in the parentheses of a type of this name.
fn argument<'a>(name: &'a str, of: &str) -> Option<&'a str> {
    name.strip_prefix(of)?.strip_prefix('(')?.strip_suffix(')')
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_nullable {
            true => write!(f, "Nullable({})", self.base),
            false => self.base.fmt(f),
        }
    }
}

impl fmt::Display for Base {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool => f.write_str("Bool"),
            Self::Int { bits, is_signed: true } => write!(f, "Int{bits}"),
            Self::Int { bits, is_signed: false } => write!(f, "UInt{bits}"),
            Self::Float { bits } => write!(f, "Float{bits}"),
            Self::Decimal { precision, scale } => write!(f, "Decimal({precision}, {scale})"),
            Self::Text => f.write_str("String"),
            Self::Date => f.write_str("Date32"),
            Self::Moment { zone: Some(zone) } => write!(f, "DateTime64({MOMENT_DIGITS}, '{zone}')"),
            Self::Moment { zone: None } => write!(f, "DateTime64({MOMENT_DIGITS})"),
            Self::Uuid => f.write_str("UUID"),
            Self::Array(element) => write!(f, "Array({element})"),
            Self::Other(name) => f.write_str(name),
        }
    }
}

/// A note for the plan, for a column whose type is another in the table.
pub(crate) fn note(column: &Column) -> Option<String> {
    let Column { name, sql_type, wire, .. } = column;
    if is_text(wire) {
        return Some(format!(
            "column {name:?}: ClickHouse has no {sql_type}; it is stored as text"
        ));
    }
    (column.nullable && matches!(wire, Wire::Array { .. })).then(|| {
        format!(
            "column {name:?}: an Array of ClickHouse is never NULL; a row with NULL there is refused \
             (`on_data_error`)"
        )
    })
}

#[cfg(test)]
mod tests {
    use forebay_sdk::values::types::column;

    use super::*;

    #[test]
    fn a_type_is_read_as_it_is_written() {
        for name in [
            "Bool",
            "Int16",
            "UInt32",
            "Float64",
            "Decimal(76, 10)",
            "String",
            "Date32",
            "DateTime64(6, 'UTC')",
            "DateTime64(6)",
            "UUID",
            "Nullable(Int64)",
            "Array(Nullable(String))",
            "FixedString(3)",
            "DateTime64(3)",
            "Map(String, Int8)",
        ] {
            assert_eq!(Type::parse(name).to_string(), name);
        }
        let low = Type::parse("LowCardinality(Nullable(String))");
        assert_eq!(low, Type { base: Base::Text, is_nullable: true });
    }

    #[test]
    fn every_type_of_sql_is_stored() {
        for (sql, stored) in [
            ("boolean", "Nullable(Bool)"),
            ("oid", "Nullable(UInt32)"),
            ("numeric(10,2)", "Nullable(Decimal(10, 2))"),
            ("numeric(76,76)", "Nullable(Decimal(76, 76))"),
            ("numeric", "Nullable(String)"),
            ("bytea", "Nullable(String)"),
            ("timestamp", "Nullable(DateTime64(6, 'UTC'))"),
            ("interval", "Nullable(String)"),
            ("bigint[]", "Array(Nullable(Int64))"),
            ("uuid[]", "Array(Nullable(UUID))"),
            ("interval[]", "Nullable(String)"),
        ] {
            assert_eq!(Type::of(&column("c", sql).unwrap()).to_string(), stored, "{sql}");
        }
        let key = Column { nullable: false, ..column("c", "uuid").unwrap() };
        assert_eq!(
            (Type::of(&key).to_string(), sent(&key)),
            ("UUID".into(), "Nullable(String)".into())
        );
        assert_eq!(received(&key, "c0"), "toUUID(c0)");
    }

    #[test]
    fn a_wider_type_holds_a_narrower_one_and_no_other_does() {
        for (found, needed, expected) in [
            ("Int64", "Int32", Fit::Holds),
            ("Int32", "Nullable(Int64)", Fit::Narrower),
            ("UInt32", "Int64", Fit::Narrower),
            ("UInt64", "Int64", Fit::Other),
            ("Int128", "Int64", Fit::Other),
            ("Float32", "Float64", Fit::Narrower),
            ("Float64", "Int32", Fit::Other),
            ("Decimal(12, 2)", "Decimal(10, 2)", Fit::Holds),
            ("Decimal(12, 4)", "Decimal(10, 2)", Fit::Holds),
            ("Decimal(10, 4)", "Decimal(10, 2)", Fit::Other),
            ("LowCardinality(String)", "String", Fit::Holds),
            ("FixedString(3)", "String", Fit::Other),
            ("String", "Int32", Fit::Other),
            ("Date", "Date32", Fit::Other),
            ("DateTime64(6, 'Asia/Tokyo')", "DateTime64(6, 'UTC')", Fit::Holds),
            ("DateTime64(3)", "DateTime64(6, 'UTC')", Fit::Other),
            ("Array(Nullable(Int64))", "Array(Nullable(Int32))", Fit::Holds),
            ("Array(Int64)", "Array(Nullable(Int32))", Fit::Other),
            ("Array(Int32)", "Array(Nullable(Int64))", Fit::Narrower),
        ] {
            let fit = Type::parse(found).fits(&Type::parse(needed));
            assert_eq!(fit, expected, "{found} for {needed}");
        }
    }
}
