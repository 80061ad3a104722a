//! Runs of pipelines inside the server, started by a request of a client or of the schedule: one at a time for
//! each pipeline, and a limited number in total.
//!
//! Invariants:
//! - A run is recorded before it starts and after it has ended. Once the record says that it has
//!   ended, the next one can start.
//! - The server stops a run at a commit boundary, or drops it with its connections, and neither loses
//!   or duplicates a row.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use forebay_base::error_chain::chain;
use forebay_pipeline::config::PipelineFile;
use forebay_pipeline::error::RunError;
use forebay_pipeline::run::{Options, Pipeline, Report};
use forebay_pipeline::state::{HEARTBEAT, Outcome, Progress, State, StateError};
use forebay_sdk::ConnectorError;
use forebay_sdk::run::kept::{Kept, KeptBy, KeptValues};
use forebay_sdk::run::measures::{Measure, MeasureValue};
use forebay_sdk::run::{Cancel, Context};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{Alerts, now_ms, progress};

/// Why a run does not start.
#[derive(Debug)]
pub(super) enum Refused {
    /// A run of this pipeline is in progress: its id.
    Running(String),
    /// The limit is reached.
    TooMany,
    /// The server is stopping.
    Closing,
    /// It cannot be recorded.
    State(StateError),
}

/// A run in progress.
struct Running {
    id: String,
    cancel: Cancel,
    task: JoinHandle<()>,
}

/// A run that has started.
pub(super) struct Begun {
    pub(super) id: String,
    context: Context,
    cancel: Cancel,
    ended: watch::Receiver<()>,
}

impl Begun {
    /// Number of bytes read so far.
    pub(super) fn bytes_read(&self) -> u64 {
        progress(&self.context).bytes_read
    }

    /// Requests it to stop at the next commit boundary.
    pub(super) fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Completes when it has ended, in any way.
    pub(super) async fn ended(&self) {
        let mut ended = self.ended.clone();
        while ended.changed().await.is_ok() {}
    }
}

/// Starts runs, and holds those in progress.
#[derive(Clone)]
pub(super) struct Runner(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    running: Mutex<Table>,
    runs_max: usize,
}

#[derive(Default)]
struct Table {
    by_pipeline: BTreeMap<String, Running>,
    is_closing: bool,
}

impl Table {
    /// Removes a run, if it is there still.
    fn remove(&mut self, pipeline: &str, run: &str) {
        if self.by_pipeline.get(pipeline).is_some_and(|running| running.id == run) {
            self.by_pipeline.remove(pipeline);
        }
    }
}

impl Runner {
    pub(super) fn new(state: State, runs_max: usize) -> Self {
        Self(Arc::new(Inner { state: Mutex::new(state), running: Mutex::default(), runs_max }))
    }

    /// Queries the record of runs. Blocks.
    pub(super) fn remembered<T>(
        &self,
        ask: impl FnOnce(&State) -> Result<T, StateError>,
    ) -> Result<T, StateError> {
        ask(&self.0.state.lock())
    }

    /// Returns the number of runs in progress.
    pub(super) fn count(&self) -> usize {
        self.0.running.lock().by_pipeline.len()
    }

    /// Returns the id of the pipeline's run in progress.
    pub(super) fn running(&self, pipeline: &str) -> Option<String> {
        self.0.running.lock().by_pipeline.get(pipeline).map(|running| running.id.clone())
    }

    /// Starts a run. Blocks, inside the runtime.
    pub(super) fn start(&self, file: PipelineFile, options: Options) -> Result<Begun, Refused> {
        let name = file.pipeline.as_str().to_owned();
        // May access a server, so it runs before the table is locked.
        let shared = State::of(&file.state).map_err(Refused::State)?;
        let mut table = self.0.running.lock();
        if table.is_closing {
            return Err(Refused::Closing);
        }
        if let Some(running) = table.by_pipeline.get(&name) {
            return Err(Refused::Running(running.id.clone()));
        }
        if table.by_pipeline.len() >= self.0.runs_max {
            return Err(Refused::TooMany);
        }
        let id = uuid::Uuid::now_v7().simple().to_string();
        let began_ms = now_ms();
        if let Some(shared) = &shared {
            shared.begin(&id, &name, began_ms).map_err(Refused::State)?;
        }
        self.0.state.lock().begin(&id, &name, began_ms).map_err(Refused::State)?;
        let memory = Memory { own: Arc::clone(&self.0), shared: shared.map(Mutex::new) };
        let memory = Arc::new(memory);
        let (context, cancel) = Context::new(&id);
        let context = context.keeping(Kept::new(Arc::<Memory>::clone(&memory), &name));
        let (running, ended) = watch::channel(());
        let inner = Arc::clone(&self.0);
        let entry = Entry { inner, pipeline: name.clone(), id: id.clone(), _running: running };
        let begun =
            Begun { id: id.clone(), context: context.clone(), cancel: cancel.clone(), ended };
        // Its entry cannot be removed before it is inserted: the table is locked.
        let task = tokio::spawn(async move {
            run(&memory, &file, options, &context).await;
            drop(entry);
        });
        table.by_pipeline.insert(name, Running { id, cancel, task });
        Ok(begun)
    }

    /// Requests the pipeline's run to stop at the next commit boundary. Returns whether it is
    /// running.
    pub(super) fn cancel(&self, pipeline: &str, run: &str) -> bool {
        let table = self.0.running.lock();
        let running = table.by_pipeline.get(pipeline).filter(|running| running.id == run);
        running.inspect(|running| running.cancel.cancel()).is_some()
    }

    /// Lets no further run start, and requests all to stop.
    pub(super) fn close(&self) {
        let mut table = self.0.running.lock();
        table.is_closing = true;
        table.by_pipeline.values().for_each(|running| running.cancel.cancel());
    }

    /// Waits for all runs; drops those that take longer than `limit`, with their connections.
    pub(super) async fn ended(&self, limit: Duration) {
        let table = std::mem::take(&mut self.0.running.lock().by_pipeline);
        let aborts: Vec<_> = table.values().map(|running| running.task.abort_handle()).collect();
        let all = async {
            for (pipeline, running) in table {
                if let Err(error) = running.task.await {
                    tracing::error!(pipeline, %error, "a run of a pipeline panicked");
                }
            }
        };
        if tokio::time::timeout(limit, all).await.is_err() {
            tracing::warn!("runs of pipelines did not reach a commit boundary and are dropped");
            aborts.iter().for_each(tokio::task::AbortHandle::abort);
        }
    }
}

/// Removes a run from the table when it ends, in any way.
struct Entry {
    inner: Arc<Inner>,
    pipeline: String,
    id: String,
    /// Dropped after the entry was removed: the run has ended.
    _running: watch::Sender<()>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.inner.running.lock().remove(&self.pipeline, &self.id);
    }
}

/// Where a run is recorded.
struct Memory {
    own: Arc<Inner>,
    /// Where its file says, additionally.
    shared: Option<Mutex<State>>,
}

async fn run(memory: &Arc<Memory>, file: &PipelineFile, options: Options, context: &Context) {
    let name = file.pipeline.as_str();
    let begun = Instant::now();
    tracing::info!(pipeline = name, run = &*context.run, "pipeline run started");
    let mut meter = Meter::new(name);
    let mut alerts = Alerts::of(file, context).unwrap_or_else(|error| {
        tracing::error!(pipeline = name, error = %chain(&error), "this run sends no alerts");
        None
    });
    let pipeline = Pipeline::new(file);
    // Beside the run, not between its steps: recording may be slow.
    let beating = async {
        loop {
            tokio::time::sleep(HEARTBEAT).await;
            let at = progress(context);
            meter.advance(at);
            meter.follow(context);
            meter.measure(context);
            let run = context.run.to_string();
            memory.remember(move |memory| memory.progress(&run, at)).await;
        }
    };
    let ended: Result<Report, RunError> = tokio::select! {
        ended = pipeline.run(options, context) => ended,
        never = beating => never,
        never = Alerts::watch(alerts.as_mut(), context) => match never {},
    };
    meter.advance(progress(context));
    meter.follow(context);
    meter.measure(context);
    let error = memory.end(name, ended, begun, context).await;
    Alerts::end(alerts, error.as_deref()).await;
}

/// Without what it holds.
impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").finish_non_exhaustive()
    }
}

/// Where its file says, or else here: another machine that runs the pipeline has to find it.
impl KeptValues for Memory {
    fn all(&self, of: &KeptBy) -> Result<Vec<(String, Vec<u8>)>, ConnectorError> {
        let state = self.shared.as_ref().unwrap_or(&self.own.state).lock();
        Ok(state.kept(of)?)
    }

    fn put(&self, of: &KeptBy, key: &str, value: Option<&[u8]>) -> Result<(), ConnectorError> {
        let state = self.shared.as_ref().unwrap_or(&self.own.state).lock();
        Ok(state.keep(of, key, value)?)
    }
}

impl Memory {
    /// Records how a run ended. Returns the error of one that failed.
    async fn end(
        self: &Arc<Self>,
        name: &str,
        ended: Result<Report, RunError>,
        begun: Instant,
        context: &Context,
    ) -> Option<String> {
        let is_stopped = |error: &RunError| matches!(error.source, ConnectorError::Stopped);
        let (word, outcome, error) = match &ended {
            Ok(_) => ("done", Outcome::Done, None),
            Err(error) if is_stopped(error) => ("cancelled", Outcome::Cancelled, None),
            Err(error) => ("failed", Outcome::Failed, Some(chain(error).to_string())),
        };
        let seconds = begun.elapsed().as_secs_f64();
        let labels = [("pipeline", name.to_owned()), ("outcome", word.to_owned())];
        metrics::counter!("forebay_pipeline_runs_total", &labels).increment(1);
        metrics::histogram!("forebay_pipeline_run_seconds", "pipeline" => name.to_owned())
            .record(seconds);
        let run = &*context.run;
        match (&ended, &error) {
            (Ok(report), _) => {
                #[expect(clippy::cast_precision_loss, reason = "seconds since 1970 fit")]
                let at = now_ms() as f64 / 1e3;
                let success = "forebay_pipeline_last_success_timestamp_seconds";
                metrics::gauge!(success, "pipeline" => name.to_owned()).set(at);
                let dead = "forebay_pipeline_rows_dead_total";
                metrics::counter!(dead, "pipeline" => name.to_owned()).increment(report.dead);
                let (rows, dead) = (report.rows, report.dead);
                tracing::info!(pipeline = name, run, rows, dead, seconds, "pipeline run completed");
            }
            (Err(_), Some(error)) => {
                tracing::error!(pipeline = name, run, error, seconds, "pipeline run failed");
            }
            (Err(_), None) => tracing::info!(pipeline = name, run, seconds, "pipeline run stopped"),
        }
        // A report is plain data: a failure to write it as JSON would be a bug, and only the report
        // is lost.
        let report = ended.ok().and_then(|report| serde_json::to_string(&report).ok());
        let (pipeline, run, at) = (name.to_owned(), context.run.to_string(), progress(context));
        let failed = error.clone();
        self.remember(move |memory| {
            memory.remove(&pipeline, &run, |state| {
                state.progress(&run, at, now_ms())?;
                state.end(&run, outcome, error.as_deref(), report.as_deref(), now_ms())
            })
        })
        .await;
        failed
    }

    /// Records how far a run is.
    fn progress(&self, run: &str, at: Progress) -> Result<(), StateError> {
        let write = |state: &State| state.progress(run, at, now_ms());
        write(&self.own.state.lock())?;
        self.shared.as_ref().map_or(Ok(()), |shared| write(&shared.lock()))
    }

    /// Records with `write` that a run has ended, and removes it from the table.
    ///
    /// The server's own record, which its answers are from, comes last, and with the table locked: no
    /// answer says that the run has ended while the next one would be refused. Both records are
    /// written, even if one of them fails.
    fn remove(
        &self,
        pipeline: &str,
        run: &str,
        write: impl Fn(&State) -> Result<(), StateError>,
    ) -> Result<(), StateError> {
        let shared = self.shared.as_ref().map_or(Ok(()), |shared| write(&shared.lock()));
        let mut table = self.own.running.lock();
        let own = write(&self.own.state.lock());
        table.remove(pipeline, run);
        drop(table);
        own.and(shared)
    }

    /// Records something about a run. What the run copies does not depend on it, so a failure is
    /// logged and the run continues.
    async fn remember(
        self: &Arc<Self>,
        write: impl FnOnce(&Self) -> Result<(), StateError> + Send + 'static,
    ) {
        let memory = Arc::clone(self);
        let written = forebay_base::blocking::spawn(move || write(&memory));
        match written.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::error!(error = %chain(&error), "cannot record a pipeline run");
            }
            Err(error) => tracing::error!(%error, "cannot record a pipeline run"),
        }
    }
}

/// Counts for `/metrics` what a run has moved.
struct Meter {
    pipeline: String,
    counters: [metrics::Counter; 3],
    last: Progress,
    /// What connectors had counted.
    counted: HashMap<(String, String), u64>,
}

impl Meter {
    fn new(pipeline: &str) -> Self {
        let counter =
            |name: &'static str| metrics::counter!(name, "pipeline" => pipeline.to_owned());
        Self {
            pipeline: pipeline.to_owned(),
            counters: [
                counter("forebay_pipeline_rows_read_total"),
                counter("forebay_pipeline_rows_committed_total"),
                counter("forebay_pipeline_bytes_read_total"),
            ],
            last: Progress::default(),
            counted: HashMap::new(),
        }
    }

    fn advance(&mut self, at: Progress) {
        let [read, committed, bytes] = &self.counters;
        read.increment(at.rows_read - self.last.rows_read);
        committed.increment(at.rows_committed - self.last.rows_committed);
        bytes.increment(at.bytes_read - self.last.bytes_read);
        self.last = at;
    }

    /// Shows what the connectors count.
    fn measure(&mut self, context: &Context) {
        for Measure { connector, name, value } in context.measures.all() {
            let labels = [
                ("pipeline", self.pipeline.clone()),
                ("connector", connector.clone()),
                ("name", name.clone()),
            ];
            match value {
                MeasureValue::Count(count) => {
                    let before = self.counted.insert((connector, name), count).unwrap_or(0);
                    let added = count.saturating_sub(before);
                    metrics::counter!("forebay_connector_counts_total", &labels).increment(added);
                }
                MeasureValue::Gauge(to) => {
                    metrics::gauge!("forebay_connector_gauges", &labels).set(to);
                }
            }
        }
    }

    /// Shows how far a feed is: its lag is the time since then.
    fn follow(&self, context: &Context) {
        let until_us = context.moved.applied_until_us.load(Ordering::Relaxed);
        if until_us > 0 {
            #[expect(clippy::cast_precision_loss, reason = "seconds since 1970 fit")]
            let until = until_us as f64 / 1e6;
            let gauge = "forebay_pipeline_applied_until_timestamp_seconds";
            metrics::gauge!(gauge, "pipeline" => self.pipeline.clone()).set(until);
            #[expect(clippy::cast_precision_loss, reason = "a number of bytes")]
            let lag = context.moved.lag_bytes.load(Ordering::Relaxed) as f64;
            metrics::gauge!("forebay_pipeline_lag_bytes", "pipeline" => self.pipeline.clone())
                .set(lag);
        }
    }
}
