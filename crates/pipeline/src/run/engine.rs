//! A run: every stream claimed, opened, copied unit by unit, finished.
//!
//! Invariants:
//! * What the destination's ledger has is not copied again; what it has not is. Where a commit's outcome
//!   is unknown the ledger is asked before anything is tried again.
//! * A load goes on only with the units it began with, and only if they still mean the same rows.

use std::sync::Arc;
use std::time::Instant;

use forebay_pgcopy::Column;
use serde::Serialize;
use xxhash_rust::xxh3::xxh3_64;

use super::context::{Context, PhaseSeconds};
use super::outlet::Budget;
use super::units::{Copied, Copying};
use crate::config::{PipelineFile, StreamSettings, SyncMode, TargetSettings, WriteMode};
use crate::connector::{
    Claim, Destination, Division, Form, LedgerEntry, Load, Opening, Source, SourceStream, Unit,
};
use crate::error::{ConnectorError, RunError};
use crate::native;
use crate::transform::{self, TransformSettings};

/// How a pipeline is to be run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Forget loads that were not finished, instead of going on with them.
    pub from_scratch: bool,
}

/// What a run did.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Id of the run.
    pub run: String,
    /// Name of the pipeline.
    pub pipeline: String,
    /// Each stream.
    pub streams: Vec<StreamReport>,
    /// Rows that were committed.
    pub rows: u64,
    /// Rows that were put aside or left out.
    pub dead: u64,
    /// Bytes that were read, as batches.
    pub bytes: u64,
    /// How long it took.
    pub seconds: f64,
    /// What it did meanwhile, all tasks together.
    pub phases: PhaseSeconds,
}

/// What a run did with a stream.
#[derive(Debug, Clone, Serialize)]
pub struct StreamReport {
    /// Its name in the source.
    pub stream: String,
    /// Its name in the destination.
    pub into: String,
    /// The load; none where there was nothing to do.
    pub load: Option<String>,
    /// Whether it went on with a load of an earlier run.
    pub resumed: bool,
    /// Units that were committed in this run.
    pub units: usize,
    /// Units that an earlier run had committed.
    pub units_before: usize,
    /// Rows committed in this run.
    pub rows: u64,
    /// Rows put aside or left out in this run.
    pub dead: u64,
    /// The content hash of all rows of the load.
    pub content_hash: String,
    /// How far an incremental stream is now.
    pub cursor: Option<crate::connector::Cursor>,
    /// How long it took.
    pub seconds: f64,
}

/// A pipeline with its connectors.
pub struct Pipeline<'a> {
    pub(super) file: &'a PipelineFile,
    pub(super) source: Arc<dyn Source>,
    pub(super) destination: Arc<dyn Destination>,
}

/// A stream of the source, open, and what is known of where it goes.
pub(super) struct Opened {
    pub(super) stream: Arc<dyn SourceStream>,
    pub(super) settings: TargetSettings,
    /// How it is divided, how its source is opened: what a load has to have in common to go on.
    source: String,
    /// A load to go on with, and what is committed of it.
    resumed: Option<(Load, Vec<LedgerEntry>)>,
    pub(super) since: Option<crate::connector::Cursor>,
    pub(super) form: Form,
    has_history: bool,
}

impl<'a> Pipeline<'a> {
    /// The pipeline of a file; asks nobody yet.
    #[must_use]
    pub fn new(file: &'a PipelineFile) -> Self {
        let source = native::source(&file.source.connector);
        let destination = native::destination(&file.destination.connector);
        Self { file, source, destination }
    }

    /// Runs it.
    ///
    /// # Errors
    /// [`RunError`] with the stream. What was committed stays; the next run goes on after it.
    pub async fn run(&self, options: Options, context: &Context) -> Result<Report, RunError> {
        let begun = Instant::now();
        let mut claims: Vec<Box<dyn Claim>> = Vec::new();
        for stream in &self.file.source.streams {
            let settings = self.target_settings(&stream.name, stream.target());
            let claim = self.destination.claim(&settings).await;
            claims.push(claim.map_err(|error| RunError::of(&stream.name, error))?);
        }
        let streams = self.open(options, self.destination.form(), context).await?;
        for made in &streams {
            // What transforms make goes where no stream of the source does.
            let name = &made.settings.stream;
            if !self.file.source.streams.iter().any(|stream| &stream.name == name) {
                let claim = self.destination.claim(&made.settings).await;
                claims.push(claim.map_err(|error| RunError::of(name, error))?);
            }
        }
        let budget = Budget::new(self.budget());
        let mut reports = Vec::with_capacity(streams.len());
        for stream in streams {
            let name = stream.settings.stream.clone();
            let report = self.copy(stream, options, &budget, context).await;
            reports.push(report.map_err(|error| RunError::of(&name, error))?);
        }
        drop(claims);
        let moved =
            |what: &std::sync::atomic::AtomicU64| what.load(std::sync::atomic::Ordering::Relaxed);
        Ok(Report {
            run: context.run.to_string(),
            pipeline: self.file.pipeline.as_str().to_owned(),
            rows: reports.iter().map(|report| report.rows).sum(),
            dead: moved(&context.moved.rows_dead),
            bytes: moved(&context.moved.bytes_read),
            streams: reports,
            seconds: begun.elapsed().as_secs_f64(),
            phases: PhaseSeconds::from(&*context.phases),
        })
    }

    /// Bytes the batches of a run may take.
    fn budget(&self) -> usize {
        usize::try_from(self.file.resources.max_memory.0).unwrap_or(usize::MAX)
    }

    /// Bytes of a batch: small where it is only handed on, so that it stays in the processor's cache;
    /// larger where each costs something for each of its columns.
    fn batch_size(&self, form: Form) -> usize {
        let by_itself = if form == Form::Tuples { 256 << 10 } else { 1 << 20 };
        let said = self.file.resources.max_batch_bytes;
        said.map_or(by_itself, |said| usize::try_from(said.0).unwrap_or(by_itself))
    }

    /// Units that are copied at once.
    pub(super) fn parallelism(&self) -> usize {
        let machine = || std::thread::available_parallelism().map_or(1, usize::from);
        let said = self.file.resources.parallelism;
        said.map_or_else(machine, |said| usize::try_from(said.get()).unwrap_or(1))
    }

    pub(super) fn target_settings(&self, stream: &str, into: &str) -> TargetSettings {
        let destination = &self.file.destination;
        TargetSettings {
            pipeline: self.file.pipeline.as_str().to_owned(),
            stream: stream.to_owned(),
            into: into.to_owned(),
            write_mode: destination.write_mode,
            primary_key: destination.primary_key.clone(),
            on_data_error: destination.on_data_error,
            schema_evolution: destination.schema_evolution,
            load_method: destination.load_method,
        }
    }

    /// Opens every stream, and puts the transforms around them.
    pub(super) async fn open(
        &self,
        options: Options,
        form: Form,
        context: &Context,
    ) -> Result<Vec<Opened>, RunError> {
        let is_transformed = !self.file.transforms.is_empty();
        let form = match form {
            Form::Tuples if is_transformed => Form::Records,
            other => other,
        };
        let mut opened = Vec::new();
        for stream in &self.file.source.streams {
            let one = self.open_one(stream, options, form, context).await;
            opened.push(one.map_err(|error| RunError::of(&stream.name, error))?);
        }
        if !is_transformed {
            return Ok(opened);
        }
        self.transform(opened, context).await
    }

    async fn transform(
        &self,
        opened: Vec<Opened>,
        context: &Context,
    ) -> Result<Vec<Opened>, RunError> {
        let inputs = opened.iter().map(|one| (one.settings.into.clone(), Arc::clone(&one.stream)));
        let made =
            transform::apply(&self.file.transforms, inputs.collect(), self.budget(), context).await;
        let made = made.map_err(|error| RunError::of("transforms", error))?;
        let mut transformed = Vec::with_capacity(made.len());
        for (into, stream) in made {
            let before = opened.iter().find(|one| one.settings.into == into);
            let settings = match before {
                Some(before) => before.settings.clone(),
                None => self.target_settings(&into, &into),
            };
            let kept = before.filter(|before| before.stream.units() == stream.units());
            transformed.push(Opened {
                source: before.map_or_else(String::new, |before| before.source.clone()),
                resumed: kept.and_then(|kept| kept.resumed.clone()),
                since: before.and_then(|before| before.since.clone()),
                form: Form::Records,
                has_history: before.is_some_and(|before| before.has_history),
                stream,
                settings,
            });
        }
        Ok(transformed)
    }

    async fn open_one(
        &self,
        stream: &StreamSettings,
        options: Options,
        form: Form,
        context: &Context,
    ) -> Result<Opened, ConnectorError> {
        let settings = self.target_settings(&stream.name, stream.target());
        let source = fingerprint_of_settings(stream, &settings, &self.file.transforms);
        let last = self.destination.last_load(&settings).await?;
        let has_history = last.is_some();
        let mut since = None;
        let mut resumed = None;
        if let Some((load, entries)) = last {
            since = if load.is_finished { load.cursor.clone() } else { load.since.clone() };
            let is_copied = entries.len() == load.units.len();
            if !load.is_finished && !entries.is_empty() {
                let is_same = load.fingerprint.starts_with(&source);
                let goes_on = is_same && (load.is_stable || is_copied) && !options.from_scratch;
                if goes_on {
                    resumed = Some((load, entries));
                } else if settings.write_mode == WriteMode::Append {
                    return Err(ConnectorError::unsupported(
                        format!(
                            "{} of {} units of an earlier load are in {} already, and the pipeline was \
                             changed since",
                            entries.len(),
                            load.units.len(),
                            settings.into
                        ),
                        "change it back and let it finish, or remove those rows and `forebay pipeline reset`",
                    ));
                }
            }
        }
        if stream.sync_mode != SyncMode::Incremental {
            since = None;
        }
        let division = match (&resumed, settings.write_mode) {
            (Some((load, _)), _) => Division::As(load.units.clone()),
            (None, WriteMode::Append) => Division::Stable,
            (None, WriteMode::Replace | WriteMode::Upsert) => Division::Any,
        };
        let opening = Opening {
            form,
            since: since.clone(),
            division,
            unit_size: self.file.resources.checkpoint_interval_bytes.0,
            batch_size: self.batch_size(form),
            parallelism: self.parallelism(),
        };
        let open = self.source.open(stream, &opening, context).await?;
        if form == Form::Tuples {
            let target = self.destination.open(&settings, open.columns(), context).await?;
            if !target.takes_tuples() {
                let form = Form::Records;
                let opening = Opening { form, batch_size: self.batch_size(form), ..opening };
                let stream = self.source.open(stream, &opening, context).await?;
                return Ok(Opened {
                    stream,
                    settings,
                    source,
                    resumed,
                    since,
                    form: Form::Records,
                    has_history,
                });
            }
        }
        Ok(Opened { stream: open, settings, source, resumed, since, form, has_history })
    }

    /// Copies a stream.
    async fn copy(
        &self,
        opened: Opened,
        options: Options,
        budget: &Budget,
        context: &Context,
    ) -> Result<StreamReport, ConnectorError> {
        let begun = Instant::now();
        let columns = opened.stream.columns();
        let target = self.destination.open(&opened.settings, columns, context).await?;
        let fingerprint = format!("{}{}", opened.source, fingerprint_of_columns(columns));
        let mut report = StreamReport {
            stream: opened.settings.stream.clone(),
            into: opened.settings.into.clone(),
            load: None,
            resumed: false,
            units: 0,
            units_before: 0,
            rows: 0,
            dead: 0,
            content_hash: String::new(),
            cursor: opened.stream.cursor().or_else(|| opened.since.clone()),
            seconds: 0.0,
        };
        let units = opened.stream.units().to_vec();
        if units.is_empty() && opened.has_history && opened.resumed.is_none() {
            report.seconds = begun.elapsed().as_secs_f64();
            return Ok(report);
        }
        let (load, entries) = match opened.resumed {
            Some((load, entries)) if load.fingerprint == fingerprint => {
                report.resumed = true;
                (load, entries)
            }
            Some((load, _))
                if !options.from_scratch && opened.settings.write_mode == WriteMode::Append =>
            {
                return Err(ConnectorError::unsupported(
                    format!(
                        "the columns of {} changed while load {} was not finished",
                        report.stream, load.id
                    ),
                    "change them back and let it finish, or remove its rows and `forebay pipeline reset`",
                ));
            }
            _ => (new_load(&*opened.stream, &units, fingerprint, opened.since), Vec::new()),
        };
        report.cursor.clone_from(&load.cursor);
        target.prepare(&load).await?;
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
        let Copied { entries: new, content } = copying.units(&units, &entries).await?;
        target.finish(&load).await?;
        report.units = new.len();
        report.rows = new.iter().map(|entry| entry.rows).sum();
        report.dead = new.iter().map(|entry| entry.dead).sum();
        report.content_hash = content.to_string();
        report.load = Some(load.id);
        report.seconds = begun.elapsed().as_secs_f64();
        Ok(report)
    }
}

fn new_load(
    stream: &dyn SourceStream,
    units: &[Unit],
    fingerprint: String,
    since: Option<crate::connector::Cursor>,
) -> Load {
    Load {
        id: uuid::Uuid::now_v7().simple().to_string(),
        fingerprint,
        units: units.to_vec(),
        is_stable: stream.units_are_stable(),
        is_finished: false,
        since,
        cursor: stream.cursor(),
    }
}

/// What a load has to have in common with another to go on, but for its columns.
fn fingerprint_of_settings(
    stream: &StreamSettings,
    target: &TargetSettings,
    transforms: &[TransformSettings],
) -> String {
    let said = format!(
        "{:?} {:?} {:?} {:?} {:?} {:?} {}",
        stream.sync_mode,
        stream.cursor_field,
        stream.tie_breaker_field,
        stream.partition_key,
        target.into,
        target.write_mode,
        transform::fingerprint(transforms)
    );
    format!("{:016x}", xxh3_64(said.as_bytes()))
}

fn fingerprint_of_columns(columns: &[Column]) -> String {
    let said: String =
        columns.iter().map(|column| format!("{:?} {:?};", column.name, column.sql_type)).collect();
    format!("{:016x}", xxh3_64(said.as_bytes()))
}
