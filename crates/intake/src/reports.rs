//! Reports over the files: statistics of any of them, and which contents have several names.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::Intake;
use crate::catalogue::{FileFilter, FileRecord, FileStatistics, SharedContent};
use crate::error::IntakeError;

/// Names shown of a content.
const NAMES_MAX: usize = 10;
/// Statistics that are computed at the same time: each needs up to 50 MB of memory.
pub(crate) const STATISTICS_MAX: usize = 4;

/// A content with several names, and some of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Duplicate {
    /// The content.
    pub content: SharedContent,
    /// Its first names; versions have none.
    pub files: Vec<FileRecord>,
}

/// A caller that waits; when it does not any more, what it waits for stops.
struct Waiting(Arc<AtomicBool>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Intake {
    /// Adds up the files that a filter selects. Reads every name that may match, and stops when the caller
    /// does not wait any more.
    ///
    /// # Errors
    /// [`IntakeError::Busy`]: four are being computed already. Others if the catalogue cannot be queried.
    pub async fn statistics(&self, filter: FileFilter) -> Result<FileStatistics, IntakeError> {
        let turns = self.inner.shared.statistics.clone();
        let busy = |_| IntakeError::Busy { what: "statistics of other files are being computed" };
        let turn = turns.try_acquire_owned().map_err(busy)?;
        let waiting = Waiting(Arc::new(AtomicBool::new(false)));
        let stop = waiting.0.clone();
        let sums = self.listing(move |shared| {
            let _turn = turn;
            shared.reader.statistics(&filter, &stop)
        });
        let stopped = || IntakeError::ViewStopped { reason: "the report was interrupted".into() };
        sums.await?.ok_or_else(stopped)
    }

    /// The `limit` contents whose further copies would take the most space, the largest first. Reads the
    /// whole table of contents.
    ///
    /// # Errors
    /// [`IntakeError`] if the catalogue cannot be queried.
    pub async fn duplicates(&self, limit: usize) -> Result<Vec<Duplicate>, IntakeError> {
        let contents = self.long_listing(move |shared| shared.reader.most_shared(limit)).await?;
        let mut duplicates = Vec::with_capacity(contents.len());
        for content in contents {
            let digest = Some(content.blob.digest);
            let filter = FileFilter { digest, ..FileFilter::default() };
            let files = self.list(filter, None, NAMES_MAX).await?;
            duplicates.push(Duplicate { content, files });
        }
        Ok(duplicates)
    }
}
