//! `cargo xtask`: the project's tasks.
//!
//! | task | does |
//! |---|---|
//! | `setup` | installs or checks what tests and checks need |
//! | `test` | sets up, then runs every test of the workspace |
//! | `ci` | format, lints, documentation, dependency rules, tidy |
//! | `tidy` | the rules of STYLE.md and the floors of ARCHITECTURE.md that a program can check |
//! | `fuzz` | builds every fuzz target and runs each for a few seconds |
//! | `connectors` | builds the connectors in `connectors/` as WebAssembly components |
//! | `clients` | runs unmodified clients' own tests, and a generated one, against a real server |
//! | `attack` | hostile checks against the real server, area by area |
//! | `bench` | measures a subsystem, compares it with its bars, writes BENCHMARKS.md |
//! | `dist` | makes the files that users install |
//!
//! Exit codes: 0 done, 1 a check failed, 2 wrong command line.

mod attack;
mod bench;
mod ci;
mod clients;
mod command;
mod connectors;
mod dist;
mod ferretdb;
mod fuzz;
mod setup;
mod test;
mod tidy;
mod valkey;
mod versitygw;

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
    /// Install or check the tools that tests and checks need.
    Setup,
    /// Run the setup, then every test of the workspace.
    Test(test::Args),
    /// Check formatting, lints, documentation, dependency rules and style.
    Ci,
    /// Check the rules of STYLE.md and ARCHITECTURE.md that a program can check.
    Tidy,
    /// Build every fuzz target and run each for a few seconds.
    Fuzz(fuzz::Args),
    /// Build the connectors as WebAssembly components.
    Connectors(connectors::Args),
    /// Run unmodified clients, and a generated one, against a real server.
    Clients(clients::Args),
    /// Run hostile checks against the real server.
    Attack(attack::Args),
    /// Measure a subsystem and compare the results with its targets.
    Bench(bench::Args),
    /// Make the files that users install: archive, Debian package, checksums.
    Dist(dist::Args),
}

fn main() -> ExitCode {
    let done = match Cli::parse().task {
        Task::Setup => setup::run(),
        Task::Test(args) => test::run(&args),
        Task::Ci => ci::run(),
        Task::Tidy => tidy::run(),
        Task::Fuzz(args) => fuzz::run(&args),
        Task::Connectors(args) => connectors::run(&args),
        Task::Clients(args) => clients::run(&args),
        Task::Attack(args) => attack::run(&args),
        Task::Bench(args) => bench::run(&args),
        Task::Dist(args) => dist::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            command::say(format_args!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
