//! The sink in PostgreSQL passes `forebay_sink::conformance`.

use std::cell::OnceCell;

use forebay_postgres::PostgresSink;
use forebay_postgres::sink::Settings;
use forebay_sink::conformance::{
    self, CHANGE_CASES, DOCUMENT_CASES, DocumentSubject, Failure, ROW_CASES, ReadRow, RowSubject,
    ServerSubject, Stored, check, lives,
};
use forebay_sink::{DocumentSink, OpenError, RowSink, ServerError, StoredDocument};

use crate::pg;

#[test]
fn postgres_keeps_the_promises_of_documents() {
    let Some(server) = pg::shared() else { return };
    check(DOCUMENT_CASES, || Box::new(Postgres::new(&server)));
}

#[test]
fn postgres_keeps_the_promises_of_rows() {
    let Some(server) = pg::shared() else { return };
    check(ROW_CASES, || Box::new(Postgres::new(&server)));
}

#[test]
fn postgres_keeps_the_promises_of_changed_rows() {
    let Some(server) = pg::shared() else { return };
    check(CHANGE_CASES, || Box::new(Postgres::new(&server)));
}

#[test]
fn postgres_lives_as_the_model_says() {
    let Some(server) = pg::shared() else { return };
    lives(32, || Postgres::new(&server));
}

#[test]
fn postgres_position_shows_whether_a_lost_commit_happened() {
    let Some(server) = pg::postgres() else { return };
    conformance::the_position_shows_whether_a_lost_commit_happened(&server);
}

#[test]
fn postgres_killed_loses_and_doubles_nothing() {
    let Some(server) = pg::postgres() else { return };
    conformance::a_killed_server_loses_and_doubles_nothing(&server);
}

#[test]
fn settings_that_cannot_be_are_no_matter_of_time() {
    let mut settings = Settings::default();
    settings.server.url = Some("postgres://user:geheim@[".to_owned());
    let error = PostgresSink::open(&settings).unwrap_err();
    assert!(matches!(error, OpenError::Server(ServerError::Settings { .. })));
    assert!(!error.is_transient() && !format!("{error} {error:?} {settings:?}").contains("geheim"));
}

/// A separate schema.
struct Postgres {
    settings: Settings,
    reader: OnceCell<pg::Reader>,
}

impl Postgres {
    fn new(server: &pg::Postgres) -> Postgres {
        Postgres { settings: server.settings(), reader: OnceCell::new() }
    }

    fn open(&self) -> Result<PostgresSink, Failure> {
        PostgresSink::open(&self.settings).map_err(Failure::other)
    }

    /// Connects with the first read.
    fn stored(&self, namespace: &str) -> Stored {
        self.reader.get_or_init(|| pg::Reader::connect(&self.settings)).read(namespace)
    }
}

impl DocumentSubject for Postgres {
    fn open(&self) -> Result<Box<dyn DocumentSink>, Failure> {
        Ok(Box::new(self.open()?))
    }

    fn read(&self, namespace: &str) -> Result<Vec<StoredDocument>, Failure> {
        Ok(self.stored(namespace).documents())
    }
}

impl RowSubject for Postgres {
    fn keeps_nul(&self) -> bool {
        false
    }

    fn locks_new_columns(&self) -> bool {
        true
    }

    fn open(&self) -> Result<Box<dyn RowSink>, Failure> {
        Ok(Box::new(self.open()?))
    }

    fn read(&self, namespace: &str) -> Result<Vec<ReadRow>, Failure> {
        Ok(self.stored(namespace).rows)
    }
}

impl ServerSubject for pg::Postgres {
    fn port(&self) -> u16 {
        forebay_testing::Postgres::port(self)
    }

    fn kill(&self) {
        forebay_testing::Postgres::kill(self);
    }

    fn start(&self) {
        self.start_again();
    }

    fn open(&self, port: u16) -> Result<Box<dyn DocumentSink>, OpenError> {
        Ok(Box::new(PostgresSink::open(&pg::settings_at(port, "cut"))?))
    }

    fn read(&self, namespace: &str) -> Stored {
        pg::Reader::connect(&pg::settings_at(ServerSubject::port(self), "cut")).read(namespace)
    }

    fn commit_request(&self) -> &'static [u8] {
        b"; COMMIT"
    }
}
