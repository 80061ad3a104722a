//! What the MongoDB sink promises beyond the suite all sinks pass.

use forebay_base::error_chain::chain;
use forebay_mongodb::MongoSink;
use forebay_mongodb::sink::Settings;
use forebay_sink::{Document, DocumentSink as _, Position, ServerError, Sink as _, SinkError};
use mongodb::bson::doc;

use crate::ferret;

fn write(sink: &mut MongoSink, at: u64, raw: &[u8]) -> Result<(), SinkError> {
    let document = Document { id: at, received_ms: 7, raw };
    sink.write_documents(Position(at), "a", &[document]).map(|_| ())
}

/// How many rows lie in the collection, committed or not.
fn lying(settings: &Settings, collection: &str) -> u64 {
    lying_like(settings, collection, doc! {})
}

/// How many of them are like this.
fn lying_like(settings: &Settings, collection: &str, filter: mongodb::bson::Document) -> u64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = mongodb::Client::with_uri_str(&settings.url).await.unwrap();
        let database = client.default_database().unwrap();
        let collection = database.collection::<mongodb::bson::Document>(collection);
        collection.count_documents(filter).await.unwrap()
    })
}

fn ids(settings: &Settings) -> Vec<u64> {
    ferret::Reader::connect(settings).read("a").ids()
}

#[test]
fn documents_can_be_queried_and_come_back_as_they_were() {
    let Some(server) = ferret::shared() else { return };
    let settings = server.settings();
    let mut sink = MongoSink::open(&settings).unwrap();
    let raws = [
        r#"{"customer":{"name":"Ada","age":41},"tags":["x",1.5,null],"z":1,"a":-0.25}"#,
        r#"{"customer":{"name":"Bob","age":39},"note":"\"é\n"}"#,
        r#"{"customer": {"age": 99}}"#,
        r#"{"customer":{"age":1e2}}"#,
    ];
    for (at, raw) in (1..).zip(raws) {
        write(&mut sink, at, raw.as_bytes()).unwrap();
    }
    sink.commit(Position(4)).unwrap();
    let documents = ferret::Reader::connect(&settings).read("a").documents();
    let found: Vec<_> = documents.iter().map(|it| it.raw.as_slice()).collect();
    assert_eq!(found, raws.map(str::as_bytes));
    let older = doc! { "_document.customer.age": { "$gt": 40_i64 } };
    assert_eq!(lying_like(&settings, "a", older), 1);
    // Another notation is kept as the text it is.
    assert_eq!(lying_like(&settings, "a", doc! { "_document": { "$type": "string" } }), 2);
}

#[test]
fn rows_that_were_not_committed_are_not_read_and_go_away() {
    let Some(server) = ferret::shared() else { return };
    let settings = server.settings();
    let mut sink = MongoSink::open(&settings).unwrap();
    write(&mut sink, 1, b"{}").unwrap();
    sink.commit(Position(1)).unwrap();
    // More than waits in memory.
    let long = vec![b'x'; 6 << 20];
    for at in 2..=5 {
        write(&mut sink, at, &long).unwrap();
    }
    assert!(lying(&settings, "a") > 1);
    assert_eq!(ids(&settings), [1]);
    // As a process that is killed would leave it.
    drop(sink);
    assert!(lying(&settings, "a") > 1);
    let mut sink = MongoSink::open(&settings).unwrap();
    assert_eq!((sink.position(), lying(&settings, "a")), (Some(Position(1)), 1));
    for at in 2..=5 {
        write(&mut sink, at, &long).unwrap();
    }
    sink.roll_back().unwrap();
    assert_eq!((sink.position(), lying(&settings, "a")), (Some(Position(1)), 1));
}

#[test]
fn a_writer_that_was_superseded_commits_nothing_more() {
    let Some(server) = ferret::shared() else { return };
    let settings = server.settings();
    let mut first = MongoSink::open(&settings).unwrap();
    write(&mut first, 1, b"{}").unwrap();
    first.commit(Position(1)).unwrap();
    write(&mut first, 2, b"{}").unwrap();
    let mut second = MongoSink::open(&settings).unwrap();
    let error = first.commit(Position(2)).unwrap_err();
    assert!(matches!(error, SinkError::Server(ServerError::InUse { .. })), "{}", chain(&error));
    let error = first.roll_back().unwrap_err();
    assert!(error.is_transient() && !error.is_unreachable(), "{}", chain(&error));
    assert_eq!((second.position(), ids(&settings)), (Some(Position(1)), vec![1]));
    // What the other left behind is a key that is there already.
    write(&mut second, 2, b"{}").unwrap();
    second.commit(Position(2)).unwrap();
    assert_eq!(ids(&settings), [1, 2]);
    assert_eq!(lying(&settings, "a"), 2);
}

#[test]
fn documents_beyond_what_a_server_takes_at_once_come_back() {
    let Some(server) = ferret::shared() else { return };
    let settings = server.settings();
    let mut sink = MongoSink::open(&settings).unwrap();
    let mut long = vec![b' '; 20 << 20];
    long.extend_from_slice(b"{\"\xff\":1}");
    write(&mut sink, 1, &long).unwrap();
    write(&mut sink, 2, b"{}").unwrap();
    sink.commit(Position(2)).unwrap();
    let documents = ferret::Reader::connect(&settings).read("a").documents();
    assert!(documents.len() == 2 && documents[0].raw == long && documents[1].raw == b"{}");
    assert_eq!(lying(&settings, "a:parts"), 2);
    // Parts of what was not committed go away with it.
    write(&mut sink, 3, &long).unwrap();
    write(&mut sink, 4, &long).unwrap();
    assert!(lying(&settings, "a:parts") > 2);
    sink.roll_back().unwrap();
    assert_eq!(lying(&settings, "a:parts"), 2);
}
