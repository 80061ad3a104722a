//! Snapshots: a file that holds every key as of a known position of the log.
//!
//! Nothing is blocked and nothing is forked: the keys are copied one range of hashes at a time
//! (`capture`), and each range records its own position. The file is written under a temporary
//! name. Before it is renamed, the log is put on stable storage up to the highest position in it.
//! Then all but the two newest snapshots are removed, and the log is trimmed below the lowest
//! position of the older one: each of the two leads to the data, together with the log.
//!
//! `docs/formats/cache-snapshot.md` describes every byte.

mod capture;
pub(crate) mod entry;
pub(crate) mod format;
mod large;
mod pace;
pub(crate) mod read;
pub(crate) mod take;
pub(crate) mod value;
pub(crate) mod write;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use forebay_log::Lsn;

use super::directory;
use super::error::{Disk, SnapshotError};
use super::journal::{Journal, Kept};
use super::ranges::Ranges;
use crate::store::Keyspace;
use capture::Buffers;
use format::{End, Header};
use pace::Pace;
use take::Taking;
use write::SnapshotWriter;

pub(crate) use capture::Sizes;

/// A complete snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SnapshotInfo {
    /// Its file.
    pub path: PathBuf,
    /// Its number; numbers grow from snapshot to snapshot.
    pub number: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Keys in it.
    pub keys: u64,
    /// When it was begun, in milliseconds since 1970.
    pub created_ms: u64,
    /// The lowest position of its ranges: recovery reads the log from there.
    pub lowest: Lsn,
    /// The highest position of its ranges.
    pub highest: Lsn,
}

/// Progress of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct SnapshotProgress {
    /// Databases completed, of [`DATABASES`](crate::store::DATABASES).
    pub databases: usize,
    /// Keys taken.
    pub keys: u64,
    /// Bytes of the file so far.
    pub bytes: u64,
}

/// Statistics of a snapshot.
#[derive(Debug)]
#[non_exhaustive]
pub struct SnapshotReport {
    /// The snapshot.
    pub info: SnapshotInfo,
    /// Its duration, syncing and trimming included.
    pub took: Duration,
    /// The longest time a shard's lock was held for it.
    pub longest_pause: Duration,
    /// The total time for which shards' locks were held for it.
    pub paused: Duration,
    /// Number of ranges of keys.
    pub ranges: u64,
    /// How often the copy of a large value was restarted because the value had changed.
    pub abandoned: u64,
    /// Bytes of log freed.
    pub log_freed: u64,
    /// Why the log was not trimmed, or an older snapshot not removed. The snapshot itself is
    /// complete.
    pub untidy: Option<SnapshotError>,
}

/// Takes a snapshot while commands run.
///
/// Memory: a few MiB, a compressed string's plain bytes, and the old value of a string while it is
/// written (one at a time; see `large`). Blocks until it is finished; call it on a dedicated
/// thread.
///
/// * `now_ms`: not later than the time of any command that runs from now on; keys that had expired
///   by then are left out.
/// * `cancel`: set it to abort soon.
/// * `progress`: called after every range and every piece of a large value, with no lock held.
///
/// # Errors
/// [`SnapshotError::Running`], [`SnapshotError::Cancelled`], [`SnapshotError::Torn`], or the
/// device's error. Nothing of the snapshot is left then.
pub fn snapshot(
    keyspace: &Keyspace,
    journal: &Journal,
    now_ms: u64,
    cancel: &AtomicBool,
    progress: &dyn Fn(&SnapshotProgress),
) -> Result<SnapshotReport, SnapshotError> {
    let mut kept = journal.kept.try_lock().ok_or(SnapshotError::Running)?;
    let started = Instant::now();
    let appended = journal.appended_bytes();
    let number = kept.next_number;
    kept.next_number += 1;
    let (path, unfinished) = journal.directory.snapshot(number);
    let header = Header {
        log_id: journal.log().id(),
        seed: keyspace.rules().seed(),
        number,
        created_ms: now_ms,
    };
    let taken = take(keyspace, journal, &header, cancel, progress);
    let report = taken.and_then(|taken| {
        // A key may have been taken between an incomplete change and this check; every later key is
        // taken after the change.
        if keyspace.is_torn() {
            return Err(SnapshotError::Torn);
        }
        publish(journal, taken, &header, (path, &unfinished))
    });
    match report {
        Ok(mut report) => {
            journal.note_snapshot(appended, report.info.bytes);
            let previous = kept.newest.replace(report.info.clone());
            let tidied = tidy(journal, &kept, previous.as_ref());
            match tidied {
                Ok(freed) => report.log_freed = freed,
                Err(error) => report.untidy = Some(error),
            }
            report.took = started.elapsed();
            Ok(report)
        }
        Err(error) => {
            journal.note_failure();
            // If the file cannot be removed now, the next opening removes it.
            journal.directory.remove(&unfinished).ok();
            Err(error)
        }
    }
}

/// Everything taken and written, except the end.
struct Taken {
    writer: SnapshotWriter,
    ranges: Ranges,
    report: SnapshotReport,
}

fn take(
    keyspace: &Keyspace,
    journal: &Journal,
    header: &Header,
    cancel: &AtomicBool,
    progress: &dyn Fn(&SnapshotProgress),
) -> Result<Taken, SnapshotError> {
    let directory = &journal.directory;
    let (path, unfinished) = directory.snapshot(header.number);
    let writer = SnapshotWriter::create(&*directory.fs, &unfinished, header);
    let mut taking = Taking {
        keyspace,
        log: journal.log(),
        front: &journal.front,
        now_ms: header.created_ms,
        sizes: journal.sizes,
        writer: writer.map_err(SnapshotError::Io)?,
        cancel,
        progress,
        so_far: SnapshotProgress::default(),
        ranges: Ranges::default(),
        pace: Pace::new(),
        abandoned: 0,
        buffers: Buffers::default(),
    };
    let reading = journal.front.begin();
    taking.run()?;
    drop(reading);
    let (lowest, highest) = taking.ranges.bounds();
    let info = SnapshotInfo {
        path,
        number: header.number,
        bytes: 0,
        keys: taking.so_far.keys,
        created_ms: header.created_ms,
        lowest,
        highest,
    };
    let report = SnapshotReport {
        info,
        took: Duration::ZERO,
        longest_pause: taking.pace.longest,
        paused: taking.pace.locked,
        ranges: taking.ranges.len(),
        abandoned: taking.abandoned,
        log_freed: 0,
        untidy: None,
    };
    Ok(Taken { writer: taking.writer, ranges: taking.ranges, report })
}

/// Renames the snapshot once it and the log up to its position are on stable storage.
fn publish(
    journal: &Journal,
    taken: Taken,
    header: &Header,
    (path, unfinished): (PathBuf, &PathBuf),
) -> Result<SnapshotReport, SnapshotError> {
    let Taken { writer, ranges, mut report } = taken;
    let (lowest, highest) = ranges.bounds();
    let (ranges, keys) = (ranges.len(), report.info.keys);
    let end = End { blocks: 0, ranges, keys, lowest, highest };
    report.info.bytes = writer.finish(end).map_err(SnapshotError::Io)?;
    debug_assert_eq!(header.number, report.info.number, "one snapshot at a time");
    journal.log().sync_to(highest).map_err(|source| SnapshotError::Log { source })?;
    let fs = &*journal.directory.fs;
    let io = |act, path: &PathBuf| {
        let path = path.clone();
        move |source| SnapshotError::Io(Disk::new(act, path, source))
    };
    fs.rename(unfinished, &path).map_err(io("rename a file to snapshot", &path))?;
    let dir = directory::snapshots_dir(journal.directory.path());
    fs.sync_dir(&dir).map_err(io("sync directory", &dir))?;
    Ok(report)
}

/// Removes what neither of the two newest snapshots needs; returns the bytes of log freed.
fn tidy(
    journal: &Journal,
    kept: &Kept,
    previous: Option<&SnapshotInfo>,
) -> Result<u64, SnapshotError> {
    let directory = &journal.directory;
    let (found, _) =
        directory::list(&*directory.fs, directory.path()).map_err(SnapshotError::Io)?;
    let is_kept = |number: u64| {
        let newest = kept.newest.as_ref();
        newest.into_iter().chain(previous).any(|info| info.number == number)
    };
    for (number, path) in found {
        if !is_kept(number) {
            directory.remove(&path).map_err(SnapshotError::Io)?;
        }
    }
    let Some(previous) = previous else { return Ok(0) };
    let trimmed = journal.log().truncate_before(previous.lowest);
    trimmed.map_err(|source| SnapshotError::Trim { source })
}

#[cfg(test)]
mod tests;
