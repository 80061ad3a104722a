//! `forebay completions`, `forebay man` and `forebay version`.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::CommandFactory as _;
use clap_complete::Shell;
use serde_json::json;

use super::Cli;
use crate::exit::Exit;
use crate::out;

#[derive(clap::Args, Debug)]
#[command(after_help = "Example: forebay completions bash > /etc/bash_completion.d/forebay")]
pub(super) struct CompletionsArgs {
    /// Shell to print the script for.
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(clap::Args, Debug)]
#[command(after_help = "Example: forebay man ~/.local/share/man/man1")]
pub(super) struct ManArgs {
    /// Directory for the pages, created if it does not exist.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

#[derive(clap::Args, Debug)]
pub(super) struct VersionArgs {
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(super) fn completions(args: &CompletionsArgs) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "forebay", &mut script);
    out::line(String::from_utf8(script).context("the completion script is not UTF-8")?.trim_end())?;
    Ok(Exit::Ok)
}

pub(super) fn man(args: &ManArgs) -> anyhow::Result<Exit> {
    let failed = || format!("cannot write manual pages into {}", args.dir.display());
    std::fs::create_dir_all(&args.dir).with_context(failed)?;
    // Building first names subcommands in full, which makes the pages' file names unique.
    let mut command = Cli::command();
    command.build();
    clap_mangen::generate_to(command, &args.dir).with_context(failed)?;
    Ok(Exit::Ok)
}

pub(super) fn version(args: &VersionArgs) -> anyhow::Result<Exit> {
    let version = env!("CARGO_PKG_VERSION");
    let build = if cfg!(debug_assertions) { "debug" } else { "optimised" };
    let (os, architecture) = (std::env::consts::OS, std::env::consts::ARCH);
    if args.json {
        out::json(&json!({
            "version": version,
            "build": build,
            "os": os,
            "architecture": architecture,
            "features": features(),
        }))?;
    } else {
        out::line(format_args!("forebay {version} ({build}, {os} {architecture})"))?;
        let left_out: Vec<&str> =
            OPTIONAL.iter().filter(|(_, built)| !built).map(|(name, _)| *name).collect();
        if !left_out.is_empty() {
            let names = left_out.join(", ");
            let command = "cargo build --release --features full";
            out::line(format_args!("left out: {names}; build everything with: {command}"))?;
        }
    }
    Ok(Exit::Ok)
}

/// The parts that a build may leave out, and whether this one has them.
const OPTIONAL: [(&str, bool); 7] = [
    ("clickhouse", cfg!(feature = "clickhouse")),
    ("delta", cfg!(feature = "delta")),
    ("http-json", cfg!(feature = "http-json")),
    ("mongodb", cfg!(feature = "mongodb")),
    ("mysql", cfg!(feature = "mysql")),
    ("sql", cfg!(feature = "sql")),
    ("thumbnails", cfg!(feature = "thumbnails")),
];

/// The optional parts that this build has. `peers`, which is for benchmarks alone, is never reported
/// as left out.
fn features() -> Vec<&'static str> {
    let peers = ("peers", cfg!(feature = "peers"));
    OPTIONAL.into_iter().chain([peers]).filter(|(_, built)| *built).map(|(name, _)| name).collect()
}
