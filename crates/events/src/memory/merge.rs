//! Merges the events of many runs in order of (time, sequence).
//!
//! A run is opened when its first event is due, so that only overlapping runs are compared; while
//! one run's events precede those of all others, none are.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use super::Run;

/// A cursor over runs; see [`for_each`](Self::for_each).
pub(crate) struct Merge {
    /// By first event, latest first.
    waiting: Vec<((i64, u64), Arc<Run>)>,
    open: Vec<Open>,
    heap: BinaryHeap<Reverse<((i64, u64), usize)>>,
    /// The current run, and the key up to which its events need no comparison.
    current: Option<(usize, (i64, u64))>,
}

struct Open {
    run: Arc<Run>,
    place: usize,
}

impl Open {
    fn key(&self) -> Option<(i64, u64)> {
        (self.place < self.run.len()).then(|| key(&self.run, self.place))
    }
}

fn key(run: &Run, place: usize) -> (i64, u64) {
    let index = run.by_time(place);
    (run.timestamp_ns(index), run.first_seq + index as u64)
}

impl Merge {
    /// Starts before the first event.
    pub(crate) fn new(runs: Vec<Arc<Run>>) -> Self {
        let mut waiting: Vec<_> =
            runs.into_iter().filter(|run| run.len() > 0).map(|run| (key(&run, 0), run)).collect();
        waiting.sort_by_key(|(first, _)| Reverse(*first));
        Self { waiting, open: Vec::new(), heap: BinaryHeap::new(), current: None }
    }

    /// Calls `each` with position and leaf of every event, in order; stops at its first error.
    ///
    /// # Errors
    /// What `each` returned.
    pub(crate) fn for_each<E>(
        mut self,
        mut each: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        while let Some(slot) = self.choose() {
            let until = self.current.map_or((i64::MIN, 0), |(_, until)| until);
            let open = &mut self.open[slot];
            while let Some(key) = open.key().filter(|key| *key <= until) {
                let index = open.run.by_time(open.place);
                each(key.1, open.run.leaf(index))?;
                open.place += 1;
            }
        }
        Ok(())
    }

    /// Selects the run with the least next event, and records how far it may be read.
    fn choose(&mut self) -> Option<usize> {
        if let Some((slot, _)) = self.current.take()
            && let Some(key) = self.open[slot].key()
        {
            self.heap.push(Reverse((key, slot)));
        }
        while let Some((first, _)) = self.waiting.last()
            && self.heap.peek().is_none_or(|Reverse((least, _))| first <= least)
            && let Some((first, run)) = self.waiting.pop()
        {
            self.open.push(Open { run, place: 0 });
            self.heap.push(Reverse((first, self.open.len() - 1)));
        }
        let Reverse((_, slot)) = self.heap.pop()?;
        let heap = self.heap.peek().map(|Reverse((key, _))| *key);
        let waiting = self.waiting.last().map(|(key, _)| *key);
        // Keys are unique, so reading up to and including the next run's key never passes it.
        let until = [heap, waiting].into_iter().flatten().min().unwrap_or((i64::MAX, u64::MAX));
        self.current = Some((slot, until));
        Some(slot)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::batch::Batch;
    use crate::event::Draft;

    proptest! {
        #[test]
        fn events_come_in_order_of_time_and_sequence(
            runs in proptest::collection::vec(proptest::collection::vec(0i64..50, 0..20), 0..12),
        ) {
            let mut expected = Vec::new();
            let mut made = Vec::new();
            let mut seq = 0;
            for times in &runs {
                let mut batch = Batch::new("s");
                let first_seq = seq;
                for &time in times {
                    let draft = Draft { timestamp_ns: Some(time), ..Draft::default() };
                    batch.push(&draft, 0).unwrap();
                    expected.push((time, seq));
                    seq += 1;
                }
                let mut run = Run::new(batch);
                run.first_seq = first_seq;
                made.push(Arc::new(run));
            }
            expected.sort_unstable();
            let mut found = Vec::new();
            let done: Result<(), ()> = Merge::new(made).for_each(|seq, leaf| {
                found.push((crate::format::leaf::decode(leaf).unwrap().timestamp_ns, seq));
                Ok(())
            });
            prop_assert!(done.is_ok());
            prop_assert_eq!(found, expected);
        }
    }
}
