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
