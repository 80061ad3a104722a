//! The framing of `aws-chunked` bodies, enforced before `s3s` decodes them.
//!
//! ```text
//! SIZE[;chunk-signature=64 digits] CRLF  bytes CRLF  ...  0[;...] CRLF  [trailers CRLF]  CRLF
//! ```
//!
//! `s3s` holds a whole chunk in memory, of whatever size its client declares, and neither compares the sum of
//! the chunks with `x-amz-decoded-content-length` nor insists on the last, empty one: a cut upload would be
//! acknowledged. Here each body is read through a [`Scanner`]. An unsigned one is framed again in the pieces
//! in which it arrives, so that a chunk may have any size and costs no memory. A signed chunk cannot be
//! divided; its size has a limit, and so has the sum of those that all requests hold.
//!
//! Invariant: a body ends without an error only after its empty chunk, and after exactly as many bytes as it
//! declared.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame};
use parking_lot::Mutex;
use s3s::{S3Error, s3_error};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::incomplete;

/// Maximum size of a signed chunk. Clients send 64 KiB to 1 MiB.
pub(crate) const SIGNED_CHUNK_SIZE_MAX: u64 = 16 << 20;
/// Maximum number of bytes in signed chunks that all requests hold.
const HELD_MAX: usize = 256 << 20;
/// Chunks up to this size are not counted: clients' usual ones.
const UNCOUNTED_MAX: u64 = 64 << 10;
/// Maximum size of the line before a chunk.
const LINE_SIZE_MAX: usize = 256;
/// Maximum size of everything after the last chunk.
const TRAILER_SIZE_MAX: usize = 16 << 10;

/// Why a body ended early: what its request is answered, whatever a handler makes of the broken body.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fault(Arc<Mutex<Option<S3Error>>>);

impl Fault {
    /// Keeps the first fault.
    pub(crate) fn set(&self, error: S3Error) {
        self.0.lock().get_or_insert(error);
    }

    /// Returns it, once.
    pub(crate) fn take(&self) -> Option<S3Error> {
        self.0.lock().take()
    }
}

/// The error of a body whose fault is in its [`Fault`].
#[derive(Debug, thiserror::Error)]
#[error("the body of the request is not what it declares")]
pub(crate) struct Broken;

/// Memory for signed chunks.
#[derive(Debug, Clone)]
pub(crate) struct ChunkMemory(Arc<Semaphore>);

impl Default for ChunkMemory {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(HELD_MAX >> 10)))
    }
}

impl ChunkMemory {
    /// Reserves the memory of a chunk, where it needs to be.
    fn reserve(&self, size: u64) -> Result<Option<OwnedSemaphorePermit>, S3Error> {
        if size <= UNCOUNTED_MAX {
            return Ok(None);
        }
        let kib = u32::try_from(size.div_ceil(1_024)).unwrap_or(u32::MAX);
        match Arc::clone(&self.0).try_acquire_many_owned(kib) {
            Ok(permit) => Ok(Some(permit)),
            Err(_) => Err(s3_error!(SlowDown, "Too many large signed chunks are being received")),
        }
    }
}

/// What a scanner found in the bytes it was given.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    /// The line of a chunk of this size.
    Chunk(u64),
    /// This many bytes of data, at the front.
    Data(usize),
    /// The rest is what follows the last chunk.
    Trailer,
    /// Nothing yet.
    More,
}

/// Where a scanner stands.
#[derive(Debug)]
enum State {
    /// In a line that holds a size.
    Line(Vec<u8>),
    /// In a chunk that lacks this many bytes.
    Data(u64),
    /// Behind a chunk: the line end, of which this many bytes were seen.
    End(u8),
    /// Behind the last chunk, with this many bytes of trailers.
    Trailer(usize),
}

/// Follows the framing.
#[derive(Debug)]
struct Scanner {
    state: State,
    signed: bool,
    declared: u64,
    decoded: u64,
}

impl Scanner {
    fn new(signed: bool, declared: u64) -> Self {
        Self { state: State::Line(Vec::new()), signed, declared, decoded: 0 }
    }

    /// Takes bytes off the front of `bytes`.
    fn step(&mut self, bytes: &mut Bytes) -> Result<Found, S3Error> {
        match &mut self.state {
            State::Line(line) => {
                let end = bytes.iter().position(|&byte| byte == b'\n').map(|at| at + 1);
                let taken = bytes.split_to(end.unwrap_or(bytes.len()));
                if line.len() + taken.len() > LINE_SIZE_MAX {
                    return Err(malformed("the line before a chunk is too long"));
                }
                line.extend_from_slice(&taken);
                if end.is_none() {
                    return Ok(Found::More);
                }
                let size = size_of(line, self.signed)?;
                self.begin(size)
            }
            State::Data(left) => {
                let most = usize::try_from(*left).unwrap_or(usize::MAX);
                let taken = bytes.len().min(most);
                *left -= taken as u64;
                self.decoded += taken as u64;
                if *left == 0 {
                    self.state = State::End(0);
                }
                Ok(Found::Data(taken))
            }
            State::End(seen) => {
                let wanted = if *seen == 0 { b'\r' } else { b'\n' };
                let found = bytes.split_to(bytes.len().min(1));
                match found.first() {
                    None => {}
                    Some(&byte) if byte != wanted => {
                        return Err(malformed("a chunk is longer than its size"));
                    }
                    Some(_) if *seen == 0 => *seen = 1,
                    Some(_) => self.state = State::Line(Vec::new()),
                }
                Ok(Found::More)
            }
            State::Trailer(size) => {
                *size += bytes.len();
                if *size > TRAILER_SIZE_MAX {
                    return Err(malformed("the trailers are too long"));
                }
                Ok(Found::Trailer)
            }
        }
    }

    fn begin(&mut self, size: u64) -> Result<Found, S3Error> {
        if size == 0 {
            if self.decoded != self.declared {
                return Err(incomplete(SHORT));
            }
            self.state = State::Trailer(0);
            return Ok(Found::Chunk(0));
        }
        if self.declared - self.decoded < size {
            return Err(incomplete("The body is longer than its x-amz-decoded-content-length"));
        }
        if self.signed && size > SIGNED_CHUNK_SIZE_MAX {
            return Err(s3_error!(
                InvalidRequest,
                "A signed chunk has {size} bytes; the limit is {SIGNED_CHUNK_SIZE_MAX}"
            ));
        }
        self.state = State::Data(size);
        Ok(Found::Chunk(size))
    }

    /// Checks that a body may end here.
    fn end(&self) -> Result<(), S3Error> {
        match self.state {
            State::Trailer(_) => Ok(()),
            _ => Err(incomplete(SHORT)),
        }
    }
}

const SHORT: &str = "The body ended before its last chunk, or before the bytes it declared";

/// Reads the line before a chunk. Nothing that `s3s` would read otherwise is accepted.
fn size_of(line: &[u8], signed: bool) -> Result<u64, S3Error> {
    let wrong = || malformed("the line before a chunk is not a size");
    let line = line.strip_suffix(b"\r\n").ok_or_else(wrong)?;
    let mut parts = line.splitn(2, |&byte| byte == b';');
    let digits = parts.next().unwrap_or_default();
    if digits.is_empty() || digits.len() > 8 || !digits.iter().all(u8::is_ascii_hexdigit) {
        // Eight digits are 4 GiB, more than an upload of one request may have.
        return Err(wrong());
    }
    let size = std::str::from_utf8(digits).ok().and_then(|text| u64::from_str_radix(text, 16).ok());
    let extension = parts.next();
    let signature = extension.and_then(|text| text.strip_prefix(b"chunk-signature="));
    let good = match (signed, extension) {
        (true, _) => signature.is_some_and(|digits| digits.len() == 64),
        (false, extension) => extension.is_none() || signature.is_some(),
    };
    if good { size.ok_or_else(wrong) } else { Err(wrong()) }
}

fn malformed(why: &'static str) -> S3Error {
    s3_error!(IncompleteBody, "The aws-chunked body is malformed: {why}")
}

/// An `aws-chunked` body that keeps what it declares.
pub(crate) struct Chunked {
    inner: Body,
    scanner: Scanner,
    memory: ChunkMemory,
    fault: Fault,
    /// Memory of the chunk that is being received.
    held: Option<OwnedSemaphorePermit>,
    /// What was read and not passed on.
    rest: Bytes,
    /// What is to be passed on first.
    out: VecDeque<Bytes>,
    over: bool,
}

impl Chunked {
    /// * `signed`: each chunk has a signature.
    /// * `declared`: number of bytes in all chunks.
    /// * `fault`: receives why the body ended early.
    pub(crate) fn new(
        inner: Body,
        signed: bool,
        declared: u64,
        memory: ChunkMemory,
        fault: Fault,
    ) -> Self {
        let scanner = Scanner::new(signed, declared);
        let (held, rest, out) = (None, Bytes::new(), VecDeque::new());
        Self { inner, scanner, memory, fault, held, rest, out, over: false }
    }

    /// Handles what has arrived, until there is something to pass on.
    fn advance(&mut self) -> Result<(), S3Error> {
        // A signed body passes as it is, once its next piece was examined.
        let whole = self.scanner.signed.then(|| self.rest.clone());
        while !self.rest.is_empty() {
            match self.scanner.step(&mut self.rest)? {
                Found::More => {}
                Found::Chunk(0) if !self.scanner.signed => {
                    self.out.push_back(Bytes::from_static(b"0\r\n"));
                }
                Found::Chunk(size) => {
                    self.held = None;
                    if self.scanner.signed {
                        self.held = self.memory.reserve(size)?;
                    }
                }
                Found::Data(size) => {
                    let data = self.rest.split_to(size);
                    if !self.scanner.signed {
                        self.out.push_back(Bytes::from(format!("{size:x}\r\n")));
                        self.out.push_back(data);
                        self.out.push_back(Bytes::from_static(b"\r\n"));
                    }
                }
                Found::Trailer => {
                    let rest = std::mem::take(&mut self.rest);
                    if !self.scanner.signed {
                        self.out.push_back(rest);
                    }
                }
            }
        }
        self.out.extend(whole);
        Ok(())
    }

    fn fails(&mut self, error: S3Error) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        self.over = true;
        self.held = None;
        self.fault.set(error);
        Poll::Ready(Some(Err(Broken)))
    }
}

impl HttpBody for Chunked {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let this = self.get_mut();
        loop {
            if let Some(bytes) = this.out.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
            if this.over {
                return Poll::Ready(None);
            }
            match ready!(Pin::new(&mut this.inner).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    // Trailers of HTTP itself mean nothing here.
                    let Ok(data) = frame.into_data() else { continue };
                    this.rest = data;
                    if let Err(error) = this.advance() {
                        this.out.clear();
                        return this.fails(error);
                    }
                }
                Some(Err(_)) => return this.fails(incomplete("The body was interrupted")),
                None => match this.scanner.end() {
                    Ok(()) => {
                        this.over = true;
                        this.held = None;
                    }
                    Err(error) => return this.fails(error),
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use proptest::prelude::*;
    use s3s::S3ErrorCode;

    use super::*;

    /// What a body becomes that arrives in pieces of at most this size.
    async fn pass(
        bytes: &[u8],
        piece: usize,
        signed: bool,
        declared: u64,
    ) -> Result<Vec<u8>, S3ErrorCode> {
        let pieces: Vec<Result<Bytes, std::io::Error>> =
            bytes.chunks(piece.max(1)).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        let body = Body::from_stream(futures_util::stream::iter(pieces));
        let fault = Fault::default();
        let body = Chunked::new(body, signed, declared, ChunkMemory::default(), fault.clone());
        match body.collect().await {
            Ok(whole) => Ok(whole.to_bytes().to_vec()),
            Err(Broken) => Err(fault.take().unwrap().code().clone()),
        }
    }

    /// Decodes a body that is framed correctly.
    fn decode(mut bytes: &[u8]) -> (Vec<u8>, &[u8]) {
        let mut decoded = Vec::new();
        loop {
            let end = bytes.iter().position(|&byte| byte == b'\n').unwrap();
            let size = size_of(&bytes[..=end], false).unwrap();
            bytes = &bytes[end + 1..];
            if size == 0 {
                return (decoded, bytes);
            }
            let size = usize::try_from(size).unwrap();
            decoded.extend_from_slice(&bytes[..size]);
            bytes = bytes[size..].strip_prefix(b"\r\n").unwrap();
        }
    }

    fn signed(size: u64) -> String {
        format!("{size:x};chunk-signature={}\r\n", "0".repeat(64))
    }

    #[tokio::test]
    async fn an_unsigned_body_is_framed_again_and_keeps_bytes_and_trailers() {
        let body = b"5\r\nhello\r\nB\r\n, big world\r\n0\r\nx-amz-checksum-crc32:AAAA\r\n\r\n";
        for piece in 1..body.len() + 1 {
            let passed = pass(body, piece, false, 16).await.unwrap();
            let (decoded, trailers) = decode(&passed);
            assert_eq!(decoded, b"hello, big world");
            assert_eq!(trailers, b"x-amz-checksum-crc32:AAAA\r\n\r\n");
        }
    }

    #[tokio::test]
    async fn a_signed_body_passes_unchanged() {
        let body = format!("{}hello\r\n{}\r\n", signed(5), signed(0));
        for piece in 1..body.len() + 1 {
            let passed = pass(body.as_bytes(), piece, true, 5).await.unwrap();
            assert_eq!(passed, body.as_bytes());
        }
    }

    #[tokio::test]
    async fn a_cut_upload_never_ends_well() {
        let body = b"5\r\nhello\r\n0\r\n\r\n";
        let complete = body.len() - 2;
        for cut in 0..complete {
            let ended = pass(&body[..cut], 4, false, 5).await;
            assert_eq!(ended, Err(S3ErrorCode::IncompleteBody), "{cut}");
        }
        assert!(pass(&body[..complete], 4, false, 5).await.is_ok());
    }

    #[tokio::test]
    async fn the_declared_length_is_enforced_both_ways() {
        let body = b"5\r\nhello\r\n0\r\n\r\n";
        for declared in [0, 4, 6, u64::MAX] {
            let ended = pass(body, 100, false, declared).await;
            assert_eq!(ended, Err(S3ErrorCode::IncompleteBody), "{declared}");
        }
    }

    #[tokio::test]
    async fn a_signed_chunk_beyond_the_limit_is_refused_before_it_arrives() {
        let huge = SIGNED_CHUNK_SIZE_MAX + 1;
        let ended = pass(signed(huge).as_bytes(), 100, true, huge).await;
        assert_eq!(ended, Err(S3ErrorCode::InvalidRequest));
        let unsigned = format!("{huge:x}\r\nx");
        assert_eq!(
            pass(unsigned.as_bytes(), 100, false, huge).await,
            Err(S3ErrorCode::IncompleteBody),
            "an unsigned one costs no memory: only its bytes are missing"
        );
    }

    #[tokio::test]
    async fn malformed_lines_are_refused() {
        for line in [
            "\r\n",
            "5\n",
            "g\r\n",
            "5 \r\n",
            "+5\r\n",
            "000000005\r\n",
            "5;x=y\r\n",
            "5;chunk-signature\r\n",
        ] {
            let body = format!("{line}hello\r\n0\r\n\r\n");
            assert_eq!(
                pass(body.as_bytes(), 7, false, 5).await,
                Err(S3ErrorCode::IncompleteBody),
                "{line:?}"
            );
        }
        let unsigned = b"5\r\nhello\r\n0\r\n\r\n";
        assert_eq!(pass(unsigned, 7, true, 5).await, Err(S3ErrorCode::IncompleteBody));
        let longer = b"4\r\nhello\r\n0\r\n\r\n";
        assert_eq!(pass(longer, 7, false, 5).await, Err(S3ErrorCode::IncompleteBody));
        let endless = format!("0\r\n{}", "x".repeat(TRAILER_SIZE_MAX + 1));
        assert_eq!(pass(endless.as_bytes(), 999, false, 0).await, Err(S3ErrorCode::IncompleteBody));
        let endless = "1".repeat(LINE_SIZE_MAX + 1);
        assert_eq!(pass(endless.as_bytes(), 9, false, 0).await, Err(S3ErrorCode::IncompleteBody));
    }

    #[tokio::test]
    async fn the_memory_of_signed_chunks_is_limited_and_given_back() {
        let memory = ChunkMemory::default();
        let all = memory.reserve(HELD_MAX as u64).unwrap();
        assert_eq!(memory.reserve(1 << 20).unwrap_err().code(), &S3ErrorCode::SlowDown);
        assert!(memory.reserve(UNCOUNTED_MAX).unwrap().is_none());
        drop(all);
        assert!(memory.reserve(1 << 20).unwrap().is_some());
    }

    proptest! {
        #[test]
        fn no_bytes_panic_and_what_passes_has_the_declared_length(
            bytes in prop::collection::vec(prop::sample::select(b"0123f;\r\nx-=".to_vec()), 0..60),
            piece in 1_usize..10,
            declared in 0_u64..20,
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            if let Ok(passed) = runtime.block_on(pass(&bytes, piece, false, declared)) {
                prop_assert_eq!(decode(&passed).0.len() as u64, declared);
            }
        }
    }
}
