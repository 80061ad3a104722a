//! What a handler works with.

use std::time::Instant;

use crate::engine::{Engine, Locked, Session};
use crate::persist::Ops;
use crate::resp::Reply;
use crate::store::{DATABASES, Held, Key, SHARDS, Shard};

/// A command's wish to wait.
#[derive(Debug)]
pub struct Blocking {
    /// Keys, one of which has to be given something.
    pub keys: Vec<Box<[u8]>>,
    /// When to give up; `None`: never.
    pub deadline: Option<Instant>,
}

/// A command being run; see the module above.
///
/// * `'e`: the engine. `'c`: the command.
#[derive(Debug)]
pub struct Context<'e, 'c> {
    /// The engine: configuration, statistics, subscriptions.
    pub engine: &'e Engine,
    /// Who runs it.
    pub session: &'c mut Session,
    /// Where the reply goes.
    pub out: &'c mut Reply,
    /// Milliseconds since 1970, the same throughout the command (and the transaction).
    pub now_ms: u64,
    /// Whether it may wait: not inside a transaction, nor when it is run again for one who waits.
    pub may_block: bool,
    /// The key a command that waited is run again for: it takes from no other.
    pub(crate) served: Option<&'c [u8]>,
    /// Set by a command that found nothing and wants to wait; it writes no reply then.
    pub blocking: Option<Blocking>,
    /// What is to be freed once the locks are released.
    pub(crate) garbage: Vec<Shard>,
    pub(crate) locked: &'c mut Locked<'e>,
    pub(crate) ops: &'c mut Ops,
}

impl<'e> Context<'e, '_> {
    /// A key with its hash.
    #[must_use]
    #[inline]
    pub fn key<'k>(&self, bytes: &'k [u8]) -> Key<'k> {
        self.engine.keyspace().key(bytes)
    }

    /// The shard of one of the command's keys, in the session's database.
    ///
    /// # Panics
    /// If the command's row does not name that key: a mistake in the table.
    #[inline]
    pub fn shard(&mut self, key: &Key<'_>) -> &mut Shard {
        self.locked.get(self.session.database, key.shard())
    }

    /// The shard of one of the command's keys, in another database.
    ///
    /// # Panics
    /// If the command's row does not name that key there.
    pub fn shard_in(&mut self, database: usize, key: &Key<'_>) -> &mut Shard {
        self.locked.get(database, key.shard())
    }

    /// Calls `visit` with every shard of a database, one after another, until it returns `false`.
    ///
    /// Those a transaction has locked are lent, the others are locked for the moment.
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

    /// Tells the log an operation on one key of the session's database.
    #[inline]
    pub fn log(&mut self, words: &[&[u8]]) {
        self.log_in(self.session.database, words);
    }

    /// Tells the log an operation on one key of another database.
    #[inline]
    pub fn log_in(&mut self, database: usize, words: &[&[u8]]) {
        if self.engine.journal().is_some() {
            self.ops.push(database, words);
        }
    }

    /// Asks to wait until one of `keys` is given something, and writes no reply.
    ///
    /// Call it with the shards of the keys locked, having found nothing there.
    pub fn block(&mut self, keys: &[&[u8]], deadline: Option<Instant>) {
        let keys = keys.iter().map(|&key| key.into()).collect();
        self.blocking = Some(Blocking { keys, deadline });
    }

    /// Whether a command that may wait looks at this key: at any the first time, then only at the
    /// one that was given something.
    pub(crate) fn looks_at(&self, key: &[u8]) -> bool {
        self.served.is_none_or(|served| served == key)
    }

    /// A random number.
    pub fn random(&self) -> u64 {
        self.engine.random()
    }

    /// A database's number from a word.
    ///
    /// # Errors
    /// [`super::CommandError`]: no number, or no such database.
    pub fn database(word: &[u8]) -> Result<usize, super::CommandError> {
        let number = crate::number::parse_i64(word).ok_or(super::CommandError::NOT_INTEGER)?;
        let number = usize::try_from(number).ok().filter(|&number| number < DATABASES);
        number.ok_or(super::CommandError::DATABASE)
    }
}
