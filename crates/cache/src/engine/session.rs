//! State of a connection: its client's settings, and its transaction, watches and subscriptions.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

use parking_lot::Mutex;

use super::aside::Order;
use super::blocking::Waiter;
use super::{Grant, Mailbox};
use crate::command::Spec;
use crate::resp::Proto;

/// The listener that accepted a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Via {
    /// The RESP listener.
    Resp,
    /// The text listener.
    Text,
    /// No listener: a call from the library, or the replay of a log.
    Inside,
}

/// The remote end of a connection.
#[derive(Debug, Clone)]
pub struct Peer {
    /// Its address, as text.
    pub address: String,
    /// The local address, as text.
    pub local: String,
    /// The listener.
    pub via: Via,
}

/// The part of a session that other connections may see.
#[derive(Debug)]
pub struct ClientInfo {
    /// Its number, never reused by a server.
    pub id: u64,
    /// The remote end.
    pub peer: Peer,
    /// Mailbox for messages to it.
    pub mailbox: Arc<Mailbox>,
    /// When it connected, in milliseconds since 1970.
    pub created_ms: u64,
    /// When its last command ran, in milliseconds since 1970.
    pub active_ms: AtomicU64,
    /// The database it has selected.
    pub database: AtomicUsize,
    /// Bytes its connection and session hold, as last recorded.
    pub(super) held: AtomicUsize,
    /// State that commands may change.
    pub said: Mutex<ClientSaid>,
}

/// What a client has set by commands.
#[derive(Debug, Default, Clone)]
pub struct ClientSaid {
    /// `CLIENT SETNAME`.
    pub name: String,
    /// `CLIENT SETINFO LIB-NAME`.
    pub library: String,
    /// `CLIENT SETINFO LIB-VER`.
    pub library_version: String,
    /// Owner of the key it gave; empty without one.
    pub user: String,
    /// Name of the last command.
    pub command: &'static str,
    /// RESP version.
    pub protocol: u8,
    /// Whether eviction of the client is off.
    pub no_evict: bool,
    /// Channels and patterns subscribed to.
    pub subscriptions: (usize, usize),
    /// Commands queued by MULTI; `None` outside.
    pub queued: Option<usize>,
}

/// A queued command.
#[derive(Debug)]
pub struct Queued {
    /// Its row of the table.
    pub spec: &'static Spec,
    /// Its words.
    pub args: Vec<Box<[u8]>>,
}

/// A transaction being queued.
#[derive(Debug, Default)]
pub struct Multi {
    /// Commands queued so far.
    pub queue: Vec<Queued>,
    /// Bytes of their words.
    pub bytes: usize,
    /// Whether a command was refused, so that EXEC is refused as well.
    pub broken: bool,
}

/// A connection's state.
#[derive(Debug)]
pub struct Session {
    /// The part that others may see.
    pub info: Arc<ClientInfo>,
    /// The database it has selected.
    pub database: usize,
    /// RESP version in use.
    pub protocol: Proto,
    /// Whether it may run commands that require authentication.
    pub authenticated: bool,
    /// Whether it may because no authentication was required.
    pub(super) unasked: bool,
    /// Its rights; `None`: all, once it is authenticated.
    pub(super) grant: Option<Arc<Grant>>,
    /// The authority's generation when its rights were last checked.
    pub(crate) generation: u64,
    /// Failed AUTH commands in a row.
    pub failures: u32,
    /// Time in milliseconds since 1970 before which a further attempt is not checked.
    pub auth_after_ms: u64,
    /// The transaction being queued.
    pub multi: Option<Multi>,
    /// Raised when a watched key changes.
    pub dirty: Arc<AtomicBool>,
    /// Keys watched, with their databases.
    pub watched: HashSet<(usize, Box<[u8]>)>,
    /// Channels subscribed to.
    pub channels: HashSet<Box<[u8]>>,
    /// Patterns subscribed to.
    pub patterns: HashSet<Box<[u8]>>,
    /// Shard channels subscribed to.
    pub shard_channels: HashSet<Box<[u8]>>,
    /// The last command run.
    pub last: Option<&'static Spec>,
    /// Bytes of the names of its watches and subscriptions, including overhead.
    pub(crate) names_bytes: usize,
    /// The blocked command.
    pub waiter: Option<Arc<Waiter>>,
    /// Whether replies are sent: `CLIENT REPLY OFF` and `SKIP`.
    pub replies: Replies,
    /// Whether its connection can wait for work that another thread does:
    /// [`Flow::Aside`](super::Flow::Aside).
    pub(crate) may_wait: bool,
    /// That work.
    pub(super) order: Option<Arc<Order>>,
    /// Whether the buffer of the command that runs can be lent to that thread.
    pub(crate) may_lend: bool,
    /// The values in it that have to be prepared, by address and length.
    pub(super) to_prepare: Vec<(usize, usize)>,
}

/// Whether replies are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Replies {
    /// They are.
    #[default]
    On,
    /// None is.
    Off,
    /// The next one is not.
    SkipNext,
}

/// Memory for holding a name: its bytes and its slot in the session, and the same in the table of
/// keys or channels; tables are half empty after they have grown.
pub(crate) fn name_size(name: &[u8]) -> usize {
    2 * name.len() + 256
}

impl Session {
    pub(super) fn new(info: Arc<ClientInfo>, authenticated: bool) -> Self {
        Self {
            info,
            database: 0,
            protocol: Proto::Resp2,
            authenticated,
            unasked: false,
            grant: None,
            generation: 0,
            failures: 0,
            auth_after_ms: 0,
            multi: None,
            dirty: Arc::new(AtomicBool::new(false)),
            watched: HashSet::new(),
            channels: HashSet::new(),
            patterns: HashSet::new(),
            shard_channels: HashSet::new(),
            last: None,
            names_bytes: 0,
            waiter: None,
            replies: Replies::On,
            may_wait: false,
            order: None,
            may_lend: false,
            to_prepare: Vec::new(),
        }
    }

    /// Whether it may learn that a key of this name exists.
    pub(crate) fn may_see(&self, key: &[u8]) -> bool {
        self.grant.as_ref().is_none_or(|grant| grant.covers(key))
    }

    /// Number of subscriptions to channels and patterns.
    #[must_use]
    pub fn subscriptions(&self) -> usize {
        self.channels.len() + self.patterns.len() + self.shard_channels.len()
    }
}
