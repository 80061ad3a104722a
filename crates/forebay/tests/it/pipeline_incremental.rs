//! Incremental runs between PostgreSQL databases that open a stream several times, or several streams: a run does not
//! wait for its own snapshots, and leaves no row for the next one because of them.

use super::pipeline_pg::{Pipeline, two_databases};
use forebay_testing::Postgres;

/// A cursor of each kind: from a sequence, from a clock with and without a zone, and from elsewhere.
const CURSORS: [&str; 4] = ["id", "at", "local", "tx"];

/// Fails unless everything that an incremental run waits for has ended already.
fn impatient(pg: &Postgres, streams: &str, rest: &str) -> Pipeline {
    let pipeline = Pipeline::new(pg, streams, "", rest);
    let path = pipeline.dir.path().join("p.yaml");
    let file = std::fs::read_to_string(&path).unwrap();
    let source = "database: src,";
    assert_eq!(file.matches(source).count(), 1, "{file}");
    let waits = format!("{source} wait_for_late_commits: 1ms,");
    std::fs::write(path, file.replace(source, &waits)).unwrap();
    pipeline
}

/// Creates a table with five rows in database `src`, and one with a wider column `n` in `dst`.
fn create(pg: &Postgres, table: &str, wide: &str) {
    pg.query(
        "src",
        &format!(
            "create table {table} (id bigint generated always as identity primary key, n int,
               at timestamptz default clock_timestamp(), local timestamp default clock_timestamp(),
               tx bigint default txid_current())"
        ),
    );
    for n in 1..=5 {
        insert(pg, table, n);
    }
    // An estimate of its rows, by which units are divided.
    pg.query("src", &format!("analyze {table}"));
    pg.query(
        "dst",
        &format!(
            "create table {table} (id bigint, n {wide}, at timestamptz, local timestamp, tx bigint)"
        ),
    );
}

/// Adds a row in a separate transaction.
fn insert(pg: &Postgres, table: &str, n: u32) {
    pg.query("src", &format!("insert into {table} (n) values ({n})"));
}

/// Runs the pipeline until nothing is new, adds two rows to each table, and runs it again.
fn copies_each_row_once(pg: &Postgres, pipeline: &Pipeline, tables: &[&str], case: &str) {
    let per_table = |rows: usize| rows * tables.len();
    assert_eq!(pipeline.run()["rows"], per_table(5), "{case}");
    assert_eq!(pipeline.run()["rows"], 0, "{case}: nothing is new");
    for table in tables {
        insert(pg, table, 6);
        insert(pg, table, 7);
    }
    assert_eq!(pipeline.run()["rows"], per_table(2), "{case}: two are new");
    assert_eq!(pipeline.run()["rows"], 0, "{case}: nothing is new again");
    for table in tables {
        let rows = format!("select string_agg(n::text, ' ' order by id) from {table}");
        assert_eq!(pg.query("dst", &rows), "1 2 3 4 5 6 7", "{case}: {table}");
    }
}

#[test]
fn a_wider_column_or_smaller_units_make_no_incremental_run_wait_for_itself() {
    let Some(pg) = two_databases() else { return };
    let units = "resources: {checkpoint_interval_rows: 2}";
    for (case, (wide, rest)) in
        [("bigint", ""), ("int", units), ("bigint", units)].into_iter().enumerate()
    {
        for cursor in CURSORS {
            let table = format!("t_{case}_{cursor}");
            create(&pg, &table, wide);
            let streams =
                format!("[{{name: {table}, sync_mode: incremental, cursor_field: {cursor}}}]");
            let pipeline = impatient(&pg, &streams, rest);
            copies_each_row_once(
                &pg,
                &pipeline,
                &[table.as_str()],
                &format!("{wide} {rest} {cursor}"),
            );
            let wider = format!("select distinct pg_typeof(n) from {table}");
            let expected = if wide == "int" { "integer" } else { wide };
            assert_eq!(pg.query("dst", &wider), expected, "the column stays as it is");
        }
    }
}

#[test]
fn two_incremental_streams_of_a_run_do_not_wait_for_each_other() {
    let Some(pg) = two_databases() else { return };
    for cursor in CURSORS {
        let tables = ["a", "b"].map(|name| format!("{name}_{cursor}"));
        let streams = tables.each_ref().map(|table| {
            create(&pg, table, "bigint");
            format!("{{name: {table}, sync_mode: incremental, cursor_field: {cursor}}}")
        });
        let units = "resources: {checkpoint_interval_rows: 2, parallelism: 4}";
        let pipeline = impatient(&pg, &format!("[{}]", streams.join(", ")), units);
        copies_each_row_once(&pg, &pipeline, &tables.each_ref().map(String::as_str), cursor);
    }
}
