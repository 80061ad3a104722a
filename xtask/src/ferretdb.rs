//! A FerretDB among the tools: what tests of the MongoDB protocol run against.
//!
//! It is built from its Go module of one fixed version, whose checksum the checksum database of Go
//! knows, with the Go that is there. The binary is kept beside the other tools; what the build leaves
//! behind is removed. Nothing of it is needed to build or to run Forebay: without Go or a network, those
//! tests say that they were left out.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use crate::command::{output, run, say, works};
use crate::setup::tools;

/// The last version that keeps its data in SQLite, and so needs no other server.
const VERSION: &str = "v1.24.0";
const MODULE: &str = "github.com/FerretDB/FerretDB";

/// Where it is kept.
pub(crate) fn path() -> PathBuf {
    tools().join("ferretdb")
}

/// Builds it where it is not there; says why, where it cannot.
pub(crate) fn install() {
    let path = path();
    if works(Command::new(&path).arg("--version")) {
        return;
    }
    let way_out = "tests of the MongoDB protocol will be left out";
    if !works(Command::new("go").arg("version")) {
        say(format_args!("go is missing: FerretDB cannot be built, {way_out}"));
        return;
    }
    say(format_args!("building FerretDB {VERSION} into {}: once, a few minutes", path.display()));
    if let Err(error) = build(&path) {
        say(format_args!("{error:#}: {way_out}"));
    }
}

fn build(path: &Path) -> anyhow::Result<()> {
    let tools = tools();
    let work = tools.join("ferretdb-build");
    remove(&work)?;
    std::fs::create_dir_all(&work).with_context(|| format!("cannot create {}", work.display()))?;
    let module = format!("{MODULE}@{VERSION}");
    let mut download = Command::new("go");
    download.args(["mod", "download", "-json", &module]).current_dir(&work);
    let found: serde_json::Value =
        serde_json::from_str(&output(&mut download)?).context("go says where the module is")?;
    let from = found.get("Dir").and_then(serde_json::Value::as_str);
    let from = from.with_context(|| format!("go does not say where {module} is"))?;
    let source = work.join("source");
    // The cache of modules is read-only, and the version is written beside what is built.
    run(Command::new("cp").args(["-r", "--no-preserve=mode", from]).arg(&source))?;
    let version = source.join("build").join("version").join("version.txt");
    std::fs::write(&version, format!("{VERSION}\n"))
        .with_context(|| format!("cannot write {}", version.display()))?;
    let made = work.join("ferretdb");
    let mut build = Command::new("go");
    build.args(["build", "-trimpath", "-buildvcs=false", "-o"]).arg(&made).arg("./cmd/ferretdb");
    // Its own wish for a newer Go is not followed: that one would be downloaded.
    run(build.env("GOTOOLCHAIN", "local").env("CGO_ENABLED", "0").current_dir(&source))?;
    std::fs::rename(&made, path).with_context(|| format!("cannot put {}", path.display()))?;
    remove(&work)
}

/// Removes a directory that may not be there.
fn remove(directory: &Path) -> anyhow::Result<()> {
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", directory.display()))
        }
        _ => Ok(()),
    }
}
