//! What a check says of a log whose frames are whole, but not what is in them.

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

/// What is told of a log with these entries, and how many operations are sound.
fn told(entries: &[Vec<u8>]) -> (Vec<String>, u64) {
    let (disk, _) = log(entries);
    let mut told = Vec::new();
    let checked = check(&disk, Path::new(DIR), &mut |damage| told.push(damage)).unwrap();
    assert_eq!(checked.damages, told.len() as u64);
    assert_eq!(checked.entries, entries.len() as u64);
    (told, checked.operations)
}

#[test]
fn operations_no_command_can_do_are_named_with_file_and_offset() {
    let good = op(0, &[b"SET", b"k", b"v"]);
    for (bad, reason) in [
        (op(0, &[b"NONSENSE", b"k"]), "no such command"),
        (op(0, &[b"GET", b"k"]), "no command that writes"),
        (op(0, &[b"SET", b"k"]), "2 words"),
        (op(16, &[b"DEL", b"k"]), "database 16"),
        (op(0, &[b"DEL"]), "are no operation"),
        (vec![0, 3, 1, b'x'], "left"),
    ] {
        let entries = [ops(&good), ops(&[&good[..], &bad].concat()), ops(&good)];
        let (told, operations) = told(&entries);
        let [told] = told.as_slice() else { panic!("{told:?}") };
        let (_, places) = log(&entries);
        // The log's first segment begins at position 0, so positions are offsets.
        let place = format!("byte {}", places[1]);
        assert!(told.contains(reason) && told.contains(&place), "{reason}, {place} in: {told}");
        assert!(told.contains("cache/log/0000000000000000.log"), "{told}");
        assert_eq!(operations, 3, "the others are counted");
    }
    let (told, operations) = told(&[ops(&good), ops(&op(3, &[b"FLUSHDB"]))]);
    assert_eq!((told.len(), operations), (0, 2));
}

#[test]
fn parts_that_do_not_join_are_told_and_torn_ones_are_not() {
    let whole = op(0, &[b"SET", b"k", &[b'v'; 60]]);
    let begun = || part(0, whole.len(), 0, &whole[..20]);
    // Where the first part of what follows is.
    let (_, places) = log(&[begun()]);
    let rest = |offset: usize| part(places[0], whole.len(), offset, &whole[offset..]);
    assert_eq!(told(&[begun(), rest(20)]), (vec![], 1));
    let (told_of, operations) = told(&[begun(), rest(21)]);
    assert!(told_of.len() == 1 && told_of[0].contains("a part at byte 21"), "{told_of:?}");
    assert_eq!(operations, 0);
    // A crash between two parts leaves one that is never completed; the next opening passes over it.
    assert_eq!(told(&[begun(), vec![3, 1], ops(&op(0, &[b"DEL", b"k"]))]), (vec![], 1));
    let (told_of, _) = told(&[vec![9, 1, 0]]);
    assert!(told_of.len() == 1 && told_of[0].contains("entry kind 9"), "{told_of:?}");
}

#[test]
fn no_directory_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    check(&RealFs, &dir.path().join("none"), &mut |_| ()).unwrap_err();
}
