//! Distinguishes HTTP and TLS from the cache's protocols.
//!
//! A web page can make a browser send a request with an arbitrary body to any port of the browser's
//! machine. Where each line is a command, the lines of that body would run. What gives such a
//! request away precedes its body: the request line, and the header lines. The same holds for a TLS
//! handshake to a plain port, parts of which another server chose.
//!
//! Invariant: every line of an inline command and of the text protocol is checked by [`is_foreign`]
//! before it runs, and no line from the first foreign one on runs. Requests written as arrays are
//! not checked: no browser can be made to send one before a request line.

/// Methods of HTTP (RFC 9110, RFC 5789), WebDAV (RFC 4918) and the preface of HTTP/2 (RFC 9113).
const METHODS: [&[u8]; 18] = [
    b"GET",
    b"HEAD",
    b"POST",
    b"PUT",
    b"DELETE",
    b"CONNECT",
    b"OPTIONS",
    b"TRACE",
    b"PATCH",
    b"PRI",
    b"PROPFIND",
    b"PROPPATCH",
    b"MKCOL",
    b"COPY",
    b"MOVE",
    b"LOCK",
    b"UNLOCK",
    b"REPORT",
];

/// Headers that browsers send with every request, or with every request that has a body.
const HEADERS: [&[u8]; 7] = [
    b"host",
    b"origin",
    b"referer",
    b"user-agent",
    b"content-type",
    b"content-length",
    b"transfer-encoding",
];

/// The first two bytes of a TLS record with a handshake (RFC 8446, section 5.1).
const TLS_HANDSHAKE: [u8; 2] = [0x16, 0x03];

/// Whether a line belongs to HTTP, or is the beginning of a TLS handshake.
///
/// `GET key` is a command of the cache, so the method alone proves nothing: the line has to end
/// with the version, unquoted. `POST` is not a command in any protocol here.
pub(super) fn is_foreign(line: &[u8]) -> bool {
    if line.starts_with(&TLS_HANDSHAKE) {
        return true;
    }
    let line = line.trim_ascii();
    let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
    let (first, rest) = line.split_at(end);
    let is = |word: &[u8]| first.eq_ignore_ascii_case(word);
    if is(b"POST") || is_header(first) {
        return true;
    }
    // At least three words: `GET HTTP/1.1` reads a key of that name.
    let rest = rest.trim_ascii_start();
    let last = rest.iter().rposition(u8::is_ascii_whitespace).and_then(|at| rest.get(at + 1..));
    last.is_some_and(is_version) && METHODS.into_iter().any(is)
}

/// Whether a line begins with the name of a header and its colon.
fn is_header(first: &[u8]) -> bool {
    let colon = first.iter().position(|&byte| byte == b':');
    let name = colon.and_then(|at| first.get(..at));
    name.is_some_and(|name| HEADERS.iter().any(|header| name.eq_ignore_ascii_case(header)))
}

/// `HTTP/1.1` and the like.
fn is_version(word: &[u8]) -> bool {
    let number = word.split_at_checked(5).filter(|(name, _)| name.eq_ignore_ascii_case(b"HTTP/"));
    number.is_some_and(|(_, number)| {
        !number.is_empty() && number.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_lines_headers_and_handshakes_are_foreign() {
        for line in [
            "GET / HTTP/1.1",
            "get /key http/1.0\r\n",
            "POST / HTTP/1.1",
            "post",
            "  POST /x",
            "PUT /a b c HTTP/1.1",
            "OPTIONS * HTTP/1.1",
            "CONNECT 127.0.0.1:6380 HTTP/1.1",
            "GET http://127.0.0.1:6380/ HTTP/1.1",
            "GET\t/\tHTTP/2",
            "PRI * HTTP/2.0",
            "Host: 127.0.0.1:6380",
            "HOST:localhost",
            "host:",
            "Content-Length: 8",
            "\u{16}\u{3}\u{1}",
        ] {
            assert!(is_foreign(line.as_bytes()), "{line}");
        }
    }

    #[test]
    fn commands_are_not_foreign() {
        for line in [
            "",
            "GET key",
            "GET HTTP/1.1x y",
            "GET  HTTP/1.1",
            "GET",
            "SET status HTTP/1.1",
            "SET /status HTTP/1.1",
            "GET \"a HTTP/1.1\"",
            "DEL host:1",
            "PING",
            "SET host: x",
            "GET httpd/1",
            "HTTP/1.1",
            "hostess: x",
        ] {
            assert!(!is_foreign(line.as_bytes()), "{line}");
        }
    }
}
