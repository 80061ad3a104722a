//! Statements that arrive late, when another attempt or run has begun, or the load has ended; and what each of them
//! contains.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use forebay_sdk::registry::DestinationSettings as _;
use forebay_sdk::settings::{TargetSettings, WriteMode};
use forebay_testing::{Fate, HttpProxy};
use serde_json::json;

use crate::large::{columns, rows};
use crate::server::{Database, copy, load, open, target, text, write};

/// Sends a request, and waits for its answer.
fn send(port: u16, head: &str, body: &[u8]) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let head = head.trim_end_matches("\r\n");
    stream.write_all(format!("{head}\r\nconnection: close\r\n\r\n").as_bytes()).unwrap();
    stream.write_all(body).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

/// The part of an answer that says whether rows were added.
fn is_done(answer: &str) -> bool {
    answer.starts_with("HTTP/1.1 200 ")
}

/// Head and body of a request.
type Request = (String, Vec<u8>);

/// Passes requests to a server, and records them.
fn recorder(to: u16) -> (HttpProxy, Arc<Mutex<Vec<Request>>>) {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let recorded = Arc::clone(&requests);
    let proxy = HttpProxy::start(to, move |head, body| {
        recorded.lock().unwrap().push((head.to_owned(), body.to_vec()));
        Fate::Pass
    });
    (proxy, requests)
}

/// What the table has.
fn state(database: &Database, settings: &TargetSettings) -> String {
    let last = if settings.write_mode == WriteMode::Upsert { "FINAL" } else { "" };
    database.query(&format!(
        "SELECT count(), uniqExact(id), min(id), max(id), sum(length(pad)) FROM {} {last}",
        settings.into
    ))
}

/// Sends requests again. The last ones are the ones that are late most likely.
fn send_again(database: &Database, settings: &TargetSettings, requests: &[Request]) {
    let before = state(database, settings);
    let mut refused = 0;
    for (head, body) in requests.iter().rev() {
        let answer = send(database.server.port(), head, body);
        let is_rows = head.contains("ArrowStream") && head.contains(&settings.into);
        if is_rows && settings.write_mode != WriteMode::Replace {
            assert!(!is_done(&answer), "{head}");
            refused += 1;
        }
        assert_eq!(state(database, settings), before, "{head}");
    }
    assert!(refused == 1 || settings.write_mode == WriteMode::Replace, "{refused} units of rows");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_arrives_again_after_a_load_has_ended_changes_nothing() {
    let Some(database) = Database::create() else { return };
    let (proxy, requests) = recorder(database.server.port());
    // A unit of one block, and one of several blocks, which are collected in a table beside.
    let more = json!({ "block_size": "1MiB" });
    let destination = database.settings(proxy.port(), more).destination();
    for mode in [WriteMode::Append, WriteMode::Upsert, WriteMode::Replace] {
        for is_claimed in [false, true] {
            let settings = target(&format!("target_{mode:?}_{is_claimed}"), mode);
            copy(&destination, &settings, &columns(), "before", &[rows(0..10)]).await.unwrap();
            requests.lock().unwrap().clear();
            let claim = match is_claimed {
                true => Some(destination.claim(&settings).await.unwrap()),
                false => None,
            };
            let to = load("load", &["small", "large"]);
            let opened = open(&destination, &settings, &columns()).await.unwrap();
            opened.prepare(&to).await.unwrap();
            write(&opened, &settings, &to, "small", &[rows(10..60)]).await.unwrap();
            let batches = [rows(60..1_500), rows(1_500..3_000), rows(3_000..3_010)];
            write(&opened, &settings, &to, "large", &batches).await.unwrap();
            opened.finish(&to).await.unwrap();
            drop(claim);
            let entries = destination.last_load(&settings).await.unwrap();
            let sent = std::mem::take(&mut *requests.lock().unwrap());
            send_again(&database, &settings, &sent);
            let now = destination.last_load(&settings).await.unwrap();
            assert_eq!(now, entries, "{mode:?} {is_claimed}");
            // The next run is not disturbed, and leaves nothing.
            let claim = destination.claim(&settings).await.unwrap();
            let entry = copy(&destination, &settings, &columns(), "next", &[rows(0..20)]).await;
            assert_eq!(entry.unwrap().rows, 20);
            drop(claim);
            let left = "SELECT name FROM system.tables WHERE database = currentDatabase() AND \
                        match(name, '_forebay_(next|swap|stage)')";
            assert_eq!(database.query(left), "", "{mode:?} {is_claimed}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exchange_of_an_earlier_run_that_arrives_late_does_not_bring_the_old_rows_back() {
    let Some(database) = Database::create() else { return };
    let settings = target("t", WriteMode::Replace);
    let direct = database.destination(json!({}));
    copy(&direct, &settings, &columns(), "old", &[rows(0..10)]).await.unwrap();
    let (port, name) = (database.server.port(), database.name.clone());
    let server = Arc::downgrade(&database.server);
    let found = Arc::new(Mutex::new(String::new()));
    let named = Arc::clone(&found);
    let was_late = Arc::new(AtomicBool::new(false));
    let late = Arc::clone(&was_late);
    let proxy = HttpProxy::start(port, move |_, body| {
        let earlier = named.lock().unwrap().clone();
        let is_rename =
            String::from_utf8_lossy(body).contains(&format!("RENAME TABLE `{earlier}`"));
        if !earlier.is_empty() && is_rename && !late.swap(true, Ordering::SeqCst) {
            let server = server.upgrade().unwrap();
            server.query(&name, &format!("EXCHANGE TABLES `{earlier}` AND t"));
        }
        Fate::Pass
    });
    let destination = database.settings(proxy.port(), json!({})).destination();
    let to = load("new", &["all"]);
    let opened = open(&destination, &settings, &columns()).await.unwrap();
    opened.prepare(&to).await.unwrap();
    write(&opened, &settings, &to, "all", &[rows(100..150)]).await.unwrap();
    // What an earlier run has done of the end of the load.
    let loaded = database.query(
        "SELECT name FROM system.tables WHERE database = currentDatabase() AND name LIKE '\\_forebay\\_next\\_%'",
    );
    let own = loaded.replace("_next_", "_swap_");
    database.query(&format!("RENAME TABLE `{loaded}` TO `{own}`"));
    found.lock().unwrap().clone_from(&own);
    opened.finish(&to).await.unwrap();
    assert!(was_late.load(Ordering::SeqCst), "the exchange of the earlier run arrived");
    assert_eq!(database.query("SELECT count(), min(id), max(id) FROM t"), "50\t100\t149");
    let left = "SELECT count() FROM system.tables WHERE database = currentDatabase() AND match(name, '_forebay_(next|swap)')";
    assert_eq!(database.query(left), "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_entry_of_a_unit_is_that_of_the_rows_that_are_there() {
    let Some(database) = Database::create() else { return };
    // 1: the end of the first attempt is lost. 2: the second one is cut off after it has begun.
    let phase = Arc::new(AtomicU32::new(0));
    let now = Arc::clone(&phase);
    let proxy = HttpProxy::start(database.server.port(), move |head, _| {
        let lost = match now.load(Ordering::SeqCst) {
            1 => head.contains("%27committed%27%2C+record"),
            2 if head.contains("%27begun%27%2C+record") => {
                now.store(3, Ordering::SeqCst);
                false
            }
            3 => true,
            _ => false,
        };
        if lost { Fate::Lose } else { Fate::Pass }
    });
    let destination = database.settings(proxy.port(), json!({})).destination();
    let settings = target("t", WriteMode::Append);
    let to = load("l", &["a"]);
    let opened = open(&destination, &settings, &columns()).await.unwrap();
    opened.prepare(&to).await.unwrap();
    phase.store(1, Ordering::SeqCst);
    let first = write(&opened, &settings, &to, "a", &[rows(0..10)]).await.unwrap_err();
    assert!(first.is_retryable(), "{}", text(&first));
    phase.store(2, Ordering::SeqCst);
    // The source has changed meanwhile.
    write(&opened, &settings, &to, "a", &[rows(0..7)]).await.unwrap_err();
    assert_eq!(phase.load(Ordering::SeqCst), 3, "the second attempt has begun");
    let direct = database.destination(json!({}));
    let (_, entries) = direct.last_load(&settings).await.unwrap().unwrap();
    assert_eq!((entries.len(), entries[0].rows), (1, 10));
    // A third attempt finds them, and has the entry that belongs to them.
    let opened = open(&direct, &settings, &columns()).await.unwrap();
    opened.prepare(&to).await.unwrap();
    let entry = write(&opened, &settings, &to, "a", &[rows(0..7)]).await.unwrap();
    assert_eq!(entry.rows, 10);
    assert_eq!(opened.content().await.unwrap().to_string(), entry.hash);
}

#[tokio::test]
async fn no_statement_ends_early_at_a_limit_of_the_users_profile() {
    let Some(database) = Database::create() else { return };
    let (proxy, requests) = recorder(database.server.port());
    let destination = database.settings(proxy.port(), json!({})).destination();
    for mode in [WriteMode::Append, WriteMode::Upsert, WriteMode::Replace] {
        let settings = target(&format!("{mode:?}"), mode);
        copy(&destination, &settings, &columns(), "l", &[rows(0..10)]).await.unwrap();
        let opened = open(&destination, &settings, &columns()).await.unwrap();
        assert_eq!(opened.content().await.unwrap().rows, 10);
    }
    let requests = requests.lock().unwrap();
    assert!(requests.len() > 30);
    for (head, _) in requests.iter() {
        for setting in ["read_overflow_mode", "timeout_overflow_mode", "result_overflow_mode"] {
            assert!(head.contains(&format!("{setting}=throw")), "{head}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_are_not_seen_end_the_load_and_are_not_written_again() {
    let Some(database) = Database::create() else { return };
    let (server, name) = (Arc::downgrade(&database.server), database.name.clone());
    let count = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&count);
    let proxy = HttpProxy::start(database.server.port(), move |head, body| {
        let sql = String::from_utf8_lossy(body);
        counted.fetch_add(u32::from(head.contains("ArrowStream")), Ordering::SeqCst);
        // As a row policy would hide them.
        if sql.contains("SELECT 1 FROM `t` WHERE _forebay_load") {
            let server = server.upgrade().unwrap();
            server.query(&name, "ALTER TABLE t DELETE WHERE 1 SETTINGS mutations_sync = 2");
        }
        Fate::Pass
    });
    let destination = database.settings(proxy.port(), json!({})).destination();
    let settings = target("t", WriteMode::Append);
    let error = copy(&destination, &settings, &columns(), "l", &[rows(0..10)]).await.unwrap_err();
    assert!(!error.is_retryable() && text(&error).contains("row policy"), "{}", text(&error));
    let entry = copy(&destination, &settings, &columns(), "l", &[rows(0..10)]).await.unwrap();
    assert_eq!((entry.rows, count.load(Ordering::SeqCst)), (10, 1));
}
