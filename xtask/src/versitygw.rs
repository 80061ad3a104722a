//! versitygw: the server that uploads over S3 are compared with, and the client that brings its own
//! tests of any such server. Built once, from the Go module proxy.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::root;

/// The module, in the version that figures and lists are of.
const MODULE: &str = "github.com/versity/versitygw/cmd/versitygw@v1.8.0";

/// Where the benchmarks keep it.
pub(crate) fn peer() -> PathBuf {
    root().join("target/peers/versitygw-1.8.0")
}

/// The command that builds it into a directory.
pub(crate) fn build_into(dir: &Path) -> Command {
    let mut go = Command::new("go");
    go.args(["install", MODULE]).env("GOBIN", dir).env("GOFLAGS", "");
    go
}
