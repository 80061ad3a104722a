//! SQL as text: lists of names, tables, assignments.

pub(super) use crate::quote::{literal, quote_identifier as ident};

/// Names, quoted, with commas between them.
pub(super) fn idents<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut list = String::new();
    for name in names {
        if !list.is_empty() {
            list.push_str(", ");
        }
        list.push_str(&ident(name));
    }
    list
}

/// A table and its schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TableName {
    pub(super) schema: String,
    pub(super) table: String,
}

impl TableName {
    pub(super) fn new(schema: &str, table: &str) -> Self {
        Self { schema: schema.to_owned(), table: table.to_owned() }
    }

    /// `table` or `schema.table`, with parts that contain dots or capitals in double quotes;
    /// `schema` if none is given. `None` if it is not a valid name.
    pub(super) fn parse(text: &str, schema: &str) -> Option<Self> {
        let mut parts = Vec::new();
        let mut rest = text;
        loop {
            let (part, after) = first_part(rest)?;
            parts.push(part);
            match after.strip_prefix('.') {
                Some(after) => rest = after,
                None if after.is_empty() => break,
                None => return None,
            }
        }
        match parts.as_slice() {
            [table] => Some(Self::new(schema, table)),
            [schema, table] => Some(Self::new(schema, table)),
            _ => None,
        }
    }

    /// In SQL.
    pub(super) fn sql(&self) -> String {
        format!("{}.{}", ident(&self.schema), ident(&self.table))
    }
}

/// For messages.
impl std::fmt::Display for TableName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.schema, self.table)
    }
}

/// The first part of a dotted name, and what follows it.
fn first_part(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find('.').unwrap_or(text.len());
        let (part, rest) = text.split_at(end);
        return (!part.is_empty() && !part.contains('"')).then(|| (part.to_owned(), rest));
    };
    let mut part = String::new();
    let mut rest = quoted;
    loop {
        let (before, after) = rest.split_once('"')?;
        part.push_str(before);
        match after.strip_prefix('"') {
            Some(after) => {
                part.push('"');
                rest = after;
            }
            None => return (!part.is_empty()).then_some((part, after)),
        }
    }
}

/// `a = b, c = d` for names: `SET` of an upsert.
pub(super) fn assignments(names: &[&str]) -> String {
    let one = |name: &&str| format!("{0} = EXCLUDED.{0}", ident(name));
    names.iter().map(one).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_texts_cannot_end_their_quotes() {
        assert_eq!(ident("a\"; DROP"), "\"a\"\"; DROP\"");
        assert_eq!(idents(["a", "B c"]), "\"a\", \"B c\"");
    }

    #[test]
    fn table_names_are_read_with_and_without_schema_and_quotes() {
        let name = |schema: &str, table: &str| Some(TableName::new(schema, table));
        assert_eq!(TableName::parse("t", "public"), name("public", "t"));
        assert_eq!(TableName::parse("s.t", "public"), name("s", "t"));
        assert_eq!(TableName::parse("\"a.b\".\"c\"\"d\"", "public"), name("a.b", "c\"d"));
        for text in ["", ".", "a.", "a.b.c", "\"a", "a\"b", "\"a\"b"] {
            assert_eq!(TableName::parse(text, "public"), None, "{text}");
        }
    }
}
