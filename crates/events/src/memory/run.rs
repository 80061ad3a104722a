//! A run: events with consecutive positions, and the data to find them.
//!
//! Invariant: a run never changes after its creation; readers share it.

#![expect(
    clippy::cast_possible_truncation,
    reason = "a batch is bounded in bytes and events, and hashes are folded on purpose"
)]

use std::sync::OnceLock;

use crate::batch::Batch;
use crate::event::EventId;

/// Maximum size of a run that is searched linearly instead of by a table.
const SCANNED_MAX: usize = 32;
/// Bytes stored per event besides its leaf: its end, id, time and two slots of the id table.
const EVENT_OVERHEAD: usize = 4 + 16 + 8 + 4;

/// Events `first_seq ..` in memory.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) first_seq: u64,
    bytes: Vec<u8>,
    ends: Vec<u32>,
    ids: Vec<EventId>,
    timestamps_ns: Vec<i64>,
    /// Indices by (time, sequence), unless that is the order of positions.
    order: Option<Vec<u32>>,
    time_min_ns: i64,
    time_max_ns: i64,
    id_min: EventId,
    id_max: EventId,
    slots: OnceLock<Vec<u16>>,
}

impl Run {
    /// Returns a run of a batch's events; `first_seq` may be set until it is shared.
    pub(crate) fn new(batch: Batch) -> Self {
        let Batch { mut bytes, mut ends, mut ids, mut timestamps_ns, .. } = batch;
        if bytes.capacity() > bytes.len() + bytes.len() / 4 {
            bytes.shrink_to_fit();
        }
        ends.shrink_to_fit();
        ids.shrink_to_fit();
        timestamps_ns.shrink_to_fit();
        Self::from_columns(0, bytes, ends, ids, timestamps_ns)
    }

    /// A run of columns that belong together.
    pub(crate) fn from_columns(
        first_seq: u64,
        bytes: Vec<u8>,
        ends: Vec<u32>,
        ids: Vec<EventId>,
        timestamps_ns: Vec<i64>,
    ) -> Self {
        let order = (!timestamps_ns.is_sorted()).then(|| {
            let mut order: Vec<u32> = (0..ends.len()).map(|index| index as u32).collect();
            order.sort_by_key(|&index| timestamps_ns[index as usize]);
            order
        });
        let times = || timestamps_ns.iter().copied();
        let all = || ids.iter().copied();
        Self {
            first_seq,
            time_min_ns: times().min().unwrap_or(i64::MAX),
            time_max_ns: times().max().unwrap_or(i64::MIN),
            id_min: all().min().unwrap_or_default(),
            id_max: all().max().unwrap_or_default(),
            bytes,
            ends,
            ids,
            timestamps_ns,
            order,
            slots: OnceLock::new(),
        }
    }

    /// Joins several consecutive runs.
    pub(crate) fn joined<'a>(runs: impl Iterator<Item = &'a Self> + Clone) -> Self {
        let size = runs.clone().map(|run| run.bytes.len()).sum();
        let count = runs.clone().map(Self::len).sum();
        let mut bytes = Vec::with_capacity(size);
        let mut ends = Vec::with_capacity(count);
        let mut ids = Vec::with_capacity(count);
        let mut timestamps_ns = Vec::with_capacity(count);
        let first_seq = runs.clone().next().map_or(0, |run| run.first_seq);
        for run in runs {
            let start = bytes.len() as u32;
            bytes.extend_from_slice(&run.bytes);
            ends.extend(run.ends.iter().map(|end| start + end));
            ids.extend_from_slice(&run.ids);
            timestamps_ns.extend_from_slice(&run.timestamps_ns);
        }
        Self::from_columns(first_seq, bytes, ends, ids, timestamps_ns)
    }

    /// Returns a run of its events below position `end_seq`.
    pub(crate) fn beginning(&self, end_seq: u64) -> Self {
        let count = usize::try_from(end_seq.saturating_sub(self.first_seq)).unwrap_or(usize::MAX);
        let count = count.min(self.len());
        let ends = self.ends[..count].to_vec();
        let bytes = self.bytes[..ends.last().map_or(0, |&end| end as usize)].to_vec();
        let (ids, times_ns) = (self.ids[..count].to_vec(), self.timestamps_ns[..count].to_vec());
        Self::from_columns(self.first_seq, bytes, ends, ids, times_ns)
    }

    /// Events in it.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The sequence position after its last event.
    pub(crate) fn end_seq(&self) -> u64 {
        self.first_seq + self.ends.len() as u64
    }

    /// Its memory in bytes.
    pub(crate) fn size(&self) -> usize {
        let order = self.order.as_ref().map_or(0, |order| 4 * order.capacity());
        self.bytes.capacity() + self.ends.len() * EVENT_OVERHEAD + order + size_of::<Self>()
    }

    /// Bytes of its leaves.
    pub(crate) fn leaf_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Where each leaf ends.
    pub(crate) fn ends(&self) -> &[u32] {
        &self.ends
    }

    /// The leaf at an index.
    pub(crate) fn leaf(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] as usize };
        &self.bytes[start..self.ends[index] as usize]
    }

    /// The index of the event at rank `place` by (time, sequence).
    pub(crate) fn by_time(&self, place: usize) -> usize {
        self.order.as_ref().map_or(place, |order| order[place] as usize)
    }

    /// The time of the event at an index.
    pub(crate) fn timestamp_ns(&self, index: usize) -> i64 {
        self.timestamps_ns[index]
    }

    /// The earliest and the latest time in it.
    pub(crate) fn times_ns(&self) -> (i64, i64) {
        (self.time_min_ns, self.time_max_ns)
    }

    /// The number of events before `time_ns`: a rank for [`by_time`](Self::by_time).
    pub(crate) fn places_before(&self, time_ns: i64) -> usize {
        match &self.order {
            None => self.timestamps_ns.partition_point(|&time| time < time_ns),
            Some(order) => {
                order.partition_point(|&index| self.timestamps_ns[index as usize] < time_ns)
            }
        }
    }

    /// The index of the first event with this id whose leaf is wanted.
    pub(crate) fn find(&self, id: EventId, wanted: &mut dyn FnMut(&[u8]) -> bool) -> Option<usize> {
        if id < self.id_min || id > self.id_max {
            return None;
        }
        if self.ids.len() <= SCANNED_MAX || self.ids.len() >= usize::from(u16::MAX) {
            let mut known = self.ids.iter().enumerate().filter(|(_, known)| **known == id);
            return known.find(|(index, _)| wanted(self.leaf(*index))).map(|(index, _)| index);
        }
        let slots = self.slots.get_or_init(|| slots_of(&self.ids));
        let mask = slots.len() - 1;
        let mut place = place_of(id, mask);
        loop {
            match usize::from(slots[place]).checked_sub(1) {
                None => return None,
                Some(index) if self.ids[index] == id && wanted(self.leaf(index)) => {
                    return Some(index);
                }
                Some(_) => place = (place + 1) & mask,
            }
        }
    }
}

/// An open-addressing table of indices, plus one, by id; of equal ids the first is found first.
fn slots_of(ids: &[EventId]) -> Vec<u16> {
    let mut slots = vec![0u16; (ids.len() * 2).next_power_of_two()];
    let mask = slots.len() - 1;
    for (index, &id) in ids.iter().enumerate() {
        let mut place = place_of(id, mask);
        while slots[place] != 0 {
            place = (place + 1) & mask;
        }
        slots[place] = (index + 1) as u16;
    }
    slots
}

/// The start of the search for an id; consecutive ids are spread evenly.
fn place_of(id: EventId, mask: usize) -> usize {
    let folded = (id.0 as u64) ^ ((id.0 >> 64) as u64).rotate_left(32);
    (folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & mask
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Draft;

    fn batch(times: &[i64]) -> Batch {
        let mut batch = Batch::new("s");
        for (index, &time) in times.iter().enumerate() {
            let id = EventId((index as u128 + 1) << 64 | 5);
            let draft = Draft { id: Some(id), timestamp_ns: Some(time), ..Draft::default() };
            batch.push(&draft, 0).unwrap();
        }
        batch
    }

    #[test]
    fn every_id_is_found_in_small_and_large_runs_and_no_other() {
        for count in [1usize, 31, 33, 500, 3000] {
            let run = Run::new(batch(&vec![7; count]));
            for index in 0..count {
                assert_eq!(
                    run.find(EventId((index as u128 + 1) << 64 | 5), &mut |_| true),
                    Some(index)
                );
            }
            assert_eq!(run.find(EventId(1 << 64 | 6), &mut |_| true), None);
            assert_eq!(run.find(EventId(0), &mut |_| true), None);
        }
    }

    #[test]
    fn events_that_came_out_of_order_are_read_in_order_of_time() {
        let run = Run::new(batch(&[30, 10, 20, 10]));
        let order: Vec<_> = (0..4).map(|place| run.by_time(place)).collect();
        assert_eq!(order, [1, 3, 2, 0]);
        assert_eq!(run.places_before(20), 2);
        assert_eq!(run.times_ns(), (10, 30));
    }

    #[test]
    fn joined_runs_have_all_leaves_in_sequence() {
        let (mut first, mut second) = (Run::new(batch(&[1, 2])), Run::new(batch(&[3])));
        (first.first_seq, second.first_seq) = (10, 12);
        let joined = Run::joined([&first, &second].into_iter());
        assert_eq!((joined.first_seq, joined.end_seq()), (10, 13));
        assert_eq!(joined.leaf(1), first.leaf(1));
        assert_eq!(joined.leaf(2), second.leaf(0));
    }
}
