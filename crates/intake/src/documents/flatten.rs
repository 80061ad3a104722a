//! Reading one document: is it a JSON object within the limits, and what are its leaves?
//!
//! The document is never turned into a tree of values. Each level's keys are read and its values
//! kept as their original text, so a number's leaf is its exact text. Objects are flattened down to
//! a given depth; an array, an empty object or an object below that depth is one leaf.
//!
//! Invariants: a document that passes [`read`] is valid JSON (RFC 8259), UTF-8 and an object, and
//! stays within the limits of nesting and key length; if a key is repeated, the last value counts,
//! as in every common parser, and the document itself is stored unchanged.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::DocumentError;

/// Limits on one document.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Deepest nesting of arrays and objects.
    pub depth_max: usize,
    /// Longest key in bytes.
    pub key_size_max: usize,
    /// Objects are flattened to this depth.
    pub flatten_depth: usize,
}

/// What a leaf holds.
#[derive(Debug, Clone, PartialEq)]
pub enum Leaf<'a> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Boolean(bool),
    /// A whole number that fits 64 bits, and its text.
    Integer(i64, &'a str),
    /// A whole number that does not, as its text.
    BigInteger(&'a str),
    /// A number with a fraction or an exponent, as its text.
    Real(&'a str),
    /// A string.
    Text(Cow<'a, str>),
    /// A string with an escape that is no Unicode character (a lone surrogate), as its text.
    Unrepresentable(&'a str),
    /// An array, as its text; whether it holds objects.
    Array(&'a str, bool),
    /// An object not flattened further, as its text.
    Object(&'a str),
}

/// One object's members in the order they came, each key once.
#[derive(Debug)]
pub struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

/// Checks a document and reads its first level.
/// # Errors
/// [`DocumentError`] says what the text is instead, and at which byte.
pub fn read<'a>(document: &'a [u8], bounds: &Bounds) -> Result<Members<'a>, DocumentError> {
    let text = std::str::from_utf8(document)
        .map_err(|error| DocumentError::Utf8 { byte: error.valid_up_to() })?;
    if !text.starts_with('{') {
        return Err(DocumentError::NotAnObject { found: kind_of(text) });
    }
    let opening = memchr::memchr2_iter(b'{', b'[', document).count();
    if opening > bounds.depth_max {
        check_depth(document, bounds.depth_max)?;
    }
    let members = every_member(text)?;
    members.check(text, bounds, bounds.depth_max)?;
    Ok(members.last_of_each())
}

impl<'a> Members<'a> {
    /// Calls `each` with the path, leaf and JSON text of every leaf, and returns how deep objects
    /// nest.
    ///
    /// `path` is scratch space.
    ///
    /// # Errors
    /// Those of `each`, or [`DocumentError`] for a nested object that cannot be read.
    pub fn leaves<E: From<DocumentError>>(
        &self,
        bounds: &Bounds,
        path: &mut String,
        each: &mut impl FnMut(&str, Leaf<'a>, &'a str) -> Result<(), E>,
    ) -> Result<usize, E> {
        path.clear();
        self.leaves_at(bounds.flatten_depth, true, path, each)
    }

    fn leaves_at<E: From<DocumentError>>(
        &self,
        depth_left: usize,
        is_root: bool,
        path: &mut String,
        each: &mut impl FnMut(&str, Leaf<'a>, &'a str) -> Result<(), E>,
    ) -> Result<usize, E> {
        let mut deepest = 1;
        let start = path.len();
        for (key, value) in &self.0 {
            if !is_root {
                path.push('.');
            }
            push_key(path, key);
            let text = value.get();
            if text.starts_with('{') {
                let nested = every_member(text)?.last_of_each();
                if nested.0.is_empty() {
                    each(path, Leaf::Object(text), text)?;
                } else if depth_left > 1 {
                    let depth = nested.leaves_at(depth_left - 1, false, path, each)?;
                    deepest = deepest.max(depth + 1);
                } else {
                    each(path, Leaf::Object(text), text)?;
                    deepest = deepest.max(2);
                }
            } else {
                each(path, leaf(text), text)?;
            }
            path.truncate(start);
        }
        Ok(deepest)
    }
}

/// Reads one object.
fn every_member(text: &str) -> Result<EveryMember<'_>, DocumentError> {
    serde_json::from_str(text).map_err(|error| syntax(&error))
}

/// The members of an object in their order, each key once: the last value of a repeated one.
pub(crate) fn members(text: &str) -> Result<Vec<(Cow<'_, str>, &RawValue)>, DocumentError> {
    Ok(every_member(text)?.last_of_each().0)
}

/// One object's members in their order. Values that a later one of the same key replaces stay in
/// the document, so they must respect its limits too.
#[derive(Debug)]
struct EveryMember<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> EveryMember<'a> {
    /// Checks the length of every key, nested ones too. Only long texts are examined.
    fn check(&self, text: &str, bounds: &Bounds, depth: usize) -> Result<(), DocumentError> {
        if text.len() <= bounds.key_size_max {
            return Ok(());
        }
        for (key, value) in &self.0 {
            if key.len() > bounds.key_size_max {
                return Err(DocumentError::KeyTooLong {
                    size: key.len(),
                    size_max: bounds.key_size_max,
                });
            }
            check_value(value.get(), bounds, depth.saturating_sub(1))?;
        }
        Ok(())
    }

    /// Drops all but the last value of a repeated key.
    fn last_of_each(self) -> Members<'a> {
        let Self(mut members) = self;
        let few = members.len() <= 32;
        let repeats = if few {
            // A bit for the length and the ends of each key: without a bit in common, keys differ.
            let mut seen = 0u64;
            members.iter().enumerate().any(|(at, (key, _))| {
                let bit = 1u64 << key_sign(key);
                let may_repeat = seen & bit != 0;
                seen |= bit;
                may_repeat && members.iter().take(at).any(|(earlier, _)| earlier == key)
            })
        } else {
            let mut seen = HashSet::with_capacity(members.len());
            !members.iter().all(|(key, _)| seen.insert(key.as_ref()))
        };
        if repeats {
            // Backwards, so that the first occurrence found of each key is its last.
            let mut seen: HashSet<Cow<'a, str>> = HashSet::with_capacity(members.len());
            members.reverse();
            members.retain(|(key, _)| seen.insert(key.clone()));
            members.reverse();
        }
        Members(members)
    }
}

/// A number below 64 that equal keys have in common, and few others: of their length and both ends.
fn key_sign(key: &str) -> u8 {
    let (first, last) = (key.bytes().next().unwrap_or(0), key.bytes().next_back().unwrap_or(0));
    let [length, ..] = key.len().to_le_bytes();
    (first ^ last.rotate_left(3) ^ length.wrapping_mul(11)) % 64
}

fn check_value(text: &str, bounds: &Bounds, depth: usize) -> Result<(), DocumentError> {
    if text.len() <= bounds.key_size_max || depth == 0 {
        return Ok(());
    }
    if text.starts_with('{') {
        every_member(text)?.check(text, bounds, depth)
    } else if text.starts_with('[') && memchr::memchr(b'{', text.as_bytes()).is_some() {
        let elements: Vec<&RawValue> =
            serde_json::from_str(text).map_err(|error| syntax(&error))?;
        elements.iter().try_for_each(|element| check_value(element.get(), bounds, depth - 1))
    } else {
        Ok(())
    }
}

fn leaf(text: &str) -> Leaf<'_> {
    match text.as_bytes().first() {
        Some(b'n') => Leaf::Null,
        Some(b't') => Leaf::Boolean(true),
        Some(b'f') => Leaf::Boolean(false),
        Some(b'"') => match text.get(1..text.len().saturating_sub(1)) {
            Some(inner) if memchr::memchr(b'\\', inner.as_bytes()).is_none() => {
                Leaf::Text(Cow::Borrowed(inner))
            }
            _ => match serde_json::from_str::<String>(text) {
                Ok(text) => Leaf::Text(Cow::Owned(text)),
                Err(_) => Leaf::Unrepresentable(text),
            },
        },
        Some(b'[') => {
            let inner = text.get(1..).unwrap_or_default().trim_ascii_start();
            Leaf::Array(text, inner.starts_with('{'))
        }
        Some(b'{') => Leaf::Object(text),
        _ if memchr::memchr3(b'.', b'e', b'E', text.as_bytes()).is_some() => Leaf::Real(text),
        _ => match text.parse() {
            Ok(number) => Leaf::Integer(number, text),
            Err(_) => Leaf::BigInteger(text),
        },
    }
}

/// Appends a key to a path; `.` and `\` in it are escaped so that different paths stay different.
fn push_key(path: &mut String, key: &str) {
    if memchr::memchr2(b'.', b'\\', key.as_bytes()).is_none() {
        path.push_str(key);
        return;
    }
    for character in key.chars() {
        if matches!(character, '.' | '\\') {
            path.push('\\');
        }
        path.push(character);
    }
}

/// Counts brackets outside strings. Called only where there are enough of them to matter.
fn check_depth(document: &[u8], depth_max: usize) -> Result<(), DocumentError> {
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    for &byte in document {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                depth += 1;
                if depth > depth_max {
                    return Err(DocumentError::TooDeep { depth_max });
                }
            }
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Ok(())
}

fn syntax(error: &serde_json::Error) -> DocumentError {
    let text = error.to_string();
    let what = text.split(" at line ").next().unwrap_or(&text).to_owned();
    DocumentError::Syntax { what, line: error.line(), column: error.column() }
}

fn kind_of(text: &str) -> &'static str {
    if serde_json::from_str::<serde::de::IgnoredAny>(text).is_err() {
        return "not JSON";
    }
    match text.as_bytes().first() {
        Some(b'[') => "an array",
        Some(b'"') => "a string",
        Some(b't' | b'f') => "a boolean",
        Some(b'n') => "null",
        Some(b'-' | b'0'..=b'9') => "a number",
        _ => "not JSON",
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for EveryMember<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object<'a>(std::marker::PhantomData<&'a ()>);
        impl<'de: 'a, 'a> Visitor<'de> for Object<'a> {
            type Value = EveryMember<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let mut members: Vec<(Cow<'a, str>, &'a RawValue)> = Vec::with_capacity(16);
                while let Some(Key(key)) = map.next_key()? {
                    members.push((key, map.next_value()?));
                }
                Ok(EveryMember(members))
            }
        }
        deserializer.deserialize_map(Object(std::marker::PhantomData))
    }
}

/// A key, borrowed where it has no escapes.
struct Key<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Key<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl<'de> Visitor<'de> for Text {
            type Value = Cow<'de, str>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Cow::Borrowed(text))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Cow::Owned(text.to_owned()))
            }
        }
        deserializer.deserialize_str(Text).map(Key)
    }
}

#[cfg(test)]
mod tests;
