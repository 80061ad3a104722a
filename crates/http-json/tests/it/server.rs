//! A server on loopback whose answers are bytes that a test chooses.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    /// Path and parameters.
    pub(crate) target: String,
    /// Names in lower case, with values.
    pub(crate) headers: Vec<(String, String)>,
    /// Number of requests before it.
    pub(crate) index: usize,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The value of a parameter, as it is encoded.
    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        let (_, query) = self.target.split_once('?')?;
        query
            .split('&')
            .find_map(|pair| pair.split_once('=').filter(|(key, _)| *key == name))
            .map(|(_, value)| value)
    }
}

/// Makes the answer to a request.
type Answers = dyn Fn(&Request) -> Vec<u8> + Send + Sync;

/// The server. It ends when it is dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
    is_ended: Arc<AtomicBool>,
}

impl Server {
    /// Starts a server. A connection stays open unless an answer has `connection: close`.
    pub(crate) fn start(answers: impl Fn(&Request) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (requests, is_ended) =
            (Arc::<Mutex<Vec<Request>>>::default(), Arc::<AtomicBool>::default());
        let (seen, ended, answers) =
            (Arc::clone(&requests), Arc::clone(&is_ended), Arc::new(answers));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                let (seen, answers) = (Arc::clone(&seen), Arc::clone(&answers));
                std::thread::spawn(move || serve(stream.unwrap(), &seen, &*answers));
            }
        });
        Self { address, requests, is_ended }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The requests so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    /// Their paths and parameters.
    pub(crate) fn targets(&self) -> Vec<String> {
        self.requests().into_iter().map(|request| request.target).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.is_ended.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(self.address));
    }
}

fn serve(mut stream: TcpStream, seen: &Mutex<Vec<Request>>, answers: &Answers) {
    let mut lines = BufReader::new(stream.try_clone().unwrap());
    while let Some(mut request) = read(&mut lines) {
        {
            let mut seen = seen.lock().unwrap();
            request.index = seen.len();
            seen.push(request.clone());
        }
        let answer = answers(&request);
        let head = String::from_utf8_lossy(&answer).to_ascii_lowercase();
        if stream.write_all(&answer).is_err() || head.contains("connection: close") {
            return;
        }
    }
}

fn read(lines: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut line = String::new();
    lines.read_line(&mut line).ok().filter(|size| *size > 0)?;
    let target = line.split(' ').nth(1)?.to_owned();
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        lines.read_line(&mut line).ok().filter(|size| *size > 0)?;
        let line = line.trim_end();
        if line.is_empty() {
            return Some(Request { target, headers, index: 0 });
        }
        let (name, value) = line.split_once(':')?;
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
}

/// An answer with this status, with headers that each end with `\r\n`.
pub(crate) fn answer(status: &str, headers: &str, body: &str) -> Vec<u8> {
    let size = body.len();
    format!("HTTP/1.1 {status}\r\ncontent-length: {size}\r\n{headers}\r\n{body}").into_bytes()
}

/// An answer with JSON.
pub(crate) fn json(body: &str) -> Vec<u8> {
    answer("200 OK", "content-type: application/json\r\n", body)
}
