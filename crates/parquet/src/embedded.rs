//! The Arrow schema in a footer, looked at before it is converted.
//!
//! Arrow writes its schema as base64 of a flatbuffer under the key `ARROW:schema`. Its conversion
//! panics on types that do not exist, such as an integer of 15 bits, so those are found first.
//!
//! Invariant: what `convert::fb_to_schema` of `arrow-ipc` would panic on is an error here.

use std::sync::Arc;

use arrow_ipc::{DateUnit, Endianness, Field, IntervalUnit, Precision, Schema, TimeUnit, Type};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parquet::arrow::ARROW_SCHEMA_META_KEY;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::file::metadata::ParquetMetaData;

use crate::Footer;
use crate::error::{ReadError, damaged};

/// Types within each other.
const DEPTH_MAX: usize = 64;

/// Loads the metadata of a file, with the types of its Arrow schema if it has one.
///
/// # Errors
/// The footer cannot be decoded, or its Arrow schema has types that do not exist.
pub fn load(
    footer: &Footer,
    options: ArrowReaderOptions,
) -> Result<ArrowReaderMetadata, ReadError> {
    let plain = options.clone().with_skip_arrow_metadata(true);
    let loaded = ArrowReaderMetadata::load(footer, plain)?;
    let metadata = Arc::clone(loaded.metadata());
    if !is_sound(&metadata) {
        return Err(damaged("the Arrow schema in its footer is damaged").into());
    }
    Ok(ArrowReaderMetadata::try_new(metadata, options)?)
}

/// Whether every Arrow schema in a footer can be converted, or is refused without a panic.
fn is_sound(metadata: &ParquetMetaData) -> bool {
    let pairs = metadata.file_metadata().key_value_metadata().into_iter().flatten();
    let texts = pairs.filter(|pair| pair.key == ARROW_SCHEMA_META_KEY);
    texts.filter_map(|pair| pair.value.as_deref()).all(|text| {
        let Ok(bytes) = STANDARD.decode(text) else { return true };
        let message = match bytes.split_at_checked(8) {
            Some((prefix, message)) if !message.is_empty() && prefix.starts_with(&[255; 4]) => {
                message
            }
            _ => &bytes,
        };
        let Ok(message) = arrow_ipc::root_as_message(message) else { return true };
        message.header_as_schema().is_none_or(is_schema)
    })
}

fn is_schema(schema: Schema<'_>) -> bool {
    schema.endianness() == Endianness::Little
        && schema.fields().is_some_and(|fields| fields.iter().all(|field| is_field(field, 0)))
}

/// Whether a field has a type that exists, with as many parts as it needs.
fn is_field(field: Field<'_>, depth: usize) -> bool {
    if depth > DEPTH_MAX {
        return false;
    }
    if let Some(dictionary) = field.dictionary() {
        let index = dictionary.indexType();
        if !index.is_some_and(|index| is_integer(index.bitWidth())) {
            return false;
        }
    }
    let parts = field.children();
    let count = parts.map_or(0, |parts| parts.len());
    is_type(field, count)
        && parts.into_iter().flatten().all(|part| is_field(part, depth.saturating_add(1)))
}

fn is_integer(bits: i32) -> bool {
    matches!(bits, 8 | 16 | 32 | 64)
}

fn is_unit(unit: TimeUnit) -> bool {
    let units =
        [TimeUnit::SECOND, TimeUnit::MILLISECOND, TimeUnit::MICROSECOND, TimeUnit::NANOSECOND];
    units.contains(&unit)
}

/// Whether the type of a field with this many parts exists.
fn is_type(field: Field<'_>, parts: usize) -> bool {
    match field.type_type() {
        Type::Null
        | Type::Bool
        | Type::Binary
        | Type::BinaryView
        | Type::LargeBinary
        | Type::Utf8
        | Type::Utf8View
        | Type::LargeUtf8
        | Type::Struct_ => true,
        Type::Int => field.type_as_int().is_some_and(|of| is_integer(of.bitWidth())),
        Type::FloatingPoint => field.type_as_floating_point().is_some_and(|of| {
            [Precision::HALF, Precision::SINGLE, Precision::DOUBLE].contains(&of.precision())
        }),
        Type::FixedSizeBinary => {
            field.type_as_fixed_size_binary().is_some_and(|of| of.byteWidth() >= 0)
        }
        Type::Date => field
            .type_as_date()
            .is_some_and(|of| [DateUnit::DAY, DateUnit::MILLISECOND].contains(&of.unit())),
        Type::Time => field.type_as_time().is_some_and(|of| {
            let of = (of.bitWidth(), of.unit());
            [
                (32, TimeUnit::SECOND),
                (32, TimeUnit::MILLISECOND),
                (64, TimeUnit::MICROSECOND),
                (64, TimeUnit::NANOSECOND),
            ]
            .contains(&of)
        }),
        Type::Timestamp => field.type_as_timestamp().is_some_and(|of| is_unit(of.unit())),
        Type::Duration => field.type_as_duration().is_some_and(|of| is_unit(of.unit())),
        Type::Interval => field.type_as_interval().is_some_and(|of| {
            let units =
                [IntervalUnit::YEAR_MONTH, IntervalUnit::DAY_TIME, IntervalUnit::MONTH_DAY_NANO];
            units.contains(&of.unit())
        }),
        Type::Decimal => field.type_as_decimal().is_some_and(|of| {
            u8::try_from(of.precision()).is_ok()
                && i8::try_from(of.scale()).is_ok()
                && matches!(of.bitWidth(), 32 | 64 | 128 | 256)
        }),
        Type::List | Type::LargeList | Type::ListView | Type::LargeListView => parts == 1,
        Type::FixedSizeList => {
            parts == 1 && field.type_as_fixed_size_list().is_some_and(|of| of.listSize() >= 0)
        }
        Type::Map => parts == 1 && field.type_as_map().is_some(),
        Type::RunEndEncoded => parts == 2,
        // Parquet has no unions.
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use arrow::array::{Float64Array, Int32Array, RecordBatch, TimestampMicrosecondArray};
    use bytes::Bytes;
    use parquet::arrow::ArrowWriter;

    fn file() -> Vec<u8> {
        let batch = RecordBatch::try_from_iter([
            ("i", Arc::new(Int32Array::from(vec![1])) as _),
            ("f", Arc::new(Float64Array::from(vec![1.5])) as _),
            ("t", Arc::new(TimestampMicrosecondArray::from(vec![1]).with_timezone("UTC")) as _),
        ]);
        let batch = batch.unwrap();
        let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.into_inner().unwrap()
    }

    fn loaded(file: Vec<u8>) -> Result<ArrowReaderMetadata, ReadError> {
        let footer = Footer::read(&Bytes::from(file), 16 << 20)?;
        load(&footer, ArrowReaderOptions::new())
    }

    #[test]
    fn no_damage_to_an_arrow_schema_panics() {
        let whole = file();
        assert_eq!(loaded(whole.clone()).unwrap().schema().fields().len(), 3);
        // The schema's base64 begins with the mark of a message.
        let start = whole.windows(6).position(|text| text == b"/////w" || text == b"/////3");
        let start = start.unwrap();
        let is_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
        let length = whole[start..].iter().take_while(|byte| is_base64(byte)).count();
        let mut refused = 0;
        for at in start..start + length {
            for with in [b'A', b'B', b'/', b'8', b'Z'] {
                let mut damaged = whole.clone();
                damaged[at] = with;
                // A panic would fail the test.
                if let Err(error) = loaded(damaged) {
                    refused += usize::from(error.to_string().contains("Arrow schema"));
                }
            }
        }
        assert!(refused > 10, "{refused} of {length}");
    }
}
