//! Runs of several streams that fail with one of them, and are gone on with.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use forebay_pipeline::config;
use forebay_pipeline::error::RunError;
use forebay_pipeline::run::{Options, Pipeline, Report};
use forebay_sdk::run::Context;
use rusqlite::Connection;

/// Rows of a file; enough that a type taken from the first of them is wrong for a later one.
const ROWS: usize = 20_000;

fn write(dir: &Path, stream: &str, is_sound: bool) {
    let mut rows = String::from("id,value\n");
    for id in 0..ROWS {
        let value = if is_sound || id + 1 < ROWS { id.to_string() } else { "no number".into() };
        writeln!(rows, "{id},{value}").unwrap();
    }
    fs::write(dir.join(format!("{stream}.csv")), rows).unwrap();
}

async fn run(dir: &Path, mode: &str, streams: &str, options: Options) -> Result<Report, RunError> {
    let path = dir.join("p.yaml");
    let dir = dir.display();
    let text = format!(
        "version: 1
pipeline: p
source:
  use: csv
  config: {{ path: '{dir}' }}
  streams: {streams}
destination:
  use: sqlite
  config: {{ path: '{dir}/out.sqlite' }}
  write_mode: {mode}
"
    );
    fs::write(&path, text).unwrap();
    let file =
        config::load(&path, &forebay_connectors::registry(), &|name| Err(name.to_owned())).unwrap();
    let (context, _cancel) = Context::new("run");
    Pipeline::new(&file).run(options, &context).await
}

fn once(name: &str) -> Options {
    Options { once: Some(name.into()), ..Options::default() }
}

fn rows(dir: &Path, table: &str) -> usize {
    let database = Connection::open(dir.join("out.sqlite")).unwrap();
    let is_there = format!("select count(*) from sqlite_schema where name = '{table}'");
    if database.query_row(&is_there, [], |row| row.get::<_, usize>(0)).unwrap() == 0 {
        return 0;
    }
    database.query_row(&format!("select count(*) from {table}"), [], |row| row.get(0)).unwrap()
}

const STREAMS: &str = "[{name: a.csv, into: a}, {name: b.csv, into: b}, {name: c.csv, into: c}]";

fn files(is_sound: bool) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for stream in ["a", "b", "c"] {
        write(directory.path(), stream, is_sound || stream != "b");
    }
    directory
}

#[tokio::test]
async fn appended_streams_are_there_once_though_another_failed_between() {
    let directory = files(false);
    let dir = directory.path();
    for _ in 0..2 {
        let failed = run(dir, "append", STREAMS, Options::default()).await.unwrap_err();
        assert_eq!(failed.what, "b.csv", "{failed:?}");
        assert_eq!([rows(dir, "a"), rows(dir, "b"), rows(dir, "c")], [ROWS, 0, 0]);
    }
    write(dir, "b", true);
    let report = run(dir, "append", STREAMS, Options::default()).await.unwrap();
    assert_eq!([rows(dir, "a"), rows(dir, "b"), rows(dir, "c")], [ROWS; 3]);
    assert!(report.streams[0].resumed, "its rows were there");
    assert_eq!(report.streams[0].content_hash, report.streams[1].content_hash);
    // That run was over: this is another.
    run(dir, "append", STREAMS, Options::default()).await.unwrap();
    assert_eq!([rows(dir, "a"), rows(dir, "b"), rows(dir, "c")], [2 * ROWS; 3]);
}

#[tokio::test]
async fn replaced_streams_are_fresh_whatever_failed() {
    let directory = files(false);
    let dir = directory.path();
    run(dir, "replace", STREAMS, Options::default()).await.unwrap_err();
    fs::write(dir.join("a.csv"), "id,value\n1,1\n").unwrap();
    run(dir, "replace", STREAMS, Options::default()).await.unwrap_err();
    assert_eq!(rows(dir, "a"), 1, "it is not held up by b");
}

#[tokio::test]
async fn a_run_with_a_name_copies_once_in_every_mode() {
    for mode in ["append", "replace"] {
        let directory = files(false);
        let dir = directory.path();
        run(dir, mode, STREAMS, once("monday")).await.unwrap_err();
        write(dir, "b", true);
        let report = run(dir, mode, STREAMS, once("monday")).await.unwrap();
        assert_eq!(report.rows, 2 * ROWS as u64, "{mode}: a was there");
        for _ in 0..2 {
            let report = run(dir, mode, STREAMS, once("monday")).await.unwrap();
            assert_eq!(report.rows, 0, "{mode}: it is over");
        }
        let report = run(dir, mode, STREAMS, once("tuesday")).await.unwrap();
        assert_eq!(report.rows, 3 * ROWS as u64);
        let copies = if mode == "append" { 2 } else { 1 };
        assert_eq!([rows(dir, "a"), rows(dir, "b"), rows(dir, "c")], [copies * ROWS; 3]);
    }
}

#[tokio::test]
async fn another_name_waits_for_the_run_that_is_not_over() {
    let directory = files(false);
    let dir = directory.path();
    run(dir, "append", STREAMS, once("monday")).await.unwrap_err();
    let refused = run(dir, "append", STREAMS, once("tuesday")).await.unwrap_err();
    assert!(format!("{:?}", refused.source).contains("monday"), "{refused:?}");
    assert_eq!(rows(dir, "a"), ROWS);
    let from_scratch = Options { from_scratch: true, ..Options::default() };
    run(dir, "append", STREAMS, from_scratch).await.unwrap_err();
    assert_eq!(rows(dir, "a"), 2 * ROWS, "as was asked");
}

#[tokio::test]
async fn a_stream_that_came_later_is_copied_and_holds_nothing_up() {
    let directory = files(true);
    let dir = directory.path();
    let two = "[{name: a.csv, into: a}, {name: b.csv, into: b}]";
    run(dir, "append", two, Options::default()).await.unwrap();
    run(dir, "append", STREAMS, Options::default()).await.unwrap();
    assert_eq!([rows(dir, "a"), rows(dir, "b"), rows(dir, "c")], [2 * ROWS, 2 * ROWS, ROWS]);
    // One that is gone is not waited for.
    run(dir, "append", "[{name: a.csv, into: a}]", Options::default()).await.unwrap();
    assert_eq!(rows(dir, "a"), 3 * ROWS);
}
