//! Accepting connections, within a limit.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::app::App;
use super::connection::{self, ConnState, Watched};
use super::problem::Problem;
use super::shutdown::Stage;

/// Connections the kernel may hold ready for us.
const BACKLOG: u32 = 4096;
/// Turned-away clients that are still being told so.
const FAREWELLS_MAX: usize = 64;
/// How long one of them may take to hear it.
const FAREWELL_LIMIT: Duration = Duration::from_secs(1);
/// Pause after the kernel refused a connection, usually for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Binds `address`.
///
/// # Errors
/// The address is in use, not ours, or not allowed.
pub(super) fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A restarted server must not wait for the old one's connections to fade.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Accepts until the server stops, then closes the listener.
pub(super) async fn run(
    app: Arc<App>,
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    connections_max: usize,
) {
    let farewells = Arc::new(AtomicUsize::new(0));
    let mut refused = 0u32;
    loop {
        // Made before the stage is read: a change after this line is heard, one before it is seen.
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
                // One line for the first of a row: a server out of descriptors fails thousands of
                // times a minute.
                if refused == 0 {
                    tracing::warn!(?error, "cannot accept connections; trying again");
                }
                refused = refused.saturating_add(1);
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
            Some(Ok((stream, _peer))) => {
                if refused > 0 {
                    tracing::info!(failures = refused, "accepting connections again");
                    refused = 0;
                }
                app.metrics.connections.fetch_add(1, Relaxed);
                if app.stop.enter(connections_max) {
                    take(Arc::clone(&app), stream, tls.clone());
                } else {
                    app.metrics.connections_refused.fetch_add(1, Relaxed);
                    // Over TLS nothing can be said before a handshake, and that is work.
                    if tls.is_none() {
                        turn_away(stream, &farewells);
                    }
                }
            }
        }
    }
}

/// Counts a connection off when its task ends, panic or not.
struct Entered(Arc<App>);

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.stop.leave();
    }
}

fn take(app: Arc<App>, stream: TcpStream, tls: Option<TlsAcceptor>) {
    let entered = Entered(Arc::clone(&app));
    tokio::spawn(async move {
        let _entered = entered;
        // Answers are written whole; waiting to fill a packet would only delay them. A socket
        // that is already gone fails here and is noticed by the first read.
        stream.set_nodelay(true).unwrap_or_default();
        let state = Arc::new(ConnState::new(app.elapsed_ms()));
        let stream = Watched::new(stream, Arc::clone(&state), Arc::clone(&app));
        let Some(tls) = tls else {
            return connection::serve(&app, &state, stream).await;
        };
        match tokio::time::timeout(app.deadlines.head, tls.accept(stream)).await {
            Ok(Ok(stream)) => connection::serve(&app, &state, stream).await,
            Ok(Err(error)) => tracing::debug!(?error, "TLS handshake failed"),
            Err(_) => {
                app.metrics.timeouts_head.fetch_add(1, Relaxed);
                tracing::debug!("TLS handshake took too long");
            }
        }
    });
}

/// Answers 503 to a connection over the limit and closes it.
///
/// The client's bytes are read for a moment: closing a socket with unread bytes resets it, and the
/// client would see the reset instead of the answer. Only a few wait like that; under a flood the
/// rest is dropped.
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
        // Whether the client heard it is the client's business.
        if let Ok(Err(error)) = tokio::time::timeout(FAREWELL_LIMIT, farewell).await {
            tracing::trace!(?error, "a client over the limit left first");
        }
        farewells.fetch_sub(1, Ordering::AcqRel);
    });
}
