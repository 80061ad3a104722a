//! Requests with a key, so that one that is sent again is not stored again
//! (`docs/formats/event-log.md`).
//!
//! A note of how far a request was stored is in the log entry of the events with which that became
//! true, so both survive a crash or neither. Before the log is truncated, the notes are written to
//! the file `requests`, which is replaced whole.
//!
//! Invariants:
//! - A note is believed only once its log entry is committed: one that the log lost is dropped.
//! - Notes are forgotten after a time, and the oldest when there are many: memory is limited.

#![deny(clippy::indexing_slicing)]

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::path::Path;
use std::time::Duration;

use forebay_base::checksum::crc32c;
use forebay_base::fs::FileSystem;
use forebay_log::Lsn;

use super::error::{Disk, OpenError};
use super::whole_file::{self, damaged};
use crate::format::request::{RequestKey, RequestNote};

const MAGIC: &[u8; 8] = b"FBEVREQ1";
const NAME: &str = "requests";
const NEW_NAME: &str = "requests.new";
/// Maximum number of notes.
const NOTES_MAX: usize = 32_768;
/// Maximum size of all notes in bytes.
const SIZE_MAX: usize = 16 << 20;

/// The notes.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    notes: HashMap<RequestKey, RequestNote>,
    /// By age, the oldest first.
    by_time: BTreeSet<(i64, RequestKey)>,
    size: usize,
    /// Notes whose log entries, which end there, are not committed yet.
    pending: VecDeque<(Lsn, RequestNote)>,
    /// Whether there are notes that the file does not have.
    changed: bool,
}

impl Requests {
    /// The note of a request, unless it is older than `window`.
    pub(crate) fn get(
        &self,
        key: RequestKey,
        now_ns: i64,
        window: Duration,
    ) -> Option<&RequestNote> {
        self.notes.get(&key).filter(|note| note.time_ns >= horizon_ns(now_ns, window))
    }

    /// Adds the note of a log entry that ends at `end`.
    pub(crate) fn submit(&mut self, end: Lsn, note: RequestNote) {
        self.pending.push_back((end, note));
    }

    /// Believes the notes of log entries up to `end`, which are committed.
    pub(crate) fn commit(&mut self, end: Lsn) {
        while let Some((at, _)) = self.pending.front()
            && *at <= end
        {
            if let Some((_, note)) = self.pending.pop_front() {
                self.add(note);
            }
        }
    }

    /// Drops the notes of log entries that were lost.
    pub(crate) fn forget_pending(&mut self) {
        self.pending.clear();
    }

    /// Adds a note of a committed entry; it replaces an earlier one of its request.
    pub(crate) fn add(&mut self, note: RequestNote) {
        self.remove(note.key);
        self.size += note.size();
        self.by_time.insert((note.time_ns, note.key));
        self.notes.insert(note.key, note);
        self.changed = true;
        while self.notes.len() > NOTES_MAX || self.size > SIZE_MAX {
            let Some((_, oldest)) = self.by_time.first().copied() else { return };
            self.remove(oldest);
        }
    }

    fn remove(&mut self, key: RequestKey) {
        if let Some(old) = self.notes.remove(&key) {
            self.size -= old.size();
            self.by_time.remove(&(old.time_ns, key));
        }
    }

    /// Forgets notes that are older than `window`.
    fn expire(&mut self, now_ns: i64, window: Duration) {
        let horizon = horizon_ns(now_ns, window);
        while let Some((time, key)) = self.by_time.first().copied()
            && time < horizon
        {
            self.remove(key);
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.size + self.notes.len() * 4 + 16);
        out.extend_from_slice(MAGIC);
        for (_, key) in &self.by_time {
            let Some(note) = self.notes.get(key) else { continue };
            let bytes = note.encode();
            out.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(0).to_le_bytes());
            out.extend_from_slice(&bytes);
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
        let mut rest = bytes.strip_prefix(MAGIC).ok_or("it has another format or version")?;
        let mut requests = Self::default();
        while let Some((size, after)) = rest.split_first_chunk::<4>() {
            let size = u32::from_le_bytes(*size) as usize;
            let (note, after) = after.split_at_checked(size).ok_or("a note is truncated")?;
            requests.add(RequestNote::decode(note)?);
            rest = after;
        }
        if !rest.is_empty() {
            return Err("bytes follow its last note");
        }
        requests.changed = false;
        Ok(requests)
    }

    /// Reads the file in `dir`; without one there are no notes.
    pub(crate) fn read(fs: &dyn FileSystem, dir: &Path) -> Result<Self, OpenError> {
        let path = dir.join(NAME);
        let size_max = SIZE_MAX + NOTES_MAX * 4 + 16;
        let Some(bytes) = whole_file::read(fs, &path, size_max)? else {
            return Ok(Self::default());
        };
        Self::decode(&bytes).map_err(|reason| damaged(&path, reason))
    }

    /// Replaces the file, if there is something to write.
    pub(crate) fn write(
        &mut self,
        fs: &dyn FileSystem,
        dir: &Path,
        now_ns: i64,
        window: Duration,
    ) -> Result<(), Disk> {
        if !self.changed {
            return Ok(());
        }
        self.expire(now_ns, window);
        whole_file::replace(fs, dir, (NAME, NEW_NAME), &self.encode())?;
        self.changed = false;
        Ok(())
    }
}

/// The time before which requests are forgotten.
fn horizon_ns(now_ns: i64, window: Duration) -> i64 {
    now_ns.saturating_sub(i64::try_from(window.as_nanos()).unwrap_or(i64::MAX))
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a failed index is a failed test")]
mod tests {
    use super::*;
    use crate::format::request::Tally;

    fn note(number: u64, time_ns: i64, answer: usize) -> RequestNote {
        RequestNote {
            key: RequestKey::of(&number.to_le_bytes()),
            time_ns,
            items: number,
            hash: [1; 16],
            tally: Tally::default(),
            answer: Some((200, vec![b'x'; answer])),
        }
    }

    #[test]
    fn notes_survive_and_no_flipped_bit_or_cut_of_them_passes() {
        let mut requests = Requests::default();
        (0..3).for_each(|number| requests.add(note(number, 9, 2)));
        let bytes = requests.encode();
        assert_eq!(Requests::decode(&bytes).unwrap().notes, requests.notes);
        for place in 0..bytes.len() {
            assert!(Requests::decode(&bytes[..place]).is_err());
            let mut bytes = bytes.clone();
            bytes[place] ^= 1;
            assert!(Requests::decode(&bytes).is_err());
        }
    }

    #[test]
    fn the_oldest_are_forgotten_when_there_are_many_or_large_ones() {
        let mut requests = Requests::default();
        let count = NOTES_MAX as u64 + 10;
        (0..count).for_each(|number| requests.add(note(number, number as i64, 0)));
        let has = |requests: &Requests, number: u64| {
            requests.notes.contains_key(&RequestKey::of(&number.to_le_bytes()))
        };
        assert_eq!(requests.notes.len(), NOTES_MAX);
        assert!(!has(&requests, 9) && has(&requests, 10));
        (0..2_000).for_each(|number| requests.add(note(count + number, i64::MAX, 16 << 10)));
        assert!(requests.size <= SIZE_MAX && requests.notes.len() == requests.by_time.len());
        let sum: usize = requests.notes.values().map(RequestNote::size).sum();
        assert_eq!(sum, requests.size);
    }

    #[test]
    fn a_note_counts_from_its_commit_until_its_window_has_passed() {
        let mut requests = Requests::default();
        let window = Duration::from_nanos(100);
        let key = note(1, 0, 0).key;
        requests.submit(Lsn(10), note(1, 50, 0));
        requests.submit(Lsn(20), note(2, 50, 0));
        assert!(requests.get(key, 60, window).is_none());
        requests.commit(Lsn(10));
        assert!(requests.get(key, 150, window).is_some());
        assert!(requests.get(key, 151, window).is_none());
        requests.forget_pending();
        requests.commit(Lsn(30));
        assert_eq!(requests.notes.len(), 1);
    }
}
