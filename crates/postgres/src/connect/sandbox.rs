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
use tokio_postgres::config::{Host, SslMode, SslNegotiation, TargetSessionAttrs};
use tokio_postgres::tls::{ChannelBinding, TlsConnect};
use tokio_postgres::{Client, Config, SimpleQueryMessage};

use super::{Server, Socket, ask_for_encryption, drive};
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
    /// Makes a connection: to the first of its hosts that answers and is what is asked for.
    pub(super) async fn open(&self) -> Result<Client, ServerError> {
        let mut failed = None;
        for host in 0..self.config.get_hosts().len() {
            match self.open_at(host).await {
                Ok(client) => return Ok(client),
                Err(error) => failed = Some(error),
            }
        }
        Err(failed
            .unwrap_or_else(|| ServerError::settings("the settings name no server", "set `host`")))
    }

    /// Makes a connection to one of its hosts.
    async fn open_at(&self, host: usize) -> Result<Client, ServerError> {
        let stream = self.reach(host).map_err(|source| self.unreachable(source))?;
        let mut config = self.config.clone();
        let client = match &self.tls {
            None => {
                // This is not encryption: it only merges messages.
                config.ssl_mode(SslMode::Require).ssl_negotiation(SslNegotiation::Direct);
                let made = config.connect_raw(stream, Plain).await;
                let (client, connection) = made.map_err(|error| self.failed(error))?;
                drive(connection);
                client
            }
            Some(tls) => {
                let made = config.connect_raw(stream, ByHost(tls.0.clone())).await;
                let (client, connection) = made.map_err(|error| self.failed(error))?;
                drive(connection);
                client
            }
        };
        self.check_writes(&client).await?;
        Ok(client)
    }

    /// Fails unless the server allows the writes that the settings ask for (`target_session_attrs`).
    async fn check_writes(&self, client: &Client) -> Result<(), ServerError> {
        let refused = match self.config.get_target_session_attrs() {
            TargetSessionAttrs::ReadWrite => ("on", "the server does not allow writes"),
            TargetSessionAttrs::ReadOnly => ("off", "the server is not read-only"),
            _ => return Ok(()),
        };
        let (state, found) = refused;
        let rows = client.simple_query("show transaction_read_only").await;
        let rows = rows.map_err(|error| self.failed(error))?;
        let is_refused = rows.iter().any(
            |message| matches!(message, SimpleQueryMessage::Row(row) if row.get(0) == Some(state)),
        );
        if is_refused { Err(self.unreachable(found)) } else { Ok(()) }
    }

    fn unreachable(&self, source: impl Into<forebay_sdk::error::Cause>) -> ServerError {
        let (act, server) = ("connect".into(), self.name.clone());
        ServerError::Unreachable { act, server, source: source.into() }
    }

    /// Opens a connection in replication mode; whether it is encrypted.
    ///
    /// * `host`: the index of the host.
    pub(crate) async fn socket(&self, host: usize) -> io::Result<(Box<dyn Socket>, bool)> {
        let mut link = self.reach(host).map_err(io::Error::other)?;
        let Some(tls) = &self.tls else { return Ok((Box::new(link), false)) };
        ask_for_encryption(&mut link).await?;
        link.0.start_tls(tls.0.as_deref()).map_err(io::Error::other)?;
        Ok((Box::new(link), true))
    }

    /// Connects to one of its hosts.
    fn reach(&self, host: usize) -> Result<Link, ConnectorError> {
        // One port is that of all hosts.
        let ports = self.config.get_ports();
        let port = ports.get(host).or(ports.first()).copied().unwrap_or(5432);
        let limit = self.config.get_connect_timeout().copied().unwrap_or(CONNECT_TIMEOUT);
        let host = match self.config.get_hosts().get(host) {
            Some(Host::Tcp(host)) => host.as_str(),
            None => "127.0.0.1",
        };
        platform::connect(host, port, limit).map(Link)
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
