//! Reads the cache back: every value, every set, and that there are no other keys.
//!
//! Invariant: what is reported as verified was read over a socket and compared with what was
//! acknowledged; problems are collected, not returned as errors.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use anyhow::{Context as _, bail};
use forebay_intake::digest::Digest;
use parking_lot::Mutex;

use super::items::kept_row;
use super::load::connect;
use super::oracle::{Effect, Kind, Oracle, Value, Write};
use crate::tour::first::{First, on_threads};
use crate::tour::oracle::Kept;
use forebay_console::cache_client::Reply;
use forebay_console::interrupt::Interrupt;

/// Number of bytes of values requested before they are read.
const AHEAD_SIZE: u64 = 4 << 20;

/// Reads from one server.
pub(super) struct Verifier<'a> {
    pub(super) address: SocketAddr,
    pub(super) connections: usize,
    pub(super) interrupt: &'a Interrupt,
}

/// A key and its expected contents.
pub(super) type Entry<'o> = (&'o String, &'o Value);

impl Verifier<'_> {
    /// Reads these keys, with `ahead` requests in flight on a connection, and compares them.
    ///
    /// * `done`: called with the bytes of each batch read.
    /// * Returns a line for each that differs.
    pub(super) fn values(
        &self,
        entries: &[Entry<'_>],
        ahead: usize,
        done: &(dyn Fn(u64) + Sync),
    ) -> anyhow::Result<Vec<String>> {
        let (queue, problems) = (Mutex::new(entries), Mutex::new(Vec::new()));
        let first = First::default();
        on_threads(self.connections, &first, &|_| {
            let mut client = connect(self.address)?;
            while !first.is_noted() {
                self.interrupt.check()?;
                let batch = take(&queue, ahead);
                if batch.is_empty() {
                    break;
                }
                for (key, value) in batch {
                    client.command(&[command_of(value.kind), key]);
                }
                client.send()?;
                for (key, value) in batch {
                    let reply = client.read().with_context(|| format!("cannot read {key}"))?;
                    problems.lock().extend(compare(key, value, &reply));
                }
                done(batch.iter().map(|(_, value)| value.kept.size).sum());
            }
            Ok(())
        });
        first.result()?;
        let mut problems = problems.into_inner();
        problems.sort();
        Ok(problems)
    }

    /// Reads every set and compares members and scores.
    pub(super) fn members(&self, oracle: &Oracle) -> anyhow::Result<Vec<String>> {
        let mut client = connect(self.address)?;
        let mut problems = Vec::new();
        for (key, members) in &oracle.members {
            self.interrupt.check()?;
            let sorted = members.values().any(Option::is_some);
            let reply = match sorted {
                true => client.ask(&["ZRANGE", key, "0", "-1", "WITHSCORES"])?,
                false => client.ask(&["SMEMBERS", key])?,
            };
            let found = members_of(&reply, sorted).with_context(|| format!("{key}: {reply:?}"))?;
            for (member, score) in members {
                match found.get(member) {
                    None => problems.push(format!("{key}: member {member} is lost")),
                    Some(other) if other != score => {
                        problems.push(format!("{key}: {member} has {other:?}, not {score:?}"));
                    }
                    Some(_) => {}
                }
            }
            let foreign = found.keys().filter(|member| !members.contains_key(*member));
            problems.extend(foreign.map(|member| format!("{key}: {member} was never sent")));
        }
        Ok(problems)
    }

    /// Walks all keys with SCAN; returns how many there are, and those that are lost or foreign.
    pub(super) fn keys(&self, oracle: &Oracle) -> anyhow::Result<(u64, Vec<String>)> {
        let mut client = connect(self.address)?;
        let mut found = BTreeSet::new();
        let mut cursor = b"0".to_vec();
        loop {
            self.interrupt.check()?;
            let reply = client.ask(&[&b"SCAN"[..], &cursor, b"COUNT", b"1000"])?;
            let Reply::List(mut parts) = reply else { bail!("SCAN was answered {reply:?}") };
            let (Some(Reply::List(keys)), Some(Reply::Bytes(next))) = (parts.pop(), parts.pop())
            else {
                bail!("SCAN was answered in another form");
            };
            for key in keys {
                let Reply::Bytes(key) = key else { bail!("SCAN returned {key:?} as a key") };
                found.insert(String::from_utf8_lossy(&key).into_owned());
            }
            if next == b"0" {
                break;
            }
            cursor = next;
        }
        let known = || oracle.values.keys().chain(oracle.members.keys());
        let lost = known().filter(|key| !found.contains(*key));
        let mut problems: Vec<String> =
            lost.map(|key| format!("SCAN did not return key {key}")).collect();
        let known: BTreeSet<&String> = known().collect();
        let foreign = found.iter().filter(|key| !known.contains(key));
        problems.extend(foreign.map(|key| format!("key {key} was never acknowledged")));
        Ok((found.len() as u64, problems))
    }

    /// Checks whether the keys of unanswered first writes are complete or absent.
    pub(super) fn cut(&self, writes: &[Write]) -> anyhow::Result<Cut> {
        let mut client = connect(self.address)?;
        let mut cut = Cut::default();
        for write in writes {
            let Effect::Value { key, kind, kept } = &write.effect else { continue };
            let reply = client.ask(&[command_of(*kind), key])?;
            match contents(*kind, &reply) {
                Some(None) => cut.absent += 1,
                Some(Some(found)) if found == *kept => cut.whole += 1,
                _ => cut.half.push(format!("incomplete after the kill: {key}")),
            }
        }
        Ok(cut)
    }

    /// Returns a value of INFO.
    pub(super) fn figure(&self, name: &str) -> anyhow::Result<u64> {
        let reply = connect(self.address)?.ask(&["INFO"])?;
        let Reply::Bytes(text) = reply else { bail!("INFO was answered {reply:?}") };
        let text = String::from_utf8_lossy(&text);
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|value| value.trim().parse().ok())
            .with_context(|| format!("INFO has no {name}"))
    }
}

/// The state of the keys of unanswered writes.
#[derive(Debug, Default)]
pub(super) struct Cut {
    pub(super) whole: u64,
    pub(super) absent: u64,
    pub(super) half: Vec<String>,
}

fn take<'e, 'o>(queue: &Mutex<&'e [Entry<'o>]>, ahead: usize) -> &'e [Entry<'o>] {
    let mut queue = queue.lock();
    let mut size = 0;
    let fitting = queue.iter().take(ahead).take_while(|(_, value)| {
        let fits = size < AHEAD_SIZE;
        size += value.kept.size;
        fits
    });
    let (batch, rest) = queue.split_at(fitting.count());
    *queue = rest;
    batch
}

fn command_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Text => "GET",
        Kind::Row => "HGETALL",
    }
}

/// Parses a reply: `Some(None)` if the key does not exist, `None` for another type of reply.
fn contents(kind: Kind, reply: &Reply) -> Option<Option<Kept>> {
    match (kind, reply) {
        (Kind::Text, Reply::Null) => Some(None),
        (Kind::Row, Reply::List(items)) if items.is_empty() => Some(None),
        (Kind::Text, Reply::Bytes(bytes)) => {
            Some(Some(Kept { digest: Digest::of(bytes), size: bytes.len() as u64 }))
        }
        (Kind::Row, Reply::List(items)) => {
            let mut fields = BTreeMap::new();
            for pair in items.chunks(2) {
                let [Reply::Bytes(name), Reply::Bytes(value)] = pair else { return None };
                fields.insert(name.as_slice(), value.as_slice());
            }
            Some(Some(kept_row(fields.into_iter())))
        }
        _ => None,
    }
}

fn compare(key: &str, value: &Value, reply: &Reply) -> Option<String> {
    match contents(value.kind, reply) {
        Some(Some(found)) if value.is(found) => None,
        Some(Some(found)) => {
            let (sent, read) = (value.kept, found);
            Some(format!(
                "{key}: sent {} bytes {}, read {} bytes {}",
                sent.size, sent.digest, read.size, read.digest
            ))
        }
        Some(None) => Some(format!("{key}: lost")),
        None => {
            Some(format!("{key}: answered {}", reply.shown().chars().take(100).collect::<String>()))
        }
    }
}

fn members_of(reply: &Reply, sorted: bool) -> Option<BTreeMap<String, Option<u64>>> {
    let Reply::List(items) = reply else { return None };
    let text = |item: &Reply| match item {
        Reply::Bytes(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    };
    let each = items.chunks(if sorted { 2 } else { 1 });
    each.map(|item| match item {
        [member] => Some((text(member)?, None)),
        [member, score] => Some((text(member)?, Some(text(score)?.parse().ok()?))),
        _ => None,
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_lost_altered_or_of_another_type_is_named() {
        let mut oracle = Oracle::default();
        let kept = Kept { digest: Digest::of(b"hello"), size: 5 };
        let effect = Effect::Value { key: "k".into(), kind: Kind::Text, kept };
        oracle.acknowledged(Write { words: vec![], effect });
        let problem = |reply| compare("k", &oracle.values["k"], &reply);
        assert_eq!(problem(Reply::Bytes(b"hello".to_vec())), None);
        let wrong = [
            Reply::Null,
            Reply::Bytes(b"hellO".to_vec()),
            Reply::Bytes(b"hell".to_vec()),
            Reply::Error("WRONGTYPE".into()),
        ];
        for reply in wrong {
            assert!(problem(reply).is_some_and(|text| text.contains('k')));
        }
    }

    #[test]
    fn a_hash_is_the_same_in_any_order_of_its_fields() {
        let bytes = |text: &str| Reply::Bytes(text.into());
        let row = |texts: [&str; 4]| {
            contents(Kind::Row, &Reply::List(texts.into_iter().map(bytes).collect()))
        };
        assert_eq!(row(["a", "1", "b", "2"]), row(["b", "2", "a", "1"]));
        assert_ne!(row(["a", "1", "b", "2"]), row(["a", "2", "b", "1"]));
        assert_eq!(contents(Kind::Row, &Reply::List(vec![])), Some(None));
    }
}
