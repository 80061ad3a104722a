//! Documents as lines of JSON, one document a line.
//!
//! ```text
//! {"_id":7,"_received_ms":1700000000000,"_document":{"a": 1}}
//! ```
//!
//! A line contains its document byte for byte. A document that would break the line (line breaks,
//! surrounding spaces, not JSON at all) is stored as the string `_text`, or, if it is not even
//! UTF-8, as the hexadecimal digits `_hex`; both return the same bytes.
//!
//! `docs/formats/spill.md` describes the lines too.
//!
//! Invariants: pure; [`decode`] accepts any bytes and returns what [`encode`] was given.

use serde_json::value::RawValue;

use crate::sink::{Document, StoredDocument};

/// Appends a document as a separate line, including the line break.
pub fn encode(document: &Document<'_>, line: &mut Vec<u8>) {
    let (id, received_ms, raw) = (document.id, document.received_ms, document.raw);
    line.extend_from_slice(format!(r#"{{"_id":{id},"_received_ms":{received_ms},"#).as_bytes());
    if fits_line(raw) {
        line.extend_from_slice(b"\"_document\":");
        line.extend_from_slice(raw);
    } else if let Ok(text) = std::str::from_utf8(raw) {
        let text = serde_json::Value::from(text).to_string();
        line.extend_from_slice(format!("\"_text\":{text}").as_bytes());
    } else {
        line.extend_from_slice(b"\"_hex\":\"");
        line.extend_from_slice(hex::encode(raw).as_bytes());
        line.push(b'"');
    }
    line.extend_from_slice(b"}\n");
}

/// Whether a document can stand in a line as it is: one JSON value, no line breaks, and no spaces
/// around it, which a JSON reader would drop.
fn fits_line(raw: &[u8]) -> bool {
    !raw.starts_with(b" ")
        && !raw.ends_with(b" ")
        && raw.iter().all(|&byte| byte >= 0x20)
        && serde_json::from_slice::<&RawValue>(raw).is_ok()
}

/// The document of a line that [`encode`] made, line break included; `None` for any other.
#[must_use]
pub fn decode(line: &[u8]) -> Option<StoredDocument> {
    let line = line.strip_suffix(b"}\n")?;
    let (id, rest) = number(line.strip_prefix(b"{\"_id\":")?)?;
    let (received_ms, rest) = number(rest.strip_prefix(b",\"_received_ms\":")?)?;
    let raw = if let Some(raw) = rest.strip_prefix(b",\"_document\":") {
        raw.to_owned()
    } else if let Some(text) = rest.strip_prefix(b",\"_text\":") {
        serde_json::from_slice::<String>(text).ok()?.into_bytes()
    } else {
        hex::decode(rest.strip_prefix(b",\"_hex\":\"")?.strip_suffix(b"\"")?).ok()?
    };
    Some(StoredDocument { id, received_ms, raw })
}

/// The number at the front, and what follows it.
fn number(text: &[u8]) -> Option<(u64, &[u8])> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, rest) = text.split_at_checked(digits)?;
    Some((std::str::from_utf8(number).ok()?.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::HOSTILE_DOCUMENTS;

    fn line(raw: &[u8]) -> Vec<u8> {
        let mut line = Vec::new();
        encode(&Document { id: 7, received_ms: 5, raw }, &mut line);
        line
    }

    #[test]
    fn a_line_is_what_the_format_says() {
        let cases: [(&[u8], &str); 3] = [
            (b"{\"a\": 1}", "\"_document\":{\"a\": 1}"),
            (b"{\n}", "\"_text\":\"{\\n}\""),
            (b"\xff\x00", "\"_hex\":\"ff00\""),
        ];
        for (raw, member) in cases {
            let expected = format!("{{\"_id\":7,\"_received_ms\":5,{member}}}\n");
            assert_eq!(line(raw), expected.as_bytes());
        }
    }

    #[test]
    fn every_byte_of_a_document_comes_back() {
        for raw in HOSTILE_DOCUMENTS {
            let line = line(raw);
            assert_eq!(line.iter().filter(|&&byte| byte == b'\n').count(), 1, "{raw:?}");
            let expected = StoredDocument { id: 7, received_ms: 5, raw: raw.to_vec() };
            assert_eq!(decode(&line), Some(expected), "{raw:?}");
        }
    }

    #[test]
    fn a_changed_line_is_none() {
        let whole = line(b"{\"a\": 1}");
        for end in 0..whole.len() {
            assert_eq!(decode(&whole[..end]), None, "{end}");
        }
        for changed in [
            &b"{\"_id\":7,\"_received_ms\":5,\"_hex\":\"f\"}\n"[..],
            b"{\"_id\":7,\"_received_ms\":5,\"_hex\":\"zz\"}\n",
            b"{\"_id\":7,\"_received_ms\":5,\"_text\":7}\n",
            b"{\"_id\":-7,\"_received_ms\":5,\"_document\":{}}\n",
            b"{\"_id\":7,\"_received_ms\":99999999999999999999,\"_document\":{}}\n",
            b"{\"_received_ms\":5,\"_id\":7,\"_document\":{}}\n",
        ] {
            assert_eq!(decode(changed), None, "{:?}", String::from_utf8_lossy(changed));
        }
    }
}
