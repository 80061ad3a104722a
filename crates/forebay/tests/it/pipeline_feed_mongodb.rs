//! Following changes of a PostgreSQL into a MongoDB, compared by what the server's own files and `psql` return as text.

use std::collections::BTreeMap;

use forebay_testing::Postgres;

use super::ferret_support::{Ferret, ferret};
use super::pipeline_feed::{kill_rounds, killed_after};
use super::pipeline_feed_forms::{CHANGES, STREAMS, TABLES};
use super::pipeline_pg::{Pipeline, in_source, two_databases};
use super::support::{run, stderr};

/// A pipeline from database `src` into collections.
fn following(pg: &Postgres, ferret: &Ferret, streams: &str, destination: &str) -> Pipeline {
    let pipeline = Pipeline::new(pg, streams, "", "");
    write(pg, ferret, &pipeline, streams, destination);
    pipeline
}

fn write(pg: &Postgres, ferret: &Ferret, pipeline: &Pipeline, streams: &str, destination: &str) {
    let file = format!(
        "version: 1\npipeline: p\nsource:\n  use: postgres\n  \
         config: {{host: 127.0.0.1, port: {}, database: src, user: postgres}}\n  streams: {streams}\n\
         destination:\n  use: mongodb\n  config: {{url: '{}', decimals: text, json: text, moments: text}}\n\
         {destination}\nresources: {{max_memory: 1MiB}}\n",
        pg.port(),
        ferret.url(),
    );
    std::fs::write(pipeline.dir.path().join("p.yaml"), file).unwrap();
}

/// The texts of a collection, by a query of its documents, sorted.
fn in_files(ferret: &Ferret, collection: &str, query: &str) -> Vec<String> {
    let mut rows = ferret.texts(collection, query);
    rows.sort_unstable();
    rows
}

const A: &str = "select id || '|' || coalesce(large, '-') || '|' || n from a";
const B: &str = "select x || '|' || y || '|' || coalesce(z::text, 'none') from b";
const IN_A: &str =
    "select (d->>'$.id') || '|' || coalesce(d->>'$.large', '-') || '|' || (d->>'$.n') from {}";
const IN_B: &str =
    "select (d->>'$.x') || '|' || (d->>'$.y') || '|' || coalesce(d->>'$.z', 'none') from {}";
const LIVE: &str = "where d->>'$._deleted_at' is null";

fn same(pg: &Postgres, ferret: &Ferret) {
    assert_eq!(in_files(ferret, "a", &format!("{IN_A} {LIVE}")), in_source(pg, A));
    assert_eq!(in_files(ferret, "b", &format!("{IN_B} {LIVE}")), in_source(pg, B));
    let pending = "select count(*) from {} where d->>'$.pending' is not null";
    assert_eq!(ferret.find("_forebay_feeds", pending), Some(0));
}

fn succeeds(pipeline: &Pipeline, command: &[&str]) {
    let done = run(&pipeline.dir, command);
    assert!(done.status.success(), "{}", stderr(&done));
}

#[test]
fn changes_are_applied_to_collections_as_the_source_committed_them() {
    let (Some(pg), Some(ferret)) = (two_databases(), ferret()) else { return };
    for marks in [false, true] {
        pg.query("src", TABLES);
        let kept = if marks { "  deleted_rows: mark" } else { "" };
        let destination = format!("  write_mode: upsert\n{kept}");
        let pipeline = following(&pg, &ferret, STREAMS, &destination);
        pipeline.run();
        same(&pg, &ferret);
        for (at, changes) in CHANGES.iter().enumerate() {
            pg.query("src", changes);
            if at % 2 == 0 {
                pipeline.run();
                same(&pg, &ferret);
            }
        }
        pipeline.run();
        same(&pg, &ferret);
        if marks {
            for (collection, found, kept) in [("a", IN_A, A), ("b", IN_B, B)] {
                let found = format!("{found} where d->>'$._deleted_at' is not null");
                let kept =
                    kept.replace(&format!("from {collection}"), &format!("from gone_{collection}"));
                assert_eq!(in_files(&ferret, collection, &found), in_source(&pg, &kept));
            }
        }
        succeeds(&pipeline, &["pipeline", "verify", "p.yaml"]);
        succeeds(&pipeline, &["pipeline", "drop-slot", "p.yaml", "--yes"]);
        assert_eq!(ferret.find("_forebay_feeds", "select count(*) from {}"), Some(0));
        pg.query("src", "drop table a, b, gone_a, gone_b; drop function keep_a, keep_b, empty_a");
    }
}

#[test]
fn a_transaction_of_several_parts_is_applied_to_collections_as_one() {
    let (Some(pg), Some(ferret)) = (two_databases(), ferret()) else { return };
    for kept in ["", "  deleted_rows: mark"] {
        pg.query(
            "src",
            "create table a (id int primary key, large text, n numeric); alter table a alter large set storage external;
             create table b (x int, y text, z jsonb, primary key (x, y));
             insert into a select g, repeat(md5(g::text), 100), g from generate_series(1, 60) g;
             insert into b select g, 'y' || g, to_jsonb(g) from generate_series(1, 150) g",
        );
        let pipeline = following(&pg, &ferret, STREAMS, &format!("  write_mode: upsert\n{kept}"));
        pipeline.run();
        // Each step has more bytes than a unit, and concerns what the steps before it did.
        pg.query(
            "src",
            "begin; insert into b select g, 'y' || g, to_jsonb(repeat('z', 2000)) from generate_series(201, 350) g;
             update a set n = n + 1 where id <= 20;
             update b set z = to_jsonb(repeat('u', 2500)) where x > 100; update b set x = -x where x % 7 = 0;
             update a set id = -id where id between 10 and 15; delete from a where id in (-10, 20);
             insert into a values (10, 'back', 1); update b set z = to_jsonb(repeat('w', 3000)) where x < -50 or x > 250;
             delete from b where x % 5 = 0; update a set n = 0 where id in (-11, 10, 30);
             alter table a add extra int default 7; alter table a rename n to m; alter table a rename m to n;
             update a set large = 'short', extra = 8 where id = 12 or id = -12; commit",
        );
        // What follows is another transaction, and concerns what is staged before.
        pg.query(
            "src",
            "begin; insert into b select g, 'late', to_jsonb(repeat('l', 2000)) from generate_series(1, 250) g;
             truncate b; insert into b select g, 'new', to_jsonb(repeat('n', 2000)) from generate_series(1, 180) g;
             update b set z = null where x < 10; update b set x = -x where x between 5 and 8; commit",
        );
        pipeline.run();
        same(&pg, &ferret);
        succeeds(&pipeline, &["pipeline", "verify", "p.yaml"]);
        succeeds(&pipeline, &["pipeline", "drop-slot", "p.yaml", "--yes"]);
        pg.query("src", "drop table a, b");
    }
}

#[test]
fn a_run_into_a_mongodb_that_is_killed_loses_and_repeats_nothing() {
    let (Some(pg), Some(ferret)) = (two_databases(), ferret()) else { return };
    pg.query("src", "create table a (id int primary key, large text, n numeric); alter table a alter large set storage external");
    pg.query("src", "create table b (x int, y text, z jsonb, primary key (x, y))");
    pg.query(
        "src",
        "insert into a select g, repeat(md5(g::text), 100), g from generate_series(1, 200) g",
    );
    let pipeline = following(&pg, &ferret, STREAMS, "  write_mode: upsert");
    pipeline.run();
    let mut random = forebay_base::fs::sim::Rng::new(5);
    for round in 0..kill_rounds(8) {
        killed_after(&pipeline, || {
            for step in 0..random.below(12) {
                let id = random.below(200) + 1;
                pg.query(
                    "src",
                    &format!(
                        "begin; update a set n = n + {round} where id % 17 = {}; delete from a where id = {id}; \
                         insert into a values ({id}, repeat('z', 5000), {round}); update a set id = id + 1000 where id = {half} and not exists (select from a where id = {half} + 1000); \
                         insert into b values ({id}, clock_timestamp()::text, '{{}}'); update b set x = x + 1 where x = {id}; commit",
                        id % 17,
                        half = id / 2
                    ),
                );
                if step == 5 {
                    // In several parts.
                    pg.query("src", "update a set large = large || 'x', n = -n where id < 1000");
                }
            }
            if round % 4 == 3 {
                pg.query(
                    "src",
                    &format!(
                        "begin; update a set n = 1 where id = 3; alter table a add v{round} int default {round}; \
                         update a set n = 2, v{round} = id where id = 4; commit"
                    ),
                );
            }
        });
    }
    pipeline.run();
    same(&pg, &ferret);
    succeeds(&pipeline, &["pipeline", "verify", "p.yaml"]);
}

/// Repeats the log of `a`, change by change.
fn repeated(ferret: &Ferret) -> Vec<String> {
    // The position as a number of 16 hexadecimal digits.
    let log = "select printf('%08s%08s', substr(p, 1, instr(p, '/') - 1), substr(p, instr(p, '/') + 1)) || printf('%09d', number)
                 || char(31) || op || char(31) || id || char(31) || before || char(31) || large || char(31) || n from
               (select coalesce(d->>'$._position', '0/0') p, coalesce(d->>'$._number', 0) number, d->>'$._operation' op,
                  coalesce(d->>'$.id', '') id, coalesce(d->>'$._before_id', d->>'$.id', '') before, coalesce(d->>'$.n', '') n,
                  case when d->>'$._unchanged' like '%large%' then char(30) else coalesce(d->>'$.large', '-') end large from {})";
    let mut rows: BTreeMap<String, (String, String)> = BTreeMap::new();
    for change in in_files(ferret, "a", log) {
        let fields: Vec<&str> = change.split('\u{1f}').collect();
        let [_, operation, id, before, large, n] = fields[..] else { panic!("{change}") };
        match operation {
            "copy" | "insert" => {
                let is_new = rows.insert(id.to_owned(), (large.to_owned(), n.to_owned())).is_none();
                assert!(is_new, "inserted twice: {change}");
            }
            "update" => {
                let (earlier, _) = rows.remove(before).unwrap_or_else(|| panic!("{change}"));
                let large = if large == "\u{1e}" { earlier } else { large.to_owned() };
                rows.insert(id.to_owned(), (large, n.to_owned()));
            }
            "delete" => drop(rows.remove(id).unwrap_or_else(|| panic!("{change}"))),
            "truncate" => rows.clear(),
            other => panic!("{other}"),
        }
    }
    let mut rows: Vec<String> =
        rows.into_iter().map(|(id, (large, n))| format!("{id}|{large}|{n}")).collect();
    rows.sort_unstable();
    rows
}

#[test]
fn a_log_in_a_collection_has_every_change_once_and_in_order() {
    let (Some(pg), Some(ferret)) = (two_databases(), ferret()) else { return };
    pg.query("src", TABLES);
    let pipeline = following(&pg, &ferret, STREAMS, "  write_mode: append");
    pipeline.run();
    for (at, changes) in CHANGES.iter().enumerate() {
        pg.query("src", changes);
        if at % 2 == 0 {
            pipeline.run();
            assert_eq!(repeated(&ferret), in_source(&pg, A));
        }
    }
    let mut random = forebay_base::fs::sim::Rng::new(3);
    for round in 0..kill_rounds(4) {
        killed_after(&pipeline, || {
            for _ in 0..random.below(10) {
                let id = 1_000 + random.below(100);
                pg.query("src", &format!("delete from a where id = {id}; insert into a values ({id}, 'r', {round}); update a set n = n + 1 where id % 5 = 0"));
            }
        });
    }
    pipeline.run();
    assert_eq!(repeated(&ferret), in_source(&pg, A));
    let counts = "select (d->>'$._operation') || ' ' || count(*) from {} group by 1";
    // Of the 100 rows, 14 have x = 3, and 14 x = 4.
    let counts = in_files(
        &ferret,
        "b",
        counts.replace("group by 1", "group by d->>'$._operation'").as_str(),
    );
    assert_eq!(counts, ["copy 100", "delete 101", "insert 1", "update 14"]);
    let moved = "select count(*) from {} where d->>'$._before_x' = 4 and d->>'$.x' = 1004";
    assert_eq!(ferret.find("b", moved), Some(14));
}

#[test]
fn values_and_columns_of_every_kind_reach_collections() {
    let (Some(pg), Some(ferret)) = (two_databases(), ferret()) else { return };
    pg.query(
        "src",
        "create type mood as enum ('sad', 'ok');
         create table t (id bigint primary key, b bool, i2 int2, f8 float8, n numeric, nd numeric(12,3), v varchar(20), c char(5),
           by bytea, d date, ti time, ts timestamp, tsz timestamptz, iv interval, u uuid, j json, jb jsonb, ip inet,
           ai int[], at text[], e mood);
         insert into t values (1, true, -5, 1.5, 1.50, 2.25, 'x', 'ab', '\\x00ff', '2026-01-02', '10:00', '2026-01-02 10:00',
           '2026-01-02 10:00:00.123456+02', '1 day', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{\"a\": 1}', '[1]', '10.0.0.1',
           '{1,2}', '{\"a b\",NULL}', 'ok'); insert into t (id) values (2)",
    );
    let streams = "[{name: t, sync_mode: cdc}]";
    let pipeline = following(&pg, &ferret, streams, "  write_mode: upsert");
    pipeline.run();
    let columns = "b, i2, f8, n, nd, v, c, by, d, ti, ts, tsz, iv, u, j, jb, ip, ai, at, e";
    let verified = |what: &str| {
        let verified = run(&pipeline.dir, &["pipeline", "verify", "p.yaml"]);
        assert!(verified.status.success(), "{what}: {}", stderr(&verified));
    };
    // What changes bring is what the copy brings.
    pg.query("src", &format!("insert into t select id + 10, {columns} from t; update t a set ({columns}) = (select {columns} from t b where b.id = 3 - a.id) where id < 3"));
    pipeline.run();
    verified("changed values");
    let of = |id: u32| {
        let quoted: Vec<String> =
            columns.split(", ").map(|c| format!("quote(d->'$.{c}')")).collect();
        let query =
            format!("select {} from {{}} where d->>'$.id' = {id}", quoted.join(" || ',' || "));
        in_files(&ferret, "t", &query)
    };
    assert_eq!(of(2), of(11));
    for changes in [
        "alter table t add plain int; insert into t (id, plain) values (20, 5)",
        "alter table t add dated date default '2026-05-06'; insert into t (id) values (21)",
        "alter table t rename plain to renamed; insert into t (id, renamed) values (22, 7)",
        "begin; update t set renamed = 8 where id = 20; alter table t rename id to key; update t set renamed = 9 where key = 20; update t set key = 25 where key = 21; commit",
        "alter table t rename key to id; update t set id = 21 where id = 25",
        "begin; update t set b = false where id = 1; alter table t add flag bool default true; update t set flag = false where id = 20; commit",
        "alter table t alter v type text; alter table t alter i2 type int; update t set v = 'long', i2 = 70000 where id = 1",
        "alter table t drop ip; update t set n = 5 where id = 2; insert into t (id) values (23); delete from t where id = 22",
        "begin; delete from t where id = 23; alter table t rename renamed to again; update t set again = 1 where id = 20; update t set id = 24, again = 2 where id = 21; commit",
    ] {
        pg.query("src", changes);
        pipeline.run();
        verified(changes);
    }
    pg.query("src", "alter table t alter i2 type text; insert into t (id, i2) values (30, 'x')");
    pipeline.fails("column \"i2\" has the type text now at the source");
    succeeds(&pipeline, &["pipeline", "run", "p.yaml", "--from-scratch"]);
    verified("copied again");
}

#[test]
fn what_a_mongodb_cannot_follow_is_refused() {
    let (Some(pg), Some(ferret)) = (two_databases(), ferret()) else { return };
    pg.query(
        "src",
        "create table t (id int primary key, v text); insert into t values (1, 'a'), (2, 'b')",
    );
    let streams = "[{name: t, sync_mode: cdc}]";
    let pipeline = following(&pg, &ferret, streams, "  write_mode: upsert");
    pipeline.run();
    // Of a unit that concerns a document that is not there, nothing is applied.
    pg.query("src", "update t set v = 'c' where id = 1; delete from t where id = 2");
    let text = std::fs::read_to_string(pipeline.dir.path().join("p.yaml")).unwrap();
    let other = Pipeline { dir: tempfile::TempDir::new().unwrap() };
    let remove = format!(
        "version: 1\npipeline: r\nsource:\n  use: postgres\n  config: {{host: 127.0.0.1, port: {}, database: src, user: postgres}}\n  \
         streams: [{{name: other, into: t}}]\ndestination:\n  use: mongodb\n  config: {{url: '{}'}}\n  write_mode: replace\n",
        pg.port(),
        ferret.url(),
    );
    pg.query("src", "create table other (id int, v text); insert into other values (1, 'a')");
    std::fs::write(other.dir.path().join("p.yaml"), remove).unwrap();
    other.run();
    pipeline.fails("0 rows would be deleted, and the source has 1");
    let of_first = "select d->>'$.v' from {} where d->>'$.id' = 1";
    assert_eq!(in_files(&ferret, "t", of_first), ["a"]);
    pg.query("src", "create table ranges (id int primary key, r int4range); create table arrays (k int[] primary key)");
    pg.query("src", "create table ids (_id int, k int primary key)");
    for (table, found) in [
        ("ranges", "MongoDB cannot store changes of int4range"),
        ("arrays", "column \"k\" of the key of arrays is integer[], which finds no documents"),
        ("ids", "ids has a column \"_id\" that is not its key"),
    ] {
        let path = other.dir.path().join("p.yaml");
        let text = text.replace("pipeline: p\n", &format!("pipeline: {table}\n"));
        std::fs::write(&path, text.replace("name: t,", &format!("name: {table},"))).unwrap();
        other.fails(found);
    }
}
