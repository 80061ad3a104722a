//! The disk is cut, or fails, at every write and every sync of a workload of files and documents,
//! and again during the recovery that follows.
//!
//! Log and blobs are on the simulated disk. The views are on a real one, in a directory of the same
//! name: they are either lost with the power and rebuilt, or kept, as after a kill.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use forebay_api::intake::router;
use forebay_base::clock::ManualClock;
use forebay_base::durability::Durability;
use forebay_base::fs::FileSystem as _;
use forebay_base::fs::sim::{Fault, Rng, SimFs};
use forebay_intake::digest::Digest;
use forebay_intake::fsck::fsck;
use forebay_intake::{Intake, IntakeOptions, OpenError};
use tempfile::TempDir;

use super::support::{Answer, Form, MULTIPART, NOW_MS, directory, noise, send, text};

const STEPS: usize = 22;
const PACKED: usize = 600;

/// Where the intake lies, on both disks.
pub(crate) struct Place {
    _dir: TempDir,
    pub(crate) options: IntakeOptions,
}

impl Place {
    pub(crate) fn new() -> Self {
        let dir = directory();
        let mut options = IntakeOptions::new(dir.path().join("intake"));
        options.segment_size = 16 << 10;
        options.limits.packed_size_max = PACKED;
        options.decision.documents_min = 1;
        Self { _dir: dir, options }
    }

    pub(crate) fn open(&self, disk: &SimFs) -> Result<Intake, OpenError> {
        let clock = Arc::new(ManualClock::new(NOW_MS));
        Intake::open(self.options.clone(), Arc::new(disk.clone()), clock).map(|(intake, _)| intake)
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

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
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
    answer: Option<bytes::Bytes>,
}

/// What was sent, and what was acknowledged.
#[derive(Debug, Clone, Default)]
pub(crate) struct Oracle {
    names: BTreeMap<String, Known>,
    requests: Vec<Sent>,
}

impl Oracle {
    pub(crate) async fn run(&mut self, intake: &Intake, rng: &mut Rng, steps: usize) {
        for _ in 0..steps {
            match rng.below(12) {
                0..3 => self.put(intake, rng, 0).await,
                3 | 4 => self.put(intake, rng, PACKED + 1).await,
                5 => self.put_together(intake, rng).await,
                6 | 7 => self.delete(intake, rng).await,
                8 => self.batch(intake, rng).await,
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
        let answer = put(intake, &name, &bytes).await;
        if accepted(&answer) {
            self.acknowledge(&name, Some(bytes));
        }
    }

    /// Three at once, which share a write and a sync.
    async fn put_together(&mut self, intake: &Intake, rng: &mut Rng) {
        let files = ["x/1", "x/2", "x/3"].map(|name| (name, content(rng, 0)));
        for (name, bytes) in &files {
            self.intend(name, Some(bytes.clone()));
        }
        let answers = futures_util::future::join_all(
            files.iter().map(|(name, bytes)| put(intake, name, bytes)),
        );
        for ((name, bytes), answer) in files.iter().zip(answers.await) {
            if accepted(&answer) {
                self.acknowledge(name, Some(bytes.clone()));
            }
        }
    }

    async fn batch(&mut self, intake: &Intake, rng: &mut Rng) {
        let files = ["y/1", "y/2"].map(|name| (name, content(rng, rng.clone().below(2) * 700)));
        let mut form = Form::default().field("namespace", "n");
        for (name, bytes) in &files {
            self.intend(name, Some(bytes.clone()));
            form = form.file(name, bytes);
        }
        let router = router(intake);
        let answer = send(router, "POST", "/v1/ingest", &[MULTIPART], form.finish()).await;
        let json = answer.json();
        let Some(parts) = json["parts"].as_array() else { return };
        for ((name, bytes), part) in files.iter().zip(parts) {
            if matches!(text(&part["status"]), "stored" | "duplicate") {
                self.acknowledge(name, Some(bytes.clone()));
            } else {
                assert!(part["error"]["code"].is_string(), "{part}");
            }
        }
    }

    async fn delete(&mut self, intake: &Intake, rng: &mut Rng) {
        let name = name(rng);
        self.intend(&name, None);
        let answer = send(router(intake), "DELETE", &url(&name), &[], "").await;
        if answer.status == 404 {
            // The name did not exist: nothing was done.
            self.names.get_mut(&name).unwrap().maybe.pop();
        } else if accepted(&answer) {
            self.acknowledge(&name, None);
        }
    }

    async fn documents(&mut self, intake: &Intake, rng: &mut Rng) {
        let (request, count) = (self.requests.len(), 1 + rng.below(3));
        let pad = "p".repeat(rng.below(400));
        let body = (0..count)
            .map(|at| format!("{{\"request\":{request},\"at\":{at},\"pad\":\"{pad}\"}}\n"))
            .collect();
        let mut sent = Sent { key: format!("request {request}"), body, count, answer: None };
        let answer = post(intake, &sent).await;
        if accepted(&answer) {
            sent.answer = Some(answer.body);
        }
        self.requests.push(sent);
    }

    /// Checks the contents against what was acknowledged, then continues.
    async fn judge(&mut self, intake: &Intake, round: u64) {
        intake.ready().unwrap();
        let mut there = Vec::new();
        for (name, known) in &self.names {
            let got = send(router(intake), "GET", &url(name), &[], "").await;
            assert!(matches!(got.status, 200 | 404), "operation {round}: {got:?}");
            let found = (got.status == 200).then(|| got.body.to_vec());
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
        let listed = send(router(intake), "GET", "/v1/files?limit=1000", &[], "").await.json();
        let listed: Vec<&str> =
            listed["files"].as_array().unwrap().iter().map(|file| text(&file["name"])).collect();
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
        let listed = send(router(intake), "GET", "/v1/files?limit=1000", &[], "").await.json();
        for file in listed["files"].as_array().unwrap() {
            let got = send(router(intake), "GET", text(&file["url"]), &[], "").await;
            assert_eq!(got.status, 200, "operation {round}: {got:?}");
            assert_eq!(Digest::of(&got.body).to_hex(), text(&file["sha256"]));
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
            let again = post(intake, sent).await;
            assert_eq!(again.status, 201, "operation {round}: {again:?}");
            let replay = again.header("idempotent-replay") == "true";
            assert_eq!(
                replay,
                before.contains_key(&request),
                "operation {round}, request {request}"
            );
            // What relaxed durability lost is stored again, perhaps with other ids.
            assert!(!replay || sent.answer.as_ref().is_none_or(|answer| *answer == again.body));
        }
        let found = self.counts(intake).await;
        assert!(self.requests.iter().enumerate().all(|(at, sent)| found[&at] == sent.count));
    }

    /// Documents found of each request.
    pub(crate) async fn counts(&self, intake: &Intake) -> BTreeMap<usize, usize> {
        let page = send(router(intake), "GET", "/v1/documents/n?limit=1000", &[], "").await;
        let mut counts = BTreeMap::new();
        if page.status == 404 {
            return counts;
        }
        for document in page.json()["documents"].as_array().unwrap() {
            let request = document["document"]["request"].as_u64().unwrap();
            *counts.entry(usize::try_from(request).unwrap()).or_insert(0) += 1;
        }
        counts
    }

    async fn go_on(&mut self, intake: &Intake, round: u64) {
        for size in [10, PACKED, PACKED + 1, 70_000] {
            let bytes = noise(round ^ 0xA5A5, size);
            let answer = put(intake, "z/after", &bytes).await;
            assert!(accepted(&answer), "operation {round}: {answer:?}");
            let got = send(router(intake), "GET", &url("z/after"), &[], "").await;
            assert!(got.body == bytes, "operation {round}");
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

fn url(name: &str) -> String {
    format!("/v1/files/n/{name}")
}

async fn put(intake: &Intake, name: &str, bytes: &[u8]) -> Answer {
    send(router(intake), "PUT", &url(name), &[], bytes.to_vec()).await
}

async fn post(intake: &Intake, sent: &Sent) -> Answer {
    let headers = [("idempotency-key", sent.key.as_str())];
    send(router(intake), "POST", "/v1/documents/n", &headers, sent.body.clone()).await
}

/// Whether a write was acknowledged; a refusal must be one of the server's, with a reason.
fn accepted(answer: &Answer) -> bool {
    if (200..300).contains(&answer.status) {
        return true;
    }
    assert!(matches!(answer.status, 404 | 500 | 503 | 507), "{answer:?}");
    assert!(answer.json()["error"]["code"].is_string());
    false
}

/// Loses power at every operation of a workload, with the views lost every other time.
fn lose_power_at_every_operation(seed: u64) {
    let place = Place::new();
    let base = place.furnished(seed);
    let mut at = 0;
    while let Some((disk, oracle)) = place.run(&base, seed + 1, at, Fault::Stop) {
        let left = disk.power_off(at);
        if at % 2 == 0 {
            place.lose_views();
        }
        place.judge(&left, oracle, at);
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
    let place = Place::new();
    let base = place.furnished(300);
    let mut at = 0;
    while let Some((disk, oracle)) = place.run(&base, 301, at, Fault::Stop) {
        place.judge(&disk.kill(), oracle, at);
        at += 1;
    }
}

#[test]
fn killed_under_relaxed_durability_keeps_what_was_acknowledged() {
    for (seed, durability) in [(310, "os"), (320, "interval:1h")] {
        let mut place = Place::new();
        place.options.durability = durability.parse().unwrap();
        let base = place.furnished(seed);
        let mut at = 0;
        while let Some((disk, oracle)) = place.run(&base, seed + 1, at, Fault::Stop) {
            place.judge(&disk.kill(), oracle, at);
            at += 2;
        }
    }
}

#[test]
fn power_lost_under_relaxed_durability_loses_the_newest_and_leaves_nothing_half() {
    let mut place = Place::new();
    place.options.durability = Durability::Os;
    let base = place.furnished(330);
    let mut at = 0;
    while let Some((disk, oracle)) = place.run(&base, 331, at, Fault::Stop) {
        let left = disk.power_off(at);
        if at % 3 == 0 {
            place.lose_views();
        }
        let intake = place.open(&left).unwrap_or_else(|error| panic!("operation {at}: {error:?}"));
        block_on(oracle.judge_whole(&intake, at));
        intake.close().unwrap();
        drop(intake);
        let report = fsck(&place.options.dir, Arc::new(left), |_| {}).unwrap();
        assert!(report.findings.is_empty(), "operation {at}: {report:?}");
        at += 2;
    }
}

#[test]
fn power_lost_again_during_the_recovery_changes_nothing() {
    let place = Place::new();
    let base = place.furnished(400);
    let mut at = 0;
    while let Some((disk, oracle)) = place.run(&base, 401, at, Fault::Stop) {
        let left = disk.power_off(at);
        let mut during = 0;
        loop {
            let again = left.fork();
            again.plan(during, Fault::Stop);
            place.lose_views();
            drop(place.open(&again));
            if again.operations() <= during {
                break;
            }
            if during % 2 == 0 {
                place.lose_views();
            }
            place.judge(&again.power_off(during), oracle.clone(), at);
            during += 3;
        }
        at += 7;
    }
}

#[test]
fn a_failure_at_every_operation_is_reported_and_loses_nothing_acknowledged() {
    for (seed, fault) in [(500, Fault::Io), (600, Fault::Full)] {
        let place = Place::new();
        let base = place.furnished(seed);
        let mut at = 0;
        while let Some((disk, oracle)) = place.run(&base, seed + 1, at, fault) {
            place.judge(&disk.power_off(at), oracle, at);
            at += 2;
        }
    }
}

#[test]
fn after_a_failed_sync_every_write_is_refused_until_the_intake_is_reopened() {
    let place = Place::new();
    let (disk, mut oracle) = place.furnished(700);
    let intake = place.open(&disk).unwrap();
    let small = noise(1, 100);
    // The next two operations are the write of the entry and its sync.
    disk.plan(disk.operations() + 1, Fault::Io);
    oracle.intend("a/0", Some(small.clone()));
    block_on(async {
        let refused = put(&intake, "a/0", &small).await;
        assert_eq!(refused.error(), (503, "storage".into()));
        for size in [10, 5_000] {
            let bytes = noise(2, size);
            oracle.intend("a/1", Some(bytes.clone()));
            assert_eq!(put(&intake, "a/1", &bytes).await.error(), (503, "storage".into()));
        }
        let sent =
            Sent { key: "refused".into(), body: "{\"request\":99}".into(), count: 1, answer: None };
        assert_eq!(post(&intake, &sent).await.error(), (503, "storage".into()));
        // Everything acknowledged before can be read all the while.
        for (name, known) in &oracle.names {
            if let (true, Some(bytes)) = (known.maybe.is_empty(), &known.acknowledged) {
                let got = send(router(&intake), "GET", &url(name), &[], "").await;
                assert!(got.status == 200 && got.body == *bytes);
            }
        }
    });
    assert!(intake.close().is_err());
    drop(intake);
    place.judge(&disk.power_off(1), oracle.clone(), 0);
}

#[test]
fn a_delete_that_finds_a_name_taken_away_waits_until_that_is_certain() {
    let place = Place::new();
    let (disk, oracle) = place.furnished(710);
    let there = |known: &&Known| known.acknowledged.is_some();
    let name = oracle.names.iter().find(|(_, known)| there(known)).unwrap().0.clone();
    let intake = place.open(&disk).unwrap();
    disk.plan(disk.operations() + 1, Fault::Io);
    block_on(async {
        let url = url(&name);
        let delete = || send(router(&intake), "DELETE", &url, &[], "");
        let (first, second) = futures_util::future::join(delete(), delete()).await;
        assert_eq!(first.error(), (503, "storage".into()));
        assert_eq!(second.error(), (503, "storage".into()), "it may be there again tomorrow");
    });
    assert!(intake.close().is_err());
}

#[test]
fn a_full_disk_refuses_writes_keeps_what_it_has_and_takes_more_without_a_restart() {
    let place = Place::new();
    let (disk, mut oracle) = place.furnished(800);
    let used = used(&disk, &place.options.dir);
    disk.set_capacity(Some(used + (200 << 10)));
    let intake = place.open(&disk).unwrap();
    block_on(async {
        let mut refused = 0;
        for n in 0..400 {
            let (name, bytes) =
                (format!("full/{n}"), noise(n, if n % 4 == 0 { 5_000 } else { 500 }));
            oracle.intend(&name, Some(bytes.clone()));
            let answer = put(&intake, &name, &bytes).await;
            if accepted(&answer) {
                oracle.acknowledge(&name, Some(bytes));
            } else {
                assert_eq!(answer.error(), (507, "storage_full".into()));
                assert_eq!(answer.header("retry-after"), "10");
                let got = send(router(&intake), "GET", &url(&name), &[], "").await;
                assert_eq!(got.status, 404, "what was not acknowledged is not shown: {name}");
                refused += 1;
            }
        }
        assert!(refused > 0, "the disk never was full");
        assert!(intake.ready().is_err(), "it says so");
        let listed = send(router(&intake), "GET", "/v1/files?limit=1000", &[], "").await;
        assert_eq!(listed.status, 200, "listing works: {listed:?}");
        for (name, known) in &oracle.names {
            if let (true, Some(bytes)) = (known.maybe.is_empty(), &known.acknowledged) {
                let got = send(router(&intake), "GET", &url(name), &[], "").await;
                assert!(got.status == 200 && got.body == *bytes, "{name}");
            }
        }
        disk.set_capacity(None);
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        loop {
            let bytes = noise(1_000, 700);
            oracle.intend("full/after", Some(bytes.clone()));
            if accepted(&put(&intake, "full/after", &bytes).await) {
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
    place.judge(&disk.power_off(2), oracle, 0);
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
