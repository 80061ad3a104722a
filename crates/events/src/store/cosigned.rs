//! Cosignatures of witnesses over the store's checkpoints (C2SP tlog-witness, tlog-cosignature), and
//! the file `cosigned-checkpoint` (`docs/formats/event-checkpoint.md`).
//!
//! Invariants:
//! - The file has a checkpoint of the store with valid cosignatures of as many witnesses as the quorum
//!   wants, and is replaced only by one of at least its size.
//! - An answer is believed only if the witness's key verifies it. The size that a witness claims to
//!   have leads to a proof at most.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forebay_base::fs::FileSystem;

use super::anchor::AnchorError;
use super::error::OpenError;
use super::whole_file::{self, damaged};
use super::{Inner, Options, ReadError, Store};
use crate::checkpoint::{
    AddCheckpoint, Checkpoint, CosignerKey, NOTE_SIZE_MAX, NoteSignature, SIGNATURES_MAX,
    SignedNote, VerifierKey,
};

/// Name of the file.
const NAME: &str = "cosigned-checkpoint";
const NEW_NAME: &str = "cosigned-checkpoint.new";
/// Maximum number of requests for one cosignature: a witness that never agrees on its size fails.
const REQUESTS_MAX: usize = 3;
/// Maximum size in bytes of a witness's answer.
pub const WITNESS_ANSWER_SIZE_MAX: usize = 64 << 10;

/// What a witness answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WitnessAnswer {
    /// The HTTP status.
    pub status: u16,
    /// The body, of at most [`WITNESS_ANSWER_SIZE_MAX`] bytes.
    pub body: Vec<u8>,
}

/// Sends requests to a witness.
pub trait WitnessTransport: fmt::Debug + Send + Sync {
    /// The witness's address, without secrets.
    fn address(&self) -> String;

    /// Sends the body of an `add-checkpoint` request, and returns the answer. It may block, for a
    /// limited time.
    ///
    /// # Errors
    /// There was no answer, or one that is too large.
    fn add_checkpoint(&self, body: String) -> Result<WitnessAnswer, AnchorError>;
}

/// A witness that cosigns checkpoints.
#[derive(Debug, Clone)]
pub struct Witness {
    /// How it is reached.
    pub transport: Arc<dyn WitnessTransport>,
    /// The key that verifies its cosignatures.
    pub key: CosignerKey,
}

/// What was cosigned.
#[derive(Debug, Default)]
pub(super) struct Cosigned {
    /// The checkpoint that the witnesses are asked for, its note, and when it was chosen.
    chosen: Option<(Checkpoint, String, Duration)>,
    /// The note of the chosen one with the cosignatures so far.
    gathered: Option<SignedNote>,
    /// Size and note of the newest checkpoint with enough cosignatures: that in the file.
    kept: Option<(u64, String)>,
}

impl Cosigned {
    /// Reads the file of a store.
    pub(super) fn open(
        fs: &dyn FileSystem,
        dir: &Path,
        key: Option<&VerifierKey>,
    ) -> Result<Self, OpenError> {
        let (Some(key), Some(note)) = (key, read(fs, dir)?) else { return Ok(Self::default()) };
        let checkpoint = Checkpoint::open(note.as_bytes(), key).map_err(OpenError::Checkpoint)?;
        Ok(Self { kept: Some((checkpoint.size, note)), ..Self::default() })
    }

    /// Whether a checkpoint has enough cosignatures.
    pub(super) fn has_some(&self) -> bool {
        self.kept.is_some()
    }

    /// When the current checkpoint was chosen, if a witness that has one of `newest` events has it
    /// and waits for the next one.
    pub(super) fn next_choice(&self, newest: Option<u64>) -> Option<Duration> {
        let (chosen, _, at) = self.chosen.as_ref()?;
        (newest == Some(chosen.size)).then_some(*at)
    }

    /// The checkpoint that the witnesses are asked for: the newest one, chosen again after the
    /// interval.
    pub(super) fn choose(
        &mut self,
        (newest, note): (Checkpoint, String),
        now: Duration,
        interval: Duration,
    ) -> (Checkpoint, String) {
        let current = self.chosen.as_ref().filter(|(chosen, _, at)| {
            chosen.size == newest.size || now.saturating_sub(*at) < interval
        });
        if let Some((checkpoint, note, _)) = current {
            return (checkpoint.clone(), note.clone());
        }
        self.chosen = Some((newest.clone(), note.clone(), now));
        self.gathered = None;
        (newest, note)
    }
}

/// Reads the cosigned note; `None` if there is none.
pub(super) fn read(fs: &dyn FileSystem, dir: &Path) -> Result<Option<String>, OpenError> {
    let path = dir.join(NAME);
    let Some(bytes) = whole_file::read(fs, &path, NOTE_SIZE_MAX)? else { return Ok(None) };
    String::from_utf8(bytes).map(Some).map_err(|_| damaged(&path, "it is not text"))
}

/// The number of different keys that cosigned the note. A cosignature that is not valid does not
/// count, and a witness that is given several times counts once.
pub(super) fn count<'a>(note: &SignedNote, keys: impl Iterator<Item = &'a CosignerKey>) -> usize {
    distinct(keys).into_iter().filter(|key| key.verify(note).is_ok()).count()
}

/// The different ones of some keys, in their order.
pub(super) fn distinct<'a>(keys: impl Iterator<Item = &'a CosignerKey>) -> Vec<&'a CosignerKey> {
    let mut found = Vec::new();
    for key in keys {
        if !found.contains(&key) {
            found.push(key);
        }
    }
    found
}

impl Options {
    /// Number of witnesses that must have cosigned a checkpoint, at least 1.
    fn quorum(&self) -> usize {
        self.witness_quorum.clamp(1, self.witnesses.len().max(1))
    }
}

impl Inner {
    /// Has a witness cosign a checkpoint.
    ///
    /// * `known`: the size that the witness has, as far as it is known.
    pub(super) fn ask(
        &self,
        witness: &Witness,
        known: &mut u64,
        checkpoint: &Checkpoint,
        note: &str,
    ) -> Result<(), AnchorError> {
        let (place, size) = (witness.transport.address(), checkpoint.size);
        let refused = |reason: String| AnchorError::Refused { place: place.clone(), reason };
        let note =
            SignedNote::parse(note.as_bytes()).map_err(|error| refused(error.to_string()))?;
        for _ in 0..REQUESTS_MAX {
            let proof = match *known {
                0 => Vec::new(),
                old => self.consistency_path(old, size).map_err(AnchorError::NoCheckpoint)?,
            };
            let request = AddCheckpoint { old: *known, proof, note: note.clone() };
            let answer = witness.transport.add_checkpoint(request.encode())?;
            match (answer.status, size_in(&answer)) {
                (200, _) => {
                    let signatures = cosignatures(&answer, &note, &witness.key);
                    let signatures = signatures.map_err(|reason| refused(reason.to_owned()))?;
                    *known = size;
                    return self.add_cosignatures(&note, checkpoint, signatures);
                }
                (409, Some(published)) if published > size => {
                    return Err(AnchorError::RolledBack { place, published, found: size });
                }
                (409, Some(found)) if found != *known => *known = found,
                (409, Some(found)) => {
                    return Err(refused(format!("it cosigned other first {found} events")));
                }
                (422, _) => {
                    let reason = "it cosigned other events before, to which these do not belong";
                    return Err(refused(format!("{reason} (status 422)")));
                }
                (404, _) => return Err(refused("it does not know this log (status 404)".into())),
                (403, _) => {
                    return Err(refused("it has another key of this log (status 403)".into()));
                }
                (status, _) => return Err(refused(format!("status {status}"))),
            }
        }
        Err(refused("it reports another size each time".into()))
    }

    /// Adds cosignatures to the chosen checkpoint, and keeps it once there are enough.
    fn add_cosignatures(
        &self,
        note: &SignedNote,
        checkpoint: &Checkpoint,
        signatures: Vec<NoteSignature>,
    ) -> Result<(), AnchorError> {
        let mut cosigned = self.cosigned.lock();
        // One that came too late belongs to a checkpoint that is not waited for any more.
        if cosigned.chosen.as_ref().is_none_or(|(chosen, ..)| chosen != checkpoint) {
            return Ok(());
        }
        let mut gathered = cosigned.gathered.take().unwrap_or_else(|| note.clone());
        let added = signatures.into_iter().try_for_each(|signature| gathered.add(signature));
        let keys = self.options.witnesses.iter().map(|witness| &witness.key);
        let is_newer = cosigned.kept.as_ref().is_none_or(|(size, _)| *size <= checkpoint.size);
        let enough = is_newer && count(&gathered, keys) >= self.options.quorum();
        let text = gathered.to_string();
        cosigned.gathered = Some(gathered);
        if enough {
            whole_file::replace(&*self.fs, &self.dir, (NAME, NEW_NAME), text.as_bytes())
                .map_err(AnchorError::Io)?;
            cosigned.kept = Some((checkpoint.size, text));
        }
        let too_many = |error: crate::checkpoint::NoteError| AnchorError::Refused {
            place: NAME.to_owned(),
            reason: error.to_string(),
        };
        added.map_err(too_many)
    }
}

/// The size in an answer of status 409.
fn size_in(answer: &WitnessAnswer) -> Option<u64> {
    let text = str::from_utf8(&answer.body).ok()?;
    crate::checkpoint::parse_size(text.strip_suffix('\n').unwrap_or(text))
}

/// The cosignatures of the witness in an answer of status 200, all of them valid.
fn cosignatures(
    answer: &WitnessAnswer,
    note: &SignedNote,
    key: &CosignerKey,
) -> Result<Vec<NoteSignature>, &'static str> {
    let text = str::from_utf8(&answer.body).map_err(|_| "its answer is not text")?;
    let lines = text.lines().take(SIGNATURES_MAX).map(NoteSignature::parse);
    let mut found =
        lines.collect::<Result<Vec<_>, _>>().map_err(|_| "its answer has other lines")?;
    found.retain(|signature| key.is_named_by(signature));
    let mut alone = SignedNote::unsigned(note);
    for signature in &found {
        alone.add(signature.clone()).map_err(|_| "its answer has too many lines")?;
    }
    key.verify(&alone).map_err(|_| "its answer has no valid cosignature by its key")?;
    Ok(found)
}

impl Store {
    /// Returns the signed note to be served: with witnesses the newest checkpoint that enough of them
    /// cosigned, with the cosignatures; otherwise, and while there is none, the newest one.
    ///
    /// # Errors
    /// As [`Store::checkpoint`].
    pub fn served_checkpoint(&self) -> Result<String, ReadError> {
        let inner = self.inner();
        if !inner.options.witnesses.is_empty()
            && let Some((_, note)) = &inner.cosigned.lock().kept
        {
            return Ok(note.clone());
        }
        self.latest_checkpoint().map(|(_, note)| note)
    }

    /// Number of events in the newest checkpoint that enough witnesses cosigned.
    #[must_use]
    pub fn cosigned_size(&self) -> Option<u64> {
        self.inner().cosigned.lock().kept.as_ref().map(|(size, _)| *size)
    }
}
