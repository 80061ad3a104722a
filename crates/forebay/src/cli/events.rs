//! `forebay events ...`: the event store on the command line, without a server.

use std::sync::Arc;

use forebay_base::clock::SystemClock;
use forebay_base::error_chain::chain;
use forebay_base::fs::RealFs;
use forebay_events::checkpoint::CosigningKey;
use forebay_events::witness::WitnessService;
use forebay_events::{OpenError, Options, Store};

use super::settings::{DataArgs, wrong};
use super::{events_append, events_export, events_proof, events_read, events_tail, events_verify};
use crate::exit::{Coded, Exit};
use crate::{data_dir, out, wiring};

#[derive(clap::Subcommand, Debug)]
pub(super) enum Command {
    /// Append events from log files or standard input to the store.
    Append(events_append::Args),
    /// Print one event.
    Get(events_read::GetArgs),
    /// Print matching events as JSON, one object per line, in order of time.
    Scan(Box<events_read::ScanArgs>),
    /// Print the newest events; with --server, also new ones as they arrive.
    Tail(events_tail::Args),
    /// Sign a checkpoint of all stored events, and print the signed note.
    Checkpoint(StoreArgs),
    /// Prove that an event is stored, or that a later tree extends an earlier one.
    Prove(events_proof::ProveArgs),
    /// Export matching events to files for other programs; each row can be proven.
    Export(Box<events_export::ExportArgs>),
    /// Check an export against its manifest, its hashes and its checkpoint.
    VerifyExport(events_export::VerifyArgs),
    /// Check a proof without the store; only the verifier key is needed.
    VerifyProof(events_proof::VerifyProofArgs),
    /// Read and hash all stored data, and compare it with the signed checkpoints.
    Verify(events_verify::Args),
    /// Print the key for cosigning checkpoints of other logs, or create it.
    WitnessKey(StoreArgs),
    /// Print counts and sizes.
    Stats(StoreArgs),
    /// Merge small segments, and remove events whose retention has ended.
    Compact(StoreArgs),
    /// Measure the event store on this machine.
    Bench(super::bench::EventsArgs),
}

/// The store, for commands that need nothing else.
#[derive(clap::Args, Debug)]
pub(super) struct StoreArgs {
    #[command(flatten)]
    data: DataArgs,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(command: &Command) -> anyhow::Result<Exit> {
    match command {
        Command::Append(args) => events_append::run(args),
        Command::Get(args) => events_read::get(args),
        Command::Scan(args) => events_read::scan(args),
        Command::Tail(args) => events_tail::run(args),
        Command::Checkpoint(args) => events_proof::checkpoint(&args.data, args.json),
        Command::Prove(args) => events_proof::prove(args),
        Command::Export(args) => events_export::export(args),
        Command::VerifyExport(args) => events_export::verify(args),
        Command::VerifyProof(args) => events_proof::verify_proof(args),
        Command::Verify(args) => events_verify::run(args),
        Command::WitnessKey(args) => witness_key(args),
        Command::Stats(args) => stats(args),
        Command::Compact(args) => compact(args),
        Command::Bench(args) => super::bench::events(args),
    }
}

/// Opens the store of a data directory, which must exist unless `create` is set.
///
/// # Errors
/// The configuration is not valid (exit code 2), or the store cannot be opened (3).
pub(super) fn open(data: &DataArgs, create: bool) -> anyhow::Result<Store> {
    let config = data.resolve()?.config().map_err(wrong)?;
    let options = wiring::events::options(&config);
    open_with(data, options, create)
}

/// Like [`open`], with `options` instead of the configured ones.
///
/// # Errors
/// As [`open`].
pub(super) fn open_with(data: &DataArgs, options: Options, create: bool) -> anyhow::Result<Store> {
    let config = data.resolve()?.config().map_err(wrong)?;
    let dir = crate::layout::events(&config.process.data);
    let failed = |error: OpenError| {
        let way_out = match &error {
            OpenError::Locked { .. } => {
                "; if `forebay serve` uses it, query the server (/v1/events, forebay events tail \
                 --server) or stop it first"
            }
            OpenError::Absent { .. } => "; name the data directory with --data",
            OpenError::Merkle { merkle: true, .. } => "; set events.merkle=true",
            OpenError::Merkle { merkle: false, .. } => "; set events.merkle=false",
            _ => "",
        };
        let error = chain(&error);
        Coded::error(Exit::Start, format!("cannot open the event store: {error}{way_out}"))
    };
    if !create && !Store::exists(&RealFs, &dir).map_err(failed)? {
        return Err(failed(OpenError::Absent { path: dir }));
    }
    if create {
        data_dir::prepare(&config.process.data)?;
    }
    let open = |options| Store::open(Arc::new(RealFs), Arc::new(SystemClock::new()), &dir, options);
    let opened = match open(options.clone()) {
        // A command that only reads uses the store as it was created.
        Err(OpenError::Merkle { merkle, .. }) if !create => open(Options { merkle, ..options }),
        opened => opened,
    };
    let (store, recovered) = opened.map_err(failed)?;
    if recovered.cut_bytes > 0 {
        out::note(format_args!(
            "{} bytes of an unacknowledged batch were truncated from the log",
            recovered.cut_bytes
        ));
    }
    Ok(store)
}

fn stats(args: &StoreArgs) -> anyhow::Result<Exit> {
    let store = open(&args.data, false)?;
    let stats = store.stats();
    if args.json {
        out::json(&serde_json::to_value(forebay_api::events::EventStats::of(&store))?)?;
    } else {
        out::line(format_args!(
            "events    {} accepted, {} kept, {} of them not yet in a segment\n\
             segments  {}, {}\nlog       {}\nkey       {}",
            stats.events,
            stats.events_kept,
            stats.events_in_memory,
            stats.segments,
            out::size(stats.segment_bytes),
            out::size(stats.log_bytes),
            store.verifier_key().map_or_else(
                |_| "none: this store has no proofs".to_owned(),
                |key| key.to_string()
            ),
        ))?;
    }
    store.close()?;
    Ok(Exit::Ok)
}

/// Prints the verifier key of the witness. The key alone is read, so a server may be running.
fn witness_key(args: &StoreArgs) -> anyhow::Result<Exit> {
    let config = args.data.resolve()?.config().map_err(wrong)?;
    let dir = crate::layout::witness(&config.process.data);
    let path = dir.join("key");
    let failed = |error: anyhow::Error| {
        Coded::wrap(Exit::Start, format!("cannot open the witness in {}", dir.display()), error)
    };
    let key = match CosigningKey::load(&RealFs, &path).map_err(|error| failed(error.into()))? {
        Some(key) => key.cosigner().clone(),
        None => {
            data_dir::prepare(&config.process.data)?;
            let (name, clock) = (&config.events.witness_name, Arc::new(SystemClock::new()));
            let logs = config.events.witness_logs.0.clone();
            WitnessService::open(Arc::new(RealFs), clock, &dir, name, logs)
                .map_err(|error| failed(error.into()))?
                .key()
                .clone()
        }
    };
    if args.json {
        out::json(&serde_json::json!({ "witness_key": key.to_string() }))?;
    } else {
        out::line(&key)?;
    }
    Ok(Exit::Ok)
}

fn compact(args: &StoreArgs) -> anyhow::Result<Exit> {
    let store = open(&args.data, false)?;
    let before = store.stats();
    store.flush()?;
    // A damaged segment stops neither of both for the others.
    let pruned = store.prune();
    let joined = store.compact();
    let pruned = pruned?;
    joined?;
    let after = store.stats();
    if args.json {
        out::json(&serde_json::json!({
            "segments_before": before.segments,
            "segments": after.segments,
            "segment_bytes": after.segment_bytes,
            "pruned_events": pruned.events,
            "pruned_bytes": pruned.bytes,
        }))?;
    } else {
        out::line(format_args!(
            "segments  {} before, {} now, {}\npruned    {} events, {}",
            before.segments,
            after.segments,
            out::size(after.segment_bytes),
            pruned.events,
            out::size(pruned.bytes),
        ))?;
    }
    store.close()?;
    Ok(Exit::Ok)
}
