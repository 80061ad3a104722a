//! The sink in SQLite passes `forebay_sink::conformance`.

use std::path::PathBuf;

use forebay_sink::conformance::{
    CHANGE_CASES, DOCUMENT_CASES, DocumentSubject, Failure, ROW_CASES, ReadRow, RowSubject, check,
    lives,
};
use forebay_sink::{DocumentSink, RowSink, StoredDocument};
use forebay_sqlite::{OwnedValue, PageLimits, RowPage, SqliteReader, SqliteSink};
use tempfile::TempDir;

#[test]
fn sqlite_keeps_the_promises_of_documents() {
    check(DOCUMENT_CASES, || Box::new(Sqlite::new()));
}

#[test]
fn sqlite_keeps_the_promises_of_rows() {
    check(ROW_CASES, || Box::new(Sqlite::new()));
}

#[test]
fn sqlite_keeps_the_promises_of_changed_rows() {
    check(CHANGE_CASES, || Box::new(Sqlite::new()));
}

#[test]
fn sqlite_lives_as_the_model_says() {
    lives(64, Sqlite::new);
}

struct Sqlite(TempDir);

impl Sqlite {
    fn new() -> Sqlite {
        Sqlite(tempfile::tempdir().unwrap())
    }

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
