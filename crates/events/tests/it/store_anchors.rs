//! Published checkpoints under attack: who can write where they are published can destroy them, but
//! not make a store that was rolled back or replaced look sound.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use forebay_base::fs::FileSystem;
use forebay_base::fs::sim::SimFs;
use forebay_events::Options;
use forebay_events::checkpoint::{Checkpoint, SigningKey};
use forebay_events::store::{
    AnchorError, AnchorFiles, AnchorPlace, Anchored, KeptFiles, read_anchor,
};
use parking_lot::Mutex;

use crate::store_online::{append, faults, open_with, options};
use crate::store_tamper::check;

/// A bucket in memory; it can be unavailable, and loses the answer of a write.
#[derive(Debug, Clone, Default)]
struct Bucket(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<String, Vec<u8>>,
    /// Number of requests until one fails.
    fails_after: Option<usize>,
    /// Whether a write that fails is stored all the same.
    stores: bool,
}

impl Bucket {
    fn request(&self, write: Option<(&str, &[u8])>) -> Result<(), AnchorError> {
        let mut state = self.0.lock();
        let failed = match &mut state.fails_after {
            Some(0) => true,
            Some(left) => {
                *left -= 1;
                false
            }
            None => false,
        };
        if let Some((name, bytes)) = write.filter(|_| !failed || state.stores) {
            if state.objects.contains_key(name) {
                return Err(AnchorError::remote("write", "s3://bucket", "it exists"));
            }
            state.objects.insert(name.to_owned(), bytes.to_vec());
        }
        if failed {
            state.fails_after = None;
            return Err(AnchorError::remote("reach", "s3://bucket", "503"));
        }
        Ok(())
    }

    fn put(&self, size: u64, note: &str) {
        self.0.lock().objects.insert(name_of(size), note.as_bytes().to_vec());
    }

    fn note(&self, size: u64) -> String {
        String::from_utf8(self.0.lock().objects[&name_of(size)].clone()).unwrap()
    }

    fn fork(&self) -> Self {
        let state = State { objects: self.0.lock().objects.clone(), ..State::default() };
        Self(Arc::new(Mutex::new(state)))
    }

    fn read(&self) -> Result<Anchored, AnchorError> {
        read_anchor(self)
    }
}

impl AnchorFiles for Bucket {
    fn address(&self) -> String {
        "s3://bucket".to_owned()
    }

    fn names(&self, after: Option<&str>) -> Result<Vec<String>, AnchorError> {
        self.request(None)?;
        let names = self.0.lock().objects.keys().cloned().collect::<Vec<_>>();
        Ok(names.into_iter().filter(|name| after.is_none_or(|it| name.as_str() > it)).collect())
    }

    fn read(&self, name: &str, _size_max: usize) -> Result<Option<Vec<u8>>, AnchorError> {
        self.request(None)?;
        Ok(self.0.lock().objects.get(name).cloned())
    }

    fn create(&self, name: &str, bytes: &[u8]) -> Result<(), AnchorError> {
        self.request(Some((name, bytes)))
    }
}

fn name_of(size: u64) -> String {
    format!("{size:020}.checkpoint")
}

fn with(bucket: &Bucket) -> Options {
    let target = Arc::new(KeptFiles(bucket.clone()));
    Options { anchors: vec![AnchorPlace::Target(target)], ..options() }
}

/// A closed store with checkpoints of 5, 10 and 15 events, its bucket, and a copy of 10 events.
fn published() -> (SimFs, Bucket, SimFs) {
    let (disk, bucket) = (SimFs::new(1), Bucket::default());
    let mut older = None;
    for size in [5, 10, 15] {
        let store = open_with(&disk, with(&bucket));
        append(&store, 5);
        store.publish_checkpoint().unwrap();
        store.close().unwrap();
        if size == 10 {
            older = Some(disk.fork());
        }
    }
    assert_eq!(bucket.read().unwrap().notes.len(), 3);
    (disk, bucket, older.unwrap())
}

/// The faults of a store compared with a bucket.
fn compared(disk: &SimFs, bucket: &Bucket) -> Vec<String> {
    let anchored = bucket.read().unwrap();
    faults(&check(disk, &anchored.notes, anchored.key.as_ref()))
}

#[test]
fn a_newer_checkpoint_overwritten_by_an_older_one_is_reported() {
    let (disk, bucket, older) = published();
    assert_eq!(compared(&disk, &bucket), [""; 0]);
    assert!(compared(&older, &bucket).iter().any(|fault| fault.contains("newest 5 events")));
    // All notes are genuine, and those of the older store.
    let forged = bucket.fork();
    forged.put(15, &bucket.note(10));
    let error = forged.read().unwrap_err();
    assert!(matches!(error, AnchorError::Overwritten { published: 15, found: 10, .. }), "{error}");
    let text = format!("s3://bucket/{} was overwritten", name_of(15));
    assert!(error.to_string().starts_with(&text), "{error}");
    // The other way round too.
    let forged = bucket.fork();
    forged.put(5, &bucket.note(15));
    assert!(matches!(forged.read(), Err(AnchorError::Overwritten { .. })));
}

#[test]
fn a_place_without_checkpoints_is_an_error_and_not_a_sound_store() {
    let (_, bucket, _) = published();
    let empty = Bucket::default();
    assert!(matches!(empty.read(), Err(AnchorError::Empty { .. })));
    bucket.0.lock().objects.retain(|name, _| name == "verifier.key");
    assert!(matches!(bucket.read(), Err(AnchorError::Empty { .. })));
}

#[test]
fn forged_objects_are_refused() {
    let (disk, bucket, older) = published();
    // Signed by another key, with the name of the store's.
    let anchored = bucket.read().unwrap();
    let key = anchored.key.unwrap();
    let checkpoint = Checkpoint::open(bucket.note(10).as_bytes(), &key).unwrap();
    let other = SigningKey::from_seed(key.name(), [9; 32]).unwrap();
    let forged = bucket.fork();
    forged.put(10, &checkpoint.sign(&other).unwrap().to_string());
    assert!(!compared(&disk, &forged).is_empty());
    // Another root under the genuine signature.
    let forged = bucket.fork();
    let note = bucket.note(10);
    let root = note.lines().nth(2).unwrap();
    let first = if root.starts_with('A') { "B" } else { "A" };
    forged.put(10, &note.replacen(root, &format!("{first}{}", &root[1..]), 1));
    assert!(!compared(&disk, &forged).is_empty());
    // The key replaced too: the store's own is another one.
    forged.put(10, &checkpoint.sign(&other).unwrap().to_string());
    let text = format!("{}\n", other.verifier());
    forged.0.lock().objects.insert("verifier.key".to_owned(), text.into_bytes());
    assert!(compared(&disk, &forged).iter().any(|fault| fault.contains("different key")));
    for bytes in [&b"x"[..], b"\xff", b""] {
        let forged = bucket.fork();
        forged.0.lock().objects.insert(name_of(10), bytes.to_vec());
        assert!(matches!(forged.read(), Err(AnchorError::Unreadable { .. })));
    }
    // A store that was rolled back publishes nothing, and leaves what is there.
    let before = bucket.fork();
    let store = open_with(&older, with(&bucket));
    append(&store, 1);
    assert!(matches!(store.publish_checkpoint(), Err(AnchorError::RolledBack { .. })));
    append(&store, 4);
    assert!(store.publish_checkpoint().is_err());
    store.close().unwrap();
    assert_eq!(bucket.0.lock().objects, before.0.lock().objects);
    // Nor does one that was made again, with a new key.
    let store = open_with(&SimFs::new(2), with(&bucket));
    append(&store, 15);
    assert!(matches!(store.publish_checkpoint(), Err(AnchorError::Foreign { .. })));
    store.close().unwrap();
    assert_eq!(bucket.0.lock().objects, before.0.lock().objects);
}

#[test]
fn a_bucket_that_fails_at_any_request_gets_every_checkpoint_in_the_end() {
    for stores in [false, true] {
        for fails_after in 0..8 {
            let (disk, bucket) = (SimFs::new(1), Bucket::default());
            let store = open_with(&disk, with(&bucket));
            append(&store, 5);
            *bucket.0.lock() = State { fails_after: Some(fails_after), stores, ..State::default() };
            let mut failures = 0;
            for _ in 0..2 {
                // The write whose answer was lost is found stored, and is not a foreign one.
                while let Err(error) = store.publish_checkpoint() {
                    assert!(matches!(error, AnchorError::Remote { .. }), "{error}");
                    failures += 1;
                    assert!(failures < 2, "it is available again");
                }
                append(&store, 5);
            }
            store.close().unwrap();
            bucket.0.lock().fails_after = None;
            assert!(bucket.read().unwrap().notes.len() >= 2, "{fails_after}");
            assert_eq!(compared(&disk, &bucket), [""; 0]);
        }
    }
}

#[test]
fn files_that_are_none_of_the_store_change_nothing() {
    let (disk, bucket, _) = published();
    for name in ["note.txt", "x.checkpoint", ".checkpoint", "-1.checkpoint"] {
        bucket.0.lock().objects.insert(name.to_owned(), b"x".to_vec());
    }
    assert_eq!(compared(&disk, &bucket), [""; 0]);
    assert!(disk.exists(Path::new("/elsewhere")).is_ok_and(|found| !found));
}
