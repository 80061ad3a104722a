//! Long logs and large operations: recovery takes proportional time, and reports its progress.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use forebay_base::fs::RealFs;
use forebay_cache::persist::{
    Opened, Ops, PersistOptions, Phase, Progress, Restore, open, snapshot,
};
use forebay_cache::store::{Keyspace, Object, Value};

use crate::crash_model::{Plainly, execute};

const NOW_MS: u64 = 1_000;

/// Records the reported progress.
#[derive(Default)]
struct Watching(Vec<Progress>);

impl Restore for Watching {
    type Store = Keyspace;

    fn build(&mut self, seed: u64) -> Keyspace {
        Plainly.build(seed)
    }

    fn replay(
        &mut self,
        keyspace: &Keyspace,
        now_ms: u64,
        database: usize,
        words: &[&[u8]],
    ) -> Result<(), String> {
        Plainly.replay(keyspace, now_ms, database, words)
    }

    fn progress(&mut self, progress: &Progress) {
        self.0.push(*progress);
    }
}

fn reopen(dir: &Path) -> (Opened<Keyspace>, Vec<Progress>) {
    let options = PersistOptions { seed: Some(1), ..PersistOptions::default() };
    let mut watching = Watching::default();
    let opened = open(Arc::new(RealFs), dir, &options, &mut watching).unwrap();
    (opened, watching.0)
}

fn list_len(keyspace: &Keyspace, key: &[u8]) -> usize {
    let key = keyspace.key(key);
    match keyspace.lock(0, key.shard(), NOW_MS).value(&key) {
        Some(Value::Object(Object::List(list))) => list.len(),
        other => panic!("no list: {other:?}"),
    }
}

#[test]
fn a_list_of_a_hundred_thousand_pushes_is_restored_and_progress_is_reported() {
    const PUSHES: usize = 100_000;
    let dir = tempfile::tempdir().unwrap();
    let (opened, _) = reopen(dir.path());
    let mut ops = Ops::default();
    let element = vec![b'e'; 60];
    for _ in 0..PUSHES {
        ops.clear();
        ops.push(0, &[b"RPUSH", b"list", &element]);
        opened.journal.append(NOW_MS, &ops).unwrap();
    }
    drop(opened);
    let (opened, progress) = reopen(dir.path());
    assert_eq!(list_len(&opened.store, b"list"), PUSHES);
    assert_eq!(opened.recovered.operations, PUSHES as u64);
    let last = progress.last().unwrap();
    assert!(progress.len() > 2 && progress.iter().all(|progress| progress.phase == Phase::Log));
    assert!(progress.is_sorted_by_key(|progress| progress.bytes) && last.bytes == last.bytes_total);
    assert!(last.items == PUSHES as u64 && last.items_rate() > 1.0);
    // From a snapshot the result is the same, and nothing is left to replay.
    let never = AtomicBool::new(false);
    let report = snapshot(&opened.store, &opened.journal, NOW_MS, &never, &|_| ()).unwrap();
    assert!(report.info.bytes > 6_000_000 && report.info.keys == 1);
    drop(opened);
    let (opened, progress) = reopen(dir.path());
    assert_eq!(list_len(&opened.store, b"list"), PUSHES);
    assert_eq!((opened.recovered.operations, opened.recovered.known), (0, 0));
    assert!(progress[0].phase == Phase::Snapshot && progress.last().unwrap().phase == Phase::Log);
}

#[test]
fn an_operation_larger_than_any_entry_is_whole_or_not_there() {
    let dir = tempfile::tempdir().unwrap();
    let (opened, _) = reopen(dir.path());
    let large: Vec<u8> = (0..40_000_000_u32).map(|n| (n >> 7).to_le_bytes()[0]).collect();
    let words = [b"SET".to_vec(), b"large".to_vec(), large.clone()];
    let small = [b"SET".to_vec(), b"small".to_vec(), b"s".to_vec()];
    let ops = [(0, words.to_vec()), (0, small.to_vec())];
    execute(&opened.store, &opened.journal, NOW_MS, &ops).unwrap();
    drop(opened);
    let (opened, _) = reopen(dir.path());
    for (key, expected) in [(&b"large"[..], &large[..]), (b"small", b"s")] {
        let key = opened.store.key(key);
        let mut shard = opened.store.lock(0, key.shard(), NOW_MS);
        assert!(shard.string(&key).unwrap().unwrap().as_ref() == expected);
    }
    assert_eq!(opened.recovered.operations, 2);
}
