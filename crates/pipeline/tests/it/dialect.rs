//! Queries of transforms beside the same ones in PostgreSQL: dates, intervals, texts, and functions of
//! floating point numbers have the same values, or are refused.

use std::fmt::Write as _;

use forebay_testing::Postgres;

use crate::branches::COMPARED;
use crate::differential::run;

/// Rows of the column `v`, and expressions of it. One that starts with `!` is refused, and the error
/// has the text after `->`. A condition after `where` selects rows.
const CASES: &[(&str, &[&str])] = &[
    (
        "values (2::float8), (0.5), (10), (null)",
        &[
            "power(v, 3)",
            "pow(v, -2)",
            "exp(v)",
            "exp(-v)",
            "ln(v)",
            "log(v)",
            "log10(v)",
            "sqrt(v)",
            "cbrt(v)",
            "sin(v)",
            "cos(v)",
            "tan(v)",
            "atan(v)",
            "atan2(v, 2)",
            "sinh(v)",
            "tanh(v)",
            "degrees(v)",
            "radians(v)",
            "asin(v / 10)",
            "acos(v / 10)",
            "! power(v, 1000) -> out of range",
            "! power(v, -2000) -> out of range",
            "! power(10, 400) -> out of range",
            "! power(2, 2147483647) -> out of range",
            "! exp(v * 100) -> out of range",
            "! exp(v * -100) -> out of range",
            "! ln(v - 2) -> out of range",
            "! ln(v - 5) -> out of range",
            "! log(v - 2) -> out of range",
            "! log10(v - 2) -> out of range",
            "! log2(v - 2) -> out of range",
            "! acos(v) -> out of range",
            "! asin(v) -> out of range",
            "! atanh(v) -> out of range",
            "! power(v - 11, 0.5::float8) -> out of range",
            "! power(v - 2, -1) -> undefined",
            "! sqrt(v - 5) -> negative",
            "! cot(v - 2) -> out of range",
            "power(v - 2, 2)",
            "v::float",
            "v::float(24)",
            "v::float(53)",
        ],
    ),
    (
        "values ('infinity'::float8), ('-infinity'), ('NaN'), (1)",
        &[
            "exp(v)",
            "power(v, 2)",
            "power(v, 0)",
            "power(v, -1)",
            "ln(v) where v > 0",
            "! sin(v) where v = 'infinity' -> out of range",
            "! ln(v) -> out of range",
            "atan(v)",
            "sqrt(v) where v > 0",
        ],
    ),
    ("values (1e300::float8), (-1e300)", &["cbrt(v)"]),
    ("values (0.1::float8), (123456.789)", &["v::float", "v::float + 1"]),
    (
        "values ('2024-03-01'::date), ('1999-12-31'), (null), ('0001-01-01'), ('9999-12-31')",
        &[
            "v + interval '36 hours'",
            "v - interval '1 hour'",
            "interval '1 month' + v",
            "v - interval '1 month 1 day'",
            "v + interval '1 second' > v + interval '0 seconds'",
            "extract(year from v + interval '1 hour')",
        ],
    ),
    (
        "values ('2024-02-29 23:59:59.5'::timestamp), ('1999-12-31 00:00:00'), ('2024-01-01 00:00:07.000001'), (null)",
        &[
            "extract(second from v)",
            "extract(seconds from v)",
            "date_part('second', v)",
            "date_part('SECOND', v) + 1",
            "extract(minute from v)",
            "extract(milliseconds from v)",
            "extract(epoch from v)",
            "! v::timestamp(0) -> date_trunc",
            "! cast(v as timestamp(3)) -> date_trunc",
            "v::timestamp(6)",
            "! to_char(v, 'YYYY-MM-DD HH24:MI:SS') -> %Y",
            "! to_char(v, 'Day') -> %Y",
            "! to_char(v, '%Y-MM') -> %Y",
            "! to_char(v, v::text) -> %Y",
            "v + interval '36 hours'",
            "v - timestamp '2000-01-01 00:00:00' > interval '30 days'",
            "v - timestamp '1999-12-30 00:00:00' = interval '1 day'",
            "v - timestamp '1999-12-30 00:00:00' = interval '24 hours'",
        ],
    ),
    (
        "values ('2024-02-29 23:59:59.25+02'::timestamptz), (null)",
        &["extract(second from v)", "date_part('seconds', v)"],
    ),
    ("values ('23:59:59.75'::time), ('00:00:00'), (null)", &["extract(second from v)"]),
    (
        "values (interval '1 day'), ('24 hours'), ('1 month'), ('30 days'), ('31 days'), ('-1 month 40 days'), (null)",
        &[
            "v = interval '24 hours'",
            "v <> interval '30 days'",
            "v < interval '1 month'",
            "v >= interval '31 days'",
            "v is distinct from interval '1 day'",
            "v is not distinct from interval '1 day'",
            "v > interval '-1 hours'",
            "! v in (interval '1 day') -> field by field",
            "! v between interval '1 day' and interval '2 days' -> field by field",
            "! case v when interval '1 day' then 1 else 2 end -> field by field",
            "! nullif(v, interval '1 day') -> field by field",
            "! greatest(v, interval '1 day') -> field by field",
            "! max(v) -> field by field",
            "! count(distinct v) -> field by field",
            "! row_number() over (order by v) -> field by field",
            "! row_number() over (partition by v) -> field by field",
            "! extract(second from v) -> epoch",
            "! v > 'x' -> Interval",
            "case when v = interval '1 day' then 1 else 2 end",
        ],
    ),
    (
        "values ('Hello Wörld'::text), ('ab'), (''), ('日本語日本'), (null)",
        &[
            "cast(v as varchar(3))",
            "v::varchar(2)",
            "v::character varying(4)",
            "v::varchar",
            "v::character varying",
            "length(v::varchar(3))",
            "upper(v)::varchar(1) || '.'",
            "! cast(v as char(2)) -> rpad",
            "! v::char -> rpad",
            "! v::character(2) -> rpad",
            "! v::varchar(0) -> at least 1",
            "! v similar to '%l%' -> LIKE",
            "! v not similar to 'a_' -> LIKE",
            "v like '%l%'",
            "v ~ 'l+'",
        ],
    ),
    ("values (123456), (-7), (null)", &["v::varchar(3)", "cast(v as varchar(20))"]),
    (
        "values ('ab'::char(6)), ('a b'), ('  x'), (''), (null)",
        &[
            "v",
            "v = 'ab'",
            "v <> 'ab'",
            "v in ('ab', 'x')",
            "v between 'a' and 'ab'",
            "v is not distinct from 'ab'",
            "case v when 'ab' then 1 else 2 end",
            "nullif(v, 'ab')",
            "v::text",
            "cast(v as varchar(10))",
            "length(v)",
            "v || '|'",
            "'|' || v",
            "upper(v)",
            "v where v = 'ab'",
            "(select count(*) from t b where b.v = t.v)",
        ],
    ),
    ("values ('ab'::bpchar), ('a  ')", &["v = 'a'", "length(v)"]),
];

#[tokio::test(flavor = "multi_thread")]
async fn an_expression_means_what_postgresql_means_or_is_refused() {
    let Some(pg) = Postgres::start() else { return };
    pg.query("postgres", "create database d");
    let directory = tempfile::tempdir().unwrap();
    let mut wrong = String::new();
    for (rows, expressions) in CASES {
        let create = "create table t as select row_number() over ()::int as id, v from";
        pg.query("d", &format!("drop table if exists t; {create} ({rows}) x(v)"));
        for case in *expressions {
            let (expression, message) = case.split_once(" -> ").unwrap_or((case, ""));
            let expression = expression.trim_start_matches(['!', ' ']);
            let (value, condition) = match expression.split_once(" where v ") {
                Some((value, condition)) if !value.starts_with('(') => {
                    (value, format!(" where v {condition}"))
                }
                _ => (expression, String::new()),
            };
            let is_total = value.starts_with("max(") || value.starts_with("count(");
            let id = if is_total { "1" } else { "id" };
            let query = format!("select {id} as id, {value} as v from t{condition}");
            pg.query("d", "drop table if exists expected, found");
            let found = run(directory.path(), pg.port(), &query).await;
            let said = match found {
                Err(error) if case.starts_with('!') && error.contains(message) => continue,
                Err(error) => error,
                Ok(()) if case.starts_with('!') => "not refused".to_owned(),
                Ok(()) => {
                    pg.query("d", &format!("create table expected as {query}"));
                    match pg.query("d", COMPARED) {
                        same if same == "0" => continue,
                        _ => {
                            let both =
                                "select e.v, f.v from expected e full join found f using (id)";
                            pg.query("d", both)
                        }
                    }
                }
            };
            writeln!(wrong, "{expression} of {rows}: {said}").unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_and_joins_are_equal_where_postgresql_has_them_equal_or_refused() {
    let Some(pg) = Postgres::start() else { return };
    pg.query("postgres", "create database d");
    let directory = tempfile::tempdir().unwrap();
    pg.query(
        "d",
        "create table t (id int, ch char(6), vc varchar(6), iv interval);
         insert into t values (1, 'ab', 'ab', '1 day'), (2, 'ab', 'x', '24 hours'), (3, 'x', 'ab', '1 day')",
    );
    for (query, expected) in [
        ("select a.id * 10 + b.id as n from t a join t b on a.ch = b.vc", Some("11,13,21,23,32")),
        ("select count(*) as n from t group by ch", Some("1,2")),
        ("select id as n from t where ch = 'ab'", Some("1,2")),
        ("select distinct octet_length(ch) as n from t", Some("6")),
        ("select count(*) as n from t group by iv", None),
        ("select a.id as n from t a join t b on a.iv = b.iv", Some("1,1,1,2,2,2,3,3,3")),
        ("select distinct iv as n from t", None),
        ("select id as n from t order by iv", None),
        ("select iv as n from t union select iv as n from t", None),
        ("select id as n from t where iv in (select iv from t)", None),
    ] {
        pg.query("d", "drop table if exists found");
        match (run(directory.path(), pg.port(), query).await, expected) {
            (Ok(()), Some(expected)) => {
                let found = pg.query("d", "select string_agg(n::text, ',' order by n) from found");
                assert_eq!(found, expected, "{query}");
            }
            (Err(error), None) => assert!(error.contains("intervals"), "{query}: {error}"),
            (ran, _) => panic!("{query}: {ran:?}"),
        }
    }
    // Unchanged columns keep their type and their bytes.
    pg.query("d", "drop table if exists found");
    run(directory.path(), pg.port(), "select id, ch, vc::varchar(3) from t").await.unwrap();
    let types = "select string_agg(format_type(atttypid, atttypmod) || ' ' || attname, ',') from \
                 pg_attribute where attrelid = 'found'::regclass and attnum > 0";
    assert_eq!(pg.query("d", types), "integer id,character(6) ch,text vc");
    assert_eq!(pg.query("d", "select count(*) from found where octet_length(ch) = 6"), "3");
}
