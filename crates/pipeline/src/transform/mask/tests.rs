//! Masks: what passes of a masked column, and what does not.

use forebay_pgcopy::{Column, Wire};
use forebay_sdk::error::ConnectorError;

use crate::transform::testing::{Memory, column, only, read, rows};

fn columns() -> Vec<Column> {
    vec![
        column("id", Wire::Int8, "bigint"),
        column("email", Wire::Text, "text"),
        column("card", Wire::Text, "character varying(19)"),
    ]
}

fn people() -> Memory {
    Memory::of(
        columns(),
        &[
            r#"[1, "ann@example.org", "4111111111111111"]"#,
            r#"[2, null, "12"]"#,
            r#"[3, "ann@example.org", "äöü€ß"]"#,
            r#"[4, "", null]"#,
        ],
    )
}

#[tokio::test]
async fn hashes_are_hmac_sha_256_of_the_text_and_null_stays_null() {
    let yaml = "- mask: { salt: Jefe-Jefe, columns: { email: hash, id: hash } }";
    let stream = only(yaml, people()).await.unwrap();
    let email = &stream.columns()[1];
    assert_eq!((email.wire.clone(), email.sql_type.as_str()), (Wire::Text, "text"));
    let read = read(&stream, 0).await;
    read.result.unwrap();
    let rows = rows(stream.columns(), &read.batches);
    // printf ann@example.org | openssl dgst -sha256 -hmac Jefe-Jefe
    let ann = "6dd106b0c8c72a2c0930879165e71cb4154c0f028f1f1ba6648a047e9f86af45";
    let one = "4f360df850b9c77af593feb26537976938e131d9ee0c5fd28f9669c62caaa67d";
    assert_eq!(rows[0], format!(r#"["{one}","{ann}","4111111111111111"]"#));
    assert!(rows[1].contains(r#",null,"#), "{}", rows[1]);
    assert!(rows[2].contains(ann), "equal values have equal hashes: {}", rows[2]);
    assert!(!rows[3].contains(r#""","#), "the empty text has a hash, too: {}", rows[3]);
}

#[tokio::test]
async fn every_type_has_a_value_that_says_nothing() {
    let text = || Wire::Array { element: Box::new(Wire::Text), element_oid: 25 };
    for (wire, sql_type, value, expected, becomes) in [
        (Wire::Bool, "boolean", "true", "false", "boolean"),
        (Wire::Int2, "smallint", "7", "0", "smallint"),
        (Wire::Int4, "integer", "7", "0", "integer"),
        (Wire::Oid, "oid", "7", "0", "oid"),
        (Wire::Float8, "double precision", "7.5", "0.0", "double precision"),
        (
            Wire::Decimal { precision: 10, scale: 2 },
            "numeric(10,2)",
            "7.55",
            "0.00",
            "numeric(10,2)",
        ),
        (Wire::Numeric, "numeric", "7.555", "0", "numeric"),
        (Wire::Text, "text", r#""secret""#, r#""***""#, "text"),
        (Wire::Text, "public.mood", r#""sad""#, r#""***""#, "text"),
        (Wire::Text, "json", r#"{"a":1}"#, r#""***""#, "json"),
        (Wire::Jsonb, "jsonb", r#"{"a":1}"#, r#""***""#, "jsonb"),
        (Wire::Bytes, "bytea", r#""AAEC""#, r#""""#, "bytea"),
        (Wire::Date, "date", r#""2024-02-29""#, r#""1970-01-01""#, "date"),
        (
            Wire::Time,
            "time without time zone",
            r#""12:34:56""#,
            r#""00:00:00""#,
            "time without time zone",
        ),
        (Wire::Inet, "inet", r#""10.1.2.3""#, r#""***""#, "text"),
        (
            Wire::Uuid,
            "uuid",
            r#""67e55044-10b1-426f-9247-bb680e5fe0c8""#,
            r#""00000000-0000-0000-0000-000000000000""#,
            "uuid",
        ),
        (text(), "text[]", r#"["a","b"]"#, "[]", "text[]"),
    ] {
        let stream = Memory::of(
            vec![column("v", wire.clone(), sql_type)],
            &[&format!("[{value}]"), "[null]"],
        );
        let stream = only("- mask: { columns: { v: redact } }", stream).await.unwrap();
        assert_eq!(stream.columns()[0].sql_type, becomes, "{wire:?}");
        let read = read(&stream, 0).await;
        read.result.unwrap();
        let rows = rows(stream.columns(), &read.batches);
        // The reader distinguishes NULL of a column of JSON.
        assert_eq!(rows[0], format!("[{expected}]"), "{wire:?} {sql_type}");
        if !matches!(sql_type, "json" | "jsonb") {
            assert_eq!(rows[1], "[null]", "{wire:?} {sql_type}");
        }
    }
}

#[tokio::test]
async fn ends_of_texts_stay_where_that_is_asked_and_they_are_long_enough() {
    let yaml = "- mask: { columns: { card: { partial: { first: 1, last: 2 } }, email: nullify } }";
    let stream = only(yaml, people()).await.unwrap();
    assert_eq!(stream.columns()[2].sql_type, "character varying(19)", "as long as it was");
    let read = read(&stream, 0).await;
    read.result.unwrap();
    assert_eq!(
        rows(stream.columns(), &read.batches),
        [
            r#"[1,null,"4*************11"]"#,
            r#"[2,null,"**"]"#,
            r#"[3,null,"ä**€ß"]"#,
            r#"[4,null,null]"#,
        ]
    );
}

#[tokio::test]
async fn masks_pass_units_notes_and_rows_through() {
    let yaml = "- mask: { columns: { email: { text: gone } } }";
    let mut memory = people();
    memory.fails = Some(0);
    let stream = only(yaml, memory).await.unwrap();
    assert!(stream.units_are_stable());
    assert_eq!(stream.units()[0].name, "unit 0");
    assert_eq!(stream.notes(), ["from memory", "t: masked are email"]);
    let read = read(&stream, 0).await;
    let error = read.result.unwrap_err();
    assert!(error.is_retryable(), "the source's own error: {error}");
    assert_eq!(rows(stream.columns(), &read.batches)[0], r#"[1,"gone","4111111111111111"]"#);
    let rows_read = &read.context.moved.rows_read;
    assert_eq!(rows_read.load(std::sync::atomic::Ordering::Relaxed), 4, "counted once");
}

#[tokio::test]
async fn masks_that_cannot_be_are_refused_before_anything_is_read() {
    for (yaml, expected) in [
        ("- mask: { columns: { mail: redact } }", "id, email, card"),
        ("- mask: { columns: { id: { partial: { last: 2 } } } }", "bigint"),
        ("- mask: { stream: others, columns: { id: redact } }", "others"),
    ] {
        let Err(error) = only(yaml, people()).await else { panic!("{yaml}") };
        assert!(matches!(error, ConnectorError::Unsupported { .. }));
        assert!(error.to_string().contains(expected), "{error}");
    }
}
