//! The file `newest-checkpoint`: a copy of the newest note, so that a history whose end was cut is
//! noticed (`docs/formats/event-checkpoint.md`).
//!
//! Invariants:
//! - A note is in the history, on stable storage, before it is copied, and it is copied before the
//!   next one is signed. So the copy is of the last checkpoint of the history, or of the one before.
//! - A store whose copy is of another one signs nothing and accepts nothing: it would use the numbers
//!   of the missing checkpoints again.

use std::path::Path;

use forebay_base::error_chain::chain;
use forebay_base::fs::FileSystem;

use super::error::{Disk, OpenError};
use super::whole_file::{self, damaged};
use super::{Checkpoints, Inner, ReadError};
use crate::checkpoint::{Checkpoint, History, NOTE_SIZE_MAX, SigningKey};

/// Name of the file.
pub(super) const NAME: &str = "newest-checkpoint";
const NEW_NAME: &str = "newest-checkpoint.new";

/// Reads the copied note; `None` if there is none.
pub(super) fn read(fs: &dyn FileSystem, dir: &Path) -> Result<Option<String>, OpenError> {
    let path = dir.join(NAME);
    let Some(bytes) = whole_file::read(fs, &path, NOTE_SIZE_MAX)? else { return Ok(None) };
    String::from_utf8(bytes).map(Some).map_err(|_| damaged(&path, "it is not text"))
}

/// Returns how the copy contradicts the last checkpoint of the history, if it does.
pub(super) fn contradiction(
    copy: Option<&Checkpoint>,
    latest: Option<&Checkpoint>,
) -> Option<String> {
    let last = latest.and_then(Checkpoint::number).unwrap_or(0);
    // Of a checkpoint that an earlier version signed, and of the first one, there may be no copy.
    let copied = latest.and_then(Checkpoint::copied_since).is_some_and(|since| since < last);
    let Some(copy) = copy else {
        return copied.then(|| format!("{NAME}, the copy of checkpoint {last}, is missing"));
    };
    let number = copy.number().unwrap_or(0);
    if number > last {
        let size = copy.size;
        return Some(format!(
            "checkpoint {number}, of {size} events, is missing: the checkpoints after {last} were \
             removed"
        ));
    }
    if number == last {
        let text = "differs from its copy: one of them was replaced";
        return (latest != Some(copy)).then(|| format!("checkpoint {last} {text}"));
    }
    (copied && number + 1 < last).then(|| {
        format!("{NAME} is a copy of checkpoint {number}, not of {last}: an older one replaced it")
    })
}

/// Says that the copy is none.
pub(super) fn foreign(reason: &dyn std::fmt::Display) -> String {
    format!("{NAME} is no checkpoint of this store: {reason}")
}

/// Compares the history of a store that is opened with the copy. If only the last note is missing,
/// as after damage to it, it is restored.
///
/// # Errors
/// The device failed, or the last note of the history is not of this store.
pub(super) fn compare(
    fs: &dyn FileSystem,
    dir: &Path,
    key: SigningKey,
    mut history: History,
) -> Result<Checkpoints, OpenError> {
    let open = |note: &str| {
        let checkpoint = Checkpoint::open(note.as_bytes(), key.verifier());
        checkpoint.map(|checkpoint| (checkpoint, note.to_owned())).map_err(OpenError::Checkpoint)
    };
    let mut latest = history.latest().map(open).transpose()?;
    // A copy that is none was replaced, like one of another store: the events can be read all the same.
    let (copy, no_copy) = match read(fs, dir) {
        Ok(None) => (None, None),
        Ok(Some(note)) => match open(&note) {
            Ok(copy) => (Some(copy), None),
            Err(OpenError::Checkpoint(error)) => (None, Some(foreign(&chain(&error)))),
            Err(error) => return Err(error),
        },
        Err(OpenError::Manifest { reason, .. }) => (None, Some(foreign(&reason))),
        Err(error) => return Err(error),
    };
    let number = |found: &Option<(Checkpoint, String)>| found.as_ref()?.0.number();
    let copied = number(&copy);
    if let Some((checkpoint, note)) = &copy
        && copied == Some(number(&latest).unwrap_or(0).saturating_add(1))
    {
        tracing::error!(
            "checkpoint {}, of {} events, was missing, and is restored from its copy",
            copied.unwrap_or(0),
            checkpoint.size
        );
        history.append(note).map_err(OpenError::History)?;
        latest.clone_from(&copy);
    }
    let checkpoint = |found: &Option<(Checkpoint, String)>| found.as_ref().map(|it| it.0.clone());
    let cut =
        no_copy.or_else(|| contradiction(checkpoint(&copy).as_ref(), checkpoint(&latest).as_ref()));
    Ok(Checkpoints { key, history, latest, copied, cut })
}

impl Inner {
    /// Accepts and signs nothing if the history was cut.
    pub(super) fn refuse_cut_history(&self) {
        let cut = self.checkpoints.as_ref().and_then(|found| found.lock().cut.clone());
        if let Some(cut) = cut {
            self.distrust(format!(
                "{cut}; run `forebay events verify`, and restore `checkpoints` and `{NAME}` from a \
                 backup"
            ));
        }
    }

    /// Copies the newest checkpoint, unless that was done.
    pub(super) fn copy_newest(&self, checkpoints: &mut Checkpoints) -> Result<(), ReadError> {
        let Some((latest, note)) = &checkpoints.latest else { return Ok(()) };
        if latest.copied_since().is_none() || latest.number() == checkpoints.copied {
            return Ok(());
        }
        write(&*self.fs, &self.dir, note).map_err(ReadError::Copy)?;
        checkpoints.copied = latest.number();
        Ok(())
    }
}

fn write(fs: &dyn FileSystem, dir: &Path, note: &str) -> Result<(), Disk> {
    whole_file::replace(fs, dir, (NAME, NEW_NAME), note.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::merkle::Hash;

    fn of(number: u64, since: u64) -> Checkpoint {
        Checkpoint::recorded("o".to_owned(), number * 10, Hash([1; 32]), number, since)
    }

    fn earlier(number: u64) -> Checkpoint {
        let extensions = of(number, 1).extensions.into_iter().take(2).collect();
        Checkpoint { extensions, ..of(number, 1) }
    }

    #[test]
    fn the_copy_is_of_the_last_checkpoint_or_of_the_one_before() {
        let judged = |copy: Option<Checkpoint>, latest: Option<Checkpoint>| {
            contradiction(copy.as_ref(), latest.as_ref())
        };
        for (copy, latest) in [
            (None, None),
            (None, Some(of(1, 1))),
            (Some(of(7, 1)), Some(of(7, 1))),
            (Some(of(6, 1)), Some(of(7, 1))),
            // Stores of an earlier version, upgraded ones, and one that was used by both.
            (None, Some(earlier(7))),
            (None, Some(of(8, 8))),
            (Some(of(5, 1)), Some(earlier(7))),
            (Some(of(5, 1)), Some(of(8, 8))),
        ] {
            assert_eq!(judged(copy.clone(), latest.clone()), None, "{copy:?} {latest:?}");
        }
        let other = Checkpoint { root: Hash([2; 32]), ..of(7, 1) };
        for (copy, latest, reason) in [
            (None, Some(of(2, 1)), "is missing"),
            (Some(of(2, 1)), None, "after 0 were removed"),
            (Some(of(7, 1)), Some(of(5, 1)), "after 5 were removed"),
            (Some(of(7, 1)), Some(earlier(5)), "after 5 were removed"),
            (Some(of(5, 1)), Some(of(7, 1)), "an older one"),
            (Some(other), Some(of(7, 1)), "differs from its copy"),
        ] {
            let found = judged(copy, latest).unwrap();
            assert!(found.contains(reason), "{found}");
        }
    }
}
