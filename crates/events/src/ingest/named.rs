//! Ids that producers name: an event is stored once under each id of a stream.
//!
//! A producer that sends an event again, because an answer was lost, names the same id. Ids that the store
//! gives are new, and need none of this.
//!
//! Invariants:
//! - Of two inputs that bring an id at the same time, one waits until the other's event can be read or is
//!   given up.
//! - An input that waits holds no ids, so that no two wait for each other.
//! - An event counts as stored before only if it is acknowledged, and has the same stream and bytes.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::event::EventId;
use crate::store::Store;

/// How long an input waits for another that brings the same id. Beyond it the event is rejected.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Ids of events that are being stored.
#[derive(Debug, Default)]
pub(crate) struct NamedIds {
    storing: Mutex<HashSet<EventId>>,
    released: Condvar,
}

impl NamedIds {
    /// Waits until no input is storing an event under an id, for a limited time.
    fn wait(&self, id: EventId) {
        let deadline = Instant::now() + WAIT_MAX;
        let mut storing = self.storing.lock();
        while storing.contains(&id) {
            if self.released.wait_until(&mut storing, deadline).timed_out() {
                return;
            }
        }
    }
}

/// What is known of an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    /// Nothing: the event is to be stored.
    New,
    /// The same event is stored, or comes before in this input.
    Same,
    /// Another event is.
    Other,
    /// Another input is storing an event under it.
    Elsewhere,
}

/// The ids that an input is storing.
#[derive(Debug)]
pub(super) struct Claims {
    all: Arc<NamedIds>,
    /// What the events of this input are that cannot be read yet.
    own: HashMap<EventId, [u8; 16]>,
    /// Ids of the current batch, and of those that were submitted with the position after them.
    current: Vec<EventId>,
    submitted: VecDeque<(u64, Vec<EventId>)>,
}

impl Claims {
    pub(super) fn new(store: &Store) -> Self {
        let all = Arc::clone(&store.inner().named);
        let (own, current, submitted) = (HashMap::new(), Vec::new(), VecDeque::new());
        Self { all, own, current, submitted }
    }

    /// Looks an id up, and claims it if nothing is known of it.
    pub(super) fn take(&mut self, store: &Store, id: EventId, stream: &str, raw: &[u8]) -> Known {
        let print = fingerprint(stream, raw);
        if let Some(own) = self.own.get(&id) {
            return if *own == print { Known::Same } else { Known::Other };
        }
        match stored(store, id, stream, raw) {
            Known::New => {}
            known => return known,
        }
        if !self.all.storing.lock().insert(id) {
            return Known::Elsewhere;
        }
        self.own.insert(id, print);
        self.current.push(id);
        // Another input may have finished it since it was looked up.
        stored(store, id, stream, raw)
    }

    /// Waits for another input that stores an event under an id. The caller has nothing that is not
    /// acknowledged.
    pub(super) fn wait(&mut self, id: EventId) {
        self.release();
        self.all.wait(id);
    }

    /// Notes that the current batch was submitted; forgets what can be read now.
    ///
    /// * `end_seq`: the position after it.
    pub(super) fn submit(&mut self, store: &Store, end_seq: u64) {
        if !self.current.is_empty() {
            self.submitted.push_back((end_seq, std::mem::take(&mut self.current)));
        }
        let visible = store.len();
        while self.submitted.front().is_some_and(|(end_seq, _)| *end_seq <= visible) {
            let Some((_, ids)) = self.submitted.pop_front() else { return };
            self.give_back(&ids);
        }
    }

    fn give_back(&mut self, ids: &[EventId]) {
        let mut storing = self.all.storing.lock();
        for id in ids {
            storing.remove(id);
            self.own.remove(id);
        }
        drop(storing);
        self.all.released.notify_all();
    }

    fn release(&mut self) {
        let ids: Vec<EventId> = self.own.keys().copied().collect();
        if !ids.is_empty() {
            self.give_back(&ids);
        }
        self.current.clear();
        self.submitted.clear();
    }
}

impl Drop for Claims {
    fn drop(&mut self) {
        self.release();
    }
}

/// What is stored under an id.
fn stored(store: &Store, id: EventId, stream: &str, raw: &[u8]) -> Known {
    match store.get(id) {
        Ok(Some(record)) => {
            let event = record.event();
            match event.tags.stream == stream {
                true if event.raw == raw => Known::Same,
                true => Known::Other,
                // The same id in two streams is two events.
                false => Known::New,
            }
        }
        Ok(None) => Known::New,
        // Storing an event again is better than refusing it for damage elsewhere.
        Err(error) => {
            tracing::warn!(%error, "cannot look up whether an event is stored already");
            Known::New
        }
    }
}

fn fingerprint(stream: &str, raw: &[u8]) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&(stream.len() as u64).to_le_bytes()).update(stream.as_bytes()).update(raw);
    let mut print = [0; 16];
    print.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    print
}
