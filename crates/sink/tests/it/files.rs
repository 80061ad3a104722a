//! What crashes and damage leave in a directory of files.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch};
use forebay_sink::files::MANIFEST;
use forebay_sink::{
    Document, DocumentSink as _, NdjsonSink, OpenError, ParquetSink, Position, Records, Sink as _,
    TableSink as _,
};
use tempfile::TempDir;

fn dir() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn ndjson(dir: &Path, ats: std::ops::RangeInclusive<u64>) {
    let mut sink = NdjsonSink::open(dir).unwrap();
    for at in ats {
        let document = Document { id: at, received_ms: 5, raw: b"{\"a\": 1}" };
        sink.write_documents(Position(at), "docs", &[document]).unwrap();
        sink.commit(Position(at)).unwrap();
    }
}

fn ids(dir: &Path) -> Vec<u64> {
    let mut ids = Vec::new();
    let sink = NdjsonSink::open(dir).unwrap();
    sink.read("docs", &mut |document| ids.push(document.id)).unwrap();
    ids
}

fn parquet(sink: &mut ParquetSink, at: u64) {
    let values = Arc::new(Int64Array::from(vec![1, 2, 3]));
    let batch = RecordBatch::try_from_iter([("n", values as _)]).unwrap();
    let records = Records { first_id: at * 10, received_ms: 5, batch: &batch, documents: None };
    sink.write_records(Position(at), "t", &records).unwrap();
    sink.write_records(Position(at), "u", &records).unwrap();
}

#[test]
fn lines_are_what_the_format_says() {
    let dir = dir();
    ndjson(dir.path(), 1..=2);
    assert_eq!(
        fs::read_to_string(dir.path().join("docs.ndjson")).unwrap(),
        "{\"_id\":1,\"_received_ms\":5,\"_document\":{\"a\": 1}}\n\
         {\"_id\":2,\"_received_ms\":5,\"_document\":{\"a\": 1}}\n"
    );
}

#[test]
fn a_torn_append_is_cut_off() {
    let dir = dir();
    ndjson(dir.path(), 1..=3);
    let file = dir.path().join("docs.ndjson");
    let whole = fs::read(&file).unwrap();
    for torn in
        [&b"{\"_id\":4,\"_rec"[..], b"{\"_id\":4,\"_received_ms\":5,\"_document\":1}\n", b"\0\0"]
    {
        OpenOptions::new().append(true).open(&file).unwrap().write_all(torn).unwrap();
        fs::write(dir.path().join("new.ndjson"), torn).unwrap();
        assert_eq!(ids(dir.path()), [1, 2, 3]);
        assert_eq!(fs::read(&file).unwrap(), whole);
        assert!(!dir.path().join("new.ndjson").exists());
    }
    ndjson(dir.path(), 1..=4);
    assert_eq!(ids(dir.path()), [1, 2, 3, 4]);
}

#[test]
fn a_manifest_half_written_aside_is_ignored() {
    let dir = dir();
    ndjson(dir.path(), 1..=2);
    fs::write(dir.path().join("manifest.new"), b"{\"format\":").unwrap();
    assert_eq!(ids(dir.path()), [1, 2]);
    ndjson(dir.path(), 3..=3);
    assert_eq!(ids(dir.path()), [1, 2, 3]);
}

#[test]
fn committed_lines_that_are_gone_are_damage() {
    let dir = dir();
    ndjson(dir.path(), 1..=3);
    let file = dir.path().join("docs.ndjson");
    let whole = fs::read(&file).unwrap();
    let opened = || NdjsonSink::open(dir.path());

    fs::write(&file, &whole[..whole.len() - 1]).unwrap();
    assert!(matches!(opened(), Err(OpenError::Corrupt { .. })));
    fs::remove_file(&file).unwrap();
    assert!(matches!(opened(), Err(OpenError::Io { .. })));
    fs::write(&file, &whole).unwrap();

    let manifest = dir.path().join(MANIFEST);
    let text = fs::read_to_string(&manifest).unwrap();
    for wrong in [
        "",
        "{",
        "{}",
        &text.replace("ndjson", "other"),
        &text.replace("\"version\":1", "\"version\":2"),
        &text.replace("\"docs\"", "\"../docs\""),
        &text.replace("\"rows\":3", "\"rows\":-3"),
    ] {
        assert_ne!(wrong, text);
        fs::write(&manifest, wrong).unwrap();
        assert!(matches!(opened(), Err(OpenError::Corrupt { .. })), "{wrong}");
    }
    fs::remove_file(&manifest).unwrap();
    assert!(matches!(opened(), Err(OpenError::Corrupt { .. })), "files are never thrown away");
    assert_eq!(fs::read(&file).unwrap(), whole);
}

#[test]
fn a_changed_line_is_named_by_its_place() {
    let dir = dir();
    ndjson(dir.path(), 1..=3);
    let file = dir.path().join("docs.ndjson");
    let mut bytes = fs::read(&file).unwrap();
    let second = bytes.len() / 3;
    bytes[second + 2] = b'X';
    fs::write(&file, bytes).unwrap();
    let error = NdjsonSink::open(dir.path()).unwrap().read("docs", &mut |_| ()).unwrap_err();
    assert!(error.to_string().ends_with(&format!("no document in the line at byte {second}")));
}

#[test]
fn parquet_files_left_behind_by_a_commit_are_put_into_place() {
    let dir = dir();
    let mut sink = ParquetSink::open(dir.path()).unwrap();
    parquet(&mut sink, 1);
    sink.commit(Position(1)).unwrap();
    let committed = sink.files("t").unwrap();
    drop(sink);
    // As after a crash between the manifest and the move, for one file and then for both.
    let pending = dir.path().join("pending");
    let other = dir.path().join("u/00000000000000000001-0001.parquet");
    fs::rename(&other, pending.join("start-0001.parquet")).unwrap();
    fs::write(pending.join("00000000000000000001-0000.parquet"), b"PAR1 half").unwrap();
    let sink = ParquetSink::open(dir.path()).unwrap();
    assert_eq!(
        (sink.files("t").unwrap(), sink.files("u").unwrap()),
        (committed, vec![other.clone()])
    );
    assert_eq!(fs::read_dir(&pending).unwrap().count(), 0);
    drop(sink);
    fs::remove_file(&other).unwrap();
    assert!(matches!(ParquetSink::open(dir.path()), Err(OpenError::Corrupt { .. })));
}

#[test]
fn parquet_rolls_back_and_goes_on() {
    let dir = dir();
    let mut sink = ParquetSink::open(dir.path()).unwrap();
    for at in 1..=3 {
        parquet(&mut sink, at);
        sink.roll_back().unwrap();
        parquet(&mut sink, at);
        sink.commit(Position(at)).unwrap();
    }
    assert_eq!(sink.files("t").unwrap().len(), 3);
    drop(sink);
    fs::remove_file(dir.path().join(MANIFEST)).unwrap();
    assert!(matches!(ParquetSink::open(dir.path()), Err(OpenError::Corrupt { .. })));
}
