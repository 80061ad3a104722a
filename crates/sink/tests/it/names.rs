//! Whatever the keys, they become names and never SQL.

use std::collections::HashSet;

use forebay_sink::name::{
    IDENTIFIER_LEN_MAX, NAMESPACE_LEN_MAX, check_namespace, distinct_identifier,
    normalise_identifier, quote_identifier,
};
use forebay_sink::{
    ColumnType, Document, Field, Position, RowSink as _, Sink as _, SqliteSink, Value,
};
use proptest::collection::vec;
use proptest::prelude::*;
use rusqlite::Connection;

/// Keys made of what breaks things, and keys made of anything.
fn key() -> impl Strategy<Value = String> {
    let nasty = prop::sample::select(vec![
        "\"",
        "'",
        ";",
        "--",
        "/*",
        "*/",
        "\0",
        "`",
        "[",
        "]",
        "(",
        ")",
        "DROP TABLE",
        "select",
        "_document",
        "_id",
        "_forebay_state",
        "rowid",
        "a",
        "A",
        "1",
        "_",
        ".",
        " ",
        "é",
        "İ",
        "ß",
        "\u{0}",
        "\u{202e}",
        "\u{1f980}",
        "$a",
        "?1",
        "\\",
        "\n",
    ]);
    prop_oneof![vec(nasty, 0..6).prop_map(|parts| parts.concat()), ".{0,80}", "[a-zA-Z_0-9]{0,90}"]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn a_name_is_short_plain_and_always_the_same(key in key()) {
        let name = normalise_identifier(&key);
        prop_assert!(!name.is_empty() && name.len() <= IDENTIFIER_LEN_MAX);
        prop_assert!(name.starts_with(|c: char| c.is_ascii_lowercase()), "{name}");
        prop_assert!(name.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_')), "{name}");
        prop_assert_eq!(&name, &normalise_identifier(&key));
        prop_assert_eq!(&name, &normalise_identifier(&name), "a name is its own name");
    }

    #[test]
    fn distinct_names_are_distinct_short_and_plain(keys in vec(key(), 1..40)) {
        let mut taken = HashSet::new();
        for key in keys {
            let name = distinct_identifier(&key, |name| taken.contains(name));
            prop_assert!(name.len() <= IDENTIFIER_LEN_MAX);
            prop_assert!(name.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_')));
            prop_assert!(taken.insert(name));
        }
    }

    #[test]
    fn quoting_gives_back_the_name(name in "[^\0]{1,40}") {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(&format!("CREATE TABLE t ({} INTEGER)", quote_identifier(&name))).unwrap();
        let found: String =
            db.query_row("SELECT name FROM pragma_table_info('t')", [], |row| row.get(0)).unwrap();
        prop_assert_eq!(found, name);
    }

    #[test]
    fn a_namespace_has_only_harmless_characters(name in ".{0,140}") {
        let harmless = (1..=NAMESPACE_LEN_MAX).contains(&name.len())
            && name.chars().all(|c| matches!(c, 'a'..='z' | '0'..='9' | '.' | '_' | '-'));
        prop_assert_eq!(check_namespace(&name).is_ok(), harmless);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..Default::default() })]

    #[test]
    fn any_keys_can_be_columns_and_change_nothing_else(keys in vec(key(), 1..30)) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sink.sqlite");
        let keys: Vec<String> = keys.into_iter().collect::<HashSet<_>>().into_iter().collect();
        let fields: Vec<Field<'_>> =
            keys.iter().map(|key| Field { path: key, ty: ColumnType::Text }).collect();
        let values: Vec<Value<'_>> = keys.iter().map(|key| Value::Text(key)).collect();
        let mut sink = SqliteSink::open(&path).unwrap();
        let mut writer = sink.row_writer(Position(1), "t", &fields).unwrap();
        writer.write(&Document { id: 1, received_ms: 0, raw: b"{}" }, &values).unwrap();
        prop_assert_eq!(writer.finish().unwrap().refused, vec![]);
        sink.commit(Position(1)).unwrap();

        let reader = sink.reader().unwrap();
        prop_assert_eq!(reader.check().unwrap(), vec![]);
        prop_assert_eq!(reader.namespaces().unwrap().len(), 1);
        let page = reader.rows("t", None, Default::default()).unwrap();
        for (column, value) in page.schema.columns().iter().zip(&page.rows[0].values) {
            prop_assert_eq!(value, &forebay_sink::sqlite::OwnedValue::Text(column.path.clone()));
        }
        let tables: i64 = Connection::open(&path).unwrap()
            .query_row("SELECT count(*) FROM sqlite_schema WHERE type = 'table'", [], |row| row.get(0))
            .unwrap();
        prop_assert_eq!(tables, 4, "three of the sink's own and one namespace");
    }
}

#[test]
fn names_are_readable_and_stable() {
    for (path, name) in [
        ("customer.name", "customer_name"),
        ("CamelCase", "camelcase"),
        ("  a -- b  ", "a_b"),
        ("na\u{ef}ve", "na_ve"),
        ("2024", "f_2024"),
        ("_id", "id"),
        ("_document", "document"),
        ("select", "select"),
        ("", "field_811c9dc5"),
        ("ключ", "field_95c4e9e1"),
    ] {
        assert_eq!(normalise_identifier(path), name, "{path:?}");
    }
    let long = normalise_identifier(&"long".repeat(100));
    assert_eq!(long.len(), IDENTIFIER_LEN_MAX);
    assert_ne!(long, normalise_identifier(&"long".repeat(101)));
}

#[test]
fn a_key_of_ten_megabytes_is_normalised_at_once() {
    let name = normalise_identifier(&"k".repeat(10 << 20));
    assert_eq!(name.len(), IDENTIFIER_LEN_MAX);
}
