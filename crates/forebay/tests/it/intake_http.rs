//! The intake through the whole server: large bodies, kept-alive connections, limits, metrics.

use std::io::{Read as _, Write as _};

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::support::{Answer, Server, send};

/// The head of the next answer on a connection that stays open.
fn head(stream: &mut std::net::TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        bytes.push(byte[0]);
    }
    String::from_utf8(bytes).unwrap().to_lowercase()
}

fn length(head: &str) -> usize {
    let value = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    value.unwrap().parse().unwrap()
}

#[test]
fn a_large_file_is_uploaded_and_downloaded_in_little_memory() {
    const PIECE: usize = 1 << 20;
    const PIECES: usize = 96;
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    let memory = || -> f64 {
        let metrics = server.get("/metrics").body;
        let name = "forebay_process_resident_memory_peak_bytes ";
        let value = metrics.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        value.parse().unwrap()
    };
    let before = memory();
    let piece = |at: usize| -> Vec<u8> {
        (0..PIECE).map(|n| ((n * 31) ^ (at * 7)).to_le_bytes()[0]).collect()
    };
    let mut hasher = Sha256::new();
    let mut stream = server.connect();
    send(
        &mut stream,
        "PUT",
        "/v1/files/big/file",
        &format!("content-length: {}\r\n", PIECE * PIECES),
    );
    for at in 0..PIECES {
        let piece = piece(at);
        hasher.update(&piece);
        stream.write_all(&piece).unwrap();
    }
    let digest = hex::encode(hasher.finalize());
    let answer = Answer::read(&mut stream);
    assert_eq!((answer.status, answer.json()["sha256"].as_str()), (201, Some(digest.as_str())));
    let mut stream = server.connect();
    send(&mut stream, "GET", "/v1/files/big/file", "");
    assert_eq!(length(&head(&mut stream)), PIECE * PIECES);
    let mut read = vec![0; PIECE];
    for at in 0..PIECES {
        stream.read_exact(&mut read).unwrap();
        assert!(read == piece(at), "piece {at}");
    }
    let grown = memory() - before;
    assert!(grown < f64::from(32 << 20), "grew by {grown} bytes for {} bytes", PIECE * PIECES);
}

#[test]
fn a_connection_continues_after_refusals() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    let mut stream = server.connect();
    for (request, body, status) in [
        ("PUT /v1/files/n/a", "hello", "201"),
        ("PUT /v1/files/N/a", "hello", "400"),
        ("GET /v1/files/n/a", "", "200"),
        ("GET /v1/files/n/none", "", "404"),
        ("POST /v1/documents/d", "{\"a\":", "400"),
        ("POST /v1/documents/d", "{\"a\":1}", "201"),
        ("GET /v1/nowhere", "", "404"),
        ("DELETE /v1/files/n/a", "", "204"),
    ] {
        let length = format!("content-length: {}", body.len());
        let text = format!("{request} HTTP/1.1\r\nhost: localhost\r\n{length}\r\n\r\n{body}");
        stream.write_all(text.as_bytes()).unwrap();
        let head = head(&mut stream);
        assert!(head.starts_with(&format!("http/1.1 {status} ")), "{request}: {head}");
        assert!(head.contains("x-request-id: "), "{head}");
        if status != "204" {
            let mut body = vec![0; self::length(&head)];
            stream.read_exact(&mut body).unwrap();
            if status.starts_with('4') {
                let body: Value = serde_json::from_slice(&body).unwrap();
                assert!(body["error"]["code"].is_string() || body["errors"].is_array(), "{body}");
            }
        }
    }
}

#[test]
fn a_client_that_expects_100_continue_is_answered_or_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &["--set", "intake.file_size_max=1MiB"]);
    let ask = |length: usize| {
        let mut stream = server.connect();
        let headers = format!("content-length: {length}\r\nexpect: 100-continue\r\n");
        send(&mut stream, "PUT", "/v1/files/n/asked", &headers);
        stream
    };
    let mut stream = ask(5);
    assert!(head(&mut stream).starts_with("http/1.1 100 "));
    stream.write_all(b"hello").unwrap();
    assert_eq!(Answer::read(&mut stream).status, 201);
    let mut stream = ask(2 << 20);
    let refused = Answer::read(&mut stream);
    assert_eq!(
        (refused.status, refused.json()["error"]["code"].as_str()),
        (413, Some("too_large"))
    );
}

#[test]
fn a_refusal_carries_the_requests_id_and_metrics_count_what_came_in() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    let answer = server.ask("GET", "/v1/files/n/none", "x-request-id: mine-7\r\n");
    assert_eq!(answer.json()["error"]["request_id"], "mine-7");
    for (path, body) in [("n/a", "one"), ("n/b", "one"), ("n/c", "two")] {
        let mut stream = server.connect();
        let length = format!("content-length: {}\r\n", body.len());
        send(&mut stream, "PUT", &format!("/v1/files/{path}"), &length);
        stream.write_all(body.as_bytes()).unwrap();
        assert_eq!(Answer::read(&mut stream).status, 201);
    }
    let metrics = server.get("/metrics").body;
    for line in [
        "forebay_intake_files_stored_total 2",
        "forebay_intake_files_duplicate_total 1",
        "forebay_intake_received_bytes_total 9",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} in {metrics}");
    }
}

#[test]
fn a_scrape_shows_what_the_log_has_done_so_far() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    let scrape = |names: [&str; 5]| {
        let metrics = server.get("/metrics").body;
        names.map(|name| {
            assert!(
                metrics.contains(&format!("# HELP forebay_log_{name} ")),
                "{name} in {metrics}"
            );
            let start = format!("forebay_log_{name}{{log=\"intake\"}} ");
            let value = metrics.lines().find_map(|line| line.strip_prefix(&start));
            value.unwrap_or_else(|| panic!("{name} in {metrics}")).parse::<f64>().unwrap()
        })
    };
    let names = [
        "appended_entries_total",
        "appended_bytes_total",
        "syncs_total",
        "sync_nanoseconds_total",
        "span_bytes",
    ];
    let before = scrape(names);
    assert_eq!(
        scrape([
            "segments_count",
            "groups_total",
            "rotations_total",
            "full_total",
            "unsynced_bytes"
        ])[0],
        1.0
    );
    let mut stream = server.connect();
    send(&mut stream, "PUT", "/v1/files/n/a", "content-length: 1000\r\n");
    stream.write_all(&[7; 1000]).unwrap();
    assert_eq!(Answer::read(&mut stream).status, 201);
    let after = scrape(names);
    assert_eq!(after[0], before[0] + 1.0);
    assert!(after[1] > before[1] + 1000.0 && after[4] > before[4] + 1000.0);
    assert!(after[2] > before[2] && after[3] > before[3]);
}
