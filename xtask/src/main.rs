//! `cargo xtask`: what the project needs done around its code.
//!
//! | task | does |
//! |---|---|
//! | `setup` | installs or checks what tests and checks need |
//! | `test` | sets up, then runs every test of the workspace |
//! | `ci` | format, lints, documentation, dependency rules, tidy |
//! | `tidy` | the rules of STYLE.md and the floors of ARCHITECTURE.md that a program can check |
//! | `clients` | runs unmodified clients' own tests against a real cache server |
//! | `bench` | measures a subsystem, compares it with its bars, writes BENCHMARKS.md |
//!
//! Exit codes: 0 done, 1 a check failed, 2 wrong command line.

mod bench;
mod ci;
mod clients;
mod command;
mod ferretdb;
mod setup;
mod test;
mod tidy;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Project tasks of Forebay.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Install or check what tests and checks need.
    Setup,
    /// Set up, then run every test of the workspace.
    Test(test::Args),
    /// Format, lints, documentation, dependency rules, tidy.
    Ci,
    /// Check the written rules a program can check.
    Tidy,
    /// Run unmodified clients against a real cache server.
    Clients(clients::Args),
    /// Measure a subsystem and compare it with its bars.
    Bench(bench::Args),
}

fn main() -> ExitCode {
    let done = match Cli::parse().task {
        Task::Setup => setup::run(),
        Task::Test(args) => test::run(&args),
        Task::Ci => ci::run(),
        Task::Tidy => tidy::run(),
        Task::Clients(args) => clients::run(&args),
        Task::Bench(args) => bench::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            command::say(format_args!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
