//! A socket driven by readiness events, and its connection.
//!
//! Events are edge-triggered: the socket's readiness is kept here until it is read or written. A
//! read or write that was short has reached the end of what the kernel had, so it is not repeated.
//!
//! Invariant: after a turn, either the kernel will report the next event, or the turn returned
//! [`Next::Again`].

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::Shutdown;

use mio::net::TcpStream;

use super::connection::{Connection, Next};
use super::work::Work;

/// Bytes read from one connection in one turn, so that a fast sender delays no other.
const READ_BUDGET: usize = 512 << 10;

/// A connection on its socket.
#[derive(Debug)]
pub(super) struct Socketed {
    socket: TcpStream,
    pub(super) connection: Connection,
    /// The kernel may have input.
    readable: bool,
    /// The client has closed its half; read until the end is reported.
    hung_up: bool,
    writable: bool,
}

/// A socket's readiness, as the kernel reported it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ready {
    pub(super) readable: bool,
    pub(super) writable: bool,
    pub(super) hung_up: bool,
}

impl Ready {
    /// Returns the readiness in an event.
    pub(super) fn of(event: &mio::event::Event) -> Self {
        Self {
            readable: event.is_readable(),
            writable: event.is_writable(),
            hung_up: event.is_read_closed() || event.is_error(),
        }
    }
}

/// Input read before the turn it belongs to: a part of [`Work::arena`].
#[derive(Debug)]
pub(super) struct Ahead {
    from: usize,
    to: usize,
}

impl Socketed {
    pub(super) fn new(socket: TcpStream, connection: Connection) -> Self {
        // The first bytes, if they have already arrived, are reported by the first event.
        Self { socket, connection, readable: false, hung_up: false, writable: true }
    }

    /// The socket, for its registration.
    pub(super) fn socket(&mut self) -> &mut TcpStream {
        &mut self.socket
    }

    /// The socket and its connection. Input that the kernel still has is reported again when the
    /// socket is registered again.
    pub(super) fn into_parts(self) -> (TcpStream, Connection) {
        (self.socket, self.connection)
    }

    /// Records the kernel's report.
    pub(super) fn note(&mut self, ready: Ready) {
        self.readable |= ready.readable || ready.hung_up;
        self.writable |= ready.writable;
        self.hung_up |= ready.hung_up;
    }

    /// Reads once into the thread's arena, if there is input and room for it.
    ///
    /// A thread reads from all its ready connections before it runs the first command. So the
    /// kernel's code stays in the processor's caches while it reads, and the server's code while it
    /// runs.
    pub(super) fn read_ahead(&mut self, work: &mut Work) -> Option<Ahead> {
        if !self.readable || !self.connection.may_read() {
            return None;
        }
        let mut arena = std::mem::take(&mut work.arena);
        let from = arena.filled;
        let read = arena.window().map(|window| self.read(window, work));
        let to = from + read.flatten().unwrap_or(0);
        arena.filled = to;
        work.arena = arena;
        (from < to).then_some(Ahead { from, to })
    }

    /// The first half of a turn: everything up to the replies' bytes.
    pub(super) fn take_in(&mut self, ahead: Option<Ahead>, work: &mut Work) {
        self.connection.begin(work);
        let mut budget = READ_BUDGET;
        if let Some(Ahead { from, to }) = ahead {
            let arena = std::mem::take(&mut work.arena);
            self.connection.received(arena.bytes(from, to), work);
            work.arena = arena;
            budget -= to - from;
        }
        while self.readable && budget > 0 && self.connection.may_read() {
            let mut buffer = std::mem::take(&mut work.buffer);
            if let Some(count) = self.read(&mut buffer, work) {
                self.connection.received(&buffer[..count], work);
                budget = budget.saturating_sub(count);
            }
            work.buffer = buffer;
        }
        self.connection.end_input(work);
    }

    /// Reads once; `None` if nothing was received.
    fn read(&mut self, buffer: &mut [u8], work: &mut Work) -> Option<usize> {
        work.tally.reads += 1;
        match self.socket.read(buffer) {
            Ok(0) => {
                self.connection.ended();
                self.readable = false;
                None
            }
            Ok(count) => {
                // A short read has emptied the socket, see epoll(7); later input is a new edge.
                // Only an end that arrived together with the bytes is not.
                self.readable = count == buffer.len() || self.hung_up;
                Some(count)
            }
            Err(error) => {
                match error.kind() {
                    ErrorKind::WouldBlock => self.readable = false,
                    ErrorKind::Interrupted => {}
                    _ => {
                        self.readable = false;
                        self.connection.failed();
                    }
                }
                None
            }
        }
    }

    /// The second half of a turn: sends what is ready, and returns what is left to do.
    pub(super) fn flush(&mut self, work: &mut Work) -> Next {
        self.connection.seal(work);
        while self.writable && !self.connection.outgoing().is_empty() {
            work.tally.writes += 1;
            match self.socket.write(self.connection.outgoing()) {
                Ok(count) => self.connection.sent(count, work),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => self.writable = false,
                    ErrorKind::Interrupted => {}
                    _ => self.connection.failed(),
                },
            }
        }
        self.connection.next(self.readable, work)
    }

    /// Leaves the engine and the network.
    pub(super) fn close(mut self, work: &mut Work) {
        if self.connection.close(work) {
            end_gently(&mut self.socket, &mut work.buffer).unwrap_or_default();
        }
    }
}

/// Shuts down the server's half of a socket and discards unread input, which would turn the close
/// into a reset and lose the last reply.
fn end_gently(socket: &mut TcpStream, buffer: &mut [u8]) -> io::Result<()> {
    socket.shutdown(Shutdown::Write)?;
    socket.read(buffer).map(drop)
}
