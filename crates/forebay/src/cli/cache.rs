//! `forebay cache ...`.

use std::path::{Path, PathBuf};

use forebay_base::fs::RealFs;

use super::{cache_bench, cache_cli, cache_keys, cache_serve};
use crate::exit::{Coded, Exit};
use crate::out;

#[derive(clap::Subcommand, Debug)]
pub(super) enum Command {
    /// Serve only the cache, without the HTTP server.
    Serve(Box<cache_serve::Args>),
    /// Send commands to a cache, over RESP or the text protocol.
    Cli(cache_cli::Args),
    /// Show the largest keys of a running cache.
    Keys(cache_keys::Args),
    /// Load a running cache, and report throughput, latency and CPU time per operation.
    Bench(cache_bench::Args),
    /// Check the log and snapshots of a cache that is not running, and name what is damaged.
    Check(CheckArgs),
}

/// Maximum number of damaged places named.
const DAMAGES_PRINTED: usize = 1_000;

const CHECK_HELP: &str = "\
Example: forebay cache check ./forebay-data

Verifies the checksum of every frame of the log, checks that every operation in it can be replayed,
and that every snapshot is complete and belongs to the log. Changes nothing.
Exit codes: 0 no damage found; 1 something is damaged and is named with its file and offset; 3 there
is no cache, or it is in use.";

#[derive(clap::Args, Debug)]
#[command(after_help = CHECK_HELP)]
pub(super) struct CheckArgs {
    /// Data directory, or the cache directory in it.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

pub(super) fn run(command: &Command) -> anyhow::Result<Exit> {
    match command {
        Command::Serve(args) => cache_serve::run(args),
        Command::Cli(args) => cache_cli::run(args),
        Command::Keys(args) => cache_keys::run(args),
        Command::Bench(args) => cache_bench::run(args),
        Command::Check(args) => check(&args.dir),
    }
}

fn check(dir: &Path) -> anyhow::Result<Exit> {
    let inside = crate::layout::cache(dir);
    let dir = if inside.is_dir() { &inside } else { dir };
    if !dir.join("log").is_dir() {
        let text = format!("cannot check {}: there is no cache", dir.display());
        return Err(Coded::error(Exit::Start, text));
    }
    let mut damages = Vec::new();
    let checked = forebay_cache::check(&RealFs, dir, &mut |damage| {
        if damages.len() < DAMAGES_PRINTED {
            damages.push(damage);
        }
    });
    let checked = checked.map_err(|error| {
        Coded::wrap(Exit::Start, format!("cannot check {}", dir.display()), error.into())
    })?;
    out::line(format_args!(
        "log        {} entries, {} bytes, {} operations\n\
         snapshots  {} complete, {} usable, {} keys",
        checked.entries,
        checked.log_bytes,
        checked.operations,
        checked.snapshots,
        checked.usable,
        checked.keys
    ))?;
    if checked.tail.is_some() {
        out::line("torn tail  writes that were never acknowledged; opening truncates them")?;
    }
    for damage in &damages {
        out::line(format_args!("DAMAGED    {damage}"))?;
    }
    let more = checked.damages.saturating_sub(damages.len() as u64);
    if more > 0 {
        out::line(format_args!("DAMAGED    {more} more places"))?;
    }
    Ok(if damages.is_empty() { Exit::Ok } else { Exit::Failed })
}
