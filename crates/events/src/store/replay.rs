//! Reading the log on opening: its files are read and decoded in parallel, and returned in order.
//!
//! Consecutive entries become one run, so that every event is copied once.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;

use forebay_log::{Log, Lsn};

use super::error::OpenError;
use super::options::Options;
use super::sealing::{Entries, Judged};
use crate::event::EventId;
use crate::format::entry::{self, BatchEntry};
use crate::format::leaf;
use crate::format::request::RequestNote;
use crate::format::system::{self, SystemEntry};
use crate::memory::{JOINED_SIZE_MAX, Run};
use crate::merkle::Hash;

/// Maximum number of events of a run of several entries: what one run is searched fast for.
const EVENTS_MAX: usize = 32_000;

/// A note of a request with the position of its entry; or why it does not count.
pub(super) type FoundNote = (Lsn, Result<RequestNote, &'static str>);

/// Consecutive entries of the log.
pub(super) struct Replayed {
    /// Position of the first entry, and of the one after the last.
    pub(super) lsns: Range<Lsn>,
    /// Their events.
    pub(super) run: Run,
    /// The hashes of their leaves, if their codes were compared.
    pub(super) hashes: Option<Vec<Hash>>,
    /// Their notes.
    pub(super) notes: Vec<FoundNote>,
    /// The store's own entries among the events, with their positions.
    pub(super) system: Vec<(u64, SystemEntry)>,
}

/// The limits of a run of several entries.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Maximum number of its events.
    pub(super) events: usize,
    /// Maximum size of its leaves, in bytes.
    pub(super) bytes: usize,
    /// No run extends over this position.
    pub(super) flushed_seq: u64,
}

impl Limits {
    /// Those that fit memory tables of these options.
    pub(super) fn of(options: &Options, flushed_seq: u64) -> Self {
        let events = options.memory_table_events.min(EVENTS_MAX);
        let bytes = options.memory_table_size.min(JOINED_SIZE_MAX);
        Self { events, bytes, flushed_seq }
    }
}

/// Calls `each` with every entry from position `from` on, in order.
///
/// # Errors
/// The log could not be read, an entry is not a batch, or what `each` returned.
pub(super) fn read(
    log: &Log,
    from: Lsn,
    (entries, limits): (Entries<'_>, Limits),
    each: &mut dyn FnMut(Replayed) -> Result<(), OpenError>,
) -> Result<(), OpenError> {
    let mut starts = vec![from];
    let segments = log.segments().map_err(OpenError::LogFiles)?;
    starts.extend(segments.iter().map(|segment| segment.base).filter(|base| *base > from));
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(starts.len());
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (send, receive) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let (send, starts, next, stop) = (send.clone(), &starts, &next, &stop);
            scope.spawn(move || {
                loop {
                    let piece = next.fetch_add(1, Ordering::Relaxed);
                    let Some(&start) = starts.get(piece) else { return };
                    let end = starts.get(piece + 1).copied().unwrap_or(Lsn(u64::MAX));
                    let read = piece_of(log, start..end, (entries, limits), stop);
                    // The receiver has stopped if an earlier piece failed.
                    if send.send((piece, read)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(send);
        let result = in_order(&receive, each);
        stop.store(true, Ordering::Relaxed);
        drop(receive);
        result
    })
}

/// Returns the pieces in order.
fn in_order(
    receive: &mpsc::Receiver<(usize, Result<Vec<Replayed>, OpenError>)>,
    each: &mut dyn FnMut(Replayed) -> Result<(), OpenError>,
) -> Result<(), OpenError> {
    let mut waiting = BTreeMap::new();
    let mut expected = 0;
    for (piece, read) in receive {
        waiting.insert(piece, read);
        while let Some(read) = waiting.remove(&expected) {
            read?.into_iter().try_for_each(&mut *each)?;
            expected += 1;
        }
    }
    Ok(())
}

/// The entries of a range of positions.
fn piece_of(
    log: &Log,
    range: Range<Lsn>,
    (entries, limits): (Entries<'_>, Limits),
    stop: &AtomicBool,
) -> Result<Vec<Replayed>, OpenError> {
    let mut replayed = Vec::new();
    let mut gathered: Option<Gathered> = None;
    let mut reader = log.reader(range.start);
    while let Some(found) = reader.next().map_err(OpenError::LogRead)? {
        if found.lsn >= range.end || stop.load(Ordering::Relaxed) {
            break;
        }
        let refused = |reason| OpenError::Entry { lsn: found.lsn.0, reason };
        let batch = entry::decode(found.payload).map_err(refused)?;
        let judged = entries.judge(found.lsn.0, &batch).map_err(refused)?;
        if let Some(full) = gathered.take_if(|gathered| !gathered.takes(&batch, &judged, limits)) {
            replayed.push(full.into_replayed());
        }
        let gathered =
            gathered.get_or_insert_with(|| Gathered::new(found.lsn, batch.first_seq, limits));
        gathered.add(found.lsn..found.next, &batch, judged).map_err(refused)?;
    }
    replayed.extend(gathered.map(Gathered::into_replayed));
    Ok(replayed)
}

/// Entries that become one run.
struct Gathered {
    lsns: Range<Lsn>,
    first_seq: u64,
    leaves: Vec<u8>,
    ends: Vec<u32>,
    ids: Vec<EventId>,
    timestamps_ns: Vec<i64>,
    /// Empty if codes were not compared.
    hashes: Vec<Hash>,
    notes: Vec<FoundNote>,
    system: Vec<(u64, SystemEntry)>,
}

impl Gathered {
    fn new(lsn: Lsn, first_seq: u64, limits: Limits) -> Self {
        // Memory is used only where it is written. Vectors that grow are copied.
        Self {
            lsns: lsn..lsn,
            first_seq,
            leaves: Vec::with_capacity(limits.bytes),
            ends: Vec::with_capacity(limits.events),
            ids: Vec::with_capacity(limits.events),
            timestamps_ns: Vec::with_capacity(limits.events),
            hashes: Vec::with_capacity(limits.events),
            notes: Vec::new(),
            system: Vec::new(),
        }
    }

    fn end_seq(&self) -> u64 {
        self.first_seq + self.ends.len() as u64
    }

    /// Whether an entry can be added.
    fn takes(&self, batch: &BatchEntry<'_>, judged: &Judged, limits: Limits) -> bool {
        if self.ends.is_empty() || batch.ends.is_empty() {
            return true;
        }
        batch.first_seq == self.end_seq()
            && batch.first_seq != limits.flushed_seq
            && judged.hashes.is_some() != self.hashes.is_empty()
            && self.ends.len() + batch.ends.len() <= limits.events
            && self.leaves.len() + batch.leaves.len() <= limits.bytes
    }

    /// Adds an entry that it [takes](Self::takes), with its leaves split.
    fn add(
        &mut self,
        lsns: Range<Lsn>,
        batch: &BatchEntry<'_>,
        judged: Judged,
    ) -> Result<(), &'static str> {
        let Judged { note, events, hashes } = judged;
        self.lsns.end = lsns.end;
        self.notes.extend(note.transpose().map(|note| (lsns.start, note)));
        events?;
        if self.ends.is_empty() {
            self.first_seq = batch.first_seq;
        }
        let base = u32::try_from(self.leaves.len()).map_err(|_| "its leaves are too large")?;
        let mut start = 0;
        for &end in &batch.ends {
            let bytes = batch.leaves.get(start..end as usize).ok_or("a leaf is truncated")?;
            let parts = leaf::split(bytes).map_err(|error| error.reason)?;
            if system::is_own(parts.tags) {
                let event = leaf::decode(bytes).ok();
                let entry = event.as_ref().and_then(SystemEntry::decode);
                self.system.extend(entry.map(|entry| (self.end_seq(), entry)));
            }
            self.ids.push(parts.id);
            self.timestamps_ns.push(parts.timestamp_ns);
            self.ends.push(base.checked_add(end).ok_or("its leaves are too large")?);
            start = end as usize;
        }
        self.leaves.extend_from_slice(batch.leaves);
        self.hashes.extend(hashes.unwrap_or_default());
        Ok(())
    }

    fn into_replayed(self) -> Replayed {
        let Self { lsns, first_seq, mut leaves, mut ends, mut ids, mut timestamps_ns, .. } = self;
        let mut hashes = self.hashes;
        leaves.shrink_to_fit();
        ends.shrink_to_fit();
        ids.shrink_to_fit();
        timestamps_ns.shrink_to_fit();
        hashes.shrink_to_fit();
        let hashes = Some(hashes).filter(|hashes| !hashes.is_empty());
        let run = Run::from_columns(first_seq, leaves, ends, ids, timestamps_ns);
        Replayed { lsns, run, hashes, notes: self.notes, system: self.system }
    }
}
