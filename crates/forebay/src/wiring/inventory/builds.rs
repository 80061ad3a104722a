//! Indexes that are being built, one at a time for each name, and how the last ones ended.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use forebay_inventory::builder::{Built, Monitor, Stage};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::registry::Name;

/// Builds remembered once they have ended.
const ENDED_MAX: usize = 64;

/// A build, under way or ended.
#[derive(Debug)]
pub(super) struct Job {
    from: Vec<String>,
    pub(super) monitor: Monitor,
    started: Instant,
    started_ms: u64,
    end: Mutex<Option<(End, Duration)>>,
}

/// How a build ended.
#[derive(Debug, Clone)]
pub(super) enum End {
    Built(Box<Built>),
    Failed(String),
    Cancelled,
}

impl End {
    /// The word for it.
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
        Self { from, monitor, started, started_ms, end }
    }

    pub(super) fn is_running(&self) -> bool {
        self.end.lock().is_none()
    }

    pub(super) fn end(&self, end: End) {
        *self.end.lock() = Some((end, self.started.elapsed()));
    }

    /// How far it is, or how it ended.
    pub(super) fn told(&self, name: &Name) -> Value {
        let progress = self.monitor.progress();
        let end = self.end.lock().clone();
        let state = match &end {
            Some((end, _)) => end.word(),
            None if self.monitor.is_cancelled() => "cancelling",
            None => "running",
        };
        let took = end.as_ref().map_or_else(|| self.started.elapsed(), |(_, took)| *took);
        let mut told = json!({
            "inventory": name.as_str(),
            "state": state,
            "from": self.from,
            "started_at_ms": self.started_ms,
            "seconds": took.as_secs_f64(),
            "rows": progress.rows,
            "bytes_read": progress.bytes,
            "bytes_total": progress.bytes_total,
            "rows_merged": progress.merged,
        });
        match end {
            None => {
                told["stage"] = match progress.stage {
                    Stage::Reading => "reading",
                    Stage::Merging => "merging",
                    Stage::Finishing => "finishing",
                }
                .into();
            }
            Some((End::Failed(why), _)) => told["error"] = why.into(),
            Some((End::Built(built), _)) => {
                told["rows"] = built.rows.into();
                told["objects"] = built.objects.into();
                told["bytes"] = built.bytes.into();
                told["prefixes"] = built.prefixes.into();
                told["index_bytes"] = built.index_size.into();
                told["bad_rows"] = built.bad_rows.into();
                told["bad_rows_shown"] = json!(built.bad_rows_shown);
            }
            Some((End::Cancelled, _)) => {}
        }
        told
    }
}

/// Why a build does not begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// One of this name is under way.
    SameName,
    /// As many as may be are under way.
    TooMany,
    /// The server is about to end.
    Closing,
    /// The system has no thread for it.
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

    /// Forgets the oldest that have ended, beyond those that are remembered.
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

    /// Begins with `work` on a thread of its own.
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

    /// The last build of this name.
    pub(super) fn get(&self, name: &Name) -> Option<Arc<Job>> {
        self.inner.lock().jobs.get(name).cloned()
    }

    /// Does something while no build of this name begins; nothing where one is under way.
    pub(super) fn unless_running<T>(&self, name: &Name, work: impl FnOnce() -> T) -> Option<T> {
        let mut inner = self.inner.lock();
        if inner.jobs.get(name).is_some_and(|job| job.is_running()) {
            return None;
        }
        inner.jobs.remove(name);
        Some(work())
    }

    /// How many are under way.
    pub(super) fn running(&self) -> usize {
        self.inner.lock().running()
    }

    /// Tells all to stop, and lets none begin.
    pub(super) fn cancel_all(&self) {
        let mut inner = self.inner.lock();
        inner.closing = true;
        inner.jobs.values().for_each(|job| job.monitor.cancel());
    }

    /// The threads, to be waited for.
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
    fn one_of_a_name_and_so_many_in_all_are_built_at_once() {
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
        assert_eq!(builds.get(&name("a")).unwrap().told(&name("a"))["state"], "running");
        builds.cancel_all();
        assert_eq!(begin("d"), Err(Refused::Closing));
        drop(go);
        builds.threads().into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(builds.running(), 0);
        assert_eq!(builds.get(&name("b")).unwrap().told(&name("b"))["state"], "cancelled");
        assert_eq!(builds.unless_running(&name("a"), || 7), Some(7));
        assert!(builds.get(&name("a")).is_none());
    }
}
