//! `forebay events verify`.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_base::fs::{FileSystem, RealFs};
use forebay_events::checkpoint::VerifierKey;
use forebay_events::store::{Verified, read_anchor, verify};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

use super::settings::{DataArgs, wrong};
use crate::exit::{Coded, Exit};
use crate::out;

const AFTER_HELP: &str = "\
Examples:
  forebay events verify
  forebay events verify --since checkpoint-of-last-month.txt --key 'forebay.local/events+...'
  forebay events verify --anchor /mnt/elsewhere/checkpoints
  forebay events verify --server http://127.0.0.1:8090

Reads every segment and the log, computes the BLAKE3 digest of each sealed file, hashes every event,
builds the tree from those hashes alone, and compares it with the stored tree and with every
checkpoint signed by this store. Filters and indexes are compared with the events. An event is
reported as absent unless a signed entry of the store names it as removed. --since and --anchor add
checkpoints kept elsewhere. Only they can show that the whole store was replaced, including its
key, or that its newest checkpoints were removed; give --key with --since. A store that a server has
open is verified by that server, with --server, while it serves.

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
    /// Directory with the checkpoints that `events.anchor` published.
    #[arg(long, value_name = "DIR")]
    anchor: Option<PathBuf>,
    /// Verifier key of the notes [default: that in --anchor, or the store's own].
    #[arg(long, value_name = "KEY")]
    key: Option<VerifierKey>,
    /// Verify the store of the running server at this URL, such as http://127.0.0.1:8090.
    #[arg(long, value_name = "URL", conflicts_with_all = ["since", "anchor", "key"])]
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
/// Maximum size of a server's answer.
const ANSWER_SIZE_MAX: u64 = 4 << 20;

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    if let Some(server) = &args.server {
        return on_server(args, server);
    }
    let config = args.data.resolve()?.config().map_err(wrong)?;
    let dir = crate::layout::events(&config.process.data);
    let mut since = Vec::new();
    for path in &args.since {
        since.push(std::fs::read_to_string(path).map_err(|error| {
            Coded::wrap(Exit::Start, format!("cannot read {}", path.display()), error.into())
        })?);
    }
    let mut key = args.key.clone();
    let fs: Arc<dyn FileSystem> = Arc::new(RealFs);
    if let Some(dir) = &args.anchor {
        let anchored = read_anchor(&*fs, dir)
            .map_err(|error| Coded::wrap(Exit::Start, "cannot read --anchor", error.into()))?;
        since.extend(anchored.notes);
        key = key.or(anchored.key);
    }
    let bar = if std::io::stderr().is_terminal() {
        ProgressBar::no_length().with_style(
            ProgressStyle::with_template("{pos} events {per_sec} {elapsed}")
                .unwrap_or_else(|_| ProgressStyle::default_bar()),
        )
    } else {
        ProgressBar::hidden()
    };
    let started = Instant::now();
    let verified = verify(&fs, &dir, &since, key.as_ref(), &|events| bar.inc(events));
    let took = started.elapsed();
    bar.finish_and_clear();
    let verified = verified.map_err(|error| {
        Coded::wrap(Exit::Start, format!("cannot verify {}", dir.display()), error.into())
    })?;
    let answer = answer(&verified, took.as_secs_f64());
    if args.json {
        out::json(&answer)?;
    } else {
        print(&answer)?;
    }
    Ok(if verified.faults.is_empty() { Exit::Ok } else { Exit::Failed })
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

/// Asks a server to verify its event store.
fn on_server(args: &Args, server: &str) -> anyhow::Result<Exit> {
    let server = server.trim_end_matches('/');
    let server = match server.contains("://") {
        true => server.to_owned(),
        false => format!("http://{server}"),
    };
    let url = format!("{server}/v1/events/verify");
    let mut request = ureq::get(&url).config().http_status_as_error(false).build();
    if let Some(key) = &args.api_key {
        request = request.header("authorization", format!("Bearer {key}"));
    }
    let failed = |what: &str| {
        let text = format!("cannot {what} {server}");
        |error: ureq::Error| Coded::wrap(Exit::Start, text, error.into())
    };
    let mut response = request.call().map_err(failed("connect to"))?;
    let body = response.body_mut().with_config().limit(ANSWER_SIZE_MAX).read_to_string();
    let body = body.map_err(failed("read the answer of"))?;
    let answer: Value = serde_json::from_str(&body).unwrap_or_default();
    if !response.status().is_success() {
        let message = answer["error"]["message"].as_str().map_or(body, str::to_owned);
        let text = format!("{server} refuses ({}): {message}", response.status());
        return Err(Coded::error(Exit::Start, text));
    }
    let Some(sound) = answer["sound"].as_bool() else {
        let text = format!("{server} did not answer with the result of a verification");
        return Err(Coded::error(Exit::Start, text));
    };
    if args.json {
        out::json(&answer)?;
    } else {
        print(&answer)?;
    }
    Ok(if sound { Exit::Ok } else { Exit::Failed })
}
