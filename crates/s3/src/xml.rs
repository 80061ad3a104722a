//! XML of requests, rewritten so that `s3s` reads what it means.
//!
//! The reader of `s3s` 0.14 refuses references to most characters beyond U+FFFF, which Python writes for them, and
//! leaves out CDATA sections: a key in one would be empty.
//!
//! Invariant: the rewritten text is the same document; elements, attributes and comments stay as they are.

use std::borrow::Cow;

use bytes::Bytes;
use s3s::{S3Error, S3Result, s3_error};

const CDATA: &[u8] = b"<![CDATA[";

/// Rewrites references to characters beyond U+FFFF, and CDATA sections, as text.
///
/// # Errors
/// `MalformedXML`: a section, a comment or a tag does not end, or there is a document type.
pub(crate) fn rewritten(xml: Bytes) -> S3Result<Bytes> {
    match rewrite(&xml)? {
        Cow::Borrowed(_) => Ok(xml),
        Cow::Owned(text) => Ok(text.into()),
    }
}

fn rewrite(xml: &[u8]) -> S3Result<Cow<'_, [u8]>> {
    let has = |wanted: &[u8]| xml.windows(wanted.len()).any(|found| found == wanted);
    if !has(CDATA) && !has(b"&#") {
        return Ok(Cow::Borrowed(xml));
    }
    let mut text = Vec::with_capacity(xml.len());
    let mut rest = xml;
    while let Some(first) = rest.first() {
        let size = match first {
            b'<' if rest.starts_with(CDATA) => {
                let size = through(rest, CDATA.len(), b"]]>")?;
                let content = rest.get(CDATA.len()..size - 3).unwrap_or_default();
                content.iter().for_each(|byte| escape(*byte, &mut text));
                rest = rest.get(size..).unwrap_or_default();
                continue;
            }
            b'<' if rest.starts_with(b"<!--") => through(rest, 4, b"-->")?,
            b'<' if rest.starts_with(b"<?") => through(rest, 2, b"?>")?,
            b'<' if rest.starts_with(b"<!") => return Err(malformed()),
            b'<' => tag_size(rest)?,
            b'&' => {
                if let Some((character, size)) = reference(rest) {
                    text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                    rest = rest.get(size..).unwrap_or_default();
                    continue;
                }
                1
            }
            _ => rest.iter().position(|byte| matches!(byte, b'<' | b'&')).unwrap_or(rest.len()),
        };
        let (kept, after) = rest.split_at_checked(size).ok_or_else(malformed)?;
        text.extend_from_slice(kept);
        rest = after;
    }
    Ok(Cow::Owned(text))
}

/// Returns the size of what ends with `end`, which is not looked for in the first `skipped` bytes.
fn through(rest: &[u8], skipped: usize, end: &[u8]) -> S3Result<usize> {
    let after = rest.get(skipped..).unwrap_or_default();
    let at = after.windows(end.len()).position(|found| found == end).ok_or_else(malformed)?;
    Ok(skipped + at + end.len())
}

/// Returns the size of a tag. A value in quotes may contain `>`.
fn tag_size(rest: &[u8]) -> S3Result<usize> {
    let mut quote = None;
    for (at, byte) in rest.iter().enumerate() {
        match (quote, byte) {
            (None, b'>') => return Ok(at + 1),
            (None, b'"' | b'\'') => quote = Some(*byte),
            (Some(open), byte) if open == *byte => quote = None,
            _ => {}
        }
    }
    Err(malformed())
}

/// Reads a reference to a character beyond U+FFFF, and returns its size. Others need no change.
fn reference(rest: &[u8]) -> Option<(char, usize)> {
    let body = rest.strip_prefix(b"&#")?;
    // More digits than any character needs are refused later.
    let end = body.iter().take(12).position(|byte| *byte == b';')?;
    let digits = std::str::from_utf8(body.get(..end)?).ok()?;
    let number = match digits.strip_prefix('x') {
        Some(hex) if hex.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            u32::from_str_radix(hex, 16).ok()?
        }
        None if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits.parse().ok()?,
        _ => return None,
    };
    let character = char::from_u32(number).filter(|_| number > 0xFFFF)?;
    Some((character, end + b"&#;".len()))
}

fn escape(byte: u8, text: &mut Vec<u8>) {
    match byte {
        b'&' => text.extend_from_slice(b"&amp;"),
        b'<' => text.extend_from_slice(b"&lt;"),
        b'>' => text.extend_from_slice(b"&gt;"),
        byte => text.push(byte),
    }
}

fn malformed() -> S3Error {
    s3_error!(
        MalformedXML,
        "The XML you provided was not well-formed or did not validate against our published schema."
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(xml: &str) -> String {
        String::from_utf8(rewrite(xml.as_bytes()).unwrap().into_owned()).unwrap()
    }

    #[test]
    fn references_beyond_the_basic_plane_become_characters() {
        assert_eq!(of("<a>x&#128512;y&#x1F600;&#x10FFFF;</a>"), "<a>x😀y😀\u{10FFFF}</a>");
        for same in [
            "<a>&#65;&#xFFFD;&amp;&lt;&#x110000;&#-1;&#+70000;&#x;&#;&#128512</a>",
            "<a b='&#128512;'><!-- &#128512; --><?p &#128512;?></a>",
            "<a b='>&#128512;' c=\"'>&#128512;\"/>",
        ] {
            assert_eq!(of(same), same);
        }
    }

    #[test]
    fn a_section_becomes_text_and_what_only_looks_like_one_stays() {
        assert_eq!(of("<a><![CDATA[b]]></a>"), "<a>b</a>");
        assert_eq!(of("<a>x<![CDATA[<&>]]]]>y<![CDATA[]]></a>"), "<a>x&lt;&amp;&gt;]]y</a>");
        assert_eq!(of("<a><![CDATA[&#128512;]]></a>"), "<a>&amp;#128512;</a>");
        for same in ["<a><!-- <![CDATA[b]]> --></a>", "<a b='<![CDATA[b]]>'/>"] {
            assert_eq!(of(same), same);
        }
    }

    #[test]
    fn what_does_not_end_and_document_types_are_malformed() {
        for wrong in [
            "<a><![CDATA[b]]",
            "<a><!-- <![CDATA[b]]> </a>",
            "<a b='<![CDATA[b]]>",
            "<!DOCTYPE a [<!ENTITY b '<![CDATA[c]]>'>]><a/>",
        ] {
            assert!(rewrite(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_text_in_a_section_reads_back(text in "[^\u{0}]{0,20}") {
            prop_assume!(!text.contains("]]>"));
            let read = of(&format!("<a><![CDATA[{text}]]></a>"));
            let read = read.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
            prop_assert_eq!(read, format!("<a>{text}</a>"));
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(text) = rewrite(&[b"<![CDATA[]]>&#".as_slice(), &bytes].concat()) {
                prop_assert!(!text.starts_with(CDATA));
            }
        }
    }
}
