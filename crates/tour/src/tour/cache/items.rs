//! The writes to the cache: the tour's files and documents as keys of several types.
//!
//! A file is a string under its path, a member of the sorted set of all files by size, and
//! one of the set of its extension. A document with only scalar fields is a hash, any other a
//! string. Every write is idempotent.

use std::collections::BTreeMap;

use anyhow::Context as _;
use forebay_base::checksum::crc32c;
use forebay_intake::digest::Digest;
use serde_json::value::RawValue;

use super::oracle::{Effect, Kind, Write};
use crate::tour::inputs::files::Source;
use crate::tour::inputs::{Documents, Files};
use crate::tour::oracle::Kept;

/// The sorted set of all files.
const BY_SIZE: &str = "tour:files-by-size";
/// Maximum size of a file that becomes a value, and of all of them: they are held in memory.
const VALUE_SIZE_MAX: u64 = 4 << 20;
const VALUES_SIZE_MAX: u64 = 128 << 20;
/// Maximum number of fields of a hash made from a document.
const FIELDS_MAX: usize = 64;

/// Something to write.
#[derive(Debug, Clone, Copy)]
pub(super) enum Item<'a> {
    File(&'a Source),
    Document { namespace: &'a str, at: usize, text: &'a str },
}

/// Returns all writes, mixed so that every type is written at any time; the same inputs give
/// the same order.
pub(super) fn plan<'a>(files: &'a Files, documents: &'a Documents) -> Vec<Item<'a>> {
    let mut room = VALUES_SIZE_MAX;
    let fitting = files.chosen.iter().filter(|file| {
        let fits = file.size <= VALUE_SIZE_MAX.min(room);
        room -= if fits { file.size } else { 0 };
        fits
    });
    let mut items: Vec<Item<'a>> = fitting.map(Item::File).collect();
    for (namespace, texts) in &documents.sets {
        let each = texts.iter().enumerate();
        items.extend(each.map(|(at, text)| Item::Document { namespace, at, text }));
    }
    items.sort_by_cached_key(|item| {
        let key = item.key();
        (crc32c(key.as_bytes()), key)
    });
    items
}

impl Item<'_> {
    /// Returns the key of its contents.
    pub(super) fn key(&self) -> String {
        match self {
            Self::File(file) => format!("file:{}", file.name),
            Self::Document { namespace, at, .. } => format!("document:{namespace}:{at}"),
        }
    }

    /// Returns its size in bytes.
    pub(super) fn size(&self) -> u64 {
        match self {
            Self::File(file) => file.size,
            Self::Document { text, .. } => text.len() as u64,
        }
    }

    /// Returns the writes.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(super) fn writes(&self) -> anyhow::Result<Vec<Write>> {
        let mut writes = vec![self.contents(None)?];
        if let Self::File(file) = self {
            let size = file.size;
            writes.push(member("ZADD", BY_SIZE.to_owned(), &file.name, Some(size)));
            let extension = file.path.extension().and_then(|extension| extension.to_str());
            let key = format!("tour:extension:{}", extension.unwrap_or_default());
            writes.push(member("SADD", key, &file.name, None));
        }
        Ok(writes)
    }

    /// Returns its contents with a suffix, so that no round is mistaken for another.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(super) fn rewrite(&self, round: u64) -> anyhow::Result<Write> {
        self.contents(Some(round))
    }

    fn contents(&self, round: Option<u64>) -> anyhow::Result<Write> {
        let mut text = match self {
            Self::File(file) => std::fs::read(&file.path)
                .with_context(|| format!("cannot read {}", file.path.display()))?,
            Self::Document { text, .. } => {
                if let Some(fields) = fields(text) {
                    return Ok(row(self.key(), fields, round));
                }
                text.as_bytes().to_vec()
            }
        };
        if let Some(round) = round {
            text.extend_from_slice(format!("\nwritten again, round {round}\n").as_bytes());
        }
        let key = self.key();
        let kept = Kept { digest: Digest::of(&text), size: text.len() as u64 };
        let words = vec![b"SET".to_vec(), key.clone().into_bytes(), text];
        Ok(Write { words, effect: Effect::Value { key, kind: Kind::Text, kept } })
    }
}

/// Returns the fields of a flat document, in order; `None` for any other.
fn fields(text: &str) -> Option<BTreeMap<String, String>> {
    let fields: BTreeMap<String, &RawValue> = serde_json::from_str(text).ok()?;
    let flat = fields.values().all(|value| !value.get().starts_with(['{', '[']));
    if fields.is_empty() || fields.len() > FIELDS_MAX || !flat {
        return None;
    }
    let plain = |value: &RawValue| match value.get().starts_with('"') {
        true => serde_json::from_str(value.get()).ok(),
        false => Some(value.get().to_owned()),
    };
    fields.into_iter().map(|(name, value)| Some((name, plain(value)?))).collect()
}

fn row(key: String, mut fields: BTreeMap<String, String>, round: Option<u64>) -> Write {
    if let Some(round) = round {
        fields.insert("written again in round".to_owned(), round.to_string());
    }
    let kept = kept_row(fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())));
    let mut words = vec![b"HSET".to_vec(), key.clone().into_bytes()];
    for (name, value) in fields {
        words.extend([name.into_bytes(), value.into_bytes()]);
    }
    Write { words, effect: Effect::Value { key, kind: Kind::Row, kept } }
}

/// Returns the digest of fields and values, in the order of the fields.
pub(super) fn kept_row<'a>(fields: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Kept {
    let parts: Vec<&[u8]> = fields.flat_map(|(name, value)| [name, value]).collect();
    let size = parts.iter().map(|part| part.len() as u64).sum();
    Kept { digest: Digest::of_parts(&parts), size }
}

fn member(command: &str, key: String, member: &str, score: Option<u64>) -> Write {
    let mut words = vec![command.as_bytes().to_vec(), key.clone().into_bytes()];
    words.extend(score.map(|score| score.to_string().into_bytes()));
    words.push(member.as_bytes().to_vec());
    Write { words, effect: Effect::Member { key, member: member.to_owned(), score } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flat_document_becomes_a_hash_and_any_other_a_string() {
        let write = |text| {
            let item = Item::Document { namespace: "n", at: 7, text };
            let words = item.writes().unwrap().remove(0).words;
            let words = words.into_iter().map(|word| String::from_utf8(word).unwrap());
            words.collect::<Vec<_>>().join(" ")
        };
        let flat = write(r#"{"b": "x\ny", "a": 1.50, "c": null}"#);
        assert_eq!(flat, "HSET document:n:7 a 1.50 b x\ny c null");
        for text in [r#"{"a": [1]}"#, "{}"] {
            assert_eq!(write(text), format!("SET document:n:7 {text}"));
        }
    }

    #[test]
    fn a_file_becomes_a_value_and_a_member_of_two_sets() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.txt"), "hello").unwrap();
        let files = Files::choose(dir.path(), 10, 1 << 20).unwrap();
        let documents = Documents::default();
        let items = plan(&files, &documents);
        let writes = items[0].writes().unwrap();
        let sent: Vec<_> = writes.iter().map(|write| write.words.join(&b' ')).collect();
        let expected: [&[u8]; 3] = [
            b"SET file:a.txt hello",
            b"ZADD tour:files-by-size 5 a.txt",
            b"SADD tour:extension:txt a.txt",
        ];
        assert_eq!(sent, expected);
        assert!(items[0].rewrite(3).unwrap().size() > writes[0].size());
    }
}
