//! Queries of transforms whose operands have different types, and moving windows of floating point
//! numbers, beside the same queries in PostgreSQL: the same rows, or an error.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::fmt::Write as _;

use forebay_testing::Postgres;

use crate::differential::run;

const TABLE: &str = "
create table t (id int primary key, a int, big bigint, n numeric(10,2), m numeric, f float8, r real,
                ts timestamp, tz timestamptz, d date, x text);
insert into t values
(1, 7, 10000000000, 3.99, 1.005, 1.5, 1.5, '2024-02-29 12:34:56.789', '2024-02-29 12:34:56.789+00', '2024-02-29', 'a'),
(2, -7, -5, 0.01, -0.5, 1e20, 0.1, '1999-12-31 23:59:59', '1999-12-31 23:59:59+02', '1999-12-31', 'b'),
(3, 0, 0, 2.75, 123456789.123456789, 2.5, 16777216, '1970-01-01', '1970-01-01', '1970-01-01', ''),
(4, null, null, null, null, null, null, null, null, null, null),
(5, 1, 5, -0.50, 2.5, 3.5, 2.5, '2000-01-01', '2000-01-01', '2000-01-01', 'c'),
(6, 2, 6, 1.00, 0, 4.5, 0, '2000-01-02', '2000-01-02', '2000-01-02', 'd'),
(7, 3, 7, 99999999.99, 1, 2e15, -0.5, '2000-01-03', '2000-01-03', '2000-01-03', 'e'),
(8, 3, 7, 0.5, 1, 0.5, -0.5, '2000-01-03', '2000-01-03', '2000-01-03', 'f');";

/// Queries with the columns `id` and `v`. One that starts with `!` is refused, and the error has the
/// text after `->`.
const QUERIES: &[&str] = &[
    // The type of a CASE is that of all its branches.
    "select id, case when a > 0 then 0 else n end as v from t",
    "select id, case when a > 0 then 0 else n end + 1 as v from t",
    "select id, case when a > 0 then 0 else n end * case when a > 0 then 2 else n end as v from t",
    "select id, -case when a > 0 then 0 else n end as v from t",
    "select id, case when a > 0 then n else m end as v from t",
    "select id, case when a > 0 then 0 else f end as v from t",
    "select id, case when a > 0 then 0.5 else f end as v from t",
    "select id, case when a > 0 then r else f end as v from t",
    "select id, case when a > 0 then r else n end as v from t",
    "select id, case when a > 0 then a else big end as v from t",
    "select id, case a when 7 then 0 when 1 then n else f end as v from t",
    "select id, case f when 0.5 then 1 when 2 then 2.5 end as v from t",
    "select id, case when a > 0 then null else n end as v from t",
    "select id, case when a > 0 then ts else tz end as v from t",
    "select id, case when a > 0 then d else ts end as v from t",
    "select id, case when a > 0 then 0 when a < 0 then case when n > 1 then 1 else n end end as v from t",
    "select 1 as id, sum(case when a > 0 then 0 else n end) as v from t",
    "select 1 as id, avg(case when a > 0 then 0 else n end) as v from t",
    "select 1 as id, max(case when a > 0 then 0 else n end) as v from t",
    "select min(id) as id, case when a > 0 then 0 else n end as v from t group by case when a > 0 then 0 else n end",
    "select min(id) as id, v from (select id, case when a > 0 then 0 else n end as v from t) s group by v",
    "select id, sum(case when a > 0 then 0 else n end) over (order by id) as v from t",
    "select id, v + 1 as v from (select id, case when a > 0 then 0 else n end as v from t) s where v > 0.5",
    "select id, (select max(v) from (select case when a > 0 then 0 else n end as v from t) s) as v from t",
    "select id, coalesce(a, n) as v from t",
    "select id, coalesce(n, f) as v from t",
    "select id, coalesce(n, a, 0.5) as v from t",
    "select id, coalesce(null, 0, n) as v from t",
    "select id, greatest(a, n) as v from t",
    "select id, least(f, n, a) as v from t",
    "select id, nullif(f, 0.5) as v from t",
    // The columns of a UNION have the type of all sides.
    "select id, a as v from t union all select id + 10, n from t",
    "select id, n as v from t union all select id + 10, m from t",
    "select id, n as v from t union all select id + 10, f from t",
    "select id, a as v from t union select id, n from t",
    "select id, a as v from t union all select id + 10, n from t union all select id + 20, m from t",
    "select id, v * 2 as v from (select id, 1 as v from t union all select id + 10, n from t) s",
    "select id, null as v from t union all select id + 10, n from t",
    "select id, ts as v from t union all select id + 10, tz from t",
    "select id, a as v from t intersect select id, n from t",
    "select id, a as v from t except select id, n from t",
    "with recursive s as (select id, m as v from t where id = 1 union all select id + 1, v + 0.5 from s where id < 4) select * from s",
    "! with recursive s as (select id, a as v from t where id = 1 union all select id + 1, v + 0.5 from s where id < 4) select * from s -> recursive term",
    // Rows before and after.
    "select id, lag(a, 1, 0.5) over (order by id) as v from t",
    "select id, lead(a, 1, -0.5) over (order by id) as v from t",
    "select id, lag(n, 2, 7) over (order by id) as v from t",
    "select id, lag(f, 1, 0.5) over (order by id) as v from t",
    "select id, lag(n, 1, 0.123456) over (order by id) as v from t",
    "select id, lag(n, 1, null) over (order by id) as v from t",
    "select id, lag(x, 1, '-') over (order by id) as v from t",
    "select id, v + 1 as v from (select id, lag(a, 1, 0.5) over (order by id) as v from t) s",
    "! select id, lag(ts, 1, tz) over (order by id) as v from t -> cast one of them",
    // Floating point numbers are compared as double precision.
    "select id, f > 0.5 as v from t",
    "select id, 0.5 < f as v from t",
    "select id, r = 0.1 as v from t",
    "select id, r = 16777217 as v from t",
    "select id, r = f as v from t",
    "select id, f = big as v from t",
    "select id, f between 0.5 and 2.5 as v from t",
    "select id, n between 0.5 and f as v from t",
    "select id, f in (0.5, 3.5, 7) as v from t",
    "select id, f not in (0.5, 3.5) as v from t",
    "select id, f <> n as v from t",
    "select id, f is distinct from 0.5 as v from t",
    "select id, f as v from t where f in (select n from t)",
    "select id, n as v from t where n in (select f from t)",
    "select id, n as v from t where exists (select 1 from t b where b.f = t.n)",
    "select t.id, b.n as v from t join t b on b.n = t.f",
    "select id, id as v from t where f > 0.5",
    "select id, count(*) filter (where f > 0.5) as v from t group by id having max(f) > 0.25",
    // Frames that move.
    "select id, sum(f) over (order by id rows between 1 preceding and current row) as v from t",
    "select id, sum(f) over (order by id rows between 1 preceding and 1 following) as v from t",
    "select id, sum(f) over (order by id rows between current row and unbounded following) as v from t",
    "select id, sum(f) over (order by id rows between 2 following and 3 following) as v from t",
    "select id, sum(f) over (order by id rows between 3 preceding and 2 preceding) as v from t",
    "select id, sum(f) over (order by a, id rows between 1 preceding and current row) as v from t",
    "select id, sum(f) over (order by id range between 1 preceding and current row) as v from t",
    "select id, sum(f) over (order by a groups between 1 preceding and current row) as v from t where a is not null",
    "select id, sum(f) over (partition by a order by id rows between 1 preceding and current row) as v from t",
    "select id, sum(f) filter (where f < 4) over (order by id rows between 1 preceding and current row) as v from t",
    "select id, sum(r::float8) over (order by id rows between 1 preceding and current row) as v from t",
    "select id, sum(n) over (order by id rows between 1 preceding and current row) as v from t",
    "select id, avg(f) over (order by id rows between 1 preceding and current row) as v from t",
    "select id, stddev(f) over (order by id rows between 2 preceding and current row) as v from t where id <> 2",
    "select id, stddev_pop(f) over (order by id rows between 1 preceding and current row) as v from t",
    "select id, var_pop(f) over (order by id rows between 1 preceding and current row) as v from t",
    "select id, var_samp(f) over (order by id rows between 1 preceding and current row) as v from t",
    "select id, stddev(a) over (order by id rows between 1 preceding and current row) as v from t",
    "select id, covar_pop(f, a) over (order by id rows between 1 preceding and current row) as v from t",
    "select id, covar_samp(f, a) over (order by id rows between 1 preceding and current row) as v from t",
    "select id, round((corr(f, a) over (order by id rows between 2 preceding and current row))::numeric, 9) as v from t where id > 2",
    "select id, sum(f) over (order by id rows between 1 preceding and current row) as v from (select id, case id when 2 then 'NaN'::float8 when 5 then 'Infinity'::float8 else id * 1.5 end as f from t) n",
    "select id, avg(f) over (order by id rows between 1 preceding and current row) as v from (select id, case id when 2 then 'NaN'::float8 when 5 then 'Infinity'::float8 else id * 1.5 end as f from t) n",
    "select id, stddev(f) over (order by id rows between 1 preceding and current row) as v from (select id, case id when 2 then 'NaN'::float8 when 5 then 'Infinity'::float8 else id * 1.5 end as f from t) n",
    "select id, var_pop(f) over (order by id range between 1 preceding and current row) as v from (select id, case id when 2 then 'NaN'::float8 when 5 then 'Infinity'::float8 else id * 1.5 end as f from t) n",
    "select id, covar_pop(f, f) over (order by id groups between 1 preceding and current row) as v from (select id, case id when 2 then 'NaN'::float8 when 5 then 'Infinity'::float8 else id * 1.5 end as f from t) n",
];

/// Counts the rows that differ, numbers by more than their last digits.
pub(crate) const COMPARED: &str = "
select count(*) from (select row_number() over (order by id, v::text) as at, * from expected) e
full join (select row_number() over (order by id, v::text) as at, * from found) f using (at)
where e.id is distinct from f.id
   or case when e.v is null or f.v is null then e.v is not null or f.v is not null
           when pg_typeof(e.v)::text in ('double precision', 'real', 'numeric', 'integer', 'bigint')
           then case when e.v::text in ('NaN', 'Infinity', '-Infinity') then e.v::text <> f.v::text
                     else abs(e.v::text::numeric - f.v::text::numeric) > abs(e.v::text::numeric) * 1e-14 end
           else e.v::text <> f.v::text end";

#[tokio::test(flavor = "multi_thread")]
async fn operands_of_different_types_and_moving_frames_are_as_in_postgresql() {
    compare(TABLE, QUERIES).await;
}

/// Runs queries of the table `t`, and the same ones in PostgreSQL.
pub(crate) async fn compare(table: &str, queries: &[&str]) {
    let Some(pg) = Postgres::start() else { return };
    pg.query("postgres", "create database d");
    pg.query("postgres", "alter database d set timezone = 'UTC'");
    pg.query("d", table);
    let directory = tempfile::tempdir().unwrap();
    let mut wrong = String::new();
    for case in queries {
        let (query, message) = case.split_once(" -> ").unwrap_or((case, ""));
        let query = query.trim_start_matches(['!', ' ']);
        pg.query("d", "drop table if exists expected, found");
        let said = match run(directory.path(), pg.port(), query).await {
            Err(error) if case.starts_with('!') && error.contains(message) => continue,
            Err(error) => error,
            Ok(()) if case.starts_with('!') => "not refused".to_owned(),
            Ok(()) => {
                pg.query("d", &format!("create table expected as {query}"));
                match pg.query("d", COMPARED) {
                    same if same == "0" => continue,
                    _ => pg.query(
                        "d",
                        "select string_agg(concat_ws(' ', id, v), ', ' order by id) from expected \
                         union all \
                         select string_agg(concat_ws(' ', id, v), ', ' order by id) from found",
                    ),
                }
            }
        };
        writeln!(wrong, "{query}: {said}").unwrap();
    }
    assert!(wrong.is_empty(), "{wrong}");
}
