//! A memory table: consecutive runs.
//!
//! Small runs are joined as they are added, eight of a size to one, so that a reader meets few even
//! if every commit has one event. Each event is copied at most [`LEVELS`] times.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use parking_lot::RwLock;

use super::Run;
use crate::event::EventId;

/// Number of runs of one size that are joined.
const JOINED: usize = 8;
/// Maximum size in bytes of joined leaves: large events already form few runs.
pub(crate) const JOINED_SIZE_MAX: usize = 8 << 20;
/// Number of sizes that are joined: 8, 64, 512 and 4,096 events.
const LEVELS: u32 = 4;

/// Events `first_seq ..`, in memory.
#[derive(Debug)]
pub(crate) struct Table {
    /// Position of its first event.
    pub(crate) first_seq: u64,
    runs: RwLock<Vec<Arc<Run>>>,
    size: AtomicUsize,
    count: AtomicUsize,
    /// When the newest event arrived.
    received_ns: AtomicI64,
}

/// How often a run of `count` events was joined, by its size.
fn level(count: usize) -> u32 {
    (count as u64).max(1).ilog2() / 3
}

impl Table {
    /// An empty table.
    pub(crate) fn new(first_seq: u64) -> Self {
        Self {
            first_seq,
            runs: RwLock::default(),
            size: AtomicUsize::new(0),
            count: AtomicUsize::new(0),
            received_ns: AtomicI64::new(i64::MIN),
        }
    }

    /// Notes the time at which its newest event arrived.
    pub(crate) fn receive(&self, now_ns: i64) {
        self.received_ns.fetch_max(now_ns, Ordering::Relaxed);
    }

    /// When everything in it had arrived.
    pub(crate) fn received_ns(&self) -> i64 {
        self.received_ns.load(Ordering::Relaxed)
    }

    /// Adds the next run, and returns it. Called by one thread at a time, in order of
    /// sequence.
    pub(crate) fn push(&self, run: Run) -> Arc<Run> {
        let run = Arc::new(run);
        self.size.fetch_add(run.size(), Ordering::Relaxed);
        let mut runs = self.runs.write();
        self.count.fetch_add(run.len(), Ordering::Relaxed);
        runs.push(Arc::clone(&run));
        while let Some(first) = joinable(&runs) {
            let joined = Run::joined(runs[first..].iter().map(|run| &**run));
            let replaced = runs[first..].iter().map(|run| run.size()).sum();
            self.size.fetch_add(joined.size(), Ordering::Relaxed);
            self.size.fetch_sub(replaced, Ordering::Relaxed);
            runs.truncate(first);
            runs.push(Arc::new(joined));
        }
        run
    }

    /// Returns a table of its events below position `end_seq`.
    pub(crate) fn beginning(&self, end_seq: u64) -> Self {
        let mut runs = self.runs();
        runs.retain(|run| run.first_seq < end_seq);
        if let Some(last) = runs.last_mut()
            && last.end_seq() > end_seq
        {
            *last = Arc::new(last.beginning(end_seq));
        }
        Self {
            first_seq: self.first_seq,
            size: AtomicUsize::new(runs.iter().map(|run| run.size()).sum()),
            count: AtomicUsize::new(runs.iter().map(|run| run.len()).sum()),
            received_ns: AtomicI64::new(self.received_ns()),
            runs: RwLock::new(runs),
        }
    }

    /// Its memory in bytes.
    pub(crate) fn size(&self) -> usize {
        self.size.load(Ordering::Relaxed)
    }

    /// Events in it.
    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Position after its last event.
    pub(crate) fn end_seq(&self) -> u64 {
        self.first_seq + self.len() as u64
    }

    /// Its runs as they are now.
    pub(crate) fn runs(&self) -> Vec<Arc<Run>> {
        self.runs.read().clone()
    }

    /// The first event below position `end_seq` with this id whose leaf is wanted.
    pub(crate) fn find(
        &self,
        id: EventId,
        end_seq: u64,
        wanted: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Option<(Arc<Run>, usize)> {
        let runs = self.runs.read();
        runs.iter().find_map(|run| {
            let index = run.find(id, wanted)?;
            (run.first_seq + (index as u64) < end_seq).then(|| (Arc::clone(run), index))
        })
    }

    /// The run that has the event at a position.
    pub(crate) fn at(&self, seq: u64) -> Option<(Arc<Run>, usize)> {
        let runs = self.runs.read();
        let after = runs.partition_point(|run| run.first_seq <= seq);
        let run = runs.get(after.checked_sub(1)?)?;
        let index = usize::try_from(seq - run.first_seq).ok()?;
        (index < run.len()).then(|| (Arc::clone(run), index))
    }
}

/// Where the last runs begin that must be joined, if any.
fn joinable(runs: &[Arc<Run>]) -> Option<usize> {
    let first = runs.len().checked_sub(JOINED)?;
    let wanted = level(runs.last()?.len());
    let last = &runs[first..];
    let size: usize = last.iter().map(|run| run.leaf_bytes().len()).sum();
    (wanted < LEVELS && size <= JOINED_SIZE_MAX)
        .then(|| last.iter().all(|run| level(run.len()) == wanted).then_some(first))
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Batch;
    use crate::event::Draft;

    #[test]
    fn single_events_end_in_few_runs_and_are_all_found() {
        let table = Table::new(100);
        for seq in 100..10_100u64 {
            let mut batch = Batch::new("s");
            let id = Some(EventId(u128::from(seq)));
            batch.push(&Draft { id, ..Draft::default() }, seq as i64).unwrap();
            let mut run = Run::new(batch);
            run.first_seq = seq;
            table.push(run);
        }
        assert!(table.runs().len() <= JOINED * (LEVELS as usize + 1), "{}", table.runs().len());
        assert_eq!(table.end_seq(), 10_100);
        let sum: usize = table.runs().iter().map(|run| run.size()).sum();
        assert_eq!(table.size(), sum);
        for seq in [100u64, 4_195, 4_196, 10_099] {
            let (run, index) =
                table.find(EventId(u128::from(seq)), u64::MAX, &mut |_| true).unwrap();
            assert_eq!(run.first_seq + index as u64, seq);
            let (at, place) = table.at(seq).unwrap();
            assert_eq!(at.leaf(place), run.leaf(index));
        }
        assert!(table.find(EventId(10_099), 10_099, &mut |_| true).is_none());
        assert!(table.at(99).is_none() && table.at(10_100).is_none());
    }
}
