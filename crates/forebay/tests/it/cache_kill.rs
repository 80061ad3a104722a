//! `kill -9` of the real server under fifty clients: acknowledged writes survive.
//!
//! The clients are the oracle. Each writes numbers in order into its own keys, so the data found
//! after the kill must be a prefix of what it sent, and contain everything acknowledged; the two
//! keys of a transaction must agree.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use tempfile::TempDir;

use crate::cache_support::Cache;
use crate::support::{HANG, run, stderr};

/// Clients over RESP, and over the text protocol.
const RESP_CLIENTS: usize = 40;
const TEXT_CLIENTS: usize = 10;
/// Groups of writes acknowledged before a kill.
const ACKNOWLEDGED_MIN: u64 = 600;

/// Progress of a client: groups sent, and groups acknowledged.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    sent: u64,
    acknowledged: u64,
}

/// Runs one client: sends groups, a few at a time, until the server has ended.
fn write(
    stream: TcpStream,
    from: u64,
    group: &dyn Fn(u64) -> (String, usize),
    all: &AtomicU64,
) -> Progress {
    let mut reader = BufReader::new(stream);
    let mut progress = Progress { sent: from, acknowledged: from };
    loop {
        let batch = progress.sent..progress.sent + 1 + progress.sent % 4;
        let groups: Vec<_> = batch.clone().map(group).collect();
        let text: String = groups.iter().map(|(text, _)| text.as_str()).collect();
        progress.sent = batch.end;
        if reader.get_mut().write_all(text.as_bytes()).is_err() {
            return progress;
        }
        for (_, lines) in groups {
            for _ in 0..lines {
                let mut line = String::new();
                // A line without its end was cut off by the kill and is not an acknowledgement.
                if reader.read_line(&mut line).is_err() || !line.ends_with('\n') {
                    return progress;
                }
                assert!(!line.starts_with(['-', 'E']), "{line}");
            }
            progress.acknowledged += 1;
            all.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn resp_group(client: usize) -> impl Fn(u64) -> (String, usize) {
    move |number| {
        let text = format!(
            "RPUSH list:{client} {number}\r\nINCR count:{client}\r\nMULTI\r\n\
             SET a:{client} {number}\r\nSET b:{client} {number}\r\nEXEC\r\n"
        );
        (text, 8)
    }
}

fn text_group(client: usize) -> impl Fn(u64) -> (String, usize) {
    move |number| (format!("SET text:{client} {number}\n"), 1)
}

/// A client of the test.
struct Asking(BufReader<TcpStream>);

impl Asking {
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Returns the items of the reply, those of an array one by one; `None` if there is no such
    /// key.
    fn ask(&mut self, command: &str) -> Vec<Option<String>> {
        self.0.get_mut().write_all(format!("{command}\r\n").as_bytes()).unwrap();
        let head = self.line();
        let count = match head.strip_prefix('*') {
            Some(count) => count.parse().unwrap(),
            None => return vec![self.item(&head)],
        };
        (0..count)
            .map(|_| {
                let head = self.line();
                self.item(&head)
            })
            .collect()
    }

    fn item(&mut self, head: &str) -> Option<String> {
        match head.split_at(1) {
            ("$", "-1") => None,
            ("$", _) => Some(self.line()),
            (_, text) => Some(text.to_owned()),
        }
    }

    fn number(&mut self, command: &str) -> Option<u64> {
        self.ask(command).remove(0).map(|text| text.parse().unwrap())
    }
}

/// Loads the server and kills it; returns the progress of each client.
fn load_and_kill(cache: Cache, from: &[u64]) -> Vec<Progress> {
    let all = AtomicU64::new(0);
    // Connected before any of them writes: the others may cause the kill before the last thread
    // has run, and its connection would be refused.
    let streams: Vec<TcpStream> = (0..RESP_CLIENTS + TEXT_CLIENTS)
        .map(|client| if client < RESP_CLIENTS { cache.resp() } else { cache.text() })
        .collect();
    std::thread::scope(|scope| {
        let all = &all;
        let clients: Vec<_> = (0..)
            .zip(streams)
            .map(|(client, stream)| {
                let from = from[client];
                scope.spawn(move || match client {
                    0..RESP_CLIENTS => write(stream, from, &resp_group(client), all),
                    _ => write(stream, from, &text_group(client), all),
                })
            })
            .collect();
        let mut asking = Asking(BufReader::new(cache.resp()));
        let (mut snapshots, mut last) = (0, asking.number("LASTSAVE"));
        let deadline = Instant::now() + HANG;
        while snapshots == 0 || all.load(Ordering::Relaxed) < ACKNOWLEDGED_MIN {
            assert!(Instant::now() < deadline, "{snapshots} snapshots, {all:?} acknowledged");
            // Refused while a snapshot is being taken: one is always in progress.
            asking.ask("BGSAVE");
            let now = asking.number("LASTSAVE");
            snapshots += u64::from(now != std::mem::replace(&mut last, now));
        }
        asking.ask("BGSAVE");
        cache.signal("KILL");
        cache.wait();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    })
}

/// Compares the data with each client's progress; returns where each continues.
fn verify(address: SocketAddr, progress: &[Progress]) -> Vec<u64> {
    let mut asking = Asking(BufReader::new(Cache::connect(address)));
    let mut check = |client: usize, progress: &Progress| {
        let within = |found: u64, what: &str| {
            let Progress { sent, acknowledged } = *progress;
            assert!(
                (acknowledged..=sent).contains(&found),
                "{what} {client}: {found}, {progress:?}"
            );
        };
        if client >= RESP_CLIENTS {
            let next = asking.number(&format!("GET text:{client}")).map_or(0, |last| last + 1);
            within(next, "text");
            return next;
        }
        let list = asking.ask(&format!("LRANGE list:{client} 0 -1"));
        for (number, element) in list.iter().enumerate() {
            assert_eq!(element.as_deref(), Some(&*number.to_string()), "a gap in list:{client}");
        }
        let length = list.len() as u64;
        within(length, "list");
        let count = asking.number(&format!("GET count:{client}")).unwrap_or(0);
        let [a, b] = ["a", "b"].map(|key| asking.number(&format!("GET {key}:{client}")));
        assert_eq!(a, b, "half a transaction of client {client}");
        let done = a.map_or(0, |last| last + 1);
        // The log has the writes of one connection in order, so the data is a prefix.
        assert!(length >= count && count >= done && done + 1 >= length, "{length} {count} {done}");
        within(done, "transactions");
        // The next load begins with complete groups.
        asking.ask(&format!("SET count:{client} {length}"));
        if let Some(last) = length.checked_sub(1) {
            asking.ask(&format!("MSET a:{client} {last} b:{client} {last}"));
        }
        length
    };
    progress.iter().enumerate().map(|(client, progress)| check(client, progress)).collect()
}

fn survive(durability: &str, server: &str) {
    let dir = TempDir::new().unwrap();
    let args = ["--durability", durability, "--server", server];
    let mut from = vec![0; RESP_CLIENTS + TEXT_CLIENTS];
    for _ in 0..2 {
        let progress = load_and_kill(Cache::start(&dir, &args), &from);
        let cache = Cache::start(&dir, &args);
        from = verify(cache.resp, &progress);
        cache.signal("TERM");
        assert_eq!(cache.wait(), Some(0));
        let checked = run(&dir, &["cache", "check", "forebay-data"]);
        let report = String::from_utf8_lossy(&checked.stdout).into_owned();
        assert!(checked.status.success(), "{report} {}", stderr(&checked));
    }
}

#[test]
fn sync_writes_survive_a_kill_under_fifty_clients() {
    survive("sync", "per-connection");
    survive("sync", "pooled");
}

#[test]
fn interval_writes_survive_a_kill_under_fifty_clients() {
    survive("interval:50ms", "per-connection");
    survive("interval:50ms", "pooled");
}

#[test]
fn writes_left_to_the_kernel_survive_a_kill_under_fifty_clients() {
    survive("os", "per-connection");
    survive("os", "pooled");
}
