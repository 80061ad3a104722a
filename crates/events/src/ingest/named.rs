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
//! - The same id in two streams is two names, which have nothing to do with each other.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::event::EventId;
use crate::store::Store;

/// How long an input waits for another that brings the same id. Beyond it the event is rejected.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// An id in a stream: a hash of both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Name([u8; 16]);

impl Name {
    fn new(stream: &str, id: EventId) -> Self {
        Self(hash(&[stream.as_bytes(), &id.0.to_be_bytes()]))
    }
}

/// Names of events that are being stored.
#[derive(Debug, Default)]
pub(crate) struct NamedIds {
    storing: Mutex<HashSet<Name>>,
    released: Condvar,
}

impl NamedIds {
    /// Waits until no input is storing an event under a name, for a limited time.
    fn wait(&self, name: Name) {
        let deadline = Instant::now() + WAIT_MAX;
        let mut storing = self.storing.lock();
        while storing.contains(&name) {
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
    own: HashMap<Name, [u8; 16]>,
    /// Names of the current batch, and of those that were submitted with the position after them.
    current: Vec<Name>,
    submitted: VecDeque<(u64, Vec<Name>)>,
}

impl Claims {
    pub(super) fn new(store: &Store) -> Self {
        let all = Arc::clone(&store.inner().named);
        let (own, current, submitted) = (HashMap::new(), Vec::new(), VecDeque::new());
        Self { all, own, current, submitted }
    }

    /// Looks an id up, and claims it if nothing is known of it.
    pub(super) fn take(&mut self, store: &Store, id: EventId, stream: &str, raw: &[u8]) -> Known {
        let (name, print) = (Name::new(stream, id), hash(&[raw]));
        if let Some(own) = self.own.get(&name) {
            return if *own == print { Known::Same } else { Known::Other };
        }
        match stored(store, id, stream, raw) {
            Known::New => {}
            known => return known,
        }
        if !self.all.storing.lock().insert(name) {
            return Known::Elsewhere;
        }
        self.own.insert(name, print);
        self.current.push(name);
        // Another input may have finished it since it was looked up.
        stored(store, id, stream, raw)
    }

    /// Waits for another input that stores an event under an id. The caller has nothing that is not
    /// acknowledged.
    pub(super) fn wait(&mut self, id: EventId, stream: &str) {
        self.release();
        self.all.wait(Name::new(stream, id));
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
            let Some((_, names)) = self.submitted.pop_front() else { return };
            self.give_back(&names);
        }
    }

    fn give_back(&mut self, names: &[Name]) {
        let mut storing = self.all.storing.lock();
        for name in names {
            storing.remove(name);
            self.own.remove(name);
        }
        drop(storing);
        self.all.released.notify_all();
    }

    fn release(&mut self) {
        let names: Vec<Name> = self.own.keys().copied().collect();
        if !names.is_empty() {
            self.give_back(&names);
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

/// What is stored under an id of a stream.
fn stored(store: &Store, id: EventId, stream: &str, raw: &[u8]) -> Known {
    match store.get_in(stream, id) {
        Ok(Some(record)) if record.event().raw == raw => Known::Same,
        Ok(Some(_)) => Known::Other,
        Ok(None) => Known::New,
        // Storing an event again is better than refusing it for damage elsewhere.
        Err(error) => {
            tracing::warn!(%error, "cannot look up whether an event is stored already");
            Known::New
        }
    }
}

/// A hash of parts, each with its size.
fn hash(parts: &[&[u8]]) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
    }
    let mut hash = [0; 16];
    hash.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    hash
}
