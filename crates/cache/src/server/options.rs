//! Options of a server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::resp;

/// How connections are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A connection belongs to one thread at a time, which does all its work.
    PerConnection,
    /// A connection that has work waits for one of a limited number of workers.
    Pooled {
        /// Maximum number of workers; the pool chooses its size below that.
        workers: usize,
    },
}

/// How the threads of the event loops access their sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// io_uring if the kernel has and permits it, otherwise epoll.
    #[default]
    Automatic,
    /// One read and one write per ready connection.
    Epoll,
    /// One system call per turn for all of a thread's connections; starting fails without io_uring.
    Uring,
}

/// Provides the certificate of TLS connections. It is called for each connection, so that the
/// certificate can be renewed while the server runs.
#[derive(Clone)]
pub struct TlsSource(Arc<dyn Fn() -> Arc<rustls::ServerConfig> + Send + Sync>);

impl TlsSource {
    /// Returns a source that calls `source` for every accepted connection.
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

/// Listeners with TLS, in addition to the plain ones.
#[derive(Clone, Debug)]
pub struct TlsOptions {
    /// Address for RESP; port 0 chooses a free port.
    pub resp: Option<SocketAddr>,
    /// Address for the text protocol.
    pub text: Option<SocketAddr>,
    /// Certificate and key.
    pub source: TlsSource,
}

/// Limits of the server in addition to those of [`crate::engine::Config`], which can change as it
/// runs.
#[derive(Clone, Copy, Debug)]
pub struct ServerLimits {
    /// Limits of a RESP request.
    pub resp: resp::Limits,
    /// How long waiting output may make no progress before its connection is closed.
    pub write_stall: Duration,
    /// How long a text connection may be idle; zero for no limit.
    pub text_idle_timeout: Duration,
    /// How long a stopping server waits until its clients have read their last replies.
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

/// All options of a server.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Address for RESP; port 0 chooses a free port.
    pub resp: Option<SocketAddr>,
    /// Address for the text protocol.
    pub text: Option<SocketAddr>,
    /// The listeners with TLS.
    pub tls: Option<TlsOptions>,
    /// How connections are served.
    pub mode: Mode,
    /// Maximum number of event loop threads; 0 for one per core.
    pub threads: usize,
    /// Number of them that are always in use; further ones are used while those are busy.
    pub threads_min: usize,
    /// How they access their sockets; the pooled mode always uses epoll.
    pub network: Network,
    /// Limits.
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
            threads_min: 1,
            network: Network::default(),
            limits: ServerLimits::default(),
        }
    }
}
