//! A component as a source.
//!
//! One instance opens a stream and stays until its end, since it may hold a snapshot; the units are read by others,
//! which attach to it and are used again. A component that others cannot attach to reads all units itself.
//!
//! Invariant: rows and their content hash are counted here, not by the component.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_sdk::changes::feed::ChangeSource;
use forebay_sdk::component::{
    Become as _, COLUMNS_MAX, Column, PartReader, tuples_hash, tuples_records,
};
use forebay_sdk::connector::{
    Cursor, Discovered, Form, Opening, Result, Source, SourceStream, Unit,
};
use forebay_sdk::run::{Context, Outlet, Phase};
use forebay_sdk::settings::{StreamSettings, SyncMode};
use forebay_sdk::{ConnectorError, Rows};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::inspect::CHANGE_SOURCE;
use crate::instance::{Instance, Loaded, call, instantiate};
use crate::state::Sent;
use crate::wit::source::Opened;
use crate::wit::source_world::SourceConnector;
use crate::wit::types;

/// The role, as what it keeps is recorded.
const ROLE: &str = "source";
/// Units of a stream.
const UNITS_MAX: usize = 100_000;

/// A component as a source.
#[derive(Debug, Clone)]
pub struct WasmSource {
    pub(crate) loaded: Loaded,
    pub(crate) config: Arc<str>,
}

impl WasmSource {
    /// A source with these settings, which were checked.
    #[must_use]
    pub fn new(loaded: Loaded, config: Arc<str>) -> Self {
        Self { loaded, config }
    }

    /// Makes an instance, and discards it: what every call costs besides its work.
    ///
    /// # Errors
    /// The component cannot be started.
    pub async fn instantiate(&self) -> Result<()> {
        self.instance(None).await.map(drop)
    }

    pub(crate) async fn instance(
        &self,
        context: Option<Context>,
    ) -> Result<Instance<SourceConnector>> {
        instantiate!(&self.loaded, context, SourceConnector)
    }
}

#[async_trait]
impl Source for WasmSource {
    async fn check(&self) -> Result<String> {
        let instance = &mut self.instance(None).await?;
        call!(self.loaded, instance, "check", forebay_connector_source.call_check(&self.config))
    }

    async fn discover(&self) -> Result<Vec<Discovered>> {
        let instance = &mut self.instance(None).await?;
        let found = call!(
            self.loaded,
            instance,
            "discover",
            forebay_connector_source.call_discover(&self.config)
        )?;
        Ok(found.into_other())
    }

    async fn place(&self, stream: &StreamSettings) -> Result<Option<String>> {
        let instance = &mut self.instance(None).await?;
        call!(
            self.loaded,
            instance,
            "look up a stream",
            forebay_connector_source.call_place(&self.config, &stream.into())
        )
    }

    fn changes(&self) -> Option<&dyn ChangeSource> {
        self.loaded.exports(CHANGE_SOURCE).then_some(self)
    }

    async fn open(
        &self,
        stream: &StreamSettings,
        opening: &Opening,
        context: &Context,
    ) -> Result<Arc<dyn SourceStream>> {
        let mut keeper = match stream.sync_mode {
            SyncMode::Cdc => self.reading_at(opening.snapshot.as_deref(), context).await?,
            SyncMode::FullRefresh | SyncMode::Incremental => {
                self.instance(Some(context.clone())).await?
            }
        };
        keeper.store.data_mut().stream = Some((ROLE, stream.name.as_str().into()));
        let opened = call!(
            self.loaded,
            &mut keeper,
            "open a stream",
            forebay_connector_source.call_open(&self.config, &stream.into(), &opening.into())
        )?;
        let open = Open::new(self, stream, opening.form, opened, keeper)?;
        Ok(Arc::new(open))
    }
}

/// An open stream.
struct Open {
    source: WasmSource,
    settings: types::StreamSettings,
    handle: Vec<u8>,
    columns: Vec<Column>,
    /// Whether rows may be tuples; otherwise those that the component sends are converted.
    takes_tuples: bool,
    units: Vec<Unit>,
    units_are_stable: bool,
    cursor: Option<Cursor>,
    notes: Vec<String>,
    /// The instance that opened it; `None` after it failed.
    keeper: tokio::sync::Mutex<Option<Instance<SourceConnector>>>,
    /// Instances that are attached and read nothing.
    idle: Mutex<Vec<Instance<SourceConnector>>>,
}

impl Open {
    fn new(
        source: &WasmSource,
        stream: &StreamSettings,
        form: Form,
        opened: Opened,
        keeper: Instance<SourceConnector>,
    ) -> Result<Self> {
        let too_many = |what: &str| {
            let found = format!("the connector {} has too many {what}", source.loaded.name);
            ConnectorError::data(stream.name.clone(), found)
        };
        // Only rows after a cursor may be none: a table without units would be taken for an empty one.
        let may_be_none = stream.sync_mode == SyncMode::Incremental;
        if opened.units.is_empty() && !may_be_none || opened.units.len() > UNITS_MAX {
            return Err(too_many("units, or none"));
        }
        if opened.columns.len() > COLUMNS_MAX {
            return Err(too_many("columns"));
        }
        let columns = opened.columns.into_iter().map(TryInto::try_into).collect::<Result<_>>()?;
        Ok(Self {
            source: source.clone(),
            settings: stream.into(),
            handle: opened.handle,
            columns,
            takes_tuples: form == Form::Tuples,
            units: opened.units.into_other(),
            units_are_stable: opened.units_are_stable,
            cursor: opened.cursor.into_other(),
            notes: opened.notes,
            keeper: tokio::sync::Mutex::new(Some(keeper)),
            idle: Mutex::default(),
        })
    }

    /// An instance that is attached.
    async fn attached(&self, context: &Context) -> Result<Instance<SourceConnector>> {
        if let Some(mut idle) = self.idle.lock().pop() {
            idle.store.data_mut().context = Some(context.clone());
            return Ok(idle);
        }
        let mut instance = self.source.instance(Some(context.clone())).await?;
        instance.store.data_mut().stream = Some((ROLE, self.settings.name.as_str().into()));
        call!(
            self.source.loaded,
            &mut instance,
            "attach to a stream",
            forebay_connector_source.call_attach(&self.source.config, &self.settings, &self.handle)
        )?;
        Ok(instance)
    }

    /// Reads a unit with an instance, which is returned if it can be used again.
    async fn read_with(
        &self,
        mut instance: Instance<SourceConnector>,
        unit: u32,
        out: &mut Outlet,
    ) -> (Result<()>, Option<Instance<SourceConnector>>) {
        let (send, batches) = mpsc::channel(1);
        instance.store.data_mut().batches = Some(send);
        let reading = async {
            let returned = instance
                .world
                .forebay_connector_source()
                .call_read(&mut instance.store, unit)
                .await;
            // The receiver then sees the end.
            instance.store.data_mut().batches = None;
            returned
        };
        let (returned, forwarded) = tokio::join!(reading, self.forward(batches, out));
        let is_usable = returned.is_ok();
        let read = self.source.loaded.answer("read", returned);
        let result = match (forwarded, read) {
            // The component only stopped because its receiver had failed.
            (Err(ConnectorError::Stopped), Err(error)) | (Ok(()), Err(error)) => Err(error),
            (Err(error), _) => Err(error),
            (Ok(()), Ok(())) => Ok(()),
        };
        (result, is_usable.then_some(instance))
    }

    /// Passes on what an instance sends.
    async fn forward(&self, mut batches: mpsc::Receiver<Sent>, out: &mut Outlet) -> Result<()> {
        let mut parts = PartReader::new(&self.columns);
        while let Some(Sent { rows, dead }) = batches.recv().await {
            let begun = std::time::Instant::now();
            let made = match rows {
                types::Rows::Tuples(tuples) if !self.takes_tuples => {
                    tuples_records(&tuples, &self.columns)?
                        .map(|(records, _)| (Rows::Records(records), None))
                }
                types::Rows::Tuples(tuples) => {
                    let hash = tuples_hash(&tuples, self.columns.len())?;
                    Some((Rows::Tuples(Bytes::from(tuples), hash), Some(hash)))
                }
                types::Rows::Records(part) => {
                    parts.records(part)?.map(|records| (Rows::Records(records), None))
                }
            };
            out.context().phases.add(Phase::Decode, begun);
            match made {
                Some((rows, Some(hash))) if dead.is_empty() => out.send_hashed(rows, hash).await?,
                Some((rows, _)) => out.send_with_dead(rows, dead).await?,
                None if dead.is_empty() => {}
                None => {
                    let found = "dead letters came without rows";
                    return Err(ConnectorError::data(self.source.loaded.name.to_string(), found));
                }
            }
        }
        Ok(())
    }
}

#[async_trait]
impl SourceStream for Open {
    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn units(&self) -> &[Unit] {
        &self.units
    }

    fn units_are_stable(&self) -> bool {
        self.units_are_stable
    }

    fn cursor(&self) -> Option<Cursor> {
        self.cursor.clone()
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = vec![format!("read by the component {}", self.source.loaded.name)];
        notes.extend(self.notes.iter().cloned());
        notes
    }

    async fn read(&self, unit: usize, out: &mut Outlet) -> Result<()> {
        let index = u32::try_from(unit).unwrap_or(u32::MAX);
        if self.handle.is_empty() || self.units.len() == 1 {
            let mut keeper = self.keeper.lock().await;
            let lost = || ConnectorError::Busy {
                act: format!("read with the connector {}", self.source.loaded.name),
                source: "the instance that opened the stream has failed; run the pipeline again"
                    .into(),
            };
            let mut instance = keeper.take().ok_or_else(lost)?;
            instance.store.data_mut().context = Some(out.context().clone());
            let (result, instance) = self.read_with(instance, index, out).await;
            *keeper = instance;
            return result;
        }
        let instance = self.attached(out.context()).await?;
        let (result, instance) = self.read_with(instance, index, out).await;
        self.idle.lock().extend(instance);
        result
    }
}
