//! What a connection has said of itself, and what it is in the middle of.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

use parking_lot::Mutex;

use super::Mailbox;
use super::blocking::Waiter;
use crate::command::Spec;
use crate::resp::Proto;

/// Which listener a connection came by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Via {
    /// The RESP listener.
    Resp,
    /// The text listener.
    Text,
    /// No listener: a library's call, or the replay of a log.
    Inside,
}

/// Who is at the other end.
#[derive(Debug, Clone)]
pub struct Peer {
    /// Its address, as text.
    pub address: String,
    /// The address it came to, as text.
    pub local: String,
    /// The listener.
    pub via: Via,
}

/// What other connections may see of a session.
#[derive(Debug)]
pub struct ClientInfo {
    /// Its number, never given twice by one server.
    pub id: u64,
    /// The other end.
    pub peer: Peer,
    /// Where words to it go.
    pub mailbox: Arc<Mailbox>,
    /// When it came, in milliseconds since 1970.
    pub created_ms: u64,
    /// When its last command ran, in milliseconds since 1970.
    pub active_ms: AtomicU64,
    /// The database it has selected.
    pub database: AtomicUsize,
    /// What may change by commands.
    pub said: Mutex<ClientSaid>,
}

/// What a client has said of itself.
#[derive(Debug, Default, Clone)]
pub struct ClientSaid {
    /// `CLIENT SETNAME`.
    pub name: String,
    /// `CLIENT SETINFO LIB-NAME`.
    pub library: String,
    /// `CLIENT SETINFO LIB-VER`.
    pub library_version: String,
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

/// A transaction being gathered.
#[derive(Debug, Default)]
pub struct Multi {
    /// Commands so far.
    pub queue: Vec<Queued>,
    /// Bytes of their words.
    pub bytes: usize,
    /// Whether a command was refused, so that EXEC is refused as well.
    pub broken: bool,
}

/// A connection's state.
#[derive(Debug)]
pub struct Session {
    /// What others may see.
    pub info: Arc<ClientInfo>,
    /// The database it has selected.
    pub database: usize,
    /// RESP version spoken.
    pub protocol: Proto,
    /// Whether it may run commands that need a password.
    pub authenticated: bool,
    /// Failed AUTH commands in a row.
    pub failures: u32,
    /// Before this time, in milliseconds since 1970, a further one is not looked at.
    pub auth_after_ms: u64,
    /// The transaction being gathered.
    pub multi: Option<Multi>,
    /// Raised when a watched key changes.
    pub dirty: Arc<AtomicBool>,
    /// Keys watched, with their databases.
    pub watched: Vec<(usize, Box<[u8]>)>,
    /// Channels subscribed to.
    pub channels: HashSet<Box<[u8]>>,
    /// Patterns subscribed to.
    pub patterns: HashSet<Box<[u8]>>,
    /// Shard channels subscribed to.
    pub shard_channels: HashSet<Box<[u8]>>,
    /// The last command run.
    pub last: Option<&'static Spec>,
    /// What it waits for.
    pub waiter: Option<Arc<Waiter>>,
    /// Replies: `CLIENT REPLY OFF` and `SKIP`.
    pub replies: Replies,
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

impl Session {
    pub(super) fn new(info: Arc<ClientInfo>, authenticated: bool) -> Self {
        Self {
            info,
            database: 0,
            protocol: Proto::Resp2,
            authenticated,
            failures: 0,
            auth_after_ms: 0,
            multi: None,
            dirty: Arc::new(AtomicBool::new(false)),
            watched: Vec::new(),
            channels: HashSet::new(),
            patterns: HashSet::new(),
            shard_channels: HashSet::new(),
            last: None,
            waiter: None,
            replies: Replies::On,
        }
    }

    /// Channels and patterns subscribed to.
    #[must_use]
    pub fn subscriptions(&self) -> usize {
        self.channels.len() + self.patterns.len() + self.shard_channels.len()
    }
}
