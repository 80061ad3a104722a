//! Checkpoints and proofs.
//!
//! The tree keeps the roots of complete tiles of 256 leaves and above. The hashes a proof needs
//! below are computed from the events again, or are those that pruned events left.

#![expect(
    clippy::cast_possible_truncation,
    reason = "positions are differences within one segment"
)]

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use forebay_base::error_chain::chain;

use super::checked::Trust;
use super::error::ReadError;
use super::tree::Grown;
use super::view::View;
use super::{Checkpoints, Inner, Record, Shortage, Store};
use crate::checkpoint::{Checkpoint, History, VerifierKey};
use crate::event::EventId;
use crate::format::tree;
use crate::merkle::{ConsistencyProof, Hash, InclusionProof, LeafHashes, PathError, TILE_WIDTH};
use crate::segment::{Segment, SegmentError};

/// The leaf hashes of positions `from..to` of one segment: of its events, and of pruned ones.
///
/// # Errors
/// A block is damaged, or a position has neither event nor hash.
pub(crate) fn leaf_hashes_of(
    segment: &Segment,
    from: u64,
    to: u64,
) -> Result<Vec<Hash>, SegmentError> {
    let mut hashes: Vec<Option<Hash>> = vec![None; (to - from) as usize];
    let mut put = |seq: u64, hash: Hash| {
        if let Some(place) = seq.checked_sub(from).and_then(|at| hashes.get_mut(at as usize)) {
            *place = Some(hash);
        }
    };
    let mut leaf = Vec::new();
    for number in segment.blocks_of_seq(from..to) {
        let block = segment.read_block(number as usize)?;
        for row in 0..block.len() {
            let seq = block.seq(row);
            if (from..to).contains(&seq) {
                leaf.clear();
                block.leaf(row, &mut leaf);
                put(seq, tree::hash(&leaf));
            }
        }
    }
    for (seq, hash) in segment.stubs(from..to)? {
        put(seq, hash);
    }
    hashes
        .into_iter()
        .zip(from..)
        .map(|(hash, seq)| hash.ok_or_else(|| segment.no_event(seq)))
        .collect()
}

/// The source of leaf hashes for proofs.
pub(super) struct Source<'a> {
    view: &'a View,
    known: KnownHashes,
}

impl<'a> Source<'a> {
    /// Computes every hash from the events in `view`.
    pub(super) fn of_events(view: &'a View) -> Self {
        Self { view, known: KnownHashes::default() }
    }
}

/// Hashes of consecutive events that need not be computed.
#[derive(Debug, Default)]
struct KnownHashes {
    first_seq: u64,
    hashes: Arc<[Hash]>,
}

impl KnownHashes {
    /// Those of `range`, if all are known.
    fn of(&self, range: Range<u64>) -> Option<&[Hash]> {
        let at = |seq: u64| usize::try_from(seq.checked_sub(self.first_seq)?).ok();
        self.hashes.get(at(range.start)?..at(range.end)?)
    }
}

impl LeafHashes for Source<'_> {
    type Error = String;

    fn leaf_hashes(&self, first: u64, count: usize) -> Result<Vec<Hash>, String> {
        let end = first + count as u64;
        let mut hashes = Vec::with_capacity(count);
        let mut next = first;
        while next < end {
            if let Some(stored) = self.view.segment_at(next) {
                let to = end.min(stored.entry.end_seq);
                match self.known.of(next..to) {
                    Some(known) => hashes.extend_from_slice(known),
                    None => hashes.extend(
                        leaf_hashes_of(&stored.segment, next, to)
                            .map_err(|error| chain(&error).to_string())?,
                    ),
                }
                next = to;
            } else {
                let found = self.view.table_at(next).and_then(|table| table.at(next));
                let (run, index) = found.ok_or_else(|| format!("event {next} is missing"))?;
                hashes.push(tree::hash(run.leaf(index)));
                next += 1;
            }
        }
        Ok(hashes)
    }
}

fn path_error(error: PathError<String>) -> ReadError {
    let reason = match &error {
        PathError::Leaves { source, .. } => format!("{error}: {source}"),
        other => other.to_string(),
    };
    ReadError::Proof { reason }
}

impl Inner {
    /// Signs a checkpoint of everything appended, unless that was done before; returns the newest
    /// checkpoint and its note.
    pub(crate) fn checkpoint(&self) -> Result<(Checkpoint, String), ReadError> {
        let (Some(tree), Some(checkpoints)) = (&self.tree, &self.checkpoints) else {
            return Err(ReadError::NoProofs);
        };
        // Changed events must not be signed.
        self.trust();
        self.begin_recording()?;
        let mut checkpoints = checkpoints.lock();
        if let Some(reason) = self.distrusted.get() {
            return Err(ReadError::Distrusted { reason: reason.clone() });
        }
        if checkpoints.history.is_poisoned() {
            self.reopen_history(&mut checkpoints)?;
        }
        // The previous one, if that failed: at most one checkpoint is not copied.
        self.copy_newest(&mut checkpoints)?;
        let (size, root, log_end) = {
            let grown = tree.current();
            (grown.tree.size(), grown.tree.root(), grown.log_end)
        };
        if let Some(latest) = &checkpoints.latest
            && latest.0.size == size
            && latest.0.root == root
        {
            return Ok(latest.clone());
        }
        // Signed events must survive a power cut, or the store would contradict its checkpoint.
        let (log, _) = self.journal.get().map_err(ReadError::Commit)?;
        log.sync_to(log_end).map_err(ReadError::Commit)?;
        self.show(size);
        let origin = checkpoints.key.verifier().name().to_owned();
        let latest = checkpoints.latest.as_ref().map(|(latest, _)| latest);
        let number = latest.and_then(Checkpoint::number).unwrap_or(0).saturating_add(1);
        let copied_since = latest.and_then(Checkpoint::copied_since).unwrap_or(number);
        let mut checkpoint = Checkpoint::recorded(origin, size, root, number, copied_since);
        if self.manifest.lock().sealed {
            checkpoint = checkpoint.sealed();
        }
        let note = checkpoint.sign(&checkpoints.key).map_err(ReadError::Checkpoint)?.to_string();
        checkpoints.history.append(&note).map_err(ReadError::History)?;
        checkpoints.latest = Some((checkpoint.clone(), note.clone()));
        self.counters.checkpoints.fetch_add(1, Ordering::Relaxed);
        self.publishing.wake();
        self.copy_newest(&mut checkpoints)?;
        Ok((checkpoint, note))
    }

    /// Returns the newest checkpoint, signed now. If there is no space or no descriptor to sign a
    /// new one, returns the previous one, if it covers more than `seq` events.
    pub(crate) fn checkpoint_over(&self, seq: u64) -> Result<(Checkpoint, String), ReadError> {
        self.checkpoint().or_else(|error| {
            if Shortage::of(&error).is_none() {
                return Err(error);
            }
            let latest = self.checkpoints.as_ref().and_then(|found| found.lock().latest.clone());
            latest.filter(|(checkpoint, _)| checkpoint.size > seq).ok_or(error)
        })
    }

    /// Reopens the file of checkpoints after a sync of it failed; the last one may be in it.
    fn reopen_history(&self, checkpoints: &mut Checkpoints) -> Result<(), ReadError> {
        let (path, id) = (self.dir.join("checkpoints"), self.manifest.lock().log_id);
        let history = History::open(&*self.fs, &path, id).map_err(ReadError::History)?;
        if let Some(note) = history.latest() {
            let checkpoint = Checkpoint::open(note.as_bytes(), checkpoints.key.verifier())
                .map_err(ReadError::Checkpoint)?;
            checkpoints.latest = Some((checkpoint, note.to_owned()));
        }
        checkpoints.history = history;
        Ok(())
    }

    /// The thread that signs regularly.
    pub(crate) fn sign_now_and_then(&self) {
        self.trust();
        let mut signed = 0;
        while !self.shown.is_stopped() {
            let seen = self.signing.count();
            self.signing.wait(seen, self.options.checkpoint_interval);
            let size = self.visible();
            if self.shown.is_stopped() || size == signed {
                continue;
            }
            match self.checkpoint() {
                Ok(_) => signed = size,
                Err(error) => tracing::error!("cannot sign a checkpoint: {}", chain(&error)),
            }
        }
    }

    /// Compares the tree with the newest checkpoint, and closes the store for appends if they
    /// differ: a store that was tampered with must not sign. Then the newest checkpoint that the
    /// tree does have shows which events can still be read.
    pub(super) fn compare_with_signed(&self) -> Trust {
        if let Some(lacks) = self.tree.as_ref().and_then(|tree| tree.lacks()) {
            return self.compare_without_edge(lacks);
        }
        let latest = self.checkpoints.as_ref().and_then(|found| found.lock().latest.clone());
        let Some((latest, _)) = latest else { return self.compare_with_manifest(0) };
        let reason = match self.root_of_size(latest.size) {
            Ok(root) if root == latest.root => return self.compare_with_manifest(latest.size),
            Ok(_) => format!("the first {} events differ from those it signed", latest.size),
            // A damaged block has hashes that this root needs.
            Err(_) if self.is_as_flushed(latest.size) => return Trust::default(),
            Err(error) => chain(&error).to_string(),
        };
        self.distrust(format!("{reason}; run `forebay events verify`"));
        let from = self.newest_matching();
        Trust { refused: from..latest.size, reason, unproven_from: None }
    }

    /// Compares the tree of all flushed events with the root in the manifest, which has a code: it
    /// covers events that no checkpoint covers yet.
    ///
    /// * `signed`: number of events that are compared already.
    fn compare_with_manifest(&self, signed: u64) -> Trust {
        let Some((flushed, root)) = self.root_in_manifest(signed) else { return Trust::default() };
        let reason = match self.root_of_size(flushed) {
            Ok(found) if found == root => return Trust::default(),
            Ok(_) => format!("the first {flushed} events differ from those that were stored"),
            Err(error) => chain(&error).to_string(),
        };
        self.suspend(format!("{reason}; run `forebay events verify`"));
        Trust { refused: signed..flushed, reason, unproven_from: None }
    }

    /// Whether the tree of all flushed events, more than `size`, has the root in the manifest.
    fn is_as_flushed(&self, size: u64) -> bool {
        self.root_in_manifest(size).is_some_and(|(flushed, root)| {
            self.root_of_size(flushed).is_ok_and(|found| found == root)
        })
    }

    /// The number of flushed events, more than `size`, and the root of their tree, if the manifest
    /// states it with a valid code.
    fn root_in_manifest(&self, size: u64) -> Option<(u64, Hash)> {
        let manifest = self.manifest.lock();
        let is_valid = self.suspended.get().is_none() && manifest.flushed_seq > size;
        manifest.root.filter(|_| is_valid).map(|root| (manifest.flushed_seq, root))
    }

    /// Compares a tree without the leaves after its last complete tile with the newest checkpoint
    /// that needs none of them. What comes after that is read only with the store's signature of the
    /// block, or with the code of the log's entry.
    ///
    /// * `lacks`: why these leaves are unknown.
    fn compare_without_edge(&self, lacks: &str) -> Trust {
        let signed = self.signed_roots();
        let compared = signed.iter().rev().find_map(|&(size, root)| {
            self.root_of_size(size).ok().map(|found| (size, found == root))
        });
        let (size, matches) = compared.unwrap_or((0, true));
        let refused = if matches {
            0..0
        } else {
            self.newest_matching()..signed.last().map_or(size, |(size, _)| *size)
        };
        let reason = if matches {
            format!("no signature confirms its block, and the tree cannot be compared: {lacks}")
        } else {
            format!("the first {size} events differ from those it signed")
        };
        Trust { refused, unproven_from: Some(size), reason }
    }

    pub(super) fn root_of_size(&self, size: u64) -> Result<Hash, ReadError> {
        self.with_tree(|grown, source| grown.tree.root_at(size, source).map_err(path_error))
    }

    /// The hashes of the first `size` events that none of their complete tiles covers.
    pub(super) fn edge_of_size(&self, size: u64) -> Result<Arc<[Hash]>, ReadError> {
        let tile = TILE_WIDTH as u64;
        let (tiles, count) = (size / tile, (size % tile) as usize);
        self.with_tree(|grown, source| {
            let known = grown.tree.edge().get(..count);
            match known.filter(|_| grown.tree.tile_roots().len() as u64 == tiles) {
                Some(known) => Ok(known.into()),
                None => match source.leaf_hashes(tiles * tile, count) {
                    Ok(hashes) => Ok(hashes.into()),
                    Err(reason) => Err(ReadError::Proof { reason }),
                },
            }
        })
    }

    /// The proof that the tree of `first` events is the beginning of the tree of `second`.
    pub(super) fn consistency_path(&self, first: u64, second: u64) -> Result<Vec<Hash>, ReadError> {
        self.with_tree(|grown, source| {
            grown.tree.consistency_path(first, second, source).map_err(path_error)
        })
    }

    /// The size of the newest checkpoint whose root the tree has, or 0. Those before it match too,
    /// so it is found by halving.
    fn newest_matching(&self) -> u64 {
        let signed = self.signed_roots();
        let matching = signed.partition_point(|(size, root)| {
            self.root_of_size(*size).is_ok_and(|found| found == *root)
        });
        matching.checked_sub(1).and_then(|at| signed.get(at)).map_or(0, |(size, _)| *size)
    }

    /// The sizes and roots of the store's checkpoints, in order.
    fn signed_roots(&self) -> Vec<(u64, Hash)> {
        let Some(checkpoints) = &self.checkpoints else { return Vec::new() };
        let (notes, key) = {
            let checkpoints = checkpoints.lock();
            (checkpoints.history.notes(), checkpoints.key.verifier().clone())
        };
        notes
            .map_while(Result::ok)
            .filter_map(|note| Checkpoint::open(note.as_bytes(), &key).ok())
            .map(|checkpoint| (checkpoint.size, checkpoint.root))
            .collect()
    }

    /// Accepts and signs nothing more.
    pub(crate) fn distrust(&self, reason: String) {
        tracing::error!("the event store accepts no events: {reason}");
        // Only the first reason is kept: it is what the others may follow from.
        self.distrusted.get_or_init(|| reason.clone());
        self.sequencer.lock().closed = Some(reason);
        self.room.notify_all();
    }

    fn with_tree<T>(
        &self,
        ask: impl FnOnce(&Grown, &Source<'_>) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        let tree = self.tree.as_ref().ok_or(ReadError::NoProofs)?;
        let grown = tree.current();
        // The view is read after the tree, so it has every leaf of the tree.
        let view: Arc<View> = self.view();
        ask(&grown, &self.source(&view))
    }

    /// The hashes of the events in `view`, some of which the manifest has: they are there even if
    /// the block of these events is damaged.
    pub(super) fn source<'a>(&self, view: &'a View) -> Source<'a> {
        let manifest = self.manifest.lock();
        let first_seq = manifest.flushed_seq - manifest.edge.len() as u64;
        Source { view, known: KnownHashes { first_seq, hashes: Arc::clone(&manifest.edge) } }
    }
}

impl Store {
    /// Signs for everything appended so far and returns the signed note.
    ///
    /// # Errors
    /// [`ReadError::NoProofs`]; the others if it could not be made durable.
    pub fn checkpoint(&self) -> Result<String, ReadError> {
        self.inner.checkpoint().map(|(_, note)| note)
    }

    /// Returns the key that verifies checkpoints of this store.
    ///
    /// # Errors
    /// [`ReadError::NoProofs`].
    pub fn verifier_key(&self) -> Result<VerifierKey, ReadError> {
        let checkpoints = self.inner.checkpoints.as_ref().ok_or(ReadError::NoProofs)?;
        Ok(checkpoints.lock().key.verifier().clone())
    }

    /// Proves that the event with an id is stored, under a current checkpoint.
    ///
    /// # Errors
    /// [`ReadError::NotFound`], [`ReadError::NoProofs`]; the others if the store is damaged.
    pub fn prove(&self, id: EventId) -> Result<InclusionProof, ReadError> {
        let record = self.get(id)?.ok_or(ReadError::NotFound { id })?;
        self.prove_record(&record)
    }

    /// Like [`Store::prove`], for an event that was read from this store.
    ///
    /// # Errors
    /// As [`Store::prove`].
    pub fn prove_record(&self, record: &Record) -> Result<InclusionProof, ReadError> {
        let (checkpoint, note) = self.inner.checkpoint_over(record.seq())?;
        self.prove_under(record, &checkpoint, &note)
    }

    /// Like [`Store::prove_record`], for many events under one checkpoint; in their order.
    ///
    /// # Errors
    /// As [`Store::prove`].
    pub fn prove_records(&self, records: &[Record]) -> Result<Vec<InclusionProof>, ReadError> {
        let newest = records.iter().map(Record::seq).max().unwrap_or(0);
        let (checkpoint, note) = self.inner.checkpoint_over(newest)?;
        records.iter().map(|record| self.prove_under(record, &checkpoint, &note)).collect()
    }

    fn prove_under(
        &self,
        record: &Record,
        checkpoint: &Checkpoint,
        note: &str,
    ) -> Result<InclusionProof, ReadError> {
        let (seq, size) = (record.seq(), checkpoint.size);
        let path = self.inner.with_tree(|grown, source| {
            grown.tree.inclusion_path(seq, size, source).map_err(path_error)
        })?;
        Ok(InclusionProof::new(seq, size, record.leaf(), path, note.to_owned()))
    }

    /// Returns the newest signed checkpoint and its note; signs one only if there is none yet.
    ///
    /// # Errors
    /// As [`Store::checkpoint`].
    pub fn latest_checkpoint(&self) -> Result<(Checkpoint, String), ReadError> {
        let checkpoints = self.inner.checkpoints.as_ref().ok_or(ReadError::NoProofs)?;
        let latest = checkpoints.lock().latest.clone();
        latest.map_or_else(|| self.inner.checkpoint(), Ok)
    }

    /// Like [`Store::checkpoint`], but returns the newest existing one if there is no space or no
    /// descriptor to sign another.
    ///
    /// # Errors
    /// As [`Store::checkpoint`], if there is no earlier one.
    pub fn newest_checkpoint(&self) -> Result<String, ReadError> {
        self.inner.checkpoint_over(0).map(|(_, note)| note)
    }

    /// Proves that the tree of `first` events is the beginning of the tree of `second`; without
    /// `second`, of the tree of a current checkpoint, which is included in the proof.
    ///
    /// # Errors
    /// [`ReadError::Proof`]: there are fewer events, or the store is damaged.
    pub fn prove_consistency(
        &self,
        first: u64,
        second: Option<u64>,
    ) -> Result<ConsistencyProof, ReadError> {
        let (latest, note) =
            self.inner.checkpoint_over(second.map_or(0, |size| size.saturating_sub(1)))?;
        let second = second.unwrap_or(latest.size);
        let checkpoint = (second == latest.size).then_some(note);
        self.inner.with_tree(|grown, source| {
            let path = grown.tree.consistency_path(first, second, source).map_err(path_error)?;
            let root = |size| grown.tree.root_at(size, source).map_err(path_error);
            let (first_root, second_root) = (root(first)?, root(second)?);
            Ok(ConsistencyProof { first, second, path, first_root, second_root, checkpoint })
        })
    }

    /// The root of the tree of the first `size` events.
    ///
    /// # Errors
    /// [`ReadError::Proof`]: there are fewer events, or the store is damaged.
    pub fn root_at(&self, size: u64) -> Result<Hash, ReadError> {
        self.inner.with_tree(|grown, source| grown.tree.root_at(size, source).map_err(path_error))
    }

    /// Returns hashes of a tile of the tree, as C2SP tlog-tiles numbers them.
    ///
    /// # Errors
    /// [`ReadError::Proof`]: there is no such tile, or its leaves are missing.
    pub fn tile(&self, level: u32, index: u64, width: usize) -> Result<Vec<Hash>, ReadError> {
        self.inner.with_tree(|grown, source| {
            grown.tree.tile(level, index, width, source).map_err(path_error)
        })
    }
}
