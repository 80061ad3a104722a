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
//! - Of a store with a key the file has a code (`seal`), and a generation that the manifest has too.
//!   If another wrote it, removed it, or put an older one in its place, its notes are forgotten: what
//!   is sent again may be stored twice, but is never answered as stored although it is not.

#![deny(clippy::indexing_slicing)]

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::path::Path;
use std::time::Duration;

use forebay_base::fs::FileSystem;
use forebay_log::Lsn;

use super::error::{Disk, OpenError};
use super::seal::{Kind, SEAL_SIZE, SHORT, Sealer, checked, unchecked};
use super::whole_file::{self, damaged};
use crate::format::request::{RequestKey, RequestNote};

const MAGIC: &[u8; 8] = b"FBEVREQ2";
/// Without generation and code: of a store without proofs, or of an earlier version.
const MAGIC_1: &[u8; 8] = b"FBEVREQ1";
pub(crate) const NAME: &str = "requests";
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
    /// That of the file, which grows with each one that is written; 0 without a file.
    generation: u64,
}

impl Requests {
    /// Those of a store whose file is not used: the next one has a generation above the last.
    pub(crate) fn after(generation: u64) -> Self {
        Self { generation, changed: true, ..Self::default() }
    }

    /// The generation of the newest file.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

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

    fn encode(&self, generation: u64, sealer: Option<Sealer<'_>>) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.size + self.notes.len() * 4 + 16 + SEAL_SIZE);
        if sealer.is_some() {
            out.extend_from_slice(MAGIC);
            out.extend_from_slice(&generation.to_le_bytes());
        } else {
            out.extend_from_slice(MAGIC_1);
        }
        for (_, key) in &self.by_time {
            let Some(note) = self.notes.get(key) else { continue };
            let bytes = note.encode();
            out.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(0).to_le_bytes());
            out.extend_from_slice(&bytes);
        }
        match sealer {
            Some(sealer) => sealer.seal(Kind::Requests, out),
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
        let (magic, old) = bytes.split_first_chunk::<8>().ok_or(SHORT)?;
        let mut requests = Self::default();
        let mut rest = match sealer {
            Some(sealer) if magic == MAGIC => {
                let body = sealer.unseal(Kind::Requests, bytes)?.get(8..).ok_or(SHORT)?;
                let (generation, notes) = body.split_first_chunk::<8>().ok_or(SHORT)?;
                requests.generation = u64::from_le_bytes(*generation);
                notes
            }
            _ if magic == MAGIC_1 && sealed => return Err("it is of an earlier version"),
            _ if magic == MAGIC_1 => old,
            _ => return Err("it has another format or version"),
        };
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

    /// Reads the file in `dir`; without one there are no notes. Of a store whose files have codes,
    /// the inner error is why the file is not used.
    ///
    /// * `generation`: the manifest's.
    /// * `sealer`: of a store with a key.
    /// * `sealed`: whether its files must have codes.
    ///
    /// # Errors
    /// The device failed; without codes also: the file is damaged.
    pub(crate) fn read(
        fs: &dyn FileSystem,
        dir: &Path,
        generation: u64,
        sealer: Option<Sealer<'_>>,
        sealed: bool,
    ) -> Result<Result<Self, &'static str>, OpenError> {
        let path = dir.join(NAME);
        let size_max = SIZE_MAX + NOTES_MAX * 4 + 16 + SEAL_SIZE;
        let read = match whole_file::read_within(fs, &path, size_max)? {
            Ok(Some(bytes)) => Self::decode(&bytes, sealer, sealed),
            Ok(None) if sealed && generation > 0 => Err("it is missing"),
            Ok(None) => return Ok(Ok(Self::default())),
            Err(reason) => Err(reason),
        };
        match read {
            Ok(found) if sealed && found.generation < generation => {
                Ok(Err("it is an older one: the manifest states a later generation"))
            }
            Ok(requests) => Ok(Ok(requests)),
            Err(reason) if sealed => Ok(Err(reason)),
            Err(reason) => Err(damaged(&path, reason)),
        }
    }

    /// Replaces the file, if there is something to write.
    ///
    /// * `sealer`: of a store whose files have codes.
    pub(crate) fn write(
        &mut self,
        fs: &dyn FileSystem,
        dir: &Path,
        (now_ns, window): (i64, Duration),
        sealer: Option<Sealer<'_>>,
    ) -> Result<(), Disk> {
        if !self.changed {
            return Ok(());
        }
        self.expire(now_ns, window);
        let generation = self.generation + u64::from(sealer.is_some());
        let bytes = self.encode(generation, sealer);
        whole_file::replace(fs, dir, (NAME, NEW_NAME), &bytes)?;
        (self.changed, self.generation) = (false, generation);
        Ok(())
    }

    /// Has the file written again although no note is new, unless there are none.
    pub(crate) fn rewrite(&mut self) {
        self.changed |= !self.notes.is_empty();
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
    use crate::checkpoint::SigningKey;
    use crate::format::request::Tally;
    use crate::store::seal::FileKey;

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
        let key = FileKey::of(&SigningKey::from_seed("o", [1; 32]).unwrap());
        let own = Sealer { key: &key, log_id: &[2; 16] };
        let mut requests = Requests::default();
        (0..3).for_each(|number| requests.add(note(number, 9, 2)));
        for sealer in [None, Some(own)] {
            let sealed = sealer.is_some();
            let bytes = requests.encode(8, sealer);
            let read = Requests::decode(&bytes, sealer, sealed).unwrap();
            assert_eq!((&read.notes, read.generation), (&requests.notes, u64::from(sealed) * 8));
            for place in 0..bytes.len() {
                assert!(Requests::decode(&bytes[..place], sealer, sealed).is_err());
                let mut bytes = bytes.clone();
                bytes[place] ^= 1;
                assert!(Requests::decode(&bytes, sealer, sealed).is_err());
            }
        }
        let old = requests.encode(8, None);
        assert!(Requests::decode(&old, Some(own), false).is_ok());
        assert!(Requests::decode(&old, Some(own), true).is_err());
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
