//! What is particular to reading.

use std::ops::Range;

use arrow::array::{AsArray as _, RecordBatch};
use arrow::datatypes::Int64Type;
use forebay_pgcopy::{Column, ContentHash};
use forebay_sdk::acceptance;
use forebay_sdk::batch::Rows;
use forebay_sdk::connector::{Cursor, Division, Form, Opening, SourceStream};
use forebay_sdk::hash::Hasher;
use forebay_sdk::run::{Budget, Context, Outlet};
use forebay_sdk::values::read::Builder;
use forebay_sdk::values::types;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, DateTime};

use super::*;

fn id(number: usize) -> ObjectId {
    ObjectId::parse_str(format!("{number:024x}")).unwrap()
}

fn document(number: usize) -> Document {
    let n = i64::try_from(number).unwrap();
    let mut document = doc! {
        "_id": id(number),
        "n": n,
        "x": 0.5 + f64::from(u32::try_from(number).unwrap()),
        "s": format!("grüße {number}"),
        "b": Binary { subtype: BinarySubtype::Generic, bytes: vec![0, 255] },
        "u": Binary { subtype: BinarySubtype::Uuid, bytes: vec![7; 16] },
        "t": DateTime::from_millis(1_715_000_000_123 + n),
        "d": { "a": [1, "x", Bson::Null], "at": DateTime::from_millis(5) },
        "f": number.is_multiple_of(2),
    };
    if number.is_multiple_of(3) {
        document.insert("x", Bson::Null);
        document.remove("s");
    }
    document
}

/// The columns and rows that those documents are.
fn expected(documents: Range<usize>) -> (Vec<Column>, ContentHash) {
    let named = [
        ("_id", "text"),
        ("n", "bigint"),
        ("x", "double precision"),
        ("s", "text"),
        ("b", "bytea"),
        ("u", "uuid"),
        ("t", "timestamptz"),
        ("d", "json"),
        ("f", "boolean"),
    ];
    let columns: Vec<Column> =
        named.iter().map(|(name, of)| types::column(name, of).unwrap()).collect();
    let mut builders: Vec<Builder> = columns.iter().map(Builder::new).collect();
    for number in documents {
        let ms = 123 + number;
        let texts = [
            Some(id(number).to_string()),
            Some(number.to_string()),
            (!number.is_multiple_of(3)).then(|| format!("{number}.5")),
            (!number.is_multiple_of(3)).then(|| format!("grüße {number}")),
            Some("AP8=".into()),
            Some("07070707-0707-0707-0707-070707070707".into()),
            Some(format!("2024-05-06T12:53:20.{ms:03}Z")),
            Some(r#"{"a":[1,"x",null],"at":{"$date":"1970-01-01T00:00:00.005000Z"}}"#.into()),
            Some(number.is_multiple_of(2).to_string()),
        ];
        for (builder, text) in builders.iter_mut().zip(texts) {
            match text {
                Some(text) => builder.text(&text).unwrap(),
                None => builder.null(),
            }
        }
    }
    let arrays = builders.iter_mut().map(Builder::finish).collect();
    let schema = forebay_pgcopy::column::schema(&columns);
    let batch = RecordBatch::try_new(schema.into(), arrays).unwrap();
    let mut hasher = Hasher::new(&columns).unwrap();
    hasher.add(&batch).unwrap();
    (columns, hasher.content())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mongodb_is_a_source() {
    let Some(ferret) = Ferret::start() else { return };
    fill(&ferret, "c", (1..200).map(document).collect()).await;
    let source = source(&settings(&ferret, json!({})));
    let (columns, content) = expected(1..200);
    let stream = stream(json!({ "name": "c" }));
    let open = acceptance::open_source(&source, &stream).await.unwrap();
    let named = |columns: &[Column]| -> Vec<(String, String)> {
        columns.iter().map(|column| (column.name.clone(), column.sql_type.clone())).collect()
    };
    assert_eq!(named(open.columns()), named(&columns));
    assert!(open.units().len() > 2, "{:?}", open.units());
    if let Err(failure) = acceptance::source(&source, &stream, content).await {
        panic!("{}", chain(&failure));
    }
    let discovered = source.discover().await.unwrap();
    assert_eq!((&*discovered[0].name, discovered[0].rows), ("c", Some(199)));
}

async fn open(
    source: &Arc<dyn Source>,
    of: Value,
    since: Option<Cursor>,
) -> forebay_sdk::connector::Result<Arc<dyn SourceStream>> {
    open_as(source, of, since, Division::Stable).await
}

/// * `division`: `Any` where rows may be read again, because they replace themselves.
async fn open_as(
    source: &Arc<dyn Source>,
    of: Value,
    since: Option<Cursor>,
    division: Division,
) -> forebay_sdk::connector::Result<Arc<dyn SourceStream>> {
    let opening = Opening {
        form: Form::PlainRecords,
        since,
        division,
        unit_size: 1 << 10,
        batch_size: 1 << 20,
        memory: 32 << 20,
        parallelism: 1,
        snapshot: None,
    };
    let (context, _cancel) = Context::new("test");
    source.open(&stream(of), &opening, &context).await
}

/// All rows of all units.
async fn read(stream: &Arc<dyn SourceStream>) -> forebay_sdk::connector::Result<Vec<RecordBatch>> {
    let mut read = Vec::new();
    for unit in 0..stream.units().len() {
        let (context, _cancel) = Context::new("test");
        let (mut out, mut batches) = Outlet::new(Budget::new(1 << 26), context).unwrap();
        stream.read(unit, &mut out).await?;
        drop(out);
        while let Some(batch) = batches.recv().await.unwrap() {
            if let Rows::Records(records) = &batch.rows {
                read.push(records.clone());
            }
        }
    }
    Ok(read)
}

/// The values of the column `n`, sorted.
async fn numbers(stream: &Arc<dyn SourceStream>) -> Vec<i64> {
    let mut numbers = Vec::new();
    for batch in read(stream).await.unwrap() {
        let column = batch.column_by_name("n").unwrap().as_primitive::<Int64Type>();
        numbers.extend(column.values());
    }
    numbers.sort_unstable();
    numbers
}

#[tokio::test(flavor = "multi_thread")]
async fn an_incremental_stream_misses_nothing_and_repeats_nothing() {
    let Some(ferret) = Ferret::start() else { return };
    let source = source(&settings(&ferret, json!({})));
    let of = || json!({ "name": "c", "sync_mode": "incremental", "cursor_field": "at" });
    let row = |n: i64, at: i64| doc! { "n": n, "at": DateTime::from_millis(at) };
    fill(&ferret, "c", vec![row(1, 5), row(2, 5), row(3, 7), doc! { "n": 4_i64 }]).await;
    let first = open(&source, of(), None).await.unwrap();
    assert_eq!(numbers(&first).await, [1, 2, 3, 4]);
    // At the very moment that was read last, and later.
    fill(&ferret, "c", vec![row(5, 7), row(6, 9)]).await;
    assert_eq!(numbers(&first).await, [1, 2, 3, 4], "what came since is not in it");
    let second = open(&source, of(), first.cursor()).await.unwrap();
    assert_eq!(numbers(&second).await, [5, 6]);
    let third = open(&source, of(), second.cursor()).await.unwrap();
    assert_eq!((third.units().len(), third.cursor()), (0, second.cursor()));
    fill(&ferret, "d", vec![doc! { "n": 7_i64, "at": "a text" }]).await;
    let of = || json!({ "name": "d", "sync_mode": "incremental", "cursor_field": "at" });
    let texts = open(&source, of(), None).await.unwrap();
    fill(&ferret, "d", vec![row(8, 5)]).await;
    let refused = open(&source, of(), texts.cursor()).await.map(drop).unwrap_err();
    assert!(refused.to_string().contains("the type of the values"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_without_a_value_of_the_cursor_are_counted_in_a_warning() {
    let Some(ferret) = Ferret::start() else { return };
    let source = source(&settings(&ferret, json!({ "types": { "c": { "at": "timestamptz" } } })));
    let of = || json!({ "name": "c", "sync_mode": "incremental", "cursor_field": "at" });
    let row = |n: i64, at: i64| doc! { "n": n, "at": DateTime::from_millis(at) };
    fill(&ferret, "c", vec![row(1, 5)]).await;
    let first = open(&source, of(), None).await.unwrap();
    let has_warning = |stream: &Arc<dyn SourceStream>, text: &str| {
        stream.notes().iter().any(|note| note.contains(text))
    };
    assert!(!has_warning(&first, "have no value"), "{:?}", first.notes());
    let without = [doc! { "n": 2_i64 }, doc! { "n": 3_i64, "at": Bson::Null }];
    let other = doc! { "n": 4_i64, "at": 5 };
    fill(&ferret, "c", without.into_iter().chain([other, row(5, 6)]).collect()).await;
    let second = open(&source, of(), first.cursor()).await.unwrap();
    assert!(has_warning(&second, "3 rows of c have no value in \"at\""), "{:?}", second.notes());
    assert_eq!(numbers(&second).await, [5]);
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_with_the_last_value_that_come_later_are_read_or_refused() {
    let Some(ferret) = Ferret::start() else { return };
    let source = source(&settings(&ferret, json!({})));
    let of = || json!({ "name": "c", "sync_mode": "incremental", "cursor_field": "at" });
    let row = |id: i32, at: i32| doc! { "_id": id, "n": i64::from(id), "at": at };
    fill(&ferret, "c", vec![row(1, 6), row(5, 7), row(9, 7)]).await;
    let first = open(&source, of(), None).await.unwrap();
    assert_eq!(numbers(&first).await, [1, 5, 9]);
    assert_eq!(first.cursor().unwrap().rows_at, Some(2));
    fill(&ferret, "c", vec![row(11, 7)]).await;
    let second = open(&source, of(), first.cursor()).await.unwrap();
    assert_eq!(numbers(&second).await, [11], "its id is greater");
    // A smaller id would be skipped.
    fill(&ferret, "c", vec![row(6, 7)]).await;
    let refused = open(&source, of(), second.cursor()).await.map(drop).unwrap_err().to_string();
    let text = r#"1 rows with at = "{\"$numberInt\":\"7\"}""#;
    assert!(refused.contains(text), "{refused}");
    assert!(refused.contains("write_mode: upsert"), "{refused}");
    // Also if there are later values.
    fill(&ferret, "c", vec![row(2, 8)]).await;
    assert!(open(&source, of(), second.cursor()).await.is_err());
    // Where a row replaces itself, those with the last value are read again.
    let third = open_as(&source, of(), second.cursor(), Division::Any).await.unwrap();
    assert_eq!(numbers(&third).await, [2, 5, 6, 9, 11]);
    let nothing = open_as(&source, of(), third.cursor(), Division::Any).await.unwrap();
    assert_eq!((nothing.units().len(), nothing.cursor()), (0, third.cursor()));
    // A cursor of an earlier version counts nothing.
    let old = Cursor { rows_at: None, ..second.cursor().unwrap() };
    assert_eq!(numbers(&open(&source, of(), Some(old)).await.unwrap()).await, [2]);
    // Fewer are no reason: they were updated, and have later values.
    let collection = database(&ferret).await.collection::<Document>("c");
    collection.delete_many(doc! { "at": 7 }).await.unwrap();
    assert_eq!(numbers(&open(&source, of(), second.cursor()).await.unwrap()).await, [2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_of_other_types_with_the_last_value_are_read() {
    let Some(ferret) = Ferret::start() else { return };
    let source = source(&settings(&ferret, json!({ "types": { "c": { "_id": "text" } } })));
    let of = || json!({ "name": "c", "sync_mode": "incremental", "cursor_field": "at" });
    fill(&ferret, "c", vec![doc! { "_id": "a", "n": 1_i64, "at": 6 }]).await;
    let first = open(&source, of(), None).await.unwrap();
    assert_eq!(numbers(&first).await, [1]);
    // Numbers are less than texts, and ObjectIds greater.
    let ids = [Bson::Int32(1), Bson::String("b".into()), Bson::ObjectId(id(1))];
    let documents = ids.into_iter().zip(2_i64..).map(|(id, n)| doc! { "_id": id, "n": n, "at": 7 });
    fill(&ferret, "c", documents.collect()).await;
    let second = open(&source, of(), first.cursor()).await.unwrap();
    assert_eq!(numbers(&second).await, [2, 3, 4]);
    let whole = open(&source, of(), None).await.unwrap();
    assert_eq!(numbers(&whole).await, [1, 2, 3, 4]);
    fill(&ferret, "c", vec![doc! { "_id": 2, "n": 5_i64, "at": 7 }]).await;
    let refused = open(&source, of(), second.cursor()).await.map(drop).unwrap_err();
    assert!(refused.to_string().contains("nothing distinguishes them"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_that_are_added_with_the_last_value_while_it_is_read_end_the_run() {
    let Some(ferret) = Ferret::start() else { return };
    let source = source(&settings(&ferret, json!({})));
    let of = || json!({ "name": "c", "sync_mode": "incremental", "cursor_field": "at" });
    let row = |id: i32| doc! { "_id": id, "n": i64::from(id), "at": 7 };
    fill(&ferret, "c", vec![row(5)]).await;
    let open = open(&source, of(), None).await.unwrap();
    fill(&ferret, "c", vec![row(4), row(6)]).await;
    let error = read(&open).await.unwrap_err().to_string();
    assert!(
        error.contains("1 documents with the last value") && error.contains("run again"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_of_several_types_are_all_read_once() {
    let Some(ferret) = Ferret::start() else { return };
    let source = source(&settings(&ferret, json!({})));
    let text = |n: i64| doc! { "_id": format!("{n:05}"), "n": n, "pad": "x".repeat(200) };
    fill(&ferret, "c", (0..60).map(text).collect()).await;
    let before = open(&source, json!({ "name": "c" }), None).await.unwrap();
    assert!(before.units().len() > 2);
    // Smaller and greater than any text, in the order servers have.
    let other = [Bson::Int32(1), Bson::ObjectId(id(1)), Bson::Boolean(true)];
    let other = other.into_iter().zip(60..).map(|(id, n): (_, i64)| doc! { "_id": id, "n": n });
    fill(&ferret, "c", other.collect()).await;
    let types = json!({ "types": { "c": { "_id": "text" } } });
    let lenient = super::source(&settings(&ferret, types));
    let opening = Opening {
        form: Form::PlainRecords,
        since: None,
        division: Division::As(before.units().to_vec()),
        unit_size: 1 << 10,
        batch_size: 1 << 20,
        memory: 32 << 20,
        parallelism: 1,
        snapshot: None,
    };
    let (context, _cancel) = Context::new("test");
    let again = lenient.open(&stream(json!({ "name": "c" })), &opening, &context).await.unwrap();
    assert_eq!(numbers(&again).await, (0..63).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_sample_did_not_have_is_said_with_its_document() {
    let Some(ferret) = Ferret::start() else { return };
    let row = |n: i32| doc! { "_id": n, "n": i64::from(n) };
    let mut documents: Vec<Document> = (0..9).map(row).collect();
    documents[4].insert("odd", 1);
    documents[5].insert("n", "five");
    fill(&ferret, "c", documents).await;
    let few = |other: Value| {
        let mut few = json!({ "sample_documents": 2 });
        few.as_object_mut().unwrap().extend(other.as_object().unwrap().clone());
        super::source(&settings(&ferret, few))
    };
    let of = || json!({ "name": "c" });
    let strict = open(&few(json!({})), of(), None).await.unwrap();
    let error = read(&strict).await.unwrap_err().to_string();
    assert!(error.starts_with("c _id 4, field \"odd\""), "{error}");
    let lax = open(&few(json!({ "unknown_fields": "ignore" })), of(), None).await.unwrap();
    let error = read(&lax).await.unwrap_err().to_string();
    assert!(error.starts_with("c _id 5, field \"n\": \"five\" is not a valid bigint"), "{error}");
    let typed = json!({ "types": { "c": { "n": "text", "odd": "int" } } });
    let typed = open(&few(typed), of(), None).await.unwrap();
    let rows: usize = read(&typed).await.unwrap().iter().map(RecordBatch::num_rows).sum();
    assert_eq!(rows, 9);
}
