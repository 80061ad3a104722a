//! Files in object storage: the server is killed while they are stored, overwritten, deleted and moved, and
//! everything that it acknowledged survives.

use forebay_testing::Versity;
use serde_json::Value;
use tempfile::TempDir;

use crate::intake_kill::{Client, Settings, check_stored, clients, kill_repeatedly, start};
use crate::support::{HANG, Server, agent, forebay, run_ok, stderr};

/// Where files are in the bucket `archive`.
const PREFIX: &str = "of/files";

/// Settings of files in a bucket.
///
/// * `setting`: the variable that names it.
pub(crate) fn in_bucket(endpoint: &str, setting: &'static str) -> Vec<(&'static str, String)> {
    vec![
        (setting, format!("s3://archive/{PREFIX}")),
        ("FOREBAY_INTAKE_BLOBS_ENDPOINT", endpoint.to_owned()),
        ("FOREBAY_INTAKE_BLOBS_ALLOW_HTTP", "true".to_owned()),
        ("FOREBAY_INTAKE_BLOBS_INLINE_MAX", "1KiB".to_owned()),
        ("FOREBAY_INTAKE_BLOBS_CACHE", "16MiB".to_owned()),
        ("FOREBAY_INTAKE_BLOBS_KEEP", "0s".to_owned()),
        ("AWS_ACCESS_KEY_ID", Versity::KEY.to_owned()),
        ("AWS_SECRET_ACCESS_KEY", Versity::SECRET.to_owned()),
    ]
}

/// Moves files until the server does not answer. Each move frees the space of deleted files first.
fn keep_moving(url: &str) {
    let agent = agent();
    loop {
        let Ok(mut answer) = agent.post(format!("{url}/v1/blobs/move")).send_empty() else {
            return;
        };
        let Ok(text) = answer.body_mut().read_to_string() else { return };
        assert_eq!(answer.status(), 202, "{text}");
        let status: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(status["moving"]["damaged"], 0, "{text}");
    }
}

/// Moves everything to where the server's settings say.
fn move_all(dir: &TempDir, server: &Server) -> Value {
    let moved = run_ok(dir, &["blobs", "move", "--json", "--server", &server.url]);
    let moved: Value = serde_json::from_str(&moved).unwrap();
    assert_eq!((&moved["moving"]["damaged"], &moved["moving"]["error"]), (&0.into(), &Value::Null));
    moved
}

/// Starts a server, moves everything, checks it, and stops.
fn move_and_check(dir: &TempDir, settings: &Settings, clients: &mut [Client]) -> Value {
    let server = start(dir, settings);
    let moved = move_all(dir, &server);
    for client in &mut *clients {
        client.check(&agent(), &server.url);
    }
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    check_stored(dir, settings, clients);
    moved
}

/// Files below a directory.
fn files_below(dir: &std::path::Path) -> Vec<String> {
    let entries = walkdir::WalkDir::new(dir).into_iter().flatten();
    let files = entries.filter(|entry| entry.file_type().is_file());
    files.map(|entry| entry.path().display().to_string()).collect()
}

#[test]
fn killed_while_files_are_stored_in_a_bucket_nothing_acknowledged_is_lost_and_they_move_back() {
    let Some(bucket) = Versity::start("archive") else { return };
    let dir = tempfile::tempdir().unwrap();
    let settings = in_bucket(&bucket.endpoint(), "FOREBAY_INTAKE_BLOBS");
    let mut clients: Vec<Client> = clients().into_iter().map(Client::with_large).collect();
    kill_repeatedly(&dir, &[&settings], &mut clients, 3, keep_moving);
    let blobs = dir.path().join("forebay-data/intake/blobs");
    assert_eq!(files_below(&blobs), Vec::<String>::new(), "all are in the bucket");
    let packs = bucket.bucket("archive").join(PREFIX).join("packs");
    assert!(!files_below(&packs).is_empty());

    // Without the setting the server does not start, since it would not find them.
    let refused = forebay(&dir).args(["serve", "--listen", "127.0.0.1:0"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(3), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("s3://archive/of/files"), "{}", stderr(&refused));

    let back = in_bucket(&bucket.endpoint(), "FOREBAY_INTAKE_BLOBS_FROM");
    let moved = move_and_check(&dir, &back, &mut clients);
    assert!(moved["moving"]["moved"].as_u64() > Some(0), "{moved}");
    assert_eq!((&moved["place"], &moved["blobs"]), (&"local".into(), &0.into()), "{moved}");
    assert!(!files_below(&blobs).is_empty());
    check_stored(&dir, &[], &clients);
}

#[test]
fn killed_while_files_move_to_a_bucket_and_back_nothing_acknowledged_is_lost() {
    let Some(bucket) = Versity::start("archive") else { return };
    let dir = tempfile::tempdir().unwrap();
    let there = in_bucket(&bucket.endpoint(), "FOREBAY_INTAKE_BLOBS");
    let back = in_bucket(&bucket.endpoint(), "FOREBAY_INTAKE_BLOBS_FROM");
    let mut clients: Vec<Client> = clients().into_iter().map(Client::with_large).collect();
    kill_repeatedly(&dir, &[&there, &back], &mut clients, 4, keep_moving);
    let blobs = dir.path().join("forebay-data/intake/blobs");
    for _ in 0..2 {
        let moved = move_and_check(&dir, &there, &mut clients);
        assert_eq!(files_below(&blobs), Vec::<String>::new(), "all are in the bucket: {moved}");
        let moved = move_and_check(&dir, &back, &mut clients);
        assert_eq!(moved["blobs"], 0, "none is in the bucket: {moved}");
    }
    // What nothing needs leaves the bucket.
    let packs = bucket.bucket("archive").join(PREFIX).join("packs");
    let server = start(&dir, &back);
    let begun = std::time::Instant::now();
    while !files_below(&packs).is_empty() {
        assert!(begun.elapsed() < HANG, "{:?}", files_below(&packs));
        std::thread::yield_now();
    }
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
}
