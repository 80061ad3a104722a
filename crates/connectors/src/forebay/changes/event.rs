//! Rows and changes as events: one line of JSON each (`docs/formats/pipeline-events.md`).
//!
//! Invariants:
//! - The line of a change depends on nothing but the change and the columns of its table, so it is the same in every
//!   run that reads it.
//! - Its id is a hash of what names it: the load that its log continues, its position and its number.

use arrow::array::RecordBatch;
use forebay_pgcopy::Column;
use forebay_sdk::changes::decoded::{self, fields, records};
use forebay_sdk::changes::feed::{FeedColumn, FeedStream, Redefinition};
use forebay_sdk::changes::{Commit, Field, LoggedChange, Operation};
use forebay_sdk::connector::Result;
use forebay_sdk::values::time::write_timestamp;
use forebay_sdk::values::write::{Cells, json_text};
use serde::Serialize;

use super::append::Lines;

/// What stores changes, in errors.
const STORE: &str = "an event store";

/// An id that parts name: the milliseconds of its time in 48 bits, as in a ULID, and 80 bits of a hash.
///
/// * `at_us`: microseconds since 1970.
pub(super) fn id(at_us: i64, parts: &[&[u8]]) -> String {
    let ms = u128::try_from(at_us / 1_000).unwrap_or(0) & ((1 << 48) - 1);
    format!("{:032x}", (ms << 80) | (hash(parts) >> 48))
}

/// A hash of parts, each with its size.
pub(super) fn hash(parts: &[&[u8]]) -> u128 {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
    }
    match hasher.finalize().as_bytes().first_chunk() {
        Some(first) => u128::from_be_bytes(*first),
        None => unreachable!("a hash has 32 bytes"),
    }
}

/// The beginning of a line: its id, time and operation, which everything has.
pub(super) fn begin(id: &str, at_us: i64, operation: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"id\":\"");
    out.extend_from_slice(id.as_bytes());
    out.extend_from_slice(b"\",\"time\":\"");
    write_timestamp(at_us, true, out);
    out.extend_from_slice(b"\",\"operation\":\"");
    out.extend_from_slice(operation.as_bytes());
    out.push(b'"');
}

fn put_text(key: &str, value: &str, out: &mut Vec<u8>) {
    put_key(key, out);
    json_text(value, out);
}

fn put_number(key: &str, value: u64, out: &mut Vec<u8>) {
    put_key(key, out);
    out.extend_from_slice(value.to_string().as_bytes());
}

fn put_key(key: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(b"\":");
}

/// Values of one row as an object.
struct Object {
    mark: u8,
}

impl Object {
    fn begin() -> Self {
        Self { mark: b'{' }
    }

    fn put(&mut self, column: &Column, cells: &Cells<'_>, row: usize, out: &mut Vec<u8>) {
        out.push(std::mem::replace(&mut self.mark, b','));
        json_text(&column.name, out);
        out.push(b':');
        cells.json(row, out);
    }

    fn end(self, out: &mut Vec<u8>) {
        if self.mark == b'{' {
            out.push(b'{');
        }
        out.push(b'}');
    }
}

fn cells<'a>(batch: &'a RecordBatch, columns: &[Column]) -> Result<Vec<Cells<'a>>> {
    let cells = batch.columns().iter().zip(columns);
    cells.map(|(array, column)| Cells::new(array.as_ref(), column)).collect()
}

/// The columns of a stream.
///
/// # Errors
/// Values of a type, as changes have them, cannot be read.
pub(super) fn columns<'a>(
    stream: &str,
    of: impl Iterator<Item = &'a FeedColumn>,
) -> Result<Vec<Column>> {
    of.map(|column| decoded::column(stream, column, STORE)).collect()
}

/// A copy: where its rows are appended, and what names them.
pub(super) struct Copy<'a> {
    pub(super) load: &'a str,
    pub(super) unit: &'a str,
    /// When it began, in microseconds since 1970.
    pub(super) at_us: i64,
    pub(super) columns: &'a [Column],
}

impl Copy<'_> {
    /// Appends the lines of rows.
    ///
    /// * `first`: the number of the first of them in the unit.
    ///
    /// # Errors
    /// A row is larger than an event can be.
    pub(super) fn encode(&self, rows: &RecordBatch, first: u64, lines: &mut Lines) -> Result<()> {
        let cells = cells(rows, self.columns)?;
        for row in 0..rows.num_rows() {
            let number = first.saturating_add(row as u64);
            let begun = lines.bytes.len();
            let out = &mut lines.bytes;
            let parts = [&b"copy"[..], self.load.as_bytes(), self.unit.as_bytes()];
            let [kind, load, unit] = parts;
            let id = id(self.at_us, &[kind, load, unit, &number.to_le_bytes()]);
            begin(&id, self.at_us, "copy", out);
            put_text("load", self.load, out);
            put_text("unit", self.unit, out);
            put_number("number", number, out);
            put_key("row", out);
            let mut object = Object::begin();
            for (column, cells) in self.columns.iter().zip(&cells) {
                object.put(column, cells, row, out);
            }
            object.end(out);
            out.push(b'}');
            lines.end(begun, || format!("row {number} of the unit {:?}", self.unit))?;
        }
        Ok(())
    }
}

/// A table whose changes are appended to a stream.
pub(super) struct Table {
    pub(super) into: String,
    pub(super) load: String,
    columns: Vec<Column>,
    /// The columns that name a row.
    key: Vec<Column>,
}

#[derive(Serialize)]
struct ColumnText<'a> {
    name: &'a str,
    #[serde(rename = "type")]
    sql_type: &'a str,
    is_key: bool,
}

impl Table {
    pub(super) fn new(into: &str, load: &str, stream: &FeedStream) -> Result<Self> {
        Ok(Self {
            into: into.to_owned(),
            load: load.to_owned(),
            columns: columns(&stream.stream, stream.columns.iter())?,
            key: columns(&stream.stream, stream.naming())?,
        })
    }

    /// Appends the lines of changes.
    ///
    /// # Errors
    /// A value is not of the type of its column, or a change is larger than an event can be.
    pub(super) fn encode(&self, changes: &[LoggedChange], lines: &mut Lines) -> Result<()> {
        let rows = changes.iter().filter_map(|change| change.row.as_ref()).map(fields);
        let rows = records(&self.into, &self.columns, rows)?;
        let keys = changes.iter().filter_map(|change| change.key_before.as_ref());
        let keys = records(&self.into, &self.key, keys.map(|key| key.as_bytes().to_vec()))?;
        let (rows, keys) = (cells(&rows, &self.columns)?, cells(&keys, &self.key)?);
        let (mut at_row, mut at_key) = (0, 0);
        for change in changes {
            let begun = lines.bytes.len();
            self.begin(change.operation.as_str(), &change.commit, change.number, &mut lines.bytes);
            if change.key_before.is_some() {
                put_key("before", &mut lines.bytes);
                let mut object = Object::begin();
                for (column, cells) in self.key.iter().zip(&keys) {
                    object.put(column, cells, at_key, &mut lines.bytes);
                }
                object.end(&mut lines.bytes);
                at_key += 1;
            }
            if change.row.is_some() {
                self.put_row(change, &rows, at_row, &mut lines.bytes);
                at_row += 1;
            }
            lines.bytes.push(b'}');
            lines.end(begun, || {
                let (number, position) = (change.number, &change.commit.position);
                format!("change {number} of the commit at {position} for {:?}", self.into)
            })?;
        }
        Ok(())
    }

    fn begin(&self, operation: &str, commit: &Commit, number: u64, out: &mut Vec<u8>) {
        let kind = if operation == COLUMNS { COLUMNS } else { "change" };
        let (load, position) = (self.load.as_bytes(), commit.position.as_bytes());
        let id = id(commit.at_us, &[kind.as_bytes(), load, position, &number.to_le_bytes()]);
        begin(&id, commit.at_us, operation, out);
        put_text("load", &self.load, out);
        put_text("position", &commit.position, out);
        put_number("number", number, out);
    }

    /// The values of a row. Of a deleted one only those that are known: the others are NULL in a change.
    fn put_row(&self, change: &LoggedChange, rows: &[Cells<'_>], at: usize, out: &mut Vec<u8>) {
        let fields = change.row.iter().flat_map(|row| row.fields());
        let mut unchanged: Vec<&str> = Vec::new();
        put_key("row", out);
        let mut object = Object::begin();
        for ((field, column), cells) in fields.zip(&self.columns).zip(rows) {
            match field {
                Field::Unchanged => unchanged.push(&column.name),
                Field::Null if change.operation == Operation::Delete => {}
                Field::Null | Field::Value(_) => object.put(column, cells, at, out),
            }
        }
        object.end(out);
        if unchanged.is_empty() {
            return;
        }
        put_key("unchanged", out);
        let mut mark = b'[';
        for name in unchanged {
            out.push(std::mem::replace(&mut mark, b','));
            json_text(name, out);
        }
        out.push(b']');
    }

    /// Takes other columns, and appends a line that has them.
    ///
    /// * `before`: the change that follows, if one does.
    ///
    /// # Errors
    /// Values of a type, as changes have them, cannot be read.
    pub(super) fn redefine(
        &mut self,
        stream: &FeedStream,
        redefinition: &Redefinition,
        before: Option<&LoggedChange>,
        lines: &mut Lines,
    ) -> Result<()> {
        *self = Self::new(&self.into, &self.load, stream)?;
        let Some(before) = before else { return Ok(()) };
        let begun = lines.bytes.len();
        self.begin(COLUMNS, &before.commit, before.number, &mut lines.bytes);
        put_key("columns", &mut lines.bytes);
        let mut mark = b'[';
        for FeedColumn { name, sql_type, is_key, .. } in &redefinition.columns {
            let out = &mut lines.bytes;
            out.push(std::mem::replace(&mut mark, b','));
            let column = ColumnText { name, sql_type, is_key: *is_key };
            if serde_json::to_writer(out, &column).is_err() {
                unreachable!("texts are written into memory");
            }
        }
        lines.bytes.extend_from_slice(if mark == b'[' { b"[]}" } else { b"]}" });
        lines.end(begun, || format!("the list of the columns of {:?}", self.into))
    }
}

/// The operation of an event that has the columns of the changes after it.
const COLUMNS: &str = "columns";

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test says what it means by panicking")]
mod tests {
    use std::sync::Arc;

    use forebay_pgcopy::Wire;
    use forebay_sdk::changes::ChangedRow;
    use serde_json::{Value, json};

    use super::*;

    fn column(name: &str, sql_type: &str, is_key: bool, wire: Wire) -> FeedColumn {
        FeedColumn {
            name: name.into(),
            sql_type: sql_type.into(),
            is_key,
            number: 1,
            wire: Some(wire),
        }
    }

    fn table() -> Table {
        let columns = vec![
            column("id", "integer", true, Wire::Int4),
            column("a \"b\"", "text", false, Wire::Text),
            column("big", "text", false, Wire::Text),
        ];
        let stream =
            FeedStream { stream: "public.t".into(), columns, from: None, known_by: Vec::new() };
        Table::new("t", "L1", &stream).unwrap()
    }

    fn change(operation: Operation, number: u64, row: &[Field<'_>]) -> LoggedChange {
        LoggedChange {
            operation,
            commit: Arc::new(Commit { position: "0/1A".into(), at_us: 1_700_000_000_123_456 }),
            number,
            key_before: None,
            row: Some(ChangedRow::new(row.iter().copied()).unwrap()),
        }
    }

    fn lines(changes: &[LoggedChange]) -> Vec<Value> {
        let mut lines = Lines::default();
        table().encode(changes, &mut lines).unwrap();
        let text = String::from_utf8(lines.bytes).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn a_change_is_an_event_with_what_names_it() {
        let one = 1i32.to_be_bytes();
        let moved = ChangedRow::new([Field::Value(&one), Field::Null, Field::Null]).unwrap();
        let two = 2i32.to_be_bytes();
        let mut update = change(
            Operation::Update,
            7,
            &[Field::Value(&two), Field::Value(b"x\"\n"), Field::Unchanged],
        );
        update.key_before = Some(moved.key(&[0]).unwrap());
        let delete = change(Operation::Delete, 8, &[Field::Value(&two), Field::Null, Field::Null]);
        let truncate = LoggedChange { row: None, operation: Operation::Truncate, ..delete.clone() };
        let found = lines(&[update, delete, truncate]);
        let mut first = found[0].clone();
        let id = first.as_object_mut().unwrap().remove("id").unwrap();
        assert_eq!(id.as_str().unwrap().len(), 32);
        assert_eq!(
            first,
            json!({"time": "2023-11-14T22:13:20.123456Z", "operation": "update", "load": "L1",
                   "position": "0/1A", "number": 7, "before": {"id": 1}, "unchanged": ["big"],
                   "row": {"id": 2, "a \"b\"": "x\"\n"}})
        );
        assert_eq!(found[1]["row"], json!({"id": 2}));
        assert_eq!((&found[2]["row"], &found[2]["operation"]), (&Value::Null, &json!("truncate")));
    }

    #[test]
    fn ids_distinguish_what_has_another_name_and_nothing_else() {
        let key = 1i32.to_be_bytes();
        let fields = [Field::Value(&key), Field::Null, Field::Null];
        let of = |number| lines(&[change(Operation::Insert, number, &fields)])[0]["id"].clone();
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
        // The parts are not only joined.
        assert_ne!(hash(&[b"ab", b"c"]), hash(&[b"a", b"bc"]));
        assert!(id(1_700_000_000_123_456, &[b"x"]).starts_with("018bcfe5687b"));
        assert!(id(-1, &[b"x"]).starts_with("000000000000"));
    }
}
