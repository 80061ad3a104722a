//! Listening sockets, and accepting connections from them.
//!
//! There is one socket per protocol, owned by one thread, which hands each accepted connection to
//! the thread with the fewest. One `SO_REUSEPORT` socket per thread would save the hand-over but
//! distribute connections by a hash of their addresses: with 100 connections on two threads one
//! commonly gets 60, and with a few connections one often gets all, while a connection stays with
//! its thread for life. Accepting is rare compared with serving, so an even distribution is worth
//! more than cheap accepting.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

use mio::net::{TcpListener, TcpStream};
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

/// Connections that the kernel queues until they are accepted; it limits this to
/// `net.core.somaxconn`.
const BACKLOG: i32 = 4_096;
/// Idle time after which the kernel probes whether the client is still reachable.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(300);
/// Interval between further probes.
const KEEPALIVE_EVERY: Duration = Duration::from_secs(100);

/// Listens on `address`.
///
/// # Errors
/// The address is in use, is not local, or is not permitted.
pub(super) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // So that a restart need not wait until the last run's connections time out.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(TcpListener::from_std(socket.into()))
}

/// The result of one attempt to accept.
#[derive(Debug)]
pub(super) enum Accept {
    /// A connection.
    One(TcpStream, SocketAddr),
    /// No connection is waiting.
    None,
    /// This connection ended before it was accepted; the next may be fine.
    Gone,
    /// The process or the machine has no descriptors or memory left: try again later.
    Starved,
}

/// Accepts a connection, if one is waiting, and configures it.
pub(super) fn accept(listener: &TcpListener) -> Accept {
    match listener.accept() {
        Ok((socket, peer)) => {
            set_up(&socket);
            Accept::One(socket, peer)
        }
        Err(error) => match error.kind() {
            ErrorKind::WouldBlock => Accept::None,
            // accept(2): errors already pending on the new socket, passed to us; treat as EAGAIN.
            ErrorKind::Interrupted
            | ErrorKind::ConnectionAborted
            | ErrorKind::ConnectionReset
            | ErrorKind::NetworkDown
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
            | ErrorKind::PermissionDenied => Accept::Gone,
            _ => Accept::Starved,
        },
    }
}

fn set_up(socket: &TcpStream) {
    // Both fail only on a socket that is already broken, which its first read reports.
    socket.set_nodelay(true).unwrap_or_default();
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_AFTER).with_interval(KEEPALIVE_EVERY);
    SockRef::from(socket).set_tcp_keepalive(&keepalive).unwrap_or_default();
}
