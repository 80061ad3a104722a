//! Greedy clients of a cache with a memory limit: they are closed, and nothing else is affected.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Instant;

use tempfile::TempDir;

use crate::cache_support::{Cache, ask, expect};
use crate::support::HANG;

const MIB: usize = 1 << 20;
/// `--max-memory`, the resulting limit for connections, room for the program itself, and what the C
/// library's allocator keeps of freed blocks: the resident memory stays below their sum. The
/// allocator keeps up to 32 MiB in each arena, and which arenas have some depends on the order of
/// the threads: room for two.
const RSS_MAX: usize = (64 + 64 + 64 + 2 * 32) * MIB;
/// Maximum resident memory at any moment: the allocator keeps large blocks for a while after they
/// are freed, up to 32 MiB for each size that was in use.
const RSS_PEAK_MAX: usize = 384 * MIB;
const KEYS: usize = 1_000;

/// Returns the resident memory of the process, and its peak.
fn rss(cache: &Cache) -> (usize, usize) {
    let status = std::fs::read_to_string(format!("/proc/{}/status", cache.child.id())).unwrap();
    let kib = |name: &str| -> usize {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().strip_suffix(" kB").unwrap().trim().parse().unwrap()
    };
    (kib("VmRSS:") << 10, kib("VmHWM:") << 10)
}

/// Writes all of it, or until the connection is closed.
fn write_or_be_closed(stream: &mut TcpStream, bytes: &[u8]) -> bool {
    stream.write_all(bytes).is_ok()
}

fn info(stream: &mut TcpStream, name: &str) -> u64 {
    stream.write_all(b"*1\r\n$4\r\nINFO\r\n").unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n") {
        let mut byte = [0; 1];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let len: usize = String::from_utf8_lossy(&head[1..]).trim().parse().unwrap();
    let mut text = vec![0; len + 2];
    stream.read_exact(&mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name}:"))).unwrap();
    line.parse().unwrap()
}

const MODES: [&str; 2] = ["per-connection", "pooled"];

fn start(dir: &TempDir, mode: &str) -> Cache {
    let policy = ["--max-memory", "64MiB", "--policy", "allkeys-s3fifo"];
    Cache::start(dir, &[&["--no-persist", "--server", mode][..], &policy].concat())
}

fn within_the_bar(cache: &Cache, mode: &str) {
    let (now, most) = rss(cache);
    let report = format!("{mode}: {} MiB, {} MiB at most", now / MIB, most / MIB);
    assert!(now <= RSS_MAX && most <= RSS_PEAK_MAX, "{report}");
}

/// Two thousand words of one command, or as many commands without words if `word_size` is 0.
fn many(command: &str, batch: u64, word_size: usize) -> String {
    if word_size == 0 {
        return format!("{command}\r\n").repeat(2_000);
    }
    let words = (0..2_000).map(|word| {
        let name = format!("{:0>word_size$}", batch * 2_000 + word);
        format!("${word_size}\r\n{name}\r\n")
    });
    let head = format!("*2001\r\n${}\r\n{command}\r\n", command.len());
    std::iter::once(head).chain(words).collect()
}

/// Bytes that do not compress.
fn incompressible(len: usize) -> Vec<u8> {
    let mut state = 1u64;
    let mut words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    });
    let mut bytes: Vec<u8> = words.by_ref().take(len / 8).flat_map(u64::to_le_bytes).collect();
    bytes.resize(len, 0);
    bytes
}

/// Asks until INFO reports it.
fn wait_for(client: &mut TcpStream, name: &str, value: u64) {
    let deadline = Instant::now() + HANG;
    loop {
        let now = info(client, name);
        if now == value {
            return;
        }
        assert!(Instant::now() < deadline, "{name} is {now} instead of {value}");
        std::thread::yield_now();
    }
}

#[test]
fn greedy_clients_are_closed_every_key_stays_and_the_server_stays_small() {
    for mode in MODES {
        let dir = tempfile::tempdir().unwrap();
        let cache = start(&dir, mode);
        let mut client = cache.resp();
        for key in 0..KEYS {
            ask(&mut client, &format!("SET key:{key} {}\r\n", "v".repeat(1_000)), "+OK\r\n");
        }
        let piece = vec![b'x'; MIB];
        let mut unfinished: Vec<Option<TcpStream>> = (0..40).map(|_| Some(cache.resp())).collect();
        for slot in &mut unfinished {
            let head = format!("*3\r\n$3\r\nSET\r\n$1\r\nx\r\n${}\r\n", 32 * MIB);
            slot.as_mut().unwrap().write_all(head.as_bytes()).unwrap();
        }
        for _ in 0..31 {
            for slot in &mut unfinished {
                if slot.as_mut().is_some_and(|stream| !write_or_be_closed(stream, &piece)) {
                    *slot = None;
                }
            }
        }
        let closed = unfinished.iter().filter(|slot| slot.is_none()).count();
        assert!(closed >= 30, "{closed} of 40 were closed");
        let mut listeners: Vec<TcpStream> = (0..50).map(|_| cache.resp()).collect();
        for listener in &mut listeners {
            listener.write_all(b"SUBSCRIBE c\r\n").unwrap();
            expect(listener, "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n");
        }
        let mut speaker = cache.resp();
        for _ in 0..100 {
            speaker
                .write_all(format!("*3\r\n$7\r\nPUBLISH\r\n$1\r\nc\r\n${MIB}\r\n").as_bytes())
                .unwrap();
            speaker.write_all(&piece).unwrap();
            speaker.write_all(b"\r\n").unwrap();
            let mut count = [0; 1];
            while count[0] != b'\n' {
                speaker.read_exact(&mut count).unwrap();
            }
        }
        ask(&mut client, "DBSIZE\r\n", &format!(":{KEYS}\r\n"));
        assert_eq!(info(&mut client, "evicted_keys"), 0);
        assert!(info(&mut client, "evicted_clients") >= 30);
        assert!(info(&mut client, "mem_clients_normal") <= 64 << 20);
        within_the_bar(&cache, mode);
    }
}

#[test]
fn long_replies_that_are_not_read_stay_within_the_account() {
    for mode in MODES {
        let dir = tempfile::tempdir().unwrap();
        let cache = start(&dir, mode);
        let mut client = cache.resp();
        let head = format!("*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n${}\r\n", 32 * MIB);
        client.write_all(head.as_bytes()).unwrap();
        client.write_all(&incompressible(32 * MIB)).unwrap();
        client.write_all(b"\r\n").unwrap();
        expect(&mut client, "+OK\r\n");
        // Each of them holds more than half of the account, so at most one of them remains.
        let silent: Vec<TcpStream> = (0..40)
            .map(|_| {
                let mut stream = cache.resp();
                stream.write_all(b"GET big\r\n").unwrap();
                stream
            })
            .collect();
        wait_for(&mut client, "evicted_clients", 39);
        ask(&mut client, "EXISTS big\r\n", ":1\r\n");
        assert_eq!(info(&mut client, "evicted_keys"), 0);
        within_the_bar(&cache, mode);
        drop(silent);
        wait_for(&mut client, "connected_clients", 1);
    }
}

#[test]
fn names_and_queues_of_one_client_stay_within_the_account() {
    for mode in MODES {
        let dir = tempfile::tempdir().unwrap();
        let cache = start(&dir, mode);
        let mut client = cache.resp();
        for (begin, command, word_size) in [
            ("", "SUBSCRIBE", 40),
            ("", "PSUBSCRIBE", 40),
            ("", "SSUBSCRIBE", 40),
            ("", "WATCH", 40),
            ("MULTI\r\n", "SADD", 40),
            ("MULTI\r\n", "PING", 0),
            ("CLIENT REPLY OFF\r\n", "SUBSCRIBE", 40),
        ] {
            let closed = info(&mut client, "evicted_clients");
            let mut greedy = cache.resp();
            greedy.write_all(begin.as_bytes()).unwrap();
            let mut sent = 0;
            // More than the account permits, and then the end: read until it is closed.
            let mut reader = greedy.try_clone().unwrap();
            let reading = std::thread::spawn(move || {
                std::io::copy(&mut reader, &mut std::io::sink()).unwrap_or_default()
            });
            for batch in 0u64.. {
                assert!(sent < 1 << 30, "{mode} {command}: {sent} bytes and still open");
                let text = many(command, batch, word_size);
                sent += text.len();
                if !write_or_be_closed(&mut greedy, text.as_bytes()) {
                    break;
                }
            }
            reading.join().unwrap();
            wait_for(&mut client, "evicted_clients", closed + 1);
        }
        within_the_bar(&cache, mode);
    }
}

#[test]
fn two_thousand_connections_with_nothing_to_do_cost_little() {
    for mode in MODES {
        let dir = tempfile::tempdir().unwrap();
        let cache = start(&dir, mode);
        let mut client = cache.resp();
        ask(&mut client, "PING\r\n", "+PONG\r\n");
        let (before, _) = rss(&cache);
        let idle: Vec<TcpStream> = (0..2_000)
            .map(|_| {
                let mut stream = cache.resp();
                ask(&mut stream, "PING\r\n", "+PONG\r\n");
                stream
            })
            .collect();
        let (after, _) = rss(&cache);
        let each = after.saturating_sub(before) / idle.len();
        println!("{mode}: {each} bytes for each of {} idle connections", idle.len());
        assert!(each < 8 << 10, "{mode}: {each} bytes for each idle connection");
    }
}

#[test]
fn limits_of_output_are_read_set_and_enforced_as_in_redis() {
    let dir = tempfile::tempdir().unwrap();
    let settings = ["--no-persist", "--set", "cache.output_limit_pubsub=1MiB 0 0s"];
    let cache = Cache::start(&dir, &settings);
    let mut client = cache.resp();
    let report = |normal: &str, pubsub: &str| {
        let value = format!("normal {normal} slave 0 0 0 pubsub {pubsub}");
        format!("*2\r\n$26\r\nclient-output-buffer-limit\r\n${}\r\n{value}\r\n", value.len())
    };
    let get = "CONFIG GET client-output-buffer-limit\r\n";
    ask(&mut client, get, &report("0 0 0", "1048576 0 0"));
    let set = "CONFIG SET client-output-buffer-limit \"pubsub 2mb 1mb 9 normal 3mb 0 0\"\r\n";
    ask(&mut client, set, "+OK\r\n");
    ask(&mut client, get, &report("3145728 0 0", "2097152 1048576 9"));
    for wrong in ["pubsub 1", "nobody 1 1 1", "normal x 1 1", "normal 1 1 -1"] {
        client
            .write_all(format!("CONFIG SET client-output-buffer-limit \"{wrong}\"\r\n").as_bytes())
            .unwrap();
        let mut byte = [0; 1];
        client.read_exact(&mut byte).unwrap();
        assert_eq!(byte[0], b'-', "{wrong}");
        while byte[0] != b'\n' {
            client.read_exact(&mut byte).unwrap();
        }
    }
    ask(&mut client, get, &report("3145728 0 0", "2097152 1048576 9"));
    ask(&mut client, "CONFIG SET maxmemory-clients 100mb\r\n", "+OK\r\n");
    let report = "*2\r\n$17\r\nmaxmemory-clients\r\n$9\r\n104857600\r\n";
    ask(&mut client, "CONFIG GET maxmemory-clients\r\n", report);
}

#[test]
fn unauthenticated_clients_get_little_memory() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("password"), "swordfish\n").unwrap();
    let cache = Cache::start(&dir, &["--no-persist", "--password-file", "password"]);
    let closed = |mut stream: TcpStream, request: &[u8]| {
        // Closed in the middle, or after an error message.
        stream.write_all(request).unwrap_or_default();
        let mut report = Vec::new();
        stream.read_to_end(&mut report).map(drop).unwrap_or_default();
        String::from_utf8_lossy(&report).into_owned()
    };
    let report = closed(cache.resp(), b"*3\r\n$3\r\nSET\r\n$1\r\nx\r\n$100000\r\n");
    assert!(report.contains("unauthenticated bulk length"), "{report}");
    let report = closed(cache.resp(), b"*100\r\n");
    assert!(report.contains("unauthenticated multibulk length"), "{report}");
    let report = closed(cache.text(), &[b'x'; 20_000]);
    assert!(report.contains("line too long"), "{report}");
    // Unread refusals, more than the kernel buffers: the connection is closed, they are not
    // collected.
    closed(cache.resp(), &b"GET k\r\n".repeat(1_000_000));
    let mut text = cache.text();
    ask(&mut text, "AUTH swordfish\n", "OK authenticated\n");
    ask(&mut text, &format!("SET long {}\n", "v".repeat(20_000)), "OK\n");
}
