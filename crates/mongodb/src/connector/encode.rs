//! Encoding rows as BSON documents, byte by byte: a column is examined once per batch, and a cell
//! needs no allocation unless it is JSON.
//!
//! BSON is described at <https://bsonspec.org/spec.html>. A document consists of its size in bytes,
//! its elements (type, name, value) and a zero.

#![deny(clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray as _, ListArray, PrimitiveArray, RecordBatch, RecordBatchOptions,
    StringArray,
};
use arrow::datatypes::{Date32Type, TimestampMicrosecondType};
use forebay_pgcopy::{Column, Wire};
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use forebay_sdk::values::types;
use forebay_sdk::values::write::{Cells, Native};
use mongodb::bson::oid::ObjectId;
use mongodb::bson::raw::RawDocument;

use super::decode::{Decoder, How};
use super::extjson;
use crate::settings::{Decimals, Json, Moments, Settings};

/// Types of elements.
mod element {
    pub(super) const DOUBLE: u8 = 0x01;
    pub(super) const STRING: u8 = 0x02;
    pub(super) const DOCUMENT: u8 = 0x03;
    pub(super) const ARRAY: u8 = 0x04;
    pub(super) const BINARY: u8 = 0x05;
    pub(super) const OBJECT_ID: u8 = 0x07;
    pub(super) const BOOLEAN: u8 = 0x08;
    pub(super) const DATE: u8 = 0x09;
    pub(super) const NULL: u8 = 0x0A;
    pub(super) const INT32: u8 = 0x10;
    pub(super) const INT64: u8 = 0x12;
    pub(super) const DECIMAL: u8 = 0x13;
}
/// Subtypes of binary.
const GENERIC: u8 = 0x00;
const UUID: u8 = 0x04;

const DAY_MS: i64 = 86_400_000;

/// How values are encoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Forms {
    pub(super) json: Json,
    decimals: Decimals,
    moments: Moments,
    object_ids: Vec<String>,
}

impl Forms {
    pub(super) fn of(settings: &Settings) -> Self {
        Self {
            json: settings.json,
            decimals: settings.decimals,
            moments: settings.moments,
            object_ids: settings.object_ids.clone(),
        }
    }

    /// A moment in microseconds, as precise as it can be stored. Of a time that is no value of the source.
    pub(super) fn storable(&self, us: i64) -> i64 {
        match self.moments {
            Moments::Text => us,
            Moments::Date | Moments::Milliseconds => us.div_euclid(1_000).saturating_mul(1_000),
        }
    }

    /// How a column is changed, for the plan.
    pub(super) fn notes(&self, columns: &[Column]) -> Vec<String> {
        let is_moment = |wire: &Wire| matches!(wire, Wire::Timestamp | Wire::TimestampTz);
        let note = |column: &Column| match &column.wire {
            wire if is_moment(wire) && self.moments == Moments::Milliseconds => {
                "is truncated to milliseconds"
            }
            wire if is_moment(wire) && self.moments == Moments::Date => {
                "must not have microseconds (see `moments`)"
            }
            _ if types::is_json(column) && self.json == Json::Document => {
                "becomes a BSON value, without its original formatting"
            }
            _ => "",
        };
        let noted = columns.iter().map(|column| (column, note(column)));
        noted
            .filter(|(_, note)| !note.is_empty())
            .map(|(column, note)| format!("{:?} {note}", column.name))
            .collect()
    }

    /// Converts a batch to the form in which it will be read back. Rows with a value that cannot be
    /// encoded are added to `refused`, each with the first reason.
    ///
    /// # Errors
    /// An array is not of its column's type.
    pub(super) fn normalise(
        &self,
        batch: &RecordBatch,
        columns: &[Column],
        refused: &mut Refused,
    ) -> Result<RecordBatch> {
        let mut arrays = batch.columns().to_vec();
        for (array, column) in arrays.iter_mut().zip(columns) {
            if types::is_json(column) && self.json == Json::Document {
                if let Some(texts) = array.as_string_opt::<i32>() {
                    let spelled = respelled(texts, column, refused);
                    *array = spelled;
                }
            } else if let Some(moments) = array.as_primitive_opt::<TimestampMicrosecondType>()
                && self.moments == Moments::Milliseconds
            {
                let cut = |us: i64| match us {
                    i64::MAX | i64::MIN => us,
                    us => us.div_euclid(1_000) * 1_000,
                };
                let zone = moments.timezone().map(Arc::from);
                let cut = moments.unary::<_, TimestampMicrosecondType>(cut);
                *array = Arc::new(cut.with_timezone_opt::<Arc<str>>(zone));
            }
        }
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(batch.schema(), arrays, &options)
            .map_err(|error| ConnectorError::data("a batch", error.to_string()))
    }
}

/// Rows of a batch that cannot be encoded, and why.
pub(super) type Refused = BTreeMap<usize, String>;

/// JSON as it is formatted after a conversion to BSON. In a refused row it is NULL.
fn respelled(texts: &StringArray, column: &Column, refused: &mut Refused) -> ArrayRef {
    let mut decoder = Decoder::new(column, How::written(Json::Document, &column.wire));
    for row in 0..texts.len() {
        let spelled = match texts.is_null(row) {
            true => {
                decoder.null();
                Ok(())
            }
            false => respell(texts.value(row), &mut decoder),
        };
        if let Err(found) = spelled {
            decoder.null();
            refused.entry(row).or_insert_with(|| format!("column {:?}: {found}", column.name));
        }
    }
    decoder.finish()
}

fn respell(json: &str, decoder: &mut Decoder) -> Result<(), String> {
    let mut document = Vec::new();
    json_value("", json, &mut document)?;
    let document = RawDocument::from_bytes(&document).map_err(|error| error.to_string())?;
    match document.get("").map_err(|error| error.to_string())? {
        Some(value) => decoder.append(value),
        None => Err("it has no value".into()),
    }
}

/// A document with one field, a JSON value.
fn json_value(name: &str, json: &str, out: &mut Vec<u8>) -> Result<(), String> {
    let mut document = mongodb::bson::Document::new();
    document.insert(name, extjson::read(json)?);
    let bytes = document.to_vec().map_err(|error| error.to_string())?;
    out.extend_from_slice(&bytes);
    Ok(())
}

/// The cells of one column of a batch.
pub(super) struct Field<'a> {
    name: &'a str,
    array: &'a dyn Array,
    cells: Cells<'a>,
    kind: Kind<'a>,
}

enum Kind<'a> {
    Boolean,
    Int32,
    Int64,
    Real,
    Decimal,
    Date(&'a PrimitiveArray<Date32Type>),
    Moment(&'a PrimitiveArray<TimestampMicrosecondType>),
    Text,
    ObjectId,
    Json,
    Binary,
    Uuid,
    Array(&'a ListArray, Box<Field<'a>>),
}

impl<'a> Field<'a> {
    /// The cells of an array of a column's own type.
    pub(super) fn new(array: &'a dyn Array, column: &'a Column, forms: &Forms) -> Result<Self> {
        Self::of(array, &column.name, column, forms)
    }

    fn of(array: &'a dyn Array, name: &'a str, column: &Column, forms: &Forms) -> Result<Self> {
        let cells = Cells::new(array, column)?;
        let unfit = || {
            let found = format!("is {}, not {}", array.data_type(), column.wire.data_type());
            ConnectorError::data(format!("column {name:?}"), found)
        };
        let kind = match &column.wire {
            Wire::Bool => Kind::Boolean,
            Wire::Int2 | Wire::Int4 => Kind::Int32,
            Wire::Int8 | Wire::Oid | Wire::Money => Kind::Int64,
            Wire::Float4 | Wire::Float8 => Kind::Real,
            Wire::Decimal { .. } | Wire::Numeric if forms.decimals == Decimals::Decimal128 => {
                Kind::Decimal
            }
            Wire::Date if forms.moments != Moments::Text => {
                Kind::Date(array.as_primitive_opt().ok_or_else(unfit)?)
            }
            Wire::Timestamp | Wire::TimestampTz if forms.moments != Moments::Text => {
                Kind::Moment(array.as_primitive_opt().ok_or_else(unfit)?)
            }
            _ if types::is_json(column) && forms.json == Json::Document => Kind::Json,
            Wire::Text if forms.object_ids.iter().any(|known| known == name) => Kind::ObjectId,
            Wire::Bytes | Wire::Opaque => Kind::Binary,
            Wire::Uuid => Kind::Uuid,
            Wire::Array { element, .. } => {
                let list = array.as_list_opt::<i32>().ok_or_else(unfit)?;
                let sql_type = column.sql_type.strip_suffix("[]").unwrap_or(&column.sql_type);
                let column = Column {
                    name: name.to_owned(),
                    sql_type: sql_type.to_owned(),
                    wire: (**element).clone(),
                    nullable: true,
                };
                let elements = Self::of(list.values().as_ref(), name, &column, forms)?;
                Kind::Array(list, Box::new(elements))
            }
            _ => Kind::Text,
        };
        Ok(Self { name, array, cells, kind })
    }

    /// Whether a cell is NULL.
    pub(super) fn is_null(&self, row: usize) -> bool {
        self.array.is_null(row)
    }

    pub(super) fn name(&self) -> &'a str {
        self.name
    }

    /// Appends a cell as an element of a document.
    ///
    /// # Errors
    /// Why the value cannot be encoded as BSON.
    pub(super) fn append(&self, row: usize, out: &mut Vec<u8>) -> Result<(), String> {
        self.append_as(self.name, row, out)
    }

    fn append_as(&self, name: &str, row: usize, out: &mut Vec<u8>) -> Result<(), String> {
        let mut begin = |kind: u8| {
            out.push(kind);
            out.extend_from_slice(name.as_bytes());
            out.push(0);
        };
        if self.is_null(row) {
            begin(element::NULL);
            return Ok(());
        }
        match (&self.kind, self.cells.native(row)) {
            (Kind::Boolean, Native::Integer(value)) => {
                begin(element::BOOLEAN);
                out.push(u8::from(value != 0));
            }
            (Kind::Int32, Native::Integer(value)) => {
                let value = i32::try_from(value).map_err(|_| format!("{value} has 32 bits"))?;
                begin(element::INT32);
                out.extend_from_slice(&value.to_le_bytes());
            }
            (Kind::Int64, Native::Integer(value)) => {
                begin(element::INT64);
                out.extend_from_slice(&value.to_le_bytes());
            }
            (Kind::Real, Native::Real(value)) => {
                begin(element::DOUBLE);
                out.extend_from_slice(&value.to_le_bytes());
            }
            (Kind::Binary, Native::Bytes(bytes)) => {
                begin(element::BINARY);
                binary(GENERIC, bytes, out)?;
            }
            (Kind::Date(days), _) => {
                let days = days.value(row);
                if matches!(days, i32::MAX | i32::MIN) {
                    return Err(infinite());
                }
                begin(element::DATE);
                out.extend_from_slice(&(i64::from(days) * DAY_MS).to_le_bytes());
            }
            (Kind::Moment(moments), _) => {
                let ms = milliseconds(moments.value(row))?;
                begin(element::DATE);
                out.extend_from_slice(&ms.to_le_bytes());
            }
            (Kind::Array(list, elements), _) => {
                begin(element::ARRAY);
                return array(list, elements, row, out);
            }
            _ => return self.append_text(name, row, out),
        }
        Ok(())
    }

    /// Appends a cell by its text form.
    fn append_text(&self, name: &str, row: usize, out: &mut Vec<u8>) -> Result<(), String> {
        let mut text = Vec::new();
        let text = match self.cells.native(row) {
            Native::Text(text) => text,
            _ => {
                self.cells.text(row, &mut text);
                std::str::from_utf8(&text).map_err(|error| error.to_string())?
            }
        };
        let begin = |kind: u8, out: &mut Vec<u8>| {
            out.push(kind);
            out.extend_from_slice(name.as_bytes());
            out.push(0);
        };
        match self.kind {
            Kind::Decimal => {
                let value = extjson::decimal(text)
                    .map_err(|found| format!("{found}; see `decimals` of the destination"))?;
                begin(element::DECIMAL, out);
                out.extend_from_slice(&value.bytes());
            }
            Kind::Uuid => {
                let value = uuid::Uuid::try_parse(text).map_err(|error| error.to_string())?;
                begin(element::BINARY, out);
                binary(UUID, value.as_bytes(), out)?;
            }
            Kind::ObjectId => {
                let value = ObjectId::parse_str(text).map_err(|_| {
                    let shown: String = text.chars().take(60).collect();
                    format!(
                        "{shown:?} is not a valid ObjectId; see `object_ids` of the destination"
                    )
                })?;
                begin(element::OBJECT_ID, out);
                out.extend_from_slice(&value.bytes());
            }
            Kind::Json => {
                let mut document = Vec::new();
                json_value(name, text, &mut document)?;
                // Its elements, without size and end: there is one.
                let end = document.len().saturating_sub(1);
                out.extend_from_slice(document.get(4..end).unwrap_or_default());
            }
            _ => return append_text(name, text, out),
        }
        Ok(())
    }
}

fn infinite() -> String {
    "BSON dates cannot represent infinity; see `moments` of the destination".into()
}

fn milliseconds(us: i64) -> Result<i64, String> {
    match us {
        i64::MAX | i64::MIN => Err(infinite()),
        us if us % 1_000 != 0 => Err(format!(
            "{us} µs after 1970 is not a whole number of milliseconds; see `moments` of the \
             destination"
        )),
        us => Ok(us / 1_000),
    }
}

fn array(
    list: &ListArray,
    elements: &Field<'_>,
    row: usize,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    let offsets = list.value_offsets();
    let at = |index: usize| offsets.get(index).and_then(|&at| usize::try_from(at).ok());
    let (from, to) = (at(row).unwrap_or(0), at(row + 1).unwrap_or(0));
    let begun = begin(out);
    for (index, row) in (from..to).enumerate() {
        elements.append_as(&index.to_string(), row, out)?;
    }
    end(begun, out)
}

fn binary(subtype: u8, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    out.extend_from_slice(&size(bytes.len())?);
    out.push(subtype);
    out.extend_from_slice(bytes);
    Ok(())
}

fn size(bytes: usize) -> Result<[u8; 4], String> {
    let bytes = i32::try_from(bytes).map_err(|_| format!("{bytes} bytes exceed the limit"))?;
    Ok(bytes.to_le_bytes())
}

/// Starts a document; returns its start for [`end`].
pub(super) fn begin(out: &mut Vec<u8>) -> usize {
    let begun = out.len();
    out.extend_from_slice(&[0; 4]);
    begun
}

/// Ends a document.
///
/// # Errors
/// It exceeds the size limit of a document.
pub(super) fn end(begun: usize, out: &mut Vec<u8>) -> Result<(), String> {
    out.push(0);
    let bytes = size(out.len() - begun)?;
    if let Some(place) = out.get_mut(begun..begun + 4) {
        place.copy_from_slice(&bytes);
    }
    Ok(())
}

/// Appends an element that is a document.
pub(super) fn append_document(name: &str, document: &[u8], out: &mut Vec<u8>) {
    out.push(element::DOCUMENT);
    out.extend_from_slice(name.as_bytes());
    out.push(0);
    out.extend_from_slice(document);
}

/// Appends an element that is a text.
///
/// # Errors
/// It exceeds the size limit of a document.
pub(super) fn append_text(name: &str, text: &str, out: &mut Vec<u8>) -> Result<(), String> {
    out.push(element::STRING);
    out.extend_from_slice(name.as_bytes());
    out.push(0);
    out.extend_from_slice(&size(text.len() + 1)?);
    out.extend_from_slice(text.as_bytes());
    out.push(0);
    Ok(())
}

/// Appends the id of a row.
pub(super) fn append_id(id: &[u8; 24], out: &mut Vec<u8>) {
    out.push(element::BINARY);
    out.extend_from_slice(b"_id\0");
    out.extend_from_slice(&24_i32.to_le_bytes());
    out.push(GENERIC);
    out.extend_from_slice(id);
}
