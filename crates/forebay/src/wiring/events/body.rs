//! A request body as a reader for a thread that may block.
//!
//! Pieces go through a short channel: the body is read as fast as the store takes events, and no
//! faster. Invariant: the reader ends (`Ok(0)`) only where the client ended its body; everything else
//! is an error.

use std::io::{self, ErrorKind, Read};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Pieces on their way.
const PIECES: usize = 4;

type Piece = Result<Bytes, io::Error>;

/// The reader's end.
pub(super) struct Pieces {
    from: Receiver<Piece>,
    piece: Bytes,
    ended: bool,
}

/// Both ends.
pub(super) fn pieces() -> (Sender<Piece>, Pieces) {
    let (to, from) = channel(PIECES);
    (to, Pieces { from, piece: Bytes::new(), ended: false })
}

/// Forwards a body of at most `size_max` bytes whose client is never silent for `idle`.
pub(super) async fn forward(body: Body, size_max: u64, idle: Duration, to: Sender<Piece>) {
    let mut body = body;
    let mut size = 0u64;
    loop {
        let piece = match tokio::time::timeout(idle, body.frame()).await {
            Err(_) => Err(io::Error::new(ErrorKind::TimedOut, "the client sent nothing more")),
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
        let last = piece.as_ref().map_or(true, Bytes::is_empty);
        // Whoever reads may have given up; then there is nothing left to do.
        if to.send(piece).await.is_err() || last {
            return;
        }
    }
}

/// The error of a body beyond its limit.
pub(super) fn too_large(size_max: u64) -> io::Error {
    let text = format!("the body has more than the {size_max} bytes of events.body_size_max");
    io::Error::new(ErrorKind::FileTooLarge, text)
}

impl Read for Pieces {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.ended {
            return Ok(0);
        }
        if self.piece.is_empty() {
            match self.from.blocking_recv() {
                Some(Ok(piece)) if piece.is_empty() => {
                    self.ended = true;
                    return Ok(0);
                }
                Some(piece) => self.piece = piece?,
                None => {
                    let text = "the client left before the end of the body";
                    return Err(io::Error::new(ErrorKind::UnexpectedEof, text));
                }
            }
        }
        let count = self.piece.len().min(buf.len());
        let (now, _) = self.piece.split_at_checked(count).unwrap_or_default();
        if let Some(place) = buf.get_mut(..count) {
            place.copy_from_slice(now);
        }
        bytes::Buf::advance(&mut self.piece, count);
        Ok(count)
    }
}
