//! Columns and values.

use forebay_sdk::connector::Division;
use forebay_sdk::run::Context;
use serde_json::{Value, json};

use crate::reading::{all, failure, opening, rows, source, stream};
use crate::server::{Server, answer, json as body};

#[tokio::test]
async fn columns_are_those_of_the_first_page() {
    let server = Server::start(|request| {
        body(match request.parameter("page") {
            Some("1") => {
                r#"[
                {"id": 1, "price": 1.50, "ok": true, "name": "a", "at": "2026-01-01T00:00:00+01:00"},
                {"id": 2, "big": 18446744073709551615, "nested": {"b": [1,  2.0]}, "none": null}
            ]"#
            }
            Some("2") => r#"[{"name": null, "id": -3, "price": 4}]"#,
            _ => "[]",
        })
    });
    let source =
        source(&server, json!({ "pagination": { "page": {} }, "primary_key": ["id"] }), json!({}));
    let rows = all(&source).await.unwrap();
    assert_eq!(
        rows,
        [
            json!({ "id": 1, "price": 1.5, "ok": true, "name": "a", "at": "2025-12-31T23:00:00Z", "big": null, "nested": null, "none": null }),
            json!({ "id": 2, "price": null, "ok": null, "name": null, "at": null, "big": 18446744073709551615_u64, "nested": { "b": [1, 2.0] }, "none": null }),
            json!({ "id": -3, "price": 4.0, "ok": null, "name": null, "at": null, "big": null, "nested": null, "none": null }),
        ]
    );
    let discovered = source.discover().await.unwrap();
    assert_eq!(discovered[0].primary_key, ["id"]);
    let types: Vec<_> = discovered[0].columns.iter().map(|it| (&*it.name, &*it.sql_type)).collect();
    let expected = [
        ("id", "bigint"),
        ("price", "double precision"),
        ("ok", "boolean"),
        ("name", "text"),
        ("at", "timestamp with time zone"),
        ("big", "numeric"),
        ("nested", "json"),
        ("none", "text"),
    ];
    assert_eq!(types, expected);
    assert!(source.check().await.unwrap().contains("2 records in the first page of s"));
}

#[tokio::test]
async fn given_columns_are_found_by_their_pointers() {
    let server = Server::start(|_| {
        body(
            r#"{"data": [{"id": "7", "address": {"city": "X", "zip": [1, 2]}, "a/b": 1, "more": 1}]}"#,
        )
    });
    let columns = json!([
        { "name": "id", "type": "bigint" },
        { "name": "city", "type": "text", "pointer": "/address/city" },
        { "name": "zip", "type": "int", "pointer": "/address/zip/1" },
        { "name": "a/b", "type": "numeric(5,2)" },
        { "name": "raw", "type": "jsonb", "pointer": "/address/zip" },
        { "name": "missing", "type": "date" },
    ]);
    let source = source(&server, json!({ "records": "/data", "columns": columns }), json!({}));
    let expected =
        json!({ "id": 7, "city": "X", "zip": 2, "a/b": 1.0, "raw": [1, 2], "missing": null });
    assert_eq!(all(&source).await.unwrap(), [expected]);
    let (context, _cancel) = Context::new("test");
    let chosen = stream(json!({ "columns": ["zip", "id"] }));
    let open = source.open(&chosen, &opening(None, Division::Any), &context).await.unwrap();
    assert_eq!(rows(&open).await.unwrap(), [json!({ "zip": 2, "id": 7 })]);
    let wrong = stream(json!({ "columns": ["nowhere"] }));
    assert!(source.open(&wrong, &opening(None, Division::Any), &context).await.is_err());
}

#[tokio::test]
async fn a_value_that_its_column_does_not_hold_is_an_error_that_names_it() {
    for (record, expected) in [
        (r#"{"id": 1.5}"#, r#"column "id": "1.5" is not a valid bigint"#),
        (r#"{"id": 9223372036854775808}"#, r#"column "id""#),
        (r#"{"id": {"x": 1}}"#, r#"column "id""#),
        (r#"{"price": 0.12345678901234567890}"#, "lose digits"),
        (r#"{"new": 1}"#, "does not occur in the first page"),
        (r#"{"id": 1, "id": 2}"#, "occurs twice"),
        ("[]", "expected an object"),
    ] {
        let server = Server::start(move |request| match request.parameter("page") {
            Some("1") => body(r#"[{"id": 1, "price": 0.5}]"#),
            Some("2") => body(&format!(r#"[{{"id": 2}}, {record}]"#)),
            _ => body("[]"),
        });
        let source = source(&server, json!({ "pagination": { "page": {} } }), json!({}));
        let error = failure(&source).await;
        assert!(
            error.contains("s page 2 record 2") && error.contains(expected),
            "{record}: {error}"
        );
    }
}

#[tokio::test]
async fn a_text_that_is_not_utf8_is_an_error_with_its_position() {
    let server = Server::start(|_| {
        let mut bytes = b"HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\n".to_vec();
        bytes.extend_from_slice(b"[{\"a\": \"\xff\"}]");
        bytes
    });
    let error = failure(&source(&server, json!({}), json!({}))).await;
    assert!(error.contains("not UTF-8 at byte 8"), "{error}");
}

#[tokio::test]
async fn a_first_page_without_records_needs_columns() {
    let server = Server::start(|_| body("[]"));
    let error = failure(&source(&server, json!({}), json!({}))).await;
    assert!(error.contains("list `columns`"), "{error}");
    let columns = json!([{ "name": "id", "type": "bigint" }]);
    let source = source(&server, json!({ "columns": columns }), json!({}));
    assert_eq!(all(&source).await.unwrap(), Vec::<Value>::new());
}

#[tokio::test]
async fn a_stream_that_is_not_in_the_settings_is_refused() {
    let server = Server::start(|_| answer("500 Oops", "", ""));
    let source = source(&server, json!({}), json!({}));
    let (context, _cancel) = Context::new("test");
    let other = serde_json::from_value(json!({ "name": "other" })).unwrap();
    let error = source.open(&other, &opening(None, Division::Any), &context).await.err().unwrap();
    assert!(error.to_string().contains("choose from s"), "{error}");
    assert_eq!(server.requests().len(), 0);
}
