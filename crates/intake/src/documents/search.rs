//! Documents that pass a query, and the news of further ones.
//!
//! A query reads the documents of its namespace in their order, verifies each row, and compares it here: a
//! condition in SQL would pass over a row that was altered. Pages bound what one request reads.

use std::collections::VecDeque;

use forebay_sink::{StoredDocument, TableSchema};
use forebay_sqlite::{NamespaceInfo, PageLimits};
use tokio::sync::watch;

use super::query::DocumentQuery;
use crate::Intake;
use crate::error::IntakeError;
use crate::names::Namespace;
use crate::shared::Applied;

/// Maximum number of documents that one request compares.
const EXAMINED_MAX: u64 = 200_000;
/// Documents read at a time.
const STEP: PageLimits = PageLimits { rows_max: 1_000, bytes_max: 8 << 20 };

/// A page of the documents that pass a query.
#[derive(Debug)]
pub struct FoundDocuments {
    /// The namespace.
    pub info: NamespaceInfo,
    /// The columns of its table.
    pub schema: TableSchema,
    /// The documents, in the order they were stored.
    pub documents: Vec<StoredDocument>,
    /// Id after which the next page begins; `None` if all documents were compared.
    pub next: Option<u64>,
    /// Number of documents that were compared.
    pub examined: u64,
}

/// Waits for documents.
#[derive(Debug)]
pub struct DocumentChanges {
    applied: watch::Receiver<Applied>,
    draining: watch::Receiver<bool>,
}

impl DocumentChanges {
    /// Waits until documents were stored since the last call; returns `false` if the intake is about to
    /// close.
    pub async fn changed(&mut self) -> bool {
        tokio::select! {
            changed = self.applied.changed() => {
                changed.is_ok() && self.applied.borrow().stopped.is_none()
            }
            _ = self.draining.wait_for(|draining| *draining) => false,
        }
    }
}

impl Intake {
    /// Returns news of documents that are stored from now on.
    #[must_use]
    pub fn document_changes(&self) -> DocumentChanges {
        let applied = self.inner.view.applied.subscribe();
        DocumentChanges { applied, draining: self.inner.draining.subscribe() }
    }

    /// A page of the documents of a namespace that pass a query, after the one with id `after`; `None` if
    /// there is no such namespace.
    ///
    /// A page may have fewer documents than `limits` although there are more: a request compares a limited
    /// number of them.
    ///
    /// # Errors
    /// [`IntakeError`] if the document database cannot be queried.
    pub async fn find_documents(
        &self,
        namespace: &Namespace,
        query: DocumentQuery,
        after: Option<u64>,
        limits: PageLimits,
    ) -> Result<Option<FoundDocuments>, IntakeError> {
        self.inner.shown(namespace).await?;
        let namespace = namespace.clone();
        self.ask_long(move |inner| {
            let found = inner.namespaces.info(&namespace)?.filter(|(info, _)| !info.is_dropped);
            let Some((info, schema)) = found else { return Ok(None) };
            let mut found =
                FoundDocuments { info, schema, documents: Vec::new(), next: after, examined: 0 };
            let mut bytes = 0;
            loop {
                let page = inner.namespaces.documents(&namespace, found.next, STEP)?;
                let mut documents = VecDeque::from(page.documents);
                while let Some(document) = documents.pop_front() {
                    let passes = query.passes(&document.raw).map_err(|error| {
                        let digest = format!("document {}", document.id);
                        IntakeError::Damaged { digest, found: error.to_string() }
                    })?;
                    if passes {
                        let is_full = found.documents.len() >= limits.rows_max
                            || !found.documents.is_empty()
                                && bytes + document.raw.len() > limits.bytes_max;
                        if is_full {
                            return Ok(Some(found));
                        }
                        bytes += document.raw.len();
                    }
                    found.examined += 1;
                    found.next = Some(document.id);
                    if passes {
                        found.documents.push(document);
                    }
                }
                if !page.more {
                    found.next = None;
                    return Ok(Some(found));
                }
                if found.examined >= EXAMINED_MAX {
                    return Ok(Some(found));
                }
            }
        })
        .await
    }
}
