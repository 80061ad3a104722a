//! The power fails, or the process is killed, at any operation while documents wait for a database,
//! are spilled, leave the log, and finally reach the database.
//!
//! Log, spill and forwarding state are on the simulated disk; the databases, local and external, on
//! a real one.

use std::path::Path;
use std::sync::Arc;

use forebay_base::fs::sim::{Fault, SimFs};
use forebay_intake::{Intake, IntakeOptions, OpenError};
use tempfile::TempDir;

use crate::elsewhere::{Elsewhere, caught_up, until};
use crate::requests::post;
use crate::support::{CATALOGUE, DOCUMENTS, block_on, directory, namespace, open_on};
use crate::views::copy_view;

const ELSEWHERE: &str = "elsewhere.sqlite";

/// Approximate number of operations cut: a prime step apart, so that every kind is met.
const STEP: u64 = 5;

struct Setup {
    dir: TempDir,
    options: IntakeOptions,
    elsewhere: Elsewhere,
}

impl Setup {
    fn new() -> Self {
        let dir = directory();
        let elsewhere = Elsewhere::new(dir.path().join(ELSEWHERE));
        let mut options = IntakeOptions::new(dir.path().join("intake"));
        options.segment_size = 16 << 10;
        options.decision.documents_min = 1;
        options.forward = Some(elsewhere.options());
        Self { dir, options, elsewhere }
    }

    fn open(&self, disk: &SimFs) -> Result<Intake, OpenError> {
        open_on(self.options.clone(), Arc::new(disk.clone())).map(|(intake, _)| intake)
    }

    /// Copies the databases to `kept`.
    fn keep(&self, kept: &Path) {
        for view in [CATALOGUE, DOCUMENTS] {
            copy_view(view, &self.options.dir, kept);
        }
        copy_view(ELSEWHERE, self.dir.path(), kept);
    }

    /// Restores the kept databases.
    fn restore(&self, kept: &Path) {
        std::fs::remove_dir_all(&self.options.dir).unwrap_or_default();
        for suffix in ["", "-wal", "-shm"] {
            let path = self.dir.path().join(format!("{ELSEWHERE}{suffix}"));
            std::fs::remove_file(path).unwrap_or_default();
        }
        for view in [CATALOGUE, DOCUMENTS] {
            copy_view(view, kept, &self.options.dir);
        }
        copy_view(ELSEWHERE, kept, self.dir.path());
    }
}

/// Requests that were acknowledged.
#[derive(Debug, Default)]
struct Sent {
    next: u64,
    acknowledged: Vec<u64>,
}

impl Sent {
    /// Sends requests of two documents and a few KiB each.
    async fn send(&mut self, intake: &Intake, count: u64) {
        for _ in 0..count {
            let request = self.next;
            self.next += 1;
            let pad = "p".repeat(1_500);
            let body: String = (0..2)
                .map(|at| format!("{{\"r\":{request},\"at\":{at},\"p\":\"{pad}\"}}\n"))
                .collect();
            let name = if request.is_multiple_of(3) { "b" } else { "a" };
            if let Ok(reply) = post(intake, &namespace(name), None, &body).await {
                assert_eq!(reply.status, 201, "{reply:?}");
                self.acknowledged.push(request);
            }
        }
    }
}

/// The work that is cut: the database fails, documents are spilled and leave the log, it returns.
fn work(setup: &Setup, intake: &Intake, disk: &SimFs, sent: &mut Sent) {
    let wait = |what: &str, is_so: &dyn Fn() -> bool| {
        until(what, || is_so() || disk.stopped() || intake.ready().is_err());
    };
    let status = || intake.database().unwrap();
    let settled = || {
        // A device that failed may have ended the thread; that is reported, and the log keeps
        // everything.
        let status = status();
        status.state.name() == "stopped"
            || status.state.name() == "following" && status.documents_waiting == 0
    };
    setup.elsewhere.go_away(true);
    block_on(async {
        sent.send(intake, 12).await;
        wait("it is spilled", &|| {
            let status = status();
            status.state.name() == "stopped"
                || status.state.name() == "away" && status.spill_bytes > 30_000
        });
        intake.reclaim().await.unwrap_or_default();
        sent.send(intake, 4).await;
        setup.elsewhere.go_away(false);
        wait("it is back", &settled);
        sent.send(intake, 3).await;
        wait("it follows", &settled);
        intake.reclaim().await.unwrap_or_default();
    });
}

/// Opens what is left with the database available: everything acknowledged is in it, once, in
/// order.
fn judge(setup: &Setup, disk: &SimFs, sent: &Sent, at: &str) {
    setup.elsewhere.go_away(false);
    let intake = setup.open(disk).unwrap_or_else(|error| panic!("{at}: {error:?}"));
    block_on(async {
        caught_up(&intake).await;
        // It continues: new documents do not collide with earlier ones.
        let body = "{\"r\":1000000,\"at\":0,\"p\":\"\"}\n{\"r\":1000000,\"at\":1,\"p\":\"\"}\n";
        let reply = post(&intake, &namespace("a"), None, body).await.unwrap();
        assert_eq!(reply.status, 201, "{at}: {reply:?}");
        caught_up(&intake).await;
    });
    setup.elsewhere.check_same(&setup.options.dir, at);
    let mut found = Vec::new();
    for namespace in ["a", "b"] {
        let documents = setup.elsewhere.documents(namespace);
        let requests: Vec<u64> = documents.iter().map(|it| request(&it.raw)).collect();
        assert!(requests.is_sorted(), "{at}: {namespace} is out of order: {requests:?}");
        found.extend(requests);
    }
    for request in &sent.acknowledged {
        let count = found.iter().filter(|found| *found == request).count();
        assert_eq!(count, 2, "{at}: request {request} was acknowledged");
    }
    intake.close().unwrap();
}

fn request(raw: &[u8]) -> u64 {
    serde_json::from_slice::<serde_json::Value>(raw).unwrap()["r"].as_u64().unwrap()
}

/// Runs the work with `fault` at operations a step apart, and checks what is left.
fn cut_everywhere(fault: Fault, seed: u64) -> u64 {
    let setup = Setup::new();
    let disk = SimFs::new(seed);
    let mut first = Sent::default();
    let intake = setup.open(&disk).unwrap();
    block_on(async {
        first.send(&intake, 4).await;
        caught_up(&intake).await;
    });
    intake.close().unwrap();
    drop(intake);
    let (before, after) = (directory(), directory());
    setup.keep(before.path());
    let (mut at, mut cuts) = (seed % STEP, 0);
    loop {
        setup.restore(before.path());
        let cut = disk.fork();
        cut.plan(at, fault);
        let mut sent = Sent { next: first.next, acknowledged: first.acknowledged.clone() };
        setup.elsewhere.go_away(true);
        if let Ok(intake) = setup.open(&cut) {
            work(&setup, &intake, &cut, &mut sent);
            // Closing syncs: its error on a broken disk is not tested here.
            intake.close().unwrap_or_default();
        }
        let ended = cut.operations() <= at;
        setup.keep(after.path());
        judge(&setup, &cut.fork().kill(), &sent, &format!("{fault:?} at {at}, killed"));
        setup.restore(after.path());
        let name = format!("{fault:?} at {at}, power lost");
        judge(&setup, &cut.power_off(at), &sent, &name);
        cuts += 1;
        if ended {
            return cuts;
        }
        at += STEP;
    }
}

#[test]
fn a_machine_that_stops_while_documents_wait_for_a_database_loses_and_doubles_nothing() {
    let cuts = cut_everywhere(Fault::Stop, 31);
    assert!(cuts > 10, "there were only {cuts} cuts");
}

#[test]
fn a_device_that_fails_while_documents_wait_for_a_database_loses_and_doubles_nothing() {
    cut_everywhere(Fault::Io, 32);
}
