//! The query string of a request.

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

#[cfg(test)]
mod tests {
    use super::*;

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
