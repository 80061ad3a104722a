//! What the server acknowledged, held by the tour itself: the truth the server is held against.
//!
//! Invariant: nothing enters that was not answered with success, and nothing that was is left out.

use std::collections::{BTreeMap, HashMap};

use forebay_intake::digest::Digest;

/// A namespace and a name in it.
pub(super) type Key = (String, String);

/// What a name must give back.
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

/// A multiset of texts; each is known by its SHA-256 and told by its beginning.
#[derive(Debug, Default, Clone)]
pub(super) struct Texts {
    counts: HashMap<Digest, (u64, String)>,
    pub(super) count: u64,
}

impl Texts {
    pub(super) fn add(&mut self, text: &str) {
        let told = || text.chars().take(60).collect();
        self.counts.entry(Digest::of(text.as_bytes())).or_insert_with(|| (0, told())).0 += 1;
        self.count += 1;
    }

    /// How `found` differs: too few, too many, or never sent.
    pub(super) fn differences(&self, found: &Self) -> Vec<String> {
        let mut differences = Vec::new();
        for (digest, (count, told)) in &self.counts {
            let there = found.counts.get(digest).map_or(0, |(count, _)| *count);
            if there != *count {
                let what = if there < *count { "lost" } else { "doubled" };
                differences.push(format!("{what}: acknowledged {count}, found {there}: {told}"));
            }
        }
        for (digest, (count, told)) in &found.counts {
            if !self.counts.contains_key(digest) {
                differences.push(format!("altered or never sent, found {count}: {told}"));
            }
        }
        differences.sort();
        differences
    }
}

impl Oracle {
    /// Notes an acknowledged file.
    pub(super) fn file(&mut self, key: Key, kept: Kept) {
        self.files.insert(key, kept);
    }

    /// Notes acknowledged documents.
    pub(super) fn documents<'a>(
        &mut self,
        namespace: &str,
        texts: impl IntoIterator<Item = &'a str>,
    ) {
        let known = self.documents.entry(namespace.to_owned()).or_default();
        texts.into_iter().for_each(|text| known.add(text));
    }

    /// Documents acknowledged in all namespaces.
    pub(super) fn document_count(&self) -> u64 {
        self.documents.values().map(|texts| texts.count).sum()
    }

    /// How a listing of files differs from what was acknowledged.
    pub(super) fn listing_differences(&self, found: &BTreeMap<Key, Kept>) -> Vec<String> {
        let mut differences = Vec::new();
        for ((namespace, name), kept) in &self.files {
            match found.get(&(namespace.clone(), name.clone())) {
                None => differences.push(format!("{namespace}/{name}: not listed")),
                Some(there) if there != kept => differences.push(format!(
                    "{namespace}/{name}: listed as {} bytes {}, sent were {} bytes {}",
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
    fn a_lost_a_doubled_and_an_altered_document_are_each_told() {
        let found = texts(&["b", "b", "{\"x\": 1}"]).clone();
        let told = texts(&["a", "b"]).differences(&found);
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(told.iter().any(|line| line.starts_with("lost")), "{told:?}");
        assert!(told.iter().any(|line| line.starts_with("doubled")), "{told:?}");
        assert!(told.iter().any(|line| line.starts_with("altered")), "{told:?}");
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
