//! Counters that all threads change at full rate.
//!
//! A counter that several processors change costs each change a cache miss. So each thread changes one of
//! several copies, and a reader adds them up.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// Number of copies. Threads beyond it share them.
pub(super) const COUNT: usize = 16;

/// A copy in cache lines of its own; processors fetch them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Padded<T>(T);

/// A copy for each of [`COUNT`] threads.
#[derive(Debug, Default)]
pub(super) struct Stripes<T>([Padded<T>; COUNT]);

impl<T> Stripes<T> {
    /// Returns the place and the copy of this thread.
    pub(super) fn here(&self) -> (usize, &T) {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static PLACE: usize = NEXT.fetch_add(1, Relaxed) % COUNT;
        }
        let place = PLACE.with(|place| *place);
        // The remainder is below the number of copies.
        #[expect(clippy::indexing_slicing, reason = "limited by the remainder")]
        (place, &self.0[place].0)
    }

    /// Returns all copies.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> + Clone {
        self.0.iter().map(|copy| &copy.0)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn no_change_is_lost_however_many_threads_there_are() {
        let stripes = Stripes::<AtomicU64>::default();
        std::thread::scope(|scope| {
            for _ in 0..COUNT + 3 {
                scope.spawn(|| {
                    for _ in 0..1_000 {
                        stripes.here().1.fetch_add(1, Relaxed);
                    }
                });
            }
        });
        let sum: u64 = stripes.iter().map(|copy| copy.load(Relaxed)).sum();
        assert_eq!(sum, 1_000 * (COUNT as u64 + 3));
    }
}
