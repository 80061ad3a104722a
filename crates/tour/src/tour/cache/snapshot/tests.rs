//! Tests with a minimal cache that answers BGSAVE as scripted.

use std::collections::VecDeque;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;

use super::*;
use crate::tour::inputs::files::Source;
use forebay_console::interrupt::Interrupt;

/// The reply to BGSAVE, and the snapshots that are logged before the reply: keys, and the duration
/// in milliseconds.
type Answers = VecDeque<(&'static str, Vec<(u64, f64)>)>;

struct Cache {
    address: SocketAddr,
    answers: Mutex<Answers>,
    log: PathBuf,
    /// Whether it closes its connections at the next command.
    is_dead: AtomicBool,
}

impl Cache {
    fn start(log: PathBuf, answers: Answers) -> Arc<Self> {
        std::fs::write(&log, "").unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let is_dead = AtomicBool::new(false);
        let cache = Arc::new(Self { address, answers: Mutex::new(answers), log, is_dead });
        let serving = Arc::clone(&cache);
        // It ends with the process of the tests.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let serving = Arc::clone(&serving);
                std::thread::spawn(move || serving.serve(&stream.unwrap()));
            }
        });
        cache
    }

    fn serve(&self, mut stream: &TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        while let Some(name) = command(&mut reader) {
            let answer = match name == b"BGSAVE" {
                true => self.bgsave(),
                false => "+OK",
            };
            let is_dead = self.is_dead.load(Ordering::SeqCst);
            if is_dead || stream.write_all(format!("{answer}\r\n").as_bytes()).is_err() {
                return;
            }
        }
    }

    fn bgsave(&self) -> &'static str {
        let (answer, snapshots) = self.answers.lock().pop_front().unwrap();
        let mut log = OpenOptions::new().append(true).open(&self.log).unwrap();
        for (keys, took_ms) in snapshots {
            let line = serde_json::json!({
                "timestamp": jiff::Timestamp::now().to_string(), "message": "snapshot taken",
                "keys": keys, "bytes": 1, "took_ms": took_ms,
            });
            writeln!(log, "{line}").unwrap();
        }
        answer
    }
}

/// Returns the name of the next command of a connection.
fn command<R: BufRead>(reader: &mut R) -> Option<Vec<u8>> {
    let number = |reader: &mut R| {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        line.trim().get(1..)?.parse::<u64>().ok()
    };
    let words = number(reader)?;
    let mut name = Vec::new();
    for at in 0..words {
        let size = number(reader)?;
        let mut word = Vec::new();
        reader.by_ref().take(size + 2).read_to_end(&mut word).ok()?;
        if at == 0 {
            word.truncate(word.len().checked_sub(2)?);
            name = word;
        }
    }
    Some(name)
}

/// Takes a snapshot of such a cache; returns the result, and whether the server was killed.
fn take(answers: Answers) -> (anyhow::Result<SnapshotRun>, bool) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, "hello").unwrap();
    let files = ["a", "b"].map(|name| Source { path: path.clone(), name: name.into(), size: 5 });
    let items: Vec<Item<'_>> = files.iter().map(Item::File).collect();
    let cache = Cache::start(dir.path().join("server.log"), answers);
    let (dying, interrupt) = (AtomicBool::new(false), Interrupt::default());
    let load =
        Load { address: cache.address, connections: 2, dying: &dying, interrupt: &interrupt };
    let oracle = Mutex::new(Oracle::default());
    let mut was_killed = false;
    let mut kill = || {
        was_killed = true;
        cache.is_dead.store(true, Ordering::SeqCst);
        Ok(())
    };
    let taken = under_load(&load, &cache.log, &mut kill, &items, &oracle);
    (taken, was_killed)
}

#[test]
fn a_snapshot_in_progress_is_awaited_and_not_mistaken_for_the_requested_one() {
    let busy = "-ERR Background save already in progress";
    let old = (1, 600_000.0);
    let answers: Answers = [
        (busy, vec![]),
        (busy, vec![old]),
        // A snapshot that ended between the last check of the log and the request.
        ("+Background saving started", vec![old, (7, 0.001)]),
    ]
    .into();
    let (taken, was_killed) = take(answers);
    assert_eq!(taken.unwrap().logged.keys, 7);
    assert!(was_killed);
}

#[test]
fn what_bgsave_was_answered_is_reported_and_the_server_outlives_the_writers() {
    let (taken, was_killed) = take([("-ERR no space", vec![])].into());
    let error = format!("{:#}", taken.unwrap_err());
    assert!(error.contains("BGSAVE was answered ERR no space"), "{error}");
    assert!(!was_killed, "nothing is killed if there is nothing to measure");
}
