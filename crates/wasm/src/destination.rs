//! A component as a destination.
//!
//! Each claim and each open target has an instance that stays; units are written by others, which attach to the target
//! and are used again.
//!
//! Invariants: what a component says it has stored is compared with what it was given; a commit that did not return is
//! one whose outcome is unknown.

use std::sync::{Arc, OnceLock};

use arrow::array::RecordBatch;
use async_trait::async_trait;
use forebay_pgcopy::ContentHash;
use forebay_sdk::batch::Batch;
use forebay_sdk::changes::feed::FeedTarget;
use forebay_sdk::component::{Become as _, Column, PartWriter};
use forebay_sdk::connector::{
    Claim, Destination, Form, LedgerEntry, Load, Result, Target, Unit, UnitWriter,
};
use forebay_sdk::hash::Hasher;
use forebay_sdk::run::{Context, Phase};
use forebay_sdk::settings::{FeedForm, TargetSettings};
use forebay_sdk::{ConnectorError, Rows};
use parking_lot::Mutex;

use crate::inspect::CHANGE_TARGET;
use crate::instance::{Instance, Loaded, call, instantiate};
use crate::wit::destination as wit;
use crate::wit::destination_world::DestinationConnector;
use crate::wit::types;

type Own = Instance<DestinationConnector>;

/// The role, as what it keeps is recorded.
const ROLE: &str = "destination";

/// A component as a destination.
#[derive(Debug, Clone)]
pub struct WasmDestination {
    pub(crate) loaded: Loaded,
    pub(crate) config: Arc<str>,
    form: Form,
    /// What it can make of changes.
    pub(crate) forms: Arc<OnceLock<&'static [FeedForm]>>,
}

impl WasmDestination {
    /// A destination with these settings, which were checked.
    #[must_use]
    pub fn new(loaded: Loaded, config: Arc<str>, form: Form) -> Self {
        Self { loaded, config, form, forms: Arc::default() }
    }

    async fn instance(&self, context: Option<Context>) -> Result<Own> {
        instantiate!(&self.loaded, context, DestinationConnector)
    }

    /// An instance that opens a target, or attaches to it.
    async fn opening(&self, form: FeedForm, context: &Context) -> Result<Own> {
        match form {
            FeedForm::Apply => self.instance(Some(context.clone())).await,
            FeedForm::Mark | FeedForm::Log => self.copying_for(form, context).await,
        }
    }
}

#[async_trait]
impl Destination for WasmDestination {
    async fn check(&self) -> Result<String> {
        let instance = &mut self.instance(None).await?;
        call!(
            self.loaded,
            instance,
            "check",
            forebay_connector_destination.call_check(&self.config)
        )
    }

    fn form(&self) -> Form {
        self.form
    }

    async fn last_load(&self, target: &TargetSettings) -> Result<Option<(Load, Vec<LedgerEntry>)>> {
        let instance = &mut self.instance(None).await?;
        let found = call!(
            self.loaded,
            instance,
            "read the ledger",
            forebay_connector_destination.call_last_load(&self.config, &target.into())
        )?;
        Ok(found.map(|found| (found.load.into(), found.entries.into_other())))
    }

    async fn forget(&self, target: &TargetSettings) -> Result<u64> {
        let instance = &mut self.instance(None).await?;
        call!(
            self.loaded,
            instance,
            "delete the records of loads",
            forebay_connector_destination.call_forget(&self.config, &target.into())
        )
    }

    async fn place(&self, target: &TargetSettings) -> Result<Option<String>> {
        let instance = &mut self.instance(None).await?;
        call!(
            self.loaded,
            instance,
            "look up a target",
            forebay_connector_destination.call_place(&self.config, &target.into())
        )
    }

    async fn claim(&self, target: &TargetSettings) -> Result<Box<dyn Claim>> {
        let mut instance = self.instance(None).await?;
        call!(
            self.loaded,
            &mut instance,
            "claim a stream",
            forebay_connector_destination.call_claim(&self.config, &target.into())
        )?;
        Ok(Box::new(Claimed { _instance: Mutex::new(instance) }))
    }

    fn feeds(&self) -> Option<&dyn FeedTarget> {
        self.loaded.exports(CHANGE_TARGET).then_some(self)
    }

    async fn open(
        &self,
        target: &TargetSettings,
        columns: &[Column],
        context: &Context,
    ) -> Result<Arc<dyn Target>> {
        let mut keeper = self.opening(target.feed, context).await?;
        let settings = types::TargetSettings::from(target);
        let of: Vec<types::Column> = columns.iter().map(Into::into).collect();
        keeper.store.data_mut().stream = Some((ROLE, target.stream.as_str().into()));
        let opened = call!(
            self.loaded,
            &mut keeper,
            "open a target",
            forebay_connector_destination.call_open(&self.config, &settings, &of)
        )?;
        let stored = opened
            .stored
            .map(|stored| stored.into_iter().map(TryInto::try_into).collect::<Result<_>>())
            .transpose()?;
        Ok(Arc::new(Open(Arc::new(Shared {
            destination: self.clone(),
            context: context.clone(),
            settings,
            feed: target.feed,
            of,
            columns: columns.to_vec(),
            handle: opened.handle,
            plan: opened.plan,
            takes_tuples: opened.takes_tuples,
            stored,
            into: target.into.clone(),
            keeper: tokio::sync::Mutex::new(keeper),
            idle: Mutex::default(),
        }))))
    }
}

/// A claim: the instance that has it.
struct Claimed {
    // Never locked: an instance is not shared between threads.
    _instance: Mutex<Own>,
}

impl Claim for Claimed {}

/// What the writers of a target share.
struct Shared {
    destination: WasmDestination,
    context: Context,
    settings: types::TargetSettings,
    /// What changes of the stream become.
    feed: FeedForm,
    of: Vec<types::Column>,
    columns: Vec<Column>,
    handle: Vec<u8>,
    plan: Vec<String>,
    takes_tuples: bool,
    stored: Option<Vec<Column>>,
    into: String,
    /// The instance that opened it.
    keeper: tokio::sync::Mutex<Own>,
    /// Instances that are attached and write nothing.
    idle: Mutex<Vec<Own>>,
}

impl Shared {
    fn loaded(&self) -> &Loaded {
        &self.destination.loaded
    }

    /// An instance that is attached.
    async fn attached(&self) -> Result<Own> {
        if let Some(idle) = self.idle.lock().pop() {
            return Ok(idle);
        }
        let mut instance = self.destination.opening(self.feed, &self.context).await?;
        let stream = self.settings.stream.as_str().into();
        instance.store.data_mut().stream = Some((ROLE, stream));
        call!(
            self.loaded(),
            &mut instance,
            "attach to a target",
            forebay_connector_destination.call_attach(
                &self.destination.config,
                &self.settings,
                &self.of,
                &self.handle
            )
        )?;
        Ok(instance)
    }
}

/// An open target.
struct Open(Arc<Shared>);

#[async_trait]
impl Target for Open {
    fn plan(&self) -> Vec<String> {
        let mut plan = vec![format!("-- written by the component {}", self.0.loaded().name)];
        plan.extend(self.0.plan.iter().cloned());
        plan
    }

    fn takes_tuples(&self) -> bool {
        self.0.takes_tuples
    }

    async fn prepare(&self, load: &Load) -> Result<()> {
        let keeper = &mut *self.0.keeper.lock().await;
        call!(
            self.0.loaded(),
            keeper,
            "prepare",
            forebay_connector_destination.call_prepare(&load.clone().into())
        )
    }

    async fn writer(&self, load: &Load, unit: &Unit) -> Result<Box<dyn UnitWriter>> {
        let mut instance = self.0.attached().await?;
        call!(
            self.0.loaded(),
            &mut instance,
            "begin to write a unit",
            forebay_connector_destination.call_begin(&load.clone().into(), &unit.clone().into())
        )?;
        Ok(Box::new(Writer {
            parts: PartWriter::new(&self.0.columns),
            hasher: Hasher::new(&self.0.columns)?,
            given: ContentHash::default(),
            is_whole: self.0.stored.is_none(),
            dead: 0,
            instance,
            shared: Arc::clone(&self.0),
        }))
    }

    async fn finish(&self, load: &Load) -> Result<()> {
        let keeper = &mut *self.0.keeper.lock().await;
        call!(
            self.0.loaded(),
            keeper,
            "finish",
            forebay_connector_destination.call_finish(&load.clone().into())
        )
    }

    fn stored(&self) -> Option<Vec<Column>> {
        self.0.stored.clone()
    }

    fn as_stored(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        let Some(stored) = &self.0.stored else { return Ok(rows.clone()) };
        let schema = rows.schema_ref();
        let indexes = stored.iter().map(|column| schema.index_of(&column.name));
        let chosen = indexes
            .collect::<std::result::Result<Vec<_>, _>>()
            .and_then(|indexes| rows.project(&indexes));
        chosen.map_err(|error| ConnectorError::data(self.0.into.clone(), error.to_string()))
    }

    async fn content(&self) -> Result<ContentHash> {
        let keeper = &mut *self.0.keeper.lock().await;
        let content = call!(
            self.0.loaded(),
            keeper,
            "read a table",
            forebay_connector_destination.call_content()
        )?;
        let sum = u128::from_str_radix(&content.sum, 16).map_err(|error| {
            ConnectorError::data(self.0.into.clone(), format!("the content hash: {error}"))
        })?;
        Ok(ContentHash { rows: content.rows, sum })
    }
}

/// Writes a unit.
struct Writer {
    shared: Arc<Shared>,
    instance: Own,
    parts: PartWriter,
    hasher: Hasher,
    /// The rows that the component was given.
    given: ContentHash,
    /// Whether it stores the columns that it was given.
    is_whole: bool,
    /// Number of dead letters that it was given.
    dead: u64,
}

impl Writer {
    /// Compares what the component says it has stored with what it was given.
    fn compare(&self, entry: &LedgerEntry) -> Result<()> {
        let (given, dead) = (self.given, self.dead);
        let all = entry.rows.checked_add(entry.dead);
        let is_counted = all == given.rows.checked_add(dead);
        let is_same = !self.is_whole || entry.dead != dead || entry.hash == given.to_string();
        if is_counted && is_same {
            return Ok(());
        }
        Err(ConnectorError::data(
            format!("{} ({})", entry.stream, entry.unit),
            format!(
                "the connector {} reports {} rows ({}) and {} dead letters as stored, and was given {} ({}) and \
                 {dead}: what it wrote has to be compared with the source",
                self.shared.loaded().name,
                entry.rows,
                entry.hash,
                entry.dead,
                given.rows,
                given
            ),
        ))
    }
}

#[async_trait]
impl UnitWriter for Writer {
    async fn write(&mut self, batch: Batch) -> Result<()> {
        let begun = std::time::Instant::now();
        let Batch { rows, dead, hash, .. } = batch;
        let (rows, hash) = match rows {
            // Without a copy, where nothing else has them.
            Rows::Tuples(tuples, hash) => (types::Rows::Tuples(tuples.into()), hash),
            Rows::Records(records) => {
                let hash = match hash {
                    Some(hash) => hash,
                    None => {
                        self.hasher.add(&records)?;
                        self.hasher.take()
                    }
                };
                (types::Rows::Records(self.parts.part(&records)?), hash)
            }
        };
        self.given.merge(hash);
        let content = wit::ContentHash { rows: hash.rows, sum: hash.to_string() };
        self.dead = self.dead.saturating_add(dead.len() as u64);
        let dead: Vec<types::DeadRow> = dead.into_other();
        let phases = Arc::clone(&self.shared.context.phases);
        phases.add(Phase::Encode, begun);
        let begun = std::time::Instant::now();
        let written = call!(
            self.shared.loaded(),
            &mut self.instance,
            "write",
            forebay_connector_destination.call_write(&rows, &content, &dead)
        );
        phases.add(Phase::Flush, begun);
        written
    }

    async fn commit(mut self: Box<Self>, entry: LedgerEntry) -> Result<LedgerEntry> {
        let begun = std::time::Instant::now();
        let entry: LedgerEntry = call!(
            self.shared.loaded(),
            &mut self.instance,
            "commit",
            forebay_connector_destination.call_commit(&entry.into())
        )?
        .into();
        self.shared.context.phases.add(Phase::Commit, begun);
        self.compare(&entry)?;
        let Self { shared, instance, .. } = *self;
        shared.idle.lock().push(instance);
        Ok(entry)
    }
}
