//! The engine: data, log, clients and subscriptions, without sockets.
//!
//! The threads of a server share one [`Engine`], and each runs the commands of its own connections
//! on it. A turn of such a thread is: run the received commands, [`Engine::settle`], send the
//! replies. So nothing is acknowledged, and nothing read is shown, before it is as durable as
//! configured.
//!
//! Invariants: a change of a key and its position in the log are decided under the key's shard
//! lock, so the log's order is the keys' order. When the log fails, no reply of the turn is sent
//! and every later write is refused. The same holds when a handler panics during a change: its
//! effects are in no log, which [`Keyspace::is_torn`], called with a shard locked, reports before
//! anything is built on them. A handler that panics before it changed anything leaves nothing
//! behind.

mod aside;
mod authority;
mod blocking;
mod clients;
mod config;
mod dispatch;
mod exec;
mod locked;
mod mailbox;
mod memory;
mod pubsub;
mod redact;
mod saving;
mod session;
mod stall;
mod stopping;
mod unwinding;

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use forebay_base::clock::{Clock, SystemClock};
use forebay_log::{CommitError, Committer, Lsn};
use parking_lot::Mutex;

use crate::command::{CommandError, Spec};
use crate::persist::{Journal, Ops};
use crate::resp::{Proto, Reply};
use crate::store::{Keyspace, Rules};

pub use authority::{Authority, Grant};
use clients::{Account, Evicting};
pub use clients::{OutputBound, OutputLimit};
pub use config::{Config, SlowCommand, Statistics};
pub(crate) use locked::Locked;
pub use mailbox::{Drained, Mailbox, Notify};
pub use pubsub::{PubSub, Scope};
pub use saving::Saver;
pub(crate) use session::name_size;
pub use session::{ClientInfo, ClientSaid, Multi, Peer, Queued, Replies, Session, Via};
pub use stopping::Stopper;

/// What follows after a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// The next command.
    Continue,
    /// The reply is sent and the connection closed.
    Close,
    /// The same command again, later. Nothing of it ran, because clients hold more memory than
    /// allowed, and those being closed for that are not closed yet. Only for sessions over RESP.
    HeldBack,
    /// The same command again, when the mailbox reports that its work is done. Nothing of it ran;
    /// another thread does what takes long. Only for sessions whose connection can wait.
    Aside,
    /// Nothing until the mailbox has a reply, or until the deadline.
    Blocked {
        /// When [`Engine::time_out`] is to be called; `None`: never.
        deadline: Option<Instant>,
    },
}

/// Counters that every command changes: kept per thread, to avoid contention.
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
    account: Arc<Account>,
    evicting: Evicting,
    lines: blocking::Lines,
    aside: aside::Aside,
    clients: Mutex<BTreeMap<u64, Arc<ClientInfo>>>,
    next_client: AtomicU64,
    /// End of the last entry appended.
    appended: AtomicU64,
    log_failed: AtomicBool,
    /// Kept apart from what every write changes, because every command reads it.
    stall: Box<stall::Stall>,
    slow: Mutex<VecDeque<SlowCommand>>,
    slow_next: AtomicU64,
    draws: AtomicU64,
    /// Where the sweep for expired keys continues: database, shard, hash.
    sweep: Mutex<(usize, usize, u64)>,
    saver: std::sync::OnceLock<Arc<dyn Saver>>,
    stopper: std::sync::OnceLock<Arc<dyn Stopper>>,
    authority: std::sync::OnceLock<Arc<dyn Authority>>,
    /// Snapshots that were requested or are being taken.
    saving: AtomicUsize,
    save_failed: AtomicBool,
    saved_s: AtomicU64,
    /// Shard from which keys are evicted next.
    evict_at: AtomicU64,
    started: Instant,
    /// Identifies this run: forty hexadecimal digits, as clients expect of `run_id`.
    run_id: String,
}

thread_local! {
    /// The time of the thread's turn in milliseconds; 0 outside of turns.
    static TURN: Cell<u64> = const { Cell::new(0) };
    /// The epoch of stalls in which the thread's turn began; 0 outside of turns.
    static TURN_EPOCH: Cell<u64> = const { Cell::new(0) };
    static OPS: Cell<Option<Ops>> = const { Cell::new(None) };
    /// What the thread counted since it last updated the engine's statistics.
    static TALLY: Cell<Tally> = const { Cell::new(Tally { commands: 0, hits: 0, misses: 0 }) };
}

impl Engine {
    /// Returns an engine over a keyspace, with the log from which it was recovered, or without a
    /// log.
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
            account: Arc::default(),
            evicting: Evicting::new(),
            lines: blocking::Lines::new(),
            aside: aside::Aside::default(),
            clients: Mutex::new(BTreeMap::new()),
            next_client: AtomicU64::new(1),
            appended: AtomicU64::new(0),
            log_failed: AtomicBool::new(false),
            stall: Box::new(stall::Stall::new()),
            slow: Mutex::new(VecDeque::new()),
            slow_next: AtomicU64::new(0),
            draws: AtomicU64::new(seed),
            sweep: Mutex::new((0, 0, 0)),
            saver: std::sync::OnceLock::new(),
            stopper: std::sync::OnceLock::new(),
            authority: std::sync::OnceLock::new(),
            saving: AtomicUsize::new(0),
            save_failed: AtomicBool::new(false),
            saved_s: AtomicU64::new(0),
            evict_at: AtomicU64::new(0),
            started: Instant::now(),
            run_id,
        }
    }

    /// Returns an engine that keeps everything in memory only.
    ///
    /// * `seed`: for the hash of keys; random, so that no one can construct colliding keys.
    #[must_use]
    pub fn in_memory(seed: u64) -> Self {
        Self::new(Keyspace::new(Rules::new(seed)), None, Arc::new(SystemClock::default()))
    }

    /// The data.
    #[must_use]
    pub fn keyspace(&self) -> &Keyspace {
        &self.keyspace
    }

    /// The log, if there is one.
    #[must_use]
    pub fn journal(&self) -> Option<&Journal> {
        self.journal.as_ref()
    }

    /// Sets the log from which its data was recovered, before it is shared.
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

    /// Identifies this run.
    #[must_use]
    pub fn run_id(&self) -> &str {
        &self.run_id
    }

    /// Number of blocked commands.
    #[must_use]
    pub fn blocked(&self) -> usize {
        self.lines.len()
    }

    /// Milliseconds since 1970: the time of the thread's turn, or the clock's outside of a turn.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        match TURN.get() {
            0 => self.clock.now_ms(),
            now_ms => now_ms,
        }
    }

    /// Begins a turn of the calling thread: until [`Engine::end_turn`] its time does not change.
    pub fn begin_turn(&self) {
        TURN.set(self.clock.now_ms());
        TURN_EPOCH.set(self.stall.epoch());
    }

    /// Ends a turn of the calling thread.
    pub fn end_turn(&self) {
        TURN.set(0);
        TURN_EPOCH.set(0);
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

    /// Undoes that: the command will be run again.
    fn uncount_command(&self) {
        self.tally(|tally| tally.commands -= 1);
    }

    /// Counts the lookup of a key.
    #[inline]
    pub(crate) fn count_look_up(&self, found: bool) {
        self.tally(|tally| if found { tally.hits += 1 } else { tally.misses += 1 });
    }

    /// Begins a session for a new connection.
    #[must_use]
    pub fn session(&self, peer: Peer, mailbox: Arc<Mailbox>) -> Session {
        let id = self.next_client.fetch_add(1, Ordering::Relaxed);
        let now_ms = self.now_ms();
        mailbox.count_in(&self.account);
        let info = Arc::new(ClientInfo {
            id,
            peer,
            mailbox,
            created_ms: now_ms,
            active_ms: now_ms.into(),
            database: 0.into(),
            held: 0.into(),
            said: Mutex::new(ClientSaid { protocol: 2, ..ClientSaid::default() }),
        });
        self.clients.lock().insert(id, info.clone());
        let mut session = Session::new(info, false);
        self.admit(&mut session);
        session
    }

    /// Open sessions, in order of connection, without those being closed.
    #[must_use]
    pub fn clients(&self) -> Vec<Arc<ClientInfo>> {
        let clients = self.clients.lock();
        clients.values().filter(|client| !client.mailbox.is_closing()).cloned().collect()
    }

    /// Runs commands as one, as MULTI and EXEC would; the replies form an array.
    pub fn transaction(&self, session: &mut Session, commands: &[Vec<&[u8]>], out: &mut Reply) {
        let known: Option<Vec<Known<'_>>> = commands
            .iter()
            .map(|args| Some((crate::command::find(args.first()?)?, args.clone())))
            .collect();
        let Some(known) = known else {
            out.error("ERR unknown command in transaction");
            return;
        };
        for (spec, args) in &known {
            if let Err(error) = self.permit(session, spec, args) {
                out.error(&error.0);
                return;
            }
        }
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
    /// Writes nothing if the command was answered at the same moment: the reply is in the mailbox.
    pub fn time_out(&self, session: &mut Session, out: &mut Reply) {
        if self.give_up(session) {
            out.null_array();
        }
    }

    /// Unblocks another client's command; `None` if it is not blocked.
    ///
    /// * `error`: whether it is answered with an error instead of an empty result.
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

    /// Records that the reply to the session's blocked command has been taken from the mailbox.
    pub fn unblocked(&self, session: &mut Session) {
        session.waiter = None;
    }

    /// Ends a session: it no longer waits, watches keys or has subscriptions.
    pub fn close(&self, mut session: Session) {
        self.give_up(&mut session);
        self.reset(&mut session);
        self.hold(&session.info, 0);
        session.info.mailbox.empty();
        self.clients.lock().remove(&session.info.id);
    }

    /// Ends a session's transaction, watches and subscriptions.
    pub(crate) fn reset(&self, session: &mut Session) {
        session.multi = None;
        self.unwatch(session);
        session.names_bytes = 0;
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

    /// Makes everything appended so far as durable as configured. Must be called before replies are
    /// sent.
    ///
    /// # Errors
    /// The log has failed: no reply of this turn may be sent, and no later write is accepted. Or it
    /// is stalled: no reply of this turn may be sent, and no write is accepted until it resumes.
    pub fn settle(&self) -> Result<(), CommitError> {
        let Some(journal) = &self.journal else { return Ok(()) };
        if self.stall.covers_turn() {
            return Ok(());
        }
        let end = Lsn(self.appended.load(Ordering::Acquire));
        self.settle_to(journal, end)
    }

    fn settle_to(&self, journal: &Journal, end: Lsn) -> Result<(), CommitError> {
        let mut committed = journal.commit(end);
        if matches!(committed, Err(CommitError::Stalled { .. })) {
            committed = self.begin_stall().and_then(|()| journal.commit(end));
        }
        if matches!(committed, Err(CommitError::Poisoned { .. } | CommitError::Beyond { .. })) {
            self.log_failed.store(true, Ordering::Release);
        }
        committed
    }

    /// Writes what was appended during opening, so that a log without space is noticed before
    /// clients connect.
    pub(crate) fn settle_opening(&self) {
        let Some(journal) = &self.journal else { return };
        if let Err(error) = self.settle_to(journal, journal.end()) {
            let error = forebay_base::error_chain::chain(&error);
            tracing::error!(%error, "the command log cannot be written at startup");
        }
    }

    /// Starts the thread that flushes the log in the background; `None` without a log.
    #[must_use]
    pub fn start_committer(&self) -> Option<Committer> {
        self.journal.as_ref().map(|journal| journal.log().start_committer())
    }

    /// Appends the effects of a command while its shards are locked.
    pub(crate) fn append(&self, now_ms: u64, ops: &Ops) {
        let Some(journal) = &self.journal else { return };
        match journal.append(now_ms, ops) {
            Ok(end) => {
                self.appended.fetch_max(end.0, Ordering::AcqRel);
                self.stall.note(ops);
            }
            Err(error) => {
                // The changes cannot be made durable: nothing is acknowledged from here on.
                self.log_failed.store(true, Ordering::Release);
                let error = forebay_base::error_chain::chain(&error);
                tracing::error!(%error, "the command log accepts no entries; writes are refused");
            }
        }
    }

    /// Why writes are refused, if they are: permanently, or until there is space.
    pub(crate) fn log_failure(&self) -> Option<CommandError> {
        self.log_closed().or_else(|| {
            let reason = self.stalled()?;
            Some(CommandError::new(format!(
                "MISCONF the command log is temporarily unavailable ({reason}): writes are refused \
                 until space is available; reads continue"
            )))
        })
    }

    /// Why writes are refused until the data is opened again, if they are.
    pub(crate) fn log_closed(&self) -> Option<CommandError> {
        if self.keyspace.is_torn() {
            return Some(CommandError::new(
                "MISCONF a command failed after a partial change, so writes are refused; see the \
                 server's log and restart the server",
            ));
        }
        self.log_failed.load(Ordering::Acquire).then(|| {
            CommandError::new(
                "MISCONF the command log has failed, so no write can be acknowledged; \
                 see the server's log and restart the server",
            )
        })
    }

    /// Returns an empty record of effects.
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

    /// The recorded slow commands, the newest first.
    #[must_use]
    pub fn slow(&self) -> Vec<SlowCommand> {
        self.slow.lock().iter().cloned().collect()
    }

    /// Clears the slow commands.
    pub fn forget_slow(&self) {
        self.slow.lock().clear();
    }

    /// Returns a session without a client, for replays and internal calls.
    #[must_use]
    pub fn inner_session(&self) -> Session {
        #[derive(Debug)]
        struct NoNotify;
        impl Notify for NoNotify {
            fn notify(&self, _connection: u64) {}
        }
        let peer = Peer { address: String::new(), local: String::new(), via: Via::Inside };
        let mailbox = Arc::new(Mailbox::new(Arc::new(NoNotify), 0));
        let info = Arc::new(ClientInfo {
            id: 0,
            peer,
            mailbox,
            created_ms: 0,
            active_ms: 0.into(),
            database: 0.into(),
            held: 0.into(),
            said: Mutex::default(),
        });
        let mut session = Session::new(info, true);
        session.protocol = Proto::Resp3;
        session
    }
}

#[cfg(test)]
mod tests;
