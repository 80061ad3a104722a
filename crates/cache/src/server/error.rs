//! Why a server could not be started.

use std::io;
use std::net::SocketAddr;

use thiserror::Error;

/// A server that did not start; nothing of it is left.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address} for {protocol}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// `RESP` or `text`.
        protocol: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// A thread's event queue cannot be made.
    #[error("cannot make an event queue")]
    Poll(#[source] io::Error),
    /// io_uring was asked for and cannot be had.
    #[error("cannot use io_uring (is it permitted here? `automatic` falls back to epoll)")]
    Uring(#[source] io::Error),
    /// A thread cannot be started.
    #[error("cannot start thread {name}")]
    Thread {
        /// The thread's name.
        name: String,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}
