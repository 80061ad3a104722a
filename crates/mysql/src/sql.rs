//! Names in SQL.
//!
//! Invariant: a name enters a statement through [`ident`] only. Values are parameters.

/// A name, quoted: any characters are allowed in it.
pub(crate) fn ident(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_quoted_and_its_quotes_are_doubled() {
        assert_eq!(ident("a`b\"c' :x ?"), "`a``b\"c' :x ?`");
    }
}
