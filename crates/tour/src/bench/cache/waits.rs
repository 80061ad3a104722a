//! Measures how long other connections wait while one client runs a heavy command.
//!
//! Four clients read and write small values, one command at a time, while a fifth runs a command on
//! a large value: a million members, or a string of 100 MB. What counts is the longest time any of
//! the four waited for a reply. Their keys are spread over all shards, so some share one with the
//! large value.

use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use super::peer::{Kind, Peer};
use super::resp::{Client, Reply};
use super::{Figures, Plan, snapshot};

/// Number of clients that wait.
const CLIENTS: usize = 4;
/// Number of small values.
const SMALL_KEYS: usize = 1_024;
/// Number of members of a large collection, unless the plan has fewer keys.
const MEMBERS_MAX: u64 = 1_000_000;
/// Bytes of a large string, by members of a large collection: 100 MB for a million.
const BYTES_PER_MEMBER: usize = 100;
/// Members that one command adds while a large value is made.
const MEMBERS_AT_ONCE: u64 = 1_000;

/// A large value.
#[derive(Debug, Clone, Copy)]
enum Large {
    Set,
    List,
    Hash,
    ZSet,
    /// A string of random bytes.
    Text,
    /// Two of them, at `large` and `second`.
    Texts,
}

/// A heavy command.
#[derive(Debug)]
struct Heavy {
    /// Its name in the figures.
    name: &'static str,
    value: Large,
    /// Its words; numbers refer to a value of any size.
    words: &'static [&'static str],
    /// How often it runs.
    times: usize,
    /// Whether it runs while a snapshot is written.
    saving: bool,
}

const fn heavy(name: &'static str, value: Large, words: &'static [&'static str]) -> Heavy {
    Heavy { name, value, words, times: 1, saving: false }
}

const RENAME: &[&str] = &["RENAME", "large", "other"];
const COPY: &[&str] = &["COPY", "large", "other"];

const HEAVY: [Heavy; 14] = [
    heavy("rename", Large::Set, RENAME),
    heavy("rename_hash", Large::Hash, RENAME),
    heavy("rename_zset", Large::ZSet, RENAME),
    heavy("copy", Large::Set, COPY),
    heavy("copy_text", Large::Text, COPY),
    heavy("del", Large::Set, &["DEL", "large"]),
    heavy("unlink", Large::Set, &["UNLINK", "large"]),
    heavy("ltrim", Large::List, &["LTRIM", "large", "0", "9"]),
    heavy("zremrangebyrank", Large::ZSet, &["ZREMRANGEBYRANK", "large", "0", "-11"]),
    heavy("bitcount", Large::Text, &["BITCOUNT", "large"]),
    heavy("bitop", Large::Texts, &["BITOP", "XOR", "other", "large", "second"]),
    Heavy { times: 100, ..heavy("setbit", Large::Text, &["SETBIT", "large", "77777", "1"]) },
    Heavy { times: 100, ..heavy("getrange", Large::Text, &["GETRANGE", "large", "9000", "9099"]) },
    Heavy {
        times: 10,
        saving: true,
        ..heavy("setrange_saving", Large::Text, &["SETRANGE", "large", "9000", "changed"])
    },
];

/// Measures all heavy commands on every server.
pub(super) fn measure(plan: &Plan, scratch: &Path, figures: &mut Figures) -> anyhow::Result<()> {
    for heavy in &HEAVY {
        let mut waits = [const { Vec::new() }; Kind::ALL.len()];
        for round in 0..plan.rounds {
            for (at, kind) in Kind::ALL.into_iter().enumerate() {
                let name = format!("wait-{}-{}-{round}", heavy.name, kind.name());
                let peer = Peer::start(kind, &scratch.join(name), heavy.saving)?;
                waits[at].push(longest(plan, &peer, heavy)?);
                peer.stop()?;
            }
        }
        for (kind, waits) in Kind::ALL.into_iter().zip(waits) {
            figures.median(&format!("{}_wait_{}_ms", kind.name(), heavy.name), waits);
        }
    }
    Ok(())
}

/// Returns the longest wait in milliseconds.
fn longest(plan: &Plan, peer: &Peer, heavy: &Heavy) -> anyhow::Result<f64> {
    let mut client = Client::connect(peer.address)?;
    client.set_all(SMALL_KEYS as u64, |number, key, value| {
        key.extend_from_slice(small_key(usize::try_from(number).unwrap_or(0)).as_bytes());
        value.extend_from_slice(b"small");
    })?;
    make(&mut client, heavy.value, plan.keys.clamp(1, MEMBERS_MAX))?;
    let words: Vec<&[u8]> = heavy.words.iter().map(|word| word.as_bytes()).collect();
    let (over, ready) = (AtomicBool::new(false), Barrier::new(CLIENTS + 1));
    let longest = std::thread::scope(|scope| -> anyhow::Result<Duration> {
        let (over, ready) = (&over, &ready);
        let waiting: Vec<_> = (0..CLIENTS)
            .map(|number| scope.spawn(move || wait(peer, first_of(number), over, ready)))
            .collect();
        ready.wait();
        let ran = (|| {
            if heavy.saving {
                // A large value may have made the server begin one by itself.
                snapshot::wait_for_save(&mut client)?;
                snapshot::begin(&mut client)?;
            }
            for _ in 0..heavy.times {
                client.command(&words)?;
            }
            // Work that the server left for later counts as well.
            std::thread::park_timeout(Duration::from_millis(100));
            if heavy.saving { snapshot::wait_for_save(&mut client) } else { Ok(()) }
        })();
        over.store(true, Ordering::Relaxed);
        let mut longest = Duration::ZERO;
        for waiting in waiting {
            let waited = waiting.join().map_err(|_| anyhow::anyhow!("a client failed"))?;
            longest = longest.max(waited?);
        }
        ran.with_context(|| format!("cannot run {}", heavy.name))?;
        Ok(longest)
    })?;
    Ok(longest.as_secs_f64() * 1_000.0)
}

fn small_key(number: usize) -> String {
    format!("small:{:04}", number % SMALL_KEYS)
}

/// The first key of a client.
fn first_of(client: usize) -> usize {
    client * SMALL_KEYS / CLIENTS
}

/// Reads and writes small values until the end; returns the longest wait for a reply.
fn wait(peer: &Peer, first: usize, over: &AtomicBool, ready: &Barrier) -> anyhow::Result<Duration> {
    let connected = Client::connect(peer.address);
    ready.wait();
    let mut client = connected?;
    let (mut longest, mut number) = (Duration::ZERO, first);
    while !over.load(Ordering::Relaxed) {
        number += 1;
        let key = small_key(number);
        let begun = Instant::now();
        let reply = if number.is_multiple_of(2) {
            client.command(&[b"GET", key.as_bytes()])?
        } else {
            client.command(&[b"SET", key.as_bytes(), b"small"])?
        };
        longest = longest.max(begun.elapsed());
        let expected = [Reply::Bytes(b"small".to_vec()), Reply::Text("OK".into())];
        ensure!(expected.contains(&reply), "{key} was answered {reply:?}");
    }
    Ok(longest)
}

/// Makes a large value at `large`.
fn make(client: &mut Client, value: Large, members: u64) -> anyhow::Result<()> {
    let size = usize::try_from(members).unwrap_or(usize::MAX).saturating_mul(BYTES_PER_MEMBER);
    match value {
        Large::Text => make_text(client, b"large", size),
        Large::Texts => {
            make_text(client, b"large", size)?;
            make_text(client, b"second", size)
        }
        Large::Set | Large::List | Large::Hash | Large::ZSet => {
            make_members(client, value, members)
        }
    }
}

fn make_text(client: &mut Client, key: &[u8], size: usize) -> anyhow::Result<()> {
    let mut state = 1u64;
    let bytes: Vec<u8> = (0..size)
        .map(|_| {
            state = super::memory::mix(state.wrapping_add(1));
            state.to_le_bytes()[0]
        })
        .collect();
    let reply = client.command(&[b"SET", key, &bytes])?;
    ensure!(reply == Reply::Text("OK".into()), "SET was answered {reply:?}");
    Ok(())
}

fn make_members(client: &mut Client, value: Large, members: u64) -> anyhow::Result<()> {
    let mut from = 0;
    while from < members {
        let end = (from + MEMBERS_AT_ONCE).min(members);
        let mut words: Vec<Vec<u8>> = Vec::new();
        for number in from..end {
            if matches!(value, Large::ZSet) {
                words.push(number.to_string().into_bytes());
            }
            words.push(format!("member:{number:09}").into_bytes());
            if matches!(value, Large::Hash) {
                words.push(b"value".to_vec());
            }
        }
        let name: &[u8] = match value {
            Large::List => b"RPUSH",
            Large::Hash => b"HSET",
            Large::ZSet => b"ZADD",
            Large::Set | Large::Text | Large::Texts => b"SADD",
        };
        let mut command: Vec<&[u8]> = vec![name, b"large"];
        command.extend(words.iter().map(Vec::as_slice));
        let reply = client.command(&command)?;
        ensure!(matches!(reply, Reply::Integer(_)), "members were answered {reply:?}");
        from = end;
    }
    Ok(())
}
