//! A signal between threads that is kept until a thread has waited for it.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// An event occurred, or the end has come.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    count: u64,
    stopped: bool,
}

impl Signal {
    /// Wakes the waiting threads.
    pub(crate) fn wake(&self) {
        self.state.lock().count += 1;
        self.changed.notify_all();
    }

    /// Wakes the waiting threads, now and forever after.
    pub(crate) fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_all();
    }

    /// Whether [`stop`](Self::stop) was called.
    pub(crate) fn is_stopped(&self) -> bool {
        self.state.lock().stopped
    }

    /// Number of wake-ups so far, for [`wait`](Self::wait).
    pub(crate) fn count(&self) -> u64 {
        self.state.lock().count
    }

    /// Waits until it was woken more often than `seen`, or is stopped, or `timeout` has passed.
    pub(crate) fn wait(&self, seen: u64, timeout: Duration) {
        let mut state = self.state.lock();
        if state.count <= seen && !state.stopped {
            self.changed.wait_for(&mut state, timeout);
        }
    }
}
