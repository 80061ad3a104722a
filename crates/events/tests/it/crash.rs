//! The disk fails at every write and sync of a random workload of appends, flushes, compaction,
//! retention and checkpoints, and again at those of the recovery that follows.

#![expect(clippy::cast_possible_truncation, reason = "numbers of a test are small")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_base::Durability;
use forebay_base::clock::{ManualClock, SystemClock};
use forebay_base::error_chain::chain;
use forebay_base::fs::sim::{Fault, Rng, SimFs};
use forebay_base::fs::{Access, FileSystem};
use forebay_events::{AppendError, Shortage, Store};

use crate::store_model::{DIR, Model, START_MS, durabilities, open};

const STEPS: usize = 70;

/// The distance between the operations that fail. With 1 every one does, about a thousand per run,
/// which takes minutes: `FOREBAY_CRASH_STRIDE=1`, as in CI. The default distances have no common
/// divisor, so that all durabilities and tests together cover most operations.
fn stride() -> u64 {
    let asked = std::env::var("FOREBAY_CRASH_STRIDE").ok().and_then(|text| text.parse().ok());
    asked.filter(|&stride| stride > 0).unwrap_or(13)
}

struct Ran {
    disk: SimFs,
    clock: Arc<ManualClock>,
    model: Model,
}

/// Runs the workload with `fault` at operation `at`; `None` if it has no such operation.
fn run(durability: Durability, seed: u64, at: u64, fault: Fault) -> Option<Ran> {
    let disk = SimFs::new(seed ^ at);
    disk.plan(at, fault);
    let clock = Arc::new(ManualClock::new(START_MS));
    let mut model = Model::default();
    // A failure ends the run: its result is checked.
    model.run(&mut Rng::new(seed), &disk, &clock, durability, STEPS).ok();
    (disk.operations() > at).then_some(Ran { disk, clock, model })
}

fn promised(model: &Model, durability: Durability) -> usize {
    match durability {
        Durability::Sync => model.acknowledged,
        Durability::Interval(_) | Durability::Os => model.synced,
    }
}

/// Opens what is left, checks it, continues, and checks and verifies again.
fn go_on(disk: &SimFs, ran: &Ran, durability: Durability, least: usize) {
    let mut model = ran.model.clone();
    let clock = &ran.clock;
    let store = open(disk, clock, durability).unwrap();
    model.judge(&store, least);
    let mut rng = Rng::new(least as u64);
    for count in [3, 1, 55] {
        model.append(&store, &mut rng, clock, count).unwrap();
    }
    store.close().unwrap();
    model.verify(disk);
    let store = open(disk, clock, durability).unwrap();
    let all = model.events.len();
    assert_eq!(store.len() as usize, all);
    model.append(&store, &mut rng, clock, 2).unwrap();
    store.flush().unwrap();
    model.judge(&store, all + 2);
}

#[test]
fn power_lost_at_every_operation_keeps_what_was_promised() {
    for (seed, durability) in (1..).zip(durabilities()) {
        let mut met = std::collections::BTreeSet::new();
        let mut at = seed;
        while let Some(ran) = run(durability, seed, at, Fault::Stop) {
            met.extend(ran.model.met.iter().copied());
            let least = promised(&ran.model, durability);
            go_on(&ran.disk.power_off(at), &ran, durability, least);
            at += stride();
        }
        assert!(at > 150, "{at} operations");
        assert_eq!(met.len(), 5, "{met:?}");
    }
}

#[test]
fn killed_at_every_operation_keeps_what_was_acknowledged() {
    for (seed, durability) in (11..).zip(durabilities()) {
        let mut at = seed;
        while let Some(ran) = run(durability, seed, at, Fault::Stop) {
            go_on(&ran.disk.kill(), &ran, durability, ran.model.acknowledged);
            at += 2 * (stride() - 1) + 1;
        }
    }
}

#[test]
fn power_lost_at_every_operation_of_recovery_changes_nothing() {
    let durability = Durability::Sync;
    let mut at = 5;
    while let Some(ran) = run(durability, 21, at, Fault::Stop) {
        let left = ran.disk.power_off(at);
        for during in 0.. {
            let again = left.fork();
            again.plan(during, Fault::Stop);
            drop(open(&again, &ran.clock, durability));
            if again.operations() <= during {
                break;
            }
            go_on(&again.power_off(during), &ran, durability, ran.model.acknowledged);
        }
        at += 20 * stride() + 1;
    }
}

#[test]
fn after_a_failure_reading_and_what_else_can_continue() {
    let mut failed = 0;
    for (seed, durability) in (41..).zip(durabilities()) {
        for fault in [Fault::Io, Fault::Full] {
            for at in (seed..1_000).step_by(6 * stride() as usize + 1) {
                let disk = SimFs::new(seed ^ at);
                disk.plan(at, fault);
                let clock = Arc::new(ManualClock::new(START_MS));
                let mut model = Model::default();
                let result = model.run_on(&mut Rng::new(seed), &disk, &clock, durability, STEPS);
                failed += result.unwrap_or(1);
                let ran = Ran { disk, clock, model };
                go_on(&ran.disk.fork(), &ran, durability, ran.model.acknowledged);
                let least = promised(&ran.model, durability);
                go_on(&ran.disk.power_off(at), &ran, durability, least);
            }
        }
    }
    assert!(failed > 60, "{failed}");
}

#[test]
fn power_lost_while_the_log_is_taken_up_again_keeps_what_was_promised() {
    for (seed, durability) in (61..).zip(durabilities()) {
        for (at, fault) in (seed..900)
            .step_by(8 * stride() as usize + 1)
            .zip([Fault::Io, Fault::Full].into_iter().cycle())
        {
            for after in [1, 2, 5, 11] {
                let disk = SimFs::new(seed ^ at);
                disk.plan(at, fault);
                disk.plan(at + after, Fault::Stop);
                let clock = Arc::new(ManualClock::new(START_MS));
                let mut model = Model::default();
                model.run_on(&mut Rng::new(seed), &disk, &clock, durability, STEPS).ok();
                let least = promised(&model, durability);
                let ran = Ran { disk, clock, model };
                go_on(&ran.disk.power_off(at), &ran, durability, least);
            }
        }
    }
}

#[test]
fn the_store_s_own_threads_take_the_log_up_again() {
    let disk = SimFs::new(71);
    let fs: Arc<dyn FileSystem> = Arc::new(disk.clone());
    let clock = Arc::new(SystemClock::new());
    let mut options = crate::store_model::options("sync".parse().unwrap());
    // So that it is the log that fails, and not a flush.
    options.memory_table_events = 100_000;
    let (store, _) = Store::open(fs, clock, Path::new(DIR), options).unwrap();
    let (mut model, mut rng) = (Model::default(), Rng::new(71));
    let clock = ManualClock::new(START_MS);
    for _ in 0..3 {
        model.append(&store, &mut rng, &clock, 10).unwrap();
    }
    for _ in 0..2 {
        disk.set_capacity(Some(used(&disk)));
        let log_failed = || store.health().is_err_and(|why| why.contains("log"));
        let begun = Instant::now();
        while !log_failed() {
            model.append(&store, &mut rng, &clock, 9).ok();
            assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", store.health());
        }
        disk.set_capacity(None);
        let begun = Instant::now();
        while model.append(&store, &mut rng, &clock, 9).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", store.health());
            std::thread::yield_now();
        }
    }
    let least = model.acknowledged;
    model.judge(&store, least);
    store.close().unwrap();
    model.verify(&disk);
}

/// Bytes of the files on a disk.
fn used(disk: &SimFs) -> u64 {
    let mut sum = 0;
    let mut dirs = vec![PathBuf::from("/")];
    while let Some(dir) = dirs.pop() {
        for entry in disk.list(&dir).unwrap() {
            let path = dir.join(&entry.name);
            if entry.is_dir {
                dirs.push(path);
            } else {
                sum += disk.open(&path, Access::Read).unwrap().disk_size().unwrap();
            }
        }
    }
    sum
}

#[test]
fn a_full_disk_refuses_events_clearly_until_there_is_room_again() {
    for (seed, durability) in (51..).zip(durabilities()) {
        for spare in [0, 1, 2, 5, 9] {
            let disk = SimFs::new(seed + spare);
            let clock = Arc::new(ManualClock::new(START_MS));
            let mut model = Model::default();
            let mut rng = Rng::new(seed);
            let store = open(&disk, &clock, durability).unwrap();
            for _ in 0..12 {
                model.append(&store, &mut rng, &clock, 9).unwrap();
            }
            model.checkpoint(&store);
            for round in 0..2 {
                disk.set_capacity(Some(used(&disk) + spare * 4096));
                let mut refused = 0;
                for _ in 0..60 {
                    if let Err(error) = model.append(&store, &mut rng, &clock, 13) {
                        let message = chain(&error).to_string();
                        assert!(message.contains("no storage space"), "{message}");
                        refused += 1;
                    }
                }
                assert!(refused > 20, "{refused} of round {round}");
                let mut there = model.clone();
                there.cut(store.len() as usize);
                there.judge(&store, model.acknowledged);
                disk.set_capacity(None);
                // Maintenance tries a moment later; without threads the next append does.
                for count in [1, 60, 7] {
                    model.append(&store, &mut rng, &clock, count).unwrap();
                }
                model.checkpoint(&store);
                let least = model.acknowledged;
                model.judge(&store, least);
            }
            store.close().unwrap();
            model.verify(&disk);
            let ran = Ran { disk, clock, model };
            go_on(&ran.disk.power_off(1), &ran, durability, promised(&ran.model, durability));
        }
    }
}

#[test]
fn a_store_opens_on_a_full_disk_is_read_and_takes_events_when_there_is_room() {
    for (seed, durability) in (81..).zip(durabilities()) {
        let disk = SimFs::new(seed);
        let clock = Arc::new(ManualClock::new(START_MS));
        let (mut model, mut rng) = (Model::default(), Rng::new(seed));
        let store = open(&disk, &clock, durability).unwrap();
        for _ in 0..12 {
            model.append(&store, &mut rng, &clock, 9).unwrap();
        }
        model.checkpoint(&store);
        let (killed, all) = (disk.kill(), model.events.len());
        drop(store);
        killed.set_capacity(Some(used(&killed)));
        let mut options = crate::store_model::options(durability);
        // So that it is the log that has no room, and not a flush.
        options.memory_table_events = 100_000;
        let fs = Arc::new(killed.clone());
        let (store, _) = Store::open_quiet(fs, clock.clone(), Path::new(DIR), options).unwrap();
        model.judge(&store, all);
        let last = store.at(all as u64 - 1).unwrap().unwrap();
        assert!(store.prove_record(&last).is_ok() && store.newest_checkpoint().is_ok());
        let mut held = 0;
        for _ in 0..6 {
            let error = model.append(&store, &mut rng, &clock, 7).unwrap_err();
            assert_eq!(error.shortage(), Some(Shortage::Space), "{}", chain(&error));
            held += usize::from(!matches!(error, AppendError::Waiting(_)));
        }
        assert_eq!(held, 1, "what came first is held, the rest is refused before it is taken");
        assert!(store.health().unwrap_err().contains("waits"), "{:?}", store.health());
        assert_eq!(store.len() as usize, all, "nothing that waits is shown");
        assert!(store.prove_record(&last).is_ok() && store.newest_checkpoint().is_ok());
        killed.set_capacity(None);
        for count in [1, 60, 7] {
            model.append(&store, &mut rng, &clock, count).unwrap();
        }
        assert_eq!(store.len() as usize, all + 7 + 68, "what was held is written, once");
        let all = model.events.len();
        model.judge(&store, all);
        store.health().unwrap();
        store.close().unwrap();
        model.verify(&killed);
    }
}

#[test]
fn a_failing_or_full_disk_takes_nothing_that_was_acknowledged() {
    for (seed, durability) in (31..).zip(durabilities()) {
        for fault in [Fault::Io, Fault::Full] {
            let mut at = seed;
            while let Some(ran) = run(durability, seed, at, fault) {
                go_on(&ran.disk.fork(), &ran, durability, ran.model.acknowledged);
                let least = promised(&ran.model, durability);
                go_on(&ran.disk.power_off(at), &ran, durability, least);
                at += 8 * stride() + 1;
            }
        }
    }
}
