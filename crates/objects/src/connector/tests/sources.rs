//! Files as sources: what columns they have, what is wrong with them, and what is new.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;
use forebay_sdk::acceptance;
use forebay_sdk::connector::{Cursor, Division, Form, Opening, Source, SourceStream};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::hash::Hasher;
use forebay_sdk::run::{Budget, Context, Outlet};
use forebay_sdk::settings::StreamSettings;
use forebay_sdk::values::write::{Cells, json_rows};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::{CsvSource, NdjsonSource};
use super::{chain, csv, ndjson, stream};

pub(super) fn csv_source(settings: Value) -> Arc<dyn Source> {
    super::source::<CsvSource>(settings)
}

pub(super) fn ndjson_source(settings: Value) -> Arc<dyn Source> {
    super::source::<NdjsonSource>(settings)
}

fn types(stream: &Arc<dyn SourceStream>) -> Vec<(String, String)> {
    let columns = stream.columns().iter();
    columns.map(|column| (column.name.clone(), column.sql_type.clone())).collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, sql)| ((*name).to_owned(), (*sql).to_owned())).collect()
}

/// All batches of a stream.
pub(super) async fn read(
    stream: &Arc<dyn SourceStream>,
) -> Result<Vec<RecordBatch>, ConnectorError> {
    let mut read = Vec::new();
    for unit in 0..stream.units().len() {
        let (context, _cancel) = Context::new("test");
        let (mut out, mut batches) = Outlet::new(Budget::new(64 << 20), context).unwrap();
        let reader = Arc::clone(stream);
        let reading = async move { reader.read(unit, &mut out).await };
        let taking = async {
            while let Some(batch) = batches.recv().await.unwrap() {
                let forebay_sdk::Rows::Records(records) = &batch.rows else { panic!("tuples") };
                read.push(records.clone());
            }
        };
        let (done, ()) = tokio::join!(reading, taking);
        done?;
    }
    Ok(read)
}

/// Rows as JSON.
pub(super) async fn json_of(source: &Arc<dyn Source>, name: &str) -> Vec<Value> {
    let stream = acceptance::open_source(source, &stream(name)).await.unwrap();
    let batches = read(&stream).await.unwrap();
    let rows = batches.iter().flat_map(|batch| json_rows(batch, stream.columns()).unwrap());
    rows.map(|row| serde_json::from_str(&row).unwrap()).collect()
}

/// What is wrong with a stream, when it is opened or read.
pub(super) async fn error_of(source: &Arc<dyn Source>, settings: &StreamSettings) -> String {
    match acceptance::open_source(source, settings).await {
        Err(error) => chain(&error),
        Ok(stream) => chain(&read(&stream).await.unwrap_err()),
    }
}

pub(super) fn write(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

#[tokio::test]
async fn types_of_csv_are_found_and_quotes_tell_empty_texts_from_null() {
    let directory = tempfile::tempdir().unwrap();
    let text = "\u{feff}id,price,rate,ok,day,at,zip,\"a \"\"note\"\"\"\r\n\
        1,12.50,1e-3,true,2024-02-29,2024-02-29T10:00:00Z,00123,\"\"\r\n\
        \r\n\
        2,,NaN,false,,,4,\"two\r\nlines, \"\"and\"\" quotes\"\r\n\
        -3,7,,,2024-03-01,2024-02-29 10:00:00+02,5,";
    write(&directory.path().join("a.csv"), text.as_bytes());
    let source = csv_source(json!({ "path": directory.path() }));
    let stream = acceptance::open_source(&source, &stream("a.csv")).await.unwrap();
    let expected = [
        ("id", "bigint"),
        ("price", "numeric"),
        ("rate", "double precision"),
        ("ok", "boolean"),
        ("day", "date"),
        ("at", "timestamp with time zone"),
        ("zip", "text"),
        ("a \"note\"", "text"),
    ];
    assert_eq!(types(&stream), pairs(&expected));
    let rows = json_of(&source, "a.csv").await;
    assert_eq!(rows.len(), 3);
    assert_eq!(rows[0]["price"].to_string(), "12.5");
    assert_eq!(rows[0]["a \"note\""], "");
    assert_eq!(rows[1]["a \"note\""], "two\r\nlines, \"and\" quotes");
    assert_eq!((&rows[1]["price"], &rows[2]["a \"note\""]), (&Value::Null, &Value::Null));
    let content = content(&source, "a.csv").await;
    acceptance::source(&source, &super::stream("a.csv"), content).await.unwrap();
}

/// The content hash of a stream, of its own columns.
async fn content(source: &Arc<dyn Source>, name: &str) -> forebay_pgcopy::ContentHash {
    let stream = acceptance::open_source(source, &stream(name)).await.unwrap();
    let mut hasher = Hasher::new(stream.columns()).unwrap();
    for batch in read(&stream).await.unwrap() {
        hasher.add(&batch).unwrap();
    }
    hasher.content()
}

#[tokio::test]
async fn a_file_that_quotes_everything_has_types_and_null() {
    let directory = tempfile::tempdir().unwrap();
    let text = "\"id\",\"day\",\"note\"\n\"1\",\"\",\"\"\n\"\",\"2024-01-02\",\"x\"\n";
    write(&directory.path().join("a.csv"), text.as_bytes());
    let source = csv_source(json!({ "path": directory.path() }));
    let stream = acceptance::open_source(&source, &stream("a.csv")).await.unwrap();
    assert_eq!(types(&stream), pairs(&[("id", "bigint"), ("day", "date"), ("note", "text")]));
    let rows = json_of(&source, "a.csv").await;
    assert_eq!(rows[0], json!({ "id": 1, "day": null, "note": "" }));
    assert_eq!(rows[1], json!({ "id": null, "day": "2024-01-02", "note": "x" }));
}

#[tokio::test]
async fn what_is_wrong_with_csv_is_said_with_file_and_line() {
    let directory = tempfile::tempdir().unwrap();
    let cases: &[(&str, &[u8], &str)] = &[
        (
            "fields",
            b"a,b\n1,2\n\"x\ny\",2\n1\n",
            "fields.csv line 5: the record has 1 fields, expected 2",
        ),
        ("open", b"a\n\"x\ny\n", "open.csv line 2: a quoted field has no closing quote"),
        ("after", b"a,b\n\"x\"y,1\n", "after.csv line 2: field 1 has y after its closing quote"),
        ("utf8", b"a,b\n1,\xff\n", "utf8.csv line 2: field 2 is not UTF-8"),
        ("twice", b"a,a\n1,2\n", "it has two columns named \"a\""),
        ("none", b"", "the file has no header"),
        ("unnamed", b"a,,b\n", "column 2 of the header has no name"),
    ];
    for (name, bytes, expected) in cases {
        write(&directory.path().join(format!("{name}.csv")), bytes);
        let source = csv_source(json!({ "path": directory.path() }));
        let found = error_of(&source, &stream(&format!("{name}.csv"))).await;
        assert!(found.contains(expected), "{name}: {found}");
    }
    let late = format!("a\n{}x\n", "1\n".repeat(20));
    write(&directory.path().join("late.csv"), late.as_bytes());
    let source = csv_source(json!({ "path": directory.path(), "sample_rows": 5 }));
    let found = error_of(&source, &stream("late.csv")).await;
    assert!(
        found.contains("late.csv line 22: column \"a\": \"x\" is not a valid bigint"),
        "{found}"
    );
    let given = json!({ "path": directory.path(), "columns": { "a": "text" } });
    assert_eq!(json_of(&csv_source(given), "late.csv").await.len(), 21);
}

#[tokio::test]
async fn types_of_ndjson_are_found_and_what_is_mixed_stays_json() {
    let directory = tempfile::tempdir().unwrap();
    let text = r#"{"id": 1, "n": 1, "mixed": 1, "o": {"a": [1, 2.50]}, "t": "x", "b": true}

        {"id": 2, "n": 1.10, "mixed": "1", "o": null, "t": "a\"\u0041\n", "new": null}
        {"n": 123456789012345678901234567890, "id": 3, "b": null, "o": [1]}"#;
    write(&directory.path().join("d/a.ndjson"), text.as_bytes());
    let source = ndjson_source(json!({ "path": directory.path() }));
    let stream = acceptance::open_source(&source, &stream("d")).await.unwrap();
    let expected = [
        ("id", "bigint"),
        ("n", "numeric"),
        ("mixed", "json"),
        ("o", "json"),
        ("t", "text"),
        ("b", "boolean"),
        ("new", "text"),
    ];
    assert_eq!(types(&stream), pairs(&expected));
    let rows = json_of(&source, "d").await;
    assert_eq!(rows[0]["o"], json!({"a": [1, 2.5]}));
    assert_eq!((&rows[1]["mixed"], &rows[1]["t"]), (&json!("1"), &json!("a\"A\n")));
    assert_eq!(
        (&rows[2]["n"], &rows[2]["mixed"]),
        (&json!(123456789012345678901234567890_f64), &Value::Null)
    );
    let content = content(&source, "d").await;
    acceptance::source(&source, &super::stream("d"), content).await.unwrap();
}

#[tokio::test]
async fn what_is_wrong_with_ndjson_is_said_with_file_and_line() {
    let directory = tempfile::tempdir().unwrap();
    let cases = [
        ("syntax", "{\"a\": 1}\n{\"a\": }\n", "syntax.ndjson line 2: it is not a JSON object"),
        ("array", "{\"a\": 1}\n[1]\n", "array.ndjson line 2: it is not a JSON object"),
        (
            "twice",
            "{\"a\": 1}\n{\"a\": 1, \"a\": 2}\n",
            "twice.ndjson line 2: the key \"a\" occurs twice",
        ),
        ("after", "{\"a\": 1} {\"a\": 1}\n", "after.ndjson line 1: it is not a JSON object"),
    ];
    for (name, text, expected) in cases {
        write(&directory.path().join(format!("{name}.ndjson")), text.as_bytes());
        let source = ndjson_source(json!({ "path": directory.path() }));
        let found = error_of(&source, &stream(&format!("{name}.ndjson"))).await;
        assert!(found.contains(expected), "{name}: {found}");
    }
    write(
        &directory.path().join("late.ndjson"),
        b"{\"a\": 1}\n{\"a\": 2, \"b\": 1}\n{\"a\": 1.5}\n",
    );
    let sampled = |more: Value| {
        let mut settings = json!({ "path": directory.path(), "sample_rows": 1 });
        settings["columns"] = more;
        ndjson_source(settings)
    };
    let found = error_of(&sampled(json!({})), &stream("late.ndjson")).await;
    assert!(
        found.contains("late.ndjson line 2: the key \"b\" does not occur in the first lines"),
        "{found}"
    );
    let found = error_of(&sampled(json!({ "b": "bigint" })), &stream("late.ndjson")).await;
    assert!(
        found.contains("late.ndjson line 3: column \"a\": \"1.5\" is not a valid bigint"),
        "{found}"
    );
    let both = sampled(json!({ "b": "bigint", "a": "numeric" }));
    assert_eq!(json_of(&both, "late.ndjson").await.len(), 3);
}

#[tokio::test]
async fn compressed_files_are_read_and_cut_ones_are_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let text: String = (0..5000).map(|id| format!("{{\"id\": {id}}}\n")).collect();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(text.as_bytes()).unwrap();
    let mut members = gzip.finish().unwrap();
    members.extend_from_within(..);
    let zstd = zstd::encode_all(text.as_bytes(), 1).unwrap();
    write(&directory.path().join("x/a.jsonl.gz"), &members);
    write(&directory.path().join("x/b.ndjson.zst"), &zstd);
    write(&directory.path().join("cut.json.gz"), &members[..members.len() - 20]);
    write(&directory.path().join("cut.json.zst"), &zstd[..zstd.len() - 20]);
    let source = ndjson_source(json!({ "path": directory.path() }));
    assert_eq!(json_of(&source, "x").await.len(), 15_000);
    for name in ["cut.json.gz", "cut.json.zst"] {
        let found = error_of(&source, &stream(name)).await;
        assert!(found.contains("cannot be decompressed"), "{name}: {found}");
    }
}

#[tokio::test]
async fn what_is_written_is_read_back_with_types_that_are_given() {
    let directory = tempfile::tempdir().unwrap();
    let columns = acceptance::columns();
    let batch = acceptance::rows(&columns, 0..100);
    let given = |except: &str| {
        let columns = columns.iter().filter(|column| column.sql_type != except);
        let types = columns.map(|column| {
            let name = if column.sql_type == "money" { "bigint" } else { &column.sql_type };
            (column.name.clone(), json!(name))
        });
        Value::Object(types.collect())
    };
    let mut hasher = Hasher::new(&columns).unwrap();
    hasher.add(&batch).unwrap();
    let path = directory.path();
    acceptance::fill(&csv(json!({ "path": path })), "c", &columns, &[&batch]).await.unwrap();
    let source = csv_source(json!({ "path": path, "columns": given("") }));
    acceptance::source(&source, &stream("c"), hasher.content()).await.unwrap();
    // `null` of JSON and NULL are one when files of others are read.
    let without: Vec<_> = columns.iter().filter(|it| it.sql_type != "json").cloned().collect();
    let batch = acceptance::rows(&without, 0..100);
    let mut hasher = Hasher::new(&without).unwrap();
    hasher.add(&batch).unwrap();
    acceptance::fill(&ndjson(json!({ "path": path })), "n", &without, &[&batch]).await.unwrap();
    let source = ndjson_source(json!({ "path": path, "columns": given("json") }));
    acceptance::source(&source, &stream("n"), hasher.content()).await.unwrap();
}

#[tokio::test]
async fn names_are_files_directories_and_patterns_and_none_leaves_its_place() {
    let directory = tempfile::tempdir().unwrap();
    for name in
        ["in/a.csv", "in/b.csv.gz.not", "in/deep/c.csv", "in/_hidden/d.csv", "in/.e.csv", "out.csv"]
    {
        write(&directory.path().join(name), b"a\n1\n");
    }
    let source = csv_source(json!({ "path": directory.path().join("in") }));
    for (name, rows) in [
        ("", 2),
        (".", 2),
        ("a.csv", 1),
        ("*.csv", 1),
        ("**/*.csv", 2),
        ("deep", 1),
        ("[ab].csv", 1),
    ] {
        assert_eq!(json_of(&source, name).await.len(), rows, "{name:?}");
    }
    for name in ["../out.csv", "/etc/passwd", "nothing/*.csv"] {
        assert!(acceptance::open_source(&source, &stream(name)).await.is_err(), "{name}");
    }
}

#[tokio::test]
async fn files_with_other_columns_are_an_error_unless_columns_are_chosen() {
    let directory = tempfile::tempdir().unwrap();
    write(&directory.path().join("1.csv"), b"a,b\n1,2\n");
    write(&directory.path().join("2.csv"), b"c,a\n3,4\n");
    let source = csv_source(json!({ "path": directory.path() }));
    let found = error_of(&source, &stream("*.csv")).await;
    assert!(found.contains("2.csv: it has a column \"c\""), "{found}");
    let chosen: StreamSettings =
        serde_json::from_value(json!({ "name": "*.csv", "columns": ["b", "a"] })).unwrap();
    let open = acceptance::open_source(&source, &chosen).await.unwrap();
    let rows: Vec<String> = read(&open)
        .await
        .unwrap()
        .iter()
        .flat_map(|batch| json_rows(batch, open.columns()).unwrap())
        .collect();
    assert_eq!(rows, ["{\"b\":2,\"a\":1}", "{\"b\":null,\"a\":4}"]);
}

#[tokio::test]
async fn incremental_reads_files_that_were_written_since() {
    let directory = tempfile::tempdir().unwrap();
    let at = |second: u64| std::time::UNIX_EPOCH + std::time::Duration::from_secs(second);
    let put = |name: &str, second: u64| {
        let path = directory.path().join(name);
        write(&path, b"a\n1\n");
        fs::File::options().write(true).open(path).unwrap().set_modified(at(second)).unwrap();
    };
    put("b.csv", 100);
    put("a.csv", 200);
    let source = csv_source(json!({ "path": directory.path() }));
    let stream: StreamSettings = serde_json::from_value(json!({
        "name": "*.csv", "sync_mode": "incremental", "cursor_field": "last_modified"
    }))
    .unwrap();
    let open_as = async |since, division| {
        let opening = Opening {
            form: Form::PlainRecords,
            since,
            division,
            unit_size: 1 << 20,
            batch_size: 1 << 20,
            memory: 32 << 20,
            parallelism: 1,
            snapshot: None,
        };
        let (context, _cancel) = Context::new("test");
        source.open(&stream, &opening, &context).await
    };
    let open = async |since| open_as(since, Division::Stable).await.unwrap();
    let first = open(None).await;
    assert_eq!(first.units().len(), 2);
    let cursor = first.cursor();
    let nothing = open(cursor.clone()).await;
    assert_eq!((read(&nothing).await.unwrap().len(), nothing.cursor()), (0, cursor.clone()));
    put("a2.csv", 200);
    put("c.csv", 201);
    let new = open(cursor.clone()).await;
    let names: Vec<&str> = new.units().iter().map(|unit| &*unit.name).collect();
    assert!(
        names.len() == 2 && names[0].contains("a2.csv") && names[1].contains("c.csv"),
        "{names:?}"
    );
    // Files that came with earlier times, or with the same time and a smaller name, would be missed.
    for (name, second) in [("old.csv", 150), ("a.1.csv", 200)] {
        put(name, second);
        let refused = open_as(cursor.clone(), Division::Stable).await.map(drop).unwrap_err();
        let refused = refused.to_string();
        assert!(refused.contains("1 files of *.csv") && refused.contains("touch"), "{refused}");
        // Where rows replace themselves, all are read again.
        let again = open_as(cursor.clone(), Division::Any).await.unwrap();
        assert_eq!(again.units().len(), 5, "{name}");
        assert!(again.notes().iter().any(|note| note.contains("all files are read again")));
        fs::remove_file(directory.path().join(name)).unwrap();
    }
    put("old.csv", 202);
    assert_eq!(open(cursor.clone()).await.units().len(), 3, "it is a new one");
    // A cursor of an earlier version counts nothing.
    put("old.csv", 150);
    let uncounted = cursor.map(|cursor| Cursor { rows_at: None, ..cursor });
    assert_eq!(open(uncounted).await.units().len(), 2);
    let wrong: StreamSettings = serde_json::from_value(json!({
        "name": "*.csv", "sync_mode": "incremental", "cursor_field": "id"
    }))
    .unwrap();
    let found = error_of(&source, &wrong).await;
    assert!(found.contains("cursor_field: last_modified"), "{found}");
}

#[tokio::test]
async fn a_file_that_changes_during_a_run_fails_its_unit() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.csv");
    write(&path, b"a\n1\n");
    let source = csv_source(json!({ "path": directory.path() }));
    let open = acceptance::open_source(&source, &stream("a.csv")).await.unwrap();
    write(&path, b"a\n1\n2\n");
    let found = chain(&read(&open).await.unwrap_err());
    assert!(found.contains("it was changed after the run began"), "{found}");
}

#[tokio::test]
async fn a_file_that_is_overwritten_while_it_is_read_fails_its_unit() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.csv");
    let of = |value: &str| format!("a\n{}", format!("{value}\n").repeat(400_000)).into_bytes();
    let source = csv_source(json!({ "path": directory.path() }));
    // In place: of the same size, and shorter.
    for other in [of("22222222222222222222"), b"a\n1\n".to_vec()] {
        write(&path, &of("11111111111111111111"));
        let open = acceptance::open_source(&source, &stream("a.csv")).await.unwrap();
        let (context, _cancel) = Context::new("test");
        let (mut out, mut batches) = Outlet::new(Budget::new(1 << 20), context).unwrap();
        let reading = async move { open.read(0, &mut out).await };
        let taking = async {
            let mut is_first = true;
            while batches.recv().await.unwrap().is_some() {
                if std::mem::take(&mut is_first) {
                    write(&path, &other);
                    let file = fs::File::options().write(true).open(&path).unwrap();
                    file.set_modified(std::time::UNIX_EPOCH).unwrap();
                }
            }
        };
        let (done, ()) = tokio::join!(reading, taking);
        let found = chain(&done.unwrap_err());
        assert!(found.contains("it was changed after the run began"), "{found}");
    }
}

/// The rows of a file of these bytes, as far as it can be read.
pub(super) fn read_bytes(name: &str, bytes: &[u8]) -> Result<Vec<Vec<Option<String>>>, String> {
    let directory = tempfile::tempdir().unwrap();
    write(&directory.path().join(name), bytes);
    let settings = json!({ "path": directory.path() });
    let source =
        if name.ends_with(".csv") { csv_source(settings) } else { ndjson_source(settings) };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let stream = acceptance::open_source(&source, &stream(name)).await;
        let stream = stream.map_err(|error| chain(&error))?;
        let batches = read(&stream).await.map_err(|error| chain(&error))?;
        let mut rows = Vec::new();
        for batch in batches {
            let columns = batch.columns().iter().zip(stream.columns());
            let cells: Vec<Cells<'_>> = columns
                .map(|(array, column)| Cells::new(array.as_ref(), column).unwrap())
                .collect();
            for row in 0..batch.num_rows() {
                let value = |cells: &Cells<'_>| {
                    let mut out = Vec::new();
                    cells.text(row, &mut out);
                    (!cells.is_null(row)).then(|| String::from_utf8(out).unwrap())
                };
                rows.push(cells.iter().map(value).collect());
            }
        }
        Ok(rows)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn no_bytes_make_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        for name in ["a.csv", "a.ndjson", "a.csv.gz", "a.ndjson.zst"] {
            drop(read_bytes(name, &bytes));
        }
        let mut headed = b"a,b\n".to_vec();
        headed.extend(&bytes);
        drop(read_bytes("a.csv", &headed));
    }

    #[test]
    fn texts_of_any_kind_stand_in_csv(
        rows in prop::collection::vec([".{0,8}", "[\"\r\n, ;a]{0,8}"], 1..20),
    ) {
        let quoted = |text: &String| format!("\"{}\"", text.replace('"', "\"\""));
        // A letter in every value, so that none is taken for a number.
        let rows: Vec<[String; 2]> = rows.into_iter().map(|row| row.map(|it| it + "x")).collect();
        let lines: String = rows.iter().map(|row| row.each_ref().map(quoted).join(",") + "\r\n").collect();
        let read = read_bytes("a.csv", format!("a,b\n{lines}").as_bytes()).unwrap();
        let expected: Vec<Vec<Option<String>>> =
            rows.into_iter().map(|row| row.map(Some).into()).collect();
        prop_assert_eq!(read, expected);
    }
}

/// Writes texts into one page of a Parquet file.
fn write_parquet(path: &Path, texts: arrow::array::ArrayRef) {
    let batch = RecordBatch::try_from_iter([("a", texts)]).unwrap();
    let properties = parquet::file::properties::WriterProperties::builder()
        .set_compression(parquet::basic::Compression::ZSTD(Default::default()))
        .set_dictionary_page_size_limit(4 << 20)
        .set_data_page_size_limit(1 << 30)
        .build();
    let file = fs::File::create(path).unwrap();
    let mut writer =
        parquet::arrow::ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

#[tokio::test]
async fn a_page_that_expands_beyond_the_memory_of_a_run_is_an_error_that_names_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.parquet");
    let texts = (0..64).map(|row| format!("{row}{}", "x".repeat(1 << 20)));
    write_parquet(&path, Arc::new(arrow::array::StringArray::from_iter_values(texts)));
    assert!(path.metadata().unwrap().len() < 64 << 10);
    let source = super::parquet_source(directory.path());
    let open = acceptance::open_source(&source, &stream("a.parquet")).await.unwrap();
    let found = chain(&read(&open).await.unwrap_err());
    assert!(found.contains("row group 0, column \"a\", page"), "{found}");
    assert!(found.contains("the limit is 33554432 bytes; raise `resources.max_memory`"), "{found}");
}

#[tokio::test]
async fn a_long_text_that_many_rows_name_comes_in_batches_of_their_size() {
    let directory = tempfile::tempdir().unwrap();
    let keys = arrow::array::Int32Array::from(vec![0; 2_000]);
    let text = arrow::array::StringArray::from(vec!["y".repeat(100 << 10)]);
    let texts =
        arrow::array::DictionaryArray::<arrow::datatypes::Int32Type>::new(keys, Arc::new(text));
    let plain =
        arrow::compute::cast(&texts.slice(0, 1), &arrow::datatypes::DataType::Utf8).unwrap();
    let schema = arrow::datatypes::Schema::new(vec![arrow::datatypes::Field::new(
        "a",
        plain.data_type().clone(),
        false,
    )]);
    // Written as a dictionary, read as text: 200 MiB of a few bytes.
    let path = directory.path().join("a.parquet");
    let file = fs::File::create(&path).unwrap();
    let properties = parquet::file::properties::WriterProperties::builder()
        .set_dictionary_page_size_limit(4 << 20)
        .build();
    let mut writer =
        parquet::arrow::ArrowWriter::try_new(file, Arc::new(schema.clone()), Some(properties))
            .unwrap();
    let many = arrow::compute::cast(&texts.slice(0, 200), plain.data_type()).unwrap();
    for _ in 0..10 {
        let batch =
            RecordBatch::try_new(Arc::new(schema.clone()), vec![Arc::clone(&many)]).unwrap();
        writer.write(&batch).unwrap();
    }
    writer.close().unwrap();
    assert!(path.metadata().unwrap().len() < 256 << 10);
    let source = super::parquet_source(directory.path());
    let open = acceptance::open_source(&source, &stream("a.parquet")).await.unwrap();
    let mut rows = 0;
    for batch in read(&open).await.unwrap() {
        assert!(batch.get_array_memory_size() < 3 << 20, "{}", batch.get_array_memory_size());
        rows += batch.num_rows();
    }
    assert_eq!(rows, 2_000);
}
