//! Sinks in a FerretDB of our own, which speaks MongoDB's protocol, and how tests read them.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use forebay_mongodb::sink::Settings;
use forebay_sink::Position;
use forebay_sink::conformance::{ReadRow, Stored};
use futures_util::TryStreamExt as _;
use mongodb::bson::{Bson, Document, doc};
use mongodb::error::Error;
use mongodb::{Client, Database};
use tokio::runtime::Runtime;

/// Databases that were given to a test.
static DATABASES: AtomicU32 = AtomicU32::new(0);

/// A server, for one test or for all that do not kill it.
pub(crate) struct Ferret(Arc<forebay_testing::Ferret>);

/// The server all share; none, and it says so, where none is installed and none is required.
pub(crate) fn shared() -> Option<Ferret> {
    forebay_testing::Ferret::shared().map(Ferret)
}

/// A server for one test alone.
pub(crate) fn ferret() -> Option<Ferret> {
    forebay_testing::Ferret::start().map(Arc::new).map(Ferret)
}

impl Deref for Ferret {
    type Target = forebay_testing::Ferret;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Ferret {
    /// Settings of a sink in a separate database.
    pub(crate) fn settings(&self) -> Settings {
        let number = DATABASES.fetch_add(1, Ordering::Relaxed);
        settings_at(self.port(), &format!("sink{number}"))
    }
}

/// Settings of a sink, reached by way of a port.
pub(crate) fn settings_at(port: u16, database: &str) -> Settings {
    Settings {
        url: format!("mongodb://127.0.0.1:{port}/{database}"),
        connections_min: 0,
        ..Settings::default()
    }
}

/// Reads a sink by its layout, `docs/formats/mongodb-sink.md`, with nothing of the sink's.
pub(crate) struct Reader {
    // Before the runtime, which its connections live on.
    database: Database,
    runtime: Runtime,
}

impl Reader {
    pub(crate) fn connect(settings: &Settings) -> Reader {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
        let client = runtime.block_on(async { Client::with_uri_str(&settings.url).await });
        Reader { database: client.unwrap().default_database().unwrap(), runtime }
    }

    /// Reads what is committed in a namespace. Nothing may be committed meanwhile.
    pub(crate) fn read(&self, namespace: &str) -> Stored {
        self.runtime.block_on(self.stored(namespace)).unwrap()
    }

    async fn stored(&self, namespace: &str) -> Result<Stored, Error> {
        let state = self.find("_forebay_sink", doc! { "_id": "state" }).await?;
        let position = state.first().and_then(|state| number(state, "position"));
        let mut stored = Stored { position: position.map(Position), rows: Vec::new() };
        let namespaces = self.find("_forebay_namespaces", doc! { "_id": namespace }).await?;
        let Some(namespace) = namespaces.first() else { return Ok(stored) };
        // The state that was valid at the position.
        let slots = ["now", "before"].map(|slot| namespace.get_document(slot).ok());
        let is_valid = |slot: &&Document| number(slot, "at") <= position;
        let Some(slot) = slots.into_iter().flatten().find(is_valid) else { return Ok(stored) };
        let Some(last) = number(slot, "last_id") else { return Ok(stored) };
        let collection = namespace.get_str("collection").unwrap();
        let committed = doc! { "_id": { "$lte": i64::try_from(last).unwrap() } };
        for mut row in self.find(collection, committed).await? {
            let id = number(&row, "_id").unwrap();
            let document = match row.remove("_document") {
                Some(document) => bytes(document),
                None => self.parts(collection, id, number(&row, "_parts")).await?,
            };
            let columns = slot.get_array("columns").unwrap().iter().filter_map(Bson::as_document);
            let values = columns.filter_map(|column| {
                let value = row.get(column.get_str("name").unwrap())?;
                let text = text(column.get_str("type").unwrap(), value);
                Some((column.get_str("path").unwrap().to_owned(), text))
            });
            let values = values.collect();
            let received_ms = number(&row, "_received_ms").unwrap();
            stored.rows.push(ReadRow { id, received_ms, document: Some(document), values });
        }
        Ok(stored)
    }

    /// A document that is too long for its row.
    async fn parts(&self, collection: &str, id: u64, count: Option<u64>) -> Result<Vec<u8>, Error> {
        let mine = doc! { "$gte": format!("{id:020}:"), "$lt": format!("{id:020};") };
        let parts = self.find(&format!("{collection}:parts"), doc! { "_id": mine }).await?;
        assert_eq!(Some(parts.len() as u64), count, "parts of {id}");
        Ok(parts
            .iter()
            .flat_map(|part| part.get_binary_generic("bytes").unwrap().clone())
            .collect())
    }

    async fn find(&self, collection: &str, filter: Document) -> Result<Vec<Document>, Error> {
        let collection = self.database.collection::<Document>(collection);
        collection.find(filter).sort(doc! { "_id": 1 }).await?.try_collect().await
    }
}

/// A number that may be missing or null.
fn number(document: &Document, key: &str) -> Option<u64> {
    match document.get(key) {
        None | Some(Bson::Null) => None,
        Some(Bson::Int64(number)) => Some(u64::try_from(*number).unwrap()),
        Some(Bson::Int32(number)) => Some(u64::try_from(*number).unwrap()),
        Some(other) => panic!("{key} is {other}"),
    }
}

/// A document as it was received.
fn bytes(document: Bson) -> Vec<u8> {
    match document {
        Bson::String(text) => text.into_bytes(),
        Bson::Binary(binary) => binary.bytes,
        // Compact, in the order it has. The numbers of these tests need no exponent.
        Bson::Document(object) => serde_json::to_vec(&object).unwrap(),
        other => panic!("{other} is no document"),
    }
}

/// The value of a column of this type.
fn text(ty: &str, value: &Bson) -> String {
    match (ty, value) {
        ("boolean", Bson::Boolean(value)) => u8::from(*value).to_string(),
        ("integer", Bson::Int64(value)) => value.to_string(),
        ("real", Bson::Double(value)) => format!("{value:?}"),
        ("decimal" | "text" | "json" | "timestamp" | "date", Bson::String(text)) => text.clone(),
        ("bytes", Bson::Binary(binary)) => hex::encode(&binary.bytes),
        (_, other) => panic!("{other} is no {ty}"),
    }
}
