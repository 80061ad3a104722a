//! Names and values in the SQL of ClickHouse.
//!
//! Invariant: the lexer of the server reads what is written here as one name or one string, whatever is in it.
//! <https://clickhouse.com/docs/sql-reference/syntax> has the escapes.

/// Quotes a name of a table or column.
pub(crate) fn name(name: &str) -> String {
    quoted(name, '`')
}

/// Quotes names, separated by commas.
pub(crate) fn names<'a>(all: impl IntoIterator<Item = &'a str>) -> String {
    all.into_iter().map(name).collect::<Vec<_>>().join(", ")
}

/// Quotes a value.
pub(crate) fn text(text: &str) -> String {
    quoted(text, '\'')
}

fn quoted(text: &str, mark: char) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push(mark);
    for character in text.chars() {
        match character {
            '\\' => quoted.push_str("\\\\"),
            '\0' => quoted.push_str("\\0"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            other => {
                if other == mark {
                    quoted.push('\\');
                }
                quoted.push(other);
            }
        }
    }
    quoted.push(mark);
    quoted
}

/// The names of a list as the server writes it, such as the columns of a sorting key: `k`, or ``k, `a b` ``. `None`
/// if one of its elements is an expression.
pub(crate) fn plain_names(list: &str) -> Option<Vec<String>> {
    let mut names = Vec::new();
    let list = list.trim();
    // `ORDER BY (k)` is kept as it was written.
    let inner = list.strip_prefix('(').and_then(|list| list.strip_suffix(')'));
    let mut rest = inner.unwrap_or(list).trim();
    while !rest.is_empty() {
        let (name, after) = match rest.strip_prefix('`') {
            Some(quoted) => unquoted(quoted)?,
            None => {
                let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                let (name, after) = rest.split_at(end.unwrap_or(rest.len()));
                (name.to_owned(), after)
            }
        };
        if name.is_empty() {
            return None;
        }
        names.push(name);
        rest = match after.trim_start() {
            "" => "",
            more => more.strip_prefix(',')?.trim_start(),
        };
    }
    Some(names)
}

/// A quoted name after its first mark, and what follows it.
fn unquoted(quoted: &str) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '`' => return Some((name, quoted.get(at + 1..)?)),
            '\\' => name.push(match characters.next()?.1 {
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                '0' => '\0',
                'b' => '\u{8}',
                'f' => '\u{c}',
                other => other,
            }),
            other => name.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_are_one_token_whatever_is_in_them() {
        for (plain, as_name, as_text) in [
            ("orders", "`orders`", "'orders'"),
            ("a`b", "`a\\`b`", "'a`b'"),
            ("it's", "`it's`", "'it\\'s'"),
            ("\\", "`\\\\`", "'\\\\'"),
            ("\\'; DROP TABLE t --", "`\\\\'; DROP TABLE t --`", "'\\\\\\'; DROP TABLE t --'"),
            ("a\nb\0", "`a\\nb\\0`", "'a\\nb\\0'"),
            ("größe ✓", "`größe ✓`", "'größe ✓'"),
        ] {
            assert_eq!((name(plain), text(plain)), (as_name.to_owned(), as_text.to_owned()));
        }
        assert_eq!(names(["a", "b c"]), "`a`, `b c`");
    }

    #[test]
    fn a_sorting_key_is_read_if_it_has_only_names() {
        for (list, expected) in [
            ("k", Some(vec!["k"])),
            ("k, `a b`, `c(1)`", Some(vec!["k", "a b", "c(1)"])),
            ("`a\\`b\\\\`", Some(vec!["a`b\\"])),
            ("", Some(vec![])),
            ("k % 10", None),
            ("lower(k)", None),
            ("k, lower(k)", None),
            ("`unclosed", None),
            ("(k)", Some(vec!["k"])),
            ("((k))", None),
            ("(k, lower(k))", None),
        ] {
            let expected = expected.map(|all| all.into_iter().map(str::to_owned).collect());
            assert_eq!(plain_names(list), expected, "{list}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_name_is_read_back(names in proptest::collection::vec("\\PC{1,8}", 1..4)) {
            let list = super::names(names.iter().map(String::as_str));
            proptest::prop_assert_eq!(plain_names(&list), Some(names));
        }
    }
}
