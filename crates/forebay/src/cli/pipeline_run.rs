//! `forebay pipeline run`.

use std::convert::Infallible;
use std::fmt;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use forebay_api::pipelines::Alerts;
use forebay_base::error_chain::chain;
use forebay_pipeline::config::PipelineFile;
use forebay_pipeline::error::RunError;
use forebay_pipeline::run::{Options, Pipeline, Report};
use forebay_pipeline::state::{HEARTBEAT, Outcome, State, StateError};
use forebay_sdk::ConnectorError;
use forebay_sdk::run::kept::{Kept, KeptBy, KeptValues};
use forebay_sdk::run::measures::{Measure, MeasureValue};
use forebay_sdk::run::{Cancel, Context};
use forebay_webhooks::SendError;
use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::pipeline::{line, load, runtime_for, state};
use super::settings::DataArgs;
use crate::exit::{Coded, Exit};
use crate::out;
use crate::pipelines::{now_ms, progress, run_name};
use crate::usage::Usage;

const HELP: &str = "\
A unit of rows and the entry that names it are one commit at the destination. A run that is stopped
or killed has copied only complete units; the next run continues with the others. The first SIGINT
or SIGTERM stops the run at the next commit boundary, a second one at once. Neither loses or
duplicates a row.

With `write_mode: append` the next run continues a failed run until all its streams are copied;
streams that are complete are not copied again. A scheduler that retries should give the run a name
(--once 2026-11-21): under one name everything is copied once, however often the command is run.

Examples:
  forebay pipeline init --from postgres --to parquet > orders.yaml
  forebay pipeline run orders.yaml
  forebay pipeline run orders.yaml --json | jq .rows";

#[derive(clap::Args, Debug)]
#[command(after_help = HELP)]
pub(super) struct Args {
    /// The pipeline file.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Start unfinished loads over, instead of continuing them.
    #[arg(long)]
    from_scratch: bool,
    /// Name of this run. If a run of this name has completed, nothing is copied.
    #[arg(long, value_name = "NAME", value_parser = run_name, conflicts_with = "from_scratch")]
    once: Option<String>,
    /// Follow changes until the run is stopped, and not only up to the present (`sync_mode: cdc`).
    #[arg(long, conflicts_with = "once")]
    follow: bool,
    /// Do not record this run.
    #[arg(long)]
    forget: bool,
    /// Print one JSON object with the report at the end.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    data: DataArgs,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    super::pipeline::use_components_of(&args.data)?;
    let file = load(&args.file)?;
    let memory = Memory::open(args, &file)?;
    let id = uuid::Uuid::now_v7().simple().to_string();
    let (mut context, cancel) = Context::new(&id);
    if !args.forget {
        let values = Arc::new(memory.clone());
        context = context.keeping(Kept::new(values, file.pipeline.as_str()));
    }
    memory.begin(&id, file.pipeline.as_str())?;
    let runtime = runtime_for(&file)?;
    let begun = Instant::now();
    let pipeline = Pipeline::new(&file);
    let ended = runtime.block_on(async {
        let watch = Watch { context: &context, memory: &memory, shown: !args.json, begun };
        let options = Options {
            from_scratch: args.from_scratch,
            once: args.once.clone(),
            follow: args.follow,
        };
        let mut alerts = Alerts::of(&file, &context).map_err(Failure::Alerts)?;
        let ended = tokio::select! {
            biased;
            ended = pipeline.run(options, &context) => ended.map_err(Failure::Failed),
            stopped = interrupted(&cancel) => match stopped {
                Ok(()) => Err(Failure::Interrupted),
                Err(error) => Err(Failure::Signals(error)),
            },
            never = watch.follow() => match never {},
            never = Alerts::watch(alerts.as_mut(), &context) => match never {},
        };
        let failed = match &ended {
            Err(Failure::Failed(error)) if !is_cancelled(&context, error) => {
                Some(chain(error).to_string())
            }
            _ => None,
        };
        // Waiting for a receiver can be cut short.
        if !matches!(ended, Err(Failure::Interrupted)) {
            tokio::select! {
                () = Alerts::end(alerts, failed.as_deref()) => {}
                _ = signalled() => {}
            }
        }
        ended
    });
    // Rows in flight are dropped with their connections: none of them was committed.
    runtime.shutdown_background();
    end(args, &context, &memory, ended)
}

/// Whether a run ended because it was asked to.
fn is_cancelled(context: &Context, error: &RunError) -> bool {
    context.is_cancelled() && matches!(error.source, ConnectorError::Stopped)
}

/// How a run ended that did not complete.
enum Failure {
    Failed(RunError),
    Alerts(SendError),
    Interrupted,
    Signals(anyhow::Error),
}

/// Where a run is recorded: in the data directory, and where its file says. The record is for
/// people: a run that has begun does not depend on it, and a completed run does not fail because it
/// could not be recorded.
#[derive(Clone)]
struct Memory(Arc<Mutex<Vec<State>>>);

/// Without what it holds.
impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Memory").finish_non_exhaustive()
    }
}

/// Where its file says, or else here: another machine that runs the pipeline has to find it.
impl KeptValues for Memory {
    fn all(&self, of: &KeptBy) -> Result<Vec<(String, Vec<u8>)>, ConnectorError> {
        let states = self.0.lock();
        Ok(states.last().map(|state| state.kept(of)).transpose()?.unwrap_or_default())
    }

    fn put(&self, of: &KeptBy, key: &str, value: Option<&[u8]>) -> Result<(), ConnectorError> {
        let states = self.0.lock();
        Ok(states.last().map_or(Ok(()), |state| state.keep(of, key, value))?)
    }
}

impl Memory {
    fn open(args: &Args, file: &PipelineFile) -> anyhow::Result<Self> {
        let mut states = Vec::new();
        if !args.forget {
            states.push(state(&args.data)?);
            states.extend(State::of(&file.state)?);
        }
        Ok(Self(Arc::new(Mutex::new(states))))
    }

    fn begin(&self, run: &str, pipeline: &str) -> anyhow::Result<()> {
        for state in &*self.0.lock() {
            state.begin(run, pipeline, now_ms())?;
        }
        Ok(())
    }

    /// Records something everywhere; returns the first failure.
    fn write(&self, write: impl Fn(&State) -> Result<(), StateError>) -> Result<(), StateError> {
        let states = self.0.lock();
        states.iter().map(write).fold(Ok(()), Result::and)
    }
}

fn end(
    args: &Args,
    context: &Context,
    memory: &Memory,
    ended: Result<Report, Failure>,
) -> anyhow::Result<Exit> {
    let (outcome, error) = match &ended {
        Ok(_) => (Outcome::Done, None),
        Err(Failure::Failed(error)) if is_cancelled(context, error) => (Outcome::Cancelled, None),
        Err(Failure::Failed(error)) => (Outcome::Failed, Some(chain(error).to_string())),
        Err(Failure::Interrupted) => (Outcome::Cancelled, None),
        Err(Failure::Alerts(error)) => (Outcome::Failed, Some(chain(error).to_string())),
        Err(Failure::Signals(error)) => (Outcome::Failed, Some(format!("{error:#}"))),
    };
    let report = ended.as_ref().ok().map(serde_json::to_string).transpose()?;
    let written = memory.write(|state| {
        state.progress(&context.run, progress(context), now_ms())?;
        state.end(&context.run, outcome, error.as_deref(), report.as_deref(), now_ms())
    });
    if let Err(error) = written {
        out::note(format_args!("cannot record the end of the run: {}", chain(&error)));
    }
    for warning in context.warnings() {
        out::note(format_args!("warning: {warning}"));
    }
    match ended {
        Ok(report) => {
            print(args, &report)?;
            Ok(Exit::Ok)
        }
        Err(Failure::Failed(error)) if is_cancelled(context, &error) => {
            let units = context.moved.units_committed.load(Ordering::Relaxed);
            out::note(format_args!(
                "stopped; {units} units are committed, and the next run continues after them"
            ));
            Ok(Exit::Interrupted)
        }
        Err(Failure::Interrupted) => Err(Coded::error(Exit::Interrupted, "stopped at once")),
        Err(Failure::Failed(error)) => Err(anyhow::Error::new(error).context("the run failed")),
        Err(Failure::Alerts(error)) => Err(anyhow::Error::new(error).context("cannot send alerts")),
        Err(Failure::Signals(error)) => Err(error),
    }
}

fn print(args: &Args, report: &Report) -> anyhow::Result<()> {
    if args.json {
        let mut report = serde_json::to_value(report)?;
        let used = Usage::of_this_process()?;
        if let Some(report) = report.as_object_mut() {
            report.insert("cpu_seconds".into(), json!(used.cpu_seconds));
            report.insert("peak_rss_bytes".into(), json!(used.peak_rss_bytes));
        }
        return out::json(&report);
    }
    for stream in &report.streams {
        if report.feed.is_some() {
            let (from, into) = (&stream.stream, &stream.into);
            line(format_args!("{from} -> {into}: {} rows", stream.rows))?;
            continue;
        }
        let Some(load) = &stream.load else {
            line(format_args!("{} -> {}: nothing new", stream.stream, stream.into))?;
            continue;
        };
        if stream.resumed && stream.units == 0 {
            let into = &stream.into;
            line(format_args!("{} -> {into}: already complete, load {load}", stream.stream))?;
            continue;
        }
        let resumed = if stream.resumed {
            format!(", {} units already committed", stream.units_before)
        } else {
            String::new()
        };
        let dead = if stream.dead > 0 {
            format!(", {} skipped or dead-lettered", stream.dead)
        } else {
            String::new()
        };
        line(format_args!(
            "{} -> {}: {} rows in {} units{resumed}{dead}, {:.2} s, load {load}, content {}",
            stream.stream,
            stream.into,
            stream.rows,
            stream.units,
            stream.seconds,
            stream.content_hash
        ))?;
    }
    if let Some(feed) = &report.feed {
        line(format_args!(
            "{} changes in {} commits: {} rows inserted, {} updated, {} deleted; applied up to {}",
            feed.changes, feed.commits, feed.inserted, feed.updated, feed.deleted, feed.position
        ))?;
    }
    for Measure { connector, name, value } in &report.metrics {
        match value {
            MeasureValue::Count(count) => line(format_args!("{connector} {name}: {count}"))?,
            MeasureValue::Gauge(gauge) => line(format_args!("{connector} {name}: {gauge}"))?,
        }
    }
    let rate = |amount: u64| {
        #[expect(clippy::cast_precision_loss, reason = "for people")]
        let amount = amount as f64;
        amount / report.seconds.max(1e-9)
    };
    line(format_args!(
        "{} rows, {} in {:.2} s: {:.0} rows/s, {:.1} MB/s",
        report.rows,
        out::size(report.bytes),
        report.seconds,
        rate(report.rows),
        rate(report.bytes) / 1e6
    ))
}

/// Requests the run to stop at the first signal; returns at the second.
async fn interrupted(cancel: &Cancel) -> anyhow::Result<()> {
    let mut signals = Signals::new()?;
    for round in 0..2 {
        signals.next().await;
        if round == 0 {
            out::note("stopping at the next commit boundary; a second signal stops at once");
            cancel.cancel();
        }
    }
    Ok(())
}

/// Waits for a signal.
async fn signalled() -> anyhow::Result<()> {
    Signals::new()?.next().await;
    Ok(())
}

/// The signals that ask a run to stop.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> anyhow::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).context("cannot handle SIGINT")?,
            terminate: signal(SignalKind::terminate()).context("cannot handle SIGTERM")?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Reports the progress of the run on the terminal and in the data directory.
struct Watch<'a> {
    context: &'a Context,
    memory: &'a Memory,
    shown: bool,
    begun: Instant,
}

/// Interval of reports to a terminal.
const SHOWN_EVERY: Duration = Duration::from_millis(100);
/// Interval of reports to a log.
const LOGGED_EVERY: Duration = Duration::from_secs(10);

impl Watch<'_> {
    /// Never returns.
    async fn follow(&self) -> Infallible {
        let is_terminal = std::io::stderr().is_terminal();
        let bar = if self.shown && is_terminal { spinner() } else { ProgressBar::hidden() };
        let mut logged = self.begun;
        let mut heard = self.begun;
        let mut is_warned = false;
        loop {
            tokio::time::sleep(SHOWN_EVERY).await;
            let at = progress(self.context);
            let seconds = self.begun.elapsed().as_secs_f64();
            #[expect(clippy::cast_precision_loss, reason = "for people")]
            let rate = at.bytes_read as f64 / 1e6 / seconds.max(1e-9);
            bar.set_message(format!(
                "{} rows read, {} committed, {rate:.1} MB/s, {}",
                at.rows_read,
                at.rows_committed,
                busiest(self.context)
            ));
            bar.tick();
            if !is_terminal && logged.elapsed() >= LOGGED_EVERY {
                logged = Instant::now();
                let line = json!({
                    "run": &*self.context.run, "rows_read": at.rows_read,
                    "rows_committed": at.rows_committed, "bytes_read": at.bytes_read,
                    "seconds": seconds, "phase": busiest(self.context),
                });
                out::note(line);
            }
            if heard.elapsed() >= HEARTBEAT {
                heard = Instant::now();
                // On a thread that may block, so that a slow server delays no row.
                let (memory, run) = (self.memory.clone(), Arc::clone(&self.context.run));
                let writing = move || memory.write(|state| state.progress(&run, at, now_ms()));
                let written = tokio::task::spawn_blocking(writing).await;
                if let (Ok(Err(error)), false) = (written, is_warned) {
                    is_warned = true;
                    out::note(format_args!("the run continues unrecorded: {}", chain(&error)));
                }
            }
        }
    }
}

/// Returns the phase that took the most time, without waiting.
fn busiest(context: &Context) -> &'static str {
    let spent = context.phases.spent();
    let named = forebay_sdk::run::PHASES.iter().zip(spent).filter(|(name, _)| **name != "wait");
    named.max_by_key(|(_, spent)| *spent).map_or("", |(name, _)| name)
}

fn spinner() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    let style = ProgressStyle::with_template("{spinner} {elapsed} {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    bar
}
