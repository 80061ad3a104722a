//! Iteration over a shard: scans that clients resume, sweeps for expired keys, snapshots.

use super::Key;
use super::entry;
use super::shard::{At, Shard};
use super::table::{DEPTH_MAX, HOMES, home_of};

/// Where a scan of one shard continues. The beginning is 0.
///
/// The position is a prefix of hashes and a bucket in its segment, so it stays valid whatever is
/// inserted, removed or split meanwhile: a key present all the time is visited at least once.
pub type ScanPosition = u64;

const HOME_BITS: u32 = HOMES.trailing_zeros();

impl Shard {
    /// Visits the keys of one step of a scan; returns where to continue, `None` at the end.
    ///
    /// Expired keys are left out.
    pub fn scan(
        &self,
        position: ScanPosition,
        visit: &mut dyn FnMut(&Self, At),
    ) -> Option<ScanPosition> {
        let home = home_of(position);
        let from = (position >> HOME_BITS).checked_shl(u64::BITS - DEPTH_MAX).unwrap_or(0);
        let mut found = Vec::new();
        self.table.visit_home(from, home, |at| found.push(At(at)));
        for at in found {
            let held = self.slab.get(at.0);
            let own = home_of(self.rules.hash(entry::key(held))) == home;
            if own && !self.is_expired(at) {
                visit(self, at);
            }
        }
        if home + 1 < HOMES {
            return Some(position + 1);
        }
        let next = self.table.next_segment(from)?;
        Some((next >> (u64::BITS - DEPTH_MAX)) << HOME_BITS)
    }

    /// Visits every key of the segment whose hashes begin at `from`; returns where the next begins.
    ///
    /// The hashes from `from` up to there are exactly those visited, as long as `from` was returned
    /// by this function or is 0; a segment split meanwhile only makes the steps smaller.
    pub fn visit_range(&self, from: u64, visit: &mut dyn FnMut(&Self, At)) -> Option<u64> {
        self.table.visit_segment(from, |at| visit(self, At(at)))
    }

    /// Finds a key without recording its use; `None` if it does not exist, has expired, or shares
    /// its hash with another.
    #[must_use]
    pub fn only(&self, key: &Key<'_>) -> Option<At> {
        let (mut found, mut others) = (None, false);
        self.table.find(key.hash, |at| {
            let bytes = entry::key(self.slab.get(at));
            if bytes == key.bytes {
                found = Some(At(at));
            } else {
                others |= self.rules.hash(bytes) == key.hash;
            }
            false
        });
        found.filter(|at| !others && !self.is_expired(*at))
    }

    /// Removes at most a segment's worth of expired keys; returns where to continue.
    pub fn sweep(&mut self, from: u64) -> Option<u64> {
        if self.expiring() == 0 {
            return None;
        }
        let mut gone = Vec::new();
        let next = self.table.visit_segment(from, |at| {
            if self.is_expired(At(at)) {
                gone.push(At(at));
            }
        });
        for at in gone {
            let key: Box<[u8]> = self.key(at).into();
            let hash = self.rules.hash(&key);
            self.expired += 1;
            self.drop_entry(hash, at);
            self.changed(&key);
        }
        next
    }

    /// Returns some key that has not expired.
    pub fn random(&self, pick: u64) -> Option<At> {
        let mut pick = pick;
        for _ in 0..100 {
            let at = At(self.table.sample(pick)?);
            if !self.is_expired(at) {
                return Some(at);
            }
            pick = pick.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        }
        None
    }

    /// Whether an entry has expired.
    #[must_use]
    pub fn is_expired(&self, at: At) -> bool {
        self.deadline_ms(at).is_some_and(|deadline| deadline <= self.now_ms)
    }
}
