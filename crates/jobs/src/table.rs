//! Jobs in memory, and whose turn it is.
//!
//! Invariants:
//! - A job is in exactly one place: waiting by priority, waiting for a time, running, or ended.
//! - Of the jobs that start while all priorities wait, 8 of 13 are high, 4 normal and 1 low: smooth
//!   weighted round robin, so that no priority starves.
//! - Jobs of one priority start in the order in which they were submitted or became due.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use forebay_log::Lsn;

use crate::format::{Key, StoredBody, Submitted};
use crate::id::JobId;
use crate::status::{EndCounts, Priority, Status};
use crate::workers::Control;

/// Where the body of a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Body {
    None,
    /// In the entry that states the job.
    Inline(u64),
    File {
        size: u64,
        sha256: [u8; 32],
    },
}

impl Body {
    pub(crate) fn size(self) -> u64 {
        match self {
            Self::None => 0,
            Self::Inline(size) | Self::File { size, .. } => size,
        }
    }
}

/// A job.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) priority: Priority,
    pub(crate) work: Arc<str>,
    pub(crate) key: Option<Key>,
    pub(crate) order: Bytes,
    pub(crate) body: Body,
    /// The entry that states what it was submitted with, and the position after it.
    pub(crate) stated: (Lsn, Lsn),
    pub(crate) submitted_ms: u64,
    pub(crate) state: State,
    /// Attempts that were started.
    pub(crate) attempts: u32,
    /// Times that the process ended while it ran.
    pub(crate) crashes: u32,
    /// It may be what ended the process: it was there at the opening, or has failed before. Its start is
    /// durable before it runs.
    pub(crate) is_suspect: bool,
    /// Why the last attempt failed.
    pub(crate) reason: Arc<str>,
    pub(crate) started_ms: u64,
    /// Entries about it so far.
    pub(crate) changes: u64,
}

/// Where a job is.
#[derive(Debug, Clone)]
pub(crate) enum State {
    Waiting {
        /// When its next attempt is due; 0: at once.
        due_ms: u64,
    },
    Running(Arc<Control>),
    /// An entry says that it has ended; it is not acknowledged yet.
    Ending {
        end: Lsn,
    },
    Ended {
        status: Status,
        at_ms: u64,
        /// The entry with its result, and the size of that.
        result: (Lsn, usize),
    },
}

impl Job {
    pub(crate) fn status(&self) -> Status {
        match &self.state {
            State::Waiting { .. } => Status::Queued,
            State::Running(_) | State::Ending { .. } => Status::Running,
            State::Ended { status, .. } => *status,
        }
    }

    /// A job that waits; where it is stated is not known yet.
    pub(crate) fn new(submitted: &Submitted<'_>, submitted_ms: u64) -> Self {
        Self {
            priority: submitted.priority,
            work: submitted.work.into(),
            key: submitted.key,
            order: Bytes::copy_from_slice(submitted.order),
            body: match submitted.body {
                StoredBody::None => Body::None,
                StoredBody::Inline(bytes) => Body::Inline(bytes.len() as u64),
                StoredBody::File { size, sha256 } => Body::File { size, sha256 },
            },
            stated: (Lsn(0), Lsn(0)),
            submitted_ms,
            state: State::Waiting { due_ms: 0 },
            attempts: 0,
            crashes: 0,
            is_suspect: false,
            reason: "".into(),
            started_ms: 0,
            changes: 0,
        }
    }

    /// What it was submitted with, without a body that is in the log.
    pub(crate) fn submitted(&self) -> Submitted<'_> {
        let body = match self.body {
            Body::None | Body::Inline(_) => StoredBody::None,
            Body::File { size, sha256 } => StoredBody::File { size, sha256 },
        };
        let (priority, key) = (self.priority, self.key);
        Submitted { priority, work: &self.work, key, order: &self.order, body }
    }

    /// Whether its file must be there.
    pub(crate) fn needs_file(&self) -> bool {
        let may_run = !self.status().is_ended() || self.status() == Status::Failed;
        may_run && matches!(self.body, Body::File { .. })
    }

    /// Whether nothing an entry states has changed.
    pub(crate) fn is_same_as(&self, other: &Self) -> bool {
        let state = match (&self.state, &other.state) {
            (State::Waiting { due_ms }, State::Waiting { due_ms: other }) => due_ms == other,
            (State::Running(control), State::Running(other)) => Arc::ptr_eq(control, other),
            (State::Ended { result, .. }, State::Ended { result: other, .. }) => result == other,
            _ => false,
        };
        state && self.stated == other.stated && self.attempts == other.attempts
    }

    /// Bytes that it needs in a log without superseded entries.
    pub(crate) fn stated_size(&self) -> u64 {
        let result = match &self.state {
            State::Ended { result: (_, size), .. } => *size as u64,
            _ => 0,
        };
        let inline = if let Body::Inline(size) = self.body { size } else { 0 };
        200 + self.order.len() as u64 + self.reason.len() as u64 + inline + result
    }
}

/// All jobs.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) jobs: BTreeMap<JobId, Job>,
    by_key: HashMap<[u8; 16], JobId>,
    /// By priority.
    ready: [VecDeque<JobId>; 3],
    credit: [i32; 3],
    due: BTreeSet<(u64, JobId)>,
    /// Number of jobs that workers run, and of those that take long among them.
    pub(crate) running: usize,
    pub(crate) long_running: usize,
    /// Number of jobs that run beside the workers.
    pub(crate) adopted: usize,
    /// Jobs that may still run, failed ones included, by the time of their submission.
    pub(crate) open: BTreeSet<(u64, JobId)>,
    /// Ended jobs by the time of their end.
    pub(crate) ended: BTreeSet<(u64, JobId)>,
    /// Number of those, by how they ended.
    ended_counts: EndCounts,
    pub(crate) closed: bool,
    /// Jobs that ended since the opening.
    pub(crate) ends: EndCounts,
    /// Attempts that failed and were tried again, since the opening.
    pub(crate) retries: u64,
}

impl Table {
    /// Adds a job that waits.
    pub(crate) fn add(&mut self, id: JobId, job: Job) {
        self.remove(id);
        if let Some(key) = job.key {
            self.by_key.insert(key.key, id);
        }
        let state = job.state.clone();
        self.open.insert((job.submitted_ms, id));
        self.jobs.insert(id, job);
        if let State::Waiting { due_ms } = state {
            self.place(id, due_ms);
        }
    }

    /// Lets a job wait for its turn, or for a time.
    pub(crate) fn wait(&mut self, id: JobId, due_ms: u64) {
        self.leave(id);
        self.place(id, due_ms);
    }

    /// Adds a job that is in no place to those that wait.
    fn place(&mut self, id: JobId, due_ms: u64) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.state = State::Waiting { due_ms };
        if due_ms == 0 {
            self.ready[job.priority.index()].push_back(id);
        } else {
            self.due.insert((due_ms, id));
        }
    }

    /// Takes a job out of the place where it is; its next state is to be set by the caller.
    pub(crate) fn leave(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(&id) else { return };
        match job.state {
            State::Waiting { due_ms: 0 } => {
                let ready = &mut self.ready[job.priority.index()];
                if ready.front() == Some(&id) {
                    ready.pop_front();
                } else {
                    ready.retain(|waiting| *waiting != id);
                }
            }
            State::Waiting { due_ms } => {
                self.due.remove(&(due_ms, id));
            }
            State::Ended { at_ms, status, .. } => {
                if self.ended.remove(&(at_ms, id)) {
                    self.ended_counts.subtract(status);
                }
            }
            State::Running(_) | State::Ending { .. } => {}
        }
    }

    /// Number of jobs that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.ready.iter().map(VecDeque::len).sum::<usize>() + self.due.len()
    }

    /// The job with a key.
    pub(crate) fn by_key(&self, key: &[u8; 16]) -> Option<(JobId, &Job)> {
        let id = self.by_key.get(key)?;
        self.jobs.get(id).map(|job| (*id, job))
    }

    /// Marks a job as ended.
    pub(crate) fn end(&mut self, id: JobId, status: Status, at_ms: u64, result: (Lsn, usize)) {
        self.leave(id);
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.state = State::Ended { status, at_ms, result };
        // A failed one may be queued again.
        if status == Status::Failed {
            self.open.insert((job.submitted_ms, id));
        } else {
            self.open.remove(&(job.submitted_ms, id));
        }
        self.ended.insert((at_ms, id));
        self.ended_counts.add(status);
    }

    /// Number of jobs with each status, in the order of [`Status::ALL`].
    pub(crate) fn by_status(&self) -> [usize; 5] {
        let waiting = self.waiting();
        let running = self.jobs.len() - waiting - self.ended.len();
        let EndCounts { completed, failed, cancelled } = self.ended_counts;
        let ended = [completed, failed, cancelled];
        let [completed, failed, cancelled] =
            ended.map(|count| usize::try_from(count).unwrap_or(usize::MAX));
        [waiting, running, completed, failed, cancelled]
    }

    /// When the oldest job that waits was submitted.
    pub(crate) fn oldest_waiting_ms(&self) -> Option<u64> {
        let waits = |id| {
            let job = self.jobs.get(id);
            job.is_some_and(|job| matches!(job.state, State::Waiting { .. }))
        };
        self.open.iter().find(|(_, id)| waits(id)).map(|(submitted_ms, _)| *submitted_ms)
    }

    /// Forgets a job.
    pub(crate) fn remove(&mut self, id: JobId) -> Option<Job> {
        self.leave(id);
        let job = self.jobs.remove(&id)?;
        self.open.remove(&(job.submitted_ms, id));
        if let Some(key) = job.key
            && self.by_key.get(&key.key) == Some(&id)
        {
            self.by_key.remove(&key.key);
        }
        Some(job)
    }

    /// Queues a job that has ended again.
    pub(crate) fn queue_again(&mut self, id: JobId) {
        self.leave(id);
        let Some(job) = self.jobs.get_mut(&id) else { return };
        (job.attempts, job.crashes, job.is_suspect) = (0, 0, true);
        self.open.insert((job.submitted_ms, id));
        self.place(id, 0);
    }

    pub(crate) fn has_ended(&self, id: JobId) -> bool {
        self.jobs.get(&id).is_some_and(|job| job.status().is_ended())
    }

    /// Whether a job runs, and no entry says yet how its attempt ended.
    pub(crate) fn is_running(&self, id: JobId) -> bool {
        self.jobs.get(&id).is_some_and(|job| matches!(job.state, State::Running(_)))
    }

    /// Whether a job waits or runs, and no entry says yet that it has ended.
    pub(crate) fn is_open(&self, id: JobId) -> bool {
        let state = self.jobs.get(&id).map(|job| &job.state);
        matches!(state, Some(State::Waiting { .. } | State::Running(_)))
    }

    /// The jobs that run.
    pub(crate) fn running_jobs(&self) -> Vec<(JobId, Arc<Control>)> {
        let running = self.jobs.iter().filter_map(|(id, job)| match &job.state {
            State::Running(control) => Some((*id, Arc::clone(control))),
            _ => None,
        });
        running.collect()
    }

    /// Moves jobs whose time has come to those that are ready; returns when the next one is due.
    ///
    /// * `delay_max_ms`: one that is due later than that was postponed before the clock was set back.
    pub(crate) fn make_ready(&mut self, now_ms: u64, delay_max_ms: u64) -> Option<u64> {
        while let Some(&(due_ms, id)) = self.due.first() {
            if due_ms > now_ms && due_ms - now_ms <= delay_max_ms {
                return Some(due_ms);
            }
            self.due.pop_first();
            self.wait(id, 0);
        }
        None
    }

    /// Takes the job whose turn it is.
    ///
    /// * `may`: whether a job may start now; one that may not keeps its place.
    pub(crate) fn next(&mut self, may: impl Fn(&Job) -> bool) -> Option<JobId> {
        let jobs = &self.jobs;
        let place =
            |queue: &VecDeque<JobId>| queue.iter().position(|id| jobs.get(id).is_some_and(&may));
        let found = Priority::ALL.map(|priority| place(&self.ready[priority.index()]));
        let able = Priority::ALL.into_iter().filter(|priority| found[priority.index()].is_some());
        let able: Vec<Priority> = able.collect();
        let total: i32 = able.iter().map(|priority| priority.weight()).sum();
        for priority in &able {
            self.credit[priority.index()] += priority.weight();
        }
        // The first of those with the most credit: the highest priority.
        let chosen = *able.iter().rev().max_by_key(|priority| self.credit[priority.index()])?;
        self.credit[chosen.index()] -= total;
        self.ready[chosen.index()].remove(found[chosen.index()]?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(priority: Priority, work: &str) -> Job {
        Job {
            priority,
            work: work.into(),
            key: None,
            order: Bytes::new(),
            body: Body::None,
            stated: (Lsn(0), Lsn(0)),
            submitted_ms: 0,
            state: State::Waiting { due_ms: 0 },
            attempts: 0,
            crashes: 0,
            is_suspect: false,
            reason: "".into(),
            started_ms: 0,
            changes: 1,
        }
    }

    #[test]
    fn priorities_share_the_starts_and_none_starves() {
        let mut table = Table::default();
        for number in 0..39 {
            for (at, priority) in Priority::ALL.into_iter().enumerate() {
                table.add(JobId(number * 3 + at as u128), job(priority, "x"));
            }
        }
        let mut counts = [0; 3];
        let mut last = [None; 3];
        for start in 0..39 {
            let id = table.next(|_| true).unwrap();
            let at = (id.0 % 3) as usize;
            counts[at] += 1;
            assert!(last[at] < Some(id), "in order");
            last[at] = Some(id);
            assert!(start < 13 || counts[2] > 0, "low ones start too");
        }
        assert_eq!(counts, [24, 12, 3]);
    }

    #[test]
    fn a_job_that_may_not_start_holds_up_no_other() {
        let mut table = Table::default();
        table.add(JobId(1), job(Priority::High, "long"));
        table.add(JobId(2), job(Priority::Low, "short"));
        table.add(JobId(3), job(Priority::High, "short"));
        let short = |job: &Job| &*job.work == "short";
        assert_eq!(table.next(short), Some(JobId(3)));
        assert_eq!(table.next(short), Some(JobId(2)));
        assert_eq!(table.next(short), None);
        assert_eq!(table.waiting(), 1);
        assert_eq!(table.next(|_| true), Some(JobId(1)));
    }

    #[test]
    fn jobs_wait_for_their_time_and_are_known_by_their_key() {
        let mut table = Table::default();
        let key = Some(Key { key: [7; 16], fingerprint: [0; 16] });
        table.add(JobId(1), Job { key, ..job(Priority::Normal, "x") });
        table.wait(JobId(1), 50);
        assert_eq!(table.make_ready(49, 100), Some(50));
        assert_eq!(table.next(|_| true), None);
        assert_eq!(table.make_ready(50, 100), None);
        assert_eq!(table.by_key(&[7; 16]).map(|(id, _)| id), Some(JobId(1)));
        assert!(table.remove(JobId(1)).is_some());
        assert!(table.by_key(&[7; 16]).is_none());
        assert_eq!((table.next(|_| true), table.waiting()), (None, 0));
    }
}
