//! Having one's turn with an upload: reading its state, declaring its length, finishing, removing.
//!
//! Invariants: a file is changed only by the request that holds the upload's slot, and the slot moves
//! with the work onto threads that block, so that a request that is abandoned leaves no other one
//! writing beside it.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;

use super::append::Writer;
use super::file::{First, read_first, scan};
use super::frame::{FrameKind, encode_finished};
use super::table::{Entry, Slot, State};
use super::{
    Inner, Note, RESULT_SIZE_MAX, UploadError, UploadId, UploadKind, UploadStatus, Uploads, meters,
};

/// How long a request waits for the one that has its turn.
const TURN_WAIT: Duration = Duration::from_secs(20);
/// Parts that are removed together.
const PARTS_PER_STEP: usize = 1_000;

impl Uploads {
    /// Returns the state of an upload, without disturbing a request that appends to it.
    ///
    /// # Errors
    /// [`UploadError::NotFound`], [`UploadError::Damaged`], [`UploadError::Io`].
    pub async fn status(&self, id: UploadId) -> Result<UploadStatus, UploadError> {
        let entry = self.inner.entry(id)?;
        self.inner.status(&entry).await
    }

    /// Asks a request that appends to store what it has and end, and returns the state after that.
    ///
    /// For a client that lost its connection and comes back before that is noticed.
    ///
    /// # Errors
    /// As [`Uploads::status`]; [`UploadError::InUse`]: the other request does not end.
    pub async fn settle(&self, id: UploadId) -> Result<UploadStatus, UploadError> {
        let entry = self.inner.entry(id)?;
        entry.ask_to_stop();
        let slot = self.inner.turn(&entry).await?;
        drop(self.inner.loaded(&entry, slot).await?);
        Ok(entry.status())
    }

    /// Returns up to `limit` uploads that are not parts, by id, after `after`. Damaged ones are left out.
    ///
    /// # Errors
    /// [`UploadError::Io`].
    pub async fn list(
        &self,
        after: Option<UploadId>,
        limit: usize,
    ) -> Result<Vec<UploadStatus>, UploadError> {
        let entries = self.inner.table.lock().after(after, limit);
        self.inner.statuses(entries).await
    }

    /// Returns the last upload of the page that [`Uploads::list`] returns for the same arguments, damaged
    /// ones included; `None`: there are none after that page.
    #[must_use]
    pub fn next_after(&self, after: Option<UploadId>, limit: usize) -> Option<UploadId> {
        let page = self.inner.table.lock().after(after, limit.saturating_add(1));
        let is_last = page.len() <= limit;
        page.into_iter().take(limit).next_back().map(|entry| entry.id).filter(|_| !is_last)
    }

    /// Returns up to `limit` parts of a multipart upload, by number, after number `after`. Damaged ones
    /// are left out; several may have the same number.
    ///
    /// # Errors
    /// [`UploadError::Io`].
    pub async fn parts(
        &self,
        group: UploadId,
        after: Option<u32>,
        limit: usize,
    ) -> Result<Vec<UploadStatus>, UploadError> {
        let entries = self.inner.table.lock().parts(group, after, limit);
        self.inner.statuses(entries).await
    }

    /// Declares the length of an upload that was created without one. It is on stable storage when this
    /// returns. Declaring the same length again changes nothing.
    ///
    /// # Errors
    /// [`UploadError::Length`]: it contradicts what is known. Others as for [`Uploads::settle`].
    pub async fn set_length(&self, id: UploadId, length: u64) -> Result<(), UploadError> {
        let entry = self.inner.entry(id)?;
        let slot = self.inner.turn(&entry).await?;
        let slot = self.inner.loaded(&entry, slot).await?;
        let status = entry.status();
        let wrong = |reason| UploadError::Length { id, declared: length, reason };
        match status.length {
            Some(known) if known == length => return Ok(()),
            Some(_) => return Err(wrong("another length was declared before")),
            None if length < status.offset => return Err(wrong("it has more bytes already")),
            None => {}
        }
        let limit = self.inner.size_max;
        if length > limit {
            return Err(UploadError::TooLarge { limit });
        }
        let inner = Arc::clone(&self.inner);
        let run = move || {
            inner.table.lock().grow(&entry, length)?;
            let mut writer = Writer::open(inner, entry, slot, None)?;
            writer.set_length(length, Note::default())?;
            writer.settle().map(drop)
        };
        self.inner.blocking("declare a length in", run).await
    }

    /// Declares that an upload is complete with the bytes it has, and notes something about them. Both are
    /// on stable storage when this returns.
    ///
    /// # Errors
    /// [`UploadError::Length`]: it has fewer bytes than were declared before. Others as for
    /// [`Uploads::settle`].
    pub async fn seal(&self, id: UploadId, note: Note) -> Result<(), UploadError> {
        let entry = self.inner.entry(id)?;
        let slot = self.inner.turn(&entry).await?;
        let slot = self.inner.loaded(&entry, slot).await?;
        let status = entry.status();
        let declared = status.offset;
        if status.length.is_some_and(|length| length != declared) {
            let reason = "another length was declared before";
            return Err(UploadError::Length { id, declared, reason });
        }
        let inner = Arc::clone(&self.inner);
        let run = move || {
            let mut writer = Writer::open(inner, entry, slot, None)?;
            writer.set_length(declared, note)?;
            writer.settle().map(drop)
        };
        self.inner.blocking("seal an upload in", run).await
    }

    /// Records what became of an upload, and frees the space of its bytes. The result is on stable
    /// storage when this returns; it is remembered until the upload expires.
    ///
    /// Returns the result that the upload has: an earlier one stays.
    ///
    /// # Errors
    /// [`UploadError::Incomplete`]; [`UploadError::Attributes`]: the result is too large; others as for
    /// [`Uploads::settle`].
    pub async fn finish(&self, id: UploadId, result: &[u8]) -> Result<Arc<[u8]>, UploadError> {
        if result.len() > RESULT_SIZE_MAX {
            return Err(UploadError::Attributes { what: "result", limit: RESULT_SIZE_MAX });
        }
        let entry = self.inner.entry(id)?;
        let slot = self.inner.turn(&entry).await?;
        let slot = self.inner.loaded(&entry, slot).await?;
        let status = entry.status();
        if let Some(result) = status.result {
            return Ok(result);
        }
        if !status.is_complete() {
            return Err(UploadError::Incomplete { id, offset: status.offset });
        }
        let inner = Arc::clone(&self.inner);
        let result: Arc<[u8]> = result.into();
        self.inner.blocking("finish an upload in", move || inner.finish(&entry, slot, result)).await
    }

    /// Removes an upload, and its parts if it is a multipart upload. A request that appends ends.
    ///
    /// # Errors
    /// [`UploadError::NotFound`]; others as for [`Uploads::settle`].
    pub async fn remove(&self, id: UploadId) -> Result<(), UploadError> {
        let entry = match self.inner.entry(id) {
            Err(UploadError::Damaged { .. }) => return self.remove_damaged(id).await,
            found => found?,
        };
        entry.ask_to_stop();
        let slot = self.inner.turn(&entry).await?;
        let kind = entry.begin.new.kind;
        let inner = Arc::clone(&self.inner);
        let run = move || {
            let mut slot = slot;
            inner.discard(&entry, &mut slot)?;
            inner.sync_dir(id)
        };
        self.inner.blocking("remove an upload from", run).await?;
        if kind == UploadKind::Multipart {
            self.remove_parts(id).await?;
        }
        Ok(())
    }

    /// Removes the parts of a multipart upload.
    ///
    /// # Errors
    /// As [`Uploads::remove`].
    pub async fn remove_parts(&self, group: UploadId) -> Result<(), UploadError> {
        loop {
            let parts = self.inner.table.lock().parts(group, None, PARTS_PER_STEP);
            if parts.is_empty() {
                return Ok(());
            }
            let mut held = Vec::with_capacity(parts.len());
            for entry in parts {
                entry.ask_to_stop();
                match self.inner.turn(&entry).await {
                    Ok(slot) => held.push((entry, slot)),
                    Err(UploadError::NotFound { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            let inner = Arc::clone(&self.inner);
            let run = move || {
                for (entry, mut slot) in held {
                    inner.discard(&entry, &mut slot)?;
                }
                inner.sync_dir(group)
            };
            self.inner.blocking("remove uploads from", run).await?;
        }
    }

    async fn remove_damaged(&self, id: UploadId) -> Result<(), UploadError> {
        let inner = Arc::clone(&self.inner);
        let run = move || {
            inner.remove_file(id)?;
            inner.table.lock().forget_damaged(id);
            inner.sync_dir(id)
        };
        self.inner.blocking("remove an upload from", run).await
    }
}

impl Inner {
    pub(super) fn entry(&self, id: UploadId) -> Result<Arc<Entry>, UploadError> {
        self.table.lock().get(id)
    }

    /// Waits until no other request changes the upload.
    pub(super) async fn turn(
        &self,
        entry: &Arc<Entry>,
    ) -> Result<OwnedMutexGuard<Slot>, UploadError> {
        let id = entry.id;
        let slot = tokio::time::timeout(TURN_WAIT, Arc::clone(&entry.turn).lock_owned())
            .await
            .map_err(|_| UploadError::InUse { id })?;
        if slot.is_gone { Err(UploadError::NotFound { id }) } else { Ok(slot) }
    }

    /// Reads what an earlier run left, or a failure, and returns the slot.
    pub(super) async fn loaded(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        mut slot: OwnedMutexGuard<Slot>,
    ) -> Result<OwnedMutexGuard<Slot>, UploadError> {
        let is_read = slot.tail.is_some() && matches!(entry.shown.lock().state, State::Open);
        if !is_read {
            let (inner, same) = (Arc::clone(self), Arc::clone(entry));
            let run = move || inner.load(&same, &mut slot).map(|()| slot);
            slot = self.blocking("read an upload in", run).await?;
        }
        if entry.expires_ms() <= self.clock.now_ms() {
            return Err(UploadError::NotFound { id: entry.id });
        }
        Ok(slot)
    }

    async fn status(self: &Arc<Self>, entry: &Arc<Entry>) -> Result<UploadStatus, UploadError> {
        let state = entry.shown.lock().state.clone();
        match state {
            State::Unread => {
                let slot = self.turn(entry).await?;
                drop(self.loaded(entry, slot).await?);
            }
            State::Damaged(found) => {
                return Err(UploadError::Damaged { id: entry.id, found: found.to_string() });
            }
            State::Open | State::Finished(_) => {
                if entry.expires_ms() <= self.clock.now_ms() {
                    return Err(UploadError::NotFound { id: entry.id });
                }
            }
        }
        Ok(entry.status())
    }

    async fn statuses(
        self: &Arc<Self>,
        entries: Vec<Arc<Entry>>,
    ) -> Result<Vec<UploadStatus>, UploadError> {
        let mut found = Vec::with_capacity(entries.len());
        for entry in entries {
            match self.status(&entry).await {
                Ok(status) => found.push(status),
                Err(UploadError::NotFound { .. } | UploadError::Damaged { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// Finds the valid part of an upload's file, cuts off the rest, and makes it durable.
    pub(super) fn load(&self, entry: &Entry, slot: &mut Slot) -> Result<(), UploadError> {
        let id = entry.id;
        if slot.is_gone {
            return Err(UploadError::NotFound { id });
        }
        match &entry.shown.lock().state {
            State::Finished(_) => return Ok(()),
            State::Damaged(found) => {
                return Err(UploadError::Damaged { id, found: found.to_string() });
            }
            State::Open | State::Unread => {}
        }
        let file = self.open_file(id)?;
        let read = self.failed("read", id);
        match read_first(file.as_ref(), id).map_err(&read)? {
            Some(First::Open { tail: first, .. }) => {
                let mut tail = scan(file.as_ref(), id, first).map_err(&read)?;
                if file.len().map_err(&read)? > tail.end {
                    file.set_len(tail.end).map_err(self.failed("truncate", id))?;
                }
                file.sync_data().map_err(self.failed("sync", id))?;
                tail.synced = tail.end;
                slot.tail = Some(tail);
                self.table.lock().show(entry, &tail);
                Ok(())
            }
            Some(First::Finished { result, offset, touched_ms, .. }) => {
                // It was written by an attempt that failed afterwards.
                self.sync_dir(id)?;
                self.table.lock().show_finished(entry, result.into(), offset, touched_ms);
                Ok(())
            }
            None => {
                let found = "its first frame is invalid";
                self.table.lock().show_damage(entry, found);
                Err(UploadError::Damaged { id, found: found.to_owned() })
            }
        }
    }

    fn finish(
        &self,
        entry: &Entry,
        mut slot: OwnedMutexGuard<Slot>,
        result: Arc<[u8]>,
    ) -> Result<Arc<[u8]>, UploadError> {
        let id = entry.id;
        let offset = entry.shown.lock().offset;
        let payload = encode_finished(&entry.begin, &result);
        // If this fails, either of the two files may have the name.
        slot.tail = None;
        self.write_new(id, FrameKind::Finished, offset, &payload)
            .map_err(self.failed("finish", id))?;
        let now_ms = self.clock.now_ms();
        let oldest = {
            let mut table = self.table.lock();
            let oldest = table.show_finished(entry, Arc::clone(&result), offset, now_ms);
            table.measure();
            oldest
        };
        meters::finished();
        if let Some(oldest) = oldest
            && let Ok(mut slot) = Arc::clone(&oldest.turn).try_lock_owned()
            && let Err(error) = self.discard(&oldest, &mut slot)
        {
            tracing::warn!(%error, "could not remove the oldest finished upload");
        }
        Ok(result)
    }

    /// Removes an upload. The directory still has to be synced.
    pub(super) fn discard(&self, entry: &Entry, slot: &mut Slot) -> Result<(), UploadError> {
        self.remove_file(entry.id)?;
        slot.is_gone = true;
        slot.tail = None;
        let mut table = self.table.lock();
        table.remove(entry);
        table.measure();
        Ok(())
    }

    fn remove_file(&self, id: UploadId) -> Result<(), UploadError> {
        match self.fs.remove_file(&self.path(id)) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(self.failed("remove", id)(error))
            }
            _ => Ok(()),
        }
    }

    fn sync_dir(&self, id: UploadId) -> Result<(), UploadError> {
        self.fs.sync_dir(&self.dir).map_err(self.failed("sync the directory of", id))
    }
}
