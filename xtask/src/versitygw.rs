//! versitygw: the server that uploads over S3 are compared with, and the client that brings its own
//! tests of any such server. Built once, from the Go module proxy.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{root, say};
use crate::setup::tools;

/// The module.
const MODULE: &str = "github.com/versity/versitygw";
/// The version that figures and lists are of.
const VERSION: &str = "v1.8.0";

/// Where the benchmarks keep it.
pub(crate) fn peer() -> PathBuf {
    root().join("target/peers/versitygw-1.8.0")
}

/// Builds the one that tests start if it does not exist; prints why if that is not possible.
pub(crate) fn install() {
    let path = tools().join("versitygw");
    if path.is_file() {
        return;
    }
    say(format_args!("building versitygw {VERSION} into {}; this is done once", path.display()));
    if let Err(error) = crate::command::run(&mut build_into(&tools())) {
        say(format_args!("{error:#}: tests of blobs in object storage will be skipped"));
    }
}

/// The command that builds it into a directory.
pub(crate) fn build_into(dir: &Path) -> Command {
    let mut go = Command::new("go");
    go.args(["install", &format!("{MODULE}/cmd/versitygw@{VERSION}")])
        .env("GOBIN", dir)
        .env("GOFLAGS", "");
    go
}

/// The command that makes it a requirement of the module in a directory.
pub(crate) fn require_in(dir: &Path) -> Command {
    let mut go = Command::new("go");
    go.current_dir(dir).args(["get", &format!("{MODULE}@{VERSION}")]).env("GOFLAGS", "-mod=mod");
    go
}
