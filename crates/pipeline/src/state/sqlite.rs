//! Runs in a SQLite file of this machine.
//!
//! Processes share the file through a shared-memory file beside it, which SQLite creates at each
//! opening. On a full disk there is no room for that: then the file is opened exclusively, which
//! needs none, and reads continue to work. Each use tries to share it again first.

use std::cell::{RefCell, RefMut};
use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_base::fs::set_database_aside;
use forebay_base::process;
use forebay_sdk::run::kept::KeptBy;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::{Outcome, Progress, RUNS_MAX, RunRecord, StateError, StoredRun, record, word};

/// The runs of a file.
#[derive(Debug)]
pub(super) struct SqliteRuns {
    held: RefCell<Held>,
    path: PathBuf,
}

/// How the file is open.
#[derive(Debug)]
enum Held {
    Shared(Connection),
    /// Exclusively: there was no room to share it.
    Alone(Connection),
    /// It could not be opened again.
    Not,
}

/// Whether SQLite failed for lack of space.
pub(super) fn is_full(error: &rusqlite::Error) -> bool {
    /// The memory beside a database could not be made large enough.
    const SHM_SIZE: i32 = rusqlite::ffi::SQLITE_IOERR_SHMSIZE;
    matches!(
        error,
        rusqlite::Error::SqliteFailure(error, _)
            if error.code == rusqlite::ErrorCode::DiskFull || error.extended_code == SHM_SIZE
    )
}

fn unusable(act: &'static str, path: &Path, source: rusqlite::Error) -> StateError {
    StateError { act, what: path.display().to_string(), source: source.into() }
}

const SCHEMA: &str = "
pragma journal_mode = wal;
-- A power cut may take the last words of a run: the ledger does not depend on them.
pragma synchronous = normal;
-- Each process that opens the file reads what is in its log: that is to be little.
pragma wal_autocheckpoint = 100;
create table if not exists runs (
    run text primary key, pipeline text not null, began_ms integer not null, heard_ms integer not null,
    outcome text, rows_read integer not null default 0, rows_committed integer not null default 0,
    bytes_read integer not null default 0, error text, report text) strict;
create index if not exists runs_of_pipeline on runs (pipeline, began_ms);
create table if not exists processes (run text primary key, process text not null) strict;
create table if not exists kept (
    pipeline text not null, connector text not null, stream text not null, key text not null, value blob not null,
    primary key (pipeline, connector, stream, key)) strict;";

const COLUMNS: &str = "run, pipeline, began_ms, heard_ms, outcome, rows_read, rows_committed, bytes_read, \
                       error, report, (select process from processes where processes.run = runs.run)";

impl SqliteRuns {
    /// Opens the file, or creates it. A damaged one is set aside: nothing that is copied depends on it.
    pub(super) fn open(path: &Path) -> Result<Self, StateError> {
        let opened = hold(path).and_then(|held| check(&held).map(|()| held));
        let held = match opened {
            Err(error) if is_damage(&error) => {
                let aside = path.with_extension("damaged.sqlite");
                tracing::warn!(
                    %error,
                    aside = %aside.display(),
                    "the record of runs is damaged: it was set aside, and another begins"
                );
                set_database_aside(path, &aside).map_err(|source| StateError {
                    act: "set aside",
                    what: path.display().to_string(),
                    source: source.into(),
                })?;
                hold(path)
            }
            opened => opened,
        };
        let held = held.map_err(|source| unusable("open", path, source))?;
        Ok(Self { held: RefCell::new(held), path: path.to_owned() })
    }

    /// Writes a copy of the file as it is now.
    pub(super) fn copy_to(&self, to: &Path) -> Result<(), StateError> {
        let failed = self.failed("copy");
        let to = to.as_os_str().to_string_lossy();
        self.connection()?.execute("vacuum into ?1", [&*to]).map(drop).map_err(failed)
    }

    /// The file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The connection, shared again if it was exclusive and that is possible now.
    fn connection(&self) -> Result<RefMut<'_, Connection>, StateError> {
        let mut held = self.held.borrow_mut();
        if !matches!(*held, Held::Shared(_)) {
            // Closed first: no other connection may have it open while it is exclusive.
            *held = Held::Not;
            *held = hold(&self.path).map_err(self.failed("open"))?;
        }
        RefMut::filter_map(held, |held| match held {
            Held::Shared(connection) | Held::Alone(connection) => Some(connection),
            Held::Not => None,
        })
        .map_err(|_| unusable("open", &self.path, rusqlite::Error::InvalidQuery))
    }

    fn failed(&self, act: &'static str) -> impl Fn(rusqlite::Error) -> StateError + '_ {
        move |source| unusable(act, &self.path, source)
    }

    /// Records the start of a run.
    pub(super) fn begin(&self, run: &str, pipeline: &str, now_ms: u64) -> Result<(), StateError> {
        let failed = self.failed("write");
        self.connection()?
            .execute(
                "insert into runs (run, pipeline, began_ms, heard_ms) values (?1, ?2, ?3, ?3)",
                params![run, pipeline, now_ms],
            )
            .map_err(&failed)?;
        if let Some(process) = process::this() {
            self.connection()?
                .execute("insert into processes values (?1, ?2)", params![run, process])
                .map_err(&failed)?;
        }
        self.connection()?
            .execute(
                "delete from runs where pipeline = ?1 and run not in
                 (select run from runs where pipeline = ?1 order by began_ms desc, run desc limit ?2)",
                params![pipeline, RUNS_MAX],
            )
            .map_err(&failed)?;
        self.connection()?
            .execute("delete from processes where run not in (select run from runs)", [])
            .map_err(&failed)?;
        Ok(())
    }

    /// Records the progress of a run.
    pub(super) fn progress(
        &self,
        run: &str,
        progress: Progress,
        now_ms: u64,
    ) -> Result<(), StateError> {
        self.connection()?
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

    /// Records the end of a run.
    pub(super) fn end(
        &self,
        run: &str,
        outcome: Outcome,
        error: Option<&str>,
        report: Option<&str>,
        now_ms: u64,
    ) -> Result<(), StateError> {
        self.connection()?
            .execute(
                "update runs set heard_ms = ?2, outcome = ?3, error = ?4, report = ?5 where run \
                 = ?1",
                params![run, now_ms, word(outcome), error, report],
            )
            .map_err(self.failed("write"))
            .map(drop)
    }

    /// The values that a connector keeps.
    pub(super) fn kept(&self, of: &KeptBy) -> Result<Vec<(String, Vec<u8>)>, StateError> {
        let failed = self.failed("read");
        let connection = self.connection()?;
        let sql =
            "select key, value from kept where pipeline = ?1 and connector = ?2 and stream = ?3";
        let mut statement = connection.prepare(sql).map_err(&failed)?;
        let of = params![of.pipeline, of.connector, of.stream];
        let rows = statement.query_map(of, |row| Ok((row.get(0)?, row.get(1)?)));
        rows.map_err(&failed)?.collect::<Result<_, _>>().map_err(&failed)
    }

    /// Keeps a value, or removes it.
    pub(super) fn keep(
        &self,
        of: &KeptBy,
        key: &str,
        value: Option<&[u8]>,
    ) -> Result<(), StateError> {
        let (KeptBy { pipeline, connector, stream }, at) = (of, self.connection()?);
        let done = match value {
            Some(value) => at.execute(
                "insert or replace into kept values (?1, ?2, ?3, ?4, ?5)",
                params![pipeline, connector, stream, key, value],
            ),
            None => at.execute(
                "delete from kept where pipeline = ?1 and connector = ?2 and stream = ?3 and key = ?4",
                params![pipeline, connector, stream, key],
            ),
        };
        done.map(drop).map_err(self.failed("write"))
    }

    /// Runs, the newest first.
    ///
    /// * `pipeline`: only this one.
    pub(super) fn runs(
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
        let connection = self.connection()?;
        let mut statement = connection.prepare(&sql).map_err(&failed)?;
        let rows = statement
            .query_map(params![pipeline, limit], |row| Ok(record(stored_run(row)?, now_ms)));
        rows.map_err(&failed)?.collect::<Result<_, _>>().map_err(&failed)
    }

    /// A run.
    pub(super) fn run(&self, run: &str, now_ms: u64) -> Result<Option<RunRecord>, StateError> {
        let sql = format!("select {COLUMNS} from runs where run = ?1");
        let found =
            self.connection()?.query_row(&sql, [run], |row| Ok(record(stored_run(row)?, now_ms)));
        found.optional().map_err(self.failed("read"))
    }
}

/// Whether a file is not such a record, or not whole: SQLite says so, its tables lack something, or a value
/// is none that is written.
fn is_damage(error: &rusqlite::Error) -> bool {
    use rusqlite::{Error, ErrorCode};
    match error {
        Error::FromSqlConversionFailure(..)
        | Error::InvalidColumnType(..)
        | Error::IntegralValueOutOfRange(..)
        | Error::Utf8Error(..)
        | Error::SqlInputError { .. } => true,
        // `Unknown` is the code of statements that do not fit the tables.
        error => error.sqlite_error_code().is_some_and(|code| {
            matches!(
                code,
                ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt | ErrorCode::Unknown
            )
        }),
    }
}

/// Reads the whole file, which is small, for damage, that of its definitions included.
fn check(held: &Held) -> rusqlite::Result<()> {
    let (Held::Shared(connection) | Held::Alone(connection)) = held else { return Ok(()) };
    let mut found: String = connection.query_row("pragma quick_check(1)", [], |row| row.get(0))?;
    let whole = Connection::open_in_memory()?;
    whole.execute_batch(SCHEMA)?;
    if found == "ok" && definitions(connection)? != definitions(&whole)? {
        "its tables are other ones".clone_into(&mut found);
    }
    if found == "ok" {
        let mut statement = connection.prepare(&format!("select {COLUMNS} from runs"))?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            stored_run(row)?;
        }
        return Ok(());
    }
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
    Err(rusqlite::Error::SqliteFailure(code, Some(found)))
}

/// What tables and indexes are defined as.
fn definitions(connection: &Connection) -> rusqlite::Result<Vec<(String, Option<String>)>> {
    let mut statement = connection.prepare("select name, sql from sqlite_schema order by name")?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    rows.collect()
}

/// Opens the file: shared, or exclusively if there is no room for that.
fn hold(path: &Path) -> rusqlite::Result<Held> {
    match connect(path, "") {
        Err(error) if is_full(&error) => {
            connect(path, "pragma locking_mode = exclusive;").map(Held::Alone)
        }
        connected => connected.map(Held::Shared),
    }
}

fn connect(path: &Path, first: &str) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(Duration::from_secs(5))?;
    connection.execute_batch(first)?;
    connection.execute_batch(SCHEMA)?;
    // The last connection to close would wait for the disk; the next one that writes much does it.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(connection)
}

fn stored_run(row: &Row<'_>) -> rusqlite::Result<StoredRun> {
    Ok(StoredRun {
        run: row.get(0)?,
        pipeline: row.get(1)?,
        began_ms: row.get(2)?,
        heard_ms: row.get(3)?,
        outcome: row.get(4)?,
        rows_read: row.get(5)?,
        rows_committed: row.get(6)?,
        bytes_read: row.get(7)?,
        error: row.get(8)?,
        report: row.get(9)?,
        process: row.get(10)?,
    })
}
