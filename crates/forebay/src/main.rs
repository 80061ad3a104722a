//! The `forebay` command: one binary, one data directory, one configuration.
//!
//! `cli` reads the command line and `config` the settings; `wiring` opens the subsystems and
//! `serve` runs the server, which `forebay-api` provides. Only this crate reads configuration
//! files, the environment, arguments and signals, or installs tracing: every other crate is a
//! library that receives its settings.

mod allocator;
mod archive;
mod backup;
mod buckets;
mod cli;
mod config;
mod data_dir;
mod descriptors;
mod export;
mod pipelines;
mod ports;
mod serve;
mod slices;
mod soundness;
mod telemetry;
mod usage;
mod wiring;

use std::process::ExitCode;

use forebay_console::{cache_client, exit, interrupt, layout, out};
use forebay_tour::{bench, child, tour};

fn main() -> ExitCode {
    allocator::limit_arenas();
    match cli::run() {
        Ok(exit) => exit.into(),
        Err(error) => {
            out::error(&error);
            exit::Coded::exit_of(&error).into()
        }
    }
}
