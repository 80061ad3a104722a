//! A connection as a stream of bytes.
//!
//! Invariant: a future that waits for a connection has registered its interest in it, so that the host is asked for
//! exactly what is waited for.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use forebay_sdk::ConnectorError;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::wit::sockets::{self, Received};

/// A connection, and what is waited for.
struct Open {
    connection: Rc<sockets::Connection>,
    readable: bool,
    writable: bool,
}

#[derive(Default)]
struct Connections {
    next: u64,
    open: HashMap<u64, Open>,
}

thread_local! {
    static CONNECTIONS: RefCell<Connections> = RefCell::default();
}

/// A connection to a server, through the host. It is closed when it is dropped.
#[derive(Debug)]
pub struct Stream {
    id: u64,
}

impl Stream {
    /// Connects to a server that the pipeline permits.
    ///
    /// # Errors
    /// The host does not permit it, or the server was not reached.
    pub fn connect(host: &str, port: u16, timeout: Duration) -> Result<Self, ConnectorError> {
        let timeout_ms = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
        let connection = sockets::Connection::connect(host, port, timeout_ms)
            .map_err(|error| ConnectorError::from(error.failure))?;
        let connection = Rc::new(connection);
        CONNECTIONS.with_borrow_mut(|all| {
            let id = all.next;
            all.next += 1;
            all.open.insert(id, Open { connection, readable: false, writable: false });
            Ok(Self { id })
        })
    }

    fn connection(&self) -> Option<Rc<sockets::Connection>> {
        CONNECTIONS
            .with_borrow(|all| all.open.get(&self.id).map(|open| Rc::clone(&open.connection)))
    }

    fn wants(&self, interest: impl FnOnce(&mut Open)) {
        CONNECTIONS.with_borrow_mut(|all| {
            if let Some(open) = all.open.get_mut(&self.id) {
                interest(open);
            }
        });
    }
}

#[cfg(target_family = "wasm")]
impl forebay_sdk::platform::Transport for Stream {
    fn start_tls(&self, trusted: Option<&str>) -> Result<(), ConnectorError> {
        let Some(connection) = self.connection() else { return Err(ConnectorError::Stopped) };
        connection.start_tls(trusted).map_err(|error| ConnectorError::from(error.failure))
    }

    fn server_end_point(&self) -> Vec<u8> {
        self.connection().map(|connection| connection.server_end_point()).unwrap_or_default()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        drop(CONNECTIONS.with_borrow_mut(|all| all.open.remove(&self.id)));
    }
}

fn lost(error: sockets::Error) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, ConnectorError::from(error.failure))
}

fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "the connection is closed")
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Some(connection) = self.connection() else { return Poll::Ready(Err(closed())) };
        let max = u32::try_from(into.remaining()).unwrap_or(u32::MAX);
        if max == 0 {
            return Poll::Ready(Ok(()));
        }
        match connection.read(max).map_err(lost)? {
            Received::Bytes(bytes) => {
                let fits = bytes.get(..into.remaining()).unwrap_or(&bytes);
                into.put_slice(fits);
                Poll::Ready(Ok(()))
            }
            Received::End => Poll::Ready(Ok(())),
            Received::Nothing => {
                self.wants(|open| open.readable = true);
                Poll::Pending
            }
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let Some(connection) = self.connection() else { return Poll::Ready(Err(closed())) };
        match connection.write(bytes).map_err(lost)? {
            0 if !bytes.is_empty() => {
                self.wants(|open| open.writable = true);
                Poll::Pending
            }
            taken => Poll::Ready(Ok(usize::try_from(taken).unwrap_or(bytes.len()))),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The host sends what it took.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(connection) = self.connection() else { return Poll::Ready(Ok(())) };
        Poll::Ready(connection.finish().map_err(lost))
    }
}

/// Forgets what was waited for: futures that still wait register again.
pub(crate) fn forget_interests() {
    CONNECTIONS.with_borrow_mut(|all| {
        for open in all.open.values_mut() {
            (open.readable, open.writable) = (false, false);
        }
    });
}

/// Waits until one of the connections is ready, or the time has passed.
pub(crate) fn wait(timeout_ms: Option<u32>) {
    let waited: Vec<_> = CONNECTIONS.with_borrow(|all| {
        let open = all.open.values().filter(|open| open.readable || open.writable);
        open.map(|open| (Rc::clone(&open.connection), open.readable, open.writable)).collect()
    });
    let interests = waited.iter().map(|(connection, readable, writable)| sockets::Interest {
        connection: connection.as_ref(),
        readable: *readable,
        writable: *writable,
    });
    let interests: Vec<_> = interests.collect();
    // All futures are polled after each wait, whatever is ready.
    let _ready: Vec<u32> = sockets::poll(&interests, timeout_ms);
}
