//! TLS of a connection, between its socket and its commands: a rustls session without I/O.
//!
//! Limits: the session buffers at most a few records in either direction; a handshake must end
//! within [`HANDSHAKE_LIMIT`].
//!
//! Invariant: nothing is encrypted before the turn it came from is settled, as with plain output.

use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use rustls::{ServerConfig, ServerConnection};

/// Maximum duration of a handshake.
pub(super) const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// Plain bytes passed to the session at once: one record.
const PIECE: usize = 16 << 10;
/// Maximum overhead of a record (RFC 8446, section 5.2).
const RECORD_EXTRA: usize = 5 + 256;

/// One session.
#[derive(Debug)]
pub(super) struct Tls {
    session: ServerConnection,
    /// Whether the client has been notified of the end.
    closed: bool,
}

/// The client sent invalid TLS data.
#[derive(Debug, thiserror::Error)]
#[error("the client sent invalid TLS data")]
pub(super) struct Broken(#[source] rustls::Error);

impl Tls {
    /// Returns a session before its handshake.
    ///
    /// # Errors
    /// The configuration cannot be used.
    pub(super) fn new(config: Arc<ServerConfig>) -> Result<Self, rustls::Error> {
        let mut session = ServerConnection::new(config)?;
        // Passed piece by piece and taken out at once: a limit would only cause refusals.
        session.set_buffer_limit(None);
        Ok(Self { session, closed: false })
    }

    /// Whether the handshake is not complete.
    pub(super) fn is_handshaking(&self) -> bool {
        self.session.is_handshaking()
    }

    /// Decrypts input and appends the plain bytes to `plain`. Returns whether the client has closed
    /// the session.
    ///
    /// # Errors
    /// It is not TLS, or was altered in transit; what was decrypted before is in `plain`.
    pub(super) fn open(&mut self, mut came: &[u8], plain: &mut Vec<u8>) -> Result<bool, Broken> {
        let mut ended = false;
        while !came.is_empty() && !ended {
            // From memory, reading fails only if the session is full, and it is emptied below.
            if self.session.read_tls(&mut came).is_err() {
                break;
            }
            let state = self.session.process_new_packets().map_err(Broken)?;
            ended = state.peer_has_closed();
            let ready = state.plaintext_bytes_to_read();
            let from = plain.len();
            plain.resize(from + ready, 0);
            // All of it is available: the state has just reported so.
            let read =
                plain.get_mut(from..).map_or(Ok(()), |to| self.session.reader().read_exact(to));
            if read.is_err() {
                plain.truncate(from);
                break;
            }
        }
        Ok(ended)
    }

    /// Encrypts `plain`, and any output of the session itself, and appends it to `sealed`.
    pub(super) fn seal(&mut self, plain: &[u8], sealed: &mut Vec<u8>) {
        // Each record adds its header and its tag: reserve room for all of them at once, because
        // growing would double the buffer.
        sealed.reserve(plain.len() + plain.len().div_ceil(PIECE) * RECORD_EXTRA);
        for piece in plain.chunks(PIECE) {
            // Writing into memory without a limit cannot fail.
            self.session.writer().write_all(piece).unwrap_or_default();
            self.drain(sealed);
        }
        self.drain(sealed);
    }

    /// Notifies the client of the end.
    pub(super) fn end(&mut self, sealed: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.closed, true) {
            self.session.send_close_notify();
            self.drain(sealed);
        }
    }

    fn drain(&mut self, sealed: &mut Vec<u8>) {
        while self.session.wants_write() {
            // A vector accepts everything.
            self.session.write_tls(sealed).map(drop).unwrap_or_default();
        }
    }
}
