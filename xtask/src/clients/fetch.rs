//! External requirements of clients: installed programs, and files downloaded once.
//!
//! Everything lies outside the checkout, under a name with its version, so that another version
//! stands beside it. A file is checked against its SHA-256 before it is used.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

use super::Stage;

/// A missing requirement of a client, which is skipped.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Missing(pub(super) String);

/// Where fetched things lie: beside the tools of `cargo xtask setup`.
pub(super) fn dir() -> PathBuf {
    crate::setup::tools().join("clients")
}

/// Makes sure a program is there.
///
/// # Errors
/// [`Missing`].
pub(super) fn need(program: &str) -> anyhow::Result<()> {
    if crate::setup::is_there(program) {
        return Ok(());
    }
    Err(Missing(format!("{program} is not installed (cargo xtask setup)")).into())
}

/// Runs a step of fetching something.
///
/// # Errors
/// [`Missing`]: it failed, possibly for lack of a network.
pub(super) fn step(command: &mut Command, what: &str) -> anyhow::Result<()> {
    let ended = command.output().with_context(|| format!("cannot start {what}"))?;
    if ended.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&ended.stderr);
    let last =
        said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it printed nothing");
    Err(Missing(format!("{what}: {}", last.trim())).into())
}

/// Returns a Python with the packages of a list.
///
/// # Errors
/// [`Missing`]: there is no Python, or the packages cannot be downloaded.
pub(super) fn python(stage: &Stage, name: &str, list: &Path) -> anyhow::Result<PathBuf> {
    need("python3")?;
    let wanted =
        std::fs::read_to_string(list).with_context(|| format!("cannot read {}", list.display()))?;
    // A virtual environment contains its own path, so it is created in its final place.
    let dir = stage.dir.join(name);
    let program = dir.join("venv").join("bin").join("python");
    let ready = dir.join("ready");
    if std::fs::read_to_string(&ready).is_ok_and(|installed| installed == wanted) {
        return Ok(program);
    }
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let mut venv = Command::new("python3");
    venv.args(["-m", "venv", "--clear"]).arg(dir.join("venv"));
    step(&mut venv, "cannot create a virtual environment")?;
    let mut pip = Command::new(&program);
    pip.args(["-m", "pip", "--disable-pip-version-check", "install", "-q", "-r"]).arg(list);
    step(&mut pip, "cannot download Python packages")?;
    std::fs::write(&ready, wanted).with_context(|| format!("cannot write to {}", dir.display()))?;
    Ok(program)
}

/// Returns a `PATH` in which the programs of a Python's packages come first.
pub(super) fn path_of(python: &Path) -> OsString {
    let mut path = python.parent().unwrap_or(Path::new("")).as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    path
}

/// Makes a directory once: `make` fills a temporary one, which then takes the name.
///
/// # Errors
/// `make` failed.
pub(super) fn once(
    dir: &Path,
    make: impl FnOnce(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<PathBuf> {
    if dir.exists() {
        return Ok(dir.to_owned());
    }
    let parent = dir.parent().unwrap_or(dir);
    std::fs::create_dir_all(parent)
        .with_context(|| format!("cannot create {}", parent.display()))?;
    let made = tempfile::tempdir_in(parent)
        .with_context(|| format!("cannot create a directory in {}", parent.display()))?;
    make(made.path())?;
    std::fs::rename(made.keep(), dir)
        .with_context(|| format!("cannot rename a directory to {}", dir.display()))?;
    Ok(dir.to_owned())
}

/// Fetches a file by its address.
///
/// # Errors
/// [`Missing`]: not to be had. Another error: it is not the file that was pinned.
pub(super) fn file(address: &str, sha256: &str, to: &Path) -> anyhow::Result<()> {
    need("curl")?;
    let mut fetch = Command::new("curl");
    fetch.args(["-sSfL", "--max-time", "120", "-o"]).arg(to).arg(address);
    step(&mut fetch, &format!("cannot download {address}"))?;
    let sum = Command::new("sha256sum").arg(to).output().context("cannot start sha256sum")?;
    let sum = String::from_utf8_lossy(&sum.stdout).into_owned();
    if !sum.starts_with(sha256) {
        bail!("{address} does not have the pinned SHA-256; it has {sum}");
    }
    Ok(())
}

/// Unpacks a tar file into a directory.
///
/// # Errors
/// It does not unpack.
pub(super) fn unpack(file: &Path, into: &Path) -> anyhow::Result<()> {
    let mut tar = Command::new("tar");
    tar.arg("-xzf").arg(file).arg("-C").arg(into);
    step(&mut tar, &format!("cannot unpack {}", file.display()))
}
