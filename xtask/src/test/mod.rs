//! `cargo xtask test`: every test of the workspace, two programs at a time ([`programs`]), then unmodified clients
//! against the cache, then the quick attacks.
//!
//! `FOREBAY_REQUIRE_SERVICES=1` is passed on: a test with a missing requirement then fails instead
//! of skipping. The clients ([`crate::clients`]) and the attacks ([`crate::attack`]) run last, and
//! only if no tests are selected.

mod programs;

use crate::command::{FEATURES, cargo, run as run_command, say};
use crate::{attack, clients};

/// Arguments of the task.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Arguments for `cargo test`; those after `--` are for the test programs.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

/// The task.
///
/// # Errors
/// A test failed or the workspace does not compile.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let required = std::env::var_os("FOREBAY_REQUIRE_SERVICES").is_some_and(|value| value == "1");
    say(format_args!(
        "services: redis-server, started by the tests that compare results with it{}",
        if required { " (required)" } else { " (skipped if not installed)" }
    ));
    if crate::connectors::can_build() {
        crate::connectors::build_all(crate::connectors::QUICK)?;
    } else {
        say("connectors are not built: there is no compiler for WebAssembly");
    }
    let mut test = cargo();
    test.args(["test", "--workspace", "--features", FEATURES, "--locked"]);
    if !args.rest.is_empty() {
        return run_command(test.args(&args.rest));
    }
    programs::run()?;
    run_command(test.arg("--doc"))?;
    let clients = clients::run(&clients::Args::after_tests()?);
    // One run reports everything, as far as possible.
    let attacks = attack::run(&attack::Args::after_tests()?);
    clients.and(attacks)
}
