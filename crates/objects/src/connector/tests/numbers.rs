//! Numbers and line ends of text: what no type may change, and what is refused.

use forebay_sdk::acceptance;
use forebay_sdk::values::write::Cells;
use serde_json::{Value, json};

use super::sources::{csv_source, error_of, json_of, ndjson_source, read, read_bytes, write};
use super::stream;

#[test]
fn lines_that_end_with_a_carriage_return_alone_are_refused() {
    for (text, field) in [
        (&b"id,name\r1,a\r2,b\r"[..], "line 1: field 2"),
        (b"id\r1\r2\r", "line 1: field 1"),
        (b"id,name\n1,a\r2,b\r", "line 2: field 2"),
        (b"id,name\r\n1,a\r\r\n", "line 2: field 2"),
        (b"id,name\n1\r,a\n", "line 2: field 1"),
    ] {
        let found = read_bytes("a.csv", text).unwrap_err();
        assert!(found.contains(field), "{found}");
        assert!(found.contains("a carriage return that no line feed follows"), "{found}");
        assert!(found.contains("tr '\\r' '\\n'"), "{found}");
    }
    let quoted = read_bytes("a.csv", b"id,name\r\n1,\"a\rb\"\r\n").unwrap();
    assert_eq!(quoted[0][1].as_deref(), Some("a\rb"));
}

/// The type and the values of the only column `a` of a file with these values.
async fn inferred(values: &[&str], is_csv: bool) -> (String, Vec<Option<String>>) {
    let directory = tempfile::tempdir().unwrap();
    let (name, head) = if is_csv { ("a.csv", "a\n") } else { ("a.ndjson", "") };
    let line = |value: &&str| match is_csv {
        true => format!("{value}\n"),
        false => format!("{{\"a\":{value}}}\n"),
    };
    let text = format!("{head}{}", values.iter().map(line).collect::<String>());
    write(&directory.path().join(name), text.as_bytes());
    let settings = json!({ "path": directory.path() });
    let source = if is_csv { csv_source(settings) } else { ndjson_source(settings) };
    let open = acceptance::open_source(&source, &stream(name)).await.unwrap();
    let mut found = Vec::new();
    for batch in read(&open).await.unwrap() {
        let cells = Cells::new(batch.column(0).as_ref(), &open.columns()[0]).unwrap();
        for row in 0..batch.num_rows() {
            let mut out = Vec::new();
            cells.text(row, &mut out);
            found.push((!cells.is_null(row)).then(|| String::from_utf8(out).unwrap()));
        }
    }
    (open.columns()[0].sql_type.clone(), found)
}

#[tokio::test]
async fn an_inferred_type_keeps_every_digit_of_a_number() {
    for is_csv in [true, false] {
        for (values, sql_type, expected) in [
            (["1e5", "9007199254740993"], "numeric", ["100000", "9007199254740993"]),
            (["0.1234567890123456789", "1e5"], "numeric", ["0.1234567890123456789", "100000"]),
            (["1e5", "9007199254740992"], "double precision", ["100000", "9007199254740992"]),
            (["1e-5", "0.25"], "double precision", ["0.00001", "0.25"]),
        ] {
            let (found, read) = inferred(&values, is_csv).await;
            assert_eq!(found, sql_type, "{values:?}");
            let read: Vec<&str> = read.iter().map(|value| value.as_deref().unwrap()).collect();
            match sql_type {
                "numeric" => assert_eq!(read, expected),
                _ => {
                    let number = |text: &&str| text.parse::<f64>().unwrap();
                    assert_eq!(
                        read.iter().map(number).collect::<Vec<_>>(),
                        expected.iter().map(number).collect::<Vec<_>>()
                    );
                }
            }
        }
    }
    let (found, read) = inferred(&["NaN", "9007199254740993"], true).await;
    assert_eq!(found, "text");
    assert_eq!(read[1].as_deref(), Some("9007199254740993"));
    assert_eq!(inferred(&["NaN", "9007199254740992"], true).await.0, "double precision");
}

#[tokio::test]
async fn a_later_number_that_would_lose_digits_is_refused_unless_its_type_is_given() {
    for (name, text) in [
        ("a.csv", "a\n1e5\n9007199254740993\n"),
        ("a.ndjson", "{\"a\":1e5}\n{\"a\":9007199254740993}\n"),
        ("a.ndjson", "{\"a\":1e5}\n{\"a\":\"9007199254740993\"}\n"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        write(&directory.path().join(name), text.as_bytes());
        let open = |more: Value| {
            let mut settings = json!({ "path": directory.path(), "sample_rows": 1 });
            settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            if name.ends_with(".csv") { csv_source(settings) } else { ndjson_source(settings) }
        };
        let found = error_of(&open(json!({})), &stream(name)).await;
        let line = text.lines().count();
        assert!(
            found.contains(&format!("line {line}: column \"a\": \"9007199254740993\"")),
            "{found}"
        );
        assert!(found.contains("would lose digits as double precision"), "{found}");
        let given = open(json!({ "columns": { "a": "double precision" } }));
        assert_eq!(json_of(&given, name).await.len(), 2);
    }
}
