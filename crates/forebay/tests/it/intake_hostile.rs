//! Clients that lie about lengths, stall, trickle or disconnect; and damaged disks.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::path::PathBuf;
use std::time::Instant;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Answer, HANG, Server, run, stderr};

fn put_head(path: &str, length: usize) -> Vec<u8> {
    format!("PUT /v1/files/{path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n")
        .into_bytes()
}

/// Reads everything the server still sends; a reset counts as the end.
fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn staging(dir: &TempDir) -> usize {
    std::fs::read_dir(dir.path().join("forebay-data/intake/staging")).unwrap().count()
}

/// Asks repeatedly until it is true.
fn until(what: &str, mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + HANG;
    while !so() {
        assert!(Instant::now() < deadline, "still not: {what}");
        std::thread::yield_now();
    }
}

#[test]
fn a_body_longer_than_declared_is_cut_there_and_the_rest_is_no_request() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    let mut stream = server.connect();
    let mut request = put_head("n/a", 5);
    request.extend_from_slice(b"hello and more than was declared\r\n\r\n");
    stream.write_all(&request).unwrap();
    let said = rest(&mut stream);
    assert!(said.starts_with("HTTP/1.1 201"), "{said}");
    assert_eq!(said.matches("HTTP/1.1 2").count(), 1, "{said}");
    assert_eq!(server.get("/v1/files/n/a").body, "hello");
}

#[test]
fn a_body_shorter_than_declared_is_not_stored() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    for (sent, declared) in [(0, 10), (9, 10), (1_000, 100_000), (200_000, 200_001)] {
        let mut stream = server.connect();
        let mut request = put_head("n/short", declared);
        request.resize(request.len() + sent, b'x');
        stream.write_all(&request).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let said = rest(&mut stream);
        assert!(said.is_empty() || said.starts_with("HTTP/1.1 400"), "{said}");
        assert_eq!(server.get("/v1/files/n/short").status, 404);
    }
    until("the unfinished upload is removed", || staging(&dir) == 0);
    assert_eq!(server.get("/v1/files").json()["files"], serde_json::json!([]));
}

#[test]
fn broken_chunks_are_refused_and_nothing_is_stored() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    let head =
        "PUT /v1/files/n/chunks HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n";
    for chunks in
        ["zz\r\nhello\r\n", "5\r\nhelloworld\r\n0\r\n\r\n", "fffffffffffffffff\r\nx", "5\r\nhel"]
    {
        let mut stream = server.connect();
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(chunks.as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let said = rest(&mut stream);
        assert!(said.is_empty() || said.starts_with("HTTP/1.1 400"), "{chunks:?}: {said}");
        assert_eq!(server.get("/v1/files/n/chunks").status, 404, "{chunks:?}");
    }
    let mut stream = server.connect();
    stream.write_all(head.replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n").as_bytes()).unwrap();
    stream.write_all(b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n").unwrap();
    assert_eq!(Answer::read(&mut stream).status, 201);
    assert_eq!(server.get("/v1/files/n/chunks").body, "hello world");
}

#[test]
fn a_stalled_upload_is_answered_408_while_others_are_served() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &["--set", "intake.upload_idle_timeout=200ms"]);
    for (sent, declared) in [(0, 1_000), (3, 1_000), (200_000, 1_000_000)] {
        let mut stream = server.connect();
        let mut request = put_head("n/still", declared);
        request.resize(request.len() + sent, b'x');
        stream.write_all(&request).unwrap();
        assert_eq!(server.get("/healthz").status, 200);
        let said = rest(&mut stream);
        assert!(said.starts_with("HTTP/1.1 408"), "{sent}: {said:?}");
        assert!(said.contains("body_too_slow"), "{said}");
    }
    assert_eq!(server.get("/v1/files/n/still").status, 404);
    until("the unfinished upload is removed", || staging(&dir) == 0);
}

#[test]
fn an_upload_below_the_minimum_rate_is_aborted_after_the_grace() {
    let dir = tempfile::tempdir().unwrap();
    let slow = ["--set", "intake.upload_rate_min=1TiB", "--set", "intake.upload_rate_grace=200ms"];
    let server = Server::start(&dir, &slow);
    let mut stream = server.connect();
    stream.write_all(&put_head("n/slow", 1 << 30)).unwrap();
    // Far below a tebibyte per second, however fast this machine is.
    let deadline = Instant::now() + HANG;
    while stream.write_all(&[b'x'; 1_000]).is_ok() {
        assert!(Instant::now() < deadline, "never given up");
        let mut peeked = [0; 16];
        stream.set_nonblocking(true).unwrap();
        let answered = stream.peek(&mut peeked).is_ok();
        stream.set_nonblocking(false).unwrap();
        if answered {
            let said = rest(&mut stream);
            assert!(said.is_empty() || said.starts_with("HTTP/1.1 408"), "{said}");
            break;
        }
    }
    assert_eq!(server.get("/v1/files/n/slow").status, 404);
    until("the unfinished upload is removed", || staging(&dir) == 0);
}

#[test]
fn a_client_that_disconnects_leaves_no_staging_file_and_no_name() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    let mut stream = server.connect();
    stream.write_all(&put_head("n/gone", 1 << 20)).unwrap();
    stream.write_all(&[b'x'; 300_000]).unwrap();
    until("the upload is under way", || staging(&dir) == 1);
    drop(stream);
    until("the upload is removed", || staging(&dir) == 0);
    assert_eq!(server.get("/v1/files/n/gone").status, 404);
}

#[test]
fn what_a_killed_upload_left_is_swept_at_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    let mut stream = server.connect();
    stream.write_all(&put_head("n/half", 1 << 20)).unwrap();
    stream.write_all(&[b'x'; 300_000]).unwrap();
    until("the upload is under way", || staging(&dir) == 1);
    server.signal("KILL");
    server.wait();
    assert_eq!(staging(&dir), 1);
    let server = Server::start(&dir, &[]);
    assert_eq!(staging(&dir), 0);
    assert_eq!(server.get("/v1/files/n/half").status, 404);
    let log = std::fs::read_to_string(dir.path().join("log")).unwrap();
    assert!(log.contains("\"staging_removed\":1"), "{log}");
}

#[test]
fn a_second_process_on_the_same_data_is_refused_and_the_first_continues() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    let output = run(&dir, &["serve", "--listen", "127.0.0.1:0"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("in use"), "{}", stderr(&output));
    let output = run(&dir, &["fsck"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("in use"), "{}", stderr(&output));
    assert_eq!(server.get("/healthz").status, 200);
}

/// Every file below a directory.
fn files(dir: PathBuf) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(path)) } else { found.push(path) }
    }
    found
}

#[test]
fn one_flipped_byte_in_a_blob_is_found_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    let small = "a small file, kept in the log";
    let large = "a large file, kept by itself; ".repeat(10_000);
    let mut digests = Vec::new();
    for (name, bytes) in [("small.txt", small), ("large.txt", &large), ("after.txt", "last")] {
        let mut stream = server.connect();
        let length = format!("content-length: {}\r\n", bytes.len());
        crate::support::send(&mut stream, "PUT", &format!("/v1/files/n/{name}"), &length);
        stream.write_all(bytes.as_bytes()).unwrap();
        let answer = Answer::read(&mut stream);
        assert_eq!(answer.status, 201, "{answer:?}");
        digests.push(answer.json()["sha256"].as_str().unwrap().to_owned());
    }
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    let sound = run(&dir, &["fsck", "--json"]);
    assert_eq!(sound.status.code(), Some(0), "{}", stderr(&sound));
    for (bytes, digest, name) in
        [(small, &digests[0], "small.txt"), (&large, &digests[1], "large.txt")]
    {
        let (path, at, held) = find(&dir, bytes.as_bytes());
        for offset in [at, at + bytes.len() / 2, at + bytes.len() - 1] {
            let mut flipped = held.clone();
            flipped[offset] ^= 1;
            std::fs::write(&path, &flipped).unwrap();
            let output = run(&dir, &["fsck", "--json"]);
            assert_eq!(output.status.code(), Some(1), "{name} at {offset}: {}", stderr(&output));
            let report: Value = serde_json::from_slice(&output.stdout).unwrap();
            let finding = &report["findings"][0];
            assert_eq!(finding["sha256"], **digest, "{name} at {offset}: {report}");
            assert!(finding["names"].to_string().contains(name), "{report}");
            let reply = finding["path"].as_str().unwrap();
            assert!(path.ends_with(reply.trim_start_matches("./")), "{reply} is not {path:?}");
        }
        std::fs::write(&path, &held).unwrap();
    }
    assert_eq!(run(&dir, &["fsck"]).status.code(), Some(0), "and whole again");
}

/// Returns the file that holds these bytes, their offset in it, and its content.
fn find(dir: &TempDir, bytes: &[u8]) -> (PathBuf, usize, Vec<u8>) {
    let first = &bytes[..bytes.len().min(64)];
    for path in files(dir.path().join("forebay-data/intake")) {
        if path.extension().is_some_and(|extension| extension != "log") {
            continue;
        }
        let held = std::fs::read(&path).unwrap();
        if let Some(at) = held.windows(first.len()).position(|window| window == first) {
            return (path, at, held);
        }
    }
    panic!("nowhere");
}
