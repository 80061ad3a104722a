//! Following changes of a PostgreSQL into files. The oracles are those of events.

use std::path::{Path, PathBuf};

use forebay_base::fs::sim::Rng;
use forebay_testing::Postgres;
use serde_json::{Map, Value, json};

use super::pipeline_feed::{kill_rounds, killed_after};
use super::pipeline_feed_events::{check_logs, commit, watch};
use super::pipeline_feed_forms::{CHANGES, STREAMS, TABLES};
use super::pipeline_pg::{Pipeline, two_databases};
use super::support::{run, run_ok, stderr};

/// A pipeline from database `src` into files below `out`.
struct Setup {
    pg: Postgres,
    pipeline: Pipeline,
}

impl Setup {
    fn new(tables: &str, streams: &str, format: &str, rest: &str) -> Option<Self> {
        let pg = two_databases()?;
        pg.query("src", tables);
        let setup = Self { pipeline: Pipeline::new(&pg, streams, "", ""), pg };
        setup.write(streams, format, rest);
        Some(setup)
    }

    fn write(&self, streams: &str, format: &str, rest: &str) {
        let file = format!(
            "version: 1\npipeline: p\nsource:\n  use: postgres\n  \
             config: {{host: 127.0.0.1, port: {}, database: src, user: postgres}}\n  streams: {streams}\n\
             destination:\n  use: {format}\n  config: {{path: '{}'}}\n  write_mode: append\n{rest}\n",
            self.pg.port(),
            self.out().display()
        );
        std::fs::write(self.pipeline.dir.path().join("p.yaml"), file).unwrap();
    }

    fn out(&self) -> PathBuf {
        self.pipeline.dir.path().join("out")
    }

    /// The names of the files of a stream that its ledgers list.
    fn listed(&self, into: &str) -> Vec<String> {
        let own = self.out().join("_forebay");
        let read = |path: &Path| -> Value {
            serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
        };
        let copy = read(&own.join(into).join("ledger.json"));
        let name = |file: &Value| file["name"].as_str().unwrap().to_owned();
        let mut names: Vec<String> = copy["files"].as_array().unwrap().iter().map(name).collect();
        let mut ledger = read(&own.join("p.feed/ledger.json"))["ledger"].clone();
        let mut units = ledger["tail"].as_array().unwrap().clone();
        while let Some(segment) = ledger["previous"]["name"].as_str() {
            ledger = read(&own.join("p.feed/segments").join(segment))["ledger"].clone();
            units.extend(ledger["units"].as_array().unwrap().iter().cloned());
        }
        let files = units.iter().flat_map(|unit| unit["files"].as_array().unwrap());
        names.extend(files.filter(|file| file["into"] == *into).map(name));
        names.sort_unstable();
        names
    }

    /// The lines of a stream of NDJSON: of the copy, and then of the changes, as events have them.
    fn log(&self, into: &str) -> Vec<Value> {
        let mut names = self.listed(into);
        let shown = std::fs::read_dir(self.out().join(into)).unwrap();
        let mut shown: Vec<String> =
            shown.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        shown.sort_unstable();
        assert_eq!(shown, names, "the files of {into} are those of the ledgers");
        names.sort_by_key(|name| name.starts_with("log-"));
        let text =
            |name: &String| std::fs::read_to_string(self.out().join(into).join(name)).unwrap();
        let all: String = names.iter().map(text).collect();
        all.lines().map(|line| as_event(serde_json::from_str(line).unwrap())).collect()
    }

    fn check(&self) {
        check_logs(&self.pg, &self.log("a"), &self.log("b"));
    }
}

/// A row of a log in the form that an event has.
fn as_event(mut line: Map<String, Value>) -> Value {
    let mut take = |name: &str| line.remove(name).unwrap_or_default();
    let (operation, position, number) = (take("_operation"), take("_position"), take("_number"));
    let (at, unchanged) = (take("_committed_at"), take("_unchanged"));
    assert_eq!(at.is_null(), operation == "copy", "{operation}");
    let mut before = Map::new();
    let mut row = Map::new();
    for (name, value) in line {
        if let Some(key) = name.strip_prefix("_before_") {
            before.insert(key.to_owned(), value);
        } else if !unchanged.as_array().is_some_and(|names| names.contains(&json!(name))) {
            row.insert(name, value);
        }
    }
    let mut event =
        json!({"operation": operation, "position": position, "number": number, "row": row});
    if before.values().any(|value| !value.is_null()) {
        event["before"] = before.into();
    }
    event
}

#[test]
fn every_change_is_a_row_of_a_file_in_the_order_of_commits() {
    let Some(setup) = Setup::new(TABLES, STREAMS, "ndjson", "") else { return };
    assert_eq!(setup.pipeline.run()["rows"], 400);
    watch(&setup.pg);
    for (at, changes) in CHANGES.iter().enumerate() {
        setup.pg.query("src", changes);
        if at % 2 == 0 {
            setup.pipeline.run();
            setup.check();
        }
    }
    setup.pipeline.run();
    setup.check();
    // A log that begins again has what is there now, and nothing of the earlier one.
    let again = run(&setup.pipeline.dir, &["pipeline", "run", "p.yaml", "--from-scratch"]);
    assert!(again.status.success(), "{}", stderr(&again));
    let log = setup.log("a");
    assert!(log.iter().all(|line| line["operation"] == "copy"));
    assert_eq!(setup.pg.query("src", "select count(*) from a"), log.len().to_string());
    setup.pg.query("src", "delete from a");
    setup.pipeline.run();
    assert_eq!(setup.log("a").len(), 2 * log.len());
}

#[test]
fn a_run_into_files_that_is_killed_loses_and_repeats_nothing() {
    let Some(setup) = Setup::new(TABLES, STREAMS, "ndjson", "") else { return };
    setup.pipeline.run();
    watch(&setup.pg);
    let mut random = Rng::new(23);
    for round in 0..kill_rounds(8) {
        killed_after(&setup.pipeline, || {
            for _ in 0..random.below(12) {
                setup.pg.query("src", &commit(&mut random, round));
            }
        });
    }
    setup.pipeline.run();
    setup.check();
}

#[test]
fn a_large_transaction_becomes_several_files_at_once() {
    let small = "resources: {max_memory: 1MiB}";
    let Some(setup) = Setup::new(TABLES, STREAMS, "ndjson", small) else { return };
    setup.pipeline.run();
    watch(&setup.pg);
    setup.pg.query(
        "src",
        "begin; insert into a select g, repeat('v', 100), 0 from generate_series(1000, 9000) g; \
         update a set n = id where id % 3 = 0; delete from a where id % 7 = 0; \
         insert into b select g, 'more', '{}' from generate_series(1, 500) g; commit",
    );
    for _ in 0..3 {
        // Once some files are there, which no ledger lists yet.
        killed_after(&setup.pipeline, || {
            let begun = std::time::Instant::now();
            let count = || std::fs::read_dir(setup.out().join("a")).unwrap().count();
            while count() < 4 && begun.elapsed() < super::support::HANG {}
        });
    }
    setup.pipeline.run();
    setup.check();
    assert!(setup.listed("a").len() > 4);
}

#[test]
fn files_of_every_format_have_the_log_of_a_database() {
    for (format, rest) in [("parquet", ""), ("csv", ""), ("ndjson", "")] {
        let Some(setup) = Setup::new(TABLES, STREAMS, format, rest) else { return };
        setup.pipeline.run();
        for changes in CHANGES {
            setup.pg.query("src", changes);
        }
        setup.pipeline.run();
        // Read by the source of the format, into SQLite.
        let path = setup.pipeline.dir.path();
        let types = "{id: bigint, large: text, 'n': numeric, _operation: text, _position: text, _number: bigint, \
                     _committed_at: timestamptz, _unchanged: text, _before_id: bigint}";
        let types = if format == "parquet" { String::new() } else { format!(", columns: {types}") };
        let read = format!(
            "version: 1\npipeline: back\nsource:\n  use: {format}\n  config: {{path: '{}'{types}}}\n  \
             streams: [{{name: a, columns: [id, 'n', _operation, _position, _number]}}]\ndestination:\n  use: sqlite\n  \
             config: {{path: '{}'}}\n  write_mode: replace\n",
            setup.out().display(),
            path.join("back.sqlite").display()
        );
        std::fs::write(path.join("back.yaml"), read).unwrap();
        run_ok(&setup.pipeline.dir, &["pipeline", "run", "back.yaml"]);
        let back = rusqlite::Connection::open(path.join("back.sqlite")).unwrap();
        let count = |of: &str| -> i64 {
            let query = format!("select count(*) from a where _operation = '{of}'");
            back.query_row(&query, [], |row| row.get(0)).unwrap()
        };
        assert_eq!((count("copy"), count("truncate")), (300, 1), "{format}");
        let named = "select count(*) = count(distinct _position || ' ' || _number) from a where _operation <> 'copy'";
        assert!(back.query_row(named, [], |row| row.get::<_, bool>(0)).unwrap(), "{format}");
    }
}

#[test]
fn files_get_other_columns_as_their_format_permits() {
    let table = "create table t (id int primary key, a text, b int not null); insert into t values (1, 'a', 1)";
    let streams = "[{name: t, sync_mode: cdc}]";
    for format in ["ndjson", "csv"] {
        let Some(setup) = Setup::new(table, streams, format, "") else { return };
        setup.pipeline.run();
        setup.pg.query(
            "src",
            "alter table t rename a to z; alter table t add c int; update t set c = 7, z = 'z'",
        );
        if format == "csv" {
            setup.pipeline.fails("files of this format have the same columns");
            continue;
        }
        setup.pipeline.run();
        let row = setup.log("t").pop().unwrap()["row"].clone();
        assert_eq!(row, json!({"id": 1, "z": "z", "b": 1, "c": 7}));
        setup.pg.query("src", "alter table t drop b; insert into t values (2, 'y', 8)");
        setup.pipeline.run();
        assert_eq!(setup.log("t").pop().unwrap()["row"], json!({"id": 2, "z": "y", "c": 8}));
        setup
            .pg
            .query("src", "alter table t alter c type bigint; insert into t values (3, 'y', 8)");
        setup.pipeline.fails("column \"c\" has the type bigint now at the source");
    }
    let Some(setup) =
        Setup::new("create table t (id int primary key, _number int)", streams, "ndjson", "")
    else {
        return;
    };
    setup.pipeline.fails("has a column \"_number\", as a log of changes has");
}
