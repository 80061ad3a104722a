//! Exports, read back by what reads such files, against the plain way.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Stdio};

use arrow::array::{Array as _, AsArray as _, RecordBatch};
use arrow::datatypes::Int64Type;
use bytes::Bytes;
use forebay_inventory::export::{ExportError, ExportOptions, Format, expected, export};
use forebay_inventory::index::Index;
use forebay_inventory::object::{Classes, Kind, Month, Object};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::Value;

use crate::oracle::{Counted, Listed, build_at, naive, options};

/// Keys with whatever makes a file of rows, or a tree, difficult.
fn difficult(classes: &Classes) -> Listed {
    let keys: [&[u8]; 10] = [
        b"top",
        b"a/1",
        b"a/b/2",
        b"a//3",
        b"/leading/4",
        b"comma, \"quote\"/5",
        b"line\nend\r/\t6",
        b"not\xfftext/\xc3/7",
        "ünï/8".as_bytes(),
        b" blank /9",
    ];
    let class = |name| classes.id(name).unwrap();
    let (plain, tier, other) =
        (class("STANDARD"), class("INTELLIGENT_TIERING:FREQUENT"), class("Other class"));
    let mut rows = Vec::new();
    for (i, key) in (1_u64..).zip(keys) {
        let of = |class, kind, version: u32| Object {
            size: i * 1000 + u64::from(version),
            version: version.into(),
            modified: Month::from_unix_ms(1_700_000_000_000),
            class,
            kind,
        };
        let first = if i.is_multiple_of(2) { plain } else { tier };
        rows.push((key.to_vec(), of(first, Kind::Current, 0)));
        if i.is_multiple_of(3) {
            rows.push((key.to_vec(), of(other, Kind::Noncurrent, 1)));
            rows.push((key.to_vec(), of(plain, Kind::DeleteMarker, 2)));
        }
    }
    Listed(vec![rows])
}

struct Case {
    _dir: tempfile::TempDir,
    index: Index,
    counted: BTreeMap<Vec<u8>, Counted>,
}

fn case() -> Case {
    let classes = Classes::new();
    let source = difficult(&classes);
    let dir = tempfile::tempdir().unwrap();
    build_at(dir.path(), &source, &classes, &options()).unwrap();
    let index = Index::open(dir.path()).unwrap();
    Case { index, counted: naive(&source, &classes), _dir: dir }
}

impl Case {
    fn export(&self, prefix: &[u8], format: Format, depth: Option<u64>) -> (u64, Vec<u8>) {
        let node = self.index.get(prefix).unwrap().unwrap();
        let question = ExportOptions { format, depth, now_ms: 0 };
        let mut out = Vec::new();
        let count = export(&self.index, &node, prefix, &question, &mut out, &|| true).unwrap();
        (count, out)
    }
}

/// The bytes of a prefix from both of its columns.
fn prefix(text: &str, encoded: Option<&str>) -> Vec<u8> {
    let Some(encoded) = encoded else { return text.as_bytes().to_vec() };
    let mut bytes = Vec::new();
    let mut rest = encoded.as_bytes();
    while let Some((&byte, more)) = rest.split_first() {
        if byte == b'%' {
            bytes.push(u8::from_str_radix(std::str::from_utf8(&more[..2]).unwrap(), 16).unwrap());
            rest = &more[2..];
        } else {
            bytes.push(byte);
            rest = more;
        }
    }
    bytes
}

/// What a row should say.
fn check_row(prefix: &[u8], counted: &Counted, of: &dyn Fn(&str) -> u64) {
    let class = |name: &str, noncurrent| {
        counted.classes.get(&(name.to_owned(), noncurrent)).copied().unwrap_or_default()
    };
    let depth = prefix.iter().filter(|&&byte| byte == b'/').count();
    assert_eq!(of("depth"), depth as u64);
    assert_eq!((of("objects"), of("bytes")), (counted.total().objects, counted.total().bytes));
    assert_eq!(of("delete_markers"), counted.markers);
    let old = class("Other class", true);
    assert_eq!((of("noncurrent_objects"), of("noncurrent_bytes")), (old.objects, old.bytes));
    assert_eq!(of("billed_bytes"), counted.total().bytes + old.bytes);
    assert_eq!(of("noncurrent_objects_Other_class"), old.objects);
    assert_eq!(of("noncurrent_bytes_Other_class"), old.bytes);
    for (name, column) in
        [("STANDARD", "STANDARD"), ("INTELLIGENT_TIERING:FREQUENT", "INTELLIGENT_TIERING_FREQUENT")]
    {
        let amount = class(name, false);
        assert_eq!(of(&format!("objects_{column}")), amount.objects);
        assert_eq!(of(&format!("bytes_{column}")), amount.bytes);
    }
}

#[test]
fn parquet_has_every_prefix_with_its_numbers() {
    let case = case();
    let (count, file) = case.export(b"", Format::Parquet, None);
    assert_eq!(count, expected(&case.index.root().unwrap()));
    let reader = ParquetRecordBatchReaderBuilder::try_new(Bytes::from(file)).unwrap();
    let mut prefixes = Vec::new();
    for batch in reader.build().unwrap() {
        let batch: RecordBatch = batch.unwrap();
        let text = |name| batch.column_by_name(name).unwrap().as_string::<i32>();
        for row in 0..batch.num_rows() {
            let encoded = text("prefix_encoded");
            let encoded = encoded.is_valid(row).then(|| encoded.value(row));
            let prefix = prefix(text("prefix").value(row), encoded);
            check_row(&prefix, &case.counted[&prefix], &|name| {
                let column = batch.column_by_name(name).unwrap();
                u64::try_from(column.as_primitive::<Int64Type>().value(row)).unwrap()
            });
            prefixes.push(prefix);
        }
    }
    assert!(prefixes.iter().eq(case.counted.keys()), "all of them, in the order of names");
}

/// The fields of a CSV file, line by line.
fn csv(text: &[u8]) -> Vec<Vec<String>> {
    let mut reader = csv_core::Reader::new();
    let (mut rows, mut row, mut rest) = (Vec::new(), Vec::new(), text);
    let (mut buffer, mut filled) = (vec![0; 4096], 0);
    loop {
        let (result, read, wrote) = reader.read_field(rest, &mut buffer[filled..]);
        (rest, filled) = (&rest[read..], filled + wrote);
        match result {
            csv_core::ReadFieldResult::Field { record_end } => {
                row.push(String::from_utf8(buffer[..filled].to_vec()).unwrap());
                filled = 0;
                if record_end {
                    rows.push(std::mem::take(&mut row));
                }
            }
            csv_core::ReadFieldResult::End => return rows,
            csv_core::ReadFieldResult::InputEmpty => {}
            csv_core::ReadFieldResult::OutputFull => panic!("a field of more than 4 KiB"),
        }
    }
}

#[test]
fn csv_has_the_same_rows() {
    let case = case();
    let (count, file) = case.export(b"", Format::Csv, None);
    let rows = csv(&file);
    let (header, rows) = rows.split_first().unwrap();
    assert_eq!(rows.len() as u64, count);
    let mut prefixes = Vec::new();
    for row in rows {
        let field = |name: &str| &row[header.iter().position(|column| column == name).unwrap()];
        let encoded = Some(field("prefix_encoded").as_str()).filter(|text| !text.is_empty());
        let prefix = prefix(field("prefix"), encoded);
        check_row(&prefix, &case.counted[&prefix], &|name| field(name).parse().unwrap());
        prefixes.push(prefix);
    }
    assert!(prefixes.iter().eq(case.counted.keys()));
    let (count, file) = case.export(b"a/", Format::Csv, Some(0));
    assert_eq!((count, csv(&file).len()), (1, 2));
}

/// Directories by their place, as names are no paths: what is in them, and below.
fn sums(directory: &Value, size: &str, sums: &mut Vec<(String, u64)>) -> u64 {
    let entries = directory.as_array().unwrap();
    let at = sums.len();
    sums.push((entries[0]["name"].as_str().unwrap().to_owned(), 0));
    let of = entries[1..].iter().map(|entry| match entry {
        Value::Object(file) => file[size].as_u64().unwrap(),
        directory => self::sums(directory, size, sums),
    });
    let total = of.sum();
    sums[at].1 = total;
    total
}

/// `size`: what is added up, `asize` or `dsize`.
fn tree(file: &[u8], size: &str) -> Vec<(String, u64)> {
    let json: Value = serde_json::from_slice(file).unwrap();
    assert_eq!(json[0], 1);
    let mut directories = Vec::new();
    sums(&json[3], size, &mut directories);
    directories
}

#[test]
fn a_tree_for_ncdu_adds_up_to_the_same_at_every_prefix() {
    let case = case();
    let (count, file) = case.export(b"", Format::Ncdu, None);
    let directories = tree(&file, "asize");
    assert_eq!(directories.len() as u64, count);
    let bytes = case.counted.values().map(|counted| counted.total().bytes);
    assert!(directories.iter().map(|(_, bytes)| *bytes).eq(bytes), "in the order of names");
    // What is stored and billed: noncurrent versions too.
    let stored = case.counted.values().map(|counted| counted.of(None, None).bytes);
    assert!(tree(&file, "dsize").iter().map(|(_, bytes)| *bytes).eq(stored));
    assert_eq!(directories[0].0, "/");
    assert!(directories.iter().any(|(name, _)| name == "not%FFtext"));
    assert!(directories.iter().any(|(name, _)| name == "(empty)"));
    // Where it ends, what is deeper is still counted.
    let (count, cut) = case.export(b"a/", Format::Ncdu, Some(0));
    let of_a = |bytes| (1, vec![("/a".to_owned(), bytes)]);
    assert_eq!((count, tree(&cut, "asize")), of_a(2000 + 3000 + 4000));
    assert_eq!((count, tree(&cut, "dsize")), of_a(2000 + 3000 + 4000 + 3001));
    let cut = String::from_utf8(cut).unwrap();
    for name in ["(3 objects)", "(1 noncurrent version)", "(1 delete marker)"] {
        assert!(cut.contains(&format!("\"{name}\"")), "{name}: {cut}");
    }
}

#[test]
fn ncdu_itself_reads_the_tree() {
    let case = case();
    let (_, file) = case.export(b"", Format::Ncdu, None);
    let command = Command::new("ncdu")
        .args(["-0", "-f", "-", "-o", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut ncdu = match command {
        Ok(ncdu) => ncdu,
        Err(error) => {
            eprintln!("SKIPPED, NOTHING WAS TESTED: ncdu cannot be started: {error}");
            return;
        }
    };
    ncdu.stdin.take().unwrap().write_all(&file).unwrap();
    let output = ncdu.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stderr.is_empty(), "{stderr}");
    for size in ["asize", "dsize"] {
        assert_eq!(tree(&output.stdout, size), tree(&file, size));
    }
}

#[test]
fn an_export_that_is_stopped_or_cannot_be_written_says_so() {
    let case = case();
    let root = case.index.root().unwrap();
    for format in [Format::Parquet, Format::Csv, Format::Ncdu] {
        let question = ExportOptions { format, depth: None, now_ms: 0 };
        let go = |out: &mut [u8], goes_on: &dyn Fn() -> bool| {
            export(&case.index, &root, b"", &question, out, goes_on)
        };
        let stopped = go(&mut [0; 9000], &|| false);
        assert!(matches!(stopped, Err(ExportError::Cancelled)), "{stopped:?}");
        assert!(go(&mut [0; 30], &|| true).is_err(), "30 bytes are too few");
    }
}
