//! Entries of the store itself: what it removes, and under which rules
//! (`docs/formats/event-system.md`).
//!
//! Invariants:
//! - The bytes of an event are removed only after an entry that names it is on stable storage and
//!   covered by a signed checkpoint.
//! - Nothing is signed that includes an entry which another wrote into the log: an unsigned entry is
//!   believed only while the events it names are present.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use forebay_base::error_chain::chain;

use super::flush::FlushError;
use super::retention::Expiry;
use super::view::{Stored, View};
use super::{AppendError, Inner, Promise, ReadError};
use crate::batch::{Batch, BatchError};
use crate::event::{Draft, Severity};
use crate::format::system::{
    PolicyEntry, PruneEntry, RANGES_MAX, RecordingEntry, RuleEntry, SystemEntry, is_own,
};
use crate::format::{leaf, tree};
use crate::merkle::{Hash, Tree};
use crate::segment::SegmentError;

/// Number of positions whose removed events are gathered at a time: this limits the memory.
const WINDOW: u64 = 1 << 20;

impl Inner {
    /// Appends entries, and blocks until they are on stable storage.
    pub(super) fn record(
        &self,
        entries: impl Iterator<Item = SystemEntry>,
    ) -> Result<u64, AppendError> {
        let now_ns = self.now_ns();
        let mut batch = Batch::system();
        let mut promises: Vec<Promise> = Vec::new();
        for entry in entries {
            let raw = entry.encode();
            let draft = Draft {
                kind: entry.kind().into(),
                collector: "forebay".into(),
                format: "ndjson".into(),
                severity: Severity::Informational,
                raw: raw.into(),
                ..Draft::default()
            };
            let mut pushed = batch.push(&draft, now_ns);
            if pushed == Err(BatchError::Full) {
                let full = std::mem::replace(&mut batch, Batch::system());
                promises.push(self.submit_system(full)?.promise());
                pushed = batch.push(&draft, now_ns);
            }
            if let Err(error) = pushed {
                return Err(AppendError::closed(&error.to_string()));
            }
        }
        if !batch.is_empty() {
            promises.push(self.submit_system(batch)?.promise());
        }
        for promise in &promises {
            self.sync(*promise)?;
        }
        Ok(promises.last().map_or(0, Promise::end_seq))
    }

    pub(super) fn now_ns(&self) -> i64 {
        i64::try_from(self.clock.now_ms()).unwrap_or(i64::MAX).saturating_mul(1_000_000)
    }

    /// Upgrades a store of a version that did not record what it removed: an entry says what is
    /// absent now.
    ///
    /// # Errors
    /// The entry or the manifest could not be written; the store is of the earlier version still.
    pub(super) fn begin_recording(&self) -> Result<(), ReadError> {
        if self.manifest.lock().recording {
            return Ok(());
        }
        let _maintaining = self.maintaining.lock();
        let mut next = self.manifest.lock().clone();
        if next.recording {
            return Ok(());
        }
        // Only a checkpoint that the earlier version signed shows that it removed anything: without
        // one there is nothing to excuse.
        let signed = self.checkpoints.as_ref().is_some_and(|found| found.lock().latest.is_some());
        if signed {
            let absent = next.segments.iter().map(|entry| {
                let range = entry.first_seq..entry.end_seq;
                let count = (range.end - range.start).saturating_sub(entry.rows);
                (range, count)
            });
            let entry = SystemEntry::Recording(RecordingEntry::new(absent));
            self.record(std::iter::once(entry)).map_err(ReadError::Record)?;
        }
        next.recording = true;
        self.write_manifest(next).map_err(ReadError::Upgrade)?;
        self.seal_or_warn();
        Ok(())
    }

    /// Records the retention rules if they changed. The caller holds `maintaining`.
    pub(super) fn record_policy(&self) -> Result<(), FlushError> {
        let rules = self
            .options
            .retention
            .iter()
            .map(|rule| (rule.stream.clone(), Some(rule.keep_ns), None));
        let size = self.options.retention_size.map(|limit| (None, None, Some(limit)));
        let rules = rules.chain(size).map(|(stream, keep_ns, keep_bytes)| RuleEntry {
            stream,
            keep_ns,
            keep_bytes,
        });
        let rules = PolicyEntry { rules: rules.collect() };
        if self.recorded_policy() == rules || self.tree.is_none() {
            return Ok(());
        }
        let entry = SystemEntry::Policy(rules.clone());
        let end_seq = self.record(std::iter::once(entry)).map_err(FlushError::Record)?;
        let mut next = self.manifest.lock().clone();
        next.policy = end_seq.checked_sub(1);
        self.write_manifest(next).map_err(FlushError::Disk)?;
        *self.policy.lock() = Some(rules);
        Ok(())
    }

    /// The newest recorded rules. Those that cannot be read are recorded again.
    fn recorded_policy(&self) -> PolicyEntry {
        if let Some(known) = self.policy.lock().clone() {
            return known;
        }
        let seq = self.manifest.lock().policy;
        let record = seq.and_then(|seq| self.at(&self.view(), seq).ok().flatten());
        let entry = record.and_then(|record| SystemEntry::decode(&record.event()));
        match entry {
            Some(SystemEntry::Policy(rules)) => rules,
            _ => PolicyEntry::default(),
        }
    }

    /// Records which events of a segment are expired, and signs for that.
    pub(super) fn record_pruning(
        &self,
        stored: &Stored,
        expiry: &Expiry<'_>,
    ) -> Result<(), FlushError> {
        if self.tree.is_none() {
            return Ok(());
        }
        let number = stored.entry.number;
        if !self.recorded.lock().contains_key(&number) {
            let mut first = stored.entry.first_seq;
            while first < stored.entry.end_seq {
                let end = stored.entry.end_seq.min(first.saturating_add(WINDOW));
                let entries = self.expired(stored, first..end, expiry)?;
                self.record(entries.into_iter()).map_err(FlushError::Record)?;
                first = end;
            }
            self.recorded.lock().insert(number, expiry.recorded());
        }
        self.checkpoint().map(drop).map_err(|error| FlushError::Sign(Box::new(error)))
    }

    /// The entries for the expired events in a range of positions of a segment. They are read as readers
    /// do, so that no entry names events because of a block that another changed.
    fn expired(
        &self,
        stored: &Stored,
        range: Range<u64>,
        expiry: &Expiry<'_>,
    ) -> Result<Vec<SystemEntry>, FlushError> {
        let mut gone: BTreeMap<String, Vec<(u64, Hash)>> = BTreeMap::new();
        let mut bytes = Vec::new();
        let view = self.view();
        for number in stored.segment.blocks_of_seq(range.clone()) {
            let block = self.read_checked(&view, stored, number);
            let block = block.map_err(|error| FlushError::Read(Box::new(error)))?;
            for row in 0..block.len() {
                let seq = block.seq(row);
                if !range.contains(&seq) {
                    continue;
                }
                let tags = leaf::tags(block.tags(row))
                    .map_err(|_| FlushError::Segment(stored.segment.no_event(seq)))?;
                if !expiry.keeps(&tags, seq, block.timestamp_ns(row)) {
                    bytes.clear();
                    block.leaf(row, &mut bytes);
                    let of_stream = match gone.get_mut(tags.stream) {
                        Some(known) => known,
                        None => gone.entry(tags.stream.to_owned()).or_default(),
                    };
                    of_stream.push((seq, tree::hash(&bytes)));
                }
            }
        }
        let mut entries = Vec::new();
        for (stream, mut events) in gone {
            events.sort_unstable_by_key(|(seq, _)| *seq);
            let Some((rule, before)) = expiry.rule(&stream) else { continue };
            let before = crate::render::time(before);
            let mut rest = events.as_slice();
            while let Some((entry, after)) = first_entry(&rule, &before, &stream, rest) {
                entries.push(SystemEntry::Prune(entry));
                rest = after;
            }
        }
        Ok(entries)
    }

    /// Refuses to sign entries that no checkpoint covers and that contradict the events: others
    /// may have written them into the log.
    ///
    /// * `replayed`: the store's own entries in the log, with their positions.
    pub(super) fn judge_unsigned(&self, replayed: Vec<(u64, SystemEntry)>) {
        // What cannot be read cannot be judged, and is not signed.
        if let Err(error) = self.find_contradictions(replayed) {
            let reason = chain(&error);
            self.distrust(format!("{reason}; run `forebay events verify`"));
        }
    }

    fn find_contradictions(&self, replayed: Vec<(u64, SystemEntry)>) -> Result<(), SegmentError> {
        let Some(checkpoints) = &self.checkpoints else { return Ok(()) };
        let latest = checkpoints.lock().latest.as_ref().map(|(latest, _)| latest.clone());
        let signed = latest.as_ref().map_or(0, |latest| latest.size);
        let recorded = latest.is_some_and(|latest| latest.is_recorded());
        let view = self.view();
        let replayed = replayed.into_iter().filter(|(seq, _)| *seq >= signed);
        for (seq, entry) in unsigned(&view, signed)?.into_iter().chain(replayed) {
            let wrong = match &entry {
                SystemEntry::Policy(_) | SystemEntry::Unused(_) => false,
                SystemEntry::Recording(_) => recorded,
                SystemEntry::Prune(entry) => !all_present(&view, entry, seq)?,
            };
            if wrong {
                let kind = entry.kind();
                self.distrust(format!(
                    "event {seq} is an unsigned entry of type {kind} that contradicts the events; \
                     run `forebay events verify`"
                ));
            }
        }
        Ok(())
    }
}

/// An entry for as many of the events as one may name, and the others.
fn first_entry<'a>(
    rule: &RuleEntry,
    before: &str,
    stream: &str,
    events: &'a [(u64, Hash)],
) -> Option<(PruneEntry, &'a [(u64, Hash)])> {
    let mut indexes: Vec<(u64, u64)> = Vec::new();
    let mut count = 0;
    for (seq, _) in events {
        let full = indexes.len() == RANGES_MAX;
        match indexes.last_mut() {
            Some((_, last)) if *last + 1 == *seq => *last = *seq,
            _ if full => break,
            _ => indexes.push((*seq, *seq)),
        }
        count += 1;
    }
    let (named, rest) = events.split_at_checked(count)?;
    let (first, last) = (indexes.first()?.0, indexes.last()?.1);
    let entry = PruneEntry {
        rule: rule.clone(),
        before: before.to_owned(),
        stream: stream.to_owned(),
        first,
        last,
        count: count as u64,
        indexes,
        root: root_of(named.iter().map(|(_, hash)| *hash)),
    };
    Some((entry, rest))
}

/// The root of the tree whose leaves have these hashes.
pub(super) fn root_of(hashes: impl Iterator<Item = Hash>) -> Hash {
    let mut tree = Tree::new();
    tree.push(&hashes.collect::<Vec<_>>());
    tree.root()
}

/// The store's own entries from position `from` on, in segments.
fn unsigned(view: &View, from: u64) -> Result<Vec<(u64, SystemEntry)>, SegmentError> {
    let mut found = Vec::new();
    let mut bytes = Vec::new();
    for stored in view.segments.iter().filter(|stored| stored.entry.end_seq > from) {
        for number in stored.segment.blocks_of_seq(from..u64::MAX) {
            let block = stored.segment.read_block(number as usize)?;
            for row in (0..block.len()).filter(|&row| block.seq(row) >= from) {
                if is_own(block.tags(row)) {
                    bytes.clear();
                    block.leaf(row, &mut bytes);
                    let entry = leaf::decode(&bytes).ok().as_ref().and_then(SystemEntry::decode);
                    found.extend(entry.map(|entry| (block.seq(row), entry)));
                }
            }
        }
    }
    Ok(found)
}

/// Whether every event that the entry at `seq` names is before it and present.
fn all_present(view: &View, entry: &PruneEntry, seq: u64) -> Result<bool, SegmentError> {
    if entry.last >= seq {
        return Ok(false);
    }
    for range in entry.ranges() {
        let mut rows = 0;
        for stored in &view.segments {
            rows += rows_within(stored, &range)?;
        }
        let in_memory = view.segments.last().map_or(0, |stored| stored.entry.end_seq);
        // Nothing is removed from memory.
        rows += range.end.saturating_sub(range.start.max(in_memory));
        if rows != range.end - range.start {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Number of rows of a segment with positions in a range.
fn rows_within(stored: &Arc<Stored>, range: &Range<u64>) -> Result<u64, SegmentError> {
    if stored.entry.end_seq <= range.start || stored.entry.first_seq >= range.end {
        return Ok(0);
    }
    let mut rows = 0;
    for number in stored.segment.blocks_of_seq(range.clone()) {
        let block = stored.segment.read_block(number as usize)?;
        rows += (0..block.len()).filter(|&row| range.contains(&block.seq(row))).count() as u64;
    }
    Ok(rows)
}
