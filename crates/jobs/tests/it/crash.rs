//! Power cuts and kills at every operation of the disk: what was acknowledged is there, and runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_base::clock::ManualClock;
use forebay_base::fs::sim::{Fault, SimFs};
use forebay_jobs::{Filter, JobId, Queue, Status};

use crate::support::{block_on, body, clock, new, open, open_with, options, submit, workers};

/// What was acknowledged of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Acknowledged {
    Accepted,
    Ended(Status),
    /// A change was requested and failed: before or after it.
    Unknown,
    Forgotten,
}

/// What the outside knows: what was acknowledged of each job, its order and its body.
type Oracle = BTreeMap<JobId, (Acknowledged, String, Vec<u8>)>;

/// A life of a queue, until the disk fails.
async fn script(queue: &Queue, oracle: &mut Oracle) -> Result<(), ()> {
    let (workers, _) = workers();
    let large = vec![7; 150_000];
    for (number, bytes) in [vec![], b"small".to_vec(), large].into_iter().enumerate() {
        for order in ["ok", "bad"] {
            let order = format!("{order} {number}");
            let received = body(queue, &bytes).map_err(drop)?;
            let submitted = queue.submit(new(&order, Some(received))).await.map_err(drop)?;
            oracle.insert(submitted.id, (Acknowledged::Accepted, order, bytes.clone()));
        }
    }
    let ids: Vec<JobId> = oracle.keys().copied().collect();
    let ended = |oracle: &mut Oracle, id, how| oracle.get_mut(&id).unwrap().0 = how;
    ended(oracle, ids[0], Acknowledged::Unknown);
    queue.cancel(ids[0]).await.map_err(drop)?;
    ended(oracle, ids[0], Acknowledged::Ended(Status::Cancelled));
    // Three of the others.
    for id in &ids[1..4] {
        ended(oracle, *id, Acknowledged::Unknown);
        assert!(queue.run_one(&workers).await);
        let status = queue.job(*id).unwrap().status;
        if !status.is_ended() {
            return Err(());
        }
        ended(oracle, *id, Acknowledged::Ended(status));
    }
    queue.shorten().map_err(drop)?;
    ended(oracle, ids[1], Acknowledged::Unknown);
    queue.queue_again(ids[1]).await.map_err(drop)?;
    ended(oracle, ids[1], Acknowledged::Accepted);
    ended(oracle, ids[2], Acknowledged::Unknown);
    queue.forget(ids[2]).await.map_err(drop)?;
    ended(oracle, ids[2], Acknowledged::Forgotten);
    submit(queue, "ok last").await.map_err(drop).map(|submitted| {
        oracle.insert(submitted.id, (Acknowledged::Accepted, "ok last".to_owned(), vec![]));
    })
}

fn check(disk: &SimFs, clock: &Arc<ManualClock>, oracle: &Oracle, what: &str) {
    let queue = open(disk, clock);
    let (workers, effects) = workers();
    for (id, (acknowledged, ..)) in oracle {
        let status = queue.job(*id).map(|job| job.status);
        match acknowledged {
            Acknowledged::Accepted => assert_eq!(status, Some(Status::Queued), "{what}: {id}"),
            Acknowledged::Ended(ended) => assert_eq!(status, Some(*ended), "{what}: {id}"),
            Acknowledged::Forgotten => assert_eq!(status, None, "{what}: {id}"),
            Acknowledged::Unknown => {}
        }
    }
    block_on(async { while queue.run_one(&workers).await {} });
    let effects = effects.lock().unwrap();
    for (id, (acknowledged, order, bytes)) in oracle {
        let Some(job) = queue.job(*id) else { continue };
        assert!(job.status.is_ended(), "{what}: {id} is {:?}", job.status);
        if *acknowledged == Acknowledged::Accepted {
            let (runs, read) = &effects[id];
            assert_eq!((*runs, read), (1, bytes), "{what}: {id}");
        }
        let result = queue.result(*id).unwrap().unwrap();
        match job.status {
            Status::Completed => {
                let expected = format!("{order}: {}", bytes.len());
                assert_eq!(result, expected.as_bytes(), "{what}: {id}");
            }
            Status::Failed => assert_eq!(&*job.reason, "it is bad", "{what}: {id}"),
            _ => assert_eq!(job.status, Status::Cancelled, "{what}: {id}"),
        }
    }
    // Jobs of failed submissions may be there, and whole.
    for job in queue.list(Filter::default(), 1_000).0 {
        assert!(job.status.is_ended(), "{what}: {job:?}");
        assert!(!job.reason.contains("body"), "{what}: {job:?}");
    }
}

fn stride() -> u64 {
    std::env::var("FOREBAY_CRASH_STRIDE").ok().and_then(|text| text.parse().ok()).unwrap_or(7)
}

#[test]
fn every_cut_keeps_what_was_acknowledged_and_every_accepted_job_runs() {
    let clock = clock();
    let whole = SimFs::new(1);
    let mut oracle = Oracle::new();
    let queue = open(&whole, &clock);
    let first = whole.operations();
    block_on(script(&queue, &mut oracle)).unwrap();
    let last = whole.operations();
    assert!(last - first > 40, "{}", last - first);
    drop(queue);
    check(&whole.kill(), &clock, &oracle, "at the end");
    for stop in (1..=last).step_by(usize::try_from(stride()).unwrap()) {
        for fault in [Fault::Stop, Fault::Io, Fault::Full] {
            let disk = SimFs::new(stop);
            disk.plan(stop, fault);
            let mut oracle = Oracle::new();
            if let Ok(queue) = open_with(&disk, &clock, options()) {
                let done = block_on(script(&queue, &mut oracle));
                assert!(done.is_err() || !disk.stopped(), "{stop}");
            }
            let what = format!("{fault:?} at {stop}");
            check(&disk.kill(), &clock, &oracle, &format!("{what}, killed"));
            for seed in 0..3 {
                check(&disk.power_off(seed), &clock, &oracle, &format!("{what}, power {seed}"));
            }
        }
    }
}

#[test]
fn a_job_that_runs_at_three_crashes_fails_and_holds_up_no_other() {
    let (clock, mut disk) = (clock(), SimFs::new(3));
    let id = block_on(async { submit(&open(&disk, &clock), "wait").await }).unwrap().id;
    let (workers, _) = workers();
    for crash in 1..=3 {
        let queue = open(&disk, &clock);
        block_on(async {
            // The process ends while it runs.
            let running = tokio::time::timeout(std::time::Duration::ZERO, queue.run_one(&workers));
            assert!(running.await.is_err(), "{crash}");
        });
        disk = disk.kill();
    }
    let queue = open(&disk, &clock);
    let other = block_on(submit(&queue, "ok")).unwrap().id;
    block_on(async { while queue.run_one(&workers).await {} });
    let job = queue.job(id).unwrap();
    assert_eq!(job.status, Status::Failed);
    assert!(job.reason.contains("3 times"), "{}", job.reason);
    assert_eq!(queue.job(other).unwrap().status, Status::Completed);
}

#[test]
fn a_job_that_cuts_the_power_each_time_fails_though_its_first_start_may_be_lost() {
    for seed in 0..20 {
        let (clock, mut disk) = (clock(), SimFs::new(seed));
        let (workers, _) = workers();
        let mut queue = open(&disk, &clock);
        let id = block_on(submit(&queue, "wait")).unwrap().id;
        for cut in 0.. {
            let started = block_on(async {
                let running = queue.run_one(&workers);
                tokio::time::timeout(std::time::Duration::ZERO, running).await.is_err()
            });
            if !started {
                break;
            }
            assert!(cut < 4, "seed {seed}: it started again after {cut} cuts");
            disk = disk.power_off(seed + cut);
            drop(queue);
            queue = open(&disk, &clock);
        }
        let job = queue.job(id).unwrap();
        assert_eq!(job.status, Status::Failed, "seed {seed}");
        assert!(job.reason.contains("3 times"), "{}", job.reason);
    }
}

#[test]
fn what_a_full_disk_refuses_is_not_accepted_and_leaves_nothing() {
    let (clock, disk) = (clock(), SimFs::new(4));
    let queue = open(&disk, &clock);
    let kept = block_on(submit(&queue, "ok")).unwrap().id;
    disk.set_capacity(Some(0));
    assert!(body(&queue, &[1; 100_000]).is_err());
    drop(queue);
    disk.set_capacity(None);
    let queue = open(&disk, &clock);
    assert_eq!(queue.stats().bodies_bytes, 0);
    assert_eq!(queue.job(kept).unwrap().status, Status::Queued);
}

#[test]
fn no_flipped_bit_of_a_body_reaches_a_worker() {
    let (clock, disk) = (clock(), SimFs::new(5));
    let queue = open(&disk, &clock);
    let large = body(&queue, &[9; 100_000]).unwrap();
    let id = block_on(queue.submit(new("ok", Some(large)))).unwrap().id;
    drop(queue);
    let path = options().dir.join("bodies").join(id.to_string());
    for offset in [0, 50_000, 99_999] {
        let disk = disk.fork();
        disk.corrupt(&path, offset, 1).unwrap();
        let queue = open(&disk, &clock);
        let (workers, effects) = workers();
        block_on(queue.run_one(&workers));
        assert!(effects.lock().unwrap().is_empty(), "{offset}");
        assert!(queue.job(id).unwrap().reason.contains("damaged"), "{offset}");
    }
}
