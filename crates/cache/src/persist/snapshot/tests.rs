//! Snapshots written and read back, intact and damaged.

use std::path::Path;
use std::sync::Arc;

use forebay_base::fs::sim::SimFs;
use forebay_base::fs::{Access, FileSystem as _};
use forebay_log::Log;

use super::read::{ReadValue, Sink, SnapshotFile};
use super::*;
use crate::persist::directory::Directory;
use crate::persist::error::SnapshotReadError;
use crate::persist::journal::Parts;
use crate::persist::ranges::Ranges;
use crate::store::{DATABASES, Deadline, Key, Rules};

const DIR: &str = "/cache";

fn journal(disk: &SimFs, sizes: Sizes) -> Journal {
    let fs: Arc<dyn forebay_base::fs::FileSystem> = Arc::new(disk.clone());
    let directory = Directory::open(Arc::clone(&fs), Path::new(DIR)).unwrap();
    let (log, _) = Log::open(fs, &directory::log_dir(Path::new(DIR)), Default::default()).unwrap();
    Journal::new(Parts {
        log,
        entry_size_max: 1 << 20,
        directory,
        kept: Kept { newest: None, next_number: 1 },
        sizes,
        snapshot_log_min: 1,
        replayed: 0,
    })
}

fn take_one(keyspace: &Keyspace, journal: &Journal, now_ms: u64) -> SnapshotReport {
    snapshot(keyspace, journal, now_ms, &AtomicBool::new(false), &|_| ()).unwrap()
}

#[derive(Default)]
struct Collect(Vec<(usize, Vec<u8>, usize, Option<u64>)>);

impl Sink for Collect {
    fn put(
        &mut self,
        database: usize,
        key: &Key<'_>,
        found: ReadValue<'_>,
        deadline_ms: Option<u64>,
    ) {
        let size = match found {
            ReadValue::Text(text) => text.len(),
            ReadValue::Value(crate::store::Value::String(text)) => text.len(),
            ReadValue::Value(crate::store::Value::Object(object)) => object.len(),
            ReadValue::Value(crate::store::Value::Text(text)) => text.text().len(),
        };
        self.0.push((database, key.bytes.to_vec(), size, deadline_ms));
    }
}

fn read(disk: &SimFs, path: &Path) -> Result<(Collect, Ranges), SnapshotReadError> {
    let file = SnapshotFile::open(disk, path)?;
    let mut collect = Collect::default();
    let ranges = file.read(&Rules::new(file.header.seed), &mut collect)?;
    Ok((collect, ranges))
}

#[test]
fn thousands_of_keys_are_read_back_in_pieces_of_any_size() {
    for piece in [1, 700, 1 << 20] {
        let disk = SimFs::new(1);
        let journal = journal(&disk, Sizes { piece, large: 5_000 });
        let keyspace = Keyspace::new(Rules::new(42));
        for n in 0..6_000_usize {
            let text = format!("key {n}");
            let key = keyspace.key(text.as_bytes());
            let deadline = match n % 3 {
                0 => Deadline::None,
                other => Deadline::At(other as u64 * 1_000),
            };
            keyspace.lock(n % 2, key.shard(), 0).put_string(&key, &vec![7; n % 300], deadline);
        }
        let report = take_one(&keyspace, &journal, 1_500);
        assert!(report.info.keys == 4_000 && report.ranges >= 128 + 14, "{report:?}");
        let (mut found, ranges) = read(&disk, &report.info.path).unwrap();
        found.0.sort();
        let mut expected: Vec<_> = (0..6_000)
            .filter(|n| n % 3 != 1)
            .map(|n| {
                let deadline = (n % 3 == 2).then_some(2_000);
                (n % 2, format!("key {n}").into_bytes(), n % 300, deadline)
            })
            .collect();
        expected.sort();
        assert!(found.0 == expected);
        assert!(ranges.is_complete() && ranges.len() == report.ranges);
    }
}

#[test]
fn every_cut_and_every_flipped_bit_is_found() {
    let disk = SimFs::new(1);
    let journal = journal(&disk, Sizes { piece: 200, large: 300 });
    let keyspace = Keyspace::new(Rules::new(42));
    for n in 0..6_usize {
        let text = format!("key {n}");
        let key = keyspace.key(text.as_bytes());
        let value: Vec<u8> = (0..n * 90).map(|at| u8::try_from(at * at % 251).unwrap()).collect();
        keyspace.lock(0, key.shard(), 0).put_string(&key, &value, Deadline::At(9));
    }
    let path = take_one(&keyspace, &journal, 1).info.path;
    let len = disk.len(&path).unwrap();
    let whole = read(&disk, &path).unwrap().0;
    assert!(whole.0.len() == 6 && len > 2_500 && DATABASES == 16);
    let refused = |disk: &SimFs| match read(disk, &path) {
        Err(SnapshotReadError::Damaged(damage)) => assert!(damage.offset <= len),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("damage that is not found"),
    };
    for bit in 0..len * 8 {
        disk.corrupt(&path, bit / 8, 1 << (bit % 8)).unwrap();
        refused(&disk);
        disk.corrupt(&path, bit / 8, 1 << (bit % 8)).unwrap();
    }
    assert!(read(&disk, &path).is_ok());
    for cut in (0..len).rev() {
        disk.open(&path, Access::ReadWrite).unwrap().set_len(cut).unwrap();
        refused(&disk);
    }
}

/// The bytes of every string.
#[derive(Default)]
struct Strings(std::collections::BTreeMap<Vec<u8>, Vec<u8>>);

impl Sink for Strings {
    fn put(&mut self, _: usize, key: &Key<'_>, found: ReadValue<'_>, _: Option<u64>) {
        let text = match found {
            ReadValue::Text(text) => text.to_vec(),
            ReadValue::Value(crate::store::Value::String(text)) => text,
            ReadValue::Value(_) => panic!("only strings were put, and none is shared"),
        };
        assert!(self.0.insert(key.bytes.to_vec(), text).is_none(), "a key is there once");
    }
}

fn noise(size: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut byte = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state.to_le_bytes()[5]
    };
    (0..size).map(|_| byte()).collect()
}

#[test]
fn long_strings_changed_while_they_are_written_are_stored_as_they_were_and_never_restarted() {
    let disk = SimFs::new(1);
    let journal = journal(&disk, Sizes { piece: 50_000, large: 400_000 });
    let keyspace = Keyspace::new(Rules::new(42));
    let mut put = std::collections::BTreeMap::new();
    for n in 0..60_usize {
        let key = format!("key {n}").into_bytes();
        let size = [10, 20_000, 90_000, 900_000][n % 4];
        let mut value = if n % 3 == 0 { noise(size, n as u64) } else { vec![b'x'; size] };
        [0, 5, 9].into_iter().for_each(|at| value[at] = b'1');
        let held = keyspace.key(&key);
        keyspace.lock(0, held.shard(), 0).put_string(&held, &value, Deadline::None);
        put.insert(key, value);
    }
    // The value is changed repeatedly while the log's end stays: what is read back has to be one of
    // the values, not a mixture of two.
    let turn = std::cell::Cell::new(b'0');
    let change = |_: &SnapshotProgress| {
        turn.set(turn.get() ^ 1);
        for key in put.keys() {
            let held = keyspace.key(key);
            let mut shard = keyspace.lock(0, held.shard(), 0);
            for at in [0, 5, 9] {
                shard.overwrite(&held, at, &[turn.get()]).unwrap();
            }
        }
    };
    let report = snapshot(&keyspace, &journal, 1, &AtomicBool::new(false), &change).unwrap();
    assert_eq!((report.abandoned, report.info.keys), (0, 60));
    let file = SnapshotFile::open(&disk, &report.info.path).unwrap();
    let mut strings = Strings::default();
    file.read(&Rules::new(file.header.seed), &mut strings).unwrap();
    for (key, value) in &put {
        let mut found = strings.0.remove(key).unwrap();
        assert!(found[0] == found[5] && found[5] == found[9], "of one moment");
        for at in [0, 5, 9] {
            found[at] = value[at];
        }
        assert!(found == *value);
    }
}

#[test]
fn no_range_holds_more_than_a_segment_or_a_bite() {
    let disk = SimFs::new(1);
    let journal = journal(&disk, Sizes { piece: 30_000, large: 1 << 20 });
    let keyspace = Keyspace::new(Rules::new(42));
    for n in 0..60_000_usize {
        let text = format!("key {n}");
        let key = keyspace.key(text.as_bytes());
        let size = if n % 100 == 0 { 20_000 } else { n % 50 };
        keyspace.lock(0, key.shard(), 0).put_string(&key, &noise(size, 3), Deadline::None);
    }
    let before = std::cell::Cell::new(SnapshotProgress::default());
    let check = |now: &SnapshotProgress| {
        let last = before.replace(*now);
        assert!(now.bytes - last.bytes < 30_000 + 20_000 + 1_000, "{last:?} to {now:?}");
    };
    let report = snapshot(&keyspace, &journal, 1, &AtomicBool::new(false), &check).unwrap();
    assert_eq!(report.info.keys, 60_000);
}
