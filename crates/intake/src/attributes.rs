//! What is stored with a name beside its bytes: metadata, tags, headers, values of other faces.
//!
//! ```text
//! kind (1 byte)   name (text)   value (text)        in ascending order of kind and name, none twice
//! ```
//!
//! They belong to the name, not to the bytes: two names of the same bytes have their own, and a change of
//! them alone is a new entry that names the same blob.
//!
//! Invariants: names and values are free of control characters, so both may appear in a header or a log
//! line; the numbers and sizes below hold for everything that was parsed, whether it came from a request,
//! the log or the catalogue; the same attributes have one encoding.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::format::{DecodeError, Decoder};
use crate::names::is_noncharacter;

/// Maximum number of bytes of all names and values of one file.
pub const ATTRIBUTES_SIZE_MAX: usize = 16 << 10;
/// Maximum number of attributes of one file.
pub const ATTRIBUTES_MAX: usize = 200;
/// Maximum number of tags of one file.
pub const TAGS_MAX: usize = 50;
/// Maximum number of bytes of a name.
pub const ATTRIBUTE_NAME_SIZE_MAX: usize = 128;
/// Maximum number of bytes of a value.
pub const ATTRIBUTE_VALUE_SIZE_MAX: usize = 4_096;

/// Name of the internal attribute that says how long a file is kept.
const KEEP: &str = "keep seconds";

/// What an attribute is for. The number is its code in the log and in the catalogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum AttributeKind {
    /// Metadata of the user: any names and values. Like a header's, the letters A to Z of a name count as those in lower
    /// case, in which they are stored.
    Metadata = 1,
    /// A tag of the user, by which files are selected.
    Tag = 2,
    /// A header that is sent with the file, such as `cache-control`; the name is in lower case.
    Header = 3,
    /// A value that a face of the server stores for itself, such as the ETag of the S3 port.
    Internal = 4,
}

impl AttributeKind {
    fn of(code: u8) -> Option<Self> {
        [Self::Metadata, Self::Tag, Self::Header, Self::Internal]
            .into_iter()
            .find(|kind| *kind as u8 == code)
    }

    /// The form in which a name of this kind is stored.
    #[must_use]
    pub fn stored_name(self, name: &str) -> Cow<'_, str> {
        if self == Self::Metadata && name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            Cow::Owned(name.to_ascii_lowercase())
        } else {
            Cow::Borrowed(name)
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Metadata => "metadata",
            Self::Tag => "tag",
            Self::Header => "header",
            Self::Internal => "internal attribute",
        }
    }
}

/// Why attributes were refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AttributeError {
    /// A name is empty or too long.
    #[error("the name of a {kind} has {size} bytes; 1 to {ATTRIBUTE_NAME_SIZE_MAX} are allowed")]
    NameSize {
        /// The kind of attribute.
        kind: &'static str,
        /// Number of bytes.
        size: usize,
    },
    /// A value is too long.
    #[error(
        "the value of the {kind} {name:?} has {size} bytes; the limit is {ATTRIBUTE_VALUE_SIZE_MAX}"
    )]
    ValueSize {
        /// The kind of attribute.
        kind: &'static str,
        /// Its name.
        name: String,
        /// Number of bytes.
        size: usize,
    },
    /// A name or value has a character that is not allowed.
    #[error("the {kind} {name:?} contains a control character, U+FFFE or U+FFFF")]
    Character {
        /// The kind of attribute.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// A name is set twice in one change.
    #[error("the {kind} {name:?} is repeated")]
    Repeated {
        /// The kind of attribute.
        kind: &'static str,
        /// The name, as it is stored.
        name: String,
    },
    /// There are too many, or they are too large together.
    #[error(
        "a file can have at most {TAGS_MAX} tags, {ATTRIBUTES_MAX} attributes in all, and \
         {ATTRIBUTES_SIZE_MAX} bytes of them"
    )]
    TooMany,
}

impl AttributeError {
    /// The error for a name that is set twice in one change.
    #[must_use]
    pub fn repeated(kind: AttributeKind, name: &str) -> Self {
        Self::Repeated { kind: kind.word(), name: kind.stored_name(name).into_owned() }
    }
}

type Map = BTreeMap<(AttributeKind, Box<str>), Box<str>>;

/// The attributes of one file. Cloning is cheap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attributes(Option<Arc<Map>>);

impl Attributes {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The value of an attribute.
    #[must_use]
    pub fn get(&self, kind: AttributeKind, name: &str) -> Option<&str> {
        let key = (kind, Box::from(name));
        self.0.as_ref()?.get(&key).map(|value| &**value)
    }

    /// Names and values of one kind, in the order of their names.
    pub fn of(&self, kind: AttributeKind) -> impl Iterator<Item = (&str, &str)> {
        let from = (kind, Box::from(""));
        let map = self.0.as_deref().into_iter();
        map.flat_map(move |map| map.range(from.clone()..))
            .take_while(move |((of, _), _)| *of == kind)
            .map(|((_, name), value)| (&**name, &**value))
    }

    /// Sets an attribute, in place of those whose names mean the same.
    ///
    /// # Errors
    /// [`AttributeError`]: it breaks a rule, and nothing was changed.
    pub fn set(
        &mut self,
        kind: AttributeKind,
        name: &str,
        value: &str,
    ) -> Result<(), AttributeError> {
        let name = &*kind.stored_name(name);
        check(kind, name, value)?;
        if name.chars().chain(value.chars()).any(is_noncharacter) {
            return Err(AttributeError::Character { kind: kind.word(), name: name.to_owned() });
        }
        let mut map = self.0.as_deref().cloned().unwrap_or_default();
        // Earlier versions stored metadata with capitals in their names.
        map.retain(|(of, other), _| *of != kind || kind.stored_name(other) != name);
        map.insert((kind, name.into()), value.into());
        check_all(&map)?;
        self.0 = Some(Arc::new(map));
        Ok(())
    }

    /// Removes the attributes whose names mean the same as `name`; does nothing if there is none.
    pub fn remove(&mut self, kind: AttributeKind, name: &str) {
        let name = kind.stored_name(name);
        self.retain(|of, other| of != kind || kind.stored_name(other) != name);
    }

    /// Keeps the attributes for which `keep` is true.
    pub fn retain(&mut self, keep: impl Fn(AttributeKind, &str) -> bool) {
        if let Some(map) = &mut self.0 {
            Arc::make_mut(map).retain(|(kind, name), _| keep(*kind, name));
            if map.is_empty() {
                self.0 = None;
            }
        }
    }

    /// How long a file with these attributes is kept after its name was given or changed; `None` for ever.
    #[must_use]
    pub fn keep(&self) -> Option<Duration> {
        self.get(AttributeKind::Internal, KEEP)?.parse().ok().map(Duration::from_secs)
    }

    /// Sets how long the file is kept, in whole seconds.
    ///
    /// # Errors
    /// [`AttributeError`]: there is no room for one more.
    pub fn set_keep(&mut self, keep: Duration) -> Result<(), AttributeError> {
        self.set(AttributeKind::Internal, KEEP, &keep.as_secs().to_string())
    }

    /// Appends the encoded form, which is empty if there are none.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        for ((kind, name), value) in self.0.iter().flat_map(|map| map.iter()) {
            out.push(*kind as u8);
            for text in [name, value] {
                // The sizes were checked when they were set.
                let size = u16::try_from(text.len()).unwrap_or(u16::MAX);
                out.extend_from_slice(&size.to_le_bytes());
                out.extend_from_slice(text.as_bytes());
            }
        }
    }

    /// Returns the encoded form.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode(&mut out);
        out
    }

    /// Decodes what [`Attributes::to_bytes`] returned.
    ///
    /// # Errors
    /// [`DecodeError`] names the field and the offset in `bytes` that cannot be decoded.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(bytes);
        let mut map = Map::new();
        while decoder.left() > 0 {
            let offset = decoder.offset();
            let refused = |found: u64| DecodeError::Value { field: "attribute", offset, found };
            let code = decoder.u8("attribute kind")?;
            let kind = AttributeKind::of(code).ok_or_else(|| refused(code.into()))?;
            let (name, value) = (decoder.text("attribute name")?, decoder.text("attribute value")?);
            check(kind, name, value).map_err(|_| refused(code.into()))?;
            let key = (kind, Box::from(name));
            if map.last_key_value().is_some_and(|(last, _)| *last >= key) {
                return Err(refused(code.into()));
            }
            map.insert(key, value.into());
        }
        let found = map.len() as u64;
        check_all(&map).map_err(|_| DecodeError::Value {
            field: "attributes",
            offset: 0,
            found,
        })?;
        Ok(Self((!map.is_empty()).then(|| Arc::new(map))))
    }
}

fn check(kind: AttributeKind, name: &str, value: &str) -> Result<(), AttributeError> {
    let word = kind.word();
    let size = name.len();
    if size == 0 || size > ATTRIBUTE_NAME_SIZE_MAX {
        return Err(AttributeError::NameSize { kind: word, size });
    }
    let name_text = || name.to_owned();
    if value.len() > ATTRIBUTE_VALUE_SIZE_MAX {
        let (name, size) = (name_text(), value.len());
        return Err(AttributeError::ValueSize { kind: word, name, size });
    }
    if name.chars().any(char::is_control) || value.chars().any(|c| c.is_control() && c != '\t') {
        return Err(AttributeError::Character { kind: word, name: name_text() });
    }
    Ok(())
}

fn check_all(map: &Map) -> Result<(), AttributeError> {
    let bytes: usize = map.iter().map(|((_, name), value)| name.len() + value.len()).sum();
    let tags = map.keys().filter(|(kind, _)| *kind == AttributeKind::Tag).count();
    if bytes > ATTRIBUTES_SIZE_MAX || map.len() > ATTRIBUTES_MAX || tags > TAGS_MAX {
        return Err(AttributeError::TooMany);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::AttributeKind::{Header, Internal, Metadata, Tag};
    use super::*;

    #[test]
    fn kinds_are_apart_and_names_are_in_order() {
        let mut attributes = Attributes::default();
        for (kind, name, value) in [
            (Tag, "b", "2"),
            (Metadata, "z", ""),
            (Tag, "a", "1"),
            (Header, "a", "h"),
            (Tag, "b", "3"),
        ] {
            attributes.set(kind, name, value).unwrap();
        }
        assert_eq!(attributes.of(Tag).collect::<Vec<_>>(), [("a", "1"), ("b", "3")]);
        assert_eq!(attributes.get(Metadata, "z"), Some(""));
        assert_eq!(attributes.get(Internal, "a"), None);
        attributes.retain(|kind, _| kind == Header);
        assert_eq!(attributes.of(Tag).count(), 0);
        attributes.remove(Header, "a");
        assert!(attributes.is_empty());
        assert_eq!(attributes, Attributes::default());
    }

    #[test]
    fn capitals_in_a_name_of_metadata_make_no_second_name() {
        let mut attributes = Attributes::default();
        attributes.set(Metadata, "Author", "1").unwrap();
        attributes.set(Metadata, "AUTHOR", "2").unwrap();
        attributes.set(Tag, "A", "1").unwrap();
        attributes.set(Tag, "a", "2").unwrap();
        assert_eq!(attributes.of(Metadata).collect::<Vec<_>>(), [("author", "2")]);
        assert_eq!(attributes.of(Tag).collect::<Vec<_>>(), [("A", "1"), ("a", "2")]);

        // As an earlier version stored them.
        let old = b"\x01\x01\0A\x01\x001\x01\x01\0B\x01\x002";
        let mut attributes = Attributes::decode(old).unwrap();
        assert_eq!(attributes.to_bytes(), old);
        attributes.set(Metadata, "a", "3").unwrap();
        attributes.remove(Metadata, "b");
        assert_eq!(attributes.of(Metadata).collect::<Vec<_>>(), [("a", "3")]);
    }

    #[test]
    fn what_breaks_a_rule_changes_nothing() {
        let mut attributes = Attributes::default();
        for (name, value) in [
            ("", "x".to_owned()),
            ("a\nb", "x".to_owned()),
            ("a", "x\r\nSet-Cookie: y".to_owned()),
            (&"n".repeat(ATTRIBUTE_NAME_SIZE_MAX + 1), String::new()),
            ("a", "v".repeat(ATTRIBUTE_VALUE_SIZE_MAX + 1)),
        ] {
            assert!(attributes.set(Metadata, name, &value).is_err(), "{name:?}");
        }
        assert!(attributes.is_empty());
        for n in 0..TAGS_MAX {
            attributes.set(Tag, &n.to_string(), "").unwrap();
        }
        assert_eq!(attributes.set(Tag, "more", ""), Err(AttributeError::TooMany));
        let large = "v".repeat(ATTRIBUTE_VALUE_SIZE_MAX);
        let refused = (0..5).find_map(|n| attributes.set(Metadata, &n.to_string(), &large).err());
        assert_eq!(refused, Some(AttributeError::TooMany));
    }

    proptest! {
        #[test]
        fn what_is_encoded_decodes_to_the_same_and_no_bytes_panic(
            pairs in prop::collection::vec((1_u8..5, "[a-z]{1,4}", "[ -~é]{0,8}"), 0..12),
            noise in prop::collection::vec(any::<u8>(), 0..64),
        ) {
            let mut attributes = Attributes::default();
            for (code, name, value) in &pairs {
                attributes.set(AttributeKind::of(*code).unwrap(), name, value).unwrap();
            }
            let bytes = attributes.to_bytes();
            prop_assert_eq!(Attributes::decode(&bytes), Ok(attributes));
            if let Ok(decoded) = Attributes::decode(&noise) {
                prop_assert_eq!(decoded.to_bytes(), noise);
            }
        }
    }
}
