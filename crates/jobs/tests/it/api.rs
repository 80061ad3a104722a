//! What callers see of a queue that runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_base::clock::{Clock as _, ManualClock, SystemClock};
use forebay_base::fs::RealFs;
use forebay_base::fs::sim::SimFs;
use forebay_jobs::{
    Filter, JobError, JobId, NewJob, Options, Priority, Queue, Status, SubmitError,
};

use crate::support::{block_on, body, clock, new, open, open_with, options, submit, workers};

/// Waits until a job has a status.
async fn reaches(queue: &Queue, id: JobId, wanted: impl Fn(Status) -> bool) -> Status {
    let mut changes = queue.changes();
    loop {
        let status = queue.job(id).unwrap().status;
        if wanted(status) {
            return status;
        }
        changes.recv().await.unwrap();
    }
}

fn real(dir: &tempfile::TempDir) -> (Queue, Options) {
    let options = Options {
        retry_after: Duration::from_millis(1),
        workers: 2,
        ..Options::new(dir.path().join("jobs"))
    };
    let clock = Arc::new(SystemClock::new());
    (Queue::open(Arc::new(RealFs), clock, options.clone()).unwrap(), options)
}

#[test]
fn jobs_run_and_their_results_are_known_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    block_on(async {
        let (queue, options) = real(&dir);
        let (running, effects) = workers();
        queue.start(running);
        let large = body(&queue, &[3; 200_000]).unwrap();
        let large = queue.submit(new("ok", Some(large))).await.unwrap().id;
        let bad = submit(&queue, "bad").await.unwrap().id;
        let panics = submit(&queue, "panic").await.unwrap().id;
        assert_eq!(reaches(&queue, large, Status::is_ended).await, Status::Completed);
        assert_eq!(reaches(&queue, bad, Status::is_ended).await, Status::Failed);
        assert_eq!(reaches(&queue, panics, Status::is_ended).await, Status::Failed);
        assert_eq!(queue.result(large).unwrap().unwrap(), "ok: 200000");
        assert_eq!(effects.lock().unwrap()[&large].1.len(), 200_000);
        queue.close(Duration::from_secs(5)).await.unwrap();
        // It is removed after the status is known.
        assert_eq!(queue.stats().bodies_bytes, 0, "the body is not needed any more");
        assert!(matches!(submit(&queue, "ok").await, Err(SubmitError::Closed)));
        drop(queue);
        let clock = Arc::new(SystemClock::new());
        let queue = Queue::open(Arc::new(RealFs), clock, options).unwrap();
        assert_eq!(queue.result(large).unwrap().unwrap(), "ok: 200000");
        assert_eq!(queue.job(bad).unwrap().status, Status::Failed);
        assert!(queue.job(panics).unwrap().reason.contains("bug"));
    });
}

#[test]
fn what_may_pass_is_tried_again_and_fails_after_the_last_attempt() {
    let dir = tempfile::tempdir().unwrap();
    block_on(async {
        let (queue, options) = real(&dir);
        let (running, effects) = workers();
        queue.start(running);
        let id = submit(&queue, "later").await.unwrap().id;
        assert_eq!(reaches(&queue, id, Status::is_ended).await, Status::Failed);
        let job = queue.job(id).unwrap();
        assert_eq!((job.attempts, &*job.reason), (options.retries_max + 1, "not yet"));
        assert_eq!(effects.lock().unwrap()[&id].0, options.retries_max + 1);
        assert_eq!(queue.stats().retries, u64::from(options.retries_max));
        queue.queue_again(id).await.unwrap();
        assert_eq!(reaches(&queue, id, Status::is_ended).await, Status::Failed);
        assert_eq!(effects.lock().unwrap()[&id].0, 2 * (options.retries_max + 1));
        queue.close(Duration::from_secs(5)).await.unwrap();
    });
}

#[test]
fn long_jobs_leave_a_worker_to_the_others_and_running_ones_can_be_cancelled() {
    let dir = tempfile::tempdir().unwrap();
    block_on(async {
        let (queue, _) = real(&dir);
        let (running, _) = workers();
        queue.start(running);
        let first = submit(&queue, "wait long").await.unwrap().id;
        let second = submit(&queue, "wait long").await.unwrap().id;
        let short = submit(&queue, "ok").await.unwrap().id;
        assert_eq!(reaches(&queue, short, Status::is_ended).await, Status::Completed);
        assert_eq!(queue.job(second).unwrap().status, Status::Queued);
        assert_eq!(queue.cancel(second).await.unwrap(), Status::Cancelled);
        reaches(&queue, first, |status| status == Status::Running).await;
        assert_eq!(queue.cancel(first).await.unwrap(), Status::Running);
        assert_eq!(reaches(&queue, first, Status::is_ended).await, Status::Cancelled);
        let refused = queue.cancel(first).await.unwrap_err();
        assert!(matches!(refused, JobError::Status { status: "cancelled", .. }), "{refused}");
        queue.close(Duration::from_secs(5)).await.unwrap();
    });
}

#[test]
fn a_job_that_completes_while_the_queue_is_closed_does_not_run_again() {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(3).enable_all().build().unwrap();
    for _ in 0..20 {
        let dir = tempfile::tempdir().unwrap();
        runtime.block_on(async {
            let (queue, options) = real(&dir);
            let (running, _) = workers();
            queue.start(running);
            let first = submit(&queue, "finish").await.unwrap().id;
            let second = submit(&queue, "finish").await.unwrap().id;
            for id in [first, second] {
                reaches(&queue, id, |status| status == Status::Running).await;
            }
            queue.close(Duration::from_secs(5)).await.unwrap();
            assert_eq!(queue.stats().by_status, [0, 0, 2, 0, 0]);
            drop(queue);
            let clock = Arc::new(SystemClock::new());
            let queue = Queue::open(Arc::new(RealFs), clock, options).unwrap();
            assert_eq!(queue.stats().by_status, [0, 0, 2, 0, 0]);
        });
    }
}

#[test]
fn an_interrupted_job_runs_again_and_the_attempt_does_not_count() {
    let dir = tempfile::tempdir().unwrap();
    block_on(async {
        let (queue, options) = real(&dir);
        let (running, _) = workers();
        queue.start(running);
        let id = submit(&queue, "wait").await.unwrap().id;
        reaches(&queue, id, |status| status == Status::Running).await;
        queue.close(Duration::from_secs(5)).await.unwrap();
        drop(queue);
        let clock = Arc::new(SystemClock::new());
        let queue = Queue::open(Arc::new(RealFs), clock, options).unwrap();
        let job = queue.job(id).unwrap();
        assert_eq!((job.status, job.attempts), (Status::Queued, 0));
    });
}

#[test]
fn a_full_queue_refuses_and_keeps_no_body() {
    let (clock, disk) = (clock(), SimFs::new(1));
    let small = Options { queued_max: 2, bodies_size_max: 150_000, ..options() };
    let queue = open_with(&disk, &clock, small).unwrap();
    block_on(async {
        let first = body(&queue, &[1; 100_000]).unwrap();
        assert!(body(&queue, &[1; 100_000]).is_err(), "all bodies together are limited");
        queue.submit(new("ok", Some(first))).await.unwrap();
        submit(&queue, "ok").await.unwrap();
        assert!(queue.check_room().is_err());
        let refused = submit(&queue, "ok").await.unwrap_err();
        assert!(matches!(refused, SubmitError::Full { waiting: 2, max: 2 }), "{refused}");
    });
    assert_eq!(queue.stats().bodies_bytes, 100_000);
}

#[test]
fn a_key_names_one_job_until_it_is_forgotten() {
    let (clock, disk) = (clock(), SimFs::new(1));
    let queue = open(&disk, &clock);
    let keyed =
        |fingerprint: u8| NewJob { key: Some(([1; 16], [fingerprint; 16])), ..new("ok", None) };
    let (workers, effects) = workers();
    let id = block_on(async {
        let first = queue.submit(keyed(1)).await.unwrap();
        let again = queue.submit(keyed(1)).await.unwrap();
        assert_eq!((again.id, again.is_new), (first.id, false));
        let other = queue.submit(keyed(2)).await.unwrap_err();
        assert!(matches!(other, SubmitError::KeyReused { job } if job == first.id), "{other}");
        queue.run_one(&workers).await;
        first.id
    });
    drop(queue);
    let queue = open(&disk, &clock);
    block_on(async {
        let again = queue.submit(keyed(1)).await.unwrap();
        assert_eq!((again.id, again.status), (id, Status::Completed));
        assert!(!queue.run_one(&workers).await);
        assert_eq!(effects.lock().unwrap()[&id].0, 1);
        queue.forget(id).await.unwrap();
        assert!(queue.submit(keyed(2)).await.unwrap().is_new);
    });
}

#[test]
fn ended_jobs_are_forgotten_after_their_time_and_the_oldest_of_too_many() {
    let (clock, disk) = (clock(), SimFs::new(1));
    let few = Options { ended_max: 3, ..options() };
    let queue = open_with(&disk, &clock, few.clone()).unwrap();
    let (workers, _) = workers();
    let mut ids = Vec::new();
    block_on(async {
        for order in ["ok", "ok", "bad", "ok", "ok"] {
            ids.push(submit(&queue, order).await.unwrap().id);
            clock.advance(Duration::from_secs(1));
            queue.run_one(&workers).await;
        }
    });
    drop(queue);
    let known = |queue: &Queue| -> Vec<JobId> {
        let mut known: Vec<_> =
            queue.list(Filter::default(), 10).0.iter().map(|job| job.id).collect();
        known.reverse();
        known
    };
    let queue = open_with(&disk, &clock, few).unwrap();
    assert_eq!(known(&queue), ids[2..]);
    // Whatever else is forgotten, and however many are kept.
    block_on(queue.forget(ids[3])).unwrap();
    drop(queue);
    assert_eq!(known(&open(&disk, &clock)), [ids[2], ids[4]]);
    clock.advance(Duration::from_secs(25 * 3600));
    assert_eq!(known(&open(&disk, &clock)), ids[2..3], "failed jobs are kept longer");
    clock.advance(Duration::from_secs(7 * 24 * 3600));
    assert!(known(&open(&disk, &clock)).is_empty());
}

#[test]
fn a_log_that_a_follower_needs_is_shortened_up_to_there() {
    let (clock, disk) = (clock(), SimFs::new(1));
    let small = Options { segment_size: 64 << 10, ..options() };
    let queue = open_with(&disk, &clock, small).unwrap();
    let (workers, _) = workers();
    let begin = queue.acknowledged();
    let needed = Arc::new(AtomicU64::new(begin));
    let from = Arc::clone(&needed);
    queue.hold_log(move || Some(from.load(Ordering::Relaxed)));
    block_on(async {
        for _ in 0..40 {
            let large = body(&queue, &[7; 10_000]).unwrap();
            let id = queue.submit(new("ok", Some(large))).await.unwrap().id;
            while queue.run_one(&workers).await {}
            queue.forget(id).await.unwrap();
        }
    });
    let ends = |from: u64| {
        let (mut at, mut count, mut lost) = (from, 0, false);
        loop {
            let found = queue.endings(at, u64::MAX).unwrap();
            (count, lost) = (count + found.endings.len(), lost || found.lost.is_some());
            if found.reached == at {
                return (count, lost);
            }
            at = found.reached;
        }
    };
    queue.shorten().unwrap();
    assert_eq!(ends(begin), (40, false));
    needed.store(queue.acknowledged(), Ordering::Relaxed);
    queue.shorten().unwrap();
    assert!(ends(begin).1, "what is no longer needed was truncated");
}

#[test]
fn a_shortened_log_says_the_same() {
    let (clock, disk) = (clock(), SimFs::new(1));
    let queue = open(&disk, &clock);
    let (workers, effects) = workers();
    let describe = |queue: &Queue| {
        let (jobs, _) = queue.list(Filter::default(), 100);
        let each = jobs.into_iter().map(|job| {
            let result = queue.result(job.id).unwrap();
            let times = (job.submitted_ms, job.started_ms, job.ended_ms);
            (job.id, job.status, job.attempts, job.reason, job.body_size, times, result)
        });
        each.collect::<Vec<_>>()
    };
    let waiting = block_on(async {
        for order in ["ok", "bad", "later"] {
            let small = body(&queue, order.as_bytes()).unwrap();
            queue.submit(new(order, Some(small))).await.unwrap();
            queue.run_one(&workers).await;
        }
        let low = body(&queue, b"inline").unwrap();
        let low = NewJob { priority: Priority::Low, ..new("ok low", Some(low)) };
        queue.submit(low).await.unwrap().id
    });
    let before = describe(&queue);
    assert_eq!(before.len(), 4);
    for _ in 0..3 {
        queue.shorten().unwrap();
        assert_eq!(describe(&queue), before);
    }
    drop(queue);
    let queue = open(&disk, &clock);
    assert_eq!(describe(&queue), before);
    assert_eq!(queue.job(waiting).unwrap().priority, Priority::Low);
    clock.advance(Duration::from_secs(3600));
    block_on(async { while queue.run_one(&workers).await {} });
    assert_eq!(effects.lock().unwrap()[&waiting].1, b"inline");
}

#[test]
fn the_ends_of_jobs_are_followed_by_position_also_behind_a_shortened_log() {
    let (clock, disk) = (clock(), SimFs::new(1));
    let queue = open(&disk, &clock);
    let (workers, _) = workers();
    let begin = queue.acknowledged();
    let ids: Vec<JobId> = block_on(async {
        let mut ids = Vec::new();
        for order in ["ok", "bad", "ok"] {
            ids.push(submit(&queue, order).await.unwrap().id);
            while queue.run_one(&workers).await {}
        }
        ids
    });
    let follow = |mut at: u64| {
        let (mut seen, mut lost) = (Vec::new(), false);
        loop {
            let found = queue.endings(at, 1).unwrap();
            lost |= found.lost.is_some();
            let ends = found.endings.iter();
            seen.extend(ends.map(|end| (end.id, end.status, end.order.clone(), end.is_restated)));
            if found.reached == at {
                return (seen, lost, at);
            }
            at = found.reached;
        }
    };
    let expected = |is_restated: bool| {
        let order = |text: &'static str| Some(bytes::Bytes::from_static(text.as_bytes()));
        vec![
            (ids[0], Status::Completed, order("ok"), is_restated),
            (ids[1], Status::Failed, order("bad"), is_restated),
            (ids[2], Status::Completed, order("ok"), is_restated),
        ]
    };
    let (seen, lost, reached) = follow(begin);
    assert_eq!((seen, lost), (expected(false), false));
    queue.shorten().unwrap();
    // One that had read everything only meets the same again, and knows it by that.
    assert_eq!(follow(reached).0, expected(true));
    let before = queue.acknowledged();
    for _ in 0..3 {
        queue.shorten().unwrap();
    }
    let (seen, lost, end) = follow(begin);
    // Segments are truncated whole: whether one was depends on their size.
    assert!(seen.ends_with(&expected(true)) && (lost || seen.len() > 3), "{seen:?}");
    assert!(end > before);
}

#[test]
fn lists_are_pages_by_status_from_the_newest() {
    let (clock, disk) = (clock(), SimFs::new(1));
    let queue = open(&disk, &clock);
    let (workers, _) = workers();
    let ids: Vec<JobId> = block_on(async {
        let mut ids = Vec::new();
        for _ in 0..5 {
            ids.push(submit(&queue, "ok").await.unwrap().id);
        }
        queue.run_one(&workers).await;
        ids
    });
    let filter = Filter { status: Some(Status::Queued), before: None };
    let (page, more) = queue.list(filter, 3);
    assert_eq!(page.iter().map(|job| job.id).collect::<Vec<_>>(), [ids[4], ids[3], ids[2]]);
    assert!(more);
    let (page, more) = queue.list(Filter { before: Some(ids[2]), ..filter }, 3);
    assert_eq!((page.len(), page[0].id, more), (1, ids[1], false));
    assert_eq!(queue.oldest_runnable_ms(), Some(crate::support::START_MS));
    assert_eq!(queue.stats().by_status, [4, 0, 1, 0, 0]);
}

/// The counts that the statistics must have, from a list of all jobs.
fn assert_counted(queue: &Queue, clock: &ManualClock) {
    let all = queue.list(Filter::default(), usize::MAX).0;
    let count = |status| all.iter().filter(|job| job.status == status).count();
    let stats = queue.stats();
    assert_eq!(stats.by_status, Status::ALL.map(count));
    let waiting = all.iter().filter(|job| job.status == Status::Queued);
    let oldest = waiting.map(|job| clock.now_ms() - job.submitted_ms).max();
    assert_eq!(stats.oldest_waiting_ms, oldest.unwrap_or(0));
}

#[test]
fn the_statistics_are_those_of_the_list_after_every_change_and_a_restart() {
    let (clock, disk) = (clock(), SimFs::new(1));
    let queue = open(&disk, &clock);
    let (workers, _) = workers();
    block_on(async {
        let mut ids = Vec::new();
        for order in ["bad", "ok", "later", "ok", "bad"] {
            ids.push(submit(&queue, order).await.unwrap().id);
            clock.advance(Duration::from_millis(10));
            assert_counted(&queue, &clock);
        }
        queue.cancel(ids[3]).await.unwrap();
        assert_counted(&queue, &clock);
        while queue.run_one(&workers).await {
            assert_counted(&queue, &clock);
        }
        queue.queue_again(ids[0]).await.unwrap();
        assert_counted(&queue, &clock);
        for ended in [ids[1], ids[3], ids[4]] {
            queue.forget(ended).await.unwrap();
            assert_counted(&queue, &clock);
        }
    });
    drop(queue);
    let queue = open(&disk, &clock);
    assert_counted(&queue, &clock);
    queue.shorten().unwrap();
    drop(queue);
    assert_counted(&open(&disk, &clock), &clock);
}
