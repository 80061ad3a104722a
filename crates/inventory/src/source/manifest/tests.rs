//! Inventories as S3 lays them out, whole and damaged.

use std::fs;
use std::path::Path;

use super::{Format, Manifest};
use crate::source::testing::{
    self, FIELDS, Kept, columns, csv, gzip, parquet, read, rows, settings,
};
use crate::source::{Settings, SourceError, Spec, open};

const MESSAGE: &str = "message s3.inventory { required binary bucket (STRING); required binary key \
    (STRING); optional binary version_id (STRING); optional boolean is_latest; optional boolean \
    is_delete_marker; optional int64 size; optional int64 last_modified_date \
    (TIMESTAMP(MILLIS,true)); optional binary storage_class (STRING); optional binary \
    intelligent_tiering_access_tier (STRING); }";

fn csv_inventory(dir: &Path, count: usize) -> std::path::PathBuf {
    let rows = rows(count);
    let (first, second) = rows.split_at(count / 3);
    let files = [("1.csv.gz", gzip(&csv(first))), ("2.csv.gz", gzip(&csv(second)))];
    testing::inventory(dir, "CSV", FIELDS, &files)
}

fn read_at(path: &Path, settings: &Settings) -> Result<Kept, SourceError> {
    read(path.to_str().unwrap(), settings)
}

fn error(path: &Path) -> String {
    crate::source::testing::chain(&read_at(path, &settings()).unwrap_err())
}

#[test]
fn csv_and_parquet_inventories_of_the_same_objects_are_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let csv = csv_inventory(&dir.path().join("csv"), 1000);
    let rows = rows(1000);
    let (first, second) = rows.split_at(500);
    let files = [
        ("1.parquet", parquet(columns(first), 100)),
        ("2.parquet", parquet(columns(second), 1000)),
    ];
    let parquet = testing::inventory(&dir.path().join("pq"), "Parquet", MESSAGE, &files);
    let settings = settings();
    let (from_csv, from_parquet) =
        (read_at(&csv, &settings).unwrap(), read_at(&parquet, &settings).unwrap());
    assert_eq!(from_csv.objects.len(), 1000);
    assert!(from_csv.bad.is_empty(), "{:?}", from_csv.bad.first());
    assert!(from_csv.objects == from_parquet.objects);

    let source = open(&[parquet.to_str().unwrap().parse::<Spec>().unwrap()], &settings).unwrap();
    let provenance = source.provenance();
    assert_eq!(provenance.format, "s3-inventory-parquet");
    assert_eq!(provenance.bucket.as_deref(), Some("bucket"));
    assert_eq!((provenance.listed_at_ms, provenance.rows), (Some(1_714_957_200_000), Some(1000)));
    assert!(provenance.all_versions);
    assert_eq!(provenance.files.len(), 3);
    assert!(provenance.files.iter().all(|file| file.checksum.is_some()));
    assert_eq!(provenance.fields[6], "last_modified_date");
}

#[test]
fn a_directory_with_a_manifest_is_that_inventory() {
    let dir = tempfile::tempdir().unwrap();
    let manifest = csv_inventory(dir.path(), 30);
    let kept = read_at(manifest.parent().unwrap(), &settings()).unwrap();
    assert_eq!(kept.objects.len(), 30);
}

#[test]
fn an_inventory_without_files_is_empty() {
    let dir = tempfile::tempdir().unwrap();
    for (format, schema) in [("CSV", FIELDS), ("Parquet", MESSAGE)] {
        let manifest = testing::inventory(dir.path(), format, schema, &[]);
        assert!(read_at(&manifest, &settings()).unwrap().objects.is_empty());
    }
}

#[test]
fn files_that_differ_from_the_manifest_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    let manifest = csv_inventory(dir.path(), 30);
    let data = dir.path().join("bucket/daily/data/2.csv.gz");
    let whole = fs::read(&data).unwrap();

    fs::write(&data, gzip(&csv(&rows(3)))).unwrap();
    assert!(error(&manifest).contains("2.csv.gz: its size is "), "{}", error(&manifest));
    let mut other = whole.clone();
    // The time in the head of a gzip member: everything else is as it was.
    other[5] ^= 1;
    fs::write(&data, &other).unwrap();
    assert!(error(&manifest).contains("2.csv.gz: its MD5 is "));
    let unverified = Settings { verify: false, ..settings() };
    assert_eq!(read_at(&manifest, &unverified).unwrap().objects.len(), 30);
    fs::remove_file(&data).unwrap();
    assert!(error(&manifest).contains("does not exist; tried "));
    fs::write(&data, &whole).unwrap();
    assert_eq!(read_at(&manifest, &settings()).unwrap().objects.len(), 30);

    let checksum = manifest.with_file_name("manifest.checksum");
    fs::write(&checksum, "0".repeat(32)).unwrap();
    assert!(error(&manifest).contains("manifest.json: its MD5 is "));
    fs::write(&checksum, "none").unwrap();
    assert!(error(&manifest).contains("does not contain the MD5"));
    fs::remove_file(&checksum).unwrap();
    assert_eq!(read_at(&manifest, &settings()).unwrap().objects.len(), 30);
}

#[test]
fn a_parquet_file_is_verified_before_it_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let files = [("1.parquet", parquet(columns(&rows(50)), 10))];
    let manifest = testing::inventory(dir.path(), "Parquet", MESSAGE, &files);
    let data = dir.path().join("bucket/daily/data/1.parquet");
    let mut other = files[0].1.clone();
    other[100] ^= 1;
    fs::write(&data, other).unwrap();
    assert!(error(&manifest).contains("1.parquet: its MD5 is "));
    fs::write(&data, &files[0].1[4..]).unwrap();
    assert!(error(&manifest).contains("1.parquet: its size is "));
}

#[test]
fn what_is_no_inventory_is_an_error() {
    let good = |format: &str, schema: &str, more: &str| {
        format!(
            "{{\"sourceBucket\":\"b\",\"destinationBucket\":\"d\",\"fileFormat\":\"{format}\",\
             \"fileSchema\":\"{schema}\",\"files\":[{more}]}}"
        )
    };
    let decode = |json: &str| Manifest::decode("m", json.as_bytes());
    let reason = |json: &str| decode(json).unwrap_err().to_string();
    let plain = decode(&good("parquet", "Key, Size", "")).unwrap();
    assert_eq!((plain.format, plain.destination.as_deref()), (Format::Parquet, Some("d")));
    let orc = reason(&good("ORC", "struct<key:string>", ""));
    assert!(orc.contains("configure the inventory of this bucket for Parquet"), "{orc}");
    assert!(reason(&good("XLS", "Key", "")).contains("only Parquet and CSV are supported"));
    assert!(reason(&good("CSV", "", "")).contains("fileSchema"));
    assert!(reason("{}").contains("not the manifest"));
    assert!(reason("[1").contains("not the manifest"));
    let file = "{\"key\":\"k\",\"size\":1}";
    assert!(reason(&good("CSV", "Key", &format!("{file},{file}"))).contains("twice"));
    assert!(
        reason(&good("CSV", "Key", "{\"key\":\"k\",\"size\":-1}")).contains("not the manifest")
    );
    let md5 = "{\"key\":\"k\",\"size\":1,\"MD5checksum\":\"zz\"}";
    assert!(reason(&good("CSV", "Key", md5)).contains("is invalid"));

    let dir = tempfile::tempdir().unwrap();
    let manifest = dir.path().join("manifest.json");
    fs::write(&manifest, good("CSV", "Bucket, Key", "")).unwrap();
    assert!(error(&manifest).contains("no column contains the size"));
    let escape = "{\"key\":\"../../etc/passwd\",\"size\":1}";
    fs::write(&manifest, good("CSV", "Key, Size", escape)).unwrap();
    assert!(error(&manifest).contains("leads outside its directory"));
}
