//! What a thread needs for its turns, whichever connection it serves: buffers that are used over
//! and over, the limits, the time, its counts.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use super::Shared;
use super::options::ServerLimits;
use super::statistics::{Counters, Tally, ThreadCounters};
use crate::engine::{Config, Engine};
use crate::resp;

/// Bytes asked of the kernel at once. A pipeline of 64 commands of 100 bytes fits a sixth of it.
const READ_SIZE: usize = 64 << 10;
/// Bytes read ahead in one turn, of all connections together.
const ARENA_SIZE: usize = 256 << 10;
/// Bytes read ahead of one connection, and the room below which none is.
const WINDOW_MAX: usize = 16 << 10;
const WINDOW_MIN: usize = 4 << 10;
/// Buffers kept for the next connections that need one.
const SPARES_MAX: usize = 64;
/// A buffer that has grown beyond this is kept for outputs alone, which are soon sent.
const SPARE_SIZE_MAX: usize = 64 << 10;
/// Larger ones kept, and how large: beyond that they are given back to the allocator. Memory that is
/// given back and taken again is faulted in page by page, which costs more than a long reply itself.
const LARGE_SPARES_MAX: usize = 16;
const LARGE_SPARE_SIZE_MAX: usize = 256 << 10;

/// A thread's tools.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) engine: Arc<Engine>,
    pub(super) counters: Arc<Counters>,
    pub(super) limits: Limits,
    /// Where reads go; handed to one connection at a time.
    pub(super) buffer: Vec<u8>,
    /// Where reads ahead of their turn go.
    pub(super) arena: Arena,
    /// A command's words; always empty between commands.
    pub(super) words: Vec<&'static [u8]>,
    spares: Vec<Vec<u8>>,
    large_spares: Vec<Vec<u8>>,
    /// The time of this turn.
    pub(super) now: Instant,
    /// Whether commands ran since the log was last settled.
    pub(super) ran: bool,
    pub(super) tally: Tally,
}

/// The bounds of a turn: the server's own, and the engine's as they are set now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) resp: resp::Limits,
    pub(super) line_size_max: usize,
    pub(super) query_size_max: usize,
    pub(super) output_size_max: usize,
    pub(super) own: ServerLimits,
}

/// Input of many connections, one behind the other, for one turn.
#[derive(Debug, Default)]
pub(super) struct Arena {
    bytes: Vec<u8>,
    /// How much of it is taken.
    pub(super) filled: usize,
}

impl Arena {
    /// Room for the next read, if enough is left to make one worth it.
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

    /// What was read into a part of it.
    pub(super) fn bytes(&self, from: usize, to: usize) -> &[u8] {
        &self.bytes[from..to]
    }
}

impl Limits {
    fn new(own: ServerLimits, config: &Config) -> Self {
        // A bound of 0 means none.
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
            now: Instant::now(),
            ran: false,
            tally: Tally::default(),
        }
    }

    /// Takes the time and the settings for a turn of this thread.
    pub(super) fn begin_turn(&mut self) {
        self.now = Instant::now();
        self.engine.begin_turn();
        self.arena.filled = 0;
        self.limits = Limits::new(self.limits.own, self.engine.config());
    }

    /// Ends the turn and tells what it did.
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

    /// An empty buffer.
    pub(super) fn spare(&mut self) -> Vec<u8> {
        self.spares.pop().unwrap_or_default()
    }

    /// An empty buffer for replies, a large one if there is one.
    pub(super) fn spare_for_output(&mut self) -> Vec<u8> {
        self.large_spares.pop().unwrap_or_else(|| self.spare())
    }

    /// Keeps a buffer for the next who needs one.
    pub(super) fn recycle(&mut self, mut buffer: Vec<u8>) {
        let (spares, count_max) = match buffer.capacity() {
            0 => return,
            size if size <= SPARE_SIZE_MAX => (&mut self.spares, SPARES_MAX),
            size if size <= LARGE_SPARE_SIZE_MAX => (&mut self.large_spares, LARGE_SPARES_MAX),
            _ => return,
        };
        if spares.len() < count_max {
            buffer.clear();
            spares.push(buffer);
        }
    }

    /// Makes what ran since the last time acknowledged. Returns whether its replies may be sent.
    pub(super) fn settle(&mut self) -> bool {
        if !std::mem::take(&mut self.ran) {
            return true;
        }
        self.tally.settles += 1;
        self.engine
            .settle()
            .inspect_err(|error| {
                let error = forebay_base::error_chain::chain(error);
                tracing::error!(%error, "what was written cannot be acknowledged");
            })
            .is_ok()
    }
}
