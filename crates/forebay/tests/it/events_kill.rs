//! kill -9 under many writers, with an external oracle: every acknowledged event exists once.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;

use crate::events_support::{events, lines};
use crate::support::{HANG, Server};

const WRITERS: u64 = 8;
const BATCH: u64 = 20;

/// What a writer recorded.
#[derive(Default)]
struct Oracle {
    /// First id and first raw text of each acknowledged request.
    acknowledged: Vec<(String, String)>,
    texts: Vec<String>,
    /// Of the unanswered requests.
    unknown: Vec<String>,
}

fn texts(round: u64, writer: u64, request: u64) -> Vec<String> {
    (0..BATCH)
        .map(|n| format!("round {round} writer {writer} request {request} event {n}"))
        .collect()
}

/// Posts a body; returns the first id if it was acknowledged.
fn post(address: SocketAddr, body: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(HANG)).ok()?;
    let length = body.len();
    let head = format!(
        "POST /v1/events/raw?stream=kill HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(body.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let report: Value = serde_json::from_str(body).ok()?;
    assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(report["accepted"], BATCH);
    Some(report["first_id"].as_str().unwrap().to_owned())
}

fn write_until_dead(round: u64, writer: u64, address: SocketAddr, done: &AtomicU64) -> Oracle {
    let mut oracle = Oracle::default();
    for request in 0.. {
        let texts = texts(round, writer, request);
        let Some(id) = post(address, &(texts.join("\n") + "\n")) else {
            oracle.unknown.extend(texts);
            break;
        };
        oracle.acknowledged.push((id, texts[0].clone()));
        oracle.texts.extend(texts);
        done.fetch_add(1, Ordering::Relaxed);
    }
    oracle
}

#[test]
fn every_acknowledged_event_is_stored_once_after_kill_9() {
    let dir = tempfile::tempdir().unwrap();
    // Small tables: flushes and compactions happen meanwhile.
    let settings =
        ["--set", "events.memory_table_events=300", "--set", "events.compaction_interval=1ms"];
    let oracles = Mutex::new(Vec::new());
    for round in 0..2 {
        let server = Server::start(&dir, &settings);
        let done = AtomicU64::new(0);
        let (address, done, oracles) = (server.address, &done, &oracles);
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                scope.spawn(move || {
                    let oracle = write_until_dead(round, writer, address, done);
                    oracles.lock().unwrap().push(oracle);
                });
            }
            let begun = std::time::Instant::now();
            while done.load(Ordering::Relaxed) < 60 && begun.elapsed() < HANG {
                std::thread::yield_now();
            }
            server.signal("KILL");
            server.wait();
        });
        events(&dir, &["verify"]);
    }
    let mut found: HashMap<String, (u64, String)> = HashMap::new();
    for event in lines(&events(&dir, &["scan"])) {
        let id = event["id"].as_str().unwrap().to_owned();
        let raw = event["raw"].as_str().unwrap().to_owned();
        found.entry(raw).or_insert((0, id)).0 += 1;
    }
    let oracles = oracles.into_inner().unwrap();
    let mut acknowledged = 0;
    for oracle in &oracles {
        for text in &oracle.texts {
            assert_eq!(found.remove(text).map(|(count, _)| count), Some(1), "{text}");
            acknowledged += 1;
        }
        for text in &oracle.unknown {
            assert!(found.remove(text).is_none_or(|(count, _)| count == 1), "{text}");
        }
        let (id, text) = &oracle.acknowledged[0];
        assert_eq!(&events(&dir, &["get", "--raw", id]), text);
    }
    assert!(found.is_empty(), "no event was invented: {found:?}");
    assert!(acknowledged >= 2 * 60 * BATCH);
    assert!(oracles.iter().any(|oracle| !oracle.unknown.is_empty()), "some were cut");
}
