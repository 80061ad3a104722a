//! `forebay events append`.

use std::fs::File;
use std::io::{IsTerminal as _, Read};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Context as _;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use forebay_api::events::records::{decompressed, records};
use forebay_events::Store;
use forebay_events::ingest::{Ingest, Mistimed, Summary};
use forebay_events::input::{Format, Mapping, RejectWriter};
use indicatif::{ProgressBar, ProgressStyle};

use super::settings::{DataArgs, wrong};
use crate::exit::{Coded, Exit};
use crate::out;

const AFTER_HELP: &str = "\
Examples:
  forebay events append --stream auth /var/log/auth.log
  forebay events append --stream zeek --format zeek conn.log.gz
  forebay events append --stream edr --format ocsf --rejects bad.ndjson events.ndjson

Prints {\"accepted\",\"duplicates\",\"rejected\",\"mistimed\",\"assumed\",\"first_id\",\"last_id\"} once
everything is stored. An event that names an id, and is stored under it, is not stored again. A
record that is not an event is rejected; --rejects writes it to a file with its line and the reason.
Input that begins with `[{` is one JSON array, in any layout. Input compressed with gzip or zstd is
decompressed.

An event in which no time is recognised has the time of appending (`mistimed`; its time_source is
received); --time-field names the field that has it. A time without an offset is read as UTC
(`assumed`) unless --time-zone is given; one that the clocks of that zone show twice or never is
`assumed` as well.

Batches are stored as they fill, so batches read before an interruption are kept; none is stored
partially. While `forebay serve` has the store open, send events to the server instead:
  curl --data-binary @FILE 'http://127.0.0.1:8090/v1/events?stream=NAME'

Exit codes: 0 everything was stored; 1 records were rejected or the store failed; 2 invalid command
line; 3 the store or a file cannot be opened.";

#[derive(clap::Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    #[command(flatten)]
    data: DataArgs,
    /// Stream to append the events to.
    #[arg(long, value_name = "NAME")]
    stream: String,
    /// Format of the input.
    #[arg(long, value_name = "FORMAT", default_value = "auto", ignore_case = true, value_parser = formats())]
    format: Format,
    /// Field that has the time, with dots between nested ones.
    #[arg(long, value_name = "FIELD")]
    time_field: Option<String>,
    /// Zone of times without an offset: UTC, +02:00, or a name such as Europe/Paris.
    #[arg(long, value_name = "ZONE")]
    time_zone: Option<String>,
    /// Field that has the host.
    #[arg(long, value_name = "FIELD")]
    host_field: Option<String>,
    /// Field that has the type.
    #[arg(long, value_name = "FIELD")]
    type_field: Option<String>,
    /// Write rejected records to FILE, which must not exist, one JSON object per line.
    #[arg(long, value_name = "FILE")]
    rejects: Option<PathBuf>,
    /// Preset instead of the configured one: max-throughput, balanced or max-durability.
    #[arg(long, value_name = "PRESET")]
    preset: Option<String>,
    /// Files to read [default: standard input].
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// Reads the name of a format; help and completion list all of them.
fn formats() -> impl TypedValueParser<Value = Format> {
    let names = Format::ALL.map(|format| PossibleValue::new(format.name()).help(format.about()));
    PossibleValuesParser::new(names).try_map(|name| name.parse::<Format>())
}

impl Args {
    /// Returns what the flags say about the fields of the records.
    fn mapping(&self) -> anyhow::Result<Mapping> {
        let zone = self.time_zone.as_deref().map(Mapping::zone).transpose();
        let zone =
            zone.map_err(|error| Coded::error(Exit::Usage, format!("--time-zone: {error}")))?;
        Ok(Mapping {
            time_field: self.time_field.clone(),
            host_field: self.host_field.clone(),
            type_field: self.type_field.clone(),
            zone,
        })
    }
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let flagged = args.mapping()?;
    let mut flags = args.data.flags()?;
    flags.note("events.preset", "--preset", args.preset.clone());
    let config = super::settings::resolve(flags)?.config().map_err(wrong)?;
    let options = crate::wiring::events::options(&config);
    let mapping = crate::config::mappings(&config.events).of(&args.stream).overridden(flagged);
    // Files are opened first, so that a wrong name leaves the store untouched.
    let mut inputs: Vec<(PathBuf, File)> = Vec::new();
    for path in &args.files {
        let unreadable = |error: std::io::Error| {
            Coded::wrap(Exit::Start, format!("cannot read {}", path.display()), error.into())
        };
        let file = File::open(path).map_err(unreadable)?;
        // A directory can be opened, and only reading it fails.
        if file.metadata().map_err(unreadable)?.is_dir() {
            return Err(unreadable(std::io::ErrorKind::IsADirectory.into()));
        }
        inputs.push((path.clone(), file));
    }
    let mut rejects = args.rejects.as_deref().map(create).transpose()?;
    let store = super::events::open_with(&args.data, options, true)?;
    let mut sum = Summary::default();
    let mut read = |name: &Path, input: Box<dyn Read>, size: Option<u64>| -> anyhow::Result<()> {
        let bar = progress(size);
        let ingest = Ingest::new(&store, args.format, &args.stream).with_mapping(mapping.clone());
        let one = append(&store, ingest, bar.wrap_read(input), args.format, rejects.as_mut())
            .with_context(|| format!("cannot append {}", name.display()))?;
        bar.finish_and_clear();
        sum.add(one);
        Ok(())
    };
    if inputs.is_empty() {
        if std::io::stdin().is_terminal() {
            out::note("reading standard input; end it with Ctrl-D");
        }
        read(Path::new("standard input"), Box::new(std::io::stdin().lock()), None)?;
    }
    for (path, file) in inputs {
        let size = file.metadata().map(|metadata| metadata.len()).ok();
        read(&path, Box::new(file), size)?;
    }
    if let Some(rejects) = rejects {
        rejects.finish().context("cannot write the rejected records")?;
    }
    store.close()?;
    out::line(serde_json::json!({
        "accepted": sum.accepted,
        "duplicates": sum.duplicates,
        "rejected": sum.rejected,
        "mistimed": sum.mistimed,
        "assumed": sum.assumed,
        "first_id": sum.first_id.map(|id| id.to_string()),
        "last_id": sum.last_id.map(|id| id.to_string()),
    }))?;
    Ok(if sum.rejected == 0 { Exit::Ok } else { Exit::Failed })
}

fn create(path: &Path) -> anyhow::Result<RejectWriter<std::io::BufWriter<File>>> {
    let file = File::create_new(path).map_err(|error| {
        Coded::wrap(Exit::Start, format!("cannot create {}", path.display()), error.into())
    })?;
    Ok(RejectWriter::new(std::io::BufWriter::new(file)))
}

fn progress(size: Option<u64>) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let template = "{bytes} {bytes_per_sec} {elapsed}";
    let whole = "{bar:40} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
    let style = |template| {
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
    };
    match size {
        Some(size) => ProgressBar::new(size).with_style(style(whole)),
        None => ProgressBar::no_length().with_style(style(template)),
    }
}

/// Appends one input to its end.
fn append(
    store: &Store,
    mut ingest: Ingest,
    input: impl Read,
    format: Format,
    mut rejects: Option<&mut RejectWriter<std::io::BufWriter<File>>>,
) -> anyhow::Result<Summary> {
    let input = decompressed(input, format).context("cannot read the input")?;
    let mut records = records(input, format, false).context("cannot read the input")?;
    let mut first = None;
    let mut failed = None;
    while let Some(record) = records.next().context("cannot read the input")? {
        ingest.record(store, &record, now_ns(), &mut |line, reject, raw| {
            first.get_or_insert_with(|| format!("line {line}: {reject}"));
            if let Some(rejects) = rejects.as_deref_mut()
                && let Err(error) = rejects.write(line, reject, raw)
            {
                failed.get_or_insert(error);
            }
        })?;
        if let Some(error) = failed {
            return Err(error).context("cannot write the rejected records");
        }
    }
    let summary = ingest.finish(store)?;
    if let Some(first) = first {
        out::note(format_args!("{} records were rejected; the first: {first}", summary.rejected));
    }
    if let Some(Mistimed { line, reason }) = summary.first_mistimed {
        out::note(format_args!(
            "{} events have the time of appending; the first: line {line}: {reason}",
            summary.mistimed
        ));
    }
    Ok(summary)
}

/// Returns the wall clock time, in nanoseconds since 1970-01-01 UTC.
pub(super) fn now_ns() -> i64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}
