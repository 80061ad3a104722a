//! Namespaces of files: those that have a record of their own, and those that only have files.
//!
//! A namespace exists as soon as it has a file. A record makes it exist without one, and holds its settings.
//! Records are few: all of them are in memory, changed under the queue's lock in the order of the log, and
//! read from the catalogue when the intake is opened.
//!
//! Invariants: a record is in memory exactly if its newest entry is in the log; an answer about a record
//! waits until that entry is as durable as configured; a record is removed only while its namespace has no
//! files.

use std::collections::BTreeMap;

use forebay_log::{AppendError, Lsn};

use crate::Intake;
use crate::attributes::Attributes;
use crate::catalogue::{Change, FileFilter, NamespaceRecord};
use crate::error::IntakeError;
use crate::format::NamespaceChange;
use crate::names::Namespace;
use crate::pending::{Pending, Queued};

/// Maximum number of namespaces with records.
pub const NAMESPACE_RECORDS_MAX: usize = 10_000;
/// How often the removal of a record is tried while other files are changed.
const ATTEMPTS_MAX: usize = 100;

/// The records, and how far the log must be durable for an answer about them.
#[derive(Debug, Default)]
pub(crate) struct Records {
    pub(crate) records: BTreeMap<Namespace, NamespaceRecord>,
    end: Option<Lsn>,
}

/// A namespace of files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileNamespace {
    /// The namespace.
    pub namespace: Namespace,
    /// Its record; `None` if it exists because it has files.
    pub record: Option<NamespaceRecord>,
}

/// The result of a change under the lock.
enum Step {
    /// It is decided, and acknowledged once the log is durable up to `end`.
    Done { end: Option<Lsn>, changed: bool },
    /// The log's buffer is full.
    Full,
    /// The catalogue has changed meanwhile.
    Again,
}

fn not_empty(namespace: &Namespace) -> IntakeError {
    let text =
        format!("the namespace {namespace} has files or versions of files; delete them first");
    IntakeError::rejected("namespace_not_empty", text)
}

impl Records {
    pub(crate) fn new(records: Vec<NamespaceRecord>) -> Self {
        let records = records.into_iter().map(|record| (record.namespace.clone(), record));
        Self { records: records.collect(), end: None }
    }
}

impl Intake {
    /// The record of a namespace; `None` if it has none.
    ///
    /// # Errors
    /// [`IntakeError::Commit`]: the newest change is not known to be durable.
    pub async fn namespace_record(
        &self,
        namespace: &Namespace,
    ) -> Result<Option<NamespaceRecord>, IntakeError> {
        let (found, end) = {
            let pending = self.inner.shared.pending.lock();
            (pending.records.records.get(namespace).cloned(), pending.records.end)
        };
        self.inner.shared.certain(end).await?;
        Ok(found)
    }

    /// Namespaces that have a record or files, by name, after `after`; at most `limit`.
    ///
    /// # Errors
    /// [`IntakeError`] if the catalogue cannot be queried.
    pub async fn file_namespaces(
        &self,
        after: Option<String>,
        limit: usize,
    ) -> Result<Vec<FileNamespace>, IntakeError> {
        let shared = self.inner.shared.clone();
        shared.catch_up().await?;
        shared.check_whole()?;
        let (records, end) = {
            let pending = shared.pending.lock();
            (pending.records.records.clone(), pending.records.end)
        };
        shared.certain(end).await?;
        let found = forebay_base::blocking::spawn(move || {
            shared.reader.namespaces_with_files(after.as_deref(), limit).map(|named| (named, after))
        });
        let (named, after) = found.await.map_err(crate::listing::interrupted)??;
        let mut all: BTreeMap<Namespace, Option<NamespaceRecord>> =
            named.into_iter().map(|namespace| (namespace, None)).collect();
        for (namespace, record) in records {
            if after.as_deref().is_none_or(|after| namespace.as_str() > after) {
                all.insert(namespace, Some(record));
            }
        }
        let all = all.into_iter().take(limit);
        Ok(all.map(|(namespace, record)| FileNamespace { namespace, record }).collect())
    }

    /// Gives a namespace a record, or replaces the attributes of the one it has.
    ///
    /// * Returns whether it had none.
    ///
    /// # Errors
    /// As [`Intake::change_namespace`].
    pub async fn set_namespace(
        &self,
        namespace: &Namespace,
        attributes: Attributes,
    ) -> Result<bool, IntakeError> {
        self.change_namespace(namespace, |_, _| Ok(attributes.clone())).await
    }

    /// Changes the attributes of a namespace; one without a record gets one.
    ///
    /// * `change`: computes what it is to have from what it has, and from a position of the log that is
    ///   above the ids of all its files. May be called several times.
    /// * Returns whether it had no record.
    ///
    /// # Errors
    /// [`IntakeError::Rejected`] with the code `namespaces` if there are [`NAMESPACE_RECORDS_MAX`]
    /// already. Others as [`Intake::put`], and those of `change`.
    pub async fn change_namespace(
        &self,
        namespace: &Namespace,
        change: impl Fn(Attributes, u64) -> Result<Attributes, IntakeError> + Send,
    ) -> Result<bool, IntakeError> {
        let shared = &self.inner.shared;
        shared.wait_for_room().await?;
        loop {
            match self.set_step(namespace, &change)? {
                Step::Done { end, changed } => {
                    shared.certain(end).await?;
                    return Ok(changed);
                }
                Step::Full => shared.log.room(16_384).await,
                Step::Again => tokio::task::yield_now().await,
            }
        }
    }

    fn set_step(
        &self,
        namespace: &Namespace,
        change: &impl Fn(Attributes, u64) -> Result<Attributes, IntakeError>,
    ) -> Result<Step, IntakeError> {
        let shared = &self.inner.shared;
        let mut pending = shared.pending.lock();
        let before = pending.records.records.get(namespace).cloned();
        let had = before.as_ref().map(|record| record.attributes.clone()).unwrap_or_default();
        let attributes = change(had, shared.log.end().0)?;
        if before.as_ref().is_some_and(|record| record.attributes == attributes) {
            return Ok(Step::Done { end: pending.records.end, changed: false });
        }
        if before.is_none() && pending.records.records.len() >= NAMESPACE_RECORDS_MAX {
            let text = format!("there can be {NAMESPACE_RECORDS_MAX} namespaces with records");
            return Err(IntakeError::rejected("namespaces", text));
        }
        let created_ms = before.as_ref().map(|record| record.created_ms);
        let changed_ms = shared.now_ms();
        let record = NamespaceRecord {
            namespace: namespace.clone(),
            created_ms: created_ms.unwrap_or(changed_ms),
            attributes,
        };
        let is_limited = !record.quota().is_none();
        if is_limited && pending.usages.get(namespace).is_none() {
            // It was removed by another request since this one has counted.
            return Err(IntakeError::Busy { what: "the quota is being changed" });
        }
        let attributes = &record.attributes;
        let appended = self.append_record(&mut pending, namespace, changed_ms, Some(attributes))?;
        let Some(end) = appended else { return Ok(Step::Full) };
        if !is_limited {
            pending.usages.forget(namespace);
        }
        pending.records.records.insert(namespace.clone(), record);
        Ok(Step::Done { end: Some(end), changed: before.is_none() })
    }

    /// Removes the record of a namespace that has neither files nor versions of files.
    ///
    /// * Returns `false` if it does not exist.
    ///
    /// # Errors
    /// [`IntakeError::Rejected`] with the code `namespace_not_empty`: it has files. Others as
    /// [`Intake::put`].
    pub async fn remove_namespace(&self, namespace: &Namespace) -> Result<bool, IntakeError> {
        let shared = &self.inner.shared;
        let filter = FileFilter { namespace: Some(namespace.clone()), ..FileFilter::default() };
        for _ in 0..ATTEMPTS_MAX {
            let generation = shared.pending.lock().generation();
            let has_files = !self.list(filter.clone(), None, 1).await?.is_empty();
            if has_files || shared.reader.has_versions(namespace)? {
                return Err(not_empty(namespace));
            }
            match self.remove_step(namespace, generation)? {
                Step::Done { end, changed } => {
                    shared.certain(end).await?;
                    return Ok(changed);
                }
                Step::Full => shared.log.room(16_384).await,
                Step::Again => tokio::task::yield_now().await,
            }
        }
        Err(IntakeError::Busy { what: "files are being changed all the time" })
    }

    /// Removes a record, if the namespace had no files in the state of the catalogue with this
    /// generation.
    fn remove_step(&self, namespace: &Namespace, generation: u64) -> Result<Step, IntakeError> {
        let shared = &self.inner.shared;
        let mut pending = shared.pending.lock();
        if !pending.records.records.contains_key(namespace) {
            return Ok(Step::Done { end: pending.records.end, changed: false });
        }
        // What was queued or applied since the listing may have given a name in it.
        if pending.changes_files_in(namespace) || pending.generation() != generation {
            return Ok(Step::Again);
        }
        let appended = self.append_record(&mut pending, namespace, shared.now_ms(), None)?;
        let Some(end) = appended else { return Ok(Step::Full) };
        pending.records.records.remove(namespace);
        pending.usages.forget(namespace);
        Ok(Step::Done { end: Some(end), changed: true })
    }

    /// Appends a change of a record; returns `None` if the log's buffer is full.
    fn append_record(
        &self,
        pending: &mut Pending,
        namespace: &Namespace,
        changed_ms: i64,
        attributes: Option<&Attributes>,
    ) -> Result<Option<Lsn>, IntakeError> {
        let shared = &self.inner.shared;
        let (namespace, attributes) = (namespace.clone(), attributes.cloned());
        let entry = NamespaceChange { changed_ms, namespace, attributes };
        let appended = match shared.log.try_append(&[&entry.encode()]) {
            Ok(appended) => appended,
            Err(AppendError::Full { .. }) => return Ok(None),
            Err(error) => return Err(IntakeError::Append(error)),
        };
        let NamespaceChange { namespace, attributes, .. } = entry;
        let change = Change::Namespace { namespace, changed_ms, attributes };
        let (lsn, end) = (appended.lsn, appended.end);
        shared.queue(pending, Queued { lsn, end, change, answered: None });
        pending.records.end = Some(end);
        Ok(Some(end))
    }
}
