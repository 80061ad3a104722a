//! Indexes being built, at most one build for each name, and the results of the last builds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use forebay_inventory::builder::{Built, Monitor};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::answers::{BuildAnswer, BuildState};
use super::registry::Name;

/// Maximum number of ended builds that are remembered.
const ENDED_MAX: usize = 64;

/// A build, running or ended.
#[derive(Debug)]
pub(super) struct Job {
    from: Vec<String>,
    pub(super) monitor: Monitor,
    started: Instant,
    started_ms: u64,
    end: Mutex<Option<(End, Duration)>>,
    has_ended: watch::Sender<bool>,
}

/// How a build ended.
#[derive(Debug, Clone)]
pub(super) enum End {
    Built(Box<Built>),
    Failed(String),
    Cancelled,
}

impl End {
    /// Returns the state of a build that ended so.
    fn state(&self) -> BuildState {
        match self {
            Self::Built(_) => BuildState::Built,
            Self::Failed(_) => BuildState::Failed,
            Self::Cancelled => BuildState::Cancelled,
        }
    }

    /// Returns its name.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Built(_) => "built",
            Self::Failed(_) => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

impl Job {
    pub(super) fn new(from: Vec<String>, started_ms: u64) -> Self {
        let (monitor, started, end) = (Monitor::default(), Instant::now(), Mutex::new(None));
        let has_ended = watch::channel(false).0;
        Self { from, monitor, started, started_ms, end, has_ended }
    }

    pub(super) fn is_running(&self) -> bool {
        self.end.lock().is_none()
    }

    pub(super) fn end(&self, end: End) {
        *self.end.lock() = Some((end, self.started.elapsed()));
        self.has_ended.send_replace(true);
    }

    /// Completes when it has ended.
    pub(super) async fn ended(&self) {
        let mut ended = self.has_ended.subscribe();
        // An error would mean that the sender, which is in this build, was dropped.
        ended.wait_for(|ended| *ended).await.map(drop).unwrap_or_default();
    }

    /// Returns its progress or its result.
    pub(super) fn describe(&self, name: &Name) -> BuildAnswer {
        let progress = self.monitor.progress();
        let end = self.end.lock().clone();
        let state = match &end {
            Some((end, _)) => end.state(),
            None if self.monitor.is_cancelled() => BuildState::Cancelling,
            None => BuildState::Running,
        };
        let took = end.as_ref().map_or_else(|| self.started.elapsed(), |(_, took)| *took);
        let stage = end.is_none().then(|| progress.stage.into());
        let (built, error) = match end {
            Some((End::Built(built), _)) => (Some(built), None),
            Some((End::Failed(why), _)) => (None, Some(why)),
            Some((End::Cancelled, _)) | None => (None, None),
        };
        BuildAnswer {
            bad_rows: built.as_ref().map(|built| built.bad_rows),
            billed_bytes: built.as_ref().map(|built| built.billed_bytes),
            bytes: built.as_ref().map(|built| built.bytes),
            bytes_read: progress.bytes,
            bytes_total: progress.bytes_total,
            error,
            from: self.from.clone(),
            index_bytes: built.as_ref().map(|built| built.index_size),
            inventory: name.as_str().to_owned(),
            objects: built.as_ref().map(|built| built.objects),
            prefixes: built.as_ref().map(|built| built.prefixes),
            rows: built.as_ref().map_or(progress.rows, |built| built.rows),
            rows_merged: progress.merged,
            seconds: took.as_secs_f64(),
            stage,
            started_at_ms: self.started_ms,
            state,
            bad_rows_shown: built.map(|built| built.bad_rows_shown),
        }
    }
}

/// Why a build does not start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// A build of this name is running.
    SameName,
    /// The limit is reached.
    TooMany,
    /// The server is stopping.
    Closing,
    /// The system cannot start a thread.
    NoThread,
}

pub(super) struct Builds {
    builds_max: usize,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    jobs: BTreeMap<Name, Arc<Job>>,
    threads: Vec<JoinHandle<()>>,
    closing: bool,
}

impl Inner {
    fn running(&self) -> usize {
        self.jobs.values().filter(|job| job.is_running()).count()
    }

    /// Removes the oldest ended builds beyond the limit.
    fn prune(&mut self) {
        self.threads.retain(|thread| !thread.is_finished());
        while self.jobs.len() - self.running() > ENDED_MAX {
            let ended = self.jobs.iter().filter(|(_, job)| !job.is_running());
            let oldest = ended.min_by_key(|(_, job)| job.started).map(|(name, _)| name.clone());
            let Some(oldest) = oldest else { return };
            self.jobs.remove(&oldest);
        }
    }
}

impl Builds {
    pub(super) fn new(builds_max: usize) -> Self {
        Self { builds_max, inner: Mutex::default() }
    }

    /// Starts `work` on a new thread.
    pub(super) fn start(
        &self,
        name: &Name,
        job: Job,
        work: impl FnOnce(&Job) + Send + 'static,
    ) -> Result<Arc<Job>, Refused> {
        let mut inner = self.inner.lock();
        if inner.closing {
            return Err(Refused::Closing);
        }
        if inner.jobs.get(name).is_some_and(|job| job.is_running()) {
            return Err(Refused::SameName);
        }
        if inner.running() >= self.builds_max {
            return Err(Refused::TooMany);
        }
        let job = Arc::new(job);
        let its = Arc::clone(&job);
        let thread = std::thread::Builder::new().name("inventory-build".to_owned());
        let thread = thread.spawn(move || work(&its)).map_err(|_| Refused::NoThread)?;
        inner.jobs.insert(name.clone(), Arc::clone(&job));
        inner.threads.push(thread);
        inner.prune();
        Ok(job)
    }

    /// Returns the last build of this name.
    pub(super) fn get(&self, name: &Name) -> Option<Arc<Job>> {
        self.inner.lock().jobs.get(name).cloned()
    }

    /// Runs `work` while no build of this name starts; returns `None` if one is running.
    pub(super) fn unless_running<T>(&self, name: &Name, work: impl FnOnce() -> T) -> Option<T> {
        let mut inner = self.inner.lock();
        if inner.jobs.get(name).is_some_and(|job| job.is_running()) {
            return None;
        }
        inner.jobs.remove(name);
        Some(work())
    }

    /// Returns the number of running builds.
    pub(super) fn running(&self) -> usize {
        self.inner.lock().running()
    }

    /// Cancels all builds, and lets none start.
    pub(super) fn cancel_all(&self) {
        let mut inner = self.inner.lock();
        inner.closing = true;
        inner.jobs.values().for_each(|job| job.monitor.cancel());
    }

    /// Returns the threads, to be joined.
    pub(super) fn threads(&self) -> Vec<JoinHandle<()>> {
        std::mem::take(&mut self.inner.lock().threads)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    fn job() -> Job {
        Job::new(vec!["x".to_owned()], 1)
    }

    #[test]
    fn builds_are_limited_by_name_and_in_total() {
        let builds = Builds::new(2);
        let name = |text: &str| Name::parse(text).unwrap();
        let (go, wait) = channel::<()>();
        let wait = Arc::new(std::sync::Mutex::new(wait));
        let begin = |text: &str| {
            let wait = Arc::clone(&wait);
            let started = builds.start(&name(text), job(), move |job| {
                wait.lock().unwrap().recv().unwrap_or_default();
                job.end(if job.monitor.is_cancelled() {
                    End::Cancelled
                } else {
                    End::Failed("no".to_owned())
                });
            });
            started.map(drop)
        };
        assert_eq!(begin("a"), Ok(()));
        assert_eq!(begin("a"), Err(Refused::SameName));
        assert_eq!(begin("b"), Ok(()));
        assert_eq!(begin("c"), Err(Refused::TooMany));
        assert_eq!(builds.unless_running(&name("a"), || ()), None);
        let state = |text: &str| builds.get(&name(text)).unwrap().describe(&name(text)).state;
        assert_eq!(state("a"), BuildState::Running);
        builds.cancel_all();
        assert_eq!(begin("d"), Err(Refused::Closing));
        drop(go);
        builds.threads().into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(builds.running(), 0);
        assert_eq!(state("b"), BuildState::Cancelled);
        assert_eq!(builds.unless_running(&name("a"), || 7), Some(7));
        assert!(builds.get(&name("a")).is_none());
    }
}
