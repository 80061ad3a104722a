//! `cargo xtask test`: every test of the workspace, then unmodified clients against the cache.
//!
//! `FOREBAY_REQUIRE_SERVICES=1` is passed on: a test that needs something it does not find fails
//! instead of skipping. The clients ([`crate::clients`]) come last, and only where no tests are picked.

use crate::clients;
use crate::command::{cargo, run as run_command, say};

/// Arguments of the task.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Passed to `cargo test`, after `--` to the tests themselves.
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
        "services: redis-server, started by the tests that compare with it{}",
        if required { " (required)" } else { " (left out without it)" }
    ));
    run_command(cargo().args(["test", "--workspace", "--locked"]).args(&args.rest))?;
    if args.rest.is_empty() { clients::run(&clients::Args::after_tests()?) } else { Ok(()) }
}
