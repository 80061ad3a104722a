//! Deleting a name.
//!
//! Like a put it is decided under the queue's lock, from what the queue or the catalogue says of the name.
//!
//! Invariant: a name is reported as absent only once the entry that made it so is as durable as configured.

use std::sync::Arc;

use forebay_log::{AppendError, Appended, Lsn};

use crate::catalogue::{Answered, Change, FileRecord};
use crate::error::IntakeError;
use crate::files::Condition;
use crate::format::{Delete, IdempotencyRecord};
use crate::pending::{NameKey, NameSeen, Pending, Queued};
use crate::quotas;
use crate::shared::Shared;

/// A name that was deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deletion {
    /// Position of the entry that deleted it.
    pub id: u64,
    /// Whether what it referred to is kept as a version, and the deletion as another with this id.
    pub keeps: bool,
}

/// The result of a delete under the lock.
enum DeleteStep {
    /// The catalogue has to be queried first.
    Ask(u64),
    /// The log's buffer is full.
    Full,
    /// There is nothing to delete, because of an entry that ends at this position.
    Absent(Option<Lsn>),
    /// The condition does not hold, because of an entry that ends at this position.
    Refused(IntakeError, Option<Lsn>),
    /// The entry is in the log.
    Appended(Deletion, Lsn),
}

impl Shared {
    /// Deletes a name; returns `None` if it does not exist.
    pub(crate) async fn delete(
        self: &Arc<Self>,
        key: &NameKey,
        condition: &Condition,
        idempotency: Option<IdempotencyRecord>,
    ) -> Result<Option<Deletion>, IntakeError> {
        self.wait_for_room().await?;
        let mut asked: Option<(u64, Option<Arc<FileRecord>>)> = None;
        loop {
            match self.delete_step(key, condition, idempotency, asked.take())? {
                DeleteStep::Absent(end) => {
                    self.certain(end).await?;
                    return Ok(None);
                }
                DeleteStep::Refused(error, end) => {
                    self.certain(end).await?;
                    return Err(error);
                }
                DeleteStep::Full => self.log.room(16_384).await,
                DeleteStep::Appended(deletion, end) => {
                    self.committed(end).await?;
                    return Ok(Some(deletion));
                }
                DeleteStep::Ask(generation) => {
                    let before = self.stored(key)?;
                    asked = Some((generation, before.map(|(file, _)| Arc::new(file))));
                }
            }
        }
    }

    fn delete_step(
        &self,
        key: &NameKey,
        condition: &Condition,
        idempotency: Option<IdempotencyRecord>,
        asked: Option<(u64, Option<Arc<FileRecord>>)>,
    ) -> Result<DeleteStep, IntakeError> {
        let mut pending = self.pending.lock();
        let generation = pending.generation();
        let (before, before_end) = match pending.name(key) {
            NameSeen::New => (None, None),
            NameSeen::Pending(name) => (name.file, Some(name.end)),
            NameSeen::Ask => match asked {
                Some((asked, before)) if asked == generation => (before, None),
                _ => return Ok(DeleteStep::Ask(generation)),
            },
        };
        if let Err(error) = condition.check(before.as_deref()) {
            return Ok(DeleteStep::Refused(error, before_end));
        }
        let Some(before) = before else { return Ok(DeleteStep::Absent(before_end)) };
        let appended = self.append_delete(&mut pending, key, before.id, idempotency)?;
        if let Some((deletion, _)) = &appended {
            let change = quotas::Change::of_delete(before.size, deletion.keeps);
            pending.usages.change(&key.0, Lsn(deletion.id), change);
        }
        Ok(appended.map_or(DeleteStep::Full, |(deletion, end)| DeleteStep::Appended(deletion, end)))
    }

    fn append_delete(
        &self,
        pending: &mut Pending,
        key: &NameKey,
        before: u64,
        idempotency: Option<IdempotencyRecord>,
    ) -> Result<Option<(Deletion, Lsn)>, IntakeError> {
        let deleted_ms = self.now_ms();
        let (namespace, name) = key.clone();
        let keeps = pending.keeps_version(&namespace, before);
        let entry = Delete { deleted_ms, namespace, name, keeps, idempotency };
        let Appended { lsn, end, .. } = match self.log.try_append(&[&entry.encode()]) {
            Ok(appended) => appended,
            Err(AppendError::Full { .. }) => return Ok(None),
            Err(error) => return Err(IntakeError::Append(error)),
        };
        let answered = idempotency.map(|record| {
            Arc::new(Answered { record, status: 204, answer: Vec::new(), created_ms: deleted_ms })
        });
        let Delete { namespace, name, .. } = entry;
        let kept_ms = keeps.then_some(deleted_ms);
        let change = Change::Delete { namespace, name, kept_ms };
        self.queue(pending, Queued { lsn, end, change, answered });
        Ok(Some((Deletion { id: lsn.0, keeps }, end)))
    }
}
