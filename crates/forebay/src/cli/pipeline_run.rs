//! `forebay pipeline run`.

use std::convert::Infallible;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use forebay_base::error_chain::chain;
use forebay_pipeline::ConnectorError;
use forebay_pipeline::config::PipelineFile;
use forebay_pipeline::error::RunError;
use forebay_pipeline::run::{Cancel, Context, Options, Pipeline, Report};
use forebay_pipeline::state::{HEARTBEAT, Outcome, State, StateError};
use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use super::pipeline::{load, runtime_for, state};
use super::settings::DataArgs;
use crate::exit::{Coded, Exit};
use crate::out;
use crate::pipelines::{now_ms, progress, run_name};
use crate::usage::Usage;

const HELP: &str = "\
A unit of rows and the entry that names it are committed as one at the destination. A run that is
stopped or killed has copied whole units only; the next run goes on with the others. The first SIGINT
or SIGTERM stops at the next commit boundary, a second one at once: neither loses or doubles a row.

With `write_mode: append` a run that failed is gone on with until all its streams are copied; those that
are done are not copied twice. A scheduler that repeats what it is not sure of gives the run a name
(--once 2026-11-21): under one name everything is copied once, however often it is called.

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
    /// Begin again with loads that were not finished, instead of going on with them.
    #[arg(long)]
    from_scratch: bool,
    /// The name of this run: where a run of this name is over already, nothing is copied.
    #[arg(long, value_name = "NAME", value_parser = run_name, conflicts_with = "from_scratch")]
    once: Option<String>,
    /// Do not remember this run.
    #[arg(long)]
    forget: bool,
    /// Print one JSON object with the report when it is done.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    data: DataArgs,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let file = load(&args.file)?;
    let memory = Memory::open(args, &file)?;
    let id = uuid::Uuid::now_v7().simple().to_string();
    let (context, cancel) = Context::new(&id);
    memory.begin(&id, file.pipeline.as_str())?;
    let runtime = runtime_for(&file)?;
    let begun = Instant::now();
    let pipeline = Pipeline::new(&file);
    let ended = runtime.block_on(async {
        let watch = Watch { context: &context, memory: &memory, shown: !args.json, begun };
        let options = Options { from_scratch: args.from_scratch, once: args.once.clone() };
        tokio::select! {
            biased;
            ended = pipeline.run(options, &context) => ended.map_err(Ended::Failed),
            stopped = interrupted(&cancel) => match stopped {
                Ok(()) => Err(Ended::Interrupted),
                Err(error) => Err(Ended::Signals(error)),
            },
            never = watch.follow() => match never {},
        }
    });
    // What is still on its way is dropped with its connections: not one row of it was committed.
    runtime.shutdown_background();
    end(args, &context, &memory, ended)
}

/// How a run ended that was not done.
enum Ended {
    Failed(RunError),
    Interrupted,
    Signals(anyhow::Error),
}

/// Where a run is remembered: in the data directory, and where its file says. That is for people: once the
/// run has begun it does not depend on it, and a run that was done is not one that failed because this
/// could not be written down.
#[derive(Clone)]
struct Memory(Arc<Mutex<Vec<State>>>);

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

    /// Writes something down, everywhere; the first failure.
    fn write(&self, write: impl Fn(&State) -> Result<(), StateError>) -> Result<(), StateError> {
        let states = self.0.lock();
        states.iter().map(write).fold(Ok(()), Result::and)
    }
}

fn end(
    args: &Args,
    context: &Context,
    memory: &Memory,
    ended: Result<Report, Ended>,
) -> anyhow::Result<Exit> {
    let is_cancelled = |error: &RunError| {
        context.is_cancelled() && matches!(error.source, ConnectorError::Stopped)
    };
    let (outcome, error) = match &ended {
        Ok(_) => (Outcome::Done, None),
        Err(Ended::Failed(error)) if is_cancelled(error) => (Outcome::Cancelled, None),
        Err(Ended::Failed(error)) => (Outcome::Failed, Some(chain(error).to_string())),
        Err(Ended::Interrupted) => (Outcome::Cancelled, None),
        Err(Ended::Signals(error)) => (Outcome::Failed, Some(format!("{error:#}"))),
    };
    let report = ended.as_ref().ok().map(serde_json::to_string).transpose()?;
    let written = memory.write(|state| {
        state.progress(&context.run, progress(context), now_ms())?;
        state.end(&context.run, outcome, error.as_deref(), report.as_deref(), now_ms())
    });
    if let Err(error) = written {
        out::note(format_args!("how the run ended is not remembered: {}", chain(&error)));
    }
    match ended {
        Ok(report) => {
            print(args, &report)?;
            Ok(Exit::Ok)
        }
        Err(Ended::Failed(error)) if is_cancelled(&error) => {
            let units = context.moved.units_committed.load(Ordering::Relaxed);
            out::note(format_args!(
                "stopped; {units} units are committed, the next run goes on after them"
            ));
            Ok(Exit::Interrupted)
        }
        Err(Ended::Interrupted) => Err(Coded::error(Exit::Interrupted, "stopped at once")),
        Err(Ended::Failed(error)) => Err(anyhow::Error::new(error).context("the run failed")),
        Err(Ended::Signals(error)) => Err(error),
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
        let Some(load) = &stream.load else {
            out::line(format_args!("{} -> {}: nothing new", stream.stream, stream.into))?;
            continue;
        };
        if stream.resumed && stream.units == 0 {
            let into = &stream.into;
            out::line(format_args!("{} -> {into}: done before, load {load}", stream.stream))?;
            continue;
        }
        let resumed = if stream.resumed {
            format!(", {} units were there already", stream.units_before)
        } else {
            String::new()
        };
        let dead =
            if stream.dead > 0 { format!(", {} put aside", stream.dead) } else { String::new() };
        out::line(format_args!(
            "{} -> {}: {} rows in {} units{resumed}{dead}, {:.2} s, load {load}, content {}",
            stream.stream,
            stream.into,
            stream.rows,
            stream.units,
            stream.seconds,
            stream.content_hash
        ))?;
    }
    let rate = |amount: u64| {
        #[expect(clippy::cast_precision_loss, reason = "for people")]
        let amount = amount as f64;
        amount / report.seconds.max(1e-9)
    };
    out::line(format_args!(
        "{} rows, {} in {:.2} s: {:.0} rows/s, {:.1} MB/s",
        report.rows,
        out::size(report.bytes),
        report.seconds,
        rate(report.rows),
        rate(report.bytes) / 1e6
    ))
}

/// Asks the run to stop at the first signal; returns at the second.
async fn interrupted(cancel: &Cancel) -> anyhow::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot watch for SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot watch for SIGTERM")?;
    for round in 0..2 {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        if round == 0 {
            out::note("stopping at the next commit boundary; once more stops at once");
            cancel.cancel();
        }
    }
    Ok(())
}

/// Tells how far the run is: to whoever looks, and to the data directory.
struct Watch<'a> {
    context: &'a Context,
    memory: &'a Memory,
    shown: bool,
    begun: Instant,
}

/// How often the terminal is told.
const SHOWN_EVERY: Duration = Duration::from_millis(100);
/// How often a log is told.
const LOGGED_EVERY: Duration = Duration::from_secs(10);

impl Watch<'_> {
    /// Never returns.
    async fn follow(&self) -> Infallible {
        let is_terminal = std::io::stderr().is_terminal();
        let bar = if self.shown && is_terminal { spinner() } else { ProgressBar::hidden() };
        let mut told = self.begun;
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
            if !is_terminal && told.elapsed() >= LOGGED_EVERY {
                told = Instant::now();
                let line = json!({
                    "run": &*self.context.run, "rows_read": at.rows_read,
                    "rows_committed": at.rows_committed, "bytes_read": at.bytes_read,
                    "seconds": seconds, "phase": busiest(self.context),
                });
                out::note(line);
            }
            if heard.elapsed() >= HEARTBEAT {
                heard = Instant::now();
                // On a thread that may wait: a server that does not answer holds up no row.
                let (memory, run) = (self.memory.clone(), Arc::clone(&self.context.run));
                let writing = move || memory.write(|state| state.progress(&run, at, now_ms()));
                let written = tokio::task::spawn_blocking(writing).await;
                if let (Ok(Err(error)), false) = (written, is_warned) {
                    is_warned = true;
                    out::note(format_args!("the run goes on unremembered: {}", chain(&error)));
                }
            }
        }
    }
}

/// What most of the time was spent on, waiting left out.
fn busiest(context: &Context) -> &'static str {
    let spent = context.phases.spent();
    let named =
        forebay_pipeline::run::PHASES.iter().zip(spent).filter(|(name, _)| **name != "wait");
    named.max_by_key(|(_, spent)| *spent).map_or("", |(name, _)| name)
}

fn spinner() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    let style = ProgressStyle::with_template("{spinner} {elapsed} {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    bar
}
