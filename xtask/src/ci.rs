//! `cargo xtask ci`: everything that is checked besides the tests.
//!
//! All checks run even when one fails, so that one run tells everything.

use anyhow::bail;

use crate::command::{cargo, run as run_command, say};
use crate::{setup, tidy};

/// The task.
///
/// # Errors
/// The names of the checks that failed.
pub(crate) fn run() -> anyhow::Result<()> {
    let mut failed = Vec::new();
    let mut check = |name: &'static str, done: anyhow::Result<()>| match done {
        Ok(()) => say(format_args!("{name}: ok")),
        Err(error) => {
            say(format_args!("{name}: FAILED: {error:#}"));
            failed.push(name);
        }
    };
    check("tidy", tidy::run());
    check("format", run_command(cargo().args(["fmt", "--all", "--check"])));
    check(
        "lints",
        run_command(cargo().args([
            "clippy",
            "--workspace",
            "--all-targets",
            "--locked",
            "--",
            "-D",
            "warnings",
        ])),
    );
    check(
        "documentation",
        run_command(
            cargo()
                .args(["doc", "--workspace", "--no-deps", "--document-private-items", "--locked"])
                .env("RUSTDOCFLAGS", "-D warnings"),
        ),
    );
    let skipped = match setup::cargo_deny() {
        Some(mut deny) => {
            deny.current_dir(crate::command::root());
            let args = ["--locked", "check", "bans", "licenses", "sources"];
            check("dependencies", run_command(deny.args(args)));
            ""
        }
        None => " (SKIPPED: dependencies, for want of cargo-deny)",
    };
    if failed.is_empty() {
        say(format_args!("ci: ok{skipped}"));
        Ok(())
    } else {
        bail!("ci: failed: {}{skipped}", failed.join(", "))
    }
}
