//! JSON merge patch (RFC 7396) on the text of a document.
//!
//! The document is never turned into a tree of values: what the patch does not name is copied byte for
//! byte, so a number keeps its digits and a string its escapes.
//!
//! Invariant: recursion ends where the patch does, whose depth was checked.

use std::collections::HashMap;

use super::DocumentError;
use super::flatten::{Bounds, members, read};

/// Applies a patch to a document. Both are JSON objects; white space between members is dropped where
/// something changes.
///
/// # Errors
/// [`DocumentError`]: one of them is not a JSON object within the limits.
pub fn merge(document: &[u8], patch: &[u8], bounds: &Bounds) -> Result<Vec<u8>, DocumentError> {
    read(patch, bounds)?;
    let text = |bytes| {
        let text = std::str::from_utf8(bytes);
        text.map_err(|error| DocumentError::Utf8 { byte: error.valid_up_to() })
    };
    let mut out = String::with_capacity(document.len() + patch.len());
    merge_value(Some(text(document)?), text(patch)?, &mut out)?;
    Ok(out.into_bytes())
}

fn merge_value(target: Option<&str>, patch: &str, out: &mut String) -> Result<(), DocumentError> {
    if !patch.starts_with('{') {
        out.push_str(patch);
        return Ok(());
    }
    let target = match target.filter(|target| target.starts_with('{')) {
        Some(target) => members(target)?,
        None => Vec::new(),
    };
    let patch = members(patch)?;
    let values: HashMap<&str, &str> =
        patch.iter().map(|(key, value)| (key.as_ref(), value.get())).collect();
    let mut is_first = true;
    out.push('{');
    for (key, value) in &target {
        match values.get(key.as_ref()) {
            None => {
                begin(key, &mut is_first, out)?;
                out.push_str(value.get());
            }
            Some(&"null") => {}
            Some(change) => {
                begin(key, &mut is_first, out)?;
                merge_value(Some(value.get()), change, out)?;
            }
        }
    }
    let known: HashMap<&str, ()> = target.iter().map(|(key, _)| (key.as_ref(), ())).collect();
    for (key, value) in &patch {
        if !known.contains_key(key.as_ref()) && value.get() != "null" {
            begin(key, &mut is_first, out)?;
            merge_value(None, value.get(), out)?;
        }
    }
    out.push('}');
    Ok(())
}

/// Begins a member.
fn begin(key: &str, is_first: &mut bool, out: &mut String) -> Result<(), DocumentError> {
    if !std::mem::take(is_first) {
        out.push(',');
    }
    let key = serde_json::to_string(key).map_err(|error| DocumentError::Syntax {
        what: error.to_string(),
        line: error.line(),
        column: error.column(),
    })?;
    out.push_str(&key);
    out.push(':');
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { depth_max: 4, key_size_max: 64, flatten_depth: 4 };

    fn merged(document: &str, patch: &str) -> String {
        let merged = merge(document.as_bytes(), patch.as_bytes(), &BOUNDS).unwrap();
        String::from_utf8(merged).unwrap()
    }

    #[test]
    fn the_examples_of_the_standard_that_are_about_objects_hold() {
        for (document, patch, expected) in [
            (r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"a":null}"#, "{}"),
            (r#"{"a":"b","b":"c"}"#, r#"{"a":null}"#, r#"{"b":"c"}"#),
            (r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"c"}"#, r#"{"a":["b"]}"#, r#"{"a":["b"]}"#),
            (r#"{"a":{"b":"c"}}"#, r#"{"a":{"b":"d","c":null}}"#, r#"{"a":{"b":"d"}}"#),
            (r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#),
            (r#"{"e":null}"#, r#"{"a":1}"#, r#"{"e":null,"a":1}"#),
            ("{}", r#"{"a":{"bb":{"ccc":null}}}"#, r#"{"a":{"bb":{}}}"#),
        ] {
            assert_eq!(merged(document, patch), expected, "{document} {patch}");
        }
    }

    #[test]
    fn what_a_patch_does_not_name_keeps_its_bytes() {
        let document = "{ \"n\" : 1.10e400, \"s\":\"\\u0041\", \"o\": { \"x\" : [ 1 ] }, \"a\":1 }";
        let expected = r#"{"n":1.10e400,"s":"\u0041","o":{ "x" : [ 1 ] },"a":2}"#;
        assert_eq!(merged(document, r#"{"a":2}"#), expected);
    }

    #[test]
    fn a_patch_beyond_the_limits_or_that_is_no_object_is_refused() {
        for patch in ["[]", "null", "{", r#"{"a":{"b":{"c":{"d":{}}}}}"#, "\u{feff}{}"] {
            assert!(merge(b"{}", patch.as_bytes(), &BOUNDS).is_err(), "{patch}");
        }
    }
}
