//! Changes that are in the log but not yet in the catalogue, in their order.
//!
//! An entry is appended and its change queued under one lock, so the queue is in log order. Readers
//! look here first: what was acknowledged is visible to the next read although the catalogue
//! applies changes in batches.
//!
//! Invariants: a name, blob or request in the maps belongs to a queued change; a blob that a queued
//! change refers to without storing it is pinned, and a pinned blob is never reclaimed; the
//! generation changes whenever queued changes have been applied to the catalogue.

use std::collections::VecDeque;
use std::collections::hash_map::Entry as MapEntry;
use std::sync::Arc;

use foldhash::{HashMap, HashMapExt as _, HashSet, HashSetExt as _};
use forebay_log::Lsn;

use crate::catalogue::{Answered, AppliedChange, BlobLocation, BlobRecord, Change, FileRecord};
use crate::digest::Digest;
use crate::error::IntakeError;
use crate::file_namespaces::Records;
use crate::known::Known;
use crate::meters::Tier;
use crate::names::{FileName, Namespace};
use crate::quotas::{self, Usages};
use crate::recent::Recent;

/// A name with its namespace.
pub type NameKey = (Namespace, FileName);

/// A change waiting for the catalogue.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) lsn: Lsn,
    pub(crate) end: Lsn,
    pub(crate) change: Change,
    pub(crate) answered: Option<Arc<Answered>>,
}

/// The effect of a queued change on a name.
#[derive(Debug, Clone)]
pub(crate) struct PendingName {
    /// The change is acknowledged once the log is committed up to here.
    pub(crate) end: Lsn,
    lsn: Lsn,
    /// The file; `None` if the name was deleted.
    pub(crate) file: Option<Arc<FileRecord>>,
}

#[derive(Debug)]
struct PendingBlob {
    lsn: Lsn,
    record: BlobRecord,
}

/// A request whose key is known.
#[derive(Debug, Clone)]
pub(crate) enum PendingRequest {
    /// It is in progress.
    UnderWay,
    /// It was answered by the entry that ends at this position.
    Answered(Lsn, Arc<Answered>),
}

/// What the queue knows of a digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlobSeen {
    /// Stored by a queued change.
    Stored(BlobRecord),
    /// Never stored.
    New,
    /// Its bytes are being removed at this moment; they have to be stored again.
    Doomed,
    /// The catalogue has to be queried.
    Ask,
}

/// What the queue knows of a name.
#[derive(Debug, Clone)]
pub(crate) enum NameSeen {
    /// A queued change decides.
    Pending(PendingName),
    /// Never given.
    New,
    /// The catalogue has to be queried.
    Ask,
}

#[derive(Debug)]
pub(crate) struct Pending {
    queue: VecDeque<Queued>,
    names: HashMap<NameKey, PendingName>,
    blobs: HashMap<Digest, PendingBlob>,
    requests: HashMap<Digest, PendingRequest>,
    pins: HashMap<Digest, u32>,
    doomed: HashSet<Digest>,
    known: Known,
    recent: Recent,
    generation: u64,
    /// Records of namespaces, as of the newest entry.
    pub(crate) records: Records,
    /// What namespaces with a quota hold.
    pub(crate) usages: Usages,
}

impl Pending {
    pub(crate) fn new(known: Known, records: Records, usages: Usages) -> Self {
        Self {
            queue: VecDeque::new(),
            names: HashMap::new(),
            blobs: HashMap::new(),
            requests: HashMap::new(),
            pins: HashMap::new(),
            doomed: HashSet::new(),
            known,
            recent: Recent::default(),
            generation: 0,
            records,
            usages,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// End of the newest queued change's entry, among those that end at `most` or before.
    pub(crate) fn last_end(&self, most: Option<Lsn>) -> Option<Lsn> {
        let ends = self.queue.iter().rev().map(|queued| queued.end);
        match most {
            None => self.queue.back().map(|queued| queued.end),
            Some(most) => ends.into_iter().find(|end| *end <= most),
        }
    }

    /// The effect on a name of its newest queued change, among those whose entries end at `most` or
    /// before. Looks at every change: for a log that is stalled.
    pub(crate) fn name_up_to(&self, key: &NameKey, most: Lsn) -> Option<PendingName> {
        self.queue.iter().rev().filter(|queued| queued.end <= most).find_map(|queued| {
            let file = match &queued.change {
                Change::Put { file, .. } | Change::Move { file, .. }
                    if file.namespace == key.0 && file.name == key.1 =>
                {
                    Some(file.clone())
                }
                Change::Move { from, .. } if from == key => None,
                Change::Delete { namespace, name, .. } if *namespace == key.0 && *name == key.1 => {
                    None
                }
                Change::NewestErased { namespace, name, file, .. }
                    if *namespace == key.0 && *name == key.1 =>
                {
                    file.clone()
                }
                Change::Amended { file: Some(file), .. }
                    if file.namespace == key.0 && file.name == key.1 =>
                {
                    Some(file.clone())
                }
                _ => return None,
            };
            Some(PendingName { end: queued.end, lsn: queued.lsn, file })
        })
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    pub(crate) fn name(&self, key: &NameKey) -> NameSeen {
        match self.names.get(key) {
            Some(pending) => NameSeen::Pending(pending.clone()),
            None if self.known.may_have_name(&key.0, &key.1) => NameSeen::Ask,
            None => NameSeen::New,
        }
    }

    pub(crate) fn blob(&self, digest: Digest) -> BlobSeen {
        if self.doomed.contains(&digest) {
            return BlobSeen::Doomed;
        }
        match self.blobs.get(&digest) {
            Some(pending) => BlobSeen::Stored(pending.record),
            None if self.known.may_have_digest(digest) => BlobSeen::Ask,
            None => BlobSeen::New,
        }
    }

    /// Whether a namespace keeps the file with this id when it is replaced or deleted.
    pub(crate) fn keeps_version(&self, namespace: &Namespace, id: u64) -> bool {
        self.records.records.get(namespace).is_some_and(|record| record.keeps_version(id))
    }

    /// Checks that a change keeps a namespace within its quota.
    ///
    /// # Errors
    /// [`IntakeError::Rejected`] with the code `quota_exceeded`.
    pub(crate) fn check_quota(
        &self,
        namespace: &Namespace,
        change: quotas::Change,
    ) -> Result<(), IntakeError> {
        match self.usages.get(namespace) {
            None => Ok(()),
            usage => quotas::check(self.records.records.get(namespace), usage, change),
        }
    }

    /// What the tiers before the catalogue know of a digest, for a decision about new bytes.
    pub(crate) fn look_up(&mut self, digest: Digest) -> BlobSeen {
        match self.blob(digest) {
            BlobSeen::Ask => match self.recent.get(digest) {
                Some(blob) => {
                    crate::meters::looked_up(Tier::Memory, true);
                    BlobSeen::Stored(blob)
                }
                None => {
                    crate::meters::looked_up(Tier::Memory, false);
                    crate::meters::looked_up(Tier::Filter, false);
                    BlobSeen::Ask
                }
            },
            BlobSeen::New => {
                crate::meters::looked_up(Tier::Memory, false);
                crate::meters::looked_up(Tier::Filter, true);
                BlobSeen::New
            }
            seen => seen,
        }
    }

    /// Remembers what the catalogue says of a digest; ignored if it has changed since.
    pub(crate) fn learn(&mut self, blob: Option<BlobRecord>, generation: u64) {
        crate::meters::looked_up(Tier::Catalogue, blob.is_some());
        if let Some(blob) = blob
            && generation == self.generation
            && !self.doomed.contains(&blob.digest)
        {
            self.recent.insert(blob);
        }
    }

    /// Whether a queued change is about a name in this namespace.
    pub(crate) fn changes_files_in(&self, namespace: &Namespace) -> bool {
        self.names.keys().any(|(of, _)| of == namespace)
    }

    /// Queues a change whose entry was just appended, under the same lock.
    pub(crate) fn push(&mut self, queued: Queued) {
        match &queued.change {
            Change::Put { file, stored, .. } => {
                self.push_name(&queued, file);
                match stored {
                    Some(place) => self.push_blob(queued.lsn, file, *place),
                    None => *self.pins.entry(file.digest).or_insert(0) += 1,
                }
            }
            Change::Move { file, from, .. } => {
                self.push_name(&queued, file);
                *self.pins.entry(file.digest).or_insert(0) += 1;
                let gone = PendingName { end: queued.end, lsn: queued.lsn, file: None };
                self.names.insert(from.clone(), gone);
            }
            Change::Delete { namespace, name, .. } => {
                let pending = PendingName { end: queued.end, lsn: queued.lsn, file: None };
                self.names.insert((namespace.clone(), name.clone()), pending);
            }
            // Versions keep the bytes of the file stored until the change was applied.
            Change::NewestErased { namespace, name, file, .. } => {
                let (end, lsn, file) = (queued.end, queued.lsn, file.clone());
                self.known.insert_name(namespace, name);
                self.names
                    .insert((namespace.clone(), name.clone()), PendingName { end, lsn, file });
            }
            Change::Amended { file: Some(file), .. } => self.push_name(&queued, file),
            Change::Namespace { .. }
            | Change::Amended { file: None, .. }
            | Change::VersionsErased { .. }
            | Change::Extents { .. }
            | Change::Nothing => {}
        }
        if let Some(answered) = &queued.answered {
            let answered = PendingRequest::Answered(queued.end, answered.clone());
            let key = match &answered {
                PendingRequest::Answered(_, answered) => answered.record.key,
                PendingRequest::UnderWay => return,
            };
            self.requests.insert(key, answered);
        }
        self.queue.push_back(queued);
    }

    fn push_name(&mut self, queued: &Queued, file: &Arc<FileRecord>) {
        self.known.insert_name(&file.namespace, &file.name);
        let name = PendingName { end: queued.end, lsn: queued.lsn, file: Some(file.clone()) };
        self.names.insert((file.namespace.clone(), file.name.clone()), name);
    }

    fn push_blob(&mut self, lsn: Lsn, file: &FileRecord, place: BlobLocation) {
        self.known.insert_digest(file.digest);
        let record = BlobRecord { digest: file.digest, size: file.size, place };
        // The first stored copy is the one that the catalogue keeps.
        self.blobs.entry(file.digest).or_insert(PendingBlob { lsn, record });
    }

    /// Adds to `changes` the queued changes from index `changes.len()` on, at most `most` in all
    /// and `step` at once. Returns whether there may be more, and the end of the last one.
    ///
    /// * `end_max`: if given, changes whose entries end beyond it are left.
    ///
    /// They stay queued until [`Pending::applied`]. Only one thread takes changes, so their indexes
    /// do not change between calls.
    pub(crate) fn take_up(
        &self,
        changes: &mut Vec<AppliedChange>,
        most: usize,
        step: usize,
        end_max: Option<Lsn>,
    ) -> (bool, Option<Lsn>) {
        let from = changes.len();
        let ready = end_max.map_or(self.queue.len(), |end_max| {
            self.queue.partition_point(|queued| queued.end <= end_max)
        });
        let to = (from + step).min(most).min(ready);
        changes.extend(self.queue.range(from..to).map(|queued| AppliedChange {
            lsn: queued.lsn.0,
            change: queued.change.clone(),
            answered: queued.answered.clone(),
        }));
        let end = to.checked_sub(1).and_then(|last| self.queue.get(last)).map(|last| last.end);
        (to > from && to < most, end)
    }

    /// Drops the `count` oldest changes, now in the catalogue.
    pub(crate) fn applied(&mut self, count: usize) {
        for queued in self.queue.drain(..count.min(self.queue.len())) {
            match queued.change {
                Change::Put { file, stored, .. } => {
                    let key = (file.namespace.clone(), file.name.clone());
                    remove_if(&mut self.names, key, queued.lsn);
                    if stored.is_none() {
                        unpin(&mut self.pins, file.digest);
                    } else if let MapEntry::Occupied(blob) = self.blobs.entry(file.digest)
                        && blob.get().lsn == queued.lsn
                    {
                        let stored = blob.remove();
                        self.recent.insert(stored.record);
                    }
                }
                Change::Move { file, from, .. } => {
                    let key = (file.namespace.clone(), file.name.clone());
                    remove_if(&mut self.names, key, queued.lsn);
                    remove_if(&mut self.names, from, queued.lsn);
                    unpin(&mut self.pins, file.digest);
                }
                Change::Delete { namespace, name, .. }
                | Change::NewestErased { namespace, name, .. }
                | Change::Amended { namespace, name, .. } => {
                    remove_if(&mut self.names, (namespace, name), queued.lsn);
                }
                Change::Namespace { .. }
                | Change::VersionsErased { .. }
                | Change::Extents { .. }
                | Change::Nothing => {}
            }
            if let Some(answered) = queued.answered {
                self.requests.remove(&answered.record.key);
            }
        }
        self.generation += 1;
    }

    /// Claims an idempotency key, or returns what is known of it.
    pub(crate) fn claim(&mut self, key: Digest) -> Option<PendingRequest> {
        match self.requests.entry(key) {
            MapEntry::Occupied(known) => Some(known.get().clone()),
            MapEntry::Vacant(free) => {
                free.insert(PendingRequest::UnderWay);
                None
            }
        }
    }

    /// Releases a claimed key, unless its request was answered meanwhile.
    pub(crate) fn release(&mut self, key: Digest) {
        if let MapEntry::Occupied(claimed) = self.requests.entry(key)
            && matches!(claimed.get(), PendingRequest::UnderWay)
        {
            claimed.remove();
        }
    }

    /// Keeps a blob from being reclaimed until [`Pending::unpin`].
    pub(crate) fn pin(&mut self, digest: Digest) {
        *self.pins.entry(digest).or_insert(0) += 1;
    }

    pub(crate) fn unpin(&mut self, digest: Digest) {
        unpin(&mut self.pins, digest);
    }

    /// Marks a blob as being removed, unless something still refers to it.
    pub(crate) fn doom(&mut self, digest: Digest) -> bool {
        let free = !self.pins.contains_key(&digest) && !self.blobs.contains_key(&digest);
        if free {
            self.recent.forget(digest);
            self.doomed.insert(digest);
        }
        free
    }

    /// Ends what [`Pending::doom`] started. Earlier answers of the catalogue about the blob become
    /// void.
    pub(crate) fn spare(&mut self, digest: Digest) {
        self.doomed.remove(&digest);
        self.generation += 1;
    }
}

fn remove_if(names: &mut HashMap<NameKey, PendingName>, key: NameKey, lsn: Lsn) {
    if let MapEntry::Occupied(name) = names.entry(key)
        && name.get().lsn == lsn
    {
        name.remove();
    }
}

fn unpin(pins: &mut HashMap<Digest, u32>, digest: Digest) {
    if let MapEntry::Occupied(mut pin) = pins.entry(digest) {
        *pin.get_mut() -= 1;
        if *pin.get() == 0 {
            pin.remove();
        }
    }
}
