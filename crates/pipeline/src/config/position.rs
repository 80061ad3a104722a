//! Where a field is in a pipeline file.
//!
//! Settings of a component are read before the component checks them, and the fields beside `use` and `config` before the
//! connector is known, so an error of one has a path and no position.

use std::fmt;

use serde::Deserialize as _;
use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_saphyr::Spanned;

/// Maximum number of parts of a path.
const PARTS_MAX: usize = 64;

/// A part of a path.
#[derive(Debug, PartialEq, Eq)]
enum Part<'a> {
    Field(&'a str),
    Index(usize),
}

/// Splits a path such as `source.config.hosts[2].name`.
fn parts(path: &str) -> Option<Vec<Part<'_>>> {
    let mut parts = Vec::new();
    for dotted in path.split('.') {
        let mut pieces = dotted.split('[');
        match pieces.next() {
            Some("") | None => return None,
            Some(field) => parts.push(Part::Field(field)),
        }
        for index in pieces {
            parts.push(Part::Index(index.strip_suffix(']')?.parse().ok()?));
        }
    }
    (parts.len() <= PARTS_MAX).then_some(parts)
}

/// The line and column, from 1, of the value of a field; `None`: the text has no such field.
pub(super) fn of(text: &str, path: &str) -> Option<(u64, u64)> {
    find(text, path, Wanted::Value)
}

/// The line and column of the name of a field, which may have its value on another line.
pub(super) fn of_name(text: &str, path: &str) -> Option<(u64, u64)> {
    find(text, path, Wanted::Name)
}

fn find(text: &str, path: &str, wanted: Wanted) -> Option<(u64, u64)> {
    let parts = parts(path)?;
    let found = serde_saphyr::with_deserializer_from_str(text, |deserializer| {
        Walk { parts: &parts, wanted }.deserialize(deserializer)
    });
    found.ok()?
}

/// What of a field is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Name,
    Value,
}

/// Looks for a field, and returns where it is.
struct Walk<'a, 'p> {
    parts: &'a [Part<'p>],
    wanted: Wanted,
}

impl<'de> DeserializeSeed<'de> for Walk<'_, '_> {
    type Value = Option<(u64, u64)>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        if self.parts.is_empty() {
            let value = Spanned::<IgnoredAny>::deserialize(from)?;
            return Ok(Some((value.referenced.line(), value.referenced.column())));
        }
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_, '_> {
    type Value = Option<(u64, u64)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map or a list")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let Some((Part::Field(name), rest)) = self.parts.split_first() else {
            return Err(A::Error::custom("a map in place of a list"));
        };
        let mut found = None;
        while let Some(key) = map.next_key::<Spanned<String>>()? {
            let is_it = key.value == *name;
            if is_it && rest.is_empty() && self.wanted == Wanted::Name {
                found = Some((key.defined.line(), key.defined.column()));
                map.next_value::<IgnoredAny>()?;
            } else if is_it {
                found = map.next_value_seed(Walk { parts: rest, wanted: self.wanted })?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let Some((Part::Index(wanted), rest)) = self.parts.split_first() else {
            return Err(A::Error::custom("a list in place of a map"));
        };
        for _ in 0..*wanted {
            if list.next_element::<IgnoredAny>()?.is_none() {
                return Ok(None);
            }
        }
        let found = list.next_element_seed(Walk { parts: rest, wanted: self.wanted })?.flatten();
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
a: 1
source:
  use: wasm:x
  config:
    below: many
    hosts:
      - {name: one, port: 5}
      - name: two
        port: 'x'
    deep: {er: {est: [1, 2]}}
";

    #[test]
    fn a_field_is_found_wherever_it_is() {
        for (path, position) in [
            ("a", Some((1, 4))),
            ("source.config.below", Some((5, 12))),
            ("source.config.hosts[0].port", Some((7, 27))),
            ("source.config.hosts[1].port", Some((9, 15))),
            ("source.config.deep.er.est[1]", Some((10, 26))),
            ("source.config.above", None),
            ("source.config.hosts[7]", None),
            ("source.config.hosts.name", None),
            ("source.config.below.x", None),
            ("", None),
            ("a[", None),
            ("a[x]", None),
            ("..", None),
        ] {
            assert_eq!(of(TEXT, path), position, "{path}");
        }
    }

    #[test]
    fn the_name_of_a_field_is_found_where_its_value_is_on_another_line() {
        for (path, position) in [
            ("source.config.hosts", Some((6, 5))),
            ("source.config.hosts[0].port", Some((7, 21))),
            ("source.config.hosts[1]", Some((8, 9))),
            ("source.config.above", None),
        ] {
            assert_eq!(of_name(TEXT, path), position, "{path}");
        }
    }

    #[test]
    fn a_text_that_is_no_yaml_has_no_fields() {
        assert_eq!(of("a: [", "a"), None);
        assert_eq!(of("", "a"), None);
    }
}
