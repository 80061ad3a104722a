//! Units that are more than one block.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use forebay_pgcopy::Column;
use forebay_pgcopy::column::schema;
use forebay_sdk::batch::{Batch, Rows};
use forebay_sdk::settings::WriteMode;
use forebay_sdk::values::types::column;
use serde_json::json;

use crate::server::{Database, load, open, target, unit, write};

pub(crate) fn columns() -> Vec<Column> {
    let key = Column { nullable: false, ..column("id", "bigint").unwrap() };
    vec![key, column("pad", "text").unwrap()]
}

/// Rows of 1,000 bytes each that hardly compress.
pub(crate) fn rows(ids: std::ops::Range<i64>) -> RecordBatch {
    let pad = |id: i64| {
        let mut state = u64::try_from(id).unwrap().wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let letter = |_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            char::from(b'!' + u8::try_from(state % 90).unwrap())
        };
        (0..1_000).map(letter).collect::<String>()
    };
    let pads: StringArray = ids.clone().map(|id| Some(pad(id))).collect();
    let arrays: Vec<ArrayRef> = vec![Arc::new(Int64Array::from_iter_values(ids)), Arc::new(pads)];
    RecordBatch::try_new(schema(&columns()).into(), arrays).unwrap()
}

#[tokio::test]
async fn a_unit_of_many_blocks_becomes_visible_as_one_part() {
    let Some(database) = Database::create() else { return };
    for (mode, limits) in [
        (WriteMode::Append, json!({ "block_size": "1MiB" })),
        (WriteMode::Append, json!({ "buffer_size": "1MiB" })),
        (WriteMode::Replace, json!({ "block_size": "1MiB" })),
        (WriteMode::Upsert, json!({ "block_size": "1MiB" })),
    ] {
        let destination = database.destination(limits.clone());
        let name = format!("{mode:?}{}", limits.as_object().unwrap().keys().next().unwrap());
        let settings = target(&name, mode);
        let load = load("l", &["all"]);
        let opened = open(&destination, &settings, &columns()).await.unwrap();
        opened.prepare(&load).await.unwrap();
        let mut writer = opened.writer(&load, &unit("all")).await.unwrap();
        for at in 0..8 {
            let rows = Rows::Records(rows(at * 500..(at + 1) * 500));
            writer.write(Batch::unbounded(rows)).await.unwrap();
        }
        let staged = "SELECT sum(rows) FROM system.parts WHERE active AND database = currentDatabase() \
                      AND startsWith(table, '_forebay_stage_')";
        assert!(database.count(staged) > 0);
        assert_eq!(opened.content().await.unwrap().rows, 0);
        drop(writer);
        let batches: Vec<RecordBatch> = (0..8).map(|at| rows(at * 500..(at + 1) * 500)).collect();
        let entry = write(&opened, &settings, &load, "all", &batches).await.unwrap();
        assert_eq!(entry.rows, 4_000);
        opened.finish(&load).await.unwrap();
        let parts = format!(
            "SELECT toString(count()) || ' ' || toString(sum(rows)) FROM system.parts \
             WHERE active AND database = currentDatabase() AND table = '{name}'"
        );
        assert_eq!(database.query(&parts), "1 4000");
        let found = format!("SELECT uniqExact(id), count(), sum(length(pad)) FROM `{name}`");
        assert_eq!(database.query(&found), "4000\t4000\t4000000");
        assert_eq!(opened.content().await.unwrap().to_string(), entry.hash);
        let left = "SELECT count() FROM system.tables WHERE database = currentDatabase() AND match(name, '_forebay_(next|swap|stage)')";
        let left = database.count(left);
        // What the dropped writer left is dropped when the load ends.
        assert_eq!(left, 0);
    }
}

#[tokio::test]
async fn a_block_is_one_part_however_many_rows_and_batches_it_has() {
    let Some(database) = Database::create() else { return };
    let destination = database.destination(json!({}));
    let settings = target("t", WriteMode::Append);
    let key = vec![Column { nullable: false, ..column("id", "bigint").unwrap() }];
    // More than the server's own limits of a block: 1,048,449 rows.
    let batch = |at: i64| {
        let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(at * 50_000..(at + 1) * 50_000));
        RecordBatch::try_new(schema(&key).into(), vec![ids]).unwrap()
    };
    let batches: Vec<RecordBatch> = (0..50).map(batch).collect();
    let entry = crate::server::copy(&destination, &settings, &key, "l", &batches).await.unwrap();
    assert_eq!(entry.rows, 2_500_000);
    let parts = "SELECT count(), min(level), sum(rows) FROM system.parts WHERE active AND database = currentDatabase() AND table = 't'";
    assert_eq!(database.query(parts), "1\t0\t2500000");
}
