//! Changes as events: values and columns of all kinds, tables that are added, logs that begin again, and what is
//! refused.

use serde_json::{Value, json};

use super::pipeline_feed_events::{Setup, repeated, text};
use super::support::{run, run_ok, stderr};

const ONE: &str = "create table t (id int primary key, a text, b int not null);
                   insert into t select g, 'a' || g, g from generate_series(1, 9) g";
const T: &str = "[{name: t, sync_mode: cdc}]";

fn last(setup: &Setup, stream: &str) -> Value {
    setup.log(stream).pop().unwrap()
}

#[test]
fn events_have_the_columns_that_the_source_had_at_their_commit() {
    let Some(mut setup) = Setup::new(ONE, T) else { return };
    setup.run();
    let pg = |setup: &Setup, changes: &str| drop(setup.pg.query("src", changes));
    pg(&setup, "alter table t add c int default 7; insert into t values (10, 'x', 1, 5)");
    pg(&setup, "alter table t rename a to z; update t set z = 'z' where id = 1");
    setup.run();
    assert_eq!(last(&setup, "t")["row"], json!({"id": 1, "z": "z", "b": 1, "c": 7}));
    pg(
        &setup,
        "begin; delete from t where id = 3; alter table t drop b; insert into t (id) values (30); commit",
    );
    setup.run();
    assert_eq!(last(&setup, "t")["row"], json!({"id": 30, "z": null, "c": 7}));
    pg(
        &setup,
        "alter table t alter c type bigint; insert into t (id, c) values (31, 1::int8 << 60)",
    );
    setup.pipeline.fails("column \"c\" has the type bigint now at the source");
    setup.destination.push_str("\n  schema_evolution: {type_change: alter, new_column: fail}");
    setup.write();
    setup.run();
    assert_eq!(last(&setup, "t")["row"]["c"].as_u64(), Some(1 << 60));
    pg(&setup, "alter table t add d int; insert into t (id) values (32)");
    setup
        .pipeline
        .fails("column \"d\" was added at the source; set `schema_evolution.new_column: add`");
    let log = setup.log("t");
    let columns = log.iter().filter(|line| line["operation"] == "columns");
    let columns: Vec<Vec<&str>> = columns
        .map(|line| {
            let columns = line["columns"].as_array().unwrap().iter();
            columns.map(|column| column["name"].as_str().unwrap()).collect()
        })
        .collect();
    let (first, then) = (["id", "a", "b", "c"], ["id", "z", "b", "c"]);
    assert_eq!(columns, [&first[..], &then, &["id", "z", "c"], &["id", "z", "c"]]);
    // Each list is before the changes that have these columns.
    let at = |what: &dyn Fn(&Value) -> bool| log.iter().position(what).unwrap();
    let renamed = at(&|line| line["columns"][1]["name"] == "z");
    assert_eq!(renamed + 1, at(&|line| line["row"]["z"] == "z"));
    setup.verify();
}

#[test]
fn values_keep_all_their_digits() {
    let table = "create table t (id bigint primary key, n numeric, f float8, r real, j jsonb, by bytea, at timestamptz,
                 d date, u uuid, ar int[], flag bool, txt text)";
    let Some(setup) = Setup::new(table, T) else { return };
    let row = "(1, 12345678901234567890.1234567890, 0.1, 'NaN', '{\"a\": [1.10, null]}', '\\x00ff', \
               '2026-01-02 03:04:05.678901+00', '2026-01-02', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{1,null}', \
               true, E'line\\n\\t\\u00e9\"')";
    let as_inserted = row.replacen("(1,", "(2,", 1);
    setup.pg.query("src", &format!("insert into t values {row}"));
    setup.run();
    setup.pg.query("src", &format!("insert into t values {as_inserted}"));
    setup.run();
    let raws: Vec<String> =
        setup.events("t").iter().map(|event| event["raw"].as_str().unwrap().to_owned()).collect();
    let rows: Vec<&str> = raws.iter().map(|raw| raw.split_once("\"row\":").unwrap().1).collect();
    assert_eq!(rows[0].replacen("{\"id\":1,", "{\"id\":2,", 1), rows[1], "copied and inserted");
    let wanted = r#"{"id":2,"n":12345678901234567890.1234567890,"f":0.1,"r":"NaN","j":{"a": [1.10, null]},"by":"AP8=","at":"2026-01-02T03:04:05.678901Z","d":"2026-01-02","u":"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11","ar":[1,null],"flag":true,"txt":"line\n\té\""}}"#;
    assert_eq!(rows[1], wanted);
}

#[test]
fn a_log_can_begin_again_and_have_further_tables() {
    let Some(mut setup) = Setup::new(ONE, T) else { return };
    setup.run();
    setup.pg.query("src", "update t set b = 100 where id = 1");
    setup.pg.query("src", "create table k (v int); alter table k replica identity full; insert into k values (1), (1)");
    setup.streams = "[{name: t, sync_mode: cdc}, {name: k, into: keyless, sync_mode: cdc}]".into();
    setup.write();
    setup.run();
    setup.pg.query("src", "update k set v = 2 where ctid = '(0,1)'; delete from k where v = 1; delete from t where id = 2");
    setup.run();
    let log = setup.log("keyless");
    let operations: Vec<&str> =
        log.iter().map(|line| line["operation"].as_str().unwrap()).collect();
    assert_eq!(operations, ["copy", "copy", "update", "delete"]);
    assert_eq!((&log[2]["before"], &log[2]["row"]), (&json!({"v": 1}), &json!({"v": 2})));
    let rows = |log: &[Value]| {
        repeated(log, &["id"]).into_values().map(|row| text(&row, &["id", "b"])).collect()
    };
    let found: Vec<String> = rows(&setup.log("t"));
    assert_eq!(found.len(), 8);
    // Another log in the same streams.
    let load = setup.log("t")[0]["load"].clone();
    let again = run(&setup.pipeline.dir, &["pipeline", "run", "p.yaml", "--from-scratch"]);
    assert!(again.status.success(), "{}", stderr(&again));
    setup.pg.query("src", "delete from t where id = 3");
    setup.run();
    let log = setup.log("t");
    assert_ne!(log[0]["load"], load);
    assert_eq!(log.len(), 9, "8 rows that were there, and a change");
    let found: Vec<String> = rows(&log);
    assert_eq!(found.len(), 7);
    setup.streams =
        "[{name: t, into: moved, sync_mode: cdc}, {name: k, into: keyless, sync_mode: cdc}]".into();
    setup.write();
    setup.pipeline.fails("the log of t is the stream \"t\", not \"moved\"; restore `into`");
    setup.streams = setup.streams.replace("into: moved, ", "");
    setup.write();
    run_ok(&setup.pipeline.dir, &["pipeline", "drop-slot", "p.yaml", "--yes"]);
    assert_eq!(setup.record()["operation"], "end");
    setup.run();
    assert_eq!(setup.log("t").len(), 7);
    setup.verify();
}

#[test]
fn what_an_event_store_cannot_take_is_refused_with_the_way_out() {
    let Some(mut setup) = Setup::new(ONE, T) else { return };
    let with = |setup: &mut Setup, streams: &str, destination: &str, found: &str| {
        (setup.streams, setup.destination) = (streams.into(), destination.into());
        setup.write();
        setup.pipeline.fails(found);
    };
    let log = "  write_mode: append";
    with(&mut setup, T, "  write_mode: upsert", "does not apply changes");
    with(&mut setup, T, "  write_mode: upsert\n  deleted_rows: mark", "does not mark deleted rows");
    with(&mut setup, "[{name: t}]", log, "set `sync_mode: cdc`, or send the rows to `/v1/events`");
    with(
        &mut setup,
        "[{name: t}]",
        "  write_mode: replace",
        "use `write_mode: append` with `sync_mode: cdc`",
    );
    for into in ["_forebay-x", "pipeline-feed/q"] {
        let streams = format!("[{{name: t, into: {into}, sync_mode: cdc}}]");
        with(&mut setup, &streams, log, "cannot be the name of a stream of events");
    }
    (setup.streams, setup.destination) = (T.into(), log.into());
    setup.write();
    setup.run();
    // Larger than an event: nothing of it is recorded, and the run says which change it is.
    setup.pg.query("src", "insert into t values (20, repeat('x', 1100000), 1)");
    setup.pipeline.fails("an event at most 1048576");
    assert_eq!(setup.log("t").len(), 9);
}

#[test]
fn a_key_that_may_read_and_append_is_enough() {
    let Some(mut setup) = Setup::new(ONE, T) else { return };
    let args = ["key", "new", "--name", "p", "--scope", "read", "--scope", "append", "--json"];
    let made: Value = serde_json::from_str(&run_ok(&setup.store, &args)).unwrap();
    setup.restart("TERM");
    setup.pipeline.fails("401");
    let key = made["key"].as_str().unwrap();
    setup
        .pipeline
        .edit(|text| text.replace("config: {url:", &format!("config: {{key: {key}, url:")));
    setup.run();
    setup.pg.query("src", "delete from t");
    assert_eq!(setup.run()["feed"]["deleted"], 9);
}
