//! Damaged segments, which are neither joined nor pruned: one of them would otherwise stop the
//! retention of all events.
//!
//! Invariant: a segment is set aside only if it can be read and is not what was written. A device
//! that fails, or one without space, is tried again.

use std::sync::Arc;

use super::flush::FlushError;
use super::retention::Expiry;
use super::view::Stored;
use super::{Inner, ReadError};
use crate::segment::SegmentError;

impl Inner {
    /// Like [`Inner::rewrite`], but damaged segments are set aside, and nothing is written in their
    /// place.
    ///
    /// * `damage`: receives the error of the first.
    pub(super) fn rewrite_sound(
        &self,
        old: &[Arc<Stored>],
        expiry: Option<&Expiry<'_>>,
        damage: &mut Option<FlushError>,
    ) -> Result<Option<(u64, u64)>, FlushError> {
        let error = match self.rewrite(old, expiry) {
            Err(error @ (FlushError::Segment(_) | FlushError::Read(_))) => error,
            other => return other,
        };
        let damaged: Vec<u64> = old
            .iter()
            .filter(|stored| self.is_damaged(stored))
            .map(|stored| stored.entry.number)
            .collect();
        if damaged.is_empty() {
            return Err(error);
        }
        self.damaged.lock().extend(damaged);
        damage.get_or_insert(error);
        Ok(None)
    }

    /// Whether a segment is not rewritten any more.
    pub(super) fn is_set_aside(&self, stored: &Stored) -> bool {
        self.damaged.lock().contains(&stored.entry.number)
    }

    /// Whether a block of a segment is not what was written, as opposed to unreadable at the moment.
    fn is_damaged(&self, stored: &Stored) -> bool {
        let view = self.view();
        let count = u32::try_from(stored.segment.blocks().len()).unwrap_or(u32::MAX);
        (0..count).any(|number| match self.read_checked(&view, stored, number) {
            Err(ReadError::Segment(SegmentError::Io { .. })) => false,
            Err(ReadError::Segment(_) | ReadError::Changed { .. } | ReadError::Unproven { .. }) => {
                true
            }
            Ok(_) | Err(_) => false,
        })
    }
}
