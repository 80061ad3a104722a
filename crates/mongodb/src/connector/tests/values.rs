//! Every type through BSON and back, without a server: what is not refused is the same.

use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use forebay_pgcopy::{Column, ContentHash, Wire};
use forebay_sdk::acceptance;
use forebay_sdk::hash::Hasher;
use mongodb::bson::raw::RawDocument;
use serde_json::json;

use super::super::bulk::Documents;
use super::super::encode::{Field, Forms, Refused};
use super::super::target::Reader;
use crate::settings::Settings;

fn hash(columns: &[Column], batch: &RecordBatch) -> ContentHash {
    let mut hasher = Hasher::new(columns).unwrap();
    hasher.add(batch).unwrap();
    hasher.content()
}

/// Rows as documents, read back; and those that were refused.
fn there_and_back(forms: &Forms, columns: &[Column], rows: &RecordBatch) -> Refused {
    let mut refused = Refused::new();
    let normal = forms.normalise(rows, columns, &mut refused).unwrap();
    let fields = normal.columns().iter().zip(columns);
    let fields: Vec<Field<'_>> =
        fields.map(|(array, column)| Field::new(array, column, forms).unwrap()).collect();
    let mut documents = Documents::default();
    for row in 0..normal.num_rows() {
        let added = documents.add(|out| fields.iter().try_for_each(|field| field.append(row, out)));
        if let Err(found) = added {
            refused.entry(row).or_insert(found);
        } else if refused.contains_key(&row) {
            panic!("what was refused by its column has a document");
        }
    }
    let mut reader = Reader::new(columns, forms.json);
    for index in 0..documents.len() {
        reader.add("c", RawDocument::from_bytes(documents.get(index)).unwrap()).unwrap();
    }
    let kept: BooleanArray =
        (0..normal.num_rows()).map(|row| Some(!refused.contains_key(&row))).collect();
    let kept = filter_record_batch(&normal, &kept).unwrap();
    assert_eq!(hash(columns, &reader.take().unwrap()), hash(columns, &kept));
    refused
}

fn forms(settings: serde_json::Value) -> Forms {
    Forms::of(&serde_json::from_value::<Settings>(settings).unwrap())
}

#[test]
fn as_text_nothing_is_refused_or_changed() {
    let columns = acceptance::columns();
    let rows = acceptance::rows(&columns, 0..200);
    let forms = forms(json!({ "json": "text", "decimals": "text", "moments": "text" }));
    assert_eq!(there_and_back(&forms, &columns, &rows), Refused::new());
    assert_eq!(forms.notes(&columns), Vec::<String>::new());
}

#[test]
fn as_values_of_bson_everything_comes_back_or_is_refused() {
    for column in acceptance::columns() {
        let columns = [column];
        let rows = acceptance::rows(&columns, 0..60);
        let refused = there_and_back(&forms(json!({})), &columns, &rows);
        let refuses = match &columns[0].wire {
            // More than 34 digits; infinities, and microseconds.
            Wire::Decimal { precision: 38.., .. } | Wire::Date => true,
            Wire::Timestamp | Wire::TimestampTz => true,
            Wire::Array { element, .. } => **element == Wire::TimestampTz,
            _ => false,
        };
        assert_eq!(!refused.is_empty(), refuses, "{}: {refused:?}", columns[0].sql_type);
    }
}

#[test]
fn milliseconds_are_cut_down_even_before_1970() {
    let columns: Vec<Column> = acceptance::columns()
        .into_iter()
        .filter(|column| matches!(column.wire, Wire::Timestamp | Wire::TimestampTz))
        .collect();
    let rows = acceptance::rows(&columns, 0..60);
    let refused = there_and_back(&forms(json!({ "moments": "milliseconds" })), &columns, &rows);
    assert!(refused.values().all(|found| found.contains("infinity")), "{refused:?}");
}
