//! `replace`: what belongs to a table stays with it, and its rows are replaced once.

use forebay_sdk::connector::Destination as _;
use forebay_sdk::run::Context;

use crate::copying::{self, Copy, Databases, chain};

/// The rows that every table gets.
const ROWS: &str = "1a 2b 3c";

fn databases() -> Option<Databases> {
    let databases = Databases::new()?;
    databases.src("create table t (id int primary key, v text); insert into t values (1, 'a'), (2, 'b'), (3, 'c')");
    Some(databases)
}

/// What belongs to a table: its name, how it comes to it, and the query that finds it.
const BELONGINGS: &[(&str, &str, &str)] = &[
    (
        "row_security",
        "alter table T enable row level security; create policy p on T using (id > 0)",
        "select relrowsecurity, (select polname from pg_policy where polrelid = c.oid) from pg_class c where oid = 'T'::regclass",
    ),
    (
        "triggers",
        "create trigger after_it after insert on T for each row execute function count_it(); \
         alter table T enable always trigger after_it",
        "select tgname, tgenabled from pg_trigger where tgrelid = 'T'::regclass",
    ),
    (
        "rules",
        "create rule kept as on update to T do also nothing",
        "select rulename from pg_rules where tablename = 'T'",
    ),
    (
        "publications",
        "create publication \"of T\" for table T",
        "select pubname, tablename from pg_publication_tables where tablename = 'T'",
    ),
    (
        "owner",
        "alter table T owner to other",
        "select tableowner from pg_tables where tablename = 'T'",
    ),
    (
        "column_grants",
        "grant select (id) on T to other",
        "select attacl from pg_attribute where attrelid = 'T'::regclass and attname = 'id'",
    ),
    (
        "grants",
        "grant select on T to public; grant insert on T to other with grant option",
        "select relacl from pg_class where oid = 'T'::regclass",
    ),
    (
        "withdrawn",
        "revoke delete on T from postgres; grant select on T to other",
        "select relacl from pg_class where oid = 'T'::regclass",
    ),
    (
        "comments",
        "comment on table T is 'of the table'; comment on column T.v is 'of a column'",
        "select obj_description('T'::regclass), col_description('T'::regclass, 2)",
    ),
    (
        "storage",
        "alter table T set (fillfactor = 70, toast.autovacuum_enabled = false)",
        "select c.reloptions, x.reloptions from pg_class c join pg_class x on x.oid = c.reltoastrelid where c.oid = 'T'::regclass",
    ),
    (
        "replica_identity",
        "alter table T replica identity full",
        "select relreplident from pg_class where oid = 'T'::regclass",
    ),
    (
        "indexes",
        "create index odd_T on T (v) where id > 0; create unique index on T (v, id); create index \"Another T\" on T (v, id)",
        "select indexname, indexdef from pg_indexes where tablename = 'T' order by 1",
    ),
    (
        "identity",
        "alter table T add n int generated always as identity (start with 100)",
        "select pg_get_serial_sequence('T', 'n'), min(n) >= 100 from T",
    ),
    (
        "serial",
        "alter table T add n serial",
        "select pg_get_serial_sequence('T', 'n'), min(n) >= 1 from T",
    ),
    (
        "computed",
        "alter table T add n int generated always as (id * 2) stored",
        "select attgenerated, (select bool_and(n = id * 2) from T) from pg_attribute where attrelid = 'T'::regclass and attname = 'n'",
    ),
    (
        "child",
        "create table parent_T (id int, v text); alter table T inherit parent_T",
        "select inhparent::regclass from pg_inherits where inhrelid = 'T'::regclass",
    ),
    (
        "parent",
        "create table child_T () inherits (T); insert into child_T values (50, 'theirs')",
        "select tableoid::regclass, v from T where id = 50",
    ),
    (
        "view",
        "create view view_T as select v from T where id > 0; create materialized view m_T as select 1 from T",
        "select pg_get_viewdef('view_T'), pg_get_viewdef('m_T')",
    ),
    (
        "function",
        "create function of_T() returns bigint begin atomic select count(*) from T; end",
        "select pg_get_functiondef('of_T'::regproc)",
    ),
    (
        "row_type",
        "create table uses_T (x T); create function takes_T(x T) returns int language sql as 'select 1'",
        "select atttypid::regtype from pg_attribute where attrelid = 'uses_T'::regclass and attnum = 1",
    ),
    (
        "referenced",
        "create table ref_T (id int references T on delete cascade); insert into ref_T values (1)",
        "select conname, (select count(*) from ref_T) from pg_constraint where confrelid = 'T'::regclass",
    ),
    (
        "references_others",
        "create table other_T (id int primary key); insert into other_T select generate_series(1, 99); \
         alter table T add foreign key (id) references other_T",
        "select conname, pg_get_constraintdef(oid) from pg_constraint where conrelid = 'T'::regclass and contype = 'f'",
    ),
    (
        "unlogged",
        "alter table T set unlogged",
        "select relpersistence from pg_class where oid = 'T'::regclass",
    ),
    (
        "statistics",
        "alter table T alter v set statistics 500; create statistics s_T on id, v from T",
        "select attstattarget, (select stxname from pg_statistic_ext where stxrelid = attrelid) from pg_attribute \
         where attrelid = 'T'::regclass and attname = 'v'",
    ),
    (
        "clustered",
        "create index i_T on T (v); cluster T using i_T",
        "select indisclustered from pg_index where indexrelid = 'i_T'::regclass",
    ),
    (
        "checks",
        "alter table T add constraint positive check (id > 0) not valid",
        "select conname, convalidated from pg_constraint where conrelid = 'T'::regclass and contype = 'c'",
    ),
];

#[test]
fn what_belongs_to_a_table_stays_with_it() {
    let Some(databases) = databases() else { return };
    databases.dst(
        "create role other; create function count_it() returns trigger language plpgsql as 'begin return null; end'",
    );
    for (name, setup, found) in BELONGINGS {
        let of = |sql: &str| sql.replace('T', name);
        databases.dst(&of("create table T (id int primary key, v text); insert into T values (1, 'old'), (99, 'gone')"));
        databases.dst(&of(setup));
        let before = databases.dst(&of(found));
        for load in ["load-1", "load-2"] {
            let load = format!("{name}-{load}");
            let run = databases.runtime.block_on(Copy::replace(name).run(&databases, &load));
            run.unwrap_or_else(|error| panic!("{name}: {}", chain(&error)));
            let rows = "select string_agg(id || v, ' ' order by id) from only T";
            assert_eq!(databases.dst(&of(rows)), ROWS, "{name}");
            assert_eq!(databases.dst(&of(found)), before, "{name}");
        }
    }
    let left =
        "select count(*) from pg_class where relname like '%\\_forebay\\_%' and relkind = 'r'";
    assert_eq!(databases.dst(left), "0");
}

#[test]
fn a_partitioned_table_stays_one_and_is_read_back() {
    let Some(databases) = databases() else { return };
    databases.dst(
        "create table p (id int, v text) partition by range (id);
         create table p1 partition of p for values from (0) to (2); create table p2 partition of p default;
         insert into p values (1, 'old'), (99, 'gone')",
    );
    let copy = Copy::replace("p");
    databases.runtime.block_on(copy.run(&databases, "load-1")).unwrap();
    let rows = "select string_agg(tableoid::regclass || ' ' || id || v, ', ' order by id) from p";
    assert_eq!(databases.dst(rows), "p1 1a, p2 2b, p2 3c");
    databases.runtime.block_on(async {
        let (context, _cancel) = Context::new("test");
        let (_, target) = copy.open(&databases, &context).await.unwrap();
        assert_eq!(target.content().await.unwrap().rows, 3);
    });
}

#[test]
fn the_plan_says_what_a_swap_would_lose() {
    let Some(databases) = databases() else { return };
    databases.dst(
        "create table plain (id int primary key, v text); create table seen (id int primary key, v text);
         create view a_view as select * from seen; create policy mine on seen using (true)",
    );
    let plan = |into: &str| {
        databases.runtime.block_on(async {
            let (context, _cancel) = Context::new("test");
            let (_, target) = Copy::replace(into).open(&databases, &context).await.unwrap();
            target.plan().join("\n")
        })
    };
    let swapped = plan("plain");
    assert!(swapped.contains("drop table") && swapped.contains("rename to"), "{swapped}");
    let refilled = plan("seen");
    for part in [
        "policies (mine)",
        "view public.a_view",
        "truncate only",
        "insert into \"public\".\"seen\"",
    ] {
        assert!(refilled.contains(part), "{part}: {refilled}");
    }
    assert!(!refilled.contains("rename to"), "{refilled}");
}

#[test]
fn rows_that_others_refer_to_are_changed_in_place() {
    let Some(databases) = databases() else { return };
    databases.src("alter table t add j json; update t set j = '{\"a\": 1}'; update t set j = null where id = 3");
    databases.dst(
        "create table t (id int primary key, v text, j json, own text default 'default');
         insert into t values (1, 'a', '{\"a\": 1}', 'kept'), (2, 'old', '{\"a\":  1}', 'kept'), (99, 'gone', null, null);
         create table cascades (id int references t on delete cascade on update cascade);
         insert into cascades values (1), (2), (99); create table strict (id int references t);
         insert into strict values (1), (2)",
    );
    let unchanged = "select ctid, xmin from t where id = 1";
    let before = databases.dst(unchanged);
    databases.runtime.block_on(Copy::replace("t").run(&databases, "load-1")).unwrap();
    assert_eq!(databases.dst(unchanged), before, "a row that is the same is not written");
    assert_eq!(
        databases.dst("select string_agg(concat_ws(' ', id, v, j, own), ', ' order by id) from t"),
        "1 a {\"a\": 1} kept, 2 b {\"a\": 1} kept, 3 c default"
    );
    assert_eq!(databases.dst("select string_agg(id::text, ' ' order by id) from cascades"), "1 2");
    // A row that is gone and referred to is an error, and nothing is changed.
    databases.src("delete from t where id = 2");
    let run = databases.runtime.block_on(Copy::replace("t").run(&databases, "load-2"));
    let error = chain(&run.unwrap_err());
    assert!(error.contains("strict"), "{error}");
    assert_eq!(databases.dst("select count(*) from t"), "3");
    // So is a source without the key.
    let by_value = serde_json::json!({ "name": "t", "columns": ["v"] });
    let copy = Copy { stream: by_value, ..Copy::replace("t") };
    let error = chain(&databases.runtime.block_on(copy.run(&databases, "load-3")).unwrap_err());
    assert!(error.contains("foreign keys of other tables refer to (id)"), "{error}");
}

#[test]
fn columns_follow_the_source_also_in_a_table_that_is_refilled() {
    let Some(databases) = databases() else { return };
    databases.src("alter table t add extra text default 'e', alter id type bigint");
    databases.dst(
        "create table t (id int primary key, v text not null, gone int default 5); insert into t values (9, 'old');
         comment on table t is 'kept'",
    );
    let with = |evolution: serde_json::Value| {
        let target = serde_json::json!({ "write_mode": "replace", "schema_evolution": evolution });
        Copy { target, ..Copy::replace("t") }
    };
    let refused = databases.runtime.block_on(with(serde_json::json!({})).run(&databases, "load-1"));
    assert!(chain(&refused.unwrap_err()).contains("type_change"));
    let alter = with(serde_json::json!({ "type_change": "alter" }));
    databases.runtime.block_on(alter.run(&databases, "load-2")).unwrap();
    assert_eq!(
        databases
            .dst("select string_agg(concat_ws(' ', id, v, gone, extra), ', ' order by id) from t"),
        "1 a 5 e, 2 b 5 e, 3 c 5 e"
    );
    let types =
        "select string_agg(format_type(atttypid, atttypmod) || attnotnull, ' ' order by attnum)
                 from pg_attribute where attrelid = 't'::regclass and attnum > 0";
    assert_eq!(databases.dst(types), "biginttrue textfalse integerfalse textfalse");
}

#[test]
fn refused_rows_are_put_aside_also_for_a_table_that_is_refilled() {
    let Some(databases) = databases() else { return };
    databases.src(
        "alter table t drop constraint t_pkey; insert into t values (2, 'twice'), (-1, 'negative')",
    );
    databases.dst(
        "create table t (id int primary key check (id > 0), v text, n int generated always as (id) stored,
                         d int not null default 7, check (n < 1000));
         create view seen as select * from t",
    );
    let target = serde_json::json!({ "write_mode": "replace", "on_data_error": "dlq" });
    let copy = Copy { target, ..Copy::replace("t") };
    databases.runtime.block_on(copy.run(&databases, "load-1")).unwrap();
    assert_eq!(databases.dst("select string_agg(id || v, ' ' order by id) from seen"), ROWS);
    assert_eq!(databases.dst("select count(*) from t_dead_letters"), "2");
}

#[test]
fn rows_that_a_trigger_leaves_out_are_an_error_and_nothing_changes() {
    let Some(databases) = databases() else { return };
    databases.dst(
        "create table t (id int primary key, v text); insert into t values (9, 'old');
         create function skips() returns trigger language plpgsql as 'begin if new.id = 2 then return null; end if; return new; end';
         create trigger skips before insert on t for each row execute function skips()",
    );
    let copy = Copy::replace("t");
    let error = chain(&databases.runtime.block_on(copy.run(&databases, "load-1")).unwrap_err());
    assert!(error.contains("would have 2 rows instead of 3"), "{error}");
    assert_eq!(databases.dst("select id || v from t"), "9old");
}

#[test]
fn a_role_that_does_not_see_all_rows_is_refused() {
    let Some(databases) = databases() else { return };
    databases.dst(
        "create role limited login; grant create on database dst to limited; grant all on schema public to limited;
         create table t (id int primary key, v text); insert into t values (9, 'old'); grant all on t to limited;
         alter table t enable row level security; create policy few on t using (id < 3);
         create table refers (id int references t)",
    );
    let copy = Copy { user: "limited", ..Copy::replace("t") };
    let error = chain(&databases.runtime.block_on(copy.run(&databases, "load-1")).unwrap_err());
    assert!(error.contains("row-level security"), "{error}");
    assert_eq!(databases.dst("select id || v from t"), "9old");
}

/// What makes a table one that is swapped, refilled, and changed in place.
const KINDS: [(&str, &str); 3] = [
    ("swapped", "select"),
    ("refilled", "create view view_T as select * from T"),
    ("referenced", "create table ref_T (id int references T); insert into ref_T values (1)"),
];

#[test]
fn a_load_whose_end_fails_changes_nothing_and_is_ended_by_the_next_run() {
    let Some(databases) = databases() else { return };
    for (name, setup) in KINDS {
        let of = |sql: &str| sql.replace('T', name);
        databases.dst(&of(
            "create table T (id int primary key, v text); insert into T values (1, 'old')",
        ));
        databases.dst(&of(setup));
        let copy = Copy::replace(name);
        // The ledger exists after the first load.
        databases.runtime.block_on(copy.run(&databases, &format!("{name}-1"))).unwrap();
        databases.src("update t set v = v || '!'");
        databases.dst(
            "create or replace function cut() returns trigger language plpgsql as 'begin raise exception ''cut''; end';
             create trigger cut before update on forebay.pipeline_loads for each row execute function cut()",
        );
        for _ in 0..2 {
            let failed = match databases
                .dst("select count(*) from forebay.pipeline_loads where finished_at is null")
                .as_str()
            {
                "0" => {
                    databases.runtime.block_on(copy.run(&databases, &format!("{name}-2"))).map(drop)
                }
                _ => databases.runtime.block_on(copy.end(&databases)),
            };
            assert!(chain(&failed.unwrap_err()).contains("cut"));
            let rows = of("select string_agg(id || v, ' ' order by id) from T");
            assert_eq!(
                databases.dst(&rows),
                databases.src("select string_agg(id || left(v, -1), ' ' order by id) from t")
            );
        }
        databases.dst("drop trigger cut on forebay.pipeline_loads");
        databases.runtime.block_on(copy.end(&databases)).unwrap();
        let rows = of("select string_agg(id || v, ' ' order by id) from T");
        assert_eq!(
            databases.dst(&rows),
            databases.src("select string_agg(id || v, ' ' order by id) from t")
        );
    }
}

#[test]
fn a_server_killed_while_a_table_is_refilled_has_the_old_rows_and_then_the_new_ones() {
    let Some(databases) = databases() else { return };
    for (name, setup) in &KINDS[1..] {
        let of = |sql: &str| sql.replace('T', name);
        databases.dst(&of(
            "create table T (id int primary key, v text); insert into T values (1, 'old')",
        ));
        databases.dst(&of(setup));
        databases.dst(&of("create or replace function waits() returns trigger language plpgsql as
             'begin perform pg_advisory_xact_lock(4711); return null; end';
             create trigger waits after insert on T for each statement execute function waits()"));
        let mut holder = databases.pg.session("dst");
        writeln(
            &mut holder,
            "begin; select pg_advisory_xact_lock(4711); set application_name = 'holder';",
        );
        let count =
            |of: &str| databases.dst(&format!("select count(*) from pg_stat_activity where {of}"));
        while count("application_name = 'holder'") == "0" {}
        let copy = Copy::replace(name);
        std::thread::scope(|scope| {
            let running = scope
                .spawn(|| databases.runtime.block_on(copy.run(&databases, &format!("{name}-1"))));
            while count("application_name = 'forebay' and wait_event = 'advisory'") == "0" {
                assert!(!running.is_finished(), "it waits");
            }
            databases.pg.kill();
            assert!(running.join().unwrap().is_err());
        });
        holder.wait().unwrap();
        databases.pg.start_again();
        assert_eq!(databases.dst(&of("select id || v from T")), "1old");
        databases.dst(&of("drop trigger waits on T"));
        databases.runtime.block_on(copy.end(&databases)).unwrap();
        let rows = of("select string_agg(id || v, ' ' order by id) from T");
        assert_eq!(databases.dst(&rows), ROWS);
    }
}

fn writeln(session: &mut std::process::Child, statement: &str) {
    use std::io::Write as _;
    let input = session.stdin.as_mut().unwrap();
    writeln!(input, "{statement}").unwrap();
    input.flush().unwrap();
}

#[test]
fn a_staging_table_is_not_published_and_its_load_starts_over_if_the_server_loses_it() {
    let Some(databases) = databases() else { return };
    databases.dst(
        "create table t (id int primary key, v text); insert into t values (9, 'old');
         create publication everything for all tables",
    );
    let copy = Copy::replace("t");
    let (context, _cancel) = Context::new("test");
    databases.runtime.block_on(async {
        let (stream, target) = copy.open(&databases, &context).await.unwrap();
        let load = copying::load("load-1", &*stream);
        target.prepare(&load).await.unwrap();
        let published = "select string_agg(tablename, ' ') from pg_publication_tables where schemaname = 'public'";
        assert_eq!(databases.dst(published), "t");
        let written = copying::unit(&stream, &target, &load, 0, &context).await.unwrap();
        written.commit(copy.entry(&load, 0)).await.unwrap();
    });
    let entries = || {
        let destination = databases.destination("postgres");
        let last = databases.runtime.block_on(destination.last_load(&copy.settings())).unwrap();
        last.map(|(load, entries)| (load.id, entries.len()))
    };
    assert_eq!(entries(), Some(("load-1".to_owned(), 1)));
    databases.pg.kill();
    databases.pg.start_again();
    assert_eq!(entries(), Some(("load-1".to_owned(), 0)), "its rows are lost");
    databases.runtime.block_on(copy.run(&databases, "load-2")).unwrap();
    assert_eq!(databases.dst("select string_agg(id || v, ' ' order by id) from t"), ROWS);
    // As if someone had removed it.
    databases.dst("drop publication everything; comment on table t is 'kept'");
    databases.runtime.block_on(async {
        let (stream, target) = copy.open(&databases, &context).await.unwrap();
        let load = copying::load("load-3", &*stream);
        target.prepare(&load).await.unwrap();
        let written = copying::unit(&stream, &target, &load, 0, &context).await.unwrap();
        written.commit(copy.entry(&load, 0)).await.unwrap();
    });
    assert_eq!(entries(), Some(("load-3".to_owned(), 1)));
    databases.dst("drop table \"t_forebay_load-3\"");
    assert_eq!(entries(), Some(("load-3".to_owned(), 0)));
}

#[test]
fn generated_columns_are_compared_though_they_are_not_written() {
    let Some(databases) = databases() else { return };
    let table = "(id int, n int generated always as (id * 2) stored)";
    databases.src(&format!("create table g {table}; insert into g values (1), (2)"));
    databases.dst(&format!("create table generates {table}"));
    let content = |into: &str| {
        let copy = Copy::new(serde_json::json!({ "name": "g" }), into, serde_json::json!({}));
        databases.runtime.block_on(async {
            copy.run(&databases, &format!("{into}-1")).await.unwrap();
            let (context, _cancel) = Context::new("test");
            let (_, target) = copy.open(&databases, &context).await.unwrap();
            target.content().await.unwrap()
        })
    };
    let (generated, plain) = (content("generates"), content("plain"));
    assert_eq!(generated.rows, 2);
    assert_eq!(generated, plain);
    assert_eq!(databases.dst("select sum(n) from generates"), "6");
}
