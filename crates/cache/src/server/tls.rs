//! TLS of a connection, between its socket's bytes and its commands': a rustls session fed by hand.
//!
//! Bounds: what the session keeps of either direction is at most a few records; a handshake has
//! [`HANDSHAKE_LIMIT`] to end.
//!
//! Invariant: nothing is sealed before the turn it came from is settled, as with plain output.

use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use rustls::{ServerConfig, ServerConnection};

/// How long a client may take to agree on keys.
pub(super) const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// Plain bytes given to the session at once: a record's.
const PIECE: usize = 16 << 10;

/// One session.
#[derive(Debug)]
pub(super) struct Tls {
    session: ServerConnection,
    /// Whether the other end was told that no more comes.
    closed: bool,
}

/// The other end does not speak TLS as it should.
#[derive(Debug, thiserror::Error)]
#[error("the client's TLS is broken")]
pub(super) struct Broken(#[source] rustls::Error);

impl Tls {
    /// A session before its handshake.
    ///
    /// # Errors
    /// The configuration cannot serve.
    pub(super) fn new(config: Arc<ServerConfig>) -> Result<Self, rustls::Error> {
        let mut session = ServerConnection::new(config)?;
        // Given piece by piece and taken out at once: a bound of its own would only refuse.
        session.set_buffer_limit(None);
        Ok(Self { session, closed: false })
    }

    /// Whether keys are not agreed on yet.
    pub(super) fn is_handshaking(&self) -> bool {
        self.session.is_handshaking()
    }

    /// Opens what came, and adds the plain bytes to `plain`. Returns whether the other end said
    /// that no more comes.
    ///
    /// # Errors
    /// It is not TLS, or was altered on its way; what was opened before is in `plain`.
    pub(super) fn open(&mut self, mut came: &[u8], plain: &mut Vec<u8>) -> Result<bool, Broken> {
        let mut ended = false;
        while !came.is_empty() && !ended {
            // From memory, reading fails only when the session is full, and it is emptied below.
            if self.session.read_tls(&mut came).is_err() {
                break;
            }
            let state = self.session.process_new_packets().map_err(Broken)?;
            ended = state.peer_has_closed();
            let ready = state.plaintext_bytes_to_read();
            let from = plain.len();
            plain.resize(from + ready, 0);
            // All of it is there: the state has just said so.
            let read =
                plain.get_mut(from..).map_or(Ok(()), |to| self.session.reader().read_exact(to));
            if read.is_err() {
                plain.truncate(from);
                break;
            }
        }
        Ok(ended)
    }

    /// Seals `plain`, and whatever the session itself has to say, onto the end of `sealed`.
    pub(super) fn seal(&mut self, plain: &[u8], sealed: &mut Vec<u8>) {
        for piece in plain.chunks(PIECE) {
            // Into memory without a bound: cannot fail.
            self.session.writer().write_all(piece).unwrap_or_default();
            self.drain(sealed);
        }
        self.drain(sealed);
    }

    /// Tells the other end that no more comes.
    pub(super) fn end(&mut self, sealed: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.closed, true) {
            self.session.send_close_notify();
            self.drain(sealed);
        }
    }

    fn drain(&mut self, sealed: &mut Vec<u8>) {
        while self.session.wants_write() {
            // A vector takes everything.
            self.session.write_tls(sealed).map(drop).unwrap_or_default();
        }
    }
}
