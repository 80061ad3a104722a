//! The disk fails at every write and sync of a random workload with snapshots, and again at every
//! operation of the recovery that follows.

use forebay_base::Durability;
use forebay_base::fs::sim::{Fault, Rng, SimFs};

use crate::crash_model::{History, reopen};

const STEPS: usize = 70;

fn durabilities() -> [Durability; 3] {
    ["sync", "interval:1h", "os"].map(|word| word.parse().unwrap())
}

/// Runs the workload with `fault` at operation `at`; `None` if it has no such operation.
fn run(durability: Durability, seed: u64, at: u64, fault: Fault) -> Option<(SimFs, History)> {
    let disk = SimFs::new(seed ^ at);
    disk.plan(at, fault);
    let mut history = History::new();
    if let Ok(opened) = reopen(disk.clone(), durability) {
        // A failure ends the run: its result is checked.
        history.run(&mut Rng::new(seed), &opened, STEPS).ok();
    }
    (disk.operations() > at).then_some((disk, history))
}

/// Opens what is left, checks it, continues and checks again.
fn reopen_and_go_on(disk: &SimFs, history: &mut History, durability: Durability, least: usize) {
    let opened = reopen(disk.clone(), durability).unwrap();
    assert!(opened.recovered.passed_over.is_empty(), "{:?}", opened.recovered.passed_over);
    assert!(opened.recovered.last_ms <= history.now_ms);
    let at = history.judge(&opened, least);
    history.states.truncate(at + 1);
    let mut rng = Rng::new(at as u64);
    history.run(&mut rng, &opened, 8).unwrap();
    opened.journal.commit(opened.journal.end()).unwrap();
    let all = history.states.len() - 1;
    drop(opened);
    let opened = reopen(disk.kill(), durability).unwrap();
    assert_eq!(history.judge(&opened, all), all);
}

fn promised(history: &History, durability: Durability) -> usize {
    match durability {
        Durability::Sync => history.acknowledged,
        Durability::Interval(_) | Durability::Os => history.synced,
    }
}

fn again(history: &History) -> History {
    History {
        now_ms: history.now_ms,
        states: history.states.clone(),
        acknowledged: history.acknowledged,
        synced: history.synced,
        ..History::default()
    }
}

#[test]
fn power_lost_at_every_operation_keeps_what_was_synced() {
    for durability in durabilities() {
        let mut met = [0; 3];
        for seed in 0..2 {
            let mut at = 0;
            while let Some((disk, history)) = run(durability, seed, at, Fault::Stop) {
                let now = [history.snapshots, history.abandoned, history.freed];
                met = std::array::from_fn(|i| met[i].max(now[i]));
                let least = promised(&history, durability);
                let left = disk.power_off(at);
                reopen_and_go_on(&left, &mut again(&history), durability, least);
                at += 1;
            }
            assert!(at > 60, "{at} operations");
        }
        assert!(met.iter().all(|&count| count > 0), "snapshots, restarted, freed: {met:?}");
    }
}

#[test]
fn killed_at_every_operation_keeps_what_was_acknowledged() {
    for durability in durabilities() {
        for seed in 10..11 {
            let mut at = 0;
            while let Some((disk, history)) = run(durability, seed, at, Fault::Stop) {
                let least = history.acknowledged;
                reopen_and_go_on(&disk.kill(), &mut again(&history), durability, least);
                at += 1;
            }
        }
    }
}

#[test]
fn power_lost_at_every_operation_of_recovery_changes_nothing() {
    let durability = Durability::Sync;
    let mut at = 5;
    while let Some((disk, history)) = run(durability, 21, at, Fault::Stop) {
        let left = disk.power_off(at);
        for during in 0.. {
            let again_disk = left.fork();
            again_disk.plan(during, Fault::Stop);
            drop(reopen(again_disk.clone(), durability));
            if again_disk.operations() <= during {
                break;
            }
            let left = again_disk.power_off(during);
            reopen_and_go_on(&left, &mut again(&history), durability, history.acknowledged);
        }
        at += 13;
    }
}

#[test]
fn a_failing_disk_takes_no_acknowledged_change_and_no_snapshot() {
    for durability in durabilities() {
        for (seed, fault) in [(30, Fault::Io), (31, Fault::Full)] {
            let mut at = 0;
            while let Some((disk, history)) = run(durability, seed, at, fault) {
                let least = history.acknowledged;
                reopen_and_go_on(&disk.fork(), &mut again(&history), durability, least);
                let least = promised(&history, durability);
                reopen_and_go_on(&disk.power_off(at), &mut again(&history), durability, least);
                at += 1;
            }
        }
    }
}
