//! Listings of files: pages of names, and how their reads share the threads with those of others.
//!
//! Invariant: a listing has everything that was acknowledged before the call.

use std::sync::Arc;

use tokio::task::JoinError;

use crate::Intake;
use crate::catalogue::{
    Browse, Browsed, FileFilter, FileMark, FileOrder, FileRecord, Sorted, SortedPage,
};
use crate::error::{CatalogueError, IntakeError};
use crate::shared::Shared;

impl Intake {
    /// Files and common prefixes of a namespace, as directories show them.
    ///
    /// # Errors
    /// [`IntakeError`] if the catalogue cannot be queried.
    pub async fn browse(&self, browse: Browse, limit: usize) -> Result<Browsed, IntakeError> {
        self.listing(move |shared| shared.reader.browse(&browse, limit)).await
    }

    /// Up to `limit` files that match, by namespace and name, after `after`.
    ///
    /// # Errors
    /// [`IntakeError`] if the catalogue cannot be queried.
    pub async fn list(
        &self,
        filter: FileFilter,
        after: Option<(String, String)>,
        limit: usize,
    ) -> Result<Vec<FileRecord>, IntakeError> {
        let is_long = filter.may_skip();
        let read = move |shared: &Shared| {
            let after = after.as_ref().map(|(namespace, name)| (&**namespace, &**name));
            shared.list(&filter, after, limit)
        };
        if is_long { self.long_listing(read).await } else { self.listing(read).await }
    }

    /// Up to `limit` files that match, in an order, after a mark of it. Reads every name that may match.
    ///
    /// # Errors
    /// [`IntakeError`] if the catalogue cannot be queried.
    pub async fn list_sorted(
        &self,
        filter: FileFilter,
        order: FileOrder,
        after: Option<FileMark>,
        limit: usize,
    ) -> Result<Vec<FileRecord>, IntakeError> {
        self.long_listing(move |shared| {
            shared.list_sorted(&filter, &Sorted::by(order, after.as_ref()), limit)
        })
        .await
    }

    /// Common prefixes of a namespace, by name, and then files in an order, after a mark of it.
    ///
    /// # Errors
    /// [`IntakeError`] if the catalogue cannot be queried.
    pub async fn browse_sorted(
        &self,
        browse: Browse,
        order: FileOrder,
        after: Option<FileMark>,
        limit: usize,
    ) -> Result<SortedPage, IntakeError> {
        self.long_listing(move |shared| {
            shared.reader.browse_sorted(&browse, order, after.as_ref(), limit)
        })
        .await
    }

    /// Reads a listing from the catalogue, once everything that was stored before is in it.
    pub(crate) async fn listing<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Shared) -> Result<T, CatalogueError> + Send + 'static,
    ) -> Result<T, IntakeError> {
        let shared = self.up_to_date().await?;
        let found = forebay_base::blocking::spawn(move || read(&shared)).await;
        Ok(found.map_err(interrupted)??)
    }

    /// The same for a read that may look at every file: few run at the same time.
    pub(crate) async fn long_listing<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Shared) -> Result<T, CatalogueError> + Send + 'static,
    ) -> Result<T, IntakeError> {
        let shared = self.up_to_date().await?;
        let reading = shared.clone();
        let found = shared.long_reads.run(move || read(&reading)).await;
        Ok(found.map_err(interrupted)??)
    }

    /// Returns once everything that was stored before is in the catalogue.
    async fn up_to_date(&self) -> Result<Arc<Shared>, IntakeError> {
        let shared = self.inner.shared.clone();
        shared.catch_up().await?;
        shared.check_whole()?;
        Ok(shared)
    }
}

/// The error of a read that panicked, or whose runtime ended.
pub(crate) fn interrupted(_: JoinError) -> IntakeError {
    IntakeError::ViewStopped { reason: "the query was interrupted".into() }
}
