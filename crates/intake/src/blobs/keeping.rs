//! A put waits here until the blob store has its bytes, before its entry is appended.
//!
//! Invariants: the digest is pinned meanwhile, so no pass that frees space removes what was stored; a pass that
//! has begun to remove the same digest ends first.

use std::io;
use std::sync::Arc;

use forebay_base::blocking;

use crate::blob::Staging;
use crate::blobs::Remote;
use crate::blocks::BlockReader;
use crate::digest::Digest;
use crate::error::IntakeError;
use crate::files::NewBytes;
use crate::shared::Shared;

impl Shared {
    /// Has the blob store take bytes over. The digest is pinned.
    pub(crate) async fn keep(
        self: &Arc<Self>,
        bytes: NewBytes,
        digest: Digest,
        size: u64,
    ) -> Result<(), IntakeError> {
        let kept = match (self.blobs.written_remote().cloned(), bytes) {
            (None, NewBytes::Staged(staging)) => self.keep_file(staging, digest).await,
            (None, NewBytes::Packed(_)) => Err(io::Error::other("the log was to take these bytes")),
            (Some(remote), NewBytes::Packed(bytes)) => match self.after_removal().await {
                Ok(()) => remote.store(digest, &bytes).await,
                Err(error) => Err(error),
            },
            (Some(remote), NewBytes::Staged(staging)) => {
                self.keep_staged(&remote, staging, digest, size).await
            }
        };
        kept.map_err(|source| IntakeError::Blob { act: "keep", source })
    }

    /// Sends a staged file, which is removed.
    async fn keep_staged(
        self: &Arc<Self>,
        remote: &Arc<Remote>,
        staging: Staging,
        digest: Digest,
        size: u64,
    ) -> io::Result<()> {
        self.after_removal().await?;
        let reader = BlockReader::new(staging.file(), size, digest)?;
        let stored = remote.store_from(reader, digest, size, false).await;
        let removed = blocking::spawn(move || drop(staging)).await;
        stored.and(removed.map_err(io::Error::other))
    }

    /// Gives staged bytes their final name, but not during a removal.
    async fn keep_file(self: &Arc<Self>, staging: Staging, digest: Digest) -> io::Result<()> {
        let shared = self.clone();
        let kept = blocking::spawn(move || {
            let _no_removal = shared.reclaim.lock();
            staging.keep(digest)
        });
        kept.await.map_err(io::Error::other).and_then(|kept| kept)
    }

    /// Waits for a removal that is in progress: it may have begun before the digest was pinned. Later ones leave
    /// it alone.
    ///
    /// # Errors
    /// The runtime is ending, so that it is not known whether the removal has ended.
    pub(crate) async fn after_removal(self: &Arc<Self>) -> io::Result<()> {
        if self.reclaim.try_lock().is_some() {
            return Ok(());
        }
        let shared = self.clone();
        let waited = blocking::spawn(move || drop(shared.reclaim.lock())).await;
        waited.map_err(io::Error::other)
    }
}

/// Keeps one digest pinned until dropped.
pub(crate) struct Pinned<'a> {
    shared: &'a Shared,
    digest: Option<Digest>,
    /// The blob store may have bytes that no entry names yet.
    is_unnamed: bool,
}

impl<'a> Pinned<'a> {
    pub(crate) fn none(shared: &'a Shared) -> Self {
        Self { shared, digest: None, is_unnamed: false }
    }

    pub(crate) fn pin(&mut self, digest: Digest) {
        if self.digest.is_none() {
            self.shared.pending.lock().pin(digest);
            self.digest = Some(digest);
        }
    }

    /// Notes that the blob store is about to take bytes over.
    pub(crate) fn keeps(&mut self) {
        self.is_unnamed = true;
    }

    /// Notes that an entry names them.
    pub(crate) fn named(mut self) {
        self.is_unnamed = false;
    }

    /// Pins a digest unless its bytes are being removed at this moment. Returns whether it is pinned.
    pub(crate) fn pin_living(&mut self, digest: Digest) -> bool {
        let mut pending = self.shared.pending.lock();
        if matches!(pending.blob(digest), crate::pending::BlobSeen::Doomed) {
            return false;
        }
        if self.digest.is_none() {
            pending.pin(digest);
            self.digest = Some(digest);
        }
        true
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        let Some(digest) = self.digest else { return };
        if self.is_unnamed
            && let Some(remote) = self.shared.blobs.written_remote()
        {
            remote.unnamed.note(digest);
        }
        self.shared.pending.lock().unpin(digest);
    }
}
