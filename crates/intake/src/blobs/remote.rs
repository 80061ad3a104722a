//! Blobs in an object store: written as packs, found by the index, read through the cache.
//!
//! ```text
//! store ── packer ──┐                                   find ── index ── RemoteBlob ── cache ── GET
//! upload ───────────┴─ PUT packs/<epoch>/<n> ── index
//! upkeep: claim, removal of packs without blobs, packs that are half dead, listing
//! ```
//!
//! Decision 0031 has the reasons, and every failure.
//!
//! Invariants: a blob is in the bucket and in the index before its caller goes on; a key is written once; a pack
//! is removed only while the claim is held, when none of its blobs counts, no reader has it open, and the index
//! that says so is on stable storage.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use forebay_base::clock::Clock;
use forebay_base::fs::FileSystem;
use parking_lot::{Condvar, Mutex};
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;

use super::cache::{Cache, EXTENT_SIZE, Extent};
use super::claim::{Claim, ClaimError};
use super::index::{BlobIndex, Totals};
use super::pack::{self, HEADER_SIZE, Member, PackBuilder, PackId};
use super::packer::{self, Packer, Waiting, answer_all};
use super::reading::{Permits, RemoteBlob, Users};
use super::storage::{ObjectStorage, StorageError};
use super::unnamed::Unnamed;
use crate::blocks::{BLOCK_SIZE, BlockReader, encode, file_end};
use crate::digest::Digest;
use crate::error::CatalogueError;
use crate::space;

/// Blobs of up to this size share packs; a larger one has a pack to itself.
pub(crate) const SHARED_MAX: u64 = 1 << 20;
/// Size of a pack up to which it enters the cache when it is written.
const CACHED_MAX: usize = 9 << 20;
/// Maximum number of large blobs that are uploaded at the same time.
const UPLOADS_MAX: usize = 4;
/// Maximum number of reads from the bucket at the same time.
const READS_MAX: usize = 32;

/// Blobs in object storage.
#[derive(Debug, Clone)]
pub struct ObjectStorageOptions {
    /// The prefix.
    pub storage: Arc<dyn ObjectStorage>,
    /// Whether new blobs are stored there. Otherwise it is only read, and can be moved away from.
    pub is_written: bool,
    /// Files of up to this size, in bytes, stay in the log.
    pub inline_max: usize,
    /// Minimum time between the beginnings of two packs that are not full.
    pub pack_wait: Duration,
    /// Size of the cache of reads, in bytes.
    pub cache_size: u64,
    /// How long a pack stays after the last of its blobs was deleted.
    pub keep: Duration,
}

impl ObjectStorageOptions {
    /// Defaults for a prefix to which new blobs are written.
    #[must_use]
    pub fn new(storage: Arc<dyn ObjectStorage>) -> Self {
        Self {
            storage,
            is_written: true,
            inline_max: 4 << 10,
            pack_wait: Duration::from_millis(50),
            cache_size: 1 << 30,
            keep: Duration::from_secs(24 * 3_600),
        }
    }
}

/// Whether the catalogue has a blob whose bytes the blob store has to have.
pub(crate) type IsKnown = Arc<dyn Fn(Digest) -> Result<bool, CatalogueError> + Send + Sync>;

/// Position up to which the log is on stable storage.
pub(crate) type LogEnd = Arc<dyn Fn() -> u64 + Send + Sync>;

/// What an object store is opened with.
pub(crate) struct Parts {
    pub(crate) options: ObjectStorageOptions,
    pub(crate) dir: PathBuf,
    pub(crate) fs: Arc<dyn FileSystem>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) log: [u8; 16],
    pub(crate) is_known: IsKnown,
    pub(crate) log_end: LogEnd,
    /// Where the entries end that the log had when it was opened.
    pub(crate) end: u64,
}

/// Why blobs in object storage cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// The prefix cannot be claimed.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// The index or the catalogue failed.
    #[error(transparent)]
    Index(#[from] CatalogueError),
    /// The packs cannot be listed, or the index of one not be read.
    #[error("cannot read the packs in {url}")]
    Storage {
        /// The prefix.
        url: String,
        /// Why.
        #[source]
        source: StorageError,
    },
    /// The cache cannot be made, or a thread not be started.
    #[error("cannot prepare reading from object storage")]
    Prepare(#[source] io::Error),
}

pub(crate) struct Remote {
    pub(crate) options: ObjectStorageOptions,
    pub(crate) index: BlobIndex,
    pub(crate) cache: Cache,
    pub(crate) claim: Claim,
    /// `None` once this was left: it keeps the log locked.
    log_end: Mutex<Option<LogEnd>>,
    pub(crate) is_known: IsKnown,
    clock: Arc<dyn Clock>,
    packer: Packer,
    uploads: Semaphore,
    pub(crate) reads: Permits,
    number: AtomicU32,
    /// Packs that are being written: a listing may have them before the index does.
    pub(crate) on_their_way: Mutex<HashSet<PackId>>,
    pub(crate) users: Users,
    /// What was sent for puts that came to nothing.
    pub(crate) unnamed: Unnamed,
    pub(crate) state: Mutex<State>,
    pub(crate) woken: Condvar,
    /// Packs that were to be written again and have damage, which stays where it is.
    pub(crate) damaged: Mutex<HashSet<PackId>>,
    /// Held during a pass of the upkeep.
    pub(crate) pass: Mutex<()>,
    threads: Mutex<Vec<std::thread::JoinHandle<()>>>,
}

/// What is known of the bucket.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// Why the last request failed; `None` since one has succeeded.
    pub(crate) away: Option<String>,
    /// Another process has the claim.
    pub(crate) is_fenced: bool,
    pub(crate) is_closed: bool,
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remote").field("url", &self.options.storage.url()).finish_non_exhaustive()
    }
}

impl Remote {
    /// Claims the prefix, completes the index, and counts out what the catalogue does not know.
    ///
    /// * Returns the number of blobs that were counted out.
    pub(crate) fn open(parts: Parts) -> Result<(Arc<Self>, u64), RemoteError> {
        let Parts { options, dir, fs, clock, log, is_known, log_end, end } = parts;
        let storage = &options.storage;
        let path = dir.join(super::INDEX);
        let (index, known) = BlobIndex::open(&path, log, &storage.url())?;
        let claim = Claim::take(&**storage, log, end, &known)?;
        let now_ms = ms(clock.now_ms());
        let mut swept = 0;
        if !known.is_complete {
            super::upkeep::complete(&**storage, &index, &claim, &known, &is_known, now_ms)?;
            swept = super::upkeep::count_out_unknown(&index, claim.kept, &is_known, now_ms)?;
        }
        index.begin(claim.epoch)?;
        let cache = Cache::create(&*fs, &dir.join(super::CACHE), options.cache_size)
            .map_err(RemoteError::Prepare)?;
        let remote = Arc::new(Self {
            packer: Packer::new(options.pack_wait),
            options,
            index,
            cache,
            claim,
            log_end: Mutex::new(Some(log_end)),
            is_known,
            clock,
            uploads: Semaphore::new(UPLOADS_MAX),
            reads: Permits::new(READS_MAX),
            number: AtomicU32::new(0),
            on_their_way: Mutex::default(),
            users: Mutex::new(HashMap::new()),
            unnamed: Unnamed::default(),
            state: Mutex::default(),
            woken: Condvar::new(),
            damaged: Mutex::default(),
            pass: Mutex::new(()),
            threads: Mutex::default(),
        });
        let packers = packer::start(&remote, |remote| &remote.packer, Self::send);
        let mut threads = packers.map_err(RemoteError::Prepare)?;
        threads.push(super::upkeep::start(&remote).map_err(RemoteError::Prepare)?);
        *remote.threads.lock() = threads;
        Ok((remote, swept))
    }

    /// Sends what waits, and ends the threads. Blocks.
    pub(crate) fn close(&self) {
        self.packer.close();
        self.state.lock().is_closed = true;
        self.woken.notify_all();
        for thread in std::mem::take(&mut *self.threads.lock()) {
            if thread.join().is_err() {
                tracing::error!("a thread for object storage has panicked");
            }
        }
    }

    /// Notes how far the log is, and that the index is complete. Called last. Blocks.
    pub(crate) fn leave(&self) {
        let end = self.log_end.lock().take();
        // A bucket that is away is not waited for. A start that cannot compare keeps more than it needs to.
        if let Some(end) = end
            && self.state.lock().away.is_none()
            && let Err(error) = self.claim.is_held(self.storage(), Some(end()))
        {
            tracing::warn!(%error, "the claim does not say how far the log is");
        }
        let is_complete = self.on_their_way.lock().is_empty() && !self.unnamed.is_left();
        if is_complete && let Err(error) = self.index.end() {
            // The next start lists the packs since the epoch of this one.
            tracing::warn!(error = %forebay_base::error_chain::chain(&error), "an index was not closed");
        }
    }

    /// Whether this process still holds the prefix. Notes how far the log is. Blocks.
    pub(crate) fn is_held(&self) -> Result<bool, StorageError> {
        let end = self.log_end.lock().as_ref().map(|end| end());
        self.noted(self.claim.is_held(self.storage(), end))
    }

    pub(crate) fn now_ms(&self) -> i64 {
        ms(self.clock.now_ms())
    }

    pub(crate) fn storage(&self) -> &dyn ObjectStorage {
        &*self.options.storage
    }

    /// Notes whether the bucket answered, and did what was asked.
    pub(crate) fn noted<T>(&self, result: Result<T, StorageError>) -> Result<T, StorageError> {
        match &result {
            Err(StorageError::Away { reason } | StorageError::Refused { reason }) => {
                self.state.lock().away = Some(reason.clone());
            }
            // That an object is not there, or is not what was read before, says nothing about the bucket.
            Err(StorageError::Source(_) | StorageError::Missing | StorageError::Conflict) => {}
            Ok(_) => self.state.lock().away = None,
        }
        result
    }

    /// Why nothing can be stored there; `None` if it can, as far as is known.
    pub(crate) fn trouble(&self) -> Option<String> {
        let state = self.state.lock();
        let url = self.options.storage.url();
        if state.is_fenced {
            return Some(format!("another process uses {url} with a copy of this data directory"));
        }
        state.away.as_ref().map(|reason| format!("{url} is not available: {reason}"))
    }

    pub(crate) fn totals(&self) -> Result<Totals, CatalogueError> {
        self.index.totals()
    }

    /// Bytes that wait to be sent or are on their way.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.packer.bytes()
    }

    /// Opens a blob; `None` if no pack has it.
    pub(crate) fn find(
        self: &Arc<Self>,
        digest: Digest,
    ) -> Result<Option<RemoteBlob>, CatalogueError> {
        // Under the lock, so that the pack is not removed between the look-up and the note that it is used.
        let mut users = self.users.lock();
        let Some(place) = self.index.find(digest)? else { return Ok(None) };
        *users.entry(place.pack).or_insert(0) += 1;
        drop(users);
        Ok(Some(RemoteBlob::new(Arc::clone(self), place)))
    }

    /// Counts blobs out. Their packs are removed later.
    pub(crate) fn remove(&self, digests: &[Digest]) -> Result<(), CatalogueError> {
        self.index.remove(digests, self.now_ms())
    }

    /// Stores a blob that is in memory, together with others.
    ///
    /// # Errors
    /// The bucket's; the blob is then not stored.
    pub(crate) async fn store(&self, digest: Digest, bytes: &[u8]) -> io::Result<()> {
        self.check_claim()?;
        let file = Bytes::from(encode(digest, bytes));
        let answered = self.packer.submit(digest, bytes.len() as u64, file)?;
        let ended = answered.await.map_err(|_| io::Error::other("the pack was not sent"))?;
        Ok(ended?)
    }

    /// Stores a blob from a file, or from another place.
    ///
    /// * `is_hashed`: whether its SHA-256 is to be compared, since it was not computed just now.
    ///
    /// # Errors
    /// The bucket's, or that of reading; the blob is then not stored.
    pub(crate) async fn store_from(
        self: &Arc<Self>,
        reader: BlockReader,
        digest: Digest,
        size: u64,
        is_hashed: bool,
    ) -> io::Result<()> {
        self.check_claim()?;
        if size <= SHARED_MAX {
            if is_hashed {
                // A move gives way to clients.
                self.packer.room().await;
            }
            let bytes = joined(forebay_base::blocking::spawn(move || {
                let bytes = reader.read_all(size)?;
                check_digest(digest, is_hashed.then(|| Digest::of(&bytes)))?;
                Ok(bytes)
            }))
            .await?;
            return self.store(digest, &bytes).await;
        }
        let turn = self.uploads.acquire().await.map_err(io::Error::other)?;
        let remote = Arc::clone(self);
        let uploaded = joined(forebay_base::blocking::spawn(move || {
            remote.upload(&reader, digest, size, is_hashed)
        }))
        .await;
        drop(turn);
        uploaded
    }

    /// Checks that no other process has the claim, as far as is known.
    ///
    /// # Errors
    /// [`StorageError::Away`].
    pub(crate) fn check_claim(&self) -> Result<(), StorageError> {
        let is_fenced = self.state.lock().is_fenced;
        match (is_fenced, self.trouble()) {
            (true, Some(reason)) => Err(StorageError::Away { reason }),
            _ => Ok(()),
        }
    }

    /// Takes the next key.
    fn next_key(&self) -> Result<OnItsWay<'_>, StorageError> {
        let number = self.number.fetch_update(Relaxed, Relaxed, |number| number.checked_add(1));
        let number = number.map_err(|_| StorageError::Refused {
            reason: "all keys of this epoch are used; restart the server".to_owned(),
        })?;
        let id = PackId::new(self.claim.epoch, number);
        self.on_their_way.lock().insert(id);
        Ok(OnItsWay { remote: self, id })
    }

    /// Sends blobs as one pack, and answers them.
    fn send(&self, blobs: Vec<Waiting>) {
        let sent = self.send_pack(&blobs);
        super::meters::pack_sent(blobs.len(), sent.is_ok());
        answer_all(blobs, &sent);
    }

    fn send_pack(&self, blobs: &[Waiting]) -> Result<(), StorageError> {
        let key = self.next_key()?;
        let mut builder = PackBuilder::new(key.id);
        for blob in blobs {
            builder.push(blob.digest, blob.size, &blob.file);
        }
        let (bytes, members) = builder.finish();
        self.write(&key, bytes, &members, &mut |_| true)
    }

    /// Writes a pack and adds it to the index.
    fn write(
        &self,
        key: &OnItsWay<'_>,
        bytes: Bytes,
        members: &[Member],
        counts: &mut dyn FnMut(Digest) -> bool,
    ) -> Result<(), StorageError> {
        let size = bytes.len() as u64;
        self.noted(self.storage().put(&key.id.name(), bytes.clone()))
            .inspect_err(|_| key.give_up())?;
        self.index.add(key.id, size, members, self.now_ms(), counts).map_err(broken)?;
        if bytes.len() <= CACHED_MAX {
            self.keep_in_cache(key.id, &bytes, 0);
        }
        Ok(())
    }

    /// Writes the blobs of a pack that count again, in another one.
    pub(crate) fn rewrite(&self, blobs: &[(Digest, Bytes)]) -> Result<(), StorageError> {
        let key = self.next_key()?;
        let mut builder = PackBuilder::new(key.id);
        for (digest, bytes) in blobs {
            builder.push(*digest, bytes.len() as u64, &encode(*digest, bytes));
        }
        let (bytes, members) = builder.finish();
        // One that was counted out meanwhile stays out. Nothing else writes to the index during the call.
        let mut counts = |digest| matches!(self.index.find(digest), Ok(Some(_)));
        self.write(&key, bytes, &members, &mut counts)
    }

    /// Uploads a large blob as a pack of its own. Blocks.
    fn upload(
        &self,
        reader: &BlockReader,
        digest: Digest,
        size: u64,
        is_hashed: bool,
    ) -> io::Result<()> {
        let key = self.next_key()?;
        let member = Member { digest, offset: HEADER_SIZE, size };
        let end = pack::index_and_end(key.id, &[member]);
        let pack_size = HEADER_SIZE + member.len() + end.len() as u64;
        let mut body = Body {
            reader,
            digest,
            size,
            at: 0,
            checksums: Vec::new(),
            hasher: is_hashed.then(Sha256::new),
            header: Some(Bytes::copy_from_slice(&pack::header(key.id))),
            end: Some(end),
        };
        let name = key.id.name();
        let uploaded = self.storage().upload(&name, pack_size, &mut || body.next());
        self.noted(uploaded).inspect_err(|_| key.give_up())?;
        let added = self.index.add(key.id, pack_size, &[member], self.now_ms(), &mut |_| true);
        super::meters::pack_sent(1, added.is_ok());
        Ok(added.map_err(broken)?)
    }

    /// Caches the extents of a part of a pack that begins at an extent.
    pub(crate) fn keep_in_cache(&self, pack: PackId, bytes: &[u8], first: u64) {
        let size = usize::try_from(EXTENT_SIZE).unwrap_or(usize::MAX);
        for (number, bytes) in (first..).zip(bytes.chunks(size)) {
            self.cache.put(Extent { pack, number }, bytes);
        }
    }
}

/// A failure of the index, to a caller that stores. The pack is in the bucket; it is listed at the next start.
fn broken(error: CatalogueError) -> StorageError {
    let kind = match space::is_wanted(&error) {
        true => io::ErrorKind::StorageFull,
        false => io::ErrorKind::Other,
    };
    StorageError::Source(io::Error::new(kind, error))
}

fn ms(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}

async fn joined<T>(
    task: impl Future<Output = Result<io::Result<T>, tokio::task::JoinError>>,
) -> io::Result<T> {
    task.await.map_err(io::Error::other).and_then(|done| done)
}

/// Compares the SHA-256 of bytes that were read, if it was computed.
pub(crate) fn check_digest(expected: Digest, found: Option<Digest>) -> io::Result<()> {
    match found {
        Some(found) if found != expected => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("its bytes have the SHA-256 {found}"),
        )),
        _ => Ok(()),
    }
}

/// A pack that is being written.
struct OnItsWay<'a> {
    remote: &'a Remote,
    id: PackId,
}

impl OnItsWay<'_> {
    /// Notes that the key may be written later, so that the object is removed.
    fn give_up(&self) {
        let remote = self.remote;
        let noted = remote.index.add(self.id, 0, &[], remote.now_ms(), &mut |_| false);
        if let Err(error) = noted {
            // A later listing finds the object, if there is one.
            tracing::warn!(error = %forebay_base::error_chain::chain(&error), "a key is not noted");
        }
    }
}

impl Drop for OnItsWay<'_> {
    fn drop(&mut self) {
        self.remote.on_their_way.lock().remove(&self.id);
    }
}

/// The bytes of a pack with one large blob.
struct Body<'a> {
    reader: &'a BlockReader,
    digest: Digest,
    size: u64,
    at: u64,
    checksums: Vec<u32>,
    hasher: Option<Sha256>,
    header: Option<Bytes>,
    end: Option<Vec<u8>>,
}

impl Body<'_> {
    fn next(&mut self) -> io::Result<Option<Bytes>> {
        if let Some(header) = self.header.take() {
            return Ok(Some(header));
        }
        if self.at < self.size {
            // Always whole blocks, but for the last.
            let bytes = self.reader.read(self.at, self.size)?;
            self.at += bytes.len() as u64;
            let checksums = bytes.chunks(BLOCK_SIZE).map(forebay_base::checksum::crc32c);
            self.checksums.extend(checksums);
            if let Some(hasher) = &mut self.hasher {
                hasher.update(&bytes);
            }
            return Ok(Some(bytes));
        }
        let Some(end) = self.end.take() else { return Ok(None) };
        let hashed = self.hasher.take().map(|hasher| Digest(hasher.finalize().into()));
        check_digest(self.digest, hashed)?;
        let mut last = file_end(self.digest, self.size, &self.checksums);
        last.extend_from_slice(&end);
        Ok(Some(Bytes::from(last)))
    }
}

/// Whether a file of this directory belongs to object storage; for messages.
pub(crate) fn index_path(dir: &Path) -> PathBuf {
    dir.join(super::INDEX)
}
