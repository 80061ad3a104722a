//! How long a thread collects input before it wakes.
//!
//! A thread that wakes for every request pays for a context switch with each, and for a system call
//! that carries one reply; if its clients run on the same processors, it also interrupts them while
//! they are sending. So while there is much input, the kernel wakes it only after as many requests
//! as arrive within [`GATHER`] at the recent rate, or after that time.
//!
//! Invariants: below two requests in that time no request waits; the thread never waits for more
//! than half of the connections that were recently active, which may be all that do not wait for a
//! reply.

use std::time::{Duration, Instant};

/// Maximum time in microseconds that a request waits for others.
pub(super) const GATHER_US: u32 = 100;
pub(super) const GATHER: Duration = Duration::from_micros(GATHER_US as u64);
/// Maximum number of requests to wait for: above it the cost of a turn is small per request.
const COUNT_MAX: usize = 32;
/// The duration of a span, which defines "recent".
const SPAN: Duration = Duration::from_millis(1);

/// Recent input.
#[derive(Debug)]
pub(super) struct Gather {
    /// When the current span began, and its number.
    since: Instant,
    span: u32,
    /// Pieces of input in this span, and the number of connections that sent them.
    inputs: u32,
    senders: u32,
    /// The result of the last span.
    count: usize,
}

/// The last span in which a connection sent something.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen(u32);

impl Gather {
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, span: 1, inputs: 0, senders: 0, count: 1 }
    }

    /// Records input from a connection.
    pub(super) fn note(&mut self, seen: &mut Seen) {
        self.inputs = self.inputs.saturating_add(1);
        if std::mem::replace(&mut seen.0, self.span) != self.span {
            self.senders += 1;
        }
    }

    /// The number of requests to wake for; above 1 only for as long as [`GATHER`].
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

    /// The result after ten spans in which each of `senders` sent once per `pause`.
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
    fn after_a_silence_no_one_waits() {
        let start = Instant::now();
        let mut gather = Gather::new(start);
        let mut seen = [Seen::default(); 50];
        seen.iter_mut().for_each(|seen| gather.note(seen));
        assert!(gather.count(start + SPAN) > 1);
        assert_eq!(gather.count(start + Duration::from_secs(1)), 1);
    }
}
