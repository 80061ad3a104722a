//! Names of types in SQL, parsed: the only way in which a name from outside enters a statement.
//!
//! ```text
//! type     = (builtin | name) { "[]" }
//! builtin  = word { word } [ modifier ] { word }       -- timestamp(3) with time zone
//! name     = part { "." part } [ modifier ]            -- "My schema".mood, public.geometry(Point,4326)
//! part     = word | quoted
//! modifier = "(" item { "," item } ")"                 -- item: a whole number or a word
//! ```
//!
//! Words are of ASCII letters, digits, `_` and `$`; those after the first of a built-in type are from
//! [`FOLLOWING`]. Invariant: [`TypeName::sql`] has no other tokens, so that it is one type and nothing
//! else, whatever the name was.

#![deny(clippy::indexing_slicing)]

use std::fmt::Write as _;

use crate::quote::quote_identifier;

/// Maximum size of a name in bytes: three quoted parts of 63 characters of 4 bytes, with a modifier.
const SIZE_MAX: usize = 1024;
/// Maximum number of parts, of items of a modifier, and of dimensions.
const PARTS_MAX: usize = 3;
const ITEMS_MAX: usize = 8;
const DIMENSIONS_MAX: usize = 6;

/// Words that follow the first one of a built-in type.
const FOLLOWING: [&str; 13] = [
    "precision",
    "varying",
    "with",
    "without",
    "time",
    "zone",
    "year",
    "month",
    "day",
    "hour",
    "minute",
    "second",
    "to",
];

/// The parsed name of a type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeName(String);

impl TypeName {
    /// Parses a name as `format_type` writes it; `None` if it is not the name of a type.
    ///
    /// ```
    /// use forebay_pgcopy::TypeName;
    ///
    /// assert!(TypeName::parse("numeric(10,2)[]").is_some());
    /// assert!(TypeName::parse("text using ''; drop table t").is_none());
    /// ```
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > SIZE_MAX {
            return None;
        }
        let mut rest = Rest(text);
        let mut sql = rest.part()?;
        let is_quoted = sql.starts_with('"');
        let mut parts = 1;
        while rest.take('.') {
            parts += 1;
            sql.push('.');
            sql.push_str(&rest.part()?);
        }
        if parts > PARTS_MAX {
            return None;
        }
        let may_follow = parts == 1 && !is_quoted;
        let mut has_modifier = false;
        loop {
            rest.skip_spaces();
            if rest.take('(') {
                if has_modifier {
                    return None;
                }
                has_modifier = true;
                sql.push_str(&rest.modifier()?);
            } else if may_follow && let Some(word) = rest.word() {
                if !FOLLOWING.contains(&word.to_ascii_lowercase().as_str()) {
                    return None;
                }
                sql.push(' ');
                sql.push_str(word);
            } else {
                break;
            }
        }
        let mut dimensions = 0;
        while rest.take('[') {
            dimensions += 1;
            if !rest.take(']') || dimensions > DIMENSIONS_MAX {
                return None;
            }
            sql.push_str("[]");
            rest.skip_spaces();
        }
        rest.0.is_empty().then_some(Self(sql))
    }

    /// The name, for a statement.
    #[must_use]
    pub fn sql(&self) -> &str {
        &self.0
    }
}

/// What is left to parse.
struct Rest<'a>(&'a str);

impl<'a> Rest<'a> {
    fn skip_spaces(&mut self) {
        self.0 = self.0.trim_start_matches(' ');
    }

    fn take(&mut self, wanted: char) -> bool {
        match self.0.strip_prefix(wanted) {
            Some(rest) => {
                self.0 = rest;
                true
            }
            None => false,
        }
    }

    /// A word, if one is next.
    fn word(&mut self) -> Option<&'a str> {
        let is_in = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$');
        let end = self.0.find(|c: char| !is_in(c)).unwrap_or(self.0.len());
        let (word, rest) = self.0.split_at_checked(end)?;
        if !word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
            return None;
        }
        self.0 = rest;
        Some(word)
    }

    /// A part of a name, for a statement.
    fn part(&mut self) -> Option<String> {
        if !self.take('"') {
            return self.word().map(str::to_owned);
        }
        let mut name = String::new();
        loop {
            let (before, rest) = self.0.split_once('"')?;
            name.push_str(before);
            self.0 = rest;
            if !self.take('"') {
                break;
            }
            name.push('"');
        }
        if name.is_empty() || name.contains('\0') {
            return None;
        }
        Some(quote_identifier(&name))
    }

    /// A modifier after its `(`, for a statement.
    fn modifier(&mut self) -> Option<String> {
        let mut sql = String::from("(");
        for at in 0..ITEMS_MAX {
            if at > 0 {
                sql.push(',');
            }
            self.skip_spaces();
            match self.word() {
                Some(word) => sql.push_str(word),
                None => write!(sql, "{}", self.number()?).ok()?,
            }
            self.skip_spaces();
            if self.take(')') {
                sql.push(')');
                return Some(sql);
            }
            if !self.take(',') {
                return None;
            }
        }
        None
    }

    fn number(&mut self) -> Option<i32> {
        let is_in = |c: char| c.is_ascii_digit() || c == '-';
        let end = self.0.find(|c: char| !is_in(c)).unwrap_or(self.0.len());
        let (number, rest) = self.0.split_at_checked(end)?;
        self.0 = rest;
        number.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sql(text: &str) -> Option<String> {
        TypeName::parse(text).map(|name| name.sql().to_owned())
    }

    #[test]
    fn names_of_types_are_written_as_they_were() {
        for text in [
            "integer",
            "double precision",
            "numeric(10,-2)",
            "character varying(20)[]",
            "timestamp(3) with time zone",
            "time without time zone[][]",
            "interval day to second(3)",
            "bit varying(5)",
            "\"char\"",
            "public.mood",
            "\"My \"\"schema\"\"\".\"größe; drop\"",
            "public.geometry(Point,4326)",
            "_private$1",
        ] {
            assert_eq!(sql(text).as_deref(), Some(text));
        }
        assert_eq!(sql("numeric( 10 , 2 )").as_deref(), Some("numeric(10,2)"));
    }

    #[test]
    fn what_is_more_than_a_type_is_none() {
        for text in [
            "",
            " text",
            "text using ''; drop table kept; --",
            "text; drop table kept",
            "text collate \"C\"",
            "text not null",
            "text default 1",
            "text primary key",
            "text check (true)",
            "public.mood with time zone",
            "\"mood\" varying",
            "numeric(10,2",
            "numeric(10)(2)",
            "numeric()",
            "numeric(1;2)",
            "numeric('1')",
            "numeric(1e9)",
            "numeric(99999999999)",
            "character varying(5)); drop table kept; --",
            "text[",
            "text[3]",
            "text[]x",
            "text -- ",
            "text/**/",
            "text\n;",
            "te\u{301}xt",
            "\"\"",
            "\"a\0b\"",
            "\"a",
            ".a",
            "a.",
            "a.b.c.d",
            "$1",
            "1",
        ] {
            assert_eq!(sql(text), None, "{text:?}");
        }
        assert_eq!(sql(&"a".repeat(2000)), None);
        assert_eq!(sql(&format!("text{}", "[]".repeat(7))), None);
    }
}
