//! Collects request bodies in pieces before anything else is acquired for them.
//!
//! A client that sends nothing costs a task and the bytes it has sent, but neither a thread nor a
//! slot among the append requests. The bytes of all bodies count against one limit.
//!
//! Invariant: a body is complete only if the client ended it; everything else is an error. The
//! handler forwards and a separate task collects: if the handler is dropped, its channel ends
//! without that end.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Number of frames queued for the collecting task.
const FRAMES: usize = 1;
/// Number of bytes that justify the use of a thread.
const PIECE_SIZE: usize = 1 << 20;
/// Minimum number of bytes reserved at a time.
const GROWTH_MIN: usize = 4096;

type Frame = Result<Bytes, io::Error>;

/// Memory shared by all bodies.
#[derive(Debug)]
pub(super) struct Memory {
    used: AtomicU64,
    max: u64,
}

impl Memory {
    pub(super) fn new(max: u64) -> Arc<Self> {
        Arc::new(Self { used: AtomicU64::new(0), max })
    }

    /// Bytes in use.
    pub(super) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}

/// The share of one body in the memory; released when dropped.
#[derive(Debug)]
struct Share {
    memory: Arc<Memory>,
    size: u64,
}

impl Share {
    /// Sets the size to `size` bytes, unless the memory has no room for them.
    fn grow_to(&mut self, size: u64) -> bool {
        let more = size.saturating_sub(self.size);
        let max = self.memory.max;
        let grown = self.memory.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(more).filter(|used| more == 0 || *used <= max)
        });
        if grown.is_ok() {
            self.size += more;
        }
        grown.is_ok()
    }

    /// Sets the size to `size` bytes, whether there is room or not.
    fn set(&mut self, size: u64) {
        self.memory.used.fetch_add(size, Ordering::Relaxed);
        self.memory.used.fetch_sub(self.size, Ordering::Relaxed);
        self.size = size;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.memory.used.fetch_sub(self.size, Ordering::Relaxed);
    }
}

/// The end of the channel at which a body is collected.
#[derive(Debug)]
pub(super) struct Pieces {
    from: Receiver<Frame>,
    share: Share,
    /// A piece was returned: the body has more than one.
    begun: bool,
}

/// A part of a body, large enough to be processed.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) bytes: Vec<u8>,
    /// The end of the body, if it was reached: complete, or an error.
    pub(super) end: Option<Result<(), io::Error>>,
}

/// There is no memory for the body.
#[derive(Debug)]
pub(super) struct NoRoom;

/// Creates both ends.
pub(super) fn pieces(memory: &Arc<Memory>) -> (Sender<Frame>, Pieces) {
    let (to, from) = channel(FRAMES);
    let share = Share { memory: Arc::clone(memory), size: 0 };
    (to, Pieces { from, share, begun: false })
}

impl Pieces {
    /// Waits for the whole body, or for a part large enough to be processed.
    ///
    /// * `kept`: number of bytes of earlier pieces that are still held.
    ///
    /// # Errors
    /// The memory of all bodies is in use, and nothing was processed yet. Later the body is passed
    /// on frame by frame instead: a body that has been begun is not refused.
    pub(super) async fn next(&mut self, kept: usize) -> Result<Piece, NoRoom> {
        let mut bytes = Vec::new();
        self.share.set(kept as u64);
        while bytes.len() < PIECE_SIZE {
            let frame = match self.from.recv().await {
                Some(Ok(frame)) if frame.is_empty() => {
                    return Ok(Piece { bytes, end: Some(Ok(())) });
                }
                Some(Ok(frame)) => frame,
                Some(Err(error)) => return Ok(Piece { bytes, end: Some(Err(error)) }),
                None => {
                    let text = "the client disconnected before the end of the body";
                    let error = io::Error::new(ErrorKind::UnexpectedEof, text);
                    return Ok(Piece { bytes, end: Some(Err(error)) });
                }
            };
            let roomy = self.make_room(&mut bytes, frame.len(), kept);
            if !roomy && !self.begun {
                return Err(NoRoom);
            }
            bytes.extend_from_slice(&frame);
            if !roomy {
                break;
            }
        }
        self.begun = true;
        Ok(Piece { bytes, end: None })
    }

    /// Makes room for `more` bytes, doubling the capacity if the memory permits.
    fn make_room(&mut self, bytes: &mut Vec<u8>, more: usize, kept: usize) -> bool {
        let needed = bytes.len() + more;
        if needed <= bytes.capacity() {
            return true;
        }
        let wanted = needed.next_power_of_two().max(GROWTH_MIN);
        let grown = self.share.grow_to((kept + wanted) as u64);
        if grown {
            bytes.reserve_exact(wanted - bytes.len());
        }
        grown
    }
}

/// Forwards a body of at most `size_max` bytes, failing if the client is silent for `idle`.
pub(super) async fn forward(body: Body, size_max: u64, idle: Duration, to: Sender<Frame>) {
    let mut body = body;
    let mut size = 0u64;
    loop {
        let frame = match tokio::time::timeout(idle, body.frame()).await {
            Err(_) => Err(io::Error::new(ErrorKind::TimedOut, "the client stopped sending")),
            Ok(None) => Ok(Bytes::new()),
            Ok(Some(Err(error))) => Err(io::Error::new(ErrorKind::UnexpectedEof, error)),
            Ok(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) if data.is_empty() => continue,
                Ok(data) => {
                    size = size.saturating_add(data.len() as u64);
                    if size > size_max { Err(too_large(size_max)) } else { Ok(data) }
                }
                Err(_trailers) => continue,
            },
        };
        let last = frame.as_ref().map_or(true, Bytes::is_empty);
        // The collecting task may have ended; then there is nothing left to do.
        if to.send(frame).await.is_err() || last {
            return;
        }
    }
}

/// Returns the error of a body beyond its limit.
pub(super) fn too_large(size_max: u64) -> io::Error {
    let text = format!("the body exceeds events.body_size_max, {size_max} bytes");
    io::Error::new(ErrorKind::FileTooLarge, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().build().unwrap()
    }

    #[test]
    fn a_body_is_refused_where_others_have_the_memory_and_let_through_once_begun() {
        runtime().block_on(async {
            let memory = Memory::new(2 * PIECE_SIZE as u64);
            let (to, mut pieces) = super::pieces(&memory);
            let sent = tokio::spawn(async move {
                for _ in 0..3 {
                    to.send(Ok(vec![b'x'; PIECE_SIZE].into())).await.unwrap();
                }
                to.send(Ok(Bytes::new())).await.unwrap();
            });
            let piece = pieces.next(0).await.unwrap();
            assert!(piece.end.is_none() && piece.bytes.len() == PIECE_SIZE);
            assert_eq!(memory.used(), PIECE_SIZE as u64);
            let (others_to, mut others) = super::pieces(&memory);
            others.share.set(2 * PIECE_SIZE as u64);
            let (to, mut refused) = super::pieces(&memory);
            to.send(Ok(Bytes::from_static(b"x"))).await.unwrap();
            assert!(refused.next(0).await.is_err());
            let piece = pieces.next(0).await.unwrap();
            assert!(piece.end.is_none() && piece.bytes.len() == PIECE_SIZE);
            drop((others_to, others));
            assert_eq!(pieces.next(0).await.unwrap().bytes.len(), PIECE_SIZE);
            assert!(matches!(pieces.next(0).await.unwrap().end, Some(Ok(()))));
            sent.await.unwrap();
            drop(pieces);
            assert_eq!(memory.used(), 0);
        });
    }

    #[test]
    fn a_body_whose_end_never_came_is_not_whole() {
        runtime().block_on(async {
            let (to, mut pieces) = super::pieces(&Memory::new(1 << 20));
            to.send(Ok(Bytes::from_static(b"half a li"))).await.unwrap();
            drop(to);
            let piece = pieces.next(0).await.unwrap();
            assert_eq!(piece.bytes, b"half a li");
            assert!(matches!(piece.end, Some(Err(_))));
        });
    }
}
