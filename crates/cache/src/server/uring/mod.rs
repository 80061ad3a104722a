//! Sockets by completion: one io_uring per thread, which receives and sends for all of its
//! connections with one system call per turn.
//!
//! The thread's own descriptors, its waker and the listeners, stay with `mio`, whose epoll instance
//! is watched through the ring.
//!
//! Invariants: a socket is closed only after the kernel has ended every request on it, so no
//! request reaches a later socket with the same descriptor; at most one buffer of a connection is
//! being sent; a client that sends much leaves buffers for the input of others in every second turn.

mod buffers;
mod gather;
mod ring;

use std::collections::HashMap;
use std::io;
use std::net::Shutdown;
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Poll};
use smallvec::SmallVec;
use socket2::SockRef;

use super::connection::{Connection, Next};
use super::inbox::Moved;
use super::transport::Transport;
use super::work::Work;
use buffers::Filled;
use gather::{Gather, Seen};
use ring::{Completion, Ring};

/// Bytes received since the request for input, from which it is requested again one turn later.
///
/// All connections share the ring's buffers. One that has used them up would get them again first, and
/// the requests of others end for lack of buffers.
const MUCH: usize = 64 << 10;

/// A thread's ring.
#[derive(Debug)]
pub(super) struct Uring {
    ring: Ring,
    poll: Poll,
    events: Events,
    gather: Gather,
    /// Sockets of closed connections that the kernel still uses.
    ending: HashMap<u64, Ending>,
    /// Whether the next turn must not wait: a connection waits for its output to be sent, because it
    /// is closing or has more, or it is unknown whether output was sent.
    urgent: bool,
}

/// A connection on a socket.
#[derive(Debug)]
pub(super) struct Line {
    socket: TcpStream,
    connection: Connection,
    receiving: Receiving,
    /// Bytes received since input was requested.
    received: usize,
    sending: bool,
    /// Input since the last turn, in buffers of the ring.
    arrived: SmallVec<[Filled; 2]>,
    /// Why there is no more input.
    stopped: Option<i32>,
    refused: bool,
    /// It is to move to another thread: no input is requested.
    leaving: bool,
    seen: Seen,
}

/// The multishot request for a socket's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Receiving {
    On,
    Stopping,
    Off,
}

#[derive(Debug)]
struct Ending {
    /// Closed by being dropped.
    _socket: TcpStream,
    receiving: bool,
    sending: bool,
}

impl Uring {
    /// Returns a ring of the calling thread, with `poll` for the thread's own descriptors.
    ///
    /// # Errors
    /// The kernel is too old, or does not permit it.
    pub(super) fn new(poll: Poll) -> Result<Self, (Poll, io::Error)> {
        match Ring::new() {
            Ok(mut ring) => {
                ring.watch(poll.as_raw_fd());
                let (events, ending) = (Events::with_capacity(16), HashMap::new());
                let gather = Gather::new(Instant::now());
                Ok(Self { ring, poll, events, gather, ending, urgent: false })
            }
            Err(error) => Err((poll, error)),
        }
    }

    /// Adds the events of the thread's own descriptors.
    fn look_at_own(&mut self, into: &mut Vec<(u64, Completion)>) {
        if self.poll.poll(&mut self.events, Some(Duration::ZERO)).is_ok() {
            let tokens = self.events.iter().map(|event| event.token().0 as u64);
            into.extend(tokens.map(|token| (token, Completion::Watched)));
        }
        self.ring.watch(self.poll.as_raw_fd());
    }
}

impl Transport for Uring {
    type Line = Line;
    type Event = Completion;

    fn wait(&mut self, now: Instant, timeout: Option<Duration>, into: &mut Vec<(u64, Completion)>) {
        let urgent = std::mem::take(&mut self.urgent);
        let timeout = if urgent { Some(Duration::ZERO) } else { timeout };
        let mut own = false;
        let count = self.gather.count(now);
        self.ring.turn(timeout, count, |id, completion| match completion {
            Completion::Watched => own = true,
            completion => into.push((id, completion)),
        });
        self.urgent |= self.ring.is_behind();
        if own {
            self.look_at_own(into);
        }
    }

    fn add(
        &mut self,
        id: u64,
        socket: TcpStream,
        connection: Connection,
    ) -> Result<Line, (Line, io::Error)> {
        let mut line = Line {
            socket,
            connection,
            receiving: Receiving::Off,
            received: 0,
            sending: false,
            arrived: SmallVec::new(),
            stopped: None,
            refused: false,
            leaving: false,
            seen: Seen::default(),
        };
        // A request on a non-blocking socket fails instead of waiting.
        if let Err(error) = SockRef::from(&line.socket).set_nonblocking(false) {
            return Err((line, error));
        }
        self.ring.receive(line.socket.as_raw_fd(), id);
        line.receiving = Receiving::On;
        Ok(line)
    }

    fn connection(line: &mut Line) -> &mut Connection {
        &mut line.connection
    }

    fn note(&mut self, line: &mut Line, event: Completion, work: &mut Work) -> bool {
        match event {
            Completion::Received(filled, more) => {
                self.gather.note(&mut line.seen);
                line.arrived.push(filled);
                if !more {
                    line.receiving = Receiving::Off;
                }
            }
            Completion::Stopped(why) => {
                line.receiving = Receiving::Off;
                line.stopped = Some(why);
            }
            Completion::Landed(count) => {
                line.sending = false;
                line.connection.landed(count, work);
                // Input may have been stopped because there was no room for replies, and there is
                // room now.
                let deaf = line.receiving == Receiving::Off && line.connection.may_read();
                let waits = line.connection.is_held_up() || !line.connection.is_sent();
                return deaf || line.leaving || waits;
            }
            Completion::Sent(count) => {
                line.sending = false;
                line.connection.landed(count, work);
            }
            Completion::Refused => {
                line.sending = false;
                line.refused = true;
            }
            Completion::Watched => {}
        }
        true
    }

    fn late(&mut self, id: u64, event: Completion) {
        if let Completion::Received(filled, _) = event {
            self.ring.give_back(filled);
        }
        let Some(ending) = self.ending.get_mut(&id) else { return };
        match event {
            Completion::Received(_, false) | Completion::Stopped(_) => ending.receiving = false,
            Completion::Landed(_) | Completion::Sent(_) | Completion::Refused => {
                ending.sending = false;
            }
            Completion::Received(_, true) | Completion::Watched => {}
        }
        if !ending.receiving && !ending.sending {
            self.ending.remove(&id);
        }
    }

    fn prepare(&mut self, _line: &mut Line, work: &mut Work) {
        while let Some(buffer) = self.ring.done() {
            work.recycle(buffer);
        }
    }

    fn take_in(&mut self, line: &mut Line, work: &mut Work) {
        if line.refused {
            line.connection.failed();
        }
        line.connection.begin(work);
        for filled in line.arrived.drain(..) {
            work.tally.reads += 1;
            let bytes = self.ring.bytes(filled);
            line.received += bytes.len();
            line.connection.received(bytes, work);
            self.ring.give_back(filled);
        }
        match line.stopped.take() {
            Some(0) => line.connection.ended(),
            // Requested here, or caused by a lack of buffers, which have been returned by now.
            None | Some(libc::ECANCELED | libc::ENOBUFS | libc::EINTR | libc::EAGAIN) => {}
            Some(_) => line.connection.failed(),
        }
        line.connection.end_input(work);
    }

    fn flush(&mut self, id: u64, line: &mut Line, work: &mut Work) -> Next {
        let fd = line.socket.as_raw_fd();
        line.connection.seal(work);
        if !line.sending && !line.connection.outgoing().is_empty() {
            work.tally.writes += 1;
            self.ring.send(fd, id, line.connection.take_outgoing());
            line.sending = true;
        }
        let mut steps_back = false;
        match line.receiving {
            Receiving::Off if line.connection.may_read() && !line.leaving => {
                steps_back = std::mem::take(&mut line.received) >= MUCH;
                if !steps_back {
                    self.ring.receive(fd, id);
                    line.receiving = Receiving::On;
                }
            }
            Receiving::On if !line.connection.may_read() => {
                self.ring.stop_receiving(id);
                line.receiving = Receiving::Stopping;
            }
            _ => {}
        }
        self.urgent |= line.sending && line.connection.is_held_up();
        match line.connection.next(false, work) {
            Next::Wait if steps_back => Next::Again,
            next => next,
        }
    }

    fn release(&mut self, id: u64, line: &mut Line) -> bool {
        line.leaving = true;
        if line.receiving == Receiving::On {
            self.ring.stop_receiving(id);
            line.receiving = Receiving::Stopping;
        }
        let received = line.arrived.is_empty() && line.stopped.is_none() && !line.refused;
        let quiet = line.receiving == Receiving::Off && !line.sending;
        received && quiet && line.connection.is_sent()
    }

    fn part(&mut self, line: Line) -> Result<Moved, (Line, io::Error)> {
        // The next owner may be an epoll instance.
        if let Err(error) = SockRef::from(&line.socket).set_nonblocking(true) {
            return Err((line, error));
        }
        Ok(Moved { socket: line.socket, connection: line.connection })
    }

    fn close(&mut self, id: u64, mut line: Line, work: &mut Work) {
        for filled in line.arrived.drain(..) {
            self.ring.give_back(filled);
        }
        let gently = line.connection.close(work);
        let how = if gently { Shutdown::Write } else { Shutdown::Both };
        // Fails if the client has disconnected, which has the same effect.
        line.socket.shutdown(how).unwrap_or_default();
        if line.receiving == Receiving::On {
            self.ring.stop_receiving(id);
        }
        let receiving = line.receiving != Receiving::Off;
        if receiving || line.sending {
            let ending = Ending { _socket: line.socket, receiving, sending: line.sending };
            self.ending.insert(id, ending);
        }
    }

    fn is_idle(&self) -> bool {
        self.ending.is_empty()
    }
}
