//! The pooled mode: one thread waits for events, and a limited number of workers serve.
//!
//! A connection with work is queued once; a worker takes it, serves one turn of it and releases it,
//! so no worker is tied to a connection. The queue is thus never longer than the number of
//! connections. The number of workers follows [`super::sizing`].
//!
//! Invariants: a connection is queued or being served exactly while its flag `SCHEDULED` is set, so
//! only one worker serves it at a time and no event is lost; a blocked command holds no worker.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Token};
use parking_lot::{Condvar, Mutex};

use super::acceptor::Acceptor;
use super::connection::{Connection, Next};
use super::inbox::{Accepted, Inbox, Left};
use super::readiness::{Ready, Socketed};
use super::sizing::{Load, Sizer};
use super::slots::Slots;
use super::tls::Tls;
use super::transport::local_token;
use super::work::Work;
use super::{Shared, WAKER};
use crate::engine::{Mailbox, Notify};

const EVENTS: usize = 1_024;
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// Interval between checks of the pool's size while it has work or more workers than it needs.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Minimum number of workers.
const WORKERS_MIN: usize = 4;

/// The connection is queued or being served.
const SCHEDULED: u8 = 1;
const READABLE: u8 = 1 << 1;
const WRITABLE: u8 = 1 << 2;
const HUNG_UP: u8 = 1 << 3;
const MAIL: u8 = 1 << 4;

/// A connection in the pool.
#[derive(Debug)]
struct Task {
    id: u64,
    flags: AtomicU8,
    /// `None` once it is closed.
    connection: Mutex<Option<Socketed>>,
}

/// State shared by the workers and the poller.
#[derive(Debug)]
struct Pool {
    shared: Arc<Shared>,
    inbox: Arc<Inbox>,
    queue: Mutex<Queue>,
    filled: Condvar,
}

#[derive(Debug)]
struct Queue {
    tasks: VecDeque<Arc<Task>>,
    workers: usize,
    /// Desired number of workers; those above it end when they find no task.
    target: usize,
    stopping: bool,
}

impl Pool {
    /// Records an event of a connection, and queues the connection unless it is queued or being
    /// served.
    fn schedule(&self, task: &Arc<Task>, happened: u8) {
        if task.flags.fetch_or(happened | SCHEDULED, AcqRel) & SCHEDULED == 0 {
            self.push(Arc::clone(task));
        }
    }

    fn push(&self, task: Arc<Task>) {
        self.queue.lock().tasks.push_back(task);
        self.shared.counters.pool.queued.fetch_add(1, Relaxed);
        self.shared.engine.statistics().workers_queue.fetch_add(1, Relaxed);
        self.filled.notify_one();
    }

    /// Returns the next task; `None`: this worker is no longer needed.
    fn pop(&self) -> Option<Arc<Task>> {
        let mut queue = self.queue.lock();
        loop {
            if let Some(task) = queue.tasks.pop_front() {
                self.shared.counters.pool.queued.fetch_sub(1, Relaxed);
                self.shared.engine.statistics().workers_queue.fetch_sub(1, Relaxed);
                return Some(task);
            }
            if queue.stopping || queue.workers > queue.target {
                queue.workers -= 1;
                self.count_workers(queue.workers);
                return None;
            }
            self.filled.wait(&mut queue);
        }
    }

    fn count_workers(&self, workers: usize) {
        self.shared.counters.pool.workers.store(workers, Relaxed);
        self.shared.engine.statistics().workers.store(workers, Relaxed);
    }

    /// The main loop of a worker.
    fn work(&self) {
        let mut work = Work::for_one(&self.shared);
        let (counters, statistics) = (&self.shared.counters.pool, self.shared.engine.statistics());
        while let Some(task) = self.pop() {
            counters.busy.fetch_add(1, Relaxed);
            statistics.workers_busy.fetch_add(1, Relaxed);
            work.begin_turn();
            self.serve(&task, &mut work);
            work.end_turn(self.shared.counters.thread(0));
            let took = u64::try_from(work.now.elapsed().as_nanos()).unwrap_or(u64::MAX);
            counters.task_ns.fetch_add(took, Relaxed);
            counters.tasks.fetch_add(1, Relaxed);
            counters.busy.fetch_sub(1, Relaxed);
            statistics.workers_busy.fetch_sub(1, Relaxed);
        }
    }

    /// Serves one turn of one connection.
    fn serve(&self, task: &Arc<Task>, work: &mut Work) {
        let happened = task.flags.swap(SCHEDULED, AcqRel);
        let mut held = task.connection.lock();
        let Some(connection) = held.as_mut() else { return };
        connection.connection.mail |= happened & MAIL != 0;
        connection.note(Ready {
            readable: happened & READABLE != 0,
            writable: happened & WRITABLE != 0,
            hung_up: happened & HUNG_UP != 0,
        });
        connection.take_in(None, work);
        if !work.settle() {
            connection.connection.unsettled();
        }
        let next = connection.flush(work);
        if let Some(at) = connection.connection.new_deadline() {
            self.inbox.leave(|left| left.waiting.push((at, task.id)));
        }
        if next == Next::Close {
            if let Some(connection) = held.take() {
                connection.close(work);
            }
            self.inbox.leave(|left| left.ended.push(task.id));
            return;
        }
        drop(held);
        let idle = next == Next::Wait
            && task.flags.compare_exchange(SCHEDULED, 0, AcqRel, Acquire).is_ok();
        if !idle {
            // At the end of the queue: a connection that always has more work delays no other.
            self.push(Arc::clone(task));
        }
    }
}

/// The thread that waits for events.
#[derive(Debug)]
pub(super) struct Poller {
    poll: Poll,
    acceptor: Option<Acceptor>,
    pool: Arc<Pool>,
    sizer: Sizer,
    workers: Vec<JoinHandle<()>>,
    tasks: Slots<Arc<Task>>,
    left: Left,
    deadlines: BinaryHeap<Reverse<(Instant, u64)>>,
    work: Work,
    sweep_at: Instant,
    look_at: Instant,
    /// Tasks and their nanoseconds at the last check.
    looked: (u64, u64),
    stop_at: Option<Instant>,
}

impl Poller {
    /// Returns a poller and starts the first of its workers.
    ///
    /// # Errors
    /// No worker can be started.
    pub(super) fn new(
        poll: Poll,
        inbox: Arc<Inbox>,
        acceptor: Option<Acceptor>,
        shared: Arc<Shared>,
        workers_max: usize,
    ) -> io::Result<Self> {
        let work = Work::for_one(&shared);
        let sizer = Sizer::new(WORKERS_MIN, workers_max);
        let target = sizer.start();
        let queue = Queue { tasks: VecDeque::new(), workers: 0, target, stopping: false };
        let pool =
            Arc::new(Pool { shared, inbox, queue: Mutex::new(queue), filled: Condvar::new() });
        let mut poller = Self {
            poll,
            acceptor,
            pool,
            sizer,
            workers: Vec::new(),
            tasks: Slots::new(),
            left: Left::default(),
            deadlines: BinaryHeap::new(),
            sweep_at: work.now + SWEEP_EVERY,
            look_at: work.now + LOOK_EVERY,
            looked: (0, 0),
            stop_at: None,
            work,
        };
        poller.hire()?;
        Ok(poller)
    }

    /// Starts workers until the desired number is reached.
    fn hire(&mut self) -> io::Result<()> {
        self.workers.retain(|worker| !worker.is_finished());
        loop {
            let mut queue = self.pool.queue.lock();
            if queue.workers >= queue.target {
                return Ok(());
            }
            queue.workers += 1;
            self.pool.count_workers(queue.workers);
            drop(queue);
            let pool = Arc::clone(&self.pool);
            let builder = std::thread::Builder::new().name("cache-worker".to_owned());
            match builder.spawn(move || pool.work()) {
                Ok(worker) => self.workers.push(worker),
                Err(error) => {
                    let mut queue = self.pool.queue.lock();
                    queue.workers -= 1;
                    queue.target = queue.workers.max(1);
                    self.pool.count_workers(queue.workers);
                    return Err(error);
                }
            }
        }
    }

    /// Distributes work until it is stopped and everything is sent.
    pub(super) fn run(mut self) {
        let mut events = Events::with_capacity(EVENTS);
        loop {
            let timeout =
                if self.pool.inbox.doze() { self.timeout() } else { Some(Duration::ZERO) };
            if self.poll.poll(&mut events, timeout).is_err() {
                events.clear();
            }
            self.pool.inbox.rise();
            self.work.begin_turn();
            self.pass_out(&events);
            self.look();
            self.sweep();
            self.work.end_turn(self.pool.shared.counters.thread(0));
            if self.pool.shared.stopping.load(Relaxed) && self.stop() {
                return;
            }
        }
    }

    fn timeout(&self) -> Option<Duration> {
        let now = Instant::now();
        let deadline = self.deadlines.peek().map(|Reverse((at, _))| *at);
        let accept = self.acceptor.as_ref().and_then(|acceptor| acceptor.next(now));
        let sweep = (self.tasks.len() > 0).then_some(self.sweep_at);
        let counters = &self.pool.shared.counters.pool;
        let unsettled = counters.queued.load(Relaxed) > 0
            || counters.busy.load(Relaxed) > 0
            || counters.workers.load(Relaxed) > self.sizer.start();
        let look = unsettled.then_some(self.look_at);
        let first = [deadline, accept, sweep, look, self.stop_at].into_iter().flatten().min();
        first.map(|at| at.saturating_duration_since(now))
    }

    /// Queues every connection that had an event.
    fn pass_out(&mut self, events: &Events) {
        for event in events {
            let token = event.token();
            if token == WAKER || self.acceptor.as_mut().is_some_and(|it| it.note(token)) {
                continue;
            }
            let ready = Ready::of(event);
            let flag = |up: bool, flag: u8| if up { flag } else { 0 };
            let happened = flag(ready.readable, READABLE)
                | flag(ready.writable, WRITABLE)
                | flag(ready.hung_up, HUNG_UP);
            self.schedule(token.0 as u64, happened);
        }
        if let Some(acceptor) = &mut self.acceptor {
            acceptor.accept(self.work.now);
        }
        let mut left = std::mem::take(&mut self.left);
        self.pool.inbox.take(&mut left);
        for accepted in left.accepted.drain(..) {
            self.take_over(accepted);
        }
        for id in left.notified.drain(..) {
            self.schedule(id, MAIL);
        }
        for id in left.ended.drain(..) {
            if self.tasks.remove(id).is_some() {
                self.pool.shared.left(0);
            }
        }
        self.deadlines.extend(left.waiting.drain(..).map(Reverse));
        self.left = left;
        while let Some(&Reverse((at, id))) = self.deadlines.peek()
            && at <= self.work.now
        {
            self.deadlines.pop();
            self.schedule(id, 0);
        }
    }

    fn schedule(&mut self, id: u64, happened: u8) {
        if let Some(task) = self.tasks.get_mut(id) {
            self.pool.schedule(task, happened);
        }
    }

    fn take_over(&mut self, accepted: Accepted) {
        let Accepted { socket, peer, wire, tls } = accepted;
        let addresses = (peer, socket.local_addr().ok());
        let Ok(tls) = tls.map(Tls::new).transpose() else {
            self.pool.shared.counters.accept_errors.fetch_add(1, Relaxed);
            self.pool.shared.left(0);
            return;
        };
        let id = self.tasks.reserve();
        let notify: Arc<dyn Notify> = Arc::<Inbox>::clone(&self.pool.inbox);
        let mailbox = Arc::new(Mailbox::new(notify, id));
        let connection = Connection::new(addresses, wire, tls, mailbox, &self.work);
        let mut connection = Socketed::new(socket, connection);
        let token = Token(local_token(id));
        let interest = Interest::READABLE | Interest::WRITABLE;
        let registered = self.poll.registry().register(connection.socket(), token, interest);
        if registered.is_err() {
            self.pool.shared.counters.accept_errors.fetch_add(1, Relaxed);
            connection.close(&mut self.work);
            self.tasks.remove(id);
            self.pool.shared.left(0);
            return;
        }
        let connection = Mutex::new(Some(connection));
        self.tasks.put(id, Arc::new(Task { id, flags: AtomicU8::new(0), connection }));
    }

    /// Checks whether the pool should grow or shrink.
    fn look(&mut self) {
        let counters = &self.pool.shared.counters.pool;
        let (tasks, task_ns) = (counters.tasks.load(Relaxed), counters.task_ns.load(Relaxed));
        if self.work.now < self.look_at {
            return;
        }
        self.look_at = self.work.now + LOOK_EVERY;
        let (tasks_before, ns_before) = std::mem::replace(&mut self.looked, (tasks, task_ns));
        let average = task_ns.saturating_sub(ns_before).checked_div(tasks - tasks_before);
        let mut queue = self.pool.queue.lock();
        let load = Load {
            workers: queue.workers.max(1),
            busy: counters.busy.load(Relaxed),
            queued: queue.tasks.len(),
            task_average: average.map(Duration::from_nanos),
        };
        let target = self.sizer.decide(load);
        let before = std::mem::replace(&mut queue.target, target);
        drop(queue);
        if target < before {
            counters.shrunk.fetch_add(1, Relaxed);
            // Workers that sleep wake and find that they are too many.
            self.pool.filled.notify_all();
        } else if target > before {
            counters.grown.fetch_add(1, Relaxed);
        }
        if let Err(error) = self.hire() {
            tracing::warn!(%error, "the pool cannot start another thread");
        }
    }

    /// Closes a connection that no worker serves right now.
    fn close_if(&mut self, id: u64, over: impl FnOnce(&mut Connection, &Work) -> bool) {
        let Some(task) = self.tasks.get_mut(id).cloned() else { return };
        let Some(mut held) = task.connection.try_lock() else { return };
        if held.as_mut().is_some_and(|it| over(&mut it.connection, &self.work)) {
            if let Some(connection) = held.take() {
                connection.close(&mut self.work);
            }
            self.tasks.remove(id);
            self.pool.shared.left(0);
        }
    }

    fn sweep(&mut self) {
        if self.work.now < self.sweep_at {
            return;
        }
        self.sweep_at = self.work.now + SWEEP_EVERY;
        let ids: Vec<u64> = self.tasks.iter_mut().map(|(id, _)| id).collect();
        let mut waiting = Vec::new();
        for id in ids {
            self.close_if(id, |connection, work| {
                waiting.extend(connection.deadline().map(|at| Reverse((at, id))));
                connection.is_overdue(work)
            });
        }
        if self.deadlines.len() > 2 * self.tasks.len() + 1_024 {
            self.deadlines = waiting.into();
        }
    }

    /// Performs a step of stopping; returns whether it is complete.
    fn stop(&mut self) -> bool {
        self.acceptor = None;
        let now = self.work.now;
        let stop_at = *self.stop_at.get_or_insert(now + self.work.limits.own.stop_limit);
        let late = now >= stop_at;
        let ids: Vec<u64> = self.tasks.iter_mut().map(|(id, _)| id).collect();
        for id in ids {
            self.close_if(id, |connection, _| connection.finish() || late);
        }
        if self.tasks.len() > 0 && !late {
            // A connection being served is checked again soon.
            self.stop_at = Some(stop_at);
            self.look_at = now + Duration::from_millis(1);
            return false;
        }
        true
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        self.pool.queue.lock().stopping = true;
        self.pool.filled.notify_all();
        for worker in self.workers.drain(..) {
            if worker.join().is_err() {
                tracing::error!("a worker thread of the cache server panicked");
            }
        }
        let ids: Vec<u64> = self.tasks.iter_mut().map(|(id, _)| id).collect();
        for id in ids {
            self.close_if(id, |_, _| true);
        }
    }
}
