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
        self.open_sized(stream, since, division, 64 << 20)
    }

    /// * `unit_size`: the size of units in bytes.
    pub(crate) fn open_sized(
        &self,
        stream: &serde_json::Value,
        since: Option<&Cursor>,
        division: Division,
        unit_size: u64,
    ) -> Result<Arc<dyn SourceStream>> {
        let stream: StreamSettings = serde_json::from_value(stream.clone()).unwrap();
        let opening = Opening {
            form: Form::Records,
            since: since.cloned(),
            division,
            unit_size,
            batch_size: 1 << 20,
            memory: 32 << 20,
            parallelism: 1,
            snapshot: None,
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

pub(crate) fn incremental(table: &str) -> serde_json::Value {
    serde_json::json!({ "name": table, "sync_mode": "incremental", "cursor_field": "id" })
}

pub(crate) const TABLE: &str =
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
pub(crate) fn read(
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

/// What the rows of a stream are, in the first column.
fn values(reader: &Reader, stream: &Arc<dyn SourceStream>) -> Vec<String> {
    use forebay_sdk::batch::{Rows, json_rows};
    reader.runtime.block_on(async {
        let mut values = Vec::new();
        for unit in 0..stream.units().len() {
            let (context, _cancel) = Context::new("test");
            let (mut outlet, mut inlet) = Outlet::new(Budget::new(64 << 20), context).unwrap();
            let stream = Arc::clone(stream);
            let read = tokio::spawn(async move { stream.read(unit, &mut outlet).await });
            while let Some(batch) = inlet.recv().await.unwrap() {
                let Rows::Records(records) = &batch.rows else { panic!("records were asked for") };
                values.extend(json_rows(records).unwrap());
            }
            read.await.unwrap().unwrap();
        }
        values.sort();
        values
    })
}

#[test]
fn a_parent_is_read_with_its_children_however_large_it_is() {
    let Some(pg) = crate::pg::postgres() else { return };
    pg.query(
        "create table t (id int, v text); create table child (own int) inherits (t);
         create table grandchild () inherits (child);
         insert into t select g, repeat('v', 1000) from generate_series(1, 30000) g; analyze t;
         insert into child select g, 'child', 1 from generate_series(30001, 30010) g;
         insert into grandchild values (30011, 'grandchild', 2)",
    );
    let reader = Reader::new(&pg, "5s");
    let stream = serde_json::json!({ "name": "t", "partition_key": "id" });
    for (division, is_divided) in
        [(Division::Whole, false), (Division::Any, true), (Division::Stable, true)]
    {
        // It has 30 MB: units of 4 MiB.
        let opened = reader.open_sized(&stream, None, division, 4 << 20).unwrap();
        assert_eq!(opened.units().len() > 1, is_divided);
        assert_eq!(reader.rows(&opened).unwrap(), 30_011);
    }
    // A small one, by itself.
    pg.query("truncate only t");
    let stream = serde_json::json!({ "name": "t" });
    for division in [Division::Whole, Division::Any] {
        let opened = reader.open(&stream, None, division).unwrap();
        assert_eq!(reader.rows(&opened).unwrap(), 11);
    }
    // What has no children any more is read as any other table.
    pg.query("drop table child cascade");
    let opened = reader.open(&stream, None, Division::Whole).unwrap();
    assert_eq!(reader.rows(&opened).unwrap(), 0);
}

#[test]
fn generated_columns_are_read_as_values() {
    let Some(pg) = crate::pg::postgres() else { return };
    pg.query(
        "create table t (id int, twice int generated always as (id * 2) stored);
         insert into t values (1), (2)",
    );
    let reader = Reader::new(&pg, "5s");
    for stream in [
        serde_json::json!({ "name": "t" }),
        serde_json::json!({ "name": "t", "columns": ["id", "twice"] }),
    ] {
        let opened = reader.open(&stream, None, Division::Whole).unwrap();
        assert_eq!(values(&reader, &opened), [r#"{"id":1,"twice":2}"#, r#"{"id":2,"twice":4}"#]);
    }
    let without = serde_json::json!({ "name": "t", "columns": ["id"] });
    let opened = reader.open(&without, None, Division::Whole).unwrap();
    assert!(opened.notes().iter().any(|note| note.contains("copy \"public\".\"t\" (\"id\")")));
    assert_eq!(reader.rows(&opened).unwrap(), 2);
}

#[test]
fn rows_with_the_last_value_that_come_later_are_read_or_refused() {
    let Some(pg) = crate::pg::postgres() else { return };
    pg.query(
        "create table keyed (id bigint generated by default as identity primary key, day date);
         create table bare (id bigint, day date);
         insert into keyed (day) values ('2026-01-01'), ('2026-01-02');
         insert into bare select * from keyed",
    );
    let reader = Reader::new(&pg, "5s");
    let of = |table: &str| serde_json::json!({ "name": table, "sync_mode": "incremental", "cursor_field": "day" });
    // The primary key distinguishes them.
    let (rows, first) = read(&reader, &of("keyed"), None);
    assert_eq!(rows, 2);
    pg.query("insert into keyed (day) values ('2026-01-02'), ('2026-01-02')");
    let (rows, second) = read(&reader, &of("keyed"), first.as_ref());
    assert_eq!(rows, 2, "of the day that was read already");
    assert_eq!(read(&reader, &of("keyed"), second.as_ref()), (0, second.clone()));
    // One with a smaller key would be skipped.
    pg.query("delete from keyed where id = 3; insert into keyed values (-1, '2026-01-02'), (-2, '2026-01-02'), (99, '2026-01-03')");
    let refused = reader.open(&of("keyed"), second.as_ref(), Division::Stable).err().unwrap();
    assert!(refused.to_string().contains("1 rows with \"day\" = \"2026-01-02\""), "{refused}");
    assert!(refused.to_string().contains("write_mode: upsert"), "{refused}");
    // Without a key they are counted.
    let (rows, first) = read(&reader, &of("bare"), None);
    assert_eq!(rows, 2);
    pg.query("delete from bare where id = 2; insert into bare values (3, '2026-01-02')");
    assert_eq!(read(&reader, &of("bare"), first.as_ref()).0, 0, "the number has changed");
    pg.query("insert into bare values (4, '2026-01-02'), (5, '2026-01-03')");
    let refused = reader.open(&of("bare"), first.as_ref(), Division::Stable).err().unwrap();
    assert!(refused.to_string().contains("nothing distinguishes them"), "{refused}");
    // Where a row replaces itself, those with the last value are read again.
    let opened = reader.open(&of("bare"), first.as_ref(), Division::Any).unwrap();
    assert_eq!(reader.rows(&opened).unwrap(), 3);
    let last = opened.cursor().unwrap();
    let nothing = reader.open(&of("bare"), Some(&last), Division::Any).unwrap();
    assert_eq!(nothing.units().len(), 0);
    // A cursor of an earlier version counts nothing.
    let old = Cursor::new("2026-01-02".into(), None);
    assert_eq!(read(&reader, &of("bare"), Some(&old)).0, 1);
}

#[test]
fn a_unique_cursor_costs_no_count_and_needs_no_tie_breaker() {
    let Some(pg) = crate::pg::postgres() else { return };
    pg.query(&format!("create table t {TABLE}; insert into t (v) values ('a'), ('b')"));
    let reader = Reader::new(&pg, "5s");
    let (_, cursor) = read(&reader, &incremental("t"), None);
    let timeline = Some(1);
    assert_eq!(cursor, Some(Cursor { timeline, ..Cursor::new("2".into(), None) }));
    // Unless other tables inherit from it: its index does not cover their rows.
    pg.query("create table child () inherits (t); insert into child values (2, 'theirs')");
    let (rows, cursor) = read(&reader, &incremental("t"), None);
    assert_eq!((rows, cursor.unwrap().rows_at), (3, Some(2)));
}

#[test]
fn rows_without_a_cursor_are_counted_in_a_note() {
    let Some(pg) = crate::pg::postgres() else { return };
    pg.query("create table t (id int primary key, n int); insert into t values (1, 1), (2, null), (3, null)");
    let reader = Reader::new(&pg, "5s");
    let stream =
        serde_json::json!({ "name": "t", "sync_mode": "incremental", "cursor_field": "n" });
    let opened = reader.open(&stream, None, Division::Stable).unwrap();
    assert_eq!(reader.rows(&opened).unwrap(), 1);
    let notes = opened.notes().join("\n");
    assert!(
        notes.contains("2 rows of public.t are not read: they have no value in \"n\""),
        "{notes}"
    );
    assert!(notes.contains("full_refresh"), "{notes}");
    pg.query("delete from t where n is null");
    let opened = reader.open(&stream, None, Division::Stable).unwrap();
    assert!(!opened.notes().join("\n").contains("not read"));
}

#[test]
fn a_tie_breaker_of_the_last_run_is_kept() {
    let Some(pg) = crate::pg::postgres() else { return };
    pg.query(
        "create table t (id int primary key, day date, n int); insert into t values (9, '2026-01-01', 1)",
    );
    let reader = Reader::new(&pg, "5s");
    let stream = serde_json::json!({
        "name": "t", "sync_mode": "incremental", "cursor_field": "day", "tie_breaker_field": "n",
    });
    let (_, first) = read(&reader, &stream, None);
    assert_eq!(first.as_ref().unwrap().tie_breaker_field.as_deref(), Some("n"));
    pg.query("insert into t values (1, '2026-01-01', 2)");
    let without =
        serde_json::json!({ "name": "t", "sync_mode": "incremental", "cursor_field": "day" });
    assert_eq!(read(&reader, &without, first.as_ref()).0, 1, "not by the primary key");
}

/// A table of some 30 MB, divided into many units.
pub(crate) fn divided(pg: &Postgres) -> (Reader, serde_json::Value) {
    pg.query(
        "create table t (id int primary key, v text);
         insert into t select g, repeat('v', 1000) from generate_series(1, 30000) g; analyze t",
    );
    (Reader::new(pg, "5s"), serde_json::json!({ "name": "t" }))
}

#[test]
fn units_are_read_again_in_the_same_snapshot_whatever_interrupted_them() {
    let Some(pg) = crate::pg::postgres() else { return };
    let (reader, stream) = divided(&pg);
    for division in [Division::Any, Division::Stable] {
        let opened = reader.open_sized(&stream, None, division, 4 << 20).unwrap();
        assert!(opened.units().len() > 4);
        // The consumers of several units leave in the middle of them, as when the destination is
        // restarted.
        reader.runtime.block_on(async {
            for unit in 0..opened.units().len() {
                let (context, _cancel) = Context::new("test");
                let (mut outlet, mut inlet) = Outlet::new(Budget::new(1 << 20), context).unwrap();
                let opened = Arc::clone(&opened);
                let read = tokio::spawn(async move { opened.read(unit, &mut outlet).await });
                inlet.recv().await.unwrap();
                drop(inlet);
                assert!(read.await.unwrap().is_err());
            }
        });
        pg.query("insert into t select max(id) + 1, 'later' from t");
        assert_eq!(reader.rows(&opened).unwrap(), 30_000, "and no later rows");
        pg.query("delete from t where v = 'later'");
    }
    // One that is not divided, too.
    let opened = reader.open(&stream, None, Division::Whole).unwrap();
    reader.runtime.block_on(async {
        let (context, _cancel) = Context::new("test");
        let (mut outlet, mut inlet) = Outlet::new(Budget::new(1 << 20), context).unwrap();
        let opened = Arc::clone(&opened);
        let read = tokio::spawn(async move { opened.read(0, &mut outlet).await });
        inlet.recv().await.unwrap();
        drop(inlet);
        assert!(read.await.unwrap().is_err());
    });
    assert_eq!(reader.rows(&opened).unwrap(), 30_000);
}

#[test]
fn stable_units_are_read_though_the_server_was_restarted_and_others_say_why_not() {
    let Some(pg) = crate::pg::postgres() else { return };
    let (reader, stream) = divided(&pg);
    let stable = reader.open_sized(&stream, None, Division::Stable, 4 << 20).unwrap();
    let by_pages = reader.open_sized(&stream, None, Division::Any, 4 << 20).unwrap();
    let whole = reader.open(&stream, None, Division::Whole).unwrap();
    let cursor = reader.open(&incremental("t"), None, Division::Stable).unwrap();
    let by_value =
        serde_json::json!({ "name": "t", "sync_mode": "incremental", "cursor_field": "v" });
    let counted = reader.open(&by_value, None, Division::Stable).unwrap();
    let changed = reader.open(&by_value, None, Division::Stable).unwrap();
    pg.kill();
    pg.start_again();
    assert_eq!(reader.rows(&stable).unwrap(), 30_000);
    assert_eq!(reader.rows(&whole).unwrap(), 30_000);
    assert_eq!(reader.rows(&cursor).unwrap(), 30_000);
    assert_eq!(reader.rows(&counted).unwrap(), 30_000);
    let error = reader.rows(&by_pages).unwrap_err();
    assert!(error.to_string().contains("run again"), "{error}");
    // Its last value has one row more, which the next run would not read again.
    pg.query("insert into t values (-1, repeat('v', 1000))");
    let error = reader.rows(&changed).unwrap_err();
    assert!(error.to_string().contains("run again"), "{error}");
}
