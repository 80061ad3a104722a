//! What can be set, and what is counted.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::RwLock;

/// Settings a running engine can be told to change. A bound of 0 means none.
#[derive(Debug)]
pub struct Config {
    /// Connections at once.
    pub clients_max: AtomicUsize,
    /// Seconds after which a silent connection is closed.
    pub idle_seconds: AtomicU64,
    /// Bytes of output a connection may leave unread.
    pub output_max: AtomicUsize,
    /// Bytes of one request.
    pub request_max: AtomicUsize,
    /// Bytes of one word of a request.
    pub word_max: AtomicUsize,
    /// Bytes of a line of the text protocol.
    pub line_max: AtomicUsize,
    /// Microseconds from which a command is noted as slow; -1 as `u64::MAX`: never.
    pub slow_us: AtomicU64,
    /// Slow commands remembered.
    pub slow_len: AtomicUsize,
    /// Bytes of words a transaction may queue.
    pub multi_max: AtomicUsize,
    /// SHA-256 of the password, where one is needed.
    password: RwLock<Option<[u8; 32]>>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            clients_max: AtomicUsize::new(10_000),
            idle_seconds: AtomicU64::new(0),
            output_max: AtomicUsize::new(1 << 30),
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
    /// Sets the password clients must give; `None`: none is needed.
    pub fn set_password(&self, password: Option<&[u8]>) {
        *self.password.write() = password.filter(|text| !text.is_empty()).map(digest);
    }

    /// Whether clients must give a password.
    #[must_use]
    pub fn needs_password(&self) -> bool {
        self.password.read().is_some()
    }

    /// Whether this is the password; takes the same time whatever is wrong with it.
    #[must_use]
    pub fn is_password(&self, offered: &[u8]) -> bool {
        let Some(expected) = *self.password.read() else { return false };
        let offered = digest(offered);
        let differing = expected.iter().zip(offered).fold(0, |all, (a, b)| all | (a ^ b));
        differing == 0
    }

    /// The time after which a silent connection is closed.
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

/// Counters of an engine and its server. All count from its start.
#[derive(Debug, Default)]
pub struct Statistics {
    /// Connections taken.
    pub connections: AtomicU64,
    /// Connections refused because there were too many.
    pub connections_refused: AtomicU64,
    /// Connections closed because they read too slowly.
    pub slow_consumers: AtomicU64,
    /// Connections open.
    pub clients: AtomicUsize,
    /// Commands run.
    pub commands: AtomicU64,
    /// Look-ups of keys that were there.
    pub hits: AtomicU64,
    /// Look-ups of keys that were not.
    pub misses: AtomicU64,
    /// Keys evicted.
    pub evicted: AtomicU64,
    /// Bytes received.
    pub bytes_in: AtomicU64,
    /// Bytes sent.
    pub bytes_out: AtomicU64,
    /// Bytes in the buffers of connections.
    pub buffer_bytes: AtomicUsize,
    /// Wrong passwords given.
    pub auth_failures: AtomicU64,
    /// Errors answered.
    pub errors: AtomicU64,
    /// Threads that own connections.
    pub threads: AtomicUsize,
    /// Worker threads of the pooled server; 0 otherwise.
    pub workers: AtomicUsize,
    /// Of them busy.
    pub workers_busy: AtomicUsize,
    /// Connections waiting for a worker.
    pub workers_queue: AtomicUsize,
}

impl Statistics {
    /// Sets what counts events back to zero; what tells of the present stays.
    pub fn reset(&self) {
        for count in [
            &self.connections,
            &self.connections_refused,
            &self.slow_consumers,
            &self.commands,
            &self.hits,
            &self.misses,
            &self.evicted,
            &self.bytes_in,
            &self.bytes_out,
            &self.auth_failures,
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
    /// When, in seconds since 1970.
    pub at_s: u64,
    /// Microseconds it took.
    pub took_us: u64,
    /// Its words, cut short where long.
    pub words: Vec<Box<[u8]>>,
    /// Address of who ran it.
    pub client: String,
    /// Name of who ran it.
    pub name: String,
}
