//! The disk fails at every write and every sync of a random workload, and again at every operation
//! of the recovery that follows.

use forebay_base::{
    Durability,
    fs::sim::{Fault, SimFs},
};
use forebay_log::{Log, Lsn};

use crate::workload::{History, open, read_all};

const STEPS: usize = 60;

fn durabilities() -> [Durability; 3] {
    ["sync", "interval:1h", "os"].map(|word| word.parse().unwrap())
}

/// Runs the workload with `fault` at operation `at`; `None` if it has no such operation.
fn run(durability: Durability, seed: u64, at: u64, fault: Fault) -> Option<(SimFs, History)> {
    let disk = SimFs::new(seed ^ at);
    disk.plan(at, fault);
    let mut history = History::default();
    history.run(&disk, durability, seed, STEPS);
    (disk.operations() > at).then_some((disk, history))
}

/// Opens what is left, checks it, and continues the workload.
fn reopen_and_go_on(disk: &SimFs, history: &History, durability: Durability, power_lost: bool) {
    let (log, _) = open(disk, durability).unwrap();
    let mut found = read_all(&log);
    history.judge(&found, power_lost);
    go_on(&log, history, &mut found);
    // What an opening reports has been made durable, whatever the durability and earlier syncs.
    let known = found.len();
    for seed in 0..2 {
        let (log, _) = open(&disk.power_off(seed), durability).unwrap();
        let again = read_all(&log);
        assert!(again.len() <= known && again == found[..again.len()]);
        assert!(again.len() + 3 >= known, "only what was appended after opening may be missing");
    }
    drop(log);
}

fn go_on(log: &Log, history: &History, found: &mut Vec<(Lsn, Vec<u8>)>) {
    for i in 0..3u8 {
        let payload = vec![i; 700];
        let appended = log.append(&[&payload]).unwrap();
        assert!(appended.lsn >= history.acknowledged(), "positions are not used twice");
        log.commit(appended.end).unwrap();
        found.push((appended.lsn, payload));
    }
    assert_eq!(&read_all(log), found);
}

#[test]
fn power_lost_at_every_operation_keeps_what_was_synced() {
    for durability in durabilities() {
        for seed in 0..8 {
            let mut at = 0;
            while let Some((disk, history)) = run(durability, seed, at, Fault::Stop) {
                for tear in 0..3 {
                    let left = disk.power_off(tear);
                    reopen_and_go_on(&left, &history, durability, true);
                }
                at += 1;
            }
            assert!(at > 60, "the workload has only {at} operations");
        }
    }
}

#[test]
fn killed_at_every_operation_keeps_what_was_acknowledged() {
    for durability in durabilities() {
        for seed in 10..18 {
            let mut at = 0;
            while let Some((disk, history)) = run(durability, seed, at, Fault::Stop) {
                reopen_and_go_on(&disk.kill(), &history, durability, false);
                at += 1;
            }
        }
    }
}

#[test]
fn power_lost_at_every_operation_of_recovery_changes_nothing() {
    let durability = Durability::Sync;
    for seed in 20..24 {
        let mut at = 0;
        while let Some((disk, history)) = run(durability, seed, at, Fault::Stop) {
            let left = disk.power_off(at);
            let mut during = 0;
            loop {
                let again = left.fork();
                again.plan(during, Fault::Stop);
                drop(open(&again, durability));
                if again.operations() <= during {
                    break;
                }
                reopen_and_go_on(&again.power_off(during), &history, durability, true);
                during += 1;
            }
            at += 1;
        }
    }
}

#[test]
fn a_failure_at_every_operation_poisons_and_reopening_keeps_what_was_acknowledged() {
    for durability in durabilities() {
        for (seed, fault) in
            [(30, Fault::Io), (31, Fault::Full), (32, Fault::Io), (33, Fault::Full)]
        {
            let mut at = 0;
            while let Some((disk, history)) = run(durability, seed, at, fault) {
                reopen_and_go_on(&disk.fork(), &history, durability, false);
                reopen_and_go_on(&disk.power_off(at), &history, durability, true);
                at += 1;
            }
        }
    }
}
