//! Damage is reported, or, in a tail that was never known to be synced, cut; it is never read.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use forebay_base::{
    Durability,
    fs::{Access, FileSystem, sim::SimFs},
};
use forebay_log::{Fault, Log, Lsn, OpenError, Options, ReadError, check};

use crate::workload::{DIR, open, read_all};

/// A log of several segments, its disk as a kill leaves it, and its entries.
fn killed_log() -> (SimFs, Vec<(Lsn, Vec<u8>)>) {
    let disk = SimFs::new(0);
    let (log, _) = open(&disk, Durability::Sync).unwrap();
    for i in 0..40u8 {
        let appended = log.append(&[&vec![i; usize::from(i) * 29 % 300]]).unwrap();
        if i % 3 == 0 {
            log.commit(appended.end).unwrap();
        }
    }
    log.sync().unwrap();
    let entries = read_all(&log);
    (disk.fork(), entries)
}

fn cleanly_closed_log() -> (SimFs, Vec<(Lsn, Vec<u8>)>) {
    let (disk, entries) = killed_log();
    let (log, _) = open(&disk, Durability::Sync).unwrap();
    drop(log);
    (disk, entries)
}

/// A log that was closed properly and whose sealed segments have runs of erased entries.
fn erased_log() -> (SimFs, Vec<(Lsn, Vec<u8>)>) {
    let (disk, _) = cleanly_closed_log();
    let (log, _) = open(&disk, Durability::Sync).unwrap();
    let mut at = 0;
    for segment in log.segments().unwrap().iter().filter(|segment| segment.sealed) {
        log.erase(segment.base, &mut |_| {
            at += 1;
            at % 5 > 1
        })
        .unwrap();
    }
    let entries = read_all(&log);
    drop(log);
    (disk, entries)
}

fn segment_files(disk: &SimFs) -> Vec<(PathBuf, u64)> {
    let entries = disk.list(Path::new(DIR)).unwrap();
    entries.into_iter().map(|entry| (Path::new(DIR).join(entry.name), entry.len)).collect()
}

/// Reads until the end or the first damage, which must be in `path` and not after `offset`.
fn read_until_damage(log: &Log, path: &Path, offset: u64) -> (Vec<(Lsn, Vec<u8>)>, bool) {
    let mut reader = log.reader(log.start());
    let mut entries = Vec::new();
    loop {
        match reader.next() {
            Ok(Some(entry)) => entries.push((entry.lsn, entry.payload.to_vec())),
            Ok(None) => return (entries, false),
            Err(ReadError::Corrupt(corrupt)) => {
                assert!(corrupt.path == path && corrupt.offset <= offset, "{corrupt}");
                assert!(offset < corrupt.offset + 400, "{corrupt} for a flip at {offset}");
                return (entries, true);
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Flips a bit in every byte of every file and checks that nothing wrong is ever read; `may_cut` is
/// whether entries at the very end may be missing with a cut reported.
fn flip_every_byte(disk: &SimFs, entries: &[(Lsn, Vec<u8>)], may_cut: bool) {
    let files = segment_files(disk);
    assert!(files.len() >= 3);
    let (last, _) = files.last().unwrap();
    for (path, len) in &files {
        for offset in 0..*len {
            let flipped = disk.fork();
            let mask = 1 << (offset % 8);
            flipped.corrupt(path, offset, mask).unwrap();
            let mut named = 0;
            let checked = check(&flipped, Path::new(DIR), &mut |damage| {
                assert!(damage.path.starts_with(DIR) && damage.offset <= offset, "{damage}");
                named += 1;
            });
            let checked = checked.unwrap();
            let (log, recovery) = match open(&flipped, Durability::Sync) {
                Ok(opened) => opened,
                Err(OpenError::Corrupt(corrupt)) => {
                    assert!(&corrupt.path == path && corrupt.offset <= offset, "{corrupt}");
                    assert!(named > 0, "check must find what opening finds: {corrupt}");
                    continue;
                }
                Err(error) => panic!("{error}"),
            };
            let (found, damaged) = read_until_damage(&log, path, offset);
            assert!(found == entries[..found.len()], "flip at {offset} of {path:?}");
            assert_eq!(damaged, named > 0, "flip at {offset} of {path:?}");
            if !damaged && found.len() < entries.len() {
                assert!(may_cut && path == last && recovery.cut.is_some());
                assert!(checked.tail == recovery.cut && found.len() + 3 >= entries.len());
            }
        }
    }
}

#[test]
fn any_flipped_bit_of_a_killed_log_is_named_or_cut_from_the_unsynced_tail() {
    let (disk, entries) = killed_log();
    flip_every_byte(&disk, &entries, true);
}

#[test]
fn any_flipped_bit_of_a_cleanly_closed_log_is_named() {
    let (disk, entries) = cleanly_closed_log();
    flip_every_byte(&disk, &entries, false);
}

#[test]
fn any_flipped_bit_of_a_log_with_erased_runs_is_named_or_in_a_hole() {
    let (disk, entries) = erased_log();
    flip_every_byte(&disk, &entries, false);
}

#[test]
fn a_damaged_run_is_damage_for_every_position_inside() {
    let (disk, _) = killed_log();
    let (log, _) = open(&disk, Durability::Sync).unwrap();
    let segment = log.segments().unwrap()[0];
    let mut lsns = Vec::new();
    log.erase(segment.base, &mut |lsn| {
        lsns.push(lsn);
        lsns.len() > 2
    })
    .unwrap();
    drop(log);
    let (path, _) = segment_files(&disk).remove(0);
    for offset in lsns[2].0..lsns[2].0 + 24 {
        let flipped = disk.fork();
        flipped.corrupt(&path, offset, 1).unwrap();
        let (log, _) = open(&flipped, Durability::Sync).unwrap();
        for lsn in &lsns[2..] {
            let read = log.read(*lsn);
            let Err(ReadError::Corrupt(corrupt)) = read else { panic!("{offset}: {read:?}") };
            assert_eq!((&corrupt.path, corrupt.lsn), (&path, lsns[2]));
            let mut reader = log.reader(*lsn);
            assert!(matches!(reader.next(), Err(ReadError::Corrupt(found)) if found == corrupt));
        }
        assert!(log.read(lsns[1]).is_ok());
    }
}

#[test]
fn a_file_cut_short_at_any_byte_is_named() {
    let (disk, _) = killed_log();
    for (path, len) in segment_files(&disk) {
        for at in 0..len {
            let short = disk.fork();
            short.open(&path, Access::ReadWrite).unwrap().set_len(at).unwrap();
            match open(&short, Durability::Sync) {
                Err(OpenError::Corrupt(corrupt)) => {
                    assert_eq!((corrupt.path, corrupt.offset), (path.clone(), at));
                    assert!(matches!(corrupt.fault, Fault::Short { found, .. } if found == at));
                }
                other => panic!("{path:?} cut at {at}: {other:?}"),
            }
        }
    }
}

#[test]
fn a_missing_segment_in_the_middle_is_named_by_the_one_after_it() {
    let (disk, _) = killed_log();
    let files = segment_files(&disk);
    disk.remove_file(&files[1].0).unwrap();
    match open(&disk, Durability::Sync) {
        Err(OpenError::Corrupt(corrupt)) => {
            assert_eq!(corrupt.path, files[2].0);
            assert!(matches!(corrupt.fault, Fault::Chain { .. }), "{corrupt}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_segment_of_another_log_is_refused() {
    let (disk, _) = killed_log();
    let (other, _) = killed_log();
    let (path, len) = segment_files(&disk)[1].clone();
    let mut bytes = vec![0; usize::try_from(len).unwrap()];
    other.open(&path, Access::Read).unwrap().read_exact_at(&mut bytes, 0).unwrap();
    disk.open(&path, Access::ReadWrite).unwrap().write_all_at(&bytes, 0).unwrap();
    match open(&disk, Durability::Sync) {
        Err(OpenError::Corrupt(corrupt)) => assert_eq!(corrupt.fault, Fault::Foreign),
        other => panic!("{other:?}"),
    }
}

#[test]
fn bytes_copied_to_another_place_are_never_entries() {
    let (disk, entries) = killed_log();
    let (path, _) = segment_files(&disk).pop().unwrap();
    let file = disk.open(&path, Access::ReadWrite).unwrap();
    let mut whole = vec![0; 400];
    file.read_exact_at(&mut whole, 64).unwrap();
    // Exactly where the next entry would start, the bytes of an entry are copied.
    let end = {
        let (log, recovery) = open(&disk.fork(), Durability::Sync).unwrap();
        drop(log);
        recovery.entries_end
    };
    let base = u64::from_str_radix(path.file_stem().unwrap().to_str().unwrap(), 16).unwrap();
    file.write_all_at(&whole, end.0 - base).unwrap();
    let (log, recovery) = open(&disk, Durability::Sync).unwrap();
    assert_eq!(recovery.cut.unwrap().offset, end.0 - base);
    assert_eq!(read_all(&log), entries);
}

#[test]
fn verify_reads_on_behind_damage() {
    let (disk, entries) = killed_log();
    let (log, _) = open(&disk, Durability::Sync).unwrap();
    let files = segment_files(&disk);
    disk.corrupt(&files[0].0, 300, 4).unwrap();
    disk.corrupt(&files[1].0, 900, 4).unwrap();
    let mut damages = Vec::new();
    let verified = log.verify(&mut |damage| damages.push(damage)).unwrap();
    assert_eq!(damages.iter().map(|d| &d.path).collect::<Vec<_>>(), [&files[0].0, &files[1].0]);
    assert_eq!(verified.entries + 2, entries.len() as u64);
}

#[test]
fn damage_below_what_the_caller_knows_was_synced_is_reported_and_left_as_it_is() {
    let (disk, entries) = killed_log();
    let (lsn, payload) = entries.last().unwrap();
    let (path, _) = segment_files(&disk).pop().unwrap();
    let name = path.file_stem().unwrap().to_str().unwrap();
    let base = u64::from_str_radix(name, 16).unwrap();
    let offset = lsn.0 - base + 24 + payload.len() as u64 / 2;
    disk.corrupt(&path, offset, 1).unwrap();
    let end = Lsn(lsn.0 + 24 + payload.len() as u64);
    let knowing = Options { known_synced: end, ..crate::workload::options(Durability::Sync) };
    let opened = Log::open(Arc::new(disk.clone()), Path::new(DIR), knowing);
    let Err(OpenError::Corrupt(corrupt)) = opened else { panic!("{opened:?}") };
    assert_eq!((corrupt.path, corrupt.lsn), (path, *lsn));
    // Without that knowledge the same damage looks like a torn tail.
    let (log, recovery) = open(&disk, Durability::Sync).unwrap();
    assert!(recovery.cut.is_some());
    assert_eq!(read_all(&log), entries[..entries.len() - 1]);
}
