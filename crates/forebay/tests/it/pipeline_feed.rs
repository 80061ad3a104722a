//! Pipelines that follow changes: from one PostgreSQL database into another, compared by psql.

use std::process::Stdio;

use serde_json::Value;

use super::pipeline_pg::{Pipeline, two_databases};
use super::support::{run, stderr};
use forebay_testing::Postgres;

const APPLY: &str = "  write_mode: upsert";

/// A pipeline that follows these tables.
pub(crate) fn following(pg: &Postgres, tables: &[&str]) -> Pipeline {
    let streams: Vec<String> =
        tables.iter().map(|table| format!("{{name: {table}, sync_mode: cdc}}")).collect();
    Pipeline::new(pg, &format!("[{}]", streams.join(", ")), APPLY, "")
}

/// Fails unless a table has the same rows in both databases.
pub(crate) fn is_same(pg: &Postgres, table: &str) {
    let rows = format!("select string_agg(t::text, '\n' order by t::text) from {table} t");
    assert_eq!(pg.query("dst", &rows), pg.query("src", &rows), "{table}");
}

fn feed(pipeline: &Pipeline) -> Value {
    let shown = run(&pipeline.dir, &["pipeline", "feed", "p.yaml", "--json"]);
    assert!(shown.status.success(), "{}", stderr(&shown));
    serde_json::from_slice(&shown.stdout).unwrap()
}

/// A table with large values that are stored apart, and one with two columns in its key and another index that
/// is unique.
const TABLES: &str = "
create table a (id int primary key, large text, n numeric, at timestamptz default now());
alter table a alter large set storage external;
create table b (x int, y text, u int unique, z jsonb, primary key (x, y));
insert into a select g, repeat(md5(g::text), 200), g from generate_series(1, 500) g;
insert into b select g % 7, 'y' || g, g, jsonb_build_object('g', g) from generate_series(1, 100) g";

#[test]
pub(crate) fn changes_are_applied_as_the_source_committed_them() {
    let Some(pg) = two_databases() else { return };
    pg.query("src", TABLES);
    let pipeline = following(&pg, &["a", "b"]);
    let copied = pipeline.run();
    assert_eq!((&copied["rows"], &copied["feed"]["changes"]), (&600.into(), &0.into()), "{copied}");
    for table in ["a", "b"] {
        is_same(&pg, table);
    }
    // So the order of updates matters.
    pg.query("dst", "create unique index on b (u)");
    for changes in [
        "insert into a select g, 'new', g from generate_series(501, 900) g; update a set n = -n where id < 50; \
         delete from a where id between 100 and 150",
        // Large values that are not sent, alone and merged with values that are.
        "update a set n = 7 where id < 20; update a set large = 'x' where id = 3; update a set n = 8 where id = 3; \
         update a set large = null where id = 4; update a set n = 9 where id = 4",
        // The same key several times in one transaction, and keys that are exchanged.
        "begin; delete from a where id = 5; insert into a values (5, 'again', 5); update a set n = 55 where id = 5; \
         insert into a values (2000, 'gone', 1); delete from a where id = 2000; \
         update a set id = 3000 where id = 6; update a set id = 6 where id = 7; update a set id = 7 where id = 3000; \
         commit",
        "begin; update b set u = -u where u < 5; update b set u = 5 + u where u < 0; commit",
        "begin; update b set x = x + 1000, z = null where x = 3; delete from b where x = 4; commit",
        "begin; truncate b; insert into b values (1, 'after', 1, 'null'); commit; insert into b values (1, 'more', 2, '[]')",
        "begin; insert into a values (4000, 'x', 1); savepoint s; insert into a values (4001, 'x', 1); \
         rollback to s; insert into a values (4002, 'x', 1); commit",
    ] {
        pg.query("src", changes);
        let report = pipeline.run();
        assert_ne!(report["feed"]["changes"], 0, "{changes}: {report}");
        for table in ["a", "b"] {
            is_same(&pg, table);
        }
    }
    let nothing = pipeline.run();
    assert_eq!(nothing["feed"]["changes"], 0, "{nothing}");
    let feed = feed(&pipeline);
    assert_eq!(feed["health"]["is_complete"], true, "{feed}");
    assert_eq!(feed["origin"]["slot"], "forebay_p", "{feed}");
    // Updates that neither the key nor another index concerns are done in place.
    pg.query("dst", "create table seen as select ctid::text place from a where id = 8");
    pg.query("src", "update a set n = 1 where id = 9");
    pipeline.run();
    assert_eq!(
        pg.query("dst", "select place = (select ctid::text from a where id = 8) from seen"),
        "t"
    );
}

#[test]
pub(crate) fn a_transaction_that_is_larger_than_the_memory_is_applied_as_one() {
    let Some(pg) = two_databases() else { return };
    pg.query("src", "create table t (id int primary key, v text, n int)");
    let streams = "[{name: t, sync_mode: cdc}]";
    let pipeline = Pipeline::new(&pg, streams, APPLY, "resources: {max_memory: 1MiB}");
    pipeline.run();
    pg.query(
        "src",
        "begin; insert into t select g, repeat('v', 100), 0 from generate_series(1, 30000) g; \
         update t set n = id where id % 3 = 0; delete from t where id % 7 = 0; \
         update t set id = -id where id % 11 = 0; commit; insert into t values (0, 'after', 0)",
    );
    let report = pipeline.run();
    assert_eq!(report["feed"]["commits"], 2, "{report}");
    is_same(&pg, "t");
}

/// Starts a run, and kills it after others wrote, unless it has ended by then.
pub(crate) fn killed_after(pipeline: &Pipeline, write: impl FnOnce()) {
    let mut command = pipeline.command();
    let mut running = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    write();
    if running.try_wait().unwrap().is_none() {
        running.kill().unwrap();
    }
    running.wait().unwrap();
}

/// The number of rounds of a test that kills: that of `FOREBAY_KILL_ROUNDS`, if it is set.
pub(crate) fn kill_rounds(default: u32) -> u32 {
    std::env::var("FOREBAY_KILL_ROUNDS").map_or(default, |rounds| rounds.parse().unwrap())
}

#[test]
pub(crate) fn a_run_that_is_killed_at_any_moment_loses_and_repeats_nothing() {
    let Some(pg) = two_databases() else { return };
    pg.query("src", TABLES);
    pg.query("src", "create table log (id serial primary key, of int, v int)");
    let pipeline = following(&pg, &["a", "b", "log"]);
    let mut random = forebay_base::fs::sim::Rng::new(7);
    for round in 0..kill_rounds(12) {
        killed_after(&pipeline, || {
            // A transaction that is prepared, and ended after others.
            let prepared = round % 3 == 0;
            if prepared {
                let insert =
                    "begin; insert into log (of, v) select 0, g from generate_series(1, 50) g;
                              prepare transaction 'p'";
                pg.query("src", insert);
            }
            for step in 0..random.below(12) {
                let id = random.below(900) + 1;
                pg.query(
                    "src",
                    &format!(
                        "begin; insert into log (of, v) select {id}, g from generate_series(1, 200) g; \
                         update a set n = n + 1 where id % 17 = {}; \
                         delete from a where id = {id}; insert into a values ({id}, repeat('z', 5000), {round}); \
                         update b set u = u + 1000 where x = {}; commit",
                        step % 17,
                        step % 7,
                    ),
                );
            }
            if prepared {
                let end = if random.below(2) == 0 { "commit" } else { "rollback" };
                pg.query("src", &format!("{end} prepared 'p'"));
            }
            if round % 4 == 3 {
                // In the middle of a transaction.
                pg.query(
                    "src",
                    &format!(
                        "begin; update b set z = '1' where x = 2; alter table b add v{round} int default {round}; \
                         update b set z = '2', v{round} = x where x = 3; commit"
                    ),
                );
            }
        });
    }
    pipeline.run();
    for table in ["a", "b", "log"] {
        is_same(&pg, table);
    }
}

#[test]
pub(crate) fn columns_change_while_they_are_followed() {
    let Some(pg) = two_databases() else { return };
    pg.query(
        "src",
        "create table t (id int primary key, a text, b int not null); insert into t select g, 'a' || g, g from generate_series(1, 9) g",
    );
    let pipeline = following(&pg, &["t"]);
    pipeline.run();
    for changes in [
        "alter table t add c int; insert into t values (10, 'x', 1, 5); update t set c = 7 where id = 1",
        // Rows that were there have the default, and the log does not show it.
        "alter table t add d text default 'it''s'; insert into t (id, b) values (11, 1)",
        "begin; insert into t (id, a, b) values (12, 'before', 1); alter table t rename a to z; \
         insert into t (id, z, b) values (13, 'after', 1); update t set z = 'both' where id = 12; commit",
        "begin; update t set c = 1; alter table t add e int default 5; update t set c = 2 where id < 5; \
         alter table t alter e drop default; insert into t (id, b) values (20, 1); commit",
        "alter table t add \"F\" date; alter table t rename \"F\" to f; delete from t where id = 2",
        "begin; update t set z = 'id' where id = 4; alter table t rename id to key; update t set key = 104, z = 'key' where key = 4; \
         delete from t where key = 5; insert into t (key, b) values (5, 50); commit",
        "alter table t replica identity full; alter table t rename key to id; update t set z = 'full' where id = 6",
    ] {
        pg.query("src", changes);
        pipeline.run();
        is_same(&pg, "t");
    }
    pg.query("src", "begin; delete from t where id = 3; alter table t drop b; insert into t (id) values (30); commit");
    pipeline.run();
    let kept = "select string_agg((id, z, c, d, e, f)::text, '\n' order by id) from t";
    assert_eq!(pg.query("dst", kept), pg.query("src", kept));
    pg.query(
        "src",
        "alter table t alter c type bigint; insert into t (id, c) values (31, 1::int8 << 40)",
    );
    pipeline.fails("column \"c\" has the type bigint now at the source");
    let streams = "[{name: t, sync_mode: cdc}]";
    let altered = format!("{APPLY}\n  schema_evolution: {{type_change: alter}}");
    pipeline.write(&pg, streams, &altered, "");
    pipeline.run();
    assert_eq!(pg.query("dst", kept), pg.query("src", kept));
    pg.query(
        "src",
        "alter table t add g timestamptz default clock_timestamp(); insert into t (id) values (40)",
    );
    pipeline.fails("was added with a default");
}

#[test]
pub(crate) fn changes_that_may_be_missing_are_refused_and_copied_again_when_asked() {
    let Some(pg) = two_databases() else { return };
    pg.query("src", "create table t (id int primary key, v text); insert into t values (1, 'a')");
    let pipeline = following(&pg, &["t"]);
    pg.query("src", "select pg_create_logical_replication_slot('forebay_p', 'pgoutput')");
    for _ in 0..2 {
        pipeline.fails("the replication slot \"forebay_p\" exists");
    }
    pg.query("src", "select pg_drop_replication_slot('forebay_p'); create publication forebay_p");
    for _ in 0..2 {
        pipeline.fails("a publication \"forebay_p\" exists");
    }
    pg.query("src", "drop publication forebay_p");
    pipeline.run();
    pg.query("src", "insert into t values (2, 'b')");
    pg.query("src", "select pg_replication_slot_advance('forebay_p', pg_current_wal_lsn())");
    pipeline.fails("it was moved or made again");
    let again = run(&pipeline.dir, &["pipeline", "run", "p.yaml", "--from-scratch"]);
    assert!(again.status.success(), "{}", stderr(&again));
    is_same(&pg, "t");
    pg.query("dst", "delete from t where id = 2");
    pg.query("src", "update t set v = 'c' where id = 2");
    pipeline.fails("0 rows would be updated, and the source has 1");
    pg.query("dst", "insert into t values (2, 'b')");
    pipeline.run();
    is_same(&pg, "t");
    pg.query("src", "alter table t drop constraint t_pkey, add primary key (id, v); insert into t values (3, 'c')");
    pipeline.fails("the key of public.t has changed");
    let dropped = run(&pipeline.dir, &["pipeline", "drop-slot", "p.yaml", "--yes"]);
    assert!(dropped.status.success(), "{}", stderr(&dropped));
    let left = "select count(*) from pg_replication_slots where slot_name = 'forebay_p'";
    assert_eq!(pg.query("src", left), "0");
    assert_eq!(pg.query("src", "select count(*) from pg_publication"), "0");
    pg.query("src", "create table nokey (v int)");
    let keyless = following(&pg, &["nokey"]);
    keyless.fails("has no key by which");
    let checked = run(&keyless.dir, &["pipeline", "check", "p.yaml"]);
    assert!(stderr(&checked).contains("has no key by which"), "{}", stderr(&checked));
}
