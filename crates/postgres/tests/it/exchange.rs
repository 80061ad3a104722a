//! `replace` where rows stay, because others refer to them, and exchange unique values.

use crate::copying::{Copy, Databases, chain};

/// Rows of `t`, which refer to nothing, and those that they become: a pair, a chain and a ring.
const BEFORE: &str =
    "(1, 'a'), (2, 'b'), (3, 'c'), (4, 'd'), (5, 'e'), (6, 'f'), (7, 'g'), (8, null)";
const AFTER: &str =
    "(1, 'b'), (2, 'a'), (3, 'd'), (4, 'new'), (5, 'f'), (6, 'g'), (7, 'e'), (8, 'h')";
const ROWS: &str = "1b 2a 3d 4new 5f 6g 7e 8h";

fn databases() -> Option<Databases> {
    let databases = Databases::new()?;
    databases
        .src(&format!("create table t (id int primary key, v text); insert into t values {AFTER}"));
    Some(databases)
}

fn replace(databases: &Databases, load: &str) -> Result<(), String> {
    let run = databases.runtime.block_on(Copy::replace("t").run(databases, load));
    run.map(drop).map_err(|error| chain(&error))
}

fn rows(databases: &Databases) -> String {
    databases.dst("select string_agg(id || v, ' ' order by id) from t")
}

/// What is known of the indexes of `t`, without their identity.
const INDEXES: &str = "
select string_agg(concat_ws(' ', c.relname, pg_get_indexdef(c.oid), k.conname, pg_get_constraintdef(k.oid),
                            obj_description(c.oid, 'pg_class'), obj_description(k.oid, 'pg_constraint'),
                            i.indisclustered), '; ' order by c.relname)
from pg_index i join pg_class c on c.oid = i.indexrelid
left join pg_constraint k on k.conindid = c.oid and k.conrelid = i.indrelid and k.contype <> 'f'
where i.indrelid = 't'::regclass";

#[test]
fn rows_exchange_values_of_every_kind_of_unique_index_and_keep_what_refers_to_them() {
    let Some(databases) = databases() else { return };
    for (name, unique) in [
        (
            "constraint",
            "alter table t add constraint \"Once\" unique (v); comment on constraint \"Once\" on t is 'kept'",
        ),
        (
            "index",
            "create unique index \"on v\" on t (v) include (id) with (fillfactor = 70); comment on index \"on v\" is 'kept'",
        ),
        ("expression", "create unique index on t (lower(v)) where id < 100"),
        ("exclusion", "alter table t add constraint apart exclude using btree (v with =)"),
        ("nulls", "alter table t add unique nulls not distinct (v)"),
        (
            "several",
            "create unique index one on t (v); create unique index two on t ((v || '!')); cluster t using one; \
                     alter table t add constraint three unique (v); create index four on t (v)",
        ),
        ("deferrable", "alter table t add unique (v) deferrable"),
    ] {
        databases.dst(&format!(
            "drop table if exists t cascade; drop table if exists cascades, strict, late;
             create table t (id int primary key, v text); insert into t values {BEFORE}, (99, 'gone'); {unique};
             create table cascades (id int references t on delete cascade on update cascade);
             create table strict (id int references t on delete restrict);
             create table late (id int references t deferrable initially deferred);
             insert into cascades select id from t; insert into strict select id from t where id < 9;
             insert into late select id from strict"
        ));
        let before = databases.dst(INDEXES);
        replace(&databases, name).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(rows(&databases), ROWS, "{name}");
        assert_eq!(databases.dst(INDEXES), before, "{name}");
        for (table, count) in [("cascades", "8"), ("strict", "8"), ("late", "8")] {
            let counted = databases.dst(&format!("select count(*) from {table} join t using (id)"));
            assert_eq!(counted, count, "{name} {table}");
        }
    }
}

#[test]
fn an_index_is_created_again_only_if_rows_exchange_its_values() {
    let Some(databases) = databases() else { return };
    databases.dst(
        "create table t (id int primary key, v text unique); insert into t values (1, 'x'), (2, 'y');
         create unique index other on t ((id + 1)); create table refers (id int references t)",
    );
    let ids = "select string_agg(indexrelid::text, ' ' order by indexrelid) from pg_index where indrelid = 't'::regclass";
    let before = databases.dst(ids);
    replace(&databases, "load-1").unwrap();
    assert_eq!(databases.dst(ids), before);
    databases.src("update t set v = case id when 1 then 'a' else 'b' end where id < 3");
    replace(&databases, "load-2").unwrap();
    assert_eq!(databases.dst("select v from t where id = 1"), "a");
    let of = "select 'other'::regclass::oid || ' ' || 't_pkey'::regclass::oid";
    let kept = databases.dst(of);
    assert!(kept.split(' ').all(|id| before.contains(id)), "{kept}: {before}");
}

#[test]
fn rows_stay_by_the_key_that_others_refer_to() {
    let Some(databases) = databases() else { return };
    databases.src("delete from t where id > 2");
    databases.dst(
        "create table t (id int primary key, v text not null unique); insert into t values (1, 'a'), (2, 'b');
         create table refers (v text references t (v) on delete cascade on update cascade);
         insert into refers values ('a'), ('b'); comment on constraint t_pkey on t is 'kept'",
    );
    let unchanged = "select string_agg(ctid || ' ' || v, ', ' order by v) from refers";
    let before = (databases.dst(unchanged), databases.dst(INDEXES));
    replace(&databases, "load-1").unwrap();
    assert_eq!(rows(&databases), "1b 2a");
    assert_eq!((databases.dst(unchanged), databases.dst(INDEXES)), before);
}

#[test]
fn an_index_that_would_not_be_the_same_is_an_error_with_a_way_out_and_nothing_changes() {
    let Some(databases) = databases() else { return };
    databases.src("alter table t alter v set not null");
    for (name, setup, obstacle) in [
        (
            "two keys",
            "create table by_v (v text references t (v)); insert into by_v values ('a')",
            "foreign keys refer to it: public.by_v.by_v_v_fkey",
        ),
        (
            "identity",
            "alter table t alter v set not null; alter table t replica identity using index t_v_key",
            "replica identity of the table",
        ),
    ] {
        databases.dst(
            "drop table if exists t, by_v, refers cascade;
             create table t (id int primary key, v text unique); insert into t values (1, 'a'), (2, 'b');
             create table refers (id int references t); insert into refers values (1), (2)",
        );
        databases.dst(setup);
        let before = databases.dst(INDEXES);
        let error = replace(&databases, name).unwrap_err();
        assert!(error.contains(obstacle) && error.contains("exchange values"), "{name}: {error}");
        assert!(error.contains("after the run"), "{name}: {error}");
        assert_eq!(rows(&databases), "1a 2b", "{name}");
        assert_eq!(databases.dst(INDEXES), before, "{name}");
    }
}

#[test]
fn rows_of_a_partition_that_exchange_values_are_an_error_that_says_so() {
    let Some(databases) = databases() else { return };
    databases.src("drop table t; create table t (part int, id int, v text); insert into t values (1, 1, 'b'), (1, 2, 'a')");
    databases.dst(
        "create table t (part int, id int, v text, primary key (part, id), unique (part, v)) partition by list (part);
         create table t1 partition of t for values in (1); insert into t values (1, 1, 'a'), (1, 2, 'b');
         create table refers (part int, id int, foreign key (part, id) references t); insert into refers values (1, 1)",
    );
    let error = replace(&databases, "load-1").unwrap_err();
    assert!(error.contains("exchange values") && error.contains("one of a partition"), "{error}");
    assert_eq!(rows(&databases), "1a 2b");
}

#[test]
fn rows_with_equal_values_are_an_error_and_nothing_changes() {
    let Some(databases) = databases() else { return };
    databases.src("update t set v = 'a' where id = 1");
    databases.dst(
        "create table t (id int primary key, v text unique); insert into t values (1, 'x'), (2, 'b');
         create table refers (id int references t); insert into refers values (1), (2)",
    );
    let before = databases.dst(INDEXES);
    let error = replace(&databases, "load-1").unwrap_err();
    assert!(error.contains("(v)=(a)"), "{error}");
    assert_eq!(rows(&databases), "1x 2b");
    assert_eq!(databases.dst(INDEXES), before);
}

#[test]
fn readers_of_a_table_wait_and_see_old_or_new_rows_with_their_indexes() {
    let Some(databases) = databases() else { return };
    databases.dst(&format!(
        "create table t (id int primary key, v text unique); insert into t values {BEFORE};
         create table refers (id int references t); insert into refers values (1)"
    ));
    let seen = "select string_agg(id || coalesce(v, ''), ' ' order by id) || (select count(*) from pg_index where indrelid = 't'::regclass) from t";
    let old = databases.dst(seen);
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let mut all = std::collections::BTreeSet::new();
            while !done.load(std::sync::atomic::Ordering::SeqCst) {
                all.insert(databases.dst(seen));
            }
            all
        });
        let run = replace(&databases, "load-1");
        done.store(true, std::sync::atomic::Ordering::SeqCst);
        run.unwrap();
        let new = databases.dst(seen);
        for found in reading.join().unwrap() {
            assert!(found == old || found == new, "{found}");
        }
    });
}
