//! Receiving a file's bytes: small ones in memory for the log, large ones directly to the disk.
//!
//! What arrives of a large body is gathered into a batch. One task hashes it and another copies it into
//! pieces, while the next one arrives; a third writes a piece that is full. A thread is used only while
//! there is something to process: a slow sender holds none, and little memory. If small files that arrive
//! slowly hold more than `HELD_MAX` together, further ones wait on the disk like large ones.

use std::future::Future;
use std::io::{self, SeekFrom};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use forebay_base::blocking;
use futures_util::future::poll_immediate;
use sha2::{Digest as _, Sha256};
use tokio::task::JoinError;
use tokio::time::timeout;

use crate::blob::Staging;
use crate::blocks::BlockReader;
use crate::bulk::Bulk;
use crate::classify::{Classified, HEAD_SIZE, classify, classify_content};
use crate::digest::Digest;
use crate::error::IntakeError;
use crate::files::NewBytes;
use crate::names::FileName;
use crate::pieces::{Gathered, PieceWriter};
use crate::shared::Shared;

/// Approximate maximum size of a batch.
const BATCH_SIZE: usize = 256 << 10;
/// Minimum size of a batch while the sender has not sent the next bytes.
const BATCH_SIZE_MIN: usize = 16 << 10;
/// How long a batch waits for the next bytes of its sender.
const PAUSE: Duration = Duration::from_millis(5);
/// Maximum memory of all incomplete small files together.
const HELD_MAX: usize = 16 << 20;

/// The bytes of a complete file: received and hashed, but not stored under a name. Without a name
/// they are dropped, or removed when the intake is opened next.
#[derive(Debug)]
pub struct Upload {
    pub(crate) digest: Digest,
    pub(crate) size: u64,
    pub(crate) head: Bytes,
    pub(crate) bytes: NewBytes,
}

impl Upload {
    /// Takes bytes that are already in memory; few enough for the log.
    #[must_use]
    pub fn in_memory(bytes: Bytes) -> Self {
        packed(bytes)
    }

    /// Returns the digest of the bytes.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Returns the number of bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the first bytes, for classification.
    #[must_use]
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// Returns the number of bytes kept in memory; `None` if they are in an open file.
    #[must_use]
    pub fn memory_size(&self) -> Option<usize> {
        match &self.bytes {
            NewBytes::Packed(bytes) => Some(bytes.len()),
            NewBytes::Staged(_) => None,
        }
    }

    /// Returns what the bytes are; the name only breaks ties. Containers are looked into, on another
    /// thread if the bytes are in a file.
    pub async fn classify(&self, name: &FileName) -> Classified {
        let head = self.head.clone();
        match self.content() {
            Ok(FileBytes::Memory(bytes)) => classify_content(&head, io::Cursor::new(bytes), name),
            Ok(FileBytes::File(reader)) => {
                let (size, owned) = (self.size, name.clone());
                let looked = forebay_base::blocking::spawn(move || {
                    classify_content(&head, ContentReader { reader, size, at: 0 }, &owned)
                });
                looked.await.unwrap_or_else(|_| classify(&self.head, name))
            }
            Err(_) => classify(&head, name),
        }
    }

    /// Returns the bytes to be read again.
    ///
    /// # Errors
    /// [`IntakeError::Blob`]: the file that holds them cannot be read.
    pub fn content(&self) -> Result<FileBytes, IntakeError> {
        match &self.bytes {
            NewBytes::Packed(bytes) => Ok(FileBytes::Memory(bytes.clone())),
            NewBytes::Staged(staging) => BlockReader::new(staging.file(), self.size, self.digest)
                .map(FileBytes::File)
                .map_err(|source| IntakeError::Blob { act: "read", source }),
        }
    }
}

/// The bytes of a file, to be read.
#[derive(Debug, Clone)]
pub enum FileBytes {
    /// All of them.
    Memory(Bytes),
    /// A reader of the file that holds them. It blocks, and checks each block.
    File(BlockReader),
}

/// A file's bytes, read from any position.
struct ContentReader {
    reader: BlockReader,
    size: u64,
    at: u64,
}

impl io::Read for ContentReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let bytes = self.reader.read(self.at, self.at.saturating_add(buf.len() as u64))?;
        let (to, _) = buf.split_at_mut(bytes.len().min(buf.len()));
        to.copy_from_slice(bytes.get(..to.len()).unwrap_or_default());
        self.at += to.len() as u64;
        Ok(to.len())
    }
}

impl io::Seek for ContentReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.size.checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

/// A source of a file's bytes: a body, or a part of one.
pub trait Source {
    /// The next bytes; `None` at the end.
    ///
    /// # Errors
    /// [`IntakeError`]: they cannot be received.
    fn next(&mut self) -> impl Future<Output = Result<Option<Bytes>, IntakeError>> + Send;
}

/// Receives a file.
///
/// * `declared`: the size that the sender declared, if it did.
pub(crate) async fn take(
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
        // The whole file arrived in one piece. Its end is read so that the connection can be
        // reused.
        return match source.next().await? {
            None => Ok(packed(first)),
            Some(more) => {
                let held = BytesMut::from(&first[..]);
                Box::pin(large(shared, source, held, more)).await
            }
        };
    }
    let mut held = BytesMut::with_capacity(packed_max.min(first.len() * 2).max(4_096));
    let mut counted = Counted { of: &shared.held, bytes: 0 };
    let mut next = Some(first);
    while let Some(bytes) = next {
        if held.len() + bytes.len() > packed_max || !counted.add(bytes.len()) {
            drop(counted);
            // In a box, so that the futures of small files stay small.
            return Box::pin(large(shared, source, held, bytes)).await;
        }
        held.extend_from_slice(&bytes);
        next = source.next().await?;
    }
    Ok(packed(held.freeze()))
}

/// Bytes of a small file, counted among those of all incomplete ones.
struct Counted<'a> {
    of: &'a AtomicUsize,
    bytes: usize,
}

impl Counted<'_> {
    /// Counts more; returns `false` if that would exceed the limit.
    fn add(&mut self, bytes: usize) -> bool {
        if self.of.fetch_add(bytes, Relaxed) + bytes > HELD_MAX {
            self.of.fetch_sub(bytes, Relaxed);
            return false;
        }
        self.bytes += bytes;
        true
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.of.fetch_sub(self.bytes, Relaxed);
    }
}

fn packed(bytes: Bytes) -> Upload {
    let head = bytes.slice(..bytes.len().min(HEAD_SIZE));
    let (digest, size) = (Digest::of(&bytes), bytes.len() as u64);
    Upload { digest, size, head, bytes: NewBytes::Packed(bytes) }
}

/// Receives a file that proved too large for the log; `held` and `bytes` are its beginning.
async fn large(
    shared: &Shared,
    source: &mut impl Source,
    held: BytesMut,
    bytes: Bytes,
) -> Result<Upload, IntakeError> {
    let _permit = shared
        .large_uploads
        .try_acquire()
        .map_err(|_| IntakeError::Busy { what: "too many large uploads are in progress" })?;
    let _metered = Metered::new();
    let limit = shared.options.limits.file_size_max;
    let mut pipe = Pipe::start(shared);
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
        if pipe.send(bytes).await? {
            shared.storing.give_way().await;
        }
        let mut coming = pin!(source.next());
        next = match poll_immediate(&mut coming).await {
            Some(come) => come?,
            // A sender that keeps up sends the next bytes soon: they join the batch.
            None => match timeout(PAUSE, &mut coming).await {
                Ok(come) => come?,
                Err(_) => {
                    pipe.pause().await?;
                    coming.await?
                }
            },
        };
    }
    let (digest, staging) = pipe.finish().await?;
    let bytes = match usize::try_from(size) {
        Ok(small) if small <= shared.options.limits.packed_size_max => {
            NewBytes::Packed(read_back(staging, size, digest).await?)
        }
        _ => NewBytes::Staged(staging),
    };
    Ok(Upload { digest, size, head: head.freeze(), bytes })
}

/// The bytes of a small file that waited on the disk.
async fn read_back(staging: Staging, size: u64, digest: Digest) -> Result<Bytes, IntakeError> {
    let read = blocking::spawn(move || {
        let reader = BlockReader::new(staging.file(), size, digest)?;
        let mut bytes = BytesMut::new();
        while (bytes.len() as u64) < size {
            bytes.extend_from_slice(&reader.read(bytes.len() as u64, size)?);
        }
        Ok(bytes.freeze())
    });
    let failed = |source| IntakeError::Blob { act: "read", source };
    joined(read.await).map_err(failed)
}

/// Counts a large upload while it is in progress.
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

/// Destination of a large body: batches of it are hashed and written.
struct Pipe<'a> {
    bulk: &'a Bulk,
    batch: Vec<Bytes>,
    batch_size: usize,
    hasher: Lane<Sha256>,
    gathered: Lane<Gathered>,
    writer: Lane<PieceWriter>,
}

impl<'a> Pipe<'a> {
    fn start(shared: &'a Shared) -> Self {
        let (bulk, blobs) = (&shared.bulk, shared.blobs.local().clone());
        let staged = bulk.run(move || blobs.stage().map(PieceWriter::new));
        Self {
            bulk,
            batch: Vec::new(),
            batch_size: 0,
            hasher: Lane::Idle(Sha256::new()),
            gathered: Lane::Idle(Gathered::default()),
            writer: Lane::Busy(staged),
        }
    }

    /// Adds bytes; processes the batch when it is large enough, and returns whether it is.
    async fn send(&mut self, bytes: Bytes) -> Result<bool, IntakeError> {
        self.batch_size += bytes.len();
        self.batch.push(bytes);
        let is_large = self.batch_size >= BATCH_SIZE;
        if is_large {
            self.hand_over().await?;
        }
        Ok(is_large)
    }

    /// Called while the sender is idle: processes what is there unless it is very little.
    async fn pause(&mut self) -> Result<(), IntakeError> {
        if self.batch_size >= BATCH_SIZE_MIN { self.hand_over().await } else { Ok(()) }
    }

    /// Hashes and gathers the batch once the previous one is done.
    async fn hand_over(&mut self) -> Result<(), IntakeError> {
        self.batch_size = 0;
        let batch: Arc<[Bytes]> = std::mem::take(&mut self.batch).into();
        let same = Arc::clone(&batch);
        self.hasher
            .then(self.bulk, move |mut hasher| {
                same.iter().for_each(|bytes| hasher.update(bytes));
                Ok(hasher)
            })
            .await
            .map_err(|source| IntakeError::Blob { act: "hash", source })?;
        let mut gathered = self.gather_up().await.map_err(failed_write)?;
        self.gathered = Lane::Busy(self.bulk.run(move || {
            batch.iter().for_each(|bytes| gathered.push(bytes));
            Ok(gathered)
        }));
        Ok(())
    }

    /// Takes over what the previous batches left, and has the full pieces written.
    async fn gather_up(&mut self) -> io::Result<Gathered> {
        let mut gathered = self.gathered.take().end().await?;
        for piece in gathered.take_full() {
            let mut writer = self.writer.take().end().await?;
            gathered.reuse(writer.take_written());
            self.writer = Lane::Busy(self.bulk.run(move || {
                writer.write(piece)?;
                Ok(writer)
            }));
        }
        Ok(gathered)
    }

    async fn finish(mut self) -> Result<(Digest, Staging), IntakeError> {
        self.hand_over().await?;
        let gathered = self.gather_up().await.map_err(failed_write)?;
        let writer = self.writer.end().await.map_err(failed_write)?;
        let hasher = self.hasher.end().await.map_err(failed_write)?;
        let digest = Digest(hasher.finalize().into());
        let written = self.bulk.run(move || writer.finish(gathered, digest));
        let (staging, _) = joined(written.await).map_err(failed_write)?;
        Ok((digest, staging))
    }
}

fn failed_write(source: std::io::Error) -> IntakeError {
    IntakeError::Blob { act: "write", source }
}

/// A stage that processes batches one after another, on threads that may block.
enum Lane<S> {
    Idle(S),
    Busy(blocking::Task<std::io::Result<S>>),
    /// A step failed, or its wait was abandoned.
    Over,
}

impl<S: Send + 'static> Lane<S> {
    /// Takes the stage over, to wait for its last step.
    fn take(&mut self) -> Self {
        std::mem::replace(self, Self::Over)
    }

    /// Starts the next step once the previous one has ended.
    async fn then(
        &mut self,
        bulk: &Bulk,
        step: impl FnOnce(S) -> std::io::Result<S> + Send + 'static,
    ) -> std::io::Result<()> {
        let state = self.take().end().await?;
        *self = Self::Busy(bulk.run(move || step(state)));
        Ok(())
    }

    /// Waits for the last step.
    async fn end(self) -> std::io::Result<S> {
        match self {
            Self::Idle(state) => Ok(state),
            Self::Busy(step) => joined(step.await),
            Self::Over => Err(std::io::Error::other("an earlier step failed")),
        }
    }
}

/// The result of a task, or that it panicked.
fn joined<T>(ended: Result<std::io::Result<T>, JoinError>) -> std::io::Result<T> {
    ended.map_err(std::io::Error::other).and_then(|done| done)
}
