//! Connections through the host of a component, which resolves, connects, encrypts and verifies.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use forebay_base::ServerError;
use forebay_sdk::ConnectorError;
use forebay_sdk::platform::{self, Transport};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::config::{Host, SslMode, SslNegotiation};
use tokio_postgres::tls::{ChannelBinding, TlsConnect};
use tokio_postgres::{Client, Config};

use super::{Server, drive};
use crate::coalesce::{Joined, Plain};

/// How long a connection may take if the settings have no limit.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Certificates that are trusted instead of the system's.
#[derive(Debug, Clone)]
pub(super) struct Encryption(Option<String>);

impl Encryption {
    /// By those of a file, or the system's.
    pub(super) fn trusting(file: Option<&Path>) -> Result<Self, ServerError> {
        let Some(path) = file else { return Ok(Self(None)) };
        let unread = |source| ServerError::Certificates { path: path.to_owned(), source };
        let bytes = platform::read_file(&path.display().to_string());
        let text = String::from_utf8(bytes.map_err(|error| unread(error.into()))?);
        text.map(|text| Self(Some(text))).map_err(|error| unread(error.into()))
    }
}

/// The host notices a server that has gone.
pub(super) fn keep_alive(_: &mut Config) {}

impl Server {
    /// Makes a connection.
    pub(super) async fn open(&self) -> Result<Client, ServerError> {
        let unreachable = |source: ConnectorError| ServerError::Unreachable {
            act: "connect".into(),
            server: self.name.clone(),
            source: source.into(),
        };
        let stream = self.reach().map_err(unreachable)?;
        let mut config = self.config.clone();
        match &self.tls {
            None => {
                // This is not encryption: it only merges messages.
                config.ssl_mode(SslMode::Require).ssl_negotiation(SslNegotiation::Direct);
                let made = config.connect_raw(stream, Plain).await;
                let (client, connection) = made.map_err(|error| self.failed(error))?;
                drive(connection);
                Ok(client)
            }
            Some(tls) => {
                let made = config.connect_raw(stream, ByHost(tls.0.clone())).await;
                let (client, connection) = made.map_err(|error| self.failed(error))?;
                drive(connection);
                Ok(client)
            }
        }
    }

    /// Connects to the first of its addresses that answers.
    fn reach(&self) -> Result<Link, ConnectorError> {
        let ports = self.config.get_ports();
        let limit = self.config.get_connect_timeout().copied().unwrap_or(CONNECT_TIMEOUT);
        let mut failed = None;
        for (index, host) in self.config.get_hosts().iter().enumerate() {
            let port = ports.get(index).or_else(|| ports.first()).copied().unwrap_or(5432);
            let Host::Tcp(host) = host;
            match platform::connect(host, port, limit) {
                Ok(stream) => return Ok(Link(stream)),
                Err(error) => failed = Some(error),
            }
        }
        Err(failed.unwrap_or_else(|| {
            ConnectorError::unsupported("the settings name no server", "set `host`")
        }))
    }
}

/// A connection of the host.
#[derive(Debug)]
struct Link(Box<dyn Transport>);

impl AsyncRead for Link {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, into)
    }
}

impl AsyncWrite for Link {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

/// Encryption by the host.
struct ByHost(Option<String>);

impl TlsConnect<Link> for ByHost {
    type Stream = Joined<Link>;
    type Error = io::Error;
    type Future = std::future::Ready<io::Result<Self::Stream>>;

    fn connect(self, stream: Link) -> Self::Future {
        let encrypted = stream.0.start_tls(self.0.as_deref()).map_err(io::Error::other);
        std::future::ready(encrypted.map(|()| Joined::new(stream, binding)))
    }
}

/// What ties a log-in to the connection.
fn binding(stream: &Link) -> ChannelBinding {
    let hash = stream.0.server_end_point();
    if hash.is_empty() {
        ChannelBinding::none()
    } else {
        ChannelBinding::tls_server_end_point(hash)
    }
}
