//! Checkpoints published in a bucket, and a store compared with them from the command line.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use forebay_testing::free_port;
use tempfile::TempDir;

use crate::events_cli::copy;
use crate::events_export_s3::{S3, without_aws};
use crate::events_support::{append_ok, events, numbered, post};
use crate::support::{HANG, SMALL_LOG, Server, stderr};

const ANCHOR: &str = "s3://archive/events";
const SETTING: &str = "events.anchor=s3://archive/events";

fn with_bucket(command: &mut Command, endpoint: &str) {
    command.env("AWS_ACCESS_KEY_ID", "test-access").env("AWS_SECRET_ACCESS_KEY", "test-secret");
    command.env("AWS_ENDPOINT_URL", endpoint).env("AWS_ALLOW_HTTP", "true");
}

/// Runs `forebay events ...` with the bucket at this endpoint.
fn run(dir: &TempDir, endpoint: &str, args: &[&str], input: &str) -> Output {
    let mut command = without_aws(dir);
    with_bucket(&mut command, endpoint);
    command.env(SMALL_LOG.0, SMALL_LOG.1).arg("events").args(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A command that reads nothing may have ended.
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap_or_default();
    child.wait_with_output().unwrap()
}

/// Appends events; closing the store publishes a checkpoint of all.
fn publish(dir: &TempDir, s3: &S3, count: u64) {
    let args = ["append", "--stream", "s", "--set", SETTING];
    let output = run(dir, &s3.endpoint(), &args, &numbered(count));
    assert!(output.status.success(), "{}", stderr(&output));
}

/// Compares a data directory with the bucket; returns the exit code and the whole output.
fn verify(dir: &TempDir, s3: &S3, data: &str, place: &str) -> (Option<i32>, String) {
    let output = run(dir, &s3.endpoint(), &["verify", "--data", data, "--anchor", place], "");
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), stderr(&output));
    (output.status.code(), said)
}

/// The file of an object.
fn object(s3: &S3, size: u64) -> PathBuf {
    s3.dir.path().join(format!("archive/events/{size:020}.checkpoint"))
}

/// A store with checkpoints of 10 and 15 events in the bucket, and a copy of it with 10.
fn published() -> (S3, TempDir) {
    let (s3, dir) = (S3::start(), tempfile::tempdir().unwrap());
    publish(&dir, &s3, 10);
    copy(&dir.path().join("forebay-data"), &dir.path().join("older"));
    publish(&dir, &s3, 5);
    assert!(object(&s3, 10).is_file() && object(&s3, 15).is_file(), "{:?}", s3.names("events"));
    (s3, dir)
}

#[test]
fn a_store_is_compared_with_the_checkpoints_in_a_bucket() {
    let (s3, dir) = published();
    let (code, said) = verify(&dir, &s3, "forebay-data", ANCHOR);
    assert!(code == Some(0) && said.contains("no changes found"), "{said}");
    // Rolled back.
    let (code, said) = verify(&dir, &s3, "older", ANCHOR);
    assert!(code == Some(1) && said.contains("newest 5"), "{said}");
    // Made again, with a new key: it publishes nothing there.
    let before = s3.names("events");
    let args = ["append", "--data", "rebuilt", "--stream", "s", "--set", SETTING];
    let output = run(&dir, &s3.endpoint(), &args, &numbered(15));
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(s3.names("events"), before);
    let (code, said) = verify(&dir, &s3, "rebuilt", ANCHOR);
    assert!(code == Some(1) && said.contains("different key"), "{said}");
    // So does the one that was rolled back.
    let args = ["append", "--data", "older", "--stream", "s", "--set", SETTING];
    let output = run(&dir, &s3.endpoint(), &args, &numbered(1));
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(s3.names("events"), before);
}

#[test]
fn an_overwritten_or_forged_object_and_an_empty_prefix_are_reported() {
    let (s3, dir) = published();
    let (ten, fifteen) = (object(&s3, 10), object(&s3, 15));
    let whole = fs::read(&fifteen).unwrap();
    // An older checkpoint in the place of the newest would fit the older store.
    fs::copy(&ten, &fifteen).unwrap();
    let (code, said) = verify(&dir, &s3, "older", ANCHOR);
    assert!(code == Some(1) && said.contains("was overwritten"), "{said}");
    // A note of the right size, by another key of the same name.
    append_ok(&dir, &["--data", "other", "--stream", "s"], numbered(15).as_bytes());
    fs::write(&fifteen, events(&dir, &["checkpoint", "--data", "other"])).unwrap();
    let (code, said) = verify(&dir, &s3, "forebay-data", ANCHOR);
    assert!(code == Some(1) && said.contains("no signature by"), "{said}");
    fs::write(&fifteen, "hello").unwrap();
    let (code, said) = verify(&dir, &s3, "forebay-data", ANCHOR);
    assert!(code == Some(3) && said.contains("not a checkpoint"), "{said}");
    fs::write(&fifteen, whole).unwrap();
    assert_eq!(verify(&dir, &s3, "forebay-data", ANCHOR).0, Some(0));
    let (code, said) = verify(&dir, &s3, "forebay-data", "s3://archive/event");
    assert!(code == Some(3) && said.contains("has no checkpoints"), "{said}");
}

#[test]
fn a_bucket_that_is_not_available_is_tried_again_and_delays_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let port = free_port();
    let endpoint = format!("http://127.0.0.1:{port}");
    let args = ["--set", SETTING, "--set", "events.checkpoint_interval=50ms"];
    let server = Server::start_with(&dir, &args, |command| {
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("AWS_") {
                command.env_remove(name);
            }
        }
        command.env("HOME", dir.path());
        with_bucket(command, &endpoint);
    });
    assert_eq!(post(&server, "/v1/events?stream=s", "", numbered(7).as_bytes()).status, 200);
    let anchors = || server.get("/v1/events/stats").json()["anchors"].clone();
    let deadline = Instant::now() + HANG;
    while !anchors().to_string().contains("cannot ") {
        assert!(Instant::now() < deadline, "{}", anchors());
    }
    let s3 = S3::start_on(port);
    let deadline = Instant::now() + HANG;
    while !object(&s3, 7).is_file() {
        assert!(Instant::now() < deadline, "{}", anchors());
    }
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    assert_eq!(verify(&dir, &s3, "forebay-data", ANCHOR).0, Some(0));
    // A bucket that cannot be read is no reason to call a store sound.
    let gone = format!("http://127.0.0.1:{}", free_port());
    let output = run(&dir, &gone, &["verify", "--anchor", ANCHOR], "");
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(stderr(&output).contains("cannot use --anchor"), "{}", stderr(&output));
}
