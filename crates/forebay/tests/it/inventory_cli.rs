//! `forebay inventory` end to end: exports to files, the browser without a terminal, and indexes of a
//! bucket on a real S3 server.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::events_export_s3::{S3, without_aws};
use crate::support::{run, run_ok, stderr};

/// Paths and sizes, in the order of their names.
const TREE: [(&str, usize); 5] = [
    ("a/1.bin", 10),
    ("a/b/2.bin", 300_000),
    ("a/b/3.bin", 5),
    ("a/c d/4.bin", 70),
    ("top.bin", 1),
];

fn write_tree(root: &Path) {
    for (path, size) in TREE {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, vec![b'x'; size]).unwrap();
    }
}

/// An index of [`TREE`] in `dir/index`.
fn indexed(dir: &TempDir) {
    write_tree(&dir.path().join("tree"));
    run_ok(dir, &["inventory", "build", "--from", "fs:tree", "--out", "index", "--json"]);
}

fn export<'a>(out: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["inventory", "export", "--index", "index", "--out", out], more].concat()
}

#[test]
fn an_export_appears_when_it_is_complete_and_replaces_only_what_it_may() {
    let dir = tempfile::tempdir().unwrap();
    indexed(&dir);
    let report = run_ok(&dir, &export("out.csv", &["--format", "csv", "--json"]));
    let report: Value = serde_json::from_str(&report).unwrap();
    let csv = fs::read_to_string(dir.path().join("out.csv")).unwrap();
    assert_eq!((&report["prefixes"], &report["bytes"]), (&json!(4), &json!(csv.len())));
    let expected = "\
prefix,prefix_encoded,depth,objects,bytes,descendants,noncurrent_objects,noncurrent_bytes,\
delete_markers,billed_bytes,objects_STANDARD,bytes_STANDARD
\"\",,0,5,300086,3,0,0,0,300086,5,300086
a/,,1,4,300085,2,0,0,0,300085,4,300085
a/b/,,2,2,300005,0,0,0,0,300005,2,300005
a/c d/,,2,1,70,0,0,0,0,70,1,70
";
    assert_eq!(csv, expected);
    let printed = run_ok(&dir, &export("-", &["--format", "csv"]));
    assert_eq!(printed, expected);
    // An existing file stays, unless it may be replaced.
    let again = run(&dir, &export("out.csv", &["--format", "ncdu"]));
    assert_eq!(again.status.code(), Some(1));
    assert!(stderr(&again).contains("--force replaces it"), "{}", stderr(&again));
    assert_eq!(fs::read_to_string(dir.path().join("out.csv")).unwrap(), expected);
    run_ok(&dir, &export("out.csv", &["--format", "ncdu", "--force", "--depth", "1"]));
    let tree: Value =
        serde_json::from_slice(&fs::read(dir.path().join("out.csv")).unwrap()).unwrap();
    assert_eq!(tree[3][1][1]["name"], "(4 objects)");
    run_ok(&dir, &export("out.parquet", &["--format", "parquet"]));
    let parquet = fs::read(dir.path().join("out.parquet")).unwrap();
    assert!(parquet.starts_with(b"PAR1") && parquet.ends_with(b"PAR1"));
    let missing = run(&dir, &export("not-there", &["nothing/", "--format", "csv"]));
    assert_eq!(missing.status.code(), Some(3));
    let nowhere = run(&dir, &export("no/where", &["--format", "csv"]));
    assert_eq!(nowhere.status.code(), Some(1));
    let device = run(&dir, &export("/dev/null", &["--format", "csv", "--force"]));
    assert!(stderr(&device).contains("is not a file"), "{}", stderr(&device));
    let mut names: Vec<_> =
        fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["index", "out.csv", "out.parquet", "tree"], "and nothing incomplete");
}

#[test]
fn a_generated_inventory_is_the_same_in_either_format_and_replaces_nothing() {
    let dir = tempfile::tempdir().unwrap();
    for format in ["csv", "parquet"] {
        let generate = ["inventory", "generate", "s3_realistic", "--objects", "1K", "--seed", "7"];
        run_ok(&dir, &[&generate[..], &["--format", format, "--out", format]].concat());
        let from = format!("{format}/manifest.json");
        let index = format!("{format}-index");
        let report = run_ok(
            &dir,
            &["inventory", "build", "--from", &from, "--out", &index, "--expect-rows", "1000"],
        );
        assert!(report.contains("1,000") || report.contains("1000"), "{report}");
    }
    let csv = |index: &str| {
        run_ok(&dir, &["inventory", "export", "--index", index, "--out", "-", "--format", "csv"])
    };
    assert_eq!(csv("csv-index"), csv("parquet-index"));
    let used = run(&dir, &["inventory", "generate", "balanced", "--out", "csv"]);
    assert_eq!(used.status.code(), Some(1));
    assert!(stderr(&used).contains("csv is not empty"), "{}", stderr(&used));
    let unknown = run(&dir, &["inventory", "generate", "square", "--out", "new"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(!dir.path().join("new").exists());
}

#[test]
fn a_prefix_that_is_not_utf_8_is_named_on_the_command_line() {
    let dir = tempfile::tempdir().unwrap();
    let name = OsStr::from_bytes(b"n\xff\xfen");
    let below = dir.path().join("tree").join(name);
    fs::create_dir_all(&below).unwrap();
    fs::write(below.join("x"), "12345").unwrap();
    run_ok(&dir, &["inventory", "build", "--from", "fs:tree", "--out", "index"]);
    let ask = |question: &[&str], prefix: &[u8]| {
        let mut command = without_aws(&dir);
        command.arg("inventory").args(question).args(["--index", "index"]);
        command.arg(OsStr::from_bytes(prefix)).output().unwrap()
    };
    let found = ask(&["get", "--json"], b"n\xff\xfen/");
    let found: Value = serde_json::from_slice(&found.stdout).unwrap();
    assert_eq!((&found["bytes"], &found["prefix_encoded"]), (&json!(5), &json!("n%FF%FEn/")));
    for question in ["children", "top", "descendants", "histogram", "cost", "small-files"] {
        let output = ask(&[question], b"n\xff\xfen/");
        assert!(output.status.success(), "{question}: {}", stderr(&output));
    }
    for other in [&b"n\xff\xffn/"[..], b"n\xff\xfen"] {
        assert_eq!(ask(&["get"], other).status.code(), Some(3));
    }
}

#[test]
fn a_table_ordered_by_a_class_has_its_figures_and_a_limit_of_nothing_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    indexed(&dir);
    let all = get(&dir, "");
    let class = all["classes"].as_object().unwrap().keys().next().unwrap();
    let table = run_ok(&dir, &["inventory", "children", "--index", "index", "--class", class]);
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].contains("OF CLASS") && lines[0].contains("VERSIONS"), "{table}");
    // The size and number of all versions, then those of the class, which are all.
    let first: Vec<&str> =
        lines[1].split("  ").map(str::trim).filter(|it| !it.is_empty()).collect();
    assert_eq!((first[0], first[2]), (first[5], first[6]), "{table}");
    for question in [&["children", "--limit", "0"][..], &["top", "--count", "0"]] {
        let output = run(&dir, &[&["inventory"], question, &["--index", "index"]].concat());
        assert_eq!(output.status.code(), Some(2), "{question:?}");
    }
}

#[test]
fn damage_to_an_index_is_reported_as_json_as_well() {
    let dir = TempDir::new().unwrap();
    indexed(&dir);
    let verify = ["inventory", "verify", "--index", "index", "--json"];
    let sound: Value = serde_json::from_str(&run_ok(&dir, &verify)).unwrap();
    assert_eq!(sound["damaged"], json!(false));
    let path = dir.path().join("index/nodes.1");
    let mut bytes = fs::read(&path).unwrap();
    bytes[3] ^= 1;
    fs::write(&path, bytes).unwrap();
    let output = run(&dir, &verify);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["damaged"], json!(true));
    let reason = found["reason"].as_str().unwrap();
    assert!(reason.contains("nodes.1 is damaged: its checksum does not match"), "{reason}");
}

#[test]
fn damage_below_a_prefix_is_never_an_empty_list_of_its_descendants() {
    let dir = TempDir::new().unwrap();
    indexed(&dir);
    let descendants = ["inventory", "descendants", "--index", "index", "--json"];
    assert!(!run_ok(&dir, &descendants).is_empty());
    let path = dir.path().join("index/nodes.1");
    let sound = fs::read(&path).unwrap();
    let mut reported = 0;
    for at in 0..sound.len() {
        let mut bytes = sound.clone();
        bytes[at] ^= 0x55;
        fs::write(&path, bytes).unwrap();
        let output = run(&dir, &descendants);
        if output.status.success() {
            assert!(!output.stdout.is_empty(), "byte {at}");
        } else {
            assert!(stderr(&output).contains("damaged"), "byte {at}: {}", stderr(&output));
            reported += 1;
        }
    }
    assert!(reported > 0);
}

#[test]
fn the_browser_requires_a_terminal() {
    let dir = tempfile::tempdir().unwrap();
    indexed(&dir);
    let refused = run(&dir, &["inventory", "tui", "--index", "index"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("needs a terminal"), "{}", stderr(&refused));
}

/// Builds an index from `s3`, where [`TREE`] is in the bucket.
fn build(s3: &S3, dir: &TempDir, from: &str) -> Output {
    let mut command = without_aws(dir);
    command.env("AWS_ACCESS_KEY_ID", "test-access").env("AWS_SECRET_ACCESS_KEY", "test-secret");
    command.args(["inventory", "build", "--from", from, "--out", "index", "--json", "--replace"]);
    command.args(["--allow-http", "--endpoint", &s3.endpoint()]).output().unwrap()
}

fn get(dir: &TempDir, prefix: &str) -> Value {
    let report = run_ok(dir, &["inventory", "get", "--index", "index", prefix, "--json"]);
    serde_json::from_str(&report).unwrap()
}

fn built(output: &Output) -> Value {
    assert!(output.status.success(), "{}", stderr(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_bucket_is_listed_and_its_inventory_read_from_a_server() {
    let (s3, dir) = (S3::start(), tempfile::tempdir().unwrap());
    let bucket = s3.dir.path().join("archive");
    write_tree(&bucket);
    let report = built(&build(&s3, &dir, "s3-list://archive/"));
    assert_eq!((&report["objects"], &report["bytes"]), (&json!(5), &json!(300_086)));
    let listed = get(&dir, "a/b/");
    assert_eq!((&listed["objects"], &listed["bytes"]), (&json!(2), &json!(300_005)));
    let report = built(&build(&s3, &dir, "s3-list://archive/a/"));
    assert_eq!(report["objects"], 4);
    // The same as an inventory, beside its manifest.
    let rows: String = TREE
        .map(|(key, size)| format!("\"archive\",\"{}\",\"{size}\"\n", key.replace(' ', "+")))
        .concat();
    let reports = s3.dir.path().join("archive/reports");
    fs::create_dir_all(&reports).unwrap();
    fs::write(reports.join("rows.csv"), &rows).unwrap();
    let manifest = json!({
        "sourceBucket": "archive",
        "destinationBucket": "arn:aws:s3:::archive",
        "version": "2016-11-30",
        "creationTimestamp": "1735689600000",
        "fileFormat": "CSV",
        "fileSchema": "Bucket, Key, Size",
        "files": [{ "key": "reports/rows.csv", "size": rows.len() }],
    });
    fs::write(reports.join("manifest.json"), manifest.to_string()).unwrap();
    let report = built(&build(&s3, &dir, "s3://archive/reports/manifest.json"));
    assert_eq!((&report["objects"], &report["bytes"]), (&json!(5), &json!(300_086)));
    assert_eq!(get(&dir, "a/b/")["histograms"]["sizes"], listed["histograms"]["sizes"]);
    assert_eq!(get(&dir, "a/c d/")["bytes"], 70);
    let refused = build(&s3, &dir, "s3-list://nothing-there/");
    assert_eq!(refused.status.code(), Some(1), "{}", stderr(&refused));
    assert_eq!(get(&dir, "")["objects"], 5, "the previous index stays");
}
