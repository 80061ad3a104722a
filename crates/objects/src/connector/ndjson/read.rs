//! Reading NDJSON: the columns are the keys of the first lines of the first file.
//!
//! Values are parsed no further than a column needs: objects and arrays stay text.

#![deny(clippy::indexing_slicing)]

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt;

use forebay_pgcopy::Column;
use forebay_sdk::bridge::Give;
use forebay_sdk::error::ConnectorError;
use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::super::format::{Format, Part, Reading};
use super::super::opened::Opened;
use super::super::settings::{Compression, NdjsonSource};
use super::super::text::{Collecting, Seen, TextReader, check_given, typed};

/// Maximum number of inferred columns.
const COLUMNS_MAX: usize = 1_600;

/// Files with one JSON object per line.
#[derive(Debug, Clone)]
pub(in super::super) struct NdjsonFormat {
    pub(super) compression: Compression,
    pub(super) given: BTreeMap<String, String>,
    pub(super) sample_rows: u32,
    /// Whether `null` in a column of JSON is a value, and a missing key is NULL.
    pub(super) null_is_json: bool,
}

impl NdjsonFormat {
    pub(in super::super) fn new(settings: &NdjsonSource) -> Self {
        Self {
            compression: settings.compression,
            given: settings.columns.clone(),
            sample_rows: settings.sample_rows.get(),
            null_is_json: false,
        }
    }
}

/// The kinds of values of a key.
#[derive(Debug, Default)]
struct Kinds {
    numbers: Option<Seen>,
    has_bool: bool,
    has_text: bool,
    has_json: bool,
}

impl Kinds {
    fn look(&mut self, json: &str) {
        match json.as_bytes().first() {
            Some(b'n') => {}
            Some(b't' | b'f') => self.has_bool = true,
            Some(b'"') => self.has_text = true,
            Some(b'{' | b'[') => self.has_json = true,
            _ => self.numbers.get_or_insert_default().look(json),
        }
    }

    fn type_name(&self) -> &'static str {
        match (self.numbers, self.has_bool, self.has_text, self.has_json) {
            (Some(numbers), false, false, false) => numbers.type_name(),
            (None, true, false, false) => "boolean",
            (None, false, _, false) => "text",
            // Of several kinds, or nested: the JSON text itself.
            _ => "json",
        }
    }
}

impl Format for NdjsonFormat {
    fn endings(&self) -> &'static [&'static str] {
        &["ndjson", "jsonl", "json"]
    }

    fn columns(&self, file: &Opened, _wanted: &[String]) -> Result<Vec<Column>, ConnectorError> {
        let mut text = TextReader::new(file, self.compression)?;
        let mut names: Vec<String> = Vec::new();
        let mut kinds: HashMap<String, Kinds> = HashMap::new();
        let mut rows = 0;
        let mut line = Vec::new();
        while rows < self.sample_rows && text.line(&mut line)? {
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            rows += 1;
            let keys: Keys<'_> = serde_json::from_slice(&line)
                .map_err(|error| text.found(format!("it is not a JSON object: {error}")))?;
            for (key, value) in keys.0 {
                if let Some(kinds) = kinds.get_mut(&*key) {
                    kinds.look(value.get());
                    continue;
                }
                if names.len() == COLUMNS_MAX {
                    return Err(text.found(format!("there are more than {COLUMNS_MAX} keys")));
                }
                let key = key.into_owned();
                names.push(key.clone());
                kinds.entry(key).or_default().look(value.get());
            }
        }
        // A key that is not in the first lines may be given a type in the settings.
        names.extend(self.given.keys().filter(|name| !kinds.contains_key(*name)).cloned());
        let type_name = |name: &String| kinds.get(name).map_or("text", Kinds::type_name);
        let found = names.into_iter().map(|name| {
            let type_name = type_name(&name);
            (name, type_name)
        });
        let columns = typed(found.collect(), &self.given)?;
        check_given(&columns, &self.given, file)?;
        Ok(columns)
    }

    fn divide(&self, file: &Opened, _size: u64) -> Result<Vec<Part>, ConnectorError> {
        Ok(vec![Part::whole(file.size)])
    }

    fn read(&self, reading: &Reading<'_>, give: &mut Give<'_>) -> Result<(), ConnectorError> {
        let file = reading.file;
        let mut text = TextReader::new(file, self.compression)?;
        let index = reading.columns.iter().enumerate().map(|(at, column)| (&*column.name, at));
        let mut object = Object {
            index: index.collect(),
            is_projection: reading.is_projection,
            null_is_json: self.null_is_json,
            collecting: Collecting::new(reading, &self.given),
            has: vec![false; reading.columns.len()],
            problem: None,
        };
        let mut line = Vec::new();
        while text.line(&mut line)? {
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            object.read(&line).map_err(|found| text.found(found))?;
            for (at, has) in object.has.iter_mut().enumerate() {
                if !std::mem::take(has) {
                    let column = reading.columns.get(at);
                    column.map_or(Ok(()), |it| reading.check_missing(it))?;
                    if let Some(builder) = object.collecting.builders.get_mut(at) {
                        builder.null();
                    }
                }
            }
            if object.collecting.row(line.len()) {
                give(object.collecting.take(file)?)?;
            }
        }
        give(object.collecting.take(file)?)
    }
}

/// Keys and values of an object, in order.
struct Keys<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

/// A key, borrowed if it has no escapes.
#[derive(Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> Deserialize<'de> for Keys<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Keys<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut keys = Vec::new();
                while let Some((Key(key), value)) = map.next_entry()? {
                    keys.push((key, value));
                }
                Ok(Keys(keys))
            }
        }
        deserializer.deserialize_map(Collect)
    }
}

/// Appends the values of an object to their columns.
struct Object<'a> {
    index: HashMap<&'a str, usize>,
    is_projection: bool,
    null_is_json: bool,
    collecting: Collecting,
    /// The columns that the object has.
    has: Vec<bool>,
    /// A fault of the object other than its syntax.
    problem: Option<String>,
}

impl Object<'_> {
    fn read(&mut self, line: &[u8]) -> Result<(), String> {
        let mut deserializer = serde_json::Deserializer::from_slice(line);
        let read = (&mut *self).deserialize(&mut deserializer);
        let read = read.and_then(|()| deserializer.end());
        match (read, self.problem.take()) {
            (Ok(()), _) => Ok(()),
            (Err(_), Some(problem)) => Err(problem),
            (Err(error), None) => Err(format!("it is not a JSON object: {error}")),
        }
    }

    fn put(&mut self, key: &str, value: &RawValue) -> Result<(), String> {
        let Some(&at) = self.index.get(key) else {
            return match self.is_projection {
                true => Ok(()),
                false => Err(format!(
                    "the key {key:?} does not occur in the first lines of the stream; give it a \
                     type in `columns`, or choose the stream's `columns`"
                )),
            };
        };
        let (Some(has), Some(builder)) =
            (self.has.get_mut(at), self.collecting.builders.get_mut(at))
        else {
            return Ok(());
        };
        if std::mem::replace(has, true) {
            return Err(format!("the key {key:?} occurs twice"));
        }
        if value.get() == "null" && !(self.null_is_json && builder.is_json()) {
            builder.null();
            return Ok(());
        }
        self.collecting.json(at, value.get()).map_err(|wanted| {
            format!("column {key:?}: {wanted}; specify another type in `columns`")
        })
    }
}

impl<'de> DeserializeSeed<'de> for &mut Object<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for &mut Object<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some((Key(key), value)) = map.next_entry::<Key<'de>, &'de RawValue>()? {
            if let Err(problem) = self.put(&key, value) {
                self.problem = Some(problem);
                return Err(de::Error::custom(""));
            }
        }
        Ok(())
    }
}
