//! Sinks in a PostgreSQL of our own, and how tests read them.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use forebay_postgres::quote::quote_identifier;
use forebay_postgres::sink::Settings;
use forebay_postgres::{ServerSettings, connect};
use forebay_sink::Position;
use forebay_sink::conformance::{ReadRow, Stored};
use tokio::runtime::Runtime;
use tokio_postgres::{Client, Error};

/// Schemas that were given to a test.
static SCHEMAS: AtomicU32 = AtomicU32::new(0);

/// A server, for one test or for all that do not kill it.
pub(crate) struct Postgres(Arc<forebay_testing::Postgres>);

/// The server all share; none, and it says so, where none is installed and none is required.
pub(crate) fn shared() -> Option<Postgres> {
    forebay_testing::Postgres::shared().map(Postgres)
}

/// A server for one test alone.
pub(crate) fn postgres() -> Option<Postgres> {
    forebay_testing::Postgres::start().map(Arc::new).map(Postgres)
}

impl Deref for Postgres {
    type Target = forebay_testing::Postgres;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Postgres {
    /// What a query gives, as psql prints it.
    pub(crate) fn query(&self, sql: &str) -> String {
        self.0.query("postgres", sql)
    }

    /// A standby that streams from it.
    pub(crate) fn standby(&self) -> Postgres {
        Postgres(Arc::new(self.0.standby()))
    }

    /// Settings of a sink in a separate schema.
    pub(crate) fn settings(&self) -> Settings {
        let number = SCHEMAS.fetch_add(1, Ordering::Relaxed);
        settings_at(self.port(), &format!("sink {number}"))
    }
}

/// Settings of a sink, reached by way of a port.
pub(crate) fn settings_at(port: u16, schema: &str) -> Settings {
    let defaults = Settings::default();
    let server = ServerSettings { port, database: Some("postgres".to_owned()), ..defaults.server };
    Settings { server, schema: schema.to_owned(), ..defaults }
}

/// Reads a sink by its layout, `docs/formats/postgres-sink.md`, with nothing of the sink's.
pub(crate) struct Reader {
    // Before the runtime, which its connection lives on.
    client: Client,
    runtime: Runtime,
    /// Quoted.
    schema: String,
}

impl Reader {
    pub(crate) fn connect(settings: &Settings) -> Reader {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
        let server = connect::Server::new(&settings.server).unwrap();
        let client = runtime.block_on(server.connect()).unwrap();
        Reader { client, runtime, schema: quote_identifier(&settings.schema) }
    }

    /// Reads a namespace and the position in one transaction.
    pub(crate) fn read(&self, namespace: &str) -> Stored {
        let read = async {
            let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
            self.client.batch_execute(begin).await?;
            let stored = self.stored(namespace).await?;
            self.client.batch_execute("COMMIT").await?;
            Ok::<_, Error>(stored)
        };
        self.runtime.block_on(read).unwrap()
    }

    async fn stored(&self, namespace: &str) -> Result<Stored, Error> {
        let Reader { client, schema, .. } = self;
        let state = format!("SELECT position FROM {schema}._forebay_sink");
        let position: Option<i64> = client.query_one(&state, &[]).await?.get(0);
        let position = position.map(|position| Position(number(position)));
        let mut stored = Stored { position, rows: Vec::new() };
        let found =
            format!("SELECT table_name FROM {schema}._forebay_namespaces WHERE namespace = $1");
        let Some(found) = client.query_opt(&found, &[&namespace]).await? else { return Ok(stored) };
        let columns = format!(
            "SELECT path, name, type FROM {schema}._forebay_columns WHERE namespace = $1 \
             ORDER BY ordinal"
        );
        let columns: Vec<(String, String, String)> = client
            .query(&columns, &[&namespace])
            .await?
            .iter()
            .map(|row| (String::from_utf8(row.get(0)).unwrap(), row.get(1), row.get(2)))
            .collect();
        let mut sql = "SELECT _id, _received_ms, _document".to_owned();
        for (_, name, ty) in &columns {
            let name = quote_identifier(name);
            sql += &match ty.as_str() {
                "boolean" => format!(", {name}::int::text"),
                "bytes" => format!(", encode({name}, 'hex')"),
                "real" => format!(", {name}"),
                _ => format!(", {name}::text"),
            };
        }
        sql += &format!(" FROM {schema}.{} ORDER BY _id", quote_identifier(found.get(0)));
        for row in client.query(&sql, &[]).await? {
            let values = (3_usize..).zip(&columns).filter_map(|(at, (path, _, ty))| {
                let text = match ty.as_str() {
                    "real" => row.get::<_, Option<f64>>(at).map(|real| format!("{real:?}")),
                    _ => row.get::<_, Option<String>>(at),
                };
                Some((path.clone(), text?))
            });
            let values = values.collect();
            let (id, received_ms) = (number(row.get(0)), number(row.get(1)));
            stored.rows.push(ReadRow { id, received_ms, document: row.get(2), values });
        }
        Ok(stored)
    }
}

fn number(stored: i64) -> u64 {
    u64::try_from(stored).unwrap()
}
