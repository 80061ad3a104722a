//! What has arrived of a request's documents: those since the last chunk, and what is known of all.
//!
//! Invariants: memory is limited however many documents arrive; a document that is refused leaves
//! nothing but its error.

use super::RefusedDocument;
use crate::documents::DocumentError;
use crate::documents::flatten::{Bounds, read};
use crate::documents::frame::DocumentPosition;
use crate::documents::namespaces::{Planned, profile_fields_max};
use crate::documents::prepared::{PREPARED_SIZE_MAX, Prepared, Run};
use crate::documents::profile::Profile;
use crate::error::IntakeError;
use crate::intake::Inner;
use crate::names::Namespace;

/// What has arrived since the last chunk, and what is known of all of it.
#[derive(Debug)]
pub(super) struct Gathered {
    bounds: Bounds,
    errors_max: usize,
    documents_max: u64,
    pub(super) keep: bool,
    pub(super) profile: Profile,
    pub(super) run: Run,
    /// Runs that are in the log as chunks, kept for the view while there are few.
    runs: Vec<Run>,
    runs_size: usize,
    pub(super) errors: Vec<RefusedDocument>,
    pub(super) rejected: u64,
}

/// Why the processing of documents stopped.
pub(super) enum Stop {
    Body(DocumentError),
    TooMany(u64),
}

impl From<DocumentError> for Stop {
    fn from(error: DocumentError) -> Self {
        Self::Body(error)
    }
}

impl From<Stop> for IntakeError {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Body(error) => Self::rejected("body", format!("the body is not JSON: {error}")),
            Stop::TooMany(max) => Self::rejected(
                "too_many_documents",
                format!(
                    "more than {max} documents in one request; split them into several requests"
                ),
            ),
        }
    }
}

impl Gathered {
    /// * `keep`: whether the documents are stored, and not only examined.
    pub(super) fn new(inner: &Inner, keep: bool) -> Self {
        let limits = &inner.shared.options.limits;
        Self {
            bounds: inner.bounds,
            errors_max: limits.errors_reported_max,
            documents_max: limits.documents_per_request_max,
            keep,
            profile: Profile::new(profile_fields_max(&inner.shared.options.decision)),
            run: Run::default(),
            runs: Vec::new(),
            runs_size: 0,
            errors: Vec::new(),
            rejected: 0,
        }
    }

    /// Starts another run. The last one stays for the view unless there are too many.
    pub(super) fn next_run(&mut self) {
        self.runs_size = self.runs_size.saturating_add(self.run.size());
        if self.runs_size > PREPARED_SIZE_MAX {
            self.runs = Vec::new();
            self.runs_size = usize::MAX;
            self.run.clear();
        } else {
            self.runs.push(std::mem::take(&mut self.run));
        }
    }

    /// What the view receives with the commit; `None` if it has to read the log instead.
    pub(super) fn prepared(
        &mut self,
        namespace: &Namespace,
        planned: &Planned,
        first_id: u64,
        received_ms: i64,
    ) -> Option<Prepared> {
        self.next_run();
        // Values of untracked fields are not kept here; the log has the documents.
        let is_whole = self.runs_size <= PREPARED_SIZE_MAX && self.profile.untracked == 0;
        // Documents that come before are read from the database, these with them.
        if planned.reshapes || !is_whole {
            return None;
        }
        Some(Prepared {
            namespace: namespace.clone(),
            target: planned.decision.target,
            first_id,
            received_ms,
            fields: self
                .profile
                .fields()
                .iter()
                .map(|(path, field)| {
                    (path.clone(), (field.valued() > 0).then(|| field.column_type()))
                })
                .collect(),
            undecided: planned.decision.undecided,
            runs: std::mem::take(&mut self.runs),
        })
    }

    pub(super) fn take(
        &mut self,
        (place, framed): (DocumentPosition, Result<&[u8], DocumentError>),
    ) -> Result<(), Stop> {
        let (run, keep) = (&mut self.run, self.keep);
        let taken = framed.and_then(|document| {
            let members = read(document, &self.bounds)?;
            self.profile.add(&members, &self.bounds, &mut |field, leaf, text| {
                if keep {
                    run.note(field, leaf, text, document);
                }
            })?;
            Ok(document)
        });
        match taken {
            Ok(document) => {
                if self.profile.documents > self.documents_max {
                    return Err(Stop::TooMany(self.documents_max));
                }
                if self.keep {
                    self.run.take(document);
                }
            }
            Err(error) => {
                self.run.refuse();
                self.rejected += 1;
                if self.errors.len() < self.errors_max {
                    let DocumentPosition { line, byte, index } = place;
                    let reason = error.to_string();
                    self.errors.push(RefusedDocument { index, line, byte, reason });
                }
            }
        }
        Ok(())
    }
}
