//! Expressions and what passes them.

use proptest::prelude::*;

use super::*;

const DOCUMENT: &str = r#"{"id": 7, "name": "pump", "price": 12.50, "big": 9007199254740993,
    "tags": ["spare", 3, null], "address": {"city": "Kiel", "zip.code": "24103"}, "gone": null,
    "ok": true, "empty": [], "and": 1, "é": "x\"y"}"#;

fn passes(query: &str) -> bool {
    DocumentQuery::parse(query).unwrap().passes(DOCUMENT.as_bytes()).unwrap()
}

#[test]
fn what_the_document_says_passes() {
    for query in [
        "id = 7",
        "id == 7.0",
        "id in (1, 7, \"x\")",
        "price >= 12.5 and price<12.51",
        "name > \"pumo\" and name <= \"pump\"",
        "name ~ \"um\" and name ^= \"pu\"",
        "big > 9007199254740992 and big != 9007199254740992",
        "tags = \"spare\" and tags = 3 and tags = null",
        "tags != \"other\"",
        "tags in (4, 3)",
        "address.city = \"Kiel\"",
        "address.\"zip.code\" = \"24103\"",
        "gone = null and gone exists",
        "ok = true",
        "not missing exists and NOT (id = 8 OR id = 9)",
        "id = 8 or id = 7 and ok = true",
        "\"and\" = 1 and and = 1",
        "é = \"x\\\"y\"",
        "empty exists",
    ] {
        assert!(passes(query), "{query}");
    }
}

#[test]
fn what_it_does_not_say_does_not_pass() {
    for query in [
        "id = \"7\"",
        "id = 8",
        "id < \"8\"",
        "name = \"Pump\"",
        "name > 1",
        "missing = null",
        "missing != 1",
        "gone = 0",
        "tags != \"spare\"",
        "tags ~ \"x\"",
        "empty = null",
        "address = \"Kiel\"",
        "address.city.street exists",
        "tags.spare exists",
        "name.x = 1",
        "big = 9007199254740992",
        "id = 7 and id = 8",
    ] {
        assert!(!passes(query), "{query}");
    }
}

#[test]
fn a_mistake_is_reported_with_its_place() {
    for (query, at) in [
        ("", 0),
        ("id", 2),
        ("id =", 4),
        ("id = seven", 5),
        ("id = 7 8", 7),
        ("(id = 7", 7),
        ("id in 7", 6),
        ("id in (7", 8),
        ("id ~ 7", 5),
        ("= 7", 0),
        ("a..b = 1", 2),
        ("id = \"x", 5),
        ("id = 1; drop table x", 6),
        ("not", 3),
    ] {
        match DocumentQuery::parse(query) {
            Err(QueryError::Expected { at: found, .. }) => assert_eq!(found, at, "{query}"),
            other => panic!("{query}: {other:?}"),
        }
    }
}

#[test]
fn an_expression_is_bounded_in_every_direction() {
    let deep = format!("{}a = 1{}", "(".repeat(40), ")".repeat(40));
    let negated = format!("{}a = 1", "not ".repeat(40));
    let wide = vec!["a = 1"; 65].join(" or ");
    let long = format!("a = \"{}\"", "x".repeat(QUERY_SIZE_MAX));
    for query in [deep, negated, wide, long] {
        let refused = DocumentQuery::parse(&query);
        assert!(matches!(refused, Err(QueryError::TooLarge { .. })), "{refused:?}");
    }
    let beside = vec!["(a = 1)"; 60].join(" and ");
    assert!(DocumentQuery::parse(&beside).is_ok());
}

#[test]
fn of_a_repeated_key_the_last_counts_and_broken_json_is_an_error() {
    let query = DocumentQuery::parse("a = 2").unwrap();
    assert!(query.passes(br#"{"a":1,"a":2}"#).unwrap());
    for broken in [&b"{\"a\":1"[..], b"", b"[]", b"{\"b\":1,}"] {
        assert!(query.passes(broken).is_err(), "{broken:?}");
    }
}

#[test]
fn half_of_a_surrogate_pair_is_text_like_any_other() {
    let document = br#"{"\ud800":1,"t":"\ud800x","a":["\udfff"],"n":2}"#;
    for (query, expected) in [
        ("n = 2", true),
        ("t ~ \"x\"", true),
        ("t = \"x\"", false),
        ("a = \"y\"", false),
        ("a exists", true),
    ] {
        let query = DocumentQuery::parse(query).unwrap();
        assert_eq!(query.passes(document).unwrap(), expected, "{query:?}");
    }
}

proptest! {
    #[test]
    fn any_text_is_parsed_or_refused(text in "[ -~é]{0,60}") {
        if let Ok(query) = DocumentQuery::parse(&text) {
            drop(query.passes(DOCUMENT.as_bytes()));
        }
    }

    #[test]
    fn a_quoted_value_is_found_whatever_it_is(key in ".{0,8}", value in ".{0,8}") {
        let document = serde_json::json!({ &key: &value }).to_string();
        let text = format!("{} = {}", serde_json::json!(key), serde_json::json!(value));
        let query = DocumentQuery::parse(&text).unwrap();
        prop_assert!(query.passes(document.as_bytes()).unwrap());
    }
}
