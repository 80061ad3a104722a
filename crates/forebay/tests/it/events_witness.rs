//! Servers that witness each other's logs, and `events verify --server` against one that was rolled
//! back, and one that shows another history under the same key.

use std::path::Path;
use std::time::Instant;

use forebay_testing::free_port;
use tempfile::TempDir;

use crate::events_cli::{copy, key, save};
use crate::events_support::{append_ok, events, numbered, post, refused};
use crate::support::{HANG, Server};

/// A data directory with 5 events, a log key and a witness key.
struct Node {
    dir: TempDir,
    port: u16,
    log_key: String,
    witness_key: String,
}

impl Node {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        append_ok(&dir, &["--stream", "s"], numbered(5).as_bytes());
        let log_key = key(&dir, "forebay-data");
        let witness_key = events(&dir, &["witness-key"]).trim().to_owned();
        Self { dir, port: free_port(), log_key, witness_key }
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn anchor(&self) -> String {
        self.dir.path().join("anchor").display().to_string()
    }

    /// Starts a server that is a witness for another, which is its own witness.
    fn start(&self, other: &Self, data: &str) -> Server {
        let listen = format!("127.0.0.1:{}", self.port);
        let witnesses = format!("events.witnesses={}/witness {}", other.url(), other.witness_key);
        let logs = format!("events.witness_logs={}", other.log_key);
        let anchor = format!("events.anchor={}", self.anchor());
        let mut args = vec!["--data", data, "--listen", &listen];
        for setting in [
            &*witnesses,
            &logs,
            &anchor,
            "events.checkpoint_interval=50ms",
            "events.anchor_interval=50ms",
        ] {
            args.extend(["--set", setting]);
        }
        Server::start(&self.dir, &args)
    }

    /// Verifies the running server from the command line; it must succeed.
    fn sound(&self, args: &[&str]) {
        let url = self.url();
        let said = events(&self.dir, &[&["verify", "--server", &url][..], args].concat());
        assert!(said.contains("no changes found"), "{said}");
    }

    /// The same, and it must find a change.
    fn changed(&self, args: &[&str]) -> String {
        let url = self.url();
        refused(&self.dir, &[&["verify", "--server", &url][..], args].concat(), 1)
    }
}

fn append(server: &Server, count: u64) {
    let answer = post(server, "/v1/events?stream=s", "", numbered(count).as_bytes());
    assert_eq!(answer.status, 200, "{answer:?}");
}

/// Waits until the served checkpoint is cosigned and covers this many events; returns it.
fn cosigned(server: &Server, size: u64) -> String {
    let deadline = Instant::now() + HANG;
    loop {
        let note = server.get("/v1/events/tlog/checkpoint").body;
        let covered = note.lines().nth(1).and_then(|line| line.parse().ok()) == Some(size);
        if covered && note.contains(" forebay.local/witness ") {
            return note;
        }
        assert!(Instant::now() < deadline, "{note}\n{}", server.get("/v1/events/stats").body);
    }
}

/// Waits until a place or witness of the server fails with this reason.
fn fails(server: &Server, reason: &str) {
    let deadline = Instant::now() + HANG;
    loop {
        let anchors = server.get("/v1/events/stats").json()["anchors"].to_string();
        if anchors.contains(reason) {
            return;
        }
        assert!(Instant::now() < deadline, "{anchors}");
    }
}

/// Waits until a checkpoint of this size is published.
fn published(node: &Node, size: u64) {
    let path = Path::new(&node.anchor()).join(format!("{size:020}.checkpoint"));
    let deadline = Instant::now() + HANG;
    while !path.is_file() {
        assert!(Instant::now() < deadline, "{}", path.display());
    }
}

fn stop(server: Server) {
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn two_servers_witness_each_other_and_are_verified_while_they_serve() {
    let (one, two) = (Node::new(), Node::new());
    let (server, other) = (one.start(&two, "forebay-data"), two.start(&one, "forebay-data"));
    append(&server, 5);
    append(&other, 7);
    let note = cosigned(&server, 10);
    cosigned(&other, 12);
    published(&one, 10);
    let kept = save(&one.dir, "kept", &note);
    one.sound(&["--witness", &two.witness_key]);
    one.sound(&["--since", &kept, "--key", &one.log_key]);
    one.sound(&["--anchor", &one.anchor(), "--witness", &two.witness_key]);
    two.sound(&["--witness", &one.witness_key]);
    append(&server, 3);
    cosigned(&server, 13);
    one.sound(&["--since", &kept, "--witness", &two.witness_key]);
    // A witness that cosigned nothing, and a key of another log.
    let said = one.changed(&["--witness", &one.witness_key]);
    assert!(said.contains("WRONG") && said.contains("the served checkpoint"), "{said}");
    let said = one.changed(&["--since", &kept, "--key", &two.log_key]);
    assert!(said.contains("WRONG"), "{said}");
    stop(server);
    stop(other);
    // Without servers the same holds.
    events(&one.dir, &["verify", "--witness", &two.witness_key, "--anchor", &one.anchor()]);
    let said = refused(&one.dir, &["verify", "--witness", &one.witness_key], 1);
    assert!(said.contains("by 0 of the given"), "{said}");
    // No server.
    refused(&one.dir, &["verify", "--server", &one.url()], 3);
}

#[test]
fn a_server_whose_store_was_rolled_back_is_found_and_its_witness_refuses() {
    let (one, two) = (Node::new(), Node::new());
    copy(&one.dir.path().join("forebay-data"), &one.dir.path().join("older"));
    let (server, other) = (one.start(&two, "forebay-data"), two.start(&one, "forebay-data"));
    append(&server, 5);
    let kept = save(&one.dir, "kept", &cosigned(&server, 10));
    published(&one, 10);
    stop(server);
    let server = one.start(&two, "older");
    // It is sound by itself.
    one.sound(&[]);
    for args in [&["--since", &*kept][..], &["--anchor", &one.anchor()]] {
        let said = one.changed(args);
        assert!(said.contains("its newest are missing"), "{args:?}: {said}");
    }
    append(&server, 1);
    fails(&server, "a checkpoint of 10 events was published in");
    let said = one.changed(&["--witness", &two.witness_key]);
    assert!(said.contains("the served checkpoint"), "nothing is cosigned: {said}");
    stop(server);
    stop(other);
}

#[test]
fn a_server_with_the_same_key_and_other_events_is_found_and_its_witness_refuses() {
    let (one, two, mut fork) = (Node::new(), Node::new(), Node::new());
    copy(&one.dir.path().join("forebay-data"), &fork.dir.path().join("copied"));
    fork.log_key.clone_from(&one.log_key);
    let (server, other) = (one.start(&two, "forebay-data"), two.start(&one, "forebay-data"));
    append(&server, 5);
    let kept = save(&fork.dir, "kept", &cosigned(&server, 10));
    published(&one, 10);
    let forked = fork.start(&two, "copied");
    let different = "{\"forged\":1}\n".repeat(7);
    let answer = post(&forked, "/v1/events?stream=s", "", different.as_bytes());
    assert_eq!(answer.status, 200, "{answer:?}");
    fails(&forked, "other events before");
    fork.sound(&[]);
    // The real one fits what was kept, the fork does not, and has no cosignature.
    one.sound(&["--since", &kept, "--witness", &two.witness_key]);
    for args in [&["--since", &*kept][..], &["--anchor", &one.anchor()]] {
        let said = fork.changed(args);
        let expected = "history, compared with the checkpoint of 10 events";
        assert!(said.contains(expected), "{args:?}: {said}");
    }
    let said = fork.changed(&["--witness", &two.witness_key]);
    assert!(said.contains("the served checkpoint"), "{said}");
    for server in [server, other, forked] {
        stop(server);
    }
}
