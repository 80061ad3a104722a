//! Access for the fuzz targets to the readers of files: any bytes as a file, read by the columns
//! that were found in it and by unrelated ones.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::RecordBatch;
use forebay_sdk::bridge::Give;
use serde_json::json;

use super::format::{Format, Reading};
use super::opened::{From, Opened};
use super::parquet::ParquetFormat;
use super::{CsvSource, NdjsonSource, csv, ndjson};

/// Size of a batch in bytes.
const BATCH_SIZE: usize = 4 << 10;
/// Types that are requested regardless of the contents.
const TYPES: [&str; 8] =
    ["bigint", "boolean", "double precision", "date", "timestamptz", "numeric", "jsonb", "uuid"];

/// Reads any bytes as CSV. The first byte selects the settings.
///
/// # Panics
/// If a batch does not match its columns: a bug.
pub fn csv(data: &[u8]) {
    let Some((&how, file)) = data.split_first() else { return };
    let settings = json!({
        "path": "/", "header": how & 1 == 0, "delimiter": if how & 2 == 0 { "," } else { ";" },
        "compression": compression(how), "null_text": if how & 4 == 0 { "" } else { "null" },
    });
    let mut settings: CsvSource = serde_json::from_value(settings).expect("settings of CSV");
    settings.columns = given(how, "column_1");
    settings.sample_rows = sample(how);
    read(&csv::CsvFormat::new(&settings), file);
}

/// Reads any bytes as NDJSON. The first byte selects the settings.
///
/// # Panics
/// If a batch does not match its columns: a bug.
pub fn ndjson(data: &[u8]) {
    let Some((&how, file)) = data.split_first() else { return };
    let settings = json!({ "path": "/", "compression": compression(how) });
    let mut settings: NdjsonSource = serde_json::from_value(settings).expect("settings of NDJSON");
    settings.columns = given(how, "a");
    settings.sample_rows = sample(how);
    read(&ndjson::NdjsonFormat::new(&settings), file);
}

/// Reads any bytes as Parquet.
///
/// # Panics
/// If a batch does not match its columns: a bug.
pub fn parquet(data: &[u8]) {
    read(&ParquetFormat, data);
}

fn compression(how: u8) -> &'static str {
    ["none", "none", "gzip", "zstd"][usize::from(how >> 3 & 3)]
}

/// The type of a column, if one is requested.
fn given(how: u8, name: &str) -> BTreeMap<String, String> {
    let of = TYPES[usize::from(how >> 5)];
    let is_asked = how & 4 != 0;
    is_asked.then(|| (name.to_owned(), of.to_owned())).into_iter().collect()
}

/// With one row examined, later rows are often of another type.
fn sample(how: u8) -> NonZeroU32 {
    NonZeroU32::new(if how & 2 == 0 { 1 } else { 100 }).expect("not none")
}

fn read(format: &dyn Format, data: &[u8]) {
    let (file, path) = crate::fuzzing::in_memory(data);
    let opened =
        Opened::new(From::Disk(Arc::new(file)), data.len() as u64, None, PathBuf::from(path));
    let Ok(columns) = format.columns(&opened, &[]) else { return };
    let Ok(parts) = format.divide(&opened, BATCH_SIZE as u64) else { return };
    for part in &parts {
        let reading = Reading {
            file: &opened,
            part,
            columns: &columns,
            is_projection: false,
            batch_size: BATCH_SIZE,
        };
        let mut give = |batch: RecordBatch| {
            assert_eq!(batch.num_columns(), columns.len());
            for (array, column) in batch.columns().iter().zip(&columns) {
                assert_eq!(array.data_type(), column.field().data_type(), "{}", column.name);
                array.to_data().validate_full().expect("sound arrays");
            }
            Ok(())
        };
        let give: &mut Give<'_> = &mut give;
        // An invalid file is an error; this looks for panics.
        format.read(&reading, give).ok();
    }
}
