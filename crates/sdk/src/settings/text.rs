//! Texts of the pipeline file, in which `${NAME}` and `${file:PATH}` are replaced by other texts.
//!
//! The caller that reads the file resolves them: this crate does not know the environment. A value
//! is inserted as text: YAML or names in it are not interpreted.

use std::cell::RefCell;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};

/// Returns the value of a name: `NAME` or `file:PATH`.
pub type Resolve<'a> = dyn Fn(&str) -> Result<String, String> + 'a;

thread_local! {
    /// The resolver of names in the file that this thread reads.
    static RESOLVED: RefCell<Option<Resolver>> = const { RefCell::new(None) };
    /// The names that were resolved since they were last taken.
    static NAMED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// A resolver that is active while a file is read.
pub type Resolver = std::rc::Rc<dyn Fn(&str) -> Result<String, String>>;

/// Runs `read` with names resolved by `resolve`.
pub fn resolving<T>(resolve: Resolver, read: impl FnOnce() -> T) -> T {
    let before = RESOLVED.replace(Some(resolve));
    let result = read();
    RESOLVED.set(before);
    result
}

/// Takes the names resolved since the last call.
pub fn take_names() -> Vec<String> {
    NAMED.take()
}

/// A text.
#[derive(Debug, Clone, PartialEq, Eq, Default, JsonSchema)]
#[schemars(with = "String")]
pub struct Text(pub String);

/// A text that is never printed.
#[derive(Clone, PartialEq, Eq, Default, JsonSchema)]
#[schemars(with = "String")]
pub struct Secret(String);

impl Secret {
    /// The text itself.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        resolved(deserializer).map(Self)
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        resolved(deserializer).map(Self)
    }
}

fn resolved<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    resolve_text(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
}

/// Replaces the names in a text by their values, while settings are read.
///
/// # Errors
/// A name has no value.
pub fn resolve_text(text: String) -> Result<String, String> {
    let resolver = RESOLVED.with_borrow(Clone::clone);
    let Some(resolver) = resolver else { return Ok(text) };
    let named = |name: &str| {
        NAMED.with_borrow_mut(|names| names.push(name.to_owned()));
        resolver(name)
    };
    expand(&text, &named)
}

/// `text` with every `${...}` replaced. `$$` is a dollar sign; a single one stays.
fn expand(text: &str, resolve: &Resolve<'_>) -> Result<String, String> {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let (before, from) = rest.split_at(at);
        expanded.push_str(before);
        if let Some(after) = from.strip_prefix("$$") {
            expanded.push('$');
            rest = after;
        } else if let Some(after) = from.strip_prefix("${") {
            let (name, after) = after.split_once('}').ok_or("`${` without a closing `}`")?;
            expanded.push_str(&resolve(name)?);
            rest = after;
        } else {
            expanded.push('$');
            rest = from.get(1..).unwrap_or_default();
        }
    }
    expanded.push_str(rest);
    Ok(expanded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(name: &str) -> Result<String, String> {
        match name {
            "USER" => Ok("ann".into()),
            "file:/pw" => Ok("a$b${USER}".into()),
            _ => Err(format!("{name} is not set")),
        }
    }

    #[test]
    fn names_are_replaced_once_and_dollars_can_be_written() {
        for (text, expected) in [
            ("plain", "plain"),
            ("${USER}@x", "ann@x"),
            ("${file:/pw}", "a$b${USER}"),
            ("$${USER}", "${USER}"),
            ("a$b$", "a$b$"),
            ("${USER}${USER}", "annann"),
        ] {
            assert_eq!(expand(text, &known).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_not_known_is_said() {
        assert_eq!(expand("${NO}", &known), Err("NO is not set".into()));
        assert!(expand("${USER", &known).is_err());
    }

    #[test]
    fn a_secret_is_not_printed() {
        assert_eq!(format!("{:?}", Secret::from("hunter2".to_owned())), "***");
    }
}
