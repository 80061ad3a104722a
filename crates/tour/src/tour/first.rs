//! The first error among several threads: later ones are its consequences.
//!
//! Invariant: errors are kept by the time they happened, not by which thread is joined first, so
//! that what a tour reports is the cause.

use anyhow::anyhow;
use parking_lot::Mutex;

/// Keeps the first error.
#[derive(Debug, Default)]
pub(super) struct First(Mutex<Option<anyhow::Error>>);

impl First {
    /// Keeps `error`, unless there is one already.
    pub(super) fn note(&self, error: anyhow::Error) {
        self.0.lock().get_or_insert(error);
    }

    /// Returns the value of a success; an error is kept as by [`First::note`].
    pub(super) fn keep<T>(&self, result: anyhow::Result<T>) -> Option<T> {
        result.map_err(|error| self.note(error)).ok()
    }

    /// Returns whether there was an error.
    pub(super) fn is_noted(&self) -> bool {
        self.0.lock().is_some()
    }

    /// Takes the first error, if there is one.
    ///
    /// # Errors
    /// That error.
    pub(super) fn result(&self) -> anyhow::Result<()> {
        self.0.lock().take().map_or(Ok(()), Err)
    }
}

/// Runs `work` on `count` threads, each with its number, and waits for all of them; errors are kept
/// in `first`. Work that takes long checks [`First::is_noted`] and ends early.
pub(super) fn on_threads(
    count: usize,
    first: &First,
    work: &(dyn Fn(usize) -> anyhow::Result<()> + Sync),
) {
    std::thread::scope(|scope| {
        let run = |number| move || first.keep(work(number)).unwrap_or_default();
        let threads: Vec<_> = (0..count).map(|number| scope.spawn(run(number))).collect();
        for thread in threads {
            if thread.join().is_err() {
                first.note(anyhow!("a thread of the tour panicked; see its message above"));
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use anyhow::bail;

    use super::*;

    #[test]
    fn the_error_that_happened_first_is_reported_whichever_thread_is_joined_first() {
        let (first, consequence) = (First::default(), Barrier::new(2));
        on_threads(2, &first, &|number| {
            if number == 1 {
                first.note(anyhow!("the cause"));
                consequence.wait();
                return Ok(());
            }
            consequence.wait();
            bail!("a connection was lost")
        });
        assert_eq!(first.result().unwrap_err().to_string(), "the cause");
        assert!(first.result().is_ok(), "it was taken");
    }

    #[test]
    fn a_panic_of_a_thread_is_an_error() {
        let first = First::default();
        on_threads(2, &first, &|number| {
            assert!(number != 1, "one of the threads ends like this");
            Ok(())
        });
        assert!(first.result().unwrap_err().to_string().contains("panicked"));
    }
}
