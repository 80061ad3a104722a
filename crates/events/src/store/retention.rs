//! Which events the retention rules keep: by age since their arrival, and by the size of all
//! segments.
//!
//! Invariant: the store's own entries are kept by every rule.

use std::sync::Arc;

use super::arrivals::Arrivals;
use super::view::Stored;
use crate::event::Tags;
use crate::format::system::{RuleEntry, is_reserved};
use crate::segment::{Field, Term};

/// Part of the maximum size by which more is removed at a time, so that not every flush causes a
/// rewrite.
const SPARE: u64 = 16;

/// A retention rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retention {
    /// Its stream; `None`: all streams without a separate rule.
    pub stream: Option<String>,
    /// Retention time in nanoseconds, from the arrival of an event. What arrived before arrivals
    /// were recorded is kept by the time of the event.
    pub keep_ns: i64,
}

/// How the expired events of a segment were chosen when they were recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recorded {
    ByAge { now_ns: i64 },
    BySize { end: u64 },
}

/// What is expired now.
#[derive(Debug)]
pub(super) struct Expiry<'a> {
    kind: Kind<'a>,
    now_ns: i64,
    arrivals: Arc<Arrivals>,
}

#[derive(Debug)]
enum Kind<'a> {
    ByAge(&'a [Retention]),
    /// Everything below a position.
    BySize {
        limit: u64,
        end: u64,
    },
}

impl<'a> Expiry<'a> {
    /// What the rules no longer keep at a time.
    pub(super) fn by_age(rules: &'a [Retention], now_ns: i64, arrivals: Arc<Arrivals>) -> Self {
        Self { kind: Kind::ByAge(rules), now_ns, arrivals }
    }

    /// Everything below a position, because all events exceed `limit` bytes.
    pub(super) fn by_size(limit: u64, end: u64, now_ns: i64, arrivals: Arc<Arrivals>) -> Self {
        Self { kind: Kind::BySize { limit, end }, now_ns, arrivals }
    }

    /// What has to be repeated if removing fails.
    pub(super) fn recorded(&self) -> Recorded {
        match self.kind {
            Kind::ByAge(_) => Recorded::ByAge { now_ns: self.now_ns },
            Kind::BySize { end, .. } => Recorded::BySize { end },
        }
    }

    /// The rule by which events of a stream are removed, as it is recorded, and the time before
    /// which they arrived; none for the store's own entries.
    pub(super) fn rule(&self, stream: &str) -> Option<(RuleEntry, i64)> {
        match self.kind {
            Kind::ByAge(rules) => {
                let rule = rule_of(rules, stream)?;
                let (stream, keep_ns) = (rule.stream.clone(), Some(rule.keep_ns));
                let before = self.now_ns.saturating_sub(rule.keep_ns);
                Some((RuleEntry { stream, keep_ns, keep_bytes: None }, before))
            }
            Kind::BySize { limit, end } if !is_reserved(stream) => {
                let last = self.arrivals.received_ns(end.saturating_sub(1));
                let before = last.map_or(self.now_ns, |time| time.min(self.now_ns));
                let rule = RuleEntry { stream: None, keep_ns: None, keep_bytes: Some(limit) };
                Some((rule, before))
            }
            Kind::BySize { .. } => None,
        }
    }

    /// Whether an event stays.
    ///
    /// * `timestamp_ns`: its time, which counts only where its arrival was not recorded.
    pub(super) fn keeps(&self, tags: &Tags<'_>, seq: u64, timestamp_ns: i64) -> bool {
        match self.kind {
            Kind::ByAge(rules) => rule_of(rules, tags.stream).is_none_or(|rule| {
                let received = self.arrivals.received_ns(seq).unwrap_or(timestamp_ns);
                received >= self.now_ns.saturating_sub(rule.keep_ns)
            }),
            Kind::BySize { end, .. } => seq >= end || is_reserved(tags.stream),
        }
    }

    /// Number of events in a segment that the rules by age may remove, estimated from its index.
    pub(super) fn expired_in(&self, stored: &Stored) -> u64 {
        let Kind::ByAge(rules) = self.kind else { return stored.entry.rows };
        let mut sum = 0;
        for (number, block) in (0u32..).zip(stored.segment.blocks()) {
            // The earliest arrival in the block; by time only where arrivals were not recorded.
            let recorded = self.arrivals.received_ns(block.seq_min.max(self.arrivals.from()));
            let oldest = match block.seq_min < self.arrivals.from() {
                true => recorded.map_or(block.time_min_ns, |time| time.min(block.time_min_ns)),
                false => recorded.unwrap_or(i64::MAX),
            };
            let gone = rules.iter().any(|rule| {
                let horizon = self.now_ns.saturating_sub(rule.keep_ns);
                let terms: Vec<Term> = rule
                    .stream
                    .iter()
                    .map(|stream| Term::of(Field::Stream, stream.as_bytes()))
                    .collect();
                oldest < horizon && stored.segment.may_match(number, &terms).unwrap_or(true)
            });
            sum += if gone { u64::from(block.rows) } else { 0 };
        }
        sum
    }
}

/// The rule of a stream; none for the store's own entries.
fn rule_of<'a>(rules: &'a [Retention], stream: &str) -> Option<&'a Retention> {
    if is_reserved(stream) {
        return None;
    }
    let named = |rule: &&Retention| rule.stream.as_deref() == Some(stream);
    let rule = rules.iter().find(named);
    rule.or_else(|| rules.iter().find(|rule| rule.stream.is_none()))
}

/// The position below which events are removed so that segments have at most `limit` bytes; 0 if
/// they have.
pub(super) fn end_of_excess(segments: &[Arc<Stored>], limit: u64) -> u64 {
    let total: u64 = segments.iter().map(|stored| stored.entry.file_size).sum();
    if total <= limit {
        return 0;
    }
    let mut excess = total - (limit - limit / SPARE);
    let mut end = 0;
    for stored in segments {
        let (size, first) = (stored.entry.file_size, stored.segment.blocks().iter());
        // Those before it were removed earlier.
        let Some(first) = first.map(|block| block.seq_min).min() else { continue };
        if size <= excess {
            excess -= size;
            end = stored.entry.end_seq;
            continue;
        }
        let positions = u128::from(stored.entry.end_seq - first);
        let part = positions * u128::from(excess) / u128::from(size.max(1));
        return first.saturating_add(u64::try_from(part).unwrap_or(u64::MAX)).saturating_add(1);
    }
    end
}
