//! Following changes of a PostgreSQL into the event store of a running server. The oracle of what changed is the
//! server's own `test_decoding`, and of what the changes lead to the tables themselves.

use std::collections::{BTreeMap, HashMap};
use std::process::Stdio;

use forebay_base::fs::sim::Rng;
use forebay_testing::Postgres;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::pipeline_feed::{kill_rounds, killed_after};
use super::pipeline_feed_cut::Cutting;
use super::pipeline_feed_forms::{CHANGES, STREAMS, TABLES};
use super::pipeline_pg::{Pipeline, two_databases};
use super::support::{Server, agent, run, run_ok, stderr};

const LOG: &str = "  write_mode: append";

/// A server, and a pipeline from database `src` into its event store.
pub(crate) struct Setup {
    pub(crate) pg: Postgres,
    pub(crate) pipeline: Pipeline,
    pub(crate) store: TempDir,
    /// None while it is started again.
    server: Option<Server>,
    pub(crate) streams: String,
    pub(crate) destination: String,
    rest: String,
}

impl Setup {
    pub(crate) fn new(tables: &str, streams: &str) -> Option<Self> {
        let pg = two_databases()?;
        pg.query("src", tables);
        let (pipeline, store) = (Pipeline::new(&pg, streams, LOG, ""), TempDir::new().unwrap());
        let server = Some(Server::start(&store, &[]));
        let (streams, destination) = (streams.to_owned(), LOG.to_owned());
        let made = Self { pg, pipeline, store, server, streams, destination, rest: String::new() };
        made.write();
        Some(made)
    }

    pub(crate) fn write(&self) {
        self.write_to(&self.server().url);
    }

    pub(crate) fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    /// Ends the server with a signal, and starts it again.
    pub(crate) fn restart(&mut self, signal: &str) {
        self.server().signal(signal);
        self.server.take().unwrap().wait();
        self.server = Some(Server::start(&self.store, &[]));
        self.write();
    }

    fn write_to(&self, url: &str) {
        let Self { streams, destination, rest, .. } = self;
        let file = format!(
            "version: 1\npipeline: p\nsource:\n  use: postgres\n  \
             config: {{host: 127.0.0.1, port: {}, database: src, user: postgres}}\n  streams: {streams}\n\
             destination:\n  use: forebay\n  config: {{url: '{url}'}}\n{destination}\n{rest}\n",
            self.pg.port()
        );
        std::fs::write(self.pipeline.dir.path().join("p.yaml"), file).unwrap();
    }

    fn watch(&self) {
        watch(&self.pg);
    }

    /// The events of a stream, in the order in which they were accepted.
    pub(crate) fn events(&self, stream: &str) -> Vec<Value> {
        let path = format!("{}/v1/events?stream={stream}&order=position", self.server().url);
        let accept = "application/x-ndjson";
        let mut answer = agent().get(&path).header("accept", accept).call().unwrap();
        let text = answer.body_mut().with_config().limit(1 << 30).read_to_string().unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// What the last record of the feed says.
    pub(crate) fn record(&self) -> Value {
        let record = self.events("pipeline-feed/p").pop().unwrap();
        serde_json::from_str(record["raw"].as_str().unwrap()).unwrap()
    }

    /// The lines of a stream that belong to the load of the feed.
    pub(crate) fn log(&self, stream: &str) -> Vec<Value> {
        let records = self.events("pipeline-feed/p");
        let read = |event: &Value| -> Value {
            serde_json::from_str(event["raw"].as_str().unwrap()).unwrap()
        };
        let mut feeds = records.iter().map(read).filter(|record| record["operation"] == "feed");
        let feed = feeds.next_back().unwrap();
        let places = feed["places"].as_array().unwrap();
        let place = places.iter().find(|place| place["into"] == *stream).unwrap();
        let all = self.events(stream);
        all.iter().map(read).filter(|line| line["load"] == place["load"]).collect()
    }

    /// Checks the logs of `a` and `b`.
    fn check(&self) {
        check_logs(&self.pg, &self.log("a"), &self.log("b"));
    }

    fn rows(&self, query: &str) -> Vec<String> {
        in_source(&self.pg, query)
    }

    pub(crate) fn run(&self) -> Value {
        self.pipeline.run()
    }

    /// Checks the store with the command of its users.
    pub(crate) fn verify(&self) {
        run_ok(&self.store, &["events", "verify", "--server", &self.server().url]);
    }
}

fn in_source(pg: &Postgres, query: &str) -> Vec<String> {
    sorted(pg.query("src", query).lines().map(str::to_owned))
}

/// Makes the source keep its changes for the oracle, from here on.
pub(crate) fn watch(pg: &Postgres) {
    pg.query("src", "select pg_create_logical_replication_slot('oracle', 'test_decoding')");
}

/// Checks that the changes of the tables `a` and `b` are those that the source made since it was watched, once, in the
/// order of its commits, and that both logs lead to the rows of the source.
pub(crate) fn check_logs(pg: &Postgres, a: &[Value], b: &[Value]) {
    let mut all = BTreeMap::new();
    for (table, key, log) in [("a", "id", a), ("b", "x", b)] {
        let mut last = None;
        for line in log.iter().filter(|line| is_change(line)) {
            let at = named(line);
            assert!(last < Some(at), "{table}: {last:?} comes before {line}");
            last = Some(at);
            let operation = line["operation"].as_str().unwrap().to_uppercase();
            let what =
                format!("{table} {operation} {}", line["row"].get(key).unwrap_or(&Value::Null));
            assert!(all.insert(at, what).is_none(), "{line} is there twice");
        }
    }
    // Numbers count all changes of a commit, from 0.
    let mut commits: HashMap<u64, u64> = HashMap::new();
    for (position, number) in all.keys() {
        let next = commits.entry(*position).or_default();
        assert_eq!(number, next, "of the commit at {position:x}");
        *next += 1;
    }
    let happened =
        pg.query("src", "select data from pg_logical_slot_peek_changes('oracle', null, null)");
    let happened: Vec<String> = happened.lines().filter_map(decoded).collect();
    assert_eq!(all.into_values().collect::<Vec<_>>(), happened);
    let rows = repeated(a, &["id"]);
    let found = rows.values().map(|row| text(row, &["id", "large", "n"]));
    let a = "select concat_ws('|', id, coalesce(large, 'null'), n) from a";
    assert_eq!(sorted(found), in_source(pg, a));
    let rows = repeated(b, &["x", "y"]);
    let found = rows.values().map(|row| text(row, &["x", "y"]));
    assert_eq!(sorted(found), in_source(pg, "select concat_ws('|', x, y) from b"));
}

fn sorted(rows: impl Iterator<Item = String>) -> Vec<String> {
    let mut rows: Vec<String> = rows.collect();
    rows.sort_unstable();
    rows
}

fn is_change(line: &Value) -> bool {
    line["operation"] != "copy" && line["operation"] != "columns"
}

/// Position and number of a change.
fn named(line: &Value) -> (u64, u64) {
    let (high, low) = line["position"].as_str().unwrap().split_once('/').unwrap();
    let part = |part| u64::from_str_radix(part, 16).unwrap();
    (part(high) << 32 | part(low), line["number"].as_u64().unwrap())
}

/// A change as `test_decoding` writes it: its table, operation and first column of the key.
fn decoded(line: &str) -> Option<String> {
    let (table, change) = line.strip_prefix("table public.")?.split_once(": ")?;
    let (operation, values) = change.split_once(':')?;
    let key = match table {
        "a" => "id[integer]:",
        "b" => "x[integer]:",
        _ => return None,
    };
    let value = values.rsplit_once(key).and_then(|(_, rest)| rest.split(' ').next());
    Some(format!("{table} {operation} {}", value.unwrap_or("null")))
}

/// The rows to which a log leads, by their keys.
pub(crate) fn repeated(log: &[Value], key: &[&str]) -> BTreeMap<String, Value> {
    let name = |row: &Value| text(row, key);
    let mut rows = BTreeMap::new();
    for line in log {
        let row = &line["row"];
        match line["operation"].as_str().unwrap() {
            "copy" | "insert" => {
                assert!(rows.insert(name(row), row.clone()).is_none(), "{line} is there already");
            }
            "update" => {
                let before = line.get("before").map_or_else(|| name(row), &name);
                let mut updated: Value =
                    rows.remove(&before).unwrap_or_else(|| panic!("no row for {line}"));
                for (column, value) in row.as_object().unwrap() {
                    updated[column] = value.clone();
                }
                assert!(rows.insert(name(row), updated).is_none(), "{line}");
            }
            "delete" => assert!(rows.remove(&name(row)).is_some(), "no row for {line}"),
            "truncate" => rows.clear(),
            "columns" => {}
            other => panic!("{other}"),
        }
    }
    rows
}

pub(crate) fn text(row: &Value, columns: &[&str]) -> String {
    let value = |column: &&str| match &row[*column] {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    columns.iter().map(value).collect::<Vec<_>>().join("|")
}

#[test]
fn every_change_is_an_event_that_can_be_proven() {
    let Some(setup) = Setup::new(TABLES, STREAMS) else { return };
    let copied = setup.run();
    assert_eq!(copied["rows"], 400, "{copied}");
    setup.watch();
    for (at, changes) in CHANGES.iter().enumerate() {
        setup.pg.query("src", changes);
        if at % 2 == 0 {
            let report = setup.run();
            assert_ne!(report["feed"]["changes"], 0, "{report}");
            setup.check();
        }
    }
    setup.run();
    setup.check();
    assert_eq!(setup.run()["feed"]["changes"], 0);
    // Large values that were not sent are named, and not NULL.
    let log = setup.log("a");
    let unsent = log.iter().find(|line| line["unchanged"] == json!(["large"])).unwrap();
    assert!(unsent["operation"] == "update" && unsent["row"].get("large").is_none(), "{unsent}");
    // The time of an event is that of its commit, and its type the operation.
    let found = setup.server().get("/v1/events?stream=a&type=truncate").json();
    let event = &found["events"][0];
    let raw: Value = serde_json::from_str(event["raw"].as_str().unwrap()).unwrap();
    assert_eq!((&event["time_source"], &event["type"]), (&json!("event"), &json!("truncate")));
    // An event shows no zeros at the end of a time, which one time in ten has.
    let time = |text: &Value| text.as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    assert_eq!(time(&event["timestamp"]), time(&raw["time"]), "{event}");
    setup.verify();
    let proof = setup.server().get(&format!("/v1/events/{}/proof", event["id"].as_str().unwrap()));
    let key = setup.server().get("/v1/events/key");
    std::fs::write(setup.store.path().join("proof.json"), &proof.body).unwrap();
    std::fs::write(setup.store.path().join("key"), &key.body).unwrap();
    let args = ["events", "verify-proof", "--key-file", "key", "proof.json"];
    run_ok(&setup.store, &args);
    let verified = run(&setup.pipeline.dir, &["pipeline", "verify", "p.yaml"]);
    assert!(stderr(&verified).contains("a log of changes has other rows than the source"));
    let shown = run_ok(&setup.pipeline.dir, &["pipeline", "feed", "p.yaml", "--json"]);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["position"], setup.record()["position"], "{shown}");
}

/// A commit of both tables, with large values.
pub(crate) fn commit(random: &mut Rng, round: u32) -> String {
    let id = random.below(300) + 1;
    format!(
        "begin; update a set n = n + {round} where id % 17 = {}; delete from a where id = {id}; \
         insert into b values ({id}, clock_timestamp()::text, '{{}}'); \
         insert into a values ({id}, repeat('z', 5000), {round}); delete from b where x = {}; commit",
        id % 17,
        random.below(300),
    )
}

#[test]
fn a_run_or_a_server_that_is_killed_loses_and_repeats_no_event() {
    let Some(mut setup) = Setup::new(TABLES, STREAMS) else { return };
    setup.run();
    setup.watch();
    let mut random = Rng::new(11);
    for round in 0..kill_rounds(8) {
        let (pg, server) = (&setup.pg, setup.server());
        let kills_server = round % 3 == 2;
        killed_after(&setup.pipeline, || {
            for _ in 0..random.below(12) {
                pg.query("src", &commit(&mut random, round));
            }
            if kills_server {
                server.signal("KILL");
            }
        });
        if kills_server {
            setup.restart("KILL");
        }
    }
    setup.run();
    setup.check();
    setup.verify();
}

#[test]
fn a_copy_that_is_killed_is_begun_again_and_counts_once() {
    let Some(setup) = Setup::new(TABLES, STREAMS) else { return };
    for round in 0..4 {
        killed_after(&setup.pipeline, || {
            // At different moments: some commits, and the rows that the copy has.
            for _ in 0..=round {
                setup.pg.query("src", "update a set n = n + 1 where id < 5");
            }
        });
    }
    setup.run();
    let a = setup.log("a");
    let rows = repeated(&a, &["id"]);
    let found = rows.values().map(|row| text(row, &["id", "n"]));
    assert_eq!(sorted(found), setup.rows("select concat_ws('|', id, n) from a"));
}

#[test]
fn answers_that_are_lost_repeat_no_event() {
    let Some(setup) = Setup::new(TABLES, STREAMS) else { return };
    setup.run();
    setup.watch();
    let mut random = Rng::new(5);
    for seed in 0..4 {
        let cutting = Cutting::start(setup.server().address, seed);
        setup.write_to(&cutting.url());
        for round in 0..5 {
            setup.pg.query("src", &commit(&mut random, round));
            // It may fail, if too many answers in a row are lost.
            run(&setup.pipeline.dir, &["pipeline", "run", "p.yaml"]);
        }
        assert!(cutting.cuts() > 0);
    }
    setup.write();
    setup.run();
    setup.check();
    setup.verify();
}

#[test]
fn two_runs_at_once_append_each_change_once() {
    let Some(setup) = Setup::new(TABLES, STREAMS) else { return };
    setup.run();
    setup.watch();
    let mut random = Rng::new(3);
    for round in 0..3 {
        for _ in 0..6 {
            setup.pg.query("src", &commit(&mut random, round));
        }
        let start = || {
            let mut command = setup.pipeline.command();
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        };
        let (mut one, mut other) = (start(), start());
        one.wait().unwrap();
        other.wait().unwrap();
    }
    setup.run();
    setup.check();
}

#[test]
fn a_transaction_that_is_larger_than_the_memory_is_appended_in_parts() {
    let Some(mut setup) = Setup::new(TABLES, STREAMS) else { return };
    setup.rest = "resources: {max_memory: 1MiB}".into();
    setup.write();
    setup.run();
    setup.watch();
    setup.pg.query(
        "src",
        "begin; insert into a select g, repeat('v', 100), 0 from generate_series(1000, 9000) g; \
         update a set n = id where id % 3 = 0; delete from a where id % 7 = 0; \
         insert into b select g, 'more', '{}' from generate_series(1, 500) g; \
         update a set id = -id where id % 11 = 0; commit; insert into a values (0, 'after', 0)",
    );
    // Killed in the middle of it, so that a part of it is there already.
    let copied = setup.events("a").len();
    for _ in 0..2 {
        killed_after(&setup.pipeline, || {
            let begun = std::time::Instant::now();
            while setup.events("a").len() == copied && begun.elapsed() < super::support::HANG {}
        });
    }
    setup.run();
    setup.check();
    setup.verify();
}
