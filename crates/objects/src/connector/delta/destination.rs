//! Delta tables as a destination.

use std::sync::Arc;

use async_trait::async_trait;
use forebay_pgcopy::Column;
use forebay_sdk::bridge::blocking;
use forebay_sdk::connector::{Claim, Destination, Form, LedgerEntry, Load, Result, Target};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::run::Context;
use forebay_sdk::settings::{TargetSettings, WriteMode};
use parquet::file::properties::WriterProperties;

use super::super::bucket::BucketStore;
use super::super::disk::Disk;
use super::super::ledger::directory_name;
use super::super::location::{At, Location};
use super::super::parquet::properties;
use super::super::settings::{DeltaDestination, KeepRemoved};
use super::super::store::{Room, Store};
use super::commit::{Change, Known};
use super::ledger::{encode, load_domain};
use super::removed::Upkeep;
use super::table::Table;
use super::target::{TableTarget, entries};

/// The destination of tables below one directory.
#[derive(Debug, Clone)]
pub(in super::super) struct DeltaTables {
    at: At,
    properties: WriterProperties,
    upkeep: Upkeep,
}

/// Keeps other runs away until it is dropped.
struct Claimed {
    _held: Box<dyn std::any::Any + Send + Sync>,
}

impl Claim for Claimed {}

impl DeltaTables {
    pub(in super::super) fn new(settings: &DeltaDestination) -> Self {
        let properties = properties(settings.compression, settings.row_group_size);
        let upkeep = Upkeep {
            merge_files: settings.merge_files.get(),
            keep_removed: settings.keep_removed.map(KeepRemoved::get),
        };
        Self { at: settings.at(), properties, upkeep }
    }

    /// Creates the destination at a place that is already open.
    #[cfg(test)]
    pub(in super::super) fn at(place: Location) -> Self {
        let properties = WriterProperties::builder().build();
        Self { at: At::Open(place), properties, upkeep: Upkeep::default() }
    }

    /// The same with other upkeep.
    #[cfg(test)]
    pub(super) fn keeping(self, upkeep: Upkeep) -> Self {
        Self { upkeep, ..self }
    }

    fn store(&self, target: &TargetSettings) -> Result<Arc<dyn Store>> {
        let directory = directory_name(&target.into)?;
        match self.at.place()? {
            Location::Disk(path, within) => Ok(Arc::new(Disk::new(&path, &directory, within))),
            Location::Bucket(bucket) => Ok(Arc::new(BucketStore::new(bucket, &directory))),
        }
    }

    fn table(&self, target: &TargetSettings) -> Result<Table> {
        Table::open(self.store(target)?.place(Room::Shown))
    }
}

#[async_trait]
impl Destination for DeltaTables {
    async fn check(&self) -> Result<String> {
        let place = self.at.place()?;
        blocking(move || place.check_writable()).await
    }

    fn form(&self) -> Form {
        Form::PlainRecords
    }

    async fn last_load(&self, target: &TargetSettings) -> Result<Option<(Load, Vec<LedgerEntry>)>> {
        let (tables, target) = (self.clone(), target.clone());
        blocking(move || {
            let state = tables.table(&target)?.state(&target)?;
            let Some(mut ledger) = state.map(|state| state.ledger) else { return Ok(None) };
            let load = ledger.head.take().and_then(|head| head.load);
            Ok(load.map(|load| (load, entries(ledger))))
        })
        .await
    }

    async fn forget(&self, target: &TargetSettings) -> Result<u64> {
        let (tables, target) = (self.clone(), target.clone());
        blocking(move || {
            let table = tables.table(&target)?;
            let Some(state) = table.state(&target)? else { return Ok(0) };
            let head = state.ledger.head.as_ref().filter(|head| head.load.is_some());
            let Some(head) = head else { return Ok(0) };
            // What a record keeps beyond its load: the number of runs, and the files of dead letters.
            let next = head.forgotten(state.ledger.dead().cloned().collect(), state.version + 1);
            let removed = state.ledger.units.keys().cloned().collect();
            let record = (load_domain(&target), encode(&next)?);
            let change = Change { record, removed, ..Change::default() };
            table.commit(&mut Known::new(&state, None), &change, &target)?;
            Ok(1)
        })
        .await
    }

    async fn claim(&self, target: &TargetSettings) -> Result<Box<dyn Claim>> {
        let held = self.store(target)?.claim().await?;
        Ok(Box::new(Claimed { _held: held }))
    }

    async fn open(
        &self,
        target: &TargetSettings,
        columns: &[Column],
        context: &Context,
    ) -> Result<Arc<dyn Target>> {
        let store = self.store(target)?;
        if target.write_mode == WriteMode::Upsert {
            let place = store.display(Room::Shown, "");
            return Err(ConnectorError::unsupported(
                format!("rows of {place} cannot be replaced by their key"),
                "use `write_mode: append` or `replace`, or a database for `upsert`",
            ));
        }
        let (writing, target) = ((self.properties.clone(), self.upkeep), target.clone());
        let (columns, context) = (columns.to_vec(), context.clone());
        blocking(move || {
            let table = Table::open(store.place(Room::Shown))?;
            let opened = TableTarget::open(store, &table, writing, &target, &columns, &context)?;
            Ok(Arc::new(opened) as Arc<dyn Target>)
        })
        .await
    }
}
