//! A server, and reading a stream to its end.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use arrow::array::RecordBatch;
use forebay_mysql::Settings;
use forebay_pgcopy::{Column, Wire};
use forebay_sdk::Rows;
use forebay_sdk::connector::{Cursor, Division, Form, Opening, Result, Source, SourceStream};
use forebay_sdk::registry::{ConnectorSettings as _, SourceSettings as _};
use forebay_sdk::run::{Budget, Context, Outlet};
use forebay_sdk::settings::StreamSettings;
use forebay_sdk::values::write::{Cells, json_rows};
use forebay_testing::MariaDb;
use serde_json::{Value, json};

/// Databases that were given to a test.
static DATABASES: AtomicU32 = AtomicU32::new(0);

/// A database of a server.
pub(crate) struct Database {
    server: Arc<MariaDb>,
    pub(crate) name: String,
}

/// A database of the server that all tests share; `None` if none is installed.
pub(crate) fn database() -> Option<Database> {
    MariaDb::shared().map(Database::of)
}

/// A database of a server for one test alone.
pub(crate) fn own_database() -> Option<Database> {
    MariaDb::start().map(Arc::new).map(Database::of)
}

/// A database of a server that is started with further arguments.
pub(crate) fn database_with(arguments: Vec<String>) -> Option<Database> {
    MariaDb::start_with(arguments).map(Arc::new).map(Database::of)
}

impl Deref for Database {
    type Target = MariaDb;

    fn deref(&self) -> &MariaDb {
        &self.server
    }
}

impl Database {
    fn of(server: Arc<MariaDb>) -> Self {
        let name = format!("test_{}", DATABASES.fetch_add(1, Ordering::Relaxed));
        server.query("mysql", &format!("CREATE DATABASE {name}"));
        Self { server, name }
    }

    /// Executes statements in the database.
    pub(crate) fn run(&self, sql: &str) -> String {
        self.server.query(&self.name, sql)
    }

    /// A connection of another client.
    pub(crate) async fn client(&self) -> mysql_async::Conn {
        let options = mysql_async::OptsBuilder::default()
            .ip_or_hostname("127.0.0.1")
            .tcp_port(self.port())
            .prefer_socket(false)
            .user(Some("root"))
            .db_name(Some(&self.name));
        mysql_async::Conn::new(options).await.unwrap()
    }

    /// The database as a source, with more settings.
    pub(crate) fn source(&self, more: Value) -> Arc<dyn Source> {
        let mut all = json!({ "host": "127.0.0.1", "port": self.port(), "database": self.name, "user": "root" });
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let settings: Settings = serde_json::from_value(all).unwrap();
        settings.check().unwrap();
        settings.source()
    }
}

/// A stream of a table.
pub(crate) fn stream(name: &str, more: Value) -> StreamSettings {
    let mut stream = json!({ "name": name });
    stream.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    serde_json::from_value(stream).unwrap()
}

/// How the tests open streams.
pub(crate) fn opening(since: Option<Cursor>, division: Division) -> Opening {
    Opening {
        form: Form::Records,
        since,
        division,
        unit_size: 4 << 10,
        batch_size: 8 << 10,
        memory: 8 << 20,
        parallelism: 1,
        snapshot: None,
    }
}

/// Opens a stream; returns it with the warnings.
pub(crate) async fn open_as(
    source: &Arc<dyn Source>,
    stream: &StreamSettings,
    opening: Opening,
) -> Result<(Arc<dyn SourceStream>, Vec<String>)> {
    let (context, _cancel) = Context::new("test");
    let open = source.open(stream, &opening, &context).await?;
    Ok((open, context.warnings()))
}

/// Opens a table as one unit.
pub(crate) async fn open(source: &Arc<dyn Source>, table: &str) -> Result<Arc<dyn SourceStream>> {
    Ok(open_as(source, &stream(table, json!({})), opening(None, Division::Whole)).await?.0)
}

/// The rows of a unit, as JSON.
pub(crate) async fn unit(open: &Arc<dyn SourceStream>, unit: usize) -> Result<Vec<Value>> {
    let (context, _cancel) = Context::new("test");
    let (mut outlet, mut inlet) = Outlet::new(Budget::new(64 << 20), context).unwrap();
    let reading = async {
        let read = open.read(unit, &mut outlet).await;
        drop(outlet);
        read
    };
    let taking = async {
        let mut rows = Vec::new();
        while let Some(batch) = inlet.recv().await? {
            let Rows::Records(records) = batch.rows else { panic!("tuples") };
            rows.extend(objects(&records, open.columns())?);
        }
        Ok(rows)
    };
    let (read, rows) = tokio::join!(reading, taking);
    read.and(rows)
}

/// Rows as JSON, with decimals and doubles as text: a parser of JSON may round them.
fn objects(records: &RecordBatch, columns: &[Column]) -> Result<Vec<Value>> {
    let texts = json_rows(records, columns)?;
    let mut rows: Vec<Value> =
        texts.iter().map(|text| serde_json::from_str(text).unwrap()).collect();
    for (array, column) in records.columns().iter().zip(columns) {
        let cells = Cells::new(array.as_ref(), column)?;
        for (at, row) in rows.iter_mut().enumerate() {
            if matches!(column.wire, Wire::Decimal { .. } | Wire::Float8) && !cells.is_null(at) {
                let mut text = Vec::new();
                cells.text(at, &mut text);
                row[&*column.name] = String::from_utf8(text).unwrap().into();
            }
        }
    }
    Ok(rows)
}

/// The rows of all units.
pub(crate) async fn rows(open: &Arc<dyn SourceStream>) -> Result<Vec<Value>> {
    let mut rows = Vec::new();
    for at in 0..open.units().len() {
        rows.extend(unit(open, at).await?);
    }
    Ok(rows)
}

/// The rows of a table.
pub(crate) async fn table(source: &Arc<dyn Source>, name: &str) -> Result<Vec<Value>> {
    rows(&open(source, name).await?).await
}

/// The error of an operation, with its causes.
pub(crate) fn text<T>(result: Result<T>) -> String {
    let error = result.err().unwrap();
    forebay_base::error_chain::chain(&error).to_string()
}

/// The numbers in the column `id`.
pub(crate) fn ids(rows: &[Value]) -> Vec<i64> {
    let mut ids: Vec<i64> = rows.iter().map(|row| row["id"].as_i64().unwrap()).collect();
    ids.sort_unstable();
    ids
}
