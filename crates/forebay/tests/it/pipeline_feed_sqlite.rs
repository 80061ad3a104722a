//! Following changes of a PostgreSQL into a SQLite file, compared by what both return as text.

use forebay_testing::Postgres;
use rusqlite::Connection;

use super::pipeline_feed::{kill_rounds, killed_after};
use super::pipeline_feed_forms::{CHANGES, STREAMS, TABLES};
use super::pipeline_pg::{Pipeline, in_source, two_databases};
use super::support::{run, stderr};

/// A pipeline from database `src` into the file `dst.sqlite`.
fn following(pg: &Postgres, streams: &str, destination: &str) -> Pipeline {
    let pipeline = Pipeline::new(pg, streams, "", "");
    write(pg, &pipeline, streams, destination);
    pipeline
}

fn write(pg: &Postgres, pipeline: &Pipeline, streams: &str, destination: &str) {
    let path = pipeline.dir.path().join("dst.sqlite");
    let file = format!(
        "version: 1\npipeline: p\nsource:\n  use: postgres\n  \
         config: {{host: 127.0.0.1, port: {}, database: src, user: postgres}}\n  streams: {streams}\n\
         destination:\n  use: sqlite\n  config: {{path: '{}'}}\n{destination}\n",
        pg.port(),
        path.display()
    );
    std::fs::write(pipeline.dir.path().join("p.yaml"), file).unwrap();
}

/// The rows of a query of one text, sorted.
fn in_file(pipeline: &Pipeline, query: &str) -> Vec<String> {
    let file = Connection::open(pipeline.dir.path().join("dst.sqlite")).unwrap();
    let mut statement = file.prepare(query).unwrap();
    let rows = statement.query_map([], |row| row.get(0)).unwrap();
    let mut rows: Vec<String> = rows.collect::<rusqlite::Result<_>>().unwrap();
    rows.sort_unstable();
    rows
}

const A: &str = "select id || '|' || coalesce(large, '-') || '|' || n from";
const B: &str = "select x || '|' || y || '|' || coalesce(z, 'none') from";
const B_SOURCE: &str = "select x || '|' || y || '|' || coalesce(z::text, 'none') from";

fn same(pg: &Postgres, pipeline: &Pipeline, live: &str) {
    assert_eq!(in_file(pipeline, &format!("{A} a {live}")), in_source(pg, &format!("{A} a")));
    assert_eq!(
        in_file(pipeline, &format!("{B} b {live}")),
        in_source(pg, &format!("{B_SOURCE} b"))
    );
}

#[test]
pub(crate) fn changes_are_applied_to_a_sqlite_file_as_the_source_committed_them() {
    let Some(pg) = two_databases() else { return };
    for (destination, live) in [("", ""), ("  deleted_rows: mark", "where _deleted_at is null")] {
        pg.query("src", TABLES);
        let destination = format!("  write_mode: upsert\n{destination}");
        let pipeline = following(&pg, STREAMS, &destination);
        pipeline.run();
        same(&pg, &pipeline, live);
        for (at, changes) in CHANGES.iter().enumerate() {
            pg.query("src", changes);
            if at % 2 == 0 {
                pipeline.run();
                same(&pg, &pipeline, live);
            }
            if at == 2 {
                // From here on rows are rebuilt.
                let file = Connection::open(pipeline.dir.path().join("dst.sqlite")).unwrap();
                file.execute_batch("create unique index other on a (large, id, n)").unwrap();
            }
        }
        pipeline.run();
        same(&pg, &pipeline, live);
        if !live.is_empty() {
            let gone = "where _deleted_at is not null";
            assert_eq!(
                in_file(&pipeline, &format!("{A} a {gone}")),
                in_source(&pg, &format!("{A} gone_a"))
            );
            assert_eq!(
                in_file(&pipeline, &format!("{B} b {gone}")),
                in_source(&pg, &format!("{B_SOURCE} gone_b"))
            );
        }
        let verified = run(&pipeline.dir, &["pipeline", "verify", "p.yaml"]);
        assert!(verified.status.success(), "{}", stderr(&verified));
        let dropped = run(&pipeline.dir, &["pipeline", "drop-slot", "p.yaml", "--yes"]);
        assert!(dropped.status.success(), "{}", stderr(&dropped));
        pg.query("src", "drop table a, b, gone_a, gone_b; drop function keep_a, keep_b, empty_a");
    }
}

#[test]
pub(crate) fn a_run_into_a_sqlite_file_that_is_killed_loses_and_repeats_nothing() {
    let Some(pg) = two_databases() else { return };
    pg.query("src", "create table a (id int primary key, large text, n numeric); create table b (x int, y text, z jsonb, primary key (x, y))");
    pg.query(
        "src",
        "insert into a select g, repeat(md5(g::text), 50), g from generate_series(1, 300) g",
    );
    let pipeline = following(&pg, STREAMS, "  write_mode: upsert");
    let mut random = forebay_base::fs::sim::Rng::new(5);
    for round in 0..kill_rounds(8) {
        killed_after(&pipeline, || {
            for _ in 0..random.below(12) {
                let id = random.below(300) + 1;
                pg.query(
                    "src",
                    &format!(
                        "begin; update a set n = n + {round} where id % 17 = {}; delete from a where id = {id}; \
                         insert into a values ({id}, repeat('z', 5000), {round}); \
                         insert into b values ({id}, clock_timestamp()::text, '{{}}'); update b set x = x + 1 where x = {id}; commit",
                        id % 17
                    ),
                );
            }
        });
    }
    pipeline.run();
    same(&pg, &pipeline, "");
}

#[test]
pub(crate) fn values_and_columns_of_every_kind_reach_a_sqlite_file() {
    let Some(pg) = two_databases() else { return };
    pg.query(
        "src",
        "create type mood as enum ('sad', 'ok');
         create table t (id bigint primary key, b bool, i2 int2, f8 float8, n numeric, nd numeric(12,3), v varchar(20), c char(5),
           by bytea, d date, ti time, ts timestamp, tsz timestamptz, iv interval, u uuid, j json, jb jsonb, ip inet,
           ai int[], at text[], e mood, mo money);
         insert into t values (1, true, -5, 1.5, 1.50, 2.25, 'x', 'ab', '\\x00ff', '2026-01-02', '10:00', '2026-01-02 10:00',
           '2026-01-02 10:00+02', '1 day', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{\"a\": 1}', '[1]', '10.0.0.1',
           '{1,2}', '{\"a b\",NULL}', 'ok', 12.5); insert into t (id) values (2)",
    );
    let streams = "[{name: t, sync_mode: cdc}]";
    let pipeline = following(&pg, streams, "  write_mode: upsert");
    pipeline.run();
    let columns = "b, i2, f8, n, nd, v, c, by, d, ti, ts, tsz, iv, u, j, jb, ip, ai, at, e, mo";
    let verified = |what: &str| {
        let verified = run(&pipeline.dir, &["pipeline", "verify", "p.yaml"]);
        assert!(verified.status.success(), "{what}: {}", stderr(&verified));
    };
    // What changes bring is what the copy brings.
    pg.query("src", &format!("insert into t select id + 10, {columns} from t; update t a set ({columns}) = (select {columns} from t b where b.id = 3 - a.id) where id < 3"));
    pipeline.run();
    verified("changed values");
    let of = |id: u32| {
        let quoted: Vec<String> = columns.split(", ").map(|c| format!("quote(\"{c}\")")).collect();
        in_file(&pipeline, &format!("select {} from t where id = {id}", quoted.join(" || ',' || ")))
    };
    assert_eq!(of(2), of(11));
    for changes in [
        "alter table t add plain int; insert into t (id, plain) values (20, 5)",
        "alter table t add dated date default '2026-05-06'; insert into t (id) values (21)",
        "alter table t rename plain to renamed; insert into t (id, renamed) values (22, 7)",
        "begin; update t set renamed = 8 where id = 20; alter table t rename id to key; update t set renamed = 9 where key = 20; update t set key = 25 where key = 21; commit",
        "alter table t rename key to id; update t set id = 21 where id = 25",
        "begin; update t set b = false where id = 1; alter table t add flag bool default true; update t set flag = false where id = 20; commit",
    ] {
        pg.query("src", changes);
        pipeline.run();
        verified(changes);
    }
    pg.query("src", "alter table t alter i2 type text; insert into t (id, i2) values (30, 'x')");
    pipeline.fails("column \"i2\" has the type text now at the source");
    let again = run(&pipeline.dir, &["pipeline", "run", "p.yaml", "--from-scratch"]);
    assert!(again.status.success(), "{}", stderr(&again));
    verified("copied again");
    let file = Connection::open(pipeline.dir.path().join("dst.sqlite")).unwrap();
    file.execute("delete from t where id = 1", []).unwrap();
    pg.query("src", "update t set b = null where id = 1");
    pipeline.fails("0 rows would be updated, and the source has 1");
    write(&pg, &pipeline, streams, "  write_mode: append");
    pipeline.fails("sqlite does not append changes as a log");
    pg.query("src", "create table ranges (id int primary key, r int4range)");
    let other = following(&pg, "[{name: ranges, sync_mode: cdc}]", "  write_mode: upsert");
    let path = other.dir.path().join("p.yaml");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("pipeline: p", "pipeline: q")).unwrap();
    other.fails("SQLite cannot store changes of int4range");
}
