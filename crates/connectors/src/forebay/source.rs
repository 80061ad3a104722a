//! The streams of a Forebay.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use forebay_pgcopy::Column;
use forebay_sdk::connector::{
    Discovered, DiscoveredColumn, Division, Opening, Result, Source, SourceStream, Unit,
};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::run::{Context, Phase};
use forebay_sdk::settings::{StreamSettings, SyncMode};
use serde::Deserialize;

use super::client::Server;
use super::documents::{DocumentStream, Namespace};
use super::events::{self, EventStream, Stats};
use super::files::{self, FileStream};
use super::inventories::{self, INVENTORIES, InventoryStream};
use super::settings::Settings;

/// Prefix of the names of streams of documents.
const COLLECTIONS: &str = "collections/";
/// The name of the only unit of what has no ranges that stay the same.
const ALL: &str = "all";

/// A Forebay as a source.
#[derive(Debug, Clone)]
pub struct ForebaySource {
    settings: Settings,
}

/// The existing namespaces.
#[derive(Debug, Deserialize)]
struct Namespaces {
    namespaces: Vec<Listed>,
}

#[derive(Debug, Deserialize)]
struct Listed {
    namespace: String,
}

/// Of the statistics of files.
#[derive(Debug, Deserialize)]
struct Statistics {
    files: u64,
}

impl ForebaySource {
    /// Creates the source with these settings; sends nothing yet.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self { settings }
    }
}

/// The parameters in a stream's name.
///
/// * `of`: what they filter.
///
/// # Errors
/// One is none of the known ones.
pub(super) fn parameters(text: &str, of: &str, known: &[&str]) -> Result<Vec<(String, String)>> {
    let pairs: Vec<(String, String)> =
        url::form_urlencoded::parse(text.as_bytes()).into_owned().collect();
    match pairs.iter().find(|(name, _)| !known.contains(&name.as_str())) {
        None => Ok(pairs),
        Some((unknown, _)) => Err(ConnectorError::unsupported(
            format!("{of} cannot be filtered by {unknown:?}"),
            format!("filter by {}", known.join(", ")),
        )),
    }
}

/// The only unit of what is read completely in each run.
///
/// * `what`: the beginning of a sentence, for messages.
///
/// # Errors
/// The stream is to be read in another way.
pub(super) fn whole(
    stream: &StreamSettings,
    opening: &Opening,
    rows: Option<u64>,
    what: &str,
) -> Result<Vec<Unit>> {
    if stream.sync_mode != SyncMode::FullRefresh {
        return Err(ConnectorError::unsupported(
            format!("{what} read completely in each run: nothing shows what has changed since"),
            "set `sync_mode: full_refresh`, and `write_mode: replace` to have what there is",
        ));
    }
    if let Division::As(units) = &opening.division
        && !units.iter().map(|unit| &*unit.name).eq([ALL])
    {
        return Err(ConnectorError::unsupported(
            format!("units of the last run do not belong to {}", stream.name),
            "run again with `--from-scratch`",
        ));
    }
    Ok(vec![Unit { name: ALL.into(), from: None, to: None, rows, bytes: None }])
}

/// Whether a stream's name is this one, or a part of it.
fn is_of(name: &str, stream: &str) -> bool {
    name.strip_prefix(stream).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

async fn namespaces(server: &Server) -> Result<Vec<String>> {
    let found: Namespaces = server.json("list documents", &["v1", "documents"]).await?;
    Ok(found.namespaces.into_iter().map(|listed| listed.namespace).collect())
}

/// A stream that was found.
pub(super) fn described(
    name: String,
    columns: &[Column],
    key: &[&str],
    rows: u64,
    bytes: Option<u64>,
) -> Discovered {
    let columns = columns.iter().map(|column| DiscoveredColumn {
        name: column.name.clone(),
        sql_type: column.sql_type.clone(),
        nullable: column.nullable,
        note: None,
    });
    let columns = columns.collect();
    Discovered {
        name,
        columns,
        primary_key: key.iter().map(|&name| name.to_owned()).collect(),
        rows: Some(rows),
        bytes,
    }
}

#[async_trait]
impl Source for ForebaySource {
    async fn check(&self) -> Result<String> {
        let server = Server::new(&self.settings)?;
        let collections = namespaces(&server).await?.len();
        let events = Stats::of(&server).await?.events;
        Ok(format!("{}: {collections} collections, {events} events", server.name()))
    }

    async fn discover(&self) -> Result<Vec<Discovered>> {
        let server = Server::new(&self.settings)?;
        let mut discovered = Vec::new();
        for name in namespaces(&server).await? {
            let found = Namespace::of(&server, &name).await?;
            let name = format!("{COLLECTIONS}{name}");
            discovered.push(described(name, &found.columns, &["id"], found.count, None));
        }
        let stats = Stats::of(&server).await?;
        let columns = events::columns(self.settings.event_hashes);
        let bytes = Some(stats.bytes());
        discovered.push(described("events".into(), &columns, &["position"], stats.events, bytes));
        let found: Statistics = server.json("count files", &["v1", "files", "statistics"]).await?;
        let (columns, key) = (files::columns(), ["namespace", "name"]);
        discovered.push(described("files".into(), &columns, &key, found.files, None));
        discovered.extend(inventories::discovered(&server).await?);
        Ok(discovered)
    }

    async fn open(
        &self,
        stream: &StreamSettings,
        opening: &Opening,
        context: &Context,
    ) -> Result<Arc<dyn SourceStream>> {
        let server = Server::new(&self.settings)?;
        let begun = Instant::now();
        let opened: Arc<dyn SourceStream> = if let Some(name) =
            stream.name.strip_prefix(COLLECTIONS)
        {
            let namespace = Namespace::of(&server, name).await?;
            Arc::new(DocumentStream::open(namespace, stream, opening).await?)
        } else if is_of(&stream.name, "events") {
            Arc::new(EventStream::open(&server, stream, opening).await?)
        } else if is_of(&stream.name, "files") {
            Arc::new(FileStream::open(&server, stream, opening).await?)
        } else if stream.name.starts_with(INVENTORIES) {
            Arc::new(InventoryStream::open(&server, stream, opening).await?)
        } else {
            return Err(ConnectorError::unsupported(
                format!("a Forebay has no stream {:?}", stream.name),
                "specify collections/NAMESPACE, events, events/STREAM, events/type=TYPE, files, files/NAMESPACE or \
                 inventories/NAME",
            ));
        };
        context.phases.add(Phase::Query, begun);
        Ok(opened)
    }
}
