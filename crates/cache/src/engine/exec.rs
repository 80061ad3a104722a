//! Transactions: several commands with the locks of all of them, and one entry in the log.

use std::sync::atomic::Ordering;

use super::Engine;
use super::dispatch::{Scope, Waiting, collect_ready};
use super::locked::{Locked, Wanted};
use super::session::{Multi, Session, name_size};
use crate::command::{CommandError, Context, Flags, Spec};
use crate::resp::Reply;
use crate::store::shard_of;

impl Engine {
    /// Runs the queue of MULTI: all shards locked, one entry in the log.
    pub(super) fn exec(&self, session: &mut Session, out: &mut Reply) {
        let Some(Multi { queue, broken, .. }) = session.multi.take() else {
            out.error("ERR EXEC without MULTI");
            return;
        };
        session.info.said.lock().queued = None;
        if broken {
            self.unwatch(session);
            out.error("EXECABORT Transaction discarded because of previous errors.");
            return;
        }
        // Checked again: the key may permit less than when they were queued.
        let denied = queue.iter().find_map(|queued| {
            session.grant.as_ref()?;
            let args: Vec<&[u8]> = queued.args.iter().map(|word| &**word).collect();
            self.permit(session, queued.spec, &args).err()
        });
        let any = |flag| queue.iter().any(|queued| queued.spec.flags.has(flag));
        let refused = denied.or_else(|| self.log_failure().filter(|_| any(Flags::WRITE)));
        let refused = refused.or_else(|| {
            let has_memory = !any(Flags::DENYOOM) || self.has_memory() || self.make_room();
            (!has_memory).then_some(CommandError::OOM)
        });
        if let Some(error) = refused {
            self.unwatch(session);
            self.statistics.errors.fetch_add(1, Ordering::Relaxed);
            out.error(&format!("EXECABORT Transaction discarded because of: {}", error.0));
            return;
        }
        let commands: Vec<(&'static Spec, Vec<&[u8]>)> = queue
            .iter()
            .map(|queued| (queued.spec, queued.args.iter().map(|word| &**word).collect()))
            .collect();
        self.exec_all(session, &commands, out);
        self.unwatch(session);
    }

    /// Runs commands as one: no client sees a state between them, and the log has all or none.
    pub(super) fn exec_all(
        &self,
        session: &mut Session,
        commands: &[(&'static Spec, Vec<&[u8]>)],
        out: &mut Reply,
    ) {
        let now_ms = self.now_ms();
        let mut wanted = Wanted::default();
        let mut database = session.database;
        for (spec, args) in commands {
            self.want_all(spec, args, database, &mut wanted);
            if spec.name == "select"
                && let Some(selected) = args.get(1).and_then(|word| Context::database(word).ok())
            {
                database = selected;
            }
        }
        for (database, key) in &session.watched {
            wanted.add(*database, shard_of(self.keyspace.rules().hash(key)));
        }
        let mut ops = self.take_ops();
        let (mut ready, mut garbage) = (Vec::new(), Vec::new());
        {
            let mut locked = Locked::lock(&self.keyspace, &mut wanted, now_ms);
            let now_ms = locked.now_ms();
            if self.is_dirty(session, &mut locked) {
                out.null_array();
            } else {
                let output_max = self.reply_size_max();
                let mark = out.len();
                out.array(commands.len());
                for (spec, args) in commands {
                    self.count_command();
                    let before = out.len();
                    let scope = Scope::at_once(&mut locked, &mut ops);
                    let command = (*spec, &**args);
                    let ran = self.run_locked(session, command, out, now_ms, Waiting::Never, scope);
                    garbage.extend(ran.garbage);
                    // A connection with more unread output than allowed is closed after the turn:
                    // the effects count, further replies do not.
                    if before - mark > output_max {
                        out.truncate(before);
                    }
                    // In the order in which they received elements, not in the order of their
                    // shards.
                    collect_ready(&mut locked, &mut ready);
                }
            }
            self.finish_locked(&mut locked, &ops, now_ms, &mut ready);
        }
        drop(garbage);
        self.give_ops(ops);
        self.serve_ready(ready);
        self.keep_bound();
    }

    /// Whether a watched key has changed, or has expired since WATCH.
    fn is_dirty(&self, session: &Session, locked: &mut Locked<'_>) -> bool {
        // Looking at each key finds those that have expired, and removing them raises the flag.
        for (database, key) in &session.watched {
            let key = self.keyspace.key(key);
            locked.get(*database, key.shard()).look_at(&key);
        }
        session.dirty.load(Ordering::Acquire)
    }

    /// Refuses a known command. An EXEC that is refused ends the transaction.
    pub(super) fn reject(&self, session: &mut Session, spec: &Spec, why: &str, out: &mut Reply) {
        let error = if spec.name == "exec" {
            self.discard(session);
            format!("EXECABORT Transaction discarded because of: {why}")
        } else {
            format!("ERR {why}")
        };
        self.refuse(session, &CommandError::new(error), out);
    }

    /// Drops the queue of MULTI and the session's watches.
    fn discard(&self, session: &mut Session) {
        session.multi = None;
        session.info.said.lock().queued = None;
        self.unwatch(session);
    }

    /// Removes the session's watches.
    pub(crate) fn unwatch(&self, session: &mut Session) {
        let now_ms = self.now_ms();
        for (database, key) in std::mem::take(&mut session.watched) {
            session.names_bytes = session.names_bytes.saturating_sub(name_size(&key));
            let key = self.keyspace.key(&key);
            let mut shard = self.keyspace.lock(database, key.shard(), now_ms);
            shard.unwatch(key.bytes, &session.dirty);
        }
        session.dirty.store(false, Ordering::Release);
    }
}
