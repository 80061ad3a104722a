//! Documents that were already parsed, for the view: their bytes and where their values are.
//!
//! A request reads every document to check and profile it. The result is handed to the view with
//! the commit, so that the view need not read the log or parse the JSON again. This is a shortcut
//! only: a commit without it (a replay, a very long request, a full queue) is read from the log.
//!
//! Invariant: a slot's text lies inside its own document's bytes in the same run.

use std::borrow::Cow;

use super::flatten::Leaf;
use crate::format::TargetCode;
use crate::names::Namespace;

/// Maximum number of bytes of runs and slots that one request may hand over.
pub(crate) const PREPARED_SIZE_MAX: usize = 2 << 20;

/// A request's documents as the view takes them.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) namespace: Namespace,
    pub(crate) target: TargetCode,
    pub(crate) first_id: u64,
    pub(crate) received_ms: i64,
    /// Paths of the profile's fields, with the type each column gets if it is new; `None` for a field
    /// without a value.
    pub(crate) fields: Vec<(Box<str>, Option<forebay_sink::ColumnType>)>,
    /// Whether the namespace is still to be decided.
    pub(crate) undecided: bool,
    pub(crate) runs: Vec<Run>,
}

/// Documents in sequence, each preceded by a 32-bit length, and their values.
#[derive(Debug, Default)]
pub(crate) struct Run {
    pub(crate) bytes: Vec<u8>,
    documents: Vec<Span>,
    slots: Vec<Slot>,
}

/// One document: where it is, and which slots belong to it.
#[derive(Debug, Clone, Copy)]
struct Span {
    start: u32,
    size: u32,
    slots_end: u32,
}

/// One value: its field, its kind, and its text within the document.
#[derive(Debug, Clone, Copy)]
struct Slot {
    field: u32,
    kind: SlotKind,
    start: u32,
    size: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SlotKind {
    True,
    False,
    Number,
    /// A string without escapes.
    Plain,
    /// A string with escapes.
    Escaped,
    Json,
}

/// A value in a run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RunValue<'a> {
    Boolean(bool),
    Number(&'a str),
    Text(Cow<'a, str>),
    Json(&'a str),
}

impl Prepared {
    /// Number of documents.
    pub(crate) fn count(&self) -> u64 {
        self.runs.iter().map(|run| u64::from(run.count())).sum()
    }

    /// Approximate memory.
    pub(crate) fn size(&self) -> usize {
        self.runs.iter().map(Run::size).sum::<usize>() + self.fields.len() * 64 + 256
    }
}

impl Run {
    /// Records a value of the document being read.
    ///
    /// * `document`: the bytes that contain `text`.
    pub(crate) fn note(&mut self, field: usize, leaf: &Leaf<'_>, text: &str, document: &[u8]) {
        let kind = match leaf {
            Leaf::Null => return,
            Leaf::Boolean(true) => SlotKind::True,
            Leaf::Boolean(false) => SlotKind::False,
            Leaf::Integer(..) | Leaf::BigInteger(_) | Leaf::Real(_) => SlotKind::Number,
            Leaf::Text(Cow::Borrowed(_)) => SlotKind::Plain,
            Leaf::Text(Cow::Owned(_)) => SlotKind::Escaped,
            Leaf::Unrepresentable(_) | Leaf::Array(..) | Leaf::Object(_) => SlotKind::Json,
        };
        // The text is a part of the document, so the distance is its offset in it.
        let start = (text.as_ptr() as usize).wrapping_sub(document.as_ptr() as usize);
        let (Ok(start), Ok(size), Ok(field)) =
            (u32::try_from(start), u32::try_from(text.len()), u32::try_from(field))
        else {
            return;
        };
        self.slots.push(Slot { field, kind, start, size });
    }

    /// Adds the document whose values were recorded.
    pub(crate) fn take(&mut self, document: &[u8]) {
        crate::format::encode_documents(&mut self.bytes, document);
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        self.documents.push(Span {
            start: number(self.bytes.len() - document.len()),
            size: number(document.len()),
            slots_end: number(self.slots.len()),
        });
    }

    /// Discards the recorded values of a document that was refused.
    pub(crate) fn refuse(&mut self) {
        let taken = self.documents.last().map_or(0, |span| to_size(span.slots_end));
        self.slots.truncate(taken);
    }

    /// Documents in the run.
    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.documents.len()).unwrap_or(u32::MAX)
    }

    /// Approximate memory.
    pub(crate) fn size(&self) -> usize {
        self.bytes.len() + self.slots.len() * 16 + self.documents.len() * 12
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.documents.clear();
        self.slots.clear();
    }

    /// Calls `each` with every document's bytes and its values by field.
    pub(crate) fn each<'a, E>(
        &'a self,
        mut each: impl FnMut(&'a [u8], &mut dyn Iterator<Item = (usize, RunValue<'a>)>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut slots_start = 0;
        for span in &self.documents {
            let start = to_size(span.start);
            let bytes = self.bytes.get(start..start + to_size(span.size)).unwrap_or_default();
            let slots = self.slots.get(slots_start..to_size(span.slots_end)).unwrap_or_default();
            slots_start = to_size(span.slots_end);
            let text = std::str::from_utf8(bytes).unwrap_or_default();
            let mut found =
                slots.iter().filter_map(|slot| Some((to_size(slot.field), slot.found(text)?)));
            each(bytes, &mut found)?;
        }
        Ok(())
    }
}

impl Slot {
    fn found<'a>(&self, document: &'a str) -> Option<RunValue<'a>> {
        let start = to_size(self.start);
        let text = document.get(start..start + to_size(self.size))?;
        Some(match self.kind {
            SlotKind::True => RunValue::Boolean(true),
            SlotKind::False => RunValue::Boolean(false),
            SlotKind::Number => RunValue::Number(text),
            SlotKind::Plain => RunValue::Text(Cow::Borrowed(text.get(1..text.len() - 1)?)),
            SlotKind::Escaped => RunValue::Text(Cow::Owned(serde_json::from_str(text).ok()?)),
            SlotKind::Json => RunValue::Json(text),
        })
    }
}

fn to_size(n: u32) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}
