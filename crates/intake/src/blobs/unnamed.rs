//! Blobs that the bucket may have and no entry names: their put was refused after they were sent, or its client
//! has left. A pass that frees space looks at them later; what it never looked at, the next start does.
//!
//! Invariants: a blob leaves the list only when it was named, counted out, or noted for the next start; the list
//! is limited.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::catalogue::BlobLocation;
use crate::digest::Digest;
use crate::reclaim::ReclaimError;
use crate::shared::Shared;

/// How long after its put a blob is looked at: most of what is on its way has arrived then.
const LOOKED_AT_AFTER: Duration = Duration::from_secs(300);
/// How long a blob may take to arrive. One that has not by then is left to the next start.
const ARRIVES_WITHIN: Duration = Duration::from_secs(6 * 3_600);
/// Maximum number of blobs in the list. More are left to the next start.
const COUNT_MAX: usize = 10_000;

/// The list.
#[derive(Debug, Default)]
pub(crate) struct Unnamed(Mutex<Noted>);

#[derive(Debug, Default)]
struct Noted {
    /// Blobs, and when they were noted.
    digests: HashMap<Digest, Instant>,
    /// Blobs were left to the next start.
    is_left: bool,
}

impl Unnamed {
    /// Notes a blob that was sent, or is on its way.
    pub(crate) fn note(&self, digest: Digest) {
        self.note_at(digest, Instant::now());
    }

    fn note_at(&self, digest: Digest, at: Instant) {
        let mut noted = self.0.lock();
        if noted.digests.len() < COUNT_MAX || noted.digests.contains_key(&digest) {
            noted.digests.insert(digest, at);
        } else {
            noted.is_left = true;
        }
    }

    /// Whether the next start has to look for blobs without names.
    pub(crate) fn is_left(&self) -> bool {
        let noted = self.0.lock();
        noted.is_left || !noted.digests.is_empty()
    }

    /// Takes the blobs out of the list that were noted at least `age` ago.
    fn take(&self, age: Duration) -> Vec<(Digest, Instant)> {
        let due = |at: &Instant| at.elapsed() >= age;
        self.0.lock().digests.extract_if(|_, at| due(at)).collect()
    }

    fn leave(&self) {
        self.0.lock().is_left = true;
    }
}

/// Counts out the blobs of the list that no entry names. Runs on the applier's thread.
pub(crate) fn sweep_unnamed(shared: &Shared) -> Result<(), ReclaimError> {
    sweep(shared, LOOKED_AT_AFTER)
}

pub(super) fn sweep(shared: &Shared, age: Duration) -> Result<(), ReclaimError> {
    let Some(remote) = shared.blobs.written_remote() else { return Ok(()) };
    let due = remote.unnamed.take(age);
    if due.is_empty() {
        return Ok(());
    }
    // No put may begin to store one of them meanwhile.
    let _no_upload = shared.reclaim.lock();
    let mut doomed = Vec::new();
    let swept = due.iter().try_for_each(|(digest, at)| {
        if remote.index.find(*digest)?.is_none() {
            // It may still arrive.
            match at.elapsed() < ARRIVES_WITHIN {
                true => remote.unnamed.note_at(*digest, *at),
                false => remote.unnamed.leave(),
            }
            return Ok(());
        }
        // One that is pinned is looked at again: its put may be refused too.
        if !shared.pending.lock().doom(*digest) {
            remote.unnamed.note(*digest);
            return Ok(());
        }
        doomed.push(*digest);
        match shared.reader.blob(*digest)? {
            // Its names are in the catalogue, which has it removed when the last of them is gone.
            Some(blob) if blob.place == BlobLocation::File => Ok(()),
            _ => Ok(remote.remove(&[*digest])?),
        }
    });
    for digest in doomed {
        shared.pending.lock().spare(digest);
    }
    swept.inspect_err(|_| remote.unnamed.leave())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blob_is_taken_once_it_is_old_enough_and_what_exceeds_the_list_is_left_to_the_next_start() {
        let unnamed = Unnamed::default();
        assert!(!unnamed.is_left());
        unnamed.note(Digest::of(b"a"));
        assert!(unnamed.is_left() && unnamed.take(Duration::from_secs(3_600)).is_empty());
        assert_eq!(unnamed.take(Duration::ZERO).len(), 1);
        assert!(!unnamed.is_left());
        for number in 0..=COUNT_MAX {
            unnamed.note(Digest::of(&number.to_le_bytes()));
        }
        assert_eq!(unnamed.take(Duration::ZERO).len(), COUNT_MAX);
        assert!(unnamed.is_left());
    }
}
