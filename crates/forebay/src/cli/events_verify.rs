//! `forebay events verify`. A store that a server has open is in `events_verify_server`.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_base::fs::{FileSystem, RealFs};
use forebay_events::checkpoint::{CosignerKey, VerifierKey};
use forebay_events::store::{AnchorError, Kept, Verified, read_anchor, verify_kept};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

use super::events_verify_server;
use super::settings::{DataArgs, wrong};
use crate::config::anchor;
use crate::exit::{Coded, Exit};
use crate::{out, wiring};

const AFTER_HELP: &str = "\
Examples:
  forebay events verify
  forebay events verify --since checkpoint-of-last-month.txt --key 'forebay.local/events+...'
  forebay events verify --anchor /mnt/elsewhere/checkpoints
  forebay events verify --anchor s3://bucket/checkpoints --witness 'witness.example/w1+...'
  forebay events verify --server http://127.0.0.1:8090 --anchor /mnt/elsewhere/checkpoints

Reads every segment and the log, computes the BLAKE3 digest of each sealed file, hashes every event,
builds the tree from those hashes alone, and compares it with the stored tree and with every
checkpoint signed by this store. Filters and indexes are compared with the events. An event is
reported as absent unless a signed entry of the store names it as removed. --since and --anchor add
checkpoints kept elsewhere. Only they can show that the whole store was rolled back with all of its
files; they, and cosignatures of witnesses, that it was replaced, including its key. Give --key with
--since. A witness refuses the next checkpoint of a store that was rolled back.
The witnesses in events.witnesses are expected to have cosigned a checkpoint, unless --witness names
others. A store that a server has open is verified by that server, with --server, while it serves.
Checkpoints kept elsewhere and cosignatures are then checked here, with proofs of the server.
Events after the newest checkpoint, such as those that arrived right before a crash, are counted as
unsigned: nothing shows whether they are the ones that were appended.

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
    /// Directory or s3://BUCKET/PREFIX with checkpoints that `events.anchor` published. May be
    /// repeated.
    #[arg(long, value_name = "PLACE")]
    anchor: Vec<String>,
    /// Verifier key of the notes [default: that in --anchor, or the store's own].
    #[arg(long, value_name = "KEY")]
    key: Option<VerifierKey>,
    /// Key of a witness that must have cosigned a checkpoint. May be repeated.
    #[arg(long, value_name = "KEY")]
    witness: Vec<CosignerKey>,
    /// Verify the store of the running server at this URL, such as http://127.0.0.1:8090.
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// API key for the server, with scope read.
    #[arg(long, value_name = "KEY", requires = "server")]
    api_key: Option<String>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Maximum number of faults named.
const FAULTS_PRINTED: usize = 100;
pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let mut kept = kept(args)?;
    if let Some(server) = &args.server {
        let answer = events_verify_server::verify(server, args.api_key.as_deref(), &kept)?;
        let is_sound = answer["sound"].as_bool() == Some(true);
        show(&answer, args.json)?;
        return Ok(if is_sound { Exit::Ok } else { Exit::Failed });
    }
    let config = args.data.resolve()?.config().map_err(wrong)?;
    let dir = crate::layout::events(&config.process.data);
    if kept.witnesses.is_empty() {
        let witnesses = config.events.witnesses.0.iter().map(|(_, key)| key.clone());
        kept.witnesses = witnesses.collect();
        kept.quorum = usize::try_from(config.events.witness_quorum).unwrap_or(usize::MAX);
    }
    let fs: Arc<dyn FileSystem> = Arc::new(RealFs);
    let bar = if std::io::stderr().is_terminal() {
        ProgressBar::no_length().with_style(
            ProgressStyle::with_template("{pos} events {per_sec} {elapsed}")
                .unwrap_or_else(|_| ProgressStyle::default_bar()),
        )
    } else {
        ProgressBar::hidden()
    };
    let started = Instant::now();
    let verified = verify_kept(&fs, &dir, &kept, &|events| bar.inc(events));
    let took = started.elapsed();
    bar.finish_and_clear();
    let verified = verified.map_err(|error| {
        Coded::wrap(Exit::Start, format!("cannot verify {}", dir.display()), error.into())
    })?;
    let answer = answer(&verified, took.as_secs_f64());
    show(&answer, args.json)?;
    Ok(if verified.faults.is_empty() { Exit::Ok } else { Exit::Failed })
}

fn show(answer: &Value, json: bool) -> anyhow::Result<()> {
    if json { out::json(answer) } else { print(answer) }
}

/// Reads what was kept elsewhere.
fn kept(args: &Args) -> anyhow::Result<Kept> {
    let mut since = Vec::new();
    for path in &args.since {
        since.push(std::fs::read_to_string(path).map_err(|error| {
            Coded::wrap(Exit::Start, format!("cannot read {}", path.display()), error.into())
        })?);
    }
    let mut key = args.key.clone();
    for place in &args.anchor {
        let named = anchor(place).map_err(|error| Coded::error(Exit::Usage, error))?;
        let files = wiring::anchors::files(&named).ok_or_else(|| {
            let text = "--anchor must be a directory or s3://BUCKET/PREFIX, which can be read back";
            Coded::error(Exit::Usage, text)
        })?;
        let anchored = read_anchor(&*files).map_err(|error| {
            let exit = match error {
                AnchorError::Overwritten { .. } => Exit::Failed,
                _ => Exit::Start,
            };
            Coded::wrap(exit, "cannot use --anchor", error.into())
        })?;
        since.extend(anchored.notes);
        key = key.or(anchored.key);
    }
    let (witnesses, quorum) = (args.witness.clone(), args.witness.len());
    Ok(Kept { since, key, witnesses, quorum })
}

/// Returns the result as a server answers it.
fn answer(verified: &Verified, seconds: f64) -> Value {
    let faults: Vec<String> = verified.faults.iter().map(ToString::to_string).collect();
    serde_json::json!({
        "sound": faults.is_empty(),
        "events": verified.events,
        "pruned": verified.pruned,
        "pruned_before_recording": verified.pruned_before_recording,
        "leaf_bytes": verified.leaf_bytes,
        "file_bytes": verified.file_bytes,
        "segments": verified.segments,
        "checkpoints": verified.checkpoints,
        "unsigned_events": verified.unsigned,
        "cosigned_events": verified.witnessed.map(|it| it.events),
        "witnesses": verified.witnessed.map_or(0, |it| it.witnesses),
        "root": verified.root.map(|root| root.to_string()),
        "seconds": seconds,
        "faults": faults,
        "more_faults": 0,
    })
}

fn print(answer: &Value) -> anyhow::Result<()> {
    let number = |name: &str| answer[name].as_u64().unwrap_or_default();
    let took = answer["seconds"].as_f64().and_then(|it| Duration::try_from_secs_f64(it).ok());
    let micros = took.unwrap_or_default().as_micros().max(1);
    let rate = u128::from(number("leaf_bytes")) * 1_000_000 / micros;
    out::line(format_args!(
        "events       {} hashed, {} pruned\nbytes        {} of events, {} of files, {}/s\n\
         segments     {}\ncheckpoints  {}",
        number("events"),
        number("pruned"),
        out::size(number("leaf_bytes")),
        out::size(number("file_bytes")),
        out::size(u64::try_from(rate).unwrap_or(u64::MAX)),
        number("segments"),
        number("checkpoints"),
    ))?;
    if number("pruned_before_recording") > 0 {
        out::line(format_args!(
            "             {} of them before pruning was recorded",
            number("pruned_before_recording")
        ))?;
    }
    if number("unsigned_events") > 0 {
        out::line(format_args!(
            "unsigned     {} events after the newest checkpoint",
            number("unsigned_events")
        ))?;
    }
    if let Some(events) = answer["cosigned_events"].as_u64() {
        let witnesses = number("witnesses");
        out::line(format_args!(
            "cosigned     {events} events, by {witnesses} of the given witnesses"
        ))?;
    }
    if let Some(root) = answer["root"].as_str() {
        out::line(format_args!("root         {root}"))?;
    }
    let none = Vec::new();
    let faults = answer["faults"].as_array().unwrap_or(&none);
    for fault in faults.iter().take(FAULTS_PRINTED) {
        out::line(format_args!("WRONG        {}", fault.as_str().unwrap_or_default()))?;
    }
    let more = faults.len().saturating_sub(FAULTS_PRINTED) as u64 + number("more_faults");
    match more {
        0 if faults.is_empty() => out::line("no changes found"),
        0 => Ok(()),
        count => out::line(format_args!("WRONG        {count} more faults")),
    }
}
