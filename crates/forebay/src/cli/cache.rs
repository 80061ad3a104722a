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

#[derive(clap::Args, Debug)]
#[command(after_help = "Example: forebay cache check ./forebay-data")]
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
    let checked = forebay_cache::persist::check(&RealFs, dir, &mut |damage| damages.push(damage));
    let checked = checked.map_err(|error| {
        Coded::wrap(Exit::Start, format!("cannot check {}", dir.display()), error.into())
    })?;
    out::line(format_args!(
        "log        {} entries, {} bytes\nsnapshots  {} whole, {} usable, {} keys",
        checked.entries, checked.log_bytes, checked.snapshots, checked.usable, checked.keys
    ))?;
    if checked.tail.is_some() {
        out::line("torn tail  of writes that were never acknowledged; opening cuts it off")?;
    }
    for damage in &damages {
        out::line(format_args!("DAMAGED    {damage}"))?;
    }
    Ok(if damages.is_empty() { Exit::Ok } else { Exit::Failed })
}
