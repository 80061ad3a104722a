//! Runs other programs, and shows their command lines.

use std::fmt::Display;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

/// How the variables begin that Cargo sets for a package it builds or runs.
const OF_THIS_PACKAGE: [&str; 6] = [
    "CARGO_BIN_",
    "CARGO_CRATE_NAME",
    "CARGO_MANIFEST_",
    "CARGO_PKG_",
    "CARGO_PRIMARY_PACKAGE",
    "OUT_DIR",
];

/// What Cargo builds beyond the default: everything, as it is tested and shipped.
pub(crate) const FEATURES: &str = "forebay/full";
/// The same and the drivers of other servers and tools, for benchmarks and lints. Not shipped.
pub(crate) const FEATURES_WITH_PEERS: &str = "forebay/full,forebay/peers";
/// The default build and these drivers.
pub(crate) const PEERS: &str = "forebay/peers";

/// Prints a message for the user on standard error.
pub(crate) fn say(text: impl Display) {
    writeln!(std::io::stderr().lock(), "{text}").unwrap_or_default();
}

/// The root of the workspace that Cargo runs this for. Where this was compiled may be another one: checkouts
/// that share a target directory share its programs.
pub(crate) fn root() -> PathBuf {
    let compiled = || env!("CARGO_MANIFEST_DIR").into();
    let here = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(compiled));
    here.parent().unwrap_or(&here).to_owned()
}

/// Cargo, the one that runs this, in the workspace's root.
///
/// What Cargo says of this package to this process is not passed on. Some build scripts watch those
/// variables, so with them a task builds what a plain `cargo build` built before: for ring that is
/// every crate above TLS, a quarter of an hour.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    apart(&mut command).current_dir(root());
    command
}

/// Keeps from a command what Cargo says of this package.
pub(crate) fn apart(command: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if OF_THIS_PACKAGE.iter().any(|start| text.starts_with(start)) {
            command.env_remove(&name);
        }
    }
    command
}

/// The host platform of the compiler, on which it builds and for which.
///
/// # Errors
/// `rustc` cannot be started, or does not print it.
pub(crate) fn platform() -> anyhow::Result<String> {
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    let version = output(rustc.arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc -vV printed no host")?.to_owned())
}

/// Runs `command`, shown before it starts.
///
/// # Errors
/// It cannot be started, or ends with anything but success.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    let shown = show(command);
    say(format_args!("$ {shown}"));
    let status = command.status().with_context(|| format!("cannot start {shown}"))?;
    if !status.success() {
        bail!("{shown} failed ({status})");
    }
    Ok(())
}

/// Runs `command` quietly and returns its standard output; its standard error passes through.
///
/// # Errors
/// It cannot be started, fails, or prints something that is not UTF-8.
pub(crate) fn output(command: &mut Command) -> anyhow::Result<String> {
    let shown = show(command);
    say(format_args!("$ {shown}"));
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start {shown}"))?;
    if !output.status.success() {
        bail!("{shown} failed ({})", output.status);
    }
    String::from_utf8(output.stdout)
        .with_context(|| format!("{shown} printed bytes that are not UTF-8"))
}

/// Whether `command` runs and succeeds; nothing is shown.
pub(crate) fn works(command: &mut Command) -> bool {
    command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// A command line, as it is shown.
pub(crate) fn show(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy();
    let args = command.get_args().map(|arg| arg.to_string_lossy());
    std::iter::once(name).chain(args).collect::<Vec<_>>().join(" ")
}
