//! `cargo xtask ci`: everything that is checked besides the tests.
//!
//! All checks run even when one fails, so that one run reports everything.

use std::process::Command;

use anyhow::bail;

use crate::command::{FEATURES, FEATURES_WITH_PEERS, cargo, run as run_command, say};
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
    for (name, manifest) in [
        ("format of the fuzz targets", "fuzz/Cargo.toml"),
        ("format of the connectors", "connectors/Cargo.toml"),
    ] {
        check(
            name,
            run_command(cargo().args(["fmt", "--all", "--check", "--manifest-path", manifest])),
        );
    }
    check("lock files", LOCKED_APART.iter().try_for_each(|manifest| locked(manifest)));
    check(
        "lints",
        run_command(cargo().args([
            "clippy",
            "--workspace",
            "--features",
            FEATURES_WITH_PEERS,
            "--all-targets",
            "--locked",
            "--",
            "-D",
            "warnings",
        ])),
    );
    check(
        "lints of the default build",
        run_command(cargo().args(["clippy", "-p", "forebay", "--locked", "--", "-D", "warnings"])),
    );
    check(
        "documentation",
        run_command(
            cargo()
                .args(["doc", "--workspace", "--features", FEATURES])
                .args(["--no-deps", "--document-private-items", "--locked"])
                .env("RUSTDOCFLAGS", "-D warnings"),
        ),
    );
    check("dependencies", dependencies(setup::cargo_deny()));
    if failed.is_empty() {
        say("ci: ok");
        Ok(())
    } else {
        bail!("ci: failed: {}", failed.join(", "))
    }
}

/// Packages that are no members of the workspace and have their own lock file.
const LOCKED_APART: [&str; 3] =
    ["connectors/Cargo.toml", "fuzz/Cargo.toml", "bench/events/Cargo.toml"];

/// Checks that a lock file has what its manifest and those it depends on ask for.
fn locked(manifest: &str) -> anyhow::Result<()> {
    let tree = ["tree", "--locked", "--quiet", "--depth", "0", "--manifest-path", manifest];
    run_command(cargo().args(tree))
}

/// What of `deny.toml` is checked without a network.
const DENY: [&str; 5] = ["--locked", "check", "bans", "licenses", "sources"];

/// Checks what is depended on; without `cargo-deny` that is a failure, because nothing was checked.
fn dependencies(deny: Option<Command>) -> anyhow::Result<()> {
    let Some(mut deny) = deny else {
        bail!(
            "cargo-deny is not installed, so dependencies were not checked; {}",
            setup::install_cargo_deny()
        )
    };
    deny.current_dir(crate::command::root());
    run_command(deny.args(DENY))?;
    say("dependencies: advisories are NOT checked, because their database must be downloaded; \
         with network access, run: cargo deny check advisories");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_cargo_deny_the_check_fails_and_names_the_command_that_installs_it() {
        let error = dependencies(None).unwrap_err().to_string();
        assert!(error.contains("cargo install cargo-deny"), "{error}");
    }

    #[test]
    fn a_dependency_that_is_refused_fails_the_check() {
        assert!(dependencies(Some(Command::new("false"))).is_err());
        assert!(dependencies(Some(Command::new("true"))).is_ok());
    }
}
