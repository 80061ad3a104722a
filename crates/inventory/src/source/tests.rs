//! The same objects whatever they are read from, and what a user may name.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray, StringArray, UInt64Array};

use super::testing::{self, Kept, gzip, parquet, read, settings};
use super::{Settings, Source, SourceError, Spec, open};
use crate::object::Month;

fn opened(specs: &[&str], settings: &Settings) -> Result<Box<dyn Source>, SourceError> {
    let specs = specs.iter().map(|spec| spec.parse()).collect::<Result<Vec<Spec>, _>>()?;
    open(&specs, settings)
}

/// A date in a month, as text.
fn date(month: Month) -> String {
    let (year, month) = month.year_and_month().unwrap();
    format!("{year:04}-{month:02}-15T12:00:00.000Z")
}

#[test]
fn every_source_gives_the_same_objects() {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    for i in 0..500_usize {
        let path = tree.join(format!("d{}/e,{}/\"f\" 100%+{i}", i % 9, i % 4));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, vec![0; i]).unwrap();
    }
    let settings = settings();
    let from_tree = read(&format!("fs:{}", tree.display()), &settings).unwrap().objects;
    assert_eq!(from_tree.len(), 500);

    let (mut plain, mut inventory) = ("Key,Size,Date\n".to_owned(), String::new());
    for (key, object) in &from_tree {
        let key = String::from_utf8(key.clone()).unwrap();
        let date = date(object.modified);
        writeln!(plain, "\"{}\",{},{date}", key.replace('"', "\"\""), object.size).unwrap();
        let encoded = key.replace('%', "%25").replace('+', "%2B").replace(' ', "+");
        let encoded = encoded.replace('"', "%22").replace(',', "%2C");
        writeln!(inventory, "\"b\",\"{encoded}\",\"{}\",\"{date}\",\"\"", object.size).unwrap();
    }
    let keys: BinaryArray = from_tree.iter().map(|(key, _)| Some(key.as_slice())).collect();
    let sizes: UInt64Array = from_tree.iter().map(|(_, object)| Some(object.size)).collect();
    let dates: StringArray = from_tree.iter().map(|(_, o)| Some(date(o.modified))).collect();
    let columns: Vec<(&str, ArrayRef)> =
        vec![("Date", Arc::new(dates)), ("Size", Arc::new(sizes)), ("Key", Arc::new(keys))];
    let files = [
        ("t.csv", plain.clone().into_bytes()),
        ("t.csv.gz", gzip(plain.as_bytes())),
        ("t.csv.zst", zstd::encode_all(plain.as_bytes(), 1).unwrap()),
        ("t.parquet", parquet(columns, 64)),
    ];
    let dated = Settings { columns: "last_modified=Date".parse().unwrap(), ..settings.clone() };
    for (name, content) in files {
        let path = dir.path().join(name);
        fs::write(&path, content).unwrap();
        assert!(read(path.to_str().unwrap(), &dated).unwrap().objects == from_tree, "{name}");
    }
    let fields = "Bucket, Key, Size, LastModifiedDate, StorageClass";
    let files = [("1.csv.gz", gzip(inventory.as_bytes()))];
    let manifest = testing::inventory(&dir.path().join("inventory"), "CSV", fields, &files);
    assert!(read(manifest.to_str().unwrap(), &settings).unwrap().objects == from_tree);
}

#[test]
fn a_name_shows_its_target() {
    let spec = |text: &str| text.parse::<Spec>().unwrap();
    for (text, path) in [("fs:/a/b", "/a/b"), ("csv:c.dat", "c.dat"), ("d.parquet", "d.parquet")] {
        let spec = spec(text);
        assert_eq!(spec.local(), Some(Path::new(path)));
        assert_eq!(
            (spec.remote(), spec.is_listing(), spec.to_string()),
            (None, false, text.into())
        );
    }
    for (text, key) in [("s3://b/k/x.csv", "k/x.csv"), ("manifest:s3://b/m", "m"), ("s3://b", "")] {
        assert_eq!((spec(text).remote(), spec(text).local()), (Some(("b", key)), None));
        assert!(!spec(text).is_listing());
    }
    assert_eq!(spec("s3-list://b/k/").remote(), Some(("b", "k/")));
    assert!(spec("s3-list://b").is_listing());
}

#[test]
fn tables_named_together_are_one_source() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("a.csv"), "key,size\na,1\n").unwrap();
    fs::write(path("b.csv"), "size,key\n2,b\n").unwrap();
    let source = opened(&[&path("a.csv"), &path("b.csv")], &settings()).unwrap();
    let kept = testing::read_all(source.as_ref()).unwrap();
    let keys: Vec<&[u8]> = kept.objects.iter().map(|(key, _)| &key[..]).collect();
    assert_eq!(keys, [b"a", b"b"]);
    assert_eq!(source.provenance().files.len(), 2);
    let all = read(dir.path().to_str().unwrap(), &settings()).unwrap();
    assert_eq!(all.objects, kept.objects);

    fs::write(path("c.dat"), "key,size\nc,3\n").unwrap();
    let named: Kept = read(&format!("csv:{}", path("c.dat")), &settings()).unwrap();
    assert_eq!(named.objects.len(), 1);
    assert_eq!(all.objects.len(), 2, "only what is called CSV");
}

#[test]
fn contradictions_and_missing_files_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("a.csv"), "key,size\n").unwrap();
    fs::write(path("b.parquet"), "no").unwrap();
    fs::write(path("c.dat"), "").unwrap();
    fs::create_dir(path("empty")).unwrap();
    let error = |specs: &[&str]| match opened(specs, &settings()) {
        Ok(_) => panic!("{specs:?} is no source"),
        Err(error) => testing::chain(&error),
    };
    let tree = format!("fs:{}", path("empty"));
    let both = dir.path().to_str().unwrap();
    for (specs, reason) in [
        (&[][..], "no source is specified"),
        (&[""], "it is empty"),
        (&["fs:"], "it is empty"),
        (&["s3:///key"], "it has no bucket"),
        (&["s3-list://"], "it has no bucket"),
        (&["gs://b/k.csv"], "only s3:// is supported"),
        (&[&path("c.dat")], "prefix it with `parquet:`, `csv:` or `manifest:`"),
        (&[&path("none")], "inspect"),
        (&[&path("none.csv")], "there is no such file"),
        (&[&path("none.parquet")], "there is no such file"),
        (&[&path("manifest.json")], "there is no such manifest"),
        (&[&path("b.parquet")], "read the footer of"),
        (&[&path("empty")], "it contains no manifest"),
        (&[both], "it has Parquet and CSV files"),
        (&[&path("a.csv"), &path("b.parquet")], "cannot be combined"),
        (&[&tree, &path("a.csv")], "a listing or a directory cannot be combined"),
        (&["s3://b/k.csv"], "no connection to buckets is configured"),
    ] {
        let error = error(specs);
        assert!(error.contains(reason), "{specs:?}: {error}");
    }
}

#[test]
fn reports_of_azure_and_google_are_refused_by_name_and_never_read_as_those_of_s3() {
    let dir = tempfile::tempdir().unwrap();
    let azure = "Name,Creation-Time,Last-Modified,Content-Length,BlobType,AccessTier\n\
                 a/b,2024-01-01T00:00:00Z,2024-01-01T00:00:00Z,5,BlockBlob,Hot\n";
    let google = "project,bucket,name,location,size,timeCreated,storageClass\n\
                  1,b,a/b,EU,5,2024-01-01T00:00:00Z,NEARLINE\n";
    let text = |value: &str| -> ArrayRef { Arc::new(StringArray::from(vec![value])) };
    let one: ArrayRef = Arc::new(UInt64Array::from(vec![5]));
    let parquet_of = |names: [&'static str; 4]| {
        let [name, size, class, other] = names;
        let columns = vec![
            (name, text("a")),
            (size, Arc::clone(&one)),
            (class, text("STANDARD")),
            (other, text("x")),
        ];
        parquet(columns, 10)
    };
    let azure_manifest = r#"{"destinationContainer":"c","endpoint":"e","files":[],
        "ruleDefinition":{"filters":{}},"ruleName":"r","status":"Succeeded","version":"1.0"}"#;
    let google_manifest = r#"{"report_config":{"display_name":"d"},"records_processed":1,
        "shard_count":1,"report_shards_file_names":["x_0.csv"]}"#;
    let cases: [(&str, Vec<u8>, &str); 9] = [
        ("azure.csv", azure.into(), "Azure Blob Storage"),
        ("azure.csv.gz", gzip(azure.as_bytes()), "Azure Blob Storage"),
        ("google.csv", google.into(), "Google Cloud Storage"),
        (
            "azure.parquet",
            parquet_of(["Name", "Content-Length", "AccessTier", "Metadata"]),
            "Azure Blob Storage",
        ),
        (
            "google.parquet",
            parquet_of(["name", "size", "storageClass", "timeCreated"]),
            "Google Cloud Storage",
        ),
        ("rule-manifest.json", azure_manifest.into(), "Azure Blob Storage"),
        ("manifest.json", azure_manifest.into(), "Azure Blob Storage"),
        ("7d1e_2024-01-01T00:00_manifest.json", google_manifest.into(), "Google Cloud Storage"),
        ("both/manifest.json", google_manifest.into(), "Google Cloud Storage"),
    ];
    for (name, content, store) in cases {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        let error = testing::chain(&read(path.to_str().unwrap(), &settings()).unwrap_err());
        assert!(
            error.contains(store) && error.contains("must not be priced as such"),
            "{name}: {error}"
        );
        assert!(error.contains("key, size and class"), "{name}: a way out: {error}");
    }
    // Columns that the user names do not make its classes those of S3.
    let named = Settings { columns: "key=name,size=size,class=-".parse().unwrap(), ..settings() };
    let google = dir.path().join("google.csv");
    assert!(read(google.to_str().unwrap(), &named).is_err());
}
