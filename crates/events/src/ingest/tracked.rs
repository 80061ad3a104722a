//! An input with a request key: how far it was stored, and whether it is the same as before.
//!
//! The input is hashed record by record. Its items, events and rejected records, are counted; each
//! batch is stored with a note of that count and the hash. A later attempt under the key passes over
//! that number of items, compares the hash, and goes on from there.
//!
//! Invariant: an item is passed over only if a committed note of its request counts it.

use super::Summary;
use crate::format::request::{ANSWER_SIZE_MAX, RequestKey, RequestNote, Tally, short};
use crate::store::AppendError;

/// The state of an input.
#[derive(Debug)]
pub(super) struct Tracked {
    key: RequestKey,
    /// Over what the request is about, and all records so far.
    hash: [u8; 16],
    /// The same as of the last counted item.
    counted_hash: [u8; 16],
    items: u64,
    /// Count and hash before the last counted item.
    before: (u64, [u8; 16]),
    /// Whether the next note leaves the last item out.
    held: bool,
    /// How far an earlier attempt was stored.
    known: Option<RequestNote>,
    answer: Option<(u16, Vec<u8>)>,
    /// Whether the note with the answer was submitted.
    noted: bool,
}

impl Tracked {
    pub(super) fn new(key: RequestKey, about: &[u8], known: Option<RequestNote>) -> Self {
        let hash = short(&blake3::hash(about));
        Self {
            key,
            hash,
            counted_hash: hash,
            items: 0,
            before: (0, hash),
            held: false,
            known,
            answer: None,
            noted: false,
        }
    }

    /// Adds a record to the hash.
    pub(super) fn record(&mut self, bytes: &[u8]) {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.hash).update(bytes);
        self.hash = short(&hasher.finalize());
    }

    /// Counts an item of the record, and returns whether it is to be stored.
    pub(super) fn is_new(&mut self) -> Result<bool, AppendError> {
        self.before = (self.items, self.counted_hash);
        self.items += 1;
        self.counted_hash = self.hash;
        let Some(known) = &self.known else { return Ok(true) };
        if known.answer.is_some() && self.items > known.items {
            return Err(AppendError::KeyReused);
        }
        if self.items == known.items && known.answer.is_none() && self.hash != known.hash {
            return Err(AppendError::KeyReused);
        }
        Ok(self.items > known.items)
    }

    /// Leaves the last item out of the next note.
    pub(super) fn hold_back(&mut self) {
        self.held = true;
    }

    /// Ends [`hold_back`](Self::hold_back).
    pub(super) fn let_go(&mut self) {
        self.held = false;
    }

    pub(super) fn set_answer(&mut self, status: u16, answer: Vec<u8>) {
        if answer.len() <= ANSWER_SIZE_MAX && status > 0 {
            self.answer = Some((status, answer));
        }
    }

    /// The note of what is stored with the next batch.
    pub(super) fn note(&mut self, now_ns: i64, summary: &Summary) -> RequestNote {
        let (items, hash) = if self.held { self.before } else { (self.items, self.counted_hash) };
        let answer = self.answer.clone();
        self.noted = answer.is_some();
        let hash = if self.noted { self.hash } else { hash };
        RequestNote { key: self.key, time_ns: now_ns, items, hash, tally: tally(summary), answer }
    }

    /// The note with the answer, unless a batch had it.
    pub(super) fn last_note(&mut self, now_ns: i64, summary: &Summary) -> Option<RequestNote> {
        let answered = self.known.as_ref().is_some_and(|known| known.answer.is_some());
        let wanted = self.answer.is_some() && !self.noted && !answered && summary.accepted > 0;
        wanted.then(|| self.note(now_ns, summary))
    }

    /// The answer of an earlier attempt, at the end of the same input.
    pub(super) fn earlier_answer(&self) -> Result<Option<(u16, &[u8])>, AppendError> {
        let Some(known) = &self.known else { return Ok(None) };
        if self.items < known.items {
            return Err(AppendError::KeyReused);
        }
        let Some((status, answer)) = &known.answer else { return Ok(None) };
        if self.items != known.items || self.hash != known.hash {
            return Err(AppendError::KeyReused);
        }
        Ok(Some((*status, answer.as_slice())))
    }
}

fn tally(summary: &Summary) -> Tally {
    Tally {
        accepted: summary.accepted,
        rejected: summary.rejected,
        mistimed: summary.mistimed,
        assumed: summary.assumed,
        first_id: summary.first_id.unwrap_or_default(),
        last_id: summary.last_id.unwrap_or_default(),
    }
}
