//! How a snapshot shares processor and locks with commands.
//!
//! The snapshot is never urgent, commands always are. It runs for [`RUN_TIME`] and then pauses for
//! as long as it ran: a scheduler interrupts a thread that has just paused last, so it is rarely
//! interrupted under a lock, and with few cores half of one is left for commands. Pauses are
//! limited, so a snapshot takes at most about twice its running time.
//!
//! It does not lower its own priority: a thread of low priority is also interrupted under a lock,
//! and then every thread that wants that lock waits for a processor that the snapshot does not get.

use std::time::{Duration, Instant};

/// How long the snapshot runs before it pauses: far less than the time slice of a scheduler.
const RUN_TIME: Duration = Duration::from_micros(500);
/// Maximum pause. Most of a longer run was spent waiting for the disk, which is a pause as well.
const REST_MAX: Duration = Duration::from_millis(2);

/// How long shards were locked, and when the next pause is due.
#[derive(Debug)]
pub(crate) struct Pace {
    /// The longest time under one lock, without the wait for it.
    pub(crate) longest: Duration,
    /// The total time under locks.
    pub(crate) locked: Duration,
    running_since: Instant,
}

impl Pace {
    pub(crate) fn new() -> Self {
        let (longest, locked) = (Duration::ZERO, Duration::ZERO);
        Self { longest, locked, running_since: Instant::now() }
    }

    /// Pauses, if a pause is due. Must be called without a lock, before one is taken.
    pub(crate) fn rest(&mut self) {
        let ran = self.running_since.elapsed();
        if ran >= RUN_TIME {
            // An early wake-up merely shortens the pause.
            std::thread::park_timeout(ran.min(REST_MAX));
            self.running_since = Instant::now();
        }
    }

    /// Records that a lock was held since then.
    pub(crate) fn held_since(&mut self, started: Instant) {
        let took = started.elapsed();
        self.longest = self.longest.max(took);
        self.locked += took;
    }
}
