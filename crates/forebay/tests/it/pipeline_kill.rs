//! Runs that are killed at every commit boundary, and a database that is killed during them: the
//! oracle is psql.

use std::process::Stdio;

use super::pipeline_pg::{Pipeline, two_databases};
use forebay_testing::Postgres;

/// Rows of the source, and the approximate number of units of a partition key.
const ROWS: u32 = 240_000;

/// Small units, so that there are many commits.
const RESOURCES: &str =
    "resources: {checkpoint_interval_bytes: 4MiB, parallelism: 2, max_batch_bytes: 64KiB}";

fn filled() -> Option<Postgres> {
    let pg = two_databases()?;
    pg.query(
        "src",
        &format!(
            "create table t (id int primary key, v text, at timestamptz);
             insert into t select g, repeat(md5(g::text), 4), now() from generate_series(1, {ROWS}) g; analyze t"
        ),
    );
    Some(pg)
}

/// The table at the destination, where every unit takes a while, so that it is seen before the
/// next.
fn slow_destination(pg: &Postgres, table: &str) {
    pg.query(
        "dst",
        &format!(
            "create table {table} (id int, v text, at timestamptz);
             create or replace function wait() returns trigger language plpgsql as
             'begin perform pg_sleep(0.2); return null; end';
             create trigger wait after insert on {table} for each statement execute function wait()"
        ),
    );
}

fn committed(pg: &Postgres) -> u32 {
    let count = "select count(*) from forebay.pipeline_ledger";
    pg.try_query("dst", count).and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// Whether a load has ended: a run killed after that has nothing left to do, and a new one
/// then copies everything once more, as it should.
fn is_finished(pg: &Postgres) -> bool {
    // The writes of a killed run may still be executed: the server does not know of the kill yet.
    let there = "select count(*) from pg_stat_activity where application_name = 'forebay'";
    while pg.try_query("dst", there).is_some_and(|count| count != "0") {}
    let count = "select count(*) from forebay.pipeline_loads where finished_at is not null";
    pg.try_query("dst", count).is_some_and(|count| count != "0")
}

fn is_whole(pg: &Postgres, table: &str) {
    let expected =
        pg.query("src", "select count(*), count(distinct id), sum(hashtext(t::text)) from t");
    let query =
        format!("select count(*), count(distinct id), sum(hashtext(t::text)) from {table} t");
    assert_eq!(pg.query("dst", &query), expected, "no row is missing or duplicated");
}

#[test]
fn a_run_killed_at_every_commit_loses_and_duplicates_nothing() {
    let Some(pg) = filled() else { return };
    slow_destination(&pg, "t");
    let pipeline = Pipeline::new(&pg, "[{name: t, partition_key: id}]", "", RESOURCES);
    let mut seen = 0;
    while !is_finished(&pg) {
        let mut running =
            pipeline.command().stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // Until one more unit is committed, or the run has ended.
        while committed(&pg) <= seen && running.try_wait().unwrap().is_none() {}
        seen = committed(&pg);
        if running.try_wait().unwrap().is_none() {
            running.kill().unwrap();
        }
        running.wait().unwrap();
    }
    is_whole(&pg, "t");
    let report = "select sum(rows), count(distinct load), count(distinct run) > 2 from forebay.pipeline_ledger";
    assert_eq!(pg.query("dst", report), format!("{ROWS}|1|t"));
}

#[test]
fn a_killed_replace_leaves_what_was_there_and_then_takes_its_place() {
    let Some(pg) = filled() else { return };
    pg.query("dst", "create table t (id int primary key, v text, at timestamptz); insert into t values (-1, 'old', now())");
    let pipeline =
        Pipeline::new(&pg, "[{name: t}]", "  write_mode: replace\n  primary_key: [id]", RESOURCES);
    for _ in 0..3 {
        let before = committed(&pg);
        let mut running =
            pipeline.command().stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        while committed(&pg) == before && running.try_wait().unwrap().is_none() {}
        if running.try_wait().unwrap().is_none() {
            running.kill().unwrap();
        }
        running.wait().unwrap();
        if is_finished(&pg) {
            break;
        }
        assert_eq!(pg.query("dst", "select id from t"), "-1", "not before it is complete");
    }
    pipeline.run();
    is_whole(&pg, "t");
    let left = "select count(*) from pg_class where relkind = 'r' and relname like 't_forebay%'";
    assert_eq!(pg.query("dst", left), "0");
}

#[test]
fn a_database_killed_during_a_run_loses_and_duplicates_nothing() {
    let Some(pg) = filled() else { return };
    let pipeline = Pipeline::new(
        &pg,
        "[{name: t, partition_key: id}]",
        "",
        "resources: {checkpoint_interval_bytes: 4MiB, parallelism: 2, max_retries: 0}",
    );
    let mut seen = 0;
    for _ in 0..3 {
        let mut running =
            pipeline.command().stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        while committed(&pg) <= seen && running.try_wait().unwrap().is_none() {}
        seen = committed(&pg);
        pg.kill();
        running.wait().unwrap();
        pg.start_again();
        assert!(committed(&pg) >= seen, "what was committed stays");
        if is_finished(&pg) {
            break;
        }
    }
    if !is_finished(&pg) {
        pipeline.run();
    }
    is_whole(&pg, "t");
}

#[test]
fn an_interrupted_run_stops_at_a_commit_boundary_and_the_next_continues() {
    let Some(pg) = filled() else { return };
    let pipeline = Pipeline::new(&pg, "[{name: t, partition_key: id}]", "", RESOURCES);
    let mut running =
        pipeline.command().stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while committed(&pg) < 1 && running.try_wait().unwrap().is_none() {}
    let pid = rustix::process::Pid::from_child(&running);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let code = running.wait().unwrap().code();
    assert!(committed(&pg) >= 1);
    if !is_finished(&pg) {
        assert_eq!(code, Some(130));
        pipeline.run();
    }
    is_whole(&pg, "t");
}

#[test]
fn two_runs_of_a_pipeline_are_serialized() {
    let Some(pg) = filled() else { return };
    let pipeline = Pipeline::new(&pg, "[{name: t, partition_key: id}]", "", RESOURCES);
    let mut running: Vec<_> = (0..3)
        .map(|_| pipeline.command().stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
        .collect();
    let done =
        running.iter_mut().filter_map(|run| run.wait().unwrap().success().then_some(())).count();
    assert!(done >= 1);
    // Each run that was admitted after another had finished copied everything once more.
    let count: usize = pg.query("dst", "select count(*) from t").parse().unwrap();
    assert_eq!(count, done * ROWS as usize);
}

#[test]
fn a_run_of_several_streams_killed_at_every_commit_copies_each_once() {
    let Some(pg) = two_databases() else { return };
    for table in ["t", "u", "w"] {
        pg.query(
            "src",
            &format!(
                "create table {table} (id int primary key, v text, at timestamptz);
                 insert into {table} select g, repeat(md5(g::text), 4), now() from generate_series(1, 60000) g;
                 analyze {table}"
            ),
        );
        slow_destination(&pg, table);
    }
    let streams = "[{name: t, partition_key: id}, {name: u, partition_key: id}, {name: w, partition_key: id}]";
    let resources = RESOURCES.replace("parallelism: 2", "parallelism: 1");
    let pipeline = Pipeline::new(&pg, streams, "", &resources);
    let mut seen = 0;
    loop {
        let mut command = pipeline.command();
        command.args(["--once", "tonight"]).stdout(Stdio::null()).stderr(Stdio::null());
        let mut running = command.spawn().unwrap();
        while committed(&pg) <= seen && running.try_wait().unwrap().is_none() {}
        seen = committed(&pg);
        if running.try_wait().unwrap().is_none() {
            running.kill().unwrap();
        }
        if running.wait().unwrap().success() {
            break;
        }
    }
    for table in ["t", "u", "w"] {
        let report =
            format!("select count(*), count(distinct id), sum(hashtext(x::text)) from {table} x");
        assert_eq!(pg.query("dst", &report), pg.query("src", &report), "{table}");
    }
    let report = "select sum(rows), count(distinct load), count(distinct run) > 2 from forebay.pipeline_ledger";
    assert_eq!(pg.query("dst", report), "180000|3|t");
}

#[test]
fn incremental_runs_killed_before_their_loads_end_copy_every_row_once() {
    let Some(pg) = two_databases() else { return };
    for table in ["t", "u"] {
        let id = "id bigint generated always as identity primary key";
        pg.query("src", &format!("create table {table} ({id}, v text)"));
    }
    pg.query("src", "create table first (id int)");
    // The ledger is there. The end of a load of the stream in `cut` waits.
    Pipeline::new(&pg, "[{name: first}]", "", "").run();
    pg.query(
        "dst",
        "create table cut (stream text);
         create function wait() returns trigger language plpgsql as
         'begin if exists (select from public.cut c where c.stream = new.stream) then
              perform pg_sleep(600);
          end if; return new; end';
         create trigger wait before update on forebay.pipeline_loads for each row execute function wait()",
    );
    let streams = "[{name: t, sync_mode: incremental, cursor_field: id},
                    {name: u, sync_mode: incremental, cursor_field: id}]";
    let pipeline = Pipeline::new(&pg, streams, "", RESOURCES);
    let waits = "select count(*) from pg_stat_activity where wait_event = 'PgSleep'";
    for cut in ["t", "t", "", "u", "t", "u", ""] {
        for table in ["t", "u"] {
            let rows = "select g from generate_series(1, 500) g";
            pg.query("src", &format!("insert into {table} (v) {rows}"));
        }
        pg.query("dst", &format!("truncate cut; insert into cut values ('{cut}')"));
        let log = pipeline.dir.path().join("log");
        let output = std::fs::File::create(&log).unwrap();
        let mut running = pipeline.command().stdout(Stdio::null()).stderr(output).spawn().unwrap();
        while pg.query("dst", waits) == "0" && running.try_wait().unwrap().is_none() {}
        if !cut.is_empty() {
            let waits = running.try_wait().unwrap().is_none();
            let said = std::fs::read_to_string(&log).unwrap();
            assert!(waits, "it waits to end a load of {cut}: {said}");
            running.kill().unwrap();
        }
        assert_eq!(running.wait().unwrap().success(), cut.is_empty());
        // The server does not know of the kill: its process would end the load.
        let there = "from pg_stat_activity where application_name = 'forebay'";
        pg.query("dst", &format!("select pg_terminate_backend(pid) {there}"));
        while pg.query("dst", &format!("select count(*) {there}")) != "0" {}
        for table in ["t", "u"] {
            let twice = format!("select count(*) - count(distinct id) from {table}");
            let twice = pg.try_query("dst", &twice).unwrap_or_else(|| "0".to_owned());
            assert_eq!(twice, "0", "{table} after a kill at the end of {cut:?}");
        }
        if cut.is_empty() {
            for table in ["t", "u"] {
                let rows = format!("select count(*), sum(hashtext(x::text)) from {table} x");
                assert_eq!(pg.query("dst", &rows), pg.query("src", &rows), "{table}");
            }
        }
    }
}
