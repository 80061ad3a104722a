//! Storage classes: those of S3 have fixed numbers, others are numbered as they occur.
//!
//! An object of class `INTELLIGENT_TIERING` whose access tier is known has a separate class,
//! `INTELLIGENT_TIERING:TIER`, since each tier has its own price.

use std::sync::{PoisonError, RwLock};

/// Classes with fixed numbers: their index in this list, which may only be extended.
const KNOWN: [&str; 18] = [
    "STANDARD",
    "STANDARD_IA",
    "ONEZONE_IA",
    "INTELLIGENT_TIERING",
    "GLACIER_IR",
    "GLACIER",
    "DEEP_ARCHIVE",
    "REDUCED_REDUNDANCY",
    "EXPRESS_ONEZONE",
    "INTELLIGENT_TIERING:FREQUENT",
    "INTELLIGENT_TIERING:INFREQUENT",
    "INTELLIGENT_TIERING:ARCHIVE_INSTANT_ACCESS",
    "INTELLIGENT_TIERING:ARCHIVE",
    "INTELLIGENT_TIERING:DEEP_ARCHIVE",
    "OUTPOSTS",
    "SNOW",
    "FSX_OPENZFS",
    "FSX_ONTAP",
];
/// Maximum number of classes of an inventory.
const CLASSES_MAX: usize = 64;
/// Maximum length of a class's name in bytes.
const NAME_SIZE_MAX: usize = 128;

/// The number of a class among the [`Classes`] of one build.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClassId(pub u8);

/// The classes that occurred in one build. Shared by all readers.
#[derive(Debug, Default)]
pub struct Classes {
    others: RwLock<Vec<String>>,
}

/// There are too many classes, or a name is too long.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TooManyClasses {
    /// The limit of an index.
    #[error("there are too many storage classes at {0:?}; the limit is {CLASSES_MAX}")]
    Count(String),
    /// Longer than the name of a class may be.
    #[error("the name of a storage class has {0} bytes; the limit is {NAME_SIZE_MAX}")]
    Name(usize),
}

impl ClassId {
    /// The class of an object without a named one.
    pub const STANDARD: Self = Self(0);
}

impl Classes {
    /// The classes every build knows.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of a class, by its name; the empty name is `STANDARD`.
    ///
    /// # Errors
    /// There are too many classes, or its name is too long.
    pub fn id(&self, name: &str) -> Result<ClassId, TooManyClasses> {
        if name.is_empty() {
            return Ok(ClassId::STANDARD);
        }
        if let Some(id) = position(&KNOWN, name, 0) {
            return Ok(id);
        }
        {
            let others = self.others.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(id) = position(&others, name, KNOWN.len()) {
                return Ok(id);
            }
        }
        if name.len() > NAME_SIZE_MAX {
            return Err(TooManyClasses::Name(name.len()));
        }
        let mut others = self.others.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(id) = position(&others, name, KNOWN.len()) {
            return Ok(id);
        }
        if KNOWN.len() + others.len() >= CLASSES_MAX {
            return Err(TooManyClasses::Count(name.to_owned()));
        }
        others.push(name.to_owned());
        position(&others, name, KNOWN.len()).ok_or_else(|| TooManyClasses::Count(name.to_owned()))
    }

    /// The names of all classes, in the order of their numbers.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let others = self.others.read().unwrap_or_else(PoisonError::into_inner);
        KNOWN.iter().map(|&name| name.to_owned()).chain(others.iter().cloned()).collect()
    }
}

fn position(names: &[impl AsRef<str>], name: &str, first: usize) -> Option<ClassId> {
    let at = names.iter().position(|known| known.as_ref() == name)?;
    u8::try_from(first + at).ok().map(ClassId)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_keeps_its_number() {
        let classes = Classes::new();
        assert_eq!(classes.id(""), Ok(ClassId::STANDARD));
        assert_eq!(classes.id("STANDARD"), Ok(ClassId::STANDARD));
        let cold = classes.id("COLD").unwrap();
        let warm = classes.id("WARM").unwrap();
        assert_ne!(cold, warm);
        assert_eq!(classes.id("COLD"), Ok(cold));
        assert_eq!(classes.names()[usize::from(cold.0)], "COLD");
        assert_eq!(classes.names()[usize::from(warm.0)], "WARM");
    }

    #[test]
    fn one_class_too_many_and_names_too_long_are_refused() {
        let classes = Classes::new();
        for i in KNOWN.len()..CLASSES_MAX {
            classes.id(&format!("OTHER_{i}")).unwrap();
        }
        assert_eq!(classes.id("LAST"), Err(TooManyClasses::Count("LAST".to_owned())));
        assert!(classes.id("OTHER_20").is_ok());
        assert_eq!(Classes::new().id(&"x".repeat(129)), Err(TooManyClasses::Name(129)));
    }
}
