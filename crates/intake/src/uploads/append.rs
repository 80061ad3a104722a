//! Appending to an upload.
//!
//! Bytes are gathered up to one frame and written on a thread that may block; the file is synced at the
//! end, and every [`SYNC_EVERY`] bytes. A request that ends early, because its sender or its caller is
//! gone or a newer request asks it to, first stores what has arrived. Bytes that were to match a checksum
//! are then thrown away, since it is not known what they are.
//!
//! Invariant: what is shown as the offset is on stable storage, and after a failure the file is cut back
//! to it before anything else is written.

use std::sync::Arc;

use forebay_base::checksum::crc32c;
use forebay_base::error_chain::chain;
use forebay_base::fs::File;
use tokio::sync::OwnedMutexGuard;

use super::checksum::Hasher;
use super::file::{HEADER, Tail};
use super::frame::{FrameKind, Header, PAYLOAD_SIZE_MAX};
use super::table::{Entry, Slot, State, reserved};
use super::{Checksum, Inner, Note, UploadError, UploadId, Uploads, meters};
use crate::error::IntakeError;
use crate::upload::Source;

/// Bytes of a file that are at most written without a sync between them.
const SYNC_EVERY: u64 = 64 << 20;

impl Uploads {
    /// Appends bytes to an upload, until the source ends.
    ///
    /// * `offset`: where the bytes continue; the number of bytes that the upload has.
    /// * `checksum`: what the bytes have to match; otherwise none of them counts.
    ///
    /// Returns the new offset, up to which everything is on stable storage. If the future is dropped,
    /// what has arrived is stored nevertheless.
    ///
    /// # Errors
    /// [`UploadError`] says whether bytes were stored; [`Uploads::settle`] how many.
    pub async fn append(
        &self,
        id: UploadId,
        offset: u64,
        source: &mut impl Source,
        checksum: Option<Checksum>,
    ) -> Result<u64, UploadError> {
        let inner = &self.inner;
        let entry = inner.entry(id)?;
        entry.ask_to_stop();
        let mut stop = entry.stop.subscribe();
        let slot = inner.turn(&entry).await?;
        let slot = inner.loaded(&entry, slot).await?;
        let Some(tail) = slot.tail.filter(|_| matches!(entry.shown.lock().state, State::Open))
        else {
            return Err(UploadError::Finished { id });
        };
        if offset != tail.offset {
            return Err(UploadError::Offset { id, expected: tail.offset, found: offset });
        }
        let hasher = checksum.as_ref().map(|checksum| Hasher::new(checksum.kind));
        let parts = (Arc::clone(inner), Arc::clone(&entry));
        let opened = move || Writer::open(parts.0, parts.1, slot, hasher);
        let writer = inner.blocking("open an upload in", opened).await?;
        let limit = tail.length.unwrap_or(inner.size_max);
        let mut appending = Appending { inner, id, writer: Some(writer), held: Vec::new() };
        let mut room = limit.saturating_sub(offset);
        let ended = loop {
            let next = tokio::select! {
                biased;
                _ = stop.changed() => break Ended::Interrupted,
                next = source.next() => next,
            };
            match next {
                Ok(None) => break Ended::Whole,
                Err(error) => break Ended::Source(error),
                Ok(Some(bytes)) if bytes.len() as u64 > room => {
                    break if tail.length.is_some() {
                        Ended::TooLong(limit)
                    } else {
                        Ended::TooLarge(limit)
                    };
                }
                Ok(Some(bytes)) => {
                    room -= bytes.len() as u64;
                    appending.push(&bytes).await?;
                }
            }
        };
        appending.end(ended, checksum).await
    }
}

/// Why a request ends.
enum Ended {
    Whole,
    Interrupted,
    Source(IntakeError),
    TooLong(u64),
    TooLarge(u64),
}

/// A request that appends.
struct Appending<'a> {
    inner: &'a Arc<Inner>,
    id: UploadId,
    /// `None` while a thread has it, and at the end.
    writer: Option<Writer>,
    held: Vec<u8>,
}

impl Appending<'_> {
    async fn push(&mut self, bytes: &[u8]) -> Result<(), UploadError> {
        self.held.extend_from_slice(bytes);
        if self.held.len() < PAYLOAD_SIZE_MAX {
            return Ok(());
        }
        let held = std::mem::take(&mut self.held);
        let Some(mut writer) = self.writer.take() else { return Ok(()) };
        let run = move || {
            writer.write(&held)?;
            Ok((writer, held))
        };
        let (writer, mut held) = self.inner.blocking("append to an upload in", run).await?;
        held.clear();
        (self.writer, self.held) = (Some(writer), held);
        self.inner.storing.give_way().await;
        Ok(())
    }

    async fn end(mut self, ended: Ended, checksum: Option<Checksum>) -> Result<u64, UploadError> {
        let id = self.id;
        let held = std::mem::take(&mut self.held);
        let Some(mut writer) = self.writer.take() else { return Err(UploadError::NotFound { id }) };
        let is_whole = matches!(ended, Ended::Whole);
        let run = move || {
            if is_whole || checksum.is_none() {
                writer.write(&held)?;
            }
            if is_whole && let Some(checksum) = checksum {
                writer.accept(&checksum)?;
            }
            writer.settle()
        };
        let offset = self.inner.blocking("append to an upload in", run).await?;
        if !is_whole {
            meters::interrupted();
        }
        match ended {
            Ended::Whole => Ok(offset),
            Ended::Interrupted => Err(UploadError::Interrupted { id, offset }),
            Ended::Source(source) => {
                Err(UploadError::Source { id, offset, source: Box::new(source) })
            }
            Ended::TooLong(limit) => Err(UploadError::TooLong { id, limit }),
            Ended::TooLarge(limit) => Err(UploadError::TooLarge { limit }),
        }
    }
}

impl Drop for Appending<'_> {
    /// The caller is gone: what has arrived is stored, on a thread that may block.
    fn drop(&mut self) {
        let Some(mut writer) = self.writer.take() else { return };
        let held = std::mem::take(&mut self.held);
        let store = move || {
            if writer.hasher.is_none()
                && let Err(error) = writer.write(&held)
            {
                tracing::warn!(error = %chain(&error), "could not store the end of a request");
            }
            // Dropping the writer makes it durable.
            drop(writer);
        };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(forebay_base::blocking::spawn_on(&runtime, store)),
            Err(_) => store(),
        }
    }
}

/// Writes frames to the end of an upload's file. Blocks.
///
/// If it is dropped before it is settled, it is settled then.
pub(super) struct Writer {
    inner: Arc<Inner>,
    entry: Arc<Entry>,
    slot: OwnedMutexGuard<Slot>,
    file: Arc<dyn File>,
    /// What the file has been extended to.
    at: Tail,
    hasher: Option<Hasher>,
    /// The last bytes are held and not yet accepted.
    has_held: bool,
    is_changed: bool,
    /// A write failed: there may be a part of a frame after `at`.
    is_torn: bool,
    /// A sync failed or a checksum did not match: nothing after the slot's tail counts.
    is_lost: bool,
}

impl Writer {
    /// * `hasher`: of bytes that count only once they are accepted.
    pub(super) fn open(
        inner: Arc<Inner>,
        entry: Arc<Entry>,
        slot: OwnedMutexGuard<Slot>,
        hasher: Option<Hasher>,
    ) -> Result<Self, UploadError> {
        let at = slot.tail.ok_or(UploadError::Finished { id: entry.id })?;
        let file = inner.open_file(entry.id)?;
        Ok(Self {
            inner,
            entry,
            slot,
            file,
            at,
            hasher,
            has_held: false,
            is_changed: false,
            is_torn: false,
            is_lost: false,
        })
    }

    /// Appends bytes of the upload.
    fn write(&mut self, bytes: &[u8]) -> Result<(), UploadError> {
        if let Some(hasher) = &mut self.hasher {
            hasher.update(bytes);
        }
        let kind = if self.hasher.is_some() { FrameKind::Held } else { FrameKind::Bytes };
        for piece in bytes.chunks(PAYLOAD_SIZE_MAX) {
            self.frame(kind, piece)?;
            self.at.offset += piece.len() as u64;
            self.has_held = kind == FrameKind::Held;
        }
        meters::received(bytes.len() as u64);
        Ok(())
    }

    /// Accepts the held bytes if they match.
    fn accept(&mut self, checksum: &Checksum) -> Result<(), UploadError> {
        let Some(hasher) = self.hasher.take() else { return Ok(()) };
        if hasher.finish() != checksum.value {
            self.is_lost = true;
            return Err(UploadError::Checksum { algorithm: checksum.kind.name() });
        }
        if self.has_held {
            self.frame(FrameKind::Accept, &[])?;
            self.has_held = false;
        }
        Ok(())
    }

    pub(super) fn set_length(&mut self, length: u64, note: Note) -> Result<(), UploadError> {
        let payload = [&length.to_le_bytes(), note.as_bytes()].concat();
        self.frame(FrameKind::Length, &payload)?;
        self.at.length = Some(length);
        self.at.note = note;
        Ok(())
    }

    fn frame(&mut self, kind: FrameKind, payload: &[u8]) -> Result<(), UploadError> {
        let end = self.at.end + HEADER + payload.len() as u64;
        self.inner.table.lock().grow(&self.entry, reserved(self.at.length, end))?;
        let time_ms = self.inner.clock.now_ms().max(self.at.touched_ms);
        let header = Header {
            kind,
            payload_size: u32::try_from(payload.len()).unwrap_or(u32::MAX),
            payload_crc: crc32c(payload),
            offset: self.at.offset,
            time_ms,
            synced: self.at.synced,
        };
        let (header, chain) = header.encode(self.entry.id, self.at.chain);
        self.is_changed = true;
        let parts = [std::io::IoSlice::new(&header), std::io::IoSlice::new(payload)];
        if let Err(source) = self.file.write_vectored_at(&parts, self.at.end) {
            self.is_torn = true;
            return Err(self.inner.failed("append to", self.entry.id)(source));
        }
        self.at = Tail { end, chain, touched_ms: time_ms, ..self.at };
        if end - self.at.synced >= SYNC_EVERY {
            self.sync()?;
        }
        Ok(())
    }

    /// Makes what was written durable, and shows it unless it is not yet accepted.
    fn sync(&mut self) -> Result<(), UploadError> {
        if let Err(source) = self.file.sync_data() {
            self.is_lost = true;
            return Err(self.inner.failed("sync", self.entry.id)(source));
        }
        self.at.synced = self.at.end;
        if !self.has_held {
            self.slot.tail = Some(self.at);
            self.inner.table.lock().show(&self.entry, &self.at);
        }
        Ok(())
    }

    /// Makes what was written durable and shows it, or cuts it off. Returns the offset.
    pub(super) fn settle(mut self) -> Result<u64, UploadError> {
        self.settle_now()?;
        Ok(self.slot.tail.map_or(0, |tail| tail.offset))
    }

    fn settle_now(&mut self) -> Result<(), UploadError> {
        if !std::mem::take(&mut self.is_changed) {
            return Ok(());
        }
        // Whatever fails from here on, the file is read again before the next request uses it.
        let before = self.slot.tail.take();
        let cut = if self.is_lost || self.has_held { before } else { Some(self.at) };
        let Some(cut) = cut else { return Ok(()) };
        let failed = self.inner.failed("truncate", self.entry.id);
        if cut != self.at || self.is_torn {
            self.file.set_len(cut.end).map_err(&failed)?;
        }
        if self.is_lost || self.has_held {
            self.slot.tail = Some(cut);
            self.inner.table.lock().show(&self.entry, &cut);
        } else {
            let synced = self.sync();
            if synced.is_err()
                && let Some(tail) = before
            {
                self.file.set_len(tail.end).map_err(&failed)?;
                self.slot.tail = before;
            }
            synced?;
        }
        self.inner.table.lock().measure();
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let Err(error) = self.settle_now() {
            tracing::warn!(error = %chain(&error), "could not store the end of a request");
        }
    }
}
