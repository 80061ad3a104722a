//! Names as identifiers of SQL, for PostgreSQL and for SQLite.
//!
//! Invariant: a name from outside enters a statement only by way of this function, or as a
//! [`TypeName`](crate::TypeName).

/// Returns `name` as an SQL identifier: in double quotes, those inside doubled.
///
/// A NUL ends the text of a statement, so it is left out: no name of a server has one, and none that
/// is made here.
///
/// ```
/// assert_eq!(forebay_pgcopy::quote_identifier("we\"ird"), "\"we\"\"ird\"");
/// ```
#[must_use]
pub fn quote_identifier(name: &str) -> String {
    let mut quoted = String::with_capacity(name.len() + 2);
    quoted.push('"');
    for c in name.chars() {
        match c {
            '"' => quoted.push_str("\"\""),
            '\0' => {}
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_end_its_quotes_or_the_statement() {
        for (name, quoted) in [
            ("", "\"\""),
            ("select", "\"select\""),
            ("a\"; drop table b; --", "\"a\"\"; drop table b; --\""),
            ("\"\"", "\"\"\"\"\"\""),
            ("a\0b", "\"ab\""),
            ("größe", "\"größe\""),
        ] {
            assert_eq!(quote_identifier(name), quoted, "{name:?}");
        }
    }
}
