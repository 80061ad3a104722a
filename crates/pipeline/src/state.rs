//! What this side remembers of runs: for people. What a run goes on from is in the destination's ledger.
//!
//! One SQLite file. A run that was killed never writes its end; it is told apart from one that still runs
//! by its heartbeat.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _, Row, params};
use serde::Serialize;

/// How often a run says that it is alive.
pub const HEARTBEAT: Duration = Duration::from_secs(1);
/// After how long without it a run counts as killed.
const SILENT: Duration = Duration::from_secs(10);
/// Runs that are remembered of a pipeline.
const RUNS_MAX: u32 = 1000;

/// Why runs could not be remembered or looked up.
#[derive(Debug, thiserror::Error)]
#[error("cannot {act} {path}")]
pub struct StateError {
    /// What was attempted.
    pub act: &'static str,
    /// The file.
    pub path: PathBuf,
    /// Why.
    #[source]
    pub source: rusqlite::Error,
}

/// The runs there were.
#[derive(Debug)]
pub struct State {
    connection: Connection,
    path: PathBuf,
}

/// How a run ended, or that it has not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It still runs.
    Running,
    /// All was copied.
    Done,
    /// It failed.
    Failed,
    /// It was asked to stop.
    Cancelled,
    /// It never said how it ended.
    Killed,
}

/// A run.
#[derive(Debug, Clone, Serialize)]
pub struct RunRecord {
    /// Its id.
    pub run: String,
    /// Name of the pipeline.
    pub pipeline: String,
    /// When it began: milliseconds since 1970.
    pub began_ms: u64,
    /// When it ended or was last heard of.
    pub ended_ms: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// Rows that were read.
    pub rows_read: u64,
    /// Rows that were committed.
    pub rows_committed: u64,
    /// Bytes that were read.
    pub bytes_read: u64,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Its report, as JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report: Option<serde_json::Value>,
}

/// How far a run is.
#[derive(Debug, Clone, Copy, Default)]
pub struct Progress {
    /// Rows that were read.
    pub rows_read: u64,
    /// Rows that were committed.
    pub rows_committed: u64,
    /// Bytes that were read.
    pub bytes_read: u64,
}

const SCHEMA: &str = "
pragma journal_mode = wal;
-- A power cut may take the last words of a run: the ledger does not depend on them.
pragma synchronous = normal;
create table if not exists runs (
    run text primary key, pipeline text not null, began_ms integer not null, heard_ms integer not null,
    outcome text, rows_read integer not null default 0, rows_committed integer not null default 0,
    bytes_read integer not null default 0, error text, report text) strict;
create index if not exists runs_of_pipeline on runs (pipeline, began_ms);";

const COLUMNS: &str = "run, pipeline, began_ms, heard_ms, outcome, rows_read, rows_committed, bytes_read, \
                       error, report";

impl State {
    /// Opens the file, or makes it.
    ///
    /// # Errors
    /// It cannot be written, or is no such file.
    pub fn open(path: &Path) -> Result<Self, StateError> {
        let failed = |source| StateError { act: "open", path: path.to_owned(), source };
        let connection = Connection::open(path).map_err(failed)?;
        connection.busy_timeout(Duration::from_secs(5)).map_err(failed)?;
        connection.execute_batch(SCHEMA).map_err(failed)?;
        Ok(Self { connection, path: path.to_owned() })
    }

    fn failed(&self, act: &'static str) -> impl Fn(rusqlite::Error) -> StateError + '_ {
        move |source| StateError { act, path: self.path.clone(), source }
    }

    /// Remembers that a run begins.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn begin(&self, run: &str, pipeline: &str, now_ms: u64) -> Result<(), StateError> {
        let failed = self.failed("write");
        self.connection
            .execute(
                "insert into runs (run, pipeline, began_ms, heard_ms) values (?1, ?2, ?3, ?3)",
                params![run, pipeline, now_ms],
            )
            .map_err(&failed)?;
        self.connection
            .execute(
                "delete from runs where pipeline = ?1 and run not in
                 (select run from runs where pipeline = ?1 order by began_ms desc, run desc limit ?2)",
                params![pipeline, RUNS_MAX],
            )
            .map_err(&failed)?;
        Ok(())
    }

    /// Remembers how far a run is.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn progress(&self, run: &str, progress: Progress, now_ms: u64) -> Result<(), StateError> {
        self.connection
            .execute(
                "update runs set heard_ms = ?2, rows_read = ?3, rows_committed = ?4, bytes_read = ?5
                 where run = ?1",
                params![
                    run,
                    now_ms,
                    progress.rows_read,
                    progress.rows_committed,
                    progress.bytes_read
                ],
            )
            .map_err(self.failed("write"))
            .map(drop)
    }

    /// Remembers how a run ended.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn end(
        &self,
        run: &str,
        outcome: Outcome,
        error: Option<&str>,
        report: Option<&str>,
        now_ms: u64,
    ) -> Result<(), StateError> {
        self.connection
            .execute(
                "update runs set heard_ms = ?2, outcome = ?3, error = ?4, report = ?5 where run = ?1",
                params![run, now_ms, word(outcome), error, report],
            )
            .map_err(self.failed("write"))
            .map(drop)
    }

    /// Runs, the newest first.
    ///
    /// * `pipeline`: of this one only.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn runs(
        &self,
        pipeline: Option<&str>,
        limit: u32,
        now_ms: u64,
    ) -> Result<Vec<RunRecord>, StateError> {
        let failed = self.failed("read");
        let sql = format!(
            "select {COLUMNS} from runs where ?1 is null or pipeline = ?1
             order by began_ms desc, run desc limit ?2"
        );
        let mut statement = self.connection.prepare(&sql).map_err(&failed)?;
        let rows = statement.query_map(params![pipeline, limit], |row| record(row, now_ms));
        rows.map_err(&failed)?.collect::<Result<_, _>>().map_err(&failed)
    }

    /// A run.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn run(&self, run: &str, now_ms: u64) -> Result<Option<RunRecord>, StateError> {
        let sql = format!("select {COLUMNS} from runs where run = ?1");
        let found = self.connection.query_row(&sql, [run], |row| record(row, now_ms));
        found.optional().map_err(self.failed("read"))
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

fn record(row: &Row<'_>, now_ms: u64) -> rusqlite::Result<RunRecord> {
    let ended_ms: u64 = row.get(3)?;
    let silent = u128::from(now_ms.saturating_sub(ended_ms)) > SILENT.as_millis();
    let outcome = match row.get::<_, Option<String>>(4)?.as_deref() {
        Some("done") => Outcome::Done,
        Some("cancelled") => Outcome::Cancelled,
        Some(_) => Outcome::Failed,
        None if silent => Outcome::Killed,
        None => Outcome::Running,
    };
    let report: Option<String> = row.get(9)?;
    Ok(RunRecord {
        run: row.get(0)?,
        pipeline: row.get(1)?,
        began_ms: row.get(2)?,
        ended_ms,
        outcome,
        rows_read: row.get(5)?,
        rows_committed: row.get(6)?,
        bytes_read: row.get(7)?,
        error: row.get(8)?,
        // One that is not JSON was not written by this program.
        report: report.and_then(|text| serde_json::from_str(&text).ok()),
    })
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
}
