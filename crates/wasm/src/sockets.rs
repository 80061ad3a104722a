//! Connections of a component.
//!
//! A connection never makes its component wait, except for the call that waits for several of them: what arrives and what
//! is sent has a buffer here.
//!
//! Invariants: a buffer has at most 256 KiB; what was taken for sending is sent, also if the connection is
//! closed right after.

use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Buf as _, BufMut, BytesMut};
use forebay_sdk::ConnectorError;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource, WasmList};

use crate::state::{State, error};
use crate::wit::sockets::{self, Interest, Received};
use crate::wit::types;

/// Bytes of a buffer.
const BUFFER_SIZE: usize = 256 << 10;
/// Bytes that are read while a component waits.
const READ_SIZE: usize = 64 << 10;
/// Connections of an instance.
const CONNECTIONS_MAX: usize = 64;
/// How long a handshake may take.
const HANDSHAKE_MAX: Duration = Duration::from_secs(30);
/// How long what was taken may take to be sent after the connection is closed.
const LINGER_MAX: Duration = Duration::from_secs(10);

/// A stream, encrypted or not.
#[derive(Debug)]
enum Stream {
    Plain(TcpStream),
    Encrypted(Box<TlsStream<TcpStream>>),
}

impl Stream {
    /// Reads into the room of a buffer; how many bytes.
    fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        into: &mut impl BufMut,
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(stream) => pin!(stream.read_buf(into)).poll(context),
            Self::Encrypted(stream) => pin!(stream.read_buf(into)).poll(context),
        }
    }

    fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Encrypted(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Encrypted(stream) => Pin::new(stream).poll_flush(context),
        }
    }
}

/// A stream, and what is not yet sent on it.
#[derive(Debug, Default)]
struct Link {
    /// `None` while a handshake or a write has it, or after a handshake failed.
    stream: Option<Stream>,
    outgoing: BytesMut,
    is_finishing: bool,
}

/// A connection of a component.
#[derive(Debug)]
pub struct Connection {
    /// The name that was connected to.
    host: String,
    link: Link,
    incoming: Vec<u8>,
    is_at_end: bool,
    server_end_point: Vec<u8>,
}

impl Link {
    /// Sends what was taken, as far as the socket takes it. Ready once all is sent.
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(stream) = &mut self.stream else { return Poll::Ready(Err(closed())) };
        while !self.outgoing.is_empty() {
            match stream.poll_write(context, &self.outgoing) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(sent)) => self.outgoing.advance(sent),
            }
        }
        stream.poll_flush(context)
    }

    /// Takes bytes for sending; how many. What the socket takes at once is not copied.
    fn put(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_finishing {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let mut context = Context::from_waker(Waker::noop());
        if let Poll::Ready(sent) = self.poll_send(&mut context) {
            sent?;
        }
        let mut taken = 0;
        if self.outgoing.is_empty() {
            let Some(stream) = &mut self.stream else { return Err(closed()) };
            while let Some(rest) = bytes.get(taken..).filter(|rest| !rest.is_empty()) {
                match stream.poll_write(&mut context, rest) {
                    Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                    Poll::Ready(sent) => taken += sent?,
                    Poll::Pending => break,
                }
            }
            if let Poll::Ready(flushed) = stream.poll_flush(&mut context) {
                flushed?;
            }
        }
        let room = BUFFER_SIZE.saturating_sub(self.outgoing.len());
        let rest = bytes.get(taken..).unwrap_or_default();
        let some = rest.get(..room).unwrap_or(rest);
        self.outgoing.extend_from_slice(some);
        Ok(taken + some.len())
    }
}

impl Connection {
    fn new(host: String, stream: TcpStream) -> Self {
        Self {
            host,
            link: Link {
                stream: Some(Stream::Plain(stream)),
                outgoing: BytesMut::new(),
                is_finishing: false,
            },
            incoming: Vec::new(),
            is_at_end: false,
            server_end_point: Vec::new(),
        }
    }

    fn lost(&self, error: io::Error) -> ConnectorError {
        ConnectorError::Unreachable { what: self.host.clone(), source: error.into() }
    }

    /// Whether something can be taken: bytes, or the end.
    fn poll_readable(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.incoming.is_empty() || self.is_at_end {
            return Poll::Ready(Ok(()));
        }
        self.poll_fill(context, READ_SIZE)
    }

    /// Reads at most `max` bytes, where none are left from before.
    fn poll_fill(&mut self, context: &mut Context<'_>, max: usize) -> Poll<io::Result<()>> {
        let Some(stream) = &mut self.link.stream else { return Poll::Ready(Err(closed())) };
        let mut bytes = Vec::with_capacity(max);
        let read = ready!(stream.poll_read(context, &mut (&mut bytes).limit(max)))?;
        self.incoming = bytes;
        self.is_at_end = read == 0;
        Poll::Ready(Ok(()))
    }

    /// Takes what has arrived.
    fn take(&mut self, max: usize) -> io::Result<Received> {
        if self.incoming.is_empty() && !self.is_at_end {
            let mut context = Context::from_waker(Waker::noop());
            match self.poll_fill(&mut context, max.clamp(1, BUFFER_SIZE)) {
                Poll::Pending => return Ok(Received::Nothing),
                Poll::Ready(read) => read?,
            }
        }
        if self.incoming.is_empty() {
            return Ok(Received::End);
        }
        let rest = self.incoming.split_off(self.incoming.len().min(max));
        Ok(Received::Bytes(std::mem::replace(&mut self.incoming, rest)))
    }

    /// Whether it is ready for an interest. Whatever that is, what was taken is sent.
    fn poll_interest(&mut self, context: &mut Context<'_>, readable: bool, writable: bool) -> bool {
        // A failure is reported by the call that follows.
        let is_writable = match self.link.poll_send(context) {
            Poll::Pending => self.link.outgoing.len() < BUFFER_SIZE,
            Poll::Ready(_) => true,
        };
        let is_readable = readable && self.poll_readable(context).is_ready();
        is_readable || writable && is_writable
    }

    async fn encrypt(&mut self, trusted: Option<&str>) -> Result<(), ConnectorError> {
        let Some(Stream::Plain(stream)) = self.link.stream.take() else {
            return Err(ConnectorError::data(
                "the calls of the component",
                "the connection is encrypted",
            ));
        };
        if !self.link.outgoing.is_empty() || !self.incoming.is_empty() {
            // What arrived before encryption may come from a third party.
            let found = "bytes are in transit before the connection is encrypted";
            return Err(ConnectorError::data(self.host.clone(), found));
        }
        let config = client(trusted)?;
        let name = ServerName::try_from(self.host.clone())
            .map_err(|error| self.lost(io::Error::other(error)))?;
        let connecting = TlsConnector::from(config).connect(name, stream);
        let stream = tokio::time::timeout(HANDSHAKE_MAX, connecting)
            .await
            .map_err(|_| self.lost(io::ErrorKind::TimedOut.into()))?
            .map_err(|error| self.lost(error))?;
        let certificates = stream.get_ref().1.peer_certificates();
        if let Some(certificate) = certificates.and_then(<[_]>::first) {
            self.server_end_point = Sha256::digest(certificate).to_vec();
        }
        self.link.stream = Some(Stream::Encrypted(Box::new(stream)));
        Ok(())
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let (Some(stream), outgoing) = (self.stream.take(), std::mem::take(&mut self.outgoing))
        else {
            return;
        };
        if outgoing.is_empty() && !self.is_finishing {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            let sending = async {
                match stream {
                    Stream::Plain(mut stream) => {
                        stream.write_all(&outgoing).await?;
                        stream.shutdown().await
                    }
                    Stream::Encrypted(mut stream) => {
                        stream.write_all(&outgoing).await?;
                        stream.shutdown().await
                    }
                }
            };
            match tokio::time::timeout(LINGER_MAX, sending).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(%error, "a closed connection was not emptied"),
                Err(_) => tracing::debug!("a closed connection was not emptied in time"),
            }
        });
    }
}

fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "the connection is closed")
}

/// How certificates are verified: by those of a text, or the system's.
fn client(trusted: Option<&str>) -> Result<Arc<ClientConfig>, ConnectorError> {
    static SYSTEM: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    let bad = |found: String| ConnectorError::data("the trusted certificates", found);
    let mut roots = RootCertStore::empty();
    match trusted {
        Some(pem) => {
            for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
                let certificate = certificate.map_err(|error| bad(error.to_string()))?;
                roots.add(certificate).map_err(|error| bad(error.to_string()))?;
            }
        }
        None => {
            if let Some(known) = SYSTEM.get() {
                return Ok(Arc::clone(known));
            }
            // An unreadable one is not trusted.
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
        }
    }
    if roots.is_empty() {
        return Err(ConnectorError::unsupported(
            "there is no certificate to trust",
            "set a file of certificates, or install the system's (ca-certificates)",
        ));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| bad(error.to_string()))?;
    let config = Arc::new(config.with_root_certificates(roots).with_no_client_auth());
    if trusted.is_none() {
        return Ok(Arc::clone(SYSTEM.get_or_init(|| config)));
    }
    Ok(config)
}

impl sockets::HostConnection for State {
    async fn connect(
        &mut self,
        host: String,
        port: u16,
        timeout_ms: u32,
    ) -> wasmtime::Result<Result<Resource<Connection>, types::Error>> {
        if self.connections.iter_mut().count() >= CONNECTIONS_MAX {
            let found = format!("it has {CONNECTIONS_MAX} connections already");
            return Ok(Err(error(ConnectorError::data("the calls of the component", found))));
        }
        let limit = Duration::from_millis(timeout_ms.into());
        let connected = self.grants.connect(&host, port, limit).await;
        self.is_active();
        match connected {
            Ok(stream) => {
                let stream = socket2::SockRef::from(&stream)
                    .set_tcp_keepalive(&keepalive())
                    .map(|()| stream);
                match stream {
                    Ok(stream) => Ok(Ok(self.connections.push(Connection::new(host, stream))?)),
                    Err(failed) => Ok(Err(error(ConnectorError::Unreachable {
                        what: host,
                        source: failed.into(),
                    }))),
                }
            }
            Err(refused) => Ok(Err(error(refused))),
        }
    }

    async fn start_tls(
        &mut self,
        connection: Resource<Connection>,
        trusted: Option<String>,
    ) -> wasmtime::Result<Result<(), types::Error>> {
        let connection = self.connections.get_mut(&connection)?;
        let encrypted = connection.encrypt(trusted.as_deref()).await;
        self.is_active();
        Ok(encrypted.map_err(error))
    }

    fn server_end_point(&mut self, connection: Resource<Connection>) -> wasmtime::Result<Vec<u8>> {
        Ok(self.connections.get(&connection)?.server_end_point.clone())
    }

    fn read(
        &mut self,
        connection: Resource<Connection>,
        max: u32,
    ) -> wasmtime::Result<Result<Received, types::Error>> {
        let connection = self.connections.get_mut(&connection)?;
        let taken = connection.take(max as usize).map_err(|failed| error(connection.lost(failed)));
        if matches!(taken, Ok(Received::Bytes(_))) {
            self.is_active();
        }
        Ok(taken)
    }

    fn write(
        &mut self,
        connection: Resource<Connection>,
        bytes: Vec<u8>,
    ) -> wasmtime::Result<Result<u32, types::Error>> {
        let taken = self.connections.get_mut(&connection)?.link.put(&bytes);
        self.wrote(&connection, taken)
    }

    fn finish(
        &mut self,
        connection: Resource<Connection>,
    ) -> wasmtime::Result<Result<(), types::Error>> {
        self.connections.get_mut(&connection)?.link.is_finishing = true;
        Ok(Ok(()))
    }

    fn drop(&mut self, connection: Resource<Connection>) -> wasmtime::Result<()> {
        self.connections.delete(connection)?;
        Ok(())
    }
}

impl State {
    /// The answer to a write.
    fn wrote(
        &mut self,
        connection: &Resource<Connection>,
        taken: io::Result<usize>,
    ) -> wasmtime::Result<Result<u32, types::Error>> {
        if taken.as_ref().is_ok_and(|&taken| taken > 0) {
            self.is_active();
        }
        let connection = self.connections.get(connection)?;
        let taken = taken.map_err(|failed| error(connection.lost(failed)));
        Ok(taken.map(|taken| u32::try_from(taken).unwrap_or(u32::MAX)))
    }
}

/// Lets writes take their bytes where the component has them, instead of from a copy.
///
/// # Errors
/// Sockets were not added to this linker.
pub(crate) fn write_in_place(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    linker.instance("forebay:connector/sockets@0.1.0")?.func_wrap(
        "[method]connection.write",
        |mut store: StoreContextMut<'_, State>,
         (connection, bytes): (Resource<Connection>, WasmList<u8>)| {
            // The memory and the connection both belong to the store.
            let mut link =
                std::mem::take(&mut store.data_mut().connections.get_mut(&connection)?.link);
            let taken = link.put(bytes.as_le_slice(&store));
            store.data_mut().connections.get_mut(&connection)?.link = link;
            Ok((store.data_mut().wrote(&connection, taken)?,))
        },
    )?;
    linker.allow_shadowing(false);
    Ok(())
}

/// Notices a server that has gone.
fn keepalive() -> socket2::TcpKeepalive {
    socket2::TcpKeepalive::new()
        .with_time(Duration::from_secs(30))
        .with_interval(Duration::from_secs(10))
}

impl sockets::Host for State {
    async fn poll(
        &mut self,
        interests: Vec<Interest>,
        timeout_ms: Option<u32>,
    ) -> wasmtime::Result<Vec<u32>> {
        if interests.is_empty() && timeout_ms.is_none() {
            return Err(wasmtime::Error::msg("it waits for nothing"));
        }
        let (connections, wanted) = (&mut self.connections, &self.wanted);
        let ready = std::future::poll_fn(|context| {
            let mut ready = Vec::new();
            for (index, interest) in interests.iter().enumerate() {
                let connection = match connections.get_mut(&interest.connection) {
                    Ok(connection) => connection,
                    Err(error) => return Poll::Ready(Err(wasmtime::Error::from(error))),
                };
                if connection.poll_interest(context, interest.readable, interest.writable) {
                    ready.push(u32::try_from(index).unwrap_or(u32::MAX));
                }
            }
            if ready.is_empty() { Poll::Pending } else { Poll::Ready(Ok(ready)) }
        });
        let pause = async {
            match timeout_ms {
                Some(ms) => tokio::time::sleep(Duration::from_millis(ms.into())).await,
                None => std::future::pending().await,
            }
        };
        let ready = tokio::select! {
            biased;
            ready = ready => ready,
            () = wanted.wait() => Ok(Vec::new()),
            () = pause => Ok(Vec::new()),
        };
        self.is_active();
        ready
    }
}
