//! Reading the log on opening: its files are read and decoded in parallel, and returned in order.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;

use forebay_log::{Log, Lsn};

use super::error::OpenError;
use super::sealing::{Entries, Judged};
use crate::format::request::RequestNote;
use crate::format::{entry, leaf};
use crate::memory::Run;

/// An entry of the log.
pub(super) struct Replayed {
    /// Its position, and that of the next one.
    pub(super) lsn: Lsn,
    pub(super) next: Lsn,
    /// Its events.
    pub(super) run: Run,
    /// The note of a request, or why it does not count.
    pub(super) note: Result<Option<RequestNote>, &'static str>,
}

/// Calls `each` with every batch from position `from` on, in order.
///
/// # Errors
/// The log could not be read, an entry is not a batch, or what `each` returned.
pub(super) fn read(
    log: &Log,
    from: Lsn,
    entries: Entries<'_>,
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
                    let end = starts.get(piece + 1).copied();
                    let read = piece_of(log, start..end.unwrap_or(Lsn(u64::MAX)), entries, stop);
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
    entries: Entries<'_>,
    stop: &AtomicBool,
) -> Result<Vec<Replayed>, OpenError> {
    let mut replayed = Vec::new();
    let mut reader = log.reader(range.start);
    while let Some(found) = reader.next().map_err(OpenError::LogRead)? {
        if found.lsn >= range.end || stop.load(Ordering::Relaxed) {
            break;
        }
        let (run, note) = run_of(found.lsn, found.payload, entries)
            .map_err(|reason| OpenError::Entry { lsn: found.lsn.0, reason })?;
        replayed.push(Replayed { lsn: found.lsn, next: found.next, run, note });
    }
    Ok(replayed)
}

/// Decodes a log entry as a run with its leaves split.
fn run_of(
    lsn: Lsn,
    payload: &[u8],
    entries: Entries<'_>,
) -> Result<(Run, Result<Option<RequestNote>, &'static str>), &'static str> {
    let batch = entry::decode(payload)?;
    let Judged { note, events } = entries.judge(lsn.0, &batch)?;
    events?;
    let mut ids = Vec::with_capacity(batch.ends.len());
    let mut timestamps_ns = Vec::with_capacity(batch.ends.len());
    let mut start = 0;
    for &end in &batch.ends {
        let bytes = batch.leaves.get(start..end as usize).ok_or("a leaf is truncated")?;
        let parts = leaf::split(bytes).map_err(|error| error.reason)?;
        ids.push(parts.id);
        timestamps_ns.push(parts.timestamp_ns);
        start = end as usize;
    }
    let leaves = batch.leaves.to_vec();
    Ok((Run::from_columns(batch.first_seq, leaves, batch.ends, ids, timestamps_ns), note))
}
