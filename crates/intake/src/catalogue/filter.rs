//! Which files a listing shows.
//!
//! Invariant: a filter is applied to rows that were verified, never by a condition of SQL, which would pass
//! over a row that was altered in the column it looks at.

use rusqlite::Row;
use rusqlite::types::ValueRef;

use super::FileRecord;
use super::list::text;
use super::rows::{Checked, read_attributes};
use crate::attributes::{AttributeKind, Attributes};
use crate::classify::{Category, is_of_type};
use crate::digest::Digest;
use crate::names::Namespace;

/// Which files a listing shows. Every field narrows it.
#[derive(Debug, Clone, Default)]
pub struct FileFilter {
    /// Only this namespace.
    pub namespace: Option<Namespace>,
    /// Only names that begin with this.
    pub prefix: Option<String>,
    /// Only this category.
    pub category: Option<Category>,
    /// Only this media type, or all of a kind as in `image/*`.
    pub mime: Option<String>,
    /// Only files with these bytes.
    pub digest: Option<Digest>,
    /// Only files of at least this many bytes.
    pub size_min: Option<u64>,
    /// Only files of at most this many bytes.
    pub size_max: Option<u64>,
    /// Only names given at or after this time, in milliseconds since 1970.
    pub created_from_ms: Option<i64>,
    /// Only names given before this time, in milliseconds since 1970.
    pub created_to_ms: Option<i64>,
    /// Only files with these tags. A tag without a value may have any.
    pub tags: Vec<(String, Option<String>)>,
}

impl FileFilter {
    /// Whether names between those that are returned may have to be read. A digest is looked up.
    pub(crate) fn may_skip(&self) -> bool {
        let by_size = self.size_min.or(self.size_max).is_some();
        let by_time = self.created_from_ms.or(self.created_to_ms).is_some();
        let by_kind = self.category.is_some() || self.mime.is_some();
        self.digest.is_none() && (by_size || by_time || by_kind || !self.tags.is_empty())
    }

    /// Whether a row of [`FILE_COLUMNS`](super::rows::FILE_COLUMNS) passes, names apart.
    pub(super) fn selects(&self, row: &Row<'_>) -> Checked<bool> {
        if let Some(digest) = &self.digest
            && row.get_ref(3)? != ValueRef::Blob(&digest.0)
        {
            return Ok(false);
        }
        if let Some(mime) = &self.mime
            && !std::str::from_utf8(text(row, 5)?).is_ok_and(|found| is_of_type(found, mime))
        {
            return Ok(false);
        }
        let category: u8 = row.get(6)?;
        let size = row.get::<_, i64>(4)?.cast_unsigned();
        Ok(self.category.is_none_or(|wanted| wanted as u8 == category)
            && self.holds(size, row.get(8)?)
            && (self.tags.is_empty() || self.has_tags(&read_attributes(row, 9)?)))
    }

    /// Whether a file passes, names apart.
    pub(super) fn passes(&self, file: &FileRecord) -> bool {
        self.digest.is_none_or(|digest| digest == file.digest)
            && self.mime.as_ref().is_none_or(|mime| is_of_type(&file.mime, mime))
            && self.category.is_none_or(|category| category == file.category)
            && self.holds(file.size, file.created_ms)
            && self.has_tags(&file.attributes)
    }

    fn has_tags(&self, attributes: &Attributes) -> bool {
        self.tags.iter().all(|(name, wanted)| {
            attributes
                .get(AttributeKind::Tag, name)
                .is_some_and(|value| wanted.as_deref().is_none_or(|wanted| wanted == value))
        })
    }

    fn holds(&self, size: u64, created_ms: i64) -> bool {
        self.size_min.is_none_or(|min| size >= min)
            && self.size_max.is_none_or(|max| size <= max)
            && self.created_from_ms.is_none_or(|from| created_ms >= from)
            && self.created_to_ms.is_none_or(|to| created_ms < to)
    }
}
