//! Sending a blob file at the client's pace: one piece at a time, each checked before it is sent.
//!
//! A thread is used only while a piece is read, so any number of clients may be slow. The number of
//! pieces read concurrently is limited ([`Sending::reads`]), so any number of clients may be fast.
//! While all clients together have less than [`PLENTY`] read but not sent, pieces are large and one
//! is read ahead. Beyond that they are small, and a client that reads nothing holds one of them.
//!
//! A damaged block ends the response before its declared length, so no client considers it
//! complete.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use axum::body::Body;
use bytes::Bytes;
use forebay_base::blocking::Task;
use forebay_intake::blocks::BlockReader;
use forebay_intake::digest::Digest;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::download::Segment;

/// Bytes read but not yet sent to all clients, below which pieces are large.
const PLENTY: usize = 8 << 20;
/// A large piece.
const PIECE_SIZE: u64 = 256 << 10;
/// A small piece.
const PIECE_SIZE_MIN: u64 = 8 << 10;
/// Number of blob file pieces read concurrently, per processor.
const READS_PER_PROCESSOR: usize = 2;

/// Blob files being sent to clients, which share limits on memory and reads. Clones are the same.
#[derive(Debug, Clone)]
pub struct Sending {
    /// Bytes read but not yet sent.
    bytes: Arc<AtomicUsize>,
    /// Limits the number of pieces read concurrently: enough for the processors and a disk, and few
    /// enough that thousands of downloads leave time for everything else.
    reads: Arc<Semaphore>,
}

impl Default for Sending {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let reads = Arc::new(Semaphore::new(READS_PER_PROCESSOR * processors));
        Self { bytes: Arc::default(), reads }
    }
}

impl Sending {
    /// Returns a body that consists of a part of a blob file.
    pub fn body(&self, reader: BlockReader, range: Range<u64>, digest: Digest) -> Body {
        body(reader, vec![Segment::Part(range)], digest, self.clone())
    }
}

/// A response's body that consists of `segments`.
pub(super) fn body(
    reader: BlockReader,
    segments: Vec<Segment>,
    digest: Digest,
    sending: Sending,
) -> Body {
    let sender = Sender { reader, segments: segments.into(), digest, sending, ahead: None };
    Body::from_stream(futures_util::stream::unfold(Some(sender), |sender| async move {
        let mut sender = sender?;
        let piece = sender.next().await?;
        let rest = piece.is_ok().then_some(sender);
        Some((piece, rest))
    }))
}

struct Sender {
    reader: BlockReader,
    segments: VecDeque<Segment>,
    digest: Digest,
    sending: Sending,
    /// The piece that is being read ahead.
    ahead: Option<Task<io::Result<Bytes>>>,
}

impl Sender {
    /// The next piece; `None` at the end.
    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        let reading = match self.ahead.take() {
            Some(reading) => reading,
            None => match self.segments.front()? {
                Segment::Text(_) => {
                    let Some(Segment::Text(text)) = self.segments.pop_front() else { return None };
                    return Some(Ok(text.into()));
                }
                Segment::Part(_) => {
                    let turn = Arc::clone(&self.sending.reads).acquire_owned().await;
                    let Some(reading) = self.read(turn.ok()?) else {
                        // An empty range holds nothing to be read.
                        self.segments.pop_front();
                        return Some(Ok(Bytes::new()));
                    };
                    reading
                }
            },
        };
        let read = reading.await.map_err(io::Error::other).and_then(|read| read);
        if let Err(error) = &read {
            let digest = self.digest;
            tracing::error!(%digest, %error, "a stored blob cannot be read; run `forebay fsck`");
        } else if self.has_plenty()
            && let Ok(turn) = Arc::clone(&self.sending.reads).try_acquire_owned()
        {
            self.ahead = self.read(turn);
        }
        Some(read)
    }

    fn has_plenty(&self) -> bool {
        self.sending.bytes.load(Relaxed) < PLENTY
    }

    /// Starts to read the next piece of the first segment, if that is a part of the file.
    fn read(&mut self, turn: OwnedSemaphorePermit) -> Option<Task<io::Result<Bytes>>> {
        let plenty = self.has_plenty();
        let Some(Segment::Part(range)) = self.segments.front_mut() else { return None };
        let size = if plenty { PIECE_SIZE } else { PIECE_SIZE_MIN };
        // Large pieces end at block boundaries, so that no block is read twice.
        let end = match range.start.checked_add(size) {
            Some(end) if end < range.end => end - if plenty { end % PIECE_SIZE } else { 0 },
            _ => range.end,
        };
        let piece = range.start..end;
        if piece.is_empty() {
            return None;
        }
        range.start = end;
        if range.is_empty() {
            self.segments.pop_front();
        }
        let (reader, sending) = (self.reader.clone(), Arc::clone(&self.sending.bytes));
        Some(forebay_base::blocking::spawn(move || {
            let read = read(&reader, piece, sending);
            drop(turn);
            read
        }))
    }
}

/// Reads a complete piece, and counts it until it is dropped.
fn read(reader: &BlockReader, piece: Range<u64>, sending: Arc<AtomicUsize>) -> io::Result<Bytes> {
    let mut bytes = reader.read(piece.start, piece.end)?;
    let wanted = piece.end - piece.start;
    if (bytes.len() as u64) < wanted {
        let mut whole = bytes.to_vec();
        while (whole.len() as u64) < wanted {
            whole.extend_from_slice(&reader.read(piece.start + whole.len() as u64, piece.end)?);
        }
        bytes = whole.into();
    } else if wanted <= PIECE_SIZE_MIN {
        // A slice would keep the whole block that was read to check it.
        bytes = Bytes::copy_from_slice(&bytes);
    }
    sending.fetch_add(bytes.len(), Relaxed);
    Ok(Bytes::from_owner(Counted { bytes, sending }))
}

/// A piece that is counted among those not yet sent.
struct Counted {
    bytes: Bytes,
    sending: Arc<AtomicUsize>,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.sending.fetch_sub(self.bytes.len(), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use forebay_base::fs::RealFs;
    use http_body_util::BodyExt as _;

    use super::*;
    use forebay_intake::blob::BlobStore;
    use forebay_intake::pieces::{Gathered, PieceWriter};

    /// A test that takes longer hangs.
    const HANG: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn many_downloads_take_turns_and_those_that_end_early_leave_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let store = BlobStore::open(Arc::new(RealFs), dir.path()).unwrap();
        let bytes: Vec<u8> = (0..600_000).map(|n| u8::try_from(n % 251).unwrap()).collect();
        let mut gathered = Gathered::default();
        gathered.push(&bytes);
        let writer = PieceWriter::new(store.stage().unwrap());
        let digest = Digest::of(&bytes);
        let (staging, size) = writer.finish(gathered, digest).unwrap();
        let reader = BlockReader::new(staging.file(), size, digest).unwrap();
        let sending = Sending::default();
        let reads = sending.reads.available_permits();
        let begin = || {
            let segments = vec![Segment::Text("head".to_owned()), Segment::Part(0..size)];
            body(reader.clone(), segments, digest, sending.clone())
        };
        let mut downloads: Vec<Body> = (0..100).map(|_| begin()).collect();
        for download in &mut downloads {
            download.frame().await.unwrap().unwrap();
            download.frame().await.unwrap().unwrap();
        }
        downloads.truncate(50);
        for download in downloads {
            let rest = download.collect().await.unwrap().to_bytes();
            assert!(bytes.ends_with(&rest) && rest.len() > 100_000, "{} bytes", rest.len());
        }
        let whole = begin().collect().await.unwrap().to_bytes();
        assert!(whole.strip_prefix(b"head") == Some(&bytes[..]));
        drop(whole);
        // A piece that was read ahead for a client that left ends by itself.
        let nothing_is_left = async {
            while sending.bytes.load(Relaxed) > 0 || sending.reads.available_permits() < reads {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(HANG, nothing_is_left).await.unwrap();
    }
}
