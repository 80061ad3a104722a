//! The tree beside the write path: leaves are hashed by those who bring them, nodes by a thread.
//!
//! Hashes wait in a queue in order of sequence. Whoever needs the tree up to date takes them from
//! there themselves, so nobody depends on the thread's pace; and who finds the queue long takes it up
//! the tree before adding to it, unless somebody is at it: the thread is one among all who append, and
//! gets no larger share of the processors than one of them. It sleeps until there is work enough.

#![expect(clippy::cast_possible_truncation, reason = "a constant")]

use std::collections::VecDeque;
use std::sync::Arc;

use forebay_log::Lsn;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::memory::Run;
use crate::merkle::{self, Hash, Tree};

/// Leaf hashes that may wait before an appender waits for the tree.
const QUEUED_MAX: u64 = 1 << 19;
/// Bytes they take.
pub(crate) const QUEUED_SIZE_MAX: usize = QUEUED_MAX as usize * size_of::<Hash>();
/// Leaf hashes that wait before an appender takes them up the tree where nobody does: few enough to be
/// in its cache still, and to leave little to do after the last append.
const HELPED_FROM: u64 = 1 << 14;
/// Leaf hashes the thread is woken for: enough tiles to go up the tree together.
const WOKEN_FOR: u64 = 1 << 12;

/// Leaves on their way to the tree.
#[derive(Debug)]
pub(crate) enum Leaves {
    /// Hashed already.
    Hashed(Vec<Hash>),
    /// Read back from the log, and not yet hashed.
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

/// A tree, and the log's position behind its last leaf.
#[derive(Debug)]
pub(crate) struct Grown {
    pub(crate) tree: Tree,
    pub(crate) log_end: Lsn,
}

#[derive(Debug, Default)]
struct Queue {
    items: VecDeque<(Leaves, Lsn)>,
    waiting: u64,
    stopping: bool,
}

/// The tree and what is to be added to it.
#[derive(Debug)]
pub(crate) struct TreeKeeper {
    grown: Mutex<Grown>,
    queue: Mutex<Queue>,
    work: Condvar,
}

impl TreeKeeper {
    /// A keeper of a tree whose leaves are all below `log_end`.
    pub(crate) fn new(tree: Tree, log_end: Lsn) -> Self {
        Self {
            grown: Mutex::new(Grown { tree, log_end }),
            queue: Mutex::default(),
            work: Condvar::new(),
        }
    }

    /// Adds the leaves that follow all those added before; called in order of sequence.
    pub(crate) fn push(&self, leaves: Leaves, log_end: Lsn) {
        let mut queue = self.queue.lock();
        queue.waiting += leaves.len();
        queue.items.push_back((leaves, log_end));
        if queue.waiting >= WOKEN_FOR {
            self.work.notify_one();
        }
    }

    /// Does the queue's work where it has grown long.
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

    /// The tree with everything that was added.
    pub(crate) fn current(&self) -> MutexGuard<'_, Grown> {
        let mut grown = self.grown.lock();
        self.take_up(&mut grown);
        grown
    }

    /// Adds what is queued to the tree.
    fn take_up(&self, grown: &mut Grown) {
        // What comes while this runs waits for the next call, so that this one ends.
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
    merkle::leaf_hashes((0..run.len()).map(|index| run.leaf(index)), &mut hashes);
    hashes
}
