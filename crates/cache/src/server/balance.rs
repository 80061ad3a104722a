//! How many threads serve, and which connections move between them.
//!
//! A thread that is not busy costs more than it saves: each has its own wake-ups and system calls,
//! and on a small machine it interrupts the clients and the other threads. So connections gather on
//! as few threads as can serve them. Each thread records the processor time it used; every
//! [`LOOK_EVERY`] one of them compares that of all. If a thread is nearly always busy, one more
//! thread is used and takes its share of the busy connections; if all together have been busy for
//! less than fewer threads could serve, for [`CALM`], one thread less is used.
//!
//! Invariants: the number of threads in use is between the configured minimum and the number of
//! threads; it grows within two looks and shrinks slowly, and more slowly the more often it had to
//! grow again; a connection moves only as its own thread decides, between two of its turns.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Interval between two comparisons while threads are running.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(25);
/// Share of the time above which a thread is busy.
const BUSY: f64 = 0.88;
/// Consecutive looks at which a thread must be busy before another one is used.
const BUSY_LOOKS: u32 = 2;
/// Maximum share of the time that the threads which remain may be busy with everything.
const CALM_SHARE: f64 = 0.75;
/// How long it must be calm before one thread less is used.
const CALM: Duration = Duration::from_secs(1);
/// Maximum of that time, after it has grown because threads were needed again soon.
const CALM_MAX: Duration = Duration::from_secs(60);

/// What one thread reports, and what it is to do.
#[derive(Debug, Default)]
struct Lane {
    /// Processor time of the thread since it started, in nanoseconds.
    cpu_ns: AtomicU64,
    /// One of this many busy connections is to be given away; 0 for none. The thread resets it.
    give: AtomicUsize,
    /// The thread to give them to.
    to: AtomicUsize,
}

/// One part of this many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share(usize);

impl Share {
    /// The number of connections that is this part of `count`.
    pub(super) fn of(self, count: usize) -> usize {
        count / self.0.max(1)
    }
}

/// The threads of a server.
#[derive(Debug)]
pub(super) struct Balance {
    lanes: Vec<Lane>,
    /// Threads in use: those with the lowest numbers.
    active: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    sizer: Sizer,
    looked: Instant,
    /// Processor time of each thread at the last look.
    before: Vec<u64>,
}

/// The decision, apart from clocks and threads.
#[derive(Debug)]
struct Sizer {
    min: usize,
    max: usize,
    busy_looks: u32,
    /// Time since which fewer threads would do.
    calm_since: Option<Instant>,
    calm: Duration,
    shrunk: Option<Instant>,
}

impl Sizer {
    fn new(min: usize, max: usize) -> Self {
        let max = max.max(1);
        let min = min.clamp(1, max);
        Self { min, max, busy_looks: 0, calm_since: None, calm: CALM, shrunk: None }
    }

    /// The number of threads to use from now on.
    ///
    /// * `active`: number of threads in use.
    /// * `shares`: the share of the time that each thread was busy since the last look.
    fn decide(&mut self, now: Instant, active: usize, shares: &[f64]) -> usize {
        let used = shares.get(..active).unwrap_or(shares);
        let busiest = used.iter().copied().fold(0.0, f64::max);
        self.busy_looks = if busiest >= BUSY { self.busy_looks + 1 } else { 0 };
        if self.busy_looks >= BUSY_LOOKS && active < self.max {
            self.busy_looks = 0;
            self.calm_since = None;
            let soon = self.shrunk.is_some_and(|at| now.duration_since(at) < 2 * self.calm);
            self.calm = if soon { (2 * self.calm).min(CALM_MAX) } else { CALM };
            return active + 1;
        }
        #[expect(clippy::cast_precision_loss, reason = "a count of threads")]
        let enough = (active - 1) as f64 * CALM_SHARE;
        if active == self.min || shares.iter().sum::<f64>() > enough {
            self.calm_since = None;
            return active;
        }
        let since = *self.calm_since.get_or_insert(now);
        if now.duration_since(since) < self.calm {
            return active;
        }
        self.calm_since = None;
        self.shrunk = Some(now);
        active - 1
    }
}

impl Balance {
    /// All of `threads` exist; at least `min` of them are used.
    pub(super) fn new(min: usize, threads: usize, now: Instant) -> Self {
        let sizer = Sizer::new(min, threads);
        let active = AtomicUsize::new(sizer.min);
        let state = State { sizer, looked: now, before: vec![0; threads] };
        let lanes = (0..threads).map(|_| Lane::default()).collect();
        Self { lanes, active, state: Mutex::new(state) }
    }

    /// The number of threads in use.
    pub(super) fn active(&self) -> usize {
        self.active.load(Relaxed)
    }

    /// Records the processor time of the calling thread, and compares all threads if that is due.
    pub(super) fn look(&self, number: usize, now: Instant) {
        if let Some(lane) = self.lanes.get(number) {
            lane.cpu_ns.store(thread_cpu_ns(), Relaxed);
        }
        let Some(mut state) = self.state.try_lock() else { return };
        let past = now.saturating_duration_since(state.looked);
        if past < LOOK_EVERY {
            return;
        }
        state.looked = now;
        let state = &mut *state;
        let mut shares = Vec::with_capacity(self.lanes.len());
        for (lane, before) in self.lanes.iter().zip(&mut state.before) {
            let cpu_ns = lane.cpu_ns.load(Relaxed);
            let used = Duration::from_nanos(cpu_ns.saturating_sub(*before));
            *before = cpu_ns;
            // A thread that was silent for a while reports the time since then at once.
            shares.push((used.as_secs_f64() / past.as_secs_f64()).min(1.0));
        }
        let before = self.active();
        let active = state.sizer.decide(now, before, &shares);
        self.active.store(active, Relaxed);
        if active > before {
            self.share_out(active);
        }
    }

    /// Has each thread that was in use give its part to the newest.
    fn share_out(&self, active: usize) {
        for lane in self.lanes.iter().take(active - 1) {
            lane.to.store(active - 1, Relaxed);
            lane.give.store(active, Relaxed);
        }
    }

    /// What a thread is to give away: the thread to give to, and the part of its busy connections.
    /// Reported once.
    pub(super) fn order(&self, number: usize) -> Option<(usize, Share)> {
        let lane = self.lanes.get(number)?;
        if lane.give.load(Relaxed) == 0 {
            return None;
        }
        let give = lane.give.swap(0, Relaxed);
        (give > 0).then(|| (lane.to.load(Relaxed), Share(give)))
    }

    /// Uses this many threads from now on, as a look would decide.
    #[cfg(test)]
    pub(super) fn use_threads(&self, active: usize) {
        let before = self.active.swap(active, Relaxed);
        if active > before {
            self.share_out(active);
        }
    }
}

/// Processor time of the calling thread since it started, in nanoseconds.
fn thread_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks with the same shares for this long; returns the number of threads after it.
    fn run(sizer: &mut Sizer, now: &mut Instant, active: usize, shares: &[f64], ms: u64) -> usize {
        let end = *now + Duration::from_millis(ms);
        let mut active = active;
        while *now < end {
            *now += LOOK_EVERY;
            active = sizer.decide(*now, active, shares);
        }
        active
    }

    #[test]
    fn a_busy_thread_is_helped_at_the_second_look_until_all_are_used() {
        let (mut sizer, mut now) = (Sizer::new(1, 3), Instant::now());
        assert_eq!(run(&mut sizer, &mut now, 1, &[0.99, 0.0, 0.0], 25), 1);
        assert_eq!(run(&mut sizer, &mut now, 1, &[0.99, 0.0, 0.0], 25), 2);
        assert_eq!(run(&mut sizer, &mut now, 2, &[0.99, 0.9, 0.0], 50), 3);
        assert_eq!(run(&mut sizer, &mut now, 3, &[0.99, 0.9, 0.9], 5_000), 3);
    }

    #[test]
    fn a_short_burst_and_a_moderate_load_stay_on_one_thread() {
        let (mut sizer, mut now) = (Sizer::new(1, 4), Instant::now());
        for _ in 0..100 {
            assert_eq!(run(&mut sizer, &mut now, 1, &[1.0, 0.0, 0.0, 0.0], 25), 1);
            assert_eq!(run(&mut sizer, &mut now, 1, &[0.8, 0.0, 0.0, 0.0], 25), 1);
        }
    }

    #[test]
    fn threads_that_are_not_needed_for_a_second_are_released_down_to_the_minimum() {
        let (mut sizer, mut now) = (Sizer::new(2, 4), Instant::now());
        assert_eq!(run(&mut sizer, &mut now, 4, &[0.3, 0.3, 0.3, 0.3], 900), 4);
        assert_eq!(run(&mut sizer, &mut now, 4, &[0.3, 0.3, 0.3, 0.3], 200), 3);
        assert_eq!(run(&mut sizer, &mut now, 3, &[0.1, 0.1, 0.1, 0.0], 10_000), 2);
        assert_eq!(run(&mut sizer, &mut now, 2, &[0.0, 0.0, 0.0, 0.0], 10_000), 2);
    }

    #[test]
    fn a_thread_that_is_needed_again_soon_stays_longer_the_next_time() {
        let (mut sizer, mut now) = (Sizer::new(1, 2), Instant::now());
        let mut stays = Vec::new();
        for _ in 0..8 {
            assert_eq!(run(&mut sizer, &mut now, 1, &[0.95, 0.0], 50), 2);
            let begun = now;
            while run(&mut sizer, &mut now, 2, &[0.35, 0.35], 25) == 2 {}
            stays.push(now - begun);
        }
        assert!(stays.is_sorted(), "{stays:?}");
        assert!(stays[1] >= 2 * CALM && stays[7] >= CALM_MAX, "{stays:?}");
    }

    #[test]
    fn each_thread_gives_its_part_to_a_new_one_once() {
        let balance = Balance::new(1, 3, Instant::now());
        assert_eq!(balance.order(0), None);
        balance.use_threads(2);
        assert_eq!(balance.order(0), Some((1, Share(2))));
        assert_eq!(balance.order(0), None);
        balance.use_threads(3);
        let third = Some((2, Share(3)));
        assert_eq!((balance.order(0), balance.order(1)), (third, third));
        assert_eq!((Share(3).of(100), Share(2).of(1)), (33, 0));
        assert_eq!(balance.order(2), None);
        balance.use_threads(1);
        assert_eq!(balance.order(0), None);
    }
}
