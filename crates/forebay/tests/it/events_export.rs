//! `forebay events export` into a directory: every row is the event it came from, and provable.

use std::collections::HashMap;
use std::fs::{self, File};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{Array as _, AsArray as _, RecordBatch};
use arrow::datatypes::{Int32Type, TimestampNanosecondType, UInt64Type};
use forebay_base::clock::SystemClock;
use forebay_base::fs::RealFs;
use forebay_events::format::tree::hash as leaf_hash;
use forebay_events::{
    Batch, Draft, Options, Severity, Store, TimeSource, Value as EventValue, render,
};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::events_support::{append_ok, events, events_json, lines, numbered, refused};
use crate::support::{HANG, forebay, run, stderr};

const MANIFEST: &str = "_forebay_export.json";

/// Every part below a directory, in order; only the manifest may exist besides.
fn parts(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = walkdir::WalkDir::new(dir)
        .sort_by_file_name()
        .into_iter()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_type().is_file())
        .map(walkdir::DirEntry::into_path)
        .collect();
    files.retain(|path| !path.ends_with(MANIFEST));
    assert!(
        files.iter().all(|path| path.file_name().unwrap().to_string_lossy().starts_with("part-"))
    );
    files
}

fn below(dir: &Path) -> Vec<String> {
    parts(dir).iter().map(|path| path.strip_prefix(dir).unwrap().display().to_string()).collect()
}

fn manifest(dir: &Path) -> Value {
    serde_json::from_slice(&fs::read(dir.join(MANIFEST)).unwrap()).unwrap()
}

/// One row, as JSON in the form of `scan`, and its leaf as in docs/formats/event-export.md.
struct Row {
    json: Value,
    leaf: Vec<u8>,
    leaf_hash: String,
}

fn rows_of(batch: &RecordBatch) -> Vec<Row> {
    let column = |name: &str| batch.column_by_name(name).unwrap();
    let tag = |name: &str, row: usize| -> String {
        let tags = column(name).as_dictionary::<Int32Type>();
        let texts = tags.values().as_string::<i32>();
        tags.key(row).map_or_else(String::new, |key| texts.value(key).to_owned())
    };
    let time = column("timestamp").as_primitive::<TimestampNanosecondType>();
    let (ids, seqs) = (column("id").as_string::<i32>(), column("seq").as_primitive::<UInt64Type>());
    let (raws, texts) = (column("raw").as_binary::<i32>(), column("attributes").as_string::<i32>());
    let canonical = column("attributes_canonical").as_binary::<i32>();
    let hashes = column("leaf_hash").as_fixed_size_binary();
    let of = |row: usize| {
        let ip: Option<IpAddr> =
            Some(tag("ip", row)).filter(|ip| !ip.is_empty()).map(|ip| ip.parse().unwrap());
        let draft = Draft {
            stream: tag("stream", row).into(),
            kind: tag("type", row).into(),
            host: tag("host", row).into(),
            ip,
            collector: tag("collector", row).into(),
            format: tag("format", row).into(),
            severity: Severity::from_name(&tag("severity", row)).unwrap(),
            raw: raws.value(row).into(),
            id: Some(ids.value(row).parse().unwrap()),
            timestamp_ns: Some(time.value(row)),
            time_source: TimeSource::from_name(&tag("time_source", row)).unwrap_or_default(),
            attributes: Vec::new(),
        };
        let mut batch = Batch::new("unused");
        batch.push(&draft, 0).unwrap();
        let mut leaf = batch.leaves().next().unwrap().to_vec();
        assert_eq!(canonical.is_null(row), texts.is_null(row));
        if !canonical.is_null(row) {
            leaf.extend_from_slice(canonical.value(row));
        }
        let mut source = serde_json::Map::new();
        for name in ["host", "ip", "collector", "format"] {
            if !tag(name, row).is_empty() {
                source.insert(name.to_owned(), tag(name, row).into());
            }
        }
        let mut json = json!({
            "id": ids.value(row), "seq": seqs.value(row), "timestamp": render::time(time.value(row)),
            "stream": tag("stream", row), "type": tag("type", row), "severity": tag("severity", row),
            "source": source,
        });
        if !tag("time_source", row).is_empty() {
            json["time_source"] = tag("time_source", row).into();
        }
        match std::str::from_utf8(raws.value(row)) {
            Ok(text) => json["raw"] = text.into(),
            Err(_) => json["raw_base64"] = render::base64(raws.value(row)).into(),
        }
        if !texts.is_null(row) {
            json["attributes"] = serde_json::from_str(texts.value(row)).unwrap();
        }
        let leaf_hash = hex::encode(hashes.value(row));
        Row { json, leaf, leaf_hash }
    };
    (0..batch.num_rows()).map(of).collect()
}

/// The rows of a Parquet file and its metadata.
fn read(path: &Path) -> (Vec<Row>, HashMap<String, String>) {
    let builder = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap();
    let metadata = builder.metadata().file_metadata().key_value_metadata().unwrap().clone();
    let rows = builder.build().unwrap().flat_map(|batch| rows_of(&batch.unwrap())).collect();
    (rows, metadata.into_iter().map(|entry| (entry.key, entry.value.unwrap())).collect())
}

/// A store with events of several formats, some with attributes, some that are not text.
fn mixed(dir: &TempDir) {
    append_ok(dir, &["--stream", "numbers"], numbered(300).as_bytes());
    append_ok(dir, &["--stream", "odd", "--format", "raw"], b"\xff\x00 no text\nplain\n");
    let syslog = b"<34>1 2024-11-21T10:20:30.123456789Z gate-1 sshd 71 ID47 [a@1 b=\"c\"] Failed\n";
    append_ok(dir, &["--stream", "auth", "--format", "syslog"], syslog);
    let eve = b"{\"timestamp\":\"2024-11-21T10:20:31.5+0000\",\"event_type\":\"alert\",\"src_ip\":\"2001:db8::7\",\
        \"alert\":{\"severity\":1}}\n";
    append_ok(dir, &["--stream", "ids", "--format", "suricata"], eve);
    with_attributes(dir);
}

/// An event with attributes that JSON cannot distinguish from others: written by a program.
fn with_attributes(dir: &TempDir) {
    let path = dir.path().join("forebay-data/events");
    let (fs, clock) = (Arc::new(RealFs), Arc::new(SystemClock::new()));
    let (store, _) = Store::open(fs, clock, &path, Options::default()).unwrap();
    let mut batch = Batch::new("made");
    let attributes = vec![
        ("ratio".into(), EventValue::Real(f64::from_bits(0x7ff8_0000_0000_0001))),
        ("twice".into(), EventValue::Integer(1)),
        ("twice".into(), EventValue::Integer(2)),
        ("blob".into(), EventValue::Bytes(b"\0\xff".into())),
        ("text".into(), EventValue::Text("\u{e9}".into())),
    ];
    let draft = Draft { raw: b"r".into(), attributes, ..Draft::default() };
    batch.push(&draft, 1_732_190_000_000_000_000).unwrap();
    store.append(batch).unwrap();
    store.close().unwrap();
}

#[test]
fn every_row_is_its_event_and_gives_back_the_leaf_that_is_proven() {
    let dir = tempfile::tempdir().unwrap();
    mixed(&dir);
    let report = events_json(&dir, &["export", "--out", "out", "--rows-max", "100", "--json"]);
    let stored = lines(&events(&dir, &["scan"]));
    assert_eq!(report["rows"], stored.len());
    assert_eq!(report["files"], 4);
    assert_eq!((&report["first_seq"], &report["last_seq"]), (&json!(0), &json!(stored.len() - 1)));
    let out = dir.path().join("out");
    let manifest = manifest(&out);
    assert_eq!(manifest["checkpoint"], report["checkpoint"]);
    let mut found = Vec::new();
    for (path, listed) in parts(&out).iter().zip(manifest["parts"].as_array().unwrap()) {
        let (rows, metadata) = read(path);
        assert!(path.ends_with(listed["path"].as_str().unwrap()));
        assert_eq!(listed["rows"], rows.len());
        assert_eq!(listed["bytes"], fs::metadata(path).unwrap().len());
        assert_eq!(metadata["forebay.format_version"], "1");
        assert_eq!(metadata["forebay.rows"], rows.len().to_string());
        assert_eq!(metadata["forebay.checkpoint"], report["checkpoint"].as_str().unwrap());
        assert_eq!(metadata["forebay.verifier_key"], manifest["verifier_key"].as_str().unwrap());
        for name in ["first_seq", "last_seq"] {
            assert_eq!(metadata[&format!("forebay.{name}")], listed[name].to_string());
        }
        found.extend(rows);
    }
    assert_eq!(found.len(), stored.len());
    for (row, event) in found.iter().zip(&stored) {
        assert_eq!(&row.json, event);
        assert_eq!(leaf_hash(&row.leaf).to_string(), row.leaf_hash, "{event}");
    }
    let odd: Vec<_> = found.iter().filter(|row| row.json.get("attributes").is_some()).collect();
    assert_eq!(odd.len(), 1);
    for row in found.iter().step_by(60).chain(odd) {
        let proof = events(&dir, &["prove", row.json["id"].as_str().unwrap()]);
        let proof: Value = serde_json::from_str(&proof).unwrap();
        assert_eq!(proof["leaf_index"], row.json["seq"]);
        assert_eq!(proof["leaf_hash"], row.leaf_hash);
        assert_eq!(proof["leaf_base64"], render::base64(&row.leaf));
        // Nothing was added since: the proof is under the exported checkpoint.
        assert_eq!(proof["checkpoint"], report["checkpoint"]);
    }
}

#[test]
fn lines_are_the_events_of_a_scan_with_their_leaf_hash() {
    let dir = tempfile::tempdir().unwrap();
    mixed(&dir);
    let args = ["export", "--out", "out/deep", "--format", "ndjson", "--stream", "odd"];
    events(&dir, &args);
    let out = dir.path().join("out/deep");
    assert_eq!(below(&out), ["part-00000.ndjson"]);
    let mut found = lines(&fs::read_to_string(&parts(&out)[0]).unwrap());
    for event in &mut found {
        let hash = event.as_object_mut().unwrap().remove("leaf_hash").unwrap();
        let proof = events_json(&dir, &["prove", event["id"].as_str().unwrap()]);
        assert_eq!(proof["leaf_hash"], hash);
    }
    assert_eq!(found, lines(&events(&dir, &["scan", "--stream", "odd"])));
    let manifest = manifest(&out);
    assert_eq!(manifest["query"], json!({ "stream": "odd" }));
    assert_eq!((&manifest["format"], &manifest["rows"]), (&json!("ndjson"), &json!(2)));
}

#[test]
fn days_and_hours_have_separate_directories() {
    let dir = tempfile::tempdir().unwrap();
    // The last second of a day, the first two of the next, and one an hour later.
    let times = ["2024-11-20T23:59:59.999999999Z", "2024-11-21T00:00:00Z", "2024-11-21T00:00:01Z"];
    let later = "2024-11-21T01:00:00Z";
    let input: String =
        times.iter().chain([&later]).map(|time| format!("{{\"ts\":\"{time}\"}}\n")).collect();
    append_ok(&dir, &["--stream", "s", "--format", "ndjson"], input.as_bytes());
    events(&dir, &["export", "--out", "days", "--partition", "day", "--rows-max", "2"]);
    assert_eq!(
        below(&dir.path().join("days")),
        [
            "date=2024-11-20/part-00000.parquet",
            "date=2024-11-21/part-00000.parquet",
            "date=2024-11-21/part-00001.parquet",
        ]
    );
    events(&dir, &["export", "--out", "hours", "--partition", "hour", "--from", times[1]]);
    assert_eq!(
        below(&dir.path().join("hours")),
        [
            "date=2024-11-21/hour=00/part-00000.parquet",
            "date=2024-11-21/hour=01/part-00000.parquet"
        ]
    );
    events(&dir, &["export", "--out", "none", "--host", "nobody"]);
    let manifest = manifest(&dir.path().join("none"));
    assert_eq!((&manifest["rows"], &manifest["parts"]), (&json!(0), &json!([])));
    assert!(manifest["checkpoint"].is_string());
}

#[test]
fn nothing_that_exists_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    append_ok(&dir, &["--stream", "s"], numbered(3).as_bytes());
    let export = ["export", "--out", "out"];
    events(&dir, &export);
    let out = dir.path().join("out");
    let part = parts(&out).remove(0);
    let before = fs::read(&part).unwrap();
    assert!(refused(&dir, &export, 1).contains(MANIFEST));
    fs::remove_file(out.join(MANIFEST)).unwrap();
    let said = refused(&dir, &export, 1);
    assert!(said.contains("part-00000.parquet"), "{said}");
    assert_eq!(fs::read(&part).unwrap(), before);
    assert!(!out.join(MANIFEST).exists());
    refused(&dir, &["export", "--out", "other", "--allow-http"], 2);
    refused(&dir, &["export", "--out", "other", "--rows-max", "0"], 2);
    refused(&dir, &["export", "--out", "gs://bucket/x"], 2);
    assert!(!dir.path().join("other").exists());
}

#[test]
fn a_store_without_proofs_says_so() {
    let dir = tempfile::tempdir().unwrap();
    append_ok(&dir, &["--stream", "s", "--set", "events.merkle=false"], numbered(3).as_bytes());
    let output = run(&dir, &["events", "export", "--out", "out", "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("no proofs"), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["rows"], &report["checkpoint"]), (&json!(3), &Value::Null));
    let (rows, metadata) = read(&parts(&dir.path().join("out"))[0]);
    assert!(!metadata.contains_key("forebay.checkpoint"));
    assert!(rows.iter().all(|row| leaf_hash(&row.leaf).to_string() == row.leaf_hash));
}

#[test]
fn a_killed_export_leaves_whole_parts_and_no_manifest() {
    let dir = tempfile::tempdir().unwrap();
    append_ok(&dir, &["--stream", "s"], numbered(20_000).as_bytes());
    let mut export = forebay(&dir);
    export.args(["events", "export", "--out", "out", "--rows-max", "20"]);
    let mut export = export.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let out = dir.path().join("out");
    let begun = Instant::now();
    while !out.join("part-00003.parquet").exists() {
        assert!(begun.elapsed() < HANG, "no part came");
        std::thread::yield_now();
    }
    export.kill().unwrap();
    assert!(!export.wait().unwrap().success(), "it was ended half-way");
    assert!(!out.join(MANIFEST).exists());
    let mut whole = 0;
    for entry in fs::read_dir(&out).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if name.starts_with("part-") {
            assert_eq!(read(&entry.path()).0.len(), 20);
            whole += 1;
        } else {
            assert!(name.starts_with(".forebay-export-"), "{name}");
        }
    }
    assert!((4..1_000).contains(&whole), "{whole}");
    assert!(refused(&dir, &["export", "--out", "out"], 1).contains("part-00000.parquet"));
    refused(&dir, &["verify-export", "out"], 1);
}

#[test]
fn verifying_an_export_finds_what_was_changed() {
    let dir = tempfile::tempdir().unwrap();
    mixed(&dir);
    events(&dir, &["export", "--out", "out"]);
    let key = events_json(&dir, &["stats", "--json"])["verifier_key"].as_str().unwrap().to_owned();
    let verify = ["verify-export", "--key", &key, "--json", "out"];
    let report = events_json(&dir, &verify);
    assert_eq!((&report["rows"], &report["leaves"]), (&json!(305), &json!(305)));
    assert_eq!((&report["sound"], &report["signature"]), (&json!(true), &json!(true)));
    let part = parts(&dir.path().join("out")).remove(0);
    let whole = fs::read(&part).unwrap();
    let mut damaged = whole.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    fs::write(&part, &damaged).unwrap();
    assert!(refused(&dir, &verify, 1).contains("differs from the exported one"));
    fs::write(&part, &whole).unwrap();
    let path = dir.path().join("out").join(MANIFEST);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("events\\n305\\n", "events\\n306\\n")).unwrap();
    let said = refused(&dir, &verify, 1);
    assert!(said.contains("the checkpoint is not valid"), "{said}");
}
