//! The claim of a prefix: which log its packs belong to, and which process may write and remove them.
//!
//! `claim.json` is created and replaced under a condition alone. Each opening takes the next epoch, so no two
//! processes ever write the same key; an epoch that has packs already is skipped, as after a claim was removed. It also says how far the log was on stable storage: a log that ends before is
//! an older copy, and what it does not know may be needed by the newer one. `docs/formats/blob-pack.md` has its
//! fields.
//!
//! Invariants: a prefix that another log claims is not used; a process whose holder is not in the claim any more
//! removes nothing; an epoch that was taken once is never taken again; packs of the epochs before an older copy
//! took the prefix over are kept.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::index::Known;
use super::pack::{self, PackId};
use super::storage::{ObjectStorage, StorageError, Tag};

const NAME: &str = "claim.json";
const FORMAT: u32 = 1;
const SIZE_MAX: u64 = 4_096;
/// How often a claim is tried again that others changed meanwhile.
const TRIES: u32 = 8;
/// Maximum epoch: ids of packs are positive in the index.
const EPOCH_MAX: u32 = i32::MAX.cast_unsigned();

/// Why a prefix cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimError {
    /// A request failed.
    #[error("cannot claim {url}")]
    Storage {
        /// The prefix.
        url: String,
        /// Why.
        #[source]
        source: StorageError,
    },
    /// It is that of another intake.
    #[error(
        "{url} has the files of another data directory (log {log}); choose another prefix, or restore \
         the directory that it belongs to"
    )]
    Foreign {
        /// The prefix.
        url: String,
        /// The log that it belongs to.
        log: String,
    },
    /// The object does not say who uses the prefix.
    #[error("{url}/{NAME} is not a claim that this version can read")]
    Unreadable {
        /// The prefix.
        url: String,
    },
    /// Other processes claim it at the same time.
    #[error("several processes claim {url}; stop the others")]
    Contended {
        /// The prefix.
        url: String,
    },
    /// The server replaced an object although a condition did not hold.
    #[error(
        "the server of {url} ignores the conditions of writes (If-Match), so that two processes could use it at \
         the same time; use a server that supports them"
    )]
    Unconditional {
        /// The prefix.
        url: String,
    },
    /// The prefix has no claim, although it was used before.
    #[error(
        "{url} has no {NAME}, although this directory has files there; restore the bucket, or check that the \
         endpoint is the right one; to continue with what is there, remove blobs.sqlite from the intake's directory"
    )]
    Gone {
        /// The prefix.
        url: String,
    },
    /// All epochs are used.
    #[error("{url} was claimed too often; move its files away with `forebay blobs move`")]
    Exhausted {
        /// The prefix.
        url: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Text {
    format: u32,
    log: String,
    epoch: u32,
    holder: String,
    /// Position up to which the log was on stable storage.
    #[serde(default)]
    end: u64,
    /// Packs up to this epoch are kept.
    #[serde(default)]
    kept: u32,
}

/// A claim that this process holds, or held.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) epoch: u32,
    /// Packs up to this epoch are kept: a newer copy of the log may name them. Usually 0.
    pub(crate) kept: u32,
    holder: String,
    log: [u8; 16],
    /// Position of the log that the claim has.
    end: AtomicU64,
}

impl Claim {
    /// Takes the next epoch of a prefix.
    ///
    /// * `end`: where the entries of the log end.
    /// * `known`: what this directory knows of the prefix.
    pub(crate) fn take(
        storage: &dyn ObjectStorage,
        log: [u8; 16],
        end: u64,
        known: &Known,
    ) -> Result<Self, ClaimError> {
        let url = storage.url();
        let failed = |source| ClaimError::Storage { url: url.clone(), source };
        let holder = uuid::Uuid::new_v4().simple().to_string();
        // Packs of epochs that no claim mentions: it was removed, or replaced by an older one.
        let mut stray = 0;
        for _ in 0..TRIES {
            let found = storage.load(NAME, SIZE_MAX).map_err(failed)?;
            let (text, was) = match &found {
                None if known.has_blobs => return Err(ClaimError::Gone { url }),
                None => (Text::new(log, &holder), None),
                Some((bytes, tag)) => {
                    let text = read(bytes).ok_or(ClaimError::Unreadable { url: url.clone() })?;
                    if text.log != hex::encode(log) {
                        return Err(ClaimError::Foreign { url, log: text.log });
                    }
                    (text, Some(tag))
                }
            };
            let is_older = text.end > end;
            let kept = stray.max(if is_older { text.epoch } else { text.kept });
            let epoch = text.epoch.max(known.epoch).max(stray).saturating_add(1);
            if epoch > EPOCH_MAX {
                return Err(ClaimError::Exhausted { url });
            }
            // How far the log is on stable storage is not known yet.
            let noted = text.end.min(end);
            let text = Text { epoch, end: noted, kept, ..Text::new(log, &holder) };
            match write(storage, &text, was) {
                Ok(tag) => check_conditions(storage, text, was, &tag)?,
                Err(StorageError::Conflict) => continue,
                Err(source) => return Err(failed(source)),
            }
            if !is_unused(storage, epoch).map_err(failed)? {
                stray = newest(storage).map_err(failed)?;
                continue;
            }
            if kept > 0 {
                tracing::warn!(
                    %url,
                    kept,
                    "the log of this directory is older than its files in object storage, as that of a restored \
                     backup or a copy is: no object of before is removed"
                );
            }
            return Ok(Self { epoch, kept, holder, log, end: AtomicU64::new(noted) });
        }
        Err(ClaimError::Contended { url })
    }

    /// Whether this process still holds it. Notes how far the log is.
    ///
    /// * `end`: position up to which the log is on stable storage; `None` leaves what was noted.
    ///
    /// # Errors
    /// The request failed: nothing is known.
    pub(crate) fn is_held(
        &self,
        storage: &dyn ObjectStorage,
        end: Option<u64>,
    ) -> Result<bool, StorageError> {
        for _ in 0..TRIES {
            let found = storage.load(NAME, SIZE_MAX)?;
            let read = found.and_then(|(bytes, tag)| Some((read(&bytes)?, tag)));
            let Some((_, tag)) = read.filter(|(text, _)| self.is_of(text)) else {
                return Ok(false);
            };
            let Some(end) = end.filter(|end| self.end.load(Relaxed) != *end) else {
                return Ok(true);
            };
            // Not what was read: nothing of an answer that was altered is written back.
            let (epoch, kept) = (self.epoch, self.kept);
            let text = Text { epoch, end, kept, ..Text::new(self.log, &self.holder) };
            match write(storage, &text, Some(&tag)) {
                Ok(_) => {
                    self.end.store(end, Relaxed);
                    return Ok(true);
                }
                // Another process has it now, or the server was busy with another request: a look decides.
                Err(StorageError::Conflict) => {}
                Err(error) => return Err(error),
            }
        }
        let reason = "its claim cannot be replaced".to_owned();
        Err(StorageError::Away { reason })
    }

    fn is_of(&self, text: &Text) -> bool {
        text.holder == self.holder && text.epoch == self.epoch && text.log == hex::encode(self.log)
    }
}

impl Text {
    fn new(log: [u8; 16], holder: &str) -> Self {
        let (log, holder) = (hex::encode(log), holder.to_owned());
        Self { format: FORMAT, log, epoch: 0, holder, end: 0, kept: 0 }
    }
}

/// Whether there is no pack of an epoch.
fn is_unused(storage: &dyn ObjectStorage, epoch: u32) -> Result<bool, StorageError> {
    let mut is_unused = true;
    storage.list(&pack::epoch_name(epoch), &mut |_, _| is_unused = false)?;
    Ok(is_unused)
}

/// The newest epoch that has packs.
fn newest(storage: &dyn ObjectStorage) -> Result<u32, StorageError> {
    let mut newest = 0;
    storage.list(pack::PACKS, &mut |name, _| {
        newest = newest.max(PackId::of_name(name).map_or(0, PackId::epoch));
    })?;
    Ok(newest.min(EPOCH_MAX))
}

/// What is wrong with the claim of a prefix that belongs to this log, if anything.
pub(crate) fn differs(
    storage: &dyn ObjectStorage,
    log: [u8; 16],
) -> Result<Option<String>, StorageError> {
    let url = storage.url();
    let Some((bytes, _)) = storage.load(NAME, SIZE_MAX)? else { return Ok(None) };
    Ok(match read(&bytes) {
        None => Some(format!("{url}/{NAME} is not a claim that this version can read")),
        Some(text) if text.log != hex::encode(log) => {
            Some(format!("{url} has the files of another data directory (log {})", text.log))
        }
        Some(_) => None,
    })
}

/// Checks that the server refuses to replace what is of another version.
///
/// * `was`: the version before; of a prefix that was new it is the absence.
fn check_conditions(
    storage: &dyn ObjectStorage,
    text: Text,
    was: Option<&Tag>,
    now: &Tag,
) -> Result<(), ClaimError> {
    let url = storage.url();
    // Should it be written all the same, its holder is no process, and no one removes anything.
    let probe = Text { holder: "probe".to_owned(), ..text };
    match write(storage, &probe, was.filter(|was| *was != now)) {
        Err(StorageError::Conflict) => Ok(()),
        Ok(_) => Err(ClaimError::Unconditional { url }),
        Err(source) => Err(ClaimError::Storage { url, source }),
    }
}

fn write(storage: &dyn ObjectStorage, text: &Text, was: Option<&Tag>) -> Result<Tag, StorageError> {
    let bytes = serde_json::to_vec(text)
        .map_err(|error| StorageError::Refused { reason: error.to_string() })?;
    storage.replace(NAME, Bytes::from(bytes), was)
}

fn read(bytes: &[u8]) -> Option<Text> {
    serde_json::from_slice(bytes).ok().filter(|text: &Text| text.format == FORMAT)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::memory::MemoryStorage;
    use super::*;

    fn take(storage: &dyn ObjectStorage, end: u64) -> Result<Claim, ClaimError> {
        Claim::take(storage, [1; 16], end, &Known::default())
    }

    #[test]
    fn each_opening_takes_another_epoch_and_ends_the_claim_of_the_one_before() {
        let storage = MemoryStorage::default();
        let first = take(&storage, 0).unwrap();
        assert!(first.is_held(&storage, Some(0)).unwrap());
        let second = take(&storage, 0).unwrap();
        assert!(
            !first.is_held(&storage, Some(0)).unwrap()
                && second.is_held(&storage, Some(0)).unwrap()
        );
        assert_eq!((first.epoch, second.epoch), (1, 2));
        let known = Known { epoch: 9, ..Known::default() };
        assert_eq!(Claim::take(&storage, [1; 16], 0, &known).unwrap().epoch, 10);
        let foreign = Claim::take(&storage, [2; 16], 0, &Known::default()).unwrap_err();
        assert!(matches!(foreign, ClaimError::Foreign { .. }), "{foreign}");
        storage.put(NAME, Bytes::from_static(b"{}")).unwrap();
        let unreadable = take(&storage, 0).unwrap_err();
        assert!(matches!(unreadable, ClaimError::Unreadable { .. }), "{unreadable}");
    }

    #[test]
    fn a_claim_whose_answer_was_lost_is_the_own_one() {
        let storage = MemoryStorage::default();
        storage.lose_answers("claim.json", 1);
        let claim = take(&storage, 0);
        assert!(matches!(claim, Err(ClaimError::Storage { .. })));
        let claim = take(&storage, 0).unwrap();
        assert_eq!(claim.epoch, 2, "the first one may have been taken, so it is not used again");
    }

    #[test]
    fn of_processes_that_claim_at_the_same_time_each_has_its_own_epoch_and_one_holds_it() {
        let storage = Arc::new(MemoryStorage::default());
        let claims: Vec<_> = (0..4)
            .map(|_| {
                let storage = Arc::clone(&storage);
                std::thread::spawn(move || take(&*storage, 0))
            })
            .collect();
        let claims: Vec<Claim> =
            claims.into_iter().filter_map(|claim| claim.join().unwrap().ok()).collect();
        let mut epochs: Vec<_> = claims.iter().map(|claim| claim.epoch).collect();
        epochs.sort_unstable();
        epochs.dedup();
        assert_eq!(epochs.len(), claims.len());
        assert_eq!(
            claims.iter().filter(|claim| claim.is_held(&*storage, Some(0)).unwrap()).count(),
            1
        );
    }

    #[test]
    fn no_pack_is_overwritten_when_a_claim_was_removed_or_replaced_by_an_older_one() {
        let storage = MemoryStorage::default();
        let first = take(&storage, 0).unwrap();
        let old = storage.object(NAME).unwrap();
        storage.put(&PackId::new(first.epoch, 0).name(), Bytes::from_static(b"1")).unwrap();
        let second = take(&storage, 0).unwrap();
        storage.put(&PackId::new(second.epoch, 0).name(), Bytes::from_static(b"2")).unwrap();
        storage.alter(NAME, old.to_vec());
        let third = take(&storage, 0).unwrap();
        assert_eq!((third.epoch, third.kept), (3, 2), "it is not known whose packs these are");
        storage.remove(NAME).unwrap();
        let known = Known { has_blobs: true, ..Known::default() };
        let gone = Claim::take(&storage, [1; 16], 0, &known).unwrap_err();
        assert!(matches!(gone, ClaimError::Gone { .. }), "{gone}");
        let fresh = take(&storage, 0).unwrap();
        assert_eq!((fresh.epoch, fresh.kept), (3, 2));
        assert!(
            fresh.is_held(&storage, Some(0)).unwrap() && !third.is_held(&storage, Some(0)).unwrap()
        );
    }

    #[test]
    fn a_server_that_ignores_conditions_is_refused() {
        let storage = MemoryStorage::default();
        storage.ignore_conditions();
        let refused = take(&storage, 0).unwrap_err();
        assert!(matches!(refused, ClaimError::Unconditional { .. }), "{refused}");
    }

    #[test]
    fn packs_of_before_are_kept_once_an_older_copy_of_the_log_takes_the_prefix_over() {
        let storage = MemoryStorage::default();
        let first = take(&storage, 10).unwrap();
        assert!(first.is_held(&storage, Some(50)).unwrap());
        assert_eq!(take(&storage, 50).unwrap().kept, 0);
        let older = take(&storage, 49).unwrap();
        assert_eq!((older.epoch, older.kept), (3, 2));
        assert!(older.is_held(&storage, Some(60)).unwrap());
        assert_eq!(take(&storage, 60).unwrap().kept, 2);
    }
}
