//! Tables of other programs, their columns, and names.

use forebay_pgcopy::Column;
use forebay_sdk::settings::{
    NewColumn, NullabilityChange, RemovedColumn, SchemaEvolution, TargetSettings, TypeChange,
    WriteMode,
};
use serde_json::json;

use crate::server::{Database, copy, open, target, text};
use crate::values::rows;

const STRICT: SchemaEvolution = SchemaEvolution {
    new_column: NewColumn::Fail,
    removed_column: RemovedColumn::Fail,
    type_change: TypeChange::Fail,
    nullability_change: NullabilityChange::Fail,
};

fn evolving(into: &str, schema_evolution: SchemaEvolution) -> TargetSettings {
    TargetSettings { schema_evolution, ..target(into, WriteMode::Append) }
}

#[tokio::test]
async fn columns_follow_the_source_as_far_as_the_settings_permit() {
    let Some(database) = Database::create() else { return };
    let destination = database.destination(json!({}));
    for (name, table, sql_type, permitted, after) in [
        (
            "new_column",
            "id Int64",
            "bigint",
            SchemaEvolution { new_column: NewColumn::Add, ..STRICT },
            "Nullable(Int64)",
        ),
        (
            "type_change",
            "id Int64, v Nullable(Int16)",
            "bigint",
            SchemaEvolution { type_change: TypeChange::Alter, ..STRICT },
            "Nullable(Int64)",
        ),
        (
            "nullability_change",
            "id Int64, v Int64",
            "bigint",
            SchemaEvolution { nullability_change: NullabilityChange::Allow, ..STRICT },
            "Nullable(Int64)",
        ),
        (
            "removed_column",
            "id Int64, v Nullable(Int64), w String DEFAULT 'x'",
            "bigint",
            SchemaEvolution { removed_column: RemovedColumn::Ignore, ..STRICT },
            "Nullable(Int64)",
        ),
    ] {
        database.query(&format!("CREATE TABLE {name} ({table}) ENGINE = MergeTree ORDER BY id"));
        database.query(&format!("INSERT INTO {name} (id) VALUES (7)"));
        let (columns, batch) = rows(sql_type, &["1", "", "-3"]);
        let refused = open(&destination, &evolving(name, STRICT), &columns).await.err().unwrap();
        assert!(text(&refused).contains(name), "{}", text(&refused));
        let settings = evolving(name, permitted);
        copy(&destination, &settings, &columns, "l", &[batch]).await.unwrap();
        let of = format!(
            "SELECT type FROM system.columns WHERE database = currentDatabase() AND table = '{name}' AND name = 'v'"
        );
        assert_eq!(database.query(&of), after, "{name}");
        let sum = format!("SELECT count(), sum(v), countIf(v IS NULL) FROM {name} WHERE id < 7");
        assert_eq!(database.query(&sum), "3\t-2\t1", "{name}");
    }
    assert_eq!(database.query("SELECT DISTINCT w FROM removed_column"), "x");
}

#[tokio::test]
async fn a_column_that_is_ignored_is_not_stored_and_the_content_is_that_of_the_others() {
    let Some(database) = Database::create() else { return };
    let destination = database.destination(json!({}));
    database.query("CREATE TABLE t (id Int64) ENGINE = MergeTree ORDER BY id");
    let ignoring = SchemaEvolution { new_column: NewColumn::Ignore, ..STRICT };
    let (columns, batch) = rows("text", &["a", "b"]);
    let settings = evolving("t", ignoring);
    let entry =
        copy(&destination, &settings, &columns, "l", std::slice::from_ref(&batch)).await.unwrap();
    let opened = open(&destination, &settings, &columns).await.unwrap();
    assert_eq!(opened.stored().unwrap().len(), 1);
    assert_eq!(opened.as_stored(&batch).unwrap().num_columns(), 1);
    assert_eq!(opened.content().await.unwrap().to_string(), entry.hash);
    assert_eq!(database.query("SELECT groupArray(id) FROM t"), "[0,1]");
}

#[tokio::test]
async fn a_wider_column_of_another_program_takes_the_values_as_they_are() {
    let Some(database) = Database::create() else { return };
    let destination = database.destination(json!({}));
    for (stored, sql_type, texts, read) in [
        ("Int64", "integer", &["-2147483648"][..], "-2147483648"),
        ("Nullable(Decimal(40, 6))", "numeric(10,2)", &["1.50", ""], "1.5,\\N"),
        ("LowCardinality(Nullable(String))", "text", &["a", ""], "a,\\N"),
        (
            "DateTime64(6, 'Asia/Tokyo')",
            "timestamptz",
            &["2024-01-01T00:00:00Z"],
            "2024-01-01 09:00:00.000000",
        ),
        ("Array(Nullable(Int64))", "integer[]", &["[1,null]"], "[1,NULL]"),
    ] {
        database.query("DROP TABLE IF EXISTS t");
        database.query(&format!(
            "CREATE TABLE t (id Int64, v {stored}) ENGINE = MergeTree ORDER BY id"
        ));
        let (mut columns, batch) = rows(sql_type, texts);
        columns[1].nullable = stored.contains("Nullable");
        let settings = evolving("t", STRICT);
        let entry = copy(&destination, &settings, &columns, stored, &[batch]).await;
        let entry = entry.unwrap_or_else(|error| panic!("{stored}: {}", text(&error)));
        assert_eq!(database.query("SELECT v FROM t ORDER BY id").replace('\n', ","), read);
        let content = open(&destination, &settings, &columns).await.unwrap().content().await;
        assert_eq!(content.unwrap().to_string(), entry.hash, "{stored}");
    }
}

#[tokio::test]
async fn columns_that_would_change_values_are_refused() {
    let Some(database) = Database::create() else { return };
    let destination = database.destination(json!({}));
    for (stored, sql_type, word) in [
        ("UInt64", "bigint", "cast it in a transform"),
        ("Int32", "bigint", "type_change: alter"),
        ("Date", "date", "cast it in a transform"),
        ("DateTime", "timestamptz", "cast it in a transform"),
        ("DateTime64(3)", "timestamptz", "cast it in a transform"),
        ("DateTime64(6)", "timestamp", "shows a timestamp"),
        ("DateTime64(6, 'Asia/Tokyo')", "timestamp", "shows a timestamp"),
        ("FixedString(10)", "text", "cast it in a transform"),
        ("Enum8('a' = 1)", "text", "cast it in a transform"),
        ("Int64 MATERIALIZED id", "bigint", "nothing can be written"),
        ("Int64 ALIAS id", "bigint", "nothing can be written"),
    ] {
        database.query("DROP TABLE IF EXISTS t");
        database.query(&format!(
            "CREATE TABLE t (id Int64, v {stored}) ENGINE = MergeTree ORDER BY id"
        ));
        let (columns, _) = rows(sql_type, &[]);
        let refused = open(&destination, &target("t", WriteMode::Append), &columns).await.err();
        let refused = text(&refused.unwrap_or_else(|| panic!("{stored} took {sql_type}")));
        assert!(refused.contains(word), "{stored}: {refused}");
    }
}

#[tokio::test]
async fn a_replaced_table_keeps_its_order_its_columns_and_its_settings() {
    let Some(database) = Database::create() else { return };
    let destination = database.destination(json!({}));
    database.query(
        "CREATE TABLE t (id Int64, v Nullable(Int64), day Date DEFAULT '2024-01-01', \
         INDEX by_v v TYPE minmax) ENGINE = MergeTree ORDER BY (id) SETTINGS index_granularity = 1024",
    );
    database.query("INSERT INTO t (id, v) VALUES (1, 1), (2, 2), (3, 3)");
    let (columns, batch) = rows("bigint", &["7"]);
    let settings = target("t", WriteMode::Replace);
    let before = database.query(
        "SELECT engine_full FROM system.tables WHERE database = currentDatabase() AND name = 't'",
    );
    for load in ["l1", "l2"] {
        copy(&destination, &settings, &columns, load, std::slice::from_ref(&batch)).await.unwrap();
        assert_eq!(database.query("SELECT id, v, day FROM t"), "0\t7\t2024-01-01");
    }
    let after = database.query(
        "SELECT engine_full FROM system.tables WHERE database = currentDatabase() AND name = 't'",
    );
    assert_eq!(before, after);
    let indexes = "SELECT name FROM system.data_skipping_indices WHERE database = currentDatabase() AND table = 't'";
    assert_eq!(database.query(indexes), "by_v");
}

#[tokio::test]
async fn names_are_never_read_as_sql() {
    let Some(database) = Database::create() else { return };
    let destination = database.destination(json!({}));
    for (at, hostile) in [
        "`; DROP TABLE canary; --",
        "'); DROP TABLE canary; --",
        "a\\`b",
        "a\\",
        "new\nline\ttab",
        "{x:String}",
        "größe ✓",
        "UUID, Int8) FROM canary --",
    ]
    .into_iter()
    .enumerate()
    {
        database.query("CREATE TABLE IF NOT EXISTS canary (x Int8) ENGINE = MergeTree ORDER BY x");
        for mode in [WriteMode::Append, WriteMode::Upsert, WriteMode::Replace] {
            let (mut columns, batch) = rows("uuid", &["0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9", ""]);
            columns[0] = Column { name: format!("{hostile}k"), ..columns[0].clone() };
            columns[1].name = hostile.to_owned();
            let mut settings = target(&format!("{hostile}{at}{mode:?}"), mode);
            settings.pipeline = hostile.to_owned();
            settings.stream = format!("{hostile}{mode:?}");
            if mode == WriteMode::Upsert {
                settings.primary_key = vec![columns[0].name.clone()];
            }
            let load = crate::server::load(hostile, &[hostile]);
            let opened = open(&destination, &settings, &columns).await.unwrap();
            opened.prepare(&load).await.unwrap();
            let entry = crate::server::write(&opened, &settings, &load, hostile, &[batch]).await;
            let entry = entry.unwrap_or_else(|error| panic!("{hostile}: {}", text(&error)));
            opened.finish(&load).await.unwrap();
            assert_eq!(opened.content().await.unwrap().to_string(), entry.hash);
            let last = destination.last_load(&settings).await.unwrap().unwrap();
            assert_eq!((&*last.0.id, &*last.1[0].unit), (hostile, hostile));
        }
        assert_eq!(database.query("EXISTS TABLE canary"), "1");
    }
}

#[tokio::test]
async fn a_table_with_very_many_columns_is_written() {
    let Some(database) = Database::create() else { return };
    let destination = database.destination(json!({}));
    let (columns, batch) = rows("text", &["a", "", "c"]);
    let wide: Vec<Column> = (0..1_200)
        .map(|at| Column {
            name: format!("a column with a long name, number {at}"),
            ..columns[1].clone()
        })
        .chain([columns[0].clone()])
        .collect();
    let arrays =
        (0..1_200).map(|_| batch.column(1).clone()).chain([batch.column(0).clone()]).collect();
    let schema = forebay_pgcopy::column::schema(&wide);
    let batch = arrow::array::RecordBatch::try_new(schema.into(), arrays).unwrap();
    let settings = target("t", WriteMode::Append);
    let entry = copy(&destination, &settings, &wide, "l", &[batch]).await.unwrap();
    assert_eq!(
        database.query(
            "SELECT count(), countIf(`a column with a long name, number 1199` = 'c') FROM t"
        ),
        "3\t1"
    );
    let content = open(&destination, &settings, &wide).await.unwrap().content().await;
    assert_eq!(content.unwrap().to_string(), entry.hash);
}
