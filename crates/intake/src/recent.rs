//! The first tier of look-ups: blobs that were named or looked up a short while ago.
//!
//! ```text
//! is this content stored?   queue -> recent (here) -> filter (known) -> catalogue
//! ```
//!
//! Invariants: protected by the queue's lock, like everything that decides a put; a blob that is about to be
//! removed is forgotten first, so an entry refers to bytes that are there. A blob that is not here costs a
//! look-up, never correctness.

use std::time::{Duration, Instant};

use quick_cache::unsync::Cache;

use crate::catalogue::BlobRecord;
use crate::digest::Digest;

/// Number of blobs.
const BLOBS_MAX: usize = 10_000;
/// How long a blob stays after it was named or looked up.
const KEPT: Duration = Duration::from_secs(5 * 60);

/// Recently used blobs.
#[derive(Debug)]
pub struct Recent {
    blobs: Cache<Digest, (BlobRecord, Instant)>,
    kept: Duration,
}

impl Default for Recent {
    fn default() -> Self {
        Self::new(BLOBS_MAX, KEPT)
    }
}

impl Recent {
    /// Starts without blobs.
    ///
    /// * `blobs_max`: number of blobs.
    /// * `kept`: how long a blob stays.
    #[must_use]
    pub fn new(blobs_max: usize, kept: Duration) -> Self {
        Self { blobs: Cache::new(blobs_max), kept }
    }

    /// Remembers a blob that is stored.
    pub fn insert(&mut self, blob: BlobRecord) {
        self.blobs.insert(blob.digest, (blob, Instant::now()));
    }

    /// The blob with this digest, if it is remembered.
    pub fn get(&mut self, digest: Digest) -> Option<BlobRecord> {
        let (blob, since) = self.blobs.get(&digest)?;
        if since.elapsed() < self.kept {
            return Some(*blob);
        }
        self.blobs.remove(&digest);
        None
    }

    /// Forgets a blob, before it is removed.
    pub fn forget(&mut self, digest: Digest) {
        self.blobs.remove(&digest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::BlobLocation;

    fn blob(n: u64) -> BlobRecord {
        BlobRecord { digest: Digest::of(&n.to_le_bytes()), size: n, place: BlobLocation::Entry(n) }
    }

    #[test]
    fn a_blob_is_found_until_it_is_forgotten_or_expires() {
        let mut recent = Recent::default();
        recent.insert(blob(1));
        assert_eq!(recent.get(blob(1).digest), Some(blob(1)));
        assert_eq!(recent.get(blob(2).digest), None);
        recent.forget(blob(1).digest);
        assert_eq!(recent.get(blob(1).digest), None);
        let mut expired = Recent::new(10, Duration::ZERO);
        expired.insert(blob(1));
        assert_eq!(expired.get(blob(1).digest), None);
    }

    #[test]
    fn the_number_of_blobs_is_bounded() {
        let mut recent = Recent::new(100, KEPT);
        for n in 0..10_000 {
            recent.insert(blob(n));
        }
        let held = (0..10_000).filter(|&n| recent.get(blob(n).digest).is_some()).count();
        assert!((1..=110).contains(&held), "{held}");
    }
}
