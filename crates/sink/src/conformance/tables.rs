//! The promises of a [`TableSink`].

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray,
    UInt64Array,
};

use super::{Case, Failure, ReadRow, TableSubject, equal, refused};
use crate::error::SinkError;
use crate::sink::{Position, Records, TableSink, Written};

type TableCase = Case<dyn TableSubject>;

/// What every [`TableSink`] promises.
pub const TABLE_CASES: &[TableCase] = &[
    Case { claim: "values of every kind come back", run: values_come_back },
    Case { claim: "documents come back beside their rows", run: documents_come_back },
    Case { claim: "columns may differ between batches", run: columns_may_differ },
    Case { claim: "a type may change, the rows stay", run: types_may_change },
    Case { claim: "several namespaces commit at once", run: several_namespaces_at_once },
    Case { claim: "nothing is visible before the commit", run: nothing_before_the_commit },
    Case { claim: "a failed write leaves nothing", run: a_failed_write_leaves_nothing },
    Case { claim: "rows are not written twice", run: replay_is_a_no_op },
    Case { claim: "an empty batch moves the position", run: an_empty_batch },
    Case { claim: "odd column names are names like any", run: odd_column_names },
];

fn batch(columns: &[(&str, ArrayRef)]) -> Result<RecordBatch, Failure> {
    RecordBatch::try_from_iter(columns.iter().map(|(name, column)| (*name, Arc::clone(column))))
        .map_err(Failure::other)
}

fn integers(values: &[i64]) -> ArrayRef {
    Arc::new(Int64Array::from(values.to_vec()))
}

fn texts(values: &[Option<&str>]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

fn write(
    sink: &mut dyn TableSink,
    at: u64,
    namespace: &str,
    first_id: u64,
    batch: &RecordBatch,
) -> Result<Written, SinkError> {
    let records = Records { first_id, received_ms: 7, batch, documents: None };
    sink.write_records(Position(at), namespace, &records)
}

fn values(row: &ReadRow) -> Vec<(&str, &str)> {
    row.values.iter().map(|(path, value)| (path.as_str(), value.as_str())).collect()
}

fn ids(place: &dyn TableSubject, namespace: &str) -> Result<Vec<u64>, Failure> {
    Ok(place.read(namespace)?.iter().map(|row| row.id).collect())
}

fn values_come_back(place: &dyn TableSubject) -> Result<(), Failure> {
    let columns: [(&str, ArrayRef); 6] = [
        ("flag", Arc::new(BooleanArray::from(vec![Some(true), None]))),
        ("n", integers(&[i64::MIN, i64::MAX])),
        ("u", Arc::new(UInt64Array::from(vec![Some(u64::MAX), Some(0)]))),
        ("x", Arc::new(Float64Array::from(vec![Some(0.1), None]))),
        ("s", texts(&[Some("a\0\u{1f980}"), None])),
        ("b", Arc::new(BinaryArray::from_opt_vec(vec![Some(&[0, 255]), None]))),
    ];
    let mut sink = place.open()?;
    let written = write(&mut *sink, 1, "t", 40, &batch(&columns)?)?;
    let conflicts = u64::from(!place.keeps_nul());
    equal("written", written, Written { rows: 2, conflicts, ..Written::default() })?;
    sink.commit(Position(1))?;
    let rows = place.read("t")?;
    equal(
        "ids",
        rows.iter().map(|row| (row.id, row.received_ms)).collect(),
        vec![(40, 7), (41, 7)],
    )?;
    let found: Vec<_> = rows.iter().map(values).collect();
    let first = [
        ("b", "00ff"),
        ("flag", "1"),
        ("n", "-9223372036854775808"),
        ("s", "a\0\u{1f980}"),
        ("u", "18446744073709551615"),
        ("x", "0.1"),
    ];
    let first = first.into_iter().filter(|(path, _)| place.keeps_nul() || *path != "s");
    equal("values", found, vec![first.collect(), vec![("n", "9223372036854775807"), ("u", "0")]])
}

fn documents_come_back(place: &dyn TableSubject) -> Result<(), Failure> {
    let raws: [&[u8]; 3] = [b"{\"n\": 9007199254740993}", b"", b"\xff\n"];
    let documents = BinaryArray::from_opt_vec(vec![Some(raws[0]), Some(raws[1]), Some(raws[2])]);
    let batch = batch(&[("n", integers(&[1, 2, 3]))])?;
    let mut sink = place.open()?;
    let records =
        Records { first_id: 1, received_ms: 7, batch: &batch, documents: Some(&documents) };
    sink.write_records(Position(1), "t", &records)?;
    sink.commit(Position(1))?;
    write(&mut *sink, 2, "t", 4, &batch)?;
    sink.commit(Position(2))?;
    let found: Vec<_> = place.read("t")?.into_iter().map(|row| row.document).collect();
    let mut expected: Vec<_> = raws.iter().map(|raw| Some(raw.to_vec())).collect();
    expected.extend([None, None, None]);
    equal("documents", found, expected)?;
    let short = BinaryArray::from_opt_vec(vec![None]);
    let records = Records { first_id: 9, received_ms: 7, batch: &batch, documents: Some(&short) };
    let written = sink.write_records(Position(3), "t", &records);
    refused("too few documents", written, |error| matches!(error, SinkError::ValueCount { .. }))
}

fn columns_may_differ(place: &dyn TableSubject) -> Result<(), Failure> {
    let mut sink = place.open()?;
    write(&mut *sink, 1, "t", 1, &batch(&[("a", integers(&[1]))])?)?;
    let both = [("b", texts(&[Some("x")])), ("a", integers(&[2]))];
    write(&mut *sink, 2, "t", 2, &batch(&both)?)?;
    sink.commit(Position(2))?;
    drop(sink);
    let mut sink = place.open()?;
    write(&mut *sink, 3, "t", 3, &batch(&[("c", texts(&[Some("y")]))])?)?;
    sink.commit(Position(3))?;
    let rows = place.read("t")?;
    let found: Vec<_> = rows.iter().map(values).collect();
    let expected = vec![vec![("a", "1")], vec![("a", "2"), ("b", "x")], vec![("c", "y")]];
    equal("values", found, expected)
}

/// Where one table has one type for a column, the value is a conflict; where every batch keeps its
/// own, it is there.
fn types_may_change(place: &dyn TableSubject) -> Result<(), Failure> {
    let mut sink = place.open()?;
    write(&mut *sink, 1, "t", 1, &batch(&[("a", integers(&[1]))])?)?;
    let written = write(&mut *sink, 2, "t", 2, &batch(&[("a", texts(&[Some("two")]))])?)?;
    sink.commit(Position(2))?;
    let rows = place.read("t")?;
    let found: Vec<_> = rows.iter().map(values).collect();
    let second = if written.conflicts == 1 { vec![] } else { vec![("a", "two")] };
    equal("values", found, vec![vec![("a", "1")], second])
}

fn several_namespaces_at_once(place: &dyn TableSubject) -> Result<(), Failure> {
    let mut sink = place.open()?;
    let names: Vec<String> = (0..40).map(|number| format!("space-{number}")).collect();
    let batch = batch(&[("a", integers(&[1, 2]))])?;
    for (at, name) in (1..).zip(&names) {
        write(&mut *sink, at, name, at, &batch)?;
    }
    write(&mut *sink, 50, "pending", 1, &batch)?;
    write(&mut *sink, 50, "..", 1, &batch)?;
    write(&mut *sink, 50, "space-0", 100, &batch)?;
    sink.commit(Position(50))?;
    equal("ids", ids(place, "space-0")?, vec![1, 2, 100, 101])?;
    equal("ids", (ids(place, "pending")?, ids(place, "..")?), (vec![1, 2], vec![1, 2]))?;
    for (at, name) in (1..).zip(&names).skip(1) {
        equal("ids", ids(place, name)?, vec![at, at + 1])?;
    }
    Ok(())
}

fn nothing_before_the_commit(place: &dyn TableSubject) -> Result<(), Failure> {
    let batch = batch(&[("a", integers(&[1]))])?;
    let mut sink = place.open()?;
    write(&mut *sink, 1, "t", 1, &batch)?;
    sink.commit(Position(1))?;
    write(&mut *sink, 2, "t", 2, &batch)?;
    write(&mut *sink, 2, "u", 2, &batch)?;
    drop(sink);
    equal("position", place.open()?.position(), Some(Position(1)))?;
    equal("ids", (ids(place, "t")?, ids(place, "u")?), (vec![1], vec![]))
}

fn a_failed_write_leaves_nothing(place: &dyn TableSubject) -> Result<(), Failure> {
    let batch = batch(&[("a", integers(&[1, 2]))])?;
    let mut sink = place.open()?;
    write(&mut *sink, 1, "t", 1, &batch)?;
    sink.commit(Position(1))?;
    write(&mut *sink, 2, "u", 1, &batch)?;
    let failed = write(&mut *sink, 3, "t", 2, &batch);
    refused("an id given twice", failed, |error| matches!(error, SinkError::IdOrder { .. }))?;
    let after = |error: &SinkError| matches!(error, SinkError::RolledBack);
    refused("a commit after a failed write", sink.commit(Position(3)), after)?;
    sink.roll_back()?;
    equal("ids", (ids(place, "t")?, ids(place, "u")?), (vec![1, 2], vec![]))?;
    write(&mut *sink, 3, "t", 3, &batch)?;
    sink.commit(Position(3))?;
    equal("ids once written rightly", ids(place, "t")?, vec![1, 2, 3, 4])
}

fn replay_is_a_no_op(place: &dyn TableSubject) -> Result<(), Failure> {
    let batch = batch(&[("a", integers(&[1]))])?;
    for _ in 0..2 {
        let mut sink = place.open()?;
        for at in 1..=3 {
            write(&mut *sink, at, "t", at, &batch)?;
        }
        sink.commit(Position(3))?;
        equal("a replay", write(&mut *sink, 3, "t", 9, &batch)?, Written::replay())?;
    }
    equal("ids", ids(place, "t")?, vec![1, 2, 3])
}

fn an_empty_batch(place: &dyn TableSubject) -> Result<(), Failure> {
    let mut sink = place.open()?;
    let written = write(&mut *sink, 1, "t", 1, &batch(&[("a", integers(&[]))])?)?;
    equal("written", written, Written::default())?;
    sink.commit(Position(1))?;
    drop(sink);
    equal("position", place.open()?.position(), Some(Position(1)))?;
    equal("ids", ids(place, "t")?, vec![])
}

fn odd_column_names(place: &dyn TableSubject) -> Result<(), Failure> {
    let names = ["", "a", "A", "a.b", "a\"b", "x\"); DROP TABLE t; --", "ключ", "rowid", "select"];
    let columns: Vec<(&str, ArrayRef)> =
        names.iter().map(|&name| (name, texts(&[Some(name)]))).collect();
    let mut sink = place.open()?;
    write(&mut *sink, 1, "t", 1, &batch(&columns)?)?;
    sink.commit(Position(1))?;
    let mut expected: Vec<(&str, &str)> = names.iter().map(|&name| (name, name)).collect();
    expected.sort_unstable();
    let rows = place.read("t")?;
    equal("values", rows.first().map(values), Some(expected))
}
