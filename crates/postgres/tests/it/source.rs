//! The source of pipelines: which rows an incremental run reads.

use std::sync::Arc;

use forebay_postgres::connector::{PostgresSource, Settings};
use forebay_sdk::connector::{Cursor, Division, Form, Opening, Result, Source as _, SourceStream};
use forebay_sdk::run::{Budget, Context, Outlet};
use forebay_sdk::settings::StreamSettings;
use tokio::runtime::Runtime;

use crate::pg::Postgres;

/// A source of the tables of a server's database `postgres`.
pub(crate) struct Reader {
    source: PostgresSource,
    runtime: Runtime,
}

impl Reader {
    /// * `wait`: `wait_for_late_commits`.
    pub(crate) fn new(pg: &Postgres, wait: &str) -> Self {
        let settings: Settings = serde_json::from_value(serde_json::json!({
            "port": pg.port(), "database": "postgres", "wait_for_late_commits": wait,
        }))
        .unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = { runtime }.worker_threads(2).enable_all().build().unwrap();
        Self { source: PostgresSource::new(settings), runtime }
    }

    pub(crate) fn open(
        &self,
        stream: &serde_json::Value,
        since: Option<&Cursor>,
        division: Division,
    ) -> Result<Arc<dyn SourceStream>> {
        let stream: StreamSettings = serde_json::from_value(stream.clone()).unwrap();
        let opening = Opening {
            form: Form::Records,
            since: since.cloned(),
            division,
            unit_size: 64 << 20,
            batch_size: 1 << 20,
            memory: 32 << 20,
            parallelism: 1,
        };
        let (context, _cancel) = Context::new("test");
        self.runtime.block_on(self.source.open(&stream, &opening, &context))
    }

    /// Number of rows of a stream.
    pub(crate) fn rows(&self, stream: &Arc<dyn SourceStream>) -> Result<u64> {
        self.runtime.block_on(async {
            let mut count = 0;
            for unit in 0..stream.units().len() {
                let (context, _cancel) = Context::new("test");
                let (mut outlet, mut inlet) = Outlet::new(Budget::new(64 << 20), context).unwrap();
                let stream = Arc::clone(stream);
                let read = tokio::spawn(async move { stream.read(unit, &mut outlet).await });
                while let Some(batch) = inlet.recv().await.unwrap() {
                    count += batch.rows.count();
                }
                read.await.unwrap()?;
            }
            Ok(count)
        })
    }
}

fn incremental(table: &str) -> serde_json::Value {
    serde_json::json!({ "name": table, "sync_mode": "incremental", "cursor_field": "id" })
}

const TABLE: &str =
    "(id bigint generated always as identity primary key, v text, at timestamptz default now())";

#[test]
fn an_unfinished_incremental_load_keeps_its_units_and_is_not_read_again() {
    let Some(pg) = crate::pg::postgres() else { return };
    pg.query(&format!("create table t {TABLE}; insert into t (v) values ('a'), ('b')"));
    let reader = Reader::new(&pg, "5s");
    let first = reader.open(&incremental("t"), None, Division::Stable).unwrap();
    let units = first.units().to_vec();
    pg.query("insert into t (v) values ('c')");
    let again = reader.open(&incremental("t"), None, Division::As(units.clone())).unwrap();
    assert_eq!(again.units(), units);
    assert!(!again.units_are_stable());
    let error = reader.rows(&again).unwrap_err();
    assert!(error.to_string().contains("cannot be read"), "{error}");
    assert_eq!(reader.rows(&first).unwrap(), 2);
}

/// The values of `id` that a run reads: how many, and the last.
fn read(
    reader: &Reader,
    stream: &serde_json::Value,
    since: Option<&Cursor>,
) -> (u64, Option<Cursor>) {
    let opened = reader.open(stream, since, Division::Stable).unwrap();
    (reader.rows(&opened).unwrap(), opened.cursor())
}

/// A session of psql that has run some statements and stays open.
fn session(pg: &Postgres, statements: &str) -> std::process::Child {
    use std::io::Write as _;
    let mut session = pg.session("postgres");
    let name = format!("ready {}", session.id());
    let input = session.stdin.as_mut().unwrap();
    writeln!(input, "{statements}; set application_name = '{name}';").unwrap();
    input.flush().unwrap();
    let is_ready =
        format!("select count(*) from pg_stat_activity where application_name = '{name}'");
    while pg.query(&is_ready) == "0" {}
    session
}

fn end(mut session: std::process::Child, statement: &str) {
    use std::io::Write as _;
    let mut input = session.stdin.take().unwrap();
    writeln!(input, "{statement};").unwrap();
    drop(input);
    session.wait().unwrap();
}

#[test]
fn transactions_that_do_not_write_the_table_are_not_waited_for() {
    let Some(pg) = crate::pg::postgres() else { return };
    pg.query(&format!(
        "create table t {TABLE}; create table other (v int); insert into t (v) values ('a')"
    ));
    let reader = Reader::new(&pg, "1ms");
    let dump = session(&pg, "begin isolation level repeatable read read only; select * from t");
    let writer = session(&pg, "begin; insert into other values (1)");
    let (rows, cursor) = read(&reader, &incremental("t"), None);
    assert_eq!((rows, cursor.unwrap().value), (1, "1".to_owned()));
    end(dump, "commit");
    end(writer, "commit");
}

#[test]
fn a_transaction_that_wrote_the_table_or_drew_from_its_sequence_is_waited_for() {
    let Some(pg) = crate::pg::postgres() else { return };
    pg.query(&format!(
        "create table t {TABLE}; create sequence s; \
         create table p (id bigint default nextval('s'), v text) partition by range (id); \
         create table p1 partition of p for values from (0) to (1000); \
         insert into t (v) values ('a'); insert into p (v) values ('a')"
    ));
    let reader = Reader::new(&pg, "1ms");
    for (table, statement) in [
        ("t", "insert into t (v) values ('late')"),
        ("t", "select nextval('t_id_seq')"),
        ("p", "select nextval('s')"),
        ("p", "insert into p1 (id, v) values (nextval('s'), 'late')"),
    ] {
        let late = session(&pg, &format!("begin; {statement}"));
        pg.query(&format!("insert into {table} (v) values ('early')"));
        let error = reader.open(&incremental(table), None, Division::Stable).err().unwrap();
        assert!(error.to_string().contains("earlier transactions are still open"), "{error}");
        end(late, "rollback");
        let (rows, _) = read(&reader, &incremental(table), None);
        assert_eq!(rows.to_string(), pg.query(&format!("select count(*) from {table}")));
    }
}

#[test]
fn a_prepared_transaction_is_waited_for() {
    let Some(pg) = crate::pg::postgres() else { return };
    pg.query(&format!("create table t {TABLE}"));
    pg.query("begin; insert into t (v) values ('late'); prepare transaction 'late'");
    pg.query("insert into t (v) values ('early')");
    let reader = Reader::new(&pg, "1ms");
    for field in ["id", "at"] {
        let stream = serde_json::json!({
            "name": "t", "sync_mode": "incremental", "cursor_field": field,
        });
        let error = reader.open(&stream, None, Division::Stable).err().unwrap();
        assert!(error.to_string().contains("a prepared transaction"), "{error}");
    }
    pg.query("commit prepared 'late'");
    assert_eq!(read(&reader, &incremental("t"), None).0, 2);
}

#[test]
fn rows_of_the_time_of_an_open_transaction_are_left_for_the_next_run() {
    let Some(pg) = crate::pg::postgres() else { return };
    pg.query(&format!("create table t {TABLE}; insert into t (v) values ('a')"));
    let stream = serde_json::json!({
        "name": "t", "sync_mode": "incremental", "cursor_field": "at", "tie_breaker_field": "id",
    });
    let reader = Reader::new(&pg, "1ms");
    let (rows, first) = read(&reader, &stream, None);
    assert_eq!(rows, 1);
    // It has written nothing yet, and will write a row of the time at which it began.
    let late = session(&pg, "begin; select 1");
    pg.query("insert into t (v) values ('early')");
    let (rows, second) = read(&reader, &stream, first.as_ref());
    assert_eq!((rows, &second), (0, &first), "the cursor never moves back");
    end(late, "insert into t (v) values ('late'); commit");
    let (rows, third) = read(&reader, &stream, second.as_ref());
    assert_eq!(rows, 2);
    assert_eq!(read(&reader, &stream, third.as_ref()).0, 0);
}

#[test]
fn a_cursor_and_a_tie_breaker_may_be_uuids() {
    let Some(pg) = crate::pg::postgres() else { return };
    pg.query(
        "create table t (id uuid primary key, n bigint); \
         insert into t values ('00000000-0000-0000-0000-000000000001', 1), \
         ('00000000-0000-0000-0000-000000000003', 1)",
    );
    let by_id =
        serde_json::json!({ "name": "t", "sync_mode": "incremental", "cursor_field": "id" });
    let tied = serde_json::json!({
        "name": "t", "sync_mode": "incremental", "cursor_field": "n", "tie_breaker_field": "id",
    });
    let reader = Reader::new(&pg, "5s");
    for stream in [by_id, tied] {
        pg.query("delete from t where n = 2 or id = '00000000-0000-0000-0000-000000000004'");
        let (rows, cursor) = read(&reader, &stream, None);
        assert_eq!(rows, 2);
        assert_eq!(read(&reader, &stream, cursor.as_ref()).0, 0);
        pg.query("insert into t values ('00000000-0000-0000-0000-000000000004', 1)");
        assert_eq!(read(&reader, &stream, cursor.as_ref()).0, 1);
    }
}
