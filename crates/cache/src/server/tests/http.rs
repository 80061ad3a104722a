//! HTTP sent to the cache's ports, as a web page can make a browser send it.

use std::io::Write as _;

use super::*;

/// What a page sends with
/// `fetch("http://127.0.0.1:6380/", {method: "POST", mode: "no-cors", body})`.
const POST: &str = "POST / HTTP/1.1\r\nHost: 127.0.0.1:6380\r\nConnection: keep-alive\r\n\
    Content-Length: 32\r\nContent-Type: text/plain;charset=UTF-8\r\nOrigin: http://evil.example\r\n\
    \r\nFLUSHALL\r\nSET planted 1\r\nFLUSHALL\r\n";

/// Requests whose first line must be enough; each is followed by commands.
const HEADS: [&str; 8] = [
    "GET /FLUSHALL HTTP/1.1\r\n",
    "\r\n\r\npost / http/1.1\r\n",
    "OPTIONS * HTTP/1.1\r\n",
    "PUT http://127.0.0.1:6380/a HTTP/1.0\r\n",
    "CONNECT 127.0.0.1:6380 HTTP/1.1\r\n",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "X-METHOD / HTTP/1.1\r\nHost: 127.0.0.1\r\n",
    "\u{16}\u{3}\u{1}\u{2}\r\n",
];

/// Sends bytes and waits until the connection is closed; returns what was received before that.
fn send_foreign(address: Option<SocketAddr>, bytes: &[u8], piece: usize) -> String {
    let mut stream = connect(address);
    for part in bytes.chunks(piece) {
        // The connection may already be closed.
        if stream.write_all(part).is_err() {
            break;
        }
    }
    let mut found = Vec::new();
    let mut byte = [0; 1];
    while let Ok(1) = stream.read(&mut byte) {
        found.push(byte[0]);
    }
    String::from_utf8_lossy(&found).into_owned()
}

#[test]
fn http_runs_no_command_on_either_protocol_and_ends_the_connection() {
    for way in WAYS {
        let server = start(way);
        let mut resp = connect(server.resp_address());
        ask(&mut resp, "SET kept 1\r\n", "+OK\r\n");
        let mut refused = 0;
        for address in [server.resp_address(), server.text_address()] {
            for piece in [1, 7, POST.len()] {
                assert_eq!(send_foreign(address, POST.as_bytes(), piece), "", "{way:?}");
                refused += 1;
            }
            for head in HEADS {
                let request = format!("{head}SET planted 1\r\nFLUSHALL\r\nFLUSHALL\r\n");
                let answer = send_foreign(address, request.as_bytes(), request.len());
                // Only an unknown method gets as far as a reply to a command.
                let (first, more) = answer.split_once('\n').unwrap_or_default();
                let unknown = first.is_empty() || first.contains("unknown command");
                assert!(unknown && more.is_empty(), "{way:?} {head:?}: {answer:?}");
                refused += 1;
            }
        }
        ask(&mut resp, "GET kept\r\nEXISTS planted\r\n", "$1\r\n1\r\n:0\r\n");
        assert_eq!(server.statistics().http_refused, refused);
    }
}

#[test]
fn commands_that_only_look_like_http_still_run() {
    for way in WAYS {
        let server = start(way);
        let mut resp = connect(server.resp_address());
        ask(&mut resp, "SET HTTP/1.1 a\r\nGET HTTP/1.1\r\n", "+OK\r\n$1\r\na\r\n");
        ask(&mut resp, "SET s HTTP/1.1\r\nGET \"a HTTP/1.1\"\r\n", "+OK\r\n$-1\r\n");
        let array = "*3\r\n$3\r\nGET\r\n$1\r\n/\r\n$8\r\nHTTP/1.1\r\n";
        let expected = "-ERR wrong number of arguments for 'get' command\r\n";
        ask(&mut resp, array, expected);
        ask(&mut resp, "*2\r\n$4\r\nPOST\r\n$1\r\n/\r\n", "-ERR unknown command 'POST'");
        let mut text = connect(server.text_address());
        ask(&mut text, "GET HTTP/1.1\nSET h HTTP/1.1\nGET h\n", "a\nOK\nHTTP/1.1\n");
        assert_eq!(server.statistics().http_refused, 0);
    }
}
