//! Keys of documents as tests make them.

use proptest::collection::vec;
use proptest::prelude::*;

/// Keys made of what breaks things, and keys made of anything.
pub fn key() -> impl Strategy<Value = String> {
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
