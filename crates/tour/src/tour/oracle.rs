//! What the server acknowledged, recorded by the tour itself: the reference for the server's data.
//!
//! Invariant: everything that was answered with success is recorded, and nothing else.

use std::collections::{BTreeMap, HashMap};

use forebay_intake::digest::Digest;

/// A namespace and a name in it.
pub(super) type Key = (String, String);

/// The expected content of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) digest: Digest,
    pub(super) size: u64,
}

/// Everything acknowledged.
#[derive(Debug, Default)]
pub(super) struct Oracle {
    pub(super) files: BTreeMap<Key, Kept>,
    /// A namespace's documents: how often each text was acknowledged.
    pub(super) documents: BTreeMap<String, Texts>,
}

/// A multiset of texts; each is identified by its SHA-256 and described by its beginning.
#[derive(Debug, Default, Clone)]
pub(super) struct Texts {
    counts: HashMap<Digest, (u64, String)>,
    pub(super) count: u64,
}

impl Texts {
    pub(super) fn add(&mut self, text: &str) {
        let beginning = || text.chars().take(60).collect();
        self.counts.entry(Digest::of(text.as_bytes())).or_insert_with(|| (0, beginning())).0 += 1;
        self.count += 1;
    }

    /// Returns how `found` differs: too few, too many, or never sent.
    pub(super) fn differences(&self, found: &Self) -> Vec<String> {
        let mut differences = Vec::new();
        for (digest, (count, text)) in &self.counts {
            let there = found.counts.get(digest).map_or(0, |(count, _)| *count);
            if there != *count {
                let what = if there < *count { "lost" } else { "duplicated" };
                differences.push(format!("{what}: acknowledged {count}, found {there}: {text}"));
            }
        }
        for (digest, (count, text)) in &found.counts {
            if !self.counts.contains_key(digest) {
                differences.push(format!("altered or never sent, found {count}: {text}"));
            }
        }
        differences.sort();
        differences
    }
}

impl Oracle {
    /// Records an acknowledged file.
    pub(super) fn file(&mut self, key: Key, kept: Kept) {
        self.files.insert(key, kept);
    }

    /// Records acknowledged documents.
    pub(super) fn documents<'a>(
        &mut self,
        namespace: &str,
        texts: impl IntoIterator<Item = &'a str>,
    ) {
        let known = self.documents.entry(namespace.to_owned()).or_default();
        texts.into_iter().for_each(|text| known.add(text));
    }

    /// Returns the number of documents acknowledged in all namespaces.
    pub(super) fn document_count(&self) -> u64 {
        self.documents.values().map(|texts| texts.count).sum()
    }

    /// Returns how a listing of files differs from what was acknowledged.
    pub(super) fn listing_differences(&self, found: &BTreeMap<Key, Kept>) -> Vec<String> {
        let mut differences = Vec::new();
        for ((namespace, name), kept) in &self.files {
            match found.get(&(namespace.clone(), name.clone())) {
                None => differences.push(format!("{namespace}/{name}: not listed")),
                Some(there) if there != kept => differences.push(format!(
                    "{namespace}/{name}: listed as {} bytes {}, but {} bytes {} were sent",
                    there.size, there.digest, kept.size, kept.digest
                )),
                Some(_) => {}
            }
        }
        for (namespace, name) in found.keys() {
            if !self.files.contains_key(&(namespace.clone(), name.clone())) {
                differences.push(format!("{namespace}/{name}: listed, but was never acknowledged"));
            }
        }
        differences
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(all: &[&str]) -> Texts {
        let mut texts = Texts::default();
        all.iter().for_each(|text| texts.add(text));
        texts
    }

    #[test]
    fn the_same_documents_in_another_order_are_no_difference() {
        assert!(texts(&["a", "b", "a"]).differences(&texts(&["a", "a", "b"])).is_empty());
    }

    #[test]
    fn a_lost_a_duplicated_and_an_altered_document_are_reported() {
        let found = texts(&["b", "b", "{\"x\": 1}"]).clone();
        let differences = texts(&["a", "b"]).differences(&found);
        assert_eq!(differences.len(), 3, "{differences:?}");
        assert!(differences.iter().any(|line| line.starts_with("lost")), "{differences:?}");
        assert!(differences.iter().any(|line| line.starts_with("duplicated")), "{differences:?}");
        assert!(differences.iter().any(|line| line.starts_with("altered")), "{differences:?}");
    }

    #[test]
    fn a_listing_with_a_missing_a_foreign_and_a_changed_file_differs_three_times() {
        let key = |name: &str| ("n".to_owned(), name.to_owned());
        let kept = |bytes: &[u8]| Kept { digest: Digest::of(bytes), size: bytes.len() as u64 };
        let mut oracle = Oracle::default();
        oracle.file(key("gone"), kept(b"1"));
        oracle.file(key("changed"), kept(b"2"));
        oracle.file(key("same"), kept(b"3"));
        let found =
            [(key("changed"), kept(b"x")), (key("same"), kept(b"3")), (key("foreign"), kept(b"4"))];
        assert_eq!(oracle.listing_differences(&found.into_iter().collect()).len(), 3);
    }
}
