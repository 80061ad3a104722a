//! Backups of a running server: what was acknowledged before is in them, whole, whatever happens meanwhile.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cache_full::can_mount;
use crate::support::{Server, agent, run, run_ok, stderr};

/// A file of more than 64 KiB is a blob.
const LARGE: usize = 200_000;

fn put(url: &str, name: &str, bytes: &[u8]) -> bool {
    let sent = agent().put(format!("{url}/v1/files/{name}")).send(bytes);
    sent.is_ok_and(|answer| matches!(answer.status().as_u16(), 200 | 201))
}

fn post(url: &str, target: &str, body: &str) -> bool {
    let sent = agent()
        .post(format!("{url}{target}"))
        .header("content-type", "application/x-ndjson")
        .send(body.as_bytes());
    sent.is_ok_and(|answer| answer.status().is_success())
}

fn get(url: &str, target: &str) -> (u16, Vec<u8>) {
    let mut answer = agent().get(format!("{url}{target}")).call().unwrap();
    (answer.status().as_u16(), answer.body_mut().read_to_vec().unwrap())
}

fn get_json(url: &str, target: &str) -> Value {
    serde_json::from_slice(&get(url, target).1).unwrap()
}

fn backup(dir: &TempDir, server: &Server) -> Value {
    let text = run_ok(dir, &["backup", "backups", "--server", &server.url, "--json"]);
    serde_json::from_str(&text).unwrap()
}

fn restore(dir: &TempDir, to: &str, at: &[&str]) -> Value {
    let text = run_ok(dir, &[&["restore", "backups", "--data", to, "--json"], at].concat());
    serde_json::from_str(&text).unwrap()
}

/// The content of a file of a writer, by its number.
fn content(writer: usize, number: usize) -> Vec<u8> {
    let text = format!("{writer}/{number} ");
    let size = if number.is_multiple_of(5) { LARGE } else { 100 };
    text.into_bytes().repeat(size / 4)
}

fn event(number: usize) -> String {
    json!({ "type": "test", "time": "2026-01-01T00:00:00Z", "message": format!("event {number}") })
        .to_string()
}

/// Writes files, documents and events until it is stopped; `acked` counts its rounds that were acknowledged.
fn write(url: &str, writer: usize, acked: &AtomicUsize, stop: &AtomicBool) {
    let mut number = 0;
    while !stop.load(Ordering::Acquire) {
        let name = format!("w{writer}/{number}");
        let document = json!({ "number": number }).to_string();
        assert!(put(url, &name, &content(writer, number)));
        assert!(post(url, &format!("/v1/documents/w{writer}?target=table"), &document));
        assert!(post(url, "/v1/events", &event(number)));
        if number % 7 == 6 {
            // What is deleted meanwhile makes no backup incomplete.
            let gone = agent().delete(format!("{url}/v1/files/w{writer}/{}", number - 1)).call();
            assert!(gone.unwrap().status().is_success());
        }
        number += 1;
        acked.store(number, Ordering::Release);
    }
}

/// Checks that a restored server has the rounds that were acknowledged before its backup.
fn check(url: &str, writer: usize, acked: usize) {
    for number in 0..acked {
        let (status, bytes) = get(url, &format!("/v1/files/w{writer}/{number}"));
        let deleted = number % 7 == 5;
        assert!(status == 200 || (deleted && status == 404), "w{writer}/{number}: {status}");
        assert!(status == 404 || bytes == content(writer, number), "w{writer}/{number}");
    }
    let page = get_json(url, &format!("/v1/documents/w{writer}?limit=1000"));
    let documents = page["documents"].as_array().map_or(0, Vec::len);
    assert!(documents >= acked.min(1_000), "{documents} documents of {acked}");
}

#[test]
fn a_backup_of_a_server_under_load_has_what_was_acknowledged_before() {
    const WRITERS: usize = 2;
    const BACKUPS: usize = 3;
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    let (stop, counts) = (AtomicBool::new(false), [const { AtomicUsize::new(0) }; WRITERS]);
    let mut made: Vec<(Value, Vec<usize>)> = Vec::new();
    std::thread::scope(|scope| {
        for (writer, acked) in counts.iter().enumerate() {
            let (url, stop) = (&server.url, &stop);
            scope.spawn(move || write(url, writer, acked, stop));
        }
        let mut least = 3;
        while made.len() < BACKUPS {
            while counts.iter().any(|count| count.load(Ordering::Acquire) < least) {
                std::thread::yield_now();
            }
            let before = counts.iter().map(|count| count.load(Ordering::Acquire)).collect();
            made.push((backup(&dir, &server), before));
            least += 8;
        }
        stop.store(true, Ordering::Release);
    });
    assert!(!dir.path().join("forebay-data/backup-image").exists());
    drop(server);
    run_ok(&dir, &["backup", "backups", "--verify"]);
    for (at, (made, before)) in made.iter().enumerate() {
        assert_eq!(made["online"], true);
        let to = format!("restored-{at}");
        restore(&dir, &to, &["--at", made["id"].as_str().unwrap()]);
        run_ok(&dir, &["fsck", "--data", &to]);
        run_ok(&dir, &["events", "verify", "--data", &to]);
        let restored = Server::start(&dir, &["--data", &to]);
        for (writer, acked) in before.iter().enumerate() {
            check(&restored.url, writer, *acked);
        }
        let events = get_json(&restored.url, "/v1/events/stats");
        let count = events["events"].as_u64().unwrap();
        assert!(count >= before.iter().sum::<usize>() as u64, "{events}");
    }
}

#[test]
fn a_second_backup_stores_only_what_is_new_and_works_on_a_stopped_server() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    for number in 0..20 {
        assert!(put(&server.url, &format!("w0/{}", number * 5), &content(0, number * 5)));
    }
    let first = backup(&dir, &server);
    assert!(first["new_bytes"].as_u64().unwrap() > 10 * LARGE as u64, "{first}");
    let second = backup(&dir, &server);
    assert!(second["new_bytes"].as_u64().unwrap() < LARGE as u64, "{second}");
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    let third: Value =
        serde_json::from_str(&run_ok(&dir, &["backup", "backups", "--json"])).unwrap();
    assert_eq!(third["online"], false);
    let listed: Value =
        serde_json::from_str(&run_ok(&dir, &["backup", "backups", "--list", "--json"])).unwrap();
    assert_eq!(listed["backups"].as_array().unwrap().len(), 3);
    restore(&dir, "restored", &[]);
    let restored = Server::start(&dir, &["--data", "restored"]);
    assert_eq!(get(&restored.url, "/v1/files/w0/95").1, content(0, 95));
}

#[test]
fn jobs_of_a_restored_copy_are_failed_and_can_be_requeued() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &["--set", "jobs.workers=1"]);
    // A job that runs until its client is done keeps the worker; the other waits.
    let mut jobs = Vec::new();
    for number in 0..50 {
        let target = format!("{}/v1/files/jobs/{number}?async=true", server.url);
        let mut answer = agent().put(target).send(&content(0, 0)[..]).unwrap();
        let answer: Value =
            serde_json::from_slice(&answer.body_mut().read_to_vec().unwrap()).unwrap();
        jobs.push(answer["job_id"].as_str().unwrap().to_owned());
    }
    backup(&dir, &server);
    drop(server);
    let failed = restore(&dir, "restored", &[])["jobs_failed"].as_u64().unwrap();
    let restored = Server::start(&dir, &["--data", "restored"]);
    let stats = get_json(&restored.url, "/v1/jobs?status=failed&limit=1000");
    assert_eq!(stats["jobs"].as_array().unwrap().len() as u64, failed);
    for (number, job) in jobs.iter().enumerate() {
        let known = get_json(&restored.url, &format!("/v1/jobs/{job}"));
        if known["status"] == "failed" {
            assert!(known["error"].as_str().unwrap().contains("requeue"), "{known}");
            run_ok(&dir, &["jobs", "requeue", job, "--server", &restored.url]);
            run_ok(&dir, &["jobs", "wait", job, "--server", &restored.url, "--timeout", "20s"]);
        }
        let (status, bytes) = get(&restored.url, &format!("/v1/files/jobs/{number}"));
        assert_eq!((status, bytes), (200, content(0, 0)), "{known}");
    }
}

/// All chunks of the backups.
fn chunks(dir: &Path) -> Vec<PathBuf> {
    let found = walkdir::WalkDir::new(dir.join("backups/chunks")).into_iter();
    found.map(Result::unwrap).filter(|e| e.file_type().is_file()).map(|e| e.into_path()).collect()
}

#[test]
fn damage_is_found_and_nothing_is_left_half_restored() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    assert!(put(&server.url, "w0/0", &content(0, 0)));
    backup(&dir, &server);
    drop(server);
    for chunk in chunks(dir.path()) {
        let whole = std::fs::read(&chunk).unwrap();
        let mut damaged = whole.clone();
        let middle = damaged.len() / 2;
        damaged[middle] ^= 1;
        std::fs::write(&chunk, damaged).unwrap();
        let verified = run(&dir, &["backup", "backups", "--verify"]);
        assert_eq!(verified.status.code(), Some(1), "{}", stderr(&verified));
        let name = chunk.file_name().unwrap().to_str().unwrap();
        assert!(String::from_utf8_lossy(&verified.stdout).contains(name));
        let restored = run(&dir, &["restore", "backups", "--data", "restored"]);
        assert_eq!(restored.status.code(), Some(3));
        assert!(stderr(&restored).contains(name), "{}", stderr(&restored));
        assert!(!dir.path().join("restored").exists());
        assert!(!dir.path().join(".restored.restoring").exists());
        std::fs::write(&chunk, whole).unwrap();
    }
    run_ok(&dir, &["backup", "backups", "--verify"]);
    // A directory with something in it is refused and left alone.
    std::fs::create_dir(dir.path().join("restored")).unwrap();
    std::fs::write(dir.path().join("restored/letter"), "dear").unwrap();
    let refused = run(&dir, &["restore", "backups", "--data", "restored"]);
    assert!(stderr(&refused).contains("not empty"), "{}", stderr(&refused));
    std::fs::remove_file(dir.path().join("restored/letter")).unwrap();
    restore(&dir, "restored", &[]);
}

#[test]
fn an_interrupted_backup_leaves_those_before_and_its_remains_are_not_believed() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    assert!(put(&server.url, "w0/0", &content(0, 0)));
    let first = backup(&dir, &server);
    // As a backup that was killed leaves them: a list without a name, an image, a chunk that is not whole.
    assert!(put(&server.url, "w0/5", &content(0, 5)));
    let before = chunks(dir.path());
    let second = backup(&dir, &server);
    let id = second["id"].as_str().unwrap();
    std::fs::remove_file(dir.path().join(format!("backups/marks/{id}"))).unwrap();
    let list = format!("backups/lists/{id}.list");
    std::fs::rename(dir.path().join(list), dir.path().join("backups/new-list")).unwrap();
    for chunk in chunks(dir.path()).iter().filter(|chunk| !before.contains(chunk)) {
        std::fs::write(chunk, "torn").unwrap();
    }
    let image = dir.path().join("forebay-data/backup-image");
    std::fs::create_dir_all(image.join("files")).unwrap();
    run_ok(&dir, &["backup", "backups", "--verify"]);
    restore(&dir, "first", &["--at", first["id"].as_str().unwrap()]);
    backup(&dir, &server);
    assert!(!image.exists());
    run_ok(&dir, &["backup", "backups", "--verify"]);
    restore(&dir, "third", &[]);
    let restored = Server::start(&dir, &["--data", "third"]);
    assert_eq!(get(&restored.url, "/v1/files/w0/5").1, content(0, 5));
}

#[test]
fn an_image_is_made_only_for_a_command_that_holds_the_lock() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    let answer = server.ask("POST", "/v1/admin/backup-image", "content-length: 0\r\n");
    assert_eq!((answer.status, answer.json()["error"]["code"].as_str()), (409, Some("backup")));
    assert!(!dir.path().join("forebay-data/backup-image").exists());
    // A directory that holds something else is never written to.
    let refused = run(&dir, &["backup", ".", "--server", &server.url]);
    assert_eq!(refused.status.code(), Some(3), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("something else"), "{}", stderr(&refused));
    assert!(!dir.path().join("forebay-data/backup-image").exists());
}

#[test]
fn a_full_disk_fails_a_backup_and_leaves_those_before() {
    /// Makes backups on a small file system, in a separate mount namespace.
    const SCRIPT: &str = r#"
        mount -t tmpfs -o size=8m,mode=700 none backups || exit 77
        "$0" backup backups --data data || exit 10
        head -c 9000000 /dev/urandom > data/pipelines/large
        "$0" backup backups --data data
        [ $? = 3 ] || exit 11
        "$0" backup backups --verify || exit 12
        [ $("$0" backup backups --list | wc -l) = 1 ] || exit 13
        rm data/pipelines/large
        "$0" backup backups --data data || exit 14
        "$0" backup backups --verify || exit 15
        "$0" restore backups --data restored || exit 16
    "#;
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &["--data", "data"]);
    assert!(put(&server.url, "w0/0", &content(0, 0)));
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    std::fs::create_dir_all(dir.path().join("data/pipelines")).unwrap();
    std::fs::create_dir(dir.path().join("backups")).unwrap();
    let mut command = std::process::Command::new("unshare");
    command.args(["-rm", "sh", "-c", SCRIPT, env!("CARGO_BIN_EXE_forebay")]);
    let output = command.current_dir(dir.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("No space left"), "{}", stderr(&output));
}
