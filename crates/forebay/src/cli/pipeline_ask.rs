//! `forebay pipeline check|discover|plan|explain|verify|schema|runs|status|watch`: commands that
//! only read.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use forebay_base::printable::printable;
use forebay_pipeline::config::json_schema;
use forebay_pipeline::run::{Pipeline, Plan};
use forebay_pipeline::state::{Outcome, RunRecord, State};
use forebay_sdk::run::Context;
use serde_json::{Value, json};

use super::pipeline::{FileArgs, line, load, runtime, state};
use super::settings::DataArgs;
use crate::exit::{Coded, Exit};
use crate::out;
use crate::pipelines::now_ms;

/// Where to find the record of runs.
#[derive(clap::Args, Debug)]
struct PlaceArgs {
    /// Read the record of runs named in this pipeline file, instead of that in the data directory.
    #[arg(long = "in", value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    data: DataArgs,
}

impl PlaceArgs {
    fn open(&self) -> anyhow::Result<State> {
        let Some(path) = &self.file else { return state(&self.data) };
        let shared = State::of(&load(path)?.state)?;
        shared.map_or_else(|| state(&self.data), Ok)
    }
}

#[derive(clap::Args, Debug)]
pub(super) struct RunsArgs {
    /// Only runs of this pipeline.
    #[arg(value_name = "PIPELINE")]
    pipeline: Option<String>,
    /// Number of runs to print, the newest first.
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    limit: u32,
    /// Print JSON, one object per line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: PlaceArgs,
}

#[derive(clap::Args, Debug)]
pub(super) struct StatusArgs {
    /// Id of a run, or name of a pipeline.
    #[arg(value_name = "RUN")]
    run: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: PlaceArgs,
}

#[derive(clap::Args, Debug)]
pub(super) struct ResetArgs {
    #[command(flatten)]
    of: FileArgs,
    /// Only this stream.
    #[arg(long, value_name = "NAME")]
    stream: Option<String>,
    /// Do not ask for confirmation.
    #[arg(long)]
    yes: bool,
}

pub(super) fn check(args: &FileArgs) -> anyhow::Result<Exit> {
    let file = load(&args.file)?;
    let (source, destination) = runtime()?.block_on(Pipeline::new(&file).check())?;
    if args.json {
        out::json(
            &json!({ "pipeline": file.pipeline.as_str(), "source": source, "destination": destination }),
        )?;
    } else {
        line(format_args!("source:      {source}"))?;
        line(format_args!("destination: {destination}"))?;
    }
    Ok(Exit::Ok)
}

pub(super) fn discover(args: &FileArgs) -> anyhow::Result<Exit> {
    let file = load(&args.file)?;
    let streams = runtime()?.block_on(Pipeline::new(&file).discover())?;
    if streams.is_empty() {
        out::note("the source has no streams: no tables, collections or files that can be read");
    }
    for stream in streams {
        if args.json {
            json_line(&serde_json::to_value(stream)?)?;
            continue;
        }
        let rows = stream.rows.map_or_else(|| "?".to_owned(), |rows| rows.to_string());
        let size = stream.bytes.map_or_else(|| "?".to_owned(), out::size);
        let key = if stream.primary_key.is_empty() {
            String::new()
        } else {
            format!(", key ({})", stream.primary_key.join(", "))
        };
        line(format_args!("{}: about {rows} rows, {size}{key}", stream.name))?;
        for column in stream.columns {
            let null = if column.nullable { "" } else { " not null" };
            let note = column.note.map_or_else(String::new, |note| format!("  ({note})"));
            line(format_args!("    {} {}{null}{note}", column.name, column.sql_type))?;
        }
    }
    Ok(Exit::Ok)
}

fn planned(args: &FileArgs) -> anyhow::Result<Plan> {
    let file = load(&args.file)?;
    let (context, _cancel) = Context::new("plan");
    Ok(runtime()?.block_on(Pipeline::new(&file).plan(&context))?)
}

pub(super) fn plan(args: &FileArgs) -> anyhow::Result<Exit> {
    let plan = planned(args)?;
    if args.json {
        out::json(&serde_json::to_value(plan)?)?;
        return Ok(Exit::Ok);
    }
    for stream in plan.streams {
        let about = match stream.units {
            0 => "nothing to copy".to_owned(),
            _ => about(stream.rows, stream.bytes),
        };
        line(format_args!("{} -> {}: {about}", stream.stream, stream.into))?;
        if let Some(since) = &stream.since {
            line(format_args!("  after {}", since.value))?;
        }
        if let Some(until) = &stream.until {
            line(format_args!("  up to {}", until.value))?;
        }
        line("  columns:")?;
        for (name, of) in &stream.columns {
            line(format_args!("    {name} {of}"))?;
        }
        line("  read:")?;
        for note in &stream.notes {
            line(format_args!("    {note}"))?;
        }
        line("  at the destination:")?;
        if stream.destination.is_empty() {
            line("    only the rows and the ledger")?;
        }
        for statement in &stream.destination {
            line(format_args!("    {statement}"))?;
        }
    }
    Ok(Exit::Ok)
}

fn about(rows: Option<u64>, bytes: Option<u64>) -> String {
    let rows =
        rows.map_or_else(|| "an unknown number of".to_owned(), |rows| format!("about {rows}"));
    let bytes = bytes.map_or_else(String::new, |bytes| format!(", {}", out::size(bytes)));
    format!("{rows} rows{bytes}")
}

pub(super) fn explain(args: &FileArgs) -> anyhow::Result<Exit> {
    let plan = planned(args)?;
    if args.json {
        let streams = plan.streams.iter().map(|stream| {
            json!({
                "stream": stream.stream, "into": stream.into, "form": stream.form, "units": stream.units,
                "resumable": stream.resumable, "at_once": plan.parallelism.min(stream.units),
            })
        });
        out::json(
            &json!({ "parallelism": plan.parallelism, "streams": streams.collect::<Vec<_>>() }),
        )?;
        return Ok(Exit::Ok);
    }
    for stream in &plan.streams {
        if stream.units == 0 {
            // Changes alone, or no rows.
            let notes = stream.notes.join("; ");
            line(format_args!("{} -> {}: nothing to copy; {notes}", stream.stream, stream.into))?;
            continue;
        }
        let form = match stream.form {
            "tuples" => {
                "as the source's own bytes: both sides have the same types and no transform applies"
            }
            _ => "as Arrow batches",
        };
        let resumed = if stream.resumable {
            "a killed run continues with the remaining units"
        } else if stream.units > 1 {
            "a killed run starts over: units are pages of one snapshot"
        } else {
            "a killed run starts over: there is one unit, committed as a whole"
        };
        line(format_args!(
            "{} -> {}: {} units, {} concurrent, {form}; {resumed}",
            stream.stream,
            stream.into,
            stream.units,
            plan.parallelism.min(stream.units),
        ))?;
    }
    Ok(Exit::Ok)
}

pub(super) fn verify(args: &FileArgs) -> anyhow::Result<Exit> {
    let file = load(&args.file)?;
    let (context, _cancel) = Context::new("verify");
    let verified = runtime()?.block_on(Pipeline::new(&file).verify(&context))?;
    if args.json {
        out::json(&serde_json::to_value(&verified)?)?;
    } else {
        for stream in &verified.streams {
            let found = if stream.same { "the same" } else { "DIFFERENT" };
            line(format_args!(
                "{} -> {}: {found}; source {} rows {}, destination {} rows {}",
                stream.stream,
                stream.into,
                stream.source_rows,
                stream.source_hash,
                stream.destination_rows,
                stream.destination_hash
            ))?;
        }
    }
    Ok(if verified.same { Exit::Ok } else { Exit::Failed })
}

pub(super) fn reset(args: &ResetArgs) -> anyhow::Result<Exit> {
    let file = load(&args.of.file)?;
    if !args.yes {
        let message = "the next run would copy all rows again, in addition to \
             the existing ones; confirm with --yes";
        return Err(Coded::error(Exit::Usage, message));
    }
    let forgotten = runtime()?.block_on(Pipeline::new(&file).reset(args.stream.as_deref()))?;
    if let (Some(stream), true) = (&args.stream, forgotten.is_empty()) {
        let names: Vec<&str> = file.source.streams.iter().map(|it| it.name.as_str()).collect();
        let message = format!("no stream is called {stream:?}; there are {}", names.join(", "));
        return Err(Coded::error(Exit::Usage, message));
    }
    for (stream, loads) in forgotten {
        if args.of.json {
            json_line(&json!({ "stream": stream, "loads": loads }))?;
        } else {
            line(format_args!("{stream}: {loads} loads forgotten"))?;
        }
    }
    Ok(Exit::Ok)
}

pub(super) fn schema() -> anyhow::Result<Exit> {
    super::pipeline::use_components_of(&DataArgs::default())?;
    out::json(&json_schema(&crate::pipelines::registry()))?;
    Ok(Exit::Ok)
}

pub(super) fn runs(args: &RunsArgs) -> anyhow::Result<Exit> {
    let runs = args.place.open()?.runs(args.pipeline.as_deref(), args.limit, now_ms())?;
    for run in runs {
        if args.json {
            json_line(&serde_json::to_value(run)?)?;
        } else {
            line(shown(&run))?;
        }
    }
    Ok(Exit::Ok)
}

/// Formats a run in one line.
fn shown(run: &RunRecord) -> String {
    let outcome = match run.outcome {
        Outcome::Running => "running",
        Outcome::Done => "done",
        Outcome::Failed => "failed",
        Outcome::Cancelled => "stopped",
        Outcome::Killed => "killed",
    };
    let began =
        i64::try_from(run.began_ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    let began = began.map_or_else(String::new, |at| format!("{at:.0}"));
    let took = Duration::from_millis(run.ended_ms.saturating_sub(run.began_ms)).as_secs_f64();
    let error = run.error.as_deref().map_or_else(String::new, |error| format!(": {error}"));
    format!(
        "{} {began} {}: {outcome} after {took:.1} s, {} rows committed{error}",
        run.run, run.pipeline, run.rows_committed
    )
}

/// Finds the run with an id, or the last one of a pipeline.
fn find(args: &StatusArgs, state: &State) -> anyhow::Result<RunRecord> {
    if let Some(run) = state.run(&args.run, now_ms())? {
        return Ok(run);
    }
    let last = state.runs(Some(&args.run), 1, now_ms())?.pop();
    last.ok_or_else(|| {
        Coded::error(Exit::Absent, format!("there is no run and no pipeline {:?}", args.run))
    })
}

pub(super) fn status(args: &StatusArgs) -> anyhow::Result<Exit> {
    let run = find(args, &args.place.open()?)?;
    if args.json {
        out::json(&serde_json::to_value(&run)?)?;
        return Ok(Exit::Ok);
    }
    line(shown(&run))?;
    if let Some(streams) = run.report.as_ref().and_then(|report| report.get("streams")?.as_array())
    {
        for stream in streams {
            let text = |key: &str| stream.get(key).map_or_else(String::new, plain);
            line(format_args!(
                "  {} -> {}: {} rows, {} units, content {}",
                text("stream"),
                text("into"),
                text("rows"),
                text("units"),
                text("content_hash")
            ))?;
        }
    }
    if let Some(phases) = run.report.as_ref().and_then(|report| report.get("phases")?.as_object()) {
        let spent = phases
            .iter()
            .map(|(name, seconds)| format!("{name} {:.3}", seconds.as_f64().unwrap_or(0.0)));
        line(format_args!(
            "  seconds, sum of all tasks: {}",
            spent.collect::<Vec<_>>().join(", ")
        ))?;
    }
    Ok(Exit::Ok)
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned)
}

pub(super) fn watch(args: &StatusArgs) -> anyhow::Result<Exit> {
    let mut printed = String::new();
    let state = args.place.open()?;
    runtime()?.block_on(async {
        loop {
            let run = find(args, &state)?;
            let text = if args.json {
                serde_json::to_string(&run)?
            } else {
                printable(&shown(&run)).into_owned()
            };
            if text != printed {
                out::line(&text)?;
                printed = text;
            }
            if run.outcome != Outcome::Running {
                return Ok(if run.outcome == Outcome::Done { Exit::Ok } else { Exit::Failed });
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    })
}

/// Prints a JSON object on one line.
fn json_line(value: &Value) -> anyhow::Result<()> {
    out::line(serde_json::to_string(value).context("cannot print")?)
}
