//! The header `Link` (RFC 8288): the address of the next page.

/// Maximum size of all values in bytes; more are not read.
const SIZE_MAX: usize = 64 << 10;

/// The target of the first link with the relation `next`, as it is written.
pub(crate) fn next<'a>(values: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let mut size = 0_usize;
    for value in values {
        size = size.saturating_add(value.len());
        if size > SIZE_MAX {
            return None;
        }
        if let Some(found) = next_in(value) {
            return Some(found);
        }
    }
    None
}

fn next_in(value: &str) -> Option<&str> {
    let mut rest = value;
    loop {
        rest = rest.trim_start_matches([',', ' ', '\t']);
        let (target, after) = rest.strip_prefix('<')?.split_once('>')?;
        let (is_next, after) = parameters(after);
        if is_next {
            return Some(target);
        }
        rest = after;
    }
}

/// Whether the parameters of a link have the relation `next`, and what follows them.
fn parameters(mut rest: &str) -> (bool, &str) {
    let mut relation: Option<&str> = None;
    loop {
        rest = rest.trim_start_matches([' ', '\t']);
        let Some(after) = rest.strip_prefix(';') else { break };
        let after = after.trim_start_matches([' ', '\t']);
        let end = after.find(['=', ';', ',', ' ', '\t']).unwrap_or(after.len());
        let (name, after) = after.split_at_checked(end).unwrap_or((after, ""));
        rest = after.trim_start_matches([' ', '\t']);
        let Some(after) = rest.strip_prefix('=') else { continue };
        let (value, after) = value(after.trim_start_matches([' ', '\t']));
        rest = after;
        // Only the first one counts (section 3.3).
        if name.eq_ignore_ascii_case("rel") {
            relation.get_or_insert(value);
        }
    }
    let relations = relation.unwrap_or_default().split_ascii_whitespace();
    let is_next = relations.into_iter().any(|relation| relation.eq_ignore_ascii_case("next"));
    // What is not understood ends with the next comma.
    let rest = rest.find(',').and_then(|at| rest.get(at..)).unwrap_or_default();
    (is_next, rest)
}

/// A token or a quoted text, without its quotes; escapes stay.
fn value(rest: &str) -> (&str, &str) {
    let Some(quoted) = rest.strip_prefix('"') else {
        let end = rest.find([';', ',', ' ', '\t']).unwrap_or(rest.len());
        return rest.split_at_checked(end).unwrap_or((rest, ""));
    };
    let mut is_escaped = false;
    let end = quoted.bytes().position(|byte| {
        let is_end = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        is_end
    });
    let end = end.unwrap_or(quoted.len());
    let after = quoted.get(end..).unwrap_or_default();
    (quoted.get(..end).unwrap_or_default(), after.strip_prefix('"').unwrap_or(after))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_target_of_the_relation_next_is_found() {
        for (values, expected) in [
            (
                &[r#"<https://h/?page=2>; rel="next", <https://h/?page=9>; rel="last""#][..],
                Some("https://h/?page=2"),
            ),
            (
                &[r#"<a>; rel=prev, <b,c;d>; title="x, <y>; rel=\"next\""; REL = next"#],
                Some("b,c;d"),
            ),
            (&[r#"<a>; rel="prev next""#], Some("a")),
            (&[r#"<a>; rel=prev; rel=next"#], None),
            (&["<a>; rel=first", "<b>; rel=next"], Some("b")),
            (&["<a>;rel=next"], Some("a")),
            (&["<a>; crossorigin; rel=next"], Some("a")),
            (&["<a>"], None),
            (&["<a; rel=next"], None),
            (&["a; rel=next"], None),
            (&[r#"<a>; rel="next"#], Some("a")),
            (&["", ",,"], None),
            (&[], None),
        ] {
            assert_eq!(next(values.iter().copied()), expected, "{values:?}");
        }
    }

    proptest! {
        #[test]
        fn no_header_makes_it_panic(value in "[<>;,=\"\\\\ relnxtü]{0,40}") {
            let found = next(std::iter::once(value.as_str()));
            prop_assert!(found.is_none_or(|found| value.contains(found)), "{found:?}");
        }
    }
}
