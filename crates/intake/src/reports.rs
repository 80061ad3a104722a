//! Reports over the files: what a namespace holds, and which contents have several names.

use crate::Intake;
use crate::catalogue::{CatalogueReader, FileFilter, FileRecord, NamespaceSums, SharedContent};
use crate::error::{CatalogueError, IntakeError};
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
    /// Adds up the files of a namespace. Reads all of its names.
    ///
    /// # Errors
    /// [`IntakeError`] if the catalogue cannot be queried.
    pub async fn namespace_sums(
        &self,
        namespace: &Namespace,
    ) -> Result<NamespaceSums, IntakeError> {
        let namespace = namespace.clone();
        self.report(move |reader| reader.namespace_sums(&namespace)).await
    }

    /// The `limit` contents whose further copies would take the most space, the largest first. Reads the
    /// whole table of contents.
    ///
    /// # Errors
    /// [`IntakeError`] if the catalogue cannot be queried.
    pub async fn duplicates(&self, limit: usize) -> Result<Vec<Duplicate>, IntakeError> {
        let contents = self.report(move |reader| reader.most_shared(limit)).await?;
        let mut duplicates = Vec::with_capacity(contents.len());
        for content in contents {
            let digest = Some(content.blob.digest);
            let filter = FileFilter { digest, ..FileFilter::default() };
            let files = self.list(filter, None, NAMES_MAX).await?;
            duplicates.push(Duplicate { content, files });
        }
        Ok(duplicates)
    }

    async fn report<T: Send + 'static>(
        &self,
        read: impl FnOnce(&CatalogueReader) -> Result<T, CatalogueError> + Send + 'static,
    ) -> Result<T, IntakeError> {
        let shared = self.inner.shared.clone();
        shared.catch_up().await?;
        shared.check_whole()?;
        let found = forebay_base::blocking::spawn(move || read(&shared.reader));
        let interrupted =
            |_| IntakeError::ViewStopped { reason: "the report was interrupted".into() };
        Ok(found.await.map_err(interrupted)??)
    }
}
