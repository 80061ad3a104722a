//! The times at which requests of a fixed rate are due.
//!
//! Gaps between requests are random with an exponential distribution, as those of many independent
//! clients are. A time is due whether or not earlier replies have arrived, so a server that falls
//! behind cannot lower the load.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rustix::fs::Timespec;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use super::draw::Draw;

/// A schedule, and the timer that wakes its thread; a timeout of `epoll` has only milliseconds.
pub(super) struct Pace {
    timer: OwnedFd,
    draw: Draw,
    /// Average time between two batches.
    gap: Duration,
    next: Instant,
}

impl Pace {
    /// Begins a schedule of batches whose average distance is `gap`.
    pub(super) fn new(gap: Duration, draw: Draw) -> anyhow::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, flags).context("cannot create a timer")?;
        Ok(Self { timer, draw, gap, next: Instant::now() })
    }

    pub(super) fn register(&self, registry: &Registry, token: Token) -> anyhow::Result<()> {
        registry
            .register(&mut SourceFd(&self.timer.as_raw_fd()), token, Interest::READABLE)
            .context("cannot register a timer")
    }

    /// Returns the time the next batch was due, if it has passed, and continues with the one after it.
    pub(super) fn take_due(&mut self) -> Option<Instant> {
        let due = self.next;
        (due <= Instant::now()).then(|| {
            // 1 - u is above 0, so that its logarithm is finite.
            self.next += self.gap.mul_f64(-(1.0 - self.draw.share()).ln());
            due
        })
    }

    /// Sets the timer to the next time that is due.
    pub(super) fn arm(&self) -> anyhow::Result<()> {
        // Zero would stop the timer.
        let wait = self.next.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let it_value = Timespec::try_from(wait).context("the next request is due too late")?;
        let time = Itimerspec { it_interval: zero, it_value };
        // Setting it also discards an earlier expiration that was not read.
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &time)
            .context("cannot set a timer")?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_due_at_the_average_rate() {
        let draw = Draw { state: 7, keys: 1, zipf: None };
        let gap = Duration::from_millis(10);
        let mut pace = Pace::new(gap, draw).unwrap();
        // The schedule of an hour that has passed.
        pace.next = Instant::now().checked_sub(Duration::from_hours(1)).unwrap();
        let mut last = pace.next;
        let mut count = 0;
        while let Some(due) = pace.take_due() {
            assert!(due >= last);
            last = due;
            count += 1;
        }
        assert!((350_000..370_000).contains(&count), "{count}");
        assert!(pace.next > last);
    }
}
