//! `forebay fsck` on data a server left behind.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::support::{Answer, Server, agent, run, stderr};

/// Bytes that occur nowhere else on the disk.
const MARK: &[u8] = b"a-byte-of-this-is-going-to-change";

/// Stores `size` bytes that begin with [`MARK`] under `name` and stops the server in order.
fn keep(dir: &tempfile::TempDir, name: &str, size: usize) {
    let server = Server::start(dir, &["--data", "data"]);
    let mut stream = server.connect();
    let mut body = MARK.to_vec();
    body.resize(size, b'.');
    let head = format!(
        "PUT /v1/files/notes/{name} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-length: {size}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&body).unwrap();
    assert_eq!(Answer::read(&mut stream).status, 201);
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
}

/// Changes one bit of [`MARK`] in the one file that holds it.
fn flip(dir: &Path) -> PathBuf {
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let mut bytes = std::fs::read(&path).unwrap();
            if let Some(at) = bytes.windows(MARK.len()).position(|window| window == MARK) {
                bytes[at + 5] ^= 1;
                std::fs::write(&path, bytes).unwrap();
                return path;
            }
        }
    }
    panic!("the stored bytes are nowhere in {}", dir.display());
}

#[test]
fn a_sound_directory_passes() {
    let dir = tempfile::tempdir().unwrap();
    keep(&dir, "small.txt", 1_000);
    let output = run(&dir, &["fsck", "--data", "data", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["sound"], &report["blobs"]), (&true.into(), &1.into()), "{report}");
}

#[test]
fn a_changed_byte_of_a_small_or_a_large_file_is_found_and_the_file_named() {
    for (name, size) in [("small.txt", 1_000), ("large.txt", 200_000)] {
        let dir = tempfile::tempdir().unwrap();
        keep(&dir, name, size);
        let path = flip(&dir.path().join("data"));
        let output = run(&dir, &["fsck", "--data", "data"]);
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        let report = String::from_utf8(output.stdout).unwrap();
        assert!(report.contains(&format!("notes/{name}")), "{report}");
        assert!(report.contains(path.file_name().unwrap().to_str().unwrap()), "{report}");
    }
}

#[test]
fn a_directory_in_use_is_not_checked() {
    let dir = tempfile::tempdir().unwrap();
    let _server = Server::start(&dir, &["--data", "data"]);
    let output = run(&dir, &["fsck", "--data", "data"]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
}

#[test]
fn a_changed_byte_of_an_unfinished_upload_is_found_and_its_file_named() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &["--data", "data"]);
    let tus = ("tus-resumable", "1.0.0");
    let begun = agent()
        .post(format!("{}/v1/uploads", server.url))
        .header(tus.0, tus.1)
        .header("upload-length", "1000")
        .header("content-type", "application/offset+octet-stream")
        .send(MARK)
        .unwrap();
    assert_eq!(begun.status(), 201);
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    let report = || {
        let output = run(&dir, &["fsck", "--data", "data", "--json"]);
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.code(), report)
    };
    let (code, sound) = report();
    assert_eq!((code, &sound["uploads"]), (Some(0), &1.into()), "{sound}");
    assert_eq!(sound["upload_bytes"], MARK.len(), "{sound}");
    let path = flip(&dir.path().join("data"));
    let (code, damaged) = report();
    assert_eq!((code, &damaged["findings"][0]["kind"]), (Some(1), &"upload".into()), "{damaged}");
    let output = run(&dir, &["fsck", "--data", "data"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains(path.file_name().unwrap().to_str().unwrap()), "{text}");
    assert!(text.contains("uploads    1 unfinished"), "{text}");
}

#[test]
fn damaged_or_missing_files_of_jobs_keys_and_events_are_found() {
    let dir = tempfile::tempdir().unwrap();
    keep(&dir, "small.txt", 1_000);
    let found = |path: &str, kind: &str| {
        let output = run(&dir, &["fsck", "--data", "data"]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(1), "{path}: {text}");
        assert!(text.contains(&format!("DAMAGED    {kind}: ")), "{path}: {text}");
    };
    for (path, kind) in [("jobs/log/0000000000000000.log", "jobs"), ("master.key", "keys")] {
        let file = dir.path().join("data").join(path);
        let whole = std::fs::read(&file).unwrap();
        let mut damaged = whole.clone();
        damaged[23] ^= 1;
        damaged.pop();
        std::fs::write(&file, damaged).unwrap();
        found(path, kind);
        std::fs::write(&file, whole).unwrap();
    }
    let master = dir.path().join("data/master.key");
    let whole = std::fs::read(&master).unwrap();
    let mut other = whole.clone();
    other[3] ^= 1;
    std::fs::write(&master, other).unwrap();
    found("another master.key", "keys");
    std::fs::remove_file(&master).unwrap();
    found("no master.key", "keys");
    std::fs::write(&master, whole).unwrap();
    let manifest = dir.path().join("data/events/manifest");
    let whole = std::fs::read(&manifest).unwrap();
    std::fs::remove_file(&manifest).unwrap();
    found("no manifest", "events");
    std::fs::write(&manifest, whole).unwrap();
    let output = run(&dir, &["fsck", "--data", "data"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}
