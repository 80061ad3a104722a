//! What a panic leaves to be set right: somebody else may wait for the command that panicked.
//!
//! Shards, accounting and log look after themselves (see `store`): locks are given back, and a change
//! cut short refuses every later one.

use std::sync::Arc;

use super::Engine;
use super::blocking::Waiter;
use crate::resp::Reply;

/// A waiting command being run on behalf of its client.
///
/// If that panics, the client is answered with an error, rather than left waiting for ever: the panic
/// ends the connection that gave the key something, not the one that waited.
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
        out.error("ERR this command failed by a bug of the server; see its log");
        self.waiter.client.mailbox.unblock(&out.take());
    }
}

#[cfg(test)]
mod tests;
