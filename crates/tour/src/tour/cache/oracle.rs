//! What the cache acknowledged: the reference for its keys.
//!
//! Invariant: a write is acknowledged if its reply was read completely, and unanswered if
//! the server was killed before that; after an unanswered one either state of its key is correct.

use std::collections::BTreeMap;

use crate::tour::oracle::Kept;

/// The contents of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A string.
    Text,
    /// A hash: its digest is over fields and values in the order of the fields.
    Row,
}

/// A write, and what an acknowledgement of it means.
#[derive(Debug)]
pub(super) struct Write {
    pub(super) words: Vec<Vec<u8>>,
    pub(super) effect: Effect,
}

/// The effect of a write, however often it is repeated.
#[derive(Debug)]
pub(super) enum Effect {
    /// A key holds these contents.
    Value { key: String, kind: Kind, kept: Kept },
    /// A set has this member, a sorted set with this score.
    Member { key: String, member: String, score: Option<u64> },
}

impl Write {
    pub(super) fn size(&self) -> usize {
        self.words.iter().map(Vec::len).sum()
    }
}

/// The expected contents of a key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Value {
    pub(super) kind: Kind,
    pub(super) kept: Kept,
    /// Contents it may have instead.
    unanswered: Option<Kept>,
}

impl Value {
    pub(super) fn is(&self, found: Kept) -> bool {
        found == self.kept || self.unanswered == Some(found)
    }
}

/// Everything acknowledged.
#[derive(Debug, Default)]
pub(super) struct Oracle {
    pub(super) values: BTreeMap<String, Value>,
    /// Sets by key; members with their scores, if they have one.
    pub(super) members: BTreeMap<String, BTreeMap<String, Option<u64>>>,
    /// Number of writes acknowledged.
    pub(super) writes: u64,
    /// Bytes of their words.
    pub(super) written: u64,
}

impl Oracle {
    /// Records an acknowledged write.
    pub(super) fn acknowledged(&mut self, write: Write) {
        self.writes += 1;
        self.written += write.size() as u64;
        match write.effect {
            Effect::Value { key, kind, kept } => {
                self.values.insert(key, Value { kind, kept, unanswered: None });
            }
            Effect::Member { key, member, score } => {
                self.members.entry(key).or_default().insert(member, score);
            }
        }
    }

    /// Records an unanswered write to a known key.
    pub(super) fn unanswered(&mut self, write: Write) {
        if let Effect::Value { key, kept, .. } = write.effect
            && let Some(value) = self.values.get_mut(&key)
        {
            value.unanswered = Some(kept);
        }
    }

    /// Returns the keys that must exist.
    pub(super) fn keys(&self) -> u64 {
        (self.values.len() + self.members.len()) as u64
    }

    /// Returns the number of members of all sets.
    pub(super) fn member_count(&self) -> u64 {
        self.members.values().map(|members| members.len() as u64).sum()
    }

    /// Returns the bytes of keys, values, members and scores, without any overhead.
    pub(super) fn plain_bytes(&self) -> u64 {
        let values = self.values.iter().map(|(key, value)| key.len() as u64 + value.kept.size);
        let members = self.members.iter().map(|(key, members)| {
            let each =
                members.iter().map(|(member, score)| member.len() as u64 + score.map_or(0, |_| 8));
            key.len() as u64 + each.sum::<u64>()
        });
        values.sum::<u64>() + members.sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_intake::digest::Digest;

    fn kept(text: &str) -> Kept {
        Kept { digest: Digest::of(text.as_bytes()), size: text.len() as u64 }
    }

    fn write(text: &str) -> Write {
        let effect = Effect::Value { key: "k".into(), kind: Kind::Text, kept: kept(text) };
        Write { words: vec![b"SET".to_vec(), b"k".to_vec(), text.into()], effect }
    }

    #[test]
    fn an_unanswered_write_allows_two_states_and_an_acknowledged_one_a_single_one() {
        let mut oracle = Oracle::default();
        oracle.acknowledged(write("old"));
        assert!(oracle.values["k"].is(kept("old")) && !oracle.values["k"].is(kept("new")));
        oracle.unanswered(write("new"));
        assert!(oracle.values["k"].is(kept("old")) && oracle.values["k"].is(kept("new")));
        assert!(!oracle.values["k"].is(kept("other")));
        oracle.acknowledged(write("new"));
        assert!(!oracle.values["k"].is(kept("old")));
        assert_eq!((oracle.keys(), oracle.plain_bytes(), oracle.writes), (1, 4, 2));
    }
}
