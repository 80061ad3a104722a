//! How the walk shares processor and locks with commands.
//!
//! The walk is never urgent, commands always are. It runs for [`RUN_TIME`] and then rests for as
//! long as it ran: a thread that has just rested is the last one a scheduler interrupts, so the short
//! times under a lock fall where nobody takes the processor away, and on few cores half of one is
//! left to whoever answers. Rests are bounded, so a snapshot takes at most about twice its time.
//!
//! It does not lower its own priority: a thread that others are preferred to is interrupted under a
//! lock as well, and then everybody who wants that lock waits for the processor it does not get.

use std::time::{Duration, Instant};

/// How long the walk runs before it rests: far less than schedulers give a thread at a time.
const RUN_TIME: Duration = Duration::from_micros(500);
/// Longest rest. Most of a longer run was spent waiting for the disk, which is a rest too.
const REST_MAX: Duration = Duration::from_millis(2);

/// How long shards were locked, and when the walk rests next.
#[derive(Debug)]
pub(crate) struct Pace {
    /// The longest time under one lock, waiting for it not counted.
    pub(crate) longest: Duration,
    /// All of them together.
    pub(crate) locked: Duration,
    running_since: Instant,
}

impl Pace {
    pub(crate) fn new() -> Self {
        let (longest, locked) = (Duration::ZERO, Duration::ZERO);
        Self { longest, locked, running_since: Instant::now() }
    }

    /// Rests, if it is time to. To be called with no lock held, before one is taken.
    pub(crate) fn rest(&mut self) {
        let ran = self.running_since.elapsed();
        if ran >= RUN_TIME {
            // Woken early it merely rests less.
            std::thread::park_timeout(ran.min(REST_MAX));
            self.running_since = Instant::now();
        }
    }

    /// A lock was held since then.
    pub(crate) fn held_since(&mut self, started: Instant) {
        let took = started.elapsed();
        self.longest = self.longest.max(took);
        self.locked += took;
    }
}
