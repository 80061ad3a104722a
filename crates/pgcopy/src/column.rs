//! Columns: what a value is on the wire, in Arrow and in SQL.
//!
//! A column crosses Arrow and comes back the same: what the Arrow type alone does not say is in the
//! field's metadata ([`SQL_TYPE`], [`WIRE`]).

use std::collections::HashMap;

use arrow::datatypes::{DataType, Field, IntervalUnit, Schema, TimeUnit};

use crate::type_name::TypeName;

/// Key of a field's metadata: the type in SQL, as `format_type` writes it. It comes from outside: what is no
/// [`TypeName`] is an error.
pub const SQL_TYPE: &str = "forebay.sql_type";
/// Key of a field's metadata: the wire form, where the Arrow type has several.
pub const WIRE: &str = "forebay.wire";
/// Number of characters of a refused name that an error shows.
const NAMED_MAX: usize = 100;

/// The form of a value in binary COPY, and the Arrow type that holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wire {
    /// `bool`: `Boolean`.
    Bool,
    /// `int2`: `Int16`.
    Int2,
    /// `int4`: `Int32`.
    Int4,
    /// `int8`: `Int64`.
    Int8,
    /// `oid` and its like (`xid`, `regclass`): `UInt32`.
    Oid,
    /// `float4`: `Float32`, every bit kept.
    Float4,
    /// `float8`: `Float64`, every bit kept.
    Float8,
    /// `money`: `Int64` of the smallest unit.
    Money,
    /// `numeric(p, s)` with `p` up to 76: `Decimal128` up to 38 digits, else `Decimal256`. NaN and the
    /// infinities do not fit, and are an error that names the column.
    Decimal {
        /// Digits.
        precision: u8,
        /// Digits after the point.
        scale: i8,
    },
    /// Any `numeric`, NaN and infinities too: `Utf8`, as PostgreSQL writes it.
    Numeric,
    /// `text`, `varchar`, `bpchar`, `name`, `xml`, `json`, enums: `Utf8`, the bytes themselves.
    Text,
    /// `jsonb`: `Utf8`; on the wire a version byte precedes the text.
    Jsonb,
    /// `bytea`: `Binary`.
    Bytes,
    /// `date`: `Date32`. Infinities are `i32::MAX` and `i32::MIN`.
    Date,
    /// `time`: `Time64(Microsecond)`.
    Time,
    /// `timetz`: `Utf8`, as PostgreSQL writes it (`13:45:06.789+02`).
    TimeTz,
    /// `timestamp`: `Timestamp(Microsecond)`. Infinities are `i64::MAX` and `i64::MIN`.
    Timestamp,
    /// `timestamptz`: `Timestamp(Microsecond, "UTC")`. Infinities as above.
    TimestampTz,
    /// `interval`: `Interval(MonthDayNano)`.
    Interval,
    /// `uuid`: `FixedSizeBinary(16)`.
    Uuid,
    /// `inet`: `Utf8`, as PostgreSQL writes it.
    Inet,
    /// `cidr`: `Utf8`, as PostgreSQL writes it.
    Cidr,
    /// `macaddr` (6 bytes) or `macaddr8`: `Utf8`, as PostgreSQL writes it.
    MacAddr {
        /// Bytes of an address.
        bytes: u8,
    },
    /// `bit` and `varbit`: `Utf8` of `0` and `1`.
    Bits,
    /// An array of one dimension whose first index is 1: `List` of the element's type. Others are an
    /// error that names the column.
    Array {
        /// Form of an element.
        element: Box<Wire>,
        /// Type of an element, as the server numbers it.
        element_oid: u32,
    },
    /// Any type at all, as the server's own bytes: `Binary`. Only a server of the same types can read
    /// them.
    Opaque,
}

/// A column of rows on their way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Its name, as it came: never in SQL unquoted.
    pub name: String,
    /// Its type in SQL, as `format_type` writes it: `numeric(10,2)`, `character varying(20)[]`.
    pub sql_type: String,
    /// How its values travel.
    pub wire: Wire,
    /// Whether it may be NULL.
    pub nullable: bool,
}

impl Wire {
    /// The Arrow type that holds it.
    #[must_use]
    pub fn data_type(&self) -> DataType {
        match self {
            Self::Bool => DataType::Boolean,
            Self::Int2 => DataType::Int16,
            Self::Int4 => DataType::Int32,
            Self::Int8 | Self::Money => DataType::Int64,
            Self::Oid => DataType::UInt32,
            Self::Float4 => DataType::Float32,
            Self::Float8 => DataType::Float64,
            Self::Decimal { precision, scale } if *precision <= 38 => {
                DataType::Decimal128(*precision, *scale)
            }
            Self::Decimal { precision, scale } => DataType::Decimal256(*precision, *scale),
            Self::Numeric
            | Self::Text
            | Self::Jsonb
            | Self::TimeTz
            | Self::Inet
            | Self::Cidr
            | Self::MacAddr { .. }
            | Self::Bits => DataType::Utf8,
            Self::Bytes | Self::Opaque => DataType::Binary,
            Self::Date => DataType::Date32,
            Self::Time => DataType::Time64(TimeUnit::Microsecond),
            Self::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
            Self::TimestampTz => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Self::Interval => DataType::Interval(IntervalUnit::MonthDayNano),
            Self::Uuid => DataType::FixedSizeBinary(16),
            Self::Array { element, .. } => DataType::new_list(element.data_type(), true),
        }
    }

    /// Its name, in a field's metadata and where columns are recorded.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::MacAddr { bytes } => format!("macaddr:{bytes}"),
            Self::Array { element, element_oid } => {
                format!("array:{element_oid}:{}", element.name())
            }
            Self::Decimal { precision, scale } => format!("decimal:{precision}:{scale}"),
            Self::Bool => "bool".into(),
            Self::Int2 => "int2".into(),
            Self::Int4 => "int4".into(),
            Self::Int8 => "int8".into(),
            Self::Oid => "oid".into(),
            Self::Float4 => "float4".into(),
            Self::Float8 => "float8".into(),
            Self::Money => "money".into(),
            Self::Numeric => "numeric".into(),
            Self::Text => "text".into(),
            Self::Jsonb => "jsonb".into(),
            Self::Bytes => "bytea".into(),
            Self::Date => "date".into(),
            Self::Time => "time".into(),
            Self::TimeTz => "timetz".into(),
            Self::Timestamp => "timestamp".into(),
            Self::TimestampTz => "timestamptz".into(),
            Self::Interval => "interval".into(),
            Self::Uuid => "uuid".into(),
            Self::Inet => "inet".into(),
            Self::Cidr => "cidr".into(),
            Self::Bits => "bits".into(),
            Self::Opaque => "opaque".into(),
        }
    }

    /// The wire form of a name that [`name`](Self::name) gave.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let (word, rest) = name.split_once(':').unwrap_or((name, ""));
        Some(match word {
            "macaddr" => Self::MacAddr { bytes: rest.parse().ok()? },
            "array" => {
                let (element_oid, element) = rest.split_once(':')?;
                // PostgreSQL has no arrays of arrays; a name of any depth is not followed.
                let element = Some(element).filter(|name| !name.starts_with("array"))?;
                Self::Array {
                    element: Box::new(Self::from_name(element)?),
                    element_oid: element_oid.parse().ok()?,
                }
            }
            "decimal" => {
                let (precision, scale) = rest.split_once(':')?;
                Self::Decimal { precision: precision.parse().ok()?, scale: scale.parse().ok()? }
            }
            "bool" => Self::Bool,
            "int2" => Self::Int2,
            "int4" => Self::Int4,
            "int8" => Self::Int8,
            "oid" => Self::Oid,
            "float4" => Self::Float4,
            "float8" => Self::Float8,
            "money" => Self::Money,
            "numeric" => Self::Numeric,
            "text" => Self::Text,
            "jsonb" => Self::Jsonb,
            "bytea" => Self::Bytes,
            "date" => Self::Date,
            "time" => Self::Time,
            "timetz" => Self::TimeTz,
            "timestamp" => Self::Timestamp,
            "timestamptz" => Self::TimestampTz,
            "interval" => Self::Interval,
            "uuid" => Self::Uuid,
            "inet" => Self::Inet,
            "cidr" => Self::Cidr,
            "bits" => Self::Bits,
            "opaque" => Self::Opaque,
            _ => return None,
        })
    }
}

/// An Arrow type that has no form in PostgreSQL, or not the one that is wanted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "column {column:?} is {data_type}, which {}; cast it in a transform",
    match (.wanted, .named) {
        (_, Some(named)) => format!("its metadata calls {named:?}: this is not the name of a type"),
        (Some(wanted), None) => format!("is not converted to {wanted} implicitly"),
        (None, None) => "has no PostgreSQL equivalent".to_owned(),
    }
)]
pub struct UnfitType {
    /// The column.
    pub column: String,
    /// Its type.
    pub data_type: DataType,
    /// The type in SQL it was to become, where it was to become a certain one.
    pub wanted: Option<String>,
    /// What its metadata has for the name of a type in SQL, where that is none.
    pub named: Option<String>,
}

impl Column {
    /// The Arrow field that holds it, with what Arrow does not say in its metadata.
    #[must_use]
    pub fn field(&self) -> Field {
        let metadata = HashMap::from([
            (SQL_TYPE.to_owned(), self.sql_type.clone()),
            (WIRE.to_owned(), self.wire.name()),
        ]);
        Field::new(&self.name, self.wire.data_type(), self.nullable).with_metadata(metadata)
    }

    /// The column an Arrow field becomes: the one that made it, or the nearest of PostgreSQL's types.
    ///
    /// Narrow and unsigned integers become the next larger type; large and view forms of texts, bytes
    /// and lists become the plain ones (see `conform` in the encoder). Where a field was given another
    /// type since its column made it, what its metadata says is of the old one and does not count.
    ///
    /// # Errors
    /// When PostgreSQL has no such type (structs, maps, unions), or the metadata has something else in the
    /// place of a type's name.
    pub fn from_field(field: &Field) -> Result<Self, UnfitType> {
        let metadata = field.metadata();
        let said = metadata.get(WIRE).map(|name| {
            Wire::from_name(name).filter(|wire| is_form_of(field.data_type(), &wire.data_type()))
        });
        // A type without a wire form is an explicit request.
        let sql_type = match said {
            Some(None) => None,
            Some(Some(_)) | None => metadata.get(SQL_TYPE).cloned(),
        };
        let unfit = |named| UnfitType {
            column: field.name().clone(),
            data_type: field.data_type().clone(),
            wanted: None,
            named,
        };
        if let Some(name) = sql_type.as_deref()
            && !name.is_empty()
            && TypeName::parse(name).is_none()
        {
            return Err(unfit(Some(name.chars().take(NAMED_MAX).collect())));
        }
        let (wire, sql_type) = match (said.flatten(), sql_type, derived(field.data_type())) {
            (Some(wire), Some(sql_type), _) => (wire, sql_type),
            (Some(wire), None, derived) => (wire, derived.map(|(_, sql)| sql).unwrap_or_default()),
            (None, sql_type, Some((wire, derived))) => (wire, sql_type.unwrap_or(derived)),
            (None, _, None) => return Err(unfit(None)),
        };
        Ok(Self { name: field.name().clone(), sql_type, wire, nullable: field.is_nullable() })
    }
}

/// Whether a type is a wire form's own, or another layout of the same values: what a reader of files or a
/// query may have made of it.
fn is_form_of(found: &DataType, own: &DataType) -> bool {
    use DataType::{
        Binary, BinaryView, Dictionary, LargeBinary, LargeList, LargeListView, LargeUtf8, List,
        ListView, Utf8, Utf8View,
    };
    match (found, own) {
        (Dictionary(_, value), own) => is_form_of(value, own),
        (LargeUtf8 | Utf8View, Utf8) | (LargeBinary | BinaryView, Binary) => true,
        (List(found) | LargeList(found) | ListView(found) | LargeListView(found), List(own)) => {
            is_form_of(found.data_type(), own.data_type())
        }
        (found, own) => found == own,
    }
}

/// The Arrow schema of columns.
#[must_use]
pub fn schema(columns: &[Column]) -> Schema {
    Schema::new(columns.iter().map(Column::field).collect::<Vec<_>>())
}

/// The columns of an Arrow schema.
///
/// # Errors
/// As [`Column::from_field`].
pub fn columns(schema: &Schema) -> Result<Vec<Column>, UnfitType> {
    schema.fields().iter().map(|field| Column::from_field(field)).collect()
}

/// Wire form and SQL type for an Arrow type that says no more.
fn derived(data_type: &DataType) -> Option<(Wire, String)> {
    let named = |wire, sql: &str| Some((wire, sql.to_owned()));
    match data_type {
        DataType::Boolean => named(Wire::Bool, "boolean"),
        DataType::Int8 | DataType::UInt8 | DataType::Int16 => named(Wire::Int2, "smallint"),
        DataType::UInt16 | DataType::Int32 => named(Wire::Int4, "integer"),
        DataType::UInt32 | DataType::Int64 => named(Wire::Int8, "bigint"),
        DataType::UInt64 => named(Wire::Decimal { precision: 20, scale: 0 }, "numeric(20,0)"),
        DataType::Float16 | DataType::Float32 => named(Wire::Float4, "real"),
        DataType::Float64 => named(Wire::Float8, "double precision"),
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => Some((
            Wire::Decimal { precision: *precision, scale: *scale },
            format!("numeric({precision},{scale})"),
        )),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null => {
            named(Wire::Text, "text")
        }
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => named(Wire::Bytes, "bytea"),
        DataType::Date32 | DataType::Date64 => named(Wire::Date, "date"),
        DataType::Time32(_) | DataType::Time64(_) => named(Wire::Time, "time without time zone"),
        DataType::Timestamp(_, None) => named(Wire::Timestamp, "timestamp without time zone"),
        DataType::Timestamp(_, Some(_)) => named(Wire::TimestampTz, "timestamp with time zone"),
        DataType::Interval(_) | DataType::Duration(_) => named(Wire::Interval, "interval"),
        DataType::Dictionary(_, value) => derived(value),
        DataType::RunEndEncoded(_, value) => derived(value.data_type()),
        DataType::List(element)
        | DataType::LargeList(element)
        | DataType::ListView(element)
        | DataType::LargeListView(element)
        | DataType::FixedSizeList(element, _) => {
            let (wire, sql) = derived(element.data_type())?;
            let element_oid = crate::catalog::oid_of(&sql)?;
            Some((Wire::Array { element: Box::new(wire), element_oid }, format!("{sql}[]")))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(sql_type: &str, wire: Wire) -> Column {
        Column { name: "c".into(), sql_type: sql_type.into(), wire, nullable: false }
    }

    #[test]
    fn a_column_survives_arrow() {
        let array = Wire::Array { element: Box::new(Wire::Numeric), element_oid: 1700 };
        let decimal = Wire::Decimal { precision: 50, scale: 7 };
        for column in [
            column("jsonb", Wire::Jsonb),
            column("numeric[]", array),
            column("price", decimal),
            column("macaddr8", Wire::MacAddr { bytes: 8 }),
            column("pair", Wire::Opaque),
        ] {
            assert_eq!(Column::from_field(&column.field()), Ok(column));
        }
    }

    #[test]
    fn another_layout_of_the_values_is_still_the_column() {
        let jsonb = column("jsonb", Wire::Jsonb);
        let view = jsonb.field().with_data_type(DataType::Utf8View);
        assert_eq!(Column::from_field(&view), Ok(jsonb));
        let array = Wire::Array { element: Box::new(Wire::Inet), element_oid: 869 };
        let array = column("inet[]", array);
        let element = Field::new("element", DataType::LargeUtf8, true);
        let list = array.field().with_data_type(DataType::LargeList(element.into()));
        assert_eq!(Column::from_field(&list), Ok(array));
    }

    #[test]
    fn a_field_that_was_cast_is_not_what_it_was() {
        let cast = column("integer", Wire::Int4).field().with_data_type(DataType::Utf8);
        assert_eq!(Column::from_field(&cast), Ok(column("text", Wire::Text)));
        let cast = column("text", Wire::Text).field().with_data_type(DataType::Int64);
        assert_eq!(Column::from_field(&cast), Ok(column("bigint", Wire::Int8)));
    }

    #[test]
    fn a_name_that_is_more_than_a_type_is_refused() {
        let hostile = "text using ''; drop table kept; --";
        let field = |sql_type: &str| {
            let metadata = HashMap::from([(SQL_TYPE.to_owned(), sql_type.to_owned())]);
            Field::new("c", DataType::Utf8, true).with_metadata(metadata)
        };
        let error = Column::from_field(&field(hostile)).unwrap_err();
        assert_eq!(error.named.as_deref(), Some(hostile));
        assert!(error.to_string().contains("not the name of a type"), "{error}");
        assert_eq!(Column::from_field(&field("varchar(5)")).unwrap().sql_type, "varchar(5)");
    }

    #[test]
    fn names_of_any_depth_are_not_followed() {
        let name = "array:1:".repeat(100_000);
        assert_eq!(Wire::from_name(&name), None);
        assert_eq!(
            Wire::from_name("array:25:text").map(|wire| wire.name()),
            Some("array:25:text".into())
        );
    }

    #[test]
    fn what_postgresql_has_no_type_for_says_so() {
        let error = Column::from_field(&Field::new_struct("s", Vec::<Field>::new(), true));
        let text = error.unwrap_err().to_string();
        assert_eq!(
            text,
            "column \"s\" is Struct(), which has no PostgreSQL equivalent; cast it in a transform"
        );
    }
}
