//! A thread's resources for its turns, whichever connection it serves: reused buffers, the limits,
//! the time, its counters.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use super::Shared;
use super::options::ServerLimits;
use super::statistics::{Counters, Tally, ThreadCounters};
use crate::engine::{Config, Engine, OutputBound};
use crate::resp;

/// Maximum size of a read. A pipeline of 64 commands of 100 bytes takes a sixth of it.
const READ_SIZE: usize = 64 << 10;
/// Maximum number of bytes read ahead in one turn for all connections.
const ARENA_SIZE: usize = 256 << 10;
/// Maximum number of bytes read ahead for one connection, and the room below which none are read.
const WINDOW_MAX: usize = 16 << 10;
const WINDOW_MIN: usize = 4 << 10;
/// Maximum number of buffers kept for later connections.
const SPARES_MAX: usize = 64;
/// A larger buffer is kept only for output, which is soon sent.
const SPARE_SIZE_MAX: usize = 64 << 10;
/// Number of larger buffers kept, and their maximum size: larger ones are freed. Memory that is
/// freed and allocated again is faulted in page by page, which costs more than a long reply itself.
const LARGE_SPARES_MAX: usize = 16;
pub(super) const LARGE_SPARE_SIZE_MAX: usize = 256 << 10;

/// A thread's resources.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) engine: Arc<Engine>,
    pub(super) counters: Arc<Counters>,
    pub(super) limits: Limits,
    /// Buffer for reads; used by one connection at a time.
    pub(super) buffer: Vec<u8>,
    /// Buffer for reads ahead of their turn.
    pub(super) arena: Arena,
    /// A command's words; empty between commands.
    pub(super) words: Vec<&'static [u8]>,
    spares: Vec<Vec<u8>>,
    large_spares: Vec<Vec<u8>>,
    /// Maximum number of each kept.
    spares_max: (usize, usize),
    /// The authority's generation in this turn.
    pub(super) generation: u64,
    /// The time of this turn.
    pub(super) now: Instant,
    /// Whether commands ran since the log was last settled.
    pub(super) ran: bool,
    pub(super) tally: Tally,
}

/// The limits of a turn: the server's own, and the current ones of the engine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) resp: resp::Limits,
    pub(super) line_size_max: usize,
    pub(super) query_size_max: usize,
    pub(super) output_size_max: usize,
    /// Maximum memory of all connections; 0 for no limit.
    pub(super) clients_memory_max: usize,
    pub(super) normal_output: OutputBound,
    pub(super) pubsub_output: OutputBound,
    pub(super) own: ServerLimits,
}

/// Input of many connections, one after another, for one turn.
#[derive(Debug, Default)]
pub(super) struct Arena {
    bytes: Vec<u8>,
    /// How many bytes of it are used.
    pub(super) filled: usize,
}

impl Arena {
    /// Returns room for the next read, if there is enough to be worthwhile.
    pub(super) fn window(&mut self) -> Option<&mut [u8]> {
        if self.bytes.is_empty() {
            self.bytes = vec![0; ARENA_SIZE];
        }
        let left = self.bytes.len() - self.filled;
        (left >= WINDOW_MIN).then(|| {
            let to = self.filled + left.min(WINDOW_MAX);
            &mut self.bytes[self.filled..to]
        })
    }

    /// Returns what was read into a part of it.
    pub(super) fn bytes(&self, from: usize, to: usize) -> &[u8] {
        &self.bytes[from..to]
    }
}

impl Limits {
    fn new(own: ServerLimits, config: &Config) -> Self {
        // A limit of 0 means no limit.
        let bound = |set: &AtomicUsize| match set.load(Relaxed) {
            0 => usize::MAX,
            bound => bound,
        };
        let resp = resp::Limits { arg_size_max: bound(&config.word_max), ..own.resp };
        Self {
            resp,
            line_size_max: bound(&config.line_max),
            query_size_max: bound(&config.request_max),
            output_size_max: bound(&config.output_max),
            clients_memory_max: config.clients_memory_max.load(Relaxed),
            normal_output: config.normal_output.get(),
            pubsub_output: config.pubsub_output.get(),
            own,
        }
    }
}

impl Work {
    pub(super) fn new(shared: &Shared) -> Self {
        Self {
            engine: Arc::clone(&shared.engine),
            counters: Arc::clone(&shared.counters),
            limits: Limits::new(shared.limits, shared.engine.config()),
            buffer: vec![0; READ_SIZE],
            arena: Arena::default(),
            words: Vec::new(),
            spares: Vec::new(),
            large_spares: Vec::new(),
            spares_max: (SPARES_MAX, LARGE_SPARES_MAX),
            generation: shared.engine.authority_generation(),
            now: Instant::now(),
            ran: false,
            tally: Tally::default(),
        }
    }

    /// Returns the resources of a thread that serves one connection at a time. There may be
    /// hundreds of these threads, and no account includes what they keep: input and output of one
    /// connection, and no large buffers.
    pub(super) fn for_one(shared: &Shared) -> Self {
        Self { spares_max: (2, 0), ..Self::new(shared) }
    }

    /// Reads the time and the settings for a turn of this thread.
    pub(super) fn begin_turn(&mut self) {
        self.now = Instant::now();
        self.engine.begin_turn();
        self.arena.filled = 0;
        self.generation = self.engine.authority_generation();
        self.limits = Limits::new(self.limits.own, self.engine.config());
    }

    /// Ends the turn and adds its counters.
    pub(super) fn end_turn(&mut self, counters: &ThreadCounters) {
        self.engine.end_turn();
        let statistics = self.engine.statistics();
        if self.tally.bytes_in > 0 {
            statistics.bytes_in.fetch_add(self.tally.bytes_in, Relaxed);
        }
        if self.tally.bytes_out > 0 {
            statistics.bytes_out.fetch_add(self.tally.bytes_out, Relaxed);
        }
        counters.add(&mut self.tally);
    }

    /// Returns an empty buffer.
    pub(super) fn spare(&mut self) -> Vec<u8> {
        self.spares.pop().unwrap_or_default()
    }

    /// Returns an empty buffer for replies, a large one if there is one.
    pub(super) fn spare_for_output(&mut self) -> Vec<u8> {
        self.large_spares.pop().unwrap_or_else(|| self.spare())
    }

    /// Keeps a buffer for later use.
    pub(super) fn recycle(&mut self, mut buffer: Vec<u8>) {
        let (small, large) = self.spares_max;
        let (spares, count_max) = match buffer.capacity() {
            0 => return,
            size if size <= SPARE_SIZE_MAX => (&mut self.spares, small),
            size if size <= LARGE_SPARE_SIZE_MAX => (&mut self.large_spares, large),
            _ => return,
        };
        if spares.len() < count_max {
            buffer.clear();
            spares.push(buffer);
        }
    }

    /// Settles the commands that ran since the last time. Returns whether their replies may be
    /// sent.
    pub(super) fn settle(&mut self) -> bool {
        if !std::mem::take(&mut self.ran) {
            return true;
        }
        self.tally.settles += 1;
        self.engine
            .settle()
            .inspect_err(|error| {
                let error = forebay_base::error_chain::chain(error);
                tracing::error!(%error, "writes cannot be acknowledged");
            })
            .is_ok()
    }
}
