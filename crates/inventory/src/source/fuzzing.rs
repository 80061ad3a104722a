//! Access for the fuzz targets to private functions: any bytes in, no panic out.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use forebay_base::ByteSize;

use super::csv::{self, RECORD_SIZE_MAX};
use super::input::{Counted, Expected};
use super::list::page::{Page, Refusal};
use super::location::FileLocation;
use super::manifest::{self, Manifest, resolve};
use super::parquet;
use super::{BadRow, Columns, RowSink, Stopped, Within};
use crate::object::{Batch, Classes};

/// Reads any bytes as a manifest, and as the checksum of one.
///
/// # Panics
/// If a name in it leads out of its directory: a bug.
pub fn s3_manifest(data: &[u8]) {
    if let Ok(manifest) = Manifest::decode("manifest.json", data) {
        let dir = Path::new("/nowhere");
        for file in manifest.files.iter().filter(|file| resolve::is_safe(&file.key)) {
            let path = dir.join(&file.key);
            assert!(path.starts_with(dir) && !path.components().any(|c| c.as_os_str() == ".."));
        }
        assert!(manifest.fields.iter().all(|field| !field.is_empty()));
    }
    if let Ok(checksum) = manifest::checksum("manifest.checksum", data) {
        assert_eq!(checksum.len(), 32);
    }
}

/// Reads any bytes as the answer of a server to a request to list a bucket.
///
/// # Panics
/// If a page has more contents than bytes: a bug.
pub fn s3_listing(data: &[u8]) {
    if let Ok(page) = Page::decode(data) {
        let keys = page.objects.iter().map(|object| object.key.len());
        assert!(keys.sum::<usize>() <= data.len());
    }
    Refusal::decode(data);
}

/// Reads any bytes as a CSV file. The first byte selects the settings.
///
/// # Panics
/// If the objects are invalid: a bug.
pub fn inventory_csv(data: &[u8]) {
    let Some((&kind, file)) = data.split_first() else { return };
    let names = ["Bucket", "Key", "Size", "IsLatest", "IsDeleteMarker", "LastModifiedDate"];
    let names = names.into_iter().chain(["StorageClass", "IntelligentTieringAccessTier"]);
    let settings = csv::Settings {
        columns: Columns::usual(),
        names: (kind & 1 == 0).then(|| names.map(str::to_owned).collect()),
        encoded: kind & 2 == 0,
        classes: Arc::new(Classes::new()),
    };
    let expected = Expected::default();
    let mut checked = Checked::default();
    let read =
        csv::read("f.csv", Counted::new(file, &expected), &expected, &settings, &mut checked);
    assert!(checked.bytes <= file.len() as u64);
    if read.is_ok() {
        assert_eq!(checked.bytes, file.len() as u64);
    }
}

/// Reads any bytes as a Parquet file on disk: its footer, and every page of the required columns.
///
/// # Panics
/// If the objects are invalid: a bug.
pub fn inventory_parquet(data: &[u8]) {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(data).expect("room for an input");
    let settings = parquet::Settings {
        columns: Columns::usual(),
        classes: Arc::new(Classes::new()),
        memory: ByteSize::mib(16),
        temporary: std::env::temp_dir(),
    };
    let place = FileLocation::Local(file.path().to_owned(), Within::default());
    let files = vec![(place, Expected::default())];
    let Ok(opened) = parquet::ParquetFiles::open(files, &settings) else { return };
    for part in opened.parts() {
        let mut checked = Checked::default();
        // An invalid file is an error; this looks for panics.
        part.read(&mut checked).ok();
    }
}

/// Checks the objects it receives.
#[derive(Default)]
struct Checked {
    bytes: u64,
}

impl RowSink for Checked {
    fn rows(&mut self, batch: &mut Batch) -> Result<(), Stopped> {
        for (key, object) in batch.iter() {
            assert!(key.len() <= RECORD_SIZE_MAX && object.size <= i64::MAX as u64);
        }
        batch.clear();
        Ok(())
    }

    fn bad_row(&mut self, row: BadRow) -> Result<(), Stopped> {
        assert!(row.row > 0 && !row.reason.is_empty());
        Ok(())
    }

    fn bytes(&mut self, more: u64) {
        self.bytes += more;
    }
}
