//! Directories of files as a destination, whatever their format.

use std::sync::Arc;

use async_trait::async_trait;
use forebay_pgcopy::Column;
use forebay_sdk::changes::feed::{Feed, FeedStream, FeedTarget, FeedWriter};
use forebay_sdk::connector::{Claim, Destination, Form, LedgerEntry, Load, Result, Target};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::run::Context;
use forebay_sdk::settings::{
    Evolves, FeedForm, NewColumn, RemovedColumn, TargetSettings, WriteMode,
};

use super::bucket::BucketStore;
use super::disk::Disk;
use super::feed::{self, CopyTarget};
use super::format::Layout;
use super::ledger::directory_name;
use super::location::{At, Location};
use super::store::{Room, Store};
use super::target::{FileTarget, read_ledger};

/// Files are never changed, and their ledger does not record which columns were nullable.
pub(super) const EVOLVES: Evolves = Evolves {
    new_column: &[NewColumn::Add, NewColumn::Ignore, NewColumn::Fail],
    removed_column: &[RemovedColumn::Ignore, RemovedColumn::Fail],
    type_change: &[],
    nullability_change: &[],
    on_replace: false,
};

/// The destination of files of one format.
#[derive(Debug, Clone)]
pub(super) struct FileDestination {
    at: At,
    layout: Arc<dyn Layout>,
}

/// Keeps other runs away until it is dropped.
struct Claimed {
    _held: Box<dyn std::any::Any + Send + Sync>,
}

impl Claim for Claimed {}

impl FileDestination {
    pub(super) fn new(at: At, layout: Arc<dyn Layout>) -> Self {
        Self { at, layout }
    }

    /// Creates the destination at a place that is already open.
    #[cfg(test)]
    pub(super) fn at(place: Location, layout: Arc<dyn Layout>) -> Self {
        Self { at: At::Open(place), layout }
    }

    fn store(&self, target: &TargetSettings) -> Result<Arc<dyn Store>> {
        self.directory(&directory_name(&target.into)?)
    }

    /// The store of a directory of this name.
    fn directory(&self, directory: &str) -> Result<Arc<dyn Store>> {
        match self.at.place()? {
            Location::Disk(path, within) => Ok(Arc::new(Disk::new(&path, directory, within))),
            Location::Bucket(bucket) => Ok(Arc::new(BucketStore::new(bucket, directory))),
        }
    }
}

#[async_trait]
impl Destination for FileDestination {
    async fn check(&self) -> Result<String> {
        let place = self.at.place()?;
        forebay_sdk::bridge::blocking(move || place.check_writable()).await
    }

    fn form(&self) -> Form {
        Form::PlainRecords
    }

    fn feeds(&self) -> Option<&dyn FeedTarget> {
        Some(self)
    }

    async fn last_load(&self, target: &TargetSettings) -> Result<Option<(Load, Vec<LedgerEntry>)>> {
        let store = self.store(target)?;
        let (ledger, _) = read_ledger(&*store, target).await?;
        let mut load = ledger.load;
        if let Some(load) = load.as_mut().filter(|_| ledger.is_switching) {
            // The next run that opens the directory completes the rest.
            load.is_finished = false;
        }
        Ok(load.map(|load| (load, ledger.entries)))
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
            return Err(ConnectorError::unsupported(
                format!("files in {} cannot be changed row by row", store.display(Room::Shown, "")),
                "use `write_mode: append` or `replace`, or a database for `upsert`",
            ));
        }
        let layout = Arc::clone(&self.layout);
        let open = async |columns: &[Column]| {
            FileTarget::open(store, layout, target, columns, context).await
        };
        // Only the copy of a feed replaces what is there and is a log.
        if target.feed == FeedForm::Log && target.write_mode == WriteMode::Replace {
            return Ok(Arc::new(CopyTarget::open(&target.stream, columns, open).await?));
        }
        Ok(Arc::new(open(columns).await?))
    }
}

#[async_trait]
impl FeedTarget for FileDestination {
    fn forms(&self) -> &'static [FeedForm] {
        &[FeedForm::Log]
    }

    fn check(&self, streams: &[FeedStream], _form: FeedForm) -> Result<()> {
        feed::check(streams)
    }

    async fn feed(&self, pipeline: &str) -> Result<Option<Feed>> {
        feed::feed(&*self.directory(&feed::directory(pipeline)?)?, pipeline).await
    }

    async fn record(
        &self,
        pipeline: &str,
        before: Option<&Feed>,
        feed: Option<&Feed>,
    ) -> Result<()> {
        let store = self.directory(&feed::directory(pipeline)?)?;
        feed::record(&*store, pipeline, before, feed).await
    }

    async fn open(
        &self,
        pipeline: &str,
        feed: &Feed,
        targets: &[TargetSettings],
    ) -> Result<Box<dyn FeedWriter>> {
        let store = self.directory(&feed::directory(pipeline)?)?;
        let stream = |target: &TargetSettings| Ok((self.store(target)?, target.clone()));
        let streams = targets.iter().map(stream).collect::<Result<Vec<_>>>()?;
        let layout = Arc::clone(&self.layout);
        feed::open(store, layout, pipeline, feed, streams).await
    }
}
