//! Any operations, with the power lost at any of them: what was synced is there, nothing unknown is.
#![no_main]

use std::{path::Path, sync::Arc};

use forebay_base::{
    Durability,
    fs::sim::{Fault, SimFs},
};
use forebay_log::{Log, Lsn, Options};
use libfuzzer_sys::fuzz_target;

const DIR: &str = "/data/log";

fn open(disk: &SimFs) -> Result<Log, forebay_log::OpenError> {
    let options = Options {
        segment_size: 1024,
        entry_size_max: 4096,
        buffer_size_max: 2048,
        durability: Durability::Sync,
        ..Options::default()
    };
    Log::open(Arc::new(disk.clone()), Path::new(DIR), options).map(|(log, _)| log)
}

#[derive(Default)]
struct History {
    appended: Vec<(Lsn, Lsn, Vec<u8>)>,
    synced: Lsn,
    truncated: Lsn,
    /// Erasure was asked for, and may have happened.
    doomed: Vec<Lsn>,
}

/// Runs operations of two bytes each until one fails.
fn run(disk: &SimFs, data: &[u8], history: &mut History) -> Option<()> {
    let mut log = open(disk).ok()?;
    for step in data.chunks_exact(2) {
        match step[0] % 9 {
            0..4 => {
                let payload = vec![step[1]; usize::from(step[1]) * 5];
                let appended = log.append(&[&payload]).ok()?;
                history.appended.push((appended.lsn, appended.end, payload));
            }
            4 | 5 => {
                log.commit(log.end()).ok()?;
                history.synced = log.synced();
            }
            6 => {
                let at = usize::from(step[1]) % history.appended.len().max(1);
                let Some((_, end, _)) = history.appended.get(at) else { continue };
                history.truncated = history.truncated.max(*end);
                log.truncate_before(*end).ok()?;
            }
            7 => {
                let segments = log.segments().ok()?;
                let segment = segments[usize::from(step[1]) % segments.len()];
                if !segment.sealed {
                    continue;
                }
                let nth = u64::from(step[1] / 16 % 4) + 1;
                log.erase(segment.base, &mut |lsn| {
                    let dead = (lsn.0 / 8).is_multiple_of(nth);
                    history.doomed.extend(dead.then_some(lsn));
                    dead
                })
                .ok()?;
            }
            _ => {
                drop(log);
                log = open(disk).ok()?;
                history.synced = history.synced.max(log.synced());
            }
        }
    }
    Some(())
}

fuzz_target!(|data: &[u8]| {
    let [cut, tear, ops @ ..] = data else { return };
    let disk = SimFs::new(u64::from(*tear));
    disk.plan(u64::from(*cut), Fault::Stop);
    let mut history = History::default();
    run(&disk, ops, &mut history);
    let left = disk.power_off(u64::from(*tear));
    let log = open(&left).expect("a crash is not damage");
    let mut reader = log.reader(log.start());
    let mut found = Vec::new();
    while let Some(entry) = reader.next().expect("what is there is whole") {
        found.push((entry.lsn, entry.payload.to_vec()));
    }
    for (lsn, payload) in &found {
        assert!(history.appended.iter().any(|(at, _, bytes)| at == lsn && bytes == payload));
    }
    for (lsn, end, _) in &history.appended {
        let kept = *end > history.synced
            || *end <= history.truncated
            || history.doomed.contains(lsn)
            || found.iter().any(|(at, _)| at == lsn);
        assert!(kept, "{lsn} was synced and is gone");
        // What is gone by erasure still leads to what comes behind it.
        if *lsn >= log.start() && *end <= history.synced {
            let first =
                log.reader(*lsn).next().expect("an entry's position").map(|entry| entry.lsn);
            assert_eq!(first, found.iter().map(|(at, _)| *at).find(|at| at >= lsn));
        }
    }
});
