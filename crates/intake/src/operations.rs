//! What callers do with an intake: put, find, list and delete files, ingest and read documents.
//!
//! ```text
//! receive(source) -> Upload -> put(NewFile) -> Put          find -> StoredFile -> read
//! ingest(namespace) -> push, push, ... -> finish            documents, document
//! claim(key) -> Claim: one answer for a repeated request
//! ```
//!
//! Invariants: what changes something returns when the change is as durable as configured; what
//! reads sees everything acknowledged before the call. Callers are the HTTP routes and programs that
//! embed the intake; none of them sees the log.

use std::sync::Arc;

use forebay_log::AppendError;

use crate::Intake;
use crate::attributes::Attributes;
use crate::catalogue::{Answered, BlobLocation, BlobRecord, Change, FileRecord};
use crate::classify::Classified;
use crate::deletes::Deletion;
use crate::digest::Digest;
use crate::documents::ingest::{DocumentIngest, DocumentOptions};
use crate::documents::{NamespaceInfo, PageLimits, StoredDocument, TableSchema};
use crate::error::IntakeError;
use crate::files::{self, Condition, Put};
use crate::format::{IdempotencyRecord, Outcome};
use crate::intake::Inner;
use crate::listing::interrupted;
use crate::names::Namespace;
use crate::options::IntakeLimits;
use crate::pending::{NameKey, Queued};
use crate::request::Claim;
use crate::rules::{Sender, Subject};
use crate::shared::NeededSince;
use crate::upload::{self, FileBytes, Source, Upload};

/// A file to be stored: everything but its bytes.
#[derive(Debug, Clone)]
pub struct NewFile {
    /// Its namespace and name.
    pub key: NameKey,
    /// Comment stored with it; may be empty.
    pub comment: String,
    /// What is stored with the name beside that.
    pub attributes: Attributes,
    /// What [`classify`](crate::classify::classify) says of its bytes and name.
    pub classified: Classified,
    /// What must hold of the name before.
    pub condition: Condition,
    /// The record to store the answer under, if the request had a key.
    pub idempotency: Option<IdempotencyRecord>,
    /// Whether a routing rule may choose the namespace, since the request names none.
    pub is_routed: bool,
    /// Where it comes from.
    pub sender: Sender,
}

/// A file that was found.
#[derive(Debug, Clone)]
pub struct StoredFile {
    /// The file.
    pub record: Arc<FileRecord>,
    blob: BlobRecord,
}

/// A page of documents of a namespace.
#[derive(Debug)]
pub struct DocumentPage {
    /// The namespace.
    pub info: NamespaceInfo,
    /// The columns of its table.
    pub schema: TableSchema,
    /// The documents, in the order they were stored.
    pub documents: Vec<StoredDocument>,
    /// Whether there are more.
    pub more: bool,
}

/// Files.
impl Intake {
    /// Limits on requests.
    #[must_use]
    pub fn limits(&self) -> &IntakeLimits {
        &self.inner.shared.options.limits
    }

    /// Milliseconds since 1970, by the clock that dates files.
    #[must_use]
    pub fn now_ms(&self) -> i64 {
        self.inner.shared.now_ms()
    }

    /// Receives a file's bytes: few in memory, many in a file that is not yet stored.
    ///
    /// * `declared`: the size that the sender declared, if it did.
    ///
    /// # Errors
    /// [`IntakeError`]: too large, too many at once, the sender failed, or the disk did.
    pub async fn receive(
        &self,
        source: &mut impl Source,
        declared: Option<u64>,
    ) -> Result<Upload, IntakeError> {
        upload::take(&self.inner.shared, source, declared).await
    }

    /// Gives a name to bytes. The first routing rule that matches adds what it says.
    ///
    /// # Errors
    /// [`IntakeError`]: the name keeps its state, unless the change was written but is not known
    /// to be durable ([`IntakeError::Commit`]).
    pub async fn put(&self, new: NewFile, upload: Upload) -> Result<Put, IntakeError> {
        let new = self.routed(new, upload.size)?;
        let NewFile { key, comment, attributes, classified, condition, idempotency, .. } = new;
        let Upload { digest, size, bytes, .. } = upload;
        let (mime, category) = (classified.mime.into(), classified.category);
        let new = files::NewFile {
            key,
            comment,
            attributes,
            digest,
            size,
            mime,
            category,
            condition,
            idempotency,
            origin: None,
        };
        let _stored = self.inner.shared.storing.begin();
        // Only a file that is made of another one can lose it meanwhile.
        let put = self.inner.shared.put(new, Some(bytes)).await?;
        let put = put.ok_or(IntakeError::Busy { what: "the file was changed meanwhile" })?;
        crate::meters::file_put(put.duplicate, put.file.size);
        Ok(put)
    }

    /// Applies the first routing rule that matches.
    fn routed(&self, mut new: NewFile, size: u64) -> Result<NewFile, IntakeError> {
        let subject = Subject {
            sender: new.sender,
            name: new.key.1.as_str(),
            namespace: new.key.0.as_str(),
            mime: new.classified.mime,
            category: new.classified.category,
            size,
        };
        if let Some(rule) = self.inner.shared.options.rules.first(&subject) {
            crate::meters::file_routed();
            rule.describe(&mut new.attributes)?;
            if let Some(namespace) = rule.namespace().filter(|_| new.is_routed) {
                new.key.0 = namespace.clone();
            }
        }
        Ok(new)
    }

    /// Deletes a name; returns `None` if it does not exist.
    ///
    /// * `idempotency`: the record to store the answer under, if the request had a key.
    ///
    /// # Errors
    /// As [`Intake::put`].
    pub async fn delete(
        &self,
        key: &NameKey,
        condition: Condition,
        idempotency: Option<IdempotencyRecord>,
    ) -> Result<Option<Deletion>, IntakeError> {
        let deleted = self.inner.shared.delete(key, &condition, idempotency).await?;
        if deleted.is_some() {
            crate::meters::file_deleted();
        }
        Ok(deleted)
    }

    /// The file with this name; `None` if there is none.
    ///
    /// # Errors
    /// [`IntakeError`] if the catalogue cannot be queried.
    pub async fn find(&self, key: &NameKey) -> Result<Option<StoredFile>, IntakeError> {
        Ok(self.inner.shared.file(key).await?.map(StoredFile::new))
    }

    /// The file with this id, if its name still refers to it.
    ///
    /// # Errors
    /// [`IntakeError`] if the catalogue cannot be queried.
    pub async fn find_by_id(&self, id: u64) -> Result<Option<StoredFile>, IntakeError> {
        Ok(self.inner.shared.file_by_id(id).await?.map(StoredFile::new))
    }

    /// The bytes of a file. Those of a small one are read here, those of a large one by the reader
    /// that is returned.
    ///
    /// # Errors
    /// [`IntakeError`]: they cannot be read, or differ from what was stored.
    pub fn read(&self, file: &StoredFile) -> Result<FileBytes, IntakeError> {
        let blob = &file.blob;
        let damaged = |found: String| IntakeError::Damaged { digest: blob.digest.to_hex(), found };
        match blob.place {
            BlobLocation::Entry(lsn) => {
                self.inner.shared.read_packed(blob, lsn).map(FileBytes::Memory)
            }
            BlobLocation::Erased => Err(damaged("they were erased".to_owned())),
            BlobLocation::File => {
                let failed = |source| IntakeError::Blob { act: "open", source };
                let found = self.inner.shared.blobs.open(blob.digest).map_err(failed)?;
                let reader = found.reader(blob.size, blob.digest);
                reader.map(FileBytes::File).map_err(|error| damaged(error.to_string()))
            }
        }
    }

    /// Counts bytes of files that were sent to a client.
    pub fn sent(&self, bytes: u64) {
        crate::meters::sent(bytes);
    }
}

/// Documents.
impl Intake {
    /// Begins to ingest documents into a namespace.
    #[must_use]
    pub fn ingest(&self, namespace: Namespace, options: DocumentOptions) -> DocumentIngest {
        DocumentIngest::new(self.inner.clone(), namespace, options)
    }

    /// The namespaces of documents, by name.
    ///
    /// # Errors
    /// [`IntakeError`] if the document database cannot be queried.
    pub async fn namespaces(&self) -> Result<Vec<NamespaceInfo>, IntakeError> {
        let end = self.inner.newest_commit();
        self.inner.view.reached(end).await?;
        let mut namespaces = self.ask(|inner| inner.namespaces.list()).await?;
        namespaces.retain(|info| !info.is_dropped);
        Ok(namespaces)
    }

    /// A page of a namespace's documents, after the one with id `after`; `None` if there is no
    /// such namespace.
    ///
    /// # Errors
    /// [`IntakeError`] if the document database cannot be queried.
    pub async fn documents(
        &self,
        namespace: &Namespace,
        after: Option<u64>,
        limits: PageLimits,
    ) -> Result<Option<DocumentPage>, IntakeError> {
        self.inner.shown(namespace).await?;
        let namespace = namespace.clone();
        self.ask(move |inner| {
            let found = inner.namespaces.info(&namespace)?.filter(|(info, _)| !info.is_dropped);
            let Some((info, schema)) = found else { return Ok(None) };
            let page = inner.namespaces.documents(&namespace, after, limits)?;
            Ok(Some(DocumentPage { info, schema, documents: page.documents, more: page.more }))
        })
        .await
    }

    /// The document with this id; `None` if there is none.
    ///
    /// # Errors
    /// [`IntakeError`] if the document database cannot be queried.
    pub async fn document(
        &self,
        namespace: &Namespace,
        id: u64,
    ) -> Result<Option<StoredDocument>, IntakeError> {
        self.inner.shown(namespace).await?;
        let namespace = namespace.clone();
        self.ask(move |inner| inner.namespaces.document(&namespace, id)).await
    }

    /// Queries the document database on a thread that may block.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Inner) -> Result<T, IntakeError> + Send + 'static,
    ) -> Result<T, IntakeError> {
        let inner = self.inner.clone();
        let asked = forebay_base::blocking::spawn(move || ask(&inner)).await;
        asked.unwrap_or_else(|error| Err(interrupted(error)))
    }

    /// The same for a query that may compare many documents: few run at the same time.
    pub(crate) async fn ask_long<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Inner) -> Result<T, IntakeError> + Send + 'static,
    ) -> Result<T, IntakeError> {
        let inner = self.inner.clone();
        let asked = self.inner.shared.long_reads.run(move || ask(&inner)).await;
        asked.unwrap_or_else(|error| Err(interrupted(error)))
    }
}

/// Repeated requests.
impl Intake {
    /// Remembers requests for longer than usual: those answered since the time that `since` returns, in
    /// milliseconds since 1970. For work that may send a request again after any time. Only the first
    /// call counts.
    pub fn hold_requests(&self, since: impl Fn() -> Option<i64> + Send + Sync + 'static) {
        let since = NeededSince(Box::new(since));
        self.inner.shared.needed_since.get_or_init(|| since);
    }

    /// Claims an idempotency key for a request.
    ///
    /// * `key`: from [`RequestKey`](crate::request::RequestKey), or a digest of another kind.
    ///
    /// # Errors
    /// [`IntakeError::KeyInUse`]: another request holds it. Others: it cannot be looked up.
    pub async fn claim(&self, key: Digest) -> Result<Claim, IntakeError> {
        self.inner.shared.claim(key).await
    }

    /// Makes an answer the one that every repetition of the request receives. For a request that
    /// is several changes; a single one takes the record with it.
    ///
    /// # Errors
    /// [`IntakeError`]: the log does not take it.
    pub async fn remember(
        &self,
        record: IdempotencyRecord,
        status: u16,
        answer: &[u8],
    ) -> Result<(), IntakeError> {
        let shared = &self.inner.shared;
        let created_ms = shared.now_ms();
        let entry = Outcome { created_ms, status, idempotency: record, answer }.encode();
        loop {
            let appended = {
                let mut pending = shared.pending.lock();
                match shared.log.try_append(&[&entry]) {
                    Ok(appended) => {
                        let answer = answer.to_vec();
                        let answered = Answered { record, status, answer, created_ms };
                        let queued = Queued {
                            lsn: appended.lsn,
                            end: appended.end,
                            change: Change::Nothing,
                            answered: Some(Arc::new(answered)),
                        };
                        shared.queue(&mut pending, queued);
                        Some(appended.end)
                    }
                    Err(AppendError::Full { .. }) => None,
                    Err(error) => return Err(IntakeError::Append(error)),
                }
            };
            match appended {
                Some(end) => return shared.committed(end).await,
                None => shared.log.room(entry.len()).await,
            }
        }
    }
}

impl StoredFile {
    /// A file and the blob that its record refers to.
    pub(crate) fn of(record: Arc<FileRecord>, blob: BlobRecord) -> Self {
        Self { record, blob }
    }

    fn new((record, blob): (Arc<FileRecord>, BlobRecord)) -> Self {
        Self { record, blob }
    }
}
