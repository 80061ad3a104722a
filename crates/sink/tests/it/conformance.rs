//! Every sink passes `forebay_sink::conformance`.

use std::cell::OnceCell;
use std::path::PathBuf;

use forebay_sink::conformance::{
    Case, DOCUMENT_CASES, DocumentSubject, Failure, ROW_CASES, ReadRow, RowSubject,
};
use forebay_sink::mongo::{self, MongoSink};
use forebay_sink::postgres::{PostgresSink, Settings};
use forebay_sink::sqlite::{OwnedValue, PageLimits, RowPage};
use forebay_sink::{DocumentSink, RowSink, SqliteReader, SqliteSink, StoredDocument};
use tempfile::TempDir;

use crate::stored::Stored;
use crate::{chain, ferret, pg};

fn check<S: ?Sized>(cases: &[Case<S>], make: impl Fn() -> Box<S>) {
    for case in cases {
        if let Err(failure) = (case.run)(&*make()) {
            panic!("{}: {}", case.claim, chain(&failure));
        }
    }
}

fn dir() -> TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn sqlite_keeps_the_promises_of_documents() {
    check(DOCUMENT_CASES, || Box::new(Sqlite(dir())));
}

#[test]
fn sqlite_keeps_the_promises_of_rows() {
    check(ROW_CASES, || Box::new(Sqlite(dir())));
}

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
fn mongodb_keeps_the_promises_of_documents() {
    let Some(server) = ferret::shared() else { return };
    check(DOCUMENT_CASES, || Box::new(Mongo::new(&server)));
}

#[test]
fn mongodb_keeps_the_promises_of_rows() {
    let Some(server) = ferret::shared() else { return };
    check(ROW_CASES, || Box::new(Mongo::new(&server)));
}

struct Sqlite(TempDir);

impl Sqlite {
    fn path(&self) -> PathBuf {
        self.0.path().join("sink.sqlite")
    }

    fn open(&self) -> Result<SqliteSink, Failure> {
        SqliteSink::open(&self.path()).map_err(Failure::other)
    }

    fn reader(&self) -> Result<SqliteReader, Failure> {
        let reader = SqliteReader::open(&self.path()).map_err(Failure::other)?;
        assert_eq!(reader.check().map_err(Failure::other)?, []);
        Ok(reader)
    }

    fn rows(&self, namespace: &str) -> Result<Vec<ReadRow>, Failure> {
        let limits = PageLimits { rows_max: usize::MAX, bytes_max: usize::MAX };
        let page = self.reader()?.rows(namespace, None, limits).map_err(Failure::other)?;
        Ok(shown(page))
    }
}

/// Rows with the values that are not NULL as text.
fn shown(page: RowPage) -> Vec<ReadRow> {
    let rows = page.rows.into_iter().map(|row| {
        let values = page.schema.columns().iter().zip(row.values).filter_map(|(column, value)| {
            let text = match value {
                OwnedValue::Null => return None,
                OwnedValue::Integer(value) => value.to_string(),
                OwnedValue::Real(value) => format!("{value:?}"),
                OwnedValue::Text(value) => value,
                OwnedValue::Bytes(value) => hex::encode(value),
            };
            Some((column.path.clone(), text))
        });
        let values = values.collect();
        ReadRow { id: row.id, received_ms: row.received_ms, document: row.document, values }
    });
    rows.collect()
}

/// A schema of its own.
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

    fn open(&self) -> Result<Box<dyn RowSink>, Failure> {
        Ok(Box::new(self.open()?))
    }

    fn read(&self, namespace: &str) -> Result<Vec<ReadRow>, Failure> {
        Ok(self.stored(namespace).rows)
    }
}

/// A database of its own.
struct Mongo {
    settings: mongo::Settings,
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

impl DocumentSubject for Sqlite {
    fn open(&self) -> Result<Box<dyn DocumentSink>, Failure> {
        Ok(Box::new(self.open()?))
    }

    fn read(&self, namespace: &str) -> Result<Vec<StoredDocument>, Failure> {
        // In small pages, so that paging is checked as well.
        let limits = PageLimits { rows_max: 3, bytes_max: 100 };
        let reader = self.reader()?;
        let mut found: Vec<StoredDocument> = Vec::new();
        loop {
            let after = found.last().map(|document| document.id);
            let page = reader.documents(namespace, after, limits).map_err(Failure::other)?;
            found.extend(page.documents);
            if !page.more {
                return Ok(found);
            }
        }
    }
}

impl RowSubject for Sqlite {
    fn open(&self) -> Result<Box<dyn RowSink>, Failure> {
        Ok(Box::new(self.open()?))
    }

    fn read(&self, namespace: &str) -> Result<Vec<ReadRow>, Failure> {
        self.rows(namespace)
    }
}
