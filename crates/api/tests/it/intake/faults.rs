//! What clients see when the disk fails or is full, and which parts of a batch are then stored.

use std::sync::Arc;

use axum::body::Body;
use forebay_api::intake::router;
use forebay_base::fs::sim::{Fault, SimFs};
use forebay_intake::{Intake, IntakeOptions};
use serde_json::json;
use tempfile::TempDir;

use super::support::{Answer, Form, MULTIPART, directory, noise, open, send, text};

/// Larger files are kept as separate files.
const PACKED: usize = 600;

/// An intake whose log and blobs are on a simulated disk.
struct Setup {
    disk: SimFs,
    options: IntakeOptions,
    _dir: TempDir,
}

impl Setup {
    fn new(seed: u64) -> Self {
        let dir = directory();
        let mut options = IntakeOptions::new(dir.path().join("intake"));
        options.segment_size = 16 << 10;
        options.limits.packed_size_max = PACKED;
        Self { disk: SimFs::new(seed), options, _dir: dir }
    }

    fn open(&self, disk: &SimFs) -> Intake {
        open(self.options.clone(), Arc::new(disk.clone())).0
    }
}

async fn ask(intake: &Intake, method: &str, path: &str, body: impl Into<Body>) -> Answer {
    send(router(intake), method, path, &[], body).await
}

#[tokio::test]
async fn after_a_failed_sync_writes_get_503_and_reads_are_answered() {
    let setup = Setup::new(1);
    let intake = setup.open(&setup.disk);
    assert_eq!(ask(&intake, "PUT", "/v1/files/n/kept", "kept").await.status, 201);
    intake.close().unwrap();
    drop(intake);
    let intake = setup.open(&setup.disk);
    // The next two operations are the write of the entry and its sync.
    setup.disk.plan(setup.disk.operations() + 1, Fault::Io);
    for (method, path, size) in [
        ("PUT", "/v1/files/n/a", 100),
        ("PUT", "/v1/files/n/b", 10),
        ("PUT", "/v1/files/n/c", 5_000),
        ("DELETE", "/v1/files/n/kept", 0),
    ] {
        let answer = ask(&intake, method, path, noise(1, size)).await;
        assert_eq!(answer.error(), (503, "storage".into()), "{method} {path}");
        assert_eq!(answer.header("retry-after"), "1", "{method} {path}");
    }
    let posted = ask(&intake, "POST", "/v1/documents/n", "{\"a\":1}").await;
    assert_eq!(posted.error(), (503, "storage".into()));
    let kept = ask(&intake, "GET", "/v1/files/n/kept", "").await;
    assert!(kept.status == 200 && kept.body == "kept", "{kept:?}");
    assert!(intake.close().is_err());
}

#[tokio::test]
async fn a_full_disk_gets_507_and_reads_are_answered() {
    let setup = Setup::new(2);
    let intake = setup.open(&setup.disk);
    assert_eq!(ask(&intake, "PUT", "/v1/files/n/kept", "kept").await.status, 201);
    setup.disk.set_capacity(Some(200 << 10));
    let mut count = 0;
    let refused = loop {
        let path = format!("/v1/files/n/{count}");
        let answer = ask(&intake, "PUT", &path, noise(count, 5_000)).await;
        if answer.status != 201 {
            break (path, answer);
        }
        count += 1;
        assert!(count < 1_000, "the disk never was full");
    };
    let (path, answer) = refused;
    assert_eq!(answer.error(), (507, "storage_full".into()));
    assert_eq!(answer.header("retry-after"), "10");
    assert_eq!(ask(&intake, "GET", &path, "").await.status, 404, "it was not acknowledged");
    let listed = ask(&intake, "GET", "/v1/files?limit=1000", "").await;
    assert_eq!(listed.status, 200, "{listed:?}");
    assert_eq!(ask(&intake, "GET", "/v1/files/n/kept", "").await.body, "kept");
    setup.disk.set_capacity(None);
    drop(intake);
}

#[tokio::test]
async fn parts_of_a_batch_that_were_answered_survive_a_power_cut_at_any_operation() {
    let setup = Setup::new(3);
    let parts: Vec<(String, Vec<u8>)> = (0..6)
        .map(|n| (format!("{n}"), noise(n, if n % 2 == 0 { 100 } else { PACKED + 900 })))
        .collect();
    let form = || {
        let form = Form::default().field("namespace", "n");
        parts.iter().fold(form, |form, (name, bytes)| form.file(name, bytes)).finish()
    };
    let mut at = 0;
    loop {
        std::fs::remove_dir_all(&setup.options.dir).unwrap_or_default();
        let disk = setup.disk.fork();
        let intake = setup.open(&disk);
        let begun = disk.operations();
        disk.plan(begun + at, Fault::Stop);
        let answer = send(router(&intake), "POST", "/v1/ingest", &[MULTIPART], form()).await;
        let ended = disk.operations() <= begun + at;
        intake.close().unwrap_or_default();
        drop(intake);
        let answered = stored(&answer);
        assert!(!ended || answered.len() == parts.len(), "{answer:?}");
        let intake = setup.open(&disk.power_off(at));
        for (name, bytes) in &parts {
            let found = ask(&intake, "GET", &format!("/v1/files/n/{name}"), "").await;
            let is_whole = found.status == 200 && found.body == *bytes;
            let is_absent = found.status == 404 && !answered.contains(name);
            assert!(is_whole || is_absent, "operation {at}: {name}: {found:?}");
        }
        intake.close().unwrap();
        if ended {
            break;
        }
        at += 1;
    }
    assert!(at > 5, "there were only {at} operations");
}

#[tokio::test]
async fn a_move_with_a_key_moves_each_file_once_after_a_power_cut_at_any_operation() {
    let setup = Setup::new(4);
    let key = [("idempotency-key", "k")];
    let pair = |n: usize| {
        let name = n.to_string();
        json!({"from": {"namespace": "n", "name": name}, "to": {"namespace": "m", "name": name}})
    };
    let body = json!({"files": (0..4).map(pair).collect::<Vec<_>>()}).to_string();
    let mut at = 0;
    loop {
        std::fs::remove_dir_all(&setup.options.dir).unwrap_or_default();
        let disk = setup.disk.fork();
        let intake = setup.open(&disk);
        for n in 0..4 {
            assert_eq!(ask(&intake, "PUT", &format!("/v1/files/n/{n}"), "old").await.status, 201);
        }
        let begun = disk.operations();
        disk.plan(begun + at, Fault::Stop);
        let moved = send(router(&intake), "POST", "/v1/files/move", &key, body.clone()).await;
        let ended = disk.operations() <= begun + at;
        assert!(!ended || moved.status == 200, "{moved:?}");
        intake.close().unwrap_or_default();
        drop(intake);
        let intake = setup.open(&disk.power_off(at));
        let mut again = Vec::new();
        for n in 0..4 {
            let path = format!("/v1/files/n/{n}");
            if ask(&intake, "GET", &path, "").await.status == 404 {
                again.push(n);
                assert_eq!(ask(&intake, "PUT", &path, "new").await.status, 201);
            }
        }
        let sent = send(router(&intake), "POST", "/v1/files/move", &key, body.clone()).await;
        assert_eq!(sent.status, 200, "operation {at}: {sent:?}");
        for n in 0..4 {
            let target = ask(&intake, "GET", &format!("/v1/files/m/{n}"), "").await;
            assert!(target.status == 200 && target.body == "old", "operation {at}: {target:?}");
            let source = ask(&intake, "GET", &format!("/v1/files/n/{n}"), "").await;
            let expected = if again.contains(&n) { (200, "new") } else { (404, "") };
            assert_eq!(source.status, expected.0, "operation {at}: {n}");
            assert!(source.status == 404 || source.body == expected.1, "operation {at}: {n}");
        }
        intake.close().unwrap();
        if ended {
            break;
        }
        at += 1;
    }
    assert!(at > 3, "there were only {at} operations");
}

/// The parts that a batch's answer says are stored; every other has an error.
fn stored(answer: &Answer) -> Vec<String> {
    let json = answer.json();
    let Some(parts) = json["parts"].as_array() else { return Vec::new() };
    let mut stored = Vec::new();
    for part in parts {
        if matches!(text(&part["status"]), "stored" | "duplicate") {
            stored.push(text(&part["file"]["name"]).to_owned());
        } else {
            assert!(part["error"]["code"].is_string(), "{part}");
        }
    }
    stored
}
