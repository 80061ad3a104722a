//! Pauses in the work of the threads that bring views up to the log.
//!
//! A thread that applies what has gathered keeps a processor busy until it is done. Where requests need most
//! of the processors, those that arrive meanwhile wait for each other many times longer than they take. So a
//! thread that keeps up works in short stretches, with pauses that leave most of the time to others. SQLite
//! calls it in between, since one transaction is one call for everything else.
//!
//! Invariants: there is no pause while a caller waits for the view, and while it stops, and one that has begun
//! ends then; the pauses of one piece of work last at most [`PAUSES_MAX`] together, so that a view which is far behind is hardly later; one pause
//! lasts at most [`PAUSE_MAX`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rusqlite::Connection;

/// How long a thread works before it pauses.
const STRETCH: Duration = Duration::from_millis(1);
/// How many times longer than the stretch before it a pause is.
const PAUSE_RATIO: u32 = 3;
/// Maximum duration of a pause, whatever the stretch before it.
const PAUSE_MAX: Duration = Duration::from_millis(8);
/// Steps of SQLite's machine from one call to the next: a few rows.
const STEPS: i32 = 500;

/// Maximum duration of all pauses of one piece of work.
const PAUSES_MAX: Duration = Duration::from_millis(400);

/// The pauses of a thread.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pace(Arc<Mutex<State>>);

#[derive(Debug, Clone, Copy, Default)]
struct State {
    /// When the current stretch began; `None` while there are no pauses.
    begun: Option<Instant>,
    /// How long the pauses may still last together.
    left: Duration,
}

impl Pace {
    /// Makes every statement of a connection pause between its steps.
    ///
    /// * `pause`: pauses for a time, or until the work becomes urgent; returns whether it is.
    pub(crate) fn attach(
        &self,
        connection: &mut Connection,
        pause: impl Fn(Duration) -> bool + Send + 'static,
    ) -> rusqlite::Result<()> {
        let pace = self.clone();
        let step = move || {
            pace.step(&pause);
            false
        };
        connection.progress_handler(STEPS, Some(step))
    }

    /// Begins work, with pauses unless it is urgent.
    pub(crate) fn begin(&self, is_urgent: bool) {
        let begun = (!is_urgent).then(Instant::now);
        *self.0.lock() = State { begun, left: PAUSES_MAX };
    }

    /// Ends work: what follows has no pauses.
    pub(crate) fn end(&self) {
        *self.0.lock() = State::default();
    }

    /// Pauses if a stretch is over, unless the work has become urgent.
    ///
    /// * `pause`: as for [`Pace::attach`].
    pub(crate) fn step(&self, pause: impl FnOnce(Duration) -> bool) {
        let State { begun: Some(begun), left } = *self.0.lock() else { return };
        let Some(due) = pause_after(begun.elapsed()) else { return };
        let due = due.min(left);
        if due.is_zero() || pause(due) {
            self.end();
        } else {
            *self.0.lock() = State { begun: Some(Instant::now()), left: left - due };
        }
    }
}

/// Waits for a time, or until the orders of a thread are urgent. Returns whether they are.
///
/// * `work`: notified when the orders change.
pub(crate) fn wait<T>(
    orders: &Mutex<T>,
    work: &Condvar,
    pause: Duration,
    is_urgent: impl Fn(&T) -> bool,
) -> bool {
    let until = Instant::now() + pause;
    let mut orders = orders.lock();
    loop {
        let is_urgent = is_urgent(&orders);
        if is_urgent || work.wait_until(&mut orders, until).timed_out() {
            return is_urgent;
        }
    }
}

/// The pause after a stretch; `None` while it is not over.
fn pause_after(worked: Duration) -> Option<Duration> {
    (worked >= STRETCH).then(|| (worked * PAUSE_RATIO).min(PAUSE_MAX))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn a_pause_is_in_proportion_to_the_stretch_and_limited() {
        assert_eq!(pause_after(STRETCH / 2), None);
        assert_eq!(pause_after(STRETCH), Some(STRETCH * PAUSE_RATIO));
        assert_eq!(pause_after(Duration::from_secs(3_600)), Some(PAUSE_MAX));
    }

    #[test]
    fn a_pause_ends_when_the_orders_become_urgent() {
        let (orders, work) = (Mutex::new(false), Condvar::new());
        assert!(!wait(&orders, &work, Duration::ZERO, |urgent| *urgent));
        std::thread::scope(|scope| {
            let waiting =
                scope.spawn(|| wait(&orders, &work, Duration::from_secs(3_600), |urgent| *urgent));
            *orders.lock() = true;
            work.notify_one();
            assert!(waiting.join().unwrap());
        });
    }

    #[test]
    fn work_that_is_or_becomes_urgent_does_not_pause_and_loses_nothing() {
        let pauses = Arc::new(AtomicUsize::new(0));
        let counted = pauses.clone();
        let mut connection = Connection::open_in_memory().unwrap();
        let pace = Pace::default();
        let pause = move |_| counted.fetch_add(1, Ordering::Relaxed) > 0;
        pace.attach(&mut connection, pause).unwrap();
        // Long enough for several stretches.
        let sum = || {
            let sql =
                "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300000)
                       SELECT sum(i) FROM n";
            connection.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap()
        };
        for (is_urgent, count) in [(true, 0), (false, 2)] {
            pace.begin(is_urgent);
            assert_eq!(sum(), 45_000_150_000);
            assert_eq!(pauses.load(Ordering::Relaxed), count);
            pace.end();
        }
        assert_eq!(sum(), 45_000_150_000);
        assert_eq!(pauses.load(Ordering::Relaxed), 2, "after the work there are no pauses");
    }
}
