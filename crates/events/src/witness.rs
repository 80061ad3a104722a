//! A witness for the logs of others (C2SP tlog-witness): it cosigns a checkpoint only if that extends
//! the one it cosigned before.
//!
//! ```text
//! <dir>/key                   the key it cosigns with
//! <dir>/<hash>.checkpoint     for each log, the checkpoint it cosigned last, with its cosignature
//! ```
//!
//! `hash` is the first 16 bytes of SHA-256 of the log's origin, in hexadecimal.
//!
//! Invariants:
//! - A checkpoint is on stable storage before its cosignature leaves, and it is compared with the
//!   previous one and stored under one lock: two that contradict each other never both get one.
//! - A stored checkpoint that cannot be read is an error: the witness does not start over.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_base::clock::Clock;
use forebay_base::error_chain::chain;
use forebay_base::fs::FileSystem;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

use crate::checkpoint::{
    AddCheckpoint, Checkpoint, CosignerKey, CosigningKey, KeyError, KeyFileError, NOTE_SIZE_MAX,
    SignedNote, VerifierKey,
};
use crate::merkle::{Hash, verify_consistency};
use crate::store::{Disk, OpenError, whole_file};

/// Name of the file with the key.
const KEY_NAME: &str = "key";

/// Why a witness was not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WitnessError {
    /// The device failed.
    #[error("cannot open the witness")]
    Io(#[source] Disk),
    /// The key is damaged or could not be stored.
    #[error("cannot open the key of the witness")]
    Key(#[source] KeyFileError),
    /// The name is not that of a key.
    #[error("cannot create a key for the configured name of the witness")]
    Name(#[source] KeyError),
    /// A stored checkpoint cannot be read.
    #[error("cannot read a checkpoint that the witness cosigned")]
    Read(#[source] OpenError),
    /// A stored checkpoint is damaged.
    #[error("{} is not a checkpoint that this witness cosigned", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
    },
}

/// Why a checkpoint was not cosigned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WitnessRefusal {
    /// The request is not valid.
    #[error("not a request to add a checkpoint: {reason}")]
    Malformed {
        /// What is wrong.
        reason: &'static str,
    },
    /// The log is not configured.
    #[error("the log {origin:?} is not known")]
    UnknownLog {
        /// Its origin.
        origin: String,
    },
    /// The checkpoint has no valid signature by a key of the log.
    #[error("the checkpoint is not signed by the log's key")]
    NotSigned,
    /// The witness cosigned another checkpoint than the old one of the request, or another root.
    #[error("the checkpoint that was cosigned last has {size} events")]
    Conflict {
        /// Its size.
        size: u64,
    },
    /// The proof does not show that the checkpoint extends the old one.
    #[error("the checkpoint does not extend the one that was cosigned before")]
    Inconsistent,
    /// The checkpoint could not be stored.
    #[error("cannot store the checkpoint")]
    Io(#[source] Disk),
}

/// What a witness cosigned last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Last {
    size: u64,
    root: Hash,
}

/// A witness.
#[derive(Debug)]
pub struct WitnessService {
    fs: Arc<dyn FileSystem>,
    clock: Arc<dyn Clock>,
    dir: PathBuf,
    key: CosigningKey,
    logs: Vec<VerifierKey>,
    /// By origin. Held while a checkpoint is stored.
    last: Mutex<HashMap<String, Last>>,
    cosigned: AtomicU64,
    refused: AtomicU64,
}

impl WitnessService {
    /// Opens the witness in `dir`, or creates one with a new key.
    ///
    /// * `name`: of the key, if it is created.
    /// * `logs`: keys of the logs; the origin of each is the key's name.
    ///
    /// # Errors
    /// [`WitnessError`].
    pub fn open(
        fs: Arc<dyn FileSystem>,
        clock: Arc<dyn Clock>,
        dir: &Path,
        name: &str,
        logs: Vec<VerifierKey>,
    ) -> Result<Self, WitnessError> {
        let io = |act| move |source| WitnessError::Io(Disk::new(act, dir, source));
        fs.create_dir_all(dir).map_err(io("create"))?;
        // What a process that ended renamed must not revert.
        fs.sync_dir(dir).map_err(io("sync"))?;
        let path = dir.join(KEY_NAME);
        let key = match CosigningKey::load(&*fs, &path).map_err(WitnessError::Key)? {
            Some(key) => key,
            None => {
                let key = CosigningKey::generate(name).map_err(WitnessError::Name)?;
                key.create(&*fs, &path).map_err(WitnessError::Key)?;
                key
            }
        };
        let mut last = HashMap::new();
        for log in &logs {
            let path = dir.join(name_of(log.name()));
            let Some(found) = read(&*fs, &path, key.cosigner())? else { continue };
            if found.origin != log.name() {
                return Err(WitnessError::Damaged { path });
            }
            last.insert(log.name().to_owned(), Last { size: found.size, root: found.root });
        }
        let last = Mutex::new(last);
        let (cosigned, refused) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Self { fs, clock, dir: dir.to_path_buf(), key, logs, last, cosigned, refused })
    }

    /// The key that verifies its cosignatures.
    #[must_use]
    pub fn key(&self) -> &CosignerKey {
        self.key.cosigner()
    }

    /// Number of cosignatures, and of refused requests, since it was opened.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        (self.cosigned.load(Ordering::Relaxed), self.refused.load(Ordering::Relaxed))
    }

    /// Processes the body of an `add-checkpoint` request, and returns that of the answer: the line of
    /// its cosignature. The checkpoint is on stable storage.
    ///
    /// # Errors
    /// [`WitnessRefusal`]: the state is unchanged, but with [`WitnessRefusal::Io`] the checkpoint may
    /// be stored.
    pub fn add_checkpoint(&self, body: &[u8]) -> Result<String, WitnessRefusal> {
        let added = self.add(body);
        let counter = if added.is_ok() { &self.cosigned } else { &self.refused };
        counter.fetch_add(1, Ordering::Relaxed);
        added
    }

    fn add(&self, body: &[u8]) -> Result<String, WitnessRefusal> {
        let malformed = |reason| WitnessRefusal::Malformed { reason };
        let AddCheckpoint { old, proof, note } = AddCheckpoint::parse(body).map_err(malformed)?;
        let checkpoint = Checkpoint::parse(note.text());
        let checkpoint = checkpoint.map_err(|_| malformed("its note is not a checkpoint"))?;
        let origin = &checkpoint.origin;
        let mut keys = self.logs.iter().filter(|key| key.name() == origin).peekable();
        if keys.peek().is_none() {
            return Err(WitnessRefusal::UnknownLog { origin: origin.clone() });
        }
        if !keys.any(|key| note.verify(key).is_ok()) {
            return Err(WitnessRefusal::NotSigned);
        }
        let (size, root) = (checkpoint.size, checkpoint.root);
        if old > size {
            return Err(malformed("its old size exceeds that of the checkpoint"));
        }
        let mut all = self.last.lock();
        let last = all.get(origin).copied();
        let known = last.map_or(0, |last| last.size);
        let differs = last.is_some_and(|last| last.size == size && last.root != root);
        if old != known || differs {
            return Err(WitnessRefusal::Conflict { size: known });
        }
        let old_root = last.map_or_else(crate::merkle::empty_root, |last| last.root);
        verify_consistency(old, size, &proof, &old_root, &root)
            .map_err(|_| WitnessRefusal::Inconsistent)?;
        let signature = self.key.cosign(note.text(), self.clock.now_ms() / 1_000);
        let line = format!("{signature}\n");
        let stored = stored(&note, &self.logs, signature);
        if stored.len() > NOTE_SIZE_MAX {
            return Err(malformed("its checkpoint is too large to be cosigned"));
        }
        let name = name_of(origin);
        let new_name = format!("{name}.new");
        whole_file::replace(&*self.fs, &self.dir, (&name, &new_name), stored.as_bytes())
            .map_err(WitnessRefusal::Io)?;
        all.insert(origin.clone(), Last { size, root });
        Ok(line)
    }
}

/// The note with the signatures of the log and the cosignature alone.
fn stored(
    note: &SignedNote,
    logs: &[VerifierKey],
    signature: crate::checkpoint::NoteSignature,
) -> String {
    let mut kept = SignedNote::unsigned(note);
    let of_log = note.signatures().iter().filter(|signature| {
        logs.iter().any(|key| key.name() == signature.name && key.key_id() == signature.key_id)
    });
    // There are not more than the note had, and one place less than the maximum is needed.
    for signature in std::iter::once(&signature).chain(of_log) {
        if kept.add(signature.clone()).is_err() {
            break;
        }
    }
    kept.to_string()
}

/// Checks the key of the witness in `dir` and the checkpoints that it cosigned last, without changing
/// anything; returns what is damaged. There is no witness if there is no key.
///
/// # Errors
/// The device failed.
pub fn check(fs: &dyn FileSystem, dir: &Path) -> Result<Vec<(PathBuf, String)>, WitnessError> {
    let path = dir.join(KEY_NAME);
    let key = match CosigningKey::load(fs, &path) {
        Ok(Some(key)) => key,
        Ok(None) => return Ok(Vec::new()),
        Err(error) => return Ok(vec![(path, chain(&error).to_string())]),
    };
    let list = |source| WitnessError::Io(Disk::new("list", dir, source));
    let mut damages = Vec::new();
    for entry in fs.list(dir).map_err(list)? {
        let name = entry.name.to_str().filter(|name| name.ends_with(".checkpoint"));
        let Some(name) = name else { continue };
        match read(fs, &dir.join(name), key.cosigner()) {
            Ok(Some(checkpoint)) if name_of(&checkpoint.origin) == *name => {}
            Ok(None) => {}
            Ok(Some(_)) => damages.push((dir.join(name), "it is of another log".to_owned())),
            Err(WitnessError::Damaged { path }) => {
                damages
                    .push((path, "it is not a checkpoint that this witness cosigned".to_owned()));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(damages)
}

fn name_of(origin: &str) -> String {
    format!("{}.checkpoint", hex::encode(&Sha256::digest(origin)[..16]))
}

/// A stored checkpoint; `None` if there is none.
fn read(
    fs: &dyn FileSystem,
    path: &Path,
    key: &CosignerKey,
) -> Result<Option<Checkpoint>, WitnessError> {
    let bytes = whole_file::read(fs, path, NOTE_SIZE_MAX).map_err(WitnessError::Read)?;
    let Some(bytes) = bytes else { return Ok(None) };
    let note = SignedNote::parse(&bytes).ok().filter(|note| key.verify(note).is_ok());
    let checkpoint = note.and_then(|note| Checkpoint::parse(note.text()).ok());
    checkpoint.map(Some).ok_or_else(|| WitnessError::Damaged { path: path.to_path_buf() })
}
