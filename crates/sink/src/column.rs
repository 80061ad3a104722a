//! Column types, values, and the rule for what fits in which column.
//!
//! Invariant: a value is stored in a column exactly or not at all. Nothing exact is rounded,
//! nothing is truncated, nothing is converted to another kind; a value that does not fit is a
//! conflict and the column holds NULL. The only exception is a JSON number with a fraction or an
//! exponent in a [`ColumnType::Real`] column: it becomes the nearest double, which is the meaning
//! of `Real`.

use std::borrow::Cow;

use crate::time::{date_days, timestamp_us};

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ColumnType {
    /// `true` or `false`.
    Boolean,
    /// A whole number of 64 bits, signed.
    Integer,
    /// A double.
    Real,
    /// A number of any size, kept as the text it was written in.
    Decimal,
    /// Text.
    Text,
    /// Bytes.
    Bytes,
    /// Any JSON value, kept as its text.
    Json,
    /// A text that is a timestamp of RFC 3339 with its offset ([`time`](crate::time)).
    Timestamp,
    /// A text that is a date, `2026-01-02`.
    Date,
}

impl ColumnType {
    /// Every type, for tests and tables.
    pub const ALL: [ColumnType; 9] = [
        ColumnType::Boolean,
        ColumnType::Integer,
        ColumnType::Real,
        ColumnType::Decimal,
        ColumnType::Text,
        ColumnType::Bytes,
        ColumnType::Json,
        ColumnType::Timestamp,
        ColumnType::Date,
    ];

    /// The type's name as stored on disk and shown to people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ColumnType::Boolean => "boolean",
            ColumnType::Integer => "integer",
            ColumnType::Real => "real",
            ColumnType::Decimal => "decimal",
            ColumnType::Text => "text",
            ColumnType::Bytes => "bytes",
            ColumnType::Json => "json",
            ColumnType::Timestamp => "timestamp",
            ColumnType::Date => "date",
        }
    }

    /// The type called `name`, the inverse of [`name`](ColumnType::name).
    #[must_use]
    pub fn from_name(name: &str) -> Option<ColumnType> {
        ColumnType::ALL.into_iter().find(|ty| ty.name() == name)
    }

    /// What a column of this type stores for `value`.
    #[must_use]
    pub fn fit<'a>(self, value: Value<'a>) -> Fit<'a> {
        match (self, value) {
            (_, Value::Null) => Fit::Null,
            (ColumnType::Boolean, Value::Boolean(v)) => Fit::Integer(i64::from(v)),
            (ColumnType::Integer, Value::Integer(v)) => Fit::Integer(v),
            (ColumnType::Integer, Value::Number(text)) => integer(text),
            (ColumnType::Real, Value::Real(v)) if v.is_finite() => Fit::Real(v),
            (ColumnType::Real, Value::Integer(v)) => real_from_integer(v),
            (ColumnType::Real, Value::Number(text)) => real(text),
            (ColumnType::Decimal | ColumnType::Json, Value::Number(text)) => borrowed(text),
            (ColumnType::Decimal | ColumnType::Json, Value::Integer(v)) => {
                Fit::Text(Cow::Owned(v.to_string()))
            }
            // `{:?}` prints the shortest text that reads back as the same double.
            (ColumnType::Decimal | ColumnType::Json, Value::Real(v)) if v.is_finite() => {
                Fit::Text(Cow::Owned(format!("{v:?}")))
            }
            (ColumnType::Text, Value::Text(text)) | (ColumnType::Json, Value::Json(text)) => {
                borrowed(text)
            }
            (ColumnType::Timestamp, Value::Text(text)) if timestamp_us(text).is_some() => {
                borrowed(text)
            }
            (ColumnType::Date, Value::Text(text)) if date_days(text).is_some() => borrowed(text),
            (ColumnType::Bytes, Value::Bytes(bytes)) => Fit::Bytes(bytes),
            (ColumnType::Json, Value::Boolean(v)) => borrowed(if v { "true" } else { "false" }),
            (ColumnType::Json, Value::Text(text)) => match serde_json::to_string(text) {
                Ok(json) => Fit::Text(Cow::Owned(json)),
                Err(_) => Fit::Conflict,
            },
            _ => Fit::Conflict,
        }
    }
}

/// A value for a column, borrowed from its source.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// Missing or JSON null. The document distinguishes the two.
    Null,
    /// A boolean.
    Boolean(bool),
    /// A whole number from a binary source.
    Integer(i64),
    /// A double from a binary source.
    Real(f64),
    /// A JSON number as its original text, so that no digit is lost.
    Number(&'a str),
    /// A string, its escapes resolved.
    Text(&'a str),
    /// Bytes.
    Bytes(&'a [u8]),
    /// An object or array, as its original JSON text.
    Json(&'a str),
}

/// What a column stores for a value; see [`ColumnType::fit`].
#[derive(Debug, Clone, PartialEq)]
pub enum Fit<'a> {
    /// NULL, because the value is.
    Null,
    /// A whole number; booleans are 0 and 1.
    Integer(i64),
    /// A finite double.
    Real(f64),
    /// Text; also a decimal, JSON, a timestamp or a date, as it was written.
    Text(Cow<'a, str>),
    /// Bytes.
    Bytes(&'a [u8]),
    /// NULL, because the value does not fit.
    Conflict,
}

fn borrowed(text: &str) -> Fit<'_> {
    Fit::Text(Cow::Borrowed(text))
}

/// A JSON number is an integer only when it was written as one: `1.0` and `1e2` are not.
fn integer(text: &str) -> Fit<'static> {
    text.parse().map_or(Fit::Conflict, Fit::Integer)
}

/// Whole numbers up to 2^53 are doubles exactly; above, only some are.
#[expect(clippy::cast_possible_truncation, reason = "the comparison finds every rounded value")]
#[expect(clippy::cast_precision_loss, reason = "the comparison finds every rounded value")]
fn real_from_integer(v: i64) -> Fit<'static> {
    let real = v as f64;
    if real as i128 == i128::from(v) { Fit::Real(real) } else { Fit::Conflict }
}

#[expect(clippy::cast_possible_truncation, reason = "the comparison finds every rounded value")]
fn real(text: &str) -> Fit<'static> {
    let Ok(real) = text.parse::<f64>() else { return Fit::Conflict };
    // "inf" and "nan" parse too, but no JSON number reads so; both are caught here.
    if !real.is_finite() {
        return Fit::Conflict;
    }
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.bytes().all(|b| b.is_ascii_digit()) {
        // Up to 15 digits every whole number is a double exactly.
        let exact =
            digits.len() <= 15 || text.parse::<i128>().is_ok_and(|whole| real as i128 == whole);
        return if exact { Fit::Real(real) } else { Fit::Conflict };
    }
    let mantissa = digits.split(['e', 'E']).next().unwrap_or(digits);
    if real == 0.0 && mantissa.bytes().any(|b| matches!(b, b'1'..=b'9')) {
        return Fit::Conflict;
    }
    Fit::Real(real)
}
