//! The common structure of a batch of documents, counted as it streams by.
//!
//! Invariants: memory is limited by the number of tracked fields, whatever the number of documents;
//! further fields are counted, not kept; shares are of documents seen, so the order of documents
//! changes nothing.

use std::collections::HashMap;

use forebay_sink::column::Fit;
use forebay_sink::{ColumnType, Field, Value};

use super::flatten::{Bounds, Leaf, Members};
use super::{DocumentError, DocumentError as Error};

/// Number of values of a candidate key that are kept to detect repetitions.
const KEY_VALUES_MAX: usize = 4_096;

/// Statistics of one field.
#[derive(Debug, Clone, Default)]
pub struct FieldProfile {
    /// Documents that have the field, null or not.
    pub present: u64,
    /// Documents in which it is null.
    pub nulls: u64,
    /// Documents by kind of value, in the order of [`Kind`].
    pub kinds: [u64; Kind::COUNT],
    /// Numbers that no double is exactly, or that are beyond all of them.
    pub no_double: u64,
    /// Strings that are no text: they contain half a surrogate pair.
    pub no_text: u64,
    /// Hashes of a candidate key's values; `None` for other fields, or once a value repeated.
    values: Option<std::collections::HashSet<u64>>,
}

/// Kinds of leaf values that are distinguished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Kind {
    /// `true`, `false`.
    Boolean,
    /// Whole numbers of 64 bits.
    Integer,
    /// Larger whole numbers.
    BigInteger,
    /// Numbers with a fraction or exponent.
    Real,
    /// Strings.
    Text,
    /// Arrays of anything but objects.
    Array,
    /// Arrays of objects.
    Embedded,
    /// Objects that are not flattened.
    Object,
}

impl Kind {
    const COUNT: usize = 8;
}

/// Statistics of a batch.
#[derive(Debug, Clone)]
pub struct Profile {
    /// Documents seen.
    pub documents: u64,
    /// Documents whose objects nest no deeper than the flattening depth.
    pub shallow: u64,
    /// Fields in the order they were first seen.
    fields: Vec<(Box<str>, FieldProfile)>,
    by_path: HashMap<Box<str>, usize>,
    fields_max: usize,
    /// Number of leaves of fields that were not tracked because there were too many.
    pub untracked: u64,
    path: String,
}

impl Profile {
    /// Starts a batch of which at most `fields_max` fields are tracked.
    #[must_use]
    pub fn new(fields_max: usize) -> Self {
        Self {
            documents: 0,
            shallow: 0,
            fields: Vec::new(),
            by_path: HashMap::new(),
            fields_max,
            untracked: 0,
            path: String::new(),
        }
    }

    /// Adds one document; `note` is called with each tracked leaf and the index of its field.
    ///
    /// # Errors
    /// [`DocumentError`] for a nested object that cannot be read.
    pub fn add<'a>(
        &mut self,
        members: &Members<'a>,
        bounds: &Bounds,
        note: &mut impl FnMut(usize, &Leaf<'a>, &'a str),
    ) -> Result<(), DocumentError> {
        let mut path = std::mem::take(&mut self.path);
        // Documents usually repeat the order of fields, so the next one is tried first.
        let mut next = 0;
        let depth = members.leaves::<Error>(bounds, &mut path, &mut |path, leaf, text| {
            let at = match self.fields.get(next) {
                Some((known, _)) if **known == *path => Some(next),
                _ => self.slot(path),
            };
            match at.and_then(|at| Some((at, self.fields.get_mut(at)?))) {
                Some((at, (_, field))) => {
                    field.add(&leaf);
                    note(at, &leaf, text);
                    next = at + 1;
                }
                None => self.untracked += 1,
            }
            Ok(())
        })?;
        self.path = path;
        self.documents += 1;
        self.shallow += u64::from(depth <= bounds.flatten_depth);
        Ok(())
    }

    /// The fields in the order they were first seen.
    #[must_use]
    pub fn fields(&self) -> &[(Box<str>, FieldProfile)] {
        &self.fields
    }

    /// The fields with the types their columns would get.
    pub fn columns(&self) -> impl Iterator<Item = Field<'_>> {
        self.fields.iter().map(|(path, field)| Field { path, ty: field.column_type() })
    }

    fn slot(&mut self, path: &str) -> Option<usize> {
        if let Some(&at) = self.by_path.get(path) {
            return Some(at);
        }
        if self.fields.len() >= self.fields_max {
            return None;
        }
        let mut field = FieldProfile::default();
        if is_key(path) {
            field.values = Some(std::collections::HashSet::new());
        }
        self.by_path.insert(path.into(), self.fields.len());
        self.fields.push((path.into(), field));
        Some(self.fields.len() - 1)
    }
}

impl FieldProfile {
    fn add(&mut self, leaf: &Leaf<'_>) {
        self.present += 1;
        let kind = match leaf {
            Leaf::Null => {
                self.nulls += 1;
                return;
            }
            Leaf::Boolean(_) => Kind::Boolean,
            Leaf::Integer(number, text) => {
                if number.unsigned_abs() > 1 << 53 {
                    self.note_double(text);
                }
                Kind::Integer
            }
            Leaf::BigInteger(text) => {
                self.note_double(text);
                Kind::BigInteger
            }
            Leaf::Real(text) => {
                // Without an exponent, only a number of hundreds of digits is beyond a double.
                if text.len() > 300 || memchr::memchr2(b'e', b'E', text.as_bytes()).is_some() {
                    self.note_double(text);
                }
                Kind::Real
            }
            Leaf::Text(_) => Kind::Text,
            Leaf::Unrepresentable(_) => {
                self.no_text += 1;
                Kind::Text
            }
            Leaf::Array(_, false) => Kind::Array,
            Leaf::Array(_, true) => Kind::Embedded,
            Leaf::Object(_) => Kind::Object,
        };
        if let Some(count) = self.kinds.get_mut(kind as usize) {
            *count += 1;
        }
        self.note_value(leaf);
    }

    fn note_double(&mut self, text: &str) {
        let fit = ColumnType::Real.fit(Value::Number(text));
        self.no_double += u64::from(fit == Fit::Conflict);
    }

    /// Number of values that a column of type `ty` holds.
    #[must_use]
    pub fn fitting(&self, ty: ColumnType) -> u64 {
        let numbers = self.of(Kind::Integer) + self.of(Kind::BigInteger) + self.of(Kind::Real);
        match ty {
            ColumnType::Boolean => self.of(Kind::Boolean),
            ColumnType::Integer => self.of(Kind::Integer),
            ColumnType::Real => numbers - self.no_double,
            ColumnType::Decimal => numbers,
            ColumnType::Text => self.of(Kind::Text) - self.no_text,
            ColumnType::Bytes => 0,
            ColumnType::Json => self.valued(),
        }
    }

    /// Records a candidate key's value; a repeated one ends its candidacy.
    fn note_value(&mut self, leaf: &Leaf<'_>) {
        use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
        let Some(values) = self.values.as_mut() else { return };
        if values.len() >= KEY_VALUES_MAX {
            return;
        }
        let hasher = BuildHasherDefault::<DefaultHasher>::default();
        let hash = match leaf {
            Leaf::Integer(number, _) => hasher.hash_one(number),
            Leaf::Text(text) => hasher.hash_one(text),
            _ => {
                self.values = None;
                return;
            }
        };
        if !values.insert(hash) {
            self.values = None;
        }
    }

    /// Documents in which the field has a value.
    #[must_use]
    pub fn valued(&self) -> u64 {
        self.present - self.nulls
    }

    /// Documents with the kind seen in `kind`.
    #[must_use]
    pub fn of(&self, kind: Kind) -> u64 {
        self.kinds.get(kind as usize).copied().unwrap_or(0)
    }

    /// Number of values that agree with the most common type; whole numbers agree with fractions.
    #[must_use]
    pub fn agreeing(&self) -> u64 {
        let numbers = self.of(Kind::Integer) + self.of(Kind::Real) + self.of(Kind::BigInteger);
        let arrays = self.of(Kind::Array) + self.of(Kind::Embedded);
        let others = [Kind::Boolean, Kind::Text, Kind::Object].map(|kind| self.of(kind));
        others.into_iter().chain([numbers, arrays]).max().unwrap_or(0)
    }

    /// Whether every value of a key-like field was distinct.
    #[must_use]
    pub fn is_unique(&self, documents: u64) -> bool {
        self.values.is_some() && self.valued() == documents
    }

    /// The type its column gets: the one that keeps most values exactly.
    #[must_use]
    pub fn column_type(&self) -> ColumnType {
        let integers = self.of(Kind::Integer);
        let numbers = integers + self.of(Kind::Real) + self.of(Kind::BigInteger);
        let agreeing = self.agreeing();
        if agreeing == 0 {
            ColumnType::Text
        } else if agreeing * 10 < self.valued() * 9 {
            ColumnType::Json
        } else if agreeing == numbers {
            match (self.of(Kind::BigInteger), self.of(Kind::Real)) {
                (0, 0) => ColumnType::Integer,
                (0, _) => ColumnType::Real,
                _ => ColumnType::Decimal,
            }
        } else if agreeing == self.of(Kind::Text) {
            ColumnType::Text
        } else if agreeing == self.of(Kind::Boolean) {
            ColumnType::Boolean
        } else {
            ColumnType::Json
        }
    }
}

/// Whether a field has the name of a record's own key: exactly `id`, `_id`, `uuid` or `key`.
#[must_use]
pub fn is_key(path: &str) -> bool {
    matches!(path, "id" | "_id" | "Id" | "ID" | "uuid" | "guid" | "key")
}

/// The record that a field refers to, according to its name: `customer_id`, `customerId` and
/// `customer.id` refer to a customer; `valid`, `paid` and `identity` refer to nothing.
#[must_use]
pub fn refers_to(path: &str) -> Option<&str> {
    let last = path.rsplit('.').next().unwrap_or(path);
    let stem = ["_id", "_uuid", "_key", "Id", "Uuid"]
        .into_iter()
        .find_map(|suffix| last.strip_suffix(suffix))
        .or_else(|| path.strip_suffix(".id"));
    stem.map(|stem| stem.rsplit('.').next().unwrap_or(stem))
        .filter(|stem| stem.chars().any(char::is_alphabetic))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_names_are_keys_and_references() {
        for reference in ["customer_id", "customerId", "customer.id", "a.owner_id"] {
            assert!(refers_to(reference).is_some(), "{reference}");
        }
        for other in ["paid", "valid", "id", "identity", "_id", "video", "width", "Id"] {
            assert_eq!(refers_to(other), None, "{other}");
        }
        assert!(is_key("id") && !is_key("paid") && !is_key("a.id"));
    }
}
