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

use super::Engine;
use super::dispatch::Waiting;
use super::locked::{Locked, Wanted};
use super::session::{ClientInfo, Session};
use super::unwinding::OnBehalf;
use crate::command::{Blocking, Spec};
use crate::resp::{Proto, Reply};
use crate::store::{Kind, shard_of};

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

/// What a key that was given something has for a command that waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    /// What it waits for, and it was answered.
    Served,
    /// A value of another type: others may wait for that.
    OtherType,
    /// Its own end came first: somebody else serves it, or it gave up.
    Gone,
    /// Nothing any more.
    Nothing,
}

impl Engine {
    /// Registers a command that waits, its shards still locked.
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

    /// Serves those who wait for keys that were given something; serving may make more ready.
    pub(super) fn serve_ready(&self, mut ready: Vec<(usize, Box<[u8]>)>) {
        while !ready.is_empty() {
            let mut next = Vec::new();
            for (database, key) in ready {
                self.serve_key(database, &key, &mut next);
            }
            ready = next;
        }
    }

    /// Serves those who wait for one key, the longest waiting first, as long as there is something.
    fn serve_key(&self, database: usize, key: &[u8], ready: &mut Vec<(usize, Box<[u8]>)>) {
        for waiter in self.lines.of(database, key) {
            if waiter.is_waiting() && self.serve(&waiter, key, ready) == Found::Nothing {
                break;
            }
        }
    }

    /// Runs a waiting command again for a key that was given something.
    fn serve(
        &self,
        waiter: &Arc<Waiter>,
        key: &[u8],
        ready: &mut Vec<(usize, Box<[u8]>)>,
    ) -> Found {
        let mut session = Session::new(waiter.client.clone(), true);
        session.protocol = waiter.protocol;
        session.database = waiter.database;
        let args: Vec<&[u8]> = waiter.args.iter().map(|word| &**word).collect();
        let mut out = Reply::new(waiter.protocol);
        let now_ms = self.now_ms();
        let mut wanted = Wanted::default();
        self.want(waiter.spec, &args, waiter.database, &mut wanted);
        let mut ops = self.take_ops();
        // Before the locks, so that they are given back first.
        let _on_behalf = OnBehalf { engine: self, waiter };
        let found = {
            let mut locked = Locked::lock(&self.keyspace, &mut wanted, now_ms);
            let now_ms = locked.now_ms();
            // Claimed with all of its keys locked: a claim given back for one key must not hide the
            // waiter from whoever gives something to another.
            let found = match waiter.claim() {
                true => self.look(waiter, key, &mut locked),
                false => Found::Gone,
            };
            if found != Found::Served {
                if found != Found::Gone {
                    waiter.release();
                }
                drop(locked);
                self.give_ops(ops);
                return found;
            }
            let scope = (&mut locked, &mut ops);
            let (command, waiting) = ((waiter.spec, &*args), Waiting::Served(key));
            let ran = self.run_locked(&mut session, command, &mut out, now_ms, waiting, scope);
            self.finish_locked(&mut locked, &ops, now_ms, ready);
            if ran.blocking.is_some() {
                waiter.release();
                Found::Nothing
            } else {
                self.stop_waiting(waiter, &mut locked);
                Found::Served
            }
        };
        self.give_ops(ops);
        if found == Found::Served {
            waiter.finish();
            self.lines.leave(waiter);
            waiter.client.mailbox.unblock(&out.take());
        }
        found
    }

    /// Whether a key holds what a command waits for: a value of another type leaves it waiting.
    fn look(&self, waiter: &Waiter, key: &[u8], locked: &mut Locked<'_>) -> Found {
        let awaited = if waiter.spec.group == "list" { Kind::List } else { Kind::ZSet };
        let key = self.keyspace.key(key);
        let shard = locked.get(waiter.database, key.shard());
        match shard.look_at(&key).map(|at| shard.kind(at)) {
            None => Found::Nothing,
            Some(kind) if kind == awaited => Found::Served,
            Some(_) => Found::OtherType,
        }
    }

    fn stop_waiting(&self, waiter: &Waiter, locked: &mut Locked<'_>) {
        for key in &waiter.keys {
            let shard = shard_of(self.keyspace.rules().hash(key));
            locked.get(waiter.database, shard).stop_waiting(key);
        }
    }

    /// Gives up waiting; `false` where the reply is already on its way through the mailbox.
    pub(super) fn give_up(&self, session: &mut Session) -> bool {
        session.waiter.take().is_some_and(|waiter| self.end_waiting(&waiter))
    }

    /// Takes a waiter out of its lines; `false` where it was served first.
    ///
    /// With its keys locked, as [`Engine::serve`] does: a claim that is given back again must not be
    /// taken for an answer.
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
