//! The runs of a merge, the one at the least directory first.
//!
//! Comparing names of directories in many places is what a merge of many runs costs: each is in another place of
//! memory. So all names that are compared are shortened by the prefix that they share at present, and the 16 bytes
//! after it are kept beside the run. As the merge proceeds, names of neighbouring directories share more.
//!
//! Invariants:
//! - Every current directory begins with the prefix. One that does not shortens it.
//! - The order is that of the whole names, whatever the prefix is.

use super::run::RunReader;

/// Bytes of a name that are compared without looking at it.
const KEY_SIZE: usize = size_of::<u128>();

/// A run at a directory.
struct Head {
    /// The bytes after the prefix, of which missing ones are zero.
    key: u128,
    /// Its index.
    run: usize,
}

/// Runs, ordered by their current directories.
#[derive(Default)]
pub(super) struct Heads {
    /// The runs, whether they are at a directory or not.
    runs: Vec<RunReader>,
    /// A heap, its least on top.
    heap: Vec<Head>,
    prefix: Vec<u8>,
}

impl Heads {
    /// Takes runs that are at their first directory.
    pub(super) fn new(runs: Vec<RunReader>) -> Self {
        let mut heads = Self { runs, heap: Vec::new(), prefix: Vec::new() };
        (0..heads.runs.len()).for_each(|run| heads.push(run));
        heads.share();
        heads
    }

    /// The run at the least directory.
    pub(super) fn first(&self) -> Option<usize> {
        self.heap.first().map(|head| head.run)
    }

    /// Whether another run is at the same directory as the first.
    pub(super) fn is_shared(&self) -> bool {
        let Some(first) = self.heap.first() else { return false };
        self.heap.iter().skip(1).take(2).any(|next| {
            next.key == first.key && self.runs[next.run].dir() == self.runs[first.run].dir()
        })
    }

    /// A run, by its index.
    pub(super) fn run(&mut self, run: usize) -> &mut RunReader {
        &mut self.runs[run]
    }

    /// Removes the first run.
    pub(super) fn pop(&mut self) -> Option<usize> {
        if self.heap.is_empty() {
            return None;
        }
        let first = self.heap.swap_remove(0);
        self.sink();
        Some(first.run)
    }

    /// Adds a run that is at a directory.
    pub(super) fn push(&mut self, run: usize) {
        self.admit(run);
        self.heap.push(self.head(run));
        self.rise(self.heap.len() - 1);
    }

    /// Orders the first run again, which is at another directory.
    pub(super) fn advance(&mut self) {
        let Some(run) = self.first() else { return };
        self.admit(run);
        self.heap[0] = self.head(run);
        self.sink();
    }

    /// Takes as the prefix what all current directories share.
    pub(super) fn share(&mut self) {
        let Some(first) = self.first() else { return };
        let name = self.runs[first].dir();
        let shared = |head: &Head| shared(name, self.runs[head.run].dir());
        let length = self.heap.iter().map(shared).min().unwrap_or_default();
        self.prefix = name[..length].to_vec();
        self.cut();
    }

    /// Shortens the prefix to what the directory of a run shares with it.
    fn admit(&mut self, run: usize) {
        let name = self.runs[run].dir();
        if !name.starts_with(&self.prefix) {
            let length = shared(name, &self.prefix);
            self.prefix.truncate(length);
            self.cut();
        }
    }

    /// Cuts all keys behind the prefix. Their order stays.
    fn cut(&mut self) {
        for at in 0..self.heap.len() {
            self.heap[at] = self.head(self.heap[at].run);
        }
    }

    fn head(&self, run: usize) -> Head {
        let rest = self.runs[run].dir().get(self.prefix.len()..).unwrap_or_default();
        let key = match rest.first_chunk::<KEY_SIZE>() {
            Some(key) => u128::from_be_bytes(*key),
            None => {
                let mut key = [0; KEY_SIZE];
                key[..rest.len()].copy_from_slice(rest);
                u128::from_be_bytes(key)
            }
        };
        Head { key, run }
    }

    #[inline]
    fn is_less(&self, a: usize, b: usize) -> bool {
        let (a, b) = (&self.heap[a], &self.heap[b]);
        match a.key.cmp(&b.key) {
            std::cmp::Ordering::Equal => self.runs[a.run].dir() < self.runs[b.run].dir(),
            order => order.is_lt(),
        }
    }

    /// Moves the top down to its place: to the end of the path of the least children, and from there up. A run that
    /// was first is rarely among the first again, so this compares half as often as a search from the top.
    fn sink(&mut self) {
        let mut at = 0;
        while 2 * at + 2 < self.heap.len() {
            let one = 2 * at + 1;
            let least = one + usize::from(self.is_less(one + 1, one));
            self.heap.swap(at, least);
            at = least;
        }
        if 2 * at + 1 < self.heap.len() {
            self.heap.swap(at, 2 * at + 1);
            at = 2 * at + 1;
        }
        self.rise(at);
    }

    /// Moves a run up to its place.
    fn rise(&mut self, mut at: usize) {
        while at > 0 && self.is_less(at, (at - 1) / 2) {
            self.heap.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
    }
}

/// How many bytes two names begin with alike.
fn shared(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use forebay_base::fs::RealFs;
    use proptest::prelude::*;

    use super::super::run::{Leaf, RunWriter};
    use super::*;
    use crate::object::{ClassId, Kind, Month};

    fn run(names: &BTreeSet<Vec<u8>>) -> RunReader {
        let (class, kind) = (ClassId::STANDARD, Kind::Current);
        let leaf = Leaf { hash: 1, check: 1, size: 1, modified: Month::UNKNOWN, class, kind };
        let mut writer = RunWriter::new(&RealFs, "no file".into(), usize::MAX);
        for name in names {
            writer.push(name, [leaf].into_iter()).unwrap();
        }
        let mut reader = RunReader::new(writer.finish().unwrap());
        assert!(reader.next_entry(&RealFs).unwrap());
        reader
    }

    /// Names that share long and short prefixes, and end where others have zeros.
    fn names() -> impl Strategy<Value = BTreeSet<Vec<u8>>> {
        let part =
            prop::sample::select(vec![&b"a"[..], b"b", b"\0", b"item-", b"0123456789abcdef"]);
        let name = prop::collection::vec(part, 0..6).prop_map(|parts| parts.concat());
        prop::collection::btree_set(name, 1..30)
    }

    proptest! {
        #[test]
        fn directories_come_in_their_order_whatever_they_share(
            of in prop::collection::vec(names(), 1..9),
            every in 1..9_usize,
        ) {
            let mut heads = Heads::new(of.iter().map(run).collect());
            let mut found = Vec::new();
            while let Some(first) = heads.first() {
                let name = heads.run(first).dir().to_vec();
                let others = found.last() == Some(&name);
                found.push(name.clone());
                let is_shared = heads.is_shared();
                let reader = heads.run(first);
                while reader.next_leaf().unwrap().is_some() {}
                if reader.next_entry(&RealFs).unwrap() {
                    heads.advance();
                } else {
                    prop_assert_eq!(heads.pop(), Some(first));
                }
                if found.len() % every == 0 {
                    heads.share();
                }
                let left = of.iter().filter(|names| names.contains(&name)).count();
                let came = found.iter().filter(|known| **known == name).count();
                prop_assert_eq!(is_shared, left > came, "{:?} {}", name, others);
            }
            let mut expected: Vec<Vec<u8>> = of.iter().flatten().cloned().collect();
            expected.sort();
            prop_assert_eq!(found, expected);
        }
    }
}
