//! Commands that block until a key receives an element.
//!
//! A command that finds nothing registers while it still holds the shard's lock, so no change can
//! come between. After a change of an awaited key, the thread that changed it runs the blocked
//! command of the first waiter again, and hands over the reply through the waiter's mailbox.
//!
//! Invariants: a waiter is served at most once, by the thread that moves its state from waiting,
//! with all of its keys locked; the waiter that has waited longest is served first; a key's count
//! in its shard equals the length of its queue here.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use foldhash::{HashMap, HashMapExt as _};
use parking_lot::Mutex;

use super::Engine;
use super::dispatch::{Scope, Waiting};
use super::locked::{Locked, Wanted};
use super::session::{ClientInfo, Session};
use super::unwinding::OnBehalf;
use crate::command::{Blocking, Spec};
use crate::resp::{Proto, Reply};
use crate::store::{Kind, shard_of};

const WAITING: u8 = 0;
const SERVING: u8 = 1;
const DONE: u8 = 2;

/// A blocked command.
#[derive(Debug)]
pub struct Waiter {
    state: AtomicU8,
    pub(super) client: Arc<ClientInfo>,
    pub(super) protocol: Proto,
    pub(super) database: usize,
    pub(super) spec: &'static Spec,
    pub(super) args: Vec<Box<[u8]>>,
    /// Keys it waits for.
    pub(super) keys: Vec<Box<[u8]>>,
    /// Total size of these in bytes.
    pub(super) bytes: usize,
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
        // The queues have a copy of each key.
        let (args_size, keys_size) = (size_of_all(&args), size_of_all(&keys));
        let bytes = args_size + 2 * keys_size;
        Self { state, client, protocol, database, spec, args, keys, bytes }
    }

    /// Whether no thread has claimed it.
    pub(super) fn is_waiting(&self) -> bool {
        self.state.load(Ordering::Acquire) == WAITING
    }

    /// Whether a thread is serving it.
    pub(super) fn is_taken(&self) -> bool {
        self.state.load(Ordering::Acquire) == SERVING
    }

    /// Claims it for serving or for timing out; only one thread can.
    pub(super) fn claim(&self) -> bool {
        let exchanged =
            self.state.compare_exchange(WAITING, SERVING, Ordering::AcqRel, Ordering::Acquire);
        exchanged.is_ok()
    }

    /// Releases a claim: there was no element for it.
    pub(super) fn release(&self) {
        self.state.store(WAITING, Ordering::Release);
    }

    pub(super) fn finish(&self) {
        self.state.store(DONE, Ordering::Release);
    }
}

fn size_of_all(words: &[Box<[u8]>]) -> usize {
    words.iter().map(|word| word.len() + size_of::<Box<[u8]>>()).sum()
}

/// Waiters of every key, with its database.
type ByKey = HashMap<(usize, Box<[u8]>), VecDeque<Arc<Waiter>>>;

/// The waiters of each key, in order of arrival.
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

    /// Removes a waiter from the queues of all its keys.
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

    /// Returns the waiters of a key, the longest waiting first.
    pub(super) fn of(&self, database: usize, key: &[u8]) -> Vec<Arc<Waiter>> {
        let lines = self.lines.lock();
        lines.get(&(database, key.into())).into_iter().flatten().cloned().collect()
    }

    /// Returns the waiter of a client.
    pub(super) fn find(&self, id: u64) -> Option<Arc<Waiter>> {
        let lines = self.lines.lock();
        lines.values().flatten().find(|waiter| waiter.client.id == id).cloned()
    }

    /// Number of blocked commands.
    pub(super) fn len(&self) -> usize {
        let lines = self.lines.lock();
        let ids: std::collections::HashSet<u64> =
            lines.values().flatten().map(|waiter| waiter.client.id).collect();
        ids.len()
    }
}

/// The result of serving a waiter from a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// An element, and the command was answered.
    Served,
    /// A value of another type: other waiters may wait for that.
    OtherType,
    /// The waiter ended first: another thread serves it, or it timed out.
    Gone,
    /// Nothing left.
    Nothing,
}

impl Engine {
    /// Registers a blocked command, its shards still locked.
    pub(super) fn wait(
        &self,
        session: &mut Session,
        spec: &'static Spec,
        args: &[&[u8]],
        blocking: &Blocking,
        locked: &mut Locked<'_>,
    ) {
        for key in &blocking.keys {
            let shard = shard_of(self.keyspace.rules().hash(key));
            locked.get(session.database, shard).wait_for(key);
        }
        let waiter = Arc::new(Waiter::new(
            session.info.clone(),
            session.protocol,
            session.database,
            (spec, args.iter().map(|&word| word.into()).collect()),
            blocking.keys.clone(),
        ));
        self.lines.join(&waiter);
        session.waiter = Some(waiter);
    }

    /// Serves the waiters of keys that received elements; serving may make more keys ready.
    pub(super) fn serve_ready(&self, mut ready: Vec<(usize, Box<[u8]>)>) {
        while !ready.is_empty() {
            let mut next = Vec::new();
            for (database, key) in ready {
                self.serve_key(database, &key, &mut next);
            }
            ready = next;
        }
    }

    /// Serves the waiters of one key, the longest waiting first, until no element is left.
    fn serve_key(&self, database: usize, key: &[u8], ready: &mut Vec<(usize, Box<[u8]>)>) {
        for waiter in self.lines.of(database, key) {
            if waiter.is_waiting() && self.serve(&waiter, key, ready) == Outcome::Nothing {
                break;
            }
        }
    }

    /// Runs a blocked command again for a key that received an element.
    fn serve(
        &self,
        waiter: &Arc<Waiter>,
        key: &[u8],
        ready: &mut Vec<(usize, Box<[u8]>)>,
    ) -> Outcome {
        let mut session = Session::new(waiter.client.clone(), true);
        session.protocol = waiter.protocol;
        session.database = waiter.database;
        let args: Vec<&[u8]> = waiter.args.iter().map(|word| &**word).collect();
        let mut out = Reply::new(waiter.protocol);
        let now_ms = self.now_ms();
        let mut wanted = Wanted::default();
        self.want(waiter.spec, &args, waiter.database, &mut wanted);
        let mut ops = self.take_ops();
        // Before the locks, so that the locks are released first.
        let _on_behalf = OnBehalf { engine: self, waiter };
        let found = {
            let mut locked = Locked::lock(&self.keyspace, &mut wanted, now_ms);
            let now_ms = locked.now_ms();
            // Claimed with all of its keys locked: a claim released for one key must not hide the
            // waiter from a thread that changes another.
            let found = match waiter.claim() {
                true => self.look(waiter, key, &mut locked),
                false => Outcome::Gone,
            };
            if found != Outcome::Served {
                if found != Outcome::Gone {
                    waiter.release();
                }
                drop(locked);
                self.give_ops(ops);
                return found;
            }
            let scope = Scope::at_once(&mut locked, &mut ops);
            let (command, waiting) = ((waiter.spec, &*args), Waiting::Served(key));
            let ran = self.run_locked(&mut session, command, &mut out, now_ms, waiting, scope);
            self.finish_locked(&mut locked, &ops, now_ms, ready);
            if ran.blocking.is_some() {
                waiter.release();
                Outcome::Nothing
            } else {
                self.stop_waiting(waiter, &mut locked);
                Outcome::Served
            }
        };
        self.give_ops(ops);
        if found == Outcome::Served {
            waiter.finish();
            self.lines.leave(waiter);
            waiter.client.mailbox.unblock(&out.take());
        }
        found
    }

    /// Whether a key holds what a command waits for: a value of another type leaves it blocked.
    fn look(&self, waiter: &Waiter, key: &[u8], locked: &mut Locked<'_>) -> Outcome {
        let awaited = if waiter.spec.group == "list" { Kind::List } else { Kind::ZSet };
        let key = self.keyspace.key(key);
        let shard = locked.get(waiter.database, key.shard());
        match shard.look_at(&key).map(|at| shard.kind(at)) {
            None => Outcome::Nothing,
            Some(kind) if kind == awaited => Outcome::Served,
            Some(_) => Outcome::OtherType,
        }
    }

    fn stop_waiting(&self, waiter: &Waiter, locked: &mut Locked<'_>) {
        for key in &waiter.keys {
            let shard = shard_of(self.keyspace.rules().hash(key));
            locked.get(waiter.database, shard).stop_waiting(key);
        }
    }

    /// Times out; `false` if the reply is already on its way through the mailbox.
    pub(super) fn give_up(&self, session: &mut Session) -> bool {
        session.waiter.take().is_some_and(|waiter| self.end_waiting(&waiter))
    }

    /// Removes a waiter from its queues; `false` if it was served first.
    ///
    /// Locks its keys, as [`Engine::serve`] does: a claim that is released again must not be
    /// mistaken for a reply.
    pub(super) fn end_waiting(&self, waiter: &Arc<Waiter>) -> bool {
        let mut wanted = Wanted::default();
        for key in &waiter.keys {
            wanted.add(waiter.database, shard_of(self.keyspace.rules().hash(key)));
        }
        let mut locked = Locked::lock(&self.keyspace, &mut wanted, self.now_ms());
        if !waiter.claim() {
            return false;
        }
        waiter.finish();
        self.stop_waiting(waiter, &mut locked);
        drop(locked);
        self.lines.leave(waiter);
        true
    }
}
