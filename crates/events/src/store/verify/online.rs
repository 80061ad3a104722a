//! Verification of an open store, while it serves.
//!
//! What is verified is one moment: checkpoints, then segments and memory, so that every checkpoint is
//! covered by the events. Segments are opened by name again, to read what is on the disk; one that
//! was replaced meanwhile is read through the store's own handle. Events that are not in a segment
//! yet are verified as they are in memory. It runs on one thread, and memory holds one root for each
//! 256 events and the hashes of tiles that are read in part.

use std::path::Path;
use std::sync::Arc;

use forebay_base::error_chain::chain;
use forebay_base::waiting::Gone;

use super::leaves::Leaves;
use super::segments::{self, Handle, Opened, Placed};
use super::signed::History;
use super::{Fault, Kept, Verified, Verifying};
use crate::format::system::SystemEntry;
use crate::format::{leaf, tree};
use crate::memory::Run;
use crate::store::manifest::{Manifest, ReadManifest, segment_path};
use crate::store::proofs::Source;
use crate::store::view::{Stored, View};
use crate::store::{Inner, OpenError, ReadError, Store};

impl Store {
    /// Verifies everything, like [`verify`](super::verify), while events are appended and read.
    ///
    /// * `since`: checkpoints of this store that were kept elsewhere.
    /// * `gone`: whether the caller has left.
    ///
    /// # Errors
    /// [`ReadError::Gone`]: the caller has left. Damage is not an error but a [`Fault`].
    pub fn verify(&self, since: &[String], gone: &Gone) -> Result<Verified, ReadError> {
        self.inner().verify(since, gone)
    }
}

impl Inner {
    fn verify(&self, since: &[String], gone: &Gone) -> Result<Verified, ReadError> {
        // Before the events: a checkpoint that is signed meanwhile may cover later ones.
        let history = self.checkpoints.as_ref().map(|checkpoints| {
            let checkpoints = checkpoints.lock();
            let own = Some(checkpoints.key.verifier().clone());
            History::new(&*self.fs, &self.dir, own, Some(checkpoints.history.notes()))
        });
        let view = self.view();
        let manifest = self.manifest_of(&view);
        let on_disk = Manifest::read(&*self.fs, &self.dir, self.file_key.as_ref());
        let (opened, faults) = self.open_again(&view.segments);
        let mut read = segments::Read::default();
        // One after another, so that the memory for tiles that are read in part is freed.
        for one in opened.chunks(1) {
            if gone.is_gone() {
                return Err(ReadError::Gone);
            }
            let next = segments::read(one, Vec::new(), manifest.merkle, 1, &|_| ());
            read.absorb(next);
        }
        read.absorb(segments::read(&[], faults, manifest.merkle, 1, &|_| ()));
        let dir: &Path = &self.dir;
        let mut verifying = Verifying::new(&self.fs, dir, manifest, &|_| ());
        verifying.manifest_on_disk(on_disk);
        verifying.small_files(self.file_key.as_ref());
        let mut leaves = verifying.segments(read);
        let mut end_seq = verifying.manifest.flushed_seq;
        for table in &view.tables {
            for run in table.runs() {
                if gone.is_gone() {
                    return Err(ReadError::Gone);
                }
                verifying.run(&run, &mut leaves, &mut end_seq);
            }
        }
        if let Some(history) = history {
            let source = Source::of_events(&view);
            let kept = self.kept(since);
            verifying.proofs(&leaves, end_seq, &opened, Some(&source), history, &kept);
        }
        Ok(verifying.verified)
    }

    /// Checkpoints that were kept elsewhere, and the witnesses of the options, once one cosigned.
    fn kept(&self, since: &[String]) -> Kept {
        let since = since.to_vec();
        let mut kept = Kept { since, ..Kept::default() };
        if self.cosigned.lock().has_some() {
            kept.witnesses = self.options.witnesses.iter().map(|it| it.key.clone()).collect();
            kept.quorum = self.options.witness_quorum;
        }
        kept
    }

    /// The manifest of a view.
    fn manifest_of(&self, view: &View) -> Manifest {
        let manifest = self.manifest.lock().clone();
        let segments: Vec<_> = view.segments.iter().map(|stored| stored.entry.clone()).collect();
        let flushed_seq = segments.last().map_or(0, |entry| entry.end_seq);
        // A flush since the view was taken has another root.
        let root = manifest.root.filter(|_| manifest.flushed_seq == flushed_seq);
        Manifest { segments, flushed_seq, root, ..manifest }
    }

    /// Opens segments by their names.
    fn open_again<'a>(&self, stored: &'a [Arc<Stored>]) -> (Vec<Opened<'a>>, Vec<Placed>) {
        let (mut opened, mut faults) = (Vec::new(), Vec::new());
        for stored in stored {
            let entry = &stored.entry;
            let path = segment_path(&self.dir, entry.number);
            match segments::open(&*self.fs, entry, &path) {
                Ok(segment) => {
                    opened.push(Opened::new(entry, path, Handle::Own(Box::new(segment))));
                }
                Err(_) if self.is_replaced(entry.number) => {
                    opened.push(Opened::new(entry, path, Handle::Store(&stored.segment)));
                }
                Err(found) => faults.push((entry.number, 0, Fault::Segment { path, found })),
            }
        }
        (opened, faults)
    }

    /// Whether a segment is no longer part of the store.
    fn is_replaced(&self, number: u64) -> bool {
        !self.view().segments.iter().any(|stored| stored.entry.number == number)
    }
}

impl Verifying<'_> {
    /// Reports a manifest that another put in the place of the store's.
    fn manifest_on_disk(&mut self, read: Result<Option<ReadManifest>, OpenError>) {
        match read {
            Ok(Some(found)) if found.manifest.sealed == self.manifest.sealed => {
                self.file("manifest", found.unauthentic);
            }
            Ok(Some(_)) => self.file("manifest", Some("it is of an older version")),
            Ok(None) => self.file("manifest", Some("it is missing")),
            Err(error) => {
                self.verified.faults.push(Fault::File { found: chain(&error).to_string() });
            }
        }
    }

    /// Hashes events in memory.
    fn run(&mut self, run: &Run, leaves: &mut Leaves, end_seq: &mut u64) {
        if run.first_seq != *end_seq {
            let found = format!("event {end_seq} is missing in memory");
            return self.verified.faults.push(Fault::Log { found });
        }
        let mut hashes = Vec::with_capacity(run.len());
        tree::hashes((0..run.len()).map(|index| run.leaf(index)), &mut hashes);
        for ((seq, index), hash) in (run.first_seq..).zip(0..run.len()).zip(hashes) {
            leaves.put(seq, hash);
            match leaf::decode(run.leaf(index)) {
                Ok(event) => {
                    self.entries.extend(SystemEntry::decode(&event).map(|entry| (seq, entry)));
                }
                Err(error) => {
                    let found = format!("event {seq}: {}", chain(&error));
                    self.verified.faults.push(Fault::Log { found });
                }
            }
        }
        *end_seq = run.end_seq();
        self.verified.events += run.len() as u64;
        self.verified.leaf_bytes += run.leaf_bytes().len() as u64;
    }
}
