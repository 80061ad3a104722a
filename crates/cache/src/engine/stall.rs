//! Operation without space for the log: writes are refused, reads continue.
//!
//! Commands change memory before their effects are in the log. When the log cannot be written for
//! lack of space or descriptors, it holds the appended entries
//! (`forebay_log::CommitError::Stalled`), and memory is ahead of the disk by these. Their keys are
//! noted, and no client can read them until a retry has written the entries. Memory is never rolled
//! back: the held entries are written later, in order, or, if the process ends first, they were
//! never acknowledged.
//!
//! Invariants:
//! - A turn that began while the log was stalled shows only what was written before: it runs no
//!   write, and no read of a key in doubt, so it need not wait for the log ([`Engine::settle`]).
//!   Any other turn waits, and fails.
//! - A key is in doubt before its shard is unlocked. A thread that appends after the log's entries
//!   were scanned notes its keys itself, as `noting` requires, which is set before the scan.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use foldhash::{HashSet, HashSetExt as _};
use forebay_base::error_chain::chain;
use forebay_log::CommitError;
use parking_lot::{Mutex, RwLock};

use super::{Engine, TURN_EPOCH};
use crate::command::{CommandError, Flags, Keys, Spec};
use crate::persist::{Ops, Touched};

/// Whether the log is stalled, and which keys are in doubt.
#[derive(Debug)]
pub(super) struct Stall {
    /// Incremented when a stall begins and when it ends: odd during a stall.
    epoch: AtomicU64,
    noting: AtomicBool,
    doubt: RwLock<Doubt>,
    /// Held while a stall begins or ends.
    changing: Mutex<()>,
}

#[derive(Debug)]
struct Doubt {
    all: bool,
    keys: HashSet<(usize, Box<[u8]>)>,
    reason: String,
}

impl Doubt {
    fn new(reason: String) -> Self {
        Self { all: false, keys: HashSet::new(), reason }
    }

    fn note(&mut self, touched: Touched<'_>) {
        match touched {
            Touched::Key(database, key) => _ = self.keys.insert((database, key.into())),
            Touched::All => self.all = true,
        }
    }

    /// Whether a command would show or change a key in doubt.
    fn concerns(&self, spec: &Spec, args: &[&[u8]], database: usize) -> bool {
        if !self.all && self.keys.is_empty() {
            return false;
        }
        match spec.keys {
            Keys::None => false,
            Keys::All | Keys::Everything => true,
            Keys::Wide(_, is_wide) if is_wide(args) => true,
            _ if self.all => true,
            _ => spec.keys_of(args, database).into_iter().any(|(database, at)| {
                args.get(at).is_some_and(|key| self.keys.contains(&(database, (*key).into())))
            }),
        }
    }
}

impl Stall {
    pub(super) fn new() -> Self {
        Self {
            epoch: AtomicU64::new(0),
            noting: AtomicBool::new(false),
            doubt: RwLock::new(Doubt::new(String::new())),
            changing: Mutex::new(()),
        }
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.epoch() % 2 == 1
    }

    /// Whether the calling thread's turn began in the current stall.
    pub(super) fn covers_turn(&self) -> bool {
        let begun = TURN_EPOCH.get();
        begun % 2 == 1 && begun == self.epoch()
    }

    /// Notes the keys of an entry just appended while their shards are locked.
    #[inline]
    pub(super) fn note(&self, ops: &Ops) {
        if self.noting.load(Ordering::SeqCst) {
            let mut doubt = self.doubt.write();
            Touched::of_ops(ops.as_bytes(), &mut |touched| doubt.note(touched));
        }
    }
}

impl Engine {
    /// Why writes are temporarily refused, if the log has no space.
    #[must_use]
    pub fn stalled(&self) -> Option<String> {
        self.stall.is_on().then(|| self.stall.doubt.read().reason.clone())
    }

    /// The error for a command that would show or change a key in doubt. Must be called with its
    /// shards locked.
    pub(super) fn doubted(
        &self,
        spec: &Spec,
        args: &[&[u8]],
        database: usize,
    ) -> Option<CommandError> {
        if !self.stall.is_on() || spec.flags.has(Flags::WRITE) {
            return None;
        }
        let doubt = self.stall.doubt.read();
        doubt.concerns(spec, args, database).then(|| {
            CommandError::new(format!(
                "MISCONF this value has a recent change, and the command log is temporarily \
                 unavailable ({}): it can be read once the change is on disk",
                doubt.reason
            ))
        })
    }

    /// Declares that the rest of the calling thread's turn may depend on entries that others have
    /// appended.
    pub(crate) fn rest_on_log(&self) {
        TURN_EPOCH.set(0);
    }

    /// The log has stalled at the end of a turn: tries once more, or starts to serve only reads.
    pub(super) fn begin_stall(&self) -> Result<(), CommitError> {
        let Some(journal) = &self.journal else { return Ok(()) };
        let _one = self.stall.changing.lock();
        // This puts what was written on stable storage, if the durability requires it.
        let Err(error) = journal.log().retry() else { return Ok(()) };
        if !matches!(error, CommitError::Stalled { .. }) || self.stall.is_on() {
            return Err(error);
        }
        let reason = chain(&error).to_string();
        *self.stall.doubt.write() = Doubt::new(reason);
        self.stall.noting.store(true, Ordering::SeqCst);
        journal.unwritten(&mut |touched| self.stall.doubt.write().note(touched));
        self.stall.epoch.fetch_add(1, Ordering::AcqRel);
        tracing::error!(error = %chain(&error), "the cache refuses writes until there is disk space");
        Err(error)
    }

    /// Resumes after a stall, if there is space again. Must be called regularly; cheap without a
    /// stall.
    pub fn try_resume(&self) {
        let Some(journal) = self.journal.as_ref().filter(|_| self.stall.is_on()) else { return };
        let _one = self.stall.changing.lock();
        if !self.stall.is_on() {
            return;
        }
        match journal.log().retry() {
            Ok(()) => {
                // In this order: what is appended before the epoch changes is still noted.
                self.stall.epoch.fetch_add(1, Ordering::AcqRel);
                self.stall.noting.store(false, Ordering::SeqCst);
                tracing::info!("the cache accepts writes again");
            }
            Err(CommitError::Stalled { .. }) => {}
            Err(error) => {
                // The failure is permanent. Reads of this turn and later ones must not be shown.
                self.log_failed.store(true, Ordering::Release);
                self.stall.epoch.fetch_add(1, Ordering::AcqRel);
                let error = chain(&error);
                tracing::error!(%error, "the command log has failed; no write is acknowledged");
            }
        }
    }
}
