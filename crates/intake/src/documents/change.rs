//! Changing documents that are there: replacing, merging and deleting one, dropping a namespace.
//!
//! ```text
//! wait until the database shows the namespace -> lock: read the document, check the condition, plan
//!   columns, append the entry -> wait until it is durable -> answer
//! ```
//!
//! Like a batch, a change is decided under the lock that orders the entries of namespaces. What it is
//! decided on is the document as the database has it, so one that another change has not reached there
//! is waited for.
//!
//! Invariants: a document keeps its id, and an id that was given is never given again; a condition is
//! checked against the bytes that the change replaces, with no other change between; nothing is answered
//! before the entry is as durable as configured.

use std::sync::Arc;

use bytes::Bytes;
use forebay_log::{AppendError, Appended, Lsn};
use forebay_sink::StoredDocument;
use serde::Serialize;

use super::DocumentError;
use super::decide::Wish;
use super::flatten::{Bounds, read};
use super::forward::QueuedCommit;
use super::ingest::{ColumnAnswer, UnfitAnswer, WidenedColumn, added_column};
use super::merge::merge;
use super::namespaces::{NamespaceState, Planned, profile_fields_max};
use super::profile::Profile;
use crate::Intake;
use crate::answer::{time_text, to_json};
use crate::catalogue::{Answered, Change};
use crate::digest::Digest;
use crate::error::IntakeError;
use crate::files::Condition;
use crate::format::{
    ChangeAction, CommitFlags, DocumentChange, DocumentsDropped, IdempotencyRecord,
};
use crate::intake::Inner;
use crate::meters;
use crate::names::Namespace;
use crate::pending::Queued;

/// Number of times that other changes of the same document are waited for.
const ATTEMPTS_MAX: usize = 64;
/// Number of changes of a namespace from which on those that the database has are forgotten, now and with each
/// doubling. Those that it has not are limited by what the view takes.
const CHANGING_MIN: usize = 1_024;

/// What a document becomes.
#[derive(Debug, Clone)]
pub enum NewContent {
    /// These bytes.
    Replaced(Bytes),
    /// What it is, with this JSON merge patch applied (RFC 7396).
    Merged(Bytes),
}

/// A change of one document.
#[derive(Debug, Clone)]
pub struct ChangeRequest {
    /// The namespace.
    pub namespace: Namespace,
    /// Id of the document.
    pub id: u64,
    /// What must hold of it before. Its entity tag is the SHA-256 of its bytes.
    pub condition: Condition,
    /// The record to store the answer under, if the request had a key.
    pub idempotency: Option<IdempotencyRecord>,
}

/// A document that was changed.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub struct ChangedDocument {
    /// Namespace.
    pub namespace: String,
    /// Id of the document, which is the one it had.
    pub id: u64,
    /// When it got these bytes, RFC 3339.
    pub received: String,
    /// SHA-256 of its bytes, which is its entity tag as well.
    pub sha256: String,
    /// Columns that the table gains.
    pub columns_added: Vec<ColumnAnswer>,
    /// Columns whose type is widened, so that they hold values that did not fit.
    pub columns_widened: Vec<WidenedColumn>,
    /// Fields that get no column, with the reason.
    pub fields_without_column: Vec<String>,
    /// Columns in which values are NULL because they are of another type; the document keeps them.
    pub values_without_column: Vec<UnfitAnswer>,
}

/// The end of an attempt.
enum Step<T> {
    /// The entry is in the log, and ends here.
    Appended(Lsn, T),
    /// The database has to reach this position first.
    Wait(Lsn),
    /// The log has no room for this many bytes at the moment.
    Full(usize),
}

/// An entry to be appended: its header, what follows, and the answer to its request.
struct Entry<'a> {
    header: Vec<u8>,
    document: &'a [u8],
    idempotency: Option<IdempotencyRecord>,
    status: u16,
    answer: Vec<u8>,
    now_ms: i64,
}

/// Changing documents.
impl Intake {
    /// Gives a document other bytes.
    ///
    /// # Errors
    /// [`IntakeError`]: there is no such document, the condition does not hold, the bytes are no document
    /// within the limits, or the log does not take the change.
    pub async fn change_document(
        &self,
        request: ChangeRequest,
        content: NewContent,
    ) -> Result<ChangedDocument, IntakeError> {
        if let NewContent::Replaced(bytes) = &content {
            self.inner.checked(bytes)?;
        }
        let namespace = request.namespace.clone();
        let changed =
            self.attempt(&namespace, move |inner| inner.change_step(&request, &content)).await?;
        meters::documents_changed(meters::Changed::Replaced);
        Ok(changed)
    }

    /// Deletes a document.
    ///
    /// # Errors
    /// [`IntakeError`]: there is no such document, the condition does not hold, or the log does not take
    /// the deletion.
    pub async fn delete_document(&self, request: ChangeRequest) -> Result<(), IntakeError> {
        let namespace = request.namespace.clone();
        self.attempt(&namespace, move |inner| inner.delete_step(&request)).await?;
        meters::documents_changed(meters::Changed::Deleted);
        Ok(())
    }

    /// Drops all documents of a namespace, and its columns.
    ///
    /// # Errors
    /// [`IntakeError`]: there is no such namespace, or the log does not take it.
    pub async fn drop_documents(
        &self,
        namespace: &Namespace,
        idempotency: Option<IdempotencyRecord>,
    ) -> Result<(), IntakeError> {
        let name = namespace.clone();
        self.attempt(namespace, move |inner| inner.drop_step(&name, idempotency)).await?;
        meters::documents_changed(meters::Changed::Dropped);
        Ok(())
    }

    /// Position of the newest entry that deleted a document of a namespace, or dropped all of them; `None` if
    /// there is none.
    ///
    /// # Errors
    /// [`IntakeError`] if the document database cannot be queried.
    pub async fn documents_removed_at(
        &self,
        namespace: &Namespace,
    ) -> Result<Option<u64>, IntakeError> {
        let namespace = namespace.clone();
        self.ask(move |inner| {
            let mut states = inner.namespaces.states.lock();
            if let Some(state) = states.get(&namespace) {
                return Ok(state.removed_at);
            }
            let state = inner.namespaces.load(&namespace)?;
            let removed_at = state.removed_at;
            states.insert(namespace.clone(), state);
            Ok(removed_at)
        })
        .await
    }

    async fn attempt<T: Send + 'static>(
        &self,
        namespace: &Namespace,
        step: impl Fn(&Inner) -> Result<Step<T>, IntakeError> + Send + Sync + 'static,
    ) -> Result<T, IntakeError> {
        let step = Arc::new(step);
        self.inner.shown(namespace).await?;
        for _ in 0..ATTEMPTS_MAX {
            self.inner.check_outbox()?;
            self.inner.check_space()?;
            self.inner.view.wait_for_room().await?;
            let step = step.clone();
            match self.ask(move |inner| step(inner)).await? {
                Step::Appended(end, done) => {
                    self.inner.shared.committed(end).await?;
                    return Ok(done);
                }
                Step::Wait(end) => self.inner.view.reached(end).await?,
                Step::Full(size) => self.inner.shared.log.room(size).await,
            }
        }
        Err(IntakeError::Busy { what: "others keep changing the document" })
    }
}

impl Inner {
    /// Checks bytes that are to become a document, and profiles it.
    fn checked(&self, document: &[u8]) -> Result<Profile, IntakeError> {
        let size_max = self.shared.options.limits.document_size_max;
        if document.len() > size_max {
            let limit = size_max as u64;
            return Err(IntakeError::TooLarge { what: "the document", limit });
        }
        let mut profile = Profile::new(profile_fields_max(&self.shared.options.decision));
        let profiled = read(document, &self.bounds)
            .and_then(|members| profile.add(&members, &self.bounds, &mut |_, _, _| {}));
        profiled.map_err(|error| invalid(&error))?;
        Ok(profile)
    }

    fn change_step(
        &self,
        request: &ChangeRequest,
        content: &NewContent,
    ) -> Result<Step<ChangedDocument>, IntakeError> {
        let mut states = self.namespaces.states.lock();
        let state = self.state_of(&mut states, &request.namespace)?;
        let stored = match self.current(state, request)? {
            Ok(stored) => stored,
            Err(end) => return Ok(Step::Wait(end)),
        };
        let document = match content {
            NewContent::Replaced(bytes) => bytes.clone(),
            NewContent::Merged(patch) => merged(&stored, patch, &self.bounds)?,
        };
        let profile = self.checked(&document)?;
        let decision = &self.shared.options.decision;
        let planned =
            state.plan(&self.namespaces, &request.namespace, &profile, decision, Wish::Auto)?;
        let now_ms = self.shared.now_ms();
        let answer = answer(request, &document, &planned, now_ms);
        let json = to_json(&answer);
        let entry = DocumentChange {
            changed_ms: now_ms,
            namespace: request.namespace.clone(),
            id: request.id,
            action: ChangeAction::Replace {
                target: planned.decision.target,
                flags: CommitFlags {
                    reshapes: planned.reshapes,
                    undecided: planned.decision.undecided,
                },
                columns: planned.columns().iter().map(added_column).collect(),
                document: &document,
            },
            idempotency: request.idempotency,
            status: 200,
            answer: if request.idempotency.is_some() { &json } else { &[] },
        };
        let header = entry.encode_header();
        let appended = self.append(Entry {
            header,
            document: &document,
            idempotency: request.idempotency,
            status: 200,
            answer: json,
            now_ms,
        })?;
        let Ok(Appended { lsn, end, .. }) = appended else {
            return Ok(Step::Full(document.len() + 65_536));
        };
        state.advance(planned, 0, end);
        state.changes(request.id, end);
        self.announce(lsn, end, now_ms);
        Ok(Step::Appended(end, answer))
    }

    fn delete_step(&self, request: &ChangeRequest) -> Result<Step<()>, IntakeError> {
        let mut states = self.namespaces.states.lock();
        let state = self.state_of(&mut states, &request.namespace)?;
        if let Err(end) = self.current(state, request)? {
            return Ok(Step::Wait(end));
        }
        let now_ms = self.shared.now_ms();
        let entry = DocumentChange {
            changed_ms: now_ms,
            namespace: request.namespace.clone(),
            id: request.id,
            action: ChangeAction::Delete,
            idempotency: request.idempotency,
            status: 204,
            answer: &[],
        };
        let header = entry.encode_header();
        let appended = self.append(Entry {
            header,
            document: &[],
            idempotency: request.idempotency,
            status: 204,
            answer: Vec::new(),
            now_ms,
        })?;
        let Ok(Appended { lsn, end, .. }) = appended else { return Ok(Step::Full(65_536)) };
        state.last_end = end;
        state.removed_at = Some(end.0);
        state.changes(request.id, end);
        self.announce(lsn, end, now_ms);
        Ok(Step::Appended(end, ()))
    }

    fn drop_step(
        &self,
        namespace: &Namespace,
        idempotency: Option<IdempotencyRecord>,
    ) -> Result<Step<()>, IntakeError> {
        let mut states = self.namespaces.states.lock();
        let state = self.state_of(&mut states, namespace)?;
        let now_ms = self.shared.now_ms();
        let last_id = state.next_id.saturating_sub(1);
        let (dropped_ms, namespace) = (now_ms, namespace.clone());
        let header = DocumentsDropped { dropped_ms, namespace, last_id, idempotency }.encode();
        let (document, status, answer) = (&[][..], 204, Vec::new());
        let entry = Entry { header, document, idempotency, status, answer, now_ms };
        let Ok(Appended { lsn, end, .. }) = self.append(entry)? else {
            return Ok(Step::Full(65_536));
        };
        state.dropped(end);
        self.announce(lsn, end, now_ms);
        Ok(Step::Appended(end, ()))
    }

    /// The state of a namespace, which must exist.
    pub(super) fn state_of<'s>(
        &self,
        states: &'s mut std::collections::HashMap<Namespace, NamespaceState>,
        namespace: &Namespace,
    ) -> Result<&'s mut NamespaceState, IntakeError> {
        let missing = || IntakeError::NotFound { what: format!("document namespace {namespace}") };
        if !states.contains_key(namespace) {
            let state = self.namespaces.load(namespace)?;
            if state.target.is_none() {
                return Err(missing());
            }
            states.insert(namespace.clone(), state);
        }
        states.get_mut(namespace).filter(|state| state.target.is_some()).ok_or_else(missing)
    }

    /// The document that a request changes, if the condition holds. `Err` has the position that the
    /// database must reach before that can be said.
    fn current(
        &self,
        state: &mut NamespaceState,
        request: &ChangeRequest,
    ) -> Result<Result<StoredDocument, Lsn>, IntakeError> {
        let applied = self.view.applied.borrow().position;
        let remembered = state.changing.len();
        if remembered >= CHANGING_MIN && remembered.is_power_of_two() {
            state.changing.retain(|_, end| *end > applied);
        }
        let newest = state.changing.get(&request.id).copied().max(Some(state.dropped_end));
        if let Some(end) = newest.filter(|end| *end > applied) {
            return Ok(Err(end));
        }
        let stored = self.namespaces.document(&request.namespace, request.id)?;
        check(&request.condition, stored.as_ref())?;
        stored.map(Ok).ok_or_else(|| IntakeError::NotFound {
            what: format!("document with this id in namespace {}", request.namespace),
        })
    }

    /// Appends an entry, and queues the answer to its request. `Err` if the log's buffer is full.
    fn append(&self, entry: Entry<'_>) -> Result<Result<Appended, ()>, IntakeError> {
        let Entry { header, document, idempotency, status, answer, now_ms } = entry;
        // Only an entry with a key concerns the catalogue, whose queue is in log order.
        let mut pending = idempotency.is_some().then(|| self.shared.pending.lock());
        let appended = match self.shared.log.try_append(&[&header, document]) {
            Ok(appended) => appended,
            Err(AppendError::Full { .. }) => return Ok(Err(())),
            Err(error) => return Err(IntakeError::Append(error)),
        };
        if let (Some(record), Some(pending)) = (idempotency, pending.as_mut()) {
            let created_ms = now_ms;
            let answered = Some(Arc::new(Answered { record, status, answer, created_ms }));
            let (lsn, end) = (appended.lsn, appended.end);
            self.shared.queue(pending, Queued { lsn, end, change: Change::Nothing, answered });
        }
        Ok(Ok(appended))
    }

    fn announce(&self, lsn: Lsn, end: Lsn, received_ms: i64) {
        // No request with chunks has this id.
        let request = *uuid::Uuid::nil().as_bytes();
        let queued = QueuedCommit { first: lsn, lsn, end, count: 1, received_ms, prepared: None };
        self.view.push(request, queued);
    }
}

impl NamespaceState {
    /// Records a change of a document that was there.
    fn changes(&mut self, id: u64, end: Lsn) {
        self.changing.insert(id, end);
        self.changed_end = end;
    }

    /// Records that all documents were dropped. Ids continue.
    fn dropped(&mut self, end: Lsn) {
        let before = std::mem::replace(self, Self::new());
        self.next_id = before.next_id;
        self.last_end = end;
        self.changed_end = end;
        self.dropped_end = end;
        self.removed_at = Some(end.0);
    }
}

fn merged(stored: &StoredDocument, patch: &[u8], bounds: &Bounds) -> Result<Bytes, IntakeError> {
    read(patch, bounds).map_err(|error| invalid(&error))?;
    let merged = merge(&stored.raw, patch, bounds);
    merged.map(Bytes::from).map_err(|error| IntakeError::Damaged {
        digest: format!("document {}", stored.id),
        found: error.to_string(),
    })
}

fn invalid(error: &DocumentError) -> IntakeError {
    IntakeError::rejected("document", error.to_string())
}

/// Checks the condition of a request.
fn check(condition: &Condition, stored: Option<&StoredDocument>) -> Result<(), IntakeError> {
    if *condition == Condition::None {
        return Ok(());
    }
    let state = stored.map(|stored| {
        let received_ms = i64::try_from(stored.received_ms).unwrap_or(i64::MAX);
        (Digest::of(&stored.raw), received_ms)
    });
    if condition.holds(state) {
        return Ok(());
    }
    let message = match state {
        None => "the document does not exist".to_owned(),
        Some((digest, _)) => format!("the document's entity tag is \"{digest}\""),
    };
    Err(IntakeError::Precondition { message })
}

fn answer(
    request: &ChangeRequest,
    document: &[u8],
    planned: &Planned,
    now_ms: i64,
) -> ChangedDocument {
    let fields_without_column =
        planned.refused.iter().map(|(path, reason)| format!("{path}: {reason}")).collect();
    ChangedDocument {
        namespace: request.namespace.as_str().to_owned(),
        id: request.id,
        received: time_text(now_ms),
        sha256: Digest::of(document).to_string(),
        columns_added: planned.added.iter().map(ColumnAnswer::of).collect(),
        columns_widened: planned.widened.iter().map(WidenedColumn::of).collect(),
        fields_without_column,
        values_without_column: planned.unfit.iter().map(UnfitAnswer::of).collect(),
    }
}
