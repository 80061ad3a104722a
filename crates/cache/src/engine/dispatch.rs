//! From words to effects: finds the command, locks its shards, runs it and logs its effects.

use std::sync::atomic::Ordering;
use std::time::Instant;

use super::locked::{Locked, Wanted};
use super::memory::values_of;
use super::session::{Queued, Replies, Session, Via};
use super::{Engine, Flow, redact};
use crate::command::{self, Apart, Blocking, CommandError, Context, Flags, Keys, Spec};
use crate::persist::Ops;
use crate::resp::{Proto, Reply};
use crate::store::{SHARDS, Shard, SharedText, shard_of};

/// Maximum number of words of a command that SLOWLOG and error texts show.
const SHOWN_WORDS: usize = 32;
const SHOWN_BYTES: usize = 128;
/// Number of times that a command may have work done without its locks: then other clients have
/// changed the same string that often meanwhile, and the work is done under the locks.
const DEFERRALS_MAX: usize = 4;
/// Below this threshold of SLOWLOG, in microseconds, even commands of constant time are timed.
const FAST_US: u64 = 1_000;

/// Whether a command may block on its keys.
#[derive(Debug, Clone, Copy)]
pub(super) enum Waiting<'a> {
    /// It may.
    May,
    /// It replies that there is nothing: other commands wait for those that run with it.
    Never,
    /// It was blocked, and this key received an element.
    Served(&'a [u8]),
}

impl<'a> Waiting<'a> {
    fn served(self) -> Option<&'a [u8]> {
        match self {
            Self::Served(key) => Some(key),
            Self::May | Self::Never => None,
        }
    }
}

/// Keys that received elements and on which commands are blocked, with their databases.
type ReadyKeys = Vec<(usize, Box<[u8]>)>;

/// The result of a command that was run.
pub(super) struct Ran {
    pub(super) blocking: Option<Blocking>,
    /// Data to free after the locks are released.
    pub(super) garbage: Vec<Shard>,
    /// Work to do without the locks before the command runs again.
    deferred: Option<Box<Apart>>,
    /// A string to be written as the reply after the locks are released.
    late: Option<SharedText>,
}

impl Ran {
    fn refused(garbage: Vec<Shard>) -> Self {
        Self { blocking: None, garbage, deferred: None, late: None }
    }
}

/// What a command runs with.
pub(super) struct Scope<'s, 'e> {
    pub(super) locked: &'s mut Locked<'e>,
    pub(super) ops: &'s mut Ops,
    /// The work that it requested when it ran before.
    pub(super) apart: Option<&'s mut Apart>,
    /// Whether it may request such work.
    pub(super) may_defer: bool,
}

impl<'s, 'e> Scope<'s, 'e> {
    /// Of a command that does all of its work under the locks.
    pub(super) fn at_once(locked: &'s mut Locked<'e>, ops: &'s mut Ops) -> Self {
        Self { locked, ops, apart: None, may_defer: false }
    }
}

impl Engine {
    /// Runs one command and writes its reply.
    ///
    /// None of its changes may be shown to any client before [`Engine::settle`].
    ///
    /// * `args`: its words, the name first.
    pub fn execute(&self, session: &mut Session, args: &[&[u8]], out: &mut Reply) -> Flow {
        let Some(name) = args.first() else { return Flow::Continue };
        let mark = out.len();
        // Clients mostly repeat the same command.
        let known = session.last.filter(|last| name.eq_ignore_ascii_case(last.name.as_bytes()));
        let spec = known.or_else(|| command::find(name));
        let flow = match spec {
            None => {
                self.refuse(session, &unknown(args), out);
                Flow::Continue
            }
            Some(spec) => self.execute_known(session, spec, args, out),
        };
        match session.replies {
            Replies::On => {}
            // The command will be run again.
            _ if matches!(flow, Flow::HeldBack | Flow::Aside) => {}
            // A client that turned replies off still gets its subscriptions confirmed, as it gets
            // messages.
            _ if spec.is_some_and(is_listening) && out.as_bytes().get(mark) != Some(&b'-') => {}
            Replies::Off => out.truncate(mark),
            Replies::SkipNext => {
                // CLIENT REPLY SKIP itself gets no reply, nor does the command after it.
                out.truncate(mark);
                if !is_client_reply(args) {
                    session.replies = Replies::On;
                }
            }
        }
        flow
    }

    fn execute_known(
        &self,
        session: &mut Session,
        spec: &'static Spec,
        args: &[&[u8]],
        out: &mut Reply,
    ) -> Flow {
        if !session.authenticated && !spec.flags.has(Flags::NO_AUTH) {
            let error = CommandError::new("NOAUTH Authentication required.");
            self.refuse(session, &error, out);
            return Flow::Continue;
        }
        if !spec.takes(args.len()) {
            let why = format!("wrong number of arguments for '{}' command", spec.name);
            self.reject(session, spec, &why, out);
            return Flow::Continue;
        }
        if let Err(error) = command::check_subcommand(spec, args) {
            self.refuse(session, &error, out);
            return Flow::Continue;
        }
        if session.grant.is_some()
            && let Err(error) = self.permit(session, spec, args)
        {
            self.refuse(session, &error, out);
            return Flow::Continue;
        }
        if session.subscriptions() > 0
            && session.protocol == Proto::Resp2
            && !spec.flags.has(Flags::SUBSCRIBED)
        {
            let why = format!(
                "Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context",
                spec.name
            );
            self.reject(session, spec, &why, out);
            return Flow::Continue;
        }
        if session.multi.is_some() && !spec.flags.has(Flags::UNQUEUED) {
            self.queue(session, spec, args, out);
            return Flow::Continue;
        }
        match spec.name {
            "exec" => {
                self.exec(session, out);
                Flow::Continue
            }
            "quit" => {
                out.ok();
                Flow::Close
            }
            "shutdown" => {
                let mark = out.len();
                self.run(session, spec, args, out);
                if out.len() == mark { Flow::Close } else { Flow::Continue }
            }
            _ => self.run(session, spec, args, out),
        }
    }

    /// Refuses a command; inside MULTI that breaks the transaction.
    pub(super) fn refuse(&self, session: &mut Session, error: &CommandError, out: &mut Reply) {
        self.statistics.errors.fetch_add(1, Ordering::Relaxed);
        if let Some(multi) = &mut session.multi {
            multi.broken = true;
        }
        out.error(&error.0);
    }

    fn queue(&self, session: &mut Session, spec: &'static Spec, args: &[&[u8]], out: &mut Reply) {
        if spec.flags.has(Flags::NO_MULTI) {
            let error = CommandError::new(format!(
                "ERR Command not allowed inside a transaction: '{}'",
                spec.name
            ));
            self.refuse(session, &error, out);
            return;
        }
        // Each word with its slot and the allocator's overhead, the command with two slots, because
        // the queue grows by doubling.
        let words: usize = args.iter().map(|word| word.len() + 48).sum();
        let bytes = words + 2 * size_of::<Queued>();
        let bytes_max = self.config.multi_max.load(Ordering::Relaxed);
        let too_many = session.multi.as_ref().is_some_and(|multi| multi.bytes + bytes > bytes_max);
        if too_many {
            let error = CommandError::new("ERR the transaction exceeds its size limit");
            self.refuse(session, &error, out);
            return;
        }
        if spec.flags.has(Flags::DENYOOM) && !self.has_memory() && !self.make_room() {
            self.refuse(session, &CommandError::OOM, out);
            return;
        }
        let Some(multi) = &mut session.multi else { return };
        multi.bytes += bytes;
        let args = args.iter().map(|&word| word.into()).collect();
        multi.queue.push(Queued { spec, args });
        out.simple("QUEUED");
    }

    /// Runs a command outside a transaction.
    fn run(
        &self,
        session: &mut Session,
        spec: &'static Spec,
        args: &[&[u8]],
        out: &mut Reply,
    ) -> Flow {
        self.count_command();
        if session.last.is_none_or(|last| !std::ptr::eq(last, spec)) {
            session.last = Some(spec);
            session.info.said.lock().command = spec.name;
        }
        if spec.flags.has(Flags::DENYOOM) && !self.has_memory_for(spec, args) {
            self.refuse(session, &CommandError::OOM, out);
            return Flow::Continue;
        }
        if spec.flags.has(Flags::WRITE)
            && let Some(error) = self.log_failure()
        {
            self.refuse(session, &error, out);
            return Flow::Continue;
        }
        let order = session.order.take();
        let mut attempts = order.as_ref().map_or(0, |order| order.attempts);
        let mut apart = order.and_then(|order| order.take());
        if session.may_lend
            && attempts == 0
            && let Some(values) = self.long_values(spec, args)
        {
            session.to_prepare = values;
            self.uncount_command();
            return Flow::Aside;
        }
        let prepared = match apart.as_deref_mut() {
            Some(Apart::Prepare(preparation)) => preparation.install(values_of(spec, args)),
            _ => None,
        };
        let _prepared = prepared.or_else(|| self.prepare(spec, args));
        let mut ops = self.take_ops();
        let mut ready = Vec::new();
        let ran = loop {
            let may_defer = attempts < DEFERRALS_MAX;
            let work = (&mut apart, may_defer);
            let ran = self.run_once(session, (spec, args), out, (&mut ops, &mut ready), work);
            match ran {
                Some(Ran { deferred: Some(work), .. }) => {
                    // What was made before is freed first.
                    drop(apart.take());
                    attempts += 1;
                    match self.do_aside(session, work, attempts) {
                        None => break Err(Flow::Aside),
                        made => apart = made,
                    }
                }
                ran => break ran.ok_or(Flow::HeldBack),
            }
        };
        self.give_ops(ops);
        let ran = match ran {
            Ok(ran) => ran,
            Err(again) => {
                self.uncount_command();
                return again;
            }
        };
        if let Some(text) = ran.late {
            command::bulk(out, text.text());
        }
        self.serve_ready(ready);
        self.keep_bound();
        match ran.blocking {
            Some(blocking) => Flow::Blocked { deadline: blocking.deadline },
            None => Flow::Continue,
        }
    }

    /// Does work without locks, or has it done: then it returns `None`, and the session has the
    /// order.
    fn do_aside(
        &self,
        session: &mut Session,
        work: Box<Apart>,
        attempts: usize,
    ) -> Option<Box<Apart>> {
        let ordered = match session.may_wait {
            true => self.aside.order(work, attempts, &session.info.mailbox),
            false => Err(work),
        };
        match ordered {
            Ok(order) => {
                session.order = Some(order);
                None
            }
            Err(mut work) => {
                work.run();
                Some(work)
            }
        }
    }

    /// Locks a command's shards, runs it and logs its effects; `None` if it is held back.
    ///
    /// * `apart`: the work that it requested when it ran before, and whether it may request more.
    fn run_once(
        &self,
        session: &mut Session,
        (spec, args): (&'static Spec, &[&[u8]]),
        out: &mut Reply,
        (ops, ready): (&mut Ops, &mut ReadyKeys),
        (apart, may_defer): (&mut Option<Box<Apart>>, bool),
    ) -> Option<Ran> {
        let mut locked = self.lock(session.database, spec, args, self.now_ms());
        if self.is_held_back(session, spec) {
            return None;
        }
        let now_ms = locked.now_ms();
        let apart = apart.as_deref_mut();
        let scope = Scope { locked: &mut locked, ops: &mut *ops, apart, may_defer };
        let ran = self.run_locked(session, (spec, args), out, now_ms, Waiting::May, scope);
        self.finish_locked(&mut locked, ops, now_ms, ready);
        if let Some(blocking) = &ran.blocking {
            self.wait(session, spec, args, blocking, &mut locked);
        }
        Some(ran)
    }

    /// Whether a command has to be run again later: the replies of earlier commands at its key's
    /// lock may leave no room for another.
    #[inline]
    fn is_held_back(&self, session: &Session, spec: &Spec) -> bool {
        let max = self.config.clients_memory_max.load(Ordering::Relaxed);
        self.clients_hold_too_much(max)
            && session.info.peer.via == Via::Resp
            && !spec.flags.has(Flags::WRITE)
    }

    /// Locks the shards that a single command needs.
    #[inline]
    fn lock(&self, database: usize, spec: &Spec, args: &[&[u8]], now_ms: u64) -> Locked<'_> {
        if let (Keys::Range(1, 1, _), Some(word)) = (spec.keys, args.get(1)) {
            let shard = shard_of(self.keyspace.rules().hash(word));
            return Locked::one(&self.keyspace, database, shard, now_ms);
        }
        let mut wanted = Wanted::default();
        if spec.flags.has(Flags::WRITE) {
            // A change of all keys has one position in the log, so it holds all of them at once.
            self.want_all(spec, args, database, &mut wanted);
        } else {
            self.want(spec, args, database, &mut wanted);
        }
        Locked::lock(&self.keyspace, &mut wanted, now_ms)
    }

    /// Returns the shards that a command needs.
    pub(super) fn want(&self, spec: &Spec, args: &[&[u8]], database: usize, wanted: &mut Wanted) {
        if let Keys::Wide(_, is_wide) = spec.keys
            && is_wide(args)
        {
            return (0..SHARDS).for_each(|shard| wanted.add(database, shard));
        }
        for (database, at) in spec.keys_of(args, database) {
            if let Some(word) = args.get(at) {
                wanted.add(database, shard_of(self.keyspace.rules().hash(word)));
            }
        }
    }

    /// Returns the shards that a command needs in a transaction: there even scans lock all they
    /// visit.
    pub(super) fn want_all(
        &self,
        spec: &Spec,
        args: &[&[u8]],
        database: usize,
        wanted: &mut Wanted,
    ) {
        let databases = match spec.keys {
            Keys::All => database..database + 1,
            Keys::Everything => 0..crate::store::DATABASES,
            _ => return self.want(spec, args, database, wanted),
        };
        for database in databases.filter(|&database| self.keyspace.is_made(database)) {
            (0..SHARDS).for_each(|shard| wanted.add(database, shard));
        }
    }

    /// Runs a handler with its shards locked, and turns its error into a reply.
    pub(super) fn run_locked<'e>(
        &'e self,
        session: &mut Session,
        (spec, args): (&'static Spec, &[&[u8]]),
        out: &mut Reply,
        now_ms: u64,
        waiting: Waiting<'_>,
        scope: Scope<'_, 'e>,
    ) -> Ran {
        let mark = out.len();
        // Checked again with the locks held: a command that panicked may have held them before.
        if spec.flags.has(Flags::WRITE) && self.keyspace.is_torn() {
            out.error(&self.log_failure().unwrap_or(CommandError::OOM).0);
            return Ran::refused(Vec::new());
        }
        if let Some(error) = self.doubted(spec, args, session.database) {
            out.error(&error.0);
            return Ran::refused(Vec::new());
        }
        let slow_us = self.config.slow_us.load(Ordering::Relaxed);
        let is_timed = !spec.flags.has(Flags::FAST) || slow_us <= FAST_US;
        let started = (is_timed && slow_us != u64::MAX).then(Instant::now);
        let Scope { locked, ops, apart, may_defer } = scope;
        let (result, ran) = {
            let mut context = Context {
                engine: self,
                session: &mut *session,
                out: &mut *out,
                now_ms,
                may_block: !matches!(waiting, Waiting::Never),
                served: waiting.served(),
                blocking: None,
                apart,
                may_defer,
                deferred: None,
                late: None,
                garbage: Vec::new(),
                locked,
                ops,
            };
            let result = (spec.run)(&mut context, args);
            let Context { blocking, garbage, deferred, late, .. } = context;
            (result, Ran { blocking, garbage, deferred, late })
        };
        // A scan locks shard after shard: keys it visited may have changed since it began.
        let walks = matches!(spec.keys, Keys::All | Keys::Everything);
        let doubted = if walks { self.doubted(spec, args, session.database) } else { None };
        if let Err(error) = doubted.map_or(result, Err) {
            out.truncate(mark);
            self.statistics.errors.fetch_add(1, Ordering::Relaxed);
            out.error(&error.0);
            return Ran::refused(ran.garbage);
        }
        if let Some(started) = started {
            let took_us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
            if took_us >= slow_us {
                self.note_slow(session, (spec, args), took_us, now_ms);
            }
        }
        ran
    }

    /// Logs the changes while the shards are still locked, and collects the keys on which commands
    /// are blocked.
    pub(super) fn finish_locked(
        &self,
        locked: &mut Locked<'_>,
        ops: &Ops,
        now_ms: u64,
        ready: &mut Vec<(usize, Box<[u8]>)>,
    ) {
        if !ops.is_empty() {
            self.append(now_ms, ops);
        }
        collect_ready(locked, ready);
    }

    /// Runs an operation of the log again, at its original time.
    ///
    /// # Errors
    /// [`CommandError`]: unknown command, or it refuses what it accepted originally.
    pub fn replay(
        &self,
        session: &mut Session,
        now_ms: u64,
        database: usize,
        args: &[&[u8]],
    ) -> Result<(), CommandError> {
        let name = args.first().copied().unwrap_or_default();
        let spec = command::find(name).ok_or_else(|| unknown(args))?;
        session.database = database;
        let mut wanted = Wanted::default();
        self.want(spec, args, database, &mut wanted);
        let mut ops = self.take_ops();
        let mut out = Reply::new(Proto::Resp3);
        let mut locked = Locked::lock(&self.keyspace, &mut wanted, now_ms);
        let mut context = Context {
            engine: self,
            session,
            out: &mut out,
            now_ms,
            may_block: false,
            served: None,
            blocking: None,
            apart: None,
            may_defer: false,
            deferred: None,
            late: None,
            garbage: Vec::new(),
            locked: &mut locked,
            ops: &mut ops,
        };
        let result = (spec.run)(&mut context, args);
        drop(locked);
        self.give_ops(ops);
        result
    }

    fn note_slow(
        &self,
        session: &Session,
        (spec, args): (&Spec, &[&[u8]]),
        took_us: u64,
        now_ms: u64,
    ) {
        let shown = |(at, word): (usize, &&[u8])| match redact::is_secret(spec, args, at) {
            true => redact::REDACTED.into(),
            false => cut_short(word),
        };
        let mut words: Vec<Box<[u8]>> =
            args.iter().enumerate().take(SHOWN_WORDS).map(shown).collect();
        if args.len() > SHOWN_WORDS
            && let Some(last) = words.last_mut()
        {
            let more = format!("... ({} more arguments)", args.len() - SHOWN_WORDS + 1);
            *last = more.into_bytes().into();
        }
        let name = session.info.said.lock().name.clone();
        self.remember_slow(now_ms, took_us, words, session.info.peer.address.clone(), name);
    }
}

/// Collects the keys that received elements and on which commands are blocked.
pub(super) fn collect_ready(locked: &mut Locked<'_>, ready: &mut Vec<(usize, Box<[u8]>)>) {
    for (database, shard) in locked.iter_mut() {
        if shard.has_ready() {
            ready.extend(shard.take_ready().into_iter().map(|key| (database, key)));
        }
    }
}

fn cut_short(word: &[u8]) -> Box<[u8]> {
    match word.get(..SHOWN_BYTES) {
        Some(shown) if word.len() > SHOWN_BYTES => {
            let mut shown = shown.to_vec();
            let more = format!("... ({} more bytes)", word.len() - SHOWN_BYTES);
            shown.extend_from_slice(more.as_bytes());
            shown.into()
        }
        _ => word.into(),
    }
}

/// Whether a command replies with the connection's subscriptions.
fn is_listening(spec: &'static Spec) -> bool {
    spec.flags.has(Flags::PUBSUB.and(Flags::SUBSCRIBED))
}

fn is_client_reply(args: &[&[u8]]) -> bool {
    let is =
        |at: usize, word: &[u8]| args.get(at).is_some_and(|arg| arg.eq_ignore_ascii_case(word));
    is(0, b"client") && is(1, b"reply")
}

fn unknown(args: &[&[u8]]) -> CommandError {
    let shown = |word: &[u8]| {
        let cut = word.get(..SHOWN_BYTES).unwrap_or(word);
        String::from_utf8_lossy(cut).into_owned()
    };
    let name = shown(args.first().copied().unwrap_or_default());
    let mut text = format!("ERR unknown command '{name}', with args beginning with: ");
    for word in args.iter().skip(1).take(20) {
        if text.len() > SHOWN_BYTES * 2 {
            break;
        }
        text.push_str(&format!("'{}' ", shown(word)));
    }
    CommandError::new(text)
}
