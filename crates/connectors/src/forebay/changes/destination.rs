//! A Forebay's event store as a destination of changes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use forebay_pgcopy::Column;
use forebay_sdk::changes::feed::{Feed, FeedStream, FeedTarget, FeedWriter};
use forebay_sdk::connector::{Claim, Destination, Form, LedgerEntry, Load, Result, Target};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::run::Context;
use forebay_sdk::settings::{FeedForm, OnDataError, TargetSettings, WriteMode};

use super::super::client::Server;
use super::super::events::Stats;
use super::super::settings::DestinationSettings;
use super::copy::EventsTarget;
use super::event;
use super::record::{Place, RECORDS, Records};
use super::writer::EventsWriter;

/// Maximum size of the name of a stream of events, in bytes.
const STREAM_SIZE_MAX: usize = 255;
/// What the names of streams begin with to which no client can append.
const RESERVED: &str = "_forebay";

/// A Forebay as a destination of changes.
#[derive(Debug, Clone)]
pub struct ForebayDestination {
    settings: DestinationSettings,
    copies: Copies,
}

/// The copies of this run, by pipeline.
#[derive(Debug, Clone, Default)]
pub(super) struct Copies(Arc<Mutex<HashMap<String, Vec<Place>>>>);

impl Copies {
    fn with<T>(&self, act: impl FnOnce(&mut HashMap<String, Vec<Place>>) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Forgets the copies of a pipeline, before others begin.
    fn clear(&self, pipeline: &str) {
        self.with(|all| all.insert(pipeline.to_owned(), Vec::new()));
    }

    /// Adds a copy, in the place of an earlier one of the stream.
    pub(super) fn add(&self, pipeline: &str, place: Place) {
        self.with(|all| {
            let places = all.entry(pipeline.to_owned()).or_default();
            places.retain(|known| known.stream != place.stream);
            places.push(place);
        });
    }

    fn of(&self, pipeline: &str) -> Vec<Place> {
        self.with(|all| all.get(pipeline).cloned().unwrap_or_default())
    }
}

/// Two runs at once are harmless: the store has one event under an id, and of two records one is refused.
struct Unclaimed;

impl Claim for Unclaimed {}

impl ForebayDestination {
    /// Creates the destination with these settings; sends nothing yet.
    #[must_use]
    pub fn new(settings: DestinationSettings) -> Self {
        Self { settings, copies: Copies::default() }
    }

    fn server(&self) -> Result<Server> {
        Server::new(&self.settings.as_source())
    }
}

/// Checks the name of a stream of events, and that what is appended there is a log.
fn check_target(target: &TargetSettings) -> Result<()> {
    let TargetSettings { into, .. } = target;
    if target.feed != FeedForm::Log {
        return Err(ConnectorError::unsupported(
            "events are appended and never changed",
            "use `write_mode: append` with `sync_mode: cdc`, which keeps a log of changes",
        ));
    }
    // The copy of a feed takes the place of what is there: here as the beginning of another log.
    if target.write_mode != WriteMode::Replace {
        let stream = &target.stream;
        return Err(ConnectorError::unsupported(
            format!(
                "{stream:?} is only copied, and the event store as a destination follows changes"
            ),
            "set `sync_mode: cdc`, or send the rows to `/v1/events`",
        ));
    }
    if target.on_data_error != OnDataError::Fail {
        return Err(ConnectorError::unsupported(
            "the event store has no place for rows that are set aside",
            "use `on_data_error: fail`",
        ));
    }
    let is_ours = into.starts_with(RESERVED) || into.starts_with(RECORDS);
    if is_ours || into.is_empty() || into.len() > STREAM_SIZE_MAX {
        return Err(ConnectorError::unsupported(
            format!("{into:?} cannot be the name of a stream of events"),
            format!(
                "give the stream a name of 1 to {STREAM_SIZE_MAX} bytes with `into` that begins with \
                 neither {RESERVED:?} nor {RECORDS:?}"
            ),
        ));
    }
    Ok(())
}

#[async_trait]
impl Destination for ForebayDestination {
    async fn check(&self) -> Result<String> {
        let server = self.server()?;
        let events = Stats::of(&server).await?.events;
        Ok(format!("{}: {events} events", server.name()))
    }

    fn form(&self) -> Form {
        Form::PlainRecords
    }

    fn feeds(&self) -> Option<&dyn FeedTarget> {
        Some(self)
    }

    /// A copy is never continued: its snapshot is gone.
    async fn last_load(&self, _: &TargetSettings) -> Result<Option<(Load, Vec<LedgerEntry>)>> {
        Ok(None)
    }

    async fn claim(&self, _: &TargetSettings) -> Result<Box<dyn Claim>> {
        Ok(Box::new(Unclaimed))
    }

    async fn open(
        &self,
        target: &TargetSettings,
        columns: &[Column],
        context: &Context,
    ) -> Result<Arc<dyn Target>> {
        check_target(target)?;
        let (server, copies) = (self.server()?, self.copies.clone());
        Ok(Arc::new(EventsTarget::new(server, target, columns, context, copies)))
    }
}

#[async_trait]
impl FeedTarget for ForebayDestination {
    fn forms(&self) -> &'static [FeedForm] {
        &[FeedForm::Log]
    }

    fn check(&self, streams: &[FeedStream], _form: FeedForm) -> Result<()> {
        let check = |of: &FeedStream| event::columns(&of.stream, of.columns.iter()).map(drop);
        streams.iter().try_for_each(check)
    }

    async fn feed(&self, pipeline: &str) -> Result<Option<Feed>> {
        Ok(Records::new(self.server()?, pipeline).head().await?.feed)
    }

    async fn record(
        &self,
        pipeline: &str,
        before: Option<&Feed>,
        feed: Option<&Feed>,
    ) -> Result<()> {
        let records = Records::new(self.server()?, pipeline);
        let head = records.head().await?;
        if head.feed.as_ref() != before {
            return Err(Feed::replaced());
        }
        let places = match feed.filter(|feed| feed.position.is_some()) {
            Some(feed) => self.places(pipeline, feed, &head.places)?,
            None => {
                self.copies.clear(pipeline);
                Vec::new()
            }
        };
        records.put(&head, feed.cloned(), places).await.map(drop)
    }

    async fn open(
        &self,
        pipeline: &str,
        feed: &Feed,
        targets: &[TargetSettings],
    ) -> Result<Box<dyn FeedWriter>> {
        targets.iter().try_for_each(check_target)?;
        let server = self.server()?;
        let records = Records::new(server.clone(), pipeline);
        let head = records.head().await?;
        Ok(Box::new(EventsWriter::open(server, records, head, feed, targets)?))
    }
}

impl ForebayDestination {
    /// Where the streams of a feed are: those that were copied in this run, and the others as before.
    fn places(&self, pipeline: &str, feed: &Feed, before: &[Place]) -> Result<Vec<Place>> {
        let copied = self.copies.of(pipeline);
        let place = |stream: &FeedStream| {
            let of = |place: &&Place| place.stream == stream.stream;
            let known = copied.iter().find(of).or_else(|| before.iter().find(of));
            known.cloned().ok_or_else(|| {
                ConnectorError::data(&*stream.stream, "it was not copied".to_owned())
            })
        };
        feed.streams.iter().map(place).collect()
    }
}
