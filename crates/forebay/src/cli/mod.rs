//! The command line: parses it and calls the command it names.
//!
//! Each command is one file. To add one: a file here with its arguments and a `run`, a variant in
//! [`Command`], an arm in [`run`].

mod backup;
mod backup_kept;
mod bench;
mod blobs;
mod cache;
mod cache_bench;
mod cache_cli;
mod cache_keys;
mod cache_serve;
mod cache_tls;
mod config;
mod connector;
mod connector_new;
mod connector_test;
mod document_client;
mod documents;
mod documents_follow;
mod documents_write;
mod events;
mod events_append;
mod events_export;
mod events_proof;
mod events_read;
mod events_tail;
mod events_verify;
mod events_verify_server;
mod export;
mod file_client;
mod files;
mod files_change;
mod files_copy;
mod files_duplicates;
mod files_stats;
mod fsck;
mod https;
mod import;
mod import_documents;
mod import_files;
mod ingest;
mod ingest_resume;
mod ingest_walk;
mod intake;
mod inventory;
mod inventory_build;
mod inventory_export;
mod inventory_generate;
mod inventory_read;
mod inventory_report;
mod inventory_tui;
mod jobs;
mod key;
mod namespaces;
mod pipeline;
mod pipeline_ask;
mod pipeline_bench;
mod pipeline_feed;
mod pipeline_init;
mod pipeline_run;
mod presign;
mod progress;
mod reference;
mod restore;
mod s3;
mod serve;
mod server;
mod settings;
mod tour;
mod uploads;
mod webhooks;

// The reviewed help is that of the build that is shipped.
#[cfg(all(test, not(feature = "peers")))]
mod golden;
#[cfg(test)]
mod tests;

use clap::{Parser, Subcommand};

use crate::exit::Exit;
use crate::out;

const AFTER_HELP: &str = "\
Examples:
  forebay tour                                    a one-minute demonstration with real files
  forebay serve                                   serve ./forebay-data on 127.0.0.1:8090
  forebay serve --data /srv/forebay --listen 127.0.0.1:0
  forebay key new --name laptop --scope write     create an API key; it is printed once
  forebay config show                             every setting and its source

Exit codes:
  0  success
  1  a check found a fault, or the command failed
  2  invalid command line or configuration; nothing was started
  3  the server could not start (address in use, data directory, TLS files), or the requested item
     is not in the index
  4  shutdown reached its time limit and ended requests that were still running
  130  a second signal stopped the process at once

Settings are taken from, in order of precedence: flags, FOREBAY_... environment variables,
forebay.toml, defaults.";

/// Stores files, JSON documents and events, and serves them.
#[derive(Debug, Parser)]
#[command(name = "forebay", version, after_help = AFTER_HELP, after_long_help = AFTER_HELP)]
#[command(propagate_version = true, arg_required_else_help = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Demonstrate the server on real files: kill it under load, restart it, verify everything.
    Tour(tour::Args),
    /// Run the server until SIGINT or SIGTERM.
    Serve(serve::Args),
    /// Print the configuration, or a template for it.
    #[command(subcommand)]
    Config(config::Command),
    /// Create, list and revoke API keys.
    #[command(subcommand)]
    Key(key::Command),
    /// Print a URL for one request that needs no API key.
    Presign(presign::Args),
    /// Print credentials for the S3-compatible port.
    #[command(subcommand)]
    S3(s3::Command),
    /// Check all stored data, and name what is damaged.
    Fsck(fsck::Args),
    /// Make a backup of all data while the server runs; list, verify and remove backups.
    Backup(backup::Args),
    /// Make a data directory of a backup.
    Restore(restore::Args),
    /// List, fetch, store, remove and search the files of a server.
    #[command(subcommand)]
    Files(files::Command),
    /// List, create, limit and remove the namespaces of files of a server.
    #[command(subcommand)]
    Namespaces(namespaces::Command),
    /// List, store, change, follow and delete the documents of a server.
    #[command(subcommand)]
    Documents(documents::Command),
    /// Store files and directories on a server, in parallel.
    Ingest(ingest::Args),
    /// Write the files and documents of a namespace to an archive.
    Export(export::Args),
    /// Store the files and documents of an archive on a server.
    Import(import::Args),
    /// Report on a server's intake, and decide again how documents are stored.
    #[command(subcommand)]
    Intake(intake::Command),
    /// Print where a server keeps the bytes of files, and move them.
    #[command(subcommand)]
    Blobs(blobs::Command),
    /// List, wait for, cancel and requeue the jobs of a server.
    #[command(subcommand)]
    Jobs(jobs::Command),
    /// Create, test and follow the webhooks of a server.
    #[command(subcommand)]
    Webhooks(webhooks::Command),
    /// List and remove the unfinished uploads of a server.
    #[command(subcommand)]
    Uploads(uploads::Command),
    /// Serve the cache alone, send it commands, load it, check its data.
    #[command(subcommand)]
    Cache(cache::Command),
    /// Append, search, prove and verify events in the event store.
    #[command(subcommand)]
    Events(events::Command),
    /// Build and query indexes of object store inventories: sizes, ages and costs by prefix.
    #[command(subcommand)]
    Inventory(inventory::Command),
    /// Copy rows between databases and files, exactly once even when killed.
    #[command(subcommand)]
    Pipeline(pipeline::Command),
    /// Install, list and check connectors that are WebAssembly components.
    #[command(subcommand)]
    Connector(connector::Command),
    /// Measure Forebay, and compare it with the limits of this machine.
    #[command(subcommand)]
    Bench(bench::Command),
    /// Print a shell completion script.
    Completions(reference::CompletionsArgs),
    /// Write the manual pages, one for each command.
    Man(reference::ManArgs),
    /// Print the version and build information.
    Version(reference::VersionArgs),
}

/// Parses the command line and runs the command.
///
/// # Errors
/// The error of the command; [`crate::exit::Coded`] names its exit code. Help that cannot be printed.
/// An invalid command line does not return: clap prints a message and ends the process with 2.
pub(crate) fn run() -> anyhow::Result<Exit> {
    let command = match Cli::try_parse() {
        Ok(cli) => cli.command,
        Err(error) if error.use_stderr() => error.exit(),
        Err(help) => {
            use std::io::Write as _;
            out::written(help.print().and_then(|()| std::io::stdout().flush()))?;
            return Ok(Exit::Ok);
        }
    };
    match command {
        Command::Tour(args) => tour::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Config(command) => config::run(&command),
        Command::Key(command) => key::run(&command),
        Command::Presign(args) => presign::run(&args),
        Command::S3(command) => s3::run(&command),
        Command::Fsck(args) => fsck::run(&args),
        Command::Backup(args) => backup::run(&args),
        Command::Restore(args) => restore::run(&args),
        Command::Files(command) => files::run(&command),
        Command::Namespaces(command) => namespaces::run(&command),
        Command::Documents(command) => documents::run(&command),
        Command::Ingest(args) => ingest::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Import(args) => import::run(&args),
        Command::Intake(command) => intake::run(&command),
        Command::Blobs(command) => blobs::run(&command),
        Command::Jobs(command) => jobs::run(&command),
        Command::Webhooks(command) => webhooks::run(&command),
        Command::Uploads(command) => uploads::run(&command),
        Command::Cache(command) => cache::run(&command),
        Command::Events(command) => events::run(&command),
        Command::Inventory(command) => inventory::run(&command),
        Command::Pipeline(command) => pipeline::run(&command),
        Command::Connector(command) => connector::run(&command),
        Command::Bench(command) => bench::run(&command),
        Command::Completions(args) => reference::completions(&args),
        Command::Man(args) => reference::man(&args),
        Command::Version(args) => reference::version(&args),
    }
}
