//! Entries in which the store records what it does to its own events
//! (`docs/formats/event-system.md`): events of a reserved stream, whose raw bytes are JSON.
//!
//! Invariant: `SystemEntry::decode` accepts only what `SystemEntry::encode` can have written,
//! and never an entry whose indexes, count and limits contradict each other.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::event::Event;
use crate::merkle::Hash;

/// The stream of the store's own entries.
pub const SYSTEM_STREAM: &str = "_forebay";
/// Maximum number of ranges in an entry.
pub(crate) const RANGES_MAX: usize = 4_096;

/// Whether only the store itself appends to a stream.
#[must_use]
pub fn is_reserved(stream: &str) -> bool {
    stream.starts_with(SYSTEM_STREAM)
}

/// Whether the tags of a leaf are those of an entry of the store itself.
pub(crate) fn is_own(tags: &[u8]) -> bool {
    // Severity, then the stream with its length.
    let Some((_, rest)) = tags.split_first() else { return false };
    let Some((&size, rest)) = rest.split_first() else { return false };
    usize::from(size) == SYSTEM_STREAM.len() && rest.starts_with(SYSTEM_STREAM.as_bytes())
}

/// A retention rule, as it is recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RuleEntry {
    /// `None`: all streams without a separate rule.
    pub(crate) stream: Option<String>,
    /// How long events are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) keep_ns: Option<i64>,
    /// How large the segments may be, all streams together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) keep_bytes: Option<u64>,
}

impl RuleEntry {
    fn is_sound(&self) -> bool {
        match self.keep_bytes {
            Some(_) => self.keep_ns.is_none() && self.stream.is_none(),
            None => self.keep_ns.is_some(),
        }
    }
}

/// The retention rules changed to these.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PolicyEntry {
    pub(crate) rules: Vec<RuleEntry>,
}

/// Events of one stream are about to be removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PruneEntry {
    pub(crate) rule: RuleEntry,
    pub(crate) before: String,
    pub(crate) stream: String,
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) count: u64,
    /// First and last index of each range.
    pub(crate) indexes: Vec<(u64, u64)>,
    pub(crate) root: Hash,
}

/// From here on, what is removed is recorded; what was absent before.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecordingEntry {
    /// First and last index of each range, and how many of its events were absent.
    pub(crate) absent: Vec<(u64, u64, u64)>,
}

/// A file of the store was not used when it was opened, because it was not authentic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UnusedEntry {
    /// Its name.
    pub(crate) file: String,
    pub(crate) reason: String,
}

/// An entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SystemEntry {
    Policy(PolicyEntry),
    Prune(PruneEntry),
    Recording(RecordingEntry),
    Unused(UnusedEntry),
}

impl SystemEntry {
    /// The type of its event.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Policy(_) => "policy",
            Self::Prune(_) => "prune",
            Self::Recording(_) => "recording",
            Self::Unused(_) => "unused",
        }
    }

    /// Its raw bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let encoded = match self {
            Self::Policy(entry) => serde_json::to_vec(entry),
            Self::Prune(entry) => serde_json::to_vec(entry),
            Self::Recording(entry) => serde_json::to_vec(entry),
            Self::Unused(entry) => serde_json::to_vec(entry),
        };
        // Numbers and texts always have a JSON form; nothing would be recorded by empty bytes.
        encoded.unwrap_or_default()
    }

    /// Reads the entry of an event; `None` if it is an ordinary event, or not a sound entry.
    pub(crate) fn decode(event: &Event<'_>) -> Option<Self> {
        if event.tags.stream != SYSTEM_STREAM {
            return None;
        }
        match event.tags.kind {
            "policy" => {
                let entry: PolicyEntry = serde_json::from_slice(event.raw).ok()?;
                entry.rules.iter().all(RuleEntry::is_sound).then_some(Self::Policy(entry))
            }
            "prune" => {
                let entry: PruneEntry = serde_json::from_slice(event.raw).ok()?;
                entry.is_sound().then_some(Self::Prune(entry))
            }
            "recording" => {
                let entry: RecordingEntry = serde_json::from_slice(event.raw).ok()?;
                entry.is_sound().then_some(Self::Recording(entry))
            }
            "unused" => serde_json::from_slice(event.raw).ok().map(Self::Unused),
            _ => None,
        }
    }
}

impl PruneEntry {
    fn is_sound(&self) -> bool {
        let ascending = self.indexes.iter().all(|(first, last)| first <= last && *last < u64::MAX)
            && self.indexes.is_sorted_by(|before, next| before.1 < next.0);
        let ends = self.indexes.first().map(|range| range.0) == Some(self.first)
            && self.indexes.last().map(|range| range.1) == Some(self.last);
        if !ascending || !ends || self.indexes.len() > RANGES_MAX || !self.rule.is_sound() {
            return false;
        }
        self.ranges().map(|range| range.end - range.start).sum::<u64>() == self.count
    }

    /// The indexes it names, in order.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = Range<u64>> {
        self.indexes.iter().map(|(first, last)| *first..last.saturating_add(1))
    }
}

impl RecordingEntry {
    /// The entry for ranges and the number of absent events in each, ascending.
    pub(crate) fn new(ranges: impl Iterator<Item = (Range<u64>, u64)>) -> Self {
        let ranges: Vec<_> =
            ranges.filter(|(range, count)| *count > 0 && !range.is_empty()).collect();
        let joined = ranges.len().div_ceil(RANGES_MAX).max(1);
        let absent = ranges
            .chunks(joined)
            .filter_map(|chunk| {
                let (first, last) = (chunk.first()?, chunk.last()?);
                let count = chunk.iter().map(|(_, count)| count).sum();
                Some((first.0.start, last.0.end - 1, count))
            })
            .collect();
        Self { absent }
    }

    fn is_sound(&self) -> bool {
        self.absent.len() <= RANGES_MAX
            && self.absent.iter().all(|(first, last, count)| {
                first <= last && *last < u64::MAX && *count <= last - first + 1
            })
            && self.absent.is_sorted_by(|before, next| before.1 < next.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Tags;

    fn event<'a>(stream: &'a str, kind: &'a str, raw: &'a [u8]) -> Event<'a> {
        let tags = Tags {
            severity: crate::Severity::Informational,
            stream,
            kind,
            host: "",
            ip: None,
            collector: "",
            format: "",
            time_source: crate::TimeSource::Unknown,
            digested: false,
        };
        let (id, attributes) = (crate::EventId(1), crate::event::Attributes::default());
        Event { id, timestamp_ns: 0, tags, raw, attributes }
    }

    fn prune() -> PruneEntry {
        PruneEntry {
            rule: RuleEntry { stream: None, keep_ns: Some(5), keep_bytes: None },
            before: "2026-11-23T10:00:00Z".to_owned(),
            stream: "audit".to_owned(),
            first: 3,
            last: 9,
            count: 5,
            indexes: vec![(3, 6), (9, 9)],
            root: Hash([7; 32]),
        }
    }

    #[test]
    fn an_entry_survives_and_only_in_its_stream_and_type() {
        let entries = [
            SystemEntry::Policy(PolicyEntry { rules: vec![prune().rule] }),
            SystemEntry::Prune(prune()),
            SystemEntry::Recording(RecordingEntry { absent: vec![(0, 9, 2), (10, 19, 10)] }),
            SystemEntry::Unused(UnusedEntry { file: "a".to_owned(), reason: "b".to_owned() }),
        ];
        for entry in entries {
            let raw = entry.encode();
            assert_eq!(
                SystemEntry::decode(&event(SYSTEM_STREAM, entry.kind(), &raw)),
                Some(entry.clone())
            );
            assert_eq!(SystemEntry::decode(&event("main", entry.kind(), &raw)), None);
            assert_eq!(SystemEntry::decode(&event(SYSTEM_STREAM, "login", &raw)), None);
            assert_eq!(SystemEntry::decode(&event(SYSTEM_STREAM, entry.kind(), &raw[1..])), None);
        }
    }

    #[test]
    fn a_rule_by_age_is_written_as_version_1_wrote_it_and_one_by_size_has_another_member() {
        let rule = prune().rule;
        assert_eq!(serde_json::to_string(&rule).unwrap(), r#"{"stream":null,"keep_ns":5}"#);
        let by_size = RuleEntry { stream: None, keep_ns: None, keep_bytes: Some(7) };
        let text = serde_json::to_string(&by_size).unwrap();
        assert_eq!(text, r#"{"stream":null,"keep_bytes":7}"#);
        assert_eq!(serde_json::from_str::<RuleEntry>(&text).unwrap(), by_size);
    }

    #[test]
    fn an_entry_that_contradicts_itself_is_none() {
        let wrong = |change: fn(&mut PruneEntry)| {
            let mut entry = prune();
            change(&mut entry);
            let raw = SystemEntry::Prune(entry).encode();
            assert_eq!(SystemEntry::decode(&event(SYSTEM_STREAM, "prune", &raw)), None);
        };
        wrong(|entry| entry.rule.keep_ns = None);
        wrong(|entry| entry.rule.keep_bytes = Some(7));
        wrong(|entry| entry.count = 6);
        wrong(|entry| entry.first = 2);
        wrong(|entry| entry.last = u64::MAX);
        wrong(|entry| entry.indexes = vec![(9, 9), (3, 6)]);
        wrong(|entry| entry.indexes = vec![(3, 9), (6, 9)]);
        wrong(|entry| entry.indexes.clear());
        for absent in [vec![(5, 4, 0)], vec![(0, 4, 6)], vec![(0, 4, 1), (4, 8, 1)]] {
            let raw = SystemEntry::Recording(RecordingEntry { absent }).encode();
            assert_eq!(SystemEntry::decode(&event(SYSTEM_STREAM, "recording", &raw)), None);
        }
    }

    #[test]
    fn many_ranges_are_joined_to_as_many_as_an_entry_has() {
        let ranges = (0..10_000u64).map(|at| (at * 10..at * 10 + 5, at % 2));
        let entry = RecordingEntry::new(ranges);
        assert!(entry.is_sound() && entry.absent.len() > RANGES_MAX / 2);
        assert_eq!(entry.absent.iter().map(|(.., count)| count).sum::<u64>(), 5_000);
    }
}
