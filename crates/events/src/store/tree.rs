//! The tree beside the write path: appenders hash the leaves, a thread hashes the nodes.
//!
//! Hashes wait in a queue in order of sequence. A caller that needs the current tree processes the
//! queue itself, so no caller depends on the thread's speed. An appender that finds the queue long
//! processes it before adding to it, unless another thread does: the thread is only one among all
//! appenders, and gets no larger share of the processors than one of them. It sleeps until there is
//! enough work.

#![expect(clippy::cast_possible_truncation, reason = "a constant")]

use std::collections::VecDeque;
use std::sync::Arc;

use forebay_log::Lsn;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::format::tree as entries;
use crate::memory::Run;
use crate::merkle::{Hash, Tree};

/// Number of leaf hashes that may wait before an appender waits for the tree.
const QUEUED_MAX: u64 = 1 << 19;
/// Their size in bytes.
pub(crate) const QUEUED_SIZE_MAX: usize = QUEUED_MAX as usize * size_of::<Hash>();
/// Number of waiting leaf hashes from which an appender processes them if no thread does: few
/// enough to be in its cache still, and to leave little work after the last append.
const HELPED_FROM: u64 = 1 << 14;
/// Number of leaf hashes that wake the thread: enough tiles to be processed together.
const WOKEN_FOR: u64 = 1 << 12;

/// Leaves to be added to the tree.
#[derive(Debug)]
pub(crate) enum Leaves {
    /// Hashed already.
    Hashed(Vec<Hash>),
    /// Read from the log, and not yet hashed.
    Run(Arc<Run>),
}

impl Leaves {
    fn len(&self) -> u64 {
        match self {
            Self::Hashed(hashes) => hashes.len() as u64,
            Self::Run(run) => run.len() as u64,
        }
    }
}

/// A tree, and the log's position after its last leaf.
#[derive(Debug)]
pub(crate) struct Grown {
    pub(crate) tree: Tree,
    pub(crate) log_end: Lsn,
}

/// What the tree has of a tile.
#[derive(Debug)]
pub(crate) enum TileHashes {
    /// The root of a complete tile.
    Root(Hash),
    /// The leaves of the last one.
    Edge(Vec<Hash>),
}

#[derive(Debug, Default)]
struct Queue {
    items: VecDeque<(Leaves, Lsn)>,
    waiting: u64,
    stopping: bool,
}

/// The tree and its queue.
#[derive(Debug)]
pub(crate) struct TreeKeeper {
    grown: Mutex<Grown>,
    /// Why the leaves after its last complete tile are unknown, if they are: none can be added.
    incomplete: Option<String>,
    queue: Mutex<Queue>,
    work: Condvar,
}

impl TreeKeeper {
    /// A keeper of a tree whose leaves are all below `log_end`.
    pub(crate) fn new(tree: Tree, log_end: Lsn) -> Self {
        Self {
            grown: Mutex::new(Grown { tree, log_end }),
            incomplete: None,
            queue: Mutex::default(),
            work: Condvar::new(),
        }
    }

    /// A keeper of a tree of complete tiles, for reading: the leaves after them are unknown.
    ///
    /// * `reason`: why.
    pub(crate) fn incomplete(tree: Tree, log_end: Lsn, reason: String) -> Self {
        Self { incomplete: Some(reason), ..Self::new(tree, log_end) }
    }

    /// Why it lacks the leaves after its last complete tile, if it does.
    pub(crate) fn lacks(&self) -> Option<&str> {
        self.incomplete.as_deref()
    }

    /// Adds the leaves that follow all earlier ones; called in order of sequence.
    pub(crate) fn push(&self, leaves: Leaves, log_end: Lsn) {
        if self.incomplete.is_some() {
            return;
        }
        let mut queue = self.queue.lock();
        queue.waiting += leaves.len();
        queue.items.push_back((leaves, log_end));
        if queue.waiting >= WOKEN_FOR {
            self.work.notify_one();
        }
    }

    /// Processes the queue if it has grown long.
    pub(crate) fn help(&self) {
        let waiting = self.queue.lock().waiting;
        if waiting > QUEUED_MAX {
            drop(self.current());
        } else if waiting > HELPED_FROM
            && let Some(mut grown) = self.grown.try_lock()
        {
            self.take_up(&mut grown);
        }
    }

    /// Returns the tree with all added leaves.
    pub(crate) fn current(&self) -> MutexGuard<'_, Grown> {
        let mut grown = self.grown.lock();
        self.take_up(&mut grown);
        grown
    }

    /// What the tree has of a tile; `None` beyond its end, and if the leaves there are unknown.
    pub(crate) fn tile(&self, tile: u64) -> Option<TileHashes> {
        let of = |grown: &Grown| {
            let at = usize::try_from(tile).ok()?;
            grown.tree.tile_roots().get(at).copied().map(TileHashes::Root)
        };
        if let Some(root) = of(&self.grown.lock()) {
            return Some(root);
        }
        if self.incomplete.is_some() {
            return None;
        }
        let grown = self.current();
        let edge = || (grown.tree.tile_roots().len() as u64 == tile).then(|| grown.tree.edge());
        of(&grown).or_else(|| edge().map(|leaves| TileHashes::Edge(leaves.to_vec())))
    }

    /// Adds the queued leaves to the tree.
    fn take_up(&self, grown: &mut Grown) {
        // Leaves added while this runs wait for the next call, so that this one ends.
        let count = self.queue.lock().items.len();
        for _ in 0..count {
            let taken = {
                let mut queue = self.queue.lock();
                let taken = queue.items.pop_front();
                queue.waiting -= taken.as_ref().map_or(0, |(leaves, _)| leaves.len());
                taken
            };
            let Some((leaves, log_end)) = taken else { break };
            match leaves {
                Leaves::Hashed(hashes) => grown.tree.push(&hashes),
                Leaves::Run(run) => grown.tree.push(&hashes_of(&run)),
            }
            grown.log_end = log_end;
        }
    }

    /// Adds what is queued until [`stop`](Self::stop): the body of the thread.
    pub(crate) fn run(&self) {
        loop {
            {
                let mut queue = self.queue.lock();
                while queue.waiting < WOKEN_FOR && !queue.stopping {
                    self.work.wait(&mut queue);
                }
                if queue.stopping {
                    return;
                }
            }
            drop(self.current());
        }
    }

    /// Ends the thread.
    pub(crate) fn stop(&self) {
        self.queue.lock().stopping = true;
        self.work.notify_all();
    }
}

/// The leaf hashes of a run.
pub(crate) fn hashes_of(run: &Run) -> Vec<Hash> {
    let mut hashes = Vec::with_capacity(run.len());
    entries::hashes((0..run.len()).map(|index| run.leaf(index)), &mut hashes);
    hashes
}
