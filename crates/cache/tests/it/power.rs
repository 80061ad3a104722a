//! The power fails while a server is under load: what it acknowledged to its clients under `sync`
//! survives, and under any durability the surviving data is what they sent, up to some moment,
//! without a gap or a partial transaction.
//!
//! The disk is simulated and loses what was not synced; the server, its sockets and its clients are
//! real.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use forebay_base::clock::SystemClock;
use forebay_base::fs::sim::SimFs;
use forebay_cache::persist::PersistOptions;
use forebay_cache::resp::{Proto, Reply};
use forebay_cache::server::{Mode, Server, ServerOptions};
use forebay_cache::{Cache, CacheOptions};

use crate::crash_model::{DIR, options};

const CLIENTS: usize = 16;
const ACKNOWLEDGED_MIN: u64 = 400;
/// Time after which a test hangs.
const HANG: Duration = Duration::from_secs(60);

/// Groups that a client sent, and those that were acknowledged.
#[derive(Debug)]
struct Progress {
    sent: u64,
    acknowledged: u64,
}

fn open(disk: &SimFs, durability: &str) -> Cache {
    let persist = PersistOptions {
        segment_size: 64 << 10,
        snapshot_log_min: 1 << 30,
        ..options(durability.parse().unwrap())
    };
    let options =
        CacheOptions { dir: Some(PathBuf::from(DIR)), persist, ..CacheOptions::default() };
    Cache::open(Arc::new(disk.clone()), Arc::new(SystemClock::new()), &options).unwrap()
}

fn connect(address: SocketAddr) -> BufReader<TcpStream> {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(HANG)).unwrap();
    BufReader::new(stream)
}

/// Writes groups, two at once, until one is not acknowledged.
fn write(address: SocketAddr, client: usize, all: &AtomicU64) -> Progress {
    let mut reader = connect(address);
    let mut progress = Progress { sent: 0, acknowledged: 0 };
    loop {
        let group = |number: u64| {
            format!(
                "RPUSH list:{client} {number}\r\nMULTI\r\nSET a:{client} {number}\r\n\
                 SET b:{client} {number}\r\nEXEC\r\n"
            )
        };
        let text = group(progress.sent) + &group(progress.sent + 1);
        progress.sent += 2;
        if reader.get_mut().write_all(text.as_bytes()).is_err() {
            return progress;
        }
        for _ in 0..2 {
            for _ in 0..7 {
                let mut line = String::new();
                let read = reader.read_line(&mut line);
                if read.is_err() || !line.ends_with('\n') || line.starts_with("-MISCONF") {
                    return progress;
                }
                assert!(!line.starts_with('-'), "{line}");
            }
            progress.acknowledged += 1;
            all.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Loads a server and cuts its power; returns the resulting disk.
fn lose_power(durability: &str, mode: Mode, seed: u64) -> (SimFs, Vec<Progress>) {
    let disk = SimFs::new(seed);
    let cache = open(&disk, durability);
    let listen = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
    let options = ServerOptions {
        resp: listen,
        text: None,
        mode,
        threads: 2,
        threads_min: 2,
        ..ServerOptions::default()
    };
    let server = Server::start(Arc::clone(cache.engine()), &options).unwrap();
    let address = server.resp_address().unwrap();
    let all = AtomicU64::new(0);
    let after = std::thread::scope(|scope| {
        let all = &all;
        let clients: Vec<_> =
            (0..CLIENTS).map(|client| scope.spawn(move || write(address, client, all))).collect();
        let mut asking = connect(address);
        let deadline = Instant::now() + HANG;
        while all.load(Ordering::Relaxed) < ACKNOWLEDGED_MIN + 37 * seed {
            assert!(Instant::now() < deadline, "{all:?} acknowledged");
            // Refused while another is being taken: one is always in progress.
            asking.get_mut().write_all(b"BGSAVE\r\n").unwrap();
            asking.read_line(&mut String::new()).unwrap();
        }
        let after = disk.power_off(seed);
        let progress: Vec<Progress> =
            clients.into_iter().map(|client| client.join().unwrap()).collect();
        (after, progress)
    });
    server.stop();
    cache.close().unwrap_err();
    after
}

/// The reply to a command, its lines.
fn ask(cache: &Cache, words: &[&str]) -> Vec<String> {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    let mut session = cache.engine().inner_session();
    let mut out = Reply::new(Proto::Resp2);
    cache.engine().execute(&mut session, &words, &mut out);
    cache.engine().close(session);
    String::from_utf8(out.take()).unwrap().lines().map(str::to_owned).collect()
}

fn verify(disk: &SimFs, durability: &str, progress: &[Progress]) {
    let cache = open(disk, durability);
    for (client, Progress { sent, acknowledged }) in progress.iter().enumerate() {
        let list = ask(&cache, &["LRANGE", &format!("list:{client}"), "0", "-1"]);
        let elements: Vec<&String> = list.iter().skip(2).step_by(2).collect();
        for (number, element) in elements.iter().enumerate() {
            assert_eq!(**element, number.to_string(), "{durability}: a gap in list:{client}");
        }
        let length = elements.len() as u64;
        let [a, b] = ["a", "b"].map(|key| ask(&cache, &["GET", &format!("{key}:{client}")]));
        assert_eq!(a, b, "{durability}: half a transaction of client {client}");
        let done = a.get(1).map_or(0, |last| last.parse::<u64>().unwrap() + 1);
        assert!(length == done || length == done + 1, "{durability}: {length} {done}");
        let least = if durability == "sync" { *acknowledged } else { 0 };
        let right = least <= done && length <= *sent;
        assert!(right, "{durability}: {client}: {acknowledged} {done} {length} {sent}");
    }
}

#[test]
fn a_server_that_loses_its_power_under_load_keeps_what_its_durability_promises() {
    for durability in ["sync", "interval:50ms", "os"] {
        for (seed, mode) in [(1, Mode::PerConnection), (2, Mode::Pooled { workers: 8 })] {
            let (disk, progress) = lose_power(durability, mode, seed);
            verify(&disk, durability, &progress);
        }
    }
}
