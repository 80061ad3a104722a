//! One member of a document, found without building the rest.

use std::fmt;

use serde::Deserializer as _;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// A document that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the document is not JSON: {0}")]
pub struct PickError(#[source] pub(super) serde_json::Error);

/// Returns the JSON text of the member at `path`; of a key that is repeated, the last one. `None` if there
/// is no such member.
pub(super) fn pick<'d>(document: &'d [u8], path: &[String]) -> Result<Option<&'d str>, PickError> {
    let Some((first, rest)) = path.split_first() else { return Ok(None) };
    let mut member = member(document, first)?;
    for key in rest {
        let Some(found) = member.filter(|found| found.get().starts_with('{')) else {
            return Ok(None);
        };
        member = self::member(found.get().as_bytes(), key)?;
    }
    Ok(member.map(RawValue::get))
}

fn member<'d>(object: &'d [u8], key: &str) -> Result<Option<&'d RawValue>, PickError> {
    let mut reader = serde_json::Deserializer::from_slice(object);
    reader.deserialize_map(Member { key }).map_err(PickError)
}

/// Finds the value of a key.
struct Member<'k> {
    key: &'k str,
}

impl<'d> Visitor<'d> for Member<'_> {
    type Value = Option<&'d RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'d>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(is_wanted) = members.next_key_seed(Matches { key: self.key })? {
            if is_wanted {
                found = Some(members.next_value()?);
            } else {
                members.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

/// Compares a key without copying it.
struct Matches<'k> {
    key: &'k str,
}

impl<'d> DeserializeSeed<'d> for Matches<'_> {
    type Value = bool;

    fn deserialize<D: serde::Deserializer<'d>>(self, from: D) -> Result<bool, D::Error> {
        // A string may have half of a surrogate pair, which bytes can hold and text cannot.
        from.deserialize_bytes(self)
    }
}

impl Visitor<'_> for Matches<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_bytes<E>(self, key: &[u8]) -> Result<bool, E> {
        Ok(key == self.key.as_bytes())
    }

    fn visit_str<E>(self, key: &str) -> Result<bool, E> {
        Ok(key == self.key)
    }
}

/// The bytes of a JSON string.
pub(super) fn text(json: &str) -> Result<Vec<u8>, PickError> {
    serde_json::Deserializer::from_str(json).deserialize_bytes(Bytes).map_err(PickError)
}

struct Bytes;

impl Visitor<'_> for Bytes {
    type Value = Vec<u8>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON string")
    }

    fn visit_bytes<E>(self, text: &[u8]) -> Result<Vec<u8>, E> {
        Ok(text.to_vec())
    }

    fn visit_str<E>(self, text: &str) -> Result<Vec<u8>, E> {
        Ok(text.as_bytes().to_vec())
    }
}
