//! Values other than strings.

use crate::types::{Hash, List, Set, ZSet};

/// The type of a value, as returned by `TYPE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A string of bytes.
    String,
    /// A list.
    List,
    /// A hash.
    Hash,
    /// A set.
    Set,
    /// A sorted set.
    ZSet,
}

impl Kind {
    /// The name in `TYPE` and `SCAN ... TYPE`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::List => "list",
            Self::Hash => "hash",
            Self::Set => "set",
            Self::ZSet => "zset",
        }
    }
}

/// A collection.
#[derive(Debug, Clone)]
pub enum Object {
    /// A list.
    List(Box<List>),
    /// A hash.
    Hash(Box<Hash>),
    /// A set.
    Set(Box<Set>),
    /// A sorted set.
    ZSet(Box<ZSet>),
}

impl Object {
    /// Its type.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::List(_) => Kind::List,
            Self::Hash(_) => Kind::Hash,
            Self::Set(_) => Kind::Set,
            Self::ZSet(_) => Kind::ZSet,
        }
    }

    /// Its memory in bytes, its own box included.
    #[must_use]
    pub fn bytes(&self) -> usize {
        16 + match self {
            Self::List(list) => size_of::<List>() + list.bytes(),
            Self::Hash(hash) => size_of::<Hash>() + hash.bytes(),
            Self::Set(set) => size_of::<Set>() + set.bytes(),
            Self::ZSet(zset) => size_of::<ZSet>() + zset.bytes(),
        }
    }

    /// Number of elements, fields or members.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::List(list) => list.len(),
            Self::Hash(hash) => hash.len(),
            Self::Set(set) => set.len(),
            Self::ZSet(zset) => zset.len(),
        }
    }

    /// The name of its encoding that clients know.
    #[must_use]
    pub fn encoding(&self) -> &'static str {
        match self {
            Self::List(list) => list.encoding(),
            Self::Hash(hash) => hash.encoding(),
            Self::Set(set) => set.encoding(),
            Self::ZSet(zset) => zset.encoding(),
        }
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A type of collection; lets a shard's methods serve all of them.
pub trait Collection: Sized + Default {
    /// Its type.
    const KIND: Kind;

    /// Returns the collection, if the object has this type.
    fn of(object: &Object) -> Option<&Self>;

    /// Returns the collection for a change, if the object has this type.
    fn of_mut(object: &mut Object) -> Option<&mut Self>;

    /// Converts it into an object.
    fn into_object(self) -> Object;
}

macro_rules! collection {
    ($type:ident) => {
        impl Collection for $type {
            const KIND: Kind = Kind::$type;

            fn of(object: &Object) -> Option<&Self> {
                match object {
                    Object::$type(held) => Some(held),
                    _ => None,
                }
            }

            fn of_mut(object: &mut Object) -> Option<&mut Self> {
                match object {
                    Object::$type(held) => Some(held),
                    _ => None,
                }
            }

            fn into_object(self) -> Object {
                Object::$type(Box::new(self))
            }
        }
    };
}

collection!(List);
collection!(Hash);
collection!(Set);
collection!(ZSet);
