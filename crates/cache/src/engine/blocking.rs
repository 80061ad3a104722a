//! Commands that wait for a key to be given something.
//!
//! Whoever finds nothing registers while it still holds the shard's lock, so nothing can come
//! between. When an awaited key was changed, the thread that changed it runs the waiting command
//! again on behalf of the first in line, and hands the reply over through its mailbox.
//!
//! Invariants: a waiter is served at most once, by whoever moves its state from waiting, with all of
//! its keys locked; the longest waiting is served first; a key's count in its shard equals its line's length here.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use foldhash::{HashMap, HashMapExt as _};
use parking_lot::Mutex;

use super::session::ClientInfo;
use crate::command::Spec;
use crate::resp::Proto;

const WAITING: u8 = 0;
const SERVING: u8 = 1;
const DONE: u8 = 2;

/// A command that waits.
#[derive(Debug)]
pub struct Waiter {
    state: AtomicU8,
    pub(super) client: Arc<ClientInfo>,
    pub(super) protocol: Proto,
    pub(super) database: usize,
    pub(super) spec: &'static Spec,
    pub(super) args: Vec<Box<[u8]>>,
    /// Keys waited for.
    pub(super) keys: Vec<Box<[u8]>>,
}

impl Waiter {
    pub(super) fn new(
        client: Arc<ClientInfo>,
        protocol: Proto,
        database: usize,
        (spec, args): (&'static Spec, Vec<Box<[u8]>>),
        keys: Vec<Box<[u8]>>,
    ) -> Self {
        let state = AtomicU8::new(WAITING);
        Self { state, client, protocol, database, spec, args, keys }
    }

    /// Whether nobody has taken it.
    pub(super) fn is_waiting(&self) -> bool {
        self.state.load(Ordering::Acquire) == WAITING
    }

    /// Whether somebody is serving it.
    pub(super) fn is_taken(&self) -> bool {
        self.state.load(Ordering::Acquire) == SERVING
    }

    /// Takes it for serving, or for giving up: only one can.
    pub(super) fn claim(&self) -> bool {
        let exchanged =
            self.state.compare_exchange(WAITING, SERVING, Ordering::AcqRel, Ordering::Acquire);
        exchanged.is_ok()
    }

    /// Gives a claim back: there was nothing after all.
    pub(super) fn release(&self) {
        self.state.store(WAITING, Ordering::Release);
    }

    pub(super) fn finish(&self) {
        self.state.store(DONE, Ordering::Release);
    }
}

/// Waiters of every key, with its database.
type ByKey = HashMap<(usize, Box<[u8]>), VecDeque<Arc<Waiter>>>;

/// Who waits for which key, in order of arrival.
#[derive(Debug)]
pub(super) struct Lines {
    lines: Mutex<ByKey>,
}

impl Lines {
    pub(super) fn new() -> Self {
        Self { lines: Mutex::new(HashMap::new()) }
    }

    pub(super) fn join(&self, waiter: &Arc<Waiter>) {
        let mut lines = self.lines.lock();
        for key in &waiter.keys {
            lines.entry((waiter.database, key.clone())).or_default().push_back(waiter.clone());
        }
    }

    /// Takes a waiter out of the lines of all its keys.
    pub(super) fn leave(&self, waiter: &Arc<Waiter>) {
        let mut lines = self.lines.lock();
        for key in &waiter.keys {
            let place = (waiter.database, key.clone());
            if let Some(line) = lines.get_mut(&place) {
                line.retain(|held| !Arc::ptr_eq(held, waiter));
                if line.is_empty() {
                    lines.remove(&place);
                }
            }
        }
    }

    /// Those who wait for a key, the longest waiting first.
    pub(super) fn of(&self, database: usize, key: &[u8]) -> Vec<Arc<Waiter>> {
        let lines = self.lines.lock();
        lines.get(&(database, key.into())).into_iter().flatten().cloned().collect()
    }

    /// What a client waits with.
    pub(super) fn find(&self, id: u64) -> Option<Arc<Waiter>> {
        let lines = self.lines.lock();
        lines.values().flatten().find(|waiter| waiter.client.id == id).cloned()
    }

    /// Commands that wait.
    pub(super) fn len(&self) -> usize {
        let lines = self.lines.lock();
        let ids: std::collections::HashSet<u64> =
            lines.values().flatten().map(|waiter| waiter.client.id).collect();
        ids.len()
    }
}
