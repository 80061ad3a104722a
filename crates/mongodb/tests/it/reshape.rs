//! Rows get the values of columns that change, each once, whenever the writer is killed.

use forebay_mongodb::MongoSink;
use forebay_mongodb::sink::Settings;
use forebay_sink::{ColumnType, Derive, Document, Field, Position, RowSink as _, Sink as _, Value};
use futures_util::TryStreamExt as _;
use mongodb::bson::{Bson, Document as BsonDocument, doc};

use crate::ferret;

pub(crate) const INTEGER: [Field<'static>; 1] = [Field { path: "n", ty: ColumnType::Integer }];
pub(crate) const DECIMAL: [Field<'static>; 1] = [Field { path: "n", ty: ColumnType::Decimal }];

/// Finds the number behind `"n":`.
fn derive(document: &[u8], put: &mut dyn FnMut(usize, Value<'_>)) {
    let text = String::from_utf8_lossy(document);
    let Some((_, rest)) = text.split_once("\"n\":") else { return };
    let end = rest.find(['}', ',']).unwrap_or(rest.len());
    put(0, Value::Number(rest[..end].trim()));
}

pub(crate) fn write(sink: &mut MongoSink, at: u64, raw: &[u8], fields: &[Field<'_>]) {
    let mut found = None;
    derive(raw, &mut |_, value| {
        if let Value::Number(number) = value {
            found = Some(number.to_owned());
        }
    });
    let mut writer = sink.row_writer(Position(at), "a", fields).unwrap();
    let value = found.as_deref().map_or(Value::Null, Value::Number);
    writer.write(&Document { id: at, received_ms: 7, raw }, &[value]).unwrap();
    writer.finish().unwrap();
}

pub(crate) fn reshape(sink: &mut MongoSink, at: u64, fields: &[Field<'_>]) {
    let derive: &mut Derive<'_> = &mut |document, put| derive(document, put);
    sink.reshape(Position(at), "a", fields, derive).unwrap();
}

/// The database, without the sink.
pub(crate) struct Raw {
    database: mongodb::Database,
    runtime: tokio::runtime::Runtime,
}

impl Raw {
    pub(crate) fn new(settings: &Settings) -> Self {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
        let client = runtime.block_on(mongodb::Client::with_uri_str(&settings.url)).unwrap();
        Self { database: client.default_database().unwrap(), runtime }
    }

    pub(crate) fn all(&self, collection: &str) -> Vec<BsonDocument> {
        let collection = self.database.collection::<BsonDocument>(collection);
        self.runtime.block_on(async {
            let found = collection.find(doc! {}).sort(doc! { "_id": 1 }).await.unwrap();
            found.try_collect().await.unwrap()
        })
    }

    pub(crate) fn update(&self, collection: &str, id: impl Into<Bson>, update: BsonDocument) {
        let collection = self.database.collection::<BsonDocument>(collection);
        let updated = collection.update_one(doc! { "_id": id.into() }, update).upsert(true);
        self.runtime.block_on(async { updated.await.unwrap() });
    }

    /// The values of the column in all rows.
    pub(crate) fn values(&self) -> Vec<Option<Bson>> {
        self.all("a").into_iter().map(|mut row| row.remove("n")).collect()
    }

    /// The collections of values that rows are about to get.
    pub(crate) fn reshaped(&self) -> Vec<String> {
        let listed = self.database.list_collection_names();
        let mut names = self.runtime.block_on(async { listed.await.unwrap() });
        names.retain(|name| name.starts_with("a:reshaped"));
        names
    }

    pub(crate) fn namespace(&self) -> BsonDocument {
        self.all("_forebay_namespaces").remove(0)
    }
}

pub(crate) fn text(value: &str) -> Option<Bson> {
    Some(Bson::String(value.to_owned()))
}

#[test]
fn documents_in_every_form_are_derived_again_and_not_before_the_commit() {
    let Some(server) = ferret::shared() else { return };
    let settings = server.settings();
    let mut sink = MongoSink::open(&settings).unwrap();
    let raw = Raw::new(&settings);
    let mut long = vec![b' '; 16 << 20];
    long.extend_from_slice(b"{\"n\":1.5}");
    let documents: [&[u8]; 5] =
        [br#"{"n":1}"#, br#"{"n": 2.5}"#, b"{\"\xff\":0,\"n\":3.5}", &long, br#"{"m":1}"#];
    for (at, document) in (1..).zip(documents) {
        write(&mut sink, at, document, &INTEGER);
    }
    sink.commit(Position(5)).unwrap();
    let before = [Some(Bson::Int64(1)), None, None, None, None];
    assert_eq!(raw.values(), before);
    reshape(&mut sink, 6, &DECIMAL);
    write(&mut sink, 6, br#"{"n":6.25}"#, &DECIMAL);
    assert_eq!(raw.values()[..5], before);
    sink.commit(Position(6)).unwrap();
    let after = [text("1"), text("2.5"), text("3.5"), text("1.5"), None, text("6.25")];
    assert_eq!(raw.values(), after);
    assert!(raw.reshaped().is_empty());
    assert!(!raw.namespace().contains_key("reshaping"));
    // The documents are what they were.
    let stored = ferret::Reader::connect(&settings).read("a").documents();
    let found: Vec<_> = stored[..5].iter().map(|document| document.raw.as_slice()).collect();
    assert!(found == documents);
    // A column that is dropped leaves the rows.
    reshape(&mut sink, 7, &[]);
    sink.commit(Position(7)).unwrap();
    assert_eq!(raw.values(), vec![None; 6]);
}

#[test]
fn more_rows_than_a_page_and_those_of_the_same_transaction_are_derived_again() {
    let Some(server) = ferret::shared() else { return };
    let settings = server.settings();
    let mut sink = MongoSink::open(&settings).unwrap();
    for at in 1..=600 {
        write(&mut sink, at, format!("{{\"n\":{at}.5}}").as_bytes(), &INTEGER);
    }
    sink.commit(Position(600)).unwrap();
    write(&mut sink, 601, b"{\"n\":601.5}", &INTEGER);
    reshape(&mut sink, 602, &DECIMAL);
    // Once more before the commit: only the last one counts.
    let real = [Field { path: "n", ty: ColumnType::Real }];
    reshape(&mut sink, 603, &real);
    let raw = Raw::new(&settings);
    assert_eq!(raw.reshaped().len(), 1);
    sink.commit(Position(603)).unwrap();
    let expected: Vec<_> = (1..=601).map(|n| Some(Bson::Double(f64::from(n) + 0.5))).collect();
    assert!(raw.values() == expected);
}

#[test]
fn a_sink_that_was_killed_after_the_commit_continues_and_one_before_it_drops_the_values() {
    let Some(server) = ferret::shared() else { return };
    let settings = server.settings();
    let mut sink = MongoSink::open(&settings).unwrap();
    for at in 1..=3 {
        write(&mut sink, at, format!("{{\"n\":{at}.5}}").as_bytes(), &INTEGER);
    }
    sink.commit(Position(3)).unwrap();
    reshape(&mut sink, 4, &DECIMAL);
    sink.commit(Position(4)).unwrap();
    drop(sink);
    let raw = Raw::new(&settings);
    let done = vec![text("1.5"), text("2.5"), text("3.5")];
    assert_eq!(raw.values(), done);
    let slot = raw.namespace().get_document("now").unwrap().clone();
    let shape = slot.get_i64("shape").unwrap();
    let stage = |number: i64| {
        let reshaping = doc! { "shape": number, "names": ["n"] };
        raw.update("_forebay_namespaces", "a", doc! { "$set": { "reshaping": reshaping } });
        for id in [1_i64, 2, 3] {
            let set = doc! { "n": format!("{id}.5") };
            raw.update("a:reshaped", id, doc! { "$set": { "set": set } });
        }
    };
    // As a kill after the commit leaves it, with one row done, one not, and one that a later change
    // has reached.
    let older = doc! { "$set": { "n": 2_i64 }, "$unset": { "_shape": "" } };
    let later = doc! { "$set": { "n": "later", "_shape": shape + 1 } };
    raw.update("a", 2_i64, older.clone());
    raw.update("a", 3_i64, later);
    stage(shape);
    let sink = MongoSink::open(&settings).unwrap();
    assert_eq!(sink.position(), Some(Position(4)));
    assert_eq!(raw.values(), [text("1.5"), text("2.5"), text("later")]);
    drop(sink);
    // Before the commit: the state of the namespace does not have the number.
    raw.update("a", 2_i64, older);
    assert!(raw.reshaped().is_empty() && !raw.namespace().contains_key("reshaping"));
    stage(shape + 5);
    let mut sink = MongoSink::open(&settings).unwrap();
    assert_eq!(raw.values()[1], Some(Bson::Int64(2)));
    assert!(raw.reshaped().is_empty() && !raw.namespace().contains_key("reshaping"));
    // A transaction that is rolled back changes nothing, and the next one begins again.
    reshape(&mut sink, 5, &INTEGER);
    let reshaped = raw.reshaped();
    assert_eq!((reshaped.len(), raw.all(&reshaped[0]).len()), (1, 3));
    sink.roll_back().unwrap();
    assert!(raw.reshaped().is_empty() && !raw.namespace().contains_key("reshaping"));
    reshape(&mut sink, 5, &DECIMAL);
    assert_ne!(raw.reshaped(), reshaped, "every attempt has its own collection");
    sink.commit(Position(5)).unwrap();
    assert_eq!(raw.values(), done);
    // What it committed is not derived once more when it is opened again.
    raw.update("a", 1_i64, doc! { "$set": { "n": "kept" } });
    drop(sink);
    drop(MongoSink::open(&settings).unwrap());
    assert_eq!(raw.values()[0], text("kept"));
}
