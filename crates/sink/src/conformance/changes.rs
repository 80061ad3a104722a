//! The promises of a [`RowSink`] that changes rows.

use super::{Case, Failure, ReadRow, RowSubject, equal, refused};
use crate::column::{ColumnType, Value};
use crate::error::SinkError;
use crate::schema::Field;
use crate::sink::{Document, Position, RowSink, Written};

type RowCase = Case<dyn RowSubject>;

/// What every [`RowSink`] promises that changes rows.
pub const CHANGE_CASES: &[RowCase] = &[
    Case { claim: "a replaced row is the new one under its id", run: replaced_rows_keep_their_ids },
    Case { claim: "a removed row is gone and its id is taken", run: removed_ids_are_taken },
    Case { claim: "a namespace is cleared up to an id", run: clearing_spares_later_rows },
    Case { claim: "an uncommitted change never happened", run: changes_roll_back },
    Case { claim: "a change is not made twice", run: changes_are_not_doubled },
    Case { claim: "changes see the rows of their transaction", run: changes_see_their_own },
    Case { claim: "a change made again is the same", run: changes_can_be_amended },
];

const FIELDS: [Field<'static>; 1] = [Field { path: "n", ty: ColumnType::Integer }];

fn document(id: u64) -> Document<'static> {
    Document { id, received_ms: 7, raw: b"{\"n\":0}" }
}

fn write(sink: &mut dyn RowSink, at: u64, ids: std::ops::Range<u64>) -> Result<(), SinkError> {
    let mut writer = sink.row_writer(Position(at), "t", &FIELDS)?;
    for id in ids {
        writer.write(&document(id), &[Value::Integer(0)])?;
    }
    writer.finish().map(drop)
}

fn replace(sink: &mut dyn RowSink, at: u64, id: u64, value: i64) -> Result<Written, SinkError> {
    let document = Document { id, received_ms: 9, raw: b"{\"new\":true}" };
    sink.replace(Position(at), "t", &FIELDS, &document, &[Value::Integer(value)])
}

/// The ids of the rows, with the time and the value of each.
fn rows(place: &dyn RowSubject) -> Result<Vec<(u64, u64, String)>, Failure> {
    let row = |row: ReadRow| {
        let value = row.values.get("n").cloned().unwrap_or_default();
        (row.id, row.received_ms, value)
    };
    Ok(place.read("t")?.into_iter().map(row).collect())
}

fn ids(place: &dyn RowSubject) -> Result<Vec<u64>, Failure> {
    Ok(rows(place)?.into_iter().map(|(id, ..)| id).collect())
}

fn count(rows: u64) -> Written {
    Written { rows, ..Written::default() }
}

fn replaced_rows_keep_their_ids(place: &dyn RowSubject) -> Result<(), Failure> {
    let mut sink = place.open()?;
    write(&mut *sink, 1, 1..4)?;
    sink.commit(Position(1))?;
    equal("replaced", replace(&mut *sink, 2, 2, 5)?, count(1))?;
    sink.commit(Position(2))?;
    let row = |id, received_ms, value: &str| (id, received_ms, value.to_owned());
    equal("rows", rows(place)?, vec![row(1, 7, "0"), row(2, 9, "5"), row(3, 7, "0")])?;
    let document = place.read("t")?.into_iter().nth(1).and_then(|row| row.document);
    equal("document", document, Some(b"{\"new\":true}".to_vec()))?;
    equal("last id", sink.last_id("t")?, Some(3))?;
    let odd = replace(&mut *sink, 3, 4, 5);
    refused("a row that never was", odd, |error| matches!(error, SinkError::NoRow { .. }))?;
    sink.roll_back()?;
    write(&mut *sink, 3, 4..5)?;
    sink.commit(Position(3))?;
    drop(sink);
    equal("last id, opened again", place.open()?.last_id("t")?, Some(4))
}

fn removed_ids_are_taken(place: &dyn RowSubject) -> Result<(), Failure> {
    let mut sink = place.open()?;
    write(&mut *sink, 1, 1..4)?;
    sink.commit(Position(1))?;
    equal("removed", sink.remove(Position(2), "t", 3)?, count(1))?;
    equal("removed again", sink.remove(Position(2), "t", 3)?, count(0))?;
    equal("a row that never was", sink.remove(Position(2), "t", 6)?, count(0))?;
    sink.commit(Position(2))?;
    drop(sink);
    let mut sink = place.open()?;
    equal("ids", ids(place)?, vec![1, 2])?;
    equal("last id", sink.last_id("t")?, Some(6))?;
    let taken = write(&mut *sink, 3, 6..7);
    refused("an id that was taken", taken, |error| matches!(error, SinkError::IdOrder { .. }))?;
    sink.roll_back()?;
    write(&mut *sink, 3, 7..8)?;
    sink.commit(Position(3))?;
    equal("ids", ids(place)?, vec![1, 2, 7])
}

fn clearing_spares_later_rows(place: &dyn RowSubject) -> Result<(), Failure> {
    let mut sink = place.open()?;
    write(&mut *sink, 1, 1..6)?;
    sink.commit(Position(1))?;
    equal("cleared", sink.clear(Position(2), "t", 3)?, count(3))?;
    sink.commit(Position(2))?;
    equal("ids", ids(place)?, vec![4, 5])?;
    equal("cleared", sink.clear(Position(3), "t", 9)?, count(2))?;
    let columns = sink.columns("t")?.map(|schema| schema.columns().len());
    equal("columns", columns, Some(0))?;
    sink.commit(Position(3))?;
    drop(sink);
    let mut sink = place.open()?;
    equal("ids", ids(place)?, vec![])?;
    equal("last id", sink.last_id("t")?, Some(9))?;
    write(&mut *sink, 4, 10..11)?;
    sink.commit(Position(4))?;
    equal("rows", rows(place)?, vec![(10, 7, "0".to_owned())])
}

fn changes_roll_back(place: &dyn RowSubject) -> Result<(), Failure> {
    let mut sink = place.open()?;
    write(&mut *sink, 1, 1..4)?;
    sink.commit(Position(1))?;
    let before = rows(place)?;
    for reopen in [false, true] {
        replace(&mut *sink, 2, 1, 5)?;
        sink.remove(Position(2), "t", 2)?;
        sink.clear(Position(3), "t", 3)?;
        if reopen {
            drop(sink);
            sink = place.open()?;
        } else {
            sink.roll_back()?;
        }
        equal("rows", rows(place)?, before.clone())?;
        equal("last id", sink.last_id("t")?, Some(3))?;
    }
    replace(&mut *sink, 2, 1, 5)?;
    sink.commit(Position(2))?;
    equal("ids", ids(place)?, vec![1, 2, 3])
}

fn changes_are_not_doubled(place: &dyn RowSubject) -> Result<(), Failure> {
    let mut sink = place.open()?;
    write(&mut *sink, 1, 1..4)?;
    sink.commit(Position(3))?;
    equal("replaced", replace(&mut *sink, 2, 1, 5)?, Written::replay())?;
    equal("removed", sink.remove(Position(3), "t", 2)?, Written::replay())?;
    equal("cleared", sink.clear(Position(3), "t", 3)?, Written::replay())?;
    sink.commit(Position(4))?;
    equal("ids", ids(place)?, vec![1, 2, 3])
}

fn changes_see_their_own(place: &dyn RowSubject) -> Result<(), Failure> {
    let mut sink = place.open()?;
    // More rows than some sinks send one by one.
    write(&mut *sink, 1, 1..300)?;
    equal("replaced", replace(&mut *sink, 2, 299, 5)?, count(1))?;
    equal("replaced again", replace(&mut *sink, 3, 299, 6)?, count(1))?;
    equal("removed", sink.remove(Position(4), "t", 150)?, count(1))?;
    write(&mut *sink, 5, 300..302)?;
    equal("cleared", sink.clear(Position(6), "t", 298)?, count(297))?;
    sink.commit(Position(6))?;
    let row = |id, received_ms, value: &str| (id, received_ms, value.to_owned());
    equal("rows", rows(place)?, vec![row(299, 9, "6"), row(300, 7, "0"), row(301, 7, "0")])
}

fn changes_can_be_amended(place: &dyn RowSubject) -> Result<(), Failure> {
    let mut sink = place.open()?;
    write(&mut *sink, 1, 1..5)?;
    sink.commit(Position(5))?;
    for _ in 0..2 {
        sink.amend();
        replace(&mut *sink, 5, 2, 5)?;
        sink.remove(Position(5), "t", 4)?;
        sink.clear(Position(5), "t", 1)?;
        sink.commit(Position(5))?;
        equal("ids", ids(place)?, vec![2, 3])?;
    }
    equal("position", sink.position(), Some(Position(5)))?;
    // A row that was removed comes back with what replaces it.
    sink.amend();
    equal("replaced", replace(&mut *sink, 5, 4, 8)?, count(0))?;
    sink.commit(Position(5))?;
    equal("ids", ids(place)?, vec![2, 3, 4])
}
