//! Sockets by readiness: one epoll instance per thread, one read and one write per ready
//! connection.

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use super::connection::{Connection, Next};
use super::inbox::Moved;
use super::readiness::{Ahead, Ready, Socketed};
use super::transport::{Transport, local_token};
use super::work::Work;

/// Maximum number of ready connections reported at once.
const EVENTS: usize = 1_024;

/// A thread's epoll instance.
#[derive(Debug)]
pub(super) struct Epoll {
    poll: Poll,
    events: Events,
}

/// A connection and its read buffer.
#[derive(Debug)]
pub(super) struct Line {
    socketed: Socketed,
    ahead: Option<Ahead>,
}

impl Epoll {
    pub(super) fn new(poll: Poll) -> Self {
        Self { poll, events: Events::with_capacity(EVENTS) }
    }
}

impl Transport for Epoll {
    type Line = Line;
    type Event = Ready;

    fn wait(&mut self, _now: Instant, timeout: Option<Duration>, into: &mut Vec<(u64, Ready)>) {
        match self.poll.poll(&mut self.events, timeout) {
            Ok(()) => into
                .extend(self.events.iter().map(|event| (event.token().0 as u64, Ready::of(event)))),
            // EINTR, or a bug; either way no event was reported.
            Err(error) => debug_assert_eq!(error.kind(), ErrorKind::Interrupted),
        }
    }

    fn add(
        &mut self,
        id: u64,
        socket: TcpStream,
        connection: Connection,
    ) -> Result<Line, (Line, io::Error)> {
        let mut socketed = Socketed::new(socket, connection);
        let interest = Interest::READABLE | Interest::WRITABLE;
        let registered =
            self.poll.registry().register(socketed.socket(), Token(local_token(id)), interest);
        let line = Line { socketed, ahead: None };
        match registered {
            Ok(()) => Ok(line),
            Err(error) => Err((line, error)),
        }
    }

    fn connection(line: &mut Line) -> &mut Connection {
        &mut line.socketed.connection
    }

    fn note(&mut self, line: &mut Line, event: Ready, _work: &mut Work) -> bool {
        line.socketed.note(event);
        true
    }

    fn late(&mut self, _id: u64, _event: Ready) {}

    fn prepare(&mut self, line: &mut Line, work: &mut Work) {
        line.ahead = line.socketed.read_ahead(work);
    }

    fn take_in(&mut self, line: &mut Line, work: &mut Work) {
        line.socketed.take_in(line.ahead.take(), work);
    }

    fn flush(&mut self, _id: u64, line: &mut Line, work: &mut Work) -> Next {
        line.socketed.flush(work)
    }

    fn release(&mut self, _id: u64, line: &mut Line) -> bool {
        line.ahead.is_none() && line.socketed.connection.is_sent()
    }

    fn part(&mut self, mut line: Line) -> Result<Moved, (Line, io::Error)> {
        match self.poll.registry().deregister(line.socketed.socket()) {
            Ok(()) => {
                let (socket, connection) = line.socketed.into_parts();
                Ok(Moved { socket, connection })
            }
            Err(error) => Err((line, error)),
        }
    }

    fn close(&mut self, _id: u64, line: Line, work: &mut Work) {
        line.socketed.close(work);
    }
}
