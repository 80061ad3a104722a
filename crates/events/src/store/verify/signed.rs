//! Signed checkpoints: those of the store, those that were kept elsewhere, and the one that witnesses
//! cosigned.
//!
//! Invariant: the store's checkpoints are numbered without gaps, the copy of the newest one is of the
//! last of them or of the one before, and every checkpoint of its key that was kept elsewhere is among
//! them; otherwise its history was cut.

use std::collections::HashMap;
use std::path::Path;

use forebay_base::error_chain::chain;
use forebay_base::fs::FileSystem;

use super::{Fault, Inside, Kept, Segments, Source, Verifying, Witnessed};
use crate::checkpoint::{self, Checkpoint, HistoryError, NoteError, Notes, VerifierKey, load_key};
use crate::merkle::{Hash, Tree};
use crate::store::{cosigned, newest};

/// A checkpoint whose signature is right.
#[derive(Debug, Clone, Copy)]
pub(super) struct Signed {
    pub(super) size: u64,
    /// Whether its store records what it removes.
    pub(super) recorded: bool,
    /// Whether its root is that of the events.
    pub(super) confirmed: bool,
}

/// The store's key and its checkpoints.
pub(super) struct History {
    pub(super) own: Option<VerifierKey>,
    pub(super) notes: Option<Notes>,
    /// The copy of the newest note, or why it cannot be read.
    pub(super) copy: Result<Option<String>, String>,
    /// The note that witnesses cosigned, or why it cannot be read.
    pub(super) cosigned: Result<Option<String>, String>,
}

impl History {
    /// The key and notes, with what else the store has of its checkpoints.
    pub(super) fn new(
        fs: &dyn FileSystem,
        dir: &Path,
        own: Option<VerifierKey>,
        notes: Option<Notes>,
    ) -> Self {
        let copy = newest::read(fs, dir).map_err(|error| chain(&error).to_string());
        let cosigned = cosigned::read(fs, dir).map_err(|error| chain(&error).to_string());
        Self { own, notes, copy, cosigned }
    }
}

impl Verifying<'_> {
    /// Reads key and checkpoints of a store that is not open.
    pub(super) fn history_in_files(&mut self) -> History {
        let own = match load_key(&**self.fs, &self.dir.join("key")) {
            Ok(Some(own)) => Some(own.verifier().clone()),
            Ok(None) => {
                self.checkpoint_fault("the store's key is missing".to_owned());
                None
            }
            Err(error) => {
                self.checkpoint_fault(chain(&error).to_string());
                None
            }
        };
        let (id, path) = (self.manifest.log_id, self.dir.join("checkpoints"));
        let notes = checkpoint::History::read(&**self.fs, &path, id);
        let notes = notes.map_err(|error| self.checkpoint_fault(chain(&error).to_string())).ok();
        History::new(&**self.fs, self.dir, own, notes)
    }

    /// Checks signature and root of the store's own checkpoints, and of the given ones.
    pub(super) fn signed(
        &mut self,
        tree: Option<&Tree>,
        open: Option<&Source<'_>>,
        history: History,
        kept: &Kept,
    ) {
        let History { own, notes, copy, cosigned } = history;
        let (since, key) = (&kept.since, kept.key.as_ref());
        let readable = notes.is_some();
        let mut latest = None;
        let mut numbers = Numbers::default();
        let mut roots: HashMap<u64, Hash> = HashMap::new();
        if let (Some(notes), true) = (&notes, notes.as_ref().is_some_and(|it| it.torn() > 0)) {
            self.checkpoint_fault(format!(
                "{} bytes follow the last complete checkpoint: a checkpoint is incomplete or \
                 damaged",
                notes.torn()
            ));
        }
        let cosigned_note = cosigned.as_ref().ok().and_then(Option::as_ref);
        let sizes = sizes_of(since.iter().chain(cosigned_note));
        for note in notes.into_iter().flatten() {
            match (note, &own) {
                (Ok(note), Some(own)) => {
                    let Some(checkpoint) = self.note(tree, open, &note, own) else { continue };
                    if let Some(gap) = numbers.next(&checkpoint) {
                        self.checkpoint_fault(gap);
                    }
                    if sizes.contains(&checkpoint.size) {
                        roots.insert(checkpoint.size, checkpoint.root);
                    }
                    latest = Some(checkpoint);
                }
                (Ok(_), None) => {}
                (Err(error), _) => self.unreadable(&error),
            }
        }
        let sealed = latest.as_ref().is_some_and(Checkpoint::is_sealed);
        if sealed && !self.manifest.sealed {
            let reason = "it is of an older version than the newest checkpoint";
            self.file("manifest", Some(reason));
        }
        if let (true, Some(own)) = (readable, &own) {
            self.copy(tree, open, copy, latest.as_ref(), own);
            if let Some(witnessed) = self.cosigned(tree, open, cosigned, own, kept)
                && !roots.contains_key(&witnessed.events)
            {
                let size = witnessed.events;
                self.checkpoint_fault(format!(
                    "the checkpoint of {size} events, which witnesses cosigned, is missing from the \
                     store: its checkpoints were cut"
                ));
            }
        }
        if let (Some(key), Some(own)) = (key, &own)
            && key != own
        {
            self.checkpoint_fault(
                "the store signs with a different key from the one given".to_owned(),
            );
        }
        let Some(key) = key.or(own.as_ref()) else { return };
        for note in since {
            let Some(checkpoint) = self.note(tree, open, note, key) else { continue };
            if Some(key) == own.as_ref() && roots.get(&checkpoint.size) != Some(&checkpoint.root) {
                self.checkpoint_fault(format!(
                    "the checkpoint of {} events, which was kept elsewhere, is missing from the \
                     store: its checkpoints were cut",
                    checkpoint.size
                ));
            }
        }
    }

    /// Checks the checkpoint that witnesses cosigned.
    fn cosigned(
        &mut self,
        tree: Option<&Tree>,
        open: Option<&Source<'_>>,
        note: Result<Option<String>, String>,
        own: &VerifierKey,
        kept: &Kept,
    ) -> Option<Witnessed> {
        // Without witnesses a quorum means nothing.
        let quorum = if kept.witnesses.is_empty() { 0 } else { kept.quorum.max(1) };
        let note = match note {
            Ok(note) => note,
            Err(error) => {
                self.checkpoint_fault(error);
                return None;
            }
        };
        let Some(note) = note else {
            if quorum > 0 {
                self.checkpoint_fault("no checkpoint was cosigned by witnesses".to_owned());
            }
            return None;
        };
        let checkpoint = self.note(tree, open, &note, own)?;
        let note = checkpoint::SignedNote::parse(note.as_bytes()).ok()?;
        let mut times = Vec::new();
        for key in cosigned::distinct(kept.witnesses.iter()) {
            match key.verify(&note) {
                Ok(time_s) => times.push(time_s),
                Err(NoteError::NotSigned { .. }) => {}
                Err(error) => self.checkpoint_fault(format!("the cosigned checkpoint: {error}")),
            }
        }
        let (events, witnesses) = (checkpoint.size, times.len());
        if witnesses < quorum {
            self.checkpoint_fault(format!(
                "the checkpoint of {events} events is cosigned by {witnesses} of the given \
                 witnesses, not by {quorum}"
            ));
        }
        let witnessed = Witnessed { events, witnesses, time_s: times.into_iter().min() };
        self.verified.witnessed = Some(witnessed);
        Some(witnessed)
    }

    /// Compares the copy of the newest note with the last one of the history.
    fn copy(
        &mut self,
        tree: Option<&Tree>,
        open: Option<&Source<'_>>,
        copy: Result<Option<String>, String>,
        latest: Option<&Checkpoint>,
        own: &VerifierKey,
    ) {
        let note = match copy {
            Ok(note) => note,
            Err(error) => return self.checkpoint_fault(error),
        };
        let copied = note.as_deref().map(|note| Checkpoint::open(note.as_bytes(), own)).transpose();
        let copied = match copied {
            Ok(copied) => copied,
            Err(error) => {
                return self.checkpoint_fault(newest::foreign(&chain(&error)));
            }
        };
        if let Some(found) = newest::contradiction(copied.as_ref(), latest) {
            self.checkpoint_fault(found);
            // The events it covers must be there all the same.
            if let Some(note) = note {
                self.note(tree, open, &note, own);
            }
        }
    }

    fn unreadable(&mut self, error: &HistoryError) {
        self.checkpoint_fault(chain(error).to_string());
    }

    /// Checks one signed note, and returns it if its signature is right.
    fn note(
        &mut self,
        tree: Option<&Tree>,
        open: Option<&Source<'_>>,
        note: &str,
        key: &VerifierKey,
    ) -> Option<Checkpoint> {
        let checkpoint = match Checkpoint::open(note.as_bytes(), key) {
            Ok(checkpoint) => checkpoint,
            Err(error) => {
                self.checkpoint_fault(chain(&error).to_string());
                return None;
            }
        };
        self.verified.checkpoints += 1;
        let files = Segments { fs: self.fs, dir: self.dir, manifest: &self.manifest };
        let inside = open.map_or(Inside::Files(files), Inside::Open);
        let found = tree.and_then(|tree| contradiction(tree, &checkpoint, &inside));
        self.signed.push(Signed {
            size: checkpoint.size,
            recorded: checkpoint.is_recorded(),
            confirmed: found.is_none(),
        });
        if let Some(found) = found {
            self.verified.faults.push(Fault::History { size: checkpoint.size, found });
        }
        Some(checkpoint)
    }

    pub(super) fn checkpoint_fault(&mut self, found: String) {
        self.verified.faults.push(Fault::Checkpoint { found });
    }
}

/// The sizes of checkpoints.
fn sizes_of<'a>(notes: impl Iterator<Item = &'a String>) -> std::collections::HashSet<u64> {
    let size = |note: &String| {
        let note = checkpoint::SignedNote::parse(note.as_bytes()).ok()?;
        Some(Checkpoint::parse(note.text()).ok()?.size)
    };
    notes.filter_map(size).collect()
}

/// The numbers of the store's checkpoints, in order.
#[derive(Default)]
struct Numbers {
    last: Option<u64>,
}

impl Numbers {
    /// Returns what is wrong with the number of the next checkpoint. Those of earlier versions have
    /// none.
    fn next(&mut self, checkpoint: &Checkpoint) -> Option<String> {
        let (last, size) = (self.last, checkpoint.size);
        let Some(number) = checkpoint.number() else {
            let text = "has no number, unlike an earlier one: the checkpoints were changed";
            return last.map(|_| format!("the checkpoint of {size} events {text}"));
        };
        self.last = Some(number);
        let expected = last.map_or(1, |last| last.saturating_add(1));
        (number != expected).then(|| {
            format!(
                "checkpoint {number}, of {size} events, follows checkpoint {}: those between were \
                 removed",
                expected.saturating_sub(1)
            )
        })
    }
}

/// Returns how a tree contradicts a checkpoint, if it does.
fn contradiction(tree: &Tree, checkpoint: &Checkpoint, source: &Inside<'_>) -> Option<String> {
    if checkpoint.size > tree.size() {
        let missing = checkpoint.size - tree.size();
        return Some(format!("its newest {missing} events are missing"));
    }
    match tree.root_at(checkpoint.size, source) {
        Ok(root) if root == checkpoint.root => None,
        Ok(root) => Some(format!(
            "the events give the root {root}, but {} was signed: events were changed, \
             reordered or replaced",
            checkpoint.root
        )),
        Err(error) => Some(error.to_string()),
    }
}
