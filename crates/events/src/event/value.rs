//! Typed attributes, which a producer adds to the raw bytes of an event.

use std::borrow::Cow;

use crate::format::leaf;

/// One value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value<'a> {
    /// Null.
    Null,
    /// True or false.
    Boolean(bool),
    /// An integer.
    Integer(i64),
    /// A float; all its bits are kept, including those of NaN.
    Real(f64),
    /// A text.
    Text(Cow<'a, str>),
    /// Bytes.
    Bytes(Cow<'a, [u8]>),
}

/// The attributes of a stored event, in the order they were given.
///
/// The bytes are checked: only [`leaf::decode`] creates one.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Attributes<'a> {
    pub(crate) bytes: &'a [u8],
}

impl<'a> Attributes<'a> {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The bytes of all, as at the end of a leaf.
    #[must_use]
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Each key and value.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, Value<'a>)> + use<'a> {
        let mut rest = self.bytes;
        // `decode` has checked the bytes; here the iteration cannot fail and simply ends.
        std::iter::from_fn(move || leaf::take_attribute(&mut rest).ok())
    }

    /// The first value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Value<'a>> {
        self.iter().find(|(known, _)| *known == key).map(|(_, value)| value)
    }
}
