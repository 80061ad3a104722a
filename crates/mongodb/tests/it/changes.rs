//! Rows are replaced and removed after the commit, whenever the writer is killed.

use forebay_mongodb::MongoSink;
use forebay_mongodb::sink::Settings;
use forebay_sink::{ColumnType, Document, Field, Position, RowSink as _, Sink as _, Value};
use mongodb::bson::{Bson, Document as BsonDocument, doc};

use crate::ferret;
use crate::reshape::{DECIMAL, INTEGER, Raw, reshape, text, write};

/// Gives the row `id` another document.
fn replace(sink: &mut MongoSink, at: u64, id: u64, n: &str, fields: &[Field<'_>]) -> u64 {
    let raw = format!("{{\"n\":{n}}}");
    let document = Document { id, received_ms: 9, raw: raw.as_bytes() };
    sink.replace(Position(at), "a", fields, &document, &[Value::Number(n)]).unwrap().rows
}

/// A sink with the rows 1 to `rows`, whose values are their ids.
fn with_rows(settings: &Settings, rows: u64) -> MongoSink {
    let mut sink = MongoSink::open(settings).unwrap();
    for at in 1..=rows {
        write(&mut sink, at, format!("{{\"n\":{at}}}").as_bytes(), &INTEGER);
    }
    sink.commit(Position(rows)).unwrap();
    sink
}

fn state(raw: &Raw) -> BsonDocument {
    raw.all("_forebay_sink").remove(0)
}

fn integer(value: i64) -> Option<Bson> {
    Some(Bson::Int64(value))
}

fn ids(raw: &Raw) -> Vec<i64> {
    raw.all("a").iter().map(|row| row.get_i64("_id").unwrap()).collect()
}

#[test]
fn rows_change_after_the_commit_and_not_before() {
    let Some(server) = ferret::shared() else { return };
    let settings = server.settings();
    let mut sink = with_rows(&settings, 4);
    let raw = Raw::new(&settings);
    assert_eq!(replace(&mut sink, 5, 2, "20", &INTEGER), 1);
    assert_eq!(sink.remove(Position(5), "a", 3).unwrap().rows, 1);
    assert_eq!(raw.values(), [1, 2, 3, 4].map(integer));
    sink.commit(Position(5)).unwrap();
    assert_eq!((ids(&raw), raw.values()), (vec![1, 2, 4], [1, 20, 4].map(integer).to_vec()));
    assert!(raw.all("_forebay_changes").is_empty());
    let slot = raw.namespace().get_document("now").unwrap().clone();
    assert_eq!((slot.get_i64("row_count").unwrap(), slot.get_i64("last_id").unwrap()), (3, 4));
}

#[test]
fn a_sink_that_was_killed_after_the_commit_makes_its_changes_and_one_before_it_drops_them() {
    let Some(server) = ferret::shared() else { return };
    let settings = server.settings();
    let mut sink = with_rows(&settings, 4);
    replace(&mut sink, 5, 1, "10", &INTEGER);
    sink.commit(Position(5)).unwrap();
    drop(sink);
    let raw = Raw::new(&settings);
    let number = state(&raw).get_i64("changes").unwrap();
    let row = |id: i64, n: i64| {
        doc! { "_id": id, "_received_ms": 9_i64, "_at": 5_i64, "n": n, "_document": { "n": n } }
    };
    let stage = |number: i64| {
        let entries = [
            doc! { "collection": "a", "put": 1_i64, "new": false, "row": row(1, -1) },
            doc! { "collection": "a", "remove": 2_i64 },
            doc! { "collection": "a", "put": 3_i64, "new": false, "row": row(3, 30) },
            doc! { "collection": "a", "remove": 77_i64 },
        ];
        for (place, entry) in entries.into_iter().enumerate() {
            let key = format!("{number:016x}:{place:08x}");
            raw.update("_forebay_changes", key, doc! { "$set": entry });
        }
    };
    // Before the commit: the state does not have the number.
    stage(number + 5);
    drop(MongoSink::open(&settings).unwrap());
    assert!(raw.all("_forebay_changes").is_empty());
    assert_eq!(raw.values(), [10, 2, 3, 4].map(integer));
    // After it, with one row done already.
    stage(number);
    let sink = MongoSink::open(&settings).unwrap();
    assert_eq!(sink.position(), Some(Position(5)));
    assert_eq!((ids(&raw), raw.values()), (vec![1, 3, 4], [10, 30, 4].map(integer).to_vec()));
    assert!(raw.all("_forebay_changes").is_empty());
}

#[test]
fn changes_and_changed_columns_of_one_commit_agree_in_every_order() {
    let Some(server) = ferret::shared() else { return };
    let settings = server.settings();
    let mut sink = with_rows(&settings, 5);
    let raw = Raw::new(&settings);
    // The column is one of whole numbers when the first row is replaced.
    replace(&mut sink, 6, 1, "1.5", &INTEGER);
    sink.remove(Position(6), "a", 4).unwrap();
    reshape(&mut sink, 6, &DECIMAL);
    replace(&mut sink, 7, 2, "2.5", &DECIMAL);
    sink.remove(Position(7), "a", 5).unwrap();
    sink.commit(Position(7)).unwrap();
    assert_eq!(raw.values(), ["1.5", "2.5", "3"].map(text));
    assert!(raw.reshaped().is_empty());
    // A later change of columns reaches the rows that were replaced, too.
    let real = [Field { path: "n", ty: ColumnType::Real }];
    reshape(&mut sink, 8, &real);
    sink.commit(Position(8)).unwrap();
    assert_eq!(raw.values(), [1.5, 2.5, 3.0].map(|n| Some(Bson::Double(n))));
}

#[test]
fn documents_too_long_for_a_row_are_replaced_with_their_parts() {
    let Some(server) = ferret::shared() else { return };
    let settings = server.settings();
    let mut sink = with_rows(&settings, 3);
    let raw = Raw::new(&settings);
    let long = [vec![b' '; 20 << 20], b"{\"n\":7}".to_vec()].concat();
    let put = |sink: &mut MongoSink, at: u64, raw: &[u8]| {
        let document = Document { id: 2, received_ms: 9, raw };
        sink.replace(Position(at), "a", &INTEGER, &document, &[Value::Integer(7)]).unwrap();
        sink.commit(Position(at)).unwrap();
    };
    let stored = || ferret::Reader::connect(&settings).read("a").documents();
    put(&mut sink, 4, &long);
    assert!(stored()[1].raw == long);
    assert_eq!(raw.all("a:parts").len(), 2);
    put(&mut sink, 5, b"{}");
    assert!(stored()[1].raw == b"{}");
    assert!(raw.all("a:parts").is_empty());
    put(&mut sink, 6, &long);
    sink.clear(Position(7), "a", 3).unwrap();
    sink.commit(Position(7)).unwrap();
    assert!(stored().is_empty() && raw.all("a:parts").is_empty());
}

#[test]
fn a_writer_that_was_superseded_changes_no_row() {
    let Some(server) = ferret::shared() else { return };
    let settings = server.settings();
    let mut first = with_rows(&settings, 3);
    replace(&mut first, 4, 1, "10", &INTEGER);
    let mut second = MongoSink::open(&settings).unwrap();
    first.commit(Position(4)).unwrap_err();
    let raw = Raw::new(&settings);
    assert_eq!(raw.values(), [1, 2, 3].map(integer));
    replace(&mut second, 4, 1, "11", &INTEGER);
    second.commit(Position(4)).unwrap();
    assert_eq!(raw.values(), [11, 2, 3].map(integer));
    drop(second);
    drop(MongoSink::open(&settings).unwrap());
    assert_eq!(raw.values(), [11, 2, 3].map(integer));
    assert!(raw.all("_forebay_changes").is_empty());
}
