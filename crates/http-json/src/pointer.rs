//! JSON pointers (RFC 6901), and parts of a JSON text that stay text.
//!
//! Invariants: numbers and nested values keep their digits and spaces; a key that occurs twice where a
//! pointer leads is an error; nesting costs no stack.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// Maximum number of steps of a pointer.
const STEPS_MAX: usize = 64;

/// A JSON pointer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Pointer(Vec<String>);

impl Pointer {
    /// The pointer to a key.
    pub(crate) fn key(name: &str) -> Self {
        Self(vec![name.to_owned()])
    }

    /// Reads a pointer; `None` if the text is not one.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text.is_empty() {
            return Some(Self::default());
        }
        let steps = text.strip_prefix('/')?.split('/').map(|step| {
            let without = step.replace("~0", "").replace("~1", "");
            (!without.contains('~')).then(|| step.replace("~1", "/").replace("~0", "~"))
        });
        let steps: Vec<String> = steps.collect::<Option<_>>()?;
        (steps.len() <= STEPS_MAX).then_some(Self(steps))
    }

    /// Its first step, and the rest; `None` if it points to the whole.
    #[cfg(feature = "client")]
    pub(crate) fn split_first(&self) -> Option<(&str, Pointer)> {
        let (first, rest) = self.0.split_first()?;
        Some((first, Self(rest.to_vec())))
    }

    /// The part of a valid JSON text that it points to; `None` if there is none.
    ///
    /// # Errors
    /// A key on its way occurs twice, or the text is not valid.
    #[cfg(feature = "client")]
    pub(crate) fn find<'a>(&self, json: &'a str) -> Result<Option<&'a str>, String> {
        let mut at = json;
        for step in &self.0 {
            let found = match at.as_bytes().first() {
                Some(b'{') => read(at, Member(step))?,
                Some(b'[') => match index(step) {
                    Some(index) => read(at, Element(index))?,
                    None => None,
                },
                _ => None,
            };
            match found {
                Some(found) => at = found.get(),
                None => return Ok(None),
            }
        }
        Ok(Some(at))
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("the whole");
        }
        self.0
            .iter()
            .try_for_each(|step| write!(f, "/{}", step.replace('~', "~0").replace('/', "~1")))
    }
}

/// A step as an index: digits without leading zeros.
fn index(step: &str) -> Option<usize> {
    let is_plain = step == "0" || !step.starts_with('0');
    (is_plain && step.bytes().all(|byte| byte.is_ascii_digit())).then(|| step.parse().ok())?
}

/// A JSON text without the white space around it, checked.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn whole(text: &str) -> Result<&str, String> {
    let value: &RawValue = serde_json::from_str(text).map_err(|error| error.to_string())?;
    Ok(value.get())
}

/// Reads a JSON text with a seed.
///
/// # Errors
/// Those of the seed, or the text is not valid.
pub(crate) fn read<'a, S: DeserializeSeed<'a>>(json: &'a str, seed: S) -> Result<S::Value, String> {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let read = seed.deserialize(&mut deserializer);
    let read = read.and_then(|value| deserializer.end().map(|()| value));
    read.map_err(|error| {
        // The position is one in a part, which helps no one.
        let error = error.to_string();
        error.split(" at line ").next().unwrap_or(&error).to_owned()
    })
}

/// A key, borrowed if it has no escapes.
#[derive(Deserialize)]
pub(crate) struct Key<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

/// The value of a key of an object.
struct Member<'k>(&'k str);

impl<'de> DeserializeSeed<'de> for Member<'_> {
    type Value = Option<&'de RawValue>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Member<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(Key(key)) = map.next_key::<Key<'de>>()? {
            if key != self.0 {
                map.next_value::<IgnoredAny>()?;
            } else if found.replace(map.next_value()?).is_some() {
                return Err(de::Error::custom(format_args!("the key {key:?} occurs twice")));
            }
        }
        Ok(found)
    }
}

/// The element of an array with an index.
struct Element(usize);

impl<'de> DeserializeSeed<'de> for Element {
    type Value = Option<&'de RawValue>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Element {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        let (mut at, mut found) = (0, None);
        while let Some(element) = elements.next_element()? {
            if at == self.0 {
                found = Some(element);
            }
            at += 1;
        }
        Ok(found)
    }
}

/// A scalar as plain text: a text without quotes and escapes, anything else as it is written.
#[cfg(feature = "client")]
pub(crate) fn plain(json: &str) -> Cow<'_, str> {
    match json.starts_with('"') {
        false => json.into(),
        true => serde_json::from_str::<Key<'_>>(json).map_or(json.into(), |Key(text)| text),
    }
}

#[cfg(all(test, feature = "client"))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn find(pointer: &str, json: &str) -> Result<Option<String>, String> {
        let found = Pointer::parse(pointer).unwrap().find(whole(json)?)?;
        Ok(found.map(ToOwned::to_owned))
    }

    #[test]
    fn a_pointer_leads_to_the_text_of_a_part() {
        let json = r#" {"a": {"b/c": [10, 1.50, {"~": null}]}, "": 1, "a~": 2, "\u0065": 3} "#;
        for (pointer, expected) in [
            ("/a/b~1c/1", Some("1.50")),
            ("/a/b~1c/2/~0", Some("null")),
            ("/", Some("1")),
            ("/a~0", Some("2")),
            ("/e", Some("3")),
            ("/a/b~1c", Some(r#"[10, 1.50, {"~": null}]"#)),
            ("/a/b~1c/01", None),
            ("/a/b~1c/3", None),
            ("/a/b~1c/-", None),
            ("/a/x/y", None),
            ("//x", None),
        ] {
            assert_eq!(find(pointer, json).unwrap().as_deref(), expected, "{pointer}");
        }
        assert_eq!(find("", json).unwrap().as_deref(), Some(json.trim()));
    }

    #[test]
    fn what_is_not_a_pointer_is_none() {
        for text in ["a", "a/b", "/~", "/~2", "/a~", "#/a", &"/x".repeat(65)] {
            assert_eq!(Pointer::parse(text), None, "{text}");
        }
        assert_eq!(Pointer::parse("/a~1b/~0").unwrap().to_string(), "/a~1b/~0");
    }

    #[test]
    fn a_key_that_occurs_twice_on_the_way_is_an_error() {
        assert!(find("/a/b", r#"{"a": 1, "\u0061": {"b": 1}}"#).unwrap_err().contains("twice"));
        assert_eq!(find("/a", r#"{"b": 1, "b": 2, "a": 3}"#).unwrap().as_deref(), Some("3"));
    }

    #[test]
    fn deep_nesting_is_read_and_an_invalid_text_is_not() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(find("/0/0", &deep).unwrap().map(|found| found.len()), Some(200_000 - 4));
        for text in ["", "{", "[1,]", "{\"a\":}", "nul", "1 2", "\u{feff}[]", "'a'"] {
            assert!(whole(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(pointer in "(/[a01~]{0,3}){0,4}", json in "[\\[\\]{}\",:0a \\\\u]{0,24}") {
            if let (Some(pointer), Ok(whole)) = (Pointer::parse(&pointer), whole(&json)) {
                drop(pointer.find(whole));
            }
        }
    }
}
