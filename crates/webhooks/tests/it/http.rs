//! The HTTP transport: which addresses it connects to, what it sends, and what a receiver cannot do to it.

use std::future::Future;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine as _;
use forebay_base::clock::{Clock as _, SystemClock};
use forebay_base::fs::{FileSystem, RealFs};
use forebay_webhooks::{
    Allowed, DeliveryFilter, DeliveryState, Filter, Hooks, HttpTransport, Lookup, NewHook, Request,
    SendError, Source, SystemLookup, Transport,
};
use parking_lot::Mutex;
use ring::hmac;

use crate::support::{Keys, Memory, block_on, name_in, options};

/// A request as a receiver gets it.
#[derive(Debug, Clone)]
struct Received {
    head: String,
    body: Vec<u8>,
}

impl Received {
    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

/// A receiver that gives every connection one answer.
struct Receiver {
    address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
}

impl Receiver {
    fn start(answer: impl Fn(&mut TcpStream) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let received: Arc<Mutex<Vec<Received>>> = Arc::default();
        let seen = Arc::clone(&received);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let Some(request) = read(&mut stream) else { continue };
                seen.lock().push(request);
                answer(&mut stream);
            }
        });
        Self { address, received }
    }

    fn saying(answer: &'static str) -> Self {
        Self::start(move |stream| stream.write_all(answer.as_bytes()).unwrap())
    }

    fn url(&self) -> String {
        format!("http://{}/in?t=secret", self.address)
    }
}

fn read(stream: &mut TcpStream) -> Option<Received> {
    let mut bytes = Vec::new();
    loop {
        let mut piece = [0; 4_096];
        let count = stream.read(&mut piece).ok().filter(|count| *count > 0)?;
        bytes.extend_from_slice(&piece[..count]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some(end) = text.find("\r\n\r\n") else { continue };
        let size = text.lines().find_map(|line| line.strip_prefix("content-length: "));
        let size: usize = size.map_or(0, |size| size.parse().unwrap());
        if bytes.len() >= end + 4 + size {
            let head = text[..end].to_owned();
            return Some(Received { head, body: bytes[end + 4..end + 4 + size].to_vec() });
        }
    }
}

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok";

fn allowed(entries: &[&str]) -> Allowed {
    Allowed(entries.iter().map(|entry| entry.parse().unwrap()).collect())
}

/// Names that resolve to what a test says, one answer after the other.
struct Names(Vec<Vec<IpAddr>>, AtomicUsize);

impl Lookup for Names {
    fn lookup(
        &self,
        _name: String,
    ) -> Pin<Box<dyn Future<Output = std::io::Result<Vec<IpAddr>>> + Send>> {
        let number = self.1.fetch_add(1, Ordering::SeqCst);
        let found = self.0.get(number).or(self.0.last()).cloned().unwrap_or_default();
        Box::pin(async move { Ok(found) })
    }
}

fn request(url: &str) -> Request {
    Request {
        url: url.to_owned(),
        id: "evt_1".to_owned(),
        timestamp_s: 12,
        signature: "v1,x".to_owned(),
        body: bytes::Bytes::from_static(b"{}"),
    }
}

fn transport(allowed_entries: &[&str], lookup: impl Lookup, limit: Duration) -> HttpTransport {
    HttpTransport::new(allowed(allowed_entries), Arc::new(lookup), limit).unwrap()
}

const LONG: Duration = Duration::from_secs(15);

#[test]
fn a_name_is_judged_by_the_addresses_of_the_connection() {
    let receiver = Receiver::saying(OK);
    let port = receiver.address.port();
    let local: IpAddr = "127.0.0.1".parse().unwrap();
    let public: IpAddr = "93.184.216.34".parse().unwrap();
    let mapped: IpAddr = "::ffff:127.0.0.1".parse().unwrap();
    let url = format!("https://hooks.example.com:{port}/");
    block_on(async {
        for found in
            [vec![local], vec![public, local], vec![mapped], vec!["fe80::1".parse().unwrap()]]
        {
            let names = Names(vec![found.clone()], AtomicUsize::new(0));
            let sent = transport(&[], names, LONG).send(request(&url)).await;
            assert!(matches!(sent, Err(SendError::Address(_))), "{found:?}: {sent:?}");
        }
        // One that is public when it is created and local when it is connected to.
        let names = Names(vec![vec![local]], AtomicUsize::new(0));
        assert!(allowed(&[]).check_url(&url).is_ok());
        let sent = transport(&[], names, LONG).send(request(&url)).await;
        let error = sent.unwrap_err();
        assert!(matches!(error, SendError::Address(_)), "{error}");
        assert!(
            error.to_string().contains("hooks.example.com is the address 127.0.0.1"),
            "{error}"
        );
        for url in
            ["http://127.0.0.1/", "https://[::1]/", "https://2130706433/", "http://example.com/"]
        {
            let sent = transport(&[], SystemLookup, LONG).send(request(url)).await;
            assert!(matches!(sent, Err(SendError::Address(_))), "{url}: {sent:?}");
        }
        assert_eq!(receiver.received.lock().len(), 0);
        // What the operator permits is connected to, at the address that was checked.
        let url = format!("http://hooks.internal:{port}/x");
        let names = Names(vec![vec![local]], AtomicUsize::new(0));
        let sent = transport(&["hooks.internal"], names, LONG).send(request(&url)).await.unwrap();
        assert_eq!((sent.status, &sent.body[..]), (200, &b"ok"[..]));
        let received = receiver.received.lock()[0].clone();
        assert!(received.head.starts_with("POST /x HTTP/1.1\r\n"), "{}", received.head);
        assert_eq!(received.header("host"), Some(&*format!("hooks.internal:{port}")));
        assert_eq!(received.header("webhook-id"), Some("evt_1"));
        assert_eq!(received.header("content-type"), Some("application/json"));
    });
}

#[test]
fn redirections_are_not_followed_and_answers_are_cut() {
    let target = Receiver::saying(OK);
    let location = format!(
        "HTTP/1.1 307 Temporary Redirect\r\nlocation: {}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
        target.url()
    );
    let redirects = Receiver::start(move |stream| stream.write_all(location.as_bytes()).unwrap());
    let endless = Receiver::start(|stream| {
        let head = "HTTP/1.1 500 Oops\r\ntransfer-encoding: chunked\r\nretry-after: 7\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        // Ends when the client closes the connection.
        while stream.write_all(b"400\r\n").is_ok()
            && stream.write_all(&[b'x'; 1_024]).is_ok()
            && stream.write_all(b"\r\n").is_ok()
        {}
    });
    let silent = Receiver::start(|stream| {
        // Holds the connection until the client has gone.
        drop(stream.read(&mut [0; 16]));
    });
    block_on(async {
        let transport = transport(&["127.0.0.1"], SystemLookup, LONG);
        assert_eq!(transport.send(request(&redirects.url())).await.unwrap().status, 307);
        assert_eq!(target.received.lock().len(), 0);
        let answer = transport.send(request(&endless.url())).await.unwrap();
        assert_eq!((answer.status, answer.retry_after_s), (500, Some(7)));
        assert_eq!(answer.body, [b'x'; 1_024]);
    });
    block_on(async {
        let transport = transport(&["127.0.0.1"], SystemLookup, Duration::from_millis(200));
        let error = transport.send(request(&silent.url())).await.unwrap_err();
        assert!(matches!(error, SendError::Timeout { .. }), "{error}");
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let error =
            transport.send(request(&format!("http://{free}/in?t=secret"))).await.unwrap_err();
        assert!(matches!(error, SendError::Connection { .. }), "{error}");
        assert!(!error.to_string().contains("secret"), "{error}");
    });
}

/// What receivers do with the libraries of Standard Webhooks, written from the specification.
fn verify(secret: &str, received: &Received) -> bool {
    let engine = base64::engine::general_purpose::STANDARD;
    let key = engine.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
    assert!((24..=64).contains(&key.len()));
    let (id, time) = (received.header("webhook-id"), received.header("webhook-timestamp"));
    let mut signed = format!("{}.{}.", id.unwrap(), time.unwrap()).into_bytes();
    signed.extend_from_slice(&received.body);
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), &signed);
    let expected = format!("v1,{}", engine.encode(tag.as_ref()));
    received.header("webhook-signature").unwrap().split(' ').any(|signature| signature == expected)
}

#[test]
fn a_slow_receiver_holds_up_no_other_and_signatures_are_those_of_the_valid_secrets() {
    let dir = tempfile::tempdir().unwrap();
    let (files, jobs) = (Memory::new("intake"), Memory::new("jobs"));
    // Never answers; the limit is far longer than the test.
    let slow = Receiver::start(|stream| drop(stream.read(&mut [0; 16])));
    let quick = Receiver::saying(OK);
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let fs: Arc<dyn FileSystem> = Arc::new(RealFs);
        let limits = allowed(&["127.0.0.0/8"]);
        let transport = HttpTransport::new(limits.clone(), Arc::new(SystemLookup), 40 * LONG);
        let sources: Vec<Arc<dyn Source>> = vec![files.clone(), jobs.clone()];
        let clock = Arc::new(SystemClock::new());
        let hooks = Hooks::open(
            &fs,
            clock.clone(),
            options(dir.path()),
            (sources, limits),
            (Arc::new(transport.unwrap()), Arc::new(Keys(1))),
        );
        let hooks = hooks.unwrap();
        hooks.start();
        let new = |url: String| NewHook { url, filter: Filter::default(), ..NewHook::default() };
        hooks.create(new(slow.url())).await.unwrap();
        let (view, secret) = hooks.create(new(quick.url())).await.unwrap();
        let sent = |count: usize| {
            let (hooks, id) = (hooks.clone(), view.id);
            async move {
                let began = clock_now();
                loop {
                    let filter = DeliveryFilter::default();
                    let (found, _) = hooks.deliveries(id, filter, 100).await.unwrap();
                    if found.len() >= count {
                        return found;
                    }
                    assert!(clock_now() < began + 60_000, "{found:?}");
                    tokio::task::yield_now().await;
                }
            }
        };
        let names: Vec<String> = (0..8).map(|number| format!("f{number}")).collect();
        for name in &names {
            files.add("file.stored", "in", name);
        }
        let found = sent(8).await;
        assert!(found.iter().all(|delivery| delivery.state == DeliveryState::Delivered));
        let received = quick.received.lock().clone();
        let got: Vec<String> = received.iter().map(|request| name_in(&request.body)).collect();
        assert_eq!(got, names);
        assert!(received.iter().all(|request| verify(&secret, request)));
        // Both secrets are valid for a time, then the new one alone.
        let rotated = hooks.rotate(view.id, Duration::from_secs(3_600)).await.unwrap();
        assert_ne!(rotated, secret);
        hooks.ping(view.id).await.unwrap();
        let last = quick.received.lock().last().cloned().unwrap();
        assert!(verify(&secret, &last) && verify(&rotated, &last));
        let newest = hooks.rotate(view.id, Duration::ZERO).await.unwrap();
        hooks.ping(view.id).await.unwrap();
        let last = quick.received.lock().last().cloned().unwrap();
        assert!(verify(&newest, &last) && !verify(&rotated, &last) && !verify(&secret, &last));
        assert_eq!(slow.received.lock().len(), 1, "one request is under way");
        hooks.close(LONG).await;
    });
}

fn clock_now() -> u64 {
    SystemClock::new().now_ms()
}
