//! Shared by the tests of the event store: requests to the command line and the server.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Answer, SMALL_LOG, Server, forebay, send, stderr};

/// `forebay events ...`, with a small log to read at each start.
fn command(dir: &TempDir, args: &[&str]) -> Command {
    let mut command = forebay(dir);
    command.arg("events").args(args).env(SMALL_LOG.0, SMALL_LOG.1).stdin(Stdio::null());
    command
}

/// Runs `forebay events ...` to its end.
pub(crate) fn run(dir: &TempDir, args: &[&str]) -> Output {
    command(dir, args).output().unwrap()
}

/// Runs `forebay events append` with this standard input.
pub(crate) fn append(dir: &TempDir, args: &[&str], input: &[u8]) -> Output {
    let mut command = command(dir, &["append"]);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

/// The same, with all events accepted; returns the output.
pub(crate) fn append_ok(dir: &TempDir, args: &[&str], input: &[u8]) -> Value {
    let output = append(dir, args, input);
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Runs `forebay events ...`, which must succeed.
pub(crate) fn events(dir: &TempDir, args: &[&str]) -> String {
    let output = run(dir, args);
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// The same, with the output parsed as JSON.
pub(crate) fn events_json(dir: &TempDir, args: &[&str]) -> Value {
    serde_json::from_str(&events(dir, args)).unwrap()
}

/// Runs `forebay events ...`, which must end with this code; returns its whole output.
pub(crate) fn refused(dir: &TempDir, args: &[&str], code: i32) -> String {
    let output = run(dir, args);
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), stderr(&output));
    assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
    said
}

/// The lines of `text`, each read as JSON.
pub(crate) fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// This many events, of distinct seconds from 2024-11-21T10:20:00Z on.
pub(crate) fn numbered(count: u64) -> String {
    (0..count)
        .map(|n| format!("{{\"ts\":{},\"n\":{n},\"host\":\"h{}\"}}\n", 1_732_184_400 + n, n % 2))
        .collect()
}

/// Posts a body and returns the answer.
pub(crate) fn post(server: &Server, path: &str, headers: &str, body: &[u8]) -> Answer {
    let mut stream = server.connect();
    let headers = format!("content-length: {}\r\n{headers}", body.len());
    send(&mut stream, "POST", path, &headers);
    // The server need not read a refused body.
    stream.write_all(body).unwrap_or_default();
    Answer::read(&mut stream)
}
