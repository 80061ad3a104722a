//! Rows that an upsert cannot find again, and columns that a destination has with another type.

use serde_json::json;

use crate::copying::{Copy, Databases, chain};

/// Rows of which two have no key.
const ROWS: &str = "create table t (id int, v text); \
                    insert into t values (1, 'a'), (1, 'b'), (2, 'c'), (null, 'n'), (null, 'm')";

fn upsert(more: &serde_json::Value) -> serde_json::Value {
    let mut all = json!({ "write_mode": "upsert", "primary_key": ["id"] });
    all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    all
}

#[test]
fn a_null_in_the_key_of_an_upsert_is_refused_and_nothing_is_written() {
    let Some(databases) = Databases::new() else { return };
    databases.src(ROWS);
    for (number, more) in [json!({}), json!({ "load_method": "insert" })].into_iter().enumerate() {
        let into = format!("t{number}");
        databases.dst(&format!("create table {into} (id int unique, v text)"));
        let copy = Copy::new(json!({ "name": "t" }), &into, upsert(&more));
        let refused = databases.runtime.block_on(copy.run(&databases, "load-1")).unwrap_err();
        let refused = chain(&refused);
        assert!(refused.contains("NOT NULL constraint failed: "), "{refused}");
        assert!(refused.contains(".id; a row without a value in `primary_key`"), "{refused}");
        assert_eq!(databases.dst(&format!("select count(*) from {into}")), "0", "{more}");
    }
}

#[test]
fn rows_with_a_null_in_the_key_of_an_upsert_are_set_aside_or_skipped_by_every_run() {
    let Some(databases) = Databases::new() else { return };
    databases.src(ROWS);
    for (number, (on_data_error, method, dead)) in
        [("dlq", "copy", "2"), ("dlq", "insert", "2"), ("skip", "copy", "0")]
            .into_iter()
            .enumerate()
    {
        let into = format!("t{number}");
        databases.dst(&format!("create table {into} (id int unique, v text)"));
        let more = json!({ "on_data_error": on_data_error, "load_method": method });
        let copy = Copy::new(json!({ "name": "t" }), &into, upsert(&more));
        for load in ["load-1", "load-2"] {
            databases.runtime.block_on(copy.run(&databases, load)).unwrap();
            let all = format!("select string_agg(concat(id, v), ' ' order by id) from {into}");
            assert_eq!(databases.dst(&all), "1b 2c", "{more}");
        }
        if dead != "0" {
            let table = "select string_agg(\"row\"->>'v', ' ' order by \"row\"->>'v') from ";
            let letters = databases.dst(&format!(
                "select table_schema || '.' || table_name from information_schema.tables \
                 where table_name like '{into}%dead%'"
            ));
            let letters = databases.dst(&format!(
                "{table} {letters} where error like 'NOT NULL constraint failed: %'"
            ));
            assert_eq!(letters, "m m n n", "{more}");
        }
    }
}

#[test]
fn a_domain_that_the_destination_lacks_is_compared_with_what_it_is_made_of() {
    let Some(databases) = Databases::new() else { return };
    databases.src(
        "create schema s1; create domain s1.dnum as numeric(10,3) check (value > 0); \
         create domain s1.dtext as varchar(5); create domain s1.dtime as timestamp(0); \
         create table t (id int, n s1.dnum, x s1.dtext, at s1.dtime, many s1.dnum[]); \
         insert into t values (1, 1.125, 'ab', '2024-01-02 03:04:05', '{2.5,3.125}')",
    );
    let append = json!({ "write_mode": "append" });
    let copy = Copy::new(json!({ "name": "t" }), "t", append.clone());
    for load in ["load-1", "load-2"] {
        databases.runtime.block_on(copy.run(&databases, load)).unwrap_or_else(|error| {
            panic!("{load}: {}", chain(&error));
        });
    }
    let rows = "select string_agg(t::text, ' ') from t";
    let row = databases.src(rows);
    assert_eq!(databases.dst(rows), format!("{row} {row}"));
    // A table with less room is refused as before.
    databases
        .dst("create table less (id int, n numeric(9,3), x text, at timestamp, many numeric[])");
    let copy = Copy::new(json!({ "name": "t" }), "less", append.clone());
    let refused = databases.runtime.block_on(copy.run(&databases, "load-1")).unwrap_err();
    assert!(chain(&refused).contains("is numeric(9,3), but s1.dnum in the source"), "{refused}");
    databases.dst(
        "create table more (id int, n numeric(12,3), x text, at timestamp, many numeric(10,3)[])",
    );
    let copy = Copy::new(json!({ "name": "t" }), "more", append);
    databases.runtime.block_on(copy.run(&databases, "load-1")).unwrap();
    assert_eq!(databases.dst("select string_agg(t::text, ' ') from more t"), row);
}
