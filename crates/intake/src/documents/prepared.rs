//! Documents that were already parsed, for the view: their bytes and where their values are.
//!
//! A request reads every document to check and profile it. The result is handed to the view with
//! the commit, so that the view need not read the log or parse the JSON again. This is a shortcut
//! only: a commit without it (a replay, a very long request, a full queue) is read from the log.
//!
//! Invariant: a slot's text lies inside its own document's bytes in the same run, or, where a string
//! has escapes, inside the run's decoded text. So the view allocates nothing for a value.

use std::borrow::Cow;

use forebay_sink::Value;

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
    /// Strings that have escapes in the documents, without them.
    decoded: String,
}

/// One document: where it is, and which slots and decoded strings belong to it.
#[derive(Debug, Clone, Copy)]
struct Span {
    start: u32,
    size: u32,
    slots_end: u32,
    decoded_end: u32,
}

/// One value: its field, its kind, and its text within the document or the decoded text.
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
    /// A string without escapes, with its quotes.
    Plain,
    /// A string in the decoded text.
    Decoded,
    Json,
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
            Leaf::Text(Cow::Owned(_)) => SlotKind::Decoded,
            Leaf::Unrepresentable(_) | Leaf::Array(..) | Leaf::Object(_) => SlotKind::Json,
        };
        let (start, size) = match leaf {
            Leaf::Text(Cow::Owned(decoded)) => {
                self.decoded.push_str(decoded);
                (self.decoded.len() - decoded.len(), decoded.len())
            }
            // The text is a part of the document, so the distance is its offset in it.
            _ => ((text.as_ptr() as usize).wrapping_sub(document.as_ptr() as usize), text.len()),
        };
        let (Ok(start), Ok(size), Ok(field)) =
            (u32::try_from(start), u32::try_from(size), u32::try_from(field))
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
            decoded_end: number(self.decoded.len()),
        });
    }

    /// Discards the recorded values of a document that was refused.
    pub(crate) fn refuse(&mut self) {
        let taken = self.documents.last();
        self.slots.truncate(taken.map_or(0, |span| to_size(span.slots_end)));
        self.decoded.truncate(taken.map_or(0, |span| to_size(span.decoded_end)));
    }

    /// Documents in the run.
    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.documents.len()).unwrap_or(u32::MAX)
    }

    /// Approximate memory.
    pub(crate) fn size(&self) -> usize {
        let places = self.slots.len() * 16 + self.documents.len() * 16;
        self.bytes.len() + self.decoded.len() + places
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.documents.clear();
        self.slots.clear();
        self.decoded.clear();
    }

    /// Calls `each` with every document's bytes and its values by field.
    pub(crate) fn each<'a, E>(
        &'a self,
        mut each: impl FnMut(&'a [u8], &mut dyn Iterator<Item = (usize, Value<'a>)>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut slots_start = 0;
        for span in &self.documents {
            let start = to_size(span.start);
            let bytes = self.bytes.get(start..start + to_size(span.size)).unwrap_or_default();
            let slots = self.slots.get(slots_start..to_size(span.slots_end)).unwrap_or_default();
            slots_start = to_size(span.slots_end);
            let text = std::str::from_utf8(bytes).unwrap_or_default();
            let mut found = slots
                .iter()
                .filter_map(|slot| Some((to_size(slot.field), slot.value(text, &self.decoded)?)));
            each(bytes, &mut found)?;
        }
        Ok(())
    }
}

impl Slot {
    fn value<'a>(&self, document: &'a str, decoded: &'a str) -> Option<Value<'a>> {
        let source = if self.kind == SlotKind::Decoded { decoded } else { document };
        let start = to_size(self.start);
        let text = source.get(start..start + to_size(self.size))?;
        Some(match self.kind {
            SlotKind::True => Value::Boolean(true),
            SlotKind::False => Value::Boolean(false),
            SlotKind::Number => Value::Number(text),
            SlotKind::Plain => Value::Text(text.get(1..text.len() - 1)?),
            SlotKind::Decoded => Value::Text(text),
            SlotKind::Json => Value::Json(text),
        })
    }
}

fn to_size(n: u32) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::flatten::{Bounds, read};
    use super::super::profile::Profile;
    use super::*;

    #[test]
    fn values_are_those_of_their_documents_whatever_was_refused_between() {
        let bounds = Bounds { depth_max: 9, key_size_max: 99, flatten_depth: 4 };
        let (mut run, mut profile) = (Run::default(), Profile::new(9));
        let refused = r#"{"a":"\u0041 refused","b":2}"#;
        let documents = [
            r#"{"a":"x\ny","b":1.50}"#,
            r#"{"b":true,"a":"plain"}"#,
            r#"{"c":["\t"],"a":"\u00e9\"","b":null}"#,
        ];
        for document in documents {
            for text in [refused, document] {
                let bytes = text.as_bytes();
                let members = read(bytes, &bounds).unwrap();
                let mut note = |field, leaf: &Leaf<'_>, text: &str| {
                    run.note(field, leaf, text, bytes);
                };
                profile.add(&members, &bounds, &mut note).unwrap();
                if text == refused { run.refuse() } else { run.take(bytes) }
            }
        }
        let mut found = Vec::new();
        run.each(|raw, values| {
            found.push((raw, values.collect::<Vec<_>>()));
            Ok::<(), ()>(())
        })
        .unwrap();
        let [first, second, third] = documents.map(str::as_bytes);
        assert_eq!(
            found,
            [
                (first, vec![(0, Value::Text("x\ny")), (1, Value::Number("1.50"))]),
                (second, vec![(1, Value::Boolean(true)), (0, Value::Text("plain"))]),
                (third, vec![(2, Value::Json(r#"["\t"]"#)), (0, Value::Text("\u{e9}\""))]),
            ]
        );
        assert_eq!(run.decoded, "x\ny\u{e9}\"", "nothing is left of what was refused");
    }
}
