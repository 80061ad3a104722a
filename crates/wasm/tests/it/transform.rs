//! A component as a transform.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, Int32Array, RecordBatch, StringArray};
use forebay_pgcopy::column::schema;
use forebay_pgcopy::{Column, Wire};
use forebay_sdk::transform::Position;
use forebay_wasm::{Grants, WasmTransform};
use serde_json::json;

use crate::components::{loaded, runtime};

fn columns() -> Vec<Column> {
    let column = |name: &str, sql_type: &str, wire| Column {
        name: name.into(),
        sql_type: sql_type.into(),
        wire,
        nullable: false,
    };
    vec![column("id", "integer", Wire::Int4), column("name", "text", Wire::Text)]
}

fn batch(names: &[&str]) -> RecordBatch {
    let ids: ArrayRef =
        Arc::new(Int32Array::from_iter_values(0..i32::try_from(names.len()).unwrap()));
    let names: ArrayRef = Arc::new(StringArray::from_iter_values(names));
    RecordBatch::try_new(schema(&columns()).into(), vec![ids, names]).unwrap()
}

#[test]
fn texts_are_trimmed_and_rows_stay_in_their_order() {
    let Some(loaded) = loaded("clean", Grants::default()) else { return };
    let config = json!({}).to_string().into();
    runtime().block_on(async {
        let clean = WasmTransform::open(loaded, config, "people", &columns()).await.unwrap();
        assert!(clean.is_stable() && clean.columns()[1].nullable && !clean.columns()[0].nullable);
        assert!(clean.note().contains("trims name"), "{}", clean.note());
        for _ in 0..3 {
            let position = Position { unit: "all", rows_before: 0 };
            let applied = clean.apply(position, &batch(&[" ann ", "  ", "bob"])).await.unwrap();
            let names = applied.records.column(1).as_string::<i32>();
            assert_eq!(names.iter().collect::<Vec<_>>(), [Some("ann"), None, Some("bob")]);
            assert_eq!(applied.records.column(0).len(), 3);
        }
    });
}

#[test]
fn a_column_that_does_not_exist_is_refused_before_any_row() {
    let Some(loaded) = loaded("clean", Grants::default()) else { return };
    let config = json!({ "columns": ["nmae"] }).to_string().into();
    let refused = runtime().block_on(WasmTransform::open(loaded, config, "people", &columns()));
    let refused = refused.err().unwrap().to_string();
    assert!(refused.contains("\"nmae\""), "{refused}");
}
