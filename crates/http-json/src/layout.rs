//! Where the values of columns are in a record.
//!
//! Invariants: a key that leads to a column and occurs twice is an error; a missing value is NULL; the cursor field
//! is found also if it is not among the chosen columns.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use forebay_pgcopy::Column;
use forebay_sdk::ConnectorError;
use forebay_sdk::connector::Result;
use forebay_sdk::settings::StreamSettings;
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::pointer::{Key, Pointer, read};

/// The values of a record: those of the columns, and then that of the cursor.
pub(crate) type Values<'a> = Vec<Option<&'a str>>;

/// A value that a key leads to.
#[derive(Debug)]
struct Slot {
    at: usize,
    /// From the key's value to this one.
    rest: Pointer,
}

/// Columns, and where their values are.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) columns: Arc<[Column]>,
    /// Number of values.
    count: usize,
    /// The values that are whole records.
    wholes: Vec<usize>,
    /// The index in `slots` of each first key.
    keys: HashMap<String, usize>,
    slots: Vec<Vec<Slot>>,
    /// Whether a key that is not known is an error: the columns were inferred, and all of them are read.
    is_strict: bool,
    /// Whether the columns were inferred.
    pub(crate) is_inferred: bool,
}

impl Layout {
    /// The columns that a stream chooses from all.
    ///
    /// * `is_inferred`: whether `all` are those of a first page.
    /// * `cursor`: name of the cursor field.
    ///
    /// # Errors
    /// A column does not exist.
    pub(crate) fn new(
        all: &[(Column, Pointer)],
        is_inferred: bool,
        stream: &StreamSettings,
        cursor: Option<&str>,
    ) -> Result<Self> {
        let named = |name: &str| {
            all.iter().find(|(column, _)| column.name == name).ok_or_else(|| {
                let known: Vec<&str> =
                    all.iter().map(|(column, _)| &*column.name).take(20).collect();
                ConnectorError::unsupported(
                    format!("{} has no column {name:?}", stream.name),
                    format!("choose from {}", known.join(", ")),
                )
            })
        };
        let is_projection = !stream.columns.is_empty();
        let chosen: Vec<&(Column, Pointer)> = match is_projection {
            true => stream.columns.iter().map(|name| named(name)).collect::<Result<_>>()?,
            false => all.iter().collect(),
        };
        let mut layout = Self {
            columns: chosen.iter().map(|(column, _)| column.clone()).collect(),
            count: 0,
            wholes: Vec::new(),
            keys: HashMap::new(),
            slots: Vec::new(),
            is_strict: is_inferred && !is_projection,
            is_inferred,
        };
        for (_, pointer) in chosen.into_iter().chain(cursor.map(named).transpose()?) {
            layout.add(pointer);
        }
        Ok(layout)
    }

    fn add(&mut self, pointer: &Pointer) {
        let at = self.count;
        self.count += 1;
        let Some((first, rest)) = pointer.split_first() else {
            self.wholes.push(at);
            return;
        };
        let index = *self.keys.entry(first.to_owned()).or_insert_with(|| {
            self.slots.push(Vec::new());
            self.slots.len() - 1
        });
        if let Some(slots) = self.slots.get_mut(index) {
            slots.push(Slot { at, rest });
        }
    }

    /// The values of a record.
    ///
    /// # Errors
    /// It is not an object, has a key twice, or one that is not known.
    pub(crate) fn values<'a>(&self, record: &'a str) -> Result<Values<'a>, String> {
        let mut values = vec![None; self.count];
        for at in &self.wholes {
            if let Some(value) = values.get_mut(*at) {
                *value = Some(record);
            }
        }
        let object =
            Object { layout: self, values: &mut values, seen: vec![false; self.slots.len()] };
        read(record, object)?;
        for value in &mut values {
            *value = value.filter(|json| *json != "null");
        }
        Ok(values)
    }
}

/// Takes the values of an object.
struct Object<'l, 'v, 'a> {
    layout: &'l Layout,
    values: &'v mut Values<'a>,
    seen: Vec<bool>,
}

impl<'a> Object<'_, '_, 'a> {
    fn put(&mut self, index: usize, key: &str, json: &'a str) -> Result<(), String> {
        if self.seen.get_mut(index).is_some_and(|seen| std::mem::replace(seen, true)) {
            return Err(format!("the key {key:?} occurs twice"));
        }
        for slot in self.layout.slots.get(index).into_iter().flatten() {
            let found = slot.rest.find(json)?;
            if let Some(value) = self.values.get_mut(slot.at) {
                *value = found;
            }
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Object<'_, '_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Object<'_, '_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some(Key(key)) = map.next_key::<Key<'de>>()? {
            match self.layout.keys.get(&*key) {
                Some(index) => {
                    let value: &'de RawValue = map.next_value()?;
                    self.put(*index, &key, value.get()).map_err(de::Error::custom)?;
                }
                None if self.layout.is_strict => {
                    return Err(de::Error::custom(format_args!(
                        "the key {key:?} does not occur in the first page; list `columns` in the settings of \
                         the API, or choose the stream's `columns`"
                    )));
                }
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use forebay_sdk::values::types;
    use serde_json::json;

    use super::*;

    fn layout(
        columns: &[(&str, &str)],
        is_inferred: bool,
        chosen: &[&str],
        cursor: Option<&str>,
    ) -> Result<Layout> {
        let all = columns.iter().map(|(name, pointer)| {
            (types::column(name, "json").unwrap(), Pointer::parse(pointer).unwrap())
        });
        let stream = serde_json::from_value(json!({ "name": "s", "columns": chosen })).unwrap();
        Layout::new(&all.collect::<Vec<_>>(), is_inferred, &stream, cursor)
    }

    #[test]
    fn values_are_found_and_missing_ones_are_null() {
        let columns =
            [("id", "/id"), ("city", "/address/city"), ("zip", "/address/zip"), ("all", "")];
        let layout = layout(&columns, false, &[], Some("city")).unwrap();
        let record =
            r#"{"other": [1, {}], "address": {"zip": 0012, "city": "X"}}"#.replace("0012", "12");
        let values = layout.values(&record).unwrap();
        assert_eq!(values, [None, Some("\"X\""), Some("12"), Some(&*record), Some("\"X\"")]);
        let values = layout.values(r#"{"id": null, "address": 7}"#).unwrap();
        assert_eq!(values.get(..3), Some(&[None; 3][..]));
        for (record, found) in [
            (r#"{"id": 1, "i\u0064": 2}"#, "\"id\" occurs twice"),
            (r#"{"address": {"city": 1, "city": 2}}"#, "\"city\" occurs twice"),
            ("7", "expected an object"),
            ("[]", "expected an object"),
        ] {
            let error = layout.values(record).unwrap_err();
            assert!(error.contains(found), "{record}: {error}");
        }
    }

    #[test]
    fn an_unknown_key_is_an_error_unless_columns_were_chosen() {
        let columns = [("id", "/id"), ("name", "/name")];
        let record = r#"{"id": 1, "new": 2}"#;
        let error = layout(&columns, true, &[], None).unwrap().values(record).unwrap_err();
        assert!(error.contains("\"new\""), "{error}");
        assert_eq!(
            layout(&columns, true, &["id"], None).unwrap().values(record).unwrap(),
            [Some("1")]
        );
        assert!(layout(&columns, false, &[], None).unwrap().values(record).is_ok());
        assert!(layout(&columns, true, &["other"], None).is_err());
        assert!(layout(&columns, true, &[], Some("other")).is_err());
    }
}
