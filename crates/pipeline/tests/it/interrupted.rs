//! Runs that end between the commit of a unit and the end of its load, with new rows before the
//! next run: every row arrives once.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs;
use std::path::Path;

use forebay_pipeline::config;
use forebay_pipeline::error::RunError;
use forebay_pipeline::run::{Options, Pipeline, Plan, Report};
use forebay_sdk::run::Context;
use rusqlite::Connection;

/// The ledger before its first load, and what fails the end of a stream's loads, as a kill before
/// it would.
fn cut(stream: &str) -> String {
    format!(
        "create table if not exists _forebay_loads (
             pipeline TEXT NOT NULL, stream TEXT NOT NULL, target TEXT NOT NULL, load TEXT NOT NULL,
             PRIMARY KEY (pipeline, stream)
         ) STRICT, WITHOUT ROWID;
         create trigger cut before insert on _forebay_loads
             when new.stream = '{stream}' and new.load like '%\"is_finished\":true%'
         begin select raise(abort, 'cut'); end"
    )
}

struct Directory(tempfile::TempDir);

impl Directory {
    fn new(tables: &[&str]) -> Self {
        let directory = Self(tempfile::tempdir().unwrap());
        for table in tables {
            directory.source(&format!("create table {table} (id integer primary key, v text)"));
        }
        directory
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn source(&self, sql: &str) {
        Connection::open(self.path().join("in.sqlite")).unwrap().execute_batch(sql).unwrap();
    }

    /// Inserts rows with these ids into a table of the source.
    fn insert(&self, table: &str, ids: std::ops::Range<u32>) {
        let rows: Vec<String> = ids.map(|id| format!("({id}, 'v{id}')")).collect();
        self.source(&format!("insert into {table} values {}", rows.join(", ")));
    }

    /// Inserts rows with these ids and a time into `t`.
    fn insert_at(&self, ids: std::ops::Range<u32>, at: &str) {
        let rows: Vec<String> = ids.map(|id| format!("({id}, 'v{id}', '{at}')")).collect();
        self.source(&format!("insert into t (id, v, at) values {}", rows.join(", ")));
    }

    /// Removes the rows of `t` and the records of its loads.
    fn start_over(&self) {
        let all = "delete from t; delete from _forebay_loads; delete from _forebay_ledger";
        self.out().execute_batch(all).unwrap();
    }

    fn out(&self) -> Connection {
        Connection::open(self.path().join("out.sqlite")).unwrap()
    }

    fn cut(&self, stream: &str) {
        self.out().execute_batch(&cut(stream)).unwrap();
    }

    fn remove_cut(&self) {
        self.out().execute_batch("drop trigger cut").unwrap();
    }

    /// Number of rows and of different ids.
    fn rows(&self, table: &str) -> (u32, u32) {
        let count = format!("select count(*), count(distinct id) from {table}");
        self.out().query_row(&count, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
    }

    fn file(&self, streams: &str, rest: &str) -> config::PipelineFile {
        let (path, dir) = (self.path().join("p.yaml"), self.path().display());
        let text = format!(
            "version: 1
pipeline: p
source:
  use: sqlite
  config: {{ path: '{dir}/in.sqlite' }}
  streams: {streams}
{rest}
destination:
  use: sqlite
  config: {{ path: '{dir}/out.sqlite' }}
"
        );
        fs::write(&path, text).unwrap();
        let registry = forebay_connectors::registry();
        config::load(&path, &registry, &|name| Err(name.to_owned())).unwrap()
    }

    async fn run(&self, streams: &str, rest: &str) -> Result<Report, RunError> {
        let file = self.file(streams, rest);
        let (context, _cancel) = Context::new("run");
        Pipeline::new(&file).run(Options::default(), &context).await
    }

    async fn plan(&self, streams: &str) -> Plan {
        let file = self.file(streams, "");
        let (context, _cancel) = Context::new("plan");
        Pipeline::new(&file).plan(&context).await.unwrap()
    }
}

const INCREMENTAL: &str = "[{name: t, sync_mode: incremental, cursor_field: id}]";

#[tokio::test]
async fn incremental_rows_arrive_once_though_their_load_was_not_ended() {
    let directory = Directory::new(&["t"]);
    directory.insert("t", 0..1000);
    directory.cut("t");
    directory.run(INCREMENTAL, "").await.unwrap_err();
    assert_eq!(directory.rows("t"), (1000, 1000), "the unit is committed");
    directory.insert("t", 1000..1010);
    let plan = directory.plan(INCREMENTAL).await;
    let since = plan.streams[0].since.as_ref().unwrap();
    assert_eq!(since.value, "integer 999", "only new rows are read");
    assert!(plan.streams[0].notes.iter().any(|note| note.contains("ended first")));
    let failed = directory.run(INCREMENTAL, "").await.unwrap_err();
    assert!(format!("{failed:?}").contains("cut"), "{failed:?}");
    assert_eq!(directory.rows("t"), (1000, 1000), "nothing is read before that load is ended");
    directory.remove_cut();
    let report = directory.run(INCREMENTAL, "").await.unwrap();
    assert_eq!((report.rows, report.streams[0].resumed), (10, true));
    assert_eq!(directory.rows("t"), (1010, 1010));
    assert_eq!(directory.run(INCREMENTAL, "").await.unwrap().rows, 0);
}

#[tokio::test]
async fn several_streams_arrive_once_wherever_the_ends_of_their_loads_were_cut() {
    let directory = Directory::new(&["t", "u", "w"]);
    let streams = "[{name: t, sync_mode: incremental, cursor_field: id},
                    {name: u, sync_mode: incremental, cursor_field: id}, {name: w}]";
    let mut end = 0;
    for (round, stream) in (1_u32..).zip(["t", "w", "u", "t"]) {
        for table in ["t", "u"] {
            directory.insert(table, end..end + 7);
        }
        end += 7;
        if round == 1 {
            directory.insert("w", 0..5);
        }
        directory.cut(stream);
        directory.run(streams, "").await.unwrap_err();
        directory.remove_cut();
        // Rows that came before the next run.
        for table in ["t", "u"] {
            directory.insert(table, end..end + 3);
        }
        end += 3;
        directory.run(streams, "").await.unwrap();
        for table in ["t", "u"] {
            assert_eq!(directory.rows(table), (end, end), "{table} in round {round}");
        }
        assert_eq!(directory.rows("w"), (5 * round, 5), "a copy a round");
    }
}

#[cfg(feature = "sql")]
#[tokio::test(flavor = "multi_thread")]
async fn the_result_of_a_query_arrives_once_though_its_load_was_not_ended() {
    for (transforms, table) in [
        ("transforms: [sql: {query: 'select id, v from t where id < 100'}]", "t"),
        ("transforms: [sql: {query: 'select id, v from t where id < 100', into: made}]", "made"),
    ] {
        let directory = Directory::new(&["t"]);
        directory.insert("t", 0..1000);
        directory.cut(table);
        directory.run("[{name: t}]", transforms).await.unwrap_err();
        assert_eq!(directory.rows(table), (100, 100));
        directory.remove_cut();
        let report = directory.run("[{name: t}]", transforms).await.unwrap();
        assert_eq!((report.rows, report.streams[0].resumed), (0, true), "{transforms}");
        assert_eq!(directory.rows(table), (100, 100), "{transforms}");
    }
}

#[cfg(feature = "sql")]
#[tokio::test(flavor = "multi_thread")]
async fn a_query_of_an_incremental_stream_keeps_its_name_or_is_refused() {
    let directory = Directory::new(&["t"]);
    directory.insert("t", 0..10);
    let kept = "transforms: [sql: {query: 'select id, v from t where id % 2 = 0'}]";
    directory.cut("t");
    directory.run(INCREMENTAL, kept).await.unwrap_err();
    directory.remove_cut();
    directory.insert("t", 10..20);
    assert_eq!(directory.run(INCREMENTAL, kept).await.unwrap().rows, 5);
    assert_eq!(directory.rows("t"), (10, 10));
    // Its cursor would be recorded under the other name, and every run would read all rows.
    let named = "transforms: [sql: {query: 'select id from t', into: made}]";
    let refused = directory.run(INCREMENTAL, named).await.unwrap_err();
    assert!(format!("{refused:?}").contains("read incrementally"), "{refused:?}");
}

#[tokio::test]
async fn another_cursor_field_is_refused_until_the_stream_starts_over() {
    let directory = Directory::new(&["t"]);
    directory.source("alter table t add at text");
    directory.insert_at(0..10, "2026-01-01");
    directory.run(INCREMENTAL, "").await.unwrap();
    directory.insert_at(10..12, "2026-01-02");
    let by_time = "[{name: t, sync_mode: incremental, cursor_field: at}]";
    for _ in 0..2 {
        let refused = directory.run(by_time, "").await.unwrap_err();
        assert!(
            format!("{refused:?}").contains("by \\\"id\\\", but `cursor_field`"),
            "{refused:?}"
        );
    }
    assert_eq!(directory.run(INCREMENTAL, "").await.unwrap().rows, 2, "as before");
    directory.start_over();
    assert_eq!(directory.run(by_time, "").await.unwrap().rows, 12);
}

#[tokio::test]
async fn rows_with_the_last_value_that_come_later_are_not_skipped() {
    let directory = Directory::new(&["t"]);
    directory.source("alter table t add at text");
    directory.insert_at(0..10, "2026-01-01");
    let by_time = "[{name: t, sync_mode: incremental, cursor_field: at}]";
    directory.run(by_time, "").await.unwrap();
    assert_eq!(directory.run(by_time, "").await.unwrap().rows, 0);
    directory.insert_at(10..12, "2026-01-01");
    let refused = directory.run(by_time, "").await.unwrap_err();
    assert!(format!("{refused:?}").contains("2 rows with at = "), "{refused:?}");
    assert_eq!(directory.rows("t"), (10, 10));
    let tied = "[{name: t, sync_mode: incremental, cursor_field: at, tie_breaker_field: id}]";
    directory.start_over();
    assert_eq!(directory.run(tied, "").await.unwrap().rows, 12);
    directory.insert_at(12..15, "2026-01-01");
    assert_eq!(directory.run(tied, "").await.unwrap().rows, 3);
    assert_eq!(directory.rows("t"), (15, 15));
}
