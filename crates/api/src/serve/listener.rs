//! Accepts connections, up to a limit.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use socket2::SockRef;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::app::App;
use super::connection::{self, ConnState, Connection, Watched};
use super::protocol::Protocol;
use super::shutdown::Stage;
use crate::problem::Problem;
use crate::tls::Renewed;

/// Maximum number of unsent bytes of a connection in the kernel.
const UNSENT_MAX: u32 = 128 << 10;
/// Maximum number of connections waiting in the kernel to be accepted.
const BACKLOG: u32 = 4096;
/// Maximum number of refused clients that are being sent a response.
const FAREWELLS_MAX: usize = 64;
/// Maximum time to send one of them its response.
const FAREWELL_LIMIT: Duration = Duration::from_secs(1);
/// Maximum time for a connection to end that was closed in favour of another.
const ROOM_LIMIT: Duration = Duration::from_millis(250);
/// Delay after the kernel refused a connection, usually for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Binds `address`.
///
/// # Errors
/// The address is in use, not local, or not permitted.
pub fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A restarted server must not wait until the old one's connections have timed out.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Accepts connections until the server stops, then closes the listener.
pub async fn run(
    app: Arc<App>,
    listener: TcpListener,
    tls: Option<Arc<Renewed>>,
    connections_max: usize,
) {
    accept(app, listener, tls, connections_max, None).await;
}

/// The same for a port whose requests `port` answers. All connections of the server count together.
pub async fn run_port(
    app: Arc<App>,
    listener: TcpListener,
    tls: Option<Arc<Renewed>>,
    connections_max: usize,
    port: Arc<dyn Protocol>,
) {
    accept(app, listener, tls, connections_max, Some(port)).await;
}

async fn accept(
    app: Arc<App>,
    listener: TcpListener,
    tls: Option<Arc<Renewed>>,
    connections_max: usize,
    port: Option<Arc<dyn Protocol>>,
) {
    let farewells = Arc::new(AtomicUsize::new(0));
    let mut refused = 0u32;
    loop {
        // Created before the stage is read: a change after this line wakes it, an earlier one is
        // seen.
        let stopping = app.stop.changed();
        if app.stop.stage() != Stage::Running {
            return;
        }
        let accepted = tokio::select! {
            biased;
            () = stopping => None,
            accepted = listener.accept() => Some(accepted),
        };
        match accepted {
            None => {}
            Some(Err(error)) => {
                // One line for the first of several failures: a server out of descriptors fails
                // thousands of times per minute.
                if refused == 0 {
                    tracing::warn!(?error, "cannot accept connections; trying again");
                }
                refused = refused.saturating_add(1);
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
            Some(Ok((stream, peer))) => {
                if refused > 0 {
                    tracing::info!(failures = refused, "accepting connections again");
                    refused = 0;
                }
                app.metrics.connections.fetch_add(1, Relaxed);
                if enter(&app, peer, connections_max).await {
                    take(Arc::clone(&app), stream, peer, tls.clone(), port.clone());
                } else {
                    app.metrics.connections_refused.fetch_add(1, Relaxed);
                    // Over TLS nothing can be sent before a handshake, and that is work.
                    if tls.is_none() {
                        turn_away(stream, &farewells);
                    }
                }
            }
        }
    }
}

/// Counts one more connection, if necessary in the place of one that waits for its client.
async fn enter(app: &App, peer: SocketAddr, connections_max: usize) -> bool {
    if app.stop.enter(connections_max) {
        return true;
    }
    let by = app.shares.of_address(peer.ip());
    if app.connections.make_room(app.elapsed_ms(), &by, app.shares.percent()) == 0 {
        return false;
    }
    let deadline = Instant::now() + ROOM_LIMIT;
    while Instant::now() < deadline {
        app.stop.one_left(deadline - Instant::now()).await;
        if app.stop.enter(connections_max) {
            return true;
        }
    }
    false
}

/// Removes a connection from the count when its task ends, panic or not.
struct Entered(Arc<App>);

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.stop.leave();
    }
}

/// Keeps a connection registered until its task ends.
struct Registered(Arc<App>, Arc<ConnState>);

impl Registered {
    fn new(app: &Arc<App>, state: &Arc<ConnState>) -> Self {
        app.connections.register(state);
        Self(Arc::clone(app), Arc::clone(state))
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.0.connections.forget(&self.1);
        self.0.output.forget(&self.1);
    }
}

fn take(
    app: Arc<App>,
    stream: TcpStream,
    peer: SocketAddr,
    tls: Option<Arc<Renewed>>,
    port: Option<Arc<dyn Protocol>>,
) {
    let entered = Entered(Arc::clone(&app));
    tokio::spawn(async move {
        let _entered = entered;
        // Responses are written whole; waiting to fill a packet would only delay them. A socket
        // that is already closed fails here and is noticed by the first read.
        stream.set_nodelay(true).unwrap_or_default();
        // Limits what the kernel holds for a client that does not read to this, not megabytes. The
        // option affects memory only, so a kernel without it does no harm.
        SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT_MAX).unwrap_or_default();
        let local = stream.local_addr().ok().map(|address| address.ip());
        let share = app.shares.of_address(peer.ip());
        let state = Arc::new(ConnState::new(app.elapsed_ms(), local, tls.is_some(), share));
        let _registered = Registered::new(&app, &state);
        let conn = Arc::new(Connection::new(Arc::clone(&app), Arc::clone(&state)));
        let stream = Watched::new(stream, Arc::clone(&conn));
        let Some(tls) = tls else {
            return connection::serve(&conn, port.as_ref(), stream).await;
        };
        // Determined for each connection, so that a renewed certificate is used for the next one.
        let acceptor = TlsAcceptor::from(tls.config());
        let handshake = tokio::time::timeout(app.deadlines.head, acceptor.accept(stream));
        match connection::unless_cut(&state, handshake).await {
            Some(Ok(Ok(stream))) => connection::serve(&conn, port.as_ref(), stream).await,
            Some(Ok(Err(error))) => tracing::debug!(?error, "TLS handshake failed"),
            None => {
                app.metrics.cut_crowded.fetch_add(1, Relaxed);
                tracing::debug!("TLS handshake closed in favour of another connection");
            }
            Some(Err(_)) => {
                app.metrics.timeouts_head.fetch_add(1, Relaxed);
                tracing::debug!("TLS handshake took too long");
            }
        }
    });
}

/// Sends 503 to a connection over the limit and closes it.
///
/// The client's bytes are read for a moment: closing a socket with unread bytes resets it, and the
/// client would see the reset instead of the response. Only a few connections wait like that; under
/// a flood the rest is dropped.
fn turn_away(mut stream: TcpStream, farewells: &Arc<AtomicUsize>) {
    if farewells.fetch_add(1, Ordering::AcqRel) >= FAREWELLS_MAX {
        farewells.fetch_sub(1, Ordering::AcqRel);
        return;
    }
    let farewells = Arc::clone(farewells);
    tokio::spawn(async move {
        let farewell = async {
            stream.write_all(Problem::CONNECTIONS.raw().as_bytes()).await?;
            stream.shutdown().await?;
            let mut sink = [0u8; 1024];
            while stream.read(&mut sink).await? > 0 {}
            Ok::<_, std::io::Error>(())
        };
        // Whether the client received it does not matter here.
        if let Ok(Err(error)) = tokio::time::timeout(FAREWELL_LIMIT, farewell).await {
            tracing::trace!(?error, "client over the limit disconnected first");
        }
        farewells.fetch_sub(1, Ordering::AcqRel);
    });
}
