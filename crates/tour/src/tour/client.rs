//! A small blocking HTTP/1.1 client for loopback: one connection, one request at a time.
//!
//! The tour kills the server under its own requests, so it must know exactly which request was
//! answered completely. Nothing here retries: an error means "no complete response", and the caller
//! decides what that means for the request.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::HANGS_AFTER;

/// A connection that was idle for this long is not used again: the server closes idle ones
/// (`server.idle_timeout`), and a request sent at that moment would appear to be lost.
const IDLE_MAX: Duration = Duration::from_secs(20);
/// Maximum size of a response head.
const HEAD_SIZE_MAX: usize = 64 << 10;

/// A request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request<'a> {
    pub(super) method: &'a str,
    /// Path and query, escaped.
    pub(super) path: &'a str,
    pub(super) headers: &'a [(&'static str, String)],
    pub(super) body: &'a [u8],
}

impl<'a> Request<'a> {
    /// Returns a request without a body.
    pub(super) fn get(path: &'a str) -> Self {
        Self { method: "GET", path, headers: &[], body: &[] }
    }
}

/// A response, with its body if it was requested.
#[derive(Debug, Clone, Default)]
pub(super) struct Answer {
    pub(super) status: u16,
    headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Answer {
    /// Returns the value of a header; `name` in lower case.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Describes it for a message: its status and the beginning of its text.
    pub(super) fn describe(&self) -> String {
        let text: String = String::from_utf8_lossy(&self.body).chars().take(300).collect();
        format!("{} {text}", self.status)
    }
}

/// A connection, opened again after the server closed it.
#[derive(Debug)]
pub(super) struct Connection {
    address: SocketAddr,
    /// The open connection, and when it was last used.
    stream: Option<(TcpStream, Instant)>,
    /// Bytes of a response that were read and not used yet.
    held: Vec<u8>,
    idle_max: Duration,
}

impl Connection {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self { address, stream: None, held: Vec::new(), idle_max: IDLE_MAX }
    }

    /// Sends a request and reads the complete response.
    ///
    /// # Errors
    /// There was no complete response.
    pub(super) fn ask(&mut self, request: Request<'_>) -> io::Result<Answer> {
        let mut body = Vec::new();
        let mut answer = self.fetch(request, &mut |bytes| body.extend_from_slice(bytes))?;
        answer.body = body;
        Ok(answer)
    }

    /// Sends a request and passes the response body to `sink` as it arrives.
    ///
    /// # Errors
    /// There was no complete response.
    pub(super) fn fetch(
        &mut self,
        request: Request<'_>,
        sink: &mut dyn FnMut(&[u8]),
    ) -> io::Result<Answer> {
        let exchanged = self.exchange(request, sink);
        let closing = |answer: &Answer| answer.header("connection") == Some("close");
        if exchanged.as_ref().map_or(true, closing) {
            self.stream = None;
            self.held.clear();
        }
        exchanged
    }

    fn exchange(
        &mut self,
        request: Request<'_>,
        sink: &mut dyn FnMut(&[u8]),
    ) -> io::Result<Answer> {
        let mut stream = match self.stream.take() {
            Some((stream, used)) if used.elapsed() < self.idle_max => stream,
            _ => connect(self.address)?,
        };
        let sent = send(&mut stream, self.address, request);
        // A server that refuses a body may respond before it has read it.
        let answer = match self.read_head(&mut stream) {
            Ok(answer) => answer,
            Err(error) => return Err(sent.err().unwrap_or(error)),
        };
        let bodiless = request.method == "HEAD" || matches!(answer.status, 204 | 304);
        let length = answer.header("content-length").and_then(|length| length.parse().ok());
        let length: u64 = match length {
            _ if bodiless => 0,
            Some(length) => length,
            None => return Err(odd("a response does not declare its length")),
        };
        self.read_body(&mut stream, length, sink)?;
        if sent.is_ok() {
            self.stream = Some((stream, Instant::now()));
        }
        Ok(answer)
    }

    fn read_head(&mut self, stream: &mut TcpStream) -> io::Result<Answer> {
        loop {
            if let Some((answer, size)) = parse_head(&self.held)? {
                self.held.drain(..size);
                // 1xx responses precede another one.
                if answer.status >= 200 {
                    return Ok(answer);
                }
                continue;
            }
            if self.held.len() > HEAD_SIZE_MAX {
                return Err(odd("a response head is too long"));
            }
            let mut piece = [0; 16 << 10];
            let read = stream.read(&mut piece)?;
            if read == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            self.held.extend_from_slice(piece.get(..read).unwrap_or_default());
        }
    }

    fn read_body(
        &mut self,
        stream: &mut TcpStream,
        length: u64,
        sink: &mut dyn FnMut(&[u8]),
    ) -> io::Result<()> {
        let here = usize::try_from(length).unwrap_or(usize::MAX).min(self.held.len());
        sink(self.held.get(..here).unwrap_or_default());
        self.held.drain(..here);
        let mut left = length - here as u64;
        let mut piece = vec![0; 64 << 10];
        while left > 0 {
            let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(piece.len());
            let read = stream.read(piece.get_mut(..wanted).unwrap_or_default())?;
            if read == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            sink(piece.get(..read).unwrap_or_default());
            left -= read as u64;
        }
        Ok(())
    }
}

/// Begins an upload of `size` bytes, sends half of it, and stops there.
///
/// # Errors
/// The server cannot be reached.
pub(super) fn begin_upload(address: SocketAddr, path: &str, size: usize) -> io::Result<TcpStream> {
    let mut stream = connect(address)?;
    let head = format!("PUT {path} HTTP/1.1\r\nhost: {address}\r\ncontent-length: {size}\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    stream.write_all(&vec![0x5A; size / 2])?;
    Ok(stream)
}

/// Escapes a value for a query string (RFC 3986: everything but the unreserved characters).
pub(super) fn escape(value: &str) -> String {
    const UNRESERVED: &AsciiSet =
        &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    utf8_percent_encode(value, UNRESERVED).to_string()
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, HANGS_AFTER)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(HANGS_AFTER))?;
    stream.set_write_timeout(Some(HANGS_AFTER))?;
    Ok(stream)
}

fn send(stream: &mut TcpStream, address: SocketAddr, request: Request<'_>) -> io::Result<()> {
    let Request { method, path, headers, body } = request;
    let mut bytes = format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\n");
    for (name, value) in headers {
        bytes.push_str(&format!("{name}: {value}\r\n"));
    }
    if !matches!(method, "GET" | "HEAD") {
        bytes.push_str(&format!("content-length: {}\r\n", body.len()));
    }
    bytes.push_str("\r\n");
    let mut bytes = bytes.into_bytes();
    // A small body is sent with its head: one packet, one wake of the server.
    if body.len() <= 64 << 10 {
        bytes.extend_from_slice(body);
        return stream.write_all(&bytes);
    }
    stream.write_all(&bytes)?;
    stream.write_all(body)
}

fn parse_head(held: &[u8]) -> io::Result<Option<(Answer, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut headers);
    let size = match response.parse(held) {
        Ok(httparse::Status::Complete(size)) => size,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(odd("a response head is not HTTP")),
    };
    let headers = response
        .headers
        .iter()
        .map(|header| {
            let value = String::from_utf8_lossy(header.value).into_owned();
            (header.name.to_ascii_lowercase(), value)
        })
        .collect();
    let status = response.code.unwrap_or(0);
    Ok(Some((Answer { status, headers, body: Vec::new() }, size)))
}

fn odd(what: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Answers one request on each connection, then closes it without notice, as a server does with
    /// one that was idle for too long.
    fn serve(listener: &TcpListener, connections: usize) {
        for stream in listener.incoming().take(connections) {
            let mut stream = stream.unwrap();
            let mut head = [0; 4_096];
            assert!(stream.read(&mut head).unwrap() > 0);
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").unwrap();
        }
    }

    #[test]
    fn a_connection_that_was_idle_is_not_taken_for_a_lost_request() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut connection = Connection::new(listener.local_addr().unwrap());
        connection.idle_max = Duration::ZERO;
        std::thread::scope(|scope| {
            scope.spawn(|| serve(&listener, 2));
            for _ in 0..2 {
                assert_eq!(connection.ask(Request::get("/")).unwrap().body, b"ok");
            }
        });
    }
}
