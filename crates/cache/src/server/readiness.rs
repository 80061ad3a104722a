//! A socket that is told when it can be read and written, and its connection.
//!
//! Notices come once an edge: what was not read or written since stays noted here. A read or a
//! write that came short has found the end of what the kernel had, so it is not tried again.
//!
//! Invariant: after a turn, either the kernel will tell of what comes next, or [`Next::Again`] was
//! said.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::Shutdown;

use mio::net::TcpStream;

use super::connection::{Connection, Next};
use super::work::Work;

/// Bytes read from one connection in one turn, so that a fast sender starves nobody.
const READ_BUDGET: usize = 512 << 10;

/// A connection on its socket.
#[derive(Debug)]
pub(super) struct Socketed {
    socket: TcpStream,
    pub(super) connection: Connection,
    /// The kernel may have input for us.
    readable: bool,
    /// The other end has closed its half; read until told so.
    hung_up: bool,
    writable: bool,
}

/// What the kernel said about a socket.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ready {
    pub(super) readable: bool,
    pub(super) writable: bool,
    pub(super) hung_up: bool,
}

impl Ready {
    /// What an event says.
    pub(super) fn of(event: &mio::event::Event) -> Self {
        Self {
            readable: event.is_readable(),
            writable: event.is_writable(),
            hung_up: event.is_read_closed() || event.is_error(),
        }
    }
}

/// Input read ahead of the turn it belongs to: a part of [`Work::arena`].
#[derive(Debug)]
pub(super) struct Ahead {
    from: usize,
    to: usize,
}

impl Socketed {
    pub(super) fn new(socket: TcpStream, connection: Connection) -> Self {
        // The first bytes, if they are here already, come as the first event.
        Self { socket, connection, readable: false, hung_up: false, writable: true }
    }

    /// The socket, for its registration.
    pub(super) fn socket(&mut self) -> &mut TcpStream {
        &mut self.socket
    }

    /// Notes what the kernel said.
    pub(super) fn note(&mut self, ready: Ready) {
        self.readable |= ready.readable || ready.hung_up;
        self.writable |= ready.writable;
        self.hung_up |= ready.hung_up;
    }

    /// Reads once into the thread's arena, if there is something to read and room for it.
    ///
    /// A thread reads ahead for all its ready connections before it runs the first command: so the
    /// kernel's code stays in the processor's caches while it reads, and ours while it runs.
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

    /// Reads once; nothing when nothing came.
    fn read(&mut self, buffer: &mut [u8], work: &mut Work) -> Option<usize> {
        work.tally.reads += 1;
        match self.socket.read(buffer) {
            Ok(0) => {
                self.connection.ended();
                self.readable = false;
                None
            }
            Ok(count) => {
                // A short read has emptied the socket, see epoll(7); what comes later is an edge
                // of its own. Only an end that came along with the bytes is not.
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

    /// The second half of a turn: sends what is ready, and says what is left to do.
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

/// Ends our half of a socket and takes what is unread: it would turn the close into a reset, which
/// takes the last reply with it.
fn end_gently(socket: &mut TcpStream, buffer: &mut [u8]) -> io::Result<()> {
    socket.shutdown(Shutdown::Write)?;
    socket.read(buffer).map(drop)
}
