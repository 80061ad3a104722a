//! The file `index.json`: the description of an index, and the files it consists of.
//!
//! One line of JSON, and one with its checksum. It is written last, so a directory without it is
//! not an index.

use forebay_base::checksum::crc32c;
use serde::{Deserialize, Serialize};

use super::{SLOTS_MAX, VERSION, VERSION_MIN};

/// The name of the file that makes a directory an index.
pub const INDEX: &str = "index.json";
/// Maximum size of `index.json`.
pub const META_SIZE_MAX: u64 = 1 << 20;

/// A storage class of an index; current and noncurrent versions are separate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = InventoryClass)]
pub struct Slot {
    /// The name of the class.
    pub class: String,
    /// Whether it counts noncurrent versions.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub noncurrent: bool,
}

/// A file of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileMeta {
    /// Bytes.
    pub size: u64,
    /// CRC-32C of all of it.
    pub crc32c: u32,
}

/// The files of an index beside `index.json`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesMeta {
    /// The records.
    pub nodes: FileMeta,
    /// The table for lookups.
    pub table: FileMeta,
    /// The lists of children.
    pub order: FileMeta,
    /// The description of the source.
    pub provenance: FileMeta,
}

/// The contents of `index.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// The version of the format.
    pub version: u32,
    /// The part of its files' names that distinguishes them from those of the previous index.
    pub generation: u64,
    /// What separates the components of a key.
    pub delimiter: char,
    /// Whether it has histograms.
    pub histograms: bool,
    /// The classes; records refer to them by index.
    pub slots: Vec<Slot>,
    /// Current objects.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Prefixes, the empty one included.
    pub prefixes: u64,
    /// Number of rows that were skipped as invalid.
    pub bad_rows: u64,
    /// When it was built, milliseconds since 1970.
    pub built_at_ms: u64,
    /// Its files.
    pub files: FilesMeta,
}

/// The name of a file of one generation.
#[must_use]
pub fn file_name(name: &str, generation: u64) -> String {
    format!("{name}.{generation}")
}

/// Why `index.json` is invalid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MetaError {
    /// The checksum is missing or does not match.
    #[error("its checksum does not match")]
    Checksum,
    /// It is not JSON of the expected structure.
    #[error("it does not describe an index")]
    Json(#[source] serde_json::Error),
    /// Another version of the format.
    #[error(
        "it has version {0} of the format; this program reads versions {VERSION_MIN} to {VERSION}"
    )]
    Version(u32),
    /// A value is invalid.
    #[error("it is invalid: {0}")]
    Wrong(&'static str),
}

impl Meta {
    /// Encodes it.
    ///
    /// # Errors
    /// It cannot be encoded as JSON.
    pub fn to_bytes(&self) -> Result<Vec<u8>, MetaError> {
        let mut text = serde_json::to_vec(self).map_err(MetaError::Json)?;
        let sum = crc32c(&text);
        text.extend_from_slice(format!("\n{sum:08x}\n").as_bytes());
        Ok(text)
    }

    /// Decodes it.
    ///
    /// # Errors
    /// It is damaged or has another version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, MetaError> {
        let (text, sum) = bytes.split_last_chunk::<10>().ok_or(MetaError::Checksum)?;
        if format!("\n{:08x}\n", crc32c(text)).as_bytes() != sum {
            return Err(MetaError::Checksum);
        }
        let VersionOnly { version } = serde_json::from_slice(text).map_err(MetaError::Json)?;
        if !(VERSION_MIN..=VERSION).contains(&version) {
            return Err(MetaError::Version(version));
        }
        let meta: Self = serde_json::from_slice(text).map_err(MetaError::Json)?;
        if meta.slots.len() > SLOTS_MAX {
            return Err(MetaError::Wrong("there are more classes than an index supports"));
        }
        if !meta.delimiter.is_ascii() {
            return Err(MetaError::Wrong("the delimiter is not one byte"));
        }
        Ok(meta)
    }

    /// The slots of current versions, as a mask.
    #[must_use]
    pub fn current_slots(&self) -> u64 {
        let current = self.slots.iter().enumerate().filter(|(_, slot)| !slot.noncurrent);
        current.fold(0, |mask, (at, _)| {
            mask | 1_u64.checked_shl(u32::try_from(at).unwrap_or(64)).unwrap_or(0)
        })
    }
}

/// The part that is read first, since the rest may have an unknown version.
#[derive(Deserialize)]
struct VersionOnly {
    version: u32,
}
