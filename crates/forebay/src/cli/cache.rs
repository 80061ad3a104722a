//! `forebay cache ...`.

use std::path::{Path, PathBuf};

use forebay_base::fs::RealFs;

use super::{cache_bench, cache_cli, cache_keys, cache_serve};
use crate::exit::{Coded, Exit};
use crate::{out, wiring};

#[derive(clap::Subcommand, Debug)]
pub(super) enum Command {
    /// Serve the cache alone, without the HTTP server.
    Serve(Box<cache_serve::Args>),
    /// Talk to a cache, line by line, over RESP or the text protocol.
    Cli(cache_cli::Args),
    /// Show the largest keys of a running cache.
    Keys(cache_keys::Args),
    /// Load a running cache and tell throughput, latency and its CPU time an operation.
    Bench(cache_bench::Args),
    /// Re-read the log and the snapshots of a cache that is not running, and name what is damaged.
    Check(CheckArgs),
}

/// Damaged places named one by one.
const DAMAGES_TOLD: usize = 1_000;

const CHECK_HELP: &str = "\
Example: forebay cache check ./forebay-data

Every frame of the log is read against its checksum, every operation in it must be one that this
program can do again, and every snapshot must be whole and belong to the log. Nothing is changed.
Exit codes: 0 all is well, 1 something is damaged and named with its file and offset, 3 it could not
be looked at: there is none, or it is in use.";

#[derive(clap::Args, Debug)]
#[command(after_help = CHECK_HELP)]
pub(super) struct CheckArgs {
    /// The data directory, or the cache directory inside it.
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
    let inside = wiring::cache::dir(dir);
    let dir = if inside.is_dir() { &inside } else { dir };
    let mut damages = Vec::new();
    let checked = forebay_cache::check(&RealFs, dir, &mut |damage| {
        if damages.len() < DAMAGES_TOLD {
            damages.push(damage);
        }
    });
    let checked = checked.map_err(|error| {
        Coded::wrap(Exit::Start, format!("cannot check {}", dir.display()), error.into())
    })?;
    out::line(format_args!(
        "log        {} entries, {} bytes, {} operations\nsnapshots  {} whole, {} usable, {} keys",
        checked.entries,
        checked.log_bytes,
        checked.operations,
        checked.snapshots,
        checked.usable,
        checked.keys
    ))?;
    if checked.tail.is_some() {
        out::line("torn tail  of writes that were never acknowledged; opening cuts it off")?;
    }
    for damage in &damages {
        out::line(format_args!("DAMAGED    {damage}"))?;
    }
    let more = checked.damages.saturating_sub(damages.len() as u64);
    if more > 0 {
        out::line(format_args!("DAMAGED    {more} places more"))?;
    }
    Ok(if damages.is_empty() { Exit::Ok } else { Exit::Failed })
}
