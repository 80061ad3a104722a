//! Deciding again between table and collection, and on the columns, from what is stored.
//!
//! Invariants: the decision is made of every document that the namespace has at its position in the
//! log: if others arrive while they are read, those are read as well; a decision that changes nothing
//! writes nothing.

use forebay_log::{AppendError, Lsn};
use forebay_sink::{Column, ColumnType, Field, TableSchema};
use serde::Serialize;

use super::decide::{Decision, Rule, Wish, decide};
use super::forward::QueuedCommit;
use super::ingest::{ColumnAnswer, WidenedColumn, added_column, check_wish, target_name};
use super::namespaces::{NamespaceState, profile_fields_max};
use super::profile::Profile;
use crate::Intake;
use crate::error::IntakeError;
use crate::format::{CommitFlags, DocumentCommit, Documents, TargetCode};
use crate::intake::Inner;
use crate::names::Namespace;
use crate::options::DecisionOptions;

/// Number of times that documents which arrived meanwhile are read before the caller is asked to try
/// again.
const ATTEMPTS_MAX: usize = 16;

/// How to decide again.
#[derive(Debug, Clone, Copy, Default)]
pub struct RedecideOptions {
    /// What the sender demands.
    pub wish: Wish,
    /// Only report the decision.
    pub dry_run: bool,
}

/// A decision that was made again.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[schema(as = DocumentSchema)]
pub struct SchemaAnswer {
    /// Namespace.
    pub namespace: String,
    /// Number of its documents, all of which were examined.
    pub documents: u64,
    /// `table` or `collection`.
    pub target: &'static str,
    /// What it was before.
    pub target_before: &'static str,
    /// The decisive rule.
    pub decided_by: &'static str,
    /// Every rule with what it measured.
    pub rules: Vec<Rule>,
    /// All columns.
    pub columns: Vec<ColumnAnswer>,
    /// Those that the table did not have.
    pub columns_added: Vec<ColumnAnswer>,
    /// Those that have another type.
    pub columns_changed: Vec<WidenedColumn>,
    /// Those that the table has no more.
    pub columns_removed: Vec<ColumnAnswer>,
    /// Fields that get no column, with the reason.
    pub fields_without_column: Vec<String>,
    /// Whether this was a dry run.
    pub dry_run: bool,
}

/// A decision, and the columns that follow from it.
struct Decided {
    decision: Decision,
    schema: TableSchema,
    refused: Vec<String>,
}

impl Intake {
    /// Decides again, from all its documents, whether a namespace is a table or a collection, and
    /// which columns it has; then derives the values of these columns again.
    ///
    /// # Errors
    /// [`IntakeError`]: there is no such namespace, the decision contradicts the wish, documents
    /// arrive faster than they are examined, or the log or the database fails. Unless the commit was
    /// written but is not known to be durable ([`IntakeError::Commit`]) nothing has changed.
    pub async fn decide_again(
        &self,
        namespace: &Namespace,
        options: RedecideOptions,
    ) -> Result<SchemaAnswer, IntakeError> {
        let decision = &self.inner.shared.options.decision;
        let mut profile = Profile::new(profile_fields_max(decision));
        let (mut next_id, mut changed) = (1, Lsn(0));
        for _ in 0..ATTEMPTS_MAX {
            let (until, newest) = self.inner.known(namespace)?;
            self.inner.shown(namespace).await?;
            if changed != newest {
                // What was examined is not what is there.
                profile = Profile::new(profile_fields_max(decision));
                (next_id, changed) = (1, newest);
            }
            if until > next_id {
                let (name, mut known) = (namespace.clone(), profile);
                let read = self.ask(move |inner| {
                    inner.namespaces.profile(&name, next_id.checked_sub(1), until, &mut known)?;
                    Ok(known)
                });
                profile = read.await?;
                next_id = until;
            }
            if !options.dry_run {
                self.inner.check_outbox()?;
                self.inner.check_space()?;
                self.inner.view.wait_for_room().await?;
            }
            match self.inner.decide_again(namespace, &profile, (next_id, changed), options)? {
                Settled::Done(answer, None) => return Ok(*answer),
                Settled::Done(answer, Some(end)) => {
                    self.inner.shared.committed(end).await?;
                    self.inner.view.reached(end).await?;
                    return Ok(*answer);
                }
                Settled::Full(size) => self.inner.shared.log.room(size).await,
                Settled::Grown => {}
            }
        }
        Err(IntakeError::Busy { what: "documents of the namespace arrive while it is examined" })
    }
}

/// The end of an attempt.
enum Settled {
    /// The answer, and the end of the commit, if there is one.
    Done(Box<SchemaAnswer>, Option<Lsn>),
    /// The log has no room for this many bytes at the moment.
    Full(usize),
    /// More documents have arrived.
    Grown,
}

impl Inner {
    /// The id of the next document of a namespace, which must exist, and the end of its newest change.
    fn known(&self, namespace: &Namespace) -> Result<(u64, Lsn), IntakeError> {
        let mut states = self.namespaces.states.lock();
        let state = self.state_of(&mut states, namespace)?;
        Ok((state.next_id, state.changed_end))
    }

    /// Decides, and commits what changes, unless there are other documents than those profiled.
    fn decide_again(
        &self,
        namespace: &Namespace,
        profile: &Profile,
        (next_id, changed): (u64, Lsn),
        options: RedecideOptions,
    ) -> Result<Settled, IntakeError> {
        let mut states = self.namespaces.states.lock();
        let is_same =
            |state: &&mut NamespaceState| (state.next_id, state.changed_end) == (next_id, changed);
        let Some(state) = states.get_mut(namespace).filter(is_same) else {
            return Ok(Settled::Grown);
        };
        let decided = Decided::of(state, profile, &self.shared.options.decision, options.wish);
        check_wish(options.wish, &decided.decision)?;
        let answer = Box::new(decided.answer(namespace, state, profile.documents, options.dry_run));
        let is_same = state.target == Some(decided.decision.target)
            && state.schema == decided.schema
            && state.undecided.is_none();
        if options.dry_run || is_same {
            return Ok(Settled::Done(answer, None));
        }
        let received_ms = self.shared.now_ms();
        let commit = DocumentCommit {
            request: *uuid::Uuid::now_v7().as_bytes(),
            received_ms,
            namespace: namespace.clone(),
            target: decided.decision.target,
            first_id: next_id,
            count: 0,
            columns: decided.schema.columns().iter().map(added_column).collect(),
            flags: CommitFlags { reshapes: true, undecided: false },
            chunks: Vec::new(),
            idempotency: None,
            status: 200,
            answer: &[],
            documents: Documents::EMPTY,
        };
        let entry = commit.encode_header(0);
        let appended = match self.shared.log.try_append(&[&entry]) {
            Ok(appended) => appended,
            Err(AppendError::Full { .. }) => return Ok(Settled::Full(entry.len())),
            Err(error) => return Err(IntakeError::Append(error)),
        };
        let (lsn, end) = (appended.lsn, appended.end);
        state.decided(decided.decision.target, decided.schema, end);
        self.view.push(
            commit.request,
            QueuedCommit { first: lsn, lsn, end, count: 0, received_ms, prepared: None },
        );
        Ok(Settled::Done(answer, Some(end)))
    }
}

impl Decided {
    fn of(
        state: &NamespaceState,
        profile: &Profile,
        options: &DecisionOptions,
        wish: Wish,
    ) -> Self {
        // The caller has decided that there are enough.
        let options = DecisionOptions { documents_min: 0, ..options.clone() };
        let decision = decide(profile, &options, None, wish);
        if decision.target == TargetCode::Collection {
            return Self { decision, schema: TableSchema::default(), refused: Vec::new() };
        }
        let fields: Vec<Field<'_>> = profile.columns().collect();
        let (schema, plan) = forebay_sqlite::reshaped(&state.schema, &fields);
        let refused = plan.refused.iter().map(|it| format!("{}: {}", it.path, it.reason)).collect();
        Self { decision, schema, refused }
    }

    fn answer(
        &self,
        namespace: &Namespace,
        state: &NamespaceState,
        documents: u64,
        dry_run: bool,
    ) -> SchemaAnswer {
        let (new, old) = (self.schema.columns(), &state.schema);
        let changed = |column: &Column| -> Option<(Column, ColumnType)> {
            let known = old.column(&column.path)?;
            (known.ty != column.ty).then(|| (known.clone(), column.ty))
        };
        let answers = |columns: Vec<&Column>| columns.into_iter().map(ColumnAnswer::of).collect();
        let is_new = |column: &&Column| old.column(&column.path).is_none();
        let is_gone = |column: &&Column| self.schema.column(&column.path).is_none();
        SchemaAnswer {
            namespace: namespace.as_str().to_owned(),
            documents,
            target: target_name(self.decision.target),
            target_before: state.target.map_or("collection", target_name),
            decided_by: self.decision.decided_by,
            rules: self.decision.rules.clone(),
            columns: answers(new.iter().collect()),
            columns_added: answers(new.iter().filter(is_new).collect()),
            columns_changed: new
                .iter()
                .filter_map(changed)
                .map(|it| WidenedColumn::of(&it))
                .collect(),
            columns_removed: answers(old.columns().iter().filter(is_gone).collect()),
            fields_without_column: self.refused.clone(),
            dry_run,
        }
    }
}
