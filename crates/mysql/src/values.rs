//! Values of the binary protocol to columns of a batch.
//!
//! Invariants:
//! * A value is stored exactly, or refused.
//! * Nothing that a server sends panics: a value of another kind than its column's is refused.

use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryBuilder, PrimitiveBuilder, StringBuilder};
use arrow::datatypes::{
    ArrowPrimitiveType, Date32Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
    IntervalMonthDayNano, IntervalMonthDayNanoType, TimestampMicrosecondType,
};
use forebay_pgcopy::{Column, Wire};
use forebay_sdk::values::read::Builder;
use jiff::civil;
use mysql_async::Value;

use crate::types::Kind;

/// Number of characters of an invalid value in messages.
const SHOWN_MAX: usize = 60;

/// Why a value was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refused {
    /// A date or a time that does not exist: `0000-00-00`, the 31st of February.
    NoDate(String),
    /// Anything else.
    Invalid(String),
}

/// Collects the values of one column.
pub(crate) struct Cells {
    kind: Kind,
    sql_type: String,
    cells: Builders,
}

enum Builders {
    Int2(PrimitiveBuilder<Int16Type>),
    Int4(PrimitiveBuilder<Int32Type>),
    Int8(PrimitiveBuilder<Int64Type>),
    Float4(PrimitiveBuilder<Float32Type>),
    Float8(PrimitiveBuilder<Float64Type>),
    Date(PrimitiveBuilder<Date32Type>),
    Timestamp(PrimitiveBuilder<TimestampMicrosecondType>),
    Interval(PrimitiveBuilder<IntervalMonthDayNanoType>),
    Text(StringBuilder),
    Bytes(BinaryBuilder),
    /// From text: decimals, types that the settings name, and others that are rare.
    Parsed(Builder),
}

impl Cells {
    /// Creates an empty builder for a column whose values are of this kind.
    pub(crate) fn new(column: &Column, kind: Kind) -> Self {
        let wire = &column.wire;
        let is_moment = matches!(kind, Kind::Datetime | Kind::Timestamp);
        let is_text = matches!(kind, Kind::Text | Kind::Enumerated | Kind::Json);
        let cells = match (kind, wire) {
            (Kind::Integer { .. }, Wire::Int2) => Builders::Int2(PrimitiveBuilder::new()),
            (Kind::Integer { .. }, Wire::Int4) => Builders::Int4(PrimitiveBuilder::new()),
            (Kind::Integer { .. }, Wire::Int8) => Builders::Int8(PrimitiveBuilder::new()),
            (Kind::Float, Wire::Float4) => Builders::Float4(PrimitiveBuilder::new()),
            (Kind::Float | Kind::Double, Wire::Float8) => Builders::Float8(PrimitiveBuilder::new()),
            (Kind::Date, Wire::Date) => Builders::Date(PrimitiveBuilder::new()),
            (_, Wire::Timestamp) if is_moment => Builders::Timestamp(PrimitiveBuilder::new()),
            (_, Wire::TimestampTz) if is_moment => {
                Builders::Timestamp(PrimitiveBuilder::new().with_data_type(wire.data_type()))
            }
            (Kind::Time, Wire::Interval) => Builders::Interval(PrimitiveBuilder::new()),
            (_, Wire::Text) if is_text => Builders::Text(StringBuilder::new()),
            (Kind::Bytes, Wire::Bytes) => Builders::Bytes(BinaryBuilder::new()),
            _ => Builders::Parsed(Builder::new(column)),
        };
        Self { kind, sql_type: column.sql_type.clone(), cells }
    }

    /// Appends NULL.
    pub(crate) fn null(&mut self) {
        match &mut self.cells {
            Builders::Int2(builder) => builder.append_null(),
            Builders::Int4(builder) => builder.append_null(),
            Builders::Int8(builder) => builder.append_null(),
            Builders::Float4(builder) => builder.append_null(),
            Builders::Float8(builder) => builder.append_null(),
            Builders::Date(builder) => builder.append_null(),
            Builders::Timestamp(builder) => builder.append_null(),
            Builders::Interval(builder) => builder.append_null(),
            Builders::Text(builder) => builder.append_null(),
            Builders::Bytes(builder) => builder.append_null(),
            Builders::Parsed(builder) => builder.null(),
        }
    }

    /// Appends a value.
    ///
    /// # Errors
    /// Why it was refused. Nothing is appended then.
    pub(crate) fn append(&mut self, value: &Value) -> Result<(), Refused> {
        if *value == Value::NULL {
            self.null();
            return Ok(());
        }
        let (kind, sql_type) = (self.kind, &self.sql_type);
        let wanted =
            || Refused::Invalid(format!("{} is not a valid {sql_type}", shown(kind, value)));
        match &mut self.cells {
            Builders::Int2(builder) => push(builder, integer(value)).ok_or_else(wanted),
            Builders::Int4(builder) => push(builder, integer(value)).ok_or_else(wanted),
            Builders::Int8(builder) => push(builder, integer(value)).ok_or_else(wanted),
            Builders::Float4(builder) => match value {
                Value::Float(value) => push(builder, Some(*value)).ok_or_else(wanted),
                _ => Err(wanted()),
            },
            Builders::Float8(builder) => push(builder, float(value)).ok_or_else(wanted),
            Builders::Date(builder) => {
                let date = date(value).ok_or_else(|| no_date(kind, value))?;
                push(builder, days(date)).ok_or_else(wanted)
            }
            Builders::Timestamp(builder) => {
                let moment = moment(value).ok_or_else(|| no_date(kind, value))?;
                push(builder, Some(micros(moment))).ok_or_else(wanted)
            }
            Builders::Interval(builder) => push(builder, interval(value)).ok_or_else(wanted),
            Builders::Text(builder) => {
                builder.append_value(utf8(value)?);
                Ok(())
            }
            Builders::Bytes(builder) => match value {
                Value::Bytes(bytes) => {
                    builder.append_value(bytes);
                    Ok(())
                }
                _ => Err(wanted()),
            },
            Builders::Parsed(builder) => parse(builder, kind, value),
        }
    }

    /// Takes the collected values.
    pub(crate) fn finish(&mut self) -> ArrayRef {
        match &mut self.cells {
            Builders::Int2(builder) => Arc::new(builder.finish()),
            Builders::Int4(builder) => Arc::new(builder.finish()),
            Builders::Int8(builder) => Arc::new(builder.finish()),
            Builders::Float4(builder) => Arc::new(builder.finish()),
            Builders::Float8(builder) => Arc::new(builder.finish()),
            Builders::Date(builder) => Arc::new(builder.finish()),
            Builders::Timestamp(builder) => Arc::new(builder.finish()),
            Builders::Interval(builder) => Arc::new(builder.finish()),
            Builders::Text(builder) => Arc::new(builder.finish()),
            Builders::Bytes(builder) => Arc::new(builder.finish()),
            Builders::Parsed(builder) => builder.finish(),
        }
    }
}

/// The size of a value in bytes, for the size of a batch.
pub(crate) fn size(value: &Value) -> usize {
    match value {
        Value::Bytes(bytes) => bytes.len().saturating_add(8),
        _ => 16,
    }
}

/// Appends what is made from text, or from bytes.
fn parse(builder: &mut Builder, kind: Kind, value: &Value) -> Result<(), Refused> {
    if let (Kind::Bytes, Value::Bytes(bytes)) = (kind, value) {
        if builder.bytes(bytes).is_ok() {
            return Ok(());
        }
        // A UUID is stored in 16 bytes.
        if bytes.len() == 16 && builder.text(&hex::encode(bytes)).is_ok() {
            return Ok(());
        }
    }
    if matches!(kind, Kind::Date | Kind::Datetime | Kind::Timestamp) && moment(value).is_none() {
        return Err(no_date(kind, value));
    }
    builder.text(&text(kind, value)?).map_err(Refused::Invalid)
}

/// A value as text, in the form in which PostgreSQL writes it.
///
/// # Errors
/// It is not valid UTF-8, or of another kind than its column.
pub(crate) fn text(kind: Kind, value: &Value) -> Result<String, Refused> {
    let refused = || Refused::Invalid(format!("{value:?} is not a value of its column"));
    Ok(match (kind, value) {
        (Kind::Bits(bits), Value::Bytes(bytes)) => self::bits(bits, bytes).ok_or_else(refused)?,
        (_, Value::Bytes(_)) => utf8(value)?.to_owned(),
        (_, Value::Int(number)) => number.to_string(),
        (_, Value::UInt(number)) => number.to_string(),
        (_, Value::Float(number)) => format!("{number:?}"),
        (_, Value::Double(number)) => format!("{number:?}"),
        (Kind::Date, Value::Date(year, month, day, ..)) => format!("{year:04}-{month:02}-{day:02}"),
        (_, Value::Date(year, month, day, hour, minute, second, us)) => {
            let zone = if kind == Kind::Timestamp { "+00" } else { "" };
            format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{us:06}{zone}")
        }
        (_, Value::Time(is_negative, days, hours, minutes, seconds, us)) => {
            let sign = if *is_negative { "-" } else { "" };
            let hours = u64::from(*days) * 24 + u64::from(*hours);
            format!("{sign}{hours:02}:{minutes:02}:{seconds:02}.{us:06}")
        }
        (_, Value::NULL) => return Err(refused()),
    })
}

/// The digits of a number of bits, the highest first.
fn bits(count: u8, bytes: &[u8]) -> Option<String> {
    let mut number = [0; 8];
    let from = number.len().checked_sub(bytes.len())?;
    number.get_mut(from..)?.copy_from_slice(bytes);
    let digits = format!("{:064b}", u64::from_be_bytes(number));
    let (before, digits) = digits.split_at_checked(64_usize.checked_sub(usize::from(count))?)?;
    before.bytes().all(|digit| digit == b'0').then(|| digits.to_owned())
}

fn push<T: ArrowPrimitiveType>(
    builder: &mut PrimitiveBuilder<T>,
    value: Option<T::Native>,
) -> Option<()> {
    builder.append_value(value?);
    Some(())
}

fn integer<T: TryFrom<i64> + TryFrom<u64>>(value: &Value) -> Option<T> {
    match value {
        Value::Int(number) => T::try_from(*number).ok(),
        Value::UInt(number) => T::try_from(*number).ok(),
        _ => None,
    }
}

fn float(value: &Value) -> Option<f64> {
    match value {
        Value::Float(number) => Some(f64::from(*number)),
        Value::Double(number) => Some(*number),
        _ => None,
    }
}

fn utf8(value: &Value) -> Result<&str, Refused> {
    let Value::Bytes(bytes) = value else {
        return Err(Refused::Invalid(format!("{value:?} is not a text")));
    };
    std::str::from_utf8(bytes).map_err(|error| {
        let at = error.valid_up_to();
        Refused::Invalid(format!("the text is not valid UTF-8 at byte {at}"))
    })
}

/// The calendar date of a value, if it exists.
fn date(value: &Value) -> Option<civil::Date> {
    let Value::Date(year, month, day, ..) = value else { return None };
    let (year, month, day) =
        (i16::try_from(*year).ok()?, i8::try_from(*month).ok()?, i8::try_from(*day).ok()?);
    civil::Date::new(year, month, day).ok()
}

fn moment(value: &Value) -> Option<civil::DateTime> {
    let Value::Date(.., hour, minute, second, us) = value else { return None };
    let part = |part: u8| i8::try_from(part).ok();
    let ns = i32::try_from(*us).ok()?.checked_mul(1_000)?;
    let time = civil::Time::new(part(*hour)?, part(*minute)?, part(*second)?, ns).ok()?;
    Some(date(value)?.to_datetime(time))
}

const EPOCH: civil::Date = civil::date(1970, 1, 1);

/// Days since 1970.
fn days(date: civil::Date) -> Option<i32> {
    i32::try_from(date.duration_since(EPOCH).as_hours() / 24).ok()
}

/// Microseconds since 1970.
fn micros(moment: civil::DateTime) -> i64 {
    let since = moment.duration_since(EPOCH.to_datetime(civil::Time::midnight()));
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

fn interval(value: &Value) -> Option<IntervalMonthDayNano> {
    let Value::Time(is_negative, days, hours, minutes, seconds, us) = value else { return None };
    let hours = i64::from(*days) * 24 + i64::from(*hours);
    let seconds = hours * 3_600 + i64::from(*minutes) * 60 + i64::from(*seconds);
    let ns = seconds.checked_mul(1_000_000)?.checked_add(i64::from(*us))?.checked_mul(1_000)?;
    Some(IntervalMonthDayNano::new(0, 0, if *is_negative { -ns } else { ns }))
}

fn no_date(kind: Kind, value: &Value) -> Refused {
    Refused::NoDate(format!("{} does not exist", shown(kind, value)))
}

/// A value in messages.
pub(crate) fn shown(kind: Kind, value: &Value) -> String {
    let Ok(text) = text(kind, value) else { return format!("{value:?}") };
    let shown: String = text.chars().take(SHOWN_MAX).collect();
    let more = if shown.len() < text.len() { "..." } else { "" };
    format!("{shown:?}{more}")
}
