//! Work on several threads, of which one hands out what is to be done.
//!
//! Invariants: at most a few jobs wait; the first failure ends all, and is the one that is returned.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use anyhow::bail;
use parking_lot::Mutex;

/// Number of jobs that wait for a thread.
const WAITING: usize = 2;

/// Where jobs are handed out.
pub(super) struct Feed<'a, J> {
    jobs: SyncSender<J>,
    has_failed: &'a AtomicBool,
}

impl<J> Feed<'_, J> {
    /// Hands out a job; waits for a thread.
    ///
    /// # Errors
    /// An earlier job failed: then nothing more is to be handed out.
    pub(super) fn send(&self, job: J) -> anyhow::Result<()> {
        if self.has_failed.load(Ordering::Acquire) || self.jobs.send(job).is_err() {
            bail!("a thread of this command has failed");
        }
        Ok(())
    }
}

/// Calls `work` on at most `workers` threads with each job that `feed` hands out.
///
/// # Errors
/// The first of `work`, or that of `feed`.
pub(super) fn each<J: Send, R>(
    workers: usize,
    work: impl Fn(J) -> anyhow::Result<()> + Sync,
    feed: impl FnOnce(&Feed<'_, J>) -> anyhow::Result<R>,
) -> anyhow::Result<R> {
    let (sender, receiver) = sync_channel(WAITING);
    let (receiver, failure) = (Mutex::new(receiver), Mutex::new(None));
    let has_failed = AtomicBool::new(false);
    let fed = std::thread::scope(|scope| {
        for _ in 0..workers.max(1) {
            scope.spawn(|| {
                while let Some(job) = next(&receiver) {
                    // After a failure jobs are only taken, so that nothing waits for ever.
                    if has_failed.load(Ordering::Acquire) {
                        continue;
                    }
                    if let Err(error) = work(job) {
                        failure.lock().get_or_insert(error);
                        has_failed.store(true, Ordering::Release);
                    }
                }
            });
        }
        let to = Feed { jobs: sender, has_failed: &has_failed };
        feed(&to)
    });
    match failure.into_inner() {
        Some(error) => Err(error),
        None => fed,
    }
}

fn next<J>(jobs: &Mutex<Receiver<J>>) -> Option<J> {
    jobs.lock().recv().ok()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn every_job_is_done_once() {
        for workers in [0, 1, 4] {
            let sum = AtomicUsize::new(0);
            let work = |job: usize| {
                sum.fetch_add(job, Ordering::Relaxed);
                Ok(())
            };
            let count = each(workers, work, |feed| {
                (1..=100).try_for_each(|job| feed.send(job))?;
                Ok(100)
            });
            assert_eq!((count.unwrap(), sum.into_inner()), (100, 5_050));
        }
    }

    #[test]
    fn the_first_failure_ends_everything_and_is_returned() {
        for workers in [1, 4] {
            let done = AtomicUsize::new(0);
            let work = |job: usize| {
                done.fetch_add(1, Ordering::Relaxed);
                if job == 3 { bail!("job {job}") } else { Ok(()) }
            };
            let all = each(workers, work, |feed| {
                for job in 0.. {
                    feed.send(job)?;
                }
                Ok(())
            });
            assert_eq!(all.unwrap_err().to_string(), "job 3");
        }
        let fed = each(2, |(): ()| Ok(()), |_| -> anyhow::Result<()> { bail!("fed") });
        assert_eq!(fed.unwrap_err().to_string(), "fed");
    }
}
