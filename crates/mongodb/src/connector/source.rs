//! A MongoDB as a source: its collections and views are the streams.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use forebay_sdk::connector::{Discovered, DiscoveredColumn, Opening, Result, Source, SourceStream};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::run::{Context, Phase};
use forebay_sdk::settings::StreamSettings;
use mongodb::bson::{RawDocumentBuf, doc};
use mongodb::{Collection, Database};

use super::connect::{Server, refused};
use super::infer::{InferredColumn, Sample};
use super::names::OURS;
use super::ranges::Size;
use super::stream::MongoStream;
use crate::settings::Settings;

/// Number of documents at each end that are examined to describe a collection.
const DESCRIBED: u32 = 100;
/// Maximum size in bytes of the documents examined at each end, except the last of them.
const SAMPLED_SIZE_MAX: usize = 16 << 20;

/// A MongoDB as a source.
#[derive(Debug, Clone)]
pub struct MongoSource {
    server: Server,
}

impl MongoSource {
    /// Creates a source with these settings; sends nothing yet.
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        Self { server: Server::new(settings) }
    }

    /// The types specified for fields of a collection.
    fn given(&self, collection: &str) -> &BTreeMap<String, String> {
        static NONE: BTreeMap<String, String> = BTreeMap::new();
        self.server.settings().types.get(collection).unwrap_or(&NONE)
    }
}

/// A description of the server that answered.
pub(super) async fn answer(server: &Server) -> Result<String> {
    let (info, is_ferret) = server.info().await?;
    let version = info.get_str("version").unwrap_or("of an unknown version");
    let maker = if is_ferret { " (FerretDB)" } else { "" };
    Ok(format!("MongoDB {version}{maker}: {}", server.name().await?))
}

/// Names of collections and views that can be read.
async fn names(database: &Database) -> Result<Vec<String>> {
    let names = database.list_collection_names().await;
    let mut names = names.map_err(|error| refused("list the collections", error))?;
    names.retain(|name| !name.starts_with("system.") && !name.starts_with(OURS));
    names.sort_unstable();
    Ok(names)
}

/// Examines documents at both ends of a collection.
async fn sample(
    collection: &Collection<RawDocumentBuf>,
    documents: u32,
    given: &BTreeMap<String, String>,
) -> Result<Vec<InferredColumn>> {
    let name = collection.name();
    let act = |error| refused(format!("examine documents of {name}"), error);
    let mut sample = Sample::default();
    for direction in [1, -1] {
        let found = collection.find(doc! {}).sort(doc! { "_id": direction });
        let mut found = found.limit(i64::from(documents.max(1))).await.map_err(act)?;
        let mut size = 0;
        while size < SAMPLED_SIZE_MAX && found.advance().await.map_err(act)? {
            sample.add(name, found.current())?;
            size += found.current().as_bytes().len();
        }
    }
    sample.columns(given)
}

#[async_trait]
impl Source for MongoSource {
    async fn check(&self) -> Result<String> {
        answer(&self.server).await
    }

    async fn discover(&self) -> Result<Vec<Discovered>> {
        let database = self.server.database().await?;
        let mut discovered = Vec::new();
        for name in names(database).await? {
            let collection = database.collection(&name);
            let found = sample(&collection, DESCRIBED, self.given(&name)).await?;
            let size = Size::of(database, &name).await?;
            let columns = found.into_iter().map(|found| DiscoveredColumn {
                name: found.column.name,
                sql_type: found.column.sql_type,
                nullable: found.column.nullable,
                note: found.note,
            });
            discovered.push(Discovered {
                columns: columns.collect(),
                primary_key: vec!["_id".into()],
                rows: Some(size.documents),
                bytes: Some(size.bytes),
                name,
            });
        }
        Ok(discovered)
    }

    async fn open(
        &self,
        stream: &StreamSettings,
        opening: &Opening,
        context: &Context,
    ) -> Result<Arc<dyn SourceStream>> {
        let database = self.server.reach(&context.phases).await?;
        let begun = Instant::now();
        let known = names(database).await?;
        if !known.contains(&stream.name) {
            let some: Vec<&str> = known.iter().map(|name| &**name).take(20).collect();
            return Err(ConnectorError::unsupported(
                format!("{} has no collection {:?}", self.server.name().await?, stream.name),
                format!("choose one of {}", some.join(", ")),
            ));
        }
        let collection = database.collection(&stream.name);
        let looked = self.server.settings().sample_documents;
        let found = sample(&collection, looked, self.given(&stream.name)).await?;
        let size = Size::of(database, &stream.name).await?;
        let settings = self.server.settings();
        let stream =
            MongoStream::open(collection, settings, found, size, stream, opening, context).await?;
        context.phases.add(Phase::Query, begun);
        Ok(Arc::new(stream))
    }
}
