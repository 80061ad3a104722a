//! `forebay fsck` on data a server left behind, and what a server answers about altered data.

use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use tempfile::TempDir;

use crate::support::{Answer, HANG, Server, agent, run, stderr};

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

/// Stores three files and two documents, stops the server in order, and moves what is in the write-ahead
/// logs of both databases into the databases.
fn furnish(dir: &TempDir) {
    let server = Server::start(dir, &["--data", "data"]);
    for n in 1..=3 {
        let path = format!("{}/v1/files/notes/small-{n}.txt", server.url);
        assert_eq!(agent().put(path).send(format!("the bytes {n}")).unwrap().status(), 201);
    }
    let orders = "{\"amount\":\"AMOUNT-100\"}\n{\"amount\":\"AMOUNT-101\"}\n";
    let posted = agent()
        .post(format!("{}/v1/documents/orders?target=table", server.url))
        .header("content-type", "application/x-ndjson")
        .send(orders)
        .unwrap();
    assert_eq!(posted.status(), 201);
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    for view in ["catalogue.sqlite", "documents.sqlite"] {
        let database =
            rusqlite::Connection::open(dir.path().join("data/intake").join(view)).unwrap();
        database.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    }
}

/// Replaces the first occurrence of `old` in a database of the intake by `new`, of the same length.
/// Writes nothing else: the database may be in use.
fn alter(dir: &TempDir, view: &str, old: &str, new: &str) {
    assert_eq!(old.len(), new.len());
    let path = dir.path().join("data/intake").join(view);
    let bytes = std::fs::read(&path).unwrap();
    let mut windows = bytes.windows(old.len());
    let at = windows.position(|window| window == old.as_bytes()).unwrap();
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.write_all_at(new.as_bytes(), u64::try_from(at).unwrap()).unwrap();
}

/// The exit code of `forebay fsck`, and its report.
fn checked(dir: &TempDir) -> (Option<i32>, String) {
    let output = run(dir, &["fsck", "--data", "data"]);
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn an_altered_document_is_500_and_named_by_fsck_and_the_others_are_served() {
    let dir = tempfile::tempdir().unwrap();
    furnish(&dir);
    // The row has the text twice: in its column, and with quotes in the document.
    alter(&dir, "documents.sqlite", "\"AMOUNT-100\"", "\"AMOUNT-900\"");
    let row = "the row with id 1 of the namespace orders does not match its checksum";
    let is_named = |when: &str| {
        let (code, report) = checked(&dir);
        assert_eq!(code, Some(1), "{when}: {report}");
        assert!(report.contains(&format!("DAMAGED    documents: {row}")), "{when}: {report}");
        assert!(report.contains("in namespace orders"), "{when}: {report}");
    };
    is_named("before the start");
    let server = Server::start(&dir, &["--data", "data"]);
    for path in ["/v1/documents/orders/1", "/v1/documents/orders"] {
        let answer = server.get(path);
        assert_eq!(answer.status, 500, "{path}: {answer:?}");
        assert!(!answer.body.contains("AMOUNT-900"), "{path}: {answer:?}");
        let error = &answer.json()["error"];
        assert_eq!(error["code"], "damaged", "{path}: {error}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(row) && message.contains("forebay fsck"), "{path}: {message}");
    }
    let other = server.get("/v1/documents/orders/2");
    assert_eq!((other.status, other.body.as_str()), (200, "{\"amount\":\"AMOUNT-101\"}"));
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    is_named("after the stop");
}

#[test]
fn an_altered_name_is_named_by_fsck_and_the_next_start_serves_the_right_one() {
    let dir = tempfile::tempdir().unwrap();
    furnish(&dir);
    alter(&dir, "catalogue.sqlite", "small-3.txt", "small-9.txt");
    let (code, report) = checked(&dir);
    assert_eq!(code, Some(1), "{report}");
    let row = "DAMAGED    catalogue: the row \"notes/small-9.txt\"";
    assert!(report.contains(row) && report.contains("nothing is lost"), "{report}");
    let server = Server::start(&dir, &["--data", "data"]);
    let right = server.get("/v1/files/notes/small-3.txt");
    assert_eq!((right.status, right.body.as_str()), (200, "the bytes 3"));
    assert_eq!(server.get("/v1/files/notes/small-9.txt").status, 404);
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    assert!(dir.path().join("data/intake/catalogue-damaged.sqlite").exists());
    let (code, report) = checked(&dir);
    assert_eq!(code, Some(0), "{report}");
}

#[test]
fn a_name_altered_under_a_running_server_makes_it_unready_and_no_list_lacks_the_file() {
    let dir = tempfile::tempdir().unwrap();
    furnish(&dir);
    let args = ["--data", "data", "--set", "intake.verify_interval=1ms"];
    let server = Server::start(&dir, &args);
    alter(&dir, "catalogue.sqlite", "small-3.txt", "small-9.txt");
    let deadline = Instant::now() + HANG;
    let unready = loop {
        let answer = server.get("/readyz");
        if answer.status != 200 {
            break answer;
        }
        assert!(Instant::now() < deadline, "the altered name was not noticed");
    };
    assert_eq!(unready.status, 503, "{unready:?}");
    assert!(
        unready.json()["reason"].as_str().unwrap().contains("notes/small-9.txt"),
        "{unready:?}"
    );
    let listed = server.get("/v1/files?namespace=notes");
    assert_eq!(
        (listed.status, listed.json()["error"]["code"].as_str()),
        (500, Some("damaged")),
        "{listed:?}"
    );
    // The right bytes or an error, never an absence.
    let file = server.get("/v1/files/notes/small-3.txt");
    match file.status {
        200 => assert_eq!(file.body, "the bytes 3"),
        500 => assert_eq!(file.json()["error"]["code"], "damaged"),
        _ => panic!("{file:?}"),
    }
    server.signal("TERM");
    server.wait();
    let server = Server::start(&dir, &["--data", "data"]);
    assert_eq!(server.get("/readyz").status, 200);
    let file = server.get("/v1/files/notes/small-3.txt");
    assert_eq!((file.status, file.body.as_str()), (200, "the bytes 3"));
}
