//! Notifications about changed keys of a shard, for WATCH and for blocked commands.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::shard::Shard;

impl Shard {
    /// Sets `flag` when the key changes from now on.
    pub fn watch(&mut self, key: &[u8], flag: &Arc<AtomicBool>) {
        self.watched.entry(key.into()).or_default().push(flag.clone());
    }

    /// Ends [`Shard::watch`].
    pub fn unwatch(&mut self, key: &[u8], flag: &Arc<AtomicBool>) {
        if let Some(flags) = self.watched.get_mut(key) {
            flags.retain(|held| !Arc::ptr_eq(held, flag));
            if flags.is_empty() {
                self.watched.remove(key);
            }
        }
    }

    /// Makes [`Shard::take_ready`] report the key when it changes.
    pub fn wait_for(&mut self, key: &[u8]) {
        *self.awaited.entry(key.into()).or_insert(0) += 1;
    }

    /// Ends one [`Shard::wait_for`].
    pub fn stop_waiting(&mut self, key: &[u8]) {
        if let Some(count) = self.awaited.get_mut(key) {
            *count -= 1;
            if *count == 0 {
                self.awaited.remove(key);
            }
        }
    }

    /// Whether [`Shard::take_ready`] has keys to return.
    #[must_use]
    #[inline]
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Returns the awaited keys that have changed and exist, since the last call.
    pub fn take_ready(&mut self) -> Vec<Box<[u8]>> {
        std::mem::take(&mut self.ready)
    }

    /// Notifies the watchers and waiters of a key that it has changed.
    #[inline]
    pub(super) fn changed(&mut self, key: &[u8]) {
        if !self.watched.is_empty()
            && let Some(flags) = self.watched.get(key)
        {
            for flag in flags {
                flag.store(true, Ordering::Release);
            }
        }
        if !self.awaited.is_empty()
            && self.awaited.contains_key(key)
            && !self.ready.iter().any(|held| **held == *key)
        {
            self.ready.push(key.into());
        }
    }
}
