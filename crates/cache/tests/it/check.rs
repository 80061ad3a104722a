//! The check of a log whose frames are intact but whose contents are not.

use std::path::Path;
use std::sync::Arc;

use forebay_base::fs::sim::SimFs;
use forebay_base::fs::{FileSystem, RealFs};
use forebay_cache::check;
use forebay_log::{Log, Options};

const DIR: &str = "cache";
const NOW: [u8; 8] = 5_000_u64.to_le_bytes();

/// An operation as `docs/formats/cache-log.md` describes it.
fn op(database: u8, words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = vec![database, u8::try_from(words.len()).unwrap()];
    for word in words {
        bytes.push(u8::try_from(word.len()).unwrap());
        bytes.extend_from_slice(word);
    }
    bytes
}

fn ops(bytes: &[u8]) -> Vec<u8> {
    [&[1, 1], &NOW[..], bytes].concat()
}

fn part(first: u64, total: usize, offset: usize, bytes: &[u8]) -> Vec<u8> {
    let numbers = [first, total as u64, offset as u64].map(u64::to_le_bytes).concat();
    [&[2, 1], &NOW[..], &numbers, bytes].concat()
}

/// A log with these entries; returns the disk and where each begins.
fn log(entries: &[Vec<u8>]) -> (SimFs, Vec<u64>) {
    let disk = SimFs::new(1);
    let dir = Path::new(DIR).join("log");
    disk.create_dir_all(&dir).unwrap();
    let fs: Arc<dyn FileSystem> = Arc::new(disk.clone());
    let (log, _) = Log::open(fs, &dir, Options::default()).unwrap();
    let places = entries.iter().map(|entry| log.append(&[entry]).unwrap().lsn.0).collect();
    log.sync().unwrap();
    (disk, places)
}

/// The reported damages of a log with these entries, and the number of valid operations.
fn damages_of(entries: &[Vec<u8>]) -> (Vec<String>, u64) {
    let (disk, _) = log(entries);
    let mut damages = Vec::new();
    let checked = check(&disk, Path::new(DIR), &mut |damage| damages.push(damage)).unwrap();
    assert_eq!(checked.damages, damages.len() as u64);
    assert_eq!(checked.entries, entries.len() as u64);
    (damages, checked.operations)
}

#[test]
fn operations_no_command_can_do_are_named_with_file_and_offset() {
    let good = op(0, &[b"SET", b"k", b"v"]);
    for (bad, reason) in [
        (op(0, &[b"NONSENSE", b"k"]), "unknown command"),
        (op(0, &[b"GET", b"k"]), "not a write command"),
        (op(0, &[b"SET", b"k"]), "2 words"),
        (op(16, &[b"DEL", b"k"]), "database 16"),
        (op(0, &[b"DEL"]), "are not an operation"),
        (vec![0, 3, 1, b'x'], "left"),
    ] {
        let entries = [ops(&good), ops(&[&good[..], &bad].concat()), ops(&good)];
        let (damages, operations) = damages_of(&entries);
        let [damages] = damages.as_slice() else { panic!("{damages:?}") };
        let (_, places) = log(&entries);
        // The log's first segment begins at position 0, so positions are offsets.
        let place = format!("byte {}", places[1]);
        assert!(
            damages.contains(reason) && damages.contains(&place),
            "{reason}, {place} in: {damages}"
        );
        assert!(damages.contains("cache/log/0000000000000000.log"), "{damages}");
        assert_eq!(operations, 3, "the others are counted");
    }
    let (damages, operations) = damages_of(&[ops(&good), ops(&op(3, &[b"FLUSHDB"]))]);
    assert_eq!((damages.len(), operations), (0, 2));
}

#[test]
fn parts_that_do_not_join_are_reported_and_torn_ones_are_not() {
    let whole = op(0, &[b"SET", b"k", &[b'v'; 60]]);
    let begun = || part(0, whole.len(), 0, &whole[..20]);
    // Where the first part of what follows is.
    let (_, places) = log(&[begun()]);
    let rest = |offset: usize| part(places[0], whole.len(), offset, &whole[offset..]);
    assert_eq!(damages_of(&[begun(), rest(20)]), (vec![], 1));
    let (damages, operations) = damages_of(&[begun(), rest(21)]);
    assert!(damages.len() == 1 && damages[0].contains("a part starts at byte 21"), "{damages:?}");
    assert_eq!(operations, 0);
    // A crash between two parts leaves one that is never completed; the next opening passes over
    // it.
    assert_eq!(damages_of(&[begun(), vec![3, 1], ops(&op(0, &[b"DEL", b"k"]))]), (vec![], 1));
    let (damages, _) = damages_of(&[vec![9, 1, 0]]);
    assert!(damages.len() == 1 && damages[0].contains("entry kind 9"), "{damages:?}");
}

#[test]
fn no_directory_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    check(&RealFs, &dir.path().join("none"), &mut |_| ()).unwrap_err();
}
