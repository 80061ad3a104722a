//! A thread that owns connections: waits for events, then serves all ready connections in one turn.
//!
//! A turn: the input of every ready connection is read; each runs its commands and collects its
//! replies; then the log is settled once for all of them; then everything is sent. How bytes are
//! read and sent is up to a [`Transport`].
//!
//! A connection may move to another thread, as `balance` decides: between two of its turns, when
//! all its output is sent and the kernel waits for none of its input.
//!
//! Invariants: a connection is in the batch of a turn at most once; nothing is sent before the
//! turn is settled; the thread sleeps only if its inbox is empty and no connection has work left; a
//! connection is always with one thread, or in the inbox of one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use mio::Token;
use mio::net::TcpStream;

use super::acceptor::Acceptor;
use super::balance::LOOK_EVERY;
use super::connection::{Connection, Next};
use super::inbox::{Accepted, Inbox, Left, Moved};
use super::slots::Slots;
use super::tls::Tls;
use super::transport::{Transport, local_token};
use super::work::Work;
use super::{Shared, WAKER};
use crate::engine::{Mailbox, Notify};

/// Interval between checks for idle and stalled connections.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// A connection and its thread's state for it.
#[derive(Debug)]
struct Held<L> {
    line: L,
    /// Whether it is in the batch already.
    batched: bool,
    /// The thread it is to move to.
    leaves_for: Option<usize>,
    /// The last period between two looks in which it had a turn.
    period: u32,
}

impl<L> Held<L> {
    fn new(line: L) -> Self {
        Self { line, batched: false, leaves_for: None, period: 0 }
    }
}

/// The thread's state.
#[derive(Debug)]
pub(super) struct EventLoop<T: Transport> {
    number: usize,
    transport: T,
    inbox: Arc<Inbox>,
    acceptor: Option<Acceptor>,
    shared: Arc<Shared>,
    work: Work,
    connections: Slots<Held<T::Line>>,
    /// Connections of this turn.
    batch: Vec<u64>,
    /// Connections that have more work: of the next turn.
    again: Vec<u64>,
    left: Left,
    /// Timeouts of blocked commands.
    deadlines: BinaryHeap<Reverse<(Instant, u64)>>,
    sweep_at: Instant,
    look_at: Instant,
    /// The period between two looks, and the number of connections that had a turn in it.
    period: u32,
    busy: usize,
    /// The thread that connections with a turn are to move to, and the number of them.
    giving: Option<(usize, usize)>,
    stop_at: Option<Instant>,
}

impl<T: Transport> EventLoop<T> {
    pub(super) fn new(
        number: usize,
        transport: T,
        inbox: Arc<Inbox>,
        acceptor: Option<Acceptor>,
        shared: Arc<Shared>,
    ) -> Self {
        let work = Work::new(&shared);
        Self {
            number,
            transport,
            inbox,
            acceptor,
            shared,
            connections: Slots::new(),
            batch: Vec::new(),
            again: Vec::new(),
            left: Left::default(),
            deadlines: BinaryHeap::new(),
            sweep_at: work.now + SWEEP_EVERY,
            look_at: work.now + LOOK_EVERY,
            period: 1,
            busy: 0,
            giving: None,
            stop_at: None,
            work,
        }
    }

    /// Runs until it is stopped and everything is sent, or the time limit for that has passed.
    pub(super) fn run(mut self) {
        let mut events = Vec::new();
        loop {
            self.wait(&mut events);
            self.work.begin_turn();
            self.look_around(&mut events);
            self.serve();
            self.sweep();
            self.look();
            self.work.end_turn(self.shared.counters.thread(self.number));
            if self.shared.stopping.load(Relaxed) && self.stop() {
                return;
            }
        }
    }

    /// Waits until there is something to do.
    fn wait(&mut self, events: &mut Vec<(u64, T::Event)>) {
        let may_sleep = self.again.is_empty() && self.inbox.doze();
        let now = Instant::now();
        let timeout = if may_sleep { self.timeout(now) } else { Some(Duration::ZERO) };
        self.transport.wait(now, timeout, events);
        self.inbox.rise();
    }

    fn timeout(&self, now: Instant) -> Option<Duration> {
        let deadline = self.deadlines.peek().map(|Reverse((at, _))| *at);
        let accept = self.acceptor.as_ref().and_then(|acceptor| acceptor.next(now));
        let sweep = (self.connections.len() > 0).then_some(self.sweep_at);
        let first = [deadline, accept, sweep, self.stop_at].into_iter().flatten().min();
        first.map(|at| at.saturating_duration_since(now))
    }

    /// Collects the turn's batch from the kernel, the inbox, the clock and the previous turn.
    fn look_around(&mut self, events: &mut Vec<(u64, T::Event)>) {
        for id in std::mem::take(&mut self.again) {
            self.add_to_batch(id, |_| {});
        }
        for (id, event) in events.drain(..) {
            self.note(id, event);
        }
        if let Some(acceptor) = &mut self.acceptor {
            acceptor.accept(self.work.now);
        }
        let mut left = std::mem::take(&mut self.left);
        self.inbox.take(&mut left);
        for accepted in left.accepted.drain(..) {
            self.take_over(accepted);
        }
        for moved in left.moved.drain(..) {
            self.adopt(moved);
        }
        for id in left.notified.drain(..) {
            self.add_to_batch(id, |connection| connection.mail = true);
        }
        self.left = left;
        self.forget_old_deadlines();
        while let Some(&Reverse((at, id))) = self.deadlines.peek()
            && at <= self.work.now
        {
            self.deadlines.pop();
            self.add_to_batch(id, |_| {});
        }
    }

    /// Blocked commands that were answered leave their timeouts in the heap; there are never many
    /// more of them than connections.
    fn forget_old_deadlines(&mut self) {
        if self.deadlines.len() > 2 * self.connections.len() + 1_024 {
            let waiting = self.connections.iter_mut();
            self.deadlines = waiting
                .filter_map(|(id, held)| {
                    Some(Reverse((T::connection(&mut held.line).deadline()?, id)))
                })
                .collect();
        }
    }

    /// Records a socket's event.
    fn note(&mut self, id: u64, event: T::Event) {
        if let Some(held) = self.connections.get_mut(id) {
            if self.transport.note(&mut held.line, event, &mut self.work) {
                self.add_to_batch(id, |_| {});
            }
            return;
        }
        let token = Token(local_token(id));
        if token != WAKER && !self.acceptor.as_mut().is_some_and(|it| it.note(token)) {
            self.transport.late(id, event);
        }
    }

    fn add_to_batch(&mut self, id: u64, note: impl FnOnce(&mut Connection)) {
        if let Some(held) = self.connections.get_mut(id) {
            note(T::connection(&mut held.line));
            if !std::mem::replace(&mut held.batched, true) {
                self.batch.push(id);
            }
        }
    }

    /// Adds a socket to this thread's connections.
    fn take_over(&mut self, mut accepted: Accepted) {
        let tls = match accepted.tls.take().map(Tls::new).transpose() {
            Ok(tls) => tls,
            Err(error) => {
                tracing::warn!(%error, "the TLS configuration cannot be used");
                self.shared.counters.accept_errors.fetch_add(1, Relaxed);
                self.shared.left(self.number);
                return;
            }
        };
        let id = self.connections.reserve();
        let notify: Arc<dyn Notify> = Arc::<Inbox>::clone(&self.inbox);
        let mailbox = Arc::new(Mailbox::new(notify, id));
        let addresses = (accepted.peer, accepted.socket.local_addr().ok());
        let connection = Connection::new(addresses, accepted.wire, tls, mailbox, &self.work);
        self.watch(id, accepted.socket, connection);
    }

    /// Adds a connection that another thread gave up.
    fn adopt(&mut self, moved: Moved) {
        let Moved { socket, mut connection } = moved;
        let id = self.connections.reserve();
        connection.arrive(Arc::<Inbox>::clone(&self.inbox), id);
        if let Some(at) = connection.deadline() {
            self.deadlines.push(Reverse((at, id)));
        }
        self.watch(id, socket, connection);
        self.add_to_batch(id, |_| {});
    }

    fn watch(&mut self, id: u64, socket: TcpStream, connection: Connection) {
        match self.transport.add(id, socket, connection) {
            Ok(line) => self.connections.put(id, Held::new(line)),
            Err((line, error)) => {
                tracing::warn!(%error, "cannot watch a connection for events");
                self.shared.counters.accept_errors.fetch_add(1, Relaxed);
                self.connections.put(id, Held::new(line));
                self.close(id);
            }
        }
    }

    /// Runs both halves of the turn for all connections in the batch.
    fn serve(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        for &id in &batch {
            if let Some(held) = self.connections.get_mut(id) {
                self.transport.prepare(&mut held.line, &mut self.work);
            }
        }
        for &id in &batch {
            if let Some(held) = self.connections.get_mut(id) {
                held.batched = false;
                if std::mem::replace(&mut held.period, self.period) != self.period {
                    self.busy += 1;
                }
                self.transport.take_in(&mut held.line, &mut self.work);
                if let Some(at) = T::connection(&mut held.line).new_deadline() {
                    self.deadlines.push(Reverse((at, id)));
                }
            }
        }
        if !self.work.settle() {
            for &id in &batch {
                if let Some(held) = self.connections.get_mut(id) {
                    T::connection(&mut held.line).unsettled();
                }
            }
        }
        for &id in &batch {
            let Some(held) = self.connections.get_mut(id) else { continue };
            match self.transport.flush(id, &mut held.line, &mut self.work) {
                Next::Wait => self.may_move(id),
                Next::Again => self.again.push(id),
                Next::Close => self.close(id),
            }
        }
        self.batch = batch;
        self.batch.clear();
    }

    /// Compares what the threads have to do, if that is due.
    fn look(&mut self) {
        if self.work.now < self.look_at {
            return;
        }
        self.look_at = self.work.now + LOOK_EVERY;
        self.shared.balance.look(self.number, self.work.now);
        let order = self.shared.balance.order(self.number);
        self.giving = order.map(|(to, share)| (to, share.of(self.busy)));
        (self.period, self.busy) = (self.period.wrapping_add(1), 0);
    }

    /// Moves a connection that had a turn to another thread, if it is to move and can.
    fn may_move(&mut self, id: u64) {
        let Some(held) = self.connections.get_mut(id) else { return };
        let to = match held.leaves_for {
            Some(to) => to,
            None => match leaves_for(&self.shared, self.number, &mut self.giving) {
                Some(to) => *held.leaves_for.insert(to),
                None => return,
            },
        };
        if !self.transport.release(id, &mut held.line) {
            return;
        }
        let Some(held) = self.connections.remove(id) else { return };
        match self.transport.part(held.line) {
            Ok(moved) => self.shared.hand_over(self.number, to, moved),
            Err((line, error)) => {
                tracing::warn!(%error, "cannot move a connection to another thread");
                self.transport.close(id, line, &mut self.work);
                self.shared.left(self.number);
            }
        }
    }

    fn close(&mut self, id: u64) {
        if let Some(held) = self.connections.remove(id) {
            self.transport.close(id, held.line, &mut self.work);
            self.shared.left(self.number);
        }
    }

    /// Closes connections that were idle or did not read for too long. Runs once a second.
    fn sweep(&mut self) {
        let now = self.work.now;
        if now < self.sweep_at {
            return;
        }
        self.sweep_at = now + SWEEP_EVERY;
        let over: Vec<u64> = self
            .connections
            .iter_mut()
            .filter_map(|(id, held)| {
                T::connection(&mut held.line).is_overdue(&self.work).then_some(id)
            })
            .collect();
        for id in over {
            self.close(id);
        }
    }

    /// Performs a step of stopping; returns whether it is complete.
    fn stop(&mut self) -> bool {
        let now = self.work.now;
        // No connection is accepted from here on; those in the backlog are reset with the listener.
        self.acceptor = None;
        let stop_at = *self.stop_at.get_or_insert(now + self.work.limits.own.stop_limit);
        let late = now >= stop_at;
        let mut over = Vec::new();
        for (id, held) in self.connections.iter_mut() {
            if T::connection(&mut held.line).finish() || late {
                over.push(id);
            }
        }
        for id in over {
            self.close(id);
        }
        late || (self.connections.len() == 0 && self.again.is_empty() && self.transport.is_idle())
    }
}

/// The thread to which a connection of thread `number` that had a turn is to move, if it is to.
fn leaves_for(
    shared: &Shared,
    number: usize,
    giving: &mut Option<(usize, usize)>,
) -> Option<usize> {
    if shared.stopping.load(Relaxed) {
        return None;
    }
    if number >= shared.balance.active() {
        return shared.fewest_connections();
    }
    let (to, rest) = giving.as_mut()?;
    *rest = rest.checked_sub(1)?;
    Some(*to)
}

impl<T: Transport> Drop for EventLoop<T> {
    /// Also runs when a bug ends the thread: no connection may then seem to be served.
    fn drop(&mut self) {
        let ids: Vec<u64> = self.connections.iter_mut().map(|(id, _)| id).collect();
        for id in ids {
            self.close(id);
        }
    }
}
