//! Reports over the files: statistics of any of them, and which contents have several names.

use forebay_base::waiting::Waiting;

use crate::Intake;
use crate::catalogue::{FileFilter, FileRecord, FileStatistics, SharedContent};
use crate::digest::Digest;
use crate::error::IntakeError;
use crate::names::Namespace;

/// Names shown of a content.
const NAMES_MAX: usize = 10;

/// A content with several names, and some of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Duplicate {
    /// The content.
    pub content: SharedContent,
    /// Its first names; versions have none.
    pub files: Vec<FileRecord>,
}

impl Intake {
    /// Adds up the files that a filter selects. Reads every name that may match, and stops when the caller
    /// does not wait any more.
    ///
    /// # Errors
    /// [`IntakeError`] if the catalogue cannot be queried.
    pub async fn statistics(&self, filter: FileFilter) -> Result<FileStatistics, IntakeError> {
        let waiting = Waiting::default();
        let gone = waiting.gone();
        let sums =
            self.long_listing(move |shared| shared.reader.statistics(&filter, &gone)).await?;
        drop(waiting);
        sums.ok_or_else(interrupted)
    }

    /// The `limit` contents whose further copies would take the most space, the largest first. Reads the
    /// whole table of contents, or every name and version of a namespace, and stops when the caller does not
    /// wait any more.
    ///
    /// * `within`: counts and shows the names of this namespace alone; `None`: all.
    /// * `after`: bytes saved and digest of the content that precedes them; `None`: the first ones.
    ///
    /// # Errors
    /// [`IntakeError`] if the catalogue cannot be queried.
    pub async fn duplicates(
        &self,
        within: Option<Namespace>,
        limit: usize,
        after: Option<(u64, Digest)>,
    ) -> Result<Vec<Duplicate>, IntakeError> {
        let waiting = Waiting::default();
        let (gone, namespace) = (waiting.gone(), within.clone());
        let contents = self.long_listing(move |shared| {
            shared.reader.most_shared(within.as_ref(), limit, after, &gone)
        });
        let contents = contents.await?.ok_or_else(interrupted)?;
        drop(waiting);
        let mut duplicates = Vec::with_capacity(contents.len());
        for content in contents {
            let (digest, namespace) = (Some(content.digest), namespace.clone());
            let filter = FileFilter { digest, namespace, ..FileFilter::default() };
            let files = self.list(filter, None, NAMES_MAX).await?;
            duplicates.push(Duplicate { content, files });
        }
        Ok(duplicates)
    }
}

fn interrupted() -> IntakeError {
    IntakeError::ViewStopped { reason: "the report was interrupted".into() }
}
