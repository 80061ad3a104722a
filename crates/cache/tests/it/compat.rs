//! Data written by earlier versions stays readable: the files under `golden` are never rewritten.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use forebay_base::Durability;
use forebay_base::fs::sim::Rng;
use forebay_base::fs::{FileSystem, RealFs};
use forebay_cache::persist::{PersistOptions, check, open, snapshot};

use crate::crash_model::{Op, Plain, Plainly, State, dump, execute, options};

const NOW_MS: u64 = 5_000;

fn op(database: usize, words: &[&[u8]]) -> Op {
    (database, words.iter().map(|word| word.to_vec()).collect())
}

/// Incompressible data, so that it is copied in pieces.
fn long() -> Vec<u8> {
    let mut rng = Rng::new(1);
    (0..2_000).map(|_| rng.next_u64().to_le_bytes()[7]).collect()
}

/// How the golden files were created, for the day a version 2 needs its own.
#[expect(dead_code, reason = "documents, and once made, the golden files")]
fn make(dir: &Path) {
    let options = PersistOptions { segment_size: 2 << 10, ..options(Durability::Sync) };
    let opened = open(Arc::new(RealFs), dir, &options, &mut Plainly).unwrap();
    let (keyspace, journal) = (&opened.store, &opened.journal);
    let run = |ops: &[Op]| execute(keyspace, journal, NOW_MS, ops).unwrap();
    run(&[op(3, &[b"SET", b"flushed", b"x"])]);
    run(&[op(0, &[b"SET", b"text\r\n|", b"a\0b"]), op(0, &[b"SETAT", b"soon", b"s", b"9000"])]);
    run(&[op(0, &[b"RPUSH", b"list", b"one", b"", b"three"])]);
    run(&[op(0, &[b"HSET", b"hash", b"f", b"v"]), op(0, &[b"SADD", b"set", b"12"])]);
    run(&[op(0, &[b"ZINCR", b"zset", b"m", b"-1.5"]), op(0, &[b"SET", b"long", &long()])]);
    snapshot(keyspace, journal, NOW_MS, &AtomicBool::new(false), &|_| ()).unwrap();
    run(&[op(3, &[b"FLUSHDB"]), op(3, &[b"SET", b"after", b"y"])]);
    run(&[op(0, &[b"RPUSH", b"list", b"four"]), op(0, &[b"APPEND", b"long", &long()])]);
    run(&[op(0, &[b"ZINCR", b"zset", b"m", b"4"]), op(0, &[b"SADD", b"set", b"member"])]);
    journal.log().start_committer().stop().unwrap();
}

fn expected() -> State {
    let word = |text: &[u8]| text.to_vec();
    let set = [word(b"12"), word(b"member")];
    let list = [word(b"one"), word(b""), word(b"three"), word(b"four")];
    let keys: [(usize, &[u8], Plain, Option<u64>); 8] = [
        (0, b"text\r\n|", Plain::Text(word(b"a\0b")), None),
        (0, b"soon", Plain::Text(word(b"s")), Some(9_000)),
        (0, b"list", Plain::List(list.to_vec()), None),
        (0, b"hash", Plain::Hash([(word(b"f"), word(b"v"))].into()), None),
        (0, b"set", Plain::Set(set.into()), None),
        (0, b"zset", Plain::ZSet([(word(b"m"), 2.5)].into()), None),
        (0, b"long", Plain::Text([long(), long()].concat()), None),
        (3, b"after", Plain::Text(word(b"y")), None),
    ];
    keys.into_iter()
        .map(|(database, key, value, deadline)| ((database, word(key)), (value, deadline)))
        .collect()
}

#[test]
fn version_1_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1");
    for part in ["log", "snapshots"] {
        std::fs::create_dir(dir.path().join(part)).unwrap();
        for entry in RealFs.list(&golden.join(part)).unwrap() {
            let name = Path::new(part).join(&entry.name);
            std::fs::copy(golden.join(&name), dir.path().join(&name)).unwrap();
        }
    }
    let checked =
        check(&RealFs, dir.path(), &|_| Ok(()), &mut |damage| panic!("{damage}")).unwrap();
    assert_eq!((checked.snapshots, checked.usable, checked.keys), (1, 1, 8));
    let options = PersistOptions::default();
    let opened = open(Arc::new(RealFs), dir.path(), &options, &mut Plainly).unwrap();
    assert_eq!(dump(&opened.store, NOW_MS), expected());
    assert!(opened.recovered.snapshot.is_some() && opened.recovered.operations == 6);
    drop(opened);
    // The log alone gives the same.
    std::fs::remove_dir_all(dir.path().join("snapshots")).unwrap();
    let opened = open(Arc::new(RealFs), dir.path(), &options, &mut Plainly).unwrap();
    assert_eq!(dump(&opened.store, NOW_MS), expected());
}
