//! Joins the messages of a COPY while they are read.
//!
//! A server sends each row of a COPY as a separate message, and a client pays for each: parsing it,
//! sharing its buffer, waking the waiting task. Here the messages from one read of the socket are
//! rewritten into one with all their bytes, which has the same meaning for a COPY.
//!
//! Invariants: the output equals the input, message by message, except that neighbouring `CopyData`
//! messages are merged; it never waits for bytes that have not arrived; a message too long for the
//! buffer passes through unchanged.

use std::future::{Ready, ready};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
#[cfg(not(target_family = "wasm"))]
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};

/// Bytes that are read at once.
const READ_SIZE: usize = 32 << 10;
/// A message begins with its kind and its length, which counts itself.
const HEAD: usize = 5;
/// The kind of a message that has rows.
const COPY_DATA: u8 = b'd';

/// Rewrites what a server says.
#[derive(Debug, Default)]
struct Joiner {
    /// What is rewritten and not yet taken, from `taken` on.
    out: Vec<u8>,
    taken: usize,
    /// Bytes of a message that is passed through and has not come whole.
    passing: usize,
}

impl Joiner {
    /// Rewrites what is whole; how many bytes of `raw` that was.
    ///
    /// * `is_full`: no more fits behind `raw`, so that a message that is not whole never will be.
    fn join(&mut self, raw: &[u8], is_full: bool) -> usize {
        let mut at = 0;
        // Where the message begins that rows are added to.
        let mut open: Option<usize> = None;
        loop {
            let rest = raw.get(at..).unwrap_or_default();
            if self.passing > 0 {
                let some = self.passing.min(rest.len());
                self.out.extend_from_slice(rest.get(..some).unwrap_or_default());
                self.passing -= some;
                at += some;
                if self.passing > 0 {
                    break;
                }
                continue;
            }
            let &[kind, a, b, c, d, ref body @ ..] = rest else { break };
            let length = u32::from_be_bytes([a, b, c, d]) as usize;
            // An impossible length is reported by the reader of this stream.
            let size = length.saturating_sub(HEAD - 1);
            match body.get(..size) {
                Some(body) if kind == COPY_DATA && length >= HEAD - 1 => {
                    let start = *open.get_or_insert_with(|| {
                        self.out.extend_from_slice(&[COPY_DATA, 0, 0, 0, 0]);
                        self.out.len() - HEAD
                    });
                    self.out.extend_from_slice(body);
                    self.close(start);
                    at += HEAD + size;
                }
                Some(_) => {
                    open = None;
                    self.out.extend_from_slice(rest.get(..HEAD + size).unwrap_or_default());
                    at += HEAD + size;
                }
                None if kind == COPY_DATA && !(is_full && at == 0) => break,
                None => {
                    open = None;
                    self.passing = HEAD + size;
                }
            }
        }
        at
    }

    /// Writes down how long the message that begins at `start` has become.
    fn close(&mut self, start: usize) {
        // What was read at once is far below the 4 GiB a length can say.
        let length = u32::try_from(self.out.len() - start - 1).unwrap_or(u32::MAX).to_be_bytes();
        if let Some(place) = self.out.get_mut(start + 1..start + HEAD) {
            place.copy_from_slice(&length);
        }
    }

    /// Returns what was rewritten; whether there was anything.
    fn take(&mut self, into: &mut ReadBuf<'_>) -> bool {
        let left = self.out.get(self.taken..).unwrap_or_default();
        if left.is_empty() {
            self.out.clear();
            self.taken = 0;
            return false;
        }
        let some = left.len().min(into.remaining());
        into.put_slice(left.get(..some).unwrap_or_default());
        self.taken += some;
        true
    }
}

/// A connection whose messages of a COPY are joined.
#[derive(Debug)]
pub(super) struct Joined<S> {
    inner: S,
    /// What ties a log-in to the connection below: its encryption, where it has one.
    binding: fn(&S) -> ChannelBinding,
    /// What was read and not yet rewritten: `..filled` of it.
    raw: Vec<u8>,
    filled: usize,
    joiner: Joiner,
}

impl<S> Joined<S> {
    pub(super) fn new(inner: S, binding: fn(&S) -> ChannelBinding) -> Self {
        Self { inner, binding, raw: vec![0; READ_SIZE], filled: 0, joiner: Joiner::default() }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Joined<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if this.joiner.take(into) {
                return Poll::Ready(Ok(()));
            }
            let mut room = ReadBuf::new(this.raw.get_mut(this.filled..).unwrap_or_default());
            ready!(Pin::new(&mut this.inner).poll_read(context, &mut room))?;
            let read = room.filled().len();
            this.filled += read;
            if read == 0 {
                // The end: half a message is reported by the reader of this stream.
                let left = std::mem::take(&mut this.filled);
                this.joiner.out.extend_from_slice(this.raw.get(..left).unwrap_or_default());
                this.joiner.take(into);
                return Poll::Ready(Ok(()));
            }
            let raw = this.raw.get(..this.filled).unwrap_or_default();
            let done = this.joiner.join(raw, this.filled == READ_SIZE);
            this.raw.copy_within(done..this.filled, 0);
            this.filled -= done;
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Joined<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(context)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Joined<S> {
    fn channel_binding(&self) -> ChannelBinding {
        (self.binding)(&self.inner)
    }
}

/// Joins what comes out of the encryption of another.
#[cfg(not(target_family = "wasm"))]
#[derive(Debug, Clone)]
pub(super) struct Encrypted<M>(pub(super) M);

#[cfg(not(target_family = "wasm"))]
impl<M, S> MakeTlsConnect<S> for Encrypted<M>
where
    M: MakeTlsConnect<S>,
    M::TlsConnect: 'static,
    <M::TlsConnect as TlsConnect<S>>::Future: Send + 'static,
    M::Stream: 'static,
{
    type Stream = Joined<M::Stream>;
    type TlsConnect = Encrypted<M::TlsConnect>;
    type Error = M::Error;

    fn make_tls_connect(&mut self, host: &str) -> Result<Self::TlsConnect, M::Error> {
        self.0.make_tls_connect(host).map(Encrypted)
    }
}

#[cfg(not(target_family = "wasm"))]
impl<T, S> TlsConnect<S> for Encrypted<T>
where
    T: TlsConnect<S>,
    T::Future: Send + 'static,
    T::Stream: 'static,
{
    type Stream = Joined<T::Stream>;
    type Error = T::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Stream, T::Error>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        let connecting = self.0.connect(stream);
        Box::pin(async move {
            connecting.await.map(|stream| Joined::new(stream, T::Stream::channel_binding))
        })
    }
}

/// An unencrypted connection. It takes the place of encryption, so that it is between the socket
/// and the reader; the server is not asked for encryption.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plain;

#[cfg(not(target_family = "wasm"))]
impl<S: AsyncRead + AsyncWrite + Unpin> MakeTlsConnect<S> for Plain {
    type Stream = Joined<S>;
    type TlsConnect = Self;
    type Error = std::convert::Infallible;

    fn make_tls_connect(&mut self, _: &str) -> Result<Self, Self::Error> {
        Ok(Self)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsConnect<S> for Plain {
    type Stream = Joined<S>;
    type Error = std::convert::Infallible;
    type Future = Ready<Result<Joined<S>, Self::Error>>;

    fn connect(self, stream: S) -> Self::Future {
        ready(Ok(Joined::new(stream, |_| ChannelBinding::none())))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
        [&[kind][..], &length, body].concat()
    }

    /// Messages with neighbouring rows as one.
    fn meaning(mut bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
        let mut messages: Vec<(u8, Vec<u8>)> = Vec::new();
        while let &[kind, a, b, c, d, ref rest @ ..] = bytes {
            let size = u32::from_be_bytes([a, b, c, d]) as usize - 4;
            let (body, after) = rest.split_at(size);
            match messages.last_mut() {
                Some((COPY_DATA, rows)) if kind == COPY_DATA => rows.extend_from_slice(body),
                _ => messages.push((kind, body.to_vec())),
            }
            bytes = after;
        }
        assert!(bytes.is_empty(), "{} bytes are left", bytes.len());
        messages
    }

    /// What comes out where the socket gives pieces of these sizes.
    fn through(bytes: &[u8], pieces: &[usize]) -> Vec<u8> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (mut near, far) = tokio::io::duplex(READ_SIZE * 2);
            let bytes = bytes.to_vec();
            let pieces = pieces.to_vec();
            let writing = async move {
                use tokio::io::AsyncWriteExt as _;
                let mut rest = bytes.as_slice();
                let mut pieces = pieces.iter().cycle();
                while !rest.is_empty() {
                    let some = (*pieces.next().unwrap()).clamp(1, rest.len());
                    near.write_all(&rest[..some]).await.unwrap();
                    tokio::task::yield_now().await;
                    rest = &rest[some..];
                }
                drop(near);
            };
            let reading = async move {
                use tokio::io::AsyncReadExt as _;
                let mut out = Vec::new();
                Joined::new(far, |_| ChannelBinding::none()).read_to_end(&mut out).await.unwrap();
                out
            };
            tokio::join!(writing, reading).1
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn what_comes_out_means_what_came_in_wherever_it_is_cut(
            messages in prop::collection::vec(
                (prop::sample::select(b"dddddddcCZT".to_vec()), prop::collection::vec(any::<u8>(), 0..300)),
                0..200),
            pieces in prop::collection::vec(1_usize..5_000, 1..20),
        ) {
            let bytes: Vec<u8> =
                messages.iter().flat_map(|(kind, body)| message(*kind, body)).collect();
            let out = through(&bytes, &pieces);
            prop_assert_eq!(meaning(&out), meaning(&bytes));
        }

        #[test]
        fn any_bytes_pass_and_none_is_lost(
            bytes in prop::collection::vec(any::<u8>(), 0..4_000),
            pieces in prop::collection::vec(1_usize..700, 1..5),
        ) {
            // What is no message has no meaning to keep, but it must end.
            let out = through(&bytes, &pieces);
            prop_assert!(out.len() <= bytes.len());
        }
    }

    #[test]
    fn rows_that_came_together_are_one_message_and_long_ones_pass() {
        let rows: Vec<u8> = (0..100_u8).flat_map(|row| message(COPY_DATA, &[row; 20])).collect();
        let out = through(&rows, &[rows.len()]);
        assert_eq!(out.len(), 100 * 20 + HEAD, "one head");
        let long = message(COPY_DATA, &vec![7; 5 * READ_SIZE]);
        let mixed = [rows.clone(), long, message(b'c', b""), rows].concat();
        let out = through(&mixed, &[READ_SIZE]);
        assert_eq!(meaning(&out), meaning(&mixed));
    }

    #[test]
    fn half_a_message_at_the_end_is_handed_on() {
        let whole = message(b'Z', b"I");
        let out = through(&[whole.as_slice(), &[COPY_DATA, 0, 0, 0, 90, 1, 2]].concat(), &[3]);
        assert_eq!(out, [whole.as_slice(), &[COPY_DATA, 0, 0, 0, 90, 1, 2]].concat());
    }
}
