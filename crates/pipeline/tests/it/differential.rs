//! Queries of transforms beside the same expressions in PostgreSQL: the same number, or an error.
//!
//! A quotient or an average may have more digits than PostgreSQL's: rounded to those, it is equal.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::fmt::Write as _;
use std::path::Path;

use forebay_pipeline::config;
use forebay_pipeline::run::{Options, Pipeline};
use forebay_sdk::run::Context;
use forebay_testing::Postgres;

/// Rows of the column `v`, and expressions of it. One that starts with `!` may be an error though
/// PostgreSQL has a result. With `~`, a quotient that both sides round is used again, so that only the
/// first 16 digits, or 24 after the point, are equal.
const CASES: &[(&str, &[&str])] = &[
    (
        "values (9223372036854775807::bigint), (9223372036854775807)",
        &[
            "! sum(v)",
            "avg(v)",
            "v + 1",
            "v - 1",
            "v * 2",
            "v * v",
            "-v",
            "v / 2",
            "v % 10",
            "sum(v - v)",
            "cast(v as int)",
            "cast(v as smallint)",
            "v::numeric",
            "max(v) - min(v)",
            "abs(-v)",
            "! avg(distinct v)",
            "! sum(distinct v)",
            "! v::numeric * v::numeric",
            "v / 0",
            "v % 0",
        ],
    ),
    (
        "values ((-9223372036854775808)::bigint)",
        &["-v", "abs(v)", "v - 1", "v / -1", "avg(v)", "sum(v)", "! v * 1"],
    ),
    ("values (2147483647::int), (1)", &["v + v", "v * v", "-v", "sum(v)", "avg(v)", "v / 2"]),
    ("values (32767::smallint)", &["v + v", "v * v", "sum(v)", "avg(v)"]),
    (
        "values (1::numeric), (2), (2)",
        &[
            "avg(v)",
            "sum(v) / count(*)",
            "v / 3",
            "v * v",
            "v + 0.1",
            "v - 0.1",
            "-v",
            "~ v / 7 * 7",
            "~ avg(v) * avg(v)",
            "~ (v / 3) / (v / 7)",
            "sum(v / 3)",
            "avg(distinct v)",
            "sum(distinct v)",
            "! sqrt(v)",
            "! power(v, 0.5)",
            "! ln(v)",
            "! log(v)",
            "! exp(v)",
            "! stddev(v)",
            "! variance(v)",
            "! var_pop(v)",
        ],
    ),
    (
        "values (0.67::numeric(10,2)), (-0.5), (0.5), (1.5), (2.5), (-0.67), (99999999.99)",
        &[
            "cast(v as int)",
            "cast(v as bigint)",
            "v::int",
            "round(v)",
            "round(v, 1)",
            "floor(v)",
            "ceil(v)",
            "abs(v)",
            "! trunc(v)",
            "! trunc(v, 1)",
            "! sign(v)",
            "! mod(v, 0.3)",
            "! sqrt(abs(v))",
            "! stddev_samp(v)",
            "v / 7",
            "v * v",
            "v * 1.1",
            "v + 1",
            "avg(v)",
            "sum(v)",
            "sum(v) / 3",
            "cast(v as smallint)",
            "v::double precision",
            "v % 0.3",
            "v / 0",
            "cast(v as numeric(8,1))",
            "cast(v as numeric(10,0))",
            "cast(v as numeric)",
            "case when v > 2 then 100 / v else v / 3 end",
        ],
    ),
    (
        "values (12345678901234567890.123456789::numeric), (-0.000000000000000001)",
        &[
            "v::double precision",
            "cast(v as numeric)",
            "v::numeric",
            "v + v",
            "v * 3",
            "avg(v)",
            "sum(v)",
            "cast(v as bigint)",
            "~ v / 3",
            "cast(v as numeric(30,2))",
            "round(v, 3)",
            "floor(v)",
            "ceil(v)",
            "abs(v)",
        ],
    ),
    (
        "values (99999999999999999999999999999999999999::numeric(38,0)), (99999999999999999999999999999999999999)",
        &["! sum(v)", "! v + v", "! v * 10", "! avg(v)", "! v * v", "! v / 7"],
    ),
    (
        "values (0.5::double precision), (1.5), (2.5), (-0.5), (-1.5), (0.1), (1.005), (123456.789)",
        &[
            "cast(v as int)",
            "cast(v as bigint)",
            "round(v)",
            "cast(v as numeric(10,2))",
            "cast(v as numeric(20,12))",
            "v * v",
            "v / 3",
            "v + v",
            "v::real",
            "v / 0",
        ],
    ),
    (
        "values (1e300::double precision)",
        &["v * v", "cast(v as int)", "v / 1e-300", "v + v", "v::real", "sum(v)"],
    ),
    ("values (1e-300::double precision)", &["v * v", "v / 1e300", "v - v"]),
    ("values (1e308::double precision), (1e308)", &["sum(v)", "v + v"]),
    ("values ('NaN'::double precision)", &["v + 1", "v * 2", "cast(v as int)"]),
    (
        "values (0.5::real), (2.5), (0.1), (16777217)",
        &["cast(v as int)", "round(v)", "cast(v as numeric(12,3))"],
    ),
    ("values (null::int), (3), (null)", &["sum(v)", "avg(v)", "v + 1", "v / 2", "-v", "v * null"]),
    ("select null::numeric where false", &["sum(v)", "avg(v)"]),
    (
        "values (10::bigint), (20), (25)",
        &[
            "sum(v) over (order by id)",
            "avg(v) over (order by id)",
            "sum(v) over (order by id rows between 1 preceding and current row)",
            "avg(v) over (order by id rows between 1 preceding and 1 following)",
            "v / 7.0",
            "v * 0.1",
            "sum(v) filter (where v > 10)",
            "avg(v) filter (where v > 100)",
        ],
    ),
];

/// Whether an expression makes one row of all.
fn is_total(expression: &str) -> bool {
    let starts = ["sum(", "avg(", "max(", "(sum(", "(avg("];
    starts.iter().any(|start| expression.starts_with(start)) && !expression.contains(" over ")
}

fn file(directory: &Path, port: u16, query: &str) -> config::PipelineFile {
    let path = directory.join("p.yaml");
    let config = format!("{{host: 127.0.0.1, port: {port}, database: d, user: postgres}}");
    let query = serde_json::to_string(query).unwrap();
    let text = format!(
        "version: 1
pipeline: p
source:
  use: postgres
  config: {config}
  streams: [{{name: t}}]
transforms: [sql: {{query: {query}, into: found}}]
destination:
  use: postgres
  config: {config}
  write_mode: replace
"
    );
    std::fs::write(&path, text).unwrap();
    config::load(&path, &forebay_connectors::registry(), &|name| Err(name.to_owned())).unwrap()
}

/// Runs a query from `t` into `found`, or returns the error.
pub(crate) async fn run(directory: &Path, port: u16, query: &str) -> Result<(), String> {
    let file = file(directory, port, query);
    let (context, _cancel) = Context::new("run");
    let ran = Pipeline::new(&file).run(Options::default(), &context).await;
    ran.map(drop).map_err(|error| forebay_base::error_chain::chain(&error).to_string())
}

const COMPARED: &str = "
select count(*) from expected e full join found f using (id)
where case when e.v is null or f.v is null then e.v is not null or f.v is not null
           when pg_typeof(e.v)::text in ('double precision', 'real') then e.v::float8 <> f.v::float8
           when $near then abs(f.v::numeric - e.v::numeric) > greatest(abs(e.v::numeric) * 1e-16, 1e-24)
           else round(f.v::numeric, scale(e.v::numeric)) <> e.v::numeric end";

#[tokio::test(flavor = "multi_thread")]
async fn an_expression_has_the_number_that_postgresql_has_or_is_an_error() {
    let Some(pg) = Postgres::start() else { return };
    pg.query("postgres", "create database d");
    let directory = tempfile::tempdir().unwrap();
    let mut wrong = String::new();
    for (rows, expressions) in CASES {
        pg.query(
            "d",
            &format!(
                "drop table if exists t;
                 create table t as select row_number() over ()::int as id, v from ({rows}) x(v)"
            ),
        );
        for expression in *expressions {
            let (may_fail, is_near) = (expression.starts_with('!'), expression.starts_with('~'));
            let expression = expression.trim_start_matches(['!', '~', ' ']);
            let id = if is_total(expression) { "1" } else { "id" };
            let query = format!("select {id} as id, {expression} as v from t");
            pg.query("d", "drop table if exists expected, found");
            let expected = pg.try_query("d", &format!("create table expected as {query}"));
            let found = run(directory.path(), pg.port(), &query).await;
            let compared = COMPARED.replace("$near", &is_near.to_string());
            let said = match (expected, found) {
                (None, Err(_)) => continue,
                (Some(_), Err(_)) if may_fail => continue,
                (None, Ok(())) => "PostgreSQL: an error".to_owned(),
                (Some(_), Err(error)) => error,
                (Some(_), Ok(())) if pg.query("d", &compared) == "0" => continue,
                (Some(_), Ok(())) => {
                    pg.query("d", "select e.v, f.v from expected e full join found f using (id)")
                }
            };
            writeln!(wrong, "{expression} of {rows}: {said}").unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
