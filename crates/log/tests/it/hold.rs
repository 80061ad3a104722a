//! A log that waits for space instead of closing.

use std::path::Path;
use std::sync::Arc;

use forebay_base::Durability;
use forebay_base::fs::sim::{Fault, SimFs};
use forebay_log::{CommitError, EraseError, Log, OpenError, Options};

use crate::workload::{DIR, options, read_all};

fn open(disk: &SimFs) -> Result<Log, OpenError> {
    let options = Options { hold_when_full: true, ..options(Durability::Sync) };
    Log::open(Arc::new(disk.clone()), Path::new(DIR), options).map(|(log, _)| log)
}

fn payload(number: usize) -> Vec<u8> {
    vec![u8::try_from(number % 251).unwrap(); 1 + number * 37 % 700]
}

fn payloads(log: &Log) -> Vec<Vec<u8>> {
    read_all(log).into_iter().map(|(_, payload)| payload).collect()
}

#[test]
fn a_full_disk_is_waited_for_and_nothing_is_lost_or_moved() {
    let disk = SimFs::new(7);
    let log = open(&disk).unwrap();
    disk.set_capacity(Some(5_000));
    let mut kept = Vec::new();
    let stalled = loop {
        let end = log.append(&[&payload(kept.len())]).unwrap().end;
        match log.commit(end) {
            Ok(()) => kept.push(payload(kept.len())),
            Err(error) => break error,
        }
    };
    assert!(matches!(stalled, CommitError::Stalled { .. }), "{stalled}");
    assert!(kept.len() > 3 && log.stalled().is_some());
    log.usable().unwrap();
    assert_eq!(payloads(&log), kept, "what was acknowledged can be read meanwhile");
    // Entries of operations in progress are accepted beyond the buffer's limit, and written in
    // order.
    let mut all = kept.clone();
    all.push(payload(kept.len()));
    let mut end = log.end();
    for number in all.len()..all.len() + 20 {
        end = log.append(&[&payload(number)]).unwrap().end;
        all.push(payload(number));
        assert!(matches!(log.commit(end), Err(CommitError::Stalled { .. })));
    }
    assert_eq!(log.unwritten(), all[kept.len()..]);
    assert!(matches!(log.retry(), Err(CommitError::Stalled { .. })), "still no space");
    assert_eq!(payloads(&open(&disk.fork().kill()).unwrap()), kept, "killed now");
    disk.set_capacity(None);
    log.retry().unwrap();
    assert!(log.stalled().is_none() && log.unwritten().is_empty());
    log.commit(end).unwrap();
    all.push(payload(all.len()));
    log.commit(log.append(&[&all[all.len() - 1]]).unwrap().end).unwrap();
    assert_eq!(payloads(&log), all);
    drop(log);
    assert_eq!(payloads(&open(&disk.power_off(3)).unwrap()), all);
}

#[test]
fn wherever_space_runs_out_what_was_acknowledged_stays_and_the_rest_follows_in_order() {
    for (at, count) in (0..60).flat_map(|at| [(at, 1), (at, 3)]) {
        let disk = SimFs::new(at);
        let log = open(&disk).unwrap();
        let begun = disk.operations();
        (0..count).for_each(|more| disk.plan(begun + at + more, Fault::Full));
        let (mut all, mut acknowledged, mut poisoned) = (Vec::new(), 0, false);
        for number in 0..25 {
            let Ok(appended) = log.append(&[&payload(number)]) else { break };
            all.push(payload(number));
            let mut committed = log.commit(appended.end);
            for _ in 0..=count {
                if let Err(CommitError::Stalled { .. }) = committed {
                    committed = log.retry();
                }
            }
            match committed {
                Ok(()) => acknowledged = all.len(),
                // A failed sync is never tried again, whether for lack of space or not.
                Err(CommitError::Poisoned { .. }) => poisoned = true,
                Err(error) => panic!("at {at}, {count}: {error}"),
            }
        }
        assert!(poisoned || acknowledged == 25, "at {at}, {count}: {acknowledged}");
        drop(log);
        for found in [disk.fork().kill(), disk.power_off(at)] {
            let found = payloads(&open(&found).unwrap());
            assert!(found.len() >= acknowledged, "at {at}, {count}");
            assert_eq!(found, all[..found.len()], "at {at}, {count}");
        }
    }
}

#[test]
fn a_log_opens_for_reading_on_a_full_disk_and_continues_when_there_is_space() {
    let disk = SimFs::new(5);
    let log = open(&disk).unwrap();
    let mut all: Vec<Vec<u8>> = (0..30).map(payload).collect();
    for payload in &all {
        log.append(&[payload]).unwrap();
    }
    log.sync().unwrap();
    // Not closed properly, so the next opening has to create a segment.
    let mut disk = disk.kill();
    for space_at_open in [true, false] {
        disk.set_capacity(Some(1));
        let log = open(&disk).unwrap();
        assert_eq!(payloads(&log), all);
        let end = log.append(&[b"more"]).unwrap().end;
        assert!(matches!(log.commit(end), Err(CommitError::Stalled { .. })));
        assert_eq!(payloads(&log), all);
        if space_at_open {
            // Killed again while it waits: as if it had never been opened.
            disk = disk.kill();
            continue;
        }
        disk.set_capacity(None);
        log.retry().unwrap();
        all.push(b"more".to_vec());
        assert_eq!(payloads(&log), all);
        let committer = log.start_committer();
        log.commit(log.append(&[b"last"]).unwrap().end).unwrap();
        all.push(b"last".to_vec());
        committer.stop().unwrap();
    }
    let log = open(&disk.power_off(2)).unwrap();
    assert_eq!(payloads(&log), all);
}

#[test]
fn a_log_that_waits_for_space_ends_after_its_last_entry_and_keeps_its_segment() {
    let disk = SimFs::new(5);
    let log = open(&disk).unwrap();
    let all: Vec<Vec<u8>> = (0..3).map(payload).collect();
    all.iter().for_each(|payload| assert!(log.append(&[payload]).is_ok()));
    let end = log.sync().unwrap();
    let mut disk = disk.kill();
    for is_killed in [true, false, true, false] {
        disk.set_capacity(Some(1));
        let log = open(&disk).unwrap();
        assert_eq!([log.end(), log.written(), log.synced()], [end; 3]);
        log.sync_to(log.end()).unwrap();
        let segments = log.segments().unwrap();
        assert!(matches!(&segments[..], [only] if only.end == end && !only.sealed));
        // Nothing follows the segment yet, so it is neither removed nor rewritten.
        disk.set_capacity(None);
        assert_eq!(log.truncate_before(end).unwrap(), 0);
        let erased = log.erase(segments[0].base, &mut |_| true);
        assert!(matches!(erased, Err(EraseError::NotSealed { .. })));
        assert_eq!(payloads(&log), all);
        let running = disk.clone();
        if !is_killed {
            drop(log);
        }
        disk = running.kill();
        // A view that was brought up to date then expects the log to have that position.
        let knowing = Options { known_synced: end, ..options(Durability::Sync) };
        disk.set_capacity(None);
        let (log, _) = Log::open(Arc::new(disk.fork().kill()), Path::new(DIR), knowing).unwrap();
        assert_eq!(payloads(&log), all);
    }
    let log = open(&disk).unwrap();
    let appended = log.append(&[b"more"]).unwrap();
    log.commit(appended.end).unwrap();
    assert!(appended.lsn > end);
    assert_eq!(log.reader(end).next().unwrap().unwrap().payload, b"more");
}

#[test]
fn waiters_with_a_committer_get_the_error_and_the_committer_continues() {
    let disk = SimFs::new(9);
    let log = open(&disk).unwrap();
    let committer = log.start_committer();
    disk.set_capacity(Some(1));
    let (mut end, mut failed) = (log.end(), None);
    for number in 0..20 {
        end = log.append(&[&payload(number)]).unwrap().end;
        failed = log.commit(end).err();
        if failed.is_some() {
            break;
        }
    }
    assert!(matches!(failed, Some(CommitError::Stalled { .. })));
    disk.set_capacity(None);
    log.retry().unwrap();
    log.commit(end).unwrap();
    log.commit(log.append(&[b"on"]).unwrap().end).unwrap();
    committer.stop().unwrap();
}

#[test]
fn without_being_asked_to_wait_a_log_closes_as_ever() {
    let disk = SimFs::new(5);
    let (log, _) =
        Log::open(Arc::new(disk.clone()), Path::new(DIR), options(Durability::Sync)).unwrap();
    disk.set_capacity(Some(1));
    let mut ends = (0..20).filter_map(|number| Some(log.append(&[&payload(number)]).ok()?.end));
    let failed = ends.find_map(|end| log.commit(end).err()).unwrap();
    assert!(matches!(failed, CommitError::Poisoned { .. }), "{failed}");
}
