//! What a destination makes of columns and values that are not its own: new columns, other types,
//! rows that are left out, and what `run` and `verify` say of them.

use std::collections::HashMap;
use std::fmt::Display;
use std::fs;
use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use parquet::arrow::ArrowWriter;
use rusqlite::Connection;
use serde_json::Value;
use tempfile::TempDir;

use super::pipeline_pg::{Pipeline, two_databases};
use super::support::{run, run_ok, stderr};

/// Writes `p.yaml`.
fn write(dir: &TempDir, source: impl Display, destination: impl Display, rest: impl Display) {
    let text = format!(
        "version: 1\npipeline: p\nsource:\n{source}\ndestination:\n{destination}\n{rest}\n"
    );
    fs::write(dir.path().join("p.yaml"), text).unwrap();
}

/// The CSV files below `in` as a source.
fn csv(dir: &TempDir, stream: &str) -> String {
    let path = dir.path().join("in");
    format!(
        "  use: csv\n  config: {{ path: '{}' }}\n  streams: [{{ name: '{stream}', into: t }}]",
        path.display()
    )
}

fn destination(dir: &TempDir, uses: &str, evolution: &str) -> String {
    let path = dir.path().join(uses);
    let evolution = match evolution {
        "" => String::new(),
        rule => format!("\n  schema_evolution: {{ {rule} }}"),
    };
    format!("  use: {uses}\n  config: {{ path: '{}' }}{evolution}", path.display())
}

fn put(dir: &TempDir, name: &str, text: &str) {
    let path = dir.path().join("in").join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

const RUN: &[&str] = &["pipeline", "run", "p.yaml"];

fn fails(dir: &TempDir, command: &str, with: &str) {
    let refused = run(dir, &["pipeline", command, "p.yaml"]);
    assert!(!refused.status.success(), "{with}");
    assert!(stderr(&refused).contains(with), "{} does not say {with:?}", stderr(&refused));
}

/// The report of a run.
fn report(dir: &TempDir) -> Value {
    serde_json::from_str(&run_ok(dir, &["pipeline", "run", "p.yaml", "--json"])).unwrap()
}

#[test]
fn a_new_column_is_added_ignored_or_refused_as_configured() {
    for uses in ["sqlite", "parquet", "ndjson", "csv"] {
        let dir = TempDir::new().unwrap();
        put(&dir, "t.csv", "id,a\n1,x\n");
        write(&dir, csv(&dir, "t.csv"), destination(&dir, uses, ""), "");
        run_ok(&dir, RUN);
        put(&dir, "t.csv", "id,b,a\n2,9,y\n");
        write(&dir, csv(&dir, "t.csv"), destination(&dir, uses, "new_column: fail"), "");
        fails(&dir, "run", "no column \"b\"");
        write(&dir, csv(&dir, "t.csv"), destination(&dir, uses, "new_column: ignore"), "");
        run_ok(&dir, RUN);
        let lines = |file: &str, text: &str| {
            let files = fs::read_dir(dir.path().join(uses).join("t")).unwrap();
            let mut texts = files.map(|it| fs::read_to_string(it.unwrap().path()).unwrap());
            assert!(texts.any(|found| found == text), "{file}");
        };
        match uses {
            "sqlite" => {
                let database = Connection::open(dir.path().join(uses)).unwrap();
                let rows: String = database
                    .query_row("select group_concat(id || a) from t", [], |row| row.get(0))
                    .unwrap();
                assert_eq!(rows, "1x,2y");
            }
            "ndjson" => lines(uses, "{\"id\":2,\"a\":\"y\"}\n"),
            "csv" => lines(uses, "id,a\n2,y\n"),
            _ => {}
        }
        // The columns that are compared are those that are stored.
        put(&dir, "t.csv", "id,b,a\n1,8,x\n2,9,y\n");
        run_ok(&dir, &["pipeline", "verify", "p.yaml"]);
        write(&dir, csv(&dir, "t.csv"), destination(&dir, uses, "new_column: add"), "");
        match uses {
            "csv" => fails(&dir, "run", "new_column: ignore"),
            _ => assert_eq!(report(&dir)["rows"], 2),
        }
    }
}

#[test]
fn a_setting_that_a_destination_cannot_honour_is_refused_before_anything_is_read() {
    let dir = TempDir::new().unwrap();
    for (uses, rule, found) in [
        ("sqlite", "type_change: alter", "type_change: `sqlite` cannot do `alter`, only `fail`"),
        ("parquet", "nullability_change: fail", "`parquet` cannot do `fail`, only `allow`"),
        ("ndjson", "type_change: alter", "`ndjson` cannot do `alter`"),
    ] {
        write(&dir, csv(&dir, "none.csv"), destination(&dir, uses, rule), "");
        fails(&dir, "check", found);
    }
    let replaced =
        format!("{}\n  write_mode: replace", destination(&dir, "csv", "new_column: fail"));
    write(&dir, csv(&dir, "none.csv"), replaced, "");
    fails(&dir, "check", "no effect with `write_mode: replace`");
    let mongodb = "  use: mongodb\n  schema_evolution: { new_column: fail }\n  config: { url: 'mongodb://127.0.0.1/d' }";
    write(&dir, csv(&dir, "none.csv"), mongodb, "");
    fails(&dir, "check", "`mongodb` cannot do `fail`, only `add`");
    let many = "resources: { max_inflight_batches: 65 }";
    write(&dir, csv(&dir, "none.csv"), destination(&dir, "csv", ""), many);
    fails(&dir, "check", "resources.max_inflight_batches: 65 is too many; at most 64");
}

#[test]
fn a_directory_is_read_by_the_suffix_of_its_format() {
    let dir = TempDir::new().unwrap();
    put(&dir, "sales/a.csv", "id\n1\n");
    put(&dir, "sales/notes.txt", "read me\n");
    put(&dir, "sales/b.tsv", "id\tx\n2\t3\n");
    write(&dir, csv(&dir, "sales"), destination(&dir, "sqlite", ""), "");
    let plan = run_ok(&dir, &["pipeline", "plan", "p.yaml"]);
    assert!(plan.contains("2 files without the suffix .csv are left out"), "{plan}");
    assert_eq!(report(&dir)["rows"], 1);
    fs::remove_file(dir.path().join("in/sales/a.csv")).unwrap();
    fails(&dir, "plan", "2 files without the suffix .csv are left out");
}

#[test]
fn rows_that_a_rule_skips_are_in_the_report_of_their_stream() {
    let dir = TempDir::new().unwrap();
    put(&dir, "t.csv", "id,a\n1,x\n2,\n3,\n");
    let rules = "transforms: [{ validate: { on_failure: skip, rules: [{ not_null: [a] }] } }]";
    write(&dir, csv(&dir, "t.csv"), destination(&dir, "sqlite", ""), rules);
    let report = report(&dir);
    assert_eq!((&report["dead"], &report["rows"]), (&Value::from(2), &Value::from(1)));
    assert_eq!(report["streams"][0]["dead"], 2);
}

#[test]
fn a_column_of_sqlite_with_dates_and_other_texts_is_text() {
    let dir = TempDir::new().unwrap();
    Connection::open(dir.path().join("in.db"))
        .unwrap()
        .execute_batch(
            "create table t (id integer primary key, d date, n numeric, only date);
             insert into t values (1, '2026-01-02', '1.50', '2026-01-02'), (2, 'soon', 'many', null)",
        )
        .unwrap();
    let path = dir.path().join("in.db");
    let source = format!(
        "  use: sqlite\n  config: {{ path: '{}' }}\n  streams: [{{ name: t }}]",
        path.display()
    );
    write(&dir, source, destination(&dir, "ndjson", ""), "");
    let plan: Value =
        serde_json::from_str(&run_ok(&dir, &["pipeline", "plan", "p.yaml", "--json"])).unwrap();
    let columns = plan["streams"][0]["columns"].to_string();
    let expected = r#"[["id","bigint"],["d","text"],["n","text"],["only","date"]]"#;
    assert_eq!(columns, expected);
    assert_eq!(report(&dir)["rows"], 2);
}

#[test]
fn verify_finds_values_of_wider_and_renumbered_types_the_same() {
    let Some(pg) = two_databases() else { return };
    let types =
        "create type mood as enum ('sad', 'ok'); create domain positive as int check (value > 0)";
    // Types have other numbers at the destination.
    pg.query("src", &format!("create type other as enum ('x'); {types}"));
    pg.query("dst", types);
    pg.query(
        "src",
        "create table t (id int, m mood[], p positive[], n int, b bigint, f int, r smallint);
         insert into t values (1, '{sad,NULL}', '{1,2}', 5, -7, 9, 3), (2, null, '{}', null, 8, -1, 4)",
    );
    pg.query(
        "dst",
        "create table t (id int, m mood[], p positive[], n numeric, b numeric(24,2), f float8, r float4)",
    );
    let pipeline = Pipeline::new(&pg, "[{name: t}]", "", "");
    pipeline.run();
    assert_eq!(pg.query("dst", "select m, b from t where id = 1"), "{sad,NULL}|-7.00");
    run_ok(&pipeline.dir, &["pipeline", "verify", "p.yaml"]);
    pg.query("dst", "update t set n = 6 where id = 1");
    assert!(!run(&pipeline.dir, &["pipeline", "verify", "p.yaml"]).status.success());
}

/// A table of PostgreSQL as a source.
fn postgres(pg: &forebay_testing::Postgres, stream: &str) -> String {
    let port = pg.port();
    format!(
        "  use: postgres\n  config: {{ host: 127.0.0.1, port: {port}, database: src, user: postgres }}\n  \
         streams: [{{ {stream} }}]"
    )
}

#[test]
fn negative_zero_and_nested_arrays_reach_other_destinations() {
    let Some(pg) = two_databases() else { return };
    pg.query(
        "src",
        "create table t (id int, f float8, a int[][]);
         insert into t values (1, '-0', '{{1,2},{3,4}}'), (2, 'NaN', '[0:1]={7,8}')",
    );
    let dir = TempDir::new().unwrap();
    write(&dir, postgres(&pg, "name: t"), destination(&dir, "sqlite", ""), "");
    run_ok(&dir, RUN);
    run_ok(&dir, &["pipeline", "verify", "p.yaml"]);
    let database = Connection::open(dir.path().join("sqlite")).unwrap();
    let arrays: String =
        database.query_row("select group_concat(a) from t", [], |row| row.get(0)).unwrap();
    assert_eq!(arrays, "{{1,2},{3,4}},[0:1]={7,8}");
    pg.query("src", "create table u (a int[]); insert into u values ('{{1}}')");
    write(&dir, postgres(&pg, "name: u"), destination(&dir, "sqlite", ""), "");
    fails(&dir, "run", "read a view that casts the column to text, or leave it out with `columns`");
}

#[test]
fn rows_that_an_incremental_run_does_not_read_are_a_warning() {
    let Some(pg) = two_databases() else { return };
    pg.query(
        "src",
        "create table t (id int primary key, at timestamptz);
         insert into t values (1, now()), (2, null), (3, null)",
    );
    let dir = TempDir::new().unwrap();
    let stream = "name: t, sync_mode: incremental, cursor_field: at";
    write(&dir, postgres(&pg, stream), destination(&dir, "sqlite", ""), "");
    let output = run(&dir, RUN);
    assert!(output.status.success(), "{}", stderr(&output));
    let warning = "2 rows of public.t are not read: they have no value in \"at\"";
    assert!(stderr(&output).contains(&format!("warning: {warning}")), "{}", stderr(&output));
    let warnings = report(&dir)["warnings"].as_array().unwrap().clone();
    assert!(warnings.iter().all(|found| found.as_str().unwrap().starts_with(warning)));
    assert_eq!(warnings.len(), 1);
}

/// Writes `in/t.parquet`: one row, whose text `c` is of a type in SQL as the file's metadata names it.
fn put_parquet(dir: &TempDir, sql_type: &str) {
    let metadata = HashMap::from([("forebay.sql_type".to_owned(), sql_type.to_owned())]);
    let schema = Schema::new(vec![
        Field::new("id", DataType::Int64, true),
        Field::new("c", DataType::Utf8, true).with_metadata(metadata),
    ]);
    let batch = RecordBatch::try_new(
        Arc::new(schema),
        vec![Arc::new(Int64Array::from(vec![1])), Arc::new(StringArray::from(vec!["12"]))],
    )
    .unwrap();
    put(dir, "t.parquet", "");
    let file = fs::File::create(dir.path().join("in/t.parquet")).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

#[test]
fn a_type_of_a_parquet_file_that_is_more_than_a_type_is_refused_and_no_table_is_lost() {
    let Some(pg) = two_databases() else { return };
    pg.query(
        "dst",
        "create table victim (id int); insert into victim values (7);
         create table t (id bigint, c int)",
    );
    let dir = TempDir::new().unwrap();
    let source = csv(&dir, "t.parquet").replace("use: csv", "use: parquet");
    let port = pg.port();
    let rows = "select (select string_agg(id::text, ',') from victim), count(*) from t";
    for mode in ["append", "replace"] {
        let into = format!(
            "  use: postgres\n  config: {{ host: 127.0.0.1, port: {port}, database: dst, user: postgres }}\n  \
             write_mode: {mode}\n  schema_evolution: {{ type_change: alter }}"
        );
        write(&dir, &source, into, "");
        for sql_type in [
            "text using c::text; drop table victim",
            "text using ''; drop table victim; --",
            "text); drop table victim; --",
            "text default (select 1)",
        ] {
            put_parquet(&dir, sql_type);
            for command in ["plan", "run"] {
                fails(&dir, command, "this is not the name of a type");
                fails(&dir, command, "column \"c\"");
            }
            assert_eq!(pg.query("dst", rows), "7|0", "{mode}: {sql_type}");
        }
    }
    // What is a type is used as one.
    put_parquet(&dir, "character varying(5)");
    run_ok(&dir, RUN);
    let of = "select pg_typeof(c), c from t";
    assert_eq!(pg.query("dst", of), "character varying|12");
    assert_eq!(pg.query("dst", rows), "7|1");
}
