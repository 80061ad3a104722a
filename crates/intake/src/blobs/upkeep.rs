//! What keeps the packs in order: the claim, packs without blobs, packs that are half dead, packs that the index
//! does not know.
//!
//! Invariants: nothing is removed unless the claim was seen to be held in the same pass; a pack that is removed
//! has no blob that counts, as an index on stable storage says; a pack that cannot be read is left alone.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use forebay_base::error_chain::chain;

use super::claim::Claim;
use super::index::{BlobIndex, Known, Pack};
use super::pack::{self, END_SIZE, End, Member, PACKS, PackId};
use super::packer::PACK_SIZE;
use super::remote::{IsKnown, Remote, RemoteError, check_digest};
use super::storage::{ObjectStorage, StorageError};
use crate::blocks::BlockReader;
use crate::digest::Digest;
use crate::error::CatalogueError;

/// Time between two passes: how long a process may go on that has lost its claim.
const PASS_EVERY: Duration = Duration::from_secs(30);
/// The same where packs without blobs are kept for a shorter time.
const PASS_EVERY_MIN: Duration = Duration::from_secs(1);
/// Time between two complete listings, and from the start to the first one.
const LIST_AFTER: Duration = Duration::from_secs(15 * 60);
const LIST_EVERY: Duration = Duration::from_secs(24 * 3_600);
/// Maximum number of packs that a pass removes.
const REMOVED_MAX: usize = 1_000;
/// Maximum number of packs that a pass reads to write them again.
const REWRITTEN_MAX: usize = 16;
/// Number of packs with damage from which on none are written again.
const DAMAGED_MAX: usize = 1_000;
/// Bytes read of the end of a pack at first.
const TAIL_SIZE: u64 = 64 << 10;
/// Maximum size of an index of a pack.
const PACK_INDEX_MAX: u64 = 64 << 20;
/// Digests examined at a time.
const PAGE: usize = 1_000;
/// Requests at the same time while the index is completed.
const READERS: usize = 16;
/// Number of epochs up to which they are listed one by one.
const EPOCHS_MAX: u32 = 64;

/// Starts the thread.
pub(crate) fn start(remote: &Arc<Remote>) -> std::io::Result<JoinHandle<()>> {
    let remote = Arc::clone(remote);
    std::thread::Builder::new().name("intake-blobs".into()).spawn(move || {
        let (mut listed, mut list_after) = (Instant::now(), LIST_AFTER);
        let every = remote.options.keep.clamp(PASS_EVERY_MIN, PASS_EVERY);
        while remote.waits(every) {
            let lists = listed.elapsed() >= list_after;
            match remote.pass(lists) {
                Ok(()) if lists => (listed, list_after) = (Instant::now(), LIST_EVERY),
                Ok(()) => {}
                Err(error) => {
                    tracing::warn!(error = %chain(&error), "the packs in object storage are not kept up");
                }
            }
        }
    })
}

impl Remote {
    /// Waits for a time. Returns `false` if it is being closed.
    fn waits(&self, time: Duration) -> bool {
        let (mut state, end) = (self.state.lock(), Instant::now() + time);
        while !state.is_closed && !self.woken.wait_until(&mut state, end).timed_out() {}
        !state.is_closed
    }

    /// One pass: checks the claim, frees space, and adds what the index does not know if `lists`. Blocks.
    pub(crate) fn pass(self: &Arc<Self>, lists: bool) -> Result<(), RemoteError> {
        let _one_at_a_time = self.pass.lock();
        if !self.is_held().map_err(|source| self.failed(source))? {
            let mut state = self.state.lock();
            if !std::mem::replace(&mut state.is_fenced, true) {
                let url = self.storage().url();
                tracing::error!(%url, "another process uses this prefix; nothing more is stored there");
            }
            return Ok(());
        }
        self.state.lock().is_fenced = false;
        if lists {
            self.add_unknown()?;
        }
        self.rewrite_half_dead()?;
        self.remove_dead()
    }

    fn failed(&self, source: StorageError) -> RemoteError {
        RemoteError::Storage { url: self.storage().url(), source }
    }

    /// Removes packs without blobs.
    fn remove_dead(&self) -> Result<(), RemoteError> {
        let keep_ms = i64::try_from(self.options.keep.as_millis()).unwrap_or(i64::MAX);
        let until_ms = self.now_ms().saturating_sub(keep_ms);
        let dead = self.index.dead(self.claim.kept, until_ms, REMOVED_MAX)?;
        if dead.is_empty() {
            return Ok(());
        }
        // No later state of the index may name what is removed from here on.
        self.index.sync()?;
        let begun = Instant::now();
        let mut refused = Ok(());
        for id in dead {
            // The claim was seen at the beginning of the pass; the next one continues.
            if begun.elapsed() > PASS_EVERY || self.state.lock().is_closed {
                break;
            }
            // A pack that is dead stays so: no look-up leads to it.
            if self.users.lock().contains_key(&id) || self.on_their_way.lock().contains(&id) {
                continue;
            }
            match self.noted(self.storage().remove(&id.name())) {
                Ok(()) => {}
                // One that is protected does not keep the others.
                Err(source @ StorageError::Refused { .. }) => {
                    refused = Err(self.failed(source));
                    continue;
                }
                Err(source) => return Err(self.failed(source)),
            }
            self.index.forget(id)?;
            super::meters::pack_removed();
        }
        refused
    }

    /// Writes the blobs of packs again of which less than half counts.
    fn rewrite_half_dead(self: &Arc<Self>) -> Result<(), RemoteError> {
        let mut damaged = self.damaged.lock().clone();
        if damaged.len() > DAMAGED_MAX {
            return Ok(());
        }
        let mut packs = self.index.half_dead(self.claim.kept, REWRITTEN_MAX + damaged.len())?;
        packs.retain(|pack| !damaged.remove(&pack.id));
        packs.truncate(REWRITTEN_MAX);
        let mut group: Vec<Pack> = Vec::new();
        for pack in packs {
            let live: u64 = group.iter().map(|pack| pack.live).sum();
            if live + pack.live > PACK_SIZE as u64 {
                self.rewrite_packs(&std::mem::take(&mut group))?;
            }
            group.push(pack);
        }
        self.rewrite_packs(&group)
    }

    fn rewrite_packs(self: &Arc<Self>, packs: &[Pack]) -> Result<(), RemoteError> {
        let mut blobs = Vec::new();
        for pack in packs {
            for member in self.index.members(pack.id)? {
                let Some(blob) = self.find(member.digest)? else { continue };
                let bytes = BlockReader::remote(blob, member.size, member.digest)
                    .and_then(|reader| reader.read_all(member.size))
                    .and_then(|bytes| {
                        check_digest(member.digest, Some(Digest::of(&bytes))).map(|()| bytes)
                    });
                match bytes {
                    Ok(bytes) => blobs.push((member.digest, bytes)),
                    // Damage stays where it is, and is reported when it is read; so does its pack.
                    Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                        tracing::error!(pack = %pack.id, digest = %member.digest, %error, "a blob is damaged");
                        self.damaged.lock().insert(pack.id);
                    }
                    Err(error) => return Err(self.failed(StorageError::Source(error))),
                }
            }
        }
        if blobs.is_empty() {
            return Ok(());
        }
        self.rewrite(&blobs).map_err(|source| self.failed(source))?;
        super::meters::packs_rewritten(packs.len());
        Ok(())
    }

    /// Adds packs that the index does not know. Most arrived after they were given up on, or after a process that
    /// was killed, and are removed later. One that could not be read at the start has blobs that count.
    fn add_unknown(&self) -> Result<(), RemoteError> {
        let url = self.storage().url();
        let found = list(self.storage(), PACKS).map_err(|source| self.failed(source))?;
        for (id, size) in found {
            // In this order: a pack is in the index before it is no longer on its way.
            if id.epoch() > self.claim.epoch
                || self.on_their_way.lock().contains(&id)
                || self.index.has(id)?
            {
                continue;
            }
            let read = read_index(self.storage(), id, size);
            let Some(members) = understood(read, id, &url)? else { continue };
            let counts = Counts { kept: self.claim.kept, is_known: &self.is_known };
            add(&self.index, (id, size), &members, &counts, self.now_ms())?;
        }
        Ok(())
    }
}

/// Adds the packs that a process has written which was killed: those since its epoch, or all without an index.
pub(crate) fn complete(
    storage: &dyn ObjectStorage,
    index: &BlobIndex,
    claim: &Claim,
    known: &Known,
    is_known: &IsKnown,
    now_ms: i64,
) -> Result<(), RemoteError> {
    let url = storage.url();
    let failed = |source| RemoteError::Storage { url: url.clone(), source };
    let is_short = known.epoch > 0 && claim.epoch - known.epoch <= EPOCHS_MAX;
    let below: Vec<String> = match is_short {
        true => (known.epoch..claim.epoch).map(pack::epoch_name).collect(),
        false => vec![PACKS.to_owned()],
    };
    let mut missing = Vec::new();
    for below in below {
        for (id, size) in list(storage, &below).map_err(failed)? {
            if !index.has(id)? {
                missing.push((id, size));
            }
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    tracing::info!(packs = missing.len(), %url, "reading the indexes of packs");
    let counts = Counts { kept: claim.kept, is_known };
    let next = std::sync::atomic::AtomicUsize::new(0);
    let read_some = || -> Result<(), RemoteError> {
        loop {
            let at = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let Some((id, size)) = missing.get(at) else { return Ok(()) };
            let Some(members) = understood(read_index(storage, *id, *size), *id, &url)? else {
                continue;
            };
            add(index, (*id, *size), &members, &counts, now_ms)?;
        }
    };
    std::thread::scope(|scope| {
        let readers: Vec<_> =
            (0..READERS.min(missing.len())).map(|_| scope.spawn(read_some)).collect();
        readers.into_iter().try_for_each(|reader| match reader.join() {
            Ok(read) => read,
            Err(_) => Err(RemoteError::Prepare(std::io::Error::other("a reader has panicked"))),
        })
    })
}

/// Counts out the blobs that the catalogue does not know. Returns how many.
///
/// * `kept`: those in packs up to this epoch count.
pub(crate) fn count_out_unknown(
    index: &BlobIndex,
    kept: u32,
    is_known: &IsKnown,
    now_ms: i64,
) -> Result<u64, CatalogueError> {
    let (mut after, mut count) = (None, 0);
    loop {
        let page = index.digests(kept, after, PAGE)?;
        let Some(last) = page.last() else { return Ok(count) };
        after = Some(*last);
        let mut unknown = Vec::new();
        for digest in page {
            if !is_known(digest)? {
                unknown.push(digest);
            }
        }
        count += unknown.len() as u64;
        index.remove(&unknown, now_ms)?;
    }
}

/// Which blobs of a pack count that the index does not know.
struct Counts<'a> {
    /// All those of packs up to this epoch.
    kept: u32,
    is_known: &'a IsKnown,
}

fn add(
    index: &BlobIndex,
    (id, size): (PackId, u64),
    members: &[Member],
    counts: &Counts<'_>,
    now_ms: i64,
) -> Result<(), RemoteError> {
    let mut known = HashSet::new();
    for member in members {
        if id.epoch() <= counts.kept || (counts.is_known)(member.digest)? {
            known.insert(member.digest);
        }
    }
    Ok(index.add(id, size, members, now_ms, &mut |digest| known.contains(&digest))?)
}

/// The packs below a name.
fn list(storage: &dyn ObjectStorage, below: &str) -> Result<BTreeSet<(PackId, u64)>, StorageError> {
    let mut found = BTreeSet::new();
    storage.list(below, &mut |name, size| {
        // Other objects are not the intake's.
        if let Some(id) = PackId::of_name(name) {
            found.insert((id, size));
        }
    })?;
    Ok(found)
}

/// What could be read of a pack. One that cannot be understood is reported and left alone.
fn understood(
    read: Result<Result<Vec<Member>, &'static str>, StorageError>,
    id: PackId,
    url: &str,
) -> Result<Option<Vec<Member>>, RemoteError> {
    match read {
        Ok(Ok(members)) => Ok(Some(members)),
        Ok(Err(found)) => {
            tracing::error!(pack = %id, %url, found, "a pack is damaged; it is left alone");
            Ok(None)
        }
        Err(StorageError::Missing) => Ok(None),
        Err(source) => Err(RemoteError::Storage { url: url.to_owned(), source }),
    }
}

/// Reads the index of a pack.
pub(crate) fn read_index(
    storage: &dyn ObjectStorage,
    id: PackId,
    size: u64,
) -> Result<Result<Vec<Member>, &'static str>, StorageError> {
    if size < END_SIZE {
        return Ok(Err("it is shorter than a pack"));
    }
    let mut from = size.saturating_sub(TAIL_SIZE);
    loop {
        let tail = storage.read(&id.name(), from..size)?;
        match pack::read_end(&tail, size, id) {
            Ok(End::Members(members)) => return Ok(Ok(members)),
            Ok(End::Before(at)) if at < from && size - at <= PACK_INDEX_MAX => from = at,
            Ok(End::Before(_)) => return Ok(Err("its index is too large")),
            Err(found) => return Ok(Err(found)),
        }
    }
}
