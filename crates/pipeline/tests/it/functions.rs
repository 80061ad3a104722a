//! Functions and types of transforms that the engine has in another way, or not at all: the same values
//! as PostgreSQL, or refused with the way out.

use std::fmt::Write as _;

use forebay_testing::Postgres;

use crate::differential::run;
use crate::generated::{Compared, TABLE, compare};

/// Expressions with the values of PostgreSQL.
const SAME: &[&str] = &[
    // Numbers.
    "mod(a, 5)",
    "mod(n, 0.3)",
    "mod(a, -5) + 1",
    "div(n, 0.3)",
    "div(m, -2)",
    "div(a, 5)",
    "sign(a)",
    "sign(n)",
    "sign(m)",
    "sign(f)",
    "ceiling(f)",
    "ceil(n)",
    "ceil(m)",
    "floor(n)",
    "floor(m)",
    "ceil(9.5::numeric(2,1))",
    "round(a, -1)",
    "round(a)",
    "round(n)",
    "round(n, 1)",
    "round(n, 5)",
    "round(n, -3)",
    "round(m, id)",
    "round(f)",
    "round(r)",
    "round(-2.5)",
    "round(n, 1)::text",
    "trunc(n)",
    "trunc(n, 1)",
    "trunc(m, -3)",
    "trunc(f)",
    "trunc(n, 1)::text",
    "width_bucket(f, 0, 10, 5)",
    "width_bucket(n, 0, 10, 5)",
    "width_bucket(a, 10, 0, 5)",
    "width_bucket(f::numeric, 10.5, -3, 7)",
    "~ a",
    "@ n",
    "|/ 4.0::float8",
    // Numbers and times as texts.
    "f::text",
    "r::text",
    "m::text",
    "n::text",
    "ti::text",
    "(f * 1e20)::text",
    "(f / 3)::text",
    "1e15::float8::text",
    "0.00001::float8::text",
    "(-0.0::float8)::text",
    "(123456::real)::text",
    "f || x",
    "concat(f, ti, m)",
    "concat_ws(',', ch, f, r)",
    // Letters.
    "upper(x)",
    "lower(x)",
    "initcap(x)",
    "upper('ß')",
    "upper('straße ﬁ ŉ é ᾳ')",
    "lower('ΑΣ É')",
    // Regular expressions.
    "regexp_replace('a' || chr(10) || 'b', 'a.b', 'x')",
    "regexp_replace('a' || chr(10) || 'b', '^.', 'x', 'gn')",
    "regexp_replace('a' || chr(10) || 'b', 'B$', 'x', 'i')",
    "regexp_replace('a' || chr(10) || 'b', x, 'x')",
    "regexp_match('a' || chr(10) || 'b', 'a.b') is null",
    "regexp_like('a' || chr(10) || 'b', 'a.b')",
    "regexp_count('a' || chr(10) || 'b', '.')",
    "regexp_count(x, 'O', 1, 'i')",
    "regexp_replace(x, '^H|d$', '0', 'g')",
    "substring(x from 'o.')",
    "substring(x from '(l+)o')",
    "y like 'a!_b' escape '!'",
    "y like 'a_b' escape ''",
    "y not ilike 'A#_b' escape '#'",
    // character(n).
    "ch = 'ab   '",
    "'ab   ' = ch",
    "ch <> 'ab '",
    "ch = vc",
    "ch = y",
    "ch in ('ab  ', 'x')",
    "ch between 'ab ' and 'b '",
    "ch is distinct from 'ab '",
    "ch like 'ab'",
    "ch like 'ab    '",
    "ch like 'ab____'",
    "ch ilike 'AB%'",
    "ch ~ 'b$'",
    "ch ~ 'b    $'",
    "case ch when 'ab  ' then 1 end",
    "nullif(ch, 'ab ')",
    "octet_length(ch)",
    "length(ch)",
    "concat(ch, 'x')",
    "ch || 'x'",
    // Types that are compared as such.
    "ip = '10.0.0.1'",
    "ip in ('10.0.0.1', '9.0.0.1')",
    "js::text = '{\"a\": 1}'",
    "concat(ip) = '10.0.0.1'",
    // Times.
    "timestamp '2024-01-01 00:00'",
    "'2024-01-01 00:00'::timestamp",
    "timestamptz '2024-01-01 00:00+02'",
    "timestamp '2024-01-01 00:00+02'",
    "ts > '2024-01-01 00:00'",
    "tz > '2024-01-01 00:00'",
    "ts at time zone 'Europe/Berlin'",
    "tz at time zone 'Europe/Berlin'",
    "tz at time zone 'UTC'",
    "timestamp '2024-07-01 12:00:00' at time zone 'Europe/Berlin'",
    "(tz at time zone 'America/New_York')::date",
    "ts at time zone 'UTC' at time zone 'Europe/Berlin'",
    "date_trunc('month', ts)",
    "date_trunc('week', tz)",
    "date_trunc('week', d)",
    "date_trunc('quarter', ts)",
    "date_trunc('decade', ts)",
    "date_trunc('century', ts)",
    "date_trunc('millennium', tz)",
    "date_trunc('milliseconds', ts)",
    "date_trunc('hour', ts)",
    "coalesce(d, ts)",
    "greatest(d, ts, tz)",
    "extract(epoch from ts - d)",
    "array_ndims(arr)",
];

/// Expressions that are refused, and a part of the message.
const REFUSED: &[(&str, &str)] = &[
    ("div(f, 2)", "trunc(a / b)"),
    ("sign(x)", "takes numbers"),
    ("upper(a)", "cast its argument"),
    ("regexp_replace(x, 'a*', 'x', 'g')", "write + instead of *"),
    ("regexp_count(x, 'a*')", "write + instead of *"),
    ("regexp_replace(x, 'foo|foobar', 'x')", "the longest branch first"),
    ("regexp_replace(x, 'a', 'x', 'q')", "has the flag 'q'"),
    ("regexp_replace(x, 'a', 'x', y)", "have to be a constant"),
    ("regexp_instr(x, 'a', 1, 1, 'i')", "other arguments"),
    ("y like vc escape '!'", "has to be a constant"),
    ("y like 'a!' escape '!'", "must not end with"),
    ("array_dims(arr)", "array_length"),
    ("array_to_string(array[1.5], ',')", "text[]"),
    ("js = '{\"a\":1}'", "1 would not equal 1.0"),
    ("js in ('1', '2')", "1 would not equal 1.0"),
    ("case js when '1' then 1 end", "1 would not equal 1.0"),
    ("ip > '9.0.0.1'", "cast it to text"),
    ("ip = '10.0.0.1/32'", "spelled in another way"),
    ("ip::text", "without its mask"),
    ("row_number() over (order by ip)", "cast it to text"),
    ("row_number() over (order by js)", "cast it to text"),
    ("count(*) over (partition by js)", "1 would not equal 1.0"),
    ("max(ip) over ()", "cast it to text"),
    ("nth_value(x, 0) over (order by id)", "greater than zero"),
    ("nth_value(x, -1) over (order by id)", "greater than zero"),
    ("first_value(x) ignore nulls over (order by id)", "no IGNORE NULLS"),
    ("lag(x) ignore nulls over (order by id)", "no IGNORE NULLS"),
    ("ts at time zone 'CET'", "Europe/Berlin"),
    ("tz at time zone '+02'", "Europe/Berlin"),
    ("tz at time zone x", "has to be a constant"),
    ("date_trunc('fortnight', ts)", "no unit"),
    ("age(ts)", "subtract the timestamps"),
    ("jsonb_typeof(js)", "take it apart at the destination"),
    ("js->>'a'", "take it apart at the destination"),
    ("regexp_matches(x, 'a')", "use regexp_match"),
    ("exists (select 1 from t b where b.id > t.id)", "in WHERE"),
    ("a in (select b.a from t b)", "in WHERE"),
    ("(select count(*) from t b where b.a < t.a)", "or join it"),
    ("date_trunc('day', tz, 'Europe/Berlin')", "at time zone"),
];

/// Queries whose rows are those of PostgreSQL.
const QUERIES: &[&str] = &[
    "select 1 as id, every(bo) as v0 from t",
    "select 1 as id, variance(f) as v0 from t",
    "select 1 as id, sum(r) as v0 from t where id <> 3",
    "select 1 as id, sum(r) over (order by id) as v0 from t order by id fetch first row only",
    "select 1 as id, percentile_disc(0.5) within group (order by a) as v0 from t",
    "select 1 as id, percentile_disc(0.9) within group (order by x desc) as v0 from t",
    "select 1 as id, percentile_cont(0.75) within group (order by n) as v0 from t",
    "select bo::int as id, percentile_cont(0.5) within group (order by f) as v0 from t where bo is not null group by bo",
    "select 1 as id, mode() within group (order by sm % 2::smallint) as v0 from t",
    "select id, x as v0 from t order by id offset 2 rows fetch next 2 rows only",
    "select min(id) as id, count(*) as v0 from t group by ip",
    "select id, row_number() over (order by id desc) as v0 from t",
    "select 1 as id, string_agg(distinct y, ',') as v0 from t",
    "select 1 as id, array_agg(distinct a) as v0 from t",
    "select 1 as id, percentile_cont(0.3) within group (order by f desc) as v0 from t",
];

fn server() -> Option<Postgres> {
    let pg = Postgres::start()?;
    pg.query("postgres", "create database d template template0 locale 'C.UTF-8'");
    pg.query("postgres", "alter database d set timezone = 'UTC'");
    pg.query("d", TABLE);
    Some(pg)
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_have_the_values_of_postgresql() {
    let Some(pg) = server() else { return };
    let directory = tempfile::tempdir().unwrap();
    let expressions: Vec<String> = SAME.iter().map(|&it| it.to_owned()).collect();
    let mut made = Compared::default();
    for together in expressions.chunks(24) {
        compare(&pg, directory.path(), together, &mut made).await;
    }
    assert!(made.wrong.is_empty(), "{}", made.wrong);
    assert!(made.refused.is_empty(), "{}", made.refused.join("\n"));
    assert_eq!(made.errors, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_would_have_another_value_is_refused_with_the_way_out() {
    let Some(pg) = server() else { return };
    let directory = tempfile::tempdir().unwrap();
    let mut wrong = String::new();
    for (expression, message) in REFUSED {
        let query = format!("select id, {expression} as v from t");
        match run(directory.path(), pg.port(), &query).await {
            Err(error) if error.contains(message) => {}
            other => writeln!(wrong, "{expression}: {other:?}").unwrap(),
        }
    }
    for query in [
        "select min(id) as id, js as v from t group by js",
        "select distinct js as v from t",
        "select 1 as id, count(distinct js) as v from t",
    ] {
        match run(directory.path(), pg.port(), query).await {
            Err(error) if error.contains("1 would not equal 1.0") => {}
            other => writeln!(wrong, "{query}: {other:?}").unwrap(),
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_and_aggregates_have_the_values_and_types_of_postgresql() {
    let Some(pg) = server() else { return };
    let directory = tempfile::tempdir().unwrap();
    let mut wrong = String::new();
    for query in QUERIES {
        pg.query("d", "drop table if exists expected, found");
        if let Err(error) = run(directory.path(), pg.port(), query).await {
            writeln!(wrong, "{query}: {error}").unwrap();
            continue;
        }
        pg.query("d", &format!("create table expected as {query}"));
        let types = "select string_agg(distinct atttypid::regtype::text, ' and ') from pg_attribute \
                     where attname = 'v0' and attrelid in ('expected'::regclass, 'found'::regclass)";
        let differ = pg.query("d", &format!("select {}", crate::generated::differ("v0")));
        let types = pg.query("d", types);
        if differ != "f" || types.contains(" and ") {
            let found = pg.query("d", "select string_agg(v0::text, ' | ') from found");
            writeln!(wrong, "{query}: {types}: {found}").unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
