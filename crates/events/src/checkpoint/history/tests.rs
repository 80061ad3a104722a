//! The history under truncation, flipped bits, and a disk that fails at any operation.

use forebay_base::fs::sim::{Fault, SimFs};

use super::*;

const ID: [u8; 16] = [9; 16];

fn path() -> &'static Path {
    Path::new("/checkpoints")
}

fn note(number: usize) -> String {
    format!("log\n{number}\n{}\n", "x".repeat(number * 13 % 40))
}

fn disk_with(count: usize) -> SimFs {
    let disk = SimFs::new(1);
    let mut history = History::open(&disk, path(), ID).unwrap();
    assert_eq!(history.latest(), None);
    (0..count).for_each(|i| history.append(&note(i)).unwrap());
    disk
}

fn bytes(disk: &SimFs) -> Vec<u8> {
    let file = disk.open(path(), Access::Read).unwrap();
    let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// Every note, and how many there are; they are the first ones written.
fn all(history: &History) -> usize {
    let found: Vec<String> = history.notes().map(Result::unwrap).collect();
    let expected: Vec<String> = (0..found.len()).map(note).collect();
    assert_eq!(found, expected);
    assert_eq!(history.latest(), found.last().map(String::as_str));
    found.len()
}

#[test]
fn notes_are_there_in_order_after_reopening() {
    let disk = disk_with(5);
    let mut history = History::open(&disk, path(), ID).unwrap();
    assert_eq!((all(&history), history.cut()), (5, 0));
    history.append(&note(5)).unwrap();
    assert_eq!(all(&history), 6);
    let notes = History::read(&disk, path(), ID).unwrap();
    assert_eq!((notes.torn(), notes.count()), (0, 6));
    let error = history.append(&"x".repeat(NOTE_SIZE_MAX + 1)).unwrap_err();
    assert!(matches!(error, HistoryError::TooLarge { .. }), "{error}");
    let error = History::open(&disk, path(), [1; 16]).unwrap_err();
    assert!(matches!(error, HistoryError::Header { .. }), "{error}");
}

#[test]
fn cut_anywhere_it_has_the_notes_that_are_whole() {
    let full = bytes(&disk_with(4));
    for len in 0..full.len() {
        let disk = SimFs::new(1);
        disk.create_new(path()).unwrap().write_all_at(&full[..len], 0).unwrap();
        let torn = History::read(&disk, path(), ID).map(|notes| notes.torn());
        let mut history = History::open(&disk, path(), ID).unwrap();
        if len >= HEADER_SIZE {
            assert_eq!(torn.unwrap(), history.cut());
        }
        let count = all(&history);
        (count..4).for_each(|i| history.append(&note(i)).unwrap());
        assert_eq!(bytes(&disk), full, "{len}");
    }
}

#[test]
fn a_flipped_bit_is_found_wherever_it_is() {
    let len = bytes(&disk_with(3)).len();
    let last = bytes(&disk_with(2)).len();
    for offset in 0..len {
        for bit in 0..8 {
            let disk = disk_with(3);
            disk.corrupt(path(), offset as u64, 1 << bit).unwrap();
            match History::read(&disk, path(), ID) {
                Err(HistoryError::Header { .. }) => assert!(offset < HEADER_SIZE),
                Err(other) => panic!("{other}"),
                // The last one could have been torn; its remains are reported.
                Ok(notes) if offset >= last => {
                    assert_eq!(notes.torn(), (len - last) as u64);
                    assert_eq!(notes.map(Result::unwrap).count(), 2);
                }
                Ok(mut notes) => {
                    let damaged = notes.any(|n| matches!(n, Err(HistoryError::Damaged { .. })));
                    assert!(damaged, "{offset} {bit}");
                }
            }
        }
    }
}

#[test]
fn damage_before_a_torn_end_is_damage() {
    let disk = disk_with(3);
    let len = bytes(&disk).len() as u64;
    disk.corrupt(path(), HEADER_SIZE as u64 + 6, 1).unwrap();
    disk.open(path(), Access::ReadWrite).unwrap().set_len(len - 1).unwrap();
    let error = History::open(&disk, path(), ID).unwrap_err();
    assert!(matches!(error, HistoryError::Damaged { offset: 32, .. }), "{error}");
}

fn work(disk: &SimFs, kept: &mut usize) -> Result<(), HistoryError> {
    for end in [2, 3, 6] {
        let mut history = History::open(disk, path(), ID)?;
        for number in all(&history)..end {
            history.append(&note(number))?;
            *kept = number + 1;
        }
    }
    Ok(())
}

#[test]
fn whenever_the_disk_stops_what_was_appended_is_there() {
    let disk = SimFs::new(1);
    work(&disk, &mut 0).unwrap();
    for at in 0..disk.operations() {
        for fault in [Fault::Stop, Fault::Io, Fault::Full] {
            for seed in 0..6 {
                let disk = SimFs::new(seed);
                disk.plan(at, fault);
                let mut kept = 0;
                let failed = work(&disk, &mut kept);
                assert!(failed.is_err() || fault != Fault::Stop, "{at}");
                let left = if seed % 2 == 0 { disk.power_off(seed) } else { disk.kill() };
                let mut history = History::open(&left, path(), ID).unwrap();
                let count = all(&history);
                assert!(count == kept || count == kept + 1, "{at} {fault:?}: {count} of {kept}");
                (count..8).for_each(|i| history.append(&note(i)).unwrap());
                let again = History::open(&left.power_off(seed), path(), ID).unwrap();
                assert_eq!(all(&again), 8);
            }
        }
    }
}

#[test]
fn a_full_disk_is_tried_again_and_a_failed_sync_is_not() {
    let disk = disk_with(2);
    let mut history = History::open(&disk, path(), ID).unwrap();
    for seed in 0..8 {
        disk.plan(disk.operations() + seed % 2, Fault::Full);
        let before = all(&history);
        let long = "long ".repeat(100);
        if history.append(&long).is_err() && history.append(&note(before)).is_err() {
            break;
        }
    }
    assert!(matches!(history.append(&note(9)), Err(HistoryError::Poisoned { .. })));
}
