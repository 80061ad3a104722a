//! CSV files in every wrapping, and files that are not as they should be.

use std::fs;

use crate::object::Kind;
use crate::source::testing::{Kept, class, gzip, read, settings};
use crate::source::{Settings, SourceError};

const TABLE: &str = "\u{feff}name,Size,storage class,mtime\n\
    a,1,GLACIER,2024-02-29T00:00:00Z\n\"b,\"\"c\",2,,\n100%,3,OWN,2024-03-01\n";

fn read_file(name: &str, content: &[u8], settings: &Settings) -> Result<Kept, SourceError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    fs::write(&path, content).unwrap();
    read(path.to_str().unwrap(), settings)
}

fn keys(kept: &Kept) -> Vec<String> {
    kept.objects.iter().map(|(key, _)| String::from_utf8_lossy(key).into_owned()).collect()
}

#[test]
fn a_table_is_the_same_however_it_is_compressed() {
    let (first, second) = TABLE.as_bytes().split_at(40);
    let members = [gzip(first), gzip(second)].concat();
    let frames =
        [zstd::encode_all(first, 1).unwrap(), zstd::encode_all(second, 1).unwrap()].concat();
    let files = [
        ("f.csv", TABLE.as_bytes().to_vec()),
        ("f.csv.gz", gzip(TABLE.as_bytes())),
        ("f.csv.gz", members),
        ("f.csv.zst", frames),
        ("named_plain.csv", gzip(TABLE.as_bytes())),
    ];
    for (name, content) in files {
        let settings = settings();
        let kept = read_file(name, &content, &settings).unwrap();
        assert_eq!(keys(&kept), ["100%", "a", "b,\"c"], "{name}");
        let classes: Vec<_> = kept.objects.iter().map(|(_, o)| class(&settings, o)).collect();
        assert_eq!(classes, ["OWN", "GLACIER", "STANDARD"]);
        let months: Vec<_> = kept.objects.iter().map(|(_, o)| o.modified.to_string()).collect();
        assert_eq!(months, ["2024-03", "2024-02", "unknown"]);
        assert_eq!(kept.bytes, content.len() as u64);
    }
}

#[test]
fn keys_are_decoded_when_it_is_said_that_they_are_encoded() {
    let settings = Settings { percent_encoded: true, ..settings() };
    let kept = read_file("f.csv", b"key,size\na%2Bb+c,1\n100%,2\n%FF,3\n", &settings).unwrap();
    assert_eq!(kept.objects[0].0, b"a+b c");
    assert_eq!(kept.objects[1].0, b"\xff");
    assert_eq!((kept.bad.len(), kept.bad[0].row, kept.bad[0].field.as_str()), (1, 2, "key"));
}

#[test]
fn rows_that_are_no_objects_are_reported_with_their_number_and_field() {
    let table = "key,size,storage_class,last_modified,is_latest,is_delete_marker\n\
        a,1,X,2024-01-01,true,false\n\
        b,-1,X,,true,false\n\
        c,9223372036854775808,X,,true,false\n\
        d,,X,,true,false\n\
        e,,,,true,true\n\
        f,1,X,yesterday,true,false\n\
        g,1,X,,yes,false\n\
        h,1\n\
        i,1,X,,false,false\n";
    let kept = read_file("f.csv", table.as_bytes(), &settings()).unwrap();
    assert_eq!(keys(&kept), ["a", "e", "i"]);
    let kinds: Vec<_> = kept.objects.iter().map(|(_, object)| object.kind).collect();
    assert_eq!(kinds, [Kind::Current, Kind::DeleteMarker, Kind::Noncurrent]);
    let bad: Vec<_> = kept.bad.iter().map(|bad| (bad.row, bad.field.as_str())).collect();
    let expected =
        [(2, "size"), (3, "size"), (4, "size"), (6, "last_modified"), (7, "is_latest"), (8, "")];
    assert_eq!(bad, expected);
    assert_eq!(kept.bad[5].reason, "it has 2 fields, expected 6");
}

#[test]
fn a_file_cut_short_says_how_far_it_was_read() {
    let mut table = "key,size\n".to_owned();
    for i in 0..100_000 {
        table += &format!("some/key/{i},{i}\n");
    }
    let whole = gzip(table.as_bytes());
    for cut in [whole.len() - 1, whole.len() / 2] {
        let error = read_file("f.csv.gz", &whole[..cut], &settings()).unwrap_err();
        let SourceError::Expand { read, rows, source, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!((*read, source.kind()), (cut as u64, std::io::ErrorKind::UnexpectedEof));
        assert!(*rows > 1000 && *rows <= 100_000, "{rows}");
    }
    let mut damaged = whole;
    let at = damaged.len() / 3;
    damaged[at] ^= 0x55;
    assert!(matches!(
        read_file("f.csv.gz", &damaged, &settings()),
        Err(SourceError::Expand { .. })
    ));
}

#[test]
fn what_is_no_table_is_an_error() {
    let error = |content: &str| {
        read_file("f.csv", content.as_bytes(), &settings()).unwrap_err().to_string()
    };
    assert!(error("").contains("its first row has to name its columns"));
    assert!(error("a,b\n1,2\n").contains("no column contains the key"));
    let quote = format!("key,size\na,1\n\"b{}", "x".repeat(2 << 20));
    assert!(error(&quote).contains("row 2 is larger than"));
    let settings = Settings { columns: "key=K".parse().unwrap(), ..settings() };
    let error = read_file("f.csv", b"key,size\n", &settings).unwrap_err().to_string();
    assert!(error.contains("it has no column \"K\""), "{error}");
    let empty = read_file("f.csv", b"key,size\n", &self::settings()).unwrap();
    assert!(empty.objects.is_empty() && empty.bad.is_empty());
}
