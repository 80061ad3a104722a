//! Counters of the server's threads, readable at any time from any other thread.
//!
//! A thread counts in its own [`Tally`] and adds it to its shared counters once per turn, so a
//! command costs no atomic operation.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::seldom::Seldom;

/// Counts of one thread since its last turn.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) commands: u64,
    pub(super) reads: u64,
    pub(super) writes: u64,
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
    pub(super) settles: u64,
}

/// The counters of one event loop (or of the pool's poller and its workers together).
#[derive(Debug, Default)]
pub(super) struct ThreadCounters {
    pub(super) open: AtomicUsize,
    pub(super) taken: AtomicU64,
    turns: AtomicU64,
    commands: AtomicU64,
    reads: AtomicU64,
    writes: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    settles: AtomicU64,
}

impl ThreadCounters {
    /// Adds a turn's tally and resets it.
    pub(super) fn add(&self, tally: &mut Tally) {
        let Tally { commands, reads, writes, bytes_in, bytes_out, settles } = std::mem::take(tally);
        self.turns.fetch_add(1, Relaxed);
        for (counter, count) in [
            (&self.commands, commands),
            (&self.reads, reads),
            (&self.writes, writes),
            (&self.bytes_in, bytes_in),
            (&self.bytes_out, bytes_out),
            (&self.settles, settles),
        ] {
            if count > 0 {
                counter.fetch_add(count, Relaxed);
            }
        }
    }

    fn read(&self) -> ThreadStatistics {
        ThreadStatistics {
            open: self.open.load(Relaxed),
            taken: self.taken.load(Relaxed),
            turns: self.turns.load(Relaxed),
            commands: self.commands.load(Relaxed),
            reads: self.reads.load(Relaxed),
            writes: self.writes.load(Relaxed),
            bytes_in: self.bytes_in.load(Relaxed),
            bytes_out: self.bytes_out.load(Relaxed),
            settles: self.settles.load(Relaxed),
        }
    }
}

/// Counters of the whole server.
#[derive(Debug)]
pub(super) struct Counters {
    threads: Vec<ThreadCounters>,
    /// Whether sockets are accessed by io_uring.
    pub(super) uring: AtomicBool,
    /// Open connections of all threads, and those on their way to one.
    pub(super) open: AtomicUsize,
    pub(super) refused: AtomicU64,
    pub(super) accept_errors: AtomicU64,
    pub(super) idle_closed: AtomicU64,
    pub(super) slow_closed: AtomicU64,
    pub(super) protocol_errors: AtomicU64,
    pub(super) http_refused: AtomicU64,
    pub(super) http_warned: Seldom,
    pub(super) panics: AtomicU64,
    pub(super) pool: PoolCounters,
}

/// Counters of the pool of workers.
#[derive(Debug, Default)]
pub(super) struct PoolCounters {
    pub(super) workers: AtomicUsize,
    pub(super) busy: AtomicUsize,
    pub(super) queued: AtomicUsize,
    pub(super) tasks: AtomicU64,
    pub(super) task_ns: AtomicU64,
    pub(super) grown: AtomicU64,
    pub(super) shrunk: AtomicU64,
}

impl Counters {
    pub(super) fn new(threads: usize) -> Self {
        Self {
            threads: (0..threads).map(|_| ThreadCounters::default()).collect(),
            uring: AtomicBool::new(false),
            open: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
            accept_errors: AtomicU64::new(0),
            idle_closed: AtomicU64::new(0),
            slow_closed: AtomicU64::new(0),
            protocol_errors: AtomicU64::new(0),
            http_refused: AtomicU64::new(0),
            http_warned: Seldom::new(),
            panics: AtomicU64::new(0),
            pool: PoolCounters::default(),
        }
    }

    /// The counters of an event loop.
    ///
    /// # Panics
    /// If there is no such loop: a bug, because the server assigns the numbers.
    pub(super) fn thread(&self, number: usize) -> &ThreadCounters {
        &self.threads[number]
    }

    pub(super) fn read(&self, pooled: bool, active: usize) -> ServerStatistics {
        let pool = &self.pool;
        ServerStatistics {
            uring: self.uring.load(Relaxed),
            open: self.open.load(Relaxed),
            refused: self.refused.load(Relaxed),
            accept_errors: self.accept_errors.load(Relaxed),
            idle_closed: self.idle_closed.load(Relaxed),
            slow_closed: self.slow_closed.load(Relaxed),
            protocol_errors: self.protocol_errors.load(Relaxed),
            http_refused: self.http_refused.load(Relaxed),
            panics: self.panics.load(Relaxed),
            active,
            threads: self.threads.iter().map(ThreadCounters::read).collect(),
            pool: pooled.then(|| PoolStatistics {
                workers: pool.workers.load(Relaxed),
                busy: pool.busy.load(Relaxed),
                queued: pool.queued.load(Relaxed),
                tasks: pool.tasks.load(Relaxed),
                task_ns: pool.task_ns.load(Relaxed),
                grown: pool.grown.load(Relaxed),
                shrunk: pool.shrunk.load(Relaxed),
            }),
        }
    }
}

/// Counters since the start; see [`super::Server::statistics`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerStatistics {
    /// Whether the threads access their sockets by io_uring.
    pub uring: bool,
    /// Connections open now.
    pub open: usize,
    /// Connections refused because the limit was reached.
    pub refused: u64,
    /// Failed attempts to accept a connection, mostly for lack of file descriptors.
    pub accept_errors: u64,
    /// Connections closed because they were idle.
    pub idle_closed: u64,
    /// Connections closed because they did not read their replies.
    pub slow_closed: u64,
    /// Connections closed because of a protocol error.
    pub protocol_errors: u64,
    /// Connections closed because they sent HTTP, or TLS to a plain port.
    pub http_refused: u64,
    /// Commands that panicked because of a bug, each of which closed its connection.
    pub panics: u64,
    /// Event loops in use now: the first of `threads`.
    pub active: usize,
    /// One per event loop.
    pub threads: Vec<ThreadStatistics>,
    /// The pool of workers, only in the pooled mode.
    pub pool: Option<PoolStatistics>,
}

/// Counters of one event loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ThreadStatistics {
    /// Connections it has now.
    pub open: usize,
    /// Connections it has received since the start.
    pub taken: u64,
    /// Turns: waits that returned an event.
    pub turns: u64,
    /// Commands executed.
    pub commands: u64,
    /// Reads from sockets.
    pub reads: u64,
    /// Writes to sockets.
    pub writes: u64,
    /// Bytes read.
    pub bytes_in: u64,
    /// Bytes written.
    pub bytes_out: u64,
    /// Number of times the log was made to acknowledge a turn's commands.
    pub settles: u64,
}

/// The pool of workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStatistics {
    /// Workers there are now.
    pub workers: usize,
    /// Workers with a task now.
    pub busy: usize,
    /// Connections waiting for a worker now.
    pub queued: usize,
    /// Tasks done.
    pub tasks: u64,
    /// Nanoseconds of all tasks in total.
    pub task_ns: u64,
    /// Number of times the pool grew.
    pub grown: u64,
    /// Number of times it shrank.
    pub shrunk: u64,
}
