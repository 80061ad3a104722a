//! Typed attributes: what a producer says of an event beside its raw bytes.

use std::borrow::Cow;

use crate::format::leaf;

/// One value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value<'a> {
    /// Said to be nothing.
    Null,
    /// True or false.
    Boolean(bool),
    /// A whole number.
    Integer(i64),
    /// A number; every bit of it is kept, NaN too.
    Real(f64),
    /// A text.
    Text(Cow<'a, str>),
    /// Bytes.
    Bytes(Cow<'a, [u8]>),
}

/// The attributes of a stored event, in the order they were given.
///
/// Holds checked bytes: only [`leaf::decode`] makes one.
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

    /// Each key and value.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, Value<'a>)> + use<'a> {
        let mut rest = self.bytes;
        // The bytes were walked once by `decode`; here the walk cannot fail and simply ends.
        std::iter::from_fn(move || leaf::take_attribute(&mut rest).ok())
    }

    /// The first value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Value<'a>> {
        self.iter().find(|(known, _)| *known == key).map(|(_, value)| value)
    }
}
