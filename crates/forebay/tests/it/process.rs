//! Starting and stopping the process.

use std::io::{Read as _, Write as _};

use crate::support::{Answer, Server, run, stderr};

#[test]
fn both_signals_stop_an_idle_server_cleanly() {
    for name in ["INT", "TERM"] {
        let dir = tempfile::tempdir().unwrap();
        let server = Server::start(&dir, &[]);
        let mut idle = server.connect();
        server.signal(name);
        let mut rest = Vec::new();
        idle.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, b"", "an idle connection is closed");
        assert_eq!(server.wait(), Some(0), "SIG{name}");
    }
}

#[test]
fn a_request_in_flight_at_the_stop_is_answered() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    let mut stream = server.connect();
    // Half a head is a request begun: the server owes it an answer, though it takes no new work.
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n").unwrap();
    let mut other = server.connect();
    crate::support::send(&mut other, "GET", "/healthz", "");
    assert_eq!(Answer::read(&mut other).status, 200, "so the half head before it was read too");
    server.signal("TERM");
    server.until_not_listening();
    stream.write_all(b"\r\n").unwrap();
    let answer = Answer::read(&mut stream);
    assert_eq!(answer.status, 200);
    assert!(answer.head.contains("connection: close"), "{}", answer.head);
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn an_upload_in_flight_at_the_stop_is_finished_and_there_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    let mut stream = server.connect();
    let path = "/v1/files/notes/hello.txt";
    let head = format!("PUT {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nhello");
    stream.write_all(head.as_bytes()).unwrap();
    assert_eq!(server.get("/healthz").status, 200);
    server.signal("TERM");
    server.until_not_listening();
    stream.write_all(b"world").unwrap();
    let answer = Answer::read(&mut stream);
    assert!((200..300).contains(&answer.status), "{answer:?}");
    assert_eq!(server.wait(), Some(0));
    let server = Server::start(&dir, &[]);
    assert_eq!(server.get(path).body, "helloworld");
}

#[test]
fn a_request_that_does_not_finish_is_cut_at_the_limit_and_the_exit_code_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &["--set", "server.shutdown_limit=100ms"]);
    let mut stream = server.connect();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost:").unwrap();
    assert_eq!(server.get("/healthz").status, 200);
    server.signal("TERM");
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap_or_default();
    assert_eq!(server.wait(), Some(4));
}

#[test]
fn a_second_signal_stops_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    let mut stream = server.connect();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost:").unwrap();
    assert_eq!(server.get("/healthz").status, 200);
    server.signal("TERM");
    server.until_not_listening();
    server.signal("INT");
    assert_eq!(server.wait(), Some(130));
}

#[test]
fn an_address_in_use_is_a_start_error_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    let address = server.address.to_string();
    let output = run(&dir, &["serve", "--data", "other", "--listen", &address]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains(&address), "{}", stderr(&output));
}

#[test]
fn logs_off_a_terminal_are_json_lines_and_carry_client_text_escaped() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &["--log", "debug"]);
    server.get("/v1/%0a\u{202e}");
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    let log = std::fs::read_to_string(dir.path().join("log")).unwrap();
    let lines: Vec<serde_json::Value> =
        log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().any(|line| line["message"] == "ready"));
    assert!(lines.iter().any(|line| line["message"] == "stopped"));
}
