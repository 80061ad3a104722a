//! Moving blobs to the place that new ones go to, while the intake is used.
//!
//! A blob is pinned, copied with its SHA-256 compared, and only then removed from where it was. So it is in
//! at least one place at every moment, and a move that is interrupted is continued by the next one. What that finds
//! in both places it reads in the new one before it removes the old one.
//!
//! Invariants: a blob that is damaged stays where it is; a blob that is deleted meanwhile is not brought back.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use forebay_base::blocking;
use forebay_base::error_chain::chain;
use futures_util::StreamExt as _;
use parking_lot::Mutex;
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use utoipa::ToSchema;

use super::keeping::Pinned;
use super::remote::{Remote, check_digest};
use super::storage::StorageError;
use crate::Intake;
use crate::blob::Staging;
use crate::blocks::BlockReader;
use crate::catalogue::{BlobLocation, BlobRecord};
use crate::digest::Digest;
use crate::error::IntakeError;
use crate::listing::interrupted;
use crate::pieces::{Gathered, PieceWriter};
use crate::shared::Shared;

/// Blobs that are moved at the same time.
const MOVES_MAX: usize = 16;
/// Blobs read from the catalogue at a time.
const PAGE: usize = 1_000;

/// Where blobs are, and the move that is in progress or was the last.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct BlobsStatus {
    /// Where new blobs go: `local` or `s3://BUCKET/PREFIX`.
    pub place: String,
    /// The bucket that is read beside it, if another place is left.
    pub from: Option<String>,
    /// Why nothing can be stored in the bucket at the moment.
    pub trouble: Option<String>,
    /// Objects in the bucket.
    pub packs: u64,
    /// Bytes of these objects.
    pub pack_bytes: u64,
    /// Blobs in them.
    pub blobs: u64,
    /// The move.
    pub moving: Moving,
}

/// A move of blobs.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub struct Moving {
    /// Whether it is in progress.
    pub running: bool,
    /// Blobs that were looked at.
    pub examined: u64,
    /// Blobs that were moved.
    pub moved: u64,
    /// Their bytes.
    pub moved_bytes: u64,
    /// Blobs that could not be moved because they are damaged; the log names them.
    pub damaged: u64,
    /// Why it ended before everything was moved.
    pub error: Option<String>,
}

/// The state of a move.
#[derive(Debug, Default)]
pub(crate) struct MoveState(Mutex<Moving>);

impl MoveState {
    /// Begins a move, unless one is in progress.
    fn begin(&self) -> bool {
        let mut moving = self.0.lock();
        if moving.running {
            return false;
        }
        *moving = Moving { running: true, ..Moving::default() };
        true
    }

    fn change(&self, change: impl FnOnce(&mut Moving)) {
        change(&mut self.0.lock());
    }
}

impl Intake {
    /// Where blobs are. Queries the index of packs.
    ///
    /// # Errors
    /// [`IntakeError`]: the index cannot be read.
    pub async fn blobs(&self) -> Result<BlobsStatus, IntakeError> {
        self.ask(|inner| {
            let shared = &inner.shared;
            let remote = shared.blobs.remote();
            let totals = match remote {
                Some(remote) => remote.totals().map_err(IntakeError::Catalogue)?,
                None => super::index::Totals::default(),
            };
            let url = remote.map(|remote| remote.storage().url());
            let is_written = shared.blobs.written_remote().is_some();
            let (place, from) = if is_written { (url, None) } else { (None, url) };
            Ok(BlobsStatus {
                place: place.unwrap_or_else(|| "local".to_owned()),
                from,
                trouble: remote.and_then(|remote| remote.trouble()),
                packs: totals.packs,
                pack_bytes: totals.bytes,
                blobs: totals.blobs,
                moving: shared.moving.0.lock().clone(),
            })
        })
        .await
    }

    /// Why nothing can be stored in the bucket that new blobs go to; `None` if it can, or there is none.
    #[must_use]
    pub fn blobs_trouble(&self) -> Option<String> {
        self.inner.shared.blobs.remote()?.trouble()
    }

    /// Bytes of small files that wait to be sent to the bucket, or are on their way.
    #[must_use]
    pub fn blobs_waiting(&self) -> usize {
        self.inner.shared.blobs.remote().map_or(0, |remote| remote.waiting_bytes())
    }

    /// Begins to move what is elsewhere to the place of new blobs. Returns `false` if that is in progress.
    ///
    /// # Errors
    /// [`IntakeError::Rejected`]: there is only one place.
    pub fn start_moving_blobs(&self) -> Result<bool, IntakeError> {
        let shared = &self.inner.shared;
        if shared.blobs.remote().is_none() {
            return Err(IntakeError::rejected(
                "one_place",
                "all files are on this machine, and no other place is configured; set intake.blobs to move \
                 them to a bucket, or intake.blobs_from to move them from one",
            ));
        }
        if !shared.moving.begin() {
            return Ok(false);
        }
        let intake = self.clone();
        // It ends when the intake is drained.
        drop(tokio::spawn(async move {
            if let Err(error) = move_and_note(&intake).await {
                tracing::error!(error = %chain(&error), "not all blobs were moved");
            }
        }));
        Ok(true)
    }

    /// Moves what is elsewhere to the place of new blobs, and waits for the end of that.
    ///
    /// # Errors
    /// As [`start_moving_blobs`](Self::start_moving_blobs), or why it ended.
    pub async fn move_blobs(&self) -> Result<Moving, IntakeError> {
        if !self.inner.shared.moving.begin() {
            return Err(IntakeError::Busy { what: "blobs are being moved" });
        }
        move_and_note(self).await
    }
}

/// Moves everything, and notes how that ended.
async fn move_and_note(intake: &Intake) -> Result<Moving, IntakeError> {
    let shared = &intake.inner.shared;
    let ended = move_all(intake, shared).await;
    shared.moving.change(|moving| {
        moving.running = false;
        moving.error = ended.as_ref().err().map(|error| chain(error).to_string());
    });
    ended.map(|()| shared.moving.0.lock().clone())
}

async fn move_all(intake: &Intake, shared: &Arc<Shared>) -> Result<(), IntakeError> {
    // What was acknowledged before is in the catalogue then, and what was deleted is not moved. What is stored
    // later is in the right place.
    shared.reclaim_now().await?;
    let mut after = None;
    loop {
        if *intake.inner.draining.borrow() {
            return Err(IntakeError::Busy { what: "the server is stopping" });
        }
        let from = shared.clone();
        let page = blocking::spawn(move || from.reader.blobs_after(after, PAGE));
        let page = page.await.map_err(interrupted)??;
        let Some((last, _)) = page.last() else { return Ok(()) };
        after = Some(last.digest);
        shared.moving.change(|moving| moving.examined += page.len() as u64);
        let blobs =
            page.into_iter().filter(|(blob, refs)| *refs > 0 && blob.place == BlobLocation::File);
        let has_failed = AtomicBool::new(false);
        let moves = futures_util::stream::iter(blobs)
            .map(|(blob, _)| move_unless(&has_failed, shared, blob));
        // Those that have begun are waited for.
        let moved: Vec<io::Result<()>> = moves.buffer_unordered(MOVES_MAX).collect().await;
        if let Some(source) = moved.into_iter().find_map(Result::err) {
            return Err(IntakeError::Blob { act: "move", source });
        }
    }
}

/// Moves a blob unless another could not be moved.
async fn move_unless(
    has_failed: &AtomicBool,
    shared: &Arc<Shared>,
    blob: BlobRecord,
) -> io::Result<()> {
    if has_failed.load(Relaxed) {
        return Ok(());
    }
    move_one(shared, blob).await.inspect_err(|_| has_failed.store(true, Relaxed))
}

/// Moves a blob that is in the wrong place.
async fn move_one(shared: &Arc<Shared>, blob: BlobRecord) -> io::Result<()> {
    let Some(remote) = shared.blobs.remote() else { return Ok(()) };
    let mut pinned = Pinned::none(shared);
    if !pinned.pin_living(blob.digest) {
        return Ok(());
    }
    let is_there = match remote.options.is_written {
        true => {
            let (local, digest) = (shared.blobs.local().clone(), blob.digest);
            blocking::spawn(move || local.has(digest)).await.map_err(io::Error::other)??
        }
        false => remote.index.find(blob.digest).map_err(io::Error::other)?.is_some(),
    };
    // Whether it was deleted before it was pinned.
    let is_needed = || shared.reader.blob(blob.digest).map_err(io::Error::other);
    if !is_there || is_needed()?.is_none_or(|found| found.place != BlobLocation::File) {
        return Ok(());
    }
    let moved = match remote.options.is_written {
        true => to_bucket(shared, remote, blob).await,
        false => to_file(shared, remote, blob).await,
    };
    match moved {
        Ok(()) => {
            super::meters::moved();
            shared.moving.change(|moving| {
                moving.moved += 1;
                moving.moved_bytes += blob.size;
            });
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            tracing::error!(digest = %blob.digest, %error, "a damaged blob is not moved");
            shared.moving.change(|moving| moving.damaged += 1);
            Ok(())
        }
        Err(error) => Err(error),
    }
}

async fn to_bucket(shared: &Arc<Shared>, remote: &Arc<Remote>, blob: BlobRecord) -> io::Result<()> {
    let BlobRecord { digest, size, .. } = blob;
    let (local, from) = (shared.blobs.local().clone(), remote.clone());
    let reader = blocking::spawn(move || -> io::Result<Option<BlockReader>> {
        let found = from.find(digest).map_err(io::Error::other)?;
        let there = found.map(|found| BlockReader::remote(found, size, digest));
        match there.map(|reader| is_whole(reader, digest, size)).transpose()? {
            Some(true) => Ok(None),
            _ => BlockReader::new(local.open_blob(digest)?, size, digest).map(Some),
        }
    });
    if let Some(reader) = reader.await.map_err(io::Error::other)?? {
        remote.store_from(reader, digest, size, true).await?;
    }
    let local = shared.blobs.local().clone();
    blocking::spawn(move || local.remove(digest)).await.map_err(io::Error::other)?
}

async fn to_file(shared: &Arc<Shared>, remote: &Arc<Remote>, blob: BlobRecord) -> io::Result<()> {
    let (shared, remote) = (shared.clone(), remote.clone());
    let moved = blocking::spawn(move || {
        let BlobRecord { digest, size, .. } = blob;
        let there = match shared.blobs.local().open_blob(digest) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            opened => is_whole(
                opened.and_then(|file| BlockReader::new(file, size, digest)),
                digest,
                size,
            )?,
        };
        if !there {
            let found = remote.find(digest).map_err(io::Error::other)?;
            let found = found.ok_or(io::Error::from(StorageError::Missing))?;
            let staging = copy(&shared, &BlockReader::remote(found, size, digest)?, digest, size)?;
            // An image has it in the bucket, where its pack is kept for a time, or in its file.
            let _no_image = shared.imaging.lock();
            {
                let _no_removal = shared.reclaim.lock();
                staging.keep(digest)?;
            }
            return remote.remove(&[digest]).map_err(io::Error::other);
        }
        remote.remove(&[digest]).map_err(io::Error::other)
    });
    moved.await.map_err(io::Error::other)?
}

/// Reads a blob that is in the new place already. Returns whether it is undamaged.
///
/// # Errors
/// It cannot be read at the moment.
fn is_whole(reader: io::Result<BlockReader>, digest: Digest, size: u64) -> io::Result<bool> {
    let read = reader.and_then(|reader| {
        let (mut hasher, mut at) = (Sha256::new(), 0);
        while at < size {
            let bytes = reader.read(at, size)?;
            at += bytes.len() as u64;
            hasher.update(&bytes);
        }
        check_digest(digest, Some(Digest(hasher.finalize().into())))
    });
    match read {
        Ok(()) => Ok(true),
        Err(error)
            if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::NotFound) =>
        {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Writes a blob into a file that has no name yet.
fn copy(shared: &Shared, reader: &BlockReader, digest: Digest, size: u64) -> io::Result<Staging> {
    let mut writer = PieceWriter::new(shared.blobs.local().stage()?);
    let (mut gathered, mut hasher, mut at) = (Gathered::default(), Sha256::new(), 0);
    while at < size {
        let bytes = reader.read(at, size)?;
        at += bytes.len() as u64;
        hasher.update(&bytes);
        gathered.push(&bytes);
        for piece in gathered.take_full() {
            writer.write(piece)?;
            gathered.reuse(writer.take_written());
        }
    }
    check_digest(digest, Some(Digest(hasher.finalize().into())))?;
    Ok(writer.finish(gathered, digest)?.0)
}
