//! What counts as a document, and what its leaves are.

use super::*;

const BOUNDS: Bounds = Bounds { depth_max: 100, key_size_max: 1_024, flatten_depth: 4 };

fn leaves(document: &str) -> Vec<(String, String)> {
    let members = read(document.as_bytes(), &BOUNDS).unwrap();
    let mut out = Vec::new();
    members
        .leaves::<DocumentError>(&BOUNDS, &mut String::new(), &mut |path, leaf, _| {
            out.push((path.to_owned(), format!("{leaf:?}")));
            Ok(())
        })
        .unwrap();
    out
}

fn error(document: &[u8]) -> DocumentError {
    read(document, &BOUNDS).map(|_| ()).unwrap_err()
}

#[test]
fn numbers_keep_their_exact_text() {
    let found = leaves(
        r#"{"a":9007199254740993,"b":0.1,"c":1e400,"d":123456789012345678901234567890,"e":-0}"#,
    );
    let texts: Vec<&str> = found.iter().map(|(_, leaf)| leaf.as_str()).collect();
    assert_eq!(
        texts,
        [
            "Integer(9007199254740993, \"9007199254740993\")",
            "Real(\"0.1\")",
            "Real(\"1e400\")",
            "BigInteger(\"123456789012345678901234567890\")",
            "Integer(0, \"-0\")",
        ]
    );
}

#[test]
fn objects_are_flattened_to_the_depth_and_keys_with_dots_stay_apart() {
    let found = leaves(r#"{"a":{"b":{"c":{"d":1,"e":{"f":1}}}},"x.y":1,"x":{"y":2},"z":{}}"#);
    let paths: Vec<&str> = found.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(paths, ["a.b.c.d", "a.b.c.e", "x\\.y", "x.y", "z"]);
    assert_eq!(found[1].1, "Object(\"{\\\"f\\\":1}\")");
}

#[test]
fn the_last_of_repeated_keys_counts() {
    assert_eq!(
        leaves(r#"{"a":1,"b":2,"a":"x"}"#),
        [
            ("b".to_owned(), "Integer(2, \"2\")".to_owned()),
            ("a".to_owned(), "Text(\"x\")".to_owned())
        ]
    );
    // These agree in length and ends.
    let alike = leaves(r#"{"name":1,"nose":2,"name":3}"#);
    assert_eq!(alike.iter().map(|(path, _)| path.as_str()).collect::<Vec<_>>(), ["nose", "name"]);
    let many: String = (0..50).map(|n| format!("\"k{}\":{n},", n % 40)).collect();
    let found = leaves(&format!("{{{}\"end\":0}}", many));
    assert_eq!(found.len(), 41);
    assert!(found.contains(&("k3".to_owned(), "Integer(43, \"43\")".to_owned())));
}

#[test]
fn a_lone_surrogate_is_kept_as_its_text_and_refused_in_a_key() {
    assert_eq!(leaves(r#"{"a":"\ud800"}"#)[0].1, "Unrepresentable(\"\\\"\\\\ud800\\\"\")");
    assert!(matches!(error(br#"{"\ud800":1}"#), DocumentError::Syntax { .. }));
}

#[test]
fn what_is_not_an_object_within_the_limits_is_refused_by_name() {
    assert!(matches!(error(b"[1]"), DocumentError::NotAnObject { found: "an array" }));
    assert!(matches!(error(b"12"), DocumentError::NotAnObject { found: "a number" }));
    assert!(matches!(error(b"{\"a\":\"\xff\"}"), DocumentError::Utf8 { byte: 6 }));
    assert!(matches!(error(b"{\"a\":01}"), DocumentError::Syntax { .. }));
    assert!(matches!(error(b"{\"a\":1} x"), DocumentError::Syntax { .. }));
    let deep = format!("{{\"a\":{}1{}}}", "[".repeat(10_000), "]".repeat(10_000));
    assert!(matches!(error(deep.as_bytes()), DocumentError::TooDeep { depth_max: 100 }));
    let long = format!("{{\"{}\":1}}", "k".repeat(10 << 20));
    assert!(matches!(error(long.as_bytes()), DocumentError::KeyTooLong { size: 10_485_760, .. }));
    let nested = format!("{{\"a\":[{{\"b\":{{\"{}\":1}}}}]}}", "k".repeat(2_000));
    assert!(matches!(error(nested.as_bytes()), DocumentError::KeyTooLong { .. }));
    // A value that a later one replaces is kept in the document like any other.
    let key = "k".repeat(1_025);
    for replaced in [
        format!(r#"{{"a":{{"{key}":1}},"a":2}}"#),
        format!(r#"{{"a":[[{{"{key}":1}}]],"a":2}}"#),
        format!(r#"{{"b":{{"a":{{"{key}":1}},"a":2}}}}"#),
        format!(r#"{{"{key}":1,"{key}":2}}"#),
    ] {
        let found = error(replaced.as_bytes());
        assert!(matches!(found, DocumentError::KeyTooLong { size: 1_025, .. }), "{found}");
    }
    let at_the_limit = "k".repeat(1_024);
    assert_eq!(leaves(&format!(r#"{{"a":{{"{at_the_limit}":1}},"a":2}}"#)).len(), 1);
}
