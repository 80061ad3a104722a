//! How a thread waits for its sockets and moves their bytes: the common interface of `epoll` and
//! `uring`.
//!
//! The event loop decides when: it waits, records events, prepares and feeds every connection
//! of the turn, settles the log, and sends everything. A transport decides how.

use std::fmt::Debug;
use std::io;
use std::time::{Duration, Instant};

use mio::net::TcpStream;

use super::connection::{Connection, Next};
use super::inbox::Moved;
use super::work::Work;

/// The network access of one thread.
pub(super) trait Transport: Debug + Send + Sized + 'static {
    /// A connection and the state of its socket.
    type Line: Debug + Send;
    /// An event of a socket.
    type Event: Copy + Debug;

    /// Waits until there is an event, at most for `timeout`, and appends the events, each with the
    /// number of its connection (or a token of the thread's own sockets).
    fn wait(&mut self, now: Instant, timeout: Option<Duration>, into: &mut Vec<(u64, Self::Event)>);

    /// Takes over a socket.
    ///
    /// # Errors
    /// The kernel does not watch it; the line is returned, to be closed.
    fn add(
        &mut self,
        id: u64,
        socket: TcpStream,
        connection: Connection,
    ) -> Result<Self::Line, (Self::Line, io::Error)>;

    /// The connection of a line.
    fn connection(line: &mut Self::Line) -> &mut Connection;

    /// Records an event; returns whether the connection has work now.
    fn note(&mut self, line: &mut Self::Line, event: Self::Event, work: &mut Work) -> bool;

    /// Handles an event of a socket whose connection is already closed.
    fn late(&mut self, id: u64, event: Self::Event);

    /// Before the first command of a turn runs: reads input, if that needs a system call.
    fn prepare(&mut self, line: &mut Self::Line, work: &mut Work);

    /// The first half of a connection's turn: passes it its input.
    fn take_in(&mut self, line: &mut Self::Line, work: &mut Work);

    /// The second half: sends what is ready, and returns what is left to do.
    fn flush(&mut self, id: u64, line: &mut Self::Line, work: &mut Work) -> Next;

    /// Prepares a connection to move to another thread: no further input is requested. Returns
    /// whether it can move now; otherwise it has another turn when that may have changed.
    fn release(&mut self, id: u64, line: &mut Self::Line) -> bool;

    /// Gives up a connection for which [`Transport::release`] returned `true`.
    ///
    /// # Errors
    /// The socket cannot be moved; the line is returned, to be closed.
    fn part(&mut self, line: Self::Line) -> Result<Moved, (Self::Line, io::Error)>;

    /// Closes a connection.
    fn close(&mut self, id: u64, line: Self::Line, work: &mut Work);

    /// Whether no closed connection has output in flight.
    fn is_idle(&self) -> bool {
        true
    }
}

/// Returns a connection's number as a token of `mio`: both have 64 bits on every supported machine.
pub(super) fn local_token(id: u64) -> usize {
    usize::try_from(id).unwrap_or(usize::MAX)
}
