//! How long a thread lets input gather before it wakes.
//!
//! A thread that wakes for every request pays for a change of threads with each, and for a system
//! call that carries one reply; where its clients run on the same processors it also drives them
//! out amid what they were sending. So while much comes in, the kernel is told to wake it only for
//! as many requests as come within [`GATHER`] at the rate of late, or once that time is over.
//!
//! Invariants: below two requests in that time nobody waits; never is more waited for than half of
//! the connections that sent something of late, which may be all that are not waiting for us.

use std::time::{Duration, Instant};

/// How long a request may wait for others to come, in microseconds.
pub(super) const GATHER_US: u32 = 100;
pub(super) const GATHER: Duration = Duration::from_micros(GATHER_US as u64);
/// Requests waited for, at most: beyond it a turn's own costs are spread thin enough.
const COUNT_MAX: usize = 32;
/// How long is "of late".
const SPAN: Duration = Duration::from_millis(1);

/// What came in of late.
#[derive(Debug)]
pub(super) struct Gather {
    /// When this span began, and its number.
    since: Instant,
    span: u32,
    /// Pieces of input in this span, and connections they came from.
    inputs: u32,
    senders: u32,
    /// What the last span led to.
    count: usize,
}

/// A connection's memory of when it last sent something.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen(u32);

impl Gather {
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, span: 1, inputs: 0, senders: 0, count: 1 }
    }

    /// Input came from a connection.
    pub(super) fn note(&mut self, seen: &mut Seen) {
        self.inputs = self.inputs.saturating_add(1);
        if std::mem::replace(&mut seen.0, self.span) != self.span {
            self.senders += 1;
        }
    }

    /// How many requests to wake for; above 1 only for as long as [`GATHER`].
    pub(super) fn count(&mut self, now: Instant) -> usize {
        let span = now.duration_since(self.since);
        if span >= SPAN {
            let expected = u128::from(self.inputs) * GATHER.as_nanos() / span.as_nanos();
            let expected = usize::try_from(expected).unwrap_or(usize::MAX);
            self.count = expected.min(self.senders as usize / 2).clamp(1, COUNT_MAX);
            (self.since, self.span) = (now, self.span.wrapping_add(1));
            (self.inputs, self.senders) = (0, 0);
        }
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a thread waits for after ten spans in which each of `senders` sent every `pause`.
    fn count(senders: usize, pause: Duration) -> usize {
        let start = Instant::now();
        let mut gather = Gather::new(start);
        let mut seen = vec![Seen::default(); senders];
        let mut now = start;
        while now < start + 10 * SPAN {
            now += pause;
            seen.iter_mut().for_each(|seen| gather.note(seen));
            gather.count(now);
        }
        gather.count
    }

    #[test]
    fn who_sends_alone_or_seldom_is_answered_at_once() {
        assert_eq!(count(1, Duration::from_micros(10)), 1);
        assert_eq!(count(3, Duration::from_micros(10)), 1);
        assert_eq!(count(15, Duration::from_millis(1)), 1);
        assert_eq!(count(1_000, Duration::from_secs(1)), 1);
    }

    #[test]
    fn many_that_send_much_are_waited_for_by_half_at_most() {
        assert_eq!(count(50, Duration::from_micros(200)), 25);
        assert_eq!(count(50, Duration::from_micros(500)), 10);
        assert_eq!(count(8, Duration::from_micros(50)), 4);
        assert_eq!(count(5_000, Duration::from_micros(500)), COUNT_MAX);
    }

    #[test]
    fn after_a_silence_nobody_waits() {
        let start = Instant::now();
        let mut gather = Gather::new(start);
        let mut seen = [Seen::default(); 50];
        seen.iter_mut().for_each(|seen| gather.note(seen));
        assert!(gather.count(start + SPAN) > 1);
        assert_eq!(gather.count(start + Duration::from_secs(1)), 1);
    }
}
