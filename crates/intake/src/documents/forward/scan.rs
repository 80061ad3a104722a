//! Reading the log: for commits that are no longer queued, and to count what waits.
//!
//! Invariant: nothing is read beyond what the view has applied, since the log may not have it on
//! stable storage.

use forebay_log::Lsn;

use super::super::work::Work;
use super::error::ForwardError;
use super::spill::Spill;
use super::worker::Worker;
use crate::error::ApplyError;
use crate::format::Entry;

/// Bytes of log read between two checks for other work.
const SCAN_SIZE: u64 = 32 << 20;

/// Called with the position of an entry, its end, and what a sink has to follow of it. Returns
/// whether to continue.
pub(super) type Each<'e> =
    dyn FnMut(&mut Worker, Lsn, Lsn, Option<&Work<'_>>) -> Result<bool, ForwardError> + 'e;

impl Worker {
    /// Calls `each` with the entries of the log from `from` on, up to `until`, for a limited number
    /// of bytes. An entry that concerns no sink is passed as `None`. `each` returns
    /// whether to continue.
    pub(super) fn scan(
        &mut self,
        from: Lsn,
        until: Lsn,
        each: &mut Each<'_>,
    ) -> Result<(), ForwardError> {
        let from = from.max(self.parts.log.start());
        let mut reader = match self.scan.take() {
            Some(reader) if reader.position() == from => reader,
            _ => self.parts.log.reader(from),
        };
        let enough = Lsn(from.0.saturating_add(SCAN_SIZE));
        while reader.position() < until.min(enough) {
            let at = reader.position();
            let entry = reader.next().map_err(|source| ApplyError::Read { lsn: at.0, source })?;
            let Some(entry) = entry else {
                // The remainder up to there was erased, or belongs to the log itself.
                each(self, at, until, None)?;
                return Ok(());
            };
            if entry.next > until {
                each(self, at, until, None)?;
                return Ok(());
            }
            let decoded = Entry::decode(entry.payload)
                .map_err(|source| ApplyError::Decode { lsn: entry.lsn.0, source })?;
            let work = Work::of(decoded);
            if !each(self, entry.lsn, entry.next, work.as_ref())? {
                return Ok(());
            }
        }
        self.scan = Some(reader);
        Ok(())
    }

    /// Counts the documents after `position`.
    pub(super) fn count_waiting(&mut self, position: Lsn) -> Result<(), ForwardError> {
        let spilled = self.spill.as_ref().and_then(Spill::range).filter(|(_, end)| *end > position);
        let announced = self.outbox.announced();
        let mut waiting = 0;
        if spilled.is_some() {
            waiting += self.spill.as_ref().map_or(0, Spill::documents);
        }
        let mut oldest_ms = None;
        let mut at = spilled.map_or(position, |(_, end)| end);
        let applied = self.outbox.applied();
        while at < applied {
            let before = at;
            self.scan(before, applied, &mut |_, _, end, work| {
                at = end;
                if let Some(work) = work {
                    waiting += work.count();
                    oldest_ms.get_or_insert(work.received_ms());
                }
                Ok(true)
            })?;
            if at == before || self.outbox.stopping() {
                break;
            }
        }
        self.scan = None;
        self.outbox.set_waiting(waiting, announced, oldest_ms);
        Ok(())
    }
}
