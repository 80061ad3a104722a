//! Files that are kept for a limited time are deleted when it has passed.
//!
//! How long a file is kept is an attribute of it ([`Attributes::keep`](crate::attributes::Attributes::keep)),
//! counted from when its name was given or changed. A pass reads every name; the earliest time at which a
//! file expires is remembered, so that there is none before.
//!
//! Invariants: a file is deleted only in the state that has expired; one that was replaced or changed
//! meanwhile stays. A deletion is that of any client: versions, quotas and webhooks see it.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use crate::Intake;
use crate::catalogue::{FileFilter, FileRecord};
use crate::error::IntakeError;
use crate::files::Condition;
use crate::pending::NameKey;
use crate::shared::Shared;

/// The shortest pause between two passes.
const PAUSE_MIN: Duration = Duration::from_secs(60);
/// The pause after a pass, in multiples of what it took.
const PAUSE_FACTOR: u32 = 20;
/// Names that are read at once.
const PAGE: usize = 1_000;
/// Deletions at the same time.
const DELETIONS: usize = 64;

/// When the next file expires.
#[derive(Debug)]
pub(crate) struct Expiry {
    /// No file expires before this time, in milliseconds since 1970.
    next_ms: AtomicI64,
}

impl Default for Expiry {
    /// Nothing is known: the first pass finds out.
    fn default() -> Self {
        Self { next_ms: AtomicI64::new(i64::MIN) }
    }
}

impl Expiry {
    /// Records that a file has been stored or changed, after its entry was appended.
    pub(crate) fn expects(&self, file: &FileRecord) {
        if let Some(ms) = file.expires_ms() {
            self.next_ms.fetch_min(ms, Relaxed);
        }
    }
}

impl FileRecord {
    /// When it is deleted, in milliseconds since 1970; `None` if it is kept for ever.
    #[must_use]
    pub fn expires_ms(&self) -> Option<i64> {
        let keep_ms = i64::try_from(self.attributes.keep()?.as_millis()).unwrap_or(i64::MAX);
        Some(self.created_ms.saturating_add(keep_ms))
    }
}

/// What a pass has found.
struct Pass {
    removed: u64,
    /// When the next file expires, in milliseconds since 1970.
    next_ms: i64,
}

impl Intake {
    /// Deletes the files whose time has passed. Returns how many.
    ///
    /// # Errors
    /// [`IntakeError`]: the catalogue cannot be read, or a name cannot be deleted. What is left is deleted
    /// by the next call.
    pub async fn remove_expired(&self) -> Result<u64, IntakeError> {
        let expiry = &self.inner.shared.expiry;
        let now_ms = self.now_ms();
        // What a stalled log holds is not shown, and may still be acknowledged.
        if now_ms < expiry.next_ms.load(Relaxed) || self.inner.shared.log.stalled().is_some() {
            return Ok(0);
        }
        // Entries from here on lower it again; those before are in what the pass reads.
        expiry.next_ms.store(i64::MAX, Relaxed);
        let pass = self.pass(now_ms).await;
        let next_ms = pass.as_ref().map_or(i64::MIN, |pass| pass.next_ms);
        expiry.next_ms.fetch_min(next_ms, Relaxed);
        let removed = pass?.removed;
        crate::meters::files_expired(removed);
        Ok(removed)
    }

    /// Deletes files whose time has passed until the intake is drained.
    pub async fn keep_removing_expired(self) {
        let mut draining = self.inner.draining.subscribe();
        let mut pause = Duration::ZERO;
        loop {
            tokio::select! {
                // An error means that the intake is gone.
                _ = draining.wait_for(|is_draining| *is_draining) => return,
                () = tokio::time::sleep(pause) => {}
            }
            let started = Instant::now();
            match self.remove_expired().await {
                Ok(0) => {}
                Ok(files) => tracing::info!(files, "deleted files whose time has passed"),
                Err(error) => {
                    let error = forebay_base::error_chain::chain(&error);
                    tracing::warn!(%error, "could not delete files whose time has passed");
                }
            }
            pause = PAUSE_MIN.max(started.elapsed() * PAUSE_FACTOR);
        }
    }

    async fn pass(&self, now_ms: i64) -> Result<Pass, IntakeError> {
        let shared = &self.inner.shared;
        shared.catch_up().await?;
        let mut pass = Pass { removed: 0, next_ms: i64::MAX };
        let mut after = None;
        loop {
            let files = page(shared.clone(), after).await?;
            let Some(last) = files.last() else { return Ok(pass) };
            after = Some((last.namespace.clone(), last.name.clone()));
            let mut expired = Vec::new();
            for file in files {
                match file.expires_ms() {
                    None => {}
                    Some(ms) if ms > now_ms => pass.next_ms = pass.next_ms.min(ms),
                    Some(_) => expired.push(file),
                }
            }
            let removals = stream::iter(expired).map(|file| self.remove(file));
            pass.removed += removals
                .buffer_unordered(DELETIONS)
                .try_fold(0, |sum, removed| async move { Ok(sum + u64::from(removed)) })
                .await?;
        }
    }

    /// Deletes a file. Returns whether it still was what the name refers to.
    async fn remove(&self, file: FileRecord) -> Result<bool, IntakeError> {
        let key = (file.namespace, file.name);
        match self.delete(&key, Condition::Id(file.id), None).await {
            Ok(deleted) => Ok(deleted.is_some()),
            Err(IntakeError::Precondition { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

async fn page(shared: Arc<Shared>, after: Option<NameKey>) -> Result<Vec<FileRecord>, IntakeError> {
    shared.check_whole()?;
    let read = forebay_base::blocking::spawn(move || {
        let after = after.as_ref().map(|(namespace, name)| (namespace.as_str(), name.as_str()));
        shared.reader.list(&FileFilter::default(), after, PAGE)
    });
    let interrupted = |_| IntakeError::ViewStopped { reason: "a pass was interrupted".into() };
    Ok(read.await.map_err(interrupted)??)
}
