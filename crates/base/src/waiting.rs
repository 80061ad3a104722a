//! Reports to a thread whether a caller still waits for its result.
//!
//! Work on a thread that may block does not stop when its caller leaves. The caller (a request's
//! handler or the body of its response) holds one half; the work checks the other half at every
//! block it reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Held by the caller that waits; dropping it means that the result is no longer needed.
#[derive(Debug, Default)]
pub struct Waiting(Arc<AtomicBool>);

/// Checked by the work. The default never reports that the caller is gone.
#[derive(Debug, Clone, Default)]
pub struct Gone(Option<Arc<AtomicBool>>);

impl Waiting {
    /// Returns the half that the work checks.
    #[must_use]
    pub fn gone(&self) -> Gone {
        Gone(Some(Arc::clone(&self.0)))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Gone {
    /// Returns whether the caller has stopped waiting.
    #[inline]
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.0.as_ref().is_some_and(|gone| gone.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_wanted_until_the_one_who_waits_is_dropped() {
        let waiting = Waiting::default();
        let gone = waiting.gone();
        assert!(!gone.is_gone() && !Gone::default().is_gone());
        drop(waiting);
        assert!(gone.is_gone() && gone.clone().is_gone());
    }
}
