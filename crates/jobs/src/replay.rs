//! What the entries of a log make of the table, at an opening and when the log is shortened.
//!
//! Invariants:
//! - Any sequence of entries leaves each job in exactly one place.
//! - A job that has ended runs again only once it is queued again.

use std::sync::Arc;

use forebay_log::{Appended, Lsn};

use crate::format::{End, Entry, How, Kept, KeptState};
use crate::id::JobId;
use crate::status::Status;
use crate::table::{Job, State, Table};

impl Table {
    /// Applies an entry of the log.
    ///
    /// * `at`: the position of the entry, and the one after it.
    pub(crate) fn replay(&mut self, id: JobId, at_ms: u64, entry: &Entry<'_>, at: (Lsn, Lsn)) {
        match entry {
            Entry::Submitted(submitted) => {
                self.add(id, Job { stated: at, ..Job::new(submitted, at_ms) });
            }
            Entry::Kept(kept) => {
                let job = Job::new(&kept.submitted, kept.submitted_ms);
                let Kept { attempts, crashes, started_ms, .. } = *kept;
                let job = Job { stated: at, attempts, crashes, started_ms, ..job };
                match &kept.state {
                    KeptState::Waiting { due_ms, reason } => {
                        let state = State::Waiting { due_ms: *due_ms };
                        self.add(id, Job { state, reason: (*reason).into(), ..job });
                    }
                    KeptState::Ended(end) => {
                        self.add(id, job);
                        self.replay_end(id, at_ms, end, at.0);
                    }
                }
            }
            Entry::Forgotten => {
                self.remove(id);
            }
            Entry::QueuedAgain => self.queue_again(id),
            // A stop of an earlier build could record a delay behind the end of a job.
            Entry::Started { .. } | Entry::Postponed { .. } if self.has_ended(id) => {}
            Entry::Started { attempt } => {
                self.leave(id);
                let Some(job) = self.jobs.get_mut(&id) else { return };
                job.crashes += u32::from(matches!(job.state, State::Running(_)));
                (job.attempts, job.started_ms) = (*attempt, at_ms);
                job.state = State::Running(Arc::default());
            }
            Entry::Postponed { attempt, due_ms, reason } => {
                let Some(job) = self.jobs.get_mut(&id) else { return };
                (job.attempts, job.crashes) = (*attempt, 0);
                job.reason = (*reason).into();
                self.wait(id, *due_ms);
            }
            Entry::Ended { attempts, end } => {
                if let Some(job) = self.jobs.get_mut(&id) {
                    job.attempts = *attempts;
                }
                self.replay_end(id, at_ms, end, at.0);
            }
        }
        if let Some(job) = self.jobs.get_mut(&id) {
            job.changes += 1;
        }
    }

    fn replay_end(&mut self, id: JobId, at_ms: u64, end: &End<'_>, lsn: Lsn) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.reason = end.reason.into();
        let status = match end.how {
            How::Completed => Status::Completed,
            How::Failed => Status::Failed,
            How::Cancelled => Status::Cancelled,
        };
        self.end(id, status, at_ms, (lsn, end.result.len()));
    }

    /// Looks for jobs in the entries that state them again.
    ///
    /// * `stated`: each with what it was then, which has to be true still of where it is stated.
    pub(crate) fn restate(&mut self, stated: &[(JobId, Job, Appended)]) {
        for (id, before, appended) in stated {
            let Some(job) = self.jobs.get_mut(id) else { continue };
            if job.stated == before.stated {
                job.stated = (appended.lsn, appended.end);
            }
            if let (State::Ended { result, .. }, State::Ended { result: earlier, .. }) =
                (&mut job.state, &before.state)
                && result == earlier
            {
                result.0 = appended.lsn;
            }
        }
    }

    /// Lets the jobs that were running when the process ended wait again. Any that has not ended may be
    /// what ended it.
    pub(crate) fn recover(&mut self) {
        for (_, id) in &self.open {
            if let Some(job) = self.jobs.get_mut(id) {
                job.is_suspect = true;
            }
        }
        for (id, _) in self.running_jobs() {
            if let Some(job) = self.jobs.get_mut(&id) {
                job.crashes += 1;
            }
            self.wait(id, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::format::{StoredBody, Submitted};
    use crate::status::Priority;

    const END: End<'static> = End { how: How::Completed, result: &[], reason: "" };

    fn submitted(priority: Priority) -> Submitted<'static> {
        Submitted { priority, work: "x", key: None, order: &[], body: StoredBody::None }
    }

    fn replay(table: &mut Table, entries: &[(u128, u64, Entry<'_>)]) {
        for (at, (id, at_ms, entry)) in (0..).zip(entries) {
            table.replay(JobId(*id), *at_ms, entry, (Lsn(at), Lsn(at + 1)));
        }
    }

    #[test]
    fn a_delay_behind_the_end_of_a_job_does_not_run_it_again() {
        let mut table = Table::default();
        let entries = [
            (1, 1, Entry::Submitted(submitted(Priority::Normal))),
            (1, 2, Entry::Started { attempt: 1 }),
            (1, 3, Entry::Ended { attempts: 1, end: END }),
            (1, 4, Entry::Postponed { attempt: 0, due_ms: 0, reason: "stopped" }),
        ];
        replay(&mut table, &entries);
        table.recover();
        assert_eq!(table.by_status(), [0, 0, 1, 0, 0]);
        assert_eq!((table.jobs[&JobId(1)].attempts, table.next(|_| true)), (1, None));
    }

    fn any_entry() -> impl Strategy<Value = Entry<'static>> {
        let how = prop_oneof![Just(How::Completed), Just(How::Failed), Just(How::Cancelled)];
        let end = how.prop_map(|how| End { how, ..END });
        let priority = (0..3_usize).prop_map(|at| Priority::ALL[at]);
        let state = prop_oneof![
            (0..3_u64).prop_map(|due_ms| KeptState::Waiting { due_ms, reason: "" }),
            end.clone().prop_map(KeptState::Ended),
        ];
        let kept =
            (priority.clone(), state, 0..3_u64).prop_map(|(priority, state, submitted_ms)| {
                let submitted = submitted(priority);
                Kept { submitted, attempts: 1, crashes: 0, submitted_ms, started_ms: 0, state }
            });
        prop_oneof![
            priority.prop_map(|priority| Entry::Submitted(submitted(priority))),
            Just(Entry::Started { attempt: 1 }),
            (0..3_u64).prop_map(|due_ms| Entry::Postponed { attempt: 1, due_ms, reason: "" }),
            end.prop_map(|end| Entry::Ended { attempts: 1, end }),
            Just(Entry::QueuedAgain),
            kept.prop_map(Entry::Kept),
            Just(Entry::Forgotten),
        ]
    }

    proptest! {
        #[test]
        fn any_entries_leave_each_job_in_one_place(
            entries in prop::collection::vec((0..4_u128, 0..4_u64, any_entry()), 0..40)
        ) {
            let mut table = Table::default();
            replay(&mut table, &entries);
            table.recover();
            let count = |status| table.jobs.values().filter(|job| job.status() == status).count();
            prop_assert_eq!(table.by_status(), Status::ALL.map(count));
            prop_assert_eq!(table.by_status()[1], 0, "nothing runs after an opening");
            let runnable = table.jobs.iter().filter(|(_, job)| {
                !job.status().is_ended() || job.status() == Status::Failed
            });
            let runnable: Vec<_> = runnable.map(|(id, job)| (job.submitted_ms, *id)).collect();
            prop_assert_eq!(table.open.len(), runnable.len());
            prop_assert!(runnable.iter().all(|job| table.open.contains(job)));
            table.make_ready(10, 0);
            let mut started = Vec::new();
            while let Some(id) = table.next(|_| true) {
                prop_assert_eq!(table.jobs[&id].status(), Status::Queued);
                started.push(id);
            }
            started.sort_unstable();
            let waiting = table.jobs.iter().filter(|(_, job)| job.status() == Status::Queued);
            prop_assert_eq!(started, waiting.map(|(id, _)| *id).collect::<Vec<_>>());
        }
    }
}
