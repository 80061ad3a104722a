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
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        let caused: Vec<u64> = old
            .iter()
            .filter(|stored| self.is_cause(stored, &error))
            .map(|stored| stored.entry.number)
            .collect();
        if caused.is_empty() {
            return Err(error);
        }
        self.damaged.lock().extend(caused);
        damage.get_or_insert(error);
        Ok(None)
    }

    /// Whether a segment is not rewritten any more.
    pub(super) fn is_set_aside(&self, stored: &Stored) -> bool {
        self.damaged.lock().contains(&stored.entry.number)
    }

    /// Whether an error is that of a damaged segment, as opposed to one of the device.
    fn is_cause(&self, stored: &Stored, error: &FlushError) -> bool {
        let file = match error {
            FlushError::Segment(error) => error.damaged_file(),
            FlushError::Read(error) => match &**error {
                ReadError::Segment(error) => error.damaged_file(),
                ReadError::Changed { .. } | ReadError::Unproven { .. } => {
                    return self.is_changed(stored);
                }
                _ => None,
            },
            _ => None,
        };
        file.is_some_and(|path| path == stored.segment.path())
    }

    /// Whether events of a segment are not those that were signed.
    fn is_changed(&self, stored: &Stored) -> bool {
        let view = self.view();
        let count = u32::try_from(stored.segment.blocks().len()).unwrap_or(u32::MAX);
        (0..count).any(|number| {
            let read = self.read_checked(&view, stored, number);
            matches!(read, Err(ReadError::Changed { .. } | ReadError::Unproven { .. }))
        })
    }
}
