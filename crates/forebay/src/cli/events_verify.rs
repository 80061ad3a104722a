//! `forebay events verify`.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use forebay_base::fs::{FileSystem, RealFs};
use forebay_events::checkpoint::VerifierKey;
use forebay_events::store::{Verified, verify};
use indicatif::{ProgressBar, ProgressStyle};

use super::settings::{DataArgs, wrong};
use crate::exit::{Coded, Exit};
use crate::out;

const AFTER_HELP: &str = "\
Examples:
  forebay events verify
  forebay events verify --since checkpoint-of-last-month.txt --key 'forebay.local/events+...'

Reads every segment and the log, computes the BLAKE3 digest of each sealed file, hashes every event,
builds the tree from those hashes alone, and compares it with the stored tree and with every
checkpoint signed by this store. Filters and indexes are compared with the events. An event is
reported as absent unless a signed entry of the store names it as removed. --since adds
checkpoints kept elsewhere. Only they can show that the whole store was replaced, including its
key; give --key with them.

Exit codes: 0 everything is unchanged; 1 something was changed and is named; 3 the store cannot be
read or is in use.";

#[derive(clap::Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    #[command(flatten)]
    data: DataArgs,
    /// File with an earlier signed note. May be repeated.
    #[arg(long, value_name = "FILE")]
    since: Vec<PathBuf>,
    /// Verifier key of the notes [default: the store's own].
    #[arg(long, value_name = "KEY")]
    key: Option<VerifierKey>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Maximum number of faults named.
const FAULTS_PRINTED: usize = 100;

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let config = args.data.resolve()?.config().map_err(wrong)?;
    let dir = crate::layout::events(&config.process.data);
    let mut since = Vec::new();
    for path in &args.since {
        since.push(std::fs::read_to_string(path).map_err(|error| {
            Coded::wrap(Exit::Start, format!("cannot read {}", path.display()), error.into())
        })?);
    }
    let bar = if std::io::stderr().is_terminal() {
        ProgressBar::no_length().with_style(
            ProgressStyle::with_template("{pos} events {per_sec} {elapsed}")
                .unwrap_or_else(|_| ProgressStyle::default_bar()),
        )
    } else {
        ProgressBar::hidden()
    };
    let fs: Arc<dyn FileSystem> = Arc::new(RealFs);
    let started = Instant::now();
    let verified = verify(&fs, &dir, &since, args.key.as_ref(), &|events| bar.inc(events));
    let took = started.elapsed();
    bar.finish_and_clear();
    let verified = verified.map_err(|error| {
        Coded::wrap(Exit::Start, format!("cannot verify {}", dir.display()), error.into())
    })?;
    if args.json {
        print_json(&verified, took.as_secs_f64())?
    } else {
        print(&verified, took.as_micros())?
    }
    Ok(if verified.faults.is_empty() { Exit::Ok } else { Exit::Failed })
}

fn print_json(verified: &Verified, seconds: f64) -> anyhow::Result<()> {
    let faults: Vec<String> = verified.faults.iter().map(ToString::to_string).collect();
    out::json(&serde_json::json!({
        "sound": faults.is_empty(),
        "events": verified.events,
        "pruned": verified.pruned,
        "pruned_before_recording": verified.pruned_before_recording,
        "leaf_bytes": verified.leaf_bytes,
        "file_bytes": verified.file_bytes,
        "segments": verified.segments,
        "checkpoints": verified.checkpoints,
        "root": verified.root.map(|root| root.to_string()),
        "seconds": seconds,
        "faults": faults,
    }))
}

fn print(verified: &Verified, micros: u128) -> anyhow::Result<()> {
    let rate = u128::from(verified.leaf_bytes) * 1_000_000 / micros.max(1);
    out::line(format_args!(
        "events       {} hashed, {} pruned\nbytes        {} of events, {} of files, {}/s\n\
         segments     {}\ncheckpoints  {}",
        verified.events,
        verified.pruned,
        out::size(verified.leaf_bytes),
        out::size(verified.file_bytes),
        out::size(u64::try_from(rate).unwrap_or(u64::MAX)),
        verified.segments,
        verified.checkpoints,
    ))?;
    if verified.pruned_before_recording > 0 {
        out::line(format_args!(
            "             {} of them before pruning was recorded",
            verified.pruned_before_recording
        ))?;
    }
    if let Some(root) = &verified.root {
        out::line(format_args!("root         {root}"))?;
    }
    for fault in verified.faults.iter().take(FAULTS_PRINTED) {
        out::line(format_args!("WRONG        {fault}"))?;
    }
    match verified.faults.len() {
        0 => out::line("no changes found"),
        count if count > FAULTS_PRINTED => {
            out::line(format_args!("WRONG        {} more faults", count - FAULTS_PRINTED))
        }
        _ => Ok(()),
    }
}
