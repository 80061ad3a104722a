//! Settings and counters.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::RwLock;

use super::clients::{OutputBound, OutputLimit};

/// Default output limit of a connection that is subscribed to channels; as in Redis.
const PUBSUB_OUTPUT: OutputBound = OutputBound { hard: 32 << 20, soft: 8 << 20, soft_seconds: 60 };

/// Settings that can be changed while the engine runs. A limit of 0 means no limit.
#[derive(Debug)]
pub struct Config {
    /// Maximum number of open connections.
    pub clients_max: AtomicUsize,
    /// Upper limit of `clients_max`: the process has descriptors for this many.
    pub clients_cap: AtomicUsize,
    /// Seconds after which an idle connection is closed.
    pub idle_seconds: AtomicU64,
    /// Maximum size in bytes of the unread output of a connection.
    pub output_max: AtomicUsize,
    /// Output limit of a connection without subscriptions.
    pub normal_output: OutputLimit,
    /// Output limit of a connection with subscriptions.
    pub pubsub_output: OutputLimit,
    /// Maximum size in bytes of the memory of all connections; above it the largest are closed.
    pub clients_memory_max: AtomicUsize,
    /// Maximum size of a request in bytes.
    pub request_max: AtomicUsize,
    /// Maximum size of a word of a request in bytes.
    pub word_max: AtomicUsize,
    /// Maximum size of a line of the text protocol in bytes.
    pub line_max: AtomicUsize,
    /// Microseconds from which a command is logged as slow; `u64::MAX` (-1) for never.
    pub slow_us: AtomicU64,
    /// Maximum number of slow commands kept.
    pub slow_len: AtomicUsize,
    /// Maximum size in bytes of the words that a transaction may queue.
    pub multi_max: AtomicUsize,
    /// SHA-256 of the password, if one is required.
    password: RwLock<Option<[u8; 32]>>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            clients_max: AtomicUsize::new(10_000),
            clients_cap: AtomicUsize::new(usize::MAX),
            idle_seconds: AtomicU64::new(0),
            output_max: AtomicUsize::new(1 << 30),
            normal_output: OutputLimit::default(),
            pubsub_output: OutputLimit::new(PUBSUB_OUTPUT),
            clients_memory_max: AtomicUsize::new(1 << 30),
            request_max: AtomicUsize::new(1 << 30),
            word_max: AtomicUsize::new(512 << 20),
            line_max: AtomicUsize::new(1 << 20),
            slow_us: AtomicU64::new(10_000),
            slow_len: AtomicUsize::new(128),
            multi_max: AtomicUsize::new(1 << 30),
            password: RwLock::new(None),
        }
    }
}

impl Config {
    /// Sets the password that clients must give; `None`: none is required.
    pub fn set_password(&self, password: Option<&[u8]>) {
        *self.password.write() = password.filter(|text| !text.is_empty()).map(digest);
    }

    /// Whether clients must give a password.
    #[must_use]
    pub fn needs_password(&self) -> bool {
        self.password.read().is_some()
    }

    /// Whether this is the password. Takes the same time whichever bytes differ.
    #[must_use]
    pub fn is_password(&self, offered: &[u8]) -> bool {
        let Some(expected) = *self.password.read() else { return false };
        let offered = digest(offered);
        let differing = expected.iter().zip(offered).fold(0, |all, (a, b)| all | (a ^ b));
        differing == 0
    }

    /// The time after which an idle connection is closed.
    #[must_use]
    pub fn idle_timeout(&self) -> Option<Duration> {
        let seconds = self.idle_seconds.load(Ordering::Relaxed);
        (seconds > 0).then(|| Duration::from_secs(seconds))
    }
}

fn digest(text: &[u8]) -> [u8; 32] {
    use sha2::Digest as _;
    sha2::Sha256::digest(text).into()
}

/// Counters of an engine and its server since the start.
#[derive(Debug, Default)]
pub struct Statistics {
    /// Connections accepted.
    pub connections: AtomicU64,
    /// Connections refused because the limit was reached.
    pub connections_refused: AtomicU64,
    /// Connections closed because they read too slowly.
    pub slow_consumers: AtomicU64,
    /// Connections open.
    pub clients: AtomicUsize,
    /// Commands run.
    pub commands: AtomicU64,
    /// Lookups of keys that existed.
    pub hits: AtomicU64,
    /// Lookups of keys that did not exist.
    pub misses: AtomicU64,
    /// Keys evicted.
    pub evicted: AtomicU64,
    /// Bytes received.
    pub bytes_in: AtomicU64,
    /// Bytes sent.
    pub bytes_out: AtomicU64,
    /// Connections closed because all connections held too much memory in total.
    pub evicted_clients: AtomicU64,
    /// Failed authentications.
    pub auth_failures: AtomicU64,
    /// Commands refused because the client's key does not permit them.
    pub denied: AtomicU64,
    /// Error replies.
    pub errors: AtomicU64,
    /// Threads that own connections.
    pub threads: AtomicUsize,
    /// Worker threads of the pooled server; 0 otherwise.
    pub workers: AtomicUsize,
    /// Busy worker threads.
    pub workers_busy: AtomicUsize,
    /// Connections waiting for a worker.
    pub workers_queue: AtomicUsize,
}

impl Statistics {
    /// Sets counters of events to zero; gauges of the current state stay.
    pub fn reset(&self) {
        for count in [
            &self.connections,
            &self.connections_refused,
            &self.slow_consumers,
            &self.evicted_clients,
            &self.commands,
            &self.hits,
            &self.misses,
            &self.evicted,
            &self.bytes_in,
            &self.bytes_out,
            &self.auth_failures,
            &self.denied,
            &self.errors,
        ] {
            count.store(0, Ordering::Relaxed);
        }
    }
}

/// A command that took long.
#[derive(Debug, Clone)]
pub struct SlowCommand {
    /// Its number.
    pub id: u64,
    /// When it ran, in seconds since 1970.
    pub at_s: u64,
    /// Its duration in microseconds.
    pub took_us: u64,
    /// Its words, truncated if long.
    pub words: Vec<Box<[u8]>>,
    /// Address of the client that ran it.
    pub client: String,
    /// Name of the client that ran it.
    pub name: String,
}
