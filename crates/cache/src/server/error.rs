//! Why a server could not be started.

use std::io;
use std::net::SocketAddr;

use thiserror::Error;

/// Why a server did not start; nothing of it is left.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// It cannot listen on an address.
    #[error("cannot listen on {address} for {protocol}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// `RESP` or `text`.
        protocol: &'static str,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// A thread's event queue cannot be created.
    #[error("cannot create an event queue")]
    Poll(#[source] io::Error),
    /// io_uring was required and is not available.
    #[error("cannot use io_uring; use `automatic` to fall back to epoll")]
    Uring(#[source] io::Error),
    /// A thread cannot be started.
    #[error("cannot start thread {name}")]
    Thread {
        /// The thread's name.
        name: String,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
}
