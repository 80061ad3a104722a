//! Queries over the documents of a namespace: an expression that each document passes or not.
//!
//! ```text
//! price >= 10 and (name = "pump" or tags = "spare") and not address.city exists
//! ```
//!
//! | form | passes if |
//! |---|---|
//! | `path = value`, `!=` | the member is equal to the value; is there and is not |
//! | `path < value`, `<=`, `>`, `>=` | both are numbers, or both are strings, in this order |
//! | `path ~ "text"`, `path ^= "text"` | the member is a string that contains the text; begins with it |
//! | `path in (value, ...)` | it is equal to one of them |
//! | `path exists` | the member is there, `null` included |
//! | `not`, `and`, `or`, `( )` | in this order of precedence |
//!
//! A path is keys joined by `.`; a key of other characters than letters, digits, `_`, `-`, `$` and `@` is
//! written as a JSON string. A value is a JSON string or number, `true`, `false` or `null`. Where a member is
//! an array, a comparison passes if it passes for one of its elements.
//!
//! Invariants: numbers are compared as they are written, digit by digit, so no two different ones are equal;
//! whatever the expression, its depth and its size are bounded; a document that cannot be read is an error,
//! not one that does not pass.

mod number;
mod parse;
mod pick;

use std::cmp::Ordering;

use memchr::memmem;

use self::number::Number;
use self::pick::{pick, text};

pub use self::parse::QueryError;
pub use self::pick::PickError;

/// Maximum number of bytes of an expression.
pub const QUERY_SIZE_MAX: usize = 4_096;
/// Maximum depth of parentheses and `not`.
const DEPTH_MAX: usize = 32;
/// Maximum number of comparisons.
const COMPARISONS_MAX: usize = 64;

/// An expression over documents.
#[derive(Debug, Clone, PartialEq)]
pub struct DocumentQuery(Expression);

#[derive(Debug, Clone, PartialEq)]
enum Expression {
    And(Vec<Expression>),
    Or(Vec<Expression>),
    Not(Box<Expression>),
    Compare { path: Vec<String>, test: Test },
}

#[derive(Debug, Clone, PartialEq)]
enum Test {
    Exists,
    Equal(Literal),
    Different(Literal),
    /// In this order to the value.
    Ordered(Literal, [bool; 3]),
    Contains(Vec<u8>),
    Begins(Vec<u8>),
    OneOf(Vec<Literal>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Literal {
    Null,
    Bool(bool),
    Number(Number),
    /// The bytes of a string. Half of a surrogate pair, which JSON permits, is not UTF-8.
    Text(Vec<u8>),
}

impl DocumentQuery {
    /// Whether a document passes.
    ///
    /// # Errors
    /// [`PickError`]: the document is not JSON.
    pub fn passes(&self, document: &[u8]) -> Result<bool, PickError> {
        self.0.passes(document)
    }
}

impl Expression {
    fn passes(&self, document: &[u8]) -> Result<bool, PickError> {
        Ok(match self {
            Self::Not(inner) => !inner.passes(document)?,
            Self::And(all) => {
                for one in all {
                    if !one.passes(document)? {
                        return Ok(false);
                    }
                }
                true
            }
            Self::Or(all) => {
                for one in all {
                    if one.passes(document)? {
                        return Ok(true);
                    }
                }
                false
            }
            Self::Compare { path, test } => match pick(document, path)? {
                None => false,
                Some(member) => test.passes(member)?,
            },
        })
    }
}

impl Test {
    /// Whether a member passes: itself, or one of its elements.
    fn passes(&self, member: &str) -> Result<bool, PickError> {
        if *self == Self::Exists {
            return Ok(true);
        }
        let found = member.trim_ascii_start();
        if !found.starts_with('[') {
            return self.holds(found);
        }
        let elements: Vec<&serde_json::value::RawValue> =
            serde_json::from_str(found).map_err(PickError)?;
        // Of an array that does not have it the value is different.
        if let Self::Different(value) = self {
            let equal = Self::Equal(value.clone());
            for element in elements {
                if equal.holds(element.get())? {
                    return Ok(false);
                }
            }
            return Ok(true);
        }
        for element in elements {
            if self.holds(element.get())? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether one value, which is no array, passes.
    fn holds(&self, found: &str) -> Result<bool, PickError> {
        let equals = |wanted: &Literal| Ok(Literal::of(found)?.as_ref() == Some(wanted));
        Ok(match self {
            Self::Exists => true,
            Self::Equal(wanted) => equals(wanted)?,
            Self::Different(wanted) => !equals(wanted)?,
            Self::Ordered(wanted, orders) => {
                let order = match (Literal::of(found)?, wanted) {
                    (Some(Literal::Number(found)), Literal::Number(wanted)) => found.cmp(wanted),
                    (Some(Literal::Text(found)), Literal::Text(wanted)) => found.cmp(wanted),
                    _ => return Ok(false),
                };
                let [less, equal, greater] = *orders;
                match order {
                    Ordering::Less => less,
                    Ordering::Equal => equal,
                    Ordering::Greater => greater,
                }
            }
            Self::Contains(part) => match Literal::of(found)? {
                Some(Literal::Text(text)) => memmem::find(&text, part).is_some(),
                _ => false,
            },
            Self::Begins(part) => match Literal::of(found)? {
                Some(Literal::Text(text)) => text.starts_with(part),
                _ => false,
            },
            Self::OneOf(wanted) => match Literal::of(found)? {
                Some(found) => wanted.contains(&found),
                None => false,
            },
        })
    }
}

impl Literal {
    /// The value of a JSON text; `None` for objects and arrays.
    fn of(json: &str) -> Result<Option<Self>, PickError> {
        Ok(match json.as_bytes().first() {
            Some(b'n') => Some(Self::Null),
            Some(b't') => Some(Self::Bool(true)),
            Some(b'f') => Some(Self::Bool(false)),
            Some(b'"') => Some(Self::Text(text(json)?)),
            Some(b'{' | b'[') | None => None,
            Some(_) => Number::parse(json.trim_ascii_end()).map(Self::Number),
        })
    }
}

#[cfg(test)]
mod tests;
