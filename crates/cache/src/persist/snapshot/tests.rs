//! Snapshots written and read back, whole and damaged.

use std::path::Path;
use std::sync::Arc;

use forebay_base::fs::sim::SimFs;
use forebay_base::fs::{Access, FileSystem as _};
use forebay_log::Log;

use super::read::{Found, Sink, SnapshotFile};
use super::*;
use crate::persist::directory::Directory;
use crate::persist::error::SnapshotReadError;
use crate::persist::journal::Parts;
use crate::persist::ranges::Ranges;
use crate::store::{DATABASES, Deadline, Key, Rules};

const DIR: &str = "/cache";

fn journal(disk: &SimFs, sizes: take::Sizes) -> Journal {
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
    fn put(&mut self, database: usize, key: &Key<'_>, found: Found<'_>, deadline_ms: Option<u64>) {
        let size = match found {
            Found::Text(text) => text.len(),
            Found::Value(crate::store::Value::String(text)) => text.len(),
            Found::Value(crate::store::Value::Object(object)) => object.len(),
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
        let journal = journal(&disk, take::Sizes { piece, large: 5_000 });
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
    let journal = journal(&disk, take::Sizes { piece: 200, large: 300 });
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
