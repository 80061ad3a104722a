//! FerretDB, against which tests of the MongoDB protocol run.
//!
//! It is built from one fixed version of its Go module, verified by Go's checksum database, with
//! the installed Go. The binary is stored with the other tools; the build's other files are
//! removed. It is not needed to build or to run Forebay: without Go or a network, those tests
//! report that they were skipped.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use crate::command::{output, run, say, works};
use crate::setup::tools;

/// The last version that stores its data in SQLite, and so needs no other server.
const VERSION: &str = "v1.24.0";
const MODULE: &str = "github.com/FerretDB/FerretDB";

/// Its path.
pub(crate) fn path() -> PathBuf {
    tools().join("ferretdb")
}

/// Builds it if it does not exist; prints why if that is not possible.
pub(crate) fn install() {
    let path = path();
    if works(Command::new(&path).arg("--version")) {
        return;
    }
    let way_out = "tests of the MongoDB protocol will be skipped";
    if !works(Command::new("go").arg("version")) {
        say(format_args!("go is not installed: FerretDB cannot be built, so {way_out}"));
        return;
    }
    say(format_args!(
        "building FerretDB {VERSION} into {}; this is done once and takes a few minutes",
        path.display()
    ));
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
    let found: serde_json::Value = serde_json::from_str(&output(&mut download)?)
        .context("cannot read the module's directory from go")?;
    let from = found.get("Dir").and_then(serde_json::Value::as_str);
    let from = from.with_context(|| format!("go did not print the directory of {module}"))?;
    let source = work.join("source");
    // The module cache is read-only, and the version is written next to the binary.
    run(Command::new("cp").args(["-r", "--no-preserve=mode", from]).arg(&source))?;
    let version = source.join("build").join("version").join("version.txt");
    std::fs::write(&version, format!("{VERSION}\n"))
        .with_context(|| format!("cannot write {}", version.display()))?;
    let made = work.join("ferretdb");
    let mut build = Command::new("go");
    build.args(["build", "-trimpath", "-buildvcs=false", "-o"]).arg(&made).arg("./cmd/ferretdb");
    // Its request for a newer Go is ignored: that version would be downloaded.
    run(build.env("GOTOOLCHAIN", "local").env("CGO_ENABLED", "0").current_dir(&source))?;
    std::fs::rename(&made, path)
        .with_context(|| format!("cannot move FerretDB to {}", path.display()))?;
    remove(&work)
}

/// Removes a directory if it exists.
fn remove(directory: &Path) -> anyhow::Result<()> {
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", directory.display()))
        }
        _ => Ok(()),
    }
}
