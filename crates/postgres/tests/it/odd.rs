//! Tables that are unlike others: odd names, odd types, odd values, very many columns or none.

use forebay_postgres::quote::quote_identifier as quoted;
use forebay_sdk::connector::{Division, Source as _};
use serde_json::json;

use crate::copying::{Copy, Databases, chain};
use crate::source::{Reader, read};

#[test]
fn any_name_of_a_schema_a_table_or_a_column_is_copied_in_every_mode() {
    let Some(databases) = Databases::new() else { return };
    let long = "n".repeat(63);
    let umlauts = format!("{}x", "ü".repeat(31));
    let names = [
        "we\"ird",
        "Größe",
        &long,
        &umlauts,
        "UPPER Case",
        "select",
        "a.b",
        " space ",
        "%s $1 :x",
        "it's",
        "line\nend",
        "back\\slash",
        "日本語",
        "--",
        "/*",
        "pg_x",
        "oid2",
        "\u{1F600}",
    ];
    for (number, name) in names.iter().enumerate() {
        let of = format!("{}.{}", quoted(name), quoted(name));
        // What its database calls so is a schema, a table and a column.
        if !name.starts_with("pg_") {
            databases.src(&format!("create schema {}", quoted(name)));
        }
        let of = if name.starts_with("pg_") { format!("public.{}", quoted(name)) } else { of };
        let column = quoted(name);
        databases.src(&format!(
            "create table {of} ({column} int primary key, v text); insert into {of} values (1, 'a'), (2, 'b')"
        ));
        let modes = [
            json!({ "write_mode": "append" }),
            json!({ "write_mode": "replace" }),
            json!({ "write_mode": "replace", "on_data_error": "dlq" }),
            json!({ "write_mode": "upsert", "primary_key": [name] }),
            json!({ "write_mode": "upsert", "primary_key": [name], "on_data_error": "dlq", "load_method": "insert" }),
        ];
        for (at, target) in modes.into_iter().enumerate() {
            let copy = Copy::new(json!({ "name": of }), &quoted(name), target.clone());
            let run = databases.runtime.block_on(copy.run(&databases, &format!("{number}-{at}")));
            run.unwrap_or_else(|error| panic!("{name:?} {target}: {}", chain(&error)));
            if at == 0 {
                databases.dst(&format!("alter table {} add primary key ({column})", quoted(name)));
                // From now on rows are replaced inside the table.
                databases
                    .dst(&format!("create view \"of {number}\" as select * from {}", quoted(name)));
            }
            let rows = format!(
                "select string_agg({column} || v, ' ' order by {column}) from {}",
                quoted(name)
            );
            assert_eq!(databases.dst(&rows), "1a 2b", "{name:?} {target}");
        }
        let stream = json!({ "name": of, "sync_mode": "incremental", "cursor_field": name });
        let copy = Copy::new(stream, &format!("i{number}"), json!({}));
        let cursor = databases.runtime.block_on(copy.run(&databases, "load-i")).unwrap();
        assert_eq!(cursor.unwrap().value, "2", "{name:?}");
    }
    let discovered = databases.runtime.block_on(databases.source().discover()).unwrap();
    assert_eq!(discovered.len(), names.len());
    for found in discovered {
        let copy =
            Copy::new(json!({ "name": found.name }), "again", json!({ "write_mode": "replace" }));
        let run = databases.runtime.block_on(copy.run(&databases, &found.name));
        run.unwrap_or_else(|error| panic!("{:?}: {}", found.name, chain(&error)));
        databases.dst("drop table again");
    }
}

#[test]
fn a_name_that_is_too_long_is_refused_and_not_shortened() {
    let Some(databases) = Databases::new() else { return };
    databases.src("create table t (id int)");
    let long = "n".repeat(63);
    databases.dst(&format!("create table {long} (id int); insert into {long} values (1)"));
    for mode in ["append", "replace"] {
        let copy =
            Copy::new(json!({ "name": "t" }), &format!("{long}x"), json!({ "write_mode": mode }));
        let refused = databases.runtime.block_on(copy.run(&databases, mode)).unwrap_err();
        assert!(chain(&refused).contains("too long"), "{}", chain(&refused));
        assert_eq!(databases.dst(&format!("select count(*) from {long}")), "1");
    }
}

/// Types, and values of them.
pub(crate) const TYPES: &[(&str, &str)] = &[
    (
        "timestamptz",
        "('infinity'), ('-infinity'), ('4713-01-01 00:00:00 BC'), ('294246-12-31 23:59:59.999999Z')",
    ),
    ("timestamp", "('infinity'), ('-infinity'), ('0044-03-15 12:00 BC')"),
    ("date", "('infinity'), ('-infinity'), ('4713-01-01 BC'), ('5874897-12-31')"),
    ("numeric", "('NaN'), ('Infinity'), ('-Infinity'), (1e-1000), (1e1000), (0.00), (-0.10)"),
    ("numeric(3, -2)", "(12300), (-99900)"),
    ("numeric(5, 7)", "(0.0012345)"),
    ("real", "('NaN'), ('Infinity'), ('-0'), (1e-45)"),
    ("double precision", "('NaN'), ('-Infinity'), ('-0'), (5e-324)"),
    ("interval", "('178000000 years'), ('-1 mon +1 day -00:00:00.000001'), ('0')"),
    ("interval day to second(2)", "('1 day 02:03:04.567')"),
    ("time", "('24:00'), ('00:00:00.000001')"),
    ("timetz", "('24:00+15:59'), ('00:00-15:59')"),
    ("timestamptz(0)", "('2024-02-29 12:00:00.6Z')"),
    ("money", "(-92233720368547758.08), (0.01)"),
    ("bytea", "(''), ('\\x00'), ('\\x5c00ff')"),
    ("json", "('{\"a\": \"\\u0000\", \"a\" : 1}'), ('  null'), ('1e400')"),
    ("jsonb", "('{\"b\": [], \"a\": 1.00}'), ('null')"),
    ("text", "(''), (E'\\n\\t\\\\'), (repeat('ü', 100000))"),
    ("char(5)", "('a'), ('')"),
    ("\"char\"", "('a'), ('')"),
    ("name", "('x')"),
    ("bit(3)", "(b'101')"),
    ("varbit", "(b''), (b'1')"),
    ("uuid[]", "(array['67e55044-10b1-426f-9247-bb680e5fe0c8'::uuid, null])"),
    ("int[]", "('{}'), ('{1,NULL}')"),
    ("text[]", "('{\"\", \"NULL\", NULL, \"a,b\", \"\\\"\"}')"),
    ("numeric(10,2)[]", "('{1.50, NULL}')"),
    ("timestamptz[]", "('{infinity, NULL}')"),
    ("other.pair[]", "(array[row(1, 'x')::other.pair, null, row(null, null)::other.pair])"),
    ("other.pair", "('(1,\"a,\"\"b\")'), ('(,)'), (null)"),
    ("other.mood", "('sad'), ('it''s, \"odd\"')"),
    ("other.mood[]", "('{sad, NULL}')"),
    ("other.positive", "(1), (null)"),
    ("other.positives", "('{1, 2}')"),
    ("other.range_of_text", "('[a,b)'), ('empty'), ('(,)')"),
    ("int4range", "('[1,5)'), ('empty'), ('(,)')"),
    ("tstzmultirange", "('{[2024-01-01Z, 2024-01-02Z), [infinity,)}'), ('{}')"),
    ("tsvector", "('a:1A fat:2,4 ''it''''s'''), ('')"),
    ("tsquery", "('a & !b <2> c')"),
    ("hstore", "('a=>1, b=>NULL'), ('')"),
    ("hstore[]", "(array['a=>1'::hstore])"),
    ("citext", "('AbC'), ('')"),
    ("inet", "('::1/0'), ('10.0.0.1/8')"),
    ("cidr", "('10.0.0.0/8')"),
    ("macaddr8", "('08:00:2b:01:02:03:04:05')"),
    ("xml", "('<a>\u{e4}</a>')"),
    ("jsonpath", "('$.a[*] ? (@ > 1)')"),
    ("point", "('(NaN, infinity)')"),
    ("polygon", "('((0,0),(1,1),(1,0))')"),
    ("xid8", "('18446744073709551615'), ('0')"),
    ("xid", "('4294967295')"),
    ("oid", "(4294967295)"),
    ("pg_lsn", "('FFFFFFFF/FFFFFFFF')"),
    ("regclass", "('pg_class'::regclass::oid), (4294967295::oid)"),
    ("tid", "('(4294967295,65535)')"),
    ("pg_snapshot", "('10:20:10,14')"),
    ("ltree", "('a.b.c')"),
    ("macaddr", "('08:00:2b:01:02:03')"),
    ("line", "('{1,-2,3}')"),
    ("lseg", "('[(0,0),(1e-300,1)]')"),
    ("box", "('(1,1),(0,0)')"),
    ("path", "('[(0,0),(1,1)]'), ('((0,0),(1,1))')"),
    ("circle", "('<(0.1,0.2),3>')"),
    ("int2vector", "('1 2 3')"),
    ("oidvector", "('1 4294967295')"),
    ("numrange", "('(0.10,1e100]'), ('[NaN,)'), ('(-Infinity,Infinity)')"),
    ("daterange[]", "(array['[-infinity,2024-02-29)'::daterange, null, 'empty'])"),
    ("nummultirange", "('{[1.0,2.00),(3,)}')"),
    (
        "interval",
        "('178956970 years 7 mons 2147483647 days'), ('-178956970 years -8 mons -2147483648 days')",
    ),
    (
        "numeric(1000,500)",
        "(repeat('9', 500) || '.' || repeat('9', 500)), ('-0.' || repeat('0', 499) || '1')",
    ),
    ("char(3)[]", "('{a, \"b  \", NULL}')"),
    ("varchar(5)", "('a  '), ('   ')"),
    ("text", "('NULL'), ('\\N'), ('{}'), ('\\.')"),
    ("json", "('{\"\\u0000\": \"\\ud800\"}'), ('\"\\u0000\"')"),
    ("money[]", "('{0.01, NULL, -0.01}')"),
    ("interval[]", "('{1 mon -1 day, NULL}')"),
    ("timetz[]", "('{24:00-15:59}')"),
    ("inet[]", "('{::1, 10.0.0.1/8}')"),
    ("bit(3)[]", "('{101, 010}')"),
    ("bytea[]", "(array[''::bytea, null, '\\x5c00'])"),
    ("jsonb[]", "(array['{\"a\": 1.00}'::jsonb, 'null', null])"),
    ("xid8[]", "('{18446744073709551615}')"),
    ("other.smaller", "(5)"),
    (
        "other.nested",
        "(row(row(1, 'x')::other.pair, array[row(2, null)::other.pair], '[a,b)')::other.nested), (row(null, null, null)::other.nested)",
    ),
    ("cube", "('(1,2),(3,4)')"),
];

/// Values that only tuples can have, and why records cannot.
const ONLY_TUPLES: &[(&str, &str, &str)] = &[
    ("timestamptz", "('294276-12-31 23:59:59.999999Z')", "out of range"),
    ("int[]", "('[-2:0]={1,2,3}'), ('{{1,2},{3,null}}')", "cannot be a list"),
    ("numeric(10,2)[]", "('{NaN}')", "NaN"),
    ("numeric(10,2)", "('NaN')", "NaN"),
];

pub(crate) const KNOWN: &str = "
create extension hstore; create extension citext; create extension ltree; create extension cube;
create schema other; create type other.pair as (n int, t text); create type other.mood as enum ('sad', 'it''s, \"odd\"');
create domain other.positive as int check (value > 0); create domain other.positives as int[] check (array_length(value, 1) < 9);
create type other.range_of_text as range (subtype = text);
create domain other.smaller as other.positive check (value < 10);
create type other.nested as (a other.pair, b other.pair[], c other.range_of_text)";

/// The texts of all values, in order.
pub(crate) fn texts(table: &str) -> String {
    format!("select string_agg(coalesce(t.v::text, 'NULL'), '|' order by t.id) from {table} t")
}

/// Creates a table with values of a type at the source, and one at the destination that computes another
/// column, so that rows cannot be passed through as they are.
pub(crate) fn create(databases: &Databases, name: &str, of: &str, values: &str) {
    databases.src(&format!(
        "create table {name} (id int generated always as identity, v {of}); insert into {name} (v)
         select v::{of} from (values {values}) t(v); insert into {name} (v) values (null);
         create view of_{name} as select *, 0 as n from {name}",
    ));
    databases.dst(&format!(
        "create table by_records_{name} (id int, v {of}, n int generated always as (id + 1) stored)"
    ));
}

fn copy(databases: &Databases, from: &str, into: &str, mode: &str) -> Result<(), String> {
    let copy = Copy::new(json!({ "name": from }), into, json!({ "write_mode": mode }));
    let run = databases.runtime.block_on(copy.run(databases, &format!("{into}-{mode}")));
    run.map(drop).map_err(|error| chain(&error))
}

#[test]
fn values_of_every_type_arrive_unchanged_as_tuples_and_as_records() {
    let Some(databases) = Databases::new() else { return };
    databases.src(KNOWN);
    // The types have other numbers here.
    databases.dst(&format!("create type first as (n int); {KNOWN}"));
    let mut failed = Vec::new();
    for (number, (of, values)) in TYPES.iter().enumerate() {
        let name = format!("t{number}");
        create(&databases, &name, of, values);
        let expected = databases.src(&texts(&name));
        for (from, into) in [(&name, &name), (&format!("of_{name}"), &format!("by_records_{name}"))]
        {
            for mode in ["append", "replace"] {
                if let Err(error) = copy(&databases, from, into, mode) {
                    failed.push(format!("{of} into {into} by {mode}: {error}"));
                    continue;
                }
                let found = databases.dst(&texts(into));
                if found != expected {
                    failed.push(format!(
                        "{of} into {into} by {mode}: {found:.200}, not {expected:.200}"
                    ));
                }
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn values_that_records_cannot_hold_arrive_as_tuples_and_are_otherwise_an_error() {
    let Some(databases) = Databases::new() else { return };
    for (number, (of, values, reason)) in ONLY_TUPLES.iter().enumerate() {
        let name = format!("t{number}");
        create(&databases, &name, of, values);
        copy(&databases, &name, &name, "append").unwrap_or_else(|error| panic!("{of}: {error}"));
        assert_eq!(databases.dst(&texts(&name)), databases.src(&texts(&name)), "{of}");
        let refused =
            copy(&databases, &format!("of_{name}"), &format!("by_records_{name}"), "append");
        let refused = refused.unwrap_err();
        assert!(refused.contains(reason), "{of}: {refused}");
        assert!(refused.contains(" the column to "), "{of}: {refused}");
    }
}

#[test]
fn a_table_of_1600_columns_is_copied_also_inside_a_table_that_others_refer_to() {
    let Some(databases) = Databases::new() else { return };
    let columns: Vec<String> = (1..1_600).map(|at| format!("c{at} int")).collect();
    let values: Vec<String> = (1..1_600).map(|at| at.to_string()).collect();
    databases.src(&format!("create table t (id int primary key, {})", columns.join(", ")));
    databases.src(&format!("insert into t values (1, {0}), (2, {0})", values.join(", ")));
    for mode in ["append", "replace", "upsert"] {
        let target = json!({ "write_mode": mode, "primary_key": if mode == "upsert" { vec!["id"] } else { vec![] } });
        let copy = Copy::new(json!({ "name": "t" }), mode, target);
        databases.runtime.block_on(copy.run(&databases, mode)).unwrap();
        assert_eq!(
            databases.dst(&format!("select count(*), sum(c1599) from \"{mode}\"")),
            "2|3198"
        );
    }
    databases.dst(
        "alter table append add primary key (id); create table refers (id int references append)",
    );
    databases.dst("update append set c7 = 0");
    let copy = Copy::new(json!({ "name": "t" }), "append", json!({ "write_mode": "replace" }));
    databases.runtime.block_on(copy.run(&databases, "again")).unwrap();
    assert_eq!(databases.dst("select count(*), sum(c7) from append"), "2|14");
}

#[test]
fn a_key_at_the_destination_stays_though_its_columns_are_nullable_in_the_source() {
    let Some(databases) = Databases::new() else { return };
    databases.src("create table t (id int, v text); insert into t values (1, 'a'), (2, 'b')");
    for (into, setup) in
        [("plain", "select"), ("seen", "create view of_seen as select * from seen")]
    {
        databases.dst(&format!("create table {into} (id int primary key, v text); {setup}"));
        for mode in ["append", "replace"] {
            let copy = Copy::new(json!({ "name": "t" }), into, json!({ "write_mode": mode }));
            let run = databases.runtime.block_on(copy.run(&databases, &format!("{into} {mode}")));
            run.unwrap_or_else(|error| panic!("{into} {mode}: {}", chain(&error)));
        }
        let key = format!("select conname from pg_constraint where conrelid = '{into}'::regclass");
        assert_eq!(databases.dst(&key), format!("{into}_pkey"));
    }
    databases.src("insert into t values (null, 'c')");
    let copy = Copy::new(json!({ "name": "t" }), "plain", json!({ "write_mode": "replace" }));
    let refused = databases.runtime.block_on(copy.run(&databases, "load-n")).unwrap_err();
    assert!(chain(&refused).contains("null value"), "{}", chain(&refused));
    assert_eq!(databases.dst("select count(*) from plain"), "2");
}

#[test]
fn a_table_without_columns_is_refused_and_one_without_rows_is_copied() {
    let Some(databases) = Databases::new() else { return };
    databases
        .src("create table bare (); insert into bare default values; create table empty (id int)");
    let bare = Copy::new(json!({ "name": "bare" }), "bare", json!({}));
    let refused = databases.runtime.block_on(bare.run(&databases, "load-1")).unwrap_err();
    assert!(refused.to_string().contains("has no columns"), "{refused}");
    for mode in ["append", "replace"] {
        let empty = Copy::new(json!({ "name": "empty" }), "empty", json!({ "write_mode": mode }));
        databases.runtime.block_on(empty.run(&databases, mode)).unwrap();
        assert_eq!(databases.dst("select count(*) from empty"), "0");
    }
}

#[test]
fn a_row_larger_than_the_memory_is_alone_and_arrives() {
    let Some(databases) = Databases::new() else { return };
    databases.src(
        "create table t (id int, v bytea); alter table t alter v set storage external;
         insert into t select 1, decode(repeat('00ff', 50 * 1024 * 1024), 'hex');
         insert into t select g, 'small' from generate_series(2, 9) g",
    );
    for mode in ["append", "replace"] {
        let copy = Copy::new(json!({ "name": "t" }), "t", json!({ "write_mode": mode }));
        databases.runtime.block_on(copy.run(&databases, mode)).unwrap();
        let sql = "select count(*), sum(length(v)), min(md5(v)) from t";
        assert_eq!(databases.dst(sql), databases.src(sql));
    }
}

#[test]
fn a_cursor_may_be_of_any_ordered_type_and_a_late_transaction_is_waited_for() {
    let Some(pg) = crate::pg::postgres() else { return };
    let reader = Reader::new(&pg, "5s");
    for (number, (of, first, later)) in [
        ("date", "'0044-03-15 BC'", "'2024-02-29'"),
        ("numeric", "0.1", "0.10000000000000000000000000001"),
        ("numeric(10,2)", "-0.01", "0.00"),
        ("double precision", "0.1", "0.30000000000000004"),
        ("real", "16777216", "16777218"),
        ("text", "'it''s'", "'ü'"),
        ("bytea", "'\\x00'", "'\\x0000'"),
        ("interval", "'1 mon'", "'31 days'"),
        ("inet", "'10.0.0.1'", "'10.0.0.2'"),
        ("pg_lsn", "'0/1'", "'F/0'"),
        ("xid8", "'4'", "'18446744073709551615'"),
        ("oid", "1", "4294967295"),
        ("time", "'00:00'", "'24:00'"),
        ("int4range", "'[1,2)'", "'[1,3)'"),
        ("bit(3)", "b'001'", "b'010'"),
    ]
    .into_iter()
    .enumerate()
    {
        let table = format!("t{number}");
        pg.query(&format!(
            "create table {table} (c {of}, n int); insert into {table} values ({first}, 1)"
        ));
        let stream = json!({ "name": table, "sync_mode": "incremental", "cursor_field": "c" });
        let (rows, cursor) = read(&reader, &stream, None);
        assert_eq!(rows, 1, "{of}");
        assert_eq!(read(&reader, &stream, cursor.as_ref()).0, 0, "{of}");
        pg.query(&format!("insert into {table} values ({later}, 2)"));
        let (rows, cursor) = read(&reader, &stream, cursor.as_ref());
        assert_eq!(rows, 1, "{of}");
        assert_eq!(read(&reader, &stream, cursor.as_ref()).0, 0, "{of}");
    }
}

#[test]
fn a_transaction_that_has_its_value_but_has_not_written_the_table_is_waited_for() {
    use std::io::Write as _;
    let Some(pg) = crate::pg::postgres() else { return };
    pg.query(
        "create table other (v int); create sequence s; \
         create function stamp() returns trigger language plpgsql as \
         $$begin new.x := txid_current(); return new; end$$",
    );
    for (number, (column, first, drawn)) in [
        ("xid8 default pg_current_xact_id()", "insert into other values (1)", "default"),
        ("bigint default txid_current()", "insert into other values (1)", "default"),
        ("bigint default extract(epoch from now()) * 1000", "select 1", "default"),
        // The statement has the number from a sequence that the table does not know.
        ("bigint", "select nextval('s') as drawn \\gset", ":drawn"),
        ("bigint default 0", "select nextval('s') as drawn \\gset", ":drawn"),
        ("bigint /* by a trigger */", "insert into other values (1)", "0"),
    ]
    .into_iter()
    .enumerate()
    {
        let table = format!("late{number}");
        pg.query(&format!("create table {table} (x {column}, v text)"));
        if column.contains("trigger") {
            pg.query(&format!(
                "create trigger stamp before insert on {table} for each row execute function stamp()"
            ));
        }
        let mut late = pg.session("postgres");
        let input = late.stdin.as_mut().unwrap();
        writeln!(input, "begin;\n{first}\n;set application_name = '{table}';").unwrap();
        input.flush().unwrap();
        let named =
            format!("select count(*) from pg_stat_activity where application_name = '{table}'");
        while pg.query(&named) == "0" {}
        let early = if drawn == ":drawn" { "nextval('s')" } else { drawn };
        pg.query(&format!("insert into {table} values ({early}, 'early')"));
        let stream = json!({ "name": table, "sync_mode": "incremental", "cursor_field": "x" });
        let opened = Reader::new(&pg, "1ms").open(&stream, None, Division::Stable);
        let error = opened.err().unwrap_or_else(|| panic!("{column}: was not waited for"));
        assert!(error.to_string().contains("earlier transactions are still open"), "{error}");
        let insert = format!("insert into {table} values ({drawn}, 'late'); commit;");
        writeln!(late.stdin.as_mut().unwrap(), "{insert}").unwrap();
        drop(late.stdin.take());
        late.wait().unwrap();
        assert_eq!(read(&Reader::new(&pg, "5s"), &stream, None).0, 2, "{column}");
    }
}

#[test]
fn a_sequence_that_hands_out_numbers_in_advance_is_refused() {
    let Some(pg) = crate::pg::postgres() else { return };
    pg.query(
        "create sequence s cache 50; create table drawn (id bigint default nextval('s'), v text); \
         create table own (id bigint generated always as identity (cache 2), v text); \
         insert into drawn (v) values ('a'); insert into own (v) values ('a')",
    );
    for table in ["drawn", "own"] {
        let stream = json!({ "name": table, "sync_mode": "incremental", "cursor_field": "id" });
        let refused = Reader::new(&pg, "5s").open(&stream, None, Division::Stable).err().unwrap();
        let text = forebay_base::error_chain::chain(&refused).to_string();
        assert!(text.contains("cache") && text.contains("alter sequence"), "{text}");
    }
    pg.query("alter sequence s cache 1");
    let stream = json!({ "name": "drawn", "sync_mode": "incremental", "cursor_field": "id" });
    assert_eq!(read(&Reader::new(&pg, "5s"), &stream, None).0, 1);
}

#[test]
fn a_cursor_that_nothing_can_follow_is_refused_and_one_of_the_future_is_noted() {
    let Some(pg) = crate::pg::postgres() else { return };
    let reader = Reader::new(&pg, "5s");
    for (number, (of, value)) in [
        ("timestamptz", "infinity"),
        ("timestamp", "infinity"),
        ("date", "infinity"),
        ("numeric", "NaN"),
        ("numeric", "Infinity"),
        ("double precision", "NaN"),
        ("real", "Infinity"),
    ]
    .into_iter()
    .enumerate()
    {
        pg.query(&format!(
            "create table e{number} (c {of}); insert into e{number} values ('{value}')"
        ));
        let stream = json!({ "name": format!("e{number}"), "sync_mode": "incremental", "cursor_field": "c" });
        let refused = reader.open(&stream, None, Division::Stable).err().unwrap().to_string();
        assert!(refused.contains("no later value is greater"), "{of}: {refused}");
    }
    // A text may say so.
    pg.query("create table said (c text); insert into said values ('infinity')");
    let stream = json!({ "name": "said", "sync_mode": "incremental", "cursor_field": "c" });
    assert_eq!(read(&reader, &stream, None).0, 1);
    pg.query(
        "create table ahead (c timestamptz); insert into ahead values ('9999-12-31Z'), (now())",
    );
    let stream = json!({ "name": "ahead", "sync_mode": "incremental", "cursor_field": "c" });
    let opened = reader.open(&stream, None, Division::Stable).unwrap();
    assert_eq!(reader.rows(&opened).unwrap(), 2);
    let notes = opened.notes().join("\n");
    assert!(notes.contains("9999-12-31") && notes.contains("are not read"), "{notes}");
}
