//! How a thread waits for its sockets and moves their bytes: what `epoll` and `uring` have in
//! common.
//!
//! The event loop decides when: it waits, notes what happened, prepares and feeds every connection
//! of the turn, settles the log, and has everything sent. A transport decides how.

use std::fmt::Debug;
use std::io;
use std::time::{Duration, Instant};

use super::connection::{Connection, Next};
use super::inbox::Accepted;
use super::work::Work;

/// One thread's way to the network.
pub(super) trait Transport: Debug + Send + Sized + 'static {
    /// A connection with what belongs to its socket.
    type Line: Debug + Send;
    /// Something that happened to a socket.
    type Event: Copy + Debug;

    /// Waits until something happens, at most for `timeout`, and adds what did, each with the
    /// number of its connection (or a token of the thread's own sockets).
    fn wait(&mut self, now: Instant, timeout: Option<Duration>, into: &mut Vec<(u64, Self::Event)>);

    /// Takes over a socket.
    ///
    /// # Errors
    /// The kernel does not watch it; the line is given back, to be closed.
    fn add(
        &mut self,
        id: u64,
        accepted: Accepted,
        connection: Connection,
    ) -> Result<Self::Line, (Self::Line, io::Error)>;

    /// The connection of a line.
    fn connection(line: &mut Self::Line) -> &mut Connection;

    /// Notes what happened; returns whether the connection has something to do now.
    fn note(&mut self, line: &mut Self::Line, event: Self::Event, work: &mut Work) -> bool;

    /// Something happened to a socket whose connection is closed already.
    fn late(&mut self, id: u64, event: Self::Event);

    /// Before the first command of a turn runs: fetches input, where that takes a call.
    fn prepare(&mut self, line: &mut Self::Line, work: &mut Work);

    /// The first half of a connection's turn: gives it what came.
    fn take_in(&mut self, line: &mut Self::Line, work: &mut Work);

    /// The second half: sends what is ready, and says what is left to do.
    fn flush(&mut self, id: u64, line: &mut Self::Line, work: &mut Work) -> Next;

    /// Closes a connection.
    fn close(&mut self, id: u64, line: Self::Line, work: &mut Work);

    /// Whether closed connections still have something on its way.
    fn is_idle(&self) -> bool {
        true
    }
}

/// A connection's number as a token of `mio`: both have 64 bits on every machine this serves on.
pub(super) fn local_token(id: u64) -> usize {
    usize::try_from(id).unwrap_or(usize::MAX)
}
