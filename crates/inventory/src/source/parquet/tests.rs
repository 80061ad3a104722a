//! Parquet files of every type, and files that are not as they should be.

use std::fs;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryArray, BinaryViewArray, Date32Array, Decimal128Array, DictionaryArray,
    Float64Array, Int32Array, Int64Array, LargeStringArray, ListArray, NullArray, StringArray,
    StringViewArray, StructArray, TimestampMicrosecondArray, TimestampNanosecondArray, UInt64Array,
};
use arrow::datatypes::{Field, Int32Type};

use crate::object::{Kind, Month};
use crate::source::testing::{class, columns, parquet, read, rows, settings};
use crate::source::{Columns, Settings, SourceError, open};

type Named = Vec<(&'static str, ArrayRef)>;

fn read_columns(
    columns: Named,
    settings: &Settings,
) -> Result<crate::source::testing::Kept, SourceError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f.parquet");
    fs::write(&path, parquet(columns, 1000)).unwrap();
    read(path.to_str().unwrap(), settings)
}

fn keys() -> ArrayRef {
    Arc::new(StringArray::from(vec!["a", "b", "c"]))
}

fn sizes() -> ArrayRef {
    Arc::new(Int64Array::from(vec![1, 2, 3]))
}

fn error(columns: Named) -> String {
    let error = read_columns(columns, &settings()).unwrap_err();
    error.to_string().rsplit_once("f.parquet").unwrap().1.to_owned()
}

#[test]
fn keys_are_bytes_whatever_their_type() {
    let dictionary: DictionaryArray<Int32Type> = vec!["a", "b", "c"].into_iter().collect();
    let keys: Vec<ArrayRef> = vec![
        keys(),
        Arc::new(LargeStringArray::from(vec!["a", "b", "c"])),
        Arc::new(StringViewArray::from(vec!["a", "b", "c"])),
        Arc::new(BinaryArray::from(vec![&b"a"[..], b"b", b"c"])),
        Arc::new(BinaryViewArray::from(vec![&b"a"[..], b"b", b"c"])),
        Arc::new(dictionary),
    ];
    for keys in keys {
        let kept = read_columns(vec![("Key", keys), ("Size", sizes())], &settings()).unwrap();
        let found: Vec<_> =
            kept.objects.iter().map(|(key, object)| (&key[..], object.size)).collect();
        assert_eq!(found, [(&b"a"[..], 1), (b"b", 2), (b"c", 3)]);
    }
    let keys = Arc::new(BinaryArray::from(vec![&b"\xff\x00"[..]]));
    let one: ArrayRef = Arc::new(Int64Array::from(vec![7]));
    let kept = read_columns(vec![("key", keys), ("size", one)], &settings()).unwrap();
    assert_eq!(kept.objects[0].0, b"\xff\x00");
}

#[test]
fn sizes_are_numbers_of_any_type() {
    let decimal = Decimal128Array::from(vec![1, 2, 3]).with_precision_and_scale(30, 0).unwrap();
    let scaled =
        Decimal128Array::from(vec![100, 200, 300]).with_precision_and_scale(20, 2).unwrap();
    let sizes: Vec<ArrayRef> = vec![
        sizes(),
        Arc::new(Int32Array::from(vec![1, 2, 3])),
        Arc::new(UInt64Array::from(vec![1, 2, 3])),
        Arc::new(decimal),
        Arc::new(scaled),
        Arc::new(Float64Array::from(vec![1.0, 2.0, 3.0])),
        Arc::new(StringArray::from(vec!["1", "2", "3"])),
    ];
    for sizes in sizes {
        let kind = sizes.data_type().clone();
        let kept = read_columns(vec![("key", keys()), ("size", sizes)], &settings()).unwrap();
        let found: Vec<u64> = kept.objects.iter().map(|(_, object)| object.size).collect();
        assert_eq!(found, [1, 2, 3], "{kind}");
    }
}

#[test]
fn dates_are_moments_or_text_and_may_be_missing() {
    let second = 1_709_164_800; // 2024-02-29
    let dates: Vec<ArrayRef> = vec![
        Arc::new(TimestampMicrosecondArray::from(vec![
            Some(second * 1_000_000),
            None,
            Some(second * 1_000_000),
        ])),
        Arc::new(TimestampNanosecondArray::from(vec![
            Some(second * 1_000_000_000),
            None,
            Some(second * 1_000_000_000),
        ])),
        Arc::new(Date32Array::from(vec![Some(19_782), None, Some(19_782)])),
        Arc::new(StringArray::from(vec![
            Some("2024-02-29T00:00:00.000Z"),
            None,
            Some("2024-02-29"),
        ])),
    ];
    for dates in dates {
        let kind = dates.data_type().clone();
        let columns = vec![("key", keys()), ("size", sizes()), ("last_modified_date", dates)];
        let kept = read_columns(columns, &settings()).unwrap();
        let found: Vec<String> = kept.objects.iter().map(|(_, o)| o.modified.to_string()).collect();
        assert_eq!(found, ["2024-02", "unknown", "2024-02"], "{kind}");
    }
    let columns = vec![("key", keys()), ("size", sizes()), ("last_modified", sizes())];
    let reason = "its column \"last_modified\" is of type Int64, not a date or a timestamp; \
                  exclude it with last_modified=-";
    assert_eq!(error(columns.clone()).trim_start_matches(": "), reason);
    let settings = Settings { columns: "last_modified=-".parse().unwrap(), ..settings() };
    let kept = read_columns(columns, &settings).unwrap();
    assert!(kept.objects.iter().all(|(_, object)| object.modified == Month::UNKNOWN));
}

#[test]
fn rows_that_are_no_objects_are_reported_and_the_others_read() {
    let keys = Arc::new(StringArray::from(vec![Some("a"), None, Some("c"), Some("d"), Some("e")]));
    let sizes = Arc::new(Int64Array::from(vec![Some(1), Some(2), None, Some(-4), Some(5)]));
    let long = "X".repeat(200);
    let classes =
        Arc::new(StringArray::from(vec![Some("GLACIER"), None, None, None, Some(&long[..])]));
    let columns: Named = vec![("key", keys), ("size", sizes), ("storage_class", classes)];
    let kept = read_columns(columns, &settings()).unwrap();
    assert_eq!(kept.objects.len(), 1);
    let bad: Vec<_> =
        kept.bad.iter().map(|b| (b.row, b.field.as_str(), b.reason.as_str())).collect();
    let class = "the name of a storage class has 200 bytes; the limit is 128";
    let expected = [
        (2, "key", "there is no key"),
        (3, "size", "there is no size"),
        (4, "size", "the size -4 is negative"),
        (5, "storage_class", class),
    ];
    assert_eq!(bad, expected);
    assert!(kept.bad[0].part.ends_with("f.parquet"));
    let sizes: ArrayRef = Arc::new(UInt64Array::from(vec![1, u64::MAX, 1 << 63]));
    let kept = read_columns(vec![("key", self::keys()), ("size", sizes)], &settings()).unwrap();
    assert_eq!((kept.objects.len(), kept.bad.len()), (1, 2));
}

#[test]
fn a_sink_that_wants_no_more_ends_the_part() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f.parquet");
    let none: ArrayRef = Arc::new(Int64Array::from(vec![None, Some(1), None]));
    fs::write(&path, parquet(vec![("key", keys()), ("size", none)], 1000)).unwrap();
    let source = open(&[path.to_str().unwrap().parse().unwrap()], &settings()).unwrap();
    let mut sink = crate::source::testing::Kept { strict: true, ..Default::default() };
    let ended = source.parts().unwrap().remove(0).read(&mut sink);
    assert!(matches!(ended, Err(SourceError::Stopped(_))));
    assert_eq!(sink.bad.len(), 1);
}

#[test]
fn columns_of_the_wrong_type_are_named() {
    assert!(
        error(vec![("key", sizes()), ("size", sizes())])
            .contains("\"key\" is of type Int64, not text")
    );
    let truths: ArrayRef = Arc::new(arrow::array::BooleanArray::from(vec![true, false, true]));
    let columns = vec![("key", keys()), ("size", truths.clone())];
    assert!(error(columns).contains("\"size\" is of type Boolean, not a number"));
    for name in ["storage_class", "version_id", "intelligent_tiering_access_tier"] {
        let columns = vec![("key", keys()), ("size", sizes()), (name, truths.clone())];
        assert!(error(columns).contains(&format!("{name:?} is of type Boolean, not text")));
    }
    let columns = vec![("key", keys()), ("size", sizes()), ("is_latest", sizes())];
    assert!(error(columns).contains("\"is_latest\" is of type Int64, not true or false"));
    let list = ListArray::from_iter_primitive::<Int32Type, _, _>(vec![Some(vec![Some(1)]); 3]);
    let columns: Named = vec![("key", keys()), ("size", Arc::new(list))];
    assert!(error(columns).contains("more than one value in a row"));
    let field = Arc::new(Field::new("key", keys().data_type().clone(), true));
    let nested = StructArray::from(vec![(field, keys())]);
    let columns: Named = vec![("key", Arc::new(nested)), ("size", sizes())];
    assert!(error(columns).contains("more than one value in a row"));
    assert!(error(vec![("size", sizes()), ("name_of_it", keys())]).contains("size, name_of_it"));
}

#[test]
fn columns_may_be_in_any_order_with_others_between_them() {
    let nothing: ArrayRef = Arc::new(NullArray::new(3));
    let extra = ListArray::from_iter_primitive::<Int32Type, _, _>(vec![Some(vec![Some(1)]); 3]);
    let truths: ArrayRef = Arc::new(StringArray::from(vec!["true", "FALSE", ""]));
    let columns: Named = vec![
        ("extra", Arc::new(extra)),
        ("last_modified_date", nothing.clone()),
        ("IsLatest", truths),
        ("size", sizes()),
        ("etag", keys()),
        ("storage_class", nothing),
        ("key", keys()),
    ];
    let kept = read_columns(columns, &settings()).unwrap();
    let kinds: Vec<Kind> = kept.objects.iter().map(|(_, object)| object.kind).collect();
    assert_eq!(kinds, [Kind::Current, Kind::Noncurrent, Kind::Current]);
    assert_eq!(kept.objects[2].0, b"c");
}

#[test]
fn a_large_file_is_cut_between_its_row_groups() {
    let rows = rows(3000);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f.parquet");
    fs::write(&path, parquet(columns(&rows), 1000)).unwrap();
    let settings = settings();
    let file = super::ParquetFiles::open(
        vec![(
            crate::source::location::FileLocation::Local(path.clone(), Default::default()),
            Default::default(),
        )],
        &super::Settings {
            columns: Columns::usual(),
            classes: Arc::clone(&settings.classes),
            memory: settings.memory,
            temporary: dir.path().to_owned(),
        },
    )
    .unwrap();
    assert_eq!((file.rows, file.pieces.len()), (3000, 1), "small groups are read together");
    let mut cut =
        super::ParquetFiles { pieces: Vec::new(), fields: vec![], sizes: vec![], rows: 0 };
    cut.cut(&file.pieces[0].file, &[(150_000, 10), (150_000, 20), (300_000, 30), (5, 1)]);
    let pieces: Vec<_> =
        cut.pieces.iter().map(|p| (p.groups.clone(), p.first_row, p.rows, p.size)).collect();
    let expected = [(0..2, 0, 300_000, 30), (2..3, 300_000, 300_000, 30), (3..4, 600_000, 5, 1)];
    assert_eq!(pieces, expected);
    let kept = read(path.to_str().unwrap(), &settings).unwrap();
    assert_eq!((kept.objects.len(), kept.bad.len()), (3000, 0));
    for row in &rows {
        let found = kept.objects.iter().filter(|(key, _)| *key == row.key.as_bytes());
        let found: Vec<_> = found.map(|(_, object)| object).collect();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].size, u64::try_from(row.size.unwrap_or(0)).unwrap());
        assert_eq!(found[0].modified, Month::from_unix_ms(row.modified_ms));
        assert_eq!(found[0].version == 0, row.version.is_empty());
        let name = class(&settings, found[0]);
        assert!(name.starts_with(row.class) && name.ends_with(row.tier), "{name}");
    }
}

#[test]
fn no_damage_to_a_file_is_a_panic_or_never_ends() {
    let whole = parquet(columns(&rows(200)), 100);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f.parquet");
    let fails = |content: &[u8]| {
        fs::write(&path, content).unwrap();
        read(path.to_str().unwrap(), &settings()).is_err()
    };
    for cut in (0..whole.len()).step_by(211) {
        assert!(fails(&whole[..cut]), "a file cut short is never read");
    }
    let footer = u32::from_le_bytes(whole[whole.len() - 8..whole.len() - 4].try_into().unwrap());
    let footer = whole.len() - 8 - footer as usize;
    let mut errors = 0;
    for at in (0..footer).step_by(61).chain((footer..whole.len()).step_by(17)) {
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << (at % 8);
        errors += usize::from(fails(&damaged));
    }
    assert!(errors > 0);
}

/// A file whose keys are one page that expands a thousandfold.
fn bomb(path: &std::path::Path) {
    let keys: ArrayRef =
        Arc::new(StringArray::from_iter_values((0..64).map(|_| "x".repeat(1 << 20))));
    let sizes: ArrayRef = Arc::new(Int64Array::from(vec![1; 64]));
    let batch = arrow::array::RecordBatch::try_from_iter([("key", keys), ("size", sizes)]).unwrap();
    let properties = parquet::file::properties::WriterProperties::builder()
        .set_compression(parquet::basic::Compression::ZSTD(Default::default()))
        .set_dictionary_enabled(false)
        .set_data_page_size_limit(1 << 30)
        .set_write_batch_size(1 << 20)
        .build();
    let file = fs::File::create(path).unwrap();
    let mut writer =
        parquet::arrow::ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

#[test]
fn a_page_that_expands_beyond_the_memory_of_a_build_is_an_error_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f.parquet");
    bomb(&path);
    assert!(path.metadata().unwrap().len() < 64 << 10);
    let settings = Settings { memory: forebay_base::ByteSize(16 << 20), ..settings() };
    let error = read(path.to_str().unwrap(), &settings).unwrap_err();
    let SourceError::Memory { file, source, .. } = &error else { panic!("{error}") };
    assert!(file.ends_with("f.parquet"));
    assert_eq!((&*source.column, source.row_group, source.page), ("key", 0, 0));
    assert_eq!(source.limit, 16 << 20);
    let text = crate::source::testing::chain(&error);
    assert!(text.contains("column \"key\", page 0 declares 67"), "{text}");
}
