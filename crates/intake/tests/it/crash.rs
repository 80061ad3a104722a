//! The disk is cut, or fails, at every write and every sync of a workload of files and documents,
//! and again during the recovery that follows.
//!
//! Log and blobs are on the simulated disk. The views are on a real one, in a directory of the same
//! name: they are either lost with the power and rebuilt, or kept, as after a kill.

use std::path::Path;
use std::sync::Arc;

use forebay_base::durability::Durability;
use forebay_base::fs::FileSystem as _;
use forebay_base::fs::sim::{Fault, Rng, SimFs};
use forebay_intake::fsck::fsck;
use forebay_intake::{Intake, IntakeOptions, OpenError, Shortage};
use tempfile::TempDir;

use crate::crash_oracle::{Known, Oracle, Sent, accepted, is_refused_as_closed, of, store};
use crate::requests::{bytes_of, delete, files};
use crate::support::{block_on, directory, noise, open_on};

const STEPS: usize = 28;
pub(crate) const PACKED: usize = 600;

/// An intake's directory, which exists on both disks.
pub(crate) struct Setup {
    _dir: TempDir,
    pub(crate) options: IntakeOptions,
}

impl Setup {
    pub(crate) fn new() -> Self {
        let dir = directory();
        let mut options = IntakeOptions::new(dir.path().join("intake"));
        options.segment_size = 16 << 10;
        options.limits.packed_size_max = PACKED;
        options.decision.documents_min = 1;
        Self { _dir: dir, options }
    }

    pub(crate) fn open(&self, disk: &SimFs) -> Result<Intake, OpenError> {
        open_on(self.options.clone(), Arc::new(disk.clone())).map(|(intake, _)| intake)
    }

    pub(crate) fn lose_views(&self) {
        std::fs::remove_dir_all(&self.options.dir).unwrap_or_default();
    }

    /// A disk with an intake that holds a few things and was closed cleanly.
    fn furnished(&self, seed: u64) -> (SimFs, Oracle) {
        self.lose_views();
        let disk = SimFs::new(seed);
        let mut oracle = Oracle::default();
        let intake = self.open(&disk).unwrap();
        block_on(oracle.run(&intake, &mut Rng::new(seed), 8));
        intake.close().unwrap();
        let unsure = oracle.names.values().any(|known| !known.maybe.is_empty());
        assert!(!unsure && oracle.requests.iter().all(|sent| sent.answer.is_some()));
        (disk, oracle)
    }

    /// Runs the workload on a copy of `base` with `fault` at operation `at`; `None` when it has no
    /// such operation.
    fn run(
        &self,
        base: &(SimFs, Oracle),
        seed: u64,
        at: u64,
        fault: Fault,
    ) -> Option<(SimFs, Oracle)> {
        self.lose_views();
        let (disk, mut oracle) = (base.0.fork(), base.1.clone());
        disk.plan(at, fault);
        if let Ok(intake) = self.open(&disk) {
            block_on(oracle.run(&intake, &mut Rng::new(seed), STEPS));
            // Closing syncs: its error on a broken disk is not tested here.
            intake.close().unwrap_or_default();
        }
        (disk.operations() > at).then_some((disk, oracle))
    }

    /// Opens what is left, checks it, and continues to work with it.
    fn judge(&self, disk: &SimFs, mut oracle: Oracle, round: u64) {
        let intake = self.open(disk).unwrap_or_else(|error| panic!("operation {round}: {error:?}"));
        block_on(oracle.judge(&intake, round));
        intake.close().unwrap();
        drop(intake);
        if round.is_multiple_of(4) {
            let report = fsck(&self.options.dir, Arc::new(disk.clone()), |_| {}).unwrap();
            assert!(report.findings.is_empty(), "operation {round}: {report:?}");
        }
        let staging = disk.list(&self.options.dir.join("staging")).unwrap();
        assert!(staging.is_empty(), "operation {round}: {staging:?}");
    }
}

/// Loses power at every operation of a workload, with the views lost every other time.
fn lose_power_at_every_operation(seed: u64) {
    let setup = Setup::new();
    let base = setup.furnished(seed);
    let mut at = 0;
    while let Some((disk, oracle)) = setup.run(&base, seed + 1, at, Fault::Stop) {
        let left = disk.power_off(at);
        if at % 2 == 0 {
            setup.lose_views();
        }
        setup.judge(&left, oracle, at);
        at += 1;
    }
    assert!(at > 40, "the workload has only {at} operations");
}

#[test]
fn power_lost_at_every_operation_keeps_what_was_acknowledged() {
    lose_power_at_every_operation(100);
}

#[test]
fn power_lost_at_every_operation_of_another_workload_keeps_what_was_acknowledged() {
    lose_power_at_every_operation(200);
}

#[test]
fn killed_at_every_operation_keeps_what_was_acknowledged() {
    let setup = Setup::new();
    let base = setup.furnished(300);
    let mut at = 0;
    while let Some((disk, oracle)) = setup.run(&base, 301, at, Fault::Stop) {
        setup.judge(&disk.kill(), oracle, at);
        at += 1;
    }
}

#[test]
fn killed_under_relaxed_durability_keeps_what_was_acknowledged() {
    for (seed, durability) in [(310, "os"), (320, "interval:1h")] {
        let mut setup = Setup::new();
        setup.options.durability = durability.parse().unwrap();
        let base = setup.furnished(seed);
        let mut at = 0;
        while let Some((disk, oracle)) = setup.run(&base, seed + 1, at, Fault::Stop) {
            setup.judge(&disk.kill(), oracle, at);
            at += 2;
        }
    }
}

#[test]
fn power_lost_under_relaxed_durability_loses_the_newest_and_leaves_nothing_half() {
    let mut setup = Setup::new();
    setup.options.durability = Durability::Os;
    let base = setup.furnished(330);
    let mut at = 0;
    while let Some((disk, oracle)) = setup.run(&base, 331, at, Fault::Stop) {
        let left = disk.power_off(at);
        if at % 3 == 0 {
            setup.lose_views();
        }
        let intake = setup.open(&left).unwrap_or_else(|error| panic!("operation {at}: {error:?}"));
        block_on(oracle.judge_whole(&intake, at));
        intake.close().unwrap();
        drop(intake);
        let report = fsck(&setup.options.dir, Arc::new(left), |_| {}).unwrap();
        assert!(report.findings.is_empty(), "operation {at}: {report:?}");
        at += 2;
    }
}

#[test]
fn power_lost_again_during_the_recovery_changes_nothing() {
    let setup = Setup::new();
    let base = setup.furnished(400);
    let mut at = 0;
    while let Some((disk, oracle)) = setup.run(&base, 401, at, Fault::Stop) {
        let left = disk.power_off(at);
        let mut during = 0;
        loop {
            let again = left.fork();
            again.plan(during, Fault::Stop);
            setup.lose_views();
            drop(setup.open(&again));
            if again.operations() <= during {
                break;
            }
            if during % 2 == 0 {
                setup.lose_views();
            }
            setup.judge(&again.power_off(during), oracle.clone(), at);
            during += 3;
        }
        at += 7;
    }
}

#[test]
fn a_failure_at_every_operation_is_reported_and_loses_nothing_acknowledged() {
    for (seed, fault) in [(500, Fault::Io), (600, Fault::Full)] {
        let setup = Setup::new();
        let base = setup.furnished(seed);
        let mut at = 0;
        while let Some((disk, oracle)) = setup.run(&base, seed + 1, at, fault) {
            setup.judge(&disk.power_off(at), oracle, at);
            at += 2;
        }
    }
}

#[test]
fn after_a_failed_sync_every_write_is_refused_until_the_intake_is_reopened() {
    let setup = Setup::new();
    let (disk, mut oracle) = setup.furnished(700);
    let intake = setup.open(&disk).unwrap();
    let small = noise(1, 100);
    // The next two operations are the write of the entry and its sync.
    disk.plan(disk.operations() + 1, Fault::Io);
    oracle.intend("a/0", Some(small.clone()));
    block_on(async {
        let refused = store(&intake, "a/0", &small).await;
        assert!(is_refused_as_closed(&refused), "{refused:?}");
        for size in [10, 5_000] {
            let bytes = noise(2, size);
            oracle.intend("a/1", Some(bytes.clone()));
            let refused = store(&intake, "a/1", &bytes).await;
            assert!(is_refused_as_closed(&refused), "{refused:?}");
        }
        let sent =
            Sent { key: "refused".into(), body: "{\"request\":99}".into(), count: 1, answer: None };
        let refused = sent.post(&intake).await;
        assert!(is_refused_as_closed(&refused), "{refused:?}");
        // Everything acknowledged before can be read all the while.
        for (name, known) in &oracle.names {
            if let (true, Some(bytes)) = (known.maybe.is_empty(), &known.acknowledged) {
                assert!(bytes_of(&intake, &of(name)).await.unwrap().as_ref() == Some(bytes));
            }
        }
    });
    assert!(intake.close().is_err());
    drop(intake);
    setup.judge(&disk.power_off(1), oracle.clone(), 0);
}

#[test]
fn a_delete_that_finds_a_name_taken_away_waits_until_that_is_certain() {
    let setup = Setup::new();
    let (disk, oracle) = setup.furnished(710);
    let there = |known: &&Known| known.acknowledged.is_some();
    let name = oracle.names.iter().find(|(_, known)| there(known)).unwrap().0.clone();
    let intake = setup.open(&disk).unwrap();
    disk.plan(disk.operations() + 1, Fault::Io);
    block_on(async {
        let key = of(&name);
        let both = futures_util::future::join(delete(&intake, &key), delete(&intake, &key));
        let (first, second) = both.await;
        assert!(is_refused_as_closed(&first), "{first:?}");
        assert!(is_refused_as_closed(&second), "it may be there again tomorrow: {second:?}");
    });
    assert!(intake.close().is_err());
}

#[test]
fn a_full_disk_refuses_writes_keeps_what_it_has_and_takes_more_without_a_restart() {
    let setup = Setup::new();
    let (disk, mut oracle) = setup.furnished(800);
    let used = used(&disk, &setup.options.dir);
    disk.set_capacity(Some(used + (200 << 10)));
    let intake = setup.open(&disk).unwrap();
    block_on(async {
        let mut refused = 0;
        for n in 0..400 {
            let (name, bytes) =
                (format!("full/{n}"), noise(n, if n % 4 == 0 { 5_000 } else { 500 }));
            oracle.intend(&name, Some(bytes.clone()));
            match store(&intake, &name, &bytes).await {
                Ok(()) => oracle.acknowledge(&name, Some(bytes)),
                Err(error) => {
                    assert_eq!(error.shortage(), Some(Shortage::Space), "{error:?}");
                    let found = bytes_of(&intake, &of(&name)).await.unwrap();
                    assert_eq!(found, None, "what was not acknowledged is not shown: {name}");
                    refused += 1;
                }
            }
        }
        assert!(refused > 0, "the disk never was full");
        assert!(intake.ready().is_err(), "it says so");
        assert!(files(&intake).await.is_ok(), "listing works");
        for (name, known) in &oracle.names {
            if let (true, Some(bytes)) = (known.maybe.is_empty(), &known.acknowledged) {
                let found = bytes_of(&intake, &of(name)).await.unwrap();
                assert!(found.as_ref() == Some(bytes), "{name}");
            }
        }
        disk.set_capacity(None);
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        loop {
            let bytes = noise(1_000, 700);
            oracle.intend("full/after", Some(bytes.clone()));
            if accepted(&store(&intake, "full/after", &bytes).await) {
                oracle.acknowledge("full/after", Some(bytes));
                break;
            }
            assert!(std::time::Instant::now() < deadline, "writes are still refused");
            tokio::task::yield_now().await;
        }
        intake.ready().unwrap();
    });
    intake.close().unwrap();
    drop(intake);
    setup.judge(&disk.power_off(2), oracle, 0);
}

/// Bytes that all files below `dir` take.
fn used(disk: &SimFs, dir: &Path) -> u64 {
    let entries = disk.list(dir).unwrap();
    entries
        .iter()
        .map(|entry| match entry.is_dir {
            true => used(disk, &dir.join(&entry.name)),
            false => entry.len.div_ceil(4_096) * 4_096,
        })
        .sum()
}
