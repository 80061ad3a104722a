//! What a server is told when it starts.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::resp;

/// How connections are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A connection stays with one thread for life, which does everything for it.
    PerConnection,
    /// A connection that has something to do waits for one of a bounded number of workers.
    Pooled {
        /// Most workers there may be; the pool sizes itself below that.
        workers: usize,
    },
}

/// How the event loops' threads reach their sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// io_uring where the kernel has and permits it, epoll elsewhere.
    #[default]
    Automatic,
    /// A read and a write a ready connection.
    Epoll,
    /// One system call a turn for all of a thread's connections; starting fails without it.
    Uring,
}

/// Where TLS connections get their certificate from, asked for each: so that it can be renewed
/// while the server runs.
#[derive(Clone)]
pub struct TlsSource(Arc<dyn Fn() -> Arc<rustls::ServerConfig> + Send + Sync>);

impl TlsSource {
    /// Connections ask `source`; what it returns serves those accepted from then on.
    pub fn new(source: impl Fn() -> Arc<rustls::ServerConfig> + Send + Sync + 'static) -> Self {
        Self(Arc::new(source))
    }

    pub(super) fn config(&self) -> Arc<rustls::ServerConfig> {
        (self.0)()
    }
}

impl std::fmt::Debug for TlsSource {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("TlsSource")
    }
}

/// Listeners that speak TLS, beside the plain ones.
#[derive(Clone, Debug)]
pub struct TlsOptions {
    /// Where to speak RESP; port 0 takes a free one.
    pub resp: Option<SocketAddr>,
    /// Where to speak the text protocol.
    pub text: Option<SocketAddr>,
    /// Certificate and key.
    pub source: TlsSource,
}

/// Bounds the server keeps beside those of [`crate::engine::Config`], which can change as it runs.
#[derive(Clone, Copy, Debug)]
pub struct ServerLimits {
    /// Bounds of a RESP request.
    pub resp: resp::Limits,
    /// How long waiting output may not move at all before its connection is closed.
    pub write_stall: Duration,
    /// How long a text connection may be silent; zero: as long as it likes.
    pub text_idle_timeout: Duration,
    /// How long a stopping server waits for its clients to read their last replies.
    pub stop_limit: Duration,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            resp: resp::Limits::default(),
            write_stall: Duration::from_secs(60),
            text_idle_timeout: Duration::from_secs(300),
            stop_limit: Duration::from_secs(5),
        }
    }
}

/// Everything a server is told.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Where to speak RESP; port 0 takes a free one.
    pub resp: Option<SocketAddr>,
    /// Where to speak the text protocol.
    pub text: Option<SocketAddr>,
    /// What to speak over TLS, and where.
    pub tls: Option<TlsOptions>,
    /// How connections are served.
    pub mode: Mode,
    /// Event loop threads; 0 takes one a core.
    pub threads: usize,
    /// How they reach their sockets; the pooled mode uses epoll whatever this says.
    pub network: Network,
    /// Bounds.
    pub limits: ServerLimits,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            resp: Some(SocketAddr::from(([127, 0, 0, 1], 6_380))),
            text: Some(SocketAddr::from(([127, 0, 0, 1], 8_890))),
            tls: None,
            mode: Mode::PerConnection,
            threads: 0,
            network: Network::default(),
            limits: ServerLimits::default(),
        }
    }
}
