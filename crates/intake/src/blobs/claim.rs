//! The claim of a prefix: which log its packs belong to, and which process may write and remove them.
//!
//! `claim.json` is created and replaced under a condition alone. Each opening takes the next epoch, so no two
//! processes ever write the same key. It also says how far the log was on stable storage: a log that ends before is
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

use super::storage::{ObjectStorage, StorageError, Tag};

const NAME: &str = "claim.json";
const FORMAT: u32 = 1;
const SIZE_MAX: u64 = 4_096;
/// How often a claim is tried again that others changed meanwhile.
const TRIES: u32 = 8;

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
    /// * `end`: where the log ends.
    /// * `epoch_min`: the largest one known to be used.
    pub(crate) fn take(
        storage: &dyn ObjectStorage,
        log: [u8; 16],
        end: u64,
        epoch_min: u32,
    ) -> Result<Self, ClaimError> {
        let url = storage.url();
        let failed = |source| ClaimError::Storage { url: url.clone(), source };
        let holder = uuid::Uuid::new_v4().simple().to_string();
        for _ in 0..TRIES {
            let found = storage.load(NAME, SIZE_MAX).map_err(failed)?;
            let (used, kept, noted, was) = match &found {
                None => (epoch_min, 0, 0, None),
                Some((bytes, tag)) => {
                    let text = read(bytes).ok_or(ClaimError::Unreadable { url: url.clone() })?;
                    if text.log != hex::encode(log) {
                        return Err(ClaimError::Foreign { url, log: text.log });
                    }
                    let kept = if text.end > end { text.epoch } else { text.kept };
                    (text.epoch.max(epoch_min), kept, text.end.min(end), Some(tag))
                }
            };
            let epoch =
                used.checked_add(1).ok_or_else(|| ClaimError::Exhausted { url: url.clone() })?;
            let text = Text {
                format: FORMAT,
                log: hex::encode(log),
                epoch,
                holder: holder.clone(),
                // It is not known yet how far it is on stable storage.
                end: noted,
                kept,
            };
            match write(storage, &text, was) {
                Ok(tag) => {
                    check_conditions(storage, text, was, &tag)?;
                    if kept > 0 {
                        tracing::warn!(
                            %url,
                            kept,
                            "the log of this directory is older than its files in object storage, as that of a \
                             restored backup or a copy is: no object of before is removed"
                        );
                    }
                    return Ok(Self { epoch, kept, holder, log, end: AtomicU64::new(noted) });
                }
                Err(StorageError::Conflict) => {}
                Err(source) => return Err(failed(source)),
            }
        }
        Err(ClaimError::Contended { url })
    }

    /// Whether this process still holds it. Notes how far the log is.
    ///
    /// * `end`: position up to which the log is on stable storage.
    ///
    /// # Errors
    /// The request failed: nothing is known.
    pub(crate) fn is_held(
        &self,
        storage: &dyn ObjectStorage,
        end: u64,
    ) -> Result<bool, StorageError> {
        let found = storage.load(NAME, SIZE_MAX)?;
        let read = found.and_then(|(bytes, tag)| Some((read(&bytes)?, tag)));
        let Some((text, tag)) = read.filter(|(text, _)| {
            text.holder == self.holder
                && text.epoch == self.epoch
                && text.log == hex::encode(self.log)
        }) else {
            return Ok(false);
        };
        if self.end.load(Relaxed) == end {
            return Ok(true);
        }
        match write(storage, &Text { end, ..text }, Some(&tag)) {
            Ok(_) => self.end.store(end, Relaxed),
            Err(StorageError::Conflict) => return Ok(false),
            Err(error) => return Err(error),
        }
        Ok(true)
    }
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

    #[test]
    fn each_opening_takes_another_epoch_and_ends_the_claim_of_the_one_before() {
        let storage = MemoryStorage::default();
        let first = Claim::take(&storage, [1; 16], 0, 0).unwrap();
        assert!(first.is_held(&storage, 0).unwrap());
        let second = Claim::take(&storage, [1; 16], 0, 0).unwrap();
        assert!(!first.is_held(&storage, 0).unwrap() && second.is_held(&storage, 0).unwrap());
        assert_eq!((first.epoch, second.epoch), (1, 2));
        assert_eq!(Claim::take(&storage, [1; 16], 0, 9).unwrap().epoch, 10);
        let foreign = Claim::take(&storage, [2; 16], 0, 0).unwrap_err();
        assert!(matches!(foreign, ClaimError::Foreign { .. }), "{foreign}");
        storage.put(NAME, Bytes::from_static(b"{}")).unwrap();
        let unreadable = Claim::take(&storage, [1; 16], 0, 0).unwrap_err();
        assert!(matches!(unreadable, ClaimError::Unreadable { .. }), "{unreadable}");
    }

    #[test]
    fn a_claim_whose_answer_was_lost_is_the_own_one() {
        let storage = MemoryStorage::default();
        storage.lose_answers("claim.json", 1);
        let claim = Claim::take(&storage, [1; 16], 0, 0);
        assert!(matches!(claim, Err(ClaimError::Storage { .. })));
        let claim = Claim::take(&storage, [1; 16], 0, 0).unwrap();
        assert_eq!(claim.epoch, 2, "the first one may have been taken, so it is not used again");
    }

    #[test]
    fn of_processes_that_claim_at_the_same_time_each_has_its_own_epoch_and_one_holds_it() {
        let storage = Arc::new(MemoryStorage::default());
        let claims: Vec<_> = (0..4)
            .map(|_| {
                let storage = Arc::clone(&storage);
                std::thread::spawn(move || Claim::take(&*storage, [1; 16], 0, 0))
            })
            .collect();
        let claims: Vec<Claim> =
            claims.into_iter().filter_map(|claim| claim.join().unwrap().ok()).collect();
        let mut epochs: Vec<_> = claims.iter().map(|claim| claim.epoch).collect();
        epochs.sort_unstable();
        epochs.dedup();
        assert_eq!(epochs.len(), claims.len());
        assert_eq!(claims.iter().filter(|claim| claim.is_held(&*storage, 0).unwrap()).count(), 1);
    }

    #[test]
    fn a_server_that_ignores_conditions_is_refused() {
        let storage = MemoryStorage::default();
        storage.ignore_conditions();
        let refused = Claim::take(&storage, [1; 16], 0, 0).unwrap_err();
        assert!(matches!(refused, ClaimError::Unconditional { .. }), "{refused}");
    }

    #[test]
    fn packs_of_before_are_kept_once_an_older_copy_of_the_log_takes_the_prefix_over() {
        let storage = MemoryStorage::default();
        let first = Claim::take(&storage, [1; 16], 10, 0).unwrap();
        assert!(first.is_held(&storage, 50).unwrap());
        assert_eq!(Claim::take(&storage, [1; 16], 50, 0).unwrap().kept, 0);
        let older = Claim::take(&storage, [1; 16], 49, 0).unwrap();
        assert_eq!((older.epoch, older.kept), (3, 2));
        assert!(older.is_held(&storage, 60).unwrap());
        assert_eq!(Claim::take(&storage, [1; 16], 60, 0).unwrap().kept, 2);
    }
}
