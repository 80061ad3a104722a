//! `forebay cache keys`: the largest keys of a running cache.
//!
//! Memory is limited: one batch of keys is held at a time, and the largest keys up to the number
//! requested. Keys that are added or removed during the scan may be included or not.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use super::cache_tls::TlsArgs;
use crate::cache_client::{Client, Reply, quoted};
use crate::exit::Exit;
use crate::out;

const AFTER_HELP: &str = "\
Examples:
  forebay cache keys                              the ten keys that use most memory
  forebay cache keys --top 50 --by length         the longest lists, hashes, sets and strings
  forebay cache keys --pattern 'session:*' --database 3 --json

Scans all keys, a few hundred at a time, with SCAN, TYPE and MEMORY USAGE. This takes a while on a
large cache but blocks no client. The memory of a key includes its entry, its index and its value as
stored, compressed or not. The length is in bytes for a string and in elements for other types.";

/// Number of keys in a batch.
const BATCH: &str = "500";
/// Maximum number of bytes of a key printed on a line.
const SHOWN_MAX: usize = 200;

#[derive(clap::Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    /// Address of the RESP listener.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:6380")]
    resp: SocketAddr,
    /// File whose first line is the password.
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    #[command(flatten)]
    tls: TlsArgs,
    /// Number of keys to print.
    #[arg(long, default_value_t = 10, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    top: u32,
    /// Measure by which keys are compared.
    #[arg(long, value_enum, default_value_t = By::Memory)]
    by: By,
    /// Only keys that match PATTERN, as in KEYS.
    #[arg(long, value_name = "PATTERN")]
    pattern: Option<String>,
    /// Number of the database to scan.
    #[arg(long, default_value_t = 0, value_name = "NUMBER")]
    database: u32,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum By {
    /// Memory, in bytes.
    Memory,
    /// Length: bytes of a string, elements of any other type.
    Length,
}

/// A key that the scan returned.
#[derive(Debug, Clone, PartialEq, Eq)]
struct KeyInfo {
    key: Vec<u8>,
    kind: String,
    memory: u64,
    /// Known at first only if keys are ordered by it.
    length: Option<u64>,
}

/// Number of keys and memory of one type.
#[derive(Debug, Default)]
struct Sum {
    keys: u64,
    memory: u64,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let mut walk = Walk::begin(args)?;
    let size = match walk.ask(&["DBSIZE"])? {
        Reply::Integer(size) => size.parse().unwrap_or(0),
        other => bail!("unexpected reply to DBSIZE: {}", other.shown()),
    };
    let bar = ProgressBar::new(size);
    let style = ProgressStyle::with_template("  {msg} {wide_bar} {pos}/{len} keys {per_sec}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message("looking");
    let mut cursor = b"0".to_vec();
    loop {
        let keys;
        (cursor, keys) = walk.scan(&cursor)?;
        bar.inc(keys.len() as u64);
        walk.look_at(keys)?;
        if cursor == b"0" {
            break;
        }
    }
    bar.finish_and_clear();
    walk.print()?;
    Ok(Exit::Ok)
}

struct Walk<'a> {
    args: &'a Args,
    client: Client,
    top: Top,
    sums: BTreeMap<String, Sum>,
}

impl<'a> Walk<'a> {
    fn begin(args: &'a Args) -> anyhow::Result<Self> {
        let client =
            Client::open(args.resp, args.tls.trust().as_ref(), args.password_file.as_deref())?;
        let top = Top::new(usize::try_from(args.top).unwrap_or(usize::MAX));
        let mut walk = Self { args, client, top, sums: BTreeMap::new() };
        walk.ask(&["SELECT", &args.database.to_string()])?;
        Ok(walk)
    }

    /// Runs a command that must not fail.
    fn ask(&mut self, words: &[&str]) -> anyhow::Result<Reply> {
        match self.client.ask(words)? {
            Reply::Error(text) => bail!("{}: {text}", words.join(" ")),
            reply => Ok(reply),
        }
    }

    fn scan(&mut self, cursor: &[u8]) -> anyhow::Result<(Vec<u8>, Vec<Vec<u8>>)> {
        let mut words = vec![&b"SCAN"[..], cursor, b"COUNT", BATCH.as_bytes()];
        if let Some(pattern) = &self.args.pattern {
            words.extend([&b"MATCH"[..], pattern.as_bytes()]);
        }
        let reply = self.client.ask(&words)?;
        let Reply::List(parts) = &reply else {
            bail!("unexpected reply to SCAN: {}", reply.shown())
        };
        let [Reply::Bytes(next), Reply::List(keys)] = parts.as_slice() else {
            bail!("unexpected reply to SCAN: {}", reply.shown());
        };
        let keys = keys.iter().map(|key| match key {
            Reply::Bytes(key) => Ok(key.clone()),
            other => bail!("SCAN returned {} as a key", other.shown()),
        });
        Ok((next.clone(), keys.collect::<anyhow::Result<_>>()?))
    }

    fn look_at(&mut self, keys: Vec<Vec<u8>>) -> anyhow::Result<()> {
        for key in &keys {
            self.client.command(&[b"TYPE", key.as_slice()]);
            self.client.command(&[&b"MEMORY"[..], b"USAGE", key, b"SAMPLES", b"0"]);
        }
        self.client.send()?;
        let mut seen = Vec::with_capacity(keys.len());
        for key in keys {
            let (kind, memory) = (self.client.read()?, self.client.read()?);
            // A key that was removed after it was listed has neither.
            let (Reply::Plain(kind), Reply::Integer(memory)) = (kind, memory) else { continue };
            let memory = memory.parse().context("the reply to MEMORY USAGE is not a size")?;
            seen.push(KeyInfo { key, kind, memory, length: None });
        }
        if self.args.by == By::Length {
            self.measure(&mut seen)?;
        }
        for seen in seen {
            let size = match self.args.by {
                By::Memory => seen.memory,
                By::Length => seen.length.unwrap_or(0),
            };
            if self.top.offer(size, &seen) {
                let sum = self.sums.entry(seen.kind).or_default();
                sum.keys += 1;
                sum.memory += seen.memory;
            }
        }
        Ok(())
    }

    /// Requests the lengths of these keys.
    fn measure(&mut self, keys: &mut [KeyInfo]) -> anyhow::Result<()> {
        for seen in keys.iter() {
            let command = match seen.kind.as_str() {
                "list" => "LLEN",
                "hash" => "HLEN",
                "set" => "SCARD",
                "zset" => "ZCARD",
                _ => "STRLEN",
            };
            self.client.command(&[command.as_bytes(), &seen.key]);
        }
        self.client.send()?;
        for seen in keys {
            // If its type has changed, the reply is an error and its length is unknown.
            if let Reply::Integer(length) = self.client.read()? {
                seen.length = length.parse().ok();
            }
        }
        Ok(())
    }

    fn print(mut self) -> anyhow::Result<()> {
        let mut largest = std::mem::take(&mut self.top).into_sorted();
        self.measure(&mut largest)?;
        let keys: u64 = self.sums.values().map(|sum| sum.keys).sum();
        let memory: u64 = self.sums.values().map(|sum| sum.memory).sum();
        if self.args.json {
            let rows: Vec<_> = largest.iter().map(row).collect();
            let types: BTreeMap<_, _> = self
                .sums
                .iter()
                .map(|(kind, sum)| (kind, json!({ "keys": sum.keys, "memory_bytes": sum.memory })))
                .collect();
            return out::json(&json!({
                "database": self.args.database,
                "keys": keys,
                "memory_bytes": memory,
                "types": types,
                "largest": rows,
            }));
        }
        out::line(format_args!("{:>12} {:>12}  {:<6}  key", "memory", "length", "type"))?;
        for KeyInfo { key, kind, memory, length } in &largest {
            let length = length.map_or_else(|| "-".to_owned(), |length| length.to_string());
            let (shown, more) = match key.get(..SHOWN_MAX) {
                Some(head) if key.len() > SHOWN_MAX => (head, "..."),
                _ => (key.as_slice(), ""),
            };
            let shown = quoted(shown);
            let memory = out::size(*memory);
            out::line(format_args!("{memory:>12} {length:>12}  {kind:<6}  {shown}{more}"))?;
        }
        let sums = self.sums.iter().map(|(kind, sum)| {
            format!("{} of type {kind} with {}", sum.keys, out::size(sum.memory))
        });
        let sums: Vec<String> = sums.collect();
        out::line(format_args!(
            "{keys} keys in database {} use {}{}{}",
            self.args.database,
            out::size(memory),
            if sums.is_empty() { "" } else { ": " },
            sums.join(", ")
        ))
    }
}

/// Describes one of the largest keys in JSON; one that is not text is given in hexadecimal too.
fn row(seen: &KeyInfo) -> serde_json::Value {
    let mut row = json!({
        "key": String::from_utf8_lossy(&seen.key),
        "type": seen.kind,
        "memory_bytes": seen.memory,
        "length": seen.length,
    });
    if std::str::from_utf8(&seen.key).is_err() {
        row["key_hex"] = hex::encode(&seen.key).into();
    }
    row
}

/// The largest keys so far. A key that SCAN returns twice is counted once.
#[derive(Debug, Default)]
struct Top {
    count: usize,
    order: BTreeSet<(u64, Vec<u8>)>,
    seen: HashMap<Vec<u8>, (u64, KeyInfo)>,
}

impl Top {
    fn new(count: usize) -> Self {
        Self { count, ..Self::default() }
    }

    /// Adds a key if it is large enough; returns `false` if it is already present.
    fn offer(&mut self, size: u64, seen: &KeyInfo) -> bool {
        let known = self.seen.remove(&seen.key);
        if let Some((size, before)) = &known {
            self.order.remove(&(*size, before.key.clone()));
        }
        let least = self.order.first().map(|(size, _)| *size);
        let full = self.order.len() >= self.count;
        if full && least.is_some_and(|least| least >= size) {
            return known.is_none();
        }
        if full && let Some((_, key)) = self.order.pop_first() {
            self.seen.remove(&key);
        }
        self.order.insert((size, seen.key.clone()));
        self.seen.insert(seen.key.clone(), (size, seen.clone()));
        known.is_none()
    }

    /// Returns the keys, the largest first.
    fn into_sorted(mut self) -> Vec<KeyInfo> {
        let order = std::mem::take(&mut self.order);
        order.iter().rev().filter_map(|(_, key)| Some(self.seen.remove(key)?.1)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn top(count: usize, offered: &[(&str, u64)]) -> Vec<(String, u64)> {
        let mut top = Top::new(count);
        for (key, memory) in offered {
            let key = key.as_bytes().to_vec();
            let seen = KeyInfo { key, kind: "string".into(), memory: *memory, length: None };
            top.offer(*memory, &seen);
        }
        let sorted = top.into_sorted().into_iter();
        sorted.map(|seen| (String::from_utf8(seen.key).unwrap(), seen.memory)).collect()
    }

    #[test]
    fn the_largest_are_kept_in_order_and_a_repeated_key_counts_once() {
        let offered = [("a", 5), ("b", 9), ("c", 1), ("d", 7), ("b", 8), ("e", 6)];
        let expected = [("b".to_owned(), 8), ("d".to_owned(), 7), ("e".to_owned(), 6)];
        assert_eq!(top(3, &offered), expected);
        assert_eq!(top(1, &[("a", 1), ("a", 1)]), [("a".to_owned(), 1)]);
        assert_eq!(top(5, &[]), []);
    }
}
