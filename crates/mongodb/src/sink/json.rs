//! JSON documents as BSON, if that preserves every byte.
//!
//! A document that is an object in canonical form (no white space between tokens, no needless
//! escape, numbers as they are printed here) becomes a BSON document, which a database can query;
//! printing it returns the original. Any other document stays text. So most machine-written
//! documents can be queried, and nothing is stored twice. `print` says how a reader has to print
//! them.
//!
//! Invariants:
//! * `print` of the result of [`parse`] returns the input, byte for byte, or `parse` returns
//!   `None`. Neither depends on how a library prints numbers or strings.
//! * Nothing is created that a server may refuse or change: empty or repeated keys, keys with a dot
//!   or a leading `$`, arrays in arrays, negative zero, U+0000, and nesting beyond [`DEPTH_MAX`]
//!   stay text.

use mongodb::bson::raw::{CString, RawArrayBuf, RawBson, RawDocumentBuf};

mod print;
pub(crate) use print::print;

/// Maximum nesting of objects and arrays; a server supports 100 levels, some fewer.
const DEPTH_MAX: usize = 32;

/// The object in `raw`; `None` if it is not one, or in another form.
pub(crate) fn parse(raw: &[u8]) -> Option<RawDocumentBuf> {
    let mut parser = Parser { rest: std::str::from_utf8(raw).ok()? };
    let object = parser.object(0)?;
    parser.rest.is_empty().then_some(object)
}

struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    /// Passes over `token` if it is next.
    fn take(&mut self, token: &str) -> bool {
        let rest = self.rest.strip_prefix(token);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn object(&mut self, depth: usize) -> Option<RawDocumentBuf> {
        if depth >= DEPTH_MAX || !self.take("{") {
            return None;
        }
        let mut object = RawDocumentBuf::new();
        let mut keys: Vec<&str> = Vec::new();
        while !self.take("}") {
            if !keys.is_empty() && !self.take(",") {
                return None;
            }
            let key = self.key()?;
            keys.push(key);
            let name = CString::try_from(key).ok()?;
            object.append(name, self.value(depth + 1, true)?);
        }
        keys.sort_unstable();
        let is_doubled = keys.windows(2).any(|pair| pair.first() == pair.last());
        (!is_doubled).then_some(object)
    }

    /// A key and its colon.
    fn key(&mut self) -> Option<&'a str> {
        let rest = self.rest.strip_prefix('"')?;
        let (key, after) = rest.split_once('"')?;
        let is_odd = |c: char| c < ' ' || c == '\\' || c == '.';
        if key.is_empty() || key.starts_with('$') || key.contains(is_odd) {
            return None;
        }
        self.rest = after.strip_prefix(':')?;
        Some(key)
    }

    fn value(&mut self, depth: usize, arrays: bool) -> Option<RawBson> {
        match self.rest.as_bytes().first()? {
            b'{' => self.object(depth).map(RawBson::Document),
            b'[' if arrays => self.array(depth).map(RawBson::Array),
            b'"' => self.string().map(RawBson::String),
            b't' => self.take("true").then_some(RawBson::Boolean(true)),
            b'f' => self.take("false").then_some(RawBson::Boolean(false)),
            b'n' => self.take("null").then_some(RawBson::Null),
            _ => self.number(),
        }
    }

    fn array(&mut self, depth: usize) -> Option<RawArrayBuf> {
        if depth >= DEPTH_MAX || !self.take("[") {
            return None;
        }
        let mut array = RawArrayBuf::new();
        let mut is_first = true;
        while !self.take("]") {
            if !is_first && !self.take(",") {
                return None;
            }
            is_first = false;
            array.push(self.value(depth + 1, false)?);
        }
        Some(array)
    }

    fn string(&mut self) -> Option<String> {
        let mut rest = self.rest.strip_prefix('"')?;
        let mut text = String::new();
        loop {
            let end = rest.find(|c: char| c == '"' || c == '\\' || c < ' ')?;
            text.push_str(rest.get(..end)?);
            let (found, after) = rest.as_bytes().get(end).zip(rest.get(end + 1..))?;
            match found {
                b'"' => {
                    self.rest = after;
                    return Some(text);
                }
                b'\\' => {
                    let escaped = after.chars().next()?;
                    let (_, plain) = ESCAPES.iter().find(|(escape, _)| *escape == escaped)?;
                    text.push(*plain);
                    // Every escape known is one byte.
                    rest = after.get(1..)?;
                }
                _ => return None,
            }
        }
    }

    fn number(&mut self) -> Option<RawBson> {
        let is_end = |c: char| matches!(c, ',' | '}' | ']');
        let (text, rest) = self.rest.split_at(self.rest.find(is_end)?);
        self.rest = rest;
        let digits = text.strip_prefix('-').unwrap_or(text);
        if digits.bytes().all(|byte| byte.is_ascii_digit()) {
            let whole: i64 = text.parse().ok()?;
            return (whole.to_string() == text).then_some(RawBson::Int64(whole));
        }
        if !digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
            return None;
        }
        let real: f64 = text.parse().ok()?;
        let is_plain = real.is_finite() && (real != 0.0 || real.is_sign_positive());
        (is_plain && real_text(real) == text).then_some(RawBson::Double(real))
    }
}

/// What stands after a backslash, and for what. Escapes of other notations are not plain.
const ESCAPES: [(char, char); 7] = [
    ('"', '"'),
    ('\\', '\\'),
    ('n', '\n'),
    ('r', '\r'),
    ('t', '\t'),
    ('b', '\u{8}'),
    ('f', '\u{c}'),
];

/// A double in its shortest digits, never with an exponent, always with a point (which `Display` of `f64`
/// promises but for the last).
fn real_text(real: f64) -> String {
    let text = real.to_string();
    if text.contains('.') { text } else { text + ".0" }
}

#[cfg(test)]
mod tests {
    use mongodb::bson::Document;
    use proptest::prelude::*;

    use super::*;
    use forebay_sink::conformance::HOSTILE_DOCUMENTS;

    fn there_and_back(raw: &[u8]) -> Option<Vec<u8>> {
        let parsed = parse(raw)?;
        Some(print(&Document::try_from(parsed.as_ref()).unwrap()).unwrap())
    }

    #[test]
    fn plain_objects_become_documents_and_are_printed_as_they_came() {
        for raw in [
            "{}",
            r#"{"a":1,"b":-9223372036854775808,"c":0.1,"d":1.0,"e":-12.5,"f":true,"g":null}"#,
            r#"{"a":{"b":{"c":[1,"x",{"d":[]},{}]}},"text":"\"\\\n\r\t\b\f/\u007f é 🦀"}"#,
            r#"{"a":0,"b":0.0,"c":123456789012345680000.0,"d":0.000001}"#,
        ] {
            // The DEL, which needs no escape, was written as one above.
            let raw = raw.replace("\\u007f", "\u{7f}");
            assert_eq!(there_and_back(raw.as_bytes()).as_deref(), Some(raw.as_bytes()), "{raw}");
        }
    }

    #[test]
    fn whatever_could_come_back_otherwise_stays_text() {
        for raw in [
            "",
            "1",
            "[]",
            "null",
            "\"a\"",
            "{",
            "{}}",
            " {}",
            "{} ",
            "{\"a\": 1}",
            "{\"a\":1,}",
            "{,\"a\":1}",
            "{\"a\":1\"b\":2}",
            "{\"a\":01}",
            "{\"a\":-0}",
            "{\"a\":-0.0}",
            "{\"a\":1.50}",
            "{\"a\":1e3}",
            "{\"a\":1.}",
            "{\"a\":.5}",
            "{\"a\":-}",
            "{\"a\":1.2.3}",
            "{\"a\":9223372036854775808}",
            "{\"a\":0.1000000000000000055}",
            "{\"a\":\"\\u0041\"}",
            "{\"a\":\"\\/\"}",
            "{\"a\":\"\u{1}\"}",
            "{\"a\":\"\\u0000\"}",
            "{\"\":1}",
            "{\"a.b\":1}",
            "{\"$a\":1}",
            "{\"a\\n\":1}",
            "{\"a\":1,\"a\":1}",
            "{\"a\":[[]]}",
            "{\"a\":nul}",
            "{\"a\":truefalse}",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a",
            "{\"a\":\"x",
        ] {
            assert!(parse(raw.as_bytes()).is_none(), "{raw}");
        }
        let deep = "{\"a\":".repeat(40) + "1" + &"}".repeat(40);
        assert!(parse(deep.as_bytes()).is_none());
        assert!(parse("[".repeat(100_000).as_bytes()).is_none());
    }

    proptest! {
        #[test]
        fn what_is_parsed_is_printed_as_it_was(
            raw in r#"\{("[a-c]{1,2}":(-?[0-9]{1,20}|[0-9]{1,3}\.[0-9]{1,20}|"[ -~]{0,4}"|\{\}|\[\]|null),?){0,3}\}"#,
            other in any::<Vec<u8>>(),
        ) {
            for raw in [raw.as_bytes(), &other] {
                if let Some(printed) = there_and_back(raw) {
                    prop_assert_eq!(printed, raw);
                }
            }
        }

        #[test]
        fn what_serde_prints_is_mostly_plain(whole in any::<i64>(), text in "[^\0-\u{1f}]{0,10}") {
            let raw = serde_json::json!({"n": whole, "t": text}).to_string();
            prop_assert_eq!(there_and_back(raw.as_bytes()), Some(raw.into_bytes()));
        }
    }

    #[test]
    fn hostile_documents_come_back_or_stay() {
        for raw in HOSTILE_DOCUMENTS {
            assert!(there_and_back(raw).is_none_or(|printed| printed == *raw));
        }
    }
}
