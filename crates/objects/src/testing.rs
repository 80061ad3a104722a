//! Shared by tests: a runtime, and a server that always gives the same answer.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

/// Runs a future to its end.
pub(crate) fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(future)
}

/// Starts a server that answers every request with this status and body; returns its URL.
pub(crate) fn answering(status: &'static str, body: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let mut request = [0; 8192];
            // Requests without a body arrive at once.
            if stream.read(&mut request).is_ok() {
                let length = body.len();
                let head = format!(
                    "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
                );
                drop(stream.write_all(format!("{head}{body}").as_bytes()));
            }
        }
    });
    url
}
