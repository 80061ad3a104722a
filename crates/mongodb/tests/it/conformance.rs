//! The sink in MongoDB passes `forebay_sink::conformance`.

use std::cell::OnceCell;
use std::time::Duration;

use forebay_mongodb::MongoSink;
use forebay_mongodb::sink::Settings;
use forebay_sink::conformance::{
    self, CHANGE_CASES, DOCUMENT_CASES, DocumentSubject, Failure, ROW_CASES, ReadRow, RowSubject,
    ServerSubject, Stored, check, lives,
};
use forebay_sink::{DocumentSink, OpenError, RowSink, ServerError, StoredDocument};

use crate::ferret;

#[test]
fn mongodb_keeps_the_promises_of_documents() {
    let Some(server) = ferret::shared() else { return };
    check(DOCUMENT_CASES, || Box::new(Mongo::new(&server)));
}

#[test]
fn mongodb_keeps_the_promises_of_rows() {
    let Some(server) = ferret::shared() else { return };
    check(ROW_CASES, || Box::new(Mongo::new(&server)));
}

#[test]
fn mongodb_keeps_the_promises_of_changes() {
    let Some(server) = ferret::shared() else { return };
    check(CHANGE_CASES, || Box::new(Mongo::new(&server)));
}

#[test]
fn mongodb_lives_as_the_model_says() {
    let Some(server) = ferret::shared() else { return };
    lives(16, || Mongo::new(&server));
}

#[test]
fn mongodb_position_shows_whether_a_lost_commit_happened() {
    let Some(server) = ferret::ferret() else { return };
    conformance::the_position_shows_whether_a_lost_commit_happened(&server);
}

#[test]
fn mongodb_killed_loses_and_doubles_nothing() {
    let Some(server) = ferret::ferret() else { return };
    conformance::a_killed_server_loses_and_doubles_nothing(&server);
}

#[test]
fn settings_that_cannot_be_are_no_matter_of_time() {
    let url = "mongodb://user:geheim@host:port/".to_owned();
    let settings = Settings { url, ..Default::default() };
    let error = MongoSink::open(&settings).unwrap_err();
    assert!(matches!(error, OpenError::Server(ServerError::Settings { .. })));
    assert!(!error.is_transient() && !format!("{error} {error:?} {settings:?}").contains("geheim"));
}

/// A separate database.
struct Mongo {
    settings: Settings,
    reader: OnceCell<ferret::Reader>,
}

impl Mongo {
    fn new(server: &ferret::Ferret) -> Mongo {
        Mongo { settings: server.settings(), reader: OnceCell::new() }
    }

    fn open(&self) -> Result<MongoSink, Failure> {
        MongoSink::open(&self.settings).map_err(Failure::other)
    }

    /// Connects with the first read.
    fn stored(&self, namespace: &str) -> Stored {
        self.reader.get_or_init(|| ferret::Reader::connect(&self.settings)).read(namespace)
    }
}

impl DocumentSubject for Mongo {
    fn open(&self) -> Result<Box<dyn DocumentSink>, Failure> {
        Ok(Box::new(self.open()?))
    }

    fn read(&self, namespace: &str) -> Result<Vec<StoredDocument>, Failure> {
        Ok(self.stored(namespace).documents())
    }
}

impl RowSubject for Mongo {
    fn open(&self) -> Result<Box<dyn RowSink>, Failure> {
        Ok(Box::new(self.open()?))
    }

    fn read(&self, namespace: &str) -> Result<Vec<ReadRow>, Failure> {
        Ok(self.stored(namespace).rows)
    }
}

impl ServerSubject for ferret::Ferret {
    fn port(&self) -> u16 {
        forebay_testing::Ferret::port(self)
    }

    fn kill(&self) {
        forebay_testing::Ferret::kill(self);
    }

    fn start(&self) {
        self.start_again();
    }

    fn open(&self, port: u16) -> Result<Box<dyn DocumentSink>, OpenError> {
        let settings = ferret::settings_at(port, "cut");
        // Not compressed, so that requests can be inspected; quick to notice a missing server.
        let connect_timeout = Duration::from_secs(2);
        let settings = Settings { compression: false, connect_timeout, ..settings };
        Ok(Box::new(MongoSink::open(&settings)?))
    }

    fn read(&self, namespace: &str) -> Stored {
        let settings = ferret::settings_at(ServerSubject::port(self), "cut");
        ferret::Reader::connect(&settings).read(namespace)
    }

    fn commit_request(&self) -> &'static [u8] {
        b"_forebay_sink"
    }
}
