//! Runs in a table of a PostgreSQL, for all machines that run a pipeline.
//!
//! A separate thread communicates with the server, so that runs can be recorded from any thread. A
//! lost connection is replaced for the next request.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use forebay_postgres::connector::Server;
use forebay_postgres::connector::Settings as PostgresSettings;
use forebay_postgres::quote::{literal, quote_identifier as ident};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::run::kept::KeptBy;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row};

use super::{Outcome, Progress, RUNS_MAX, RunRecord, StateError, StoredRun, record, word};

/// Timeout of an answer of the server.
const ANSWER_MAX: Duration = Duration::from_secs(15);

type Parameter = Box<dyn ToSql + Sync + Send>;
type Answer = Result<Vec<Row>, Box<dyn std::error::Error + Send + Sync>>;

struct Request {
    statement: String,
    parameters: Vec<Parameter>,
    answer: SyncSender<Answer>,
}

/// The runs of a server.
#[derive(Debug)]
pub(super) struct PostgresRuns {
    requests: SyncSender<Request>,
    table: String,
    /// The table of the values that connectors keep.
    kept: String,
    what: String,
}

const COLUMNS: &str = "run, pipeline, began_ms, heard_ms, outcome, rows_read, rows_committed, bytes_read, \
                       error, report::text";

impl PostgresRuns {
    pub(super) fn connect(settings: &PostgresSettings) -> Result<Self, StateError> {
        let wrong = |error: ConnectorError| StateError {
            act: "reach",
            what: "state.config".to_owned(),
            source: error.into(),
        };
        let server = Server::new(settings).map_err(wrong)?;
        let schema = ident(&settings.ledger_schema.0);
        let table = format!("{schema}.pipeline_runs");
        let what = format!("{table} of {}", server.name());
        let (requests, received) = sync_channel(1);
        let made = std::thread::Builder::new()
            .name("pipeline-runs".into())
            .spawn(move || answer_all(&server, &received));
        let unmade = |source: std::io::Error| StateError {
            act: "reach",
            what: what.clone(),
            source: source.into(),
        };
        drop(made.map_err(unmade)?);
        let kept = format!("{schema}.pipeline_kept");
        let runs = Self { requests, table, kept, what };
        let is_there = format!("select to_regclass({}) is not null", literal(&runs.table));
        let found = runs.ask("look up", is_there, Vec::new())?;
        if !found.first().is_some_and(|row| row.get(0)) {
            runs.ask("create", format!("create schema if not exists {schema}"), Vec::new())?;
            runs.ask(
                "create",
                format!(
                    "create table if not exists {} (run text primary key, pipeline text not null, \
                     began_ms bigint not null, heard_ms bigint not null, outcome text, \
                     rows_read bigint not null default 0, rows_committed bigint not null default 0, \
                     bytes_read bigint not null default 0, error text, report jsonb)",
                    runs.table
                ),
                Vec::new(),
            )?;
        }
        Ok(runs)
    }

    /// The values that a connector keeps.
    pub(super) fn kept(&self, of: &KeptBy) -> Result<Vec<(String, Vec<u8>)>, StateError> {
        if !self.has_kept()? {
            return Ok(Vec::new());
        }
        let query = format!(
            "select key, value from {} where pipeline = $1 and connector = $2 and stream = $3",
            self.kept
        );
        let rows = self.ask("read", query, of_kept(of))?;
        Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
    }

    /// Keeps a value, or removes it.
    pub(super) fn keep(
        &self,
        of: &KeptBy,
        key: &str,
        value: Option<&[u8]>,
    ) -> Result<(), StateError> {
        if !self.has_kept()? {
            let create = format!(
                "create table if not exists {} (pipeline text not null, connector text not null, \
                 stream text not null, key text not null, value bytea not null, \
                 primary key (pipeline, connector, stream, key))",
                self.kept
            );
            self.ask("create", create, Vec::new())?;
        }
        let mut parameters = of_kept(of);
        parameters.push(text(key));
        let statement = match value {
            Some(value) => {
                parameters.push(Box::new(value.to_vec()));
                format!(
                    "insert into {} values ($1, $2, $3, $4, $5) \
                     on conflict (pipeline, connector, stream, key) do update set value = excluded.value",
                    self.kept
                )
            }
            None => format!(
                "delete from {} where pipeline = $1 and connector = $2 and stream = $3 and key = $4",
                self.kept
            ),
        };
        self.ask("write", statement, parameters).map(drop)
    }

    /// Whether the table of kept values exists.
    fn has_kept(&self) -> Result<bool, StateError> {
        let query = format!("select to_regclass({}) is not null", literal(&self.kept));
        Ok(self.ask("look up", query, Vec::new())?.first().is_some_and(|row| row.get(0)))
    }

    fn ask(
        &self,
        act: &'static str,
        statement: String,
        parameters: Vec<Parameter>,
    ) -> Result<Vec<Row>, StateError> {
        let failed = |source: Box<dyn std::error::Error + Send + Sync>| StateError {
            act,
            what: self.what.clone(),
            source,
        };
        let (answer, answered) = sync_channel(1);
        let gone = || failed("the connection thread has ended".into());
        self.requests.send(Request { statement, parameters, answer }).map_err(|_| gone())?;
        answered.recv().map_err(|_| gone())?.map_err(failed)
    }

    pub(super) fn begin(&self, run: &str, pipeline: &str, now_ms: u64) -> Result<(), StateError> {
        let insert = format!(
            "insert into {} (run, pipeline, began_ms, heard_ms) values ($1, $2, $3, $3)",
            self.table
        );
        self.ask("write", insert, vec![text(run), text(pipeline), number(now_ms)])?;
        let forget = format!(
            "delete from {0} where pipeline = $1 and run not in (select run from {0} where pipeline = $1 \
             order by began_ms desc, run desc limit {RUNS_MAX})",
            self.table
        );
        self.ask("write", forget, vec![text(pipeline)]).map(drop)
    }

    pub(super) fn progress(
        &self,
        run: &str,
        progress: Progress,
        now_ms: u64,
    ) -> Result<(), StateError> {
        let update = format!(
            "update {} set heard_ms = $2, rows_read = $3, rows_committed = $4, bytes_read = $5 \
             where run = $1",
            self.table
        );
        let Progress { rows_read, rows_committed, bytes_read } = progress;
        let numbers = [now_ms, rows_read, rows_committed, bytes_read].map(number);
        self.ask("write", update, [text(run)].into_iter().chain(numbers).collect()).map(drop)
    }

    pub(super) fn end(
        &self,
        run: &str,
        outcome: Outcome,
        error: Option<&str>,
        report: Option<&str>,
        now_ms: u64,
    ) -> Result<(), StateError> {
        let update = format!(
            "update {} set heard_ms = $2, outcome = $3, error = $4, report = $5::text::jsonb \
             where run = $1",
            self.table
        );
        let optional = |text: Option<&str>| -> Parameter { Box::new(text.map(str::to_owned)) };
        let parameters = vec![
            text(run),
            number(now_ms),
            optional(word(outcome)),
            optional(error),
            optional(report),
        ];
        self.ask("write", update, parameters).map(drop)
    }

    pub(super) fn runs(
        &self,
        pipeline: Option<&str>,
        limit: u32,
        now_ms: u64,
    ) -> Result<Vec<RunRecord>, StateError> {
        let select = format!(
            "select {COLUMNS} from {} where $1::text is null or pipeline = $1 \
             order by began_ms desc, run desc limit {limit}",
            self.table
        );
        let rows = self.ask("read", select, vec![Box::new(pipeline.map(str::to_owned))])?;
        Ok(rows.iter().map(|row| record(stored_run(row), now_ms)).collect())
    }

    pub(super) fn run(&self, run: &str, now_ms: u64) -> Result<Option<RunRecord>, StateError> {
        let select = format!("select {COLUMNS} from {} where run = $1", self.table);
        let rows = self.ask("read", select, vec![text(run)])?;
        Ok(rows.first().map(|row| record(stored_run(row), now_ms)))
    }
}

fn of_kept(of: &KeptBy) -> Vec<Parameter> {
    vec![text(&of.pipeline), text(&of.connector), text(&of.stream)]
}

fn text(text: &str) -> Parameter {
    Box::new(text.to_owned())
}

fn number(number: u64) -> Parameter {
    Box::new(i64::try_from(number).unwrap_or(i64::MAX))
}

fn stored_run(row: &Row) -> StoredRun {
    let number = |column: usize| u64::try_from(row.get::<_, i64>(column)).unwrap_or_default();
    StoredRun {
        run: row.get(0),
        pipeline: row.get(1),
        began_ms: number(2),
        heard_ms: number(3),
        outcome: row.get(4),
        rows_read: number(5),
        rows_committed: number(6),
        bytes_read: number(7),
        error: row.get(8),
        report: row.get(9),
        // Most of its runs are those of other machines.
        process: None,
    }
}

/// Serves requests until all senders have gone.
fn answer_all(server: &Server, received: &Receiver<Request>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let mut client = None;
    for Request { statement, parameters, answer } in received {
        let answered = match &runtime {
            Ok(runtime) => runtime.block_on(async {
                let answered = answered(server, &mut client, &statement, &parameters);
                match tokio::time::timeout(ANSWER_MAX, answered).await {
                    Ok(answered) => answered,
                    Err(_) => {
                        client = None;
                        Err(format!("no answer within {} seconds", ANSWER_MAX.as_secs()).into())
                    }
                }
            }),
            Err(error) => Err(error.to_string().into()),
        };
        // The requester may have gone.
        answer.send(answered).unwrap_or_default();
    }
}

async fn answered(
    server: &Server,
    client: &mut Option<Client>,
    statement: &str,
    parameters: &[Parameter],
) -> Answer {
    let connected = match client.take().filter(|client| !client.is_closed()) {
        Some(connected) => connected,
        None => server.connect(None).await?,
    };
    let parameters: Vec<&(dyn ToSql + Sync)> =
        parameters.iter().map(|parameter| &**parameter as &(dyn ToSql + Sync)).collect();
    let rows = connected.query(statement, &parameters).await;
    *client = Some(connected);
    Ok(rows?)
}
