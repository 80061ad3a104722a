//! Namespaces that the database refuses: each for itself, so that the others are not held up.
//!
//! A refusal of a transaction does not show whose rows are refused, and rows wait in the sink until
//! it is committed. So after one the commits that wait are written one by one, until all that had
//! arrived by then are through. The namespace of a commit that is refused then is quarantined: the
//! position passes its commits, and the intake's own database has their documents. From there they
//! are replayed after the last id that the external database has, from time to time, with growing
//! delays, and on request, until the cause is removed.
//!
//! Invariants: a namespace is recorded as quarantined before the position passes its first commit;
//! it is released in the thread that follows the log, when the database has everything that the
//! position has passed, so its next commit finds the ids before it; a refusal of everything
//! quarantines nothing.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use forebay_base::backoff::Backoff;
use forebay_base::error_chain::chain;
use forebay_log::Lsn;
use forebay_sink::Position;
use forebay_sqlite::{NamespaceInfo, SqliteReader};
use serde::{Deserialize, Serialize};

use super::error::ForwardError;
use super::worker::Worker;
use crate::answer::time_text;

/// Maximum number of quarantined namespaces. A database that refuses more refuses everything.
pub(super) const QUARANTINED_MAX: usize = 1_000;
/// Maximum length of a reason that is kept, in bytes.
const REASON_SIZE_MAX: usize = 500;
/// The longest delay between two attempts is this many times that of an unavailable database.
const DELAY_FACTOR: u32 = 10;

/// Why a namespace is quarantined, as it is recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Refused {
    pub(super) reason: String,
    pub(super) since_ms: i64,
}

/// A namespace whose documents the database refuses.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub struct QuarantinedNamespace {
    /// The namespace.
    pub namespace: String,
    /// The database's last reason.
    pub reason: String,
    /// When it was first refused, RFC 3339.
    pub since: String,
    /// Number of its documents that the database lacks. The intake keeps them.
    pub documents_waiting: u64,
    /// Number of attempts to write them since the start.
    pub retries: u64,
}

/// The quarantine as it is reported.
#[derive(Debug, Clone, Default)]
pub(super) struct Quarantine {
    held: BTreeMap<String, Held>,
}

#[derive(Debug, Clone)]
struct Held {
    refused: Refused,
    documents: u64,
    retries: u64,
    /// Whether it is to be tried at once.
    is_wanted: bool,
}

/// When a namespace is tried again.
#[derive(Debug)]
pub(super) struct Attempt {
    at: Instant,
    backoff: Backoff,
}

impl Quarantine {
    pub(super) fn new(recorded: &BTreeMap<String, Refused>) -> Self {
        let mut quarantine = Self::default();
        quarantine.follow(recorded);
        quarantine
    }

    /// Becomes what is recorded; what is known of namespaces that stay remains.
    pub(super) fn follow(&mut self, recorded: &BTreeMap<String, Refused>) {
        self.held.retain(|namespace, _| recorded.contains_key(namespace));
        for (namespace, refused) in recorded {
            match self.held.get_mut(namespace) {
                Some(held) => held.refused = refused.clone(),
                None => {
                    let refused = refused.clone();
                    let held = Held { refused, documents: 0, retries: 0, is_wanted: false };
                    self.held.insert(namespace.clone(), held);
                }
            }
        }
    }

    pub(super) fn documents(&self) -> u64 {
        self.held.values().map(|held| held.documents).sum()
    }

    /// When the first that has documents was refused.
    pub(super) fn oldest_ms(&self) -> Option<i64> {
        let held = self.held.values().filter(|held| held.documents > 0);
        held.map(|held| held.refused.since_ms).min()
    }

    pub(super) fn status(&self) -> Vec<QuarantinedNamespace> {
        let status = |(namespace, held): (&String, &Held)| QuarantinedNamespace {
            namespace: namespace.clone(),
            reason: held.refused.reason.clone(),
            since: time_text(held.refused.since_ms),
            documents_waiting: held.documents,
            retries: held.retries,
        };
        self.held.iter().map(status).collect()
    }

    /// Asks for one namespace, or for all, to be tried at once. Returns whether there is one.
    pub(super) fn want(&mut self, namespace: Option<&str>) -> bool {
        let mut any = false;
        for (name, held) in &mut self.held {
            if namespace.is_none_or(|wanted| wanted == name) {
                held.is_wanted = true;
                any = true;
            }
        }
        any
    }

    /// Whether one is to be tried at once.
    pub(super) fn is_wanted(&self) -> bool {
        self.held.values().any(|held| held.is_wanted)
    }

    /// One that is to be tried at once, and no longer then.
    pub(super) fn take_wanted(&mut self) -> Option<String> {
        let (namespace, held) = self.held.iter_mut().find(|(_, held)| held.is_wanted)?;
        held.is_wanted = false;
        Some(namespace.clone())
    }

    /// Records an attempt.
    pub(super) fn tried(&mut self, namespace: &str) {
        if let Some(held) = self.held.get_mut(namespace) {
            held.retries += 1;
        }
    }

    pub(super) fn add_documents(&mut self, namespace: &str, count: u64) {
        if let Some(held) = self.held.get_mut(namespace) {
            held.documents = held.documents.saturating_add(count);
        }
    }

    pub(super) fn set_documents(&mut self, namespace: &str, count: u64) {
        if let Some(held) = self.held.get_mut(namespace) {
            held.documents = count;
        }
    }
}

impl Worker {
    /// Whether the commits up to `end` are written one by one, since one of them was refused.
    pub(super) fn is_isolating(&self, end: Lsn) -> bool {
        end <= self.isolate_to
    }

    /// Whether the position passes a namespace's commits without its documents.
    pub(super) fn is_quarantined(&self, namespace: &str) -> bool {
        self.attempts.contains_key(namespace)
    }

    /// Passes a commit of a quarantined namespace.
    pub(super) fn pass(&mut self, namespace: &str, count: u64) {
        self.outbox.pass(namespace, count);
        self.is_counted = false;
    }

    /// Quarantines the namespace of the commit that ends at `end`, unless the database refuses
    /// everything; the position then is at `end`.
    ///
    /// # Errors
    /// The refusal, if a commit without rows is refused as well; or that fails for another reason.
    pub(super) fn isolate(
        &mut self,
        namespace: &str,
        count: u64,
        end: Lsn,
        error: ForwardError,
    ) -> Result<(), ForwardError> {
        self.quarantine(namespace, error, Position(end.0))?;
        self.next = end;
        self.dirty = true;
        self.pass(namespace, count);
        Ok(())
    }

    /// Records that the database refuses a namespace, and moves the position to `at`.
    ///
    /// # Errors
    /// A refusal, if a commit without rows is refused as well, or too many namespaces are; or
    /// something else fails.
    pub(super) fn quarantine(
        &mut self,
        namespace: &str,
        error: ForwardError,
        at: Position,
    ) -> Result<(), ForwardError> {
        let sink = self.sink.as_deref_mut().ok_or(ForwardError::Closing)?;
        sink.roll_back()?;
        if self.attempts.len() >= QUARANTINED_MAX {
            return Err(error);
        }
        let refused = Refused { reason: reason(&error), since_ms: self.now_ms() };
        self.outbox.record_quarantined(|all| {
            all.insert(namespace.to_owned(), refused.clone());
        })?;
        let sink = self.sink.as_deref_mut().ok_or(ForwardError::Closing)?;
        let moved = sink.commit(at).map_err(ForwardError::Sink);
        if let Err(error) = &moved
            && error.is_refusal()
        {
            // Not for this namespace's sake.
            self.outbox.record_quarantined(|all| {
                all.remove(namespace);
            })?;
            return moved;
        }
        // If the outcome is unknown, the position may have passed its documents.
        self.outbox.publish_quarantined();
        self.attempt_later(namespace);
        tracing::warn!(
            namespace,
            reason = refused.reason,
            "the database refuses the documents of a namespace: they wait, and the others continue"
        );
        moved
    }

    /// Ends the quarantine of a namespace.
    fn release(&mut self, namespace: &str) -> Result<(), ForwardError> {
        self.outbox.record_quarantined(|all| {
            all.remove(namespace);
        })?;
        self.outbox.publish_quarantined();
        self.attempts.remove(namespace);
        Ok(())
    }

    /// Ends the quarantine of all: another database has refused nothing yet.
    pub(super) fn release_all(&mut self) -> Result<(), ForwardError> {
        self.outbox.record_quarantined(BTreeMap::clear)?;
        self.outbox.publish_quarantined();
        self.attempts.clear();
        Ok(())
    }

    fn attempt_later(&mut self, namespace: &str) {
        let attempt = self
            .attempts
            .entry(namespace.to_owned())
            .or_insert_with(|| Attempt::new(self.outbox.options.retry_max));
        attempt.at = Instant::now() + attempt.backoff.delay();
    }

    /// How long until a quarantined namespace is tried again.
    pub(super) fn next_attempt(&self) -> Option<Duration> {
        let next = self.attempts.values().map(|attempt| attempt.at).min()?;
        Some(next.saturating_duration_since(Instant::now()))
    }

    /// Tries one quarantined namespace that is due or asked for. Returns whether there was one.
    pub(super) fn replay_due(&mut self) -> Result<bool, ForwardError> {
        if self.attempts.is_empty() {
            return Ok(false);
        }
        let wanted = self.outbox.take_wanted();
        let now = Instant::now();
        let is_due = |(_, attempt): &(&String, &Attempt)| attempt.at <= now;
        let due = self.attempts.iter().find(is_due).map(|(namespace, _)| namespace.clone());
        let Some(namespace) = wanted.or(due) else { return Ok(false) };
        // What is open belongs to other namespaces.
        self.checkpoint(true)?;
        self.is_counted = false;
        let replayed = self.replay(&namespace);
        self.outbox.count_attempt(&namespace);
        match replayed {
            Ok(()) => {
                self.release(&namespace)?;
                tracing::info!(namespace, "the database has the documents that it had refused");
            }
            Err(error) if error.is_refusal() => {
                let sink = self.sink.as_deref_mut().ok_or(ForwardError::Closing)?;
                sink.roll_back()?;
                let reason = reason(&error);
                self.outbox.record_quarantined(|all| {
                    if let Some(refused) = all.get_mut(&namespace) {
                        refused.reason = reason;
                    }
                })?;
                self.outbox.publish_quarantined();
                self.attempt_later(&namespace);
            }
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// Writes everything of a namespace that the database lacks of the local one.
    fn replay(&mut self, namespace: &str) -> Result<(), ForwardError> {
        let reader = SqliteReader::open(&self.parts.documents).map_err(ForwardError::OpenLocal)?;
        let sink = self.sink.as_deref_mut().ok_or(ForwardError::Closing)?;
        // Without a position, none was passed.
        let Some(at) = sink.position() else { return Ok(()) };
        sink.amend();
        self.copy_columns(&reader, namespace, at)?;
        // Which of them the position has passed is not known. Done again they are the same.
        self.copy_changes(&reader, namespace, 0, at)?;
        loop {
            let sink = self.sink.as_deref_mut().ok_or(ForwardError::Closing)?;
            let last = sink.last_id(namespace)?.unwrap_or(0);
            let Some(info) = reader.namespace(namespace)? else { return Ok(()) };
            let lacking = info.last_id.unwrap_or(0).saturating_sub(last);
            self.outbox.set_quarantined_documents(namespace, lacking);
            if lacking == 0 {
                // The columns alone, if nothing else was written.
                sink.commit(at)?;
                return Ok(());
            }
            let started = Instant::now();
            let (written, conflicts) = self.copy_some(&reader, &info, last, at)?;
            if written == 0 {
                self.copy_last_id(&info, at)?;
            }
            let sink = self.sink.as_deref_mut().ok_or(ForwardError::Closing)?;
            sink.commit(at)?;
            crate::meters::forwarded(written, started.elapsed());
            self.outbox.count_replayed(written, conflicts);
            let sink = self.sink.as_deref_mut().ok_or(ForwardError::Closing)?;
            sink.amend();
        }
    }

    /// Counts the documents that the database lacks of quarantined namespaces, once everything else
    /// is written.
    pub(super) fn count_quarantined(&mut self) -> Result<(), ForwardError> {
        if self.is_counted || self.attempts.is_empty() {
            return Ok(());
        }
        self.is_counted = true;
        let reader = SqliteReader::open(&self.parts.documents).map_err(ForwardError::OpenLocal)?;
        let sink = self.sink.as_deref_mut().ok_or(ForwardError::Closing)?;
        for namespace in self.attempts.keys() {
            let info: Option<NamespaceInfo> = reader.namespace(namespace)?;
            let here = info.and_then(|info| info.last_id).unwrap_or(0);
            let there = sink.last_id(namespace)?.unwrap_or(0);
            self.outbox.set_quarantined_documents(namespace, here.saturating_sub(there));
        }
        Ok(())
    }
}

impl Attempt {
    /// An attempt at once, and others later.
    ///
    /// * `delay`: the longest delay while the database is unavailable.
    pub(super) fn new(delay: Duration) -> Self {
        let backoff = Backoff::new(delay, delay.saturating_mul(DELAY_FACTOR));
        Self { at: Instant::now(), backoff }
    }
}

fn reason(error: &ForwardError) -> String {
    let mut reason = chain(error).to_string();
    let end = (0..=REASON_SIZE_MAX.min(reason.len())).rev().find(|at| reason.is_char_boundary(*at));
    reason.truncate(end.unwrap_or(0));
    reason
}
