//! API keys for the cache, and connections that do not speak its protocols.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Instant;

use serde_json::Value;

use crate::cache_support::{Cache, ask};
use crate::support::{HANG, run, run_ok, stderr};

fn new_key(dir: &tempfile::TempDir, name: &str, scope: &str) -> (String, String) {
    let args = ["key", "new", "--name", name, "--scope", scope, "--json"];
    let made: Value = serde_json::from_str(&run_ok(dir, &args)).unwrap();
    let text = |field: &str| made[field].as_str().unwrap().to_owned();
    (text("key"), text("id"))
}

/// Sends a line and reads one.
fn line(stream: &mut TcpStream, request: &str) -> String {
    stream.write_all(request.as_bytes()).unwrap();
    let mut line = String::new();
    BufReader::new(stream.try_clone().unwrap()).read_line(&mut line).unwrap();
    line
}

/// Asks until the answer begins as expected.
fn until(stream: &mut TcpStream, request: &str, expected: &str) {
    let deadline = Instant::now() + HANG;
    loop {
        let found = line(stream, request);
        if found.starts_with(expected) {
            return;
        }
        assert!(Instant::now() < deadline, "{request:?} is {found:?}, never {expected:?}");
        std::thread::yield_now();
    }
}

#[test]
fn a_key_made_or_revoked_counts_for_connections_that_are_open() {
    for mode in ["per-connection", "pooled"] {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::start(&dir, &["--no-persist", "--server", mode]);
        let (mut resp, mut text, mut other) = (cache.resp(), cache.text(), cache.resp());
        ask(&mut resp, "SET k v\r\n", "+OK\r\n");
        ask(&mut text, "GET k\n", "v\n");
        let mut listening = cache.resp();
        assert!(line(&mut listening, "SUBSCRIBE c\r\n").starts_with("*3"));
        let (writer, id) = new_key(&dir, "writer", "write");
        until(&mut resp, "PING\r\n", "-NOAUTH");
        until(&mut text, "GET k\n", "ERROR authentication required");
        // A subscriber without a key receives nothing more, not even that.
        let mut rest = Vec::new();
        listening.read_to_end(&mut rest).unwrap();
        assert!(line(&mut resp, "AUTH wrong\r\n").starts_with("-WRONGPASS"));
        ask(&mut resp, &format!("AUTH {writer}\r\n"), "+OK\r\n");
        ask(&mut other, &format!("AUTH anybody {writer}\r\n"), "+OK\r\n");
        ask(&mut text, &format!("AUTH {writer}\n"), "OK authenticated\n");
        ask(&mut resp, "SET k w\r\n", "+OK\r\n");
        let denied = format!("NOPERM User {id} has no permissions to run the");
        ask(&mut resp, "GET k\r\n", &format!("-{denied} 'get' command\r\n"));
        ask(&mut text, "FLUSHALL\n", &format!("ERROR {denied} 'flushall' command\n"));
        let (reader, _) = new_key(&dir, "reader", "read");
        let deadline = Instant::now() + HANG;
        while !line(&mut resp, &format!("HELLO 2 AUTH r {reader}\r\n")).starts_with('*') {
            assert!(Instant::now() < deadline, "the second key is never known");
            // A wrong key is checked again only after a while; a new connection is not delayed.
            resp = cache.resp();
        }
        run_ok(&dir, &["key", "revoke", "writer"]);
        until(&mut other, "SET k x\r\n", "-NOAUTH");
        until(&mut text, "SET k x\n", "ERROR authentication required");
    }
}

#[test]
fn a_key_lets_the_cache_listen_beyond_this_machine_and_tls_alone_does_not() {
    let dir = tempfile::tempdir().unwrap();
    // If listening is not refused, the missing certificate ends the start.
    let plain = ["cache", "serve", "--no-persist", "--text", "", "--resp", "0.0.0.0:0"];
    let sealed = ["--tls-resp", "0.0.0.0:0", "--tls-cert", "no", "--tls-key", "no"];
    let tls = [&plain[..6], &[""], &sealed].concat();
    for args in [&plain[..], &tls] {
        let output = run(&dir, args);
        assert_eq!(output.status.code(), Some(2));
        let report = stderr(&output);
        assert!(report.contains("refusing") && report.contains("forebay key new"), "{report}");
    }
    new_key(&dir, "first", "admin");
    let report = stderr(&run(&dir, &tls));
    assert!(!report.contains("refusing") && report.contains("cannot set up TLS"), "{report}");
    let off = [&tls[..], &["--set", "server.auth=off"]].concat();
    assert!(
        stderr(&run(&dir, &off)).contains("refusing"),
        "keys that are not required protect nothing"
    );
}

#[test]
fn what_a_web_page_posts_to_the_ports_runs_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::start(&dir, &["--no-persist"]);
    let mut client = cache.resp();
    ask(&mut client, "SET kept 1\r\n", "+OK\r\n");
    for address in [cache.resp, cache.text] {
        let mut page = Cache::connect(address);
        let head = format!("POST / HTTP/1.1\r\nHost: {address}\r\nContent-Length: 10\r\n\r\n");
        page.write_all(head.as_bytes()).unwrap();
        // The connection may be closed before the body.
        page.write_all(b"FLUSHALL\r\n").unwrap_or_default();
        let mut answer = Vec::new();
        page.read_to_end(&mut answer).map(drop).unwrap_or_default();
        assert!(answer.is_empty(), "{}", answer.escape_ascii());
    }
    ask(&mut client, "GET kept\r\n", "$1\r\n1\r\n");
    let log = std::fs::read_to_string(dir.path().join("log")).unwrap();
    assert_eq!(log.matches("a client sent HTTP or TLS").count(), 1, "{log}");
}
