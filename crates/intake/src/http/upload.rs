//! Taking a file's bytes in: small ones in memory for the log, large ones straight to the disk.
//!
//! A large body goes through two bounded channels at once, to a thread that hashes and a thread
//! that writes, so that receiving, hashing and writing overlap and memory stays at a few pieces.

use bytes::{Bytes, BytesMut};
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::body::PacedBody;
use crate::blob::{BlobStore, Staging};
use crate::blocks::BlockWriter;
use crate::classify::HEAD_SIZE;
use crate::digest::Digest;
use crate::error::IntakeError;
use crate::files::NewBytes;
use crate::shared::Shared;

/// Pieces of a body on their way to each of the two threads.
const PIECES: usize = 6;

/// A file's bytes, taken in whole.
#[derive(Debug)]
pub(super) struct Upload {
    pub(super) digest: Digest,
    pub(super) size: u64,
    /// The first bytes, for classification.
    pub(super) head: Bytes,
    pub(super) bytes: NewBytes,
}

/// A source of a file's bytes: a body, or a part of one.
pub(super) trait Source {
    /// The next bytes; `None` at the end.
    async fn next(&mut self) -> Result<Option<Bytes>, IntakeError>;
}

impl Source for PacedBody {
    async fn next(&mut self) -> Result<Option<Bytes>, IntakeError> {
        Self::next(self).await
    }
}

/// Takes a file in.
///
/// * `declared`: the size the sender announced, if it did.
pub(super) async fn take(
    shared: &Shared,
    source: &mut impl Source,
    declared: Option<u64>,
) -> Result<Upload, IntakeError> {
    let limits = &shared.options.limits;
    let too_large = IntakeError::TooLarge { what: "the file", limit: limits.file_size_max };
    if declared.is_some_and(|size| size > limits.file_size_max) {
        return Err(too_large);
    }
    let packed_max = limits.packed_size_max;
    let Some(first) = source.next().await? else { return Ok(packed(Bytes::new())) };
    if first.len() <= packed_max && declared == Some(first.len() as u64) {
        // The whole file came in one piece; its end is read so that the connection can go on.
        return match source.next().await? {
            None => Ok(packed(first)),
            Some(more) => large(shared, source, BytesMut::from(&first[..]), more).await,
        };
    }
    let mut held = BytesMut::with_capacity(packed_max.min(first.len() * 2).max(4_096));
    let mut next = Some(first);
    while let Some(bytes) = next {
        if held.len() + bytes.len() > packed_max {
            return large(shared, source, held, bytes).await;
        }
        held.extend_from_slice(&bytes);
        next = source.next().await?;
    }
    Ok(packed(held.freeze()))
}

/// Bytes that are all there.
pub(super) fn in_memory(bytes: Bytes) -> Upload {
    packed(bytes)
}

fn packed(bytes: Bytes) -> Upload {
    let head = bytes.slice(..bytes.len().min(HEAD_SIZE));
    let (digest, size) = (Digest::of(&bytes), bytes.len() as u64);
    Upload { digest, size, head, bytes: NewBytes::Packed(bytes) }
}

/// Takes a file that turned out too large for the log, `held` and `bytes` being its beginning.
async fn large(
    shared: &Shared,
    source: &mut impl Source,
    held: BytesMut,
    bytes: Bytes,
) -> Result<Upload, IntakeError> {
    let _permit = shared
        .large_uploads
        .try_acquire()
        .map_err(|_| IntakeError::Busy { what: "too many large uploads are under way" })?;
    let _metered = Metered::new();
    let limit = shared.options.limits.file_size_max;
    let mut pipe = Pipe::start(&shared.blobs);
    let mut head = BytesMut::from(held.get(..HEAD_SIZE).unwrap_or(&held));
    let mut size = 0;
    let mut next = Some(bytes);
    if !held.is_empty() {
        size += held.len() as u64;
        pipe.send(held.freeze()).await?;
    }
    while let Some(bytes) = next {
        size += bytes.len() as u64;
        if size > limit {
            return Err(IntakeError::TooLarge { what: "the file", limit });
        }
        let wanted = HEAD_SIZE.saturating_sub(head.len());
        head.extend_from_slice(bytes.get(..wanted).unwrap_or(&bytes));
        pipe.send(bytes).await?;
        next = source.next().await?;
    }
    let (digest, staging) = pipe.finish().await?;
    Ok(Upload { digest, size, head: head.freeze(), bytes: NewBytes::Staged(staging) })
}

/// Counts a large upload while it is under way.
struct Metered;

impl Metered {
    fn new() -> Self {
        crate::meters::large_uploads(1.0);
        Self
    }
}

impl Drop for Metered {
    fn drop(&mut self) {
        crate::meters::large_uploads(-1.0);
    }
}

/// The two threads a large body goes to.
struct Pipe {
    to_hash: mpsc::Sender<Bytes>,
    to_write: mpsc::Sender<Bytes>,
    hasher: JoinHandle<Digest>,
    writer: JoinHandle<std::io::Result<Staging>>,
}

impl Pipe {
    fn start(blobs: &BlobStore) -> Self {
        let (to_hash, mut hash_from) = mpsc::channel::<Bytes>(PIECES);
        let (to_write, mut write_from) = mpsc::channel::<Bytes>(PIECES);
        let blobs = blobs.clone();
        let hasher = tokio::task::spawn_blocking(move || {
            let mut hasher = Sha256::new();
            while let Some(bytes) = hash_from.blocking_recv() {
                hasher.update(&bytes);
            }
            Digest(hasher.finalize().into())
        });
        let writer = tokio::task::spawn_blocking(move || {
            let mut writer = BlockWriter::new(blobs.stage()?);
            while let Some(bytes) = write_from.blocking_recv() {
                writer.write(&bytes)?;
            }
            writer.finish().map(|(staging, _)| staging)
        });
        Self { to_hash, to_write, hasher, writer }
    }

    async fn send(&mut self, bytes: Bytes) -> Result<(), IntakeError> {
        let written = self.to_write.send(bytes.clone()).await.is_ok();
        if written && self.to_hash.send(bytes).await.is_ok() {
            return Ok(());
        }
        // The writer gave up: its result says why.
        match (&mut self.writer).await.map_err(std::io::Error::other) {
            Ok(Err(source)) | Err(source) => Err(IntakeError::Blob { act: "write", source }),
            Ok(Ok(_)) => Err(IntakeError::Blob {
                act: "hash",
                source: std::io::Error::other("the hashing thread ended early"),
            }),
        }
    }

    async fn finish(self) -> Result<(Digest, Staging), IntakeError> {
        drop((self.to_hash, self.to_write));
        let failed = |source| IntakeError::Blob { act: "write", source };
        let digest = self.hasher.await.map_err(std::io::Error::other).map_err(failed)?;
        let staging =
            self.writer.await.map_err(std::io::Error::other).and_then(|w| w).map_err(failed)?;
        Ok((digest, staging))
    }
}
