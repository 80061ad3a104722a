//! The tree file under truncation, flipped bits, and a disk that fails at any operation.

use forebay_base::fs::sim::{Fault, SimFs};

use super::*;
use crate::merkle::leaf_hash;

const ID: [u8; 16] = [7; 16];

fn path() -> &'static Path {
    Path::new("/tree")
}

fn roots(count: usize) -> Vec<Hash> {
    (0..count).map(|i| leaf_hash(&i.to_le_bytes())).collect()
}

/// A disk with a synced file of this many roots.
fn disk_with(count: usize) -> SimFs {
    let disk = SimFs::new(1);
    let (mut file, none) = TreeFile::open(&disk, path(), ID, 0).unwrap();
    assert!(none.is_empty());
    file.append(&roots(count)).unwrap();
    file.sync().unwrap();
    disk
}

fn bytes(disk: &SimFs) -> Vec<u8> {
    let file = disk.open(path(), Access::Read).unwrap();
    let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

#[test]
fn reopening_gives_the_roots_that_are_true_and_cuts_the_others() {
    let disk = disk_with(5000);
    assert_eq!(TreeFile::read(&disk, path(), ID, 4999).unwrap(), roots(4999));
    let (mut file, found) = TreeFile::open(&disk, path(), ID, 4097).unwrap();
    assert_eq!(found, roots(4097));
    file.append(&roots(4100)[4097..]).unwrap();
    file.sync().unwrap();
    assert_eq!(file.count(), 4100);
    assert_eq!(TreeFile::read(&disk, path(), ID, 4100).unwrap(), roots(4100));
    let short = TreeFile::read(&disk, path(), ID, 4101).unwrap_err();
    assert!(matches!(short, TreeFileError::Short { count: 4101, .. }), "{short}");
    let absurd = TreeFile::read(&disk, path(), ID, u64::MAX).unwrap_err();
    assert!(matches!(absurd, TreeFileError::Short { .. }), "{absurd}");
}

#[test]
fn the_file_of_another_store_is_refused() {
    let disk = disk_with(3);
    let error = TreeFile::read(&disk, path(), [8; 16], 3).unwrap_err();
    assert!(matches!(error, TreeFileError::Header { .. }), "{error}");
    let gone = TreeFile::open(&SimFs::new(1), path(), ID, 1).unwrap_err();
    assert!(matches!(gone, TreeFileError::Io { act: "open", .. }), "{gone}");
}

#[test]
fn cut_anywhere_it_has_what_is_whole_and_says_what_is_not() {
    let all = bytes(&disk_with(4));
    for len in 0..all.len() {
        let disk = SimFs::new(1);
        disk.create_new(path()).unwrap().write_all_at(&all[..len], 0).unwrap();
        let whole = len.saturating_sub(HEADER_SIZE) / RECORD_SIZE;
        let short = TreeFile::open(&disk, path(), ID, whole as u64 + 1).unwrap_err();
        assert!(matches!(short, TreeFileError::Short { .. }), "{len}: {short}");
        let (mut file, found) = TreeFile::open(&disk, path(), ID, whole as u64).unwrap();
        assert_eq!(found, roots(whole), "{len}");
        file.append(&roots(4)[whole..]).unwrap();
        assert_eq!(bytes(&disk), all, "{len}");
    }
}

#[test]
fn a_flipped_bit_is_found_and_named() {
    let len = bytes(&disk_with(3)).len();
    for offset in 0..len {
        for bit in 0..8 {
            let disk = disk_with(3);
            disk.corrupt(path(), offset as u64, 1 << bit).unwrap();
            match TreeFile::open(&disk, path(), ID, 3).unwrap_err() {
                TreeFileError::Header { .. } => assert!(offset < HEADER_SIZE),
                TreeFileError::Damaged { index, offset: at, .. } => {
                    assert_eq!(index, ((offset - HEADER_SIZE) / RECORD_SIZE) as u64);
                    assert_eq!(at, end_of(index));
                }
                other => panic!("{other}"),
            }
        }
    }
}

#[test]
fn a_record_in_another_place_is_damage() {
    let disk = disk_with(3);
    let mut all = bytes(&disk);
    let (a, b) = (HEADER_SIZE, HEADER_SIZE + RECORD_SIZE);
    all[a..].rotate_left(RECORD_SIZE);
    assert_ne!(all[a..b], bytes(&disk)[a..b]);
    disk.open(path(), Access::ReadWrite).unwrap().write_all_at(&all, 0).unwrap();
    let error = TreeFile::read(&disk, path(), ID, 3).unwrap_err();
    assert!(matches!(error, TreeFileError::Damaged { index: 0, .. }), "{error}");
}

/// Appends in pieces; returns how many roots were acknowledged as durable.
fn work(disk: &SimFs, synced: &mut u64) -> Result<(), TreeFileError> {
    let all = roots(9);
    for end in [2, 3, 7, 9] {
        let (mut file, found) = TreeFile::open(disk, path(), ID, *synced)?;
        let from = found.len();
        for root in &all[from..end] {
            file.append(std::slice::from_ref(root))?;
        }
        file.sync()?;
        *synced = file.count();
    }
    Ok(())
}

#[test]
fn whenever_the_disk_stops_what_was_synced_is_there() {
    let disk = SimFs::new(1);
    work(&disk, &mut 0).unwrap();
    for at in 0..disk.operations() {
        for fault in [Fault::Stop, Fault::Io, Fault::Full] {
            for seed in 0..6 {
                let disk = SimFs::new(seed);
                disk.plan(at, fault);
                let mut synced = 0;
                let failed = work(&disk, &mut synced);
                assert!(failed.is_err() || fault != Fault::Stop, "{at}");
                let left = if seed % 2 == 0 { disk.power_off(seed) } else { disk.kill() };
                let (mut file, found) = TreeFile::open(&left, path(), ID, synced).unwrap();
                assert_eq!(found, roots(9)[..found.len()], "{at} {fault:?} {seed}");
                assert_eq!(found.len() as u64, synced);
                file.append(&roots(9)[found.len()..]).unwrap();
                file.sync().unwrap();
                let left = left.power_off(seed);
                assert_eq!(TreeFile::read(&left, path(), ID, 9).unwrap(), roots(9));
            }
        }
    }
}

#[test]
fn a_full_disk_is_tried_again_and_a_failed_sync_is_not() {
    let disk = disk_with(2);
    let (mut file, _) = TreeFile::open(&disk, path(), ID, 2).unwrap();
    disk.plan(disk.operations(), Fault::Full);
    let error = file.append(&roots(4)[2..]).unwrap_err();
    assert!(matches!(error, TreeFileError::Io { act: "write", .. }), "{error}");
    file.append(&roots(4)[2..]).unwrap();
    file.sync().unwrap();
    assert_eq!(TreeFile::read(&disk, path(), ID, 4).unwrap(), roots(4));
    disk.plan(disk.operations(), Fault::Io);
    file.sync().unwrap_err();
    let error = file.append(&roots(1)).unwrap_err();
    assert!(matches!(error, TreeFileError::Poisoned { .. }), "{error}");
}
