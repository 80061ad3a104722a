//! Settings of roles and databases that change what a session reads and writes: every session of ours
//! has the same ones, whatever it is given.

use forebay_postgres::{ServerSettings, connect};
use forebay_sdk::connector::Division;
use serde_json::json;

use crate::copying::{Copy, Databases, chain};
use crate::odd::{KNOWN, TYPES, create, texts};

/// Settings that a role or a database can have, each of which changes values, names, or what is found.
const HOSTILE: &[(&str, &str)] = &[
    ("search_path", "evil, pg_catalog, public"),
    ("DateStyle", "'SQL, DMY'"),
    ("IntervalStyle", "'sql_standard'"),
    ("bytea_output", "'escape'"),
    ("extra_float_digits", "-15"),
    ("standard_conforming_strings", "off"),
    ("backslash_quote", "on"),
    ("escape_string_warning", "off"),
    ("timezone", "'Asia/Kolkata'"),
    ("client_encoding", "'LATIN1'"),
    ("default_transaction_isolation", "'serializable'"),
    ("default_transaction_deferrable", "on"),
    ("statement_timeout", "'1s'"),
    ("lock_timeout", "'1ms'"),
    ("idle_in_transaction_session_timeout", "'1ms'"),
    ("idle_session_timeout", "'5s'"),
    ("synchronous_commit", "off"),
    ("session_replication_role", "'replica'"),
    ("xmloption", "'document'"),
    ("quote_all_identifiers", "on"),
    ("transform_null_equals", "on"),
    ("array_nulls", "off"),
    ("row_security", "on"),
    ("gin_fuzzy_search_limit", "1"),
    ("zero_damaged_pages", "on"),
    ("ignore_checksum_failure", "on"),
    ("exit_on_error", "on"),
    ("jit", "on"),
    ("jit_above_cost", "0"),
    ("client_min_messages", "'debug5'"),
];

/// Objects with the names of those that every session uses.
const EVIL: &str = "
create schema evil;
create domain evil.text as pg_catalog.int4; create domain evil.name as pg_catalog.int4; create domain evil.int4 as pg_catalog.bool;
create domain evil.regclass as pg_catalog.int4; create domain evil.jsonb as pg_catalog.int4;
create table evil.pg_class (oid oid, relname name); create table evil.pg_attribute (a int); create table evil.pg_type (a int);
create table evil.t0 (id int, v int); create table evil.pipeline_ledger (a int);
create function evil.count() returns bigint language sql as 'select 0::bigint';
create function evil.set_config(pg_catalog.text, pg_catalog.text, bool) returns pg_catalog.text language sql as 'select null::pg_catalog.text';
create function evil.pg_advisory_xact_lock_shared(pg_catalog.int4, pg_catalog.int4) returns void language sql as '';
create function evil.format_type(oid, pg_catalog.int4) returns pg_catalog.text language sql as 'select ''text''::pg_catalog.text';
create function evil.to_regclass(pg_catalog.text) returns pg_catalog.regclass language sql as 'select null::pg_catalog.regclass';
create function evil.is_not(pg_catalog.text, pg_catalog.text) returns bool language sql as 'select false';
create operator evil.= (leftarg = pg_catalog.text, rightarg = pg_catalog.text, function = evil.is_not);
create operator evil.<> (leftarg = pg_catalog.text, rightarg = pg_catalog.text, function = evil.is_not);";

/// Creates a role with these settings.
fn role(databases: &Databases, name: &str, attributes: &str, settings: &[(&str, &str)]) {
    databases.pg.query(&format!("create role {name} login {attributes}"));
    for (number, (setting, value)) in settings.iter().enumerate() {
        // Half of them in each database, which has precedence.
        let sets = if number % 2 == 0 {
            vec![format!("alter role {name} set {setting} = {value}")]
        } else {
            let of = |database| {
                format!("alter role {name} in database {database} set {setting} = {value}")
            };
            vec![of("src"), of("dst")]
        };
        for set in sets {
            databases.pg.query(&set);
        }
    }
}

/// Sets both roles of a copy.
fn by(copy: Copy, reader: &'static str, writer: &'static str) -> Copy {
    Copy { from: (copy.from.0, reader), user: writer, ..copy }
}

#[test]
fn settings_of_roles_change_no_value_of_any_type() {
    let Some(databases) = Databases::new() else { return };
    for sql in [KNOWN, EVIL] {
        databases.src(sql);
        databases.dst(sql);
    }
    role(&databases, "reader", "superuser", HOSTILE);
    databases.pg.query("alter role reader set default_transaction_read_only = on");
    role(&databases, "writer", "superuser", HOSTILE);
    let mut failed = Vec::new();
    for (number, (of, values)) in TYPES.iter().enumerate() {
        let name = format!("t{number}");
        create(&databases, &name, of, values);
        let expected = databases.src(&texts(&name));
        // As tuples, and as records with another column.
        let ways = [
            (name.clone(), name.clone(), json!({ "write_mode": "append" })),
            (name.clone(), name.clone(), json!({ "write_mode": "replace" })),
            (name.clone(), format!("i{name}"), json!({ "load_method": "insert" })),
            (
                name.clone(),
                format!("u{name}"),
                json!({ "write_mode": "upsert", "primary_key": ["id"] }),
            ),
            (format!("of_{name}"), format!("by_records_{name}"), json!({})),
        ];
        for (at, (from, into, target)) in ways.into_iter().enumerate() {
            let copy = by(Copy::new(json!({ "name": from }), &into, target), "reader", "writer");
            let run = databases.runtime.block_on(copy.run(&databases, &format!("{name}-{at}")));
            if let Err(error) = run {
                failed.push(format!("{of} into {into}: {}", chain(&error)));
                continue;
            }
            let found = databases.dst(&texts(&into));
            if found != expected {
                failed.push(format!("{of} into {into}: {found:.200}, not {expected:.200}"));
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert_eq!(databases.dst("select count(*) from evil.t0"), "0");
}

#[test]
fn settings_of_roles_change_no_cursor() {
    let Some(databases) = Databases::new() else { return };
    for sql in [KNOWN, EVIL] {
        databases.src(sql);
        databases.dst(sql);
    }
    role(&databases, "reader", "superuser", HOSTILE);
    for (number, (of, first, later)) in [
        ("timestamptz", "'2024-02-01 23:00:00.000001Z'", "'2024-02-01 23:00:00.000002Z'"),
        ("date", "'2024-02-01'", "'2024-02-02'"),
        ("double precision", "0.1", "0.30000000000000004"),
        ("interval", "'1 day -00:00:01'", "'1 day'"),
        ("bytea", "'\\x5c00'", "'\\x5c01'"),
        ("text", "'a\\'", "'a\\b'''"),
    ]
    .into_iter()
    .enumerate()
    {
        let table = format!("c{number}");
        databases
            .src(&format!("create table {table} (c {of}); insert into {table} values ({first})"));
        let stream = json!({ "name": table, "sync_mode": "incremental", "cursor_field": "c" });
        let mut copy = by(Copy::new(stream, &table, json!({})), "reader", "postgres");
        copy.division = Division::Stable;
        let cursor = databases.runtime.block_on(copy.run(&databases, "load-1"));
        copy.since = cursor.unwrap_or_else(|error| panic!("{of}: {}", chain(&error)));
        databases.src(&format!("insert into {table} values ({later})"));
        databases.runtime.block_on(copy.run(&databases, "load-2")).unwrap();
        let all = format!("select string_agg(c::text, '|' order by c) from {table}");
        assert_eq!(databases.dst(&all), databases.src(&all), "{of}");
    }
}

#[test]
fn every_session_has_the_same_settings_and_keeps_a_stronger_commit() {
    let Some(databases) = Databases::new() else { return };
    databases.src(EVIL);
    let port = databases.pg.port();
    role(&databases, "plain", "superuser", &[]);
    role(&databases, "hostile", "superuser", HOSTILE);
    let shown = |user: &str| {
        let settings = ServerSettings {
            port,
            database: Some("src".to_owned()),
            user: user.to_owned(),
            ..ServerSettings::default()
        };
        databases.runtime.block_on(async {
            let client = connect::Server::new(&settings).unwrap().connect().await.unwrap();
            let mut shown = Vec::new();
            for (setting, _) in HOSTILE.iter().filter(|(name, _)| {
                // They change no value.
                !["escape_string_warning", "jit_above_cost"].contains(name)
            }) {
                let row = client.query_one(&format!("show {setting}"), &[]).await.unwrap();
                shown.push(format!("{setting} = {}", row.get::<_, String>(0)));
            }
            shown
        })
    };
    let (plain, hostile) = (shown("plain"), shown("hostile"));
    assert_eq!(plain, hostile);
    assert!(hostile.contains(&"synchronous_commit = on".to_owned()), "{hostile:?}");
    assert!(hostile.contains(&"session_replication_role = origin".to_owned()), "{hostile:?}");
    databases
        .pg
        .query("alter role hostile in database src set synchronous_commit = 'remote_apply'");
    databases.pg.query("alter role hostile set synchronous_commit = 'remote_apply'");
    assert!(shown("hostile").contains(&"synchronous_commit = remote_apply".to_owned()));
}

#[test]
fn a_setting_that_the_role_may_not_change_back_refuses_the_connection() {
    let Some(databases) = Databases::new() else { return };
    databases.src("create table t (id int); insert into t values (1)");
    role(&databases, "writer", "", &[("session_replication_role", "'replica'")]);
    databases.pg.query("grant create on database dst to writer");
    let copy = by(Copy::new(json!({ "name": "t" }), "s.t", json!({})), "postgres", "writer");
    let refused = databases.runtime.block_on(copy.run(&databases, "load-1")).unwrap_err();
    let refused = chain(&refused);
    assert!(refused.contains("session_replication_role"), "{refused}");
    assert_eq!(databases.dst("select to_regclass('s.t') is null"), "t");
}

#[test]
fn a_read_only_default_is_respected_where_rows_are_written() {
    let Some(databases) = Databases::new() else { return };
    databases.src("create table t (id int); insert into t values (1)");
    role(&databases, "writer", "superuser", &[("default_transaction_read_only", "on")]);
    let copy = by(Copy::new(json!({ "name": "t" }), "t", json!({})), "postgres", "writer");
    let refused = databases.runtime.block_on(copy.run(&databases, "load-1")).unwrap_err();
    assert!(refused.is_retryable(), "{}", chain(&refused));
    assert!(chain(&refused).contains("read-only transaction"), "{}", chain(&refused));
    assert_eq!(databases.dst("select to_regclass('t') is null"), "t");
}

#[test]
fn a_role_that_a_role_is_set_to_owns_what_is_created() {
    let Some(databases) = Databases::new() else { return };
    databases.src("create table t (id int); insert into t values (1)");
    databases.pg.query("create role owners; create role writer login in role owners");
    databases
        .pg
        .query("alter role writer set role = 'owners'; grant create on database dst to owners");
    let copy = by(Copy::new(json!({ "name": "t" }), "s.t", json!({})), "postgres", "writer");
    databases.runtime.block_on(copy.run(&databases, "load-1")).unwrap();
    let owner = "select pg_get_userbyid(relowner) from pg_class where oid = 's.t'::regclass";
    assert_eq!(databases.dst(owner), "owners");
}

/// Ways to read a table.
fn streams(table: &str) -> Vec<serde_json::Value> {
    vec![
        json!({ "name": table }),
        json!({ "name": table, "columns": ["id"] }),
        json!({ "name": table, "partition_key": "id" }),
        json!({ "name": table, "sync_mode": "incremental", "cursor_field": "id" }),
    ]
}

#[test]
fn rows_that_a_policy_hides_from_the_reader_are_an_error_and_never_missing() {
    let Some(databases) = Databases::new() else { return };
    databases.src(
        "create table t (id int primary key, g int generated always as (id) stored);
         insert into t select generate_series(1, 9);
         alter table t enable row level security; create policy p on t using (id < 5);
         create table part (id int) partition by range (id); create table part1 partition of part default;
         insert into part select generate_series(1, 9);
         alter table part enable row level security; create policy p on part using (id < 5);
         create table parent (id int); create table child () inherits (parent);
         insert into child select generate_series(1, 9);
         alter table parent enable row level security; create policy p on parent using (id < 5);
         create table hidden (id int); insert into hidden select generate_series(1, 9);
         alter table hidden enable row level security; create policy p on hidden using (id < 5);
         create role viewer; grant select on all tables in schema public to viewer; grant create on schema public to viewer;
         set role viewer; create view of_hidden as select * from hidden; reset role;",
    );
    role(&databases, "reader", "", &[("row_security", "on")]);
    role(&databases, "sees_all", "bypassrls", &[("row_security", "on")]);
    databases.src("grant select on all tables in schema public to reader, sees_all");
    for table in ["t", "part", "parent", "of_hidden"] {
        for (number, stream) in streams(table).into_iter().enumerate() {
            let into = format!("{table}{number}");
            let copy = Copy::new(stream.clone(), &into, json!({}));
            let copy = by(copy, "reader", "postgres");
            let refused = databases.runtime.block_on(copy.run(&databases, "load-1")).unwrap_err();
            let refused = chain(&refused);
            assert!(refused.contains("row-level security"), "{stream}: {refused}");
            if table == "of_hidden" {
                continue;
            }
            let copy = by(copy, "sees_all", "postgres");
            databases.runtime.block_on(copy.run(&databases, "load-2")).unwrap();
            assert_eq!(databases.dst(&format!("select count(*) from {into}")), "9", "{stream}");
        }
    }
}

#[test]
fn a_policy_of_the_destination_refuses_rows_and_hides_none() {
    let Some(databases) = Databases::new() else { return };
    databases.src(
        "create table t (id int primary key, v text); insert into t values (1, 'a'), (2, 'b');
         create table more (id int primary key, v text); insert into more values (1, 'c'), (9, 'd')",
    );
    databases.dst(
        "create table t (id int primary key, v text); alter table t enable row level security;
         create policy p on t using (id < 5) with check (id < 5); create schema forebay;",
    );
    role(&databases, "writer", "", &[("row_security", "off")]);
    databases.dst(
        "grant all on t to writer; grant create, temp on database dst to writer;
         grant all on schema forebay to writer",
    );
    let target = json!({ "write_mode": "upsert", "primary_key": ["id"] });
    let copy = by(Copy::new(json!({ "name": "t" }), "t", target.clone()), "postgres", "writer");
    databases.runtime.block_on(copy.run(&databases, "load-1")).unwrap();
    let all = "select string_agg(id || v, ' ' order by id) from t";
    assert_eq!(databases.dst(all), "1a 2b");
    let copy = by(Copy::new(json!({ "name": "more" }), "t", target), "postgres", "writer");
    let refused = databases.runtime.block_on(copy.run(&databases, "load-2")).unwrap_err();
    assert!(chain(&refused).contains("row-level security"), "{}", chain(&refused));
    assert_eq!(databases.dst(all), "1a 2b");
}

#[test]
fn money_keeps_its_value_under_any_locale_or_is_refused() {
    let Some(databases) = Databases::new() else { return };
    if !databases.pg.add_locale("ja_JP") || !databases.pg.add_locale("de_DE") {
        return;
    }
    databases.src(
        "create domain price as money;
         create table t (id int, v money, a money[], p price);
         insert into t values (1, -92233720368547758.08, array[1.23, null]::money[], 0.01);
         create view computed as select id, v, a, p, 0 as n from t",
    );
    databases.pg.query("create role yen superuser login; create role euro superuser login");
    databases.pg.query("alter role yen set lc_monetary = 'ja_JP.UTF-8'");
    databases.pg.query("alter role euro set lc_monetary = 'de_DE.UTF-8'");
    databases.dst(
        "create domain price as money; create table computed (id int, v money, a money[], p price,
         n int generated always as (id) stored)",
    );
    for (from, into) in [("t", "t"), ("computed", "computed")] {
        for (number, (reader, writer)) in
            [("yen", "euro"), ("euro", "yen"), ("yen", "yen")].into_iter().enumerate()
        {
            let copy = by(Copy::new(json!({ "name": from }), into, json!({})), reader, writer);
            let run = databases.runtime.block_on(copy.run(&databases, &format!("load-{number}")));
            let refused = chain(&run.unwrap_err());
            assert!(refused.contains("lc_monetary = \"ja_JP.UTF-8\""), "{refused}");
            assert!(refused.contains("\"v\""), "{refused}");
        }
        let copy = by(Copy::new(json!({ "name": from }), into, json!({})), "euro", "postgres");
        databases.runtime.block_on(copy.run(&databases, "load-9")).unwrap();
        let all = format!(
            "select v::numeric, a[1]::numeric, a[2] is null, p::money::numeric from {into}"
        );
        assert_eq!(databases.dst(&all), "-92233720368547758.08|1.23|t|0.01");
    }
}

#[test]
fn money_inside_other_values_is_refused_where_it_has_other_digits() {
    let Some(databases) = Databases::new() else { return };
    if !databases.pg.add_locale("ja_JP") {
        return;
    }
    databases.pg.query("create role yen superuser login");
    databases.pg.query("alter role yen set lc_monetary = 'ja_JP.UTF-8'");
    let types = "create type pair as (a int, m money); create domain pairs as pair[];
        create type span as range (subtype = money);
        create type deep as (p pairs, n int); create type harmless as (a int, t text)";
    databases.src(types);
    databases.dst(types);
    for (number, (of, value)) in [
        ("pair", "(1, 1.23)"),
        ("pair[]", "array[(1, 1.23)]::pair[]"),
        ("pairs", "array[(1, 1.23)]::pair[]"),
        ("span", "span(1.23::money, 2::money)"),
        ("span_multirange", "'{[1.23,2)}'"),
        ("deep", "(array[(1, 1.23)]::pair[], 2)"),
        ("harmless", "(1, 'money')"),
    ]
    .into_iter()
    .enumerate()
    {
        let table = format!("inner{number}");
        databases.src(&format!(
            "create table {table} (id int, v {of}); insert into {table} values (1, {value})"
        ));
        let run = |user: &'static str, load: &str| {
            let copy = by(Copy::new(json!({ "name": table }), &table, json!({})), user, user);
            databases.runtime.block_on(copy.run(&databases, load))
        };
        if of == "harmless" {
            run("yen", "load-1").unwrap();
            continue;
        }
        let refused = chain(&run("yen", "load-1").unwrap_err());
        assert!(refused.contains("lc_monetary") && refused.contains("\"v\""), "{of}: {refused}");
        run("postgres", "load-2").unwrap();
        assert_eq!(databases.dst(&format!("select v = {value}::{of} from {table}")), "t", "{of}");
    }
}

#[test]
fn rows_that_a_trigger_leaves_out_are_an_error_in_every_mode() {
    let Some(databases) = Databases::new() else { return };
    databases
        .src("create table t (id int, v text); insert into t values (1, 'a'), (2, 'b'), (2, 'c')");
    databases.dst(
        "create function leave_out() returns trigger language plpgsql as 'begin return null; end'",
    );
    let upsert = |more: serde_json::Value| {
        let mut all = json!({ "write_mode": "upsert", "primary_key": ["id"] });
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        all
    };
    let modes = [
        json!({}),
        json!({ "load_method": "insert" }),
        json!({ "on_data_error": "skip" }),
        upsert(json!({})),
        upsert(json!({ "on_data_error": "dlq" })),
    ];
    for (number, target) in modes.into_iter().enumerate() {
        let into = format!("t{number}");
        databases.dst(&format!(
            "create table {into} (id int {}, v text);
             create trigger leaves before insert on {into} for each row when (new.id = 1) execute function leave_out()",
            if target.get("primary_key").is_some() { "primary key" } else { "" }
        ));
        let copy = Copy::new(json!({ "name": "t" }), &into, target.clone());
        let refused = databases.runtime.block_on(copy.run(&databases, "load-1")).unwrap_err();
        let refused = chain(&refused);
        assert!(refused.contains("the server stored"), "{target}: {refused}");
        assert_eq!(databases.dst(&format!("select count(*) from {into}")), "0", "{target}");
        databases.dst(&format!("drop trigger leaves on {into}"));
        databases.runtime.block_on(copy.run(&databases, "load-2")).unwrap();
        let expected = if target.get("primary_key").is_some() { "1a 2c" } else { "1a 2b 2c" };
        let all = format!("select string_agg(id || v, ' ' order by id, v) from {into}");
        assert_eq!(databases.dst(&all), expected, "{target}");
    }
}
