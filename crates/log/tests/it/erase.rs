//! Erasing: what it frees, and what every position returns afterwards, whatever interrupts it.

use std::{collections::BTreeSet, path::Path, sync::Arc};

use forebay_base::fs::sim::{Fault, SimFs};
use forebay_log::{Appended, Log, Lsn, Options, ReadError, check};

use crate::workload::{DIR, read_all};

const PAGE_SIZE: u64 = 4096;

fn open(disk: &SimFs, segment_size: u64) -> Result<Log, forebay_log::OpenError> {
    let options = Options { segment_size, ..Options::default() };
    Ok(Log::open(Arc::new(disk.clone()), Path::new(DIR), options)?.0)
}

fn payload(i: usize, size: usize) -> Vec<u8> {
    vec![u8::try_from(i % 251).unwrap(); size]
}

/// Appends `count` entries of `size` bytes and syncs them.
fn fill(log: &Log, count: usize, size: usize) -> Vec<Appended> {
    let appended = (0..count).map(|i| log.append(&[&payload(i, size)]).unwrap()).collect();
    log.sync().unwrap();
    appended
}

/// Checks that every position leads to the remaining entries: `dead` was erased, and nothing else.
fn check_positions(log: &Log, entries: &[Appended], dead: &BTreeSet<Lsn>, size: usize) {
    for (i, entry) in entries.iter().enumerate() {
        match log.read(entry.lsn) {
            Ok(found) => assert!(!dead.contains(&entry.lsn) && found == payload(i, size)),
            Err(ReadError::Erased { lsn }) => assert!(lsn == entry.lsn && dead.contains(&lsn)),
            Err(error) => panic!("{error}"),
        }
        let alive = |from: Lsn| {
            entries.iter().map(|entry| entry.lsn).find(|lsn| *lsn >= from && !dead.contains(lsn))
        };
        for from in [entry.lsn, entry.end] {
            let mut reader = log.reader(from);
            let first = reader.next().unwrap().map(|entry| entry.lsn);
            assert_eq!(first, alive(from), "from {from}");
        }
    }
}

#[test]
fn pages_of_dead_neighbours_are_given_back() {
    let disk = SimFs::new(0);
    let log = open(&disk, 1 << 20).unwrap();
    let entries = fill(&log, 300, 4096);
    let segment = log.segments().unwrap()[0];
    let alive = [entries[50].lsn, entries[51].lsn, entries[200].lsn];
    let erased = log.erase(segment.base, &mut |lsn| !alive.contains(&lsn)).unwrap();
    assert!(erased.entries > 240);
    let left = log.segments().unwrap()[0].disk_bytes;
    // The page of the segment's header, and for each live entry two pages and the start of a run.
    assert!(left <= 8 * PAGE_SIZE && segment.disk_bytes > 240 * PAGE_SIZE, "{left} bytes are left");
}

#[test]
fn a_reader_counts_the_erased_entries_that_it_passes() {
    let disk = SimFs::new(0);
    let log = open(&disk, 4096).unwrap();
    let entries = fill(&log, 60, 100);
    let segment = log.segments().unwrap()[0];
    let dead: BTreeSet<Lsn> = [1, 2, 3, 5, 9].map(|at| entries[at].lsn).into();
    log.erase(segment.base, &mut |lsn| dead.contains(&lsn)).unwrap();
    let mut reader = log.reader(entries[0].lsn);
    let mut passed = Vec::new();
    loop {
        let read = reader.next().unwrap().is_some();
        passed.extend(reader.take_erased().map(|erased| (erased.from, erased.to, erased.entries)));
        if !read {
            break;
        }
    }
    let [a, b, c] = [(1, 3), (5, 5), (9, 9)]
        .map(|(first, last)| (entries[first].lsn, entries[last].end, (last - first + 1) as u64));
    assert_eq!(passed, [a, b, c]);
    // Not asked for, they add up; from inside a run it is at least one.
    let mut reader = log.reader(entries[2].lsn);
    while reader.next().unwrap().is_some() {}
    let erased = reader.take_erased().unwrap();
    assert_eq!((erased.from, erased.to), (entries[2].lsn, entries[9].end));
    assert!(erased.entries >= 3, "{erased:?}");
    assert_eq!(reader.take_erased(), None);
}

#[test]
fn erasing_again_joins_what_was_apart() {
    let disk = SimFs::new(0);
    let log = open(&disk, 1 << 20).unwrap();
    let entries = fill(&log, 300, 4096);
    let segment = log.segments().unwrap()[0];
    let within = entries.iter().filter(|entry| entry.end <= segment.end).count() as u64;
    let mut erased = 0;
    for round in [3, 2, 1] {
        let mut at = 0;
        erased += log
            .erase(segment.base, &mut |_| {
                at += 1;
                at % round == 0
            })
            .unwrap()
            .entries;
    }
    assert_eq!(erased, within);
    assert_eq!(log.segments().unwrap()[0].disk_bytes, PAGE_SIZE);
    let verified = log.verify(&mut |damage| panic!("{damage}")).unwrap();
    assert_eq!((verified.erased, verified.entries), (within, 300 - within));
}

#[test]
fn every_position_leads_to_what_lives_behind_it_also_after_reopening() {
    let disk = SimFs::new(0);
    let log = open(&disk, 2048).unwrap();
    let entries = fill(&log, 60, 100);
    let dead: BTreeSet<Lsn> =
        (0..60).filter(|i| i % 7 != 3 && !(20..24).contains(i)).map(|i| entries[i].lsn).collect();
    // Readers positioned where a segment is about to change.
    let mut readers: Vec<_> = entries.iter().map(|entry| log.reader(entry.lsn)).collect();
    for reader in readers.iter_mut().step_by(2) {
        reader.next().unwrap().unwrap();
    }
    for segment in log.segments().unwrap().iter().filter(|segment| segment.sealed) {
        log.erase(segment.base, &mut |lsn| dead.contains(&lsn)).unwrap();
    }
    let open_from = log.segments().unwrap().last().unwrap().base;
    let dead: BTreeSet<Lsn> = dead.into_iter().filter(|lsn| *lsn < open_from).collect();
    for reader in &mut readers {
        let mut last = None;
        while let Some(entry) = reader.next().unwrap() {
            last = Some(entry.lsn);
        }
        assert!(last.is_none_or(|last| last == entries[59].lsn));
    }
    check_positions(&log, &entries, &dead, 100);
    let lsns = read_all(&log);
    drop((log, readers));
    let log = open(&disk, 2048).unwrap();
    check_positions(&log, &entries, &dead, 100);
    assert_eq!(read_all(&log), lsns);
}

#[test]
fn a_place_where_no_entry_can_have_begun_is_not_one_although_a_run_lies_over_it() {
    let disk = SimFs::new(0);
    let log = open(&disk, 2048).unwrap();
    let entries = fill(&log, 60, 100);
    let segment = log.segments().unwrap()[0];
    log.erase(segment.base, &mut |lsn| entries[2..6].iter().any(|entry| entry.lsn == lsn)).unwrap();
    let (first, end) = (entries[2].lsn.0, entries[5].end.0);
    for at in [first + 8, first + 25, first + 131, end - 16, end - 8, end - 1] {
        let read = log.read(Lsn(at));
        assert!(matches!(read, Err(ReadError::NotAnEntry { .. })), "{at}: {read:?}");
        let mut reader = log.reader(Lsn(at));
        assert!(matches!(reader.next(), Err(ReadError::NotAnEntry { .. })), "{at}");
    }
    assert_eq!(log.read(Lsn(end)).unwrap(), payload(6, 100));
}

/// Erases in three passes, each of which joins old runs with new ones.
fn erase_in_turns(log: &Log, entries: &[Appended]) -> Option<()> {
    for (part, of) in [(1, 3), (2, 3), (0, 5)] {
        for segment in log.segments().ok()?.iter().filter(|segment| segment.sealed) {
            log.erase(segment.base, &mut |lsn| {
                entries.iter().position(|entry| entry.lsn == lsn).unwrap() % of == part
            })
            .ok()?;
        }
    }
    Some(())
}

/// Checks that `log` has every entry unchanged, or erased if erasure was requested; before `done`
/// no entry is left to erase.
fn judge(log: &Log, entries: &[Appended], done: Lsn) {
    let mut dead = BTreeSet::new();
    for (i, entry) in entries.iter().enumerate() {
        if matches!(log.read(entry.lsn), Err(ReadError::Erased { .. })) {
            dead.insert(entry.lsn);
            assert!(i % 3 > 0 || i % 5 == 0);
        } else {
            assert!(entry.lsn >= done || (i % 3 == 0 && i % 5 > 0));
        }
    }
    check_positions(log, entries, &dead, 100);
    let alive = read_all(log).len();
    assert_eq!(alive, entries.len() - dead.len());
    let verified = log.verify(&mut |damage| panic!("{damage}")).unwrap();
    assert_eq!((verified.entries, verified.erased), (alive as u64, dead.len() as u64));
}

#[test]
fn erasing_cut_at_every_operation_leaves_each_entry_as_it_was_or_erased() {
    let made = SimFs::new(0);
    let entries = fill(&open(&made, 1024).unwrap(), 30, 100);
    for fault in [Fault::Stop, Fault::Io, Fault::Full] {
        for at in 0.. {
            let disk = made.fork();
            let log = open(&disk, 1024).unwrap();
            disk.plan(disk.operations() + at, fault);
            let before = disk.operations();
            let sealed = log.segments().unwrap().last().unwrap().base;
            let done = erase_in_turns(&log, &entries).map_or(Lsn(0), |()| sealed);
            let within = disk.operations() - before > at;
            let left = match fault {
                Fault::Stop => vec![disk.kill(), disk.power_off(at), disk.power_off(at + 1)],
                _ => {
                    judge(&log, &entries, done);
                    vec![disk.fork()]
                }
            };
            for left in left {
                check(&left, Path::new(DIR), &mut |damage| panic!("{damage}")).unwrap();
                let again = open(&left, 1024).unwrap();
                judge(&again, &entries, done);
                erase_in_turns(&again, &entries).unwrap();
                judge(&again, &entries, sealed);
            }
            if !within {
                assert!(done == sealed && at > 60, "erasing takes only {at} operations");
                break;
            }
        }
    }
}
