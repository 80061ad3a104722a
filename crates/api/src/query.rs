//! Query strings, and the form of a page, which is written in the same way.
//!
//! Everything that reads one reads it here: access control, the check of names, and handlers cannot
//! disagree about what a request names.

/// Returns the names and values of a query string, decoded, in the order they were sent.
///
/// A value is bytes: a prefix of an object store need not be UTF-8. A name that is not UTF-8 is
/// shown approximately; no route has such a parameter.
#[must_use]
pub(crate) fn pairs(query: &str) -> Vec<(String, Vec<u8>)> {
    let decode = |text: &str| {
        let spaced = text.replace('+', " ");
        percent_encoding::percent_decode_str(&spaced).collect::<Vec<u8>>()
    };
    query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (String::from_utf8_lossy(&decode(name)).into_owned(), decode(value))
        })
        .collect()
}

/// Returns the values of a name, decoded, in the order they were sent.
pub(crate) fn values(query: &str, name: &str) -> impl Iterator<Item = Vec<u8>> {
    pairs(query).into_iter().filter(move |(found, _)| found == name).map(|(_, value)| value)
}

/// Returns the first value of a name, if it is UTF-8.
pub(crate) fn first(query: &str, name: &str) -> Option<String> {
    values(query, name).next().and_then(|value| String::from_utf8(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_value_of_a_name_is_taken_if_it_is_text() {
        assert_eq!(first("a=1&%6E=x+y&n=z", "n").as_deref(), Some("x y"));
        assert_eq!(first("n=%FF&n=z", "n"), None);
        assert_eq!(first("n", "n").as_deref(), Some(""));
        assert_eq!(first("N=1", "n"), None);
        assert_eq!(values("n=1&n=%FF&m=2", "n").count(), 2);
    }

    #[test]
    fn names_and_values_are_decoded_in_order() {
        let found = pairs("a=1&&b+c=%2Fx+y&flag&=v&d=%FF=");
        let expected: [(&str, &[u8]); 5] =
            [("a", b"1"), ("b c", b"/x y"), ("flag", b""), ("", b"v"), ("d", b"\xff=")];
        assert_eq!(found.len(), expected.len());
        for ((name, value), (wanted, bytes)) in found.iter().zip(expected) {
            assert_eq!((name.as_str(), value.as_slice()), (wanted, bytes));
        }
        assert!(pairs("").is_empty());
    }
}
