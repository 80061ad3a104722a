//! The disk is cut, or fails, at every write and every sync of a workload of files and documents,
//! and again during the recovery that follows.
//!
//! Log and blobs are on the simulated disk. The views are on a real one, in a directory of the same
//! name: they are either lost with the power and rebuilt, or kept, as after a kill.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

use forebay_base::durability::Durability;
use forebay_base::fs::FileSystem as _;
use forebay_base::fs::sim::{Fault, Rng, SimFs};
use forebay_intake::digest::Digest;
use forebay_intake::fsck::fsck;
use forebay_intake::{
    Condition, FileCopy, Intake, IntakeError, IntakeOptions, NameKey, OpenError, Shortage,
};
use tempfile::TempDir;

use crate::requests::{Reply, bytes_of, delete, documents, files, post, put};
use crate::support::{block_on, directory, key, namespace, noise, open_on};

const STEPS: usize = 22;
const PACKED: usize = 600;

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
        block_on(oracle.run(&intake, &mut Rng::new(seed), 6));
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

/// What a name may refer to.
#[derive(Debug, Clone, Default)]
struct Known {
    acknowledged: Option<Vec<u8>>,
    /// The possible effects of requests without an answer, or with an error as the answer.
    maybe: Vec<Option<Vec<u8>>>,
}

/// A request of documents.
#[derive(Debug, Clone)]
struct Sent {
    key: String,
    body: String,
    count: usize,
    answer: Option<Vec<u8>>,
}

impl Sent {
    async fn post(&self, intake: &Intake) -> Result<Reply, IntakeError> {
        let reply = post(intake, &namespace("n"), Some(&self.key), &self.body).await?;
        assert_eq!(reply.status, 201, "{reply:?}");
        Ok(reply)
    }
}

/// What was sent, and what was acknowledged.
#[derive(Debug, Clone, Default)]
pub(crate) struct Oracle {
    names: BTreeMap<String, Known>,
    requests: Vec<Sent>,
    /// Names of files that were stored once and then renamed once, or not.
    renamed: Vec<(String, String)>,
}

impl Oracle {
    pub(crate) async fn run(&mut self, intake: &Intake, rng: &mut Rng, steps: usize) {
        for _ in 0..steps {
            match rng.below(14) {
                0..3 => self.put(intake, rng, 0).await,
                3 | 4 => self.put(intake, rng, PACKED + 1).await,
                5 => {
                    let files = ["x/1", "x/2", "x/3"].map(|name| (name, content(rng, 0)));
                    self.put_together(intake, &files).await;
                }
                6 | 7 => self.delete(intake, rng).await,
                12 => self.rename(intake, rng).await,
                13 => self.copy(intake, rng).await,
                8 => {
                    let files =
                        ["y/1", "y/2"].map(|name| (name, content(rng, rng.clone().below(2) * 700)));
                    self.put_together(intake, &files).await;
                }
                _ => self.documents(intake, rng).await,
            }
        }
    }

    fn intend(&mut self, name: &str, state: Option<Vec<u8>>) {
        self.names.entry(name.to_owned()).or_default().maybe.push(state);
    }

    fn acknowledge(&mut self, name: &str, state: Option<Vec<u8>>) {
        let known = Known { acknowledged: state, maybe: Vec::new() };
        self.names.insert(name.to_owned(), known);
    }

    async fn put(&mut self, intake: &Intake, rng: &mut Rng, size_min: usize) {
        let (name, bytes) = (name(rng), content(rng, size_min));
        self.intend(&name, Some(bytes.clone()));
        if accepted(&store(intake, &name, &bytes).await) {
            self.acknowledge(&name, Some(bytes));
        }
    }

    /// Several at once, which share writes and syncs.
    async fn put_together(&mut self, intake: &Intake, files: &[(&str, Vec<u8>)]) {
        for (name, bytes) in files {
            self.intend(name, Some(bytes.clone()));
        }
        let answers = files.iter().map(|(name, bytes)| store(intake, name, bytes));
        let answers = futures_util::future::join_all(answers).await;
        for ((name, bytes), answer) in files.iter().zip(answers) {
            if accepted(&answer) {
                self.acknowledge(name, Some(bytes.clone()));
            }
        }
    }

    async fn delete(&mut self, intake: &Intake, rng: &mut Rng) {
        let name = name(rng);
        self.intend(&name, None);
        let answer = delete(intake, &of(&name)).await;
        if matches!(answer, Ok(false)) {
            // The name did not exist: nothing was done.
            self.names.get_mut(&name).unwrap().maybe.pop();
        } else if accepted(&answer) {
            self.acknowledge(&name, None);
        }
    }

    /// Stores a file and renames it: one of the two names has it, whatever happens.
    async fn rename(&mut self, intake: &Intake, rng: &mut Rng) {
        let number = self.renamed.len();
        let (from, to) = (format!("m/{number}-from"), format!("m/{number}-to"));
        let bytes = content(rng, 0);
        self.intend(&from, Some(bytes.clone()));
        if !accepted(&store(intake, &from, &bytes).await) {
            return;
        }
        self.acknowledge(&from, Some(bytes.clone()));
        self.renamed.push((from.clone(), to.clone()));
        self.intend(&from, None);
        self.intend(&to, Some(bytes.clone()));
        if accepted(&intake.rename(file_copy(&from, &to)).await) {
            self.acknowledge(&from, None);
            self.acknowledge(&to, Some(bytes));
        }
    }

    async fn copy(&mut self, intake: &Intake, rng: &mut Rng) {
        let (from, to) = (name(rng), format!("c/{}", rng.below(3)));
        let known = self.names.get(&from).cloned().unwrap_or_default();
        let states = known.maybe.iter().chain([&known.acknowledged]);
        for bytes in states.flatten() {
            self.intend(&to, Some(bytes.clone()));
        }
        let answer = intake.copy(file_copy(&from, &to)).await;
        if matches!(answer, Err(IntakeError::NotFound { .. })) {
            return;
        }
        if accepted(&answer) {
            let bytes = bytes_of(intake, &of(&to)).await;
            if let Ok(found) = bytes {
                self.acknowledge(&to, found);
            }
        }
    }

    async fn documents(&mut self, intake: &Intake, rng: &mut Rng) {
        let (request, count) = (self.requests.len(), 1 + rng.below(3));
        let pad = "p".repeat(rng.below(400));
        let body = (0..count)
            .map(|at| format!("{{\"request\":{request},\"at\":{at},\"pad\":\"{pad}\"}}\n"))
            .collect();
        let mut sent = Sent { key: format!("request {request}"), body, count, answer: None };
        let answer = sent.post(intake).await;
        if accepted(&answer) {
            sent.answer = Some(answer.unwrap().json);
        }
        self.requests.push(sent);
    }

    /// Checks the contents against what was acknowledged, then continues.
    async fn judge(&mut self, intake: &Intake, round: u64) {
        intake.ready().unwrap();
        let mut there = Vec::new();
        for (name, known) in &self.names {
            let found = bytes_of(intake, &of(name)).await;
            let found = found.unwrap_or_else(|error| panic!("operation {round}: {error:?}"));
            assert!(
                found == known.acknowledged || known.maybe.contains(&found),
                "operation {round}: {name} has {:?} bytes, acknowledged were {:?}, possible {:?}",
                found.map(|bytes| bytes.len()),
                known.acknowledged.as_ref().map(Vec::len),
                known.maybe.iter().map(|state| state.as_ref().map(Vec::len)).collect::<Vec<_>>(),
            );
            if found.is_some() {
                there.push(name.clone());
            }
        }
        for (from, to) in &self.renamed {
            let (old, new) = (there.contains(from), there.contains(to));
            assert!(old != new, "operation {round}: {from} {old}, {to} {new}");
        }
        let listed = files(intake).await.unwrap();
        let listed: Vec<&str> = listed.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(listed, there, "operation {round}: listed and found differ");
        let found = self.counts(intake).await;
        for (request, sent) in self.requests.iter().enumerate() {
            let count = found.get(&request).copied().unwrap_or(0);
            let whole = count == sent.count || count == 0 && sent.answer.is_none();
            assert!(
                whole,
                "operation {round}: request {request} has {count} of {} documents",
                sent.count
            );
        }
        self.send_again(intake, round, &found).await;
        self.go_on(intake, round).await;
    }

    /// Checks that every stored item is whole, that a repeated request is stored once, and that the
    /// intake continues.
    pub(crate) async fn judge_whole(&self, intake: &Intake, round: u64) {
        for file in files(intake).await.unwrap() {
            let bytes = bytes_of(intake, &(file.namespace, file.name)).await.unwrap().unwrap();
            assert_eq!(Digest::of(&bytes), file.digest, "operation {round}");
        }
        let found = self.counts(intake).await;
        for (request, count) in &found {
            assert_eq!(*count, self.requests[*request].count, "operation {round}");
        }
        self.send_again(intake, round, &found).await;
        intake.ready().unwrap();
        Self::default().go_on(intake, round).await;
    }

    /// Repeats every request under its key. Afterwards each is stored exactly once.
    async fn send_again(&self, intake: &Intake, round: u64, before: &BTreeMap<usize, usize>) {
        for (request, sent) in self.requests.iter().enumerate() {
            let again = sent.post(intake).await.unwrap();
            let was_stored = before.contains_key(&request);
            assert_eq!(again.is_replay, was_stored, "operation {round}, request {request}");
            // What relaxed durability lost is stored again, perhaps with other ids.
            let is_same = sent.answer.as_ref().is_none_or(|answer| *answer == again.json);
            assert!(!was_stored || is_same, "operation {round}, request {request}");
        }
        let found = self.counts(intake).await;
        assert!(self.requests.iter().enumerate().all(|(at, sent)| found[&at] == sent.count));
    }

    /// Documents found of each request.
    pub(crate) async fn counts(&self, intake: &Intake) -> BTreeMap<usize, usize> {
        let mut counts = BTreeMap::new();
        let Some(page) = documents(intake, &namespace("n")).await.unwrap() else { return counts };
        for document in page.documents {
            let document: serde_json::Value = serde_json::from_slice(&document.raw).unwrap();
            let request = usize::try_from(document["request"].as_u64().unwrap()).unwrap();
            *counts.entry(request).or_insert(0) += 1;
        }
        counts
    }

    async fn go_on(&mut self, intake: &Intake, round: u64) {
        for size in [10, PACKED, PACKED + 1, 70_000] {
            let bytes = noise(round ^ 0xA5A5, size);
            let answer = store(intake, "z/after", &bytes).await;
            assert!(answer.is_ok(), "operation {round}: {answer:?}");
            let found = bytes_of(intake, &of("z/after")).await.unwrap();
            assert!(found == Some(bytes), "operation {round}");
        }
    }
}

fn name(rng: &mut Rng) -> String {
    format!("a/{}", rng.below(4))
}

/// A few contents are repeated, so that there are duplicates.
fn content(rng: &mut Rng, size_min: usize) -> Vec<u8> {
    let which = rng.below(5);
    let size = if size_min == 0 { rng.clone().below(PACKED) } else { size_min + which * 900 };
    noise(which as u64, size)
}

fn file_copy(from: &str, to: &str) -> FileCopy {
    FileCopy {
        from: of(from),
        to: of(to),
        source: Condition::None,
        condition: Condition::None,
        comment: None,
        attributes: None,
        idempotency: None,
    }
}

fn of(name: &str) -> NameKey {
    key("n", name)
}

async fn store(intake: &Intake, name: &str, bytes: &[u8]) -> Result<(), IntakeError> {
    put(intake, &of(name), bytes).await.map(drop)
}

/// Whether a write was acknowledged; if not, storage must have failed.
fn accepted<T: Debug>(answer: &Result<T, IntakeError>) -> bool {
    let Err(error) = answer else { return true };
    let has_failed = matches!(error, IntakeError::Blob { .. } | IntakeError::Read { .. });
    assert!(has_failed || is_closed(error) || error.shortage().is_some(), "{error:?}");
    false
}

/// Whether the log takes nothing more until the intake is opened again.
fn is_closed(error: &IntakeError) -> bool {
    let is_of_log = match error {
        IntakeError::Append(_) | IntakeError::Commit(_) => true,
        // A view ends with the log that it follows.
        IntakeError::ViewStopped { reason } => reason.contains("the log was closed"),
        _ => false,
    };
    is_of_log && error.shortage().is_none() && !error.is_too_large()
}

fn is_refused_as_closed<T: Debug>(answer: &Result<T, IntakeError>) -> bool {
    answer.as_ref().is_err_and(is_closed)
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
