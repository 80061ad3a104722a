//! Connections to the servers of an API, as streams of bytes that hyper reads and writes.
//!
//! | module | |
//! |---|---|
//! | `native` | sockets of this process, encrypted by rustls |
//! | `sandbox` | connections of the host of a component, which resolves, connects, encrypts and verifies |

#[cfg(not(target_family = "wasm"))]
mod native;
#[cfg(target_family = "wasm")]
mod sandbox;

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::rt::ReadBufCursor;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

#[cfg(not(target_family = "wasm"))]
pub(crate) use native::{Encryption, open};
#[cfg(target_family = "wasm")]
pub(crate) use sandbox::{Encryption, open};

/// Bytes that are read at once.
const READ_SIZE: usize = 16 << 10;

/// A stream of bytes, as hyper uses it.
#[derive(Debug)]
pub(crate) struct Link<S>(pub(crate) S);

impl<S: AsyncRead + Unpin> hyper::rt::Read for Link<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut into: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut bytes = [0; READ_SIZE];
        let size = READ_SIZE.min(into.remaining());
        let mut buffer = ReadBuf::new(bytes.get_mut(..size).unwrap_or_default());
        ready!(Pin::new(&mut self.0).poll_read(context, &mut buffer))?;
        into.put_slice(buffer.filled());
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> hyper::rt::Write for Link<S> {
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
