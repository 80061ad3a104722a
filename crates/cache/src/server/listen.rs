//! Listening sockets, and taking connections from them.
//!
//! One socket a protocol, owned by one thread, which hands each accepted connection to the thread
//! that has the fewest. `SO_REUSEPORT` sockets, one a thread, would save the hand-over but spread
//! connections by a hash of their addresses: with 100 connections on two threads one commonly gets
//! 60, and with a handful one often gets all, while a connection's work stays with its thread for
//! life. Accepting is rare beside serving, so even is worth more than cheap.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

use mio::net::{TcpListener, TcpStream};
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

/// Connections the kernel keeps for us until we accept them; it cuts this to `net.core.somaxconn`.
const BACKLOG: i32 = 4_096;
/// How long a connection may be silent before the kernel asks whether the other end is there.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(300);
/// And how often it asks then.
const KEEPALIVE_EVERY: Duration = Duration::from_secs(100);

/// Listens on `address`.
///
/// # Errors
/// The address is in use, is not ours, or may not be used.
pub(super) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // So that a restart need not wait for the connections of the last run to be forgotten.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(TcpListener::from_std(socket.into()))
}

/// What came of one attempt to accept.
#[derive(Debug)]
pub(super) enum Accept {
    /// A connection.
    One(TcpStream, SocketAddr),
    /// None waits.
    None,
    /// This one went away before we took it; the next may be fine.
    Gone,
    /// The process or the machine is out of descriptors or memory: try again later.
    Starved,
}

/// Takes a connection, if one waits, and sets it up.
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
    // Both only fail on a socket that is broken already, which its first read will tell.
    socket.set_nodelay(true).unwrap_or_default();
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_AFTER).with_interval(KEEPALIVE_EVERY);
    SockRef::from(socket).set_tcp_keepalive(&keepalive).unwrap_or_default();
}
