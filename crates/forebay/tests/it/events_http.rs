//! The event store over HTTP: every format in, hostile bodies, pages, streams, limits.

use std::collections::HashSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::Shutdown;
use std::process::Stdio;
use std::time::Instant;

use serde_json::Value;

use crate::events_support::{numbered, post};
use crate::support::{Answer, HANG, Server, send};

const ZEEK_TSV: &str = "#separator \\x09\n#set_separator\t,\n#empty_field\t(empty)\n\
    #unset_field\t-\n#path\tconn\n#fields\tts\tuid\tid.orig_h\n#types\ttime\tstring\taddr\n\
    1732184400.123456\tC1\t10.0.0.1\n";

/// Two lines, compressed: `{"timestamp":"2023-10-11T14:32:52Z","type":"a"}` and `{"type":"b"}`.
pub(crate) const GZIP: &str = "1f8b0800000000000203ab562ac9cc4d2d2e49cc2d50b25232323032d63534d035340c3134b13236b232\
    358a52d2512aa92c4805ca262ad57255c33849400e0030fff0d03d000000";

#[test]
fn every_format_is_taken_by_path_by_query_and_by_content_type() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    for (format, body) in [
        ("ndjson", "{\"a\": 1}"),
        ("ocsf", "{\"class_uid\":3002,\"time\":1732184400000,\"severity_id\":4}"),
        ("zeek", "{\"ts\":1732184400.123456,\"uid\":\"C1\",\"id.orig_h\":\"10.0.0.1\"}"),
        ("zeek", ZEEK_TSV),
        (
            "suricata",
            "{\"timestamp\":\"2024-11-21T10:20:00.000001+0000\",\"event_type\":\"alert\"}",
        ),
        ("cef", "CEF:0|Vendor|Product|1.0|100|name|9|src=10.0.0.3 msg=a\\=b"),
        ("leef", "LEEF:1.0|Vendor|Product|1.0|E1|src=10.0.0.4"),
        ("syslog", "<34>Oct 11 22:14:15 mymachine su: 'su root' failed"),
        ("syslog", "<165>1 2003-10-11T22:14:15.003Z host app - ID47 - text"),
        ("clf", "10.0.0.1 - - [11/Oct/2023:14:32:52 +0000] \"GET / HTTP/1.1\" 200 5"),
        ("kv", "date=2023-10-11 time=14:32:52 devname=fw-1 srcip=10.0.0.1"),
        ("w3c", "#Fields: date time c-ip\n2023-10-11 14:32:52 10.0.0.1"),
        ("text", "2023/10/11 14:32:52 [error] 1#1: failed"),
        ("raw", "[whatever] it is"),
    ] {
        let raw = body.trim_end().lines().last().unwrap();
        for (path, headers) in [
            (format!("/v1/events/{format}?stream=s"), String::new()),
            (format!("/v1/events?format={format}"), String::new()),
            ("/v1/events".to_owned(), format!("content-type: application/x-{format}\r\n")),
        ] {
            let answer = post(&server, &path, &headers, body.as_bytes());
            assert_eq!(answer.status, 200, "{path} {headers}: {}", answer.body);
            let report = answer.json();
            assert_eq!(report["accepted"], 1, "{path} {headers}");
            let id = report["first_id"].as_str().unwrap().to_owned();
            let event = server.get(&format!("/v1/events/{id}")).json();
            assert_eq!(event["source"]["format"], format, "{event}");
            assert_eq!(event["raw"], raw);
            let answer = server.get(&format!("/v1/events/{id}?raw=true"));
            assert_eq!(answer.body, raw);
            assert!(answer.head.contains("nosniff") && answer.head.contains("attachment"));
        }
    }
}

#[test]
fn an_object_an_array_and_lines_are_distinguished() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    let json = "content-type: application/json\r\n";
    for (headers, body, accepted) in [
        (json, "{\n \"a\": [1,\n 2]\n}\n", 1),
        (json, "[{\"a\":\"],[\"},\n{\"b\":{}} ]", 2),
        (json, "{\"a\":1}\n{\"b\":2}", 2),
        ("", "  [ {\"a\":1}, {\"b\":2}, {\"c\":3} ]", 3),
        ("", "{\"a\":1}\n{\"b\":2}\n", 2),
        ("", "[2024] a plain line\nand one more\n", 2),
        ("content-type: text/plain\r\n", "one\r\ntwo\r\n", 2),
    ] {
        let answer = post(&server, "/v1/events", headers, body.as_bytes());
        assert_eq!(answer.status, 200, "{body}: {}", answer.body);
        assert_eq!(answer.json()["accepted"], accepted, "{body}");
    }
}

#[test]
fn hostile_bodies_are_refused_and_the_good_in_them_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &["--set", "events.body_size_max=4MiB"]);
    let huge = format!("{{\"a\":\"{}\"}}", "x".repeat(2 << 20));
    let deep = "[".repeat(100_000);
    let mixed = format!("{{\"a\":1}}\n{huge}\nnot json\n{{\"b\":2}}\n");
    let array = format!("[{{\"a\":1}},{huge},7,{{\"b\":2}}]");
    let json = "content-type: application/json\r\n";
    let nothing = "\n".repeat(100_000);
    let many = "{\n".repeat(100_000);
    let too_much = "x\n".repeat(3 << 20);
    for (path, headers, body, status, accepted, rejected) in [
        ("/v1/events/ndjson", "", "{\"a\":", 400, 0, 1),
        ("/v1/events", json, "{\"a\":", 400, 0, 1),
        ("/v1/events", json, "[{\"a\":1},{\"b\"", 207, 1, 1),
        ("/v1/events", json, &deep, 400, 0, 1),
        ("/v1/events/ndjson", "", &deep, 400, 0, 1),
        ("/v1/events", "", "", 400, 0, 0),
        ("/v1/events", "", &nothing, 400, 0, 0),
        ("/v1/events/ndjson", "", &many, 400, 0, 1),
        ("/v1/events/cef", "", "{\"a\":1}\n", 400, 0, 1),
        ("/v1/events/ndjson", "", &mixed, 207, 2, 2),
        ("/v1/events", json, &array, 207, 2, 2),
    ] {
        let answer = post(&server, path, headers, body.as_bytes());
        let begin: String = body.chars().take(40).collect();
        assert_eq!(answer.status, status, "{path} {begin}: {}", answer.body);
        let report = answer.json();
        assert_eq!(report["accepted"], accepted, "{path} {begin}");
        assert_eq!(report["rejected"], rejected, "{path} {begin}");
        let rejects = report["rejects"].as_array().unwrap();
        assert_eq!(rejects.len(), usize::min(rejected, 20), "{path} {begin}");
        assert!(rejects.iter().all(|reject| reject["line"].as_u64() > Some(0)));
        assert_eq!(status == 400, report["error"]["code"] == "no_events", "{report}");
    }
    assert_eq!(post(&server, "/v1/events/raw", "", too_much.as_bytes()).status, 413);
    let chunked = {
        let mut stream = server.connect();
        send(&mut stream, "POST", "/v1/events/raw", "transfer-encoding: chunked\r\n");
        let piece = format!("{:x}\r\n{}\r\n", too_much.len(), too_much);
        stream.write_all(piece.as_bytes()).unwrap_or_default();
        Answer::read(&mut stream)
    };
    assert_eq!((chunked.status, &chunked.json()["error"]["code"]), (413, &"too_large".into()));
    for (path, headers, status) in [
        ("/v1/events/xml", "", 400),
        ("/v1/events?format=xml", "", 400),
        ("/v1/events?steam=x", "", 400),
        ("/v1/events?stream=", "", 400),
        ("/v1/events", "content-type: image/png\r\n", 415),
        ("/v1/events", "content-encoding: br\r\n", 415),
        ("/v1/events", "content-encoding: gzip\r\n", 400),
        ("/v1/events", "content-type: application/x-protobuf\r\n", 415),
        ("/v1/events?time_zone=Mars/Phobos", "", 400),
    ] {
        let answer = post(&server, path, headers, b"{}");
        assert_eq!(answer.status, status, "{path} {headers}: {}", answer.body);
        assert!(answer.json()["error"]["message"].is_string());
    }
}

#[test]
fn a_compressed_body_is_decompressed_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    let body = hex::decode(GZIP).unwrap();
    // By its header, and by its first bytes where a client does not say it.
    for headers in ["content-encoding: gzip\r\n", ""] {
        let answer = post(&server, "/v1/events", headers, &body);
        assert_eq!(answer.status, 200, "{headers}: {}", answer.body);
        let report = answer.json();
        assert_eq!((&report["accepted"], &report["mistimed"]), (&2.into(), &1.into()));
        assert_eq!(report["first_mistimed"]["line"], 2, "{report}");
        let id = report["first_id"].as_str().unwrap();
        let event = server.get(&format!("/v1/events/{id}")).json();
        assert_eq!(event["time_source"], "event");
        let id = report["last_id"].as_str().unwrap();
        assert_eq!(server.get(&format!("/v1/events/{id}")).json()["time_source"], "received");
    }
    let cut = post(&server, "/v1/events", "", &body[..body.len() - 4]);
    assert_eq!((cut.status, &cut.json()["error"]["code"]), (400, &"encoding".into()));
    let archive = post(&server, "/v1/events", "", b"PK\x03\x04 and so on");
    assert_eq!((archive.status, &archive.json()["error"]["code"]), (415, &"encoding".into()));
    assert!(server.get("/metrics").body.contains("forebay_events_mistimed_total 3"));
}

#[test]
fn envelopes_are_their_events_and_requests_name_fields() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &["--set", "events.time_field=other=when_it_was"]);
    let bulk = "{\"index\":{\"_index\":\"a\"}}\n{\"type\":\"x\"}\n{\"delete\":{\"_id\":\"1\"}}\n";
    let indented = "{\n \"Records\": [\n  {\"a\":1},\n  {\"b\":2}\n ]\n}\n";
    let loki = "{\"streams\":[{\"stream\":{},\"values\":[[\"1709294400123456789\",\"line\"]]}]}";
    for (headers, body, status, accepted) in [
        ("content-type: application/x-ndjson\r\n", bulk, 207, 1),
        ("", indented, 200, 2),
        ("content-type: application/json\r\n", loki, 200, 1),
        ("content-type: application/json\r\n", "{\"resourceSpans\":[{}]}", 400, 0),
    ] {
        let answer = post(&server, "/v1/events", headers, body.as_bytes());
        assert_eq!(answer.status, status, "{body}: {}", answer.body);
        assert_eq!(answer.json()["accepted"], accepted, "{body}");
    }
    let body = b"{\"when_it_was\":\"2023-10-11 14:32:52\",\"h\":\"web-1\"}";
    for (query, time, host) in [
        ("?stream=other", "2023-10-11T14:32:52Z", None),
        (
            "?time_field=when_it_was&time_zone=%2B02:00&host_field=h",
            "2023-10-11T12:32:52Z",
            Some("web-1"),
        ),
    ] {
        let report = post(&server, &format!("/v1/events{query}"), "", body).json();
        let id = report["first_id"].as_str().unwrap();
        let event = server.get(&format!("/v1/events/{id}")).json();
        assert_eq!(event["timestamp"], time, "{event}");
        assert_eq!(event["source"]["host"].as_str(), host, "{event}");
    }
}

#[test]
fn an_incomplete_body_is_reported_and_its_half_line_is_no_event() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    let mut stream = server.connect();
    send(&mut stream, "POST", "/v1/events/raw", "content-length: 100\r\n");
    stream.write_all(b"whole\nhal").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let answer = Answer::read(&mut stream);
    assert_eq!(answer.status, 400, "{}", answer.body);
    let report = answer.json();
    assert_eq!(
        (&report["error"]["code"], &report["accepted"]),
        (&"body_incomplete".into(), &1.into())
    );
    let page = server.get("/v1/events").json();
    assert_eq!(page["events"].as_array().unwrap().len(), 1);
    assert_eq!(page["events"][0]["raw"], "whole");
}

fn pages(server: &Server, query: &str) -> Vec<u64> {
    let mut seqs = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = server.get(&format!("/v1/events?limit=7{query}{cursor}")).json();
        for event in page["events"].as_array().unwrap() {
            seqs.push(event["seq"].as_u64().unwrap());
        }
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return seqs,
        }
    }
}

#[test]
fn pages_give_each_event_once_in_both_orders() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    let body = numbered(50) + &numbered(50);
    post(&server, "/v1/events", "", body.as_bytes());
    let oldest = pages(&server, "");
    let expected: Vec<u64> = (0..50).flat_map(|n| [n, n + 50]).collect();
    assert_eq!(oldest, expected, "by time, then by position");
    let newest = pages(&server, "&order=newest");
    assert_eq!(newest, oldest.iter().rev().copied().collect::<Vec<_>>());
    assert_eq!(pages(&server, "&host=h1").len(), 50);
    assert_eq!(pages(&server, "&contains=%22n%22:7,").len(), 2);
    assert_eq!(pages(&server, "&regex=n%22:4%5Cd&from=2024-11-21T10:20:45Z").len(), 10);
    assert_eq!(pages(&server, "&to=1732184400"), Vec::<u64>::new());
    for wrong in ["limit=0", "limit=1001", "cursor=x", "regex=(", "order=up", "form=1", "from=now"]
    {
        let answer = server.get(&format!("/v1/events?{wrong}"));
        assert_eq!(answer.status, 400, "{wrong}: {}", answer.body);
    }
    let page = server.get("/v1/events?limit=2&proof=true").json();
    assert_eq!(page["events"][1]["proof"]["tree_size"], 100);
    let lines = server.ask("GET", "/v1/events?limit=60", "accept: application/x-ndjson\r\n");
    assert_eq!(lines.body.matches("\"seq\":").count(), 60);
    assert!(lines.head.contains("application/x-ndjson"));
}

/// The events of a chunked answer, as they come.
struct Followed {
    lines: BufReader<std::net::TcpStream>,
}

impl Followed {
    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        (self.lines.read_line(&mut line).unwrap() > 0).then(|| line.trim().to_owned())
    }

    /// The raw bytes of the next event.
    fn event(&mut self) -> String {
        loop {
            let line = self.line().unwrap();
            if line.starts_with("{\"id\"") {
                let event: Value = serde_json::from_str(&line).unwrap();
                return event["raw"].as_str().unwrap().to_owned();
            }
        }
    }
}

#[test]
fn following_begins_with_the_newest_and_ends_with_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    post(&server, "/v1/events/raw?stream=a", "", b"one\ntwo\nthree\n");
    let mut stream = server.connect();
    send(&mut stream, "GET", "/v1/events?follow=true&limit=2&stream=a", "");
    let mut followed = Followed { lines: BufReader::new(stream) };
    assert_eq!((followed.event().as_str(), followed.event().as_str()), ("two", "three"));
    post(&server, "/v1/events/raw?stream=b", "", b"of another stream\n");
    post(&server, "/v1/events/raw?stream=a", "", b"four\n");
    assert_eq!(followed.event(), "four");
    let port = server.address.to_string();
    let mut tail = crate::support::forebay(&dir);
    tail.args(["events", "tail", "--server", &port, "-n", "1", "--stream", "a", "--contains", "f"]);
    let mut tail = tail.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut report = BufReader::new(tail.stdout.take().unwrap());
    let mut line = String::new();
    report.read_line(&mut line).unwrap();
    assert!(line.contains("\"raw\":\"four\""), "{line}");
    post(&server, "/v1/events/raw?stream=a", "", b"six\nfive\n");
    line.clear();
    report.read_line(&mut line).unwrap();
    assert!(line.contains("\"raw\":\"five\""), "{line}");
    server.signal("TERM");
    assert_eq!(tail.wait().unwrap().code(), Some(0));
    let mut rest = Vec::new();
    followed.lines.read_to_end(&mut rest).unwrap();
    assert!(rest.ends_with(b"0\r\n\r\n"), "the answer has its end");
    assert_eq!(server.wait(), Some(0));
}

/// Connects `count` clients that send this head, and nothing after it.
fn silent(server: &Server, count: usize, head: &str) -> Vec<std::net::TcpStream> {
    let clients = (0..count).map(|_| {
        let mut client = server.connect();
        client.write_all(format!("{head}\r\nhost: localhost\r\n\r\n").as_bytes()).unwrap();
        client
    });
    clients.collect()
}

/// Waits until `/metrics` has this line.
fn until_measured(server: &Server, line: &str) {
    let deadline = Instant::now() + HANG;
    while !server.get("/metrics").body.contains(line) {
        assert!(Instant::now() < deadline, "never: {line}");
    }
}

#[test]
fn clients_that_send_no_body_and_followers_take_no_slot_from_others() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &["--set", "events.reads_max=4"]);
    post(&server, "/v1/events/raw", "", b"first\n");
    let posts = silent(&server, 200, "POST /v1/events/raw HTTP/1.1\r\ncontent-length: 100");
    let followers = silent(&server, 200, "GET /v1/events?follow=true&limit=1 HTTP/1.1");
    until_measured(&server, "forebay_events_followers 200\n");
    for count in 2..6 {
        let answer = post(&server, "/v1/events/raw", "", b"another\n");
        assert_eq!(answer.status, 200, "{}", answer.body);
        let found = server.get("/v1/events");
        assert_eq!(found.status, 200, "{}", found.body);
        assert_eq!(found.json()["events"].as_array().unwrap().len(), count);
    }
    for follower in followers {
        let mut lines = BufReader::new(follower).lines().map(Result::unwrap);
        for text in ["first", "another", "another", "another", "another"] {
            lines.find(|line| line.contains(&format!("\"raw\":\"{text}\""))).unwrap();
        }
    }
    for mut slow in posts {
        let body = [[b'x'; 99].as_slice(), b"\n"].concat();
        slow.write_all(&body).unwrap();
        let mut status = [0; 12];
        slow.read_exact(&mut status).unwrap();
        assert_eq!(&status, b"HTTP/1.1 200");
    }
    assert_eq!(server.get("/v1/events/stats").json()["events"], 205);
}

#[test]
fn followers_beyond_their_number_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &["--set", "events.followers_max=1"]);
    let _follower = silent(&server, 1, "GET /v1/events?follow=true HTTP/1.1");
    until_measured(&server, "forebay_events_followers 1\n");
    let refused = server.get("/v1/events?follow=true");
    assert_eq!(refused.status, 429, "{}", refused.body);
    assert!(refused.body.contains("events.followers_max") && refused.head.contains("retry-after"));
}

#[test]
fn a_body_in_many_pieces_is_one_request() {
    let dir = tempfile::tempdir().unwrap();
    // Small limits: a long body releases its slot between two of its pieces.
    let server = Server::start(&dir, &["--set", "events.appends_max=1"]);
    let line = format!("{{\"a\": \"{}\"}}\n", "x".repeat(1000));
    let lines = line.repeat(3000);
    let mut long = server.connect();
    let head = format!("content-length: {}\r\n", lines.len());
    send(&mut long, "POST", "/v1/events/ndjson", &head);
    let (most, rest) = lines.as_bytes().split_at(lines.len() - 5000);
    long.write_all(most).unwrap();
    until_measured(&server, "forebay_events_batches_total 2\n");
    until_measured(&server, "forebay_events_appends_running 0\n");
    assert_eq!(post(&server, "/v1/events/raw", "", b"between\n").status, 200);
    long.write_all(rest).unwrap();
    let report = Answer::read(&mut long).json();
    assert_eq!((&report["accepted"], &report["rejected"]), (&3000.into(), &0.into()));
    // The complete records of a body that ended early are kept, and nothing of the rest.
    let mut broken = server.connect();
    send(&mut broken, "POST", "/v1/events/ndjson", &head);
    broken.write_all(most).unwrap();
    broken.shutdown(Shutdown::Write).unwrap();
    let answer = Answer::read(&mut broken);
    assert_eq!(answer.status, 400, "{}", answer.body);
    let kept = most.iter().filter(|byte| **byte == b'\n').count();
    assert_eq!(answer.json()["accepted"], kept);
    assert_eq!(server.get("/v1/events/stats").json()["events"], 3001 + kept);
    let metrics = server.get("/metrics").body;
    assert!(metrics.contains("forebay_events_body_memory_bytes 0\n"), "{metrics}");
    assert!(metrics.contains("forebay_events_commit_seconds_count 3\n"), "{metrics}");
}

#[test]
fn bodies_beyond_their_memory_are_refused_until_it_is_free() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &["--set", "events.body_memory_max=4MiB"]);
    let part = vec![b'x'; 900_000];
    let mut clients: Vec<_> = (0..4)
        .map(|_| {
            let mut client = server.connect();
            send(&mut client, "POST", "/v1/events/raw", "content-length: 900001\r\n");
            client.write_all(&part).unwrap();
            client
        })
        .collect();
    until_measured(&server, "forebay_events_body_memory_bytes 4194304\n");
    let refused = post(&server, "/v1/events/raw", "", b"b\n");
    assert_eq!(refused.status, 429, "{}", refused.body);
    assert!(refused.body.contains("events.body_memory_max"), "{}", refused.body);
    assert!(refused.head.contains("retry-after"));
    for client in &mut clients {
        client.write_all(b"\n").unwrap();
        assert_eq!(Answer::read(client).status, 200);
    }
    assert_eq!(post(&server, "/v1/events/raw", "", b"b\n").status, 200);
    let metrics = server.get("/metrics").body;
    for line in ["forebay_events_appended_total 5", "forebay_events_refused_requests_total 1"] {
        assert!(metrics.contains(&format!("{line}\n")), "{line}: {metrics}");
    }
}

#[test]
fn ids_are_unique_over_requests_and_unknown_ones_are_not_found() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    let ids: HashSet<String> = (0..20)
        .map(|_| {
            let report = post(&server, "/v1/events/raw", "", b"x\n").json();
            report["first_id"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(ids.len(), 20);
    assert_eq!(server.get("/v1/events/01ARZ3NDEKTSV4RRFFQ69G5FAV").status, 404);
    assert_eq!(server.get("/v1/events/nonsense").status, 400);
    assert_eq!(server.get("/v1/events/01ARZ3NDEKTSV4RRFFQ69G5FAV/proof").status, 404);
    assert_eq!(server.get("/v1/events/stats").json()["events"], 20);
    let off = tempfile::tempdir().unwrap();
    let server = Server::start(&off, &["--set", "events.enabled=false"]);
    assert_eq!(server.get("/v1/events/stats").status, 404);
    assert!(!off.path().join("forebay-data/events").exists());
}

#[test]
fn the_page_shows_what_was_searched_for_and_runs_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    assert!(server.get("/").body.contains("/v1/events/search"));
    let body = format!("{}<script>alert(1)</script>\n", "plain line\n".repeat(60));
    post(&server, "/v1/events/raw?stream=web", "", body.as_bytes());
    let page = server.get("/v1/events/search?contains=&stream=web&host=");
    assert_eq!(page.status, 200);
    assert!(page.head.contains("default-src 'none'"), "{}", page.head);
    assert!(page.body.contains("&lt;script&gt;") && !page.body.contains("<script>"));
    assert_eq!(page.body.matches("<td><a href").count(), 50);
    let (_, rest) = page.body.split_once("/v1/events/search?stream=web&amp;cursor=").unwrap();
    let cursor = rest.split('"').next().unwrap();
    let page = server.get(&format!("/v1/events/search?stream=web&cursor={cursor}"));
    assert_eq!(page.body.matches("<td><a href").count(), 11);
    assert!(server.get("/v1/events/search?regex=(").body.contains("regex"));
}
