//! Output: replies, encrypted if necessary, until the kernel has them.

use super::{Connection, Sealing};
use crate::server::work::Work;

impl Connection {
    /// Discards the turn's replies because the log did not accept what its commands appended.
    pub(in crate::server) fn unsettled(&mut self) {
        if self.output.len() > self.settled {
            self.output.truncate(self.settled);
            self.refuse("MISCONF the command log cannot be written: this change is not on disk");
        }
    }

    /// Prepares output for sending; must be called once a turn is settled.
    pub(in crate::server) fn seal(&mut self, work: &mut Work) {
        let Some(Sealing { tls, sealed, .. }) = self.tls.as_deref_mut() else { return };
        tls.seal(&self.output.as_bytes()[self.sent..], sealed);
        if self.output.buffer_mut().capacity() > 0 {
            work.recycle(self.output.take());
            self.sent = 0;
        }
        if self.closing {
            tls.end(sealed);
        }
    }

    /// The data to send.
    pub(in crate::server) fn outgoing(&self) -> &[u8] {
        match &self.tls {
            _ if self.cut => &[],
            None => &self.output.as_bytes()[self.sent..],
            Some(sealing) => &sealing.sealed[sealing.sent..],
        }
    }

    /// Records that some of [`Connection::outgoing`] was sent.
    pub(in crate::server) fn sent(&mut self, count: usize, work: &mut Work) {
        work.tally.bytes_out += count as u64;
        self.moved = work.now;
        if let Some(sealing) = &mut self.tls {
            sealing.sent += count;
            if sealing.sent == sealing.sealed.len() {
                work.recycle(std::mem::take(&mut sealing.sealed));
                sealing.sent = 0;
            }
            return;
        }
        self.sent += count;
        if self.sent == self.output.len() {
            work.recycle(self.output.take());
            self.sent = 0;
        }
    }

    /// Takes the data to send as a separate buffer; to be confirmed with
    /// [`Connection::landed`].
    pub(in crate::server) fn take_outgoing(&mut self) -> Vec<u8> {
        debug_assert!(self.sent == 0 && self.in_flight == 0, "the output is taken whole, or sent");
        let bytes = match &mut self.tls {
            None => self.output.take(),
            Some(sealing) => std::mem::take(&mut sealing.sealed),
        };
        self.in_flight = bytes.len();
        bytes
    }

    /// Records that some of what was taken was sent.
    pub(in crate::server) fn landed(&mut self, count: usize, work: &mut Work) {
        work.tally.bytes_out += count as u64;
        self.in_flight = self.in_flight.saturating_sub(count);
        self.moved = work.now;
        if self.buffered > 0 {
            self.count_buffers(work);
        }
    }
}
