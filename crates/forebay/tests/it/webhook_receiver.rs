//! A receiver of webhooks and alerts in the process of a test.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc::{Receiver as Arrivals, Sender, channel};

use forebay_base::fs::sim::Rng;
use serde_json::Value;
use tempfile::TempDir;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::support::HANG;

/// A request as the receiver got it.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) id: String,
    /// Its header `webhook-timestamp`.
    pub(crate) timestamp: String,
    /// Its header `webhook-signature`; empty: it is not signed.
    pub(crate) signature: String,
    pub(crate) bytes: Vec<u8>,
    pub(crate) body: Value,
}

impl Request {
    pub(crate) fn kind(&self) -> &str {
        self.body["type"].as_str().unwrap()
    }

    pub(crate) fn name(&self) -> &str {
        self.body["data"]["name"].as_str().unwrap_or_default()
    }
}

/// A receiver in this process.
pub(crate) struct Receiver {
    address: SocketAddr,
    is_tls: bool,
    pub(crate) arrivals: Arrivals<Request>,
}

impl Receiver {
    /// * `refuses`: of this many requests one is answered 500.
    pub(crate) fn start(refuses: Option<u64>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, arrivals) = channel();
        std::thread::spawn(move || {
            let mut rng = Rng::new(9);
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                stream.set_read_timeout(Some(HANG)).unwrap();
                let refused = refuses.is_some_and(|of| rng.below(of.try_into().unwrap()) == 0);
                // A client that was killed leaves half a request.
                serve(stream, refused, &sender).unwrap_or_default();
            }
        });
        Self { address, is_tls: false, arrivals }
    }

    /// Over HTTPS, as `localhost`. The certificate is in `cert.pem`.
    pub(crate) fn start_tls(dir: &TempDir) -> Self {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        std::fs::write(dir.path().join("cert.pem"), made.cert.pem()).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        let config = Arc::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, arrivals) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                stream.set_read_timeout(Some(HANG)).unwrap();
                let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
                // A client that does not trust the certificate leaves.
                serve(StreamOwned::new(connection, stream), false, &sender).unwrap_or_default();
            }
        });
        Self { address, is_tls: true, arrivals }
    }

    pub(crate) fn url(&self) -> String {
        match self.is_tls {
            true => format!("https://localhost:{}/in", self.address.port()),
            false => format!("http://{}/in", self.address),
        }
    }

    /// The next request, which has a signature.
    pub(crate) fn next(&self) -> Request {
        let request = self.arrivals.recv_timeout(HANG).unwrap();
        assert!(request.signature.starts_with("v1,"), "{request:?}");
        request
    }
}

fn serve(mut stream: impl Read + Write, refused: bool, to: &Sender<Request>) -> Option<()> {
    let mut bytes = Vec::new();
    let (head, at, size) = loop {
        let mut piece = [0; 8_192];
        let count = stream.read(&mut piece).ok().filter(|count| *count > 0)?;
        bytes.extend_from_slice(piece.get(..count)?);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some(end) = text.find("\r\n\r\n") else { continue };
        let head = text.get(..end)?.to_owned();
        let size = head.lines().find_map(|line| line.strip_prefix("content-length: "))?;
        let size: usize = size.parse().ok()?;
        if bytes.len() >= end + 4 + size {
            break (head, end + 4, size);
        }
    };
    let header = |name: &str| {
        let found = head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        found.map(str::to_owned)
    };
    let bytes = bytes.get(at..at + size)?.to_vec();
    let body = serde_json::from_slice(&bytes).ok()?;
    let status = if refused { "500 No" } else { "200 OK" };
    if !refused {
        let signature = header("webhook-signature").unwrap_or_default();
        let (id, timestamp) = (header("webhook-id")?, header("webhook-timestamp")?);
        to.send(Request { id, timestamp, signature, bytes, body }).ok()?;
    }
    let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    stream.write_all(answer.as_bytes()).ok()?;
    stream.flush().ok()
}
