//! Followed changes in their other forms: rows that are marked as deleted, and a log; and feeds whose changes are
//! lost.

use std::process::Stdio;

use forebay_testing::Postgres;

use super::pipeline_feed::{is_same, killed_after};
use super::pipeline_pg::{Pipeline, two_databases};
use super::support::{run, stderr};

const MARK: &str = "  write_mode: upsert\n  deleted_rows: mark";
const LOG: &str = "  write_mode: append";
pub(crate) const STREAMS: &str = "[{name: a, sync_mode: cdc}, {name: b, sync_mode: cdc}]";

/// Two tables, and beside each one that keeps its deleted rows until their keys are there again.
pub(crate) const TABLES: &str = "
create table a (id int primary key, large text, n numeric);
alter table a alter large set storage external;
create table b (x int, y text, z jsonb, primary key (x, y));
insert into a select g, repeat(md5(g::text), 200), g from generate_series(1, 300) g;
insert into b select g % 7, 'y' || g, jsonb_build_object('g', g) from generate_series(1, 100) g;
create table gone_a as table a with no data; create table gone_b as table b with no data;
create function keep_a() returns trigger language plpgsql as $$ begin
  if tg_op = 'DELETE' then insert into gone_a select old.*; return old; end if;
  delete from gone_a where id = new.id; return new; end $$;
create function keep_b() returns trigger language plpgsql as $$ begin
  if tg_op = 'DELETE' then insert into gone_b select old.*; return old; end if;
  delete from gone_b where (x, y) = (new.x, new.y); return new; end $$;
create function empty_a() returns trigger language plpgsql as $$ begin
  insert into gone_a table a; return null; end $$;
create trigger keep before insert or update or delete on a for each row execute function keep_a();
create trigger keep before insert or update or delete on b for each row execute function keep_b();
create trigger empty before truncate on a for each statement execute function empty_a()";

pub(crate) const CHANGES: [&str; 7] = [
    "delete from a where id between 10 and 40; update a set n = -n where id < 30; \
     insert into a select g, 'again', g from generate_series(20, 25) g",
    // What was updated before its deletion is not lost, nor what was inserted before it.
    "begin; update a set n = 1000 where id = 50; delete from a where id = 50; insert into a values (400, 'short', 1); \
     delete from a where id = 400; insert into a values (401, 'x', 1); delete from a where id = 401; \
     insert into a values (401, 'back', 2); commit",
    "update a set n = 7 where id = 60; update a set large = 'x' where id = 61; update a set large = null, n = 8 where id = 62; \
     update a set n = 9 where id in (60, 61, 62); delete from a where id = 61",
    // A row takes the key of a deleted one, and two exchange theirs.
    "begin; delete from a where id = 70; update a set id = 70 where id = 71; update a set id = 900 where id = 72; \
     update a set id = 72 where id = 73; update a set id = 73 where id = 900; commit; update a set id = 11 where id = 74; \
     begin; update a set id = 500 where id = 75; delete from a where id = 500; update a set id = 500 where id = 76; commit",
    "delete from b where x = 3; update b set x = x + 1000 where x = 4; insert into b values (3, 'y3', '[]')",
    "begin; delete from a where id = 80; insert into a values (80, 'b', 3), (81000, 'c', 4); truncate a; \
     insert into a select g, 'new' || g, g from generate_series(75, 85) g; delete from a where id = 76; commit",
    "insert into a values (90, 'after', 1); update a set n = 2 where id = 90; delete from b",
];

fn rows(of: &str, columns: &str) -> String {
    format!("select string_agg(r::text, '\n' order by r::text) from (select {columns} from {of}) r")
}

fn check_marked(pg: &Postgres) {
    for (table, columns) in [("a", "id, large, n"), ("b", "x, y, z")] {
        let live = format!("{table} where _deleted_at is null");
        assert_eq!(pg.query("dst", &rows(&live, columns)), pg.query("src", &rows(table, columns)));
        let gone = format!("{table} where _deleted_at is not null");
        let kept = pg.query("src", &rows(&format!("gone_{table}"), columns));
        assert_eq!(pg.query("dst", &rows(&gone, columns)), kept, "deleted rows of {table}");
    }
}

fn from_scratch(pipeline: &Pipeline) {
    let again = run(&pipeline.dir, &["pipeline", "run", "p.yaml", "--from-scratch"]);
    assert!(again.status.success(), "{}", stderr(&again));
}

#[test]
pub(crate) fn deleted_rows_stay_as_they_were_with_the_time_of_their_deletion() {
    let Some(pg) = two_databases() else { return };
    for at_once in [false, true] {
        pg.query("src", TABLES);
        let begun = pg.query("src", "select clock_timestamp()");
        let pipeline = Pipeline::new(&pg, STREAMS, MARK, "");
        pipeline.run();
        for changes in CHANGES {
            pg.query("src", changes);
            if !at_once {
                pipeline.run();
                check_marked(&pg);
            }
        }
        pipeline.run();
        check_marked(&pg);
        let is_then = format!(
            "select bool_and(_deleted_at between '{begun}' and clock_timestamp()) from a where _deleted_at is not null"
        );
        assert_eq!(pg.query("dst", &is_then), "t");
        let verified = run(&pipeline.dir, &["pipeline", "verify", "p.yaml"]);
        assert!(verified.status.success(), "{}", stderr(&verified));
        // Another form is another feed.
        pipeline.write(&pg, STREAMS, "  write_mode: upsert", "");
        pipeline.fails("the feed began with another `write_mode` or `deleted_rows`");
        pipeline.write(&pg, STREAMS, MARK, "");
        pipeline.run();
        from_scratch(&pipeline);
        let marked = "select count(*) from a where _deleted_at is not null";
        assert_eq!(pg.query("dst", marked), "0");
        pg.query("src", "delete from a where id = 77");
        pipeline.run();
        assert_eq!(pg.query("dst", marked), "1");
        let dropped = run(&pipeline.dir, &["pipeline", "drop-slot", "p.yaml", "--yes"]);
        assert!(dropped.status.success(), "{}", stderr(&dropped));
        pg.query("dst", "drop table a, b");
        pg.query("src", "drop table a, b, gone_a, gone_b; drop function keep_a, keep_b, empty_a");
    }
}

/// Repeats the log of `a` at the destination, change by change.
const REPEAT: &str = "
drop table if exists repeated; create table repeated as select id, large, n from a with no data;
do $$ declare c record; begin
  for c in select *, coalesce(_unchanged, '{}') same from a order by _position::pg_lsn nulls first, _number loop
    case c._operation
      when 'copy', 'insert' then insert into repeated values (c.id, c.large, c.n);
      when 'update' then
        update repeated r set id = c.id, n = case when 'n' = any(c.same) then r.n else c.n end,
          large = case when 'large' = any(c.same) then r.large else c.large end
        where r.id = coalesce(c._before_id, c.id);
        if not found then raise 'update of %, which is not there', c.id; end if;
      when 'delete' then delete from repeated r where r.id = c.id;
        if not found then raise 'deletion of %, which is not there', c.id; end if;
      when 'truncate' then delete from repeated;
    end case;
  end loop; end $$";

fn check_log(pg: &Postgres) {
    pg.query("dst", REPEAT);
    let columns = "id, large, n";
    assert_eq!(
        pg.query("dst", &rows("repeated", columns)),
        pg.query("src", &rows("a", columns)),
        "the log does not lead to the rows of the source"
    );
    let doubled = "select count(*) from (select from a where _operation <> 'copy' group by _position, _number \
                   having count(*) > 1) d";
    assert_eq!(pg.query("dst", doubled), "0");
}

#[test]
pub(crate) fn a_log_has_every_change_in_its_order() {
    let Some(pg) = two_databases() else { return };
    pg.query("src", TABLES);
    let pipeline = Pipeline::new(&pg, STREAMS, LOG, "");
    pipeline.run();
    for (at, changes) in CHANGES.iter().enumerate() {
        pg.query("src", changes);
        if at % 2 == 0 {
            pipeline.run();
            check_log(&pg);
        }
    }
    pipeline.run();
    check_log(&pg);
    let counts = "select string_agg(_operation || ' ' || n, ', ' order by _operation)
                  from (select _operation, count(*) n from b group by 1) c";
    // Of the 100 rows, 14 have x = 3, and 14 x = 4.
    assert_eq!(pg.query("dst", counts), "copy 100, delete 101, insert 1, update 14");
    let moved = "select count(*) from b where _before_x = 4 and x = 1004 and _before_y = y";
    assert_eq!(pg.query("dst", moved), "14");
    let complete =
        "select bool_and(_committed_at between now() - interval '1 hour' and now()) from a
                    where _operation <> 'copy'";
    assert_eq!(pg.query("dst", complete), "t");
    let verified = run(&pipeline.dir, &["pipeline", "verify", "p.yaml"]);
    assert!(stderr(&verified).contains("a log of changes has other rows than the source"));
    from_scratch(&pipeline);
    assert_eq!(pg.query("dst", counts), "", "the log begins again with what is there: no rows");
    pg.query("src", "insert into b values (1, 'y', '{}'); delete from b");
    pipeline.run();
    check_log(&pg);
    assert_eq!(pg.query("dst", counts), "delete 1, insert 1");
    pg.query("dst", "create unique index on a (id) where n = 12345");
    pg.query("src", "insert into a values (1000, 'x', 1)");
    pipeline.fails("has a unique index, and a log has a row for each change");
    pg.query("src", "create table c (id int primary key, _number int)");
    let other = Pipeline::new(&pg, "[{name: c, sync_mode: cdc}]", LOG, "");
    let file = other.dir.path().join("p.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("pipeline: p", "pipeline: q")).unwrap();
    other.fails("has a column \"_number\", as a log of changes has");
}

#[test]
pub(crate) fn a_log_has_every_change_once_though_its_run_is_killed() {
    let Some(pg) = two_databases() else { return };
    pg.query("src", TABLES);
    let pipeline = Pipeline::new(&pg, STREAMS, LOG, "");
    let mut random = forebay_base::fs::sim::Rng::new(3);
    for round in 0..6 {
        killed_after(&pipeline, || {
            for _ in 0..random.below(12) {
                let id = random.below(300) + 1;
                pg.query(
                    "src",
                    &format!(
                        "begin; update a set n = n + {round} where id % 17 = {}; delete from a where id = {id}; \
                         insert into a values ({id}, repeat('z', 5000), {round}); commit",
                        id % 17
                    ),
                );
            }
        });
    }
    pipeline.run();
    check_log(&pg);
}

#[test]
pub(crate) fn tables_whose_changes_are_lost_are_copied_again_if_the_file_says_so() {
    let Some(pg) = two_databases() else { return };
    pg.query("src", "create table t (id int primary key, v text); insert into t values (1, 'a')");
    let streams = "[{name: t, sync_mode: cdc}]";
    let pipeline = Pipeline::new(&pg, streams, "  write_mode: upsert", "");
    pipeline.run();
    for (id, loss) in [
        (2, "select pg_replication_slot_advance('forebay_p', pg_current_wal_lsn())"),
        (3, "select pg_drop_replication_slot('forebay_p')"),
    ] {
        pipeline.write(&pg, streams, "  write_mode: upsert", "");
        pg.query("src", &format!("insert into t values ({id}, 'b'); delete from t where id = 1"));
        pg.query("src", loss);
        pipeline.fails("or set `source.on_lost: copy_again`");
        let again = format!("{streams}\n  on_lost: copy_again");
        pipeline.write(&pg, &again, "  write_mode: upsert", "");
        let report = pipeline.run();
        assert!(report["warnings"].to_string().contains("copied again"), "{report}");
        is_same(&pg, "t");
        pg.query("src", &format!("update t set v = v || '+' where id = {id}"));
        let report = pipeline.run();
        assert_eq!(report["warnings"], serde_json::json!([]), "{report}");
        is_same(&pg, "t");
    }
    // A slot of another client is neither read nor dropped.
    let swapped = "select pg_drop_replication_slot('forebay_p')";
    pg.query("src", swapped);
    pg.query("src", "select pg_create_logical_replication_slot('forebay_p', 'test_decoding')");
    pipeline.fails("was made by another client");
    let kept = "select plugin from pg_replication_slots where slot_name = 'forebay_p'";
    assert_eq!(pg.query("src", kept), "test_decoding");
}

#[test]
pub(crate) fn tables_that_are_added_later_are_copied_and_followed() {
    let Some(pg) = two_databases() else { return };
    let pipeline = Pipeline::new(&pg, "[]", "", "");
    let mut random = forebay_base::fs::sim::Rng::new(9);
    let mut tables: Vec<String> = Vec::new();
    let write = |tables: &[String]| {
        for table in tables {
            pg.query(
                "src",
                &format!(
                    "insert into {table} (v) select g from generate_series(1, 500) g; update {table} set v = v + 1 where id % 7 = 0; \
                     delete from {table} where id % 11 = 3"
                ),
            );
        }
    };
    for round in 0..8_usize {
        let table = format!("t{round}");
        pg.query("src", &format!("create table {table} (id serial primary key, v int)"));
        // In any order.
        tables.insert(random.below(round + 1), table);
        write(&tables);
        let streams = tables.iter().map(|table| format!("{{name: {table}, sync_mode: cdc}}"));
        let streams = format!("[{}]", streams.collect::<Vec<_>>().join(", "));
        pipeline.write(&pg, &streams, "  write_mode: upsert", "");
        let mut running =
            pipeline.command().stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        for _ in 0..random.below(4) {
            write(&tables);
        }
        // The last one ends, so that the feed has begun by then, and is extended.
        if round % 3 < 2 && running.try_wait().unwrap().is_none() {
            running.kill().unwrap();
        }
        running.wait().unwrap();
    }
    pipeline.run();
    for table in &tables {
        is_same(&pg, table);
    }
    write(&tables);
    pipeline.run();
    for table in &tables {
        is_same(&pg, table);
    }
    let slots = "select count(*) from pg_replication_slots where slot_name like 'forebay%'";
    assert_eq!(pg.query("src", slots), "1");
    pipeline.write(&pg, "[{name: t1, sync_mode: cdc}]", "  write_mode: upsert", "");
    pipeline.fails("and the file does not");
}

#[test]
pub(crate) fn of_several_hosts_the_primary_is_followed() {
    let Some(pg) = two_databases() else { return };
    pg.query("src", "create table t (id int primary key); insert into t values (1)");
    let pipeline = Pipeline::new(&pg, "[{name: t, sync_mode: cdc}]", "  write_mode: upsert", "");
    let path = pipeline.dir.path().join("p.yaml");
    let text = std::fs::read_to_string(&path).unwrap();
    let port = pg.port();
    let one = format!("config: {{host: 127.0.0.1, port: {port}, database: src, user: postgres}}");
    // Nothing listens on port 1, and the second is a standby.
    let standby = pg.standby();
    let hosts = format!("127.0.0.1:1,127.0.0.1:{},127.0.0.1:{port}", standby.port());
    let all = format!("postgres://postgres@{hosts}/src?target_session_attrs=read-write");
    let both = format!("config: {{url: '{all}'}}");
    assert!(text.contains(&one));
    std::fs::write(&path, text.replace(&one, &both)).unwrap();
    pipeline.run();
    pg.query("src", "insert into t values (2)");
    pipeline.run();
    is_same(&pg, "t");
}

#[test]
pub(crate) fn settings_that_only_changes_have_are_refused_elsewhere() {
    let Some(pg) = two_databases() else { return };
    let plain = "[{name: t}]";
    let refused = |streams: &str, destination: &str, with: &str| {
        Pipeline::new(&pg, streams, destination, "").fails(with);
    };
    refused(plain, "  deleted_rows: mark", "`mark` needs streams with `sync_mode: cdc`");
    let followed = "[{name: t, sync_mode: cdc}]";
    let both = "  write_mode: append\n  deleted_rows: mark";
    refused(followed, both, "and `write_mode: upsert`");
    let lost = format!("{plain}\n  on_lost: copy_again");
    refused(&lost, "", "`copy_again` needs streams with `sync_mode: cdc`");
    let log = format!("{followed}\n  on_lost: copy_again");
    refused(&log, LOG, "`copy_again` would replace the log");
    let replace = "  write_mode: replace";
    refused(followed, replace, "changes are applied with `upsert`, and appended as a log with");
}
