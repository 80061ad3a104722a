//! The uploads that exist, what they reserve, and the state of each as readers see it.
//!
//! Invariant: the totals are those of the entries, plus what is admitted and not yet inserted.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::file::Tail;
use super::frame::Begin;
use super::{
    NewUpload, Note, REQUEST, UploadError, UploadId, UploadKind, UploadLimits, UploadStatus, meters,
};

/// How long a damaged file is kept, in milliseconds.
const DAMAGED_KEPT_MS: u64 = 24 * 3_600_000;

/// An upload.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) id: UploadId,
    pub(super) begin: Begin,
    /// Counts requests to stop. The request that has its turn watches it.
    pub(super) stop: watch::Sender<u64>,
    /// Held by the request that changes the upload.
    pub(super) turn: Arc<tokio::sync::Mutex<Slot>>,
    pub(super) shown: Mutex<Shown>,
}

/// What only the request that has its turn uses.
#[derive(Debug)]
pub(super) struct Slot {
    /// The valid part of the file, all of it on stable storage; `None`: it has to be read.
    pub(super) tail: Option<Tail>,
    /// The upload was removed while a request waited.
    pub(super) is_gone: bool,
}

/// What readers see.
#[derive(Debug)]
pub(super) struct Shown {
    pub(super) state: State,
    pub(super) offset: u64,
    pub(super) length: Option<u64>,
    pub(super) note: Note,
    pub(super) touched_ms: u64,
    pub(super) reserved: u64,
}

#[derive(Debug, Clone)]
pub(super) enum State {
    /// Found at the start; only the first frame was read.
    Unread,
    Open,
    Finished(Arc<[u8]>),
    Damaged(Arc<str>),
}

impl Entry {
    /// An upload whose file is read up to its end.
    pub(super) fn open(id: UploadId, begin: Begin, tail: Tail) -> Self {
        let reserved = reserved(tail.length, tail.end);
        Self::new(id, begin, State::Open, tail.offset, tail.touched_ms, reserved, Some(tail))
    }

    /// An upload that was found at the start.
    pub(super) fn unread(id: UploadId, begin: Begin, first: Tail, file_size: u64) -> Self {
        let reserved = reserved(first.length, file_size);
        Self::new(id, begin, State::Unread, 0, first.touched_ms, reserved, None)
    }

    /// A finished upload that was found at the start.
    pub(super) fn finished(
        id: UploadId,
        begin: Begin,
        result: &[u8],
        offset: u64,
        touched_ms: u64,
    ) -> Self {
        let entry =
            Self::new(id, begin, State::Finished(result.into()), offset, touched_ms, 0, None);
        entry.shown.lock().length = Some(offset);
        entry
    }

    fn new(
        id: UploadId,
        begin: Begin,
        state: State,
        offset: u64,
        touched_ms: u64,
        reserved: u64,
        tail: Option<Tail>,
    ) -> Self {
        let length = tail.map_or(begin.new.length, |tail| tail.length);
        let note = tail.map_or_else(Note::default, |tail| tail.note);
        let shown = Mutex::new(Shown { state, offset, length, note, touched_ms, reserved });
        let turn = Arc::new(tokio::sync::Mutex::new(Slot { tail, is_gone: false }));
        Self { id, begin, stop: watch::Sender::new(0), turn, shown }
    }

    /// Asks the request that appends, if there is one, to store what it has and end.
    pub(super) fn ask_to_stop(&self) {
        self.stop.send_modify(|asked| *asked = asked.wrapping_add(1));
    }

    pub(super) fn expires_ms(&self) -> u64 {
        self.shown.lock().touched_ms.saturating_add(self.begin.new.kept_ms)
    }

    pub(super) fn status(&self) -> UploadStatus {
        let shown = self.shown.lock();
        let result = match &shown.state {
            State::Finished(result) => Some(Arc::clone(result)),
            _ => None,
        };
        UploadStatus {
            id: self.id,
            new: self.begin.new.clone(),
            length: shown.length,
            offset: shown.offset,
            note: shown.note,
            created_ms: self.begin.created_ms,
            expires_ms: shown.touched_ms.saturating_add(self.begin.new.kept_ms),
            result,
        }
    }
}

/// Bytes that an upload reserves: those to come, or those its file takes if they are more. Frames take a
/// little more than the bytes in them, which is not counted.
pub(super) fn reserved(length: Option<u64>, end: u64) -> u64 {
    let overhead = end / 64 + 4_096;
    length.unwrap_or(0).max(end.saturating_sub(overhead))
}

/// All uploads.
#[derive(Debug)]
pub(super) struct Table {
    limits: UploadLimits,
    entries: BTreeMap<UploadId, Arc<Entry>>,
    /// Files whose first frame is invalid: what was found, and when.
    damaged: BTreeMap<UploadId, (Arc<str>, u64)>,
    /// Parts by group and number.
    parts: BTreeSet<(UploadId, u32, UploadId)>,
    /// Finished ones, the oldest first.
    finished: BTreeSet<(u64, UploadId)>,
    /// Those whose beginning may be repeated, by their [`REQUEST`].
    requests: HashMap<String, UploadId>,
    open_count: usize,
    parts_count: usize,
    reserved: u64,
}

impl Table {
    pub(super) fn new(limits: UploadLimits) -> Self {
        Self {
            limits,
            entries: BTreeMap::new(),
            damaged: BTreeMap::new(),
            parts: BTreeSet::new(),
            finished: BTreeSet::new(),
            requests: HashMap::new(),
            open_count: 0,
            parts_count: 0,
            reserved: 0,
        }
    }

    /// Counts an upload that is about to be created.
    pub(super) fn admit(&mut self, new: &NewUpload) -> Result<(), UploadError> {
        let (what, count, limit) = match new.kind {
            UploadKind::Part { .. } => ("parts", self.parts_count, self.limits.parts_max),
            _ => ("uploads", self.open_count, self.limits.open_max),
        };
        if count >= limit {
            return Err(UploadError::TooMany { what, limit });
        }
        let length = new.length.unwrap_or(0);
        self.check_room(length)?;
        self.count(new.kind, length);
        Ok(())
    }

    fn check_room(&self, more: u64) -> Result<(), UploadError> {
        let limit = self.limits.reserved_max;
        match self.reserved.checked_add(more) {
            Some(total) if total <= limit => Ok(()),
            _ => Err(UploadError::NoRoom { limit }),
        }
    }

    fn count(&mut self, kind: UploadKind, reserved: u64) {
        match kind {
            UploadKind::Part { .. } => self.parts_count += 1,
            _ => self.open_count += 1,
        }
        self.reserved = self.reserved.saturating_add(reserved);
    }

    /// No longer counts an upload that is not finished.
    pub(super) fn release(&mut self, kind: UploadKind, reserved: u64) {
        match kind {
            UploadKind::Part { .. } => self.parts_count = self.parts_count.saturating_sub(1),
            _ => self.open_count = self.open_count.saturating_sub(1),
        }
        self.reserved = self.reserved.saturating_sub(reserved);
    }

    pub(super) fn insert(&mut self, entry: Entry) {
        let (id, kind) = (entry.id, entry.begin.new.kind);
        if let UploadKind::Part { group, number } = kind {
            self.parts.insert((group, number, id));
        }
        if let Some(request) = entry.begin.new.attributes.get(REQUEST) {
            self.requests.insert(request.clone(), id);
        }
        {
            let shown = entry.shown.lock();
            match shown.state {
                State::Finished(_) => {
                    self.finished.insert((shown.touched_ms, id));
                }
                _ => self.count(kind, shown.reserved),
            }
        }
        self.entries.insert(id, Arc::new(entry));
    }

    /// Counts more bytes for an upload before they are written.
    pub(super) fn grow(&mut self, entry: &Entry, reserved: u64) -> Result<(), UploadError> {
        let mut shown = entry.shown.lock();
        if let Some(more) = reserved.checked_sub(shown.reserved).filter(|more| *more > 0) {
            self.check_room(more)?;
            self.reserved += more;
            shown.reserved = reserved;
        }
        Ok(())
    }

    /// Shows what is on stable storage.
    pub(super) fn show(&mut self, entry: &Entry, tail: &Tail) {
        let mut shown = entry.shown.lock();
        let reserved = reserved(tail.length, tail.end);
        self.reserved = self.reserved.saturating_sub(shown.reserved).saturating_add(reserved);
        *shown = Shown {
            state: State::Open,
            offset: tail.offset,
            length: tail.length,
            note: tail.note,
            touched_ms: tail.touched_ms,
            reserved,
        };
    }

    /// Shows that an upload is damaged.
    pub(super) fn show_damage(&mut self, entry: &Entry, found: &str) {
        entry.shown.lock().state = State::Damaged(found.into());
    }

    /// Shows a result. Returns an older finished upload that has to be removed for it.
    pub(super) fn show_finished(
        &mut self,
        entry: &Entry,
        result: Arc<[u8]>,
        offset: u64,
        touched_ms: u64,
    ) -> Option<Arc<Entry>> {
        let mut shown = entry.shown.lock();
        if !matches!(shown.state, State::Finished(_)) {
            self.release(entry.begin.new.kind, shown.reserved);
            self.finished.insert((touched_ms, entry.id));
            *shown = Shown {
                state: State::Finished(result),
                offset,
                length: Some(offset),
                note: Note::default(),
                touched_ms,
                reserved: 0,
            };
        }
        drop(shown);
        if self.finished.len() <= self.limits.finished_max {
            return None;
        }
        let (_, oldest) = self.finished.first()?;
        self.entries.get(oldest).filter(|oldest| oldest.id != entry.id).cloned()
    }

    pub(super) fn remove(&mut self, entry: &Entry) {
        if self.entries.remove(&entry.id).is_none() {
            return;
        }
        let Begin { new, .. } = &entry.begin;
        if let Some(request) = new.attributes.get(REQUEST)
            && self.requests.get(request) == Some(&entry.id)
        {
            self.requests.remove(request);
        }
        let kind = new.kind;
        if let UploadKind::Part { group, number } = kind {
            self.parts.remove(&(group, number, entry.id));
        }
        let shown = entry.shown.lock();
        match shown.state {
            State::Finished(_) => {
                self.finished.remove(&(shown.touched_ms, entry.id));
            }
            _ => self.release(kind, shown.reserved),
        }
    }

    pub(super) fn get(&self, id: UploadId) -> Result<Arc<Entry>, UploadError> {
        match self.entries.get(&id) {
            Some(entry) => Ok(Arc::clone(entry)),
            None => match self.damaged.get(&id) {
                Some((found, _)) => Err(UploadError::Damaged { id, found: found.to_string() }),
                None => Err(UploadError::NotFound { id }),
            },
        }
    }

    /// The upload that a request began.
    pub(super) fn begun_by(&self, request: &str) -> Option<&Arc<Entry>> {
        self.entries.get(self.requests.get(request)?)
    }

    /// Up to `limit` uploads that are no parts, by id, after `after`.
    pub(super) fn after(&self, after: Option<UploadId>, limit: usize) -> Vec<Arc<Entry>> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = after.map_or(Unbounded, Excluded);
        self.entries
            .range((from, Unbounded))
            .map(|(_, entry)| entry)
            .filter(|entry| !matches!(entry.begin.new.kind, UploadKind::Part { .. }))
            .take(limit)
            .cloned()
            .collect()
    }

    /// Up to `limit` parts of a group, by number and id, after number `after`.
    pub(super) fn parts(
        &self,
        group: UploadId,
        after: Option<u32>,
        limit: usize,
    ) -> Vec<Arc<Entry>> {
        let Some(first) = after.map_or(Some(0), |after| after.checked_add(1)) else {
            return Vec::new();
        };
        self.parts
            .range((group, first, UploadId([0; 16]))..=(group, u32::MAX, UploadId([0xFF; 16])))
            .take(limit)
            .filter_map(|(_, _, id)| self.entries.get(id).cloned())
            .collect()
    }

    /// Uploads that may have expired, and damaged files that are not kept any longer.
    pub(super) fn expired(&self, now_ms: u64) -> (Vec<Arc<Entry>>, Vec<UploadId>) {
        let entries = self.entries.values().filter(|entry| entry.expires_ms() <= now_ms);
        let damaged = self
            .damaged
            .iter()
            .filter(|(_, (_, found_ms))| found_ms.saturating_add(DAMAGED_KEPT_MS) <= now_ms);
        (entries.cloned().collect(), damaged.map(|(id, _)| *id).collect())
    }

    /// Records a file that cannot be used.
    pub(super) fn damaged(&mut self, id: UploadId, found: &str, now_ms: u64) {
        tracing::warn!(upload = %id, found, "an upload is damaged; it is refused");
        self.damaged.insert(id, (found.into(), now_ms));
    }

    pub(super) fn forget_damaged(&mut self, id: UploadId) -> bool {
        self.damaged.remove(&id).is_some()
    }

    /// Updates the metrics.
    pub(super) fn measure(&self) {
        meters::totals(self.open_count, self.parts_count, self.reserved);
    }
}
