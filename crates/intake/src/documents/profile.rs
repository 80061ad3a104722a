//! The common structure of a batch of documents, counted as it streams by.
//!
//! Invariants: memory is limited by the number of tracked fields, whatever the number of documents;
//! further fields are counted, not kept; shares are of documents seen, so the order of documents
//! changes nothing.

use std::collections::HashMap;
use std::hash::BuildHasher as _;

use foldhash::fast::FixedState;
use forebay_sink::column::Fit;
use forebay_sink::time::{date_days, timestamp_us};
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
    /// Strings that are timestamps with an offset.
    pub timestamps: u64,
    /// Strings that are dates.
    pub dates: u64,
    /// Hashes of a candidate key's values; `None` for other fields, or once a value repeated.
    values: Option<foldhash::HashSet<u64>>,
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

    /// The fields with a value, with the types their columns would get. A field that was always null
    /// has no type yet.
    pub fn columns(&self) -> impl Iterator<Item = Field<'_>> {
        let valued = self.fields.iter().filter(|(_, field)| field.valued() > 0);
        valued.map(|(path, field)| Field { path, ty: field.column_type() })
    }

    /// Adds the statistics of documents that were profiled apart.
    pub fn merge(&mut self, other: &Self) {
        self.documents += other.documents;
        self.shallow += other.shallow;
        self.untracked += other.untracked;
        for (path, field) in &other.fields {
            let is_new = !self.by_path.contains_key(path);
            match self.slot(path).and_then(|at| self.fields.get_mut(at)) {
                Some((_, known)) if is_new => *known = field.clone(),
                Some((_, known)) => known.merge(field),
                None => self.untracked += field.present,
            }
        }
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
            field.values = Some(foldhash::HashSet::default());
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
            Leaf::Text(text) => {
                self.note_time(text);
                Kind::Text
            }
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

    fn note_time(&mut self, text: &str) {
        // Every date begins so, and hardly anything else does.
        if text.len() < 10 || text.as_bytes().get(4) != Some(&b'-') {
            return;
        }
        if text.len() == 10 {
            self.dates += u64::from(date_days(text).is_some());
        } else {
            self.timestamps += u64::from(timestamp_us(text).is_some());
        }
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
            ColumnType::Timestamp => self.timestamps,
            ColumnType::Date => self.dates,
        }
    }

    /// Records a candidate key's value; a repeated one ends its candidacy.
    fn note_value(&mut self, leaf: &Leaf<'_>) {
        let Some(values) = self.values.as_mut() else { return };
        if values.len() >= KEY_VALUES_MAX {
            return;
        }
        // The same for profiles that are merged.
        let hasher = FixedState::default();
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

    /// The type that a column of type `from` needs so that it also holds these values, as far as
    /// they are of its kind: a whole number becomes a double, or a decimal where a double would not
    /// keep it; a timestamp or date that is none becomes text. Any other value does not fit, and
    /// changes nothing.
    ///
    /// * `exceeds_doubles`: whether the column may hold whole numbers that no double is exactly.
    #[must_use]
    pub fn widened(&self, from: ColumnType, exceeds_doubles: impl FnOnce() -> bool) -> ColumnType {
        let wider = match from {
            ColumnType::Integer => self.of(Kind::Real) + self.of(Kind::BigInteger) > 0,
            ColumnType::Real => self.no_double > 0,
            ColumnType::Timestamp => self.timestamps < self.of(Kind::Text) - self.no_text,
            ColumnType::Date => self.dates < self.of(Kind::Text) - self.no_text,
            _ => false,
        };
        match from {
            _ if !wider => from,
            ColumnType::Timestamp | ColumnType::Date => ColumnType::Text,
            ColumnType::Integer
                if self.no_double == 0 && self.of(Kind::BigInteger) == 0 && !exceeds_doubles() =>
            {
                ColumnType::Real
            }
            _ => ColumnType::Decimal,
        }
    }

    /// Adds the counts of other documents' values.
    fn merge(&mut self, other: &Self) {
        self.present += other.present;
        self.nulls += other.nulls;
        for (count, other) in self.kinds.iter_mut().zip(other.kinds) {
            *count += other;
        }
        self.no_double += other.no_double;
        self.no_text += other.no_text;
        self.timestamps += other.timestamps;
        self.dates += other.dates;
        self.values = match (self.values.take(), &other.values) {
            (Some(mut values), Some(others)) => {
                let distinct = others.iter().all(|value| values.insert(*value));
                distinct.then_some(values)
            }
            _ => None,
        };
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
                (0, _) if self.no_double == 0 => ColumnType::Real,
                _ => ColumnType::Decimal,
            }
        } else if agreeing == self.of(Kind::Text) {
            match self.of(Kind::Text) {
                texts if texts == self.timestamps => ColumnType::Timestamp,
                texts if texts == self.dates => ColumnType::Date,
                _ => ColumnType::Text,
            }
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

    fn profile(values: &[&str]) -> Profile {
        let bounds = Bounds { depth_max: 9, key_size_max: 99, flatten_depth: 4 };
        let mut profile = Profile::new(9);
        for value in values {
            let document = format!("{{\"id\":{value}}}");
            let members = super::super::flatten::read(document.as_bytes(), &bounds).unwrap();
            profile.add(&members, &bounds, &mut |_, _, _| {}).unwrap();
        }
        profile
    }

    #[test]
    fn a_type_widens_within_its_kind_and_no_further_than_it_must() {
        use ColumnType::{Boolean, Date, Decimal, Integer, Json, Real, Text, Timestamp};
        let time = "\"2026-01-02T03:04:05Z\"";
        for (from, values, to) in [
            (Integer, &["1", "\"x\"", "true", "null"][..], Integer),
            (Integer, &["1", "9.99"], Real),
            (Integer, &["1e3"], Real),
            (Integer, &["9007199254740993"], Integer),
            (Integer, &["0.5", "9007199254740993"], Decimal),
            (Integer, &["9223372036854775808"], Decimal),
            (Integer, &["1e400"], Decimal),
            (Real, &["1", "0.5", "\"x\""], Real),
            (Real, &["9007199254740993"], Decimal),
            (Decimal, &["1e400", "1"], Decimal),
            (Timestamp, &[time, "7", "null"], Timestamp),
            (Timestamp, &[time, "\"soon\""], Text),
            (Timestamp, &["\"2026-01-02\""], Text),
            (Date, &["\"2026-01-02\""], Date),
            (Date, &[time], Text),
            (Text, &[time], Text),
            (Boolean, &["1"], Boolean),
            (Json, &["1"], Json),
        ] {
            let profile = profile(values);
            let (_, field) = &profile.fields()[0];
            assert_eq!(field.widened(from, || false), to, "{from:?} {values:?}");
        }
        let fraction = profile(&["0.5"]);
        assert_eq!(fraction.fields()[0].1.widened(Integer, || true), Decimal);
    }

    #[test]
    fn a_field_of_timestamps_alone_is_one() {
        let time = "\"2026-01-02T03:04:05.123+01:00\"";
        for (values, ty) in [
            (&[time, time, "null"][..], ColumnType::Timestamp),
            (&[time, "\"2026-01-02\""], ColumnType::Text),
            (&["\"2026-01-02\""], ColumnType::Date),
            (&[time, "\"\""], ColumnType::Text),
            (&["0.5", "9007199254740993"], ColumnType::Decimal),
        ] {
            assert_eq!(profile(values).columns().next().unwrap().ty, ty, "{values:?}");
        }
        assert_eq!(profile(&["null"]).columns().count(), 0);
    }

    #[test]
    fn profiles_of_parts_make_the_profile_of_the_whole() {
        let values = ["1", "2.5", "null", "\"x\"", "\"2026-01-02\"", "[1]", "3", "4"];
        for cut in 0..=values.len() {
            let (first, second) = values.split_at(cut);
            let mut merged = profile(first);
            merged.merge(&profile(second));
            assert_eq!(format!("{merged:?}"), format!("{:?}", profile(&values)), "{cut}");
        }
        let mut ids = profile(&["1", "2"]);
        ids.merge(&profile(&["3"]));
        assert!(ids.fields()[0].1.is_unique(3));
        ids.merge(&profile(&["2"]));
        assert!(!ids.fields()[0].1.is_unique(4));
    }

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
