//! Every sink passes `forebay_sink::conformance`.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use arrow::array::{Array as _, AsArray as _, RecordBatch};
use arrow::datatypes::{DataType, Int64Type};
use arrow::util::display::array_value_to_string;
use forebay_sink::conformance::{
    Case, DOCUMENT_CASES, DocumentSubject, Failure, ROW_CASES, ReadRow, RowSubject, TABLE_CASES,
    TableSubject,
};
use forebay_sink::mongo::{self, MongoReader, MongoSink};
use forebay_sink::postgres::{PostgresReader, Settings};
use forebay_sink::sqlite::{OwnedValue, PageLimits, RowPage};
use forebay_sink::{
    DocumentSink, NdjsonSink, ParquetSink, PostgresSink, RowSink, SqliteReader, SqliteSink,
    StoredDocument, TableSink,
};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use tempfile::TempDir;

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
fn sqlite_keeps_the_promises_of_tables() {
    check(TABLE_CASES, || Box::new(Sqlite(dir())));
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
fn postgres_keeps_the_promises_of_tables() {
    let Some(server) = pg::shared() else { return };
    check(TABLE_CASES, || Box::new(Postgres::new(&server)));
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

#[test]
fn ndjson_keeps_the_promises_of_documents() {
    check(DOCUMENT_CASES, || Box::new(Ndjson(dir())));
}

#[test]
fn parquet_keeps_the_promises_of_tables() {
    check(TABLE_CASES, || Box::new(Parquet(dir())));
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
                OwnedValue::Bytes(value) => hex(&value),
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
    reader: OnceCell<PostgresReader>,
}

impl Postgres {
    fn new(server: &pg::Postgres) -> Postgres {
        Postgres { settings: server.settings(), reader: OnceCell::new() }
    }

    fn open(&self) -> Result<PostgresSink, Failure> {
        PostgresSink::open(&self.settings).map_err(Failure::other)
    }

    /// Connected with the first read, when there is a sink.
    fn reader(&self) -> Result<&PostgresReader, Failure> {
        if self.reader.get().is_none() {
            let reader = PostgresReader::open(&self.settings).map_err(Failure::other)?;
            assert!(self.reader.set(reader).is_ok());
        }
        Ok(self.reader.get().unwrap())
    }

    fn rows(&self, namespace: &str) -> Result<Vec<ReadRow>, Failure> {
        let limits = PageLimits { rows_max: usize::MAX, bytes_max: usize::MAX };
        let page = self.reader()?.rows(namespace, None, limits).map_err(Failure::other)?;
        Ok(shown(page))
    }
}

impl DocumentSubject for Postgres {
    fn open(&self) -> Result<Box<dyn DocumentSink>, Failure> {
        Ok(Box::new(self.open()?))
    }

    fn read(&self, namespace: &str) -> Result<Vec<StoredDocument>, Failure> {
        // In small pages, so that paging is checked as well.
        let limits = PageLimits { rows_max: 3, bytes_max: 100 };
        let mut found: Vec<StoredDocument> = Vec::new();
        loop {
            let after = found.last().map(|document| document.id);
            let page =
                self.reader()?.documents(namespace, after, limits).map_err(Failure::other)?;
            found.extend(page.documents);
            if !page.more {
                return Ok(found);
            }
        }
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
        self.rows(namespace)
    }
}

impl TableSubject for Postgres {
    fn keeps_nul(&self) -> bool {
        false
    }

    fn open(&self) -> Result<Box<dyn TableSink>, Failure> {
        Ok(Box::new(self.open()?))
    }

    fn read(&self, namespace: &str) -> Result<Vec<ReadRow>, Failure> {
        self.rows(namespace)
    }
}

/// A database of its own.
struct Mongo {
    settings: mongo::Settings,
    reader: OnceCell<MongoReader>,
}

impl Mongo {
    fn new(server: &ferret::Ferret) -> Mongo {
        Mongo { settings: server.settings(), reader: OnceCell::new() }
    }

    fn open(&self) -> Result<MongoSink, Failure> {
        MongoSink::open(&self.settings).map_err(Failure::other)
    }

    /// Connected with the first read, when there is a sink.
    fn reader(&self) -> Result<&MongoReader, Failure> {
        if self.reader.get().is_none() {
            let reader = MongoReader::open(&self.settings).map_err(Failure::other)?;
            assert!(self.reader.set(reader).is_ok());
        }
        Ok(self.reader.get().unwrap())
    }
}

impl DocumentSubject for Mongo {
    fn open(&self) -> Result<Box<dyn DocumentSink>, Failure> {
        Ok(Box::new(self.open()?))
    }

    fn read(&self, namespace: &str) -> Result<Vec<StoredDocument>, Failure> {
        // In small pages, so that paging is checked as well.
        let limits = PageLimits { rows_max: 3, bytes_max: 100 };
        let mut found: Vec<StoredDocument> = Vec::new();
        loop {
            let after = found.last().map(|document| document.id);
            let page =
                self.reader()?.documents(namespace, after, limits).map_err(Failure::other)?;
            found.extend(page.documents);
            if !page.more {
                return Ok(found);
            }
        }
    }
}

impl RowSubject for Mongo {
    fn open(&self) -> Result<Box<dyn RowSink>, Failure> {
        Ok(Box::new(self.open()?))
    }

    fn read(&self, namespace: &str) -> Result<Vec<ReadRow>, Failure> {
        let limits = PageLimits { rows_max: usize::MAX, bytes_max: usize::MAX };
        let page = self.reader()?.rows(namespace, None, limits).map_err(Failure::other)?;
        Ok(shown(page))
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

impl TableSubject for Sqlite {
    fn open(&self) -> Result<Box<dyn TableSink>, Failure> {
        Ok(Box::new(self.open()?))
    }

    fn read(&self, namespace: &str) -> Result<Vec<ReadRow>, Failure> {
        self.rows(namespace)
    }
}

struct Ndjson(TempDir);

impl DocumentSubject for Ndjson {
    fn open(&self) -> Result<Box<dyn DocumentSink>, Failure> {
        Ok(Box::new(NdjsonSink::open(self.0.path()).map_err(Failure::other)?))
    }

    fn read(&self, namespace: &str) -> Result<Vec<StoredDocument>, Failure> {
        let mut found = Vec::new();
        // A copy: the sink under test may be open.
        let copy = copy(self.0.path());
        let sink = NdjsonSink::open(copy.path()).map_err(Failure::other)?;
        sink.read(namespace, &mut |document| found.push(document)).map_err(Failure::other)?;
        Ok(found)
    }
}

struct Parquet(TempDir);

impl TableSubject for Parquet {
    fn open(&self) -> Result<Box<dyn TableSink>, Failure> {
        Ok(Box::new(ParquetSink::open(self.0.path()).map_err(Failure::other)?))
    }

    fn read(&self, namespace: &str) -> Result<Vec<ReadRow>, Failure> {
        let copy = copy(self.0.path());
        let sink = ParquetSink::open(copy.path()).map_err(Failure::other)?;
        let mut rows = Vec::new();
        for path in sink.files(namespace).map_err(Failure::other)? {
            let file = File::open(path).map_err(Failure::other)?;
            let reader = ParquetRecordBatchReaderBuilder::try_new(file).and_then(|it| it.build());
            for batch in reader.map_err(Failure::other)? {
                rows.extend(parquet_rows(&batch.map_err(Failure::other)?));
            }
        }
        Ok(rows)
    }
}

fn parquet_rows(batch: &RecordBatch) -> Vec<ReadRow> {
    let whole = |name: &str, row| {
        let column = batch.column_by_name(name).unwrap().as_primitive::<Int64Type>();
        u64::try_from(column.value(row)).unwrap()
    };
    let schema = batch.schema();
    let read = |row| {
        let document = batch.column_by_name("_document").map(|it| it.as_binary::<i32>());
        let document = document.filter(|it| it.is_valid(row)).map(|it| it.value(row).to_vec());
        let mut values = BTreeMap::new();
        for (field, column) in schema.fields().iter().zip(batch.columns()) {
            if column.is_null(row) || field.name().starts_with('_') {
                continue;
            }
            let text = match field.data_type() {
                DataType::Binary => hex(column.as_binary::<i32>().value(row)),
                DataType::Boolean => u8::from(column.as_boolean().value(row)).to_string(),
                _ => array_value_to_string(column, row).unwrap(),
            };
            values.insert(field.name().clone(), text);
        }
        ReadRow { id: whole("_id", row), received_ms: whole("_received_ms", row), document, values }
    };
    (0..batch.num_rows()).map(read).collect()
}

/// The directory as a crash at this moment would leave it.
fn copy(from: &Path) -> TempDir {
    fn tree(from: &Path, to: &Path) {
        for entry in std::fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            let target = to.join(entry.file_name());
            if entry.path().is_dir() {
                std::fs::create_dir(&target).unwrap();
                tree(&entry.path(), &target);
            } else {
                std::fs::copy(entry.path(), &target).unwrap();
            }
        }
    }
    let to = dir();
    tree(from, to.path());
    to
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
