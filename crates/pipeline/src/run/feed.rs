//! A run of a feed: the tables are copied once, then every change is applied in the order of commits.
//!
//! Invariants:
//! - What the destination records is where the run continues; after any failure that is read again.
//! - Only what is recorded is confirmed, so the source keeps everything else.
//! - A feed whose copy was interrupted is begun again: its snapshot is gone.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use forebay_base::backoff::Backoff;
use forebay_base::clock::{Clock as _, SystemClock};
use forebay_base::error_chain::chain;
use forebay_sdk::ConnectorError;
use forebay_sdk::changes::feed::{
    Applied, Attached, ChangeSource, ChangeStream, Feed, FeedHealth, FeedTarget, FeedWriter, Next,
};
use forebay_sdk::run::{Context, PhaseSeconds};
use forebay_sdk::settings::{FeedForm, OnLost, StreamSettings, SyncMode, TargetSettings};
use futures_util::future::join;
use tokio::time::Interval;

use super::engine::{Options, Pipeline};
use super::report::{FeedReport, Report, StreamReport};
use super::units::within;
use crate::error::RunError;

/// A unit ends with the first change after which it has this many bytes.
const UNIT_SIZE: usize = 16 << 20;

/// How often the lag is recorded.
const LAG_EVERY: Duration = Duration::from_secs(1);

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
            let found = format!("{uses} does not {what}");
            RunError::of(which, ConnectorError::unsupported(found, "use another `sync_mode`"))
        };
        let (source, destination) = (&self.file.source, &self.file.destination);
        let from = self.source.changes();
        let from = from.ok_or_else(|| unable("source", &source.uses, "report changes"))?;
        let to = self.destination.feeds();
        let to = to.ok_or_else(|| unable("destination", &destination.uses, "apply changes"))?;
        if !to.forms().contains(&self.form()) {
            let what = match self.form() {
                FeedForm::Apply => "apply changes",
                FeedForm::Mark => "mark deleted rows",
                FeedForm::Log => "append changes as a log",
            };
            return Err(unable("destination", &destination.uses, what));
        }
        Ok(Ends { source: from, target: to })
    }

    fn form(&self) -> FeedForm {
        self.file.destination.feed_form()
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
                self.continued(&ends, feed, context, &mut reports).await?
            }
            known => self.begin(&ends, known, context, &mut reports).await?,
        };
        self.complete(&mut reports);
        let mut following = Following { feed, report: FeedReport::default(), reports };
        self.follow(&ends, &mut following, options, context).await?;
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
            metrics: context.measures.all(),
        })
    }

    /// Completes the reports of the streams that were copied with those that were not.
    fn complete(&self, reports: &mut Vec<StreamReport>) {
        let mut copied = std::mem::take(reports);
        for stream in &self.file.source.streams {
            let own = copied.iter().position(|report| report.stream == stream.name);
            reports.push(match own {
                Some(at) => copied.swap_remove(at),
                None => StreamReport {
                    stream: stream.name.clone(),
                    into: stream.target().to_owned(),
                    resumed: true,
                    ..StreamReport::default()
                },
            });
        }
    }

    async fn known(&self, ends: &Ends<'_>) -> Result<Option<Feed>, RunError> {
        let known = ends.target.feed(self.file.pipeline.as_str()).await;
        known.map_err(|error| RunError::of("the ledger", error))
    }

    /// The feed that is continued: it has the streams of the file, and those that it did not have are copied.
    ///
    /// Streams that are not in the file any more are refused, since nothing would follow their changes, and so is
    /// another form of changes.
    async fn continued(
        &self,
        ends: &Ends<'_>,
        feed: Feed,
        context: &Context,
        reports: &mut Vec<StreamReport>,
    ) -> Result<Feed, RunError> {
        let failed = |error| RunError::of("changes", error);
        let refused = |found: &str| {
            let way_out = "restore it, or run with `--from-scratch`, which copies the tables again";
            failed(ConnectorError::unsupported(found, way_out))
        };
        if feed.form != self.form() {
            return Err(refused("the feed began with another `write_mode` or `deleted_rows`"));
        }
        let streams = &self.file.source.streams;
        if let Some(gone) =
            feed.streams.iter().find(|known| streams.iter().all(|one| one.name != known.stream))
        {
            let name = &gone.stream;
            return Err(refused(&format!(
                "the feed has the stream {name:?}, and the file does not"
            )));
        }
        let recorded = |name: &str| feed.streams.iter().find(|known| known.stream == name);
        let further = streams.iter().filter(|stream| recorded(&stream.name).is_none());
        let further: Vec<StreamSettings> = further.cloned().collect();
        let mut added = Vec::new();
        if !further.is_empty() {
            let extended = ends.source.extend(&feed.origin, streams, &further).await;
            let extended = extended.map_err(failed)?;
            ends.target.check(&extended.streams, self.form()).map_err(failed)?;
            *reports = self.copy_in(extended.snapshot.id.clone(), &further, context).await?;
            added = extended.streams;
        }
        let names = streams.iter().map(|stream| &stream.name);
        let of_name = |name: &String| {
            let new = added.iter().find(|new| new.stream == *name);
            recorded(name).or(new).cloned()
        };
        let followed = Feed { streams: names.filter_map(of_name).collect(), ..feed.clone() };
        if followed != feed {
            let pipeline = self.file.pipeline.as_str();
            let done = ends.target.record(pipeline, Some(&feed), Some(&followed)).await;
            done.map_err(|error| RunError::of("the ledger", error))?;
        }
        Ok(followed)
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
        let copying = Feed { origin, position: None, streams: Vec::new(), form: self.form() };
        let recorded = ends.target.record(pipeline, known.as_ref(), Some(&copying)).await;
        recorded.map_err(|error| RunError::of("the ledger", error))?;
        let created = ends.source.create(&copying.origin, streams).await.map_err(failed)?;
        if let Err(error) = ends.target.check(&created.streams, self.form()) {
            // What cannot be applied is not kept for it.
            drop(created.snapshot);
            ends.source.remove(&copying.origin).await.map_err(failed)?;
            let forgotten = ends.target.record(pipeline, Some(&copying), None).await;
            forgotten.map_err(|error| RunError::of("the ledger", error))?;
            return Err(failed(error));
        }
        *reports = self.copy_in(created.snapshot.id.clone(), streams, context).await?;
        drop(created.snapshot);
        let feed =
            Feed { position: Some(created.position), streams: created.streams, ..copying.clone() };
        let recorded = ends.target.record(pipeline, Some(&copying), Some(&feed)).await;
        recorded.map_err(|error| RunError::of("the ledger", error))?;
        Ok(feed)
    }

    /// Copies streams in one snapshot.
    async fn copy_in(
        &self,
        snapshot: String,
        copied: &[StreamSettings],
        context: &Context,
    ) -> Result<Vec<StreamReport>, RunError> {
        let options = Options { from_scratch: true, ..Options::default() };
        let mut history = self.history(&options).await?;
        history.snapshot = Some(snapshot);
        let form = self.destination.form();
        let mut streams = self.open(&options, &history, form, context).await?;
        streams.retain(|one| copied.iter().any(|copied| copied.name == one.settings.stream));
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
    ) -> Result<(), RunError> {
        let failed = |error| RunError::of("changes", error);
        let resources = &self.file.resources;
        let mut backoff = Backoff::new(resources.retry_after.get(), Duration::MAX);
        let mut attempts = 0;
        let mut copied_at = None;
        context.moved.begin_following(SystemClock::new().now_ms());
        loop {
            let units = following.report.units;
            let error = match self.attached(ends, following, options, context).await {
                Ok(End::Reached) => return Ok(()),
                Ok(End::Lost(found)) => {
                    // Copies that take longer than the source keeps changes would be repeated for ever.
                    if copied_at.replace(units) == Some(units) {
                        return Err(failed(lost(&format!(
                            "{found}, while the tables were copied"
                        ))));
                    }
                    self.copy_again(ends, following, &found, context).await?;
                    continue;
                }
                Err(error) => error,
            };
            if following.report.units > units {
                attempts = 0;
                backoff = Backoff::new(resources.retry_after.get(), Duration::MAX);
            }
            if !error.is_retryable() || attempts >= resources.max_retries {
                return Err(failed(error));
            }
            attempts += 1;
            let wait = backoff.delay();
            tracing::warn!(attempts, wait = ?wait, error = %chain(&error), "following changes again");
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = context.cancelled() => return Err(failed(ConnectorError::Stopped)),
            }
            // What was committed may be more than what was answered.
            match ends.target.feed(self.file.pipeline.as_str()).await {
                Ok(Some(feed)) if feed.position.is_some() => following.feed = feed,
                Ok(_) => {
                    let found = "the feed is not recorded any more".to_owned();
                    return Err(failed(ConnectorError::data("the ledger", found)));
                }
                Err(error) if error.is_retryable() => {}
                Err(error) => return Err(failed(error)),
            }
        }
    }

    /// Begins the feed again whose changes are lost, if the file says so.
    async fn copy_again(
        &self,
        ends: &Ends<'_>,
        following: &mut Following,
        found: &str,
        context: &Context,
    ) -> Result<(), RunError> {
        if self.file.source.on_lost == OnLost::Fail {
            return Err(RunError::of("changes", lost(found)));
        }
        tracing::warn!(found, "changes are lost; copying the tables again");
        context.warn(&format!("{found}: the tables were copied again"));
        let known = self.known(ends).await?;
        following.feed = self.begin(ends, known, context, &mut following.reports).await?;
        Ok(())
    }

    /// Applies changes until the present, a failure, or the end of the run.
    async fn attached(
        &self,
        ends: &Ends<'_>,
        following: &mut Following,
        options: &Options,
        context: &Context,
    ) -> Result<End, ConnectorError> {
        let streams = &self.file.source.streams;
        // Three are there at once: one is applied, one waits, one is received.
        let unit_size = UNIT_SIZE.min(self.budget() / 3);
        let pipeline = self.file.pipeline.as_str();
        let attached = ends.source.attach(&following.feed, streams, unit_size).await?;
        let mut stream = match attached {
            Attached::Stream(stream) => stream,
            Attached::Lost(found) => return Ok(End::Lost(found)),
        };
        let wanted = stream.present().to_owned();
        following.report.wanted.clone_from(&wanted);
        let mut lag = tokio::time::interval(LAG_EVERY);
        let targets = self.targets();
        let limit = self.file.destination.limits.timeout();
        let opening = ends.target.open(pipeline, &following.feed, &targets);
        let opening = within(limit, "prepare to apply changes".to_owned(), opening);
        let mut writer = measuring(opening, &mut *stream, &mut lag, context).await?;
        loop {
            let position = following.feed.position.clone().unwrap_or_default();
            following.report.position.clone_from(&position);
            if !options.follow && stream.is_reached(&position, &wanted) {
                return Ok(End::Reached);
            }
            let next = tokio::select! {
                next = stream.next() => next?,
                _ = lag.tick() => {
                    measure(&mut *stream, context);
                    continue;
                }
                () = context.cancelled() => return Err(ConnectorError::Stopped),
            };
            let taking = following.take(&mut *writer, next, context);
            let taking = within(limit, format!("apply changes after {position}"), taking);
            let taken = measuring(taking, &mut *stream, &mut lag, context).await?;
            if let Some(position) = taken {
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

    /// What a run of a feed does, for a plan, and the streams of which it copies no rows; `None` for other pipelines.
    pub(super) async fn feed_plan(&self) -> Result<Option<(String, Vec<String>)>, RunError> {
        if !self.is_feed() {
            return Ok(None);
        }
        let known = self.known(&self.ends()?).await?;
        let Some(Feed { position: Some(position), streams, .. }) = known else {
            let begun = "a feed is begun: the rows are copied once, and then changes are applied";
            return Ok(Some((begun.to_owned(), Vec::new())));
        };
        let names = self.file.source.streams.iter().map(|stream| &stream.name);
        let further = names.filter(|name| streams.iter().all(|known| known.stream != **name));
        let further: Vec<&str> = further.map(String::as_str).collect();
        let mut note = format!("changes after {position} are applied");
        if further.is_empty() {
            note.push_str("; the rows are not copied again");
        } else {
            note.push_str(&format!("; {} is copied first", further.join(", ")));
        }
        Ok(Some((note, streams.into_iter().map(|known| known.stream).collect())))
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

/// Why nothing is followed any more.
enum End {
    /// What was there when it began is applied.
    Reached,
    /// The source does not have the changes that follow: why.
    Lost(String),
}

/// Waits for a step of a feed, and records meanwhile how far the feed is behind.
async fn measuring<T>(
    step: impl Future<Output = T>,
    stream: &mut dyn ChangeStream,
    lag: &mut Interval,
    context: &Context,
) -> T {
    tokio::pin!(step);
    loop {
        tokio::select! {
            done = &mut step => return done,
            _ = lag.tick() => measure(stream, context),
        }
    }
}

/// Records how far a feed is behind.
fn measure(stream: &mut dyn ChangeStream, context: &Context) {
    let bytes = stream.lag_bytes().unwrap_or_default();
    context.moved.lag_bytes.store(bytes, Ordering::Relaxed);
    if let Some(current_us) = stream.current_us() {
        context.moved.applied_until(current_us);
    }
}

fn lost(found: &str) -> ConnectorError {
    ConnectorError::unsupported(
        found,
        "changes may be missing: run with `--from-scratch`, which copies the tables again, or set \
         `source.on_lost: copy_again`",
    )
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
                let changes = unit.streams.iter().map(|of| of.changes.count()).sum::<u64>();
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
