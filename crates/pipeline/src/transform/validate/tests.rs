//! Rules: which rows keep them, and what happens with those that do not.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use forebay_pgcopy::{Column, Wire};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::values::types;

use crate::transform::testing::{Memory, batch, column, only, read, rows};

fn columns() -> Vec<Column> {
    vec![
        column("id", Wire::Int8, "bigint"),
        column("email", Wire::Text, "text"),
        column("amount", Wire::Decimal { precision: 10, scale: 2 }, "numeric(10,2)"),
    ]
}

fn orders() -> Memory {
    Memory::of(
        columns(),
        &[
            r#"[1, "ann@example.org", 10.00]"#,
            r#"[null, "bob@example.org", 20.00]"#,
            r#"[3, "carol", 30.00]"#,
            r#"[4, null, 1000.01]"#,
            r#"[1, "dan@example.org", null]"#,
        ],
    )
}

const RULES: &str = "rules: [{ not_null: id }, { regex: { column: email, pattern: '@' } }, \
     { range: { column: amount, min: 1, max: 1000 } }, { unique: { columns: id } }]";

#[tokio::test]
async fn rows_that_break_a_rule_are_skipped_and_counted() {
    let yaml = format!("- validate: {{ on_failure: skip, {RULES} }}");
    let stream = only(&yaml, orders()).await.unwrap();
    let read = read(&stream, 0).await;
    read.result.unwrap();
    assert_eq!(rows(stream.columns(), &read.batches), [r#"[1,"ann@example.org",10.00]"#]);
    assert!(read.dead.is_empty());
    let moved = &read.context.moved;
    assert_eq!(read.context.skipped(), 4);
    assert_eq!(moved.rows_read.load(Ordering::Relaxed), 5);
}

#[tokio::test]
async fn rows_that_break_a_rule_are_put_aside_with_the_first_reason_and_the_row() {
    let yaml = format!("- validate: {{ on_failure: dlq, {RULES} }}");
    let stream = only(&yaml, orders()).await.unwrap();
    let read = read(&stream, 0).await;
    read.result.unwrap();
    let reasons: Vec<&str> = read.dead.iter().map(|dead| dead.reason.as_str()).collect();
    assert_eq!(
        reasons,
        [
            r#""id" is NULL"#,
            r#""email" is "carol", which does not match @"#,
            r#""amount" is 1000.01, not in 1 to 1000"#,
            r#""id" 1 is there already: t, unit 0, row 1"#,
        ]
    );
    assert_eq!(read.dead[1].position, "t, unit 0, row 3");
    assert_eq!(read.dead[1].row, r#"{"id":3,"email":"carol","amount":30.00}"#);
    assert_eq!(read.context.skipped(), 0, "who writes them counts");
}

#[tokio::test]
async fn a_row_that_breaks_a_rule_ends_the_run_and_is_named() {
    let yaml = format!("- validate: {{ {RULES} }}");
    let first = batch(&columns(), &[r#"[7, "x@y", 1.00]"#]);
    let second = batch(&columns(), &[r#"[8, "x@y", 1.00]"#, r#"[9, "x@y", 0.99]"#]);
    let memory = Memory::new(columns(), vec![vec![first, second]]);
    let ended = Arc::clone(&memory.ended);
    let stream = only(&yaml, memory).await.unwrap();
    let read = read(&stream, 0).await;
    let ConnectorError::Data { place, found } = read.result.unwrap_err() else { panic!() };
    assert_eq!(place, "t, unit 0, row 3");
    assert_eq!(found, r#""amount" is 0.99, not in 1 to 1000"#);
    assert_eq!(ended.load(Ordering::Relaxed), 1, "the stream below was stopped and ended");
}

#[tokio::test]
async fn values_that_are_masked_later_are_not_shown() {
    let yaml = "
- validate: { on_failure: dlq, rules: [{ regex: { column: email, pattern: '@' } }] }
- mask: { columns: { email: redact } }";
    let stream = only(yaml, orders()).await.unwrap();
    let read = read(&stream, 0).await;
    read.result.unwrap();
    assert_eq!(read.dead[0].reason, r#""email" is ***, which does not match @"#);
    assert_eq!(read.dead[0].row, r#"{"id":3,"email":"***","amount":30.00}"#);
}

#[tokio::test]
async fn spaces_that_pad_a_text_are_not_compared() {
    let padded = types::column("code", "char(4)").unwrap();
    let yaml = "- validate: { on_failure: skip, rules: [{ enum: { column: code, values: [ab] } }, \
                { regex: { column: code, pattern: '^[a-z]+$' } }] }";
    let memory = Memory::of(vec![padded], &[r#"["ab  "]"#, r#"["abc "]"#]);
    let stream = only(yaml, memory).await.unwrap();
    let read = read(&stream, 0).await;
    read.result.unwrap();
    assert_eq!(rows(stream.columns(), &read.batches), [r#"["ab  "]"#]);
}

#[tokio::test]
async fn duplicates_are_found_in_other_units_and_a_unit_can_be_read_again() {
    let yaml = "- validate: { on_failure: skip, rules: [{ unique: { columns: [id, email] } }] }";
    let one = batch(&columns(), &[r#"[1, "a", null]"#, r#"[1, "b", null]"#, r#"[1, null, 1]"#]);
    let two = batch(&columns(), &[r#"[1, "b", null]"#, r#"[2, "a", null]"#, r#"[1, null, 2]"#]);
    let stream = only(yaml, Memory::new(columns(), vec![vec![one], vec![two]])).await.unwrap();
    assert!(!stream.units_are_stable(), "a later run has not seen what this one has");
    for _ in 0..2 {
        let first = read(&stream, 0).await;
        assert_eq!(rows(stream.columns(), &first.batches).len(), 3);
        let second = read(&stream, 1).await;
        assert_eq!(
            rows(stream.columns(), &second.batches),
            [r#"[2,"a",null]"#, r#"[1,null,2.00]"#],
            "a row with a NULL in its key is like no other"
        );
    }
}

#[tokio::test]
async fn a_row_that_breaks_another_rule_does_not_stand_in_the_way_of_one_that_keeps_all() {
    let yaml = "- validate: { on_failure: skip, rules: [{ unique: { columns: id } }, { not_null: amount }] }";
    let memory = Memory::of(columns(), &[r#"[1, "a", null]"#, r#"[1, "b", 5.00]"#]);
    let stream = only(yaml, memory).await.unwrap();
    let read = read(&stream, 0).await;
    assert_eq!(rows(stream.columns(), &read.batches), [r#"[1,"b",5.00]"#]);
}

#[tokio::test]
async fn unique_keys_are_bounded_and_the_way_out_is_said() {
    let yaml = "- validate: { rules: [{ unique: { columns: id, memory: 4KiB } }] }";
    let many: Vec<String> = (0..1000).map(|id| format!("[{id}, null, null]")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let stream = only(yaml, Memory::of(columns(), &many)).await.unwrap();
    let error = read(&stream, 0).await.result.unwrap_err();
    assert!(error.to_string().contains("memory"), "{error}");
}

/// Which of the values keep a rule.
async fn kept(wire: Wire, sql_type: &str, rule: &str, values: &[&str]) -> Vec<String> {
    let rows_of: Vec<String> = values.iter().map(|value| format!("[{value}]")).collect();
    let rows_of: Vec<&str> = rows_of.iter().map(String::as_str).collect();
    let memory = Memory::of(vec![column("v", wire, sql_type)], &rows_of);
    let yaml = format!("- validate: {{ on_failure: skip, rules: [{rule}] }}");
    let stream = only(&yaml, memory).await.unwrap();
    let read = read(&stream, 0).await;
    read.result.unwrap();
    let rows = rows(stream.columns(), &read.batches);
    rows.iter().map(|row| row[1..row.len() - 1].to_owned()).collect()
}

#[tokio::test]
async fn ranges_hold_for_every_type_that_has_an_order() {
    let range = "{ range: { column: v, min: -1.5, max: 2.5 } }";
    let money = "{ range: { column: v, min: 0, max: 9 } }";
    let days = "{ range: { column: v, min: 2020-01-01, max: 2020-12-31 } }";
    let times = "{ range: { column: v, min: 2020-01-01 } }";
    for (wire, sql_type, rule, values, expected) in [
        (
            Wire::Float8,
            "double precision",
            range,
            &["-1.5", "-1.6", "0.0", "2.5", "2.6", r#""NaN""#, r#""Infinity""#, "null"][..],
            &["-1.5", "0.0", "2.5", "null"][..],
        ),
        (Wire::Float4, "real", "{ range: { column: v, min: 0 } }", &["-0.0", "-1.0"], &["-0.0"]),
        (
            Wire::Numeric,
            "numeric",
            range,
            &["-1.50", "-1.500000000000000000001", "2.5", r#""NaN""#, "100", "null"],
            &["-1.50", "2.5", "null"],
        ),
        (
            Wire::Decimal { precision: 50, scale: 1 },
            "numeric(50,1)",
            range,
            &["-1.5", "-1.6", "2.6"],
            &["-1.5"],
        ),
        (Wire::Int2, "smallint", money, &["-1", "0", "9", "10"], &["0", "9"]),
        (Wire::Oid, "oid", money, &["0", "9", "10"], &["0", "9"]),
        (
            Wire::Date,
            "date",
            days,
            &[r#""2019-12-31""#, r#""2020-02-29""#, r#""infinity""#],
            &[r#""2020-02-29""#],
        ),
        (
            Wire::TimestampTz,
            "timestamp with time zone",
            times,
            &[r#""2019-12-31T23:59:59Z""#, r#""2020-01-01T00:00:00Z""#],
            &[r#""2020-01-01T00:00:00Z""#],
        ),
    ] {
        let left = kept(wire, sql_type, rule, values).await;
        assert_eq!(left, expected, "{sql_type}");
    }
}

#[tokio::test]
async fn enums_compare_values_and_not_texts() {
    for (wire, sql_type, values, expected) in [
        (
            Wire::Text,
            "text",
            &[r#""a""#, r#""b""#, "null", r#""1.50""#][..],
            &[r#""a""#, "null"][..],
        ),
        (Wire::Numeric, "numeric", &["1.50", "1.5", "1.51"], &["1.50", "1.5"]),
        (Wire::Decimal { precision: 9, scale: 4 }, "numeric(9,4)", &["1.5", "2"], &["1.5000"]),
    ] {
        let said = if wire == Wire::Text { "[a, 1.5]" } else { "[1.5]" };
        let rule = format!("{{ enum: {{ column: v, values: {said} }} }}");
        assert_eq!(kept(wire, sql_type, &rule, values).await, expected, "{sql_type}");
    }
}

#[tokio::test]
async fn rules_that_do_not_fit_are_refused_before_anything_is_read() {
    for (rule, expected) in [
        ("{ not_null: [id, nothing] }", "id, email, amount"),
        ("{ regex: { column: id, pattern: x } }", "bigint"),
        ("{ range: { column: email, min: 1 } }", "text"),
        ("{ range: { column: id } }", "neither"),
        ("{ range: { column: id, min: 2, max: 1 } }", "greater"),
        ("{ range: { column: id, min: 1.5 } }", "not a valid bigint"),
        ("{ range: { column: amount, min: 0.001 } }", "not a valid numeric(10,2)"),
        ("{ enum: { column: id, values: [] } }", "no values"),
        ("{ enum: { column: id, values: [one] } }", "not a valid bigint"),
    ] {
        let yaml = format!("- validate: {{ rules: [{rule}] }}");
        let Err(error) = only(&yaml, orders()).await else { panic!("{rule}") };
        assert!(matches!(error, ConnectorError::Unsupported { .. }), "{rule}");
        assert!(error.to_string().contains(expected), "{rule}: {error}");
    }
}
