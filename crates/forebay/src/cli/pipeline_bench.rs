//! `forebay pipeline bench`: runs a pipeline several times and reports the times.

use std::path::PathBuf;

use anyhow::ensure;
use forebay_pipeline::config::PipelineFile;
use forebay_pipeline::run::{Options, Pipeline, Report};
use forebay_sdk::run::{Context, PHASES};
use forebay_sdk::settings::{SyncMode, WriteMode};
use serde_json::{Map, Value, json};

use super::pipeline::{load, runtime_for};
use crate::exit::{Coded, Exit};
use crate::out;
use crate::usage::Usage;

const HELP: &str = "\
Every iteration is a run as by `forebay pipeline run --from-scratch`, and writes to the destination.
The pipeline must replace or upsert the rows it writes, and read all rows every time. The time of a
phase is the sum over all tasks: two concurrent tasks use two seconds in one. All iterations must
read the same rows, by content hash.

Example:
  forebay pipeline bench orders.yaml --iterations 9 --json > before.json";

#[derive(clap::Args, Debug)]
#[command(after_help = HELP)]
pub(super) struct Args {
    /// The pipeline file.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Number of measured runs.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=999))]
    iterations: u32,
    /// Number of runs before them that are not measured.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=99))]
    warmup: u32,
    /// Print one flat JSON object.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let file = load(&args.file)?;
    check(&file)?;
    let mut reports = Vec::new();
    for iteration in 0..args.warmup + args.iterations {
        // Each iteration has its own runtime, so that none reuses threads and connections of
        // another.
        let id = uuid::Uuid::now_v7().simple().to_string();
        let (context, _cancel) = Context::new(&id);
        let options = Options { from_scratch: true, ..Options::default() };
        let report = runtime_for(&file)?.block_on(Pipeline::new(&file).run(options, &context))?;
        out::note(format_args!(
            "{} {}: {:.3} s, {} rows",
            if iteration < args.warmup { "warming up" } else { "iteration" },
            iteration + 1,
            report.seconds,
            report.rows
        ));
        if iteration >= args.warmup {
            reports.push(report);
        }
    }
    for pair in reports.windows(2) {
        ensure!(
            pair.iter().map(hashes).all(|these| these == hashes(&pair[0])),
            "the source changed between two iterations: their times are not comparable"
        );
    }
    report(args, &reports)?;
    Ok(Exit::Ok)
}

/// Checks that a pipeline can be run repeatedly.
fn check(file: &PipelineFile) -> anyhow::Result<()> {
    let wrong = |text: &str| Err(Coded::error(Exit::Usage, text.to_owned()));
    if file.destination.write_mode == WriteMode::Append {
        return wrong(
            "this pipeline appends: every iteration would add its rows again; use \
             `write_mode: replace` and a separate destination",
        );
    }
    if file.source.streams.iter().any(|stream| stream.sync_mode == SyncMode::Incremental) {
        return wrong("an incremental stream has nothing to copy the second time");
    }
    Ok(())
}

fn hashes(report: &Report) -> Vec<&str> {
    report.streams.iter().map(|stream| stream.content_hash.as_str()).collect()
}

fn report(args: &Args, reports: &[Report]) -> anyhow::Result<()> {
    let mut figures = Map::new();
    let mut add = |name: String, samples: Vec<f64>| {
        figures.insert(name, json!(median(samples)));
    };
    let seconds = || reports.iter().map(|report| report.seconds);
    add("seconds".into(), seconds().collect());
    add("seconds_least".into(), vec![seconds().fold(f64::INFINITY, f64::min)]);
    add("seconds_most".into(), vec![seconds().fold(0.0, f64::max)]);
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    let rate = |amount: fn(&Report) -> u64| -> Vec<f64> {
        reports.iter().map(|report| amount(report) as f64 / report.seconds.max(1e-9)).collect()
    };
    add("rows_per_second".into(), rate(|report| report.rows));
    add("bytes_per_second".into(), rate(|report| report.bytes));
    let phases: Vec<Value> = reports
        .iter()
        .map(|report| serde_json::to_value(report.phases))
        .collect::<Result<_, _>>()?;
    for phase in PHASES {
        let spent = phases.iter().filter_map(|phases| phases.get(phase)?.as_f64());
        add(format!("{phase}_seconds"), spent.collect());
    }
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    add("peak_rss_bytes".into(), vec![Usage::of_this_process()?.peak_rss_bytes as f64]);
    if args.json {
        return out::line(Value::Object(figures));
    }
    for (name, value) in &figures {
        out::line(format_args!("{name:<20} {value:>16}"))?;
    }
    Ok(())
}

/// Returns the median, to six decimals.
fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_unstable_by(f64::total_cmp);
    let median = samples.get(samples.len() / 2).copied().unwrap_or_default();
    (median * 1e6).round() / 1e6
}
