//! The contents of the simulated disk, twice: as the process sees them, and as they would survive.
//!
//! Invariants:
//! - The live state is the durable one with every pending change applied, until a sync fails.
//! - A sync moves changes from pending to durable. Only a power loss does so too, and it keeps only
//!   a random part of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use super::rng::Rng;

/// Space is allocated in units of this size, as in a file system.
const PAGE_SIZE: u64 = 4096;

/// An unsynced change to a file's bytes.
#[derive(Debug, Clone)]
pub(super) enum Change {
    Write {
        offset: usize,
        data: Vec<u8>,
    },
    SetLen(usize),
    /// Extends the file to at least this size.
    Extend(usize),
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Write { offset, data } => {
                let end = offset + data.len();
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                bytes[*offset..end].copy_from_slice(data);
            }
            Self::SetLen(len) => bytes.resize(*len, 0),
            Self::Extend(len) => bytes.resize((*len).max(bytes.len()), 0),
        }
    }

    /// Applies what survives a power loss: nothing, everything, or any bytes of the change.
    fn apply_torn(&self, bytes: &mut Vec<u8>, rng: &mut Rng) {
        let Self::Write { offset, data } = self else {
            if rng.one_in(2) {
                self.apply(bytes);
            }
            return;
        };
        let part = |from: usize, to: usize| Self::Write {
            offset: offset + from,
            data: data[from..to].to_vec(),
        };
        match rng.below(4) {
            0 => {}
            1 => self.apply(bytes),
            2 => part(0, rng.below(data.len() + 1)).apply(bytes),
            _ => {
                let mut at = 0;
                while at < data.len() {
                    let run = (1 + rng.below(64)).min(data.len() - at);
                    if rng.one_in(2) {
                        part(at, at + run).apply(bytes);
                    }
                    at += run;
                }
            }
        }
    }
}

/// A file's bytes, under whatever names.
#[derive(Debug, Clone, Default)]
pub(super) struct Inode {
    pub(super) live: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Change>,
    /// Allocated pages.
    pages: BTreeSet<u64>,
}

impl Inode {
    pub(super) fn change(&mut self, change: Change) {
        change.apply(&mut self.live);
        self.pending.push(change);
    }

    pub(super) fn disk_size(&self) -> u64 {
        self.pages.len() as u64 * PAGE_SIZE
    }

    /// Returns how many pages have to be allocated for bytes `from..to`.
    pub(super) fn missing_pages(&self, from: u64, to: u64) -> u64 {
        let wanted = from / PAGE_SIZE..to.div_ceil(PAGE_SIZE);
        wanted.filter(|page| !self.pages.contains(page)).count() as u64
    }

    pub(super) fn take_pages(&mut self, from: u64, to: u64) {
        self.pages.extend(from / PAGE_SIZE..to.div_ceil(PAGE_SIZE));
    }

    pub(super) fn drop_pages_from(&mut self, len: u64) {
        self.pages.split_off(&len.div_ceil(PAGE_SIZE));
    }

    /// Makes the pending changes durable. This may be less than reads show, see
    /// [`Inode::sync_failed`].
    pub(super) fn sync(&mut self) {
        for change in self.pending.drain(..) {
            change.apply(&mut self.durable);
        }
    }

    /// A failed sync: some changes reached the disk, and the kernel dropped the others, so that a
    /// later sync succeeds without them while reads still show them.
    pub(super) fn sync_failed(&mut self, rng: &mut Rng) {
        let pending = std::mem::take(&mut self.pending);
        Self::persist_some(&mut self.durable, &pending, rng);
    }

    /// Applies a random part of `pending` in a random order.
    fn persist_some(durable: &mut Vec<u8>, pending: &[Change], rng: &mut Rng) {
        let mut pending: Vec<&Change> = pending.iter().collect();
        // Usually all or nearly all of it, in order, as on a real disk; sometimes an arbitrary
        // part.
        if rng.one_in(2) {
            for at in (1..pending.len()).rev() {
                pending.swap(at, rng.below(at + 1));
            }
        }
        for change in pending {
            change.apply_torn(durable, rng);
        }
    }

    fn power_off(&self, rng: &mut Rng) -> Self {
        let mut durable = self.durable.clone();
        Self::persist_some(&mut durable, &self.pending, rng);
        let live = durable.clone();
        let mut left = Self { live, durable, pending: Vec::new(), pages: self.pages.clone() };
        left.drop_pages_from(left.live.len() as u64);
        left
    }

    pub(super) fn flip(&mut self, offset: usize, mask: u8) -> bool {
        if let Some(byte) = self.durable.get_mut(offset) {
            *byte ^= mask;
        }
        self.live.get_mut(offset).map(|byte| *byte ^= mask).is_some()
    }
}

/// What a name refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Node {
    Dir,
    File(u64),
}

/// An unsynced change to names.
#[derive(Debug, Clone)]
pub(super) enum NameChange {
    Set { path: PathBuf, node: Node },
    Remove { path: PathBuf },
    Rename { from: PathBuf, to: PathBuf, node: Node },
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<PathBuf, Node>) {
        match self {
            Self::Set { path, node } => {
                names.insert(path.clone(), *node);
            }
            Self::Remove { path } => {
                names.remove(path);
            }
            Self::Rename { from, to, node } => {
                if names.get(from) == Some(node) {
                    names.remove(from);
                }
                names.insert(to.clone(), *node);
            }
        }
    }

    fn touches(&self, dir: &Path) -> bool {
        let within = |path: &Path| path.parent() == Some(dir);
        match self {
            Self::Set { path, .. } | Self::Remove { path } => within(path),
            Self::Rename { from, to, .. } => within(from) || within(to),
        }
    }
}

/// All names, live and durable.
#[derive(Debug, Clone, Default)]
pub(super) struct Names {
    pub(super) live: BTreeMap<PathBuf, Node>,
    durable: BTreeMap<PathBuf, Node>,
    pending: Vec<NameChange>,
}

impl Names {
    pub(super) fn change(&mut self, change: NameChange) {
        change.apply(&mut self.live);
        self.pending.push(change);
    }

    /// Makes the root directory itself durable.
    pub(super) fn sync_root(&mut self) {
        self.pending.retain(|change| {
            let root = matches!(change, NameChange::Set { path, .. } if path.parent().is_none());
            if root {
                change.apply(&mut self.durable);
            }
            !root
        });
    }

    /// Makes the changes in one directory durable. A rename from another directory also removes the
    /// old name, together with earlier changes to that name.
    pub(super) fn sync(&mut self, dir: &Path) {
        let mut kept: Vec<NameChange> = Vec::new();
        for change in std::mem::take(&mut self.pending) {
            if !change.touches(dir) {
                kept.push(change);
                continue;
            }
            if let NameChange::Rename { from, .. } = &change {
                kept.retain(
                    |earlier| !matches!(earlier, NameChange::Set { path, .. } if path == from),
                );
            }
            change.apply(&mut self.durable);
        }
        self.pending = kept;
    }

    /// A failed sync: some changes reached the disk. Unlike bytes, names are not dropped: they are
    /// written through the file system's journal, which tries again or stops the whole file system.
    pub(super) fn sync_failed(&mut self, dir: &Path, rng: &mut Rng) {
        let touched = self.pending.iter().filter(|change| change.touches(dir));
        Self::persist_some(&mut self.durable, touched, rng);
    }

    fn persist_some<'a>(
        durable: &mut BTreeMap<PathBuf, Node>,
        pending: impl Iterator<Item = &'a NameChange>,
        rng: &mut Rng,
    ) {
        for change in pending {
            if rng.one_in(2) {
                change.apply(durable);
            }
        }
    }

    fn power_off(&self, rng: &mut Rng) -> Self {
        let mut durable = self.durable.clone();
        Self::persist_some(&mut durable, self.pending.iter(), rng);
        Self { live: durable.clone(), durable, pending: Vec::new() }
    }
}

/// The whole disk.
#[derive(Debug, Clone, Default)]
pub(super) struct Disk {
    pub(super) inodes: BTreeMap<u64, Inode>,
    pub(super) names: Names,
    next_inode: u64,
    /// Capacity in bytes; `None` for no limit.
    pub(super) capacity: Option<u64>,
}

impl Disk {
    pub(super) fn new_inode(&mut self) -> u64 {
        self.next_inode += 1;
        self.inodes.insert(self.next_inode, Inode::default());
        self.next_inode
    }

    /// Returns the bytes taken by files that have a name.
    pub(super) fn used(&self) -> u64 {
        let named: BTreeSet<u64> = self
            .names
            .live
            .values()
            .filter_map(|node| match node {
                Node::File(inode) => Some(*inode),
                Node::Dir => None,
            })
            .collect();
        named.iter().filter_map(|inode| self.inodes.get(inode)).map(Inode::disk_size).sum()
    }

    /// Returns whether `pages` more pages fit.
    pub(super) fn fits(&self, pages: u64) -> bool {
        self.capacity.is_none_or(|capacity| self.used() + pages * PAGE_SIZE <= capacity)
    }

    /// Returns the disk's contents after a power loss.
    pub(super) fn power_off(&self, rng: &mut Rng) -> Self {
        let names = self.names.power_off(rng);
        let inodes = self.inodes.iter().map(|(id, inode)| (*id, inode.power_off(rng))).collect();
        let (next_inode, capacity) = (self.next_inode, self.capacity);
        Self { inodes, names, next_inode, capacity }
    }
}
