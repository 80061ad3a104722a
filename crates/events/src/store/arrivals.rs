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
//! - Of a store with a key it has a code (`seal`). If another wrote it, removed it, or put an older
//!   one in its place, it is not used: then what is stored counts as arrived now.

#![deny(clippy::indexing_slicing)]

use std::path::Path;

use forebay_base::fs::FileSystem;

use super::error::{Disk, OpenError};
use super::seal::{Kind, SEAL_SIZE, SHORT, Sealer, checked, unchecked};
use super::whole_file::{self, damaged};

const MAGIC: &[u8; 8] = b"FBEVARR2";
/// Without a code: of a store without proofs, or of an earlier version.
const MAGIC_1: &[u8; 8] = b"FBEVARR1";
pub(crate) const NAME: &str = "arrivals";
const NEW_NAME: &str = "arrivals.new";
/// Magic, first position, number of marks, code and checksum.
const FIXED_SIZE: usize = 8 + 8 + 4 + SEAL_SIZE;
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

    /// Those of a store whose events below `end` had arrived at a time, as far as is known.
    pub(crate) fn before(end: u64, time_ns: i64) -> Self {
        let marks = if end > 0 { vec![(end, time_ns)] } else { Vec::new() };
        Self { from: 0, marks }
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

    /// * `sealer`: of a store whose files have codes.
    fn encode(&self, sealer: Option<Sealer<'_>>) -> Vec<u8> {
        let mut out = Vec::with_capacity(FIXED_SIZE + self.marks.len() * MARK_SIZE);
        out.extend_from_slice(if sealer.is_some() { MAGIC } else { MAGIC_1 });
        out.extend_from_slice(&self.from.to_le_bytes());
        let count = u32::try_from(self.marks.len()).unwrap_or(u32::MAX);
        out.extend_from_slice(&count.to_le_bytes());
        for (end, time) in &self.marks {
            out.extend_from_slice(&end.to_le_bytes());
            out.extend_from_slice(&time.to_le_bytes());
        }
        match sealer {
            Some(sealer) => sealer.seal(Kind::Arrivals, out),
            None => checked(out),
        }
    }

    /// * `sealer`: of a store with a key.
    /// * `sealed`: whether the file must have a code.
    fn decode(
        bytes: &[u8],
        sealer: Option<Sealer<'_>>,
        sealed: bool,
    ) -> Result<Self, &'static str> {
        let bytes = unchecked(bytes)?;
        let magic = bytes.first_chunk::<8>().ok_or(SHORT)?;
        let bytes = match sealer {
            Some(sealer) if magic == MAGIC => sealer.unseal(Kind::Arrivals, bytes)?,
            _ if magic == MAGIC_1 && sealed => return Err("it is of an earlier version"),
            _ if magic == MAGIC_1 => bytes,
            _ => return Err("it has another format or version"),
        };
        let (_, rest) = bytes.split_first_chunk::<8>().ok_or(SHORT)?;
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

    /// The position below which arrivals are known, or were not recorded.
    fn end(&self) -> u64 {
        self.marks.last().map_or(self.from, |(end, _)| *end).max(self.from)
    }

    /// Reads the file in `dir`; of a store whose files have codes, the inner error is why the file
    /// is not used.
    ///
    /// * `flushed`: the manifest's. Marks beyond it are of a flush that did not end; in a store
    ///   without codes and without a file, nothing below it was recorded.
    /// * `sealer`: of a store with a key.
    /// * `sealed`: whether its files must have codes.
    ///
    /// # Errors
    /// The device failed; without codes also: the file is damaged.
    pub(crate) fn read(
        fs: &dyn FileSystem,
        dir: &Path,
        flushed: u64,
        sealer: Option<Sealer<'_>>,
        sealed: bool,
    ) -> Result<Result<Self, &'static str>, OpenError> {
        let path = dir.join(NAME);
        let size_max = FIXED_SIZE + MARKS_MAX * MARK_SIZE;
        let read = match whole_file::read_within(fs, &path, size_max)? {
            Ok(Some(bytes)) => Self::decode(&bytes, sealer, sealed),
            Ok(None) if sealed && flushed > 0 => Err("it is missing"),
            Ok(None) => return Ok(Ok(Self::new(flushed))),
            Err(reason) => Err(reason),
        };
        match read {
            Ok(found) if sealed && found.end() < flushed => {
                Ok(Err("it is an older one: arrivals of the newest segments are missing in it"))
            }
            Ok(mut arrivals) => {
                arrivals.marks.retain(|(end, _)| *end <= flushed);
                Ok(Ok(arrivals))
            }
            Err(reason) if sealed => Ok(Err(reason)),
            Err(reason) => Err(damaged(&path, reason)),
        }
    }

    /// Replaces the file.
    ///
    /// * `sealer`: of a store whose files have codes.
    pub(crate) fn write(
        &self,
        fs: &dyn FileSystem,
        dir: &Path,
        sealer: Option<Sealer<'_>>,
    ) -> Result<(), Disk> {
        whole_file::replace(fs, dir, (NAME, NEW_NAME), &self.encode(sealer))
    }
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a failed index is a failed test")]
mod tests {
    use super::*;
    use crate::checkpoint::SigningKey;
    use crate::store::seal::FileKey;

    const SECOND: i64 = 1_000_000_000;

    #[test]
    fn arrivals_survive_and_no_flipped_bit_or_cut_of_them_passes() {
        let key = FileKey::of(&SigningKey::from_seed("o", [1; 32]).unwrap());
        let sealer = Sealer { key: &key, log_id: &[2; 16] };
        let mut arrivals = Arrivals::new(7);
        arrivals.add(100, 5);
        arrivals.add(130, 9);
        for sealer in [None, Some(sealer)] {
            let sealed = sealer.is_some();
            let bytes = arrivals.encode(sealer);
            assert_eq!(Arrivals::decode(&bytes, sealer, sealed), Ok(arrivals.clone()));
            for place in 0..bytes.len() {
                assert!(Arrivals::decode(&bytes[..place], sealer, sealed).is_err());
                for bit in 0..8 {
                    let mut bytes = bytes.clone();
                    bytes[place] ^= 1 << bit;
                    assert!(Arrivals::decode(&bytes, sealer, sealed).is_err());
                }
            }
        }
        // One of version 1 is read until the store's files have codes.
        let old = arrivals.encode(None);
        assert_eq!(Arrivals::decode(&old, Some(sealer), false), Ok(arrivals));
        assert!(Arrivals::decode(&old, Some(sealer), true).is_err());
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
