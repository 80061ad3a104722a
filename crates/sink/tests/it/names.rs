//! Whatever the keys, they become names and never SQL.

use std::collections::HashSet;

use forebay_sink::conformance::key;
use forebay_sink::name::{
    IDENTIFIER_LEN_MAX, NAMESPACE_LEN_MAX, check_namespace, distinct_identifier,
    normalise_identifier,
};
use proptest::collection::vec;
use proptest::prelude::*;

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
    fn a_namespace_has_only_harmless_characters(name in ".{0,140}") {
        let harmless = (1..=NAMESPACE_LEN_MAX).contains(&name.len())
            && name.chars().all(|c| matches!(c, 'a'..='z' | '0'..='9' | '.' | '_' | '-'));
        prop_assert_eq!(check_namespace(&name).is_ok(), harmless);
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
