//! The promises of every source.

use forebay_pgcopy::ContentHash;
use forebay_sdk::acceptance;
use serde_json::json;

use crate::server::{database, stream};

/// Number of rows.
const ROWS: i64 = 2_000;

/// The hash of all rows, by the bytes of their tuples.
fn expected() -> ContentHash {
    let mut expected = ContentHash::default();
    for id in 1..=ROWS {
        let name = format!("number {id}");
        let mut tuple = vec![0, 2, 0, 0, 0, 8];
        tuple.extend_from_slice(&id.to_be_bytes());
        tuple.extend_from_slice(&u32::try_from(name.len()).unwrap().to_be_bytes());
        tuple.extend_from_slice(name.as_bytes());
        expected.add(&tuple);
    }
    expected
}

#[tokio::test]
async fn a_table_a_view_and_a_cursor_keep_the_promises_of_every_source() {
    let Some(database) = database() else { return };
    database.run(&format!(
        "CREATE TABLE keyed (id BIGINT PRIMARY KEY, name TEXT); \
         INSERT INTO keyed SELECT seq, CONCAT('number ', seq) FROM seq_1_to_{ROWS}; \
         CREATE TABLE keyless (id BIGINT, name TEXT); INSERT INTO keyless SELECT * FROM keyed; \
         CREATE TABLE named (id BIGINT, name VARCHAR(20) PRIMARY KEY) COLLATE utf8mb4_bin; \
         INSERT INTO named SELECT * FROM keyed; \
         CREATE VIEW seen AS SELECT * FROM keyed"
    ));
    let source = database.source(json!({}));
    for name in ["keyed", "keyless", "seen"] {
        let found = acceptance::source(&source, &stream(name, json!({})), expected()).await;
        found.unwrap_or_else(|error| panic!("{name}: {error:?}"));
    }
    for (name, field) in [("keyed", "id"), ("keyless", "id"), ("seen", "id"), ("keyed", "name")] {
        // `TEXT` has no order in which an index would help, and is compared as any other text.
        let incremental = json!({ "sync_mode": "incremental", "cursor_field": field });
        let found = acceptance::source(&source, &stream(name, incremental), expected()).await;
        found.unwrap_or_else(|error| panic!("{name} by {field}: {error:?}"));
    }
}
