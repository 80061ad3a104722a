//! Following changes of every kind of table and value, beside other writers and failing servers.

use std::io::Write as _;
use std::process::{Child, Stdio};

use forebay_testing::Postgres;

use super::events_support::post;
use super::pipeline_feed::{following, is_same, kill_rounds};
use super::pipeline_pg::{EVERY_TYPE, two_databases};
use super::support::{Server, run, stderr};

#[test]
pub(crate) fn values_of_every_type_arrive_as_they_are() {
    let Some(pg) = two_databases() else { return };
    pg.query("src", EVERY_TYPE);
    let table = r#""odd ""name""#;
    let pipeline = following(&pg, &["'\"odd \"\"name\"'"]);
    pipeline.run();
    is_same(&pg, table);
    let columns = pg.query(
        "src",
        "select string_agg(quote_ident(attname), ', ' order by attnum) from pg_attribute
         where attrelid = '\"odd \"\"name\"'::regclass and attnum > 1",
    );
    pg.query(
        "src",
        &format!(
            "insert into {table} select id + 10, {columns} from {table};
             update {table} t set ({columns}) = (select {columns} from {table} s where s.id = 4 - t.id) where id < 4;
             delete from {table} where id = 12"
        ),
    );
    pipeline.run();
    is_same(&pg, table);
}

#[test]
pub(crate) fn tables_of_every_kind_are_followed() {
    let Some(pg) = two_databases() else { return };
    pg.query(
        "src",
        "create table parts (id int, at int, v text, primary key (id, at)) partition by range (at);
         create table parts_1 partition of parts for values from (0) to (100);
         create table parts_2 (v text, at int not null, id int not null);
         alter table parts attach partition parts_2 for values from (100) to (200);
         create table full_row (id int primary key, large text, n int);
         alter table full_row replica identity full;
         alter table full_row alter large set storage external;
         create table by_index (id int not null, code text not null, v int);
         create unique index by_code on by_index (code);
         alter table by_index replica identity using index by_code;
         create table large_key (k text primary key, v int);
         alter table large_key alter k set storage external;
         create table ids (id int generated always as identity primary key, twice int generated always as (v * 2) stored, v int);
         create table parent (id int primary key); create table child (id int primary key, of int references parent);
         insert into parts select g, g, 'v' || g from generate_series(1, 199) g;
         insert into full_row select g, repeat(md5(g::text), 300), g from generate_series(1, 50) g;
         insert into by_index select g, 'c' || g, g from generate_series(1, 50) g;
         insert into large_key select repeat(md5(g::text), 60), g from generate_series(1, 20) g;
         insert into ids (v) select g from generate_series(1, 20) g;
         insert into parent values (1), (2); insert into child values (1, 1)",
    );
    let tables = ["parts", "full_row", "by_index", "large_key", "ids", "parent", "child"];
    let pipeline = following(&pg, &tables);
    pipeline.run();
    let same = || {
        for table in tables.iter().filter(|table| **table != "ids") {
            is_same(&pg, table);
        }
        // Generated columns are not followed.
        let rows = "select string_agg((id, v)::text, ' ' order by id) from ids";
        assert_eq!(pg.query("dst", rows), pg.query("src", rows));
        let verified = run(&pipeline.dir, &["pipeline", "verify", "p.yaml"]);
        let found = String::from_utf8_lossy(&verified.stdout);
        assert!(verified.status.success(), "{found}\n{}", stderr(&verified));
    };
    same();
    for changes in [
        // Rows move between partitions with other orders of columns.
        "update parts set at = at + 100 where at < 50; update parts set v = 'x' where at = 120; insert into parts values (500, 5, 'new')",
        "update full_row set n = n + 1; update full_row set id = id + 1000 where id = 7; delete from full_row where id = 9",
        "update by_index set v = 0 where id < 9; update by_index set code = 'd' || id where id = 5; update by_index set id = -id where id = 6",
        "update large_key set v = v + 1; update large_key set k = k || 'x' where v = 3",
        "insert into ids (v) values (77); update ids set v = v + 1 where id < 5; delete from ids where id = 6",
        "begin; insert into child values (2, 2); insert into parent values (3); insert into child values (3, 3); \
         delete from child where id = 1; delete from parent where id = 1; commit",
        "begin; truncate parent, child; insert into parent values (9); insert into child values (9, 9); commit",
        "begin; insert into parent values (50); prepare transaction 'p'",
        "insert into parent values (60)",
        "commit prepared 'p'",
        "begin; insert into parent values (51); prepare transaction 'q'",
        "rollback prepared 'q'",
    ] {
        pg.query("src", changes);
        pipeline.run();
        same();
    }
    let dropped = run(&pipeline.dir, &["pipeline", "drop-slot", "p.yaml", "--yes"]);
    assert!(dropped.status.success(), "{}", stderr(&dropped));
    pg.query(
        "src",
        "create type pair as (a int, b int); create table pairs (id int primary key, p pair)",
    );
    following(&pg, &["pairs"]).fails("have another binary form on each server");
    pg.query("src", "create unlogged table fleeting (id int primary key)");
    following(&pg, &["fleeting"]).fails("the server's log has no changes of it");
}

/// A session that waits for statements.
fn session(pg: &Postgres) -> Child {
    pg.session("src")
}

pub(crate) fn send(session: &mut Child, statement: &str) {
    session.stdin.as_mut().unwrap().write_all(statement.as_bytes()).unwrap();
}

#[test]
pub(crate) fn transactions_are_applied_in_the_order_of_their_commits() {
    let Some(pg) = two_databases() else { return };
    pg.query(
        "src",
        "create table t (id int primary key, v text); insert into t values (1, 'a'), (2, 'b')",
    );
    let pipeline = following(&pg, &["t"]);
    pipeline.run();
    let (mut one, mut other) = (session(&pg), session(&pg));
    let waiting = |count: u32| {
        let open = "select count(*) from pg_stat_activity where datname = 'src' and state = 'idle in transaction'";
        while pg.query("postgres", open) != count.to_string() {}
    };
    send(&mut one, "begin; insert into t values (3, 'one');\n");
    waiting(1);
    send(
        &mut other,
        "begin; insert into t values (4, 'other'); update t set v = 'other' where id = 1;\n",
    );
    waiting(2);
    send(&mut other, "commit;\n");
    waiting(1);
    pg.query("src", "update t set v = v || '+' where id = 1");
    // What is open is not applied yet, and not lost when it is committed later.
    pipeline.run();
    assert_eq!(pg.query("dst", "select count(*) from t"), "3");
    send(&mut one, "update t set v = v || '!' where id = 1; commit;\n");
    waiting(0);
    pipeline.run();
    is_same(&pg, "t");
    assert_eq!(pg.query("dst", "select v from t where id = 1"), "other+!");
    for mut session in [one, other] {
        drop(session.stdin.take());
        session.wait().unwrap();
    }
}

#[test]
pub(crate) fn a_server_that_is_killed_loses_and_repeats_nothing() {
    let (Some(source), Some(destination)) = (two_databases(), Postgres::start()) else { return };
    destination.query("postgres", "create database dst");
    source.query("src", "create table t (id serial primary key, v int)");
    let pipeline = following(&source, &["t"]);
    let path = pipeline.dir.path().join("p.yaml");
    let text = std::fs::read_to_string(&path).unwrap();
    let (from, to) = text.split_once("destination:").unwrap();
    let to = to.replace(&source.port().to_string(), &destination.port().to_string());
    std::fs::write(&path, format!("{from}destination:{to}\nresources: {{max_retries: 0}}\n"))
        .unwrap();
    pipeline.run();
    let mut random = forebay_base::fs::sim::Rng::new(11);
    for round in 0..kill_rounds(8) {
        source.query("src", "insert into t (v) select g from generate_series(1, 20000) g; update t set v = v + 1 where id % 3 = 0 and id > (select max(id) - 60000 from t)");
        let mut running =
            pipeline.command().stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let count = random.below(4_000);
        for _ in 0..count {
            if running.try_wait().unwrap().is_some() {
                break;
            }
        }
        let killed = if round % 2 == 0 { &source } else { &destination };
        killed.kill();
        running.wait().unwrap();
        killed.start_again();
        // The process that served the killed connection may still be there.
        while {
            let ended = run(&pipeline.dir, &["pipeline", "run", "p.yaml"]);
            let is_in_use = stderr(&ended).contains("is sending its changes to another client");
            assert!(ended.status.success() || is_in_use, "{}", stderr(&ended));
            is_in_use
        } {}
        let rows = "select count(*), sum(id), sum(v) from t";
        assert_eq!(destination.query("dst", rows), source.query("src", rows), "round {round}");
    }
}

#[test]
fn a_unit_of_changes_that_takes_longer_than_permitted_is_tried_again() {
    let Some(pg) = two_databases() else { return };
    pg.query("src", "create table t (id int primary key)");
    let pipeline = following(&pg, &["t"]);
    pipeline.run();
    let rest = "  limits: {timeout_seconds: 1}\nresources: {max_retries: 1}";
    let apply = "  write_mode: upsert";
    pipeline.write(&pg, "[{name: t, sync_mode: cdc}]", apply, rest);
    let mut other = pg.session("dst");
    send(&mut other, "begin; insert into t values (1);\n");
    let open = "select count(*) from pg_stat_activity where datname = 'dst' and state = 'idle in transaction'";
    while pg.query("postgres", open) != "1" {}
    // It waits for the other transaction, which has a row with the same key.
    pg.query("src", "insert into t values (1)");
    pipeline.fails("it took longer than `limits.timeout_seconds`, 1s");
    send(&mut other, "rollback;\n");
    drop(other.stdin.take());
    other.wait().unwrap();
    pipeline.run();
    is_same(&pg, "t");
}

#[test]
pub(crate) fn what_pgbench_writes_is_followed_to_the_last_row() {
    let Some(pg) = two_databases() else { return };
    pg.query(
        "src",
        "create table accounts (id int primary key, balance int, filler text);
         create table history (id bigserial primary key, account int, delta int, at timestamptz default clock_timestamp());
         insert into accounts select g, 0, repeat(md5(g::text), 100) from generate_series(1, 1000) g",
    );
    let pipeline = following(&pg, &["accounts", "history"]);
    pipeline.run();
    let mut command = pipeline.command();
    command.arg("--follow").stdout(Stdio::null()).stderr(Stdio::null());
    let mut running = command.spawn().unwrap();
    // Ten minutes with `FOREBAY_PGBENCH_SECONDS=600`.
    let seconds = std::env::var("FOREBAY_PGBENCH_SECONDS");
    pg.bench(
        "src",
        &[
            "\\set id random(1, 1000)\n\\set delta random(-99, 99)\nbegin; update accounts set balance = balance + :delta where id = :id; \
             insert into history (account, delta) values (:id, :delta); end;\n",
            "\\set id random(1, 1000)\ndelete from history where account = :id;\n",
            "\\set id random(1, 1000)\nupdate accounts set filler = repeat(md5(random()::text), 100) where id = :id;\n",
            "\\set id random(1001, 1999)\ninsert into accounts values (:id, 0, 'new') on conflict (id) do update set balance = accounts.balance + 1;\n",
            "\\set id random(1001, 1999)\ndelete from accounts where id = :id;\n",
        ],
        seconds.map_or(3, |seconds| seconds.parse().unwrap()),
    );
    let pid = rustix::process::Pid::from_child(&running);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(running.wait().unwrap().code(), Some(130));
    pipeline.run();
    for table in ["accounts", "history"] {
        is_same(&pg, table);
    }
}

#[test]
pub(crate) fn a_run_follows_until_it_is_stopped_also_in_the_server() {
    let Some(pg) = two_databases() else { return };
    pg.query("src", "create table t (id int primary key)");
    let pipeline = following(&pg, &["t"]);
    let arrives = |id: u32| {
        pg.query("src", &format!("insert into t values ({id})"));
        let count = format!("select count(*) from t where id = {id}");
        while pg.try_query("dst", &count).as_deref() != Some("1") {}
    };
    pipeline.run();
    let mut command = pipeline.command();
    command.arg("--follow").stdout(Stdio::null()).stderr(Stdio::piped());
    let mut running = command.spawn().unwrap();
    arrives(1);
    arrives(2);
    let pid = rustix::process::Pid::from_child(&running);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(running.wait().unwrap().code(), Some(130));
    std::fs::create_dir_all(pipeline.dir.path().join("forebay-data/pipelines")).unwrap();
    std::fs::copy(
        pipeline.dir.path().join("p.yaml"),
        pipeline.dir.path().join("forebay-data/pipelines/p.yaml"),
    )
    .unwrap();
    let server = Server::start(&pipeline.dir, &[]);
    let started = post(&server, "/v1/pipelines/p/runs", "", br#"{"follow": true}"#);
    assert_eq!(started.status, 202, "{started:?}");
    arrives(3);
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    // It is a job, which goes on after a restart.
    let server = Server::start(&pipeline.dir, &[]);
    arrives(4);
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    is_same(&pg, "t");
}
