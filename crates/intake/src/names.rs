//! Names that come from outside: namespaces and file names.
//!
//! Invariants: a value of these types has passed its rules, so the rest of the crate never checks
//! again; neither is ever used as a path on disk (blobs are addressed by digest and log position)
//! or spliced into SQL; neither holds a control character, so both may appear in a log line.

use std::fmt;
use std::sync::Arc;

/// Longest namespace in bytes.
pub const NAMESPACE_SIZE_MAX: usize = 64;
/// Longest file name (a path below its namespace) in bytes.
pub const FILE_NAME_SIZE_MAX: usize = 1_024;
/// Longest comment kept with a file, in bytes.
pub const COMMENT_SIZE_MAX: usize = 4_096;

/// Why a name was refused. The message says what to change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// The name is empty.
    #[error("{what} is empty")]
    Empty {
        /// The kind of name.
        what: &'static str,
    },
    /// The name is longer than its limit.
    #[error("{what} is {size} bytes long; the limit is {size_max}")]
    TooLong {
        /// The kind of name.
        what: &'static str,
        /// Its length in bytes.
        size: usize,
        /// The limit in bytes.
        size_max: usize,
    },
    /// A character that is not allowed there.
    #[error("{what} contains the character {found} at byte {offset}; {allowed}")]
    Character {
        /// The kind of name.
        what: &'static str,
        /// The character, escaped.
        found: String,
        /// Its byte offset.
        offset: usize,
        /// The rule.
        allowed: &'static str,
    },
    /// An empty, `.` or `..` component.
    #[error(
        "{what} contains the component {component:?}; a name consists of components other than \
         \".\" and \"..\", joined by single slashes"
    )]
    Component {
        /// The kind of name.
        what: &'static str,
        /// The component.
        component: String,
    },
}

/// A namespace: 1 to 64 of `a-z 0-9 . _ -`, beginning with a letter or digit.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Namespace(Arc<str>);

impl Namespace {
    /// Parses a namespace.
    ///
    /// # Errors
    /// [`NameError`] names the rule that the text breaks.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        const WHAT: &str = "the namespace";
        check_size(WHAT, text, NAMESPACE_SIZE_MAX)?;
        for (offset, character) in text.char_indices() {
            let plain = character.is_ascii_lowercase() || character.is_ascii_digit();
            let inner = offset > 0 && matches!(character, '.' | '_' | '-');
            if !plain && !inner {
                return Err(NameError::Character {
                    what: WHAT,
                    found: character.escape_default().to_string(),
                    offset,
                    allowed: "a namespace is a-z, 0-9 and, after the first, '.', '_' and '-'",
                });
            }
        }
        Ok(Self(text.into()))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A file's name inside its namespace: components joined by `/`, none of them empty, `.` or `..`. One of
/// an object store may end with one `/`: so its clients mark directories.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileName(Arc<str>);

impl FileName {
    /// Parses a file name.
    ///
    /// # Errors
    /// [`NameError`] names the rule that the text breaks.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        Self::parse_components(text, text, is_refused)
    }

    /// Parses the name of a file that is there already, or of an object: it may end with a slash.
    ///
    /// # Errors
    /// [`NameError`] names the rule that the text breaks.
    pub fn parse_object(text: &str) -> Result<Self, NameError> {
        Self::parse_components(text, text.strip_suffix('/').unwrap_or(text), is_refused)
    }

    /// Parses a name that is stored, perhaps by a version that accepted U+FFFE and U+FFFF.
    pub(crate) fn parse_stored(text: &str) -> Result<Self, NameError> {
        let components = text.strip_suffix('/').unwrap_or(text);
        Self::parse_components(text, components, |c| is_refused(c) && !is_noncharacter(c))
    }

    fn parse_components(
        text: &str,
        components: &str,
        is_refused: impl Fn(char) -> bool,
    ) -> Result<Self, NameError> {
        const WHAT: &str = "the file name";
        check_size(WHAT, text, FILE_NAME_SIZE_MAX)?;
        if let Some((offset, character)) = text.char_indices().find(|(_, c)| is_refused(*c)) {
            return Err(NameError::Character {
                what: WHAT,
                found: character.escape_default().to_string(),
                offset,
                allowed: "control characters, text-direction overrides, U+FFFE, U+FFFF and '\\' are \
                          not allowed",
            });
        }
        for component in components.split('/') {
            if matches!(component, "" | "." | "..") {
                return Err(NameError::Component { what: WHAT, component: component.to_owned() });
            }
        }
        Ok(Self(text.into()))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The part after the last slash.
    #[must_use]
    pub fn base_name(&self) -> &str {
        let name = self.0.strip_suffix('/').unwrap_or(&self.0);
        name.rsplit('/').next().unwrap_or(name)
    }

    /// The lower-cased extension of the last component, if it has one.
    #[must_use]
    pub fn extension(&self) -> Option<String> {
        let (stem, extension) = self.base_name().rsplit_once('.')?;
        (!stem.is_empty() && !extension.is_empty() && extension.len() <= 16)
            .then(|| extension.to_ascii_lowercase())
    }
}

/// Checks a comment: any text without control characters other than tab and newlines.
///
/// # Errors
/// [`NameError`] names the rule that the text breaks.
pub fn check_comment(text: &str) -> Result<(), NameError> {
    const WHAT: &str = "the comment";
    if text.len() > COMMENT_SIZE_MAX {
        return Err(NameError::TooLong {
            what: WHAT,
            size: text.len(),
            size_max: COMMENT_SIZE_MAX,
        });
    }
    let refused =
        text.char_indices().find(|(_, c)| is_unprintable(*c) && !matches!(c, '\t' | '\n' | '\r'));
    match refused {
        Some((offset, character)) => Err(NameError::Character {
            what: WHAT,
            found: character.escape_default().to_string(),
            offset,
            allowed: "control characters other than tab and newline, U+FFFE and U+FFFF are not \
                      allowed",
        }),
        None => Ok(()),
    }
}

/// The least text that is greater than every text which begins with `prefix`; `None` if there is none.
pub(crate) fn successor(prefix: &str) -> Option<String> {
    let mut text = prefix.to_owned();
    while let Some(last) = text.pop() {
        // The next scalar value; there are none between U+D7FF and U+E000.
        let next = match last {
            '\u{D7FF}' => Some('\u{E000}'),
            other => char::from_u32(u32::from(other) + 1),
        };
        if let Some(next) = next {
            text.push(next);
            return Some(text);
        }
    }
    None
}

fn check_size(what: &'static str, text: &str, size_max: usize) -> Result<(), NameError> {
    if text.is_empty() {
        return Err(NameError::Empty { what });
    }
    if text.len() > size_max {
        return Err(NameError::TooLong { what, size: text.len(), size_max });
    }
    Ok(())
}

/// Whether XML cannot contain a character, so that no client of the S3 port could read an answer with it.
pub(crate) fn is_noncharacter(character: char) -> bool {
    matches!(character, '\u{FFFE}' | '\u{FFFF}')
}

/// Whether a character is refused in every text.
pub(crate) fn is_unprintable(character: char) -> bool {
    character.is_control() || is_noncharacter(character)
}

/// Control characters, the overrides that make a name read differently from what it is (Unicode TR
/// 36, "bidirectional text spoofing"), and the backslash, which some clients use as a separator.
fn is_refused(character: char) -> bool {
    is_unprintable(character)
        || character == '\\'
        || matches!(character, '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}')
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_outside_the_plain_alphabet_are_refused() {
        for good in ["a", "logs", "a.b-c_d", "0", &"n".repeat(64)] {
            assert!(Namespace::parse(good).is_ok(), "{good}");
        }
        for bad in
            ["", ".", "..", "../x", "A", "a/b", "-a", "a b", "a\0", "é", "a;drop", &"n".repeat(65)]
        {
            assert!(Namespace::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn file_names_that_climb_or_hide_are_refused() {
        for good in ["a", "a/b.txt", "日本/語.png", "..a", "a..b", "...", "a b"] {
            assert!(FileName::parse(good).is_ok(), "{good}");
        }
        for bad in
            ["", "/a", "a/", "a//b", ".", "..", "a/../b", "a\\b", "a\nb", "a\0", "x\u{202E}gpj.exe"]
        {
            assert!(FileName::parse(bad).is_err(), "{bad:?}");
        }
        for unreadable in ["a\u{FFFE}", "a\u{FFFF}/b"] {
            assert!(FileName::parse(unreadable).is_err() && check_comment(unreadable).is_err());
            assert!(FileName::parse_stored(unreadable).is_ok());
        }
        assert!(FileName::parse(&"n".repeat(1_025)).is_err());
        for (object, is_valid) in [
            ("a/", true),
            ("a/b/", true),
            ("/", false),
            ("//", false),
            ("a//", false),
            ("../", false),
        ] {
            assert_eq!(FileName::parse_object(object).is_ok(), is_valid, "{object}");
        }
    }

    #[test]
    fn the_successor_follows_every_text_with_the_prefix() {
        assert_eq!(successor("ab").as_deref(), Some("ac"));
        assert_eq!(successor("a\u{10FFFF}").as_deref(), Some("b"));
        assert_eq!(successor("\u{D7FF}").as_deref(), Some("\u{E000}"));
        assert_eq!(successor("\u{10FFFF}"), None);
        assert!("ab\u{10FFFF}\u{10FFFF}" < successor("ab").unwrap().as_str());
    }

    #[test]
    fn extension_is_the_last_dotted_part_of_the_last_component() {
        let extension = |name: &str| FileName::parse(name).ok().and_then(|n| n.extension());
        assert_eq!(extension("a.b/c.TAR.GZ").as_deref(), Some("gz"));
        assert_eq!(extension("a.b/c"), None);
        assert_eq!(extension(".bashrc"), None);
    }
}
