//! The context in which a handler runs.

use std::time::Instant;

use super::Apart;
use crate::engine::{Engine, Locked, Session};
use crate::persist::Ops;
use crate::resp::Reply;
use crate::store::{CopyAhead, DATABASES, Held, Key, Overwritten, SHARDS, Shard, SharedText};

/// A command's request to block.
#[derive(Debug)]
pub struct Blocking {
    /// Keys; the command waits until one of them receives an element.
    pub keys: Vec<Box<[u8]>>,
    /// When it times out; `None` for never.
    pub deadline: Option<Instant>,
}

/// A command being run; see the module above.
///
/// * `'e`: the engine. `'c`: the command.
#[derive(Debug)]
pub struct Context<'e, 'c> {
    /// The engine: configuration, statistics, subscriptions.
    pub engine: &'e Engine,
    /// The session that runs it.
    pub session: &'c mut Session,
    /// The reply.
    pub out: &'c mut Reply,
    /// Milliseconds since 1970, the same throughout the command (and the transaction).
    pub now_ms: u64,
    /// Whether it may block: not inside a transaction, nor when it runs again after blocking.
    pub may_block: bool,
    /// The key for which a blocked command runs again: it takes elements from no other.
    pub(crate) served: Option<&'c [u8]>,
    /// Set by a command that found nothing and wants to block; it then writes no reply.
    pub blocking: Option<Blocking>,
    /// The work that the command requested when it ran before, done without the locks.
    pub(crate) apart: Option<&'c mut Apart>,
    /// Whether the command may request such work.
    pub(crate) may_defer: bool,
    /// Set by a command that requests it; the command then changes nothing and writes no reply.
    pub(crate) deferred: Option<Box<Apart>>,
    /// A string to be written as the reply after the locks are released.
    pub(crate) late: Option<SharedText>,
    /// Data to free after the locks are released.
    pub(crate) garbage: Vec<Shard>,
    pub(crate) locked: &'c mut Locked<'e>,
    pub(crate) ops: &'c mut Ops,
}

impl<'e> Context<'e, '_> {
    /// Returns a key with its hash.
    #[must_use]
    #[inline]
    pub fn key<'k>(&self, bytes: &'k [u8]) -> Key<'k> {
        self.engine.keyspace().key(bytes)
    }

    /// Returns the shard of one of the command's keys, in the session's database.
    ///
    /// # Panics
    /// If the command's row does not name that key: a bug in the table.
    #[inline]
    pub fn shard(&mut self, key: &Key<'_>) -> &mut Shard {
        self.locked.get(self.session.database, key.shard())
    }

    /// Returns the shard of one of the command's keys, in another database.
    ///
    /// # Panics
    /// If the command's row does not name that key there.
    pub fn shard_in(&mut self, database: usize, key: &Key<'_>) -> &mut Shard {
        self.locked.get(database, key.shard())
    }

    /// Calls `visit` with every shard of a database, one after another, until it returns `false`.
    ///
    /// Shards that a transaction has locked are lent; the others are locked briefly.
    pub fn each_shard(
        &mut self,
        database: usize,
        mut visit: impl FnMut(&mut Self, usize, &mut Held<'e>) -> bool,
    ) {
        if !self.engine.keyspace().is_made(database) {
            return;
        }
        for number in 0..SHARDS {
            let lent = self.locked.lend(database, number);
            let was_held = lent.is_some();
            let mut shard =
                lent.unwrap_or_else(|| self.engine.keyspace().lock(database, number, self.now_ms));
            let go_on = visit(self, number, &mut shard);
            if was_held {
                self.locked.give_back(database, number, shard);
            }
            if !go_on {
                return;
            }
        }
    }

    /// Overwrites a part of the string at a key; returns the new length, or `None` if a long string
    /// must be copied first: the command then returns and is run again.
    ///
    /// # Errors
    /// [`super::CommandError`]: the value is not a string.
    pub(crate) fn overwrite(
        &mut self,
        key: &Key<'_>,
        offset: usize,
        bytes: &[u8],
    ) -> Result<Option<usize>, super::CommandError> {
        let shard = self.locked.get(self.session.database, key.shard());
        let ahead: Option<&mut CopyAhead> = match self.apart.as_deref_mut() {
            Some(Apart::Copy(copy)) => Some(copy),
            _ => None,
        };
        if !self.may_defer && ahead.is_none() {
            return Ok(Some(shard.overwrite(key, offset, bytes)?));
        }
        match shard.overwrite_ahead(key, offset, bytes, ahead)? {
            Overwritten::Done(len) => Ok(Some(len)),
            Overwritten::CopyFirst(copy) if self.may_defer => {
                self.deferred = Some(Box::new(Apart::Copy(copy)));
                Ok(None)
            }
            Overwritten::CopyFirst(_) => Ok(Some(shard.overwrite(key, offset, bytes)?)),
        }
    }

    /// Logs an operation on one key of the session's database.
    #[inline]
    pub fn log(&mut self, words: &[&[u8]]) {
        self.log_in(self.session.database, words);
    }

    /// Logs an operation on one key of another database.
    #[inline]
    pub fn log_in(&mut self, database: usize, words: &[&[u8]]) {
        if self.engine.journal().is_some() {
            self.ops.push(database, words);
        }
    }

    /// Whether an operation may be logged that refers from one key of the command to another.
    ///
    /// * `keys`: each with its database.
    pub(crate) fn takes_reference(&self, keys: [(usize, &Key<'_>); 2]) -> bool {
        let keys = keys.map(|(database, key)| (database, key.hash));
        self.engine.journal().is_some_and(|journal| journal.takes_reference(keys))
    }

    /// Logs RENAME, COPY or MOVE in place of the value; requires [`Self::takes_reference`].
    pub(crate) fn log_reference(&mut self, words: &[&[u8]]) {
        self.ops.push_reference(self.session.database, words);
    }

    /// Requests to block until one of `keys` receives an element, and writes no reply.
    ///
    /// Call it with the shards of the keys locked, after none of the keys had an element.
    pub fn block(&mut self, keys: &[&[u8]], deadline: Option<Instant>) {
        let keys = keys.iter().map(|&key| key.into()).collect();
        self.blocking = Some(Blocking { keys, deadline });
    }

    /// Whether a command that may block looks at this key: at every key the first time, later only
    /// at the key that received an element.
    pub(crate) fn looks_at(&self, key: &[u8]) -> bool {
        self.served.is_none_or(|served| served == key)
    }

    /// Returns a random number.
    pub fn random(&self) -> u64 {
        self.engine.random()
    }

    /// Parses a database number.
    ///
    /// # Errors
    /// [`super::CommandError`]: not a number, or no such database.
    pub fn database(word: &[u8]) -> Result<usize, super::CommandError> {
        let number = crate::number::parse_i64(word).ok_or(super::CommandError::NOT_INTEGER)?;
        let number = i32::try_from(number).map_err(|_| super::CommandError::NOT_I32)?;
        let number = usize::try_from(number).ok().filter(|&number| number < DATABASES);
        number.ok_or(super::CommandError::DATABASE)
    }
}
