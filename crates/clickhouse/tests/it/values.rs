//! Values at the bounds of their types, and beyond them.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use forebay_pgcopy::Column;
use forebay_pgcopy::column::schema;
use forebay_sdk::settings::{OnDataError, TargetSettings, WriteMode};
use forebay_sdk::values::read::Builder;
use forebay_sdk::values::types::column;
use serde_json::json;

use crate::server::{Database, copy, open, target, text};

/// Columns `id` and `v`, and rows with these values of `v`; the empty text is NULL.
pub(crate) fn rows(sql_type: &str, texts: &[&str]) -> (Vec<Column>, RecordBatch) {
    let key = Column { nullable: false, ..column("id", "bigint").unwrap() };
    let columns = vec![key, column("v", sql_type).unwrap()];
    let mut builder = Builder::new(&columns[1]);
    for text in texts {
        match *text {
            "" => builder.null(),
            text => builder.text(text).unwrap(),
        }
    }
    let ids: Int64Array = (0..i64::try_from(texts.len()).unwrap()).collect();
    let arrays: Vec<ArrayRef> = vec![Arc::new(ids), builder.finish()];
    let batch = RecordBatch::try_new(schema(&columns).into(), arrays).unwrap();
    (columns, batch)
}

#[tokio::test]
async fn values_at_the_bounds_of_their_types_are_the_same_in_sql() {
    let Some(database) = Database::create() else { return };
    let destination = database.destination(json!({}));
    for (sql_type, texts, sql) in [
        ("boolean", &["true", "false", ""][..], "true,false,\\N"),
        ("smallint", &["-32768", "32767"], "-32768,32767"),
        (
            "bigint",
            &["-9223372036854775808", "9223372036854775807"],
            "-9223372036854775808,9223372036854775807",
        ),
        ("real", &["NaN", "-Infinity", "1e-40"], "nan,-inf,1e-40"),
        (
            "double precision",
            &["5e-324", "1.7976931348623157e308"],
            "5e-324,1.7976931348623157e308",
        ),
        (
            "numeric(76,38)",
            &["-99999999999999999999999999999999999999.99999999999999999999999999999999999999"],
            "-99999999999999999999999999999999999999.99999999999999999999999999999999999999",
        ),
        (
            "numeric(76,0)",
            &["9999999999999999999999999999999999999999999999999999999999999999999999999999"],
            "9999999999999999999999999999999999999999999999999999999999999999999999999999",
        ),
        ("numeric(18,2)", &["9999999999999999.99", "0.00"], "9999999999999999.99,0"),
        ("numeric", &["NaN", "1.10"], "NaN,1.10"),
        (
            "date",
            &["1900-01-01", "2299-12-31", "1970-01-01", ""],
            "1900-01-01,2299-12-31,1970-01-01,\\N",
        ),
        (
            "timestamp",
            &["1900-01-01T00:00:00", "2299-12-31T23:59:59.999999"],
            "1900-01-01 00:00:00.000000,2299-12-31 23:59:59.999999",
        ),
        (
            "timestamptz",
            &["1900-01-01T00:00:00Z", "2299-12-31T23:59:59.999999Z", "1969-12-31T23:59:59.999999Z"],
            "1900-01-01 00:00:00.000000,2299-12-31 23:59:59.999999,1969-12-31 23:59:59.999999",
        ),
        (
            "uuid",
            &["0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9", ""],
            "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9,\\N",
        ),
        (
            "uuid[]",
            &["[\"0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9\",null]"],
            "['0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9',NULL]",
        ),
        (
            "date[]",
            &["[\"1900-01-01\",\"2299-12-31\",null]", "[]"],
            "['1900-01-01','2299-12-31',NULL],[]",
        ),
        ("time", &["24:00:00", "23:59:59.999999"], "24:00:00,23:59:59.999999"),
    ] {
        let name = sql_type.replace(['(', ')', ',', '[', ']', ' '], "_");
        let (columns, batch) = rows(sql_type, texts);
        let settings = target(&name, WriteMode::Append);
        let entry = copy(&destination, &settings, &columns, "l", &[batch]).await;
        let entry = entry.unwrap_or_else(|error| panic!("{sql_type}: {}", text(&error)));
        let read = format!("SELECT v FROM {name} ORDER BY id");
        assert_eq!(database.query(&read).replace('\n', ","), sql, "{sql_type}");
        let content = open(&destination, &settings, &columns).await.unwrap().content().await;
        assert_eq!(content.unwrap().to_string(), entry.hash, "{sql_type}");
    }
}

#[tokio::test]
async fn texts_and_bytes_are_stored_byte_for_byte() {
    let Some(database) = Database::create() else { return };
    let destination = database.destination(json!({}));
    let (columns, batch) = rows("bytea", &["AP9cJyIKDQ==", "gA==", ""]);
    copy(&destination, &target("b", WriteMode::Append), &columns, "l", &[batch]).await.unwrap();
    let hex = "SELECT hex(v) FROM b ORDER BY id";
    assert_eq!(database.query(hex), "00FF5C27220A0D\n80\n\\N");
    let (columns, batch) = rows("text", &["a\0b", "\u{1F600}\\'\"`\n"]);
    copy(&destination, &target("t", WriteMode::Append), &columns, "l", &[batch]).await.unwrap();
    assert_eq!(database.query("SELECT hex(v) FROM t ORDER BY id"), "610062\nF09F98805C2722600A");
}

#[tokio::test]
async fn a_value_that_clickhouse_does_not_have_is_refused_and_never_changed() {
    let Some(database) = Database::create() else { return };
    let destination = database.destination(json!({}));
    for (number, (sql_type, bad)) in [
        ("date", "1899-12-31"),
        ("date", "2300-01-01"),
        ("date", "infinity"),
        ("timestamp", "1899-12-31T23:59:59.999999"),
        ("timestamp", "-infinity"),
        ("timestamptz", "2300-01-01T00:00:00Z"),
        ("timestamptz", "infinity"),
        ("bigint[]", ""),
        ("timestamptz[]", "[\"2024-05-06T07:08:09Z\",\"infinity\"]"),
    ]
    .into_iter()
    .enumerate()
    {
        let good = match sql_type {
            "date" => "2024-02-29",
            "bigint[]" => "[1,null]",
            "timestamptz[]" => "[]",
            _ => "2024-02-29T01:02:03Z",
        };
        let good = if sql_type == "timestamp" { "2024-02-29T01:02:03" } else { good };
        let (columns, batch) = rows(sql_type, &[good, bad, good]);
        let table = |mode: &str| format!("{}_{mode}_{}", sql_type.replace(['[', ']'], "_"), number);
        let settings = |mode, name: &str| TargetSettings {
            on_data_error: mode,
            ..target(name, WriteMode::Append)
        };
        let failed = settings(OnDataError::Fail, &table("fail"));
        let error = copy(&destination, &failed, &columns, "l", std::slice::from_ref(&batch))
            .await
            .unwrap_err();
        let error = text(&error);
        assert!(
            error.contains("column \"v\"") && error.contains("in the row {\"id\":1,"),
            "{error}"
        );
        assert_eq!(database.count(&format!("SELECT count() FROM `{}`", failed.into)), 0);
        for (mode, name, letters) in [(OnDataError::Skip, "skip", 0), (OnDataError::Dlq, "dlq", 1)]
        {
            let settings = settings(mode, &table(name));
            let batches = std::slice::from_ref(&batch);
            let entry = copy(&destination, &settings, &columns, "l", batches).await.unwrap();
            assert_eq!((entry.rows, entry.dead), (2, 1), "{sql_type} {bad}");
            let ids = format!(
                "SELECT groupArray(id) FROM (SELECT id FROM `{}` ORDER BY id)",
                settings.into
            );
            assert_eq!(database.query(&ids), "[0,2]");
            let content = open(&destination, &settings, &columns).await.unwrap().content().await;
            assert_eq!(content.unwrap().to_string(), entry.hash);
            if letters == 1 {
                let dead = format!(
                    "SELECT position, row FROM _forebay_dead_letters WHERE stream = 'from.{}'",
                    settings.into
                );
                let dead = database.query(&dead);
                assert!(dead.starts_with("all row 2\t{\"id\":1,"), "{dead}");
            }
        }
    }
}
