//! Records of runs, for people. The state from which a run continues is in the destination's
//! ledger.
//!
//! A SQLite file and, if the pipeline file says so, a table of a PostgreSQL that several machines
//! share. A killed run never records its end. Its process, which is gone, distinguishes it from a running
//! one; on another machine, its missing heartbeat does.

mod postgres;
mod sqlite;

use std::path::Path;
use std::time::Duration;

use forebay_base::image::{Image, ImageError};
use forebay_base::process::is_gone;
use forebay_postgres::connector::Settings as PostgresSettings;
use forebay_sdk::ConnectorError;
use forebay_sdk::run::kept::KeptBy;
use serde::Serialize;

use crate::config::{StateBackend, StateSettings};
use postgres::PostgresRuns;
use sqlite::SqliteRuns;

/// How often a run records that it is alive.
pub const HEARTBEAT: Duration = Duration::from_secs(1);
/// After how long without a heartbeat a run counts as killed.
const SILENT: Duration = Duration::from_secs(10);
/// Maximum number of recorded runs of a pipeline.
const RUNS_MAX: u32 = 1000;

/// Why runs could not be recorded or read.
#[derive(Debug, thiserror::Error)]
#[error("cannot {act} the runs in {what}")]
pub struct StateError {
    /// What was attempted.
    pub act: &'static str,
    /// The file or the server.
    pub what: String,
    /// The cause.
    #[source]
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

/// For a connector that keeps a value.
impl From<StateError> for ConnectorError {
    fn from(error: StateError) -> Self {
        Self::Refused { act: "keep a value of a connector".into(), source: error.into() }
    }
}

impl StateError {
    /// Whether there was no space, which can pass without a restart.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.source.downcast_ref().is_some_and(sqlite::is_full)
    }
}

/// The recorded runs.
#[derive(Debug)]
pub struct State(Backend);

#[derive(Debug)]
enum Backend {
    Sqlite(SqliteRuns),
    Postgres(PostgresRuns),
}

/// A run as it is stored.
#[derive(Debug)]
struct StoredRun {
    run: String,
    pipeline: String,
    began_ms: u64,
    heard_ms: u64,
    outcome: Option<String>,
    rows_read: u64,
    rows_committed: u64,
    bytes_read: u64,
    error: Option<String>,
    report: Option<String>,
    /// The process that copies, if it is known.
    process: Option<String>,
}

/// State of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = PipelineRunOutcome)]
pub enum Outcome {
    /// It is still running.
    Running,
    /// Everything was copied.
    Done,
    /// It failed.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// It ended without recording a result.
    Killed,
}

/// A run.
#[derive(Debug, Clone, Serialize)]
pub struct RunRecord {
    /// Its id.
    pub run: String,
    /// Name of the pipeline.
    pub pipeline: String,
    /// Start time in milliseconds since 1970.
    pub began_ms: u64,
    /// When it ended or last recorded a heartbeat.
    pub ended_ms: u64,
    /// Its state.
    pub outcome: Outcome,
    /// Number of rows read.
    pub rows_read: u64,
    /// Number of rows committed.
    pub rows_committed: u64,
    /// Number of bytes read.
    pub bytes_read: u64,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Its report, as JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report: Option<serde_json::Value>,
}

/// Progress of a run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Progress {
    /// Number of rows read.
    pub rows_read: u64,
    /// Number of rows committed.
    pub rows_committed: u64,
    /// Number of bytes read.
    pub bytes_read: u64,
}

impl State {
    /// Opens the file, or creates it.
    ///
    /// # Errors
    /// It cannot be written, or is not such a file.
    pub fn open(path: &Path) -> Result<Self, StateError> {
        SqliteRuns::open(path).map(|runs| Self(Backend::Sqlite(runs)))
    }

    /// The runs in a PostgreSQL: in `pipeline_runs` of the ledger's schema, created if it does not
    /// exist.
    ///
    /// # Errors
    /// The server does not answer, or refuses.
    pub fn connect(settings: &PostgresSettings) -> Result<Self, StateError> {
        PostgresRuns::connect(settings).map(|runs| Self(Backend::Postgres(runs)))
    }

    /// Where a pipeline file records its runs in addition to this machine.
    ///
    /// # Errors
    /// As for [`connect`](Self::connect).
    pub fn of(settings: &StateSettings) -> Result<Option<Self>, StateError> {
        match (settings.backend, &settings.config) {
            (StateBackend::Postgres, Some(settings)) => Self::connect(settings).map(Some),
            _ => Ok(None),
        }
    }

    /// Adds the file to an image of the data directory; runs in a server are not part of one.
    ///
    /// # Errors
    /// It cannot be read, or the image not be written.
    pub fn image(&self, image: &mut Image) -> Result<(), StateError> {
        let Backend::Sqlite(runs) = &self.0 else { return Ok(()) };
        let failed = |source: ImageError| StateError {
            act: "take into an image",
            what: runs.path().display().to_string(),
            source: source.into(),
        };
        let place = image.place(runs.path()).map_err(failed)?;
        runs.copy_to(&place)?;
        image.made(runs.path()).map_err(failed)
    }

    /// Records the start of a run.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn begin(&self, run: &str, pipeline: &str, now_ms: u64) -> Result<(), StateError> {
        match &self.0 {
            Backend::Sqlite(runs) => runs.begin(run, pipeline, now_ms),
            Backend::Postgres(runs) => runs.begin(run, pipeline, now_ms),
        }
    }

    /// Records the progress of a run.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn progress(&self, run: &str, progress: Progress, now_ms: u64) -> Result<(), StateError> {
        match &self.0 {
            Backend::Sqlite(runs) => runs.progress(run, progress, now_ms),
            Backend::Postgres(runs) => runs.progress(run, progress, now_ms),
        }
    }

    /// Records the end of a run.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn end(
        &self,
        run: &str,
        outcome: Outcome,
        error: Option<&str>,
        report: Option<&str>,
        now_ms: u64,
    ) -> Result<(), StateError> {
        match &self.0 {
            Backend::Sqlite(runs) => runs.end(run, outcome, error, report, now_ms),
            Backend::Postgres(runs) => runs.end(run, outcome, error, report, now_ms),
        }
    }

    /// The values that a connector keeps.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn kept(&self, of: &KeptBy) -> Result<Vec<(String, Vec<u8>)>, StateError> {
        match &self.0 {
            Backend::Sqlite(runs) => runs.kept(of),
            Backend::Postgres(runs) => runs.kept(of),
        }
    }

    /// Keeps a value of a connector, or removes it.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn keep(&self, of: &KeptBy, key: &str, value: Option<&[u8]>) -> Result<(), StateError> {
        match &self.0 {
            Backend::Sqlite(runs) => runs.keep(of, key, value),
            Backend::Postgres(runs) => runs.keep(of, key, value),
        }
    }

    /// Runs, the newest first.
    ///
    /// * `pipeline`: only this one.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn runs(
        &self,
        pipeline: Option<&str>,
        limit: u32,
        now_ms: u64,
    ) -> Result<Vec<RunRecord>, StateError> {
        match &self.0 {
            Backend::Sqlite(runs) => runs.runs(pipeline, limit, now_ms),
            Backend::Postgres(runs) => runs.runs(pipeline, limit, now_ms),
        }
    }

    /// A run.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn run(&self, run: &str, now_ms: u64) -> Result<Option<RunRecord>, StateError> {
        match &self.0 {
            Backend::Sqlite(runs) => runs.run(run, now_ms),
            Backend::Postgres(runs) => runs.run(run, now_ms),
        }
    }
}

fn word(outcome: Outcome) -> Option<&'static str> {
    match outcome {
        Outcome::Running | Outcome::Killed => None,
        Outcome::Done => Some("done"),
        Outcome::Failed => Some("failed"),
        Outcome::Cancelled => Some("cancelled"),
    }
}

fn record(stored: StoredRun, now_ms: u64) -> RunRecord {
    let silent = u128::from(now_ms.saturating_sub(stored.heard_ms)) > SILENT.as_millis();
    let outcome = match stored.outcome.as_deref() {
        Some("done") => Outcome::Done,
        Some("cancelled") => Outcome::Cancelled,
        Some(_) => Outcome::Failed,
        None if silent || stored.process.as_deref().is_some_and(is_gone) => Outcome::Killed,
        None => Outcome::Running,
    };
    RunRecord {
        run: stored.run,
        pipeline: stored.pipeline,
        began_ms: stored.began_ms,
        ended_ms: stored.heard_ms,
        outcome,
        rows_read: stored.rows_read,
        rows_committed: stored.rows_committed,
        bytes_read: stored.bytes_read,
        error: stored.error,
        // A report that is not JSON was not written by this program.
        report: stored.report.and_then(|text| serde_json::from_str(&text).ok()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_remembered_and_a_silent_one_counts_as_killed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipelines.sqlite");
        let state = State::open(&path).unwrap();
        state.begin("r1", "p", 1000).unwrap();
        state.begin("r2", "p", 2000).unwrap();
        state.begin("r3", "q", 3000).unwrap();
        state.end("r1", Outcome::Done, None, Some("{\"rows\":3}"), 1500).unwrap();
        let progress = Progress { rows_read: 5, rows_committed: 2, bytes_read: 70 };
        state.progress("r2", progress, 2500).unwrap();
        drop(state);
        let state = State::open(&path).unwrap();
        let of_p = state.runs(Some("p"), 10, 3000).unwrap();
        let shown: Vec<_> = of_p.iter().map(|run| (run.run.as_str(), run.outcome)).collect();
        assert_eq!(shown, [("r2", Outcome::Running), ("r1", Outcome::Done)]);
        assert_eq!(of_p[0].rows_committed, 2);
        assert_eq!(of_p[1].report, Some(serde_json::json!({ "rows": 3 })));
        let later = state.run("r2", 2500 + 10_001).unwrap().unwrap();
        assert_eq!(later.outcome, Outcome::Killed);
        assert_eq!(state.runs(None, 10, 3000).unwrap().len(), 3);
        assert!(state.run("none", 0).unwrap().is_none());
    }

    #[test]
    fn kept_values_are_there_for_the_next_process() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipelines.sqlite");
        let of = |stream: &str| KeptBy {
            pipeline: "p".into(),
            connector: "source c".into(),
            stream: stream.into(),
        };
        let state = State::open(&path).unwrap();
        state.keep(&of("s"), "k", Some(b"first")).unwrap();
        state.keep(&of("s"), "k", Some(b"\0\xff")).unwrap();
        state.keep(&of("t"), "k", Some(b"")).unwrap();
        drop(state);
        let state = State::open(&path).unwrap();
        assert_eq!(state.kept(&of("s")).unwrap(), [("k".to_owned(), b"\0\xff".to_vec())]);
        state.keep(&of("s"), "k", None).unwrap();
        assert!(state.kept(&of("s")).unwrap().is_empty());
        assert_eq!(state.kept(&of("t")).unwrap(), [("k".to_owned(), Vec::new())]);
    }

    #[test]
    fn a_run_whose_process_has_ended_counts_as_killed_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipelines.sqlite");
        let state = State::open(&path).unwrap();
        state.begin("r1", "p", 1000).unwrap();
        let outcome = |state: &State| state.run("r1", 1000).unwrap().unwrap().outcome;
        let Some(this) = forebay_base::process::this() else { return };
        assert_eq!(outcome(&state), Outcome::Running);
        // A process with the same number that was started at another time.
        let (before, _) = this.rsplit_once(' ').unwrap();
        let other = rusqlite::Connection::open(&path).unwrap();
        other.execute("update processes set process = ?1", [format!("{before} 0")]).unwrap();
        assert_eq!(outcome(&state), Outcome::Killed);
        state.end("r1", Outcome::Done, None, None, 1500).unwrap();
        assert_eq!(outcome(&state), Outcome::Done);
    }

    #[test]
    fn a_record_that_was_cut_or_altered_anywhere_is_set_aside_or_readable() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipelines.sqlite");
        let state = State::open(&path).unwrap();
        for number in 0..50 {
            state.begin(&format!("r{number}"), "p", number).unwrap();
        }
        drop(state);
        let whole = ["", "-wal"].map(|suffix| {
            let name = dir.path().join(format!("pipelines.sqlite{suffix}"));
            (name.clone(), std::fs::read(&name).unwrap_or_default())
        });
        let restore = || {
            for (name, bytes) in &whole {
                std::fs::write(name, bytes).unwrap();
            }
        };
        let works = |what: &str| {
            let state = State::open(&path).unwrap_or_else(|error| panic!("{what}: {error:?}"));
            state.begin("next", "p", 100).unwrap();
            assert_eq!(state.runs(Some("p"), 1, 100).unwrap()[0].run, "next", "{what}");
        };
        for (name, bytes) in &whole {
            for at in (0..bytes.len()).step_by(397) {
                restore();
                std::fs::write(name, &bytes[..at]).unwrap();
                works(&format!("{} cut at {at}", name.display()));
                restore();
                let mut altered = bytes.clone();
                altered[at] ^= 0xff;
                std::fs::write(name, altered).unwrap();
                works(&format!("{} altered at {at}", name.display()));
            }
        }
        restore();
        std::fs::write(&path, b"no database at all, but long enough to have a header of one")
            .unwrap();
        works("another file");
        assert!(dir.path().join("pipelines.damaged.sqlite").exists());
    }
}
