//! Counts the responses that do not end: clients that follow documents, events or jobs.
//!
//! Such a response holds its connection although the server does not wait for the client, so the
//! connection cannot be closed in favour of another. Without a limit below that of connections,
//! followers would use all of them, and uploads would be refused.
//!
//! Invariant: a follower counts until its response body is dropped, however that happens.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// Marks a response without an end. Handlers add it to the extensions of their response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Endless;

/// The slots of followers.
#[derive(Clone, Debug)]
pub(super) struct Followers {
    count: Arc<AtomicUsize>,
    max: usize,
}

/// The slot of one follower. Dropping it releases the slot.
#[derive(Debug)]
pub(super) struct Follower(Arc<AtomicUsize>);

impl Followers {
    /// Creates `max` slots.
    pub(super) fn new(max: usize) -> Self {
        Self { count: Arc::default(), max }
    }

    /// Returns the number of followers.
    pub(super) fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    /// Takes a slot, or none if all are taken.
    pub(super) fn admit(&self) -> Option<Follower> {
        let free = |count| (count < self.max).then_some(count + 1);
        self.count.fetch_update(Relaxed, Relaxed, free).ok()?;
        Some(Follower(Arc::clone(&self.count)))
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_follower_that_leaves_makes_room_for_another() {
        let followers = Followers::new(2);
        let (first, _second) = (followers.admit().unwrap(), followers.admit().unwrap());
        assert!(followers.admit().is_none());
        assert_eq!(followers.count(), 2, "one that is refused does not count");
        drop(first);
        let _third = followers.admit().unwrap();
        assert!(followers.admit().is_none());
    }
}
