//! When events arrived: the file `arrivals` (`docs/formats/event-arrivals.md`).
//!
//! The time of an event is its producer's, who may be wrong or lie. What is kept for how long is
//! counted from the arrival. Positions are given in order of arrival, so a few marks suffice: a
//! position, and a time at which everything below it had arrived. A mark is added with every
//! segment; when there are many, the one whose removal matters least is removed, so that the times
//! of old events are known less exactly than those of new ones.
//!
//! Invariants:
//! - Marks ascend by position, and their times do not descend.
//! - A time is never before the arrival: no event is removed too early.
//! - The file is replaced whole, before the manifest names the segment of the newest mark.

#![deny(clippy::indexing_slicing)]

use std::path::Path;

use forebay_base::checksum::crc32c;
use forebay_base::fs::FileSystem;

use super::error::{Disk, OpenError};
use super::whole_file::{self, damaged};

const MAGIC: &[u8; 8] = b"FBEVARR1";
const NAME: &str = "arrivals";
const NEW_NAME: &str = "arrivals.new";
/// Magic, first position, number of marks, checksum.
const FIXED_SIZE: usize = 8 + 8 + 4 + 4;
const MARK_SIZE: usize = 16;
/// Maximum number of marks: a year is known to within a week, a day to within half an hour.
const MARKS_MAX: usize = 2_048;

/// When events arrived.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Arrivals {
    /// Below this position arrivals were not recorded.
    from: u64,
    /// Events below the position had arrived at the time, in nanoseconds since 1970-01-01 UTC.
    marks: Vec<(u64, i64)>,
}

impl Arrivals {
    /// Those of a store whose events below `from` came before arrivals were recorded.
    pub(crate) fn new(from: u64) -> Self {
        Self { from, marks: Vec::new() }
    }

    /// When the event at a position had arrived; `None` if it was not recorded. For an event that is
    /// not in a segment yet, the end of time.
    pub(crate) fn received_ns(&self, seq: u64) -> Option<i64> {
        if seq < self.from {
            return None;
        }
        let at = self.marks.partition_point(|(end, _)| *end <= seq);
        Some(self.marks.get(at).map_or(i64::MAX, |(_, time)| *time))
    }

    /// The first position whose arrival was recorded.
    pub(crate) fn from(&self) -> u64 {
        self.from
    }

    /// Adds a mark: everything below `end` had arrived at `time_ns`.
    pub(crate) fn add(&mut self, end: u64, time_ns: i64) {
        // A flush that failed, and is repeated, may have left its mark.
        self.marks.retain(|(known, _)| *known < end);
        let before = self.marks.last().map_or(i64::MIN, |(_, time)| *time);
        self.marks.push((end, time_ns.max(before)));
        if self.marks.len() > MARKS_MAX {
            self.thin();
        }
    }

    /// Removes the mark between whose neighbours the least part of their age has passed. The first
    /// stays: when its events began to arrive is not known.
    fn thin(&mut self) {
        let now = self.marks.last().map_or(0, |(_, time)| *time);
        let loss = |three: &[(u64, i64)]| match three {
            [(_, before), (_, time), (_, next)] => {
                let age = now.saturating_sub(*time) as f64 + 1e9;
                next.saturating_sub(*before) as f64 / age
            }
            _ => f64::INFINITY,
        };
        let places = (1..).zip(self.marks.windows(3));
        let least = places.min_by(|(_, a), (_, b)| loss(a).total_cmp(&loss(b)));
        if let Some((at, _)) = least {
            self.marks.remove(at);
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(FIXED_SIZE + self.marks.len() * MARK_SIZE);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&self.from.to_le_bytes());
        let count = u32::try_from(self.marks.len()).unwrap_or(u32::MAX);
        out.extend_from_slice(&count.to_le_bytes());
        for (end, time) in &self.marks {
            out.extend_from_slice(&end.to_le_bytes());
            out.extend_from_slice(&time.to_le_bytes());
        }
        let checksum = crc32c(&out);
        out.extend_from_slice(&checksum.to_le_bytes());
        out
    }

    fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let (bytes, stored) = bytes.split_last_chunk::<4>().ok_or("it is too short")?;
        if crc32c(bytes) != u32::from_le_bytes(*stored) {
            return Err("its checksum does not match");
        }
        let (magic, rest) = bytes.split_first_chunk::<8>().ok_or("it is too short")?;
        if magic != MAGIC {
            return Err("it has another format or version");
        }
        let (from, rest) = rest.split_first_chunk::<8>().ok_or("it is too short")?;
        let (count, rest) = rest.split_first_chunk::<4>().ok_or("it is too short")?;
        let count = u32::from_le_bytes(*count) as usize;
        let (marks, more) = rest.as_chunks::<MARK_SIZE>();
        if count > MARKS_MAX || marks.len() != count || !more.is_empty() {
            return Err("its number of marks does not match its size");
        }
        let marks: Vec<(u64, i64)> = marks
            .iter()
            .map(|mark| {
                let [a, b, c, d, e, f, g, h, time @ ..] = *mark;
                (u64::from_le_bytes([a, b, c, d, e, f, g, h]), i64::from_le_bytes(time))
            })
            .collect();
        if !marks.is_sorted_by(|before, next| before.0 < next.0 && before.1 <= next.1) {
            return Err("its marks are not in order");
        }
        Ok(Self { from: u64::from_le_bytes(*from), marks })
    }

    /// Reads the file in `dir`.
    ///
    /// * `flushed`: the manifest's. Marks beyond it are of a flush that did not end; without a file,
    ///   nothing below it was recorded.
    pub(crate) fn read(fs: &dyn FileSystem, dir: &Path, flushed: u64) -> Result<Self, OpenError> {
        let path = dir.join(NAME);
        let size_max = FIXED_SIZE + MARKS_MAX * MARK_SIZE;
        let Some(bytes) = whole_file::read(fs, &path, size_max)? else {
            return Ok(Self::new(flushed));
        };
        let mut arrivals = Self::decode(&bytes).map_err(|reason| damaged(&path, reason))?;
        arrivals.marks.retain(|(end, _)| *end <= flushed);
        Ok(arrivals)
    }

    /// Replaces the file.
    pub(crate) fn write(&self, fs: &dyn FileSystem, dir: &Path) -> Result<(), Disk> {
        whole_file::replace(fs, dir, (NAME, NEW_NAME), &self.encode())
    }
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a failed index is a failed test")]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    #[test]
    fn arrivals_survive_and_no_flipped_bit_or_cut_of_them_passes() {
        let mut arrivals = Arrivals::new(7);
        arrivals.add(100, 5);
        arrivals.add(130, 9);
        let bytes = arrivals.encode();
        assert_eq!(Arrivals::decode(&bytes), Ok(arrivals));
        for place in 0..bytes.len() {
            assert!(Arrivals::decode(&bytes[..place]).is_err());
            for bit in 0..8 {
                let mut bytes = bytes.clone();
                bytes[place] ^= 1 << bit;
                assert!(Arrivals::decode(&bytes).is_err());
            }
        }
    }

    #[test]
    fn an_event_has_the_time_of_the_first_mark_beyond_it() {
        let mut arrivals = Arrivals::new(10);
        arrivals.add(20, 100);
        // The clock was set back, and the flush repeated.
        arrivals.add(30, 50);
        arrivals.add(30, 150);
        let of = |seq| arrivals.received_ns(seq);
        assert_eq!((of(9), of(10), of(19)), (None, Some(100), Some(100)));
        assert_eq!((of(20), of(29), of(30)), (Some(150), Some(150), Some(i64::MAX)));
    }

    #[test]
    fn a_year_of_marks_stays_within_a_fiftieth_of_the_age_and_never_early() {
        let mut arrivals = Arrivals::new(0);
        let count = 20_000_u64;
        let interval = 1_500 * SECOND;
        let time = |seq: u64| i64::try_from(seq).unwrap() * interval;
        (0..count).for_each(|seq| arrivals.add(seq + 1, time(seq)));
        assert!(arrivals.marks.len() <= MARKS_MAX);
        let now = time(count - 1);
        for seq in 0..count {
            let (known, age) = (arrivals.received_ns(seq).unwrap(), now - time(seq));
            assert!(known >= time(seq), "{seq}");
            assert!(known - time(seq) <= age / 50 + interval, "{seq}");
        }
    }
}
