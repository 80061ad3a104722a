//! A put waits here until the blob store has its bytes, before its entry is appended.
//!
//! Invariants: the digest is pinned meanwhile, so no pass that frees space removes what was stored; a pass that
//! has begun to remove the same digest ends first.

use std::io;
use std::sync::Arc;

use forebay_base::blocking;

use crate::blob::Staging;
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
            (Some(remote), NewBytes::Packed(bytes)) => {
                self.after_removal().await;
                remote.store(digest, &bytes).await
            }
            (Some(remote), NewBytes::Staged(staging)) => {
                self.after_removal().await;
                let stored = match BlockReader::new(staging.file(), size, digest) {
                    Ok(reader) => remote.store_from(reader, digest, size, false).await,
                    Err(error) => Err(error),
                };
                // Its file is removed.
                drop(blocking::spawn(move || drop(staging)));
                stored
            }
        };
        kept.map_err(|source| IntakeError::Blob { act: "keep", source })
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
    pub(crate) async fn after_removal(self: &Arc<Self>) {
        if self.reclaim.try_lock().is_some() {
            return;
        }
        let shared = self.clone();
        let waited = blocking::spawn(move || drop(shared.reclaim.lock())).await;
        if let Err(error) = waited {
            tracing::debug!(%error, "the intake is closing");
        }
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
        if self.is_unnamed
            && let Some(remote) = self.shared.blobs.written_remote()
        {
            remote.leave_to_next_start();
        }
        if let Some(digest) = self.digest {
            self.shared.pending.lock().unpin(digest);
        }
    }
}
