//! Replies of the text protocol, each of which ends its line.

use crate::resp::Reply;

/// `OK`, `NULL` and the like.
pub(super) fn word(word: &str, out: &mut Reply) {
    line(word.as_bytes(), out);
}

/// A line of these bytes; an error if they contain the end of a line, after which a client would
/// take the rest for further replies.
pub(super) fn line(bytes: &[u8], out: &mut Reply) {
    if is_line(bytes) {
        out.raw(bytes);
        out.raw(b"\n");
    } else {
        error(NOT_A_LINE, out);
    }
}

const NOT_A_LINE: &str = "the reply contains a line feed, which this protocol cannot represent; \
                          read the key over RESP";

fn is_line(bytes: &[u8]) -> bool {
    memchr::memchr(b'\n', bytes).is_none()
}

/// `ERROR` and the reason, always on one line.
pub(crate) fn error(reason: &str, out: &mut Reply) {
    out.raw(b"ERROR ");
    let reason = reason.strip_prefix("ERR ").unwrap_or(reason);
    line(reason.replace(['\r', '\n'], " ").as_bytes(), out);
}

/// `[a b c]`, under the rule of [`line`](fn@line).
pub(super) fn array<'w>(words: impl Iterator<Item = &'w [u8]> + Clone, out: &mut Reply) {
    enclosed("[", words, "]", out);
}

/// Words with a space between, under the rule of [`line`](fn@line).
pub(super) fn spaced<'w>(words: impl Iterator<Item = &'w [u8]> + Clone, out: &mut Reply) {
    enclosed("", words, "", out);
}

fn enclosed<'w>(
    open: &str,
    words: impl Iterator<Item = &'w [u8]> + Clone,
    close: &str,
    out: &mut Reply,
) {
    if !words.clone().all(is_line) {
        return error(NOT_A_LINE, out);
    }
    out.raw(open.as_bytes());
    for (index, word) in words.enumerate() {
        if index > 0 {
            out.raw(b" ");
        }
        out.raw(word);
    }
    out.raw(close.as_bytes());
    out.raw(b"\n");
}

/// `{"field":"value"}`, the fields in order.
pub(super) fn object(mut pairs: Vec<(&[u8], &[u8])>, out: &mut Reply) {
    pairs.sort_unstable();
    out.raw(b"{");
    for (index, (field, value)) in pairs.into_iter().enumerate() {
        if index > 0 {
            out.raw(b",");
        }
        string(field, out);
        out.raw(b":");
        string(value, out);
    }
    out.raw(b"}\n");
}

/// A JSON string (RFC 8259); invalid UTF-8 becomes U+FFFD.
fn string(bytes: &[u8], out: &mut Reply) {
    out.raw(b"\"");
    for char in String::from_utf8_lossy(bytes).chars() {
        match char {
            '"' => out.raw(b"\\\""),
            '\\' => out.raw(b"\\\\"),
            '\n' => out.raw(b"\\n"),
            '\r' => out.raw(b"\\r"),
            '\t' => out.raw(b"\\t"),
            control if control < ' ' => {
                out.raw(format!("\\u{:04x}", u32::from(control)).as_bytes());
            }
            char => out.raw(char.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out.raw(b"\"");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Reply)) -> String {
        let mut out = Reply::default();
        write(&mut out);
        String::from_utf8(out.take()).unwrap()
    }

    #[test]
    fn an_object_is_json_in_the_order_of_its_fields_on_one_line() {
        let pairs: Vec<(&[u8], &[u8])> =
            vec![(b"name", b"John \"J\" Doe\n"), (b"age", b"30"), (b"raw", b"\xff\x01")];
        let text = written(|out| object(pairs, out));
        assert_eq!(
            text,
            "{\"age\":\"30\",\"name\":\"John \\\"J\\\" Doe\\n\",\"raw\":\"\u{fffd}\\u0001\"}\n"
        );
    }

    #[test]
    fn a_value_that_would_break_its_line_is_an_error_on_one_line() {
        let refused = format!("ERROR {NOT_A_LINE}\n");
        assert_eq!(written(|out| line(b"a\nOK", out)), refused);
        assert_eq!(written(|out| array([&b"a"[..], b"\n"].into_iter(), out)), refused);
        assert_eq!(written(|out| spaced([&b"a\n"[..]].into_iter(), out)), refused);
        assert_eq!(written(|out| array([&b"a"[..], b"b\r"].into_iter(), out)), "[a b\r]\n");
    }

    #[test]
    fn a_reason_never_breaks_its_line() {
        assert_eq!(written(|out| error("ERR a\r\nb", out)), "ERROR a  b\n");
    }
}
