//! A run: every stream is claimed, opened, copied unit by unit, and finished.
//!
//! Invariants:
//! * What the destination's ledger lists is not copied again; everything else is. If the outcome of
//!   a commit is unknown, the ledger is read before anything is tried again.
//! * A load continues only with the units it started with, and only if they still have the same
//!   rows.

use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_base::backoff::Backoff;
use forebay_base::error_chain::chain;
use forebay_sdk::ConnectorError;
use forebay_sdk::connector::{
    Claim, Destination, Form, Load, Round, Source, SourceStream, Target, Unit,
};
use forebay_sdk::run::Budget;
use forebay_sdk::run::{Context, PhaseSeconds};
use forebay_sdk::settings::{TargetSettings, WriteMode};
use futures_util::future::join;

use super::open::{Opened, is_complete};
use super::report::{Report, StreamReport};
use super::round::LastLoad;
use super::units::{Copied, Copying, content_of};
use super::{columns, fields};
use crate::config::PipelineFile;
use crate::error::RunError;

/// Options of a run.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Whether to abandon unfinished loads instead of continuing them.
    pub from_scratch: bool,
    /// Name of the run. Once a run with that name is complete, another copies nothing.
    pub once: Option<String>,
    /// Whether a feed is followed until the run is cancelled, and not only up to the present.
    pub follow: bool,
}

/// A pipeline with its connectors.
pub struct Pipeline<'a> {
    pub(super) file: &'a PipelineFile,
    pub(super) source: Arc<dyn Source>,
    pub(super) destination: Arc<dyn Destination>,
}

impl<'a> Pipeline<'a> {
    /// Creates the pipeline of a file; sends nothing yet.
    #[must_use]
    pub fn new(file: &'a PipelineFile) -> Self {
        let source = file.source.connector.source();
        let destination = file.destination.connector.destination();
        Self { file, source, destination }
    }

    /// Runs it.
    ///
    /// # Errors
    /// [`RunError`] with the stream. Committed units stay; the next run continues after them.
    pub async fn run(&self, options: Options, context: &Context) -> Result<Report, RunError> {
        self.check_options(&options)?;
        if self.is_feed() {
            return self.run_feed(&options, context).await;
        }
        let begun = Instant::now();
        let (claims, ()) = join(self.claims(), self.source.warm(context)).await;
        let mut claims = claims?;
        let mut history = self.history(&options).await?;
        let form = self.destination.form();
        let mut streams = self.open(&options, &history, form, context).await?;
        for warning in context.warnings() {
            tracing::warn!(run = &*context.run, "{warning}");
        }
        // See `round`: a failure before a round has started leaves none open.
        streams.sort_by_key(|stream| stream.is_whole);
        let whole = streams.iter().filter(|stream| stream.is_whole);
        history.round.streams = whole.map(|stream| stream.settings.stream.clone()).collect();
        for made in &streams {
            // The results of transforms are not claimed with the streams of the source.
            let name = &made.settings.stream;
            if !self.file.source.streams.iter().any(|stream| &stream.name == name) {
                let claim = self.destination.claim(&made.settings).await;
                claims.push(claim.map_err(|error| RunError::of(name, error))?);
            }
        }
        let budget = self.transit();
        let mut reports = Vec::with_capacity(streams.len());
        for stream in streams {
            let name = stream.settings.stream.clone();
            let report = self.copy(stream, &options, &history.round, &budget, context).await;
            reports.push(report.map_err(|error| RunError::of(&name, error))?);
        }
        drop(claims);
        let moved =
            |what: &std::sync::atomic::AtomicU64| what.load(std::sync::atomic::Ordering::Relaxed);
        Ok(Report {
            run: context.run.to_string(),
            pipeline: self.file.pipeline.as_str().to_owned(),
            rows: reports.iter().map(|report| report.rows).sum(),
            dead: reports.iter().map(|report| report.dead).sum(),
            bytes: moved(&context.moved.bytes_read),
            streams: reports,
            seconds: begun.elapsed().as_secs_f64(),
            phases: PhaseSeconds::from(&*context.phases),
            warnings: context.warnings(),
            feed: None,
            metrics: context.measures.all(),
        })
    }

    /// Refuses options that would have no effect.
    fn check_options(&self, options: &Options) -> Result<(), RunError> {
        let found = match (self.is_feed(), options.follow, &options.once) {
            (false, true, _) => "only changes can be followed; a run without `sync_mode: cdc` ends",
            (true, _, Some(_)) => {
                "changes are applied once in any run; a run of `sync_mode: cdc` has no name"
            }
            _ => return Ok(()),
        };
        let way_out = "leave out this option";
        Err(RunError::of("the run", ConnectorError::unsupported(found, way_out)))
    }

    /// Memory for the batches of a run.
    pub(super) fn transit(&self) -> Budget {
        let resources = &self.file.resources;
        let queued = resources.max_inflight_batches.map_or(u32::MAX, std::num::NonZeroU32::get);
        Budget::new(self.budget()).queued(queued as usize).compressed(resources.compression)
    }

    /// Claims the targets of the source's streams.
    pub(super) async fn claims(&self) -> Result<Vec<Box<dyn Claim>>, RunError> {
        let mut claims = Vec::new();
        for stream in &self.file.source.streams {
            let settings = self.target_settings(&stream.name, stream.target());
            let claim = self.destination.claim(&settings).await;
            claims.push(claim.map_err(|error| RunError::of(&stream.name, error))?);
        }
        Ok(claims)
    }

    /// Maximum size in bytes of the batches of a run.
    pub(super) fn budget(&self) -> usize {
        let limits = [self.file.source.limits, self.file.destination.limits];
        let stages = limits.iter().filter_map(|limits| limits.max_memory);
        let least = stages.fold(self.file.resources.max_memory, std::cmp::Ord::min);
        usize::try_from(least.0).unwrap_or(usize::MAX)
    }

    /// Size of a batch in bytes: small if batches are only passed on, so that they stay in the
    /// processor's cache; larger if each has a cost per column.
    pub(super) fn batch_size(&self, form: Form) -> usize {
        let by_itself = if form == Form::Tuples { 256 << 10 } else { 1 << 20 };
        let said = self.file.resources.max_batch_bytes;
        said.map_or(by_itself, |said| usize::try_from(said.0).unwrap_or(by_itself))
    }

    /// Number of units copied in parallel.
    pub(super) fn parallelism(&self) -> usize {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        self.file.resources.units_at_once(processors)
    }

    pub(super) fn target_settings(&self, stream: &str, into: &str) -> TargetSettings {
        let destination = &self.file.destination;
        TargetSettings {
            pipeline: self.file.pipeline.as_str().to_owned(),
            stream: stream.to_owned(),
            into: into.to_owned(),
            // A feed begins with a copy that takes the place of what is there.
            write_mode: if self.is_feed() { WriteMode::Replace } else { destination.write_mode },
            primary_key: destination.primary_key.clone(),
            on_data_error: destination.on_data_error,
            schema_evolution: destination.schema_evolution,
            load_method: destination.load_method,
            feed: destination.feed_form(),
        }
    }

    /// Ends a load, with retries after transient failures.
    ///
    /// The end may have been committed although its answer was lost. That is asked for after every failure:
    /// a load that is taken for unfinished would be reported as failed, and be copied again by the next run.
    async fn finish(
        &self,
        target: &dyn Target,
        settings: &TargetSettings,
        load: &Load,
        context: &Context,
    ) -> Result<(), ConnectorError> {
        let resources = &self.file.resources;
        let mut backoff = Backoff::new(resources.retry_after.get(), Duration::MAX);
        for attempt in 0.. {
            let Err(error) = target.finish(load).await else { return Ok(()) };
            let is_last = !error.is_retryable() || attempt >= resources.max_retries;
            if !is_last {
                let wait = backoff.delay();
                tracing::warn!(
                    stream = settings.stream, attempt, wait = ?wait,
                    error = %chain(&error), "retrying the end of a load"
                );
                tokio::select! {
                    () = tokio::time::sleep(wait) => {}
                    () = context.cancelled() => return Err(ConnectorError::Stopped),
                }
            }
            match self.destination.last_load(settings).await {
                Ok(Some((last, _))) if last.id == load.id && last.is_finished => return Ok(()),
                Err(unknown) if is_last => {
                    tracing::debug!(error = %chain(&unknown), "could not read the ledger");
                }
                Err(unknown) if !unknown.is_retryable() => return Err(unknown),
                _ => {}
            }
            if is_last {
                return Err(error);
            }
        }
        Err(ConnectorError::Stopped)
    }

    /// Copies a stream.
    pub(super) async fn copy(
        &self,
        opened: Opened,
        options: &Options,
        round: &Round,
        budget: &Budget,
        context: &Context,
    ) -> Result<StreamReport, ConnectorError> {
        let begun = Instant::now();
        let mut report = StreamReport {
            stream: opened.settings.stream.clone(),
            into: opened.settings.into.clone(),
            cursor: opened.stream.cursor().or_else(|| opened.since.clone()),
            ..StreamReport::default()
        };
        if let Some((load, entries)) = opened.finished {
            report.resumed = true;
            report.units_before = entries.len();
            report.content_hash = content_of(&entries)?.to_string();
            report.load = Some(load.id);
            return Ok(report);
        }
        let target = opened.target(self, context).await?;
        let fingerprint =
            columns::fingerprint(&opened.source, opened.stream.columns(), &opened.columns);
        let units = opened.stream.units().to_vec();
        if let Some(load) = &opened.to_end {
            target.prepare(load).await?;
            self.finish(&*target, &opened.settings, load, context).await?;
            report.resumed = true;
        }
        if units.is_empty() && opened.has_history && !opened.is_whole && opened.resumed.is_none() {
            report.seconds = begun.elapsed().as_secs_f64();
            return Ok(report);
        }
        let (load, entries) = match resumable(&opened, &fingerprint, options)? {
            Some(last) => {
                report.resumed = true;
                last
            }
            None => {
                let round = if opened.is_whole { round.clone() } else { Round::default() };
                let load = new_load(&*opened.stream, &units, fingerprint, opened.since, round);
                let cursor = load.cursor.map(|cursor| fields::record(cursor, opened.fields));
                (Load { cursor, ..load }, Vec::new())
            }
        };
        report.cursor.clone_from(&load.cursor);
        report.units_before = entries.len();
        let copying = Copying {
            pipeline: self,
            stream: opened.stream,
            target: Arc::clone(&target),
            settings: &opened.settings,
            load: &load,
            budget,
            context,
        };
        let Copied { units: new, content } = copying.units(&load.units, &entries).await?;
        self.finish(&*target, &opened.settings, &load, context).await?;
        report.units = new.len();
        report.rows = new.iter().map(|done| done.entry.rows).sum();
        report.dead = new.iter().map(|done| done.entry.dead + done.skipped).sum();
        report.content_hash = content.to_string();
        report.load = Some(load.id);
        report.seconds = begun.elapsed().as_secs_f64();
        Ok(report)
    }
}

/// The load that a stream continues, now that its columns are known; `None` if it starts another.
fn resumable(
    opened: &Opened,
    fingerprint: &str,
    options: &Options,
) -> Result<Option<LastLoad>, ConnectorError> {
    let Some(last) = &opened.resumed else { return Ok(None) };
    let (load, _) = last;
    let names = |units: &[Unit]| units.iter().map(|unit| unit.name.clone()).collect::<Vec<_>>();
    let is_append = opened.settings.write_mode == WriteMode::Append;
    let is_complete = is_complete(last);
    // A column that the source has lost is lost: the other ones are still those of the load.
    let is_same = columns::is_same(&load.fingerprint, fingerprint)
        || opened.is_untransformed && columns::is_part(&load.fingerprint, opened.stream.columns());
    // Appended rows are all there, whatever the source has become.
    let what = if !(is_same || is_append && is_complete) {
        "columns"
    } else if !is_complete && names(&load.units) != names(opened.stream.units()) {
        "units"
    } else {
        return Ok(Some(last.clone()));
    };
    if options.from_scratch || !is_append {
        return Ok(None);
    }
    Err(ConnectorError::unsupported(
        format!(
            "the {what} of {} changed while load {} was unfinished",
            opened.settings.stream, load.id
        ),
        "restore them and let the load finish, or remove its rows and run `forebay pipeline reset`",
    ))
}

fn new_load(
    stream: &dyn SourceStream,
    units: &[Unit],
    fingerprint: String,
    since: Option<forebay_sdk::connector::Cursor>,
    round: Round,
) -> Load {
    Load {
        id: uuid::Uuid::now_v7().simple().to_string(),
        fingerprint,
        units: units.to_vec(),
        is_stable: stream.units_are_stable(),
        round,
        is_finished: false,
        since,
        cursor: stream.cursor(),
    }
}
