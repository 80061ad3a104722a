//! What clients know of a server that is killed under them, and whether what it holds afterwards is possible.
//!
//! [`Names`] is for names that one client changes, one request at a time: everything acknowledged is there, and a
//! request in progress at the kill was done or not, each of its changes whole. [`History`] is the same with the
//! earlier versions of a name. [`Register`] is for a name that several clients write at the same time: it holds
//! what was written last, or by a request that no acknowledged one began after.
//!
//! Nothing here talks to a server, so nothing here can be wrong in the same way.

use std::collections::BTreeMap;

use forebay_base::fs::sim::Rng;
use sha2::{Digest as _, Sha256};

/// The bytes of a file: a seed and a size determine them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) seed: u64,
    pub(crate) size: usize,
}

impl Content {
    /// A content of this seed: small, about as large as fits in a log entry, or larger.
    pub(crate) fn some(rng: &mut Rng, seed: u64) -> Self {
        let size = match rng.below(10) {
            0 => 0,
            1 => 80_000 + rng.below(300_000),
            2 => 65_536 - 2 + rng.below(4),
            _ => rng.below(6_000),
        };
        Self { seed, size }
    }

    pub(crate) fn bytes(self) -> Vec<u8> {
        let mut rng = Rng::new(self.seed);
        let mut bytes = Vec::with_capacity(self.size + 8);
        while bytes.len() < self.size {
            bytes.extend_from_slice(&rng.next_u64().to_le_bytes());
        }
        bytes.truncate(self.size);
        bytes
    }

    pub(crate) fn sha256(self) -> String {
        sha256(&self.bytes())
    }
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// A file: its bytes, and what is stored beside them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct File {
    pub(crate) sha256: String,
    pub(crate) size: usize,
    pub(crate) comment: String,
}

impl File {
    pub(crate) fn new(content: Content, comment: &str) -> Self {
        Self { sha256: content.sha256(), size: content.size, comment: comment.to_owned() }
    }
}

/// What one step changes: each name to a file, or to nothing. All of it happens, or none.
pub(crate) type Change = Vec<(String, Option<File>)>;

/// The names of one namespace that one client changes.
#[derive(Debug, Default)]
pub(crate) struct Names {
    known: BTreeMap<String, File>,
    /// The changes of the request in progress, about different names. Each is done or not.
    begun: Vec<Change>,
}

impl Names {
    pub(crate) fn known(&self) -> &BTreeMap<String, File> {
        &self.known
    }

    /// Any of the names.
    pub(crate) fn any(&self, rng: &mut Rng) -> Option<String> {
        self.known.keys().nth(rng.below(self.known.len())).cloned()
    }

    /// A request is sent.
    pub(crate) fn begin(&mut self, changes: Vec<Change>) {
        assert!(self.begun.is_empty(), "a client sends one request at a time");
        self.begun = changes;
    }

    /// The request was acknowledged.
    pub(crate) fn acknowledge(&mut self) {
        for change in std::mem::take(&mut self.begun) {
            self.apply(change);
        }
    }

    /// The request was refused.
    pub(crate) fn refuse(&mut self) {
        self.begun.clear();
    }

    fn apply(&mut self, change: Change) {
        for (name, file) in change {
            match file {
                Some(file) => drop(self.known.insert(name, file)),
                None => drop(self.known.remove(&name)),
            }
        }
    }

    /// Learns what became of the request in progress.
    ///
    /// Returns what is impossible.
    pub(crate) fn settle(&mut self, found: &BTreeMap<String, File>) -> Result<(), String> {
        for change in std::mem::take(&mut self.begun) {
            let is_done = change.iter().all(|(name, file)| found.get(name) == file.as_ref());
            let is_not = change.iter().all(|(name, _)| found.get(name) == self.known.get(name));
            match (is_done, is_not) {
                (true, _) => self.apply(change),
                (false, true) => {}
                (false, false) => {
                    let there = change.iter().map(|(name, _)| (name, found.get(name)));
                    return Err(format!("half of {change:?}: {:?}", there.collect::<Vec<_>>()));
                }
            }
        }
        let differs = |name: &&String| found.get(*name) != self.known.get(*name);
        match self.known.keys().chain(found.keys()).find(differs) {
            None => Ok(()),
            Some(name) => Err(format!(
                "{name:?} is {:?}, and was acknowledged as {:?}",
                found.get(name),
                self.known.get(name)
            )),
        }
    }
}

/// Everything that a name referred to, the oldest first; `None` where it was deleted.
pub(crate) type Past = Vec<Option<String>>;

/// A name that keeps its versions.
#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) known: Past,
    begun: Option<Past>,
}

impl History {
    pub(crate) fn begin(&mut self, after: Past) {
        self.begun = Some(after);
    }

    pub(crate) fn acknowledge(&mut self) {
        if let Some(after) = self.begun.take() {
            self.known = after;
        }
    }

    pub(crate) fn settle(&mut self, found: &Past) -> Result<(), String> {
        let begun = self.begun.take();
        if begun.as_ref() == Some(found) {
            self.known.clone_from(found);
        }
        if self.known == *found {
            return Ok(());
        }
        Err(format!("the past is {found:?}, not {:?} or {begun:?}", self.known))
    }
}

/// A write to a name that several clients write: when it was begun and ended by the clock of all of them.
#[derive(Debug, Clone)]
pub(crate) struct Write {
    pub(crate) begun: u64,
    /// `None`: it was never acknowledged.
    pub(crate) ended: Option<u64>,
    /// SHA-256 of the bytes; `None` for a deletion.
    pub(crate) value: Option<String>,
}

/// A name that several clients write at the same time.
#[derive(Debug, Default)]
pub(crate) struct Register {
    pub(crate) writes: Vec<Write>,
}

impl Register {
    /// Checks what the name refers to while no one writes, and forgets everything before.
    pub(crate) fn settle(&mut self, found: Option<&str>, now: u64) -> Result<(), String> {
        // Of an acknowledged write that was begun after the end of another nothing of the other is left.
        let begun_last =
            self.writes.iter().filter(|write| write.ended.is_some()).map(|write| write.begun).max();
        let may_be = |write: &&Write| match (write.ended, begun_last) {
            (Some(ended), Some(begun)) => ended >= begun,
            _ => true,
        };
        let mut possible = self.writes.iter().filter(may_be).map(|write| write.value.as_deref());
        let is_new = self.writes.iter().all(|write| write.ended.is_none());
        if !possible.any(|value| value == found) && !(is_new && found.is_none()) {
            return Err(format!("{found:?} after {:?}", self.writes));
        }
        let value = found.map(str::to_owned);
        self.writes = vec![Write { begun: now, ended: Some(now), value }];
        Ok(())
    }
}

/// Documents of requests that were sent under a key: all of one are there or none, and all of an acknowledged one.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    /// Number of documents of each request, and whether it was acknowledged.
    pub(crate) sent: Vec<(usize, bool)>,
}

impl Requests {
    /// * `found`: the number of documents of each request by its index.
    pub(crate) fn check(&self, found: &BTreeMap<usize, usize>) -> Result<(), String> {
        if let Some(unknown) = found.keys().find(|request| **request >= self.sent.len()) {
            return Err(format!("request {unknown} was never sent"));
        }
        for (request, (count, is_acknowledged)) in self.sent.iter().enumerate() {
            let found = found.get(&request).copied().unwrap_or(0);
            if found != *count && (found != 0 || *is_acknowledged) {
                return Err(format!(
                    "{found} of the {count} documents of request {request}; acknowledged: {is_acknowledged}"
                ));
            }
        }
        Ok(())
    }
}

fn file(seed: u64) -> File {
    File::new(Content { seed, size: 10 }, "")
}

#[test]
fn an_oracle_reports_what_is_lost_what_is_too_much_and_what_is_half() {
    let found = |files: &[(&str, u64)]| -> BTreeMap<String, File> {
        files.iter().map(|(name, seed)| ((*name).to_owned(), file(*seed))).collect()
    };
    let begun = || {
        let mut names = Names::default();
        names.begin(vec![vec![("a".to_owned(), Some(file(1)))]]);
        names.acknowledge();
        // A move of a to b.
        names.begin(vec![vec![("a".to_owned(), None), ("b".to_owned(), Some(file(1)))]]);
        names
    };
    for (there, is_possible) in [
        (found(&[("a", 1)]), true),
        (found(&[("b", 1)]), true),
        (found(&[]), false),
        (found(&[("a", 1), ("b", 1)]), false),
        (found(&[("a", 2)]), false),
        (found(&[("a", 1), ("c", 1)]), false),
    ] {
        assert_eq!(begun().settle(&there).is_ok(), is_possible, "{there:?}");
    }
    let write = |begun, ended, value: &str| Write { begun, ended, value: Some(value.to_owned()) };
    let writes = || {
        vec![
            write(1, Some(2), "a"),
            write(3, Some(5), "b"),
            write(4, Some(6), "c"),
            write(1, None, "d"),
        ]
    };
    for (value, is_possible) in
        [(Some("a"), false), (Some("b"), true), (Some("c"), true), (Some("d"), true), (None, false)]
    {
        let mut register = Register { writes: writes() };
        assert_eq!(register.settle(value, 9).is_ok(), is_possible, "{value:?}");
    }
    let requests = Requests { sent: vec![(2, true), (3, false)] };
    for (counts, is_possible) in [
        (vec![(0, 2)], true),
        (vec![(0, 2), (1, 3)], true),
        (vec![(0, 1)], false),
        (vec![], false),
        (vec![(0, 2), (1, 2)], false),
        (vec![(0, 4)], false),
        (vec![(0, 2), (2, 1)], false),
    ] {
        let counts: BTreeMap<usize, usize> = counts.into_iter().collect();
        assert_eq!(requests.check(&counts).is_ok(), is_possible, "{counts:?}");
    }
}
