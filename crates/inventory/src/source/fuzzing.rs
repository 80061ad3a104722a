//! What the fuzz targets need of the sources' inside: any bytes in, no panic out.

use std::path::Path;
use std::sync::Arc;

use super::csv::{self, RECORD_SIZE_MAX};
use super::input::{Counted, Expected};
use super::list::page::{Page, Refusal};
use super::manifest::{self, Manifest, resolve};
use super::{BadRow, Columns, RowSink, Stopped};
use crate::object::{Batch, Classes};

/// Any bytes as a manifest, and as the checksum of one.
///
/// # Panics
/// If a name in it leads out of the directory it is for: a mistake.
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

/// Any bytes as the answer of a server to a request to list a bucket.
///
/// # Panics
/// If there is more to say of a page than its bytes say: a mistake.
pub fn s3_listing(data: &[u8]) {
    if let Ok(page) = Page::decode(data) {
        let keys = page.objects.iter().map(|object| object.key.len());
        assert!(keys.sum::<usize>() <= data.len());
    }
    Refusal::decode(data);
}

/// Any bytes as a CSV file: the first says of which kind.
///
/// # Panics
/// If the objects are not as they must be: a mistake.
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

/// Looks at what it is given.
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
