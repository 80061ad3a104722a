//! The engine: data, log, clients and subscriptions, with no socket in sight.
//!
//! Threads of a server share one [`Engine`] and each run the commands of their own connections on
//! it. A turn of such a thread is: run what has come, [`Engine::settle`], send the replies. So
//! nothing is acknowledged, and nothing read is shown, before it is as durable as asked.
//!
//! Invariants: a change of a key and its place in the log are decided under the key's shard lock,
//! so the log's order is the keys' order; when the log fails, no reply of the turn is sent and
//! every later write is refused. So it is when a handler panics amid a change: its effects are in no
//! log, and asked for with a shard locked ([`Keyspace::is_torn`]) that is known before anything is
//! built on them. One that panics before it changed anything leaves nothing behind.

mod blocking;
mod config;
mod dispatch;
mod locked;
mod mailbox;
mod memory;
mod pubsub;
mod saving;
mod session;
mod stopping;
mod unwinding;

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use forebay_base::clock::{Clock, SystemClock};
use forebay_log::{CommitError, Committer, Lsn};
use parking_lot::Mutex;

use crate::command::{CommandError, Spec};
use crate::persist::{Journal, Ops};
use crate::resp::{Proto, Reply};
use crate::store::{Keyspace, Rules};

pub use config::{Config, SlowCommand, Statistics};
pub(crate) use locked::Locked;
pub use mailbox::{Drained, Mailbox, Notify};
pub use pubsub::{PubSub, Scope};
pub use saving::Saver;
pub use session::{ClientInfo, ClientSaid, Multi, Peer, Queued, Replies, Session, Via};
pub use stopping::Stopper;

/// What follows a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// The next one.
    Continue,
    /// The reply is sent and the connection closed.
    Close,
    /// Nothing until the mailbox says so, or this time comes.
    Blocked {
        /// When [`Engine::time_out`] is to be called; `None`: never.
        deadline: Option<Instant>,
    },
}

/// Counts that every command changes: kept by the thread, so that threads do not fight for them.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    commands: u64,
    hits: u64,
    misses: u64,
}

/// A command with its row.
type Known<'a> = (&'static Spec, Vec<&'a [u8]>);

/// The engine; see the module.
#[derive(Debug)]
pub struct Engine {
    keyspace: Keyspace,
    journal: Option<Journal>,
    clock: Arc<dyn Clock>,
    config: Config,
    statistics: Statistics,
    pubsub: PubSub,
    lines: blocking::Lines,
    clients: Mutex<BTreeMap<u64, Arc<ClientInfo>>>,
    next_client: AtomicU64,
    /// End of the last entry appended.
    appended: AtomicU64,
    log_failed: AtomicBool,
    slow: Mutex<VecDeque<SlowCommand>>,
    slow_next: AtomicU64,
    draws: AtomicU64,
    /// Where the sweep for expired keys goes on: database, shard, hash.
    sweep: Mutex<(usize, usize, u64)>,
    saver: std::sync::OnceLock<Arc<dyn Saver>>,
    stopper: std::sync::OnceLock<Arc<dyn Stopper>>,
    saving: AtomicBool,
    saved_s: AtomicU64,
    /// Shard from which memory is taken next.
    evict_at: AtomicU64,
    started: Instant,
    /// Told apart from other runs: forty hexadecimal digits, as clients expect of `run_id`.
    run_id: String,
}

thread_local! {
    /// The time of the thread's turn in milliseconds; 0 outside of turns.
    static TURN: Cell<u64> = const { Cell::new(0) };
    static OPS: Cell<Option<Ops>> = const { Cell::new(None) };
    /// What the thread counted since it last told the engine's statistics.
    static TALLY: Cell<Tally> = const { Cell::new(Tally { commands: 0, hits: 0, misses: 0 }) };
}

impl Engine {
    /// An engine over a keyspace, with the log that already led to it, or without any.
    #[must_use]
    pub fn new(keyspace: Keyspace, journal: Option<Journal>, clock: Arc<dyn Clock>) -> Self {
        let run_id = format!("{:016x}{:024x}", keyspace.rules().hash(b"run"), clock.now_ms());
        let seed = keyspace.rules().seed();
        Self {
            keyspace,
            journal,
            clock,
            config: Config::default(),
            statistics: Statistics::default(),
            pubsub: PubSub::default(),
            lines: blocking::Lines::new(),
            clients: Mutex::new(BTreeMap::new()),
            next_client: AtomicU64::new(1),
            appended: AtomicU64::new(0),
            log_failed: AtomicBool::new(false),
            slow: Mutex::new(VecDeque::new()),
            slow_next: AtomicU64::new(0),
            draws: AtomicU64::new(seed),
            sweep: Mutex::new((0, 0, 0)),
            saver: std::sync::OnceLock::new(),
            stopper: std::sync::OnceLock::new(),
            saving: AtomicBool::new(false),
            saved_s: AtomicU64::new(0),
            evict_at: AtomicU64::new(0),
            started: Instant::now(),
            run_id,
        }
    }

    /// An engine that keeps everything in memory alone.
    ///
    /// * `seed`: of the keys' hash; random, so that nobody can make keys collide.
    #[must_use]
    pub fn in_memory(seed: u64) -> Self {
        Self::new(Keyspace::new(Rules::new(seed)), None, Arc::new(SystemClock::default()))
    }

    /// The data.
    #[must_use]
    pub fn keyspace(&self) -> &Keyspace {
        &self.keyspace
    }

    /// The log, where there is one.
    #[must_use]
    pub fn journal(&self) -> Option<&Journal> {
        self.journal.as_ref()
    }

    /// Gives it the log that led to what it holds, before it is shared.
    pub fn set_journal(&mut self, journal: Journal) {
        self.journal = Some(journal);
    }

    /// The settings.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The counters.
    #[must_use]
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// The subscriptions.
    #[must_use]
    pub fn pubsub(&self) -> &PubSub {
        &self.pubsub
    }

    /// How long it has run.
    #[must_use]
    pub fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// Tells this run from others.
    #[must_use]
    pub fn run_id(&self) -> &str {
        &self.run_id
    }

    /// Commands that wait for a key.
    #[must_use]
    pub fn blocked(&self) -> usize {
        self.lines.len()
    }

    /// Milliseconds since 1970: those of the thread's turn, or the clock's outside of one.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        match TURN.get() {
            0 => self.clock.now_ms(),
            now_ms => now_ms,
        }
    }

    /// Begins a turn of the calling thread: until [`Engine::end_turn`] its time stands still.
    pub fn begin_turn(&self) {
        TURN.set(self.clock.now_ms());
    }

    /// Ends a turn of the calling thread.
    pub fn end_turn(&self) {
        TURN.set(0);
        let tally = TALLY.take();
        let add = |count: &AtomicU64, by: u64| {
            if by > 0 {
                count.fetch_add(by, Ordering::Relaxed);
            }
        };
        add(&self.statistics.commands, tally.commands);
        add(&self.statistics.hits, tally.hits);
        add(&self.statistics.misses, tally.misses);
    }

    fn tally(&self, count: impl FnOnce(&mut Tally)) {
        let mut tally = TALLY.get();
        count(&mut tally);
        TALLY.set(tally);
        if TURN.get() == 0 {
            self.end_turn();
        }
    }

    /// Counts a command.
    #[inline]
    pub(crate) fn count_command(&self) {
        self.tally(|tally| tally.commands += 1);
    }

    /// Counts the look-up of a key.
    #[inline]
    pub(crate) fn count_look_up(&self, found: bool) {
        self.tally(|tally| if found { tally.hits += 1 } else { tally.misses += 1 });
    }

    /// Begins a session for a new connection.
    #[must_use]
    pub fn session(&self, peer: Peer, mailbox: Arc<Mailbox>) -> Session {
        let id = self.next_client.fetch_add(1, Ordering::Relaxed);
        let now_ms = self.now_ms();
        let info = Arc::new(ClientInfo {
            id,
            peer,
            mailbox,
            created_ms: now_ms,
            active_ms: now_ms.into(),
            database: 0.into(),
            said: Mutex::new(ClientSaid { protocol: 2, ..ClientSaid::default() }),
        });
        self.clients.lock().insert(id, info.clone());
        Session::new(info, !self.config.needs_password())
    }

    /// Sessions open, in the order they came; those being closed are gone already.
    #[must_use]
    pub fn clients(&self) -> Vec<Arc<ClientInfo>> {
        let clients = self.clients.lock();
        clients.values().filter(|client| !client.mailbox.is_closing()).cloned().collect()
    }

    /// Runs commands as one, as MULTI and EXEC would; the replies come as an array.
    pub fn transaction(&self, session: &mut Session, commands: &[Vec<&[u8]>], out: &mut Reply) {
        let known: Option<Vec<Known<'_>>> = commands
            .iter()
            .map(|args| Some((crate::command::find(args.first()?)?, args.clone())))
            .collect();
        let Some(known) = known else {
            out.error("ERR unknown command in a transaction");
            return;
        };
        let needs_memory =
            known.iter().any(|(spec, _)| spec.flags.has(crate::command::Flags::DENYOOM));
        if needs_memory && !self.has_memory() && !self.make_room() {
            out.error(&CommandError::OOM.0);
            return;
        }
        if let Some(error) = self.log_failure() {
            out.error(&error.0);
            return;
        }
        self.exec_all(session, &known, out);
    }

    /// The deadline of [`Flow::Blocked`] passed: writes the reply of a command that found nothing.
    ///
    /// Nothing is written where the answer came in the same moment: it lies in the mailbox.
    pub fn time_out(&self, session: &mut Session, out: &mut Reply) {
        if self.give_up(session) {
            out.null_array();
        }
    }

    /// Ends the waiting of another client's command; `None`: it does not wait.
    ///
    /// * `error`: whether it is answered with an error instead of finding nothing.
    pub fn unblock(&self, id: u64, error: bool) -> bool {
        let client = self.clients.lock().get(&id).cloned();
        let Some(client) = client else { return false };
        let Some(waiter) = self.lines.find(id) else { return false };
        if !self.end_waiting(&waiter) {
            return false;
        }
        let mut out = Reply::new(waiter.protocol);
        if error {
            out.error("UNBLOCKED client unblocked via CLIENT UNBLOCK");
        } else {
            out.null_array();
        }
        client.mailbox.unblock(&out.take());
        true
    }

    /// The answer to what the session waited for has come out of the mailbox.
    pub fn unblocked(&self, session: &mut Session) {
        session.waiter = None;
    }

    /// Ends a session: it no longer waits, watches or listens.
    pub fn close(&self, mut session: Session) {
        self.give_up(&mut session);
        self.reset(&mut session);
        self.clients.lock().remove(&session.info.id);
    }

    /// Ends a session's transaction, watches and subscriptions.
    pub(crate) fn reset(&self, session: &mut Session) {
        session.multi = None;
        self.unwatch(session);
        let id = session.info.id;
        for (scope, names) in [
            (Scope::Channel, std::mem::take(&mut session.channels)),
            (Scope::Pattern, std::mem::take(&mut session.patterns)),
            (Scope::Shard, std::mem::take(&mut session.shard_channels)),
        ] {
            for name in names {
                self.pubsub.unsubscribe(scope, &name, id);
            }
        }
    }

    /// A random number, good enough to pick elements with.
    pub(crate) fn random(&self) -> u64 {
        let drawn = self.draws.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
        let mixed = (drawn ^ (drawn >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Makes everything appended so far as durable as asked: to be called before replies are sent.
    ///
    /// # Errors
    /// The log has failed: no reply of this turn may be sent, and no write is taken any more.
    pub fn settle(&self) -> Result<(), CommitError> {
        let Some(journal) = &self.journal else { return Ok(()) };
        let end = self.appended.load(Ordering::Acquire);
        let committed = journal.commit(Lsn(end));
        if committed.is_err() {
            self.log_failed.store(true, Ordering::Release);
        }
        committed
    }

    /// Starts the thread that flushes the log in the background; `None` without a log.
    #[must_use]
    pub fn start_committer(&self) -> Option<Committer> {
        self.journal.as_ref().map(|journal| journal.log().start_committer())
    }

    /// Appends the effects of a command, its shards still locked.
    pub(crate) fn append(&self, now_ms: u64, ops: &Ops) {
        let Some(journal) = &self.journal else { return };
        match journal.append(now_ms, ops) {
            Ok(end) => {
                self.appended.fetch_max(end.0, Ordering::AcqRel);
            }
            Err(error) => {
                // What was changed cannot be kept: nothing is acknowledged from here on.
                self.log_failed.store(true, Ordering::Release);
                let error = forebay_base::error_chain::chain(&error);
                tracing::error!(%error, "the command log takes no more; writes are refused");
            }
        }
    }

    /// Why writes are refused, if they are.
    pub(crate) fn log_failure(&self) -> Option<CommandError> {
        if self.keyspace.is_torn() {
            return Some(CommandError::new(
                "MISCONF a command failed half done, so nothing is written any more; see the \
                 server's log, and start it again",
            ));
        }
        self.log_failed.load(Ordering::Acquire).then(|| {
            CommandError::new(
                "MISCONF the command log has failed, so nothing can be acknowledged any more; \
                 see the server's log, and start it again",
            )
        })
    }

    /// An empty record of effects.
    pub(crate) fn take_ops(&self) -> Ops {
        let mut ops = OPS.take().unwrap_or_default();
        ops.clear();
        ops
    }

    pub(crate) fn give_ops(&self, ops: Ops) {
        OPS.set(Some(ops));
    }

    pub(crate) fn remember_slow(
        &self,
        now_ms: u64,
        took_us: u64,
        words: Vec<Box<[u8]>>,
        client: String,
        name: String,
    ) {
        let len_max = self.config.slow_len.load(Ordering::Relaxed);
        let id = self.slow_next.fetch_add(1, Ordering::Relaxed);
        let mut slow = self.slow.lock();
        slow.push_front(SlowCommand { id, at_s: now_ms / 1_000, took_us, words, client, name });
        slow.truncate(len_max);
    }

    /// The slow commands remembered, the newest first.
    #[must_use]
    pub fn slow(&self) -> Vec<SlowCommand> {
        self.slow.lock().iter().cloned().collect()
    }

    /// Forgets the slow commands.
    pub fn forget_slow(&self) {
        self.slow.lock().clear();
    }

    /// A session of nobody's, for replays and calls from inside.
    #[must_use]
    pub fn inner_session(&self) -> Session {
        #[derive(Debug)]
        struct Nobody;
        impl Notify for Nobody {
            fn notify(&self, _connection: u64) {}
        }
        let peer = Peer { address: String::new(), local: String::new(), via: Via::Inside };
        let mailbox = Arc::new(Mailbox::new(Arc::new(Nobody), 0));
        let info = Arc::new(ClientInfo {
            id: 0,
            peer,
            mailbox,
            created_ms: 0,
            active_ms: 0.into(),
            database: 0.into(),
            said: Mutex::default(),
        });
        let mut session = Session::new(info, true);
        session.protocol = Proto::Resp3;
        session
    }
}

#[cfg(test)]
mod tests;
