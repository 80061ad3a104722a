//! Work that has begun when its job is recorded: it is a job as any other from then on.

use std::sync::Arc;
use std::time::Duration;

use forebay_base::clock::{ManualClock, SystemClock};
use forebay_base::fs::RealFs;
use forebay_base::fs::sim::{Fault, SimFs};
use forebay_jobs::{Filter, JobId, NewJob, Options, Queue, Status, SubmitError, Submitted, Worker};
use proptest::prelude::*;

use crate::support::{
    Effects, Recorder, block_on, body, clock, new, open, open_with, options, submit, workers,
};

/// Does what the order says, as a worker of adopted work.
fn follower() -> (Arc<dyn Worker>, Effects) {
    let effects = Effects::default();
    (Arc::new(Recorder(Arc::clone(&effects))), effects)
}

async fn adopt(queue: &Queue, new: NewJob) -> Result<Submitted, SubmitError> {
    queue.adopt(new, follower().0).await
}

async fn ends(queue: &Queue, id: JobId) -> Status {
    let mut changes = queue.changes();
    loop {
        let status = queue.job(id).unwrap().status;
        if status.is_ended() {
            return status;
        }
        changes.recv().await.unwrap();
    }
}

fn real(dir: &tempfile::TempDir, options: Options) -> Queue {
    let options = Options { dir: dir.path().join("jobs"), ..options };
    Queue::open(Arc::new(RealFs), Arc::new(SystemClock::new()), options).unwrap()
}

fn keyed(order: &str, key: u8) -> NewJob {
    NewJob { key: Some(([key; 16], [0; 16])), ..new(order, None) }
}

#[test]
fn adopted_work_runs_beside_full_workers_and_a_full_queue_and_its_end_is_known() {
    let dir = tempfile::tempdir().unwrap();
    block_on(async {
        let queue = real(&dir, Options { workers: 1, queued_max: 1, ..options() });
        queue.start(workers().0);
        let mut changes = queue.changes();
        let occupies = submit(&queue, "wait").await.unwrap().id;
        while queue.job(occupies).unwrap().status != Status::Running {
            changes.recv().await.unwrap();
        }
        submit(&queue, "ok").await.unwrap();
        assert!(queue.check_room().is_err() && queue.check_adopt().is_ok());
        let (worker, effects) = follower();
        let small = body(&queue, b"order").unwrap();
        let adopted = queue.adopt(new("ok", Some(small)), worker).await.unwrap();
        assert_eq!((adopted.status, adopted.is_new), (Status::Running, true));
        let large = body(&queue, &[3; 100_000]).unwrap();
        let bad = adopt(&queue, new("bad", Some(large))).await.unwrap().id;
        assert_eq!(ends(&queue, adopted.id).await, Status::Completed);
        assert_eq!(ends(&queue, bad).await, Status::Failed);
        assert_eq!(effects.lock().unwrap()[&adopted.id], (1, b"order".to_vec()));
        let waits = adopt(&queue, new("wait", None)).await.unwrap().id;
        assert_eq!(queue.stats().by_status, [1, 2, 1, 1, 0]);
        assert_eq!(queue.open_orders().len(), 3);
        assert_eq!(queue.cancel(waits).await.unwrap(), Status::Running);
        assert_eq!(ends(&queue, waits).await, Status::Cancelled);
        queue.close(Duration::from_secs(5)).await.unwrap();
        drop(queue);
        let queue = real(&dir, options());
        let job = queue.job(adopted.id).unwrap();
        assert_eq!((job.status, job.attempts), (Status::Completed, 1));
        assert!(job.started_ms.is_some());
        assert_eq!(queue.result(adopted.id).unwrap().unwrap(), "ok: 5");
        queue.queue_again(bad).await.unwrap();
        queue.run_one(&workers().0).await;
    });
}

#[test]
fn what_may_pass_is_left_to_the_workers() {
    let dir = tempfile::tempdir().unwrap();
    block_on(async {
        let retry_after = Duration::from_millis(1);
        let queue = real(&dir, Options { retry_after, ..options() });
        let (running, effects) = workers();
        queue.start(running);
        let id = adopt(&queue, new("later", None)).await.unwrap().id;
        assert_eq!(ends(&queue, id).await, Status::Failed);
        assert_eq!(queue.job(id).unwrap().attempts, options().retries_max + 1);
        assert_eq!(effects.lock().unwrap()[&id].0, options().retries_max);
        queue.close(Duration::from_secs(5)).await.unwrap();
    });
}

#[test]
fn a_close_waits_for_adopted_work_and_what_it_interrupts_runs_again() {
    let dir = tempfile::tempdir().unwrap();
    block_on(async {
        let queue = real(&dir, options());
        queue.start(workers().0);
        let finishes = adopt(&queue, new("finish", None)).await.unwrap().id;
        let waits = adopt(&queue, new("wait", None)).await.unwrap().id;
        queue.close(Duration::from_secs(5)).await.unwrap();
        let refused = adopt(&queue, new("ok", None)).await.unwrap_err();
        assert!(matches!(refused, SubmitError::Closed), "{refused}");
        drop(queue);
        let queue = real(&dir, options());
        assert_eq!(queue.job(finishes).unwrap().status, Status::Completed);
        let job = queue.job(waits).unwrap();
        assert_eq!((job.status, job.attempts), (Status::Queued, 0));
        assert_eq!(&*job.reason, "the server was stopped");
    });
}

#[test]
fn the_number_of_adopted_jobs_is_limited() {
    let (clock, disk) = (clock(), SimFs::new(1));
    let queue = open(&disk, &clock);
    block_on(async {
        let mut refused = None;
        for count in 0..2_000 {
            if let Err(error) = adopt(&queue, new("wait", None)).await {
                refused = Some((count, error));
                break;
            }
        }
        let (count, error) = refused.unwrap();
        assert_eq!(count, 1_024);
        assert!(matches!(error, SubmitError::TooManyAdopted { running: 1_024, .. }), "{error}");
        assert!(queue.check_adopt().is_err() && queue.check_room().is_ok());
    });
}

#[test]
fn of_work_that_is_repeated_the_last_is_known() {
    let (clock, disk) = (clock(), SimFs::new(1));
    let queue = open(&disk, &clock);
    let known = |queue: &Queue| -> Vec<JobId> {
        queue.list(Filter::default(), 10).0.iter().map(|job| job.id).collect()
    };
    let (other, last) = block_on(async {
        let other = submit(&queue, "ok").await.unwrap().id;
        let mut last = None;
        for order in ["ok", "bad", "ok", "bad"] {
            let id = adopt(&queue, keyed(order, 1)).await.unwrap().id;
            ends(&queue, id).await;
            last = Some(id);
        }
        // One that has not ended stays.
        let waits = adopt(&queue, keyed("wait", 2)).await.unwrap().id;
        adopt(&queue, keyed("wait", 2)).await.unwrap();
        assert_eq!(queue.job(waits).unwrap().status, Status::Running);
        (other, last.unwrap())
    });
    assert_eq!(queue.stats().ended, [2, 2, 0]);
    assert_eq!(known(&queue)[2..], [last, other]);
    queue.shorten().unwrap();
    drop(queue);
    let queue = open(&disk, &clock);
    assert_eq!(known(&queue)[2..], [last, other]);
    assert_eq!(queue.job(last).unwrap().status, Status::Failed);
}

#[test]
fn adopted_work_runs_again_after_a_crash_and_fails_after_three() {
    let (clock, mut disk) = (clock(), SimFs::new(3));
    let queue = open(&disk, &clock);
    let id = block_on(adopt(&queue, new("wait", None))).unwrap().id;
    let (workers, _) = workers();
    for crash in 1..=2 {
        disk = disk.kill();
        let queue = open(&disk, &clock);
        assert_eq!(queue.job(id).unwrap().status, Status::Queued, "{crash}");
        block_on(async {
            let running = tokio::time::timeout(Duration::ZERO, queue.run_one(&workers));
            assert!(running.await.is_err(), "{crash}");
        });
    }
    let queue = open(&disk.kill(), &clock);
    block_on(async { while queue.run_one(&workers).await {} });
    let job = queue.job(id).unwrap();
    assert_eq!(job.status, Status::Failed);
    assert!(job.reason.contains("3 times"), "{}", job.reason);
}

/// Adopts jobs until the disk fails; returns those that were acknowledged.
async fn adopt_until_failure(queue: &Queue) -> Vec<(JobId, Vec<u8>)> {
    let mut acknowledged = Vec::new();
    for (number, size) in [(1, 0), (2, 10), (3, 100_000), (4, 5)] {
        let bytes = vec![number; size];
        let Ok(received) = body(queue, &bytes) else { break };
        let new = NewJob { body: Some(received), ..keyed("wait", number % 3) };
        let Ok(adopted) = adopt(queue, new).await else { break };
        acknowledged.push((adopted.id, bytes));
    }
    acknowledged
}

#[test]
fn every_cut_keeps_acknowledged_adopted_jobs_with_their_bodies() {
    let clock = clock();
    let whole = SimFs::new(1);
    assert_eq!(block_on(adopt_until_failure(&open(&whole, &clock))).len(), 4);
    for stop in 1..=whole.operations() {
        for fault in [Fault::Stop, Fault::Io, Fault::Full] {
            let disk = SimFs::new(stop);
            disk.plan(stop, fault);
            let opened = open_with(&disk, &clock, options());
            let acknowledged =
                opened.map(|queue| block_on(adopt_until_failure(&queue))).unwrap_or_default();
            for (disk, how) in [(disk.kill(), "killed"), (disk.power_off(stop), "power")] {
                let what = format!("{fault:?} at {stop}, {how}");
                let queue = open(&disk, &clock);
                for (id, bytes) in &acknowledged {
                    let job = queue.job(*id).unwrap_or_else(|| panic!("{what}: {id} is lost"));
                    assert_eq!(job.status, Status::Queued, "{what}");
                    assert_eq!(job.body_size, bytes.len() as u64, "{what}");
                }
                let waiting = queue.list(Filter::default(), 10).0;
                assert!(waiting.len() <= acknowledged.len() + 1, "{what}: {waiting:?}");
                let (ok, effects) = workers();
                block_on(async {
                    for number in 0..waiting.len() {
                        let mut running = std::pin::pin!(queue.run_one(&ok));
                        // They wait for their end: what they read is enough.
                        while effects.lock().unwrap().len() == number {
                            let a_while = Duration::from_millis(1);
                            if tokio::time::timeout(a_while, &mut running).await.is_ok() {
                                break;
                            }
                        }
                    }
                });
                let effects = effects.lock().unwrap();
                for (id, bytes) in &acknowledged {
                    assert_eq!(&effects[id].1, bytes, "{what}");
                }
            }
        }
    }
}

#[derive(Debug, Clone)]
enum Act {
    Adopt(&'static str, Option<u8>),
    Submit(&'static str),
    Run,
    Cancel(usize),
    Forget(usize),
    Shorten,
    Reopen,
}

fn any_act() -> impl Strategy<Value = Act> {
    let order = prop_oneof![Just("ok"), Just("bad"), Just("wait")];
    prop_oneof![
        (order, prop::option::of(0..2_u8)).prop_map(|(order, key)| Act::Adopt(order, key)),
        prop_oneof![Just("ok"), Just("bad")].prop_map(Act::Submit),
        Just(Act::Run),
        (0..8_usize).prop_map(Act::Cancel),
        (0..8_usize).prop_map(Act::Forget),
        Just(Act::Shorten),
        Just(Act::Reopen),
    ]
}

/// What is known of all jobs, those that run as those that wait: as after an opening.
fn known(queue: &Queue) -> Vec<(JobId, Status, u64, Option<u64>)> {
    let jobs = queue.list(Filter::default(), usize::MAX).0;
    let each = jobs.into_iter().map(|job| {
        let status = if job.status.is_ended() { job.status } else { Status::Queued };
        (job.id, status, job.submitted_ms, job.started_ms)
    });
    each.collect()
}

fn reopen(disk: &mut SimFs, clock: &Arc<ManualClock>, queue: Queue) -> Queue {
    let before = known(&queue);
    *disk = disk.kill();
    drop(queue);
    let queue = open(disk, clock);
    assert_eq!(known(&queue), before);
    assert_eq!(queue.stats().by_status[1], 0, "nothing runs after an opening");
    queue
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn an_opening_finds_what_was_known_whatever_was_adopted(
        acts in prop::collection::vec(any_act(), 1..20)
    ) {
        let (clock, mut disk) = (clock(), SimFs::new(1));
        let mut queue = open(&disk, &clock);
        let mut ids: Vec<JobId> = Vec::new();
        for act in acts {
            clock.advance(Duration::from_millis(7));
            let at = |ids: &[JobId], number: usize| {
                (!ids.is_empty()).then(|| ids[number % ids.len()])
            };
            match act {
                Act::Adopt(order, key) => block_on(async {
                    let new = key.map_or_else(|| new(order, None), |key| keyed(order, key));
                    let id = adopt(&queue, new).await.unwrap().id;
                    ids.push(id);
                    if order != "wait" {
                        ends(&queue, id).await;
                    }
                }),
                Act::Submit(order) => ids.push(block_on(submit(&queue, order)).unwrap().id),
                Act::Run => block_on(async {
                    let workers = workers().0;
                    let running = queue.run_one(&workers);
                    drop(tokio::time::timeout(Duration::from_millis(20), running).await);
                }),
                // Refused if its status does not permit it. The follower of one that runs ended with its
                // runtime.
                Act::Cancel(number) => {
                    if let Some(id) = at(&ids, number)
                        && queue.job(id).is_some_and(|job| job.status == Status::Queued)
                    {
                        block_on(queue.cancel(id)).unwrap();
                    }
                }
                Act::Forget(number) => {
                    if let Some(id) = at(&ids, number) {
                        drop(block_on(queue.forget(id)));
                    }
                }
                Act::Shorten => queue.shorten().unwrap(),
                Act::Reopen => queue = reopen(&mut disk, &clock, queue),
            }
            let counted = Status::ALL.map(|status| {
                let filter = Filter { status: Some(status), ..Filter::default() };
                queue.list(filter, usize::MAX).0.len()
            });
            prop_assert_eq!(queue.stats().by_status, counted);
        }
        reopen(&mut disk, &clock, queue);
    }
}
