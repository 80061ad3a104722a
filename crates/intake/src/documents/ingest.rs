//! One request's documents, from the first byte to the commit.
//!
//! Documents are checked and profiled as they arrive. Full chunks are written to the log before the
//! request ends, so memory stays limited however long the body is. The commit entry makes all of
//! them valid at once; without it the chunks have no effect.
//!
//! Invariants: a refused document is reported with its position and reason, and does not affect
//! others unless all-or-nothing was requested; nothing is answered before the commit is as durable
//! as configured; a dry run writes nothing.

use std::sync::Arc;

use forebay_log::{AppendError, Lsn};
use forebay_sink::Column;

use self::gathered::Gathered;
use super::column_code;
use super::decide::{Decision, Wish};
use super::forward::QueuedCommit;
use super::frame::{Framer, Framing};
use super::namespaces::Planned;
use crate::answer::to_json;
use crate::catalogue::{Answered, Change};
use crate::error::IntakeError;
use crate::format::{
    AddedColumn, CommitFlags, DocumentCommit, Documents, IdempotencyRecord, TargetCode,
    encode_chunk_header,
};
use crate::intake::Inner;
use crate::names::Namespace;
use crate::pending::Queued;

mod answers;
mod gathered;

pub use answers::{ColumnAnswer, DocumentsAnswer, RefusedDocument, UnfitAnswer, WidenedColumn};

/// Approximate number of bytes of documents in one log entry.
const CHUNK_SIZE: usize = 512 << 10;

/// Options of a request with documents.
#[derive(Debug, Clone)]
pub struct DocumentOptions {
    /// How documents follow each other.
    pub framing: Framing,
    /// Where the sender prefers them.
    pub wish: Wish,
    /// Refuse them if they cannot be stored there.
    pub wish_required: bool,
    /// Refuse all if one is refused.
    pub all_or_nothing: bool,
    /// Only report the decision; write nothing.
    pub dry_run: bool,
}

/// The incoming documents of a request. Dropped before its end, it stores none of them.
#[derive(Debug)]
pub struct DocumentIngest {
    inner: Arc<Inner>,
    namespace: Namespace,
    options: DocumentOptions,
    framer: Option<Framer>,
    gathered: Gathered,
    request: [u8; 16],
    chunks: Vec<u64>,
}

/// A commit in the log: its end, the answer's status, its JSON, and the answer itself.
type Appended = (Lsn, u16, Vec<u8>, DocumentsAnswer);

impl DocumentIngest {
    pub(crate) fn new(inner: Arc<Inner>, namespace: Namespace, options: DocumentOptions) -> Self {
        let limits = &inner.shared.options.limits;
        let gathered = Gathered::new(&inner, !options.dry_run);
        let framer = Framer::new(options.framing, limits.document_size_max);
        Self {
            framer: Some(framer),
            namespace,
            options,
            gathered,
            request: *uuid::Uuid::now_v7().as_bytes(),
            chunks: Vec::new(),
            inner,
        }
    }

    /// Processes the next bytes of the body.
    ///
    /// # Errors
    /// [`IntakeError`]: the body is not JSON or too long, or the log takes nothing more.
    pub async fn push(&mut self, bytes: &[u8]) -> Result<(), IntakeError> {
        let gathered = &mut self.gathered;
        if let Some(framer) = &mut self.framer {
            framer.push(bytes, &mut |framed| gathered.take(framed))?;
        }
        if self.gathered.run.bytes.len() >= CHUNK_SIZE {
            self.flush().await?;
        }
        Ok(())
    }

    /// Ends the body and commits the accepted documents.
    ///
    /// * `record`: the record to store the answer under, if the request had a key.
    /// * Returns the answer: its status, its JSON, and itself.
    ///
    /// # Errors
    /// [`IntakeError`]: nothing was stored, or it is not known to be as durable as configured.
    pub async fn finish(
        mut self,
        record: Option<IdempotencyRecord>,
    ) -> Result<(u16, Vec<u8>, DocumentsAnswer), IntakeError> {
        let gathered = &mut self.gathered;
        if let Some(mut framer) = self.framer.take() {
            framer.finish(&mut |framed| gathered.take(framed))?;
        }
        let accepted = self.gathered.profile.documents;
        let refused_all = self.options.all_or_nothing && self.gathered.rejected > 0;
        if accepted == 0 || refused_all || self.options.dry_run {
            let answer = self.without_commit(refused_all)?;
            return Ok((answer.status(), to_json(&answer), answer));
        }
        self.inner.check_outbox()?;
        self.inner.check_space()?;
        self.inner.view.wait_for_room().await?;
        loop {
            match self.append_commit(record)? {
                Some((end, status, json, answer)) => {
                    self.inner.shared.committed(end).await?;
                    crate::meters::documents(answer.accepted, answer.rejected);
                    return Ok((status, json, answer));
                }
                None => self.inner.shared.log.room(self.gathered.run.bytes.len() + 65_536).await,
            }
        }
    }

    /// Writes what was gathered to the log as a chunk.
    async fn flush(&mut self) -> Result<(), IntakeError> {
        if self.options.all_or_nothing && self.gathered.rejected > 0 {
            // Nothing of this request will be committed.
            self.gathered.run.clear();
            self.gathered.keep = false;
            return Ok(());
        }
        self.inner.check_outbox()?;
        self.inner.check_space()?;
        let header = encode_chunk_header(self.request, self.gathered.run.count());
        loop {
            let shared = &self.inner.shared;
            match shared.log.try_append(&[&header, &self.gathered.run.bytes]) {
                Ok(appended) => {
                    self.inner.view.begin(self.request, appended.lsn);
                    self.chunks.push(appended.lsn.0);
                    self.gathered.next_run();
                    return Ok(());
                }
                Err(AppendError::Full { .. }) => {
                    shared.log.room(header.len() + self.gathered.run.bytes.len()).await;
                }
                Err(error) => return Err(IntakeError::Append(error)),
            }
        }
    }

    /// Decides and appends the commit, or reports that the log's buffer is full.
    fn append_commit(
        &mut self,
        record: Option<IdempotencyRecord>,
    ) -> Result<Option<Appended>, IntakeError> {
        let inner = self.inner.clone();
        let mut states = inner.namespaces.states.lock();
        let state = match states.get(&self.namespace) {
            Some(state) => state,
            None => {
                let state = inner.namespaces.load(&self.namespace)?;
                states.entry(self.namespace.clone()).or_insert(state)
            }
        };
        let decision = &inner.shared.options.decision;
        let profile = &self.gathered.profile;
        let planned =
            state.plan(&inner.namespaces, &self.namespace, profile, decision, self.options.wish)?;
        self.check_wish(&planned)?;
        let count = profile.documents;
        let first_id = state.next_id;
        let answer = self.answer(&planned, count, Some(first_id));
        let (status, json) = (answer.status(), to_json(&answer));
        let received_ms = inner.shared.now_ms();
        let commit = DocumentCommit {
            request: self.request,
            received_ms,
            namespace: self.namespace.clone(),
            target: planned.decision.target,
            first_id,
            count,
            columns: planned.columns().iter().map(added_column).collect(),
            flags: CommitFlags {
                reshapes: planned.reshapes,
                undecided: planned.decision.undecided,
            },
            chunks: self.chunks.clone(),
            idempotency: record,
            status,
            answer: if record.is_some() { &json } else { &[] },
            documents: Documents::EMPTY,
        };
        let header = commit.encode_header(self.gathered.run.count());
        // Only a commit with a key concerns the catalogue, whose queue is in log order.
        let mut pending = record.is_some().then(|| inner.shared.pending.lock());
        let forebay_log::Appended { lsn, end } =
            match inner.shared.log.try_append(&[&header, &self.gathered.run.bytes]) {
                Ok(appended) => appended,
                Err(AppendError::Full { .. }) => return Ok(None),
                Err(error) => return Err(IntakeError::Append(error)),
            };
        if let (Some(record), Some(pending)) = (record, pending.as_mut()) {
            let answer = json.clone();
            let answered =
                Some(Arc::new(Answered { record, status, answer, created_ms: received_ms }));
            inner.shared.queue(pending, Queued { lsn, end, change: Change::Nothing, answered });
        }
        drop(pending);
        let prepared = self.gathered.prepared(&self.namespace, &planned, first_id, received_ms);
        let prepared = prepared.map(Arc::new);
        if let Some(state) = states.get_mut(&self.namespace) {
            state.advance(planned, count, end);
        }
        inner.view.push(
            self.request,
            QueuedCommit { first: lsn, lsn, end, count, received_ms, prepared },
        );
        Ok(Some((end, status, json, answer)))
    }

    /// The answer if nothing is written: for a dry run, or if there is nothing to write.
    fn without_commit(&self, refused_all: bool) -> Result<DocumentsAnswer, IntakeError> {
        let accepted = if refused_all { 0 } else { self.gathered.profile.documents };
        if self.gathered.profile.documents == 0 {
            crate::meters::documents(0, self.gathered.rejected);
            return Ok(self.blank_answer());
        }
        let known = self.inner.namespaces.states.lock().get(&self.namespace).cloned();
        let state = match known {
            Some(state) => state,
            None => self.inner.namespaces.load(&self.namespace)?,
        };
        let decision = &self.inner.shared.options.decision;
        let profile = &self.gathered.profile;
        let planned = state.plan(
            &self.inner.namespaces,
            &self.namespace,
            profile,
            decision,
            self.options.wish,
        )?;
        self.check_wish(&planned)?;
        let mut answer = self.answer(&planned, accepted, None);
        if refused_all {
            answer.rejected = self.gathered.rejected;
        }
        Ok(answer)
    }

    /// Refuses what would be stored elsewhere than the sender demands.
    fn check_wish(&self, planned: &Planned) -> Result<(), IntakeError> {
        if self.options.wish_required {
            check_wish(self.options.wish, &planned.decision)?;
        }
        Ok(())
    }

    fn blank_answer(&self) -> DocumentsAnswer {
        DocumentsAnswer {
            namespace: self.namespace.as_str().to_owned(),
            accepted: 0,
            rejected: self.gathered.rejected,
            errors: self.gathered.errors.clone(),
            errors_omitted: self.gathered.rejected - self.gathered.errors.len() as u64,
            target: None,
            decided_by: None,
            rules: Vec::new(),
            undecided: false,
            columns_added: Vec::new(),
            columns_widened: Vec::new(),
            fields_without_column: Vec::new(),
            values_without_column: Vec::new(),
            ddl: Vec::new(),
            first_id: None,
            last_id: None,
            dry_run: self.options.dry_run,
        }
    }

    fn answer(&self, planned: &Planned, accepted: u64, first_id: Option<u64>) -> DocumentsAnswer {
        let target = target_name(planned.decision.target);
        let columns_added = planned.added.iter().map(ColumnAnswer::of).collect();
        let fields_without_column =
            planned.refused.iter().map(|(path, reason)| format!("{path}: {reason}")).collect();
        DocumentsAnswer {
            accepted,
            target: Some(target),
            decided_by: Some(planned.decision.decided_by),
            rules: planned.decision.rules.clone(),
            undecided: planned.decision.undecided,
            columns_added,
            columns_widened: planned.widened.iter().map(WidenedColumn::of).collect(),
            fields_without_column,
            values_without_column: planned.unfit.iter().map(UnfitAnswer::of).collect(),
            ddl: planned.ddl.clone(),
            first_id,
            last_id: first_id.map(|first| first + accepted.saturating_sub(1)),
            ..self.blank_answer()
        }
    }
}

/// Refuses a decision that contradicts a wish.
pub(super) fn check_wish(wish: Wish, decision: &Decision) -> Result<(), IntakeError> {
    let wanted = match wish {
        Wish::Table => TargetCode::Table,
        Wish::Collection => TargetCode::Collection,
        Wish::Auto => return Ok(()),
    };
    let found = decision.target;
    if found == wanted {
        return Ok(());
    }
    let rule = decision.rules.iter().find(|known| known.rule == decision.decided_by);
    let why = rule.map_or("", |rule| rule.detail.as_str());
    let (wanted, found) = (target_name(wanted), target_name(found));
    Err(IntakeError::rejected(
        "target",
        format!("the documents cannot be stored in a {wanted}, only in a {found}: {why}"),
    ))
}

/// A column as a commit names it.
pub(super) fn added_column(column: &Column) -> AddedColumn {
    AddedColumn { path: column.path.clone(), type_code: column_code(column.ty) }
}

pub(super) fn target_name(target: TargetCode) -> &'static str {
    match target {
        TargetCode::Table => "table",
        TargetCode::Collection => "collection",
    }
}

impl Drop for DocumentIngest {
    fn drop(&mut self) {
        if !self.chunks.is_empty() {
            self.inner.view.end(self.request);
        }
    }
}
