//! What a search is narrowed to, beside its words.
//!
//! Invariants: every field narrows; what a client sent is bound as a value, never a part of SQL; the
//! same filter holds for a row of the index and for the record of the catalogue that is shown in the
//! end.

use rusqlite::types::Value;

use super::schema::Indexed;
use crate::attributes::{AttributeKind, Attributes};
use crate::catalogue::FileRecord;
use crate::classify::{Category, is_of_type};
use crate::names::{Namespace, successor};

/// What a search is narrowed to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SearchFilter {
    /// Only this namespace.
    pub namespace: Option<Namespace>,
    /// Only names that begin with this.
    pub prefix: Option<String>,
    /// Only this media type, or all of a kind as in `image/*`.
    pub media_type: Option<String>,
    /// Only this category.
    pub category: Option<Category>,
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
    /// Only files with these metadata, as names and values.
    pub metadata: Vec<(String, String)>,
}

/// The properties that a filter looks at.
struct Properties<'a> {
    namespace: &'a str,
    name: &'a str,
    mime: &'a str,
    category: Category,
    size: u64,
    created_ms: i64,
}

impl SearchFilter {
    /// Whether it selects everything.
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether it has conditions that are not words of the index.
    pub(super) fn looks_at_rows(&self) -> bool {
        self.prefix.is_some()
            || self.size_min.is_some()
            || self.size_max.is_some()
            || self.created_from_ms.is_some()
            || self.created_to_ms.is_some()
    }

    /// Whether it has conditions that only the words of the index and the catalogue can decide.
    pub(super) fn has_attributes(&self) -> bool {
        !self.tags.is_empty() || !self.metadata.is_empty()
    }

    /// Whether a row passes, metadata and tags apart.
    pub(super) fn passes(&self, row: &Indexed) -> bool {
        self.holds(&Properties {
            namespace: &row.namespace,
            name: &row.name,
            mime: &row.mime,
            category: row.category,
            size: row.size,
            created_ms: row.created_ms,
        })
    }

    /// Whether a file of the catalogue passes.
    pub(super) fn selects(&self, file: &FileRecord) -> bool {
        self.holds(&Properties {
            namespace: file.namespace.as_str(),
            name: file.name.as_str(),
            mime: &file.mime,
            category: file.category,
            size: file.size,
            created_ms: file.created_ms,
        }) && self.holds_attributes(&file.attributes)
    }

    fn holds_attributes(&self, of: &Attributes) -> bool {
        let has_tag = |(name, wanted): &(String, Option<String>)| {
            let value = of.get(AttributeKind::Tag, name);
            value.is_some_and(|value| wanted.as_ref().is_none_or(|wanted| wanted == value))
        };
        let has_metadata = |(name, wanted): &(String, String)| {
            let name = AttributeKind::Metadata.stored_name(name);
            of.get(AttributeKind::Metadata, &name) == Some(wanted.as_str())
        };
        self.tags.iter().all(has_tag) && self.metadata.iter().all(has_metadata)
    }

    fn holds(&self, of: &Properties<'_>) -> bool {
        self.namespace.as_ref().is_none_or(|wanted| wanted.as_str() == of.namespace)
            && self.prefix.as_ref().is_none_or(|prefix| of.name.starts_with(prefix.as_str()))
            && self.media_type.as_ref().is_none_or(|wanted| is_of_type(of.mime, wanted))
            && self.category.is_none_or(|wanted| wanted == of.category)
            && self.size_min.is_none_or(|min| of.size >= min)
            && self.size_max.is_none_or(|max| of.size <= max)
            && self.created_from_ms.is_none_or(|from| of.created_ms >= from)
            && self.created_to_ms.is_none_or(|to| of.created_ms < to)
    }

    /// The same as conditions of SQL over the table of files, metadata and tags apart, with their values
    /// in order.
    pub(super) fn conditions(&self) -> (Vec<String>, Vec<Value>) {
        let (mut conditions, mut values) = (Vec::new(), Vec::new());
        let mut add = |condition: &str, value: Value| {
            conditions.push(condition.to_owned());
            values.push(value);
        };
        let number = |value: u64| Value::from(i64::try_from(value).unwrap_or(i64::MAX));
        if let Some(namespace) = &self.namespace {
            add("namespace = ?", namespace.as_str().to_owned().into());
        }
        if let Some(prefix) = self.prefix.as_ref().filter(|prefix| !prefix.is_empty()) {
            add("name >= ?", prefix.clone().into());
            if let Some(end) = successor(prefix) {
                add("name < ?", end.into());
            }
        }
        if let Some(media_type) = &self.media_type {
            match media_type.strip_suffix('*') {
                Some(kind) => {
                    add("mime >= ?", kind.to_owned().into());
                    if let Some(end) = successor(kind) {
                        add("mime < ?", end.into());
                    }
                }
                None => add("mime = ?", media_type.clone().into()),
            }
        }
        if let Some(category) = self.category {
            add("category = ?", i64::from(category as u8).into());
        }
        if let Some(min) = self.size_min {
            add("size >= ?", number(min));
        }
        if let Some(max) = self.size_max {
            add("size <= ?", number(max));
        }
        if let Some(from) = self.created_from_ms {
            add("created_ms >= ?", from.into());
        }
        if let Some(to) = self.created_to_ms {
            add("created_ms < ?", to.into());
        }
        (conditions, values)
    }
}
