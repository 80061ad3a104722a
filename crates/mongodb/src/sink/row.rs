//! Rows as documents of a collection.
//!
//! Invariant: a row never has more than [`ROW_SIZE_MAX`] bytes, whatever the document it is made from: a
//! long one is stored in parts beside it, and values too long to stand beside it are conflicts.

use forebay_sink::column::Fit;
use forebay_sink::{ColumnType, Value};
use mongodb::bson::raw::{CString, RawBinaryRef, RawDocumentBuf};
use mongodb::bson::rawdoc;
use mongodb::bson::spec::BinarySubtype;

use super::json;
use super::layout::{long, part_key};

/// The largest row; a server takes 16 MiB.
pub(super) const ROW_SIZE_MAX: usize = 15 << 20;
/// The largest value beside others where all of them together are too large.
pub(super) const VALUE_SIZE_MAX: usize = 64 << 10;

/// A row being made.
#[derive(Debug)]
pub(super) struct RowMaker {
    row: RawDocumentBuf,
    /// Values that were left out because they do not fit their column.
    pub(super) conflicts: u64,
    /// Only values up to this size are taken.
    value_size_max: usize,
    /// Whether one was left out because of that.
    is_cut: bool,
}

/// What is stored for a row.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) row: RawDocumentBuf,
    pub(super) parts: Vec<RawDocumentBuf>,
    pub(super) conflicts: u64,
}

impl RowMaker {
    fn new(id: u64, received_ms: u64, at: u64, value_size_max: usize) -> RowMaker {
        let row = rawdoc! { "_id": long(id), "_received_ms": long(received_ms), "_at": long(at) };
        RowMaker { row, conflicts: 0, value_size_max, is_cut: false }
    }

    /// Adds what a column of type `ty` gets for `value`; nothing where that is NULL.
    pub(super) fn put(&mut self, name: &CString, ty: ColumnType, value: Value<'_>) {
        match ty.fit(value) {
            Fit::Null => {}
            Fit::Conflict => self.conflicts += 1,
            Fit::Integer(value) if ty == ColumnType::Boolean => self.row.append(name, value != 0),
            Fit::Integer(value) => self.row.append(name, value),
            Fit::Real(value) => self.row.append(name, value),
            Fit::Text(text) if text.len() <= self.value_size_max => {
                self.row.append(name, text.as_ref());
            }
            Fit::Bytes(bytes) if bytes.len() <= self.value_size_max => {
                self.row.append(name, RawBinaryRef { subtype: BinarySubtype::Generic, bytes });
            }
            Fit::Text(_) | Fit::Bytes(_) => {
                self.is_cut = true;
                self.conflicts += 1;
            }
        }
    }
}

/// Makes a row: `put` gives it its values, once or, where they are too long, twice.
pub(super) fn make(
    (id, received_ms, at): (u64, u64, u64),
    document: &[u8],
    mut put: impl FnMut(&mut RowMaker),
) -> Made {
    let mut maker = RowMaker::new(id, received_ms, at, ROW_SIZE_MAX);
    put(&mut maker);
    if maker.is_cut || maker.row.as_bytes().len() > ROW_SIZE_MAX {
        maker = RowMaker::new(id, received_ms, at, VALUE_SIZE_MAX);
        put(&mut maker);
    }
    let mut row = maker.row;
    let mut parts = Vec::new();
    // A field costs its name and a few bytes more.
    let room = ROW_SIZE_MAX.saturating_sub(row.as_bytes().len() + 64);
    let object = if document.len() <= room { json::parse(document) } else { None };
    if let Some(object) = object.filter(|object| object.as_bytes().len() <= room) {
        row.append(mongodb::bson::cstr!("_document"), object);
    } else if document.len() <= room {
        let bytes = RawBinaryRef { subtype: BinarySubtype::Generic, bytes: document };
        match std::str::from_utf8(document) {
            // Text wherever it can be, so that people can read it; the bytes are the same either way.
            Ok(text) => row.append(mongodb::bson::cstr!("_document"), text),
            Err(_) => row.append(mongodb::bson::cstr!("_document"), bytes),
        }
    } else {
        for (part, bytes) in document.chunks(ROW_SIZE_MAX - 1024).enumerate() {
            let bytes = RawBinaryRef { subtype: BinarySubtype::Generic, bytes };
            let mut stored = rawdoc! { "_id": part_key(id, part) };
            stored.append(mongodb::bson::cstr!("bytes"), bytes);
            parts.push(stored);
        }
        row.append(mongodb::bson::cstr!("_parts"), long(parts.len() as u64));
    }
    Made { row, parts, conflicts: maker.conflicts }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_document_makes_a_row_that_is_too_large() {
        let name = CString::try_from("text").unwrap();
        let long = "x".repeat(16 << 20);
        let some = "y".repeat(100 << 10);
        for (values, text, parts, conflicts) in [
            (vec!["short"], &some, 0, 0),
            (vec!["short"], &long, 2, 0),
            (vec![long.as_str()], &long, 2, 1),
            (vec![some.as_str(); 200], &some, 0, 200),
        ] {
            let made = make((7, 1, 1), text.as_bytes(), |maker| {
                for value in &values {
                    maker.put(&name, ColumnType::Text, Value::Text(value));
                }
            });
            assert_eq!((made.parts.len(), made.conflicts), (parts, conflicts));
            for row in made.parts.iter().chain([&made.row]) {
                assert!(row.as_bytes().len() <= ROW_SIZE_MAX);
            }
        }
    }
}
