//! The command line: what can be asked, and handing it on.
//!
//! One file a command. To add one: a file here with its arguments and a `run`, a variant in
//! [`Command`], an arm in [`run`].

mod bench;
mod cache;
mod cache_bench;
mod cache_cli;
mod cache_keys;
mod cache_serve;
mod cache_tls;
mod config;
mod events;
mod events_append;
mod events_export;
mod events_proof;
mod events_read;
mod events_tail;
mod events_verify;
mod fsck;
mod intake;
mod inventory;
mod inventory_build;
mod inventory_export;
mod inventory_generate;
mod inventory_read;
mod inventory_report;
mod inventory_tui;
mod key;
mod pipeline;
mod pipeline_ask;
mod pipeline_bench;
mod pipeline_init;
mod pipeline_run;
mod reference;
mod serve;
mod settings;
mod tour;

#[cfg(test)]
mod tests;

use clap::{Parser, Subcommand};

use crate::exit::Exit;

const AFTER_HELP: &str = "\
Examples:
  forebay tour                                    see what it does, in a minute, with real files
  forebay serve                                   serve ./forebay-data on 127.0.0.1:8090
  forebay serve --data /srv/forebay --listen 127.0.0.1:0
  forebay key new --name laptop --scope write     make an API key; it is shown once
  forebay config show                             every setting and where it came from

Exit codes:
  0  done
  1  a check found something wrong, or the command failed
  2  wrong command line or configuration; nothing was started
  3  the server could not start (address in use, data directory, TLS files), or what was asked
     for is not in the index
  4  shutdown reached its limit and cut requests that were still running
  130  a second signal stopped the process at once

Settings come from flags, then FOREBAY_... environment variables, then forebay.toml, then defaults.";

/// Takes in files, JSON documents and events, keeps them safe and gives them back.
#[derive(Debug, Parser)]
#[command(name = "forebay", version, after_help = AFTER_HELP, after_long_help = AFTER_HELP)]
#[command(propagate_version = true, arg_required_else_help = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// See it work on real files, through a kill -9 and back, with everything verified.
    Tour(tour::Args),
    /// Run the server until SIGINT or SIGTERM.
    Serve(serve::Args),
    /// Show or make a configuration.
    #[command(subcommand)]
    Config(config::Command),
    /// Make, list and revoke API keys.
    #[command(subcommand)]
    Key(key::Command),
    /// Re-read everything that is stored and name what is damaged.
    Fsck(fsck::Args),
    /// Ask a server about its intake.
    #[command(subcommand)]
    Intake(intake::Command),
    /// The key-value cache by itself: serve it, talk to it, load it, check its data.
    #[command(subcommand)]
    Cache(cache::Command),
    /// The event store: append, search, prove, verify.
    #[command(subcommand)]
    Events(events::Command),
    /// The inventory index: what lies below any prefix of a bucket or a directory, and what it costs.
    #[command(subcommand)]
    Inventory(inventory::Command),
    /// Move rows between databases and files: nothing lost, nothing doubled, wherever it is killed.
    #[command(subcommand)]
    Pipeline(pipeline::Command),
    /// Measure Forebay beside the machine's own limits.
    #[command(subcommand)]
    Bench(bench::Command),
    /// Print a completion script for a shell.
    Completions(reference::CompletionsArgs),
    /// Write manual pages, one a command, into a directory.
    Man(reference::ManArgs),
    /// Print the version and how this binary was built.
    Version(reference::VersionArgs),
}

/// Reads the command line and does what it asks.
///
/// # Errors
/// Whatever the command failed with; [`crate::exit::Coded`] says which exit code it means. A wrong
/// command line does not return: clap prints its message and ends the process with 2.
pub(crate) fn run() -> anyhow::Result<Exit> {
    match Cli::parse().command {
        Command::Tour(args) => tour::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Config(command) => config::run(&command),
        Command::Key(command) => key::run(&command),
        Command::Fsck(args) => fsck::run(&args),
        Command::Intake(command) => intake::run(&command),
        Command::Cache(command) => cache::run(&command),
        Command::Events(command) => events::run(&command),
        Command::Inventory(command) => inventory::run(&command),
        Command::Pipeline(command) => pipeline::run(&command),
        Command::Bench(command) => bench::run(&command),
        Command::Completions(args) => reference::completions(&args),
        Command::Man(args) => reference::man(&args),
        Command::Version(args) => reference::version(&args),
    }
}
