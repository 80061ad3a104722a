//! Columns of records, by the values of a first page.
//!
//! Invariant: a type that is chosen holds every value that was seen, with all its digits.

use std::collections::HashMap;
use std::fmt;

use forebay_pgcopy::Column;
use forebay_sdk::values::number::{is_float, is_numeric, is_plain};
use forebay_sdk::values::{time, types};
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::pages::Page;
use crate::pointer::{Key, Pointer, plain, read};

/// Maximum number of columns.
const COLUMNS_MAX: usize = 1_600;

/// What the values of a key are.
#[derive(Debug, Default, Clone, Copy)]
struct Kinds {
    has_number: bool,
    has_bool: bool,
    has_text: bool,
    has_nested: bool,
    is_no_integer: bool,
    is_no_double: bool,
    is_no_numeric: bool,
    is_no_timestamp: bool,
    is_no_timestamptz: bool,
}

impl Kinds {
    fn look(&mut self, json: &str) {
        match json.as_bytes().first() {
            Some(b'n') => {}
            Some(b't' | b'f') => self.has_bool = true,
            Some(b'{' | b'[') => self.has_nested = true,
            Some(b'"') => {
                self.has_text = true;
                let text = plain(json);
                let is_date = text.starts_with(|first: char| first.is_ascii_digit());
                let is = |is_utc| is_date && time::read_timestamp(&text, is_utc).is_some();
                self.is_no_timestamp |= !is(false);
                self.is_no_timestamptz |= !is(true);
            }
            _ => {
                self.has_number = true;
                self.is_no_integer |= !(is_plain(json, false) && json.parse::<i64>().is_ok());
                self.is_no_double |= !is_float(json);
                self.is_no_numeric |= !is_numeric(json);
            }
        }
    }

    fn type_name(self) -> &'static str {
        match (self.has_number, self.has_bool, self.has_text, self.has_nested) {
            (true, false, false, false) if !self.is_no_integer => "bigint",
            (true, false, false, false) if !self.is_no_double => "double precision",
            (true, false, false, false) if !self.is_no_numeric => "numeric",
            (false, true, false, false) => "boolean",
            (false, false, true, false) if !self.is_no_timestamptz => "timestamptz",
            (false, false, true, false) if !self.is_no_timestamp => "timestamp",
            // Of numbers without end, and if there is no value.
            (_, false, false, false) | (false, false, true, false) => "text",
            // Of several kinds, or nested: the JSON text itself.
            _ => "json",
        }
    }
}

/// The keys of a page's records as columns, in the order in which they occur first.
///
/// # Errors
/// The record, from 1, and what is wrong with it.
pub(crate) fn columns(page: &Page) -> Result<Vec<(Column, Pointer)>, (usize, String)> {
    let mut seen = Seen::default();
    for index in 0..page.count() {
        let record = page.record(index).unwrap_or_default();
        read(record, &mut seen).map_err(|found| (index + 1, found))?;
    }
    let column = |(name, kinds): (String, Kinds)| {
        let pointer = Pointer::key(&name);
        Some((types::column(&name, kinds.type_name())?, pointer))
    };
    Ok(seen.names.into_iter().zip(seen.kinds).filter_map(column).collect())
}

/// The keys so far.
#[derive(Default)]
struct Seen {
    index: HashMap<String, usize>,
    names: Vec<String>,
    kinds: Vec<Kinds>,
}

impl<'de> DeserializeSeed<'de> for &mut Seen {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for &mut Seen {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some((Key(key), value)) = map.next_entry::<Key<'de>, &'de RawValue>()? {
            let at = match self.index.get(&*key) {
                Some(at) => *at,
                None if self.names.len() == COLUMNS_MAX => {
                    let limit = format_args!("there are more than {COLUMNS_MAX} keys");
                    return Err(de::Error::custom(limit));
                }
                None => {
                    let (at, key) = (self.names.len(), key.into_owned());
                    self.names.push(key.clone());
                    self.kinds.push(Kinds::default());
                    self.index.insert(key, at);
                    at
                }
            };
            if let Some(kinds) = self.kinds.get_mut(at) {
                kinds.look(value.get());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn type_of(values: &[&str]) -> &'static str {
        let mut kinds = Kinds::default();
        values.iter().for_each(|value| kinds.look(value));
        kinds.type_name()
    }

    #[test]
    fn a_type_holds_every_value_that_was_seen() {
        for (values, expected) in [
            (&["1", "-2", "null"][..], "bigint"),
            (&["9223372036854775807"], "bigint"),
            (&["9223372036854775808"], "numeric"),
            (&["1", "1.5", "1e3"], "double precision"),
            (&["0.12345678901234567890"], "numeric"),
            (&["1e500"], "text"),
            (&["true", "false"], "boolean"),
            (&["\"a\"", "\"2026-01-01T00:00:00Z\""], "text"),
            (&["\"2026-01-01T00:00:00Z\"", "\"2026-01-01T00:00:00.5+02:00\""], "timestamptz"),
            (&["\"2026-01-01T00:00:00\"", "\"2026-01-01 00:00:00\""], "timestamp"),
            (&["\"infinity\""], "text"),
            (&["\"\""], "text"),
            (&["null"], "text"),
            (&["{}", "null"], "json"),
            (&["[1]"], "json"),
            (&["1", "\"1\""], "json"),
            (&["true", "1"], "json"),
        ] {
            assert_eq!(type_of(values), expected, "{values:?}");
        }
    }
}
