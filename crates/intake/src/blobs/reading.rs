//! Reading blobs from packs: through the cache, with requests that grow while a reader goes on.
//!
//! Invariants: what is returned may come from a damaged cache, and is compared with its checksums by
//! [`BlockReader`](crate::blocks::BlockReader), which has doubtful extents read again; the number of requests at
//! the same time is limited; a pack that a blob is open in is not removed.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

use super::cache::{EXTENT_SIZE, Extent};
use super::index::Place;
use super::pack::PackId;
use super::remote::Remote;
use super::storage::StorageError;

/// Extents that are requested at once at first.
const AHEAD_MIN: u64 = 8;
/// Maximum number of extents that are requested at once.
const AHEAD_MAX: u64 = 32;
/// How long a read waits for its turn.
const TURN_WAIT: Duration = Duration::from_secs(10);

/// How many readers have each pack open.
pub(crate) type Users = Mutex<HashMap<PackId, usize>>;

/// A blob in a pack, open for reading.
#[derive(Debug)]
pub(crate) struct RemoteBlob {
    remote: Arc<Remote>,
    place: Place,
    ahead: Mutex<Ahead>,
}

/// What a reader that goes on in sequence will ask for.
#[derive(Debug, Default, Clone, Copy)]
struct Ahead {
    /// The extent after the last request.
    next: u64,
    count: u64,
}

impl RemoteBlob {
    /// A blob whose pack was noted as used.
    pub(crate) fn new(remote: Arc<Remote>, place: Place) -> Self {
        Self { remote, place, ahead: Mutex::default() }
    }

    /// Number of the bytes of the blob.
    pub(crate) fn size(&self) -> u64 {
        self.place.member.size
    }

    /// Where it is, for messages.
    pub(crate) fn name(&self) -> String {
        let Place { pack, member, .. } = self.place;
        format!("{}/{pack} at {}", self.remote.storage().url(), member.offset)
    }

    /// Reads from the blob file. Blocks.
    pub(crate) fn read_exact_at(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        let range = self.range(at, buf.len() as u64)?;
        let mut rest = buf;
        let mut at = range.start;
        while at < range.end {
            let number = at / EXTENT_SIZE;
            let bytes = match self.remote.cache.get(self.extent(number)) {
                Some(bytes) => {
                    super::meters::cache_read(true);
                    Bytes::from(bytes)
                }
                None => {
                    super::meters::cache_read(false);
                    self.fetch(number, (range.end - 1) / EXTENT_SIZE)?
                }
            };
            let skipped = usize::try_from(at - number * EXTENT_SIZE).unwrap_or(usize::MAX);
            let found = bytes.get(skipped..).unwrap_or_default();
            if found.is_empty() {
                let text = "the pack is shorter than the index of blobs says";
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            }
            let (now, later) = rest.split_at_mut(found.len().min(rest.len()));
            now.copy_from_slice(found.get(..now.len()).unwrap_or_default());
            at += now.len() as u64;
            rest = later;
        }
        Ok(())
    }

    /// Drops what the cache has of this part of the blob file. Returns whether it had any.
    pub(crate) fn doubt(&self, at: u64, len: u64) -> bool {
        let Ok(range) = self.range(at, len) else { return false };
        let extents = range.start / EXTENT_SIZE..=range.end.saturating_sub(1) / EXTENT_SIZE;
        let dropped = extents.filter(|number| self.remote.cache.forget(self.extent(*number)));
        dropped.count() > 0
    }

    fn extent(&self, number: u64) -> Extent {
        Extent { pack: self.place.pack, number }
    }

    /// The part of the pack that is a part of the blob file.
    fn range(&self, at: u64, len: u64) -> io::Result<Range<u64>> {
        let member = self.place.member;
        let end = at.checked_add(len).filter(|end| *end <= member.len());
        let end = end.and_then(|end| member.offset.checked_add(end));
        match end {
            Some(end) if end <= self.place.pack_size => Ok(member.offset + at..end),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Requests extents from `first` to at least `last`, and caches them.
    fn fetch(&self, first: u64, last: u64) -> io::Result<Bytes> {
        let Place { pack, pack_size, member } = self.place;
        let of_blob = (member.offset + member.len()).div_ceil(EXTENT_SIZE);
        let count = {
            let mut ahead = self.ahead.lock();
            let goes_on = ahead.next == first && ahead.count > 0;
            let count = if goes_on { (ahead.count * 2).min(AHEAD_MAX) } else { AHEAD_MIN };
            let count = count.max(last + 1 - first).min(of_blob.saturating_sub(first)).max(1);
            // The checksums at the end of a large blob are read between its parts.
            if first < of_blob.saturating_sub(AHEAD_MIN) || of_blob <= AHEAD_MAX {
                *ahead = Ahead { next: first + count, count };
            }
            count
        };
        let start = first * EXTENT_SIZE;
        let end = ((first + count) * EXTENT_SIZE).min(pack_size);
        let remote = &self.remote;
        let bytes = {
            let _turn = remote.reads.acquire(TURN_WAIT)?;
            let asked = Instant::now();
            let read = match remote.storage().read(&pack.name(), start..end) {
                // One object that cannot be read, for example since it is shorter, is not a bucket that is away.
                Err(StorageError::Refused { reason }) => Err(StorageError::Refused { reason }),
                read => remote.noted(read),
            };
            super::meters::fetched(end - start, asked.elapsed(), read.is_ok());
            read?
        };
        if bytes.len() as u64 != end - start {
            let text = format!("{pack} has {} of the bytes {start}..{end}", bytes.len());
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        remote.keep_in_cache(pack, &bytes, first);
        Ok(bytes)
    }
}

impl Drop for RemoteBlob {
    fn drop(&mut self) {
        let mut users = self.remote.users.lock();
        if let Some(count) = users.get_mut(&self.place.pack) {
            *count -= 1;
            if *count == 0 {
                users.remove(&self.place.pack);
            }
        }
    }
}

/// A number of requests at the same time, for threads that block.
#[derive(Debug)]
pub(crate) struct Permits {
    free: Mutex<usize>,
    freed: Condvar,
}

/// A request that is in progress.
#[derive(Debug)]
pub(crate) struct Turn<'a>(&'a Permits);

impl Permits {
    pub(crate) fn new(count: usize) -> Self {
        Self { free: Mutex::new(count), freed: Condvar::new() }
    }

    /// Waits for a turn.
    ///
    /// # Errors
    /// [`StorageError::Away`]: none came in time.
    pub(crate) fn acquire(&self, limit: Duration) -> Result<Turn<'_>, StorageError> {
        let deadline = Instant::now() + limit;
        let mut free = self.free.lock();
        while *free == 0 {
            if self.freed.wait_until(&mut free, deadline).timed_out() && *free == 0 {
                let reason = "too many reads wait for object storage".to_owned();
                return Err(StorageError::Away { reason });
            }
        }
        *free -= 1;
        Ok(Turn(self))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.free.lock() += 1;
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_that_gets_no_turn_in_time_is_refused_and_a_turn_is_given_back() {
        let permits = Permits::new(1);
        let turn = permits.acquire(Duration::ZERO).unwrap();
        assert!(matches!(permits.acquire(Duration::ZERO), Err(StorageError::Away { .. })));
        drop(turn);
        assert!(permits.acquire(Duration::ZERO).is_ok());
    }
}
