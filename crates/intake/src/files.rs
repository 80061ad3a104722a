//! Files: giving a name to bytes.
//!
//! A put is decided under the queue's lock: the bytes the name refers to, whether the new bytes are
//! known, and the position of its entry in the log are one step, so two puts can never both
//! consider themselves first. What the queue does not know is queried from the catalogue outside
//! the lock, and the answer is used only if no queued change was applied to the catalogue
//! meanwhile.
//!
//! Invariants: bytes are never dropped before the entry that names them is refused or committed; a
//! duplicate refers only to bytes that are pinned or queued; nothing is answered before its entry
//! is committed.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use forebay_log::{AppendError, Appended, Lsn};

use crate::answer::{file_url, id_text, put_json};
use crate::attributes::Attributes;
use crate::blob::Staging;
use crate::blobs::Pinned;
use crate::catalogue::{Answered, BlobLocation, BlobRecord, Change, FileRecord};
use crate::classify::Category;
use crate::digest::Digest;
use crate::error::IntakeError;
use crate::format::{BlobPlace, FileMove, FilePut, IdempotencyRecord};
use crate::names::Namespace;
use crate::pending::{BlobSeen, NameKey, NameSeen, Pending, Queued};
use crate::quotas;
use crate::shared::Shared;

/// A file to be stored: everything but its bytes.
#[derive(Debug, Clone)]
pub(crate) struct NewFile {
    pub(crate) key: NameKey,
    pub(crate) comment: String,
    pub(crate) attributes: Attributes,
    pub(crate) digest: Digest,
    pub(crate) size: u64,
    pub(crate) mime: Cow<'static, str>,
    pub(crate) category: Category,
    pub(crate) condition: Condition,
    pub(crate) idempotency: Option<IdempotencyRecord>,
    /// The file that this one is made of, if its bytes are those of another name.
    pub(crate) origin: Option<Origin>,
}

/// The file that a new one is made of.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    pub(crate) key: NameKey,
    /// The id that the name must still have.
    pub(crate) id: u64,
    /// Whether the same entry deletes it.
    pub(crate) is_moved: bool,
}

impl NewFile {
    /// The file, once its entry is in the log.
    fn record(&self, lsn: Lsn, created_ms: i64) -> FileRecord {
        FileRecord {
            id: lsn.0,
            namespace: self.key.0.clone(),
            name: self.key.1.clone(),
            digest: self.digest,
            size: self.size,
            mime: self.mime.clone(),
            category: self.category,
            comment: self.comment.clone(),
            created_ms,
            attributes: self.attributes.clone(),
        }
    }

    /// The name that the same entry deletes.
    fn moved(&self) -> Option<&NameKey> {
        self.origin.as_ref().filter(|origin| origin.is_moved).map(|origin| &origin.key)
    }
}

/// Precondition on what a name refers to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Condition {
    /// None.
    #[default]
    None,
    /// The name does not exist.
    Absent,
    /// The name exists.
    Present,
    /// The name refers to one of these bytes.
    OneOf(Vec<Digest>),
    /// The name does not exist, or refers to none of these bytes.
    NoneOf(Vec<Digest>),
    /// The name exists since this second of Unix time or earlier.
    UnchangedSince(u64),
    /// The name refers to the file with this id.
    Id(u64),
}

impl Condition {
    /// Whether it holds of bytes with this digest that were stored at this time, or of none.
    ///
    /// Never true of [`Condition::Id`], which only [`Condition::check`] can check.
    pub(crate) fn holds(&self, before: Option<(Digest, i64)>) -> bool {
        match (self, before) {
            (Self::None, _) => true,
            (Self::Absent, before) => before.is_none(),
            (Self::Present, before) => before.is_some(),
            (Self::OneOf(digests), Some((digest, _))) => digests.contains(&digest),
            (Self::NoneOf(digests), Some((digest, _))) => !digests.contains(&digest),
            (Self::UnchangedSince(second), Some((_, created_ms))) => {
                created_ms.max(0).cast_unsigned() / 1_000 <= *second
            }
            (Self::NoneOf(_), None) => true,
            (Self::OneOf(_) | Self::UnchangedSince(_), None) | (Self::Id(_), _) => false,
        }
    }

    pub(crate) fn check(&self, before: Option<&FileRecord>) -> Result<(), IntakeError> {
        let holds = match (self, before) {
            (Self::Id(id), before) => before.is_some_and(|file| file.id == *id),
            _ => self.holds(before.map(|file| (file.digest, file.created_ms))),
        };
        if holds {
            return Ok(());
        }
        let message = match (self, before) {
            (_, None) => "the name does not exist".to_owned(),
            (Self::Absent, Some(_)) => "the name exists".to_owned(),
            (Self::UnchangedSince(_), Some(_)) => "the name was stored later".to_owned(),
            (Self::Id(_), Some(file)) => {
                format!("the name refers to the file {}", id_text(file.id))
            }
            (_, Some(file)) => format!("the name refers to the bytes \"{}\"", file.digest),
        };
        Err(IntakeError::Precondition { message })
    }
}

/// The bytes of a file to be stored.
#[derive(Debug)]
pub(crate) enum NewBytes {
    /// In memory: small enough for the log.
    Packed(Bytes),
    /// In a synced staging file.
    Staged(Staging),
}

/// The result of storing a file.
#[derive(Debug, Clone)]
pub struct Put {
    /// The file.
    pub file: Arc<FileRecord>,
    /// Whether its bytes were already stored.
    pub duplicate: bool,
    /// Whether the name referred to other bytes before.
    pub replaced: bool,
    /// Whether the name is new.
    pub created: bool,
}

/// An answer of the catalogue, valid while the queue's generation stays the same.
#[derive(Debug)]
struct Asked {
    generation: u64,
    name: Option<(FileRecord, BlobRecord)>,
    blob: Option<BlobRecord>,
    is_blob_asked: bool,
    /// The id of the name that the file is made of.
    origin: Option<u64>,
}

/// The result of a put under the lock.
enum Step {
    /// The catalogue has to be queried first.
    Ask { name: bool, blob: bool, origin: bool, generation: u64 },
    /// The queue of changes is full.
    Crowded,
    /// The name that the file is made of is another file by now.
    Gone,
    /// The blob store has to take the bytes first.
    Keep,
    /// The log's buffer is full.
    Full,
    /// The name already refers to these bytes.
    Same(Put, Option<Lsn>),
    /// The condition does not hold, because of an entry that ends at this position.
    Refused(IntakeError, Option<Lsn>),
    /// The entry is in the log.
    Appended(Put, Lsn),
}

impl Put {
    /// Status of the answer, as the log keeps it for repeated requests: 201 or 200.
    #[must_use]
    pub fn status(&self) -> u16 {
        if self.created { 201 } else { 200 }
    }

    /// JSON of the answer.
    pub(crate) fn answer(&self) -> Vec<u8> {
        let url = file_url(self.file.namespace.as_str(), self.file.name.as_str());
        put_json(&self.file, self.duplicate, self.replaced, &url)
    }
}

/// The file that a name refers to, and the end of the entry that decided it if it is still queued.
fn file_before(seen: NameSeen, asked: Option<&Asked>) -> (Option<Arc<FileRecord>>, Option<Lsn>) {
    match seen {
        NameSeen::New => (None, None),
        NameSeen::Pending(pending) => (pending.file, Some(pending.end)),
        NameSeen::Ask => {
            let named = asked.and_then(|asked| asked.name.as_ref());
            (named.map(|(file, _)| Arc::new(file.clone())), None)
        }
    }
}

/// What a put adds to its namespace, and a move to another one.
fn growth<'a>(
    pending: &Pending,
    new: &'a NewFile,
    before: Option<&FileRecord>,
) -> (quotas::Change, Option<(&'a Namespace, quotas::Change)>) {
    let namespace = &new.key.0;
    let before = before.map(|file| (file.size, pending.keeps_version(namespace, file.id)));
    let put = quotas::Change::of_put(new.size, before);
    let Some(origin) = new.origin.as_ref().filter(|origin| origin.is_moved) else {
        return (put, None);
    };
    let keeps = pending.keeps_version(&origin.key.0, origin.id);
    let taken = quotas::Change::of_delete(new.size, keeps);
    if origin.key.0 == *namespace {
        (put.and(taken), None)
    } else {
        (put, Some((&origin.key.0, taken)))
    }
}

impl Shared {
    /// Gives a name to bytes. Returns when the change is as durable as configured.
    ///
    /// * `bytes`: `None` if they are those of [`NewFile::origin`].
    /// * Returns `None` if the origin is another file by now: nothing was changed.
    pub(crate) async fn put(
        self: &Arc<Self>,
        new: NewFile,
        bytes: Option<NewBytes>,
    ) -> Result<Option<Put>, IntakeError> {
        self.check_space()?;
        self.check_views()?;
        let is_stored = bytes.is_none();
        // Bytes for the log, and others, which the blob store has to take first.
        let (packed, mut unkept) = match bytes {
            Some(NewBytes::Packed(bytes)) if !self.blobs.takes(bytes.len()) => (Some(bytes), None),
            other => (None, other),
        };
        let mut pinned = Pinned::none(self);
        let mut asked = None;
        loop {
            let kept = unkept.is_none() && packed.is_none() && !is_stored;
            let step = self.step(&new, packed.as_deref(), kept, asked.take())?;
            match step {
                Step::Ask { name, blob, origin, generation } => {
                    pinned.pin(new.digest);
                    asked = Some(self.ask(&new, (name, blob, origin), generation)?);
                }
                Step::Crowded => self.wait_for_room().await?,
                Step::Gone => return Ok(None),
                Step::Keep if is_stored => return Ok(None),
                Step::Keep => {
                    if let Some(bytes) = unkept.take() {
                        pinned.pin(new.digest);
                        pinned.keeps();
                        Box::pin(self.keep(bytes, new.digest, new.size)).await?;
                    }
                }
                Step::Full => {
                    let size = packed.as_ref().map_or(0, Bytes::len) + 16_384;
                    Box::pin(self.log.room(size)).await;
                }
                Step::Same(put, end) => {
                    self.certain(end).await?;
                    return Ok(Some(put));
                }
                Step::Refused(error, end) => {
                    self.certain(end).await?;
                    return Err(error);
                }
                Step::Appended(put, end) => {
                    pinned.named();
                    self.committed(end).await?;
                    return Ok(Some(put));
                }
            }
        }
    }

    /// Waits until the entry that an answer depends on is as durable as configured: an answer must
    /// not report a change that a crash could still undo.
    pub(crate) async fn certain(&self, end: Option<Lsn>) -> Result<(), IntakeError> {
        match end {
            Some(end) => self.committed(end).await,
            None => Ok(()),
        }
    }

    /// Decides a put and appends its entry, or returns what has to happen first.
    fn step(
        &self,
        new: &NewFile,
        packed: Option<&[u8]>,
        kept: bool,
        asked: Option<Asked>,
    ) -> Result<Step, IntakeError> {
        let mut pending = self.pending.lock();
        if pending.len() >= self.options.limits.pending_changes_max {
            return Ok(Step::Crowded);
        }
        let generation = pending.generation();
        let asked = asked.filter(|asked| asked.generation == generation);
        let name_seen = pending.name(&new.key);
        // What was asked of the catalogue stands for the tiers before it.
        let is_blob_asked = asked.as_ref().is_some_and(|asked| asked.is_blob_asked);
        let blob_seen = match is_blob_asked {
            true => pending.blob(new.digest),
            false => pending.look_up(new.digest),
        };
        let ask_name = matches!(name_seen, NameSeen::Ask) && asked.is_none();
        let ask_blob = matches!(blob_seen, BlobSeen::Ask) && !is_blob_asked;
        let origin_seen = new.origin.as_ref().map(|origin| (origin, pending.name(&origin.key)));
        let ask_origin = matches!(origin_seen, Some((_, NameSeen::Ask)));
        if ask_name || ask_blob || ask_origin && asked.is_none() {
            let (name, blob) =
                (matches!(name_seen, NameSeen::Ask), matches!(blob_seen, BlobSeen::Ask));
            return Ok(Step::Ask { name, blob, origin: ask_origin, generation });
        }
        if let Some((origin, seen)) = origin_seen {
            let found = match seen {
                NameSeen::New => None,
                NameSeen::Pending(pending) => pending.file.map(|file| file.id),
                NameSeen::Ask => asked.as_ref().and_then(|asked| asked.origin),
            };
            if found != Some(origin.id) {
                return Ok(Step::Gone);
            }
        }
        let (before, before_end) = file_before(name_seen, asked.as_ref());
        if let Err(error) = new.condition.check(before.as_deref()) {
            return Ok(Step::Refused(error, before_end));
        }
        if let Some(file) = &before
            && new.idempotency.is_none()
            && new.moved().is_none()
            && file.digest == new.digest
            && file.comment == new.comment
            && file.attributes == new.attributes
        {
            let put = Put { file: file.clone(), duplicate: true, replaced: false, created: false };
            return Ok(Step::Same(put, before_end));
        }
        let growth = growth(&pending, new, before.as_deref());
        pending.check_quota(&new.key.0, growth.0)?;
        let known = match blob_seen {
            BlobSeen::Stored(_) => true,
            BlobSeen::New | BlobSeen::Doomed => false,
            BlobSeen::Ask => asked.as_ref().is_some_and(|asked| asked.blob.is_some()),
        };
        if !known && packed.is_none() && !kept {
            return Ok(Step::Keep);
        }
        let replaced = before.as_ref().is_some_and(|file| file.digest != new.digest);
        let before = before.map(|file| file.id);
        let step = self.append_put(&mut pending, new, packed, known, replaced, before)?;
        if let Step::Appended(put, _) = &step {
            let lsn = Lsn(put.file.id);
            pending.usages.change(&new.key.0, lsn, growth.0);
            if let Some((namespace, change)) = growth.1 {
                pending.usages.change(namespace, lsn, change);
            }
        }
        Ok(step)
    }

    /// Appends a decided put and queues its change.
    ///
    /// * `before`: id of the file that the name referred to.
    fn append_put(
        &self,
        pending: &mut Pending,
        new: &NewFile,
        packed: Option<&[u8]>,
        known: bool,
        replaced: bool,
        before: Option<u64>,
    ) -> Result<Step, IntakeError> {
        let created = before.is_none();
        let created_ms = self.now_ms();
        let place = match packed {
            _ if known => BlobPlace::Existing,
            Some(bytes) => BlobPlace::Inline(bytes),
            None => BlobPlace::File,
        };
        let entry = FilePut {
            created_ms,
            digest: new.digest,
            size: new.size,
            category: new.category,
            namespace: new.key.0.clone(),
            name: new.key.1.clone(),
            mime: &new.mime,
            comment: &new.comment,
            attributes: new.attributes.clone(),
            duplicate: known,
            replaced,
            created,
            keeps: before.is_some_and(|id| pending.keeps_version(&new.key.0, id)),
            derived: new.origin.as_ref().is_some_and(|origin| !origin.is_moved),
            idempotency: new.idempotency,
            place,
        };
        let keeps = entry.keeps;
        let moved = new.origin.as_ref().filter(|origin| origin.is_moved).map(|origin| {
            let keeps = pending.keeps_version(&origin.key.0, origin.id);
            (origin.key.clone(), keeps)
        });
        let header = match moved.clone() {
            None => entry.encode_header(),
            Some(((from_namespace, from_name), keeps)) => {
                FileMove { put: entry, from_namespace, from_name, keeps }.encode()
            }
        };
        let inline = match place {
            BlobPlace::Inline(bytes) => bytes,
            _ => &[],
        };
        let Appended { lsn, end, .. } = match self.log.try_append(&[&header, inline]) {
            Ok(appended) => appended,
            Err(AppendError::Full { .. }) => return Ok(Step::Full),
            Err(error) => return Err(IntakeError::Append(error)),
        };
        let file = Arc::new(new.record(lsn, created_ms));
        self.expiry.expects(&file);
        let stored = match place {
            BlobPlace::Existing => None,
            BlobPlace::Inline(_) => Some(BlobLocation::Entry(lsn.0)),
            BlobPlace::File => Some(BlobLocation::File),
        };
        let put = Put { file: file.clone(), duplicate: known, replaced, created };
        let answered = new.idempotency.map(|record| {
            let (status, answer) = (put.status(), put.answer());
            Arc::new(Answered { record, status, answer, created_ms })
        });
        let change = match moved {
            None => Change::Put { file, stored, keeps },
            Some((from, keeps_from)) => Change::Move { file, from, keeps, keeps_from },
        };
        self.queue(pending, Queued { lsn, end, change, answered });
        Ok(Step::Appended(put, end))
    }

    /// Queues a change and wakes the applier when enough have gathered.
    pub(crate) fn queue(&self, pending: &mut Pending, queued: Queued) {
        pending.push(queued);
        if pending.len() == 1 || pending.len() == crate::apply::BATCH {
            self.work.notify_one();
        }
    }

    /// The file with this name in the catalogue. That there is none is certain only if the catalogue
    /// is not damaged.
    pub(crate) fn stored(
        &self,
        key: &NameKey,
    ) -> Result<Option<(FileRecord, BlobRecord)>, IntakeError> {
        let found = self.reader.file(&key.0, &key.1)?;
        if found.is_none() {
            self.check_whole()?;
        }
        Ok(found)
    }

    fn ask(
        &self,
        new: &NewFile,
        (name, blob, origin): (bool, bool, bool),
        generation: u64,
    ) -> Result<Asked, IntakeError> {
        let name = if name { self.stored(&new.key)? } else { None };
        let is_blob_asked = blob;
        let blob = match blob {
            true => {
                let found = self.reader.live_blob(new.digest)?;
                self.pending.lock().learn(found, generation);
                found
            }
            false => None,
        };
        let origin = match &new.origin {
            Some(Origin { key, .. }) if origin => self.stored(key)?.map(|(file, _)| file.id),
            _ => None,
        };
        Ok(Asked { generation, name, blob, is_blob_asked, origin })
    }
}
