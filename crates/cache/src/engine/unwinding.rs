//! Cleanup after a panic: another client may wait for the command that panicked.
//!
//! Shards, accounting and log clean up after themselves (see `store`): locks are released, and an
//! incomplete change makes every later one fail.

use std::sync::Arc;

use super::Engine;
use super::blocking::Waiter;
use crate::resp::Reply;

/// A blocked command being run on behalf of its client.
///
/// If it panics, the client gets an error instead of waiting forever: the panic ends the connection
/// that changed the key, not the blocked one.
pub(super) struct OnBehalf<'e> {
    pub(super) engine: &'e Engine,
    pub(super) waiter: &'e Arc<Waiter>,
}

impl Drop for OnBehalf<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() || !self.waiter.is_taken() {
            return;
        }
        self.waiter.finish();
        self.engine.lines.leave(self.waiter);
        let now_ms = self.engine.now_ms();
        for key in &self.waiter.keys {
            let key = self.engine.keyspace.key(key);
            let mut shard = self.engine.keyspace.lock(self.waiter.database, key.shard(), now_ms);
            shard.stop_waiting(key.bytes);
        }
        let mut out = Reply::new(self.waiter.protocol);
        out.error("ERR the command failed because of a server bug; see the server's log");
        self.waiter.client.mailbox.unblock(&out.take());
    }
}

#[cfg(test)]
mod tests;
