//! Files that declare more than they should, and files of every kind, which are read as the `parquet` crate
//! reads them.

use std::io::Write as _;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, FixedSizeBinaryArray, Float64Array,
    Int32Array, Int64Array, LargeStringArray, ListArray, RecordBatch, StringArray, StructArray,
};
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::{Field, Int32Type, Schema};
use bytes::Bytes;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use parquet::arrow::{ArrowWriter, ProjectionMask};
use parquet::basic::{Compression, Encoding, GzipLevel, ZstdLevel};
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder, WriterVersion};

use crate::codec::Codec;
use crate::{Batches, Exceeded, Footer, Plan, ReadError, What, view_bytes};

const LIMIT: u64 = 16 << 20;

fn texts(values: impl IntoIterator<Item = String>) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(values))
}

fn write(columns: Vec<(&str, ArrayRef)>, properties: WriterPropertiesBuilder) -> Bytes {
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let properties = Some(properties.build());
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), properties).unwrap();
    writer.write(&batch).unwrap();
    writer.into_inner().unwrap().into()
}

fn batches(file: &Bytes, limit: u64) -> Result<Batches<Bytes>, ReadError> {
    let footer = Footer::read(file, limit)?;
    let metadata = ArrowReaderMetadata::load(&footer, ArrowReaderOptions::new())?;
    let groups = (0..metadata.metadata().num_row_groups()).collect();
    let mask = ProjectionMask::all();
    Batches::new(Plan { chunks: file.clone(), metadata, mask, groups, rows_max: 8192, limit })
}

fn read(file: &Bytes, limit: u64) -> Result<Vec<RecordBatch>, ReadError> {
    batches(file, limit)?.collect()
}

fn exceeded(file: &Bytes, limit: u64) -> Exceeded {
    match read(file, limit) {
        Err(ReadError::Exceeded(exceeded)) => exceeded,
        other => panic!("{:?}", other.map(|batches| batches.len())),
    }
}

/// Properties that put everything into one page.
fn one_page() -> WriterPropertiesBuilder {
    WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_data_page_size_limit(1 << 30)
        .set_write_batch_size(1 << 30)
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
}

#[test]
fn a_page_that_declares_more_than_the_limit_is_refused_before_it_is_read() {
    let file = write(vec![("key", texts((0..64).map(|_| "x".repeat(1 << 20))))], one_page());
    assert!(file.len() < 64 << 10, "{}", file.len());
    let found = exceeded(&file, LIMIT);
    assert_eq!((found.what, found.row_group, found.page), (What::Page, 0, 0));
    assert_eq!((&*found.column, found.limit), ("key", LIMIT));
    assert!(found.declared > 64 << 20, "{found}");
    let text = found.to_string();
    assert!(text.contains("row group 0, column \"key\", page 0 declares 67"), "{text}");
    assert!(text.contains("the limit is 16777216 bytes"), "{text}");
    assert_eq!(
        read(&file, 128 << 20).unwrap().iter().map(RecordBatch::num_rows).sum::<usize>(),
        64
    );
}

#[test]
fn a_long_text_that_many_rows_name_is_there_once() {
    let text = "y".repeat(64 << 10);
    let keys = arrow::array::DictionaryArray::<Int32Type>::new(
        Int32Array::from(vec![0; 20_000]),
        Arc::new(StringArray::from(vec![text])),
    );
    let properties = WriterProperties::builder().set_dictionary_page_size_limit(4 << 20);
    let file = write(vec![("key", Arc::new(keys) as ArrayRef)], properties);
    let (mut rows, mut named) = (0, 0);
    for batch in batches(&file, LIMIT).unwrap() {
        let batch = batch.unwrap();
        rows += batch.num_rows();
        named += view_bytes(batch.column(0));
        let held: usize =
            batch.column(0).as_string_view().data_buffers().iter().map(|buffer| buffer.len()).sum();
        assert!(held as u64 <= LIMIT, "{held}");
    }
    assert_eq!((rows, named), (20_000, 20_000 << 16));
}

#[test]
fn a_text_that_shares_all_of_the_one_before_is_counted_again_and_again() {
    let file = |length: usize, rows: usize| {
        let properties = WriterProperties::builder()
            .set_dictionary_enabled(false)
            .set_encoding(Encoding::DELTA_BYTE_ARRAY)
            .set_data_page_row_count_limit(1 << 30);
        write(
            vec![("key", texts((0..rows).map(|row| format!("{}{row:06}", "z".repeat(length)))))],
            properties,
        )
    };
    let found = exceeded(&file(10_000, 8_000), LIMIT);
    assert_eq!(found.what, What::Values);
    assert!(found.declared > 8_000 * 10_000, "{found}");
    // What fits is exact.
    let file = file(100, 20_000);
    let rows = read(&file, LIMIT).unwrap();
    let last = rows.last().unwrap().column(0).as_string_view();
    assert!(last.value(last.len() - 1).ends_with("z019999"));
}

#[test]
fn a_row_with_millions_of_equal_values_is_refused() {
    let values = Int32Array::from(vec![7; 4_000_000]);
    let offsets = arrow::buffer::OffsetBuffer::from_lengths([4_000_000]);
    let field = Arc::new(Field::new("item", arrow::datatypes::DataType::Int32, true));
    let list = ListArray::new(field, offsets, Arc::new(values), None);
    let properties = WriterProperties::builder().set_data_page_row_count_limit(1 << 30);
    let file = write(vec![("many", Arc::new(list) as ArrayRef)], properties);
    assert!(file.len() < 64 << 10, "{}", file.len());
    let found = exceeded(&file, LIMIT);
    assert_eq!((found.what, &*found.column), (What::Values, "many.list.item"));
}

#[test]
fn rows_that_become_large_are_read_in_smaller_batches() {
    // A batch of the small ones has 8192 rows; of the large ones the limit holds a few.
    let small = (0..20_000).map(|row| format!("small {row}"));
    let large = (0..40).map(|row| format!("{row:04}{}", "w".repeat(1 << 20)));
    let properties = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_write_batch_size(8)
        .set_data_page_size_limit(1 << 20)
        .set_max_row_group_row_count(Some(15_000));
    let file = write(vec![("key", texts(small.chain(large)))], properties);
    let mut row = 0;
    for batch in batches(&file, LIMIT).unwrap() {
        let batch = batch.unwrap();
        let held: usize =
            batch.column(0).as_string_view().data_buffers().iter().map(|buffer| buffer.len()).sum();
        assert!(held as u64 <= LIMIT, "{held}");
        for text in batch.column(0).as_string_view() {
            let expected = match row {
                0..20_000 => format!("small {row}"),
                _ => format!("{:04}", row - 20_000),
            };
            assert!(text.unwrap().starts_with(&expected), "{row}");
            row += 1;
        }
    }
    assert_eq!(row, 20_040);
}

#[test]
fn pages_expand_to_what_they_declare_and_not_a_byte_further() {
    let whole = vec![b'a'; 1 << 20];
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(&whole).unwrap();
    let mut frame = lz4_flex::frame::FrameEncoder::new(Vec::new());
    frame.write_all(&whole).unwrap();
    let raw = lz4_flex::block::compress(&whole);
    let mut hadoop = (1_u32 << 20).to_be_bytes().to_vec();
    hadoop.extend(u32::try_from(raw.len()).unwrap().to_be_bytes());
    hadoop.extend(&raw);
    let stored = [
        (Compression::GZIP(GzipLevel::default()), gzip.finish().unwrap()),
        (Compression::SNAPPY, snap::raw::Encoder::new().compress_vec(&whole).unwrap()),
        (Compression::ZSTD(ZstdLevel::default()), zstd::bulk::compress(&whole, 1).unwrap()),
        (Compression::LZ4_RAW, raw.clone()),
        (Compression::LZ4, raw),
        (Compression::LZ4, frame.finish().unwrap()),
        (Compression::LZ4, hadoop),
    ];
    for (compression, stored) in stored {
        let mut codec = Codec::new(compression).unwrap();
        let mut out = b"levels".to_vec();
        codec.expand(&stored, &mut out, whole.len()).unwrap();
        assert!(out.starts_with(b"levels") && out[6..] == whole, "{compression}");
        for declared in [100, whole.len() - 1, whole.len() + 1] {
            let mut out = Vec::with_capacity(declared);
            assert!(codec.expand(&stored, &mut out, declared).is_err(), "{compression} {declared}");
            assert!(out.len() <= declared + 1, "{compression} {declared}");
        }
        assert!(codec.expand(&stored[..stored.len() / 2], &mut Vec::new(), whole.len()).is_err());
    }
}

/// Numbers as Thrift's compact protocol has them.
fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(u8::try_from(number & 0x7f).unwrap() | 0x80);
        number >>= 7;
    }
    bytes.push(u8::try_from(number).unwrap());
    bytes
}

fn i32_field(step: u8, number: u64) -> Vec<u8> {
    [vec![step << 4 | 5], varint(number << 1)].concat()
}

fn name_field(step: u8, name: &str) -> Vec<u8> {
    [vec![step << 4 | 8], varint(name.len() as u64), name.as_bytes().to_vec()].concat()
}

/// A file that has nothing but a footer of these parts of a schema, and what follows them.
fn footer_only(elements: &[Vec<u8>], rest: &[u8]) -> Bytes {
    let mut footer = i32_field(1, 2);
    footer.extend([0x19, 0xfc]);
    footer.extend(varint(elements.len() as u64));
    footer.extend(elements.concat());
    footer.extend(rest);
    let size = u32::try_from(footer.len()).unwrap().to_le_bytes();
    [&b"PAR1"[..], &footer, &size, b"PAR1"].concat().into()
}

/// A part of a schema; with `below` none it is a column.
fn element(name: &str, below: Option<u64>) -> Vec<u8> {
    let fields = match below {
        Some(below) => [name_field(4, name), i32_field(1, below)].concat(),
        None => [i32_field(1, 1), i32_field(2, 0), name_field(1, name)].concat(),
    };
    [fields, vec![0]].concat()
}

#[test]
fn a_footer_that_declares_billions_of_row_groups_is_refused() {
    let elements = [element("root", Some(1)), element("a", None)];
    let rest = [vec![0x16, 0], vec![0x19, 0xfc], varint(i32::MAX as u64), vec![0]].concat();
    let error = Footer::read(&footer_only(&elements, &rest), LIMIT).unwrap_err();
    assert_eq!(error.to_string(), "Parquet error: its footer is damaged");
    let short = Bytes::from_static(b"\xff\xff\xff\x7fPAR1");
    assert!(Footer::read(&short, LIMIT).unwrap_err().to_string().contains("larger than the file"));
}

#[test]
fn a_long_name_above_many_columns_is_counted_for_each_of_them() {
    let mut elements = vec![element("root", Some(1)), element(&"n".repeat(50_000), Some(5_000))];
    elements.extend((0..5_000).map(|_| element("a", None)));
    let file = footer_only(&elements, &[0]);
    assert!(file.len() < 128 << 10, "{}", file.len());
    let error = Footer::read(&file, LIMIT).unwrap_err();
    assert!(matches!(error, ReadError::Exceeded(Exceeded { what: What::Footer, .. })), "{error}");
    let deep: Vec<_> = (0..100_000).map(|_| element("a", Some(1))).collect();
    assert!(Footer::read(&footer_only(&deep, &[0]), 1 << 30).is_err());
}

/// Columns of every kind.
fn columns(rows: usize) -> Vec<(&'static str, ArrayRef)> {
    let number = |row: usize| i64::try_from(row * row % 1009).unwrap();
    let maybe = |row: usize| row % 5 != 3;
    let words = |row: usize| format!("{}{}", "word".repeat(row % 9), row % 97);
    let lists = (0..rows).map(|row| {
        maybe(row)
            .then(|| (0..i32::try_from(row % 6).unwrap()).map(|at| (at % 4 != 2).then_some(at)))
    });
    let texts_of = |row: usize| (0..row % 4).map(move |at| format!("text {} {}", row % 11, at));
    let mut text_lists = arrow::array::ListBuilder::new(arrow::array::StringBuilder::new());
    (0..rows).for_each(|row| text_lists.append_value(texts_of(row).map(Some)));
    let inner: ArrayRef = Arc::new(StringArray::from_iter_values((0..rows).map(words)));
    let field = Arc::new(Field::new("inner", inner.data_type().clone(), true));
    let decimals = Decimal128Array::from_iter(
        (0..rows).map(|row| maybe(row).then(|| i128::from(number(row)))),
    );
    let fixed = (0..rows).map(|row| maybe(row).then(|| (row as u64).to_le_bytes()));
    vec![
        (
            "int",
            Arc::new(Int64Array::from_iter((0..rows).map(|row| maybe(row).then(|| number(row))))),
        ),
        ("float", Arc::new(Float64Array::from_iter_values((0..rows).map(|row| row as f64 / 3.0)))),
        (
            "bool",
            Arc::new(BooleanArray::from_iter(
                (0..rows).map(|row| maybe(row).then_some(row % 3 == 0)),
            )),
        ),
        (
            "text",
            Arc::new(StringArray::from_iter((0..rows).map(|row| maybe(row).then(|| words(row))))),
        ),
        ("large", Arc::new(LargeStringArray::from_iter_values((0..rows).map(words)))),
        ("decimal", Arc::new(decimals.with_precision_and_scale(30, 4).unwrap())),
        (
            "fixed",
            Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(fixed, 8).unwrap()),
        ),
        ("list", Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists))),
        ("texts", Arc::new(text_lists.finish())),
        ("struct", Arc::new(StructArray::from(vec![(field, inner)]))),
    ]
}

#[test]
fn every_kind_of_page_is_read_as_the_parquet_crate_reads_it() {
    let compressions = [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::GZIP(GzipLevel::default()),
        Compression::ZSTD(ZstdLevel::default()),
        Compression::LZ4,
        Compression::LZ4_RAW,
    ];
    for (at, compression) in compressions.into_iter().enumerate() {
        for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
            for dictionary in [false, true] {
                let properties = WriterProperties::builder()
                    .set_compression(compression)
                    .set_writer_version(version)
                    .set_dictionary_enabled(dictionary)
                    .set_data_page_row_count_limit(700)
                    .set_write_batch_size(100)
                    .set_max_row_group_row_count(Some(2_000 + at));
                let file = write(columns(5_000), properties);
                let expected = ParquetRecordBatchReaderBuilder::try_new(file.clone()).unwrap();
                let schema = Arc::clone(expected.schema());
                let expected: Vec<_> = expected.build().unwrap().map(Result::unwrap).collect();
                let expected = concat_batches(&schema, &expected).unwrap();
                // Little memory, so that batches become smaller on the way.
                for limit in [64 << 20, 3 << 18] {
                    let found = read(&file, limit).unwrap();
                    let schema = found[0].schema();
                    let found = concat_batches(&schema, &found).unwrap();
                    assert_eq!(found.num_rows(), 5_000);
                    for (array, expected) in found.columns().iter().zip(expected.columns()) {
                        let array = cast(array, expected.data_type()).unwrap();
                        assert_eq!(&array, expected, "{compression} {version:?} {dictionary}");
                    }
                }
            }
        }
    }
}

#[test]
fn columns_that_are_chosen_have_their_names() {
    let file = write(columns(10), WriterProperties::builder());
    let footer = Footer::read(&file, LIMIT).unwrap();
    let metadata = ArrowReaderMetadata::load(&footer, ArrowReaderOptions::new()).unwrap();
    let mask = ProjectionMask::roots(metadata.parquet_schema(), [3, 8]);
    let plan = Plan { chunks: file, metadata, mask, groups: vec![0], rows_max: 4, limit: LIMIT };
    let batches = Batches::new(plan).unwrap();
    let names = |schema: &Schema| {
        schema.fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(batches.schema()), ["text", "texts"]);
    let read: Vec<_> = batches.map(Result::unwrap).collect();
    assert_eq!(read.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), [4, 4, 2]);
    assert_eq!(names(&read[0].schema()), ["text", "texts"]);
}

#[test]
fn no_damage_to_a_file_takes_more_than_the_limit_or_has_no_end() {
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_data_page_row_count_limit(50);
    let whole = write(columns(200), properties);
    let mut errors = 0;
    for at in (4..whole.len()).step_by(13) {
        let mut damaged = whole.to_vec();
        damaged[at] ^= 1 << (at % 8);
        let damaged = Bytes::from(damaged);
        // The decoder checks not all of its arithmetic; its callers guard themselves.
        let read = std::panic::catch_unwind(|| read(&damaged, LIMIT).map(|read| read.len()));
        errors += usize::from(!matches!(read, Ok(Ok(_))));
    }
    assert!(errors > 0);
}
