//! A collection that a stream is written to.
//!
//! With `replace`, documents are written to a separate collection, which replaces the old one by a
//! rename when the load is finished. The ledger records that first, so that a run that is killed in
//! between knows why the separate one is gone. Servers that cannot rename over a collection drop it
//! first: for that moment there is none.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use async_trait::async_trait;
use forebay_pgcopy::column::schema;
use forebay_pgcopy::{Column, ContentHash, Wire};
use forebay_sdk::connector::{Load, Result, Target, Unit, UnitWriter};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::hash::Hasher;
use forebay_sdk::run::Context;
use forebay_sdk::settings::{FeedForm, TargetSettings, WriteMode};
use futures_util::TryStreamExt as _;
use mongodb::bson::raw::RawDocument;
use mongodb::bson::{Bson, Document, RawDocumentBuf, doc};
use mongodb::{Collection, IndexModel};

use super::claim::Held;
use super::connect::{Server, is_not_found, is_not_implemented, refused};
use super::decode::{Decoder, How, shown_id};
use super::encode::Forms;
use super::feed::DELETED_AT;
use super::ledger::{Entry, Known, Ledger};
use super::names::{self, OURS, digits_of};
use super::writer::MongoWriter;
use crate::settings::Json;

/// Number of documents hashed at once.
const HASHED_ROWS: usize = 8 << 10;

/// A collection that a stream is written to.
pub(super) struct MongoTarget {
    shared: Arc<Shared>,
    plan: Vec<String>,
}

/// State shared by a target and its writers.
pub(super) struct Shared {
    pub(super) server: Server,
    pub(super) settings: TargetSettings,
    /// The collection that readers see.
    pub(super) collection: String,
    pub(super) columns: Vec<Column>,
    pub(super) forms: Forms,
    pub(super) ledger: Ledger,
    pub(super) context: Context,
    held: Option<Arc<Held>>,
}

impl MongoTarget {
    pub(super) async fn open(
        server: Server,
        settings: &TargetSettings,
        columns: Vec<Column>,
        held: Option<Arc<Held>>,
        context: &Context,
    ) -> Result<Self> {
        names::check_columns(&columns)?;
        let collection = names::collection(&settings.into)?;
        check_key(settings, &columns)?;
        let shared = Shared {
            forms: Forms::of(server.settings()),
            ledger: Ledger::new(&server, settings),
            settings: settings.clone(),
            context: context.clone(),
            collection,
            columns,
            held,
            server,
        };
        let plan = shared.plan().await?;
        Ok(Self { shared: Arc::new(shared), plan })
    }
}

/// Checks that documents can be identified as the write mode requires.
fn check_key(settings: &TargetSettings, columns: &[Column]) -> Result<()> {
    let has = |name: &str| columns.iter().any(|column| column.name == name);
    if settings.write_mode == WriteMode::Append && has("_id") {
        return Err(ConnectorError::unsupported(
            "rows with their own `_id` cannot be appended: after an interruption they could not be \
             distinguished from older rows",
            "set `write_mode: upsert` with `primary_key: [_id]`, or rename the column in a \
             transform",
        ));
    }
    if settings.write_mode != WriteMode::Upsert {
        return Ok(());
    }
    if let Some(key) = settings.primary_key.iter().find(|key| !has(key)) {
        return Err(ConnectorError::unsupported(
            format!("the key column {key:?} is not in the stream"),
            "set `primary_key` to columns of the stream",
        ));
    }
    if has("_id") && settings.primary_key != ["_id"] {
        return Err(ConnectorError::unsupported(
            "rows with their own `_id` have no other key",
            "set `primary_key: [_id]`, or rename the column in a transform",
        ));
    }
    Ok(())
}

/// Prefix of the collections that will replace another one.
fn next_prefix(settings: &TargetSettings) -> String {
    format!("{OURS}next_{}_", digits_of(&[&settings.into]))
}

/// The collection that will replace the current one. Each load has a separate one, so that no
/// command of an abandoned load reaches it.
fn next_collection(settings: &TargetSettings, load: &str) -> String {
    format!("{}{}", next_prefix(settings), digits_of(&[load]))
}

/// Prefix of the collections in which documents of units wait.
fn staged_prefix(settings: &TargetSettings) -> String {
    format!("{OURS}staged_{}_", digits_of(&[&settings.pipeline, &settings.stream]))
}

/// Removes the remains of loads: documents of uncommitted units, all entries, and waiting
/// collections.
pub(super) async fn clear(
    server: &Server,
    ledger: &Ledger,
    settings: &TargetSettings,
    known: Option<&Known>,
) -> Result<()> {
    let into = known.map_or(settings.into.as_str(), |known| known.into.as_str());
    let of_known = TargetSettings { into: into.to_owned(), ..settings.clone() };
    let collection = names::collection(into)?;
    let ledger_of_known = Ledger::new(server, &of_known);
    sweep(server, ledger, settings).await?;
    ledger.forget_given_up().await?;
    for Entry { unit, load_id, entry } in ledger.entries().await? {
        if entry.is_none() {
            ledger_of_known.give_up(&collection, &load_id, &unit).await?;
        }
        ledger.drop_entry(&unit).await?;
    }
    let left = [next_prefix(settings), next_prefix(&of_known), staged_prefix(settings)];
    drop_all(server, &left).await
}

/// Removes once more what may have arrived since for abandoned units.
async fn sweep(server: &Server, ledger: &Ledger, settings: &TargetSettings) -> Result<()> {
    for (load, unit, into) in ledger.given_up().await? {
        let collection = names::collection(&into)?;
        let of_known = TargetSettings { into, ..settings.clone() };
        Ledger::new(server, &of_known).undo(&collection, &load, &unit).await?;
    }
    Ok(())
}

/// Drops the collections with this prefix.
async fn drop_all(server: &Server, prefixes: &[String]) -> Result<()> {
    let names = server.database().await?.list_collection_names().await;
    for name in names.map_err(|error| refused("list the collections", error))? {
        if prefixes.iter().any(|prefix| name.starts_with(prefix)) {
            drop_collection(server, &name).await?;
        }
    }
    Ok(())
}

/// Drops a collection if it exists.
pub(super) async fn drop_collection(server: &Server, name: &str) -> Result<()> {
    let dropped = server.database().await?.run_command(doc! { "drop": name }).await;
    match dropped {
        Err(error) if !is_not_found(&error) => Err(refused(format!("drop {name}"), error)),
        _ => Ok(()),
    }
}

/// The indexes of a collection; none if it does not exist.
pub(super) async fn indexes(server: &Server, name: &str) -> Result<Vec<IndexModel>> {
    let act = |error| refused(format!("list the indexes of {name}"), error);
    match server.database().await?.collection::<Document>(name).list_indexes().await {
        Ok(found) => found.try_collect().await.map_err(act),
        Err(error) if is_not_found(&error) => Ok(Vec::new()),
        Err(error) => Err(act(error)),
    }
}

/// Whether an index makes a key of these fields unique in a whole collection.
pub(super) fn is_unique_of(index: &IndexModel, key: &[String]) -> bool {
    let wanted: HashSet<&str> = key.iter().map(String::as_str).collect();
    let options = index.options.as_ref();
    let is_unique = options.and_then(|options| options.unique).unwrap_or(false);
    let is_whole = options.is_none_or(|options| options.partial_filter_expression.is_none());
    let keys: HashSet<&str> = index.keys.keys().map(String::as_str).collect();
    is_unique && is_whole && keys == wanted
}

/// Creates a unique index of a key.
pub(super) async fn create_key(server: &Server, collection: &str, key: &[String]) -> Result<()> {
    let keys: Document = key.iter().map(|name| (name.clone(), Bson::Int32(1))).collect();
    let name = format!("forebay_{}", digits_of(&[&key.join(",")]));
    let command = doc! {
        "createIndexes": collection,
        "indexes": [{ "key": keys, "name": name, "unique": true }],
    };
    let act = format!("create a unique index of {collection} for its key");
    server.run(&act, command).await.map(drop)
}

impl Shared {
    /// The collection that a unit's documents are written to.
    pub(super) fn destination(&self, load: &str) -> String {
        match self.settings.write_mode {
            WriteMode::Replace => next_collection(&self.settings, load),
            _ => self.collection.clone(),
        }
    }

    /// A collection in which documents of a unit wait: one for each attempt, for the same reason.
    pub(super) fn staged(&self) -> String {
        format!("{}{}", staged_prefix(&self.settings), uuid::Uuid::new_v4().simple())
    }

    /// Checks that the claim, if there is one, is still held.
    pub(super) fn check_claim(&self) -> Result<()> {
        self.held.as_ref().map_or(Ok(()), |held| held.check())
    }

    pub(super) fn has_own_id(&self) -> bool {
        self.columns.iter().any(|column| column.name == "_id")
    }

    async fn collection(&self, name: &str) -> Result<Collection<RawDocumentBuf>> {
        Ok(self.server.database().await?.collection(name))
    }

    async fn exists(&self, name: &str) -> Result<bool> {
        let names = self.server.database().await?.list_collection_names();
        let names = names.filter(doc! { "name": name }).await;
        Ok(!names.map_err(|error| refused("list the collections", error))?.is_empty())
    }

    /// Whether a unique index is missing that an upsert needs to find documents.
    async fn lacks_key(&self) -> Result<bool> {
        let key = &self.settings.primary_key;
        if self.settings.write_mode != WriteMode::Upsert || *key == ["_id"] {
            return Ok(false);
        }
        let indexes = indexes(&self.server, &self.collection).await?;
        Ok(!indexes.iter().any(|index| is_unique_of(index, key)))
    }

    async fn plan(&self) -> Result<Vec<String>> {
        let (name, mut plan) = (&self.collection, Vec::new());
        if self.settings.write_mode != WriteMode::Replace && !self.exists(name).await? {
            plan.push(format!("create collection {name}"));
        }
        if self.lacks_key().await? {
            let key = self.settings.primary_key.join(", ");
            plan.push(format!("create unique index of {name} ({key})"));
        }
        plan.push(match self.settings.write_mode {
            WriteMode::Append => format!("insert into {name}, many at once, unordered"),
            WriteMode::Upsert => {
                format!("update {name} by key, or insert, many at once, unordered")
            }
            WriteMode::Replace => format!("load into a new collection, then rename it over {name}"),
        });
        plan.extend(self.forms.notes(&self.columns));
        Ok(plan)
    }

    async fn create(&self, name: &str) -> Result<()> {
        if self.exists(name).await? {
            return Ok(());
        }
        self.server.run(&format!("create {name}"), doc! { "create": name }).await.map(drop)
    }

    async fn prepare(&self, load: &Load) -> Result<()> {
        self.check_claim()?;
        let known = self.ledger.load().await?;
        let goes_on = known
            .as_ref()
            .filter(|known| known.load.id == load.id && known.into == self.settings.into);
        let Some(known) = goes_on else {
            clear(&self.server, &self.ledger, &self.settings, known.as_ref()).await?;
            self.create(&self.destination(&load.id)).await?;
            self.create_key().await?;
            return self.ledger.put(load, false).await;
        };
        drop_all(&self.server, &[staged_prefix(&self.settings)]).await?;
        // The interrupted unit is removed now; its entry stays until it is written again.
        for Entry { unit, load_id, entry } in self.ledger.entries().await? {
            if entry.is_none() && self.settings.write_mode != WriteMode::Upsert {
                self.ledger.undo(&self.destination(&load.id), &load_id, &unit).await?;
            }
        }
        match known.swaps {
            true => Ok(()),
            false => self.create(&self.destination(&load.id)).await,
        }
    }

    async fn create_key(&self) -> Result<()> {
        if !self.lacks_key().await? {
            return Ok(());
        }
        create_key(&self.server, &self.collection, &self.settings.primary_key).await
    }

    async fn finish(&self, load: &Load) -> Result<()> {
        self.check_claim()?;
        let known = self.ledger.check(load).await?;
        let load = Load { is_finished: true, ..load.clone() };
        if self.settings.write_mode == WriteMode::Replace && !known.load.is_finished {
            self.replace(&known).await?;
        }
        sweep(&self.server, &self.ledger, &self.settings).await?;
        self.ledger.put(&load, false).await
    }

    /// Replaces the current collection by the loaded one.
    async fn replace(&self, known: &Known) -> Result<()> {
        let next = next_collection(&self.settings, &known.load.id);
        if !self.exists(&next).await? {
            return match known.swaps {
                true => Ok(()),
                false => Err(ConnectorError::Refused {
                    act: format!("replace {}", self.collection),
                    source: format!("the loaded collection {next} no longer exists").into(),
                }),
            };
        }
        if !known.swaps {
            self.copy_indexes(&next).await?;
            self.ledger.put(&known.load, true).await?;
        }
        let database = self.server.database().await?.name();
        let command = doc! {
            "renameCollection": format!("{database}.{next}"),
            "to": format!("{database}.{}", self.collection),
        };
        let admin = self.server.database().await?.client().database("admin");
        let act = |error| refused(format!("rename {next} to {}", self.collection), error);
        let mut over = command.clone();
        over.insert("dropTarget", true);
        match admin.run_command(over).await {
            Err(error) if is_not_implemented(&error) => {
                drop_collection(&self.server, &self.collection).await?;
                admin.run_command(command).await.map(drop).map_err(act)
            }
            renamed => renamed.map(drop).map_err(act),
        }
    }

    /// Gives the loaded collection the indexes of the old one.
    async fn copy_indexes(&self, next: &str) -> Result<()> {
        let there = indexes(&self.server, &self.collection).await?;
        let others = there
            .into_iter()
            .filter(|index| index.keys.len() != 1 || !index.keys.contains_key("_id"))
            .map(|mut index| {
                // The server's own: some servers report one, and refuse it.
                if let Some(options) = &mut index.options {
                    options.version = None;
                }
                index
            });
        let others: Vec<IndexModel> = others.collect();
        if others.is_empty() {
            return Ok(());
        }
        let created = self.collection(next).await?.create_indexes(others).await;
        created.map(drop).map_err(|error| {
            refused(
                format!("copy the indexes of {} to the loaded collection", self.collection),
                error,
            )
        })
    }

    async fn content(&self) -> Result<ContentHash> {
        let act = |error| refused(format!("read {}", self.collection), error);
        let mut hasher = Hasher::new(&self.columns)?;
        let mut projection = doc! { "_id": 1 };
        for column in &self.columns {
            projection.insert(column.name.clone(), 1);
        }
        let find = self.collection(&self.collection).await?;
        let is_live = match self.settings.feed {
            // Rows that were deleted at the source do not count.
            FeedForm::Mark => doc! { DELETED_AT: Bson::Null },
            FeedForm::Apply | FeedForm::Log => doc! {},
        };
        let mut found = find.find(is_live).projection(projection).await.map_err(act)?;
        let mut reader = Reader::new(&self.columns, self.forms.json);
        while found.advance().await.map_err(act)? {
            reader.add(&self.collection, found.current())?;
            if reader.count == HASHED_ROWS {
                hasher.add(&reader.take()?)?;
            }
        }
        hasher.add(&reader.take()?)?;
        Ok(hasher.content())
    }
}

/// Written documents, read back as rows.
pub(super) struct Reader<'a> {
    columns: &'a [Column],
    decoders: Vec<Decoder>,
    pub(super) count: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(columns: &'a [Column], json: Json) -> Self {
        let how = |wire: &Wire| How::written(json, wire);
        let decoders = columns.iter().map(|column| Decoder::new(column, how(&column.wire)));
        Self { columns, decoders: decoders.collect(), count: 0 }
    }

    pub(super) fn add(&mut self, collection: &str, document: &RawDocument) -> Result<()> {
        let place = |name: &str| format!("{collection} {}, field {name:?}", shown_id(document));
        for (decoder, column) in self.decoders.iter_mut().zip(self.columns) {
            let value = document.get(&column.name);
            let value = value
                .map_err(|error| ConnectorError::data(place(&column.name), error.to_string()))?;
            match value {
                None => decoder.null(),
                Some(value) => decoder
                    .append(value)
                    .map_err(|found| ConnectorError::data(place(&column.name), found))?,
            }
        }
        self.count += 1;
        Ok(())
    }

    pub(super) fn take(&mut self) -> Result<RecordBatch> {
        let arrays = self.decoders.iter_mut().map(Decoder::finish).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(self.count));
        self.count = 0;
        RecordBatch::try_new_with_options(Arc::new(schema(self.columns)), arrays, &options)
            .map_err(|error| ConnectorError::data("documents", error.to_string()))
    }
}

#[async_trait]
impl Target for MongoTarget {
    fn plan(&self) -> Vec<String> {
        self.plan.clone()
    }

    fn takes_tuples(&self) -> bool {
        false
    }

    async fn prepare(&self, load: &Load) -> Result<()> {
        self.shared.prepare(load).await
    }

    async fn writer(&self, load: &Load, unit: &Unit) -> Result<Box<dyn UnitWriter>> {
        let writer = MongoWriter::open(Arc::clone(&self.shared), load.clone(), &unit.name);
        Ok(Box::new(writer.await?))
    }

    async fn finish(&self, load: &Load) -> Result<()> {
        self.shared.finish(load).await
    }

    async fn content(&self) -> Result<ContentHash> {
        self.shared.content().await
    }
}
