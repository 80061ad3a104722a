//! Expressions made by chance, of columns of all types with NULLs and extremes, beside the same ones in
//! PostgreSQL: the same values, or refused.
//!
//! `FOREBAY_EXPRESSIONS` is the number of expressions, `FOREBAY_SEED` where they begin. Several are columns
//! of one query; those of a query that fails are tried one by one.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::fmt::Write as _;
use std::path::Path;

use forebay_testing::Postgres;

use crate::differential::run;

pub(crate) const TABLE: &str = r#"
create table t (id int primary key, sm smallint, a int, big bigint, n numeric(10,2), m numeric, f float8, r real,
                x text, y text, ch char(6), vc varchar(6), ts timestamp, tz timestamptz, d date, iv interval,
                bo bool, u uuid, arr int[], js jsonb, ip inet, ti time);
insert into t values
(1, 7, 7, 10000000000, 3.99, 1.005, 1.5, 1.5, 'Hello World', 'a_b', 'ab', 'ab', '2024-02-29 12:34:56.789', '2024-02-29 12:34:56.789+00', '2024-02-29', '1 year 2 mons 3 days 04:05:06.7', true, '11111111-1111-1111-1111-111111111111', '{1,2,3}', '{"a": 1}', '10.0.0.1', '12:34:56.5'),
(2, -7, -7, -5, -0.01, -0.5, -2.5, 0.1, 'one,two,three', 'one', 'ab  ', 'ab  ', '1999-12-31 23:59:59', '1999-12-31 23:59:59+02', '1999-12-31', '-1 day', false, '22222222-2222-2222-2222-222222222222', '{}', '{"a": null}', '9.0.0.1', '00:00:00'),
(3, 0, 0, 0, 2.75, 123456789.123456789, 2.5, 16777216, '', '', '', '', '1970-01-01', '1970-01-01', '1970-01-01', '0', null, null, '{4,NULL}', null, null, null),
(4, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null),
(5, 12, 12, 18, -99999999.99, 2.5, 3.5, -2.5, '日本語 straße', '%本%', 'a b', 'b', '2000-01-01 10:00', '2000-01-01', '2000-01-01', '40 days', true, '33333333-3333-3333-3333-333333333333', '{7,7}', '"x"', '10.0.0.0/8', '23:59:59'),
(6, 3, -12, 6, 1.25, 0, 0, 0, 'aXbXc', 'X', 'ß', 'ß', '1500-06-15 01:02:03', '1900-01-01', '1500-06-15', '1 month', false, 'ffffffff-ffff-ffff-ffff-ffffffffffff', '{-1}', '3', 'fe80::1', '10:00:00')"#;

/// A row of extremes: most arithmetic with it is an error.
const EXTREMES: &str = "
insert into t values (7, 32767, 2147483647, 9223372036854775807, 99999999.99, 9999999999999999999.99, 1e300, 1e30, ' a ', 'é\n', 'abcdef', 'x ',
                      '9999-12-31 23:59:59.999999', '9999-12-31 23:59:59.999999', '9999-12-31', '-1 year', true, '00000000-0000-0000-0000-000000000000', null, null, null, '23:59:59.999999'),
                     (8, -32768, -2147483648, -9223372036854775808, -99999999.99, -0.00000000000000000001, -1e-300, 1e-30, 'A', 'a', 'é', 'É',
                      '0001-01-01', '0001-01-01', '0001-01-01', '1 microsecond', false, null, null, null, null, null)";

/// The number of expressions that are columns of one query.
const TOGETHER: usize = 12;

/// Numbers by chance; SplitMix64 by Steele, Lea and Flood.
struct Chance(u64);

impl Chance {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((z ^ (z >> 31)) % below as u64).unwrap()
    }

    /// Fills templates, in which a letter after `$` is an expression of a type.
    fn of(&mut self, kind: char, depth: usize) -> String {
        let (leaves, forms) = templates(kind);
        let templates = if depth == 0 || self.next(4) == 0 { leaves } else { forms };
        let template = templates[self.next(templates.len())];
        let mut made = String::new();
        let mut letters = template.chars();
        while let Some(letter) = letters.next() {
            match letter {
                '$' => made.push_str(&self.of(letters.next().unwrap(), depth.saturating_sub(1))),
                other => made.push(other),
            }
        }
        made
    }
}

/// Types by a letter: `s` smallint, `i` integer, `b` bigint, `n` numeric, `f` double precision, `r` real,
/// `t` text, `c` character, `d` date, `p` timestamp, `z` timestamptz, `v` interval, `o` boolean, `u` uuid,
/// `k` a small number.
#[rustfmt::skip]
fn templates(kind: char) -> (&'static [&'static str], &'static [&'static str]) {
    match kind {
        's' => (&["sm", "2::smallint", "null::smallint"], &["abs($s)", "coalesce($s, $s)", "($s % $s)", "nullif($s, $s)", "-($s)"]),
        'i' => (&["a", "id", "3::int", "-5::int", "null::int"], &[
            "($i + $i)", "($i - $i)", "($i * $i)", "($i / $i)", "($i % $i)", "mod($i, $i)", "abs($i)", "-($i)",
            "coalesce($i, $i)", "nullif($i, $i)", "greatest($i, $i)", "least($i, $i)", "($s + $i)", "length($t)",
            "case when $o then $i else $i end", "case $i when $i then $i end", "($n)::int", "($f)::int", "($d - $d)",
            "strpos($t, $t)", "ascii($t)", "octet_length($t)", "width_bucket($f, 0, 10, 4)", "length(ch)", "char_length($t)", "position($t in $t)", "octet_length(ch)"]),
        'b' => (&["big", "7::bigint", "null::bigint"], &[
            "($b + $i)", "($b - $b)", "($b * $i)", "($b / $i)", "($b % $i)", "abs($b)", "coalesce($b, $i)", "($n)::bigint",
            "greatest($b, $i)", "case when $o then $b else $i end", "($i)::bigint", "gcd($b, $b)", "extract(epoch from $p)::bigint"]),
        'n' => (&["n", "m", "1.50", "-0.05", "null::numeric"], &[
            "($n + $n)", "($n - $n)", "($n * $i)", "($n % 0.7)", "mod($n, 3.5)", "div($n, 0.3)", "abs($n)", "-($n)", "round($n)", "round($n, $k)",
            "trunc($n)", "trunc($n, $k)", "ceil($n)", "floor($n)", "sign($n)", "coalesce($n, $i)", "nullif($n, $i)", "greatest($n, $n)",
            "case when $o then $n else $i end", "($i)::numeric", "($n)::numeric(12,3)", "($f)::numeric(20,2)", "least($n, $i)", "(n * n)"]),
        'f' => (&["f", "0.5::float8", "-3::float8", "null::float8"], &[
            "($f + $f)", "($f - $f)", "($f * $f)", "($f / $f)", "abs($f)", "-($f)", "sqrt(abs($f))", "ceil($f)", "floor($f)", "round($f)", "trunc($f)",
            "sign($f)", "coalesce($f, $n)", "greatest($f, $i)", "case when $o then $f else $n end", "($n)::float8", "($r)::float8", "($f + $n)",
            "($i * $f)", "exp(least($f, 5))", "ln(abs($f))", "power($f, 2)", "nullif($f, $i)", "cbrt($f)", "sign($i)", "ceil($i)", "round($i)", "atan($f)"]),
        'r' => (&["r", "0.25::real", "null::real"], &["abs($r)", "($r + $r)", "($r * $r)", "($f)::real", "coalesce($r, $r)", "-($r)", "($r - $r)"]),
        't' => (&["x", "y", "vc", "'ab'", "'l'", "''", "null::text"], &[
            "($t || $t)", "upper($t)", "lower($t)", "initcap($t)", "substr($t, $k)", "substr($t, $k, abs($k))", "left($t, $k)", "right($t, $k)", "lpad($t, $k + 5)",
            "rpad($t, $k + 5, $t)", "replace($t, $t, $t)", "split_part($t, ',', 2)", "split_part($t, 'l', -1)", "btrim($t)", "ltrim($t, 'Ha ')", "rtrim($t)", "reverse($t)", "repeat($t, $k)",
            "translate($t, 'lo', 'L')", "concat($t, $i)", "concat($t, $f, $n)", "concat_ws('-', $t, $d, $t)", "($i)::text", "($f)::text", "(n)::text", "($d)::text",
            "($p)::text", "($z)::text", "($o)::text", "($r)::text", "coalesce($t, $t)", "nullif($t, $t)", "case when $o then $t else $t end", "md5($t)", "overlay($t placing 'Z' from 2 for 1)",
            "greatest($t, $t)", "regexp_replace($t, '[a-l]+', '<\\&>', 'g')", "regexp_replace($t, 'O', '0', 'i')", "(u)::text", "($c || 'x')", "upper($c)", "concat(ch, $t)", "($b)::text", "(ti)::text",
            "($t)::varchar(4)", "substring($t from 'l+')", "(ch)::text", "trim(leading 'H' from $t)"]),
        'c' => (&["ch"], &["ch"]),
        'd' => (&["d", "date '2024-02-29'", "null::date"], &["($d + 3)", "($d - $k)", "($p)::date", "coalesce($d, $d)", "greatest($d, $d)", "case when $o then $d end", "nullif($d, $d)", "($z)::date", "least($d, $d)"]),
        'p' => (&["ts", "timestamp '2024-03-31 02:30'", "null::timestamp"], &[
            "($p + $v)", "($p - $v)", "($d + $v)", "date_trunc('month', $p)", "date_trunc('week', $p)", "date_trunc('hour', $p)", "date_trunc('century', $p)", "($d)::timestamp",
            "coalesce($p, $p)", "greatest($p, $p)", "case when $o then $p else $p end", "($z)::timestamp", "($z at time zone 'America/New_York')", "date_trunc('decade', $p)", "date_trunc('quarter', $p)", "least($p, $d)"]),
        'z' => (&["tz", "timestamptz '2024-02-29 12:00+02'", "null::timestamptz"], &[
            "($z + $v)", "($z - $v)", "date_trunc('day', $z)", "($p)::timestamptz", "coalesce($z, $z)", "($p at time zone 'UTC')", "date_trunc('year', $d)", "greatest($z, $z)"]),
        'v' => (&["interval '1 day'", "interval '1 month'", "interval '36 hours'", "interval '1 year 2 days 3 seconds'"], &["iv", "interval '1 day'", "($v + $v)", "-($v)", "($v - $v)"]),
        'o' => (&["bo", "true", "null::boolean", "(a > 0)"], &[
            "($i = $i)", "($i < $b)", "($n > $i)", "($n <= $n)", "($f > $n)", "($f = $i)", "($r = $f)", "($t = $t)", "($t < $t)", "($t >= 'M')", "($c = $t)", "($c = vc)", "($c in ('ab ', 'x'))",
            "($c like 'a%')", "($c < 'b ')", "($c ~ 'b +')", "(ch = ch)", "($d < $d)", "($d = $p)", "($p > $p)", "($z > $z)", "($p < $z)", "(u = u)", "(u > '22222222-2222-2222-2222-222222222222')", "($o and $o)", "($o or $o)", "(not $o)",
            "($o is true)", "($o is not false)", "($o is null)", "($t is null)", "($i is distinct from $i)", "($t is not distinct from $t)", "($i between $i and $i)", "($n not between $i and $n)", "($i in ($i, $i, 7))", "($n not in (1, $n))",
            "($t in ($t, 'ab'))", "($t like '%l%')", "($t not like 'a\\_%')", "($t ilike '%L%')", "($t like $t)", "($t ~ '^[a-z]')", "($t !~* 'O')", "($v > interval '1 day')", "($v = $v)", "($o = $o)", "($t like '%!_%' escape '!')",
            "(a = any(arr))", "($p between $p and $p)", "($d in ($d, date '2000-01-01'))", "($o <> $o)", "($r < $n)", "starts_with($t, $t)", "($f between $i and $n)"]),
        'u' => (&["u", "null::uuid"], &["u"]),
        'k' => (&["0", "1", "2", "3", "-1", "-2"], &["1", "2", "3", "-3"]),
        other => panic!("{other} is no type"),
    }
}

/// Whether the values of a column differ, as `COMPARED` of `branches` has it.
pub(crate) fn differ(v: &str) -> String {
    format!(
        "(select count(*) from expected e full join found f using (id) where
          case when e.{v} is null or f.{v} is null then e.{v} is not null or f.{v} is not null
               when pg_typeof(e.{v})::text in ('double precision', 'real', 'numeric', 'integer', 'bigint', 'smallint')
               then case when e.{v}::text in ('NaN', 'Infinity', '-Infinity') then e.{v}::text <> f.{v}::text
                         else abs(e.{v}::text::numeric - f.{v}::text::numeric) > abs(e.{v}::text::numeric) * 1e-14 end
               else e.{v}::text <> f.{v}::text end) > 0"
    )
}

/// How expressions compare.
#[derive(Default)]
pub(crate) struct Compared {
    pub(crate) same: usize,
    pub(crate) errors: usize,
    pub(crate) refused: Vec<String>,
    pub(crate) wrong: String,
}

/// Compares expressions with those of PostgreSQL; several at once, until one is in the way.
pub(crate) async fn compare(
    pg: &Postgres,
    directory: &Path,
    expressions: &[String],
    made: &mut Compared,
) {
    let columns = expressions.iter().enumerate();
    let columns: Vec<_> = columns.map(|(at, it)| format!("{it} as v{at}")).collect();
    let query = format!("select id, {} from t", columns.join(", "));
    pg.query("d", "drop table if exists expected, found");
    let found = run(directory, pg.port(), &query).await;
    if expressions.len() > 1 {
        let both = found.is_ok()
            && pg.try_query("d", &format!("create table expected as {query}")).is_some();
        let differ: Vec<_> = (0..expressions.len()).map(|at| differ(&format!("v{at}"))).collect();
        if both && pg.query("d", &format!("select {}", differ.join(" or "))) == "f" {
            made.same += expressions.len();
            return;
        }
        for expression in expressions {
            Box::pin(compare(pg, directory, std::slice::from_ref(expression), made)).await;
        }
        return;
    }
    let expression = &expressions[0];
    let expected = pg.try_query("d", &format!("create table expected as {query}")).is_some();
    match (expected, found) {
        (false, Err(_)) => made.errors += 1,
        (true, Err(error)) => made.refused.push(format!("{expression}: {error}")),
        (false, Ok(())) => writeln!(made.wrong, "{expression}: PostgreSQL has an error").unwrap(),
        (true, Ok(())) if pg.query("d", &format!("select {}", differ("v0"))) == "f" => {
            made.same += 1
        }
        (true, Ok(())) => {
            let both = pg.query(
                "d",
                "select 'PostgreSQL ' || string_agg(coalesce(v0::text, 'NULL'), ' | ' order by id) from expected
                 union all select 'here ' || string_agg(coalesce(v0::text, 'NULL'), ' | ' order by id) from found",
            );
            writeln!(made.wrong, "{expression}: {both}").unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expression_made_by_chance_has_the_values_of_postgresql_or_is_refused() {
    let Some(pg) = Postgres::start() else { return };
    pg.query("postgres", "create database d template template0 locale 'C.UTF-8'");
    pg.query("postgres", "alter database d set timezone = 'UTC'");
    pg.query("d", TABLE);
    let directory = tempfile::tempdir().unwrap();
    let number = |name: &str, default| {
        std::env::var(name).ok().map_or(default, |it| it.parse::<u64>().unwrap())
    };
    let (count, seed) = (number("FOREBAY_EXPRESSIONS", 240), number("FOREBAY_SEED", 1));
    let mut chance = Chance(seed);
    let expressions: Vec<String> = (0..count)
        .map(|_| {
            let kind = ['i', 'b', 'n', 'f', 'r', 't', 't', 'd', 'p', 'z', 'o', 'o', 'o'];
            let kind = kind[chance.next(kind.len())];
            let depth = 1 + chance.next(3);
            chance.of(kind, depth)
        })
        .collect();
    let mut made = Compared::default();
    let (plain, extreme) = expressions.split_at(expressions.len() / 4 * 3);
    for together in plain.chunks(TOGETHER) {
        compare(&pg, directory.path(), together, &mut made).await;
    }
    pg.query("d", EXTREMES);
    for together in extreme.chunks(4) {
        compare(&pg, directory.path(), together, &mut made).await;
    }
    let refused = made.refused.join("\n");
    assert!(made.wrong.is_empty(), "{}\nrefused:\n{refused}", made.wrong);
    // Most of them have to have a value.
    assert!(
        made.refused.len() * 10 < expressions.len(),
        "{} equal; refused:\n{refused}",
        made.same
    );
}
