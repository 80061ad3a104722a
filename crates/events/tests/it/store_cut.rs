//! A history of checkpoints whose end was cut is noticed by what else the store has.

use std::path::{Path, PathBuf};

use forebay_base::fs::FileSystem;
use forebay_base::fs::sim::SimFs;
use forebay_base::waiting::Gone;
use forebay_events::checkpoint::Checkpoint;
use forebay_events::{AppendError, Batch, Draft, ReadError};

use crate::store_model::DIR;
use crate::store_online::{anchored, append, closed, faults, open, rewrite_history};
use crate::store_tamper::{check, read, write};

fn copy_path() -> PathBuf {
    Path::new(DIR).join("newest-checkpoint")
}

/// The notes of the store, oldest first.
fn notes(disk: &SimFs) -> Vec<String> {
    anchored(disk).unwrap().notes
}

fn assert_refused(disk: &SimFs, reason: &str) {
    let found = faults(&check(disk, &[], None));
    assert!(found.iter().any(|fault| fault.contains(reason)), "{found:?}");
    let store = open(disk);
    assert_eq!(store.health().unwrap_err().matches(reason).count(), 1);
    let mut batch = Batch::new("main");
    batch.push(&Draft::default(), 5).unwrap();
    assert!(matches!(store.append(batch), Err(AppendError::Closed { .. })));
    assert!(matches!(store.checkpoint(), Err(ReadError::Distrusted { .. })));
    assert!(store.at(3).unwrap().is_some(), "events are readable");
    let online = faults(&store.verify(&[], &Gone::default()).unwrap());
    assert_eq!(online, found);
    drop(store);
    assert_eq!(faults(&check(disk, &[], None)), found, "nothing was covered up");
}

#[test]
fn checkpoints_cut_from_the_end_are_noticed_without_those_kept_elsewhere() {
    let sound = closed();
    assert_eq!(faults(&check(&sound, &[], None)), [""; 0]);
    for kept in [0, 1, 4] {
        let disk = sound.fork();
        rewrite_history(&disk, &|at, _| at < kept);
        let reason = format!("checkpoints after {kept} were removed");
        assert_refused(&disk, &reason);
    }
}

#[test]
fn a_copy_that_was_removed_or_replaced_is_noticed() {
    let sound = closed();
    let disk = sound.fork();
    disk.remove_file(&copy_path()).unwrap();
    assert_refused(&disk, "newest-checkpoint, the copy of checkpoint 6, is missing");
    // With the end of the history.
    rewrite_history(&disk, &|at, _| at < 3);
    assert_refused(&disk, "newest-checkpoint, the copy of checkpoint 3, is missing");
    let disk = sound.fork();
    write(&disk, &copy_path(), notes(&sound)[2].as_bytes());
    assert_refused(&disk, "an older one replaced it");
    let disk = sound.fork();
    write(&disk, &copy_path(), b"x");
    assert_refused(&disk, "newest-checkpoint is no checkpoint of this store: ");
    write(&disk, &copy_path(), b"\xff");
    let found = faults(&check(&disk, &[], None));
    assert!(found[0].contains("it is not text"), "{found:?}");
    assert!(open(&disk).health().unwrap_err().contains("it is not text"));
}

#[test]
fn the_copied_checkpoint_reveals_removed_events_when_its_original_is_gone() {
    let disk = closed();
    let later = disk.fork();
    let store = open(&later);
    append(&store, 300);
    store.close().unwrap();
    // The store as it was before, with the copy alone.
    let copy = read(&later, &copy_path());
    write(&disk, &copy_path(), &copy);
    let found = faults(&check(&disk, &[], None));
    assert!(found.iter().any(|it| it.contains("newest 300 events are missing")), "{found:?}");
}

#[test]
fn only_the_last_note_missing_is_restored_from_its_copy() {
    let sound = closed();
    let path = Path::new(DIR).join("checkpoints");
    let whole = read(&sound, &path);
    let last = notes(&sound).pop().unwrap();
    for size in [whole.len() - last.len() - 12, whole.len() - 30] {
        let disk = sound.fork();
        write(&disk, &path, &whole[..size]);
        let found = faults(&check(&disk, &[], None));
        assert!(found.iter().any(|it| it.contains("after 5 were removed")), "{found:?}");
        let store = open(&disk);
        append(&store, 1);
        let key = store.verifier_key().unwrap();
        let next = store.checkpoint().unwrap();
        assert_eq!(Checkpoint::open(next.as_bytes(), &key).unwrap().number(), Some(7));
        store.close().unwrap();
        assert_eq!(read(&disk, &path)[..whole.len()], whole);
        assert_eq!(faults(&check(&disk, &[], None)), [""; 0]);
    }
}

#[test]
fn the_copy_is_of_the_newest_checkpoint_after_every_signature() {
    let disk = SimFs::new(1);
    let store = open(&disk);
    for count in [1, 3, 300] {
        append(&store, count);
        let note = store.checkpoint().unwrap();
        assert_eq!(read(&disk, &copy_path()), note.as_bytes());
    }
    let newest = read(&disk, &copy_path());
    drop(store);
    let store = open(&disk);
    assert_eq!(store.latest_checkpoint().unwrap().1.as_bytes(), newest);
}
