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
