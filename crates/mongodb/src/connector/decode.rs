//! Decoding BSON values into columns.
//!
//! Invariant: a value is decoded exactly or not at all; a number that a column cannot represent
//! exactly is an error.

#![deny(clippy::indexing_slicing)]

use std::io::Write as _;

use base64::engine::general_purpose::STANDARD as BASE64;
use forebay_pgcopy::{Column, Wire};
use forebay_sdk::values::read::Builder;
use forebay_sdk::values::{time, write::json_text};
use mongodb::bson::raw::{RawBsonRef, RawDocument};
use mongodb::bson::spec::BinarySubtype;

use super::extjson::{self, Layout};
use crate::settings::{Json, Style};

/// Whole numbers up to this size are exact as doubles.
const EXACT_MAX: u64 = 1 << 53;
/// Milliseconds of a day.
const DAY_MS: i64 = 86_400_000;

/// Reads the values of one column.
pub(super) struct Decoder {
    builder: Builder,
    wire: Wire,
    sql_type: String,
    how: How,
    /// Scratch space for values that have another form.
    text: Vec<u8>,
}

/// How values are decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct How {
    /// How documents and arrays are encoded.
    pub(super) layout: Layout,
    /// Whether a text in a column of JSON is itself JSON.
    pub(super) json: Json,
    /// Whether a value of another kind is accepted if its text is a value of the column.
    pub(super) is_lenient: bool,
}

impl How {
    /// How values that were written with `json` are read back, for columns of this type.
    pub(super) fn written(json: Json, wire: &Wire) -> Self {
        let layout = Layout { style: Style::Relaxed, spaced: *wire == Wire::Jsonb };
        Self { layout, json, is_lenient: true }
    }
}

impl Decoder {
    pub(super) fn new(column: &Column, how: How) -> Self {
        Self {
            builder: Builder::new(column),
            wire: column.wire.clone(),
            sql_type: column.sql_type.clone(),
            how,
            text: Vec::new(),
        }
    }

    pub(super) fn null(&mut self) {
        self.builder.null();
    }

    /// Takes the collected values.
    pub(super) fn finish(&mut self) -> arrow::array::ArrayRef {
        self.builder.finish()
    }

    /// Appends a value.
    ///
    /// # Errors
    /// The expected value. Nothing is appended then.
    pub(super) fn append(&mut self, value: RawBsonRef<'_>) -> Result<(), String> {
        if matches!(value, RawBsonRef::Null | RawBsonRef::Undefined) {
            self.builder.null();
            return Ok(());
        }
        if self.builder.is_json() {
            return match value {
                RawBsonRef::String(text) if self.how.json == Json::Text => self.builder.text(text),
                value => self.extended(value),
            };
        }
        match (value, &self.wire) {
            (RawBsonRef::Array(_), Wire::Array { .. }) => {
                self.text.clear();
                plain_json(value, &mut self.text)?;
                let json = utf8(&self.text);
                self.builder.json(json)
            }
            (RawBsonRef::Binary(binary), Wire::Bytes) => self.builder.bytes(binary.bytes),
            (RawBsonRef::DateTime(moment), _) => self.moment(moment.timestamp_millis()),
            (RawBsonRef::String(text), Wire::Text) => self.builder.text(text),
            (RawBsonRef::ObjectId(_), Wire::Text) | (_, Wire::Uuid) => self.plain(value),
            (RawBsonRef::Boolean(_), Wire::Bool) => self.plain(value),
            _ if is_number(&self.wire) => self.number(value),
            (RawBsonRef::String(text), _) if self.how.is_lenient => self.builder.text(text),
            _ if self.how.is_lenient => self.plain(value),
            _ => Err(self.unfit(value)),
        }
    }

    /// A value as extended JSON.
    fn extended(&mut self, value: RawBsonRef<'_>) -> Result<(), String> {
        self.text.clear();
        extjson::write(value, self.how.layout, &mut self.text)?;
        self.builder.text(utf8(&self.text))
    }

    /// Decodes a value from its text.
    fn plain(&mut self, value: RawBsonRef<'_>) -> Result<(), String> {
        self.text.clear();
        if !plain_text(value, &mut self.text) {
            if !(self.how.is_lenient && self.wire == Wire::Text) {
                return Err(self.unfit(value));
            }
            return self.extended(value);
        }
        self.builder.text(utf8(&self.text))
    }

    fn number(&mut self, value: RawBsonRef<'_>) -> Result<(), String> {
        let is_real = matches!(self.wire, Wire::Float4 | Wire::Float8);
        match value {
            RawBsonRef::Int64(whole) if is_real && whole.unsigned_abs() > EXACT_MAX => {
                Err(self.unfit(value))
            }
            // A double with an integral value, for a column of whole numbers.
            RawBsonRef::Double(real) if !is_real && real.fract() == 0.0 => {
                self.builder.text(&format!("{real:.0}"))
            }
            RawBsonRef::Decimal128(_) if is_real && !self.how.is_lenient => Err(self.unfit(value)),
            RawBsonRef::Int32(_)
            | RawBsonRef::Int64(_)
            | RawBsonRef::Double(_)
            | RawBsonRef::Decimal128(_) => self.plain(value),
            RawBsonRef::String(text) if self.how.is_lenient => self.builder.text(text),
            RawBsonRef::Boolean(_) | RawBsonRef::String(_) => Err(self.unfit(value)),
            _ => Err(self.unfit(value)),
        }
    }

    fn moment(&mut self, ms: i64) -> Result<(), String> {
        let too_far =
            || format!("the date {ms} ms after 1970 is out of range for {}", self.sql_type);
        let us = ms.checked_mul(1_000).ok_or_else(too_far)?;
        self.text.clear();
        match self.wire {
            Wire::Date if ms % DAY_MS != 0 => return Err(too_far()),
            Wire::Date => {
                let days = i32::try_from(ms / DAY_MS).map_err(|_| too_far())?;
                time::write_date(days, &mut self.text);
            }
            Wire::Timestamp => time::write_timestamp(us, false, &mut self.text),
            Wire::TimestampTz => time::write_timestamp(us, true, &mut self.text),
            Wire::Text if self.how.is_lenient => time::write_timestamp(us, true, &mut self.text),
            _ => return Err(format!("a date cannot be converted to {}", self.sql_type)),
        }
        self.builder.text(utf8(&self.text))
    }

    fn unfit(&self, value: RawBsonRef<'_>) -> String {
        let mut shown = Vec::new();
        let layout = Layout { style: Style::Canonical, spaced: false };
        let shown: String = match extjson::write(value, layout, &mut shown) {
            Ok(()) => String::from_utf8_lossy(&shown).chars().take(60).collect(),
            Err(_) => format!("a value of type {:?}", value.element_type()),
        };
        format!("{shown} is not a valid {}", self.sql_type)
    }
}

fn is_number(wire: &Wire) -> bool {
    matches!(
        wire,
        Wire::Int2
            | Wire::Int4
            | Wire::Int8
            | Wire::Oid
            | Wire::Money
            | Wire::Float4
            | Wire::Float8
            | Wire::Decimal { .. }
            | Wire::Numeric
    )
}

/// Writes a value as text that columns can parse; returns `false` if it has no such form.
fn plain_text(value: RawBsonRef<'_>, out: &mut Vec<u8>) -> bool {
    // Writing into a `Vec` returns no error.
    let mut put = |text: std::fmt::Arguments<'_>| drop(out.write_fmt(text));
    match value {
        RawBsonRef::Boolean(value) => put(format_args!("{value}")),
        RawBsonRef::Int32(value) => put(format_args!("{value}")),
        RawBsonRef::Int64(value) => put(format_args!("{value}")),
        RawBsonRef::Double(value) if value.is_nan() => put(format_args!("NaN")),
        RawBsonRef::Double(value) if value == f64::INFINITY => put(format_args!("Infinity")),
        RawBsonRef::Double(value) if value == f64::NEG_INFINITY => put(format_args!("-Infinity")),
        RawBsonRef::Double(value) => put(format_args!("{value:?}")),
        RawBsonRef::Decimal128(value) => put(format_args!("{value}")),
        RawBsonRef::ObjectId(id) => put(format_args!("{id}")),
        RawBsonRef::String(text) | RawBsonRef::Symbol(text) => put(format_args!("{text}")),
        RawBsonRef::DateTime(moment) => match moment.timestamp_millis().checked_mul(1_000) {
            Some(us) => time::write_timestamp(us, true, out),
            None => return false,
        },
        RawBsonRef::Binary(binary) => match uuid::Uuid::from_slice(binary.bytes) {
            Ok(uuid) if binary.subtype == BinarySubtype::Uuid => put(format_args!("{uuid}")),
            _ => {
                put(format_args!("{}", base64::display::Base64Display::new(binary.bytes, &BASE64)))
            }
        },
        _ => return false,
    }
    true
}

/// Writes an array as JSON whose elements are texts that columns can parse.
fn plain_json(value: RawBsonRef<'_>, out: &mut Vec<u8>) -> Result<(), String> {
    match value {
        RawBsonRef::Null | RawBsonRef::Undefined => out.extend_from_slice(b"null"),
        RawBsonRef::Array(array) => {
            out.push(b'[');
            for (at, element) in array.into_iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                match element.map_err(|error| format!("its BSON is invalid: {error}"))? {
                    RawBsonRef::Array(_) => return Err("its elements are arrays".into()),
                    element => plain_json(element, out)?,
                }
            }
            out.push(b']');
        }
        RawBsonRef::Int32(_) | RawBsonRef::Int64(_) | RawBsonRef::Boolean(_) => {
            plain_text(value, out);
        }
        value => {
            let mut text = Vec::new();
            if !plain_text(value, &mut text) {
                return Err(format!("an element has the type {:?}", value.element_type()));
            }
            json_text(utf8(&text), out);
        }
    }
    Ok(())
}

fn utf8(text: &[u8]) -> &str {
    match std::str::from_utf8(text) {
        Ok(text) => text,
        Err(_) => unreachable!("what is written here is UTF-8"),
    }
}

/// The id of a document, for messages.
pub(super) fn shown_id(document: &RawDocument) -> String {
    let Ok(Some(id)) = document.get("_id") else { return "without an _id".into() };
    let mut shown = Vec::new();
    let layout = Layout { style: Style::Relaxed, spaced: false };
    match extjson::write(id, layout, &mut shown) {
        Ok(()) => format!("_id {}", String::from_utf8_lossy(&shown)),
        Err(_) => "with an invalid _id".into(),
    }
}
