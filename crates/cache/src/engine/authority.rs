//! Access rights, where there are keys besides the one password.
//!
//! An [`Authority`] knows keys; a [`Grant`] is what a key permits. The row of a command decides
//! what it needs: reading needs `read`, writing needs `write`, and administration or the removal of
//! all data needs `admin`. A grant may be limited to keys and channels with certain prefixes.
//!
//! Invariants: a session without a grant has all rights or none; a command that a grant does not
//! permit is refused before a shard is locked; a session that lost its rights runs no further
//! command, and is closed if it is subscribed or blocked. A command that no rule covers needs more
//! rights, not fewer.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Engine;
use super::session::Session;
use crate::command::{CommandError, Flags, Keys, Spec};

/// Checks the keys that clients may give instead of the password.
pub trait Authority: Debug + Send + Sync {
    /// Whether clients must authenticate; may become true while the engine runs.
    fn required(&self) -> bool;

    /// Returns what a secret permits; `None` if it is not a valid key.
    ///
    /// * `user`: the name given with it, if any.
    fn check(&self, user: Option<&[u8]>, secret: &[u8]) -> Option<Grant>;

    /// Changes whenever the result of [`Authority::required`] or [`Authority::recheck`] may change.
    ///
    /// Called once per turn of a thread: it must be a single atomic load.
    fn generation(&self) -> u64;

    /// Returns what the key of a grant permits now; `None` if it is no longer valid.
    ///
    /// * `id`: [`Grant::id`].
    fn recheck(&self, id: &[u8]) -> Option<Grant>;
}

/// What a key permits.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Grant {
    /// Identifier of the key; not secret.
    pub id: Box<[u8]>,
    /// Owner of the key, as `CLIENT LIST` and errors show it.
    pub user: String,
    /// Whether keys may be read and channels subscribed to.
    pub read: bool,
    /// Whether keys may be written and messages published.
    pub write: bool,
    /// Whether the server may be administered: settings, other clients, removal of all data.
    pub admin: bool,
    /// Allowed prefixes of the names of keys and channels; empty: any name.
    pub prefixes: Arc<[Box<[u8]>]>,
}

/// Rights a command needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Needs {
    read: bool,
    write: bool,
    admin: bool,
}

/// Commands that write and return nothing of the previous data: they do not need the right to read.
const WRITE_ONLY: &[&str] = &[
    "append",
    "del",
    "expire",
    "expireat",
    "hdel",
    "hmset",
    "hset",
    "hsetnx",
    "linsert",
    "lpush",
    "lpushx",
    "lrem",
    "lset",
    "ltrim",
    "mset",
    "msetnx",
    "persist",
    "pexpire",
    "pexpireat",
    "psetex",
    "rpush",
    "rpushx",
    "sadd",
    "set",
    "setex",
    "setnx",
    "setrange",
    "srem",
    "unlink",
    "zadd",
    "zrem",
    "zremrangebylex",
    "zremrangebyrank",
    "zremrangebyscore",
];

/// Administrative commands that have no such flag.
const ADMIN: &[&str] = &["flushall", "flushdb", "function"];

/// Subcommands of CLIENT that affect other clients or shared state.
const CLIENT_ADMIN: &[&str] = &["kill", "list", "no-evict", "unblock"];

fn is(word: &[u8], name: &str) -> bool {
    word.eq_ignore_ascii_case(name.as_bytes())
}

impl Needs {
    fn of(spec: &Spec, args: &[&[u8]]) -> Self {
        let second = args.get(1).copied().unwrap_or_default();
        let of_client = spec.name == "client" && CLIENT_ADMIN.iter().any(|it| is(second, it));
        if spec.flags.has(Flags::ADMIN) || ADMIN.contains(&spec.name) || of_client {
            return Self { admin: true, ..Self::default() };
        }
        let write = spec.flags.has(Flags::WRITE) || matches!(spec.name, "publish" | "spublish");
        let read = match spec.name {
            "set" => args.iter().skip(3).any(|word| is(word, "get")),
            "zadd" => args.iter().skip(2).any(|word| is(word, "incr")),
            "watch" | "subscribe" | "psubscribe" | "ssubscribe" | "pubsub" => true,
            name if spec.flags.has(Flags::WRITE) => !WRITE_ONLY.contains(&name),
            _ => spec.flags.has(Flags::READONLY),
        };
        Self { read, write, admin: false }
    }
}

impl Grant {
    /// Whether the name of a key or channel has an allowed prefix.
    #[must_use]
    pub fn covers(&self, name: &[u8]) -> bool {
        self.prefixes.is_empty() || self.prefixes.iter().any(|prefix| name.starts_with(prefix))
    }

    /// Whether a command may run.
    ///
    /// # Errors
    /// The error to reply, in Redis' wording.
    pub(super) fn permits(&self, spec: &Spec, args: &[&[u8]]) -> Result<(), CommandError> {
        let needs = Needs::of(spec, args);
        let lacks = needs.read && !self.read || needs.write && !self.write;
        if lacks || needs.admin && !self.admin {
            return Err(CommandError::new(format!(
                "NOPERM User {} has no permissions to run the '{}' command",
                self.user, spec.name
            )));
        }
        if self.prefixes.is_empty() {
            return Ok(());
        }
        if !self.covers_channels(spec, args) {
            return Err(CommandError::new("NOPERM No permissions to access a channel"));
        }
        if !self.covers_keys(spec, args) {
            return Err(CommandError::new("NOPERM No permissions to access a key"));
        }
        Ok(())
    }

    fn covers_keys(&self, spec: &Spec, args: &[&[u8]]) -> bool {
        match spec.keys {
            // These leave out names that are not allowed; all others reveal a count or a name.
            Keys::All | Keys::Everything => matches!(spec.name, "keys" | "scan"),
            // The keys that patterns refer to are not known yet.
            Keys::Wide(_, is_wide) if is_wide(args) => false,
            _ => {
                let keys = spec.keys_of(args, 0);
                keys.into_iter().all(|(_, at)| args.get(at).is_none_or(|key| self.covers(key)))
            }
        }
    }

    fn covers_channels(&self, spec: &Spec, args: &[&[u8]]) -> bool {
        let words = args.get(1..).unwrap_or_default();
        match spec.name {
            "subscribe" | "ssubscribe" => words.iter().all(|name| self.covers(name)),
            "publish" | "spublish" => words.first().is_none_or(|name| self.covers(name)),
            // A pattern matches only names that begin with its part before the first special byte.
            "psubscribe" => words.iter().all(|pattern| {
                let special = |byte: &u8| matches!(byte, b'*' | b'?' | b'[' | b'\\');
                let end = pattern.iter().position(special).unwrap_or(pattern.len());
                self.covers(pattern.get(..end).unwrap_or_default())
            }),
            // It returns the names of channels.
            "pubsub" => false,
            _ => true,
        }
    }
}

impl Engine {
    /// Sets the authority; can be done once, before clients connect.
    pub fn set_authority(&self, authority: Arc<dyn Authority>) {
        // A second call is a harmless bug of the caller: the first authority stays.
        self.authority.set(authority).ok();
    }

    /// Whether clients must give the password or a key.
    #[must_use]
    pub fn needs_secret(&self) -> bool {
        self.config.needs_password() || self.authority.get().is_some_and(|it| it.required())
    }

    /// Returns [`Authority::generation`], or 0 without an authority.
    #[must_use]
    pub fn authority_generation(&self) -> u64 {
        self.authority.get().map_or(0, |authority| authority.generation())
    }

    /// Gives a session the rights of an unauthenticated one.
    pub(crate) fn admit(&self, session: &mut Session) {
        session.authenticated = !self.needs_secret();
        session.unasked = session.authenticated;
        session.grant = None;
        session.generation = self.authority_generation();
    }

    /// Whether a secret is a valid key, even if none is required.
    pub(crate) fn knows(&self, secret: &[u8]) -> bool {
        self.authority.get().is_some_and(|authority| authority.check(None, secret).is_some())
    }

    /// Gives a session the rights of a secret, if it has any.
    ///
    /// * `user`: the name given with it, if any.
    pub(crate) fn authenticate(
        &self,
        session: &mut Session,
        user: Option<&[u8]>,
        secret: &[u8],
    ) -> bool {
        let generation = self.authority_generation();
        let is_default = user.is_none_or(|user| user == b"default");
        let is_password = is_default && self.config.is_password(secret);
        let asked = || self.authority.get().and_then(|it| it.check(user, secret));
        let grant = if is_password { None } else { asked() };
        if !is_password && grant.is_none() {
            // If nothing is required, any password is valid for the default user, as in Redis.
            if !is_default || self.needs_secret() {
                return false;
            }
            session.unasked = true;
        } else {
            session.unasked = false;
        }
        session.info.said.lock().user =
            grant.as_ref().map_or_else(String::new, |grant| grant.user.clone());
        session.authenticated = true;
        session.grant = grant.map(Arc::new);
        session.generation = generation;
        true
    }

    /// Checks a session's rights again after [`Engine::authority_generation`] changed.
    ///
    /// Returns whether its connection must be closed, because it is subscribed to or waits for
    /// something that is no longer permitted.
    pub fn review(&self, session: &mut Session) -> bool {
        let Some(authority) = self.authority.get() else { return false };
        // Before the checks: a change after them is noticed the next time.
        session.generation = authority.generation();
        if !session.authenticated {
            return false;
        }
        let changed = match &session.grant {
            Some(held) => match authority.recheck(&held.id) {
                Some(now) if now == **held => false,
                Some(now) => {
                    session.grant = Some(Arc::new(now));
                    true
                }
                None => {
                    session.authenticated = false;
                    session.grant = None;
                    true
                }
            },
            None => {
                session.authenticated = !(session.unasked && authority.required());
                !session.authenticated
            }
        };
        changed && (session.subscriptions() > 0 || session.waiter.is_some())
    }

    /// Whether a session may run a command.
    ///
    /// # Errors
    /// The error to reply; it is counted.
    pub(super) fn permit(
        &self,
        session: &Session,
        spec: &Spec,
        args: &[&[u8]],
    ) -> Result<(), CommandError> {
        let Some(grant) = &session.grant else { return Ok(()) };
        grant.permits(spec, args).inspect_err(|_| {
            self.statistics.denied.fetch_add(1, Ordering::Relaxed);
        })
    }
}

#[cfg(test)]
mod tests;
