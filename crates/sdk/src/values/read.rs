//! Converting text and JSON to columns of a batch.

#![deny(clippy::indexing_slicing)]

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryBuilder, BooleanBuilder, FixedSizeBinaryBuilder, ListArray, NullBufferBuilder,
    PrimitiveBuilder, StringBuilder,
};
use arrow::buffer::{OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Decimal256Type, Field, Float32Type,
    Float64Type, Int16Type, Int32Type, Int64Type, IntervalMonthDayNanoType, Time64MicrosecondType,
    TimestampMicrosecondType, UInt32Type, i256,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use forebay_pgcopy::{Column, Wire};
use serde_json::value::RawValue;

use super::{time, types};

/// Number of characters of an invalid value in messages.
const SHOWN_MAX: usize = 60;

/// Maximum shift of a number's decimal point by its exponent.
const EXPONENT_MAX: u32 = 1_000;

/// Why a value was refused: what was expected.
pub type Wanted = String;

/// Collects the values of one column.
pub struct Builder {
    kind: Kind,
    is_json: bool,
    sql_type: String,
}

enum Kind {
    Bool(BooleanBuilder),
    Int2(PrimitiveBuilder<Int16Type>),
    Int4(PrimitiveBuilder<Int32Type>),
    Int8(PrimitiveBuilder<Int64Type>),
    Oid(PrimitiveBuilder<UInt32Type>),
    Float4(PrimitiveBuilder<Float32Type>),
    Float8(PrimitiveBuilder<Float64Type>),
    Decimal128(PrimitiveBuilder<Decimal128Type>, u8, i8),
    Decimal256(PrimitiveBuilder<Decimal256Type>, u8, i8),
    Numeric(StringBuilder),
    Text(StringBuilder),
    Bytes(BinaryBuilder),
    Uuid(FixedSizeBinaryBuilder),
    Date(PrimitiveBuilder<Date32Type>),
    Time(PrimitiveBuilder<Time64MicrosecondType>),
    Timestamp(PrimitiveBuilder<TimestampMicrosecondType>, bool),
    Interval(PrimitiveBuilder<IntervalMonthDayNanoType>),
    List(Box<Builder>, Vec<i32>, NullBufferBuilder),
}

impl Builder {
    /// An empty builder for a column.
    pub fn new(column: &Column) -> Self {
        let mut builder = Self::of(&column.wire, &column.sql_type);
        builder.is_json = types::is_json(column);
        builder
    }

    fn of(wire: &Wire, sql_type: &str) -> Self {
        let kind = match wire {
            Wire::Bool => Kind::Bool(BooleanBuilder::new()),
            Wire::Int2 => Kind::Int2(PrimitiveBuilder::new()),
            Wire::Int4 => Kind::Int4(PrimitiveBuilder::new()),
            Wire::Int8 | Wire::Money => Kind::Int8(PrimitiveBuilder::new()),
            Wire::Oid => Kind::Oid(PrimitiveBuilder::new()),
            Wire::Float4 => Kind::Float4(PrimitiveBuilder::new()),
            Wire::Float8 => Kind::Float8(PrimitiveBuilder::new()),
            Wire::Decimal { precision, scale } if *precision <= 38 => {
                let builder = PrimitiveBuilder::new().with_data_type(wire.data_type());
                Kind::Decimal128(builder, *precision, *scale)
            }
            Wire::Decimal { precision, scale } => {
                let builder = PrimitiveBuilder::new().with_data_type(wire.data_type());
                Kind::Decimal256(builder, *precision, *scale)
            }
            Wire::Bytes | Wire::Opaque => Kind::Bytes(BinaryBuilder::new()),
            Wire::Uuid => Kind::Uuid(FixedSizeBinaryBuilder::new(16)),
            Wire::Date => Kind::Date(PrimitiveBuilder::new()),
            Wire::Time => Kind::Time(PrimitiveBuilder::new()),
            Wire::Timestamp => Kind::Timestamp(PrimitiveBuilder::new(), false),
            Wire::TimestampTz => {
                let builder = PrimitiveBuilder::new().with_data_type(wire.data_type());
                Kind::Timestamp(builder, true)
            }
            Wire::Interval => Kind::Interval(PrimitiveBuilder::new()),
            Wire::Array { element, .. } => {
                let element_type = sql_type.strip_suffix("[]").unwrap_or(sql_type);
                let mut values = Self::of(element, element_type);
                values.is_json = **element == Wire::Jsonb;
                Kind::List(Box::new(values), vec![0], NullBufferBuilder::new(0))
            }
            Wire::Numeric => Kind::Numeric(StringBuilder::new()),
            // TimeTz, Inet and other types that are text in Arrow.
            _ => Kind::Text(StringBuilder::new()),
        };
        Self { kind, is_json: false, sql_type: sql_type.to_owned() }
    }

    /// Whether its values are JSON.
    pub fn is_json(&self) -> bool {
        self.is_json
    }

    /// Appends NULL.
    pub fn null(&mut self) {
        match &mut self.kind {
            Kind::Bool(builder) => builder.append_null(),
            Kind::Int2(builder) => builder.append_null(),
            Kind::Int4(builder) => builder.append_null(),
            Kind::Int8(builder) => builder.append_null(),
            Kind::Oid(builder) => builder.append_null(),
            Kind::Float4(builder) => builder.append_null(),
            Kind::Float8(builder) => builder.append_null(),
            Kind::Decimal128(builder, ..) => builder.append_null(),
            Kind::Decimal256(builder, ..) => builder.append_null(),
            Kind::Numeric(builder) | Kind::Text(builder) => builder.append_null(),
            Kind::Bytes(builder) => builder.append_null(),
            Kind::Uuid(builder) => builder.append_null(),
            Kind::Date(builder) => builder.append_null(),
            Kind::Time(builder) => builder.append_null(),
            Kind::Timestamp(builder, _) => builder.append_null(),
            Kind::Interval(builder) => builder.append_null(),
            Kind::List(_, offsets, nulls) => {
                offsets.push(offsets.last().copied().unwrap_or(0));
                nulls.append_null();
            }
        }
    }

    /// Appends a value from its text.
    ///
    /// # Errors
    /// The expected value, if the text is invalid. Nothing is appended then.
    pub fn text(&mut self, text: &str) -> Result<(), Wanted> {
        let taken = match &mut self.kind {
            Kind::Bool(builder) => append_bool(builder, text),
            Kind::Int2(builder) => append(builder, text.parse().ok()),
            Kind::Int4(builder) => append(builder, text.parse().ok()),
            Kind::Int8(builder) => append(builder, text.parse().ok()),
            Kind::Oid(builder) => append(builder, text.parse().ok()),
            // Rust accepts the same names of NaN and the infinities.
            Kind::Float4(builder) => append(builder, text.parse().ok()),
            Kind::Float8(builder) => append(builder, text.parse().ok()),
            Kind::Decimal128(builder, precision, scale) => {
                let value = decimal_digits(text, *precision, *scale);
                append(builder, value.and_then(|digits| digits.parse().ok()))
            }
            Kind::Decimal256(builder, precision, scale) => {
                let value = decimal_digits(text, *precision, *scale);
                append(builder, value.and_then(|digits| i256::from_string(&digits)))
            }
            Kind::Numeric(builder) => {
                plain_numeric(text).map(|number| builder.append_value(number))
            }
            Kind::Text(builder) => {
                builder.append_value(text);
                Some(())
            }
            Kind::Bytes(builder) => {
                BASE64.decode(text).ok().map(|bytes| builder.append_value(bytes))
            }
            Kind::Uuid(builder) => uuid::Uuid::try_parse(text)
                .ok()
                .and_then(|uuid| builder.append_value(uuid.as_bytes()).ok()),
            Kind::Date(builder) => append(builder, time::read_date(text)),
            Kind::Time(builder) => append(builder, time::read_time(text)),
            Kind::Timestamp(builder, is_utc) => {
                append(builder, time::read_timestamp(text, *is_utc))
            }
            Kind::Interval(builder) => append(builder, time::read_interval(text)),
            Kind::List(..) => return self.json(text),
        };
        taken.ok_or_else(|| self.wanted(text))
    }

    /// Appends a value from its JSON, without surrounding white space. `null` is NULL, except for a
    /// column of JSON, where the caller decides.
    ///
    /// # Errors
    /// As for [`text`](Self::text).
    pub fn json(&mut self, json: &str) -> Result<(), Wanted> {
        if self.is_json {
            return self.text(json);
        }
        match json.as_bytes().first() {
            Some(b'n') => {
                self.null();
                Ok(())
            }
            Some(b'"') => {
                // Most texts have no escapes and are used in place.
                match serde_json::from_str::<&str>(json) {
                    Ok(text) => self.text(text),
                    Err(_) => match serde_json::from_str::<String>(json) {
                        Ok(text) => self.text(&text),
                        Err(_) => Err(self.wanted(json)),
                    },
                }
            }
            Some(b'[') if matches!(self.kind, Kind::List(..)) => self.list(json),
            _ => match self.kind {
                Kind::List(..) => Err(self.wanted(json)),
                _ => self.text(json),
            },
        }
    }

    fn list(&mut self, json: &str) -> Result<(), Wanted> {
        let elements: Option<Vec<&RawValue>> = serde_json::from_str(json).ok();
        let Some(elements) = elements else { return Err(self.wanted(json)) };
        let Kind::List(values, offsets, nulls) = &mut self.kind else {
            return Err(self.wanted(json));
        };
        let end = i32::try_from(elements.len()).ok();
        let end = end.and_then(|count| offsets.last()?.checked_add(count));
        let Some(end) = end else { return Err(self.wanted(json)) };
        for element in elements {
            match element.get() {
                "null" => values.null(),
                json => values.json(json)?,
            }
        }
        offsets.push(end);
        nulls.append_non_null();
        Ok(())
    }

    /// Appends bytes unchanged, if the column contains bytes.
    ///
    /// # Errors
    /// What was wanted instead.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Wanted> {
        match &mut self.kind {
            Kind::Bytes(builder) => {
                builder.append_value(bytes);
                Ok(())
            }
            _ => Err(format!("bytes are not a valid {}", self.sql_type)),
        }
    }

    fn wanted(&self, text: &str) -> Wanted {
        let shown: String = text.chars().take(SHOWN_MAX).collect();
        let more = if shown.len() < text.len() { "..." } else { "" };
        format!("{shown:?}{more} is not a valid {}", self.sql_type)
    }

    /// Takes the collected values.
    pub fn finish(&mut self) -> ArrayRef {
        match &mut self.kind {
            Kind::Bool(builder) => Arc::new(builder.finish()),
            Kind::Int2(builder) => Arc::new(builder.finish()),
            Kind::Int4(builder) => Arc::new(builder.finish()),
            Kind::Int8(builder) => Arc::new(builder.finish()),
            Kind::Oid(builder) => Arc::new(builder.finish()),
            Kind::Float4(builder) => Arc::new(builder.finish()),
            Kind::Float8(builder) => Arc::new(builder.finish()),
            Kind::Decimal128(builder, ..) => Arc::new(builder.finish()),
            Kind::Decimal256(builder, ..) => Arc::new(builder.finish()),
            Kind::Numeric(builder) | Kind::Text(builder) => Arc::new(builder.finish()),
            Kind::Bytes(builder) => Arc::new(builder.finish()),
            Kind::Uuid(builder) => Arc::new(builder.finish()),
            Kind::Date(builder) => Arc::new(builder.finish()),
            Kind::Time(builder) => Arc::new(builder.finish()),
            Kind::Timestamp(builder, _) => Arc::new(builder.finish()),
            Kind::Interval(builder) => Arc::new(builder.finish()),
            Kind::List(values, offsets, nulls) => {
                let values = values.finish();
                let field = Arc::new(Field::new_list_field(values.data_type().clone(), true));
                let offsets = std::mem::replace(offsets, vec![0]);
                let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
                Arc::new(ListArray::new(field, offsets, values, nulls.finish()))
            }
        }
    }
}

fn append<T: ArrowPrimitiveType>(
    builder: &mut PrimitiveBuilder<T>,
    value: Option<T::Native>,
) -> Option<()> {
    builder.append_value(value?);
    Some(())
}

fn append_bool(builder: &mut BooleanBuilder, text: &str) -> Option<()> {
    let value = match text {
        "true" | "True" | "TRUE" | "t" | "1" => true,
        "false" | "False" | "FALSE" | "f" | "0" => false,
        _ => return None,
    };
    builder.append_value(value);
    Some(())
}

/// A number in the form of PostgreSQL's `numeric`: without an exponent, a plus or leading zeros.
fn plain_numeric(text: &str) -> Option<std::borrow::Cow<'_, str>> {
    if matches!(text, "NaN" | "Infinity" | "-Infinity") {
        return Some(text.into());
    }
    let (number, exponent) = match text.split_once(['e', 'E']) {
        Some((number, exponent)) => (number, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let unsigned = number.strip_prefix(['-', '+']).unwrap_or(number);
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let is_number = whole.len() + fraction.len() > 0 && is_digits(whole) && is_digits(fraction);
    if !is_number || exponent.unsigned_abs() > EXPONENT_MAX {
        return None;
    }
    let is_zero = whole.bytes().chain(fraction.bytes()).all(|byte| byte == b'0');
    let is_plain = exponent == 0
        && number.starts_with(|first: char| first.is_ascii_digit() || (first == '-' && !is_zero))
        && (whole == "0" || (!whole.is_empty() && !whole.starts_with('0')))
        && !number.ends_with('.');
    if is_plain {
        return Some(text.into());
    }
    // The point moves by the exponent, over zeros where there are no digits.
    let digits = format!("{whole}{fraction}");
    let point = i64::try_from(whole.len()).ok()? + i64::from(exponent);
    let (whole, fraction) = match usize::try_from(point) {
        Ok(point) if point >= digits.len() => (format!("{digits:0<point$}"), String::new()),
        Ok(point) => (digits.get(..point)?.to_owned(), digits.get(point..)?.to_owned()),
        Err(_) => {
            let zeros = usize::try_from(point.unsigned_abs()).ok()?;
            (String::new(), format!("{}{digits}", "0".repeat(zeros)))
        }
    };
    let sign = if number.starts_with('-') && !is_zero { "-" } else { "" };
    let whole = match whole.trim_start_matches('0') {
        "" => "0",
        whole => whole,
    };
    Some(match fraction.is_empty() {
        true => format!("{sign}{whole}").into(),
        false => format!("{sign}{whole}.{fraction}").into(),
    })
}

/// The digits of a decimal as an integer in units of its last place; `None` if digits would be
/// lost.
fn decimal_digits(text: &str, precision: u8, scale: i8) -> Option<String> {
    let (number, exponent) = match text.split_once(['e', 'E']) {
        Some((number, exponent)) => (number, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (sign, number) = match number.strip_prefix('-') {
        Some(number) => ("-", number),
        None => ("", number.strip_prefix('+').unwrap_or(number)),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.len() + fraction.len() == 0 || !is_digits(whole) || !is_digits(fraction) {
        return None;
    }
    let mut digits = format!("{}{fraction}", whole.trim_start_matches('0'));
    // Zeros to append, or zeros to remove.
    let places = i64::from(scale) + i64::from(exponent) - i64::try_from(fraction.len()).ok()?;
    match usize::try_from(places) {
        Ok(places) if digits.bytes().all(|byte| byte == b'0') || places <= 76 => {
            digits.extend(std::iter::repeat_n('0', places.min(76)));
        }
        Ok(_) => return None,
        Err(_) => {
            let taken = usize::try_from(places.unsigned_abs()).ok()?;
            let kept = digits.len().saturating_sub(taken);
            let lost = digits.split_off(kept);
            if lost.bytes().any(|byte| byte != b'0') {
                return None;
            }
        }
    }
    let digits = digits.trim_start_matches('0');
    match digits.len() {
        0 => Some("0".into()),
        count if count <= usize::from(precision) => Some(format!("{sign}{digits}")),
        _ => None,
    }
}
