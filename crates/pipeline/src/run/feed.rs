//! A run of a feed: the tables are copied once, then every change is applied in the order of commits.
//!
//! Invariants:
//! - What the destination records is where the run continues; after any failure that is read again.
//! - Only what is recorded is confirmed, so the source keeps everything else.
//! - A feed whose copy was interrupted is begun again: its snapshot is gone.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use forebay_base::backoff::Backoff;
use forebay_base::error_chain::chain;
use forebay_sdk::ConnectorError;
use forebay_sdk::changes::feed::{
    Applied, ChangeSource, Feed, FeedHealth, FeedTarget, FeedWriter, Next,
};
use forebay_sdk::run::{Context, PhaseSeconds};
use forebay_sdk::settings::{SyncMode, TargetSettings};
use futures_util::future::join;

use super::engine::{Options, Pipeline};
use super::report::{FeedReport, Report, StreamReport};
use crate::error::RunError;

/// A unit ends with the first change after which it has this many bytes.
const UNIT_SIZE: usize = 16 << 20;

/// The two ends of a feed.
struct Ends<'a> {
    source: &'a dyn ChangeSource,
    target: &'a dyn FeedTarget,
}

impl Pipeline<'_> {
    /// Whether the pipeline follows changes.
    pub(super) fn is_feed(&self) -> bool {
        self.file.source.streams.iter().any(|stream| stream.sync_mode == SyncMode::Cdc)
    }

    fn ends(&self) -> Result<Ends<'_>, RunError> {
        let unable = |which: &str, uses: &str, what: &str| {
            let found = format!("{uses} does not {what} changes");
            RunError::of(which, ConnectorError::unsupported(found, "use another `sync_mode`"))
        };
        let (source, destination) = (&self.file.source, &self.file.destination);
        Ok(Ends {
            source: self
                .source
                .changes()
                .ok_or_else(|| unable("source", &source.uses, "report"))?,
            target: self
                .destination
                .feeds()
                .ok_or_else(|| unable("destination", &destination.uses, "apply"))?,
        })
    }

    fn targets(&self) -> Vec<TargetSettings> {
        let streams = self.file.source.streams.iter();
        streams.map(|stream| self.target_settings(&stream.name, stream.target())).collect()
    }

    /// Runs the feed up to the present, or until it is cancelled.
    pub(super) async fn run_feed(
        &self,
        options: &Options,
        context: &Context,
    ) -> Result<Report, RunError> {
        let begun = Instant::now();
        let ends = self.ends()?;
        let (claims, ()) = join(self.claims(), self.source.warm(context)).await;
        let _claims = claims?;
        let mut reports = Vec::new();
        let feed = match self.known(&ends).await? {
            Some(feed) if feed.position.is_some() && !options.from_scratch => {
                self.check_streams(&feed)?;
                feed
            }
            known => self.begin(&ends, known, context, &mut reports).await?,
        };
        if reports.is_empty() {
            reports = self
                .file
                .source
                .streams
                .iter()
                .map(|stream| StreamReport {
                    stream: stream.name.clone(),
                    into: stream.target().to_owned(),
                    resumed: true,
                    ..StreamReport::default()
                })
                .collect();
        }
        let mut following = Following { feed, report: FeedReport::default(), reports };
        let followed = self.follow(&ends, &mut following, options, context).await;
        followed.map_err(|error| RunError::of("changes", error))?;
        let Following { report, reports, .. } = following;
        Ok(Report {
            run: context.run.to_string(),
            pipeline: self.file.pipeline.as_str().to_owned(),
            rows: reports.iter().map(|report| report.rows).sum(),
            dead: 0,
            bytes: context.moved.bytes_read.load(Ordering::Relaxed),
            streams: reports,
            seconds: begun.elapsed().as_secs_f64(),
            phases: PhaseSeconds::from(&*context.phases),
            warnings: context.warnings(),
            feed: Some(report),
        })
    }

    async fn known(&self, ends: &Ends<'_>) -> Result<Option<Feed>, RunError> {
        let known = ends.target.feed(self.file.pipeline.as_str()).await;
        known.map_err(|error| RunError::of("the ledger", error))
    }

    /// Refuses other streams than those of the feed: their rows would be missing.
    fn check_streams(&self, feed: &Feed) -> Result<(), RunError> {
        let streams = self.file.source.streams.iter().map(|stream| &stream.name);
        if streams.clone().eq(feed.streams.iter().map(|stream| &stream.stream)) {
            return Ok(());
        }
        let recorded: Vec<&str> =
            feed.streams.iter().map(|stream| stream.stream.as_str()).collect();
        let error = ConnectorError::unsupported(
            format!("the feed began with other streams: {}", recorded.join(", ")),
            "restore them, or run with `--from-scratch`, which copies the tables again",
        );
        Err(RunError::of("changes", error))
    }

    /// Begins a feed: the source keeps changes from now on, and the tables are copied as they are now.
    async fn begin(
        &self,
        ends: &Ends<'_>,
        known: Option<Feed>,
        context: &Context,
        reports: &mut Vec<StreamReport>,
    ) -> Result<Feed, RunError> {
        let (pipeline, streams) = (self.file.pipeline.as_str(), &self.file.source.streams);
        let failed = |error| RunError::of("changes", error);
        let earlier = known.as_ref().map(|known| &known.origin);
        let origin = ends.source.name(pipeline, streams, earlier).await.map_err(failed)?;
        if let Some(known) = &known {
            ends.source.remove(&known.origin).await.map_err(failed)?;
        }
        // Recorded first, so that what is created below is never left behind unknown.
        let copying = Feed { origin, position: None, streams: Vec::new() };
        let recorded = ends.target.record(pipeline, known.as_ref(), Some(&copying)).await;
        recorded.map_err(|error| RunError::of("the ledger", error))?;
        let created = ends.source.create(&copying.origin, streams).await.map_err(failed)?;
        *reports = self.copy_in(created.snapshot.id.clone(), context).await?;
        drop(created.snapshot);
        let feed =
            Feed { position: Some(created.position), streams: created.streams, ..copying.clone() };
        let recorded = ends.target.record(pipeline, Some(&copying), Some(&feed)).await;
        recorded.map_err(|error| RunError::of("the ledger", error))?;
        Ok(feed)
    }

    /// Copies all streams in one snapshot.
    async fn copy_in(
        &self,
        snapshot: String,
        context: &Context,
    ) -> Result<Vec<StreamReport>, RunError> {
        let options = Options { from_scratch: true, ..Options::default() };
        let mut history = self.history(&options).await?;
        history.snapshot = Some(snapshot);
        let form = self.destination.form();
        let streams = self.open(&options, &history, form, context).await?;
        let budget = self.transit();
        history.round.streams = streams.iter().map(|one| one.settings.stream.clone()).collect();
        let mut reports = Vec::with_capacity(streams.len());
        for stream in streams {
            let name = stream.settings.stream.clone();
            let report = self.copy(stream, &options, &history.round, &budget, context).await;
            reports.push(report.map_err(|error| RunError::of(&name, error))?);
        }
        Ok(reports)
    }

    /// Applies changes, and continues after transient failures with what is recorded.
    async fn follow(
        &self,
        ends: &Ends<'_>,
        following: &mut Following,
        options: &Options,
        context: &Context,
    ) -> Result<(), ConnectorError> {
        let resources = &self.file.resources;
        let mut backoff = Backoff::new(resources.retry_after.get(), Duration::MAX);
        let mut attempts = 0;
        loop {
            let units = following.report.units;
            let error = match self.attached(ends, following, options, context).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            if following.report.units > units {
                attempts = 0;
                backoff = Backoff::new(resources.retry_after.get(), Duration::MAX);
            }
            if !error.is_retryable() || attempts >= resources.max_retries {
                return Err(error);
            }
            attempts += 1;
            let wait = backoff.delay();
            tracing::warn!(attempts, wait = ?wait, error = %chain(&error), "following changes again");
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = context.cancelled() => return Err(ConnectorError::Stopped),
            }
            // What was committed may be more than what was answered.
            match ends.target.feed(self.file.pipeline.as_str()).await {
                Ok(Some(feed)) if feed.position.is_some() => following.feed = feed,
                Ok(_) => {
                    let found = "the feed is not recorded any more".to_owned();
                    return Err(ConnectorError::data("the ledger", found));
                }
                Err(error) if error.is_retryable() => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Applies changes until the present, a failure, or the end of the run.
    async fn attached(
        &self,
        ends: &Ends<'_>,
        following: &mut Following,
        options: &Options,
        context: &Context,
    ) -> Result<(), ConnectorError> {
        let streams = &self.file.source.streams;
        // Three are there at once: one is applied, one waits, one is received.
        let unit_size = UNIT_SIZE.min(self.budget() / 3);
        let pipeline = self.file.pipeline.as_str();
        let mut writer = ends.target.open(pipeline, &following.feed, &self.targets()).await?;
        let mut stream = ends.source.attach(&following.feed, streams, unit_size).await?;
        let wanted = stream.present().to_owned();
        following.report.wanted.clone_from(&wanted);
        loop {
            let position = following.feed.position.clone().unwrap_or_default();
            following.report.position.clone_from(&position);
            if !options.follow && stream.is_reached(&position, &wanted) {
                return Ok(());
            }
            let next = tokio::select! {
                next = stream.next() => next?,
                () = context.cancelled() => return Err(ConnectorError::Stopped),
            };
            if let Some(position) = following.take(&mut *writer, next, context).await? {
                stream.confirm(&position).await?;
                following.feed.position = Some(position);
            }
        }
    }

    /// Checks that the source can report changes of the streams, and the destination apply them.
    pub(super) async fn check_feed(&self) -> Result<(), RunError> {
        let ends = self.ends()?;
        let known = self.known(&ends).await?;
        let (pipeline, streams) = (self.file.pipeline.as_str(), &self.file.source.streams);
        let named = ends.source.name(pipeline, streams, known.as_ref().map(|known| &known.origin));
        named.await.map(drop).map_err(|error| RunError::of("source", error))
    }

    /// What a run of a feed does, for a plan; `None` for other pipelines.
    pub(super) async fn feed_note(&self) -> Result<Option<String>, RunError> {
        if !self.is_feed() {
            return Ok(None);
        }
        let known = self.known(&self.ends()?).await?;
        Ok(Some(match known.and_then(|feed| feed.position) {
            Some(position) => {
                format!("changes after {position} are applied; the rows are not copied again")
            }
            None => {
                "a feed is begun: the rows are copied once, and then changes are applied".into()
            }
        }))
    }

    /// How the feed is: what is recorded, and its state at the source.
    ///
    /// # Errors
    /// [`RunError`]: one of the two does not answer.
    pub async fn feed_health(&self) -> Result<Option<(Feed, FeedHealth)>, RunError> {
        let ends = self.ends()?;
        let Some(feed) = self.known(&ends).await? else { return Ok(None) };
        let health = ends.source.health(&feed.origin).await;
        Ok(Some((feed, health.map_err(|error| RunError::of("source", error))?)))
    }

    /// Ends the feed: the source forgets it, and then the destination. The rows stay. Returns whether there was one.
    ///
    /// # Errors
    /// [`RunError`]: it is being read, or one of the two does not answer.
    pub async fn end_feed(&self) -> Result<bool, RunError> {
        let ends = self.ends()?;
        let _claims = self.claims().await?;
        let Some(feed) = self.known(&ends).await? else { return Ok(false) };
        let removed = ends.source.remove(&feed.origin).await;
        removed.map_err(|error| RunError::of("source", error))?;
        let forgotten = ends.target.record(self.file.pipeline.as_str(), Some(&feed), None).await;
        forgotten.map_err(|error| RunError::of("the ledger", error))?;
        Ok(true)
    }
}

/// A feed that is being followed.
struct Following {
    feed: Feed,
    report: FeedReport,
    reports: Vec<StreamReport>,
}

impl Following {
    /// Applies what follows; returns the position that is recorded then.
    async fn take(
        &mut self,
        writer: &mut dyn FeedWriter,
        next: Next,
        context: &Context,
    ) -> Result<Option<String>, ConnectorError> {
        match next {
            Next::Idle { position, at_us } => {
                writer.advance(&position).await?;
                context.moved.applied_until(at_us);
                Ok(Some(position))
            }
            Next::Unit(unit) => {
                let (position, commits) = (unit.position.clone(), unit.commits);
                let redefined = unit.redefined.clone();
                let changes = unit.streams.iter().map(|of| of.net.changes()).sum::<u64>();
                let committed_us = unit.committed_us.filter(|_| position.is_some());
                let applied = writer.apply(unit).await?;
                if let Some(at_us) = committed_us {
                    context.moved.applied_until(at_us);
                }
                self.count(&applied, context);
                for (at, redefinition) in redefined {
                    if let Some(stream) = self.feed.streams.get_mut(at) {
                        stream.columns = redefinition.columns;
                    }
                }
                self.report.changes += changes;
                self.report.commits += commits;
                self.report.units += u64::from(position.is_some());
                Ok(position)
            }
        }
    }

    fn count(&mut self, applied: &[Applied], context: &Context) {
        for (report, applied) in self.reports.iter_mut().zip(applied) {
            let rows = applied.inserted + applied.updated + applied.deleted;
            report.rows += rows;
            report.units += usize::from(rows > 0);
            context.moved.rows_committed.fetch_add(rows, Ordering::Relaxed);
            self.report.inserted += applied.inserted;
            self.report.updated += applied.updated;
            self.report.deleted += applied.deleted;
        }
        context.moved.units_committed.fetch_add(1, Ordering::Relaxed);
    }
}
