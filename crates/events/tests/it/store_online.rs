//! An open store verifies itself while it serves, and publishes its checkpoints elsewhere: there a
//! rollback and a history that was cut are noticed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay_base::clock::{ManualClock, SystemClock};
use forebay_base::fs::sim::SimFs;
use forebay_base::fs::{Access, FileSystem};
use forebay_base::waiting::{Gone, Waiting};
use forebay_events::checkpoint::{Checkpoint, History};
use forebay_events::store::{AnchorError, AnchorPlace, Anchored, Directory, Verified};
use forebay_events::{Batch, Draft, Options, ReadError, Store};

use crate::store_model::{DIR, START_MS};
use crate::store_tamper::{
    check, forge, last_segment, read, rewritten, rows_of, segment_path, write,
};

const ANCHOR: &str = "/elsewhere/anchor";

/// What was published.
pub(crate) fn anchored(disk: &SimFs) -> Result<Anchored, AnchorError> {
    let fs: Arc<dyn FileSystem> = Arc::new(disk.clone());
    forebay_events::store::read_anchor(&Directory::new(fs, PathBuf::from(ANCHOR)))
}

pub(crate) fn options() -> Options {
    Options {
        memory_table_events: 300,
        frozen_tables_max: 2,
        log_segment_size: 1 << 20,
        anchors: vec![AnchorPlace::Directory(PathBuf::from(ANCHOR))],
        retention: Vec::new(),
        ..crate::store_model::options("sync".parse().unwrap())
    }
}

pub(crate) fn open(disk: &SimFs) -> Store {
    open_with(disk, options())
}

pub(crate) fn open_with(disk: &SimFs, options: Options) -> Store {
    let fs: Arc<dyn FileSystem> = Arc::new(disk.clone());
    let clock = Arc::new(ManualClock::new(START_MS));
    Store::open_quiet(fs, clock, Path::new(DIR), options).unwrap().0
}

pub(crate) fn append(store: &Store, count: usize) {
    let mut batch = Batch::new("main");
    for number in 0..count {
        let raw = format!("event {number} of {}", store.len()).into_bytes().into();
        let time = i64::try_from(number * 7_919 % 1_000).unwrap();
        let draft = Draft { raw, timestamp_ns: Some(time), ..Draft::default() };
        batch.push(&draft, 5).unwrap();
    }
    store.append(batch).unwrap();
}

pub(crate) fn faults(verified: &Verified) -> Vec<String> {
    verified.faults.iter().map(ToString::to_string).collect()
}

/// A closed store of several segments and checkpoints, with events in the log.
pub(crate) fn closed() -> SimFs {
    let disk = SimFs::new(1);
    let store = open(&disk);
    for _ in 0..5 {
        append(&store, 170);
        store.publish_checkpoint().unwrap();
    }
    store.flush().unwrap();
    append(&store, 60);
    store.close().unwrap();
    disk
}

#[test]
fn an_open_store_verifies_what_a_closed_one_does() {
    let disk = closed();
    let offline = check(&disk, &[], None);
    let store = open(&disk);
    let online = store.verify(&[], &Gone::default()).unwrap();
    assert_eq!(faults(&online), [""; 0]);
    let counted = |it: &Verified| (it.events, it.pruned, it.leaf_bytes, it.segments, it.root);
    assert_eq!(counted(&online), counted(&offline));
    assert_eq!(online.checkpoints, offline.checkpoints);
    store.flush().unwrap();
    store.compact().unwrap();
    let again = store.verify(&[], &Gone::default()).unwrap();
    assert_eq!((faults(&again), again.events, again.root), (vec![], online.events, online.root));
    let waiting = Waiting::default();
    let gone = waiting.gone();
    drop(waiting);
    assert!(matches!(store.verify(&[], &gone), Err(ReadError::Gone)));
}

#[test]
fn a_store_is_sound_at_every_moment_while_it_is_written_to() {
    let dir = tempfile::tempdir().unwrap();
    let fs: Arc<dyn FileSystem> = Arc::new(forebay_base::fs::RealFs);
    let options = Options { anchors: Vec::new(), ..options() };
    let clock = Arc::new(SystemClock::new());
    let (store, _) = Store::open(fs, clock, &dir.path().join("events"), options).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                append(&store, 40);
                store.checkpoint().unwrap();
            }
        });
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                store.flush().unwrap();
                store.compact().unwrap();
            }
        });
        let mut seen = 0;
        while seen < 3_000 {
            let verified = store.verify(&[], &Gone::default());
            let sound = verified.as_ref().is_ok_and(|verified| verified.faults.is_empty());
            if !sound {
                stop.store(true, Ordering::Relaxed);
            }
            let verified = verified.unwrap();
            assert_eq!(faults(&verified), [""; 0]);
            seen = verified.events;
        }
        stop.store(true, Ordering::Relaxed);
    });
    store.close().unwrap();
}

#[test]
fn a_segment_changed_under_an_open_store_is_reported_and_events_stay_readable() {
    let disk = closed();
    let store = open(&disk);
    let other = disk.fork();
    let (_, number) = last_segment(&other);
    let (info, mut rows) = rows_of(&other, number);
    rows[3].1 = rewritten(&rows[3].1);
    forge(&other, info.end_seq, &[], &mut rows);
    // Another file under the name; the open one is the true one still.
    let path = segment_path(number);
    disk.remove_file(&path).unwrap();
    disk.create_new(&path).unwrap().write_all_at(&read(&other, &path), 0).unwrap();
    let verified = store.verify(&[], &Gone::default()).unwrap();
    assert!(!verified.faults.is_empty());
    assert!(store.at(info.first_seq).unwrap().is_some());
    disk.remove_file(&path).unwrap();
    let verified = store.verify(&[], &Gone::default()).unwrap();
    assert!(faults(&verified).iter().any(|fault| fault.contains("cannot open")), "it is missing");
}

#[test]
fn each_checkpoint_is_published_once_and_another_store_is_refused() {
    let disk = closed();
    let kept = anchored(&disk).unwrap();
    let store = open(&disk);
    assert_eq!(kept.key, Some(store.verifier_key().unwrap()));
    let key = store.verifier_key().unwrap();
    let sizes: Vec<u64> = kept
        .notes
        .iter()
        .map(|note| Checkpoint::open(note.as_bytes(), &key).unwrap().size)
        .collect();
    assert_eq!(sizes, [170, 340, 510, 680, 850, 910]);
    store.publish_checkpoint().unwrap();
    assert_eq!(anchored(&disk).unwrap().notes, kept.notes, "nothing is new");
    append(&store, 1);
    store.publish_checkpoint().unwrap();
    assert_eq!((store.stats().anchored, store.stats().anchor_failures), (2, 0));
    assert_eq!(anchored(&disk).unwrap().notes.len(), 7);
    store.close().unwrap();
    assert_eq!(check(&disk, &anchored(&disk).unwrap().notes, Some(&key)).faults, []);
    // A store made again, with its own key.
    let fresh = SimFs::new(2);
    copy_anchor(&disk, &fresh);
    let store = open(&fresh);
    append(&store, 5);
    assert!(matches!(store.publish_checkpoint(), Err(AnchorError::Foreign { .. })));
    assert_eq!(store.stats().anchor_failures, 1);
    append(&store, 5);
    assert!(store.publish_checkpoint().is_err(), "again");
}

fn copy_anchor(from: &SimFs, to: &SimFs) {
    let dir = Path::new(ANCHOR);
    to.create_dir_all(dir).unwrap();
    for entry in from.list(dir).unwrap() {
        let path = dir.join(&entry.name);
        if !to.exists(&path).unwrap() {
            to.create_new(&path).unwrap().write_all_at(&read(from, &path), 0).unwrap();
        }
    }
}

#[test]
fn a_store_that_was_rolled_back_does_not_publish_and_is_reported() {
    let disk = closed();
    let earlier = disk.fork();
    let store = open(&disk);
    append(&store, 300);
    store.publish_checkpoint().unwrap();
    store.close().unwrap();
    copy_anchor(&disk, &earlier);
    assert_eq!(check(&earlier, &[], None).faults, [], "it is sound by itself");
    let kept = anchored(&earlier).unwrap();
    let verified = check(&earlier, &kept.notes, kept.key.as_ref());
    assert!(faults(&verified).iter().any(|fault| fault.contains("newest 300 events are missing")));
    let store = open(&earlier);
    let verified = store.verify(&kept.notes, &Gone::default()).unwrap();
    assert!(!verified.faults.is_empty());
    append(&store, 1);
    assert!(matches!(store.publish_checkpoint(), Err(AnchorError::RolledBack { .. })));
}

/// Writes the checkpoints again, without some of them.
pub(crate) fn rewrite_history(disk: &SimFs, keep: &dyn Fn(usize, usize) -> bool) {
    let (manifest, _) = last_segment(disk);
    let id: [u8; 16] = manifest[33..49].try_into().unwrap();
    let path = Path::new(DIR).join("checkpoints");
    let notes: Vec<String> = History::read(disk, &path, id).unwrap().map(Result::unwrap).collect();
    let header = read(disk, &path)[..32].to_vec();
    write(disk, &path, &header);
    let mut history = History::open(disk, &path, id).unwrap();
    for (at, note) in notes.iter().enumerate() {
        if keep(at, notes.len()) {
            history.append(note).unwrap();
        }
    }
}

#[test]
fn checkpoints_removed_from_the_history_are_noticed() {
    let sound = closed();
    let kept = anchored(&sound).unwrap();
    let with_anchor = |disk: &SimFs| faults(&check(disk, &kept.notes, None));
    rewrite_history(&sound, &|_, _| true);
    assert_eq!(with_anchor(&sound), [""; 0]);
    // The end: only what was kept elsewhere shows it once the copy of the newest one is changed too.
    let disk = sound.fork();
    rewrite_history(&disk, &|at, count| at + 2 < count);
    let copy = Path::new(DIR).join("newest-checkpoint");
    disk.remove_file(&copy).unwrap();
    disk.create_new(&copy).unwrap().write_all_at(kept.notes[3].as_bytes(), 0).unwrap();
    assert_eq!(faults(&check(&disk, &[], None)), [""; 0]);
    let found = with_anchor(&disk);
    assert_eq!(found.iter().filter(|fault| fault.contains("were cut")).count(), 2, "{found:?}");
    // The beginning and the middle, which the numbers show.
    for gone in [0, 2] {
        let disk = sound.fork();
        rewrite_history(&disk, &|at, _| at != gone);
        let found = faults(&check(&disk, &[], None));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("those between were removed"), "{found:?}");
        let store = open(&disk);
        assert_eq!(faults(&store.verify(&[], &Gone::default()).unwrap()), found);
    }
}

#[test]
fn a_directory_with_something_else_is_an_error() {
    let disk = closed();
    let path = Path::new(ANCHOR).join("verifier.key");
    disk.open(&path, Access::ReadWrite).unwrap().write_all_at(b"x", 0).unwrap();
    assert!(matches!(anchored(&disk), Err(AnchorError::Unreadable { .. })));
    let store = open(&disk);
    append(&store, 1);
    assert!(matches!(store.publish_checkpoint(), Err(AnchorError::Foreign { .. })));
}
