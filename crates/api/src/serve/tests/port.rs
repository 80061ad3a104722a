//! Claims about a second port: its protocol answers, and the limits of the server hold for both together.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, Request};
use http_body_util::BodyExt as _;
use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{Notify, Semaphore};

use crate::keys::{Auth, KeyFile, KeyRing};
use crate::serve::shutdown::Stage;
use crate::serve::{App, Protocol, Refusal, Settings, bind, run_port};

const HANG: Duration = Duration::from_secs(30);

/// Answers with the method, the path and the size of the body; `/wait` only when it may, `/panic` not at all.
#[derive(Default)]
struct Echo {
    entered: Notify,
    gate: Option<Semaphore>,
}

impl Protocol for Echo {
    fn answer(
        self: Arc<Self>,
        request: Request<Body>,
    ) -> Pin<Box<dyn Future<Output = Response> + Send>> {
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            assert_ne!(parts.uri.path(), "/panic");
            if let (Some(gate), "/wait") = (&self.gate, parts.uri.path()) {
                self.entered.notify_one();
                gate.acquire().await.unwrap().forget();
            }
            let size = match body.collect().await {
                Ok(body) => body.to_bytes().len().to_string(),
                Err(_) => "broken".to_owned(),
            };
            let has_id = parts.headers.contains_key("x-request-id");
            let mut response =
                Response::new(Body::from(format!("{} {size} {has_id}", parts.method)));
            if size == "broken" {
                *response.status_mut() = http::StatusCode::BAD_REQUEST;
            }
            response
        })
    }

    fn refuse(&self, refusal: &Refusal, _: &HeaderValue) -> Response {
        let mut response = Response::new(Body::from(format!("refused: {}", refusal.message())));
        *response.status_mut() = refusal.status();
        response
    }
}

struct Server {
    app: Arc<App>,
    port: Arc<Echo>,
    address: SocketAddr,
    _data: tempfile::TempDir,
}

fn start(requests_max: usize, origins: &[&str]) -> Server {
    let seconds = Duration::from_secs;
    let settings = Settings {
        hosts: Vec::new(),
        cors_origins: origins.iter().map(|&origin| origin.to_owned()).collect(),
        requests_in_flight_max: requests_max,
        client_share_max: 100,
        followers_max: 2,
        header_size_max: 32 << 10,
        header_read_timeout: seconds(10),
        idle_timeout: seconds(75),
        write_stall_timeout: seconds(60),
        body_idle_timeout: Duration::from_millis(50),
        rate_min: 1_024,
        rate_grace: seconds(30),
        output_memory_max: 16 << 20,
    };
    let data = tempfile::tempdir().unwrap();
    let keys = KeyRing::open(KeyFile::in_data_dir(data.path()), Auth::Auto).unwrap();
    let recorder = PrometheusBuilder::new().build_recorder().handle();
    let app = Arc::new(App::new(&settings, keys, recorder, 1));
    let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let port = Arc::new(Echo { gate: Some(Semaphore::new(0)), ..Echo::default() });
    let answering: Arc<dyn Protocol> = Arc::<Echo>::clone(&port);
    tokio::spawn(run_port(Arc::clone(&app), listener, None, 16, answering));
    Server { app, port, address, _data: data }
}

impl Server {
    async fn connect(&self, head: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        stream
    }

    async fn ask(&self, head: &str) -> String {
        read(self.connect(head).await).await
    }
}

async fn read(mut stream: TcpStream) -> String {
    let mut text = Vec::new();
    tokio::time::timeout(HANG, stream.read_to_end(&mut text)).await.expect("hangs").unwrap();
    String::from_utf8(text).unwrap()
}

#[tokio::test]
async fn any_host_and_method_reaches_the_protocol_and_a_panic_does_not_end_the_server() {
    let server = start(16, &[]);
    let panicked = server.ask("GET /panic HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
    assert!(panicked.starts_with("HTTP/1.1 500") && panicked.contains("refused"), "{panicked}");
    let head = "PUT /v1/files HTTP/1.1\r\nhost: data.example.com\r\ncontent-length: 3\r\nconnection: close\r\n\r\nabc";
    let answer = server.ask(head).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("PUT 3 true"), "{answer}");
    assert!(answer.contains("x-content-type-options: nosniff"), "{answer}");
}

#[tokio::test]
async fn requests_beyond_the_limit_and_after_a_stop_are_refused_by_the_protocol() {
    let server = start(1, &[]);
    let waiting = server.connect("GET /wait HTTP/1.1\r\nhost: x\r\n\r\n").await;
    tokio::time::timeout(HANG, server.port.entered.notified()).await.unwrap();
    let head = "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let refused = server.ask(head).await;
    assert!(refused.starts_with("HTTP/1.1 429") && refused.contains("refused"), "{refused}");
    server.app.stop.advance(Stage::Draining);
    server.port.gate.as_ref().unwrap().add_permits(1);
    let finished = read(waiting).await;
    assert!(
        finished.starts_with("HTTP/1.1 200") && finished.contains("connection: close"),
        "{finished}"
    );
    assert!(server.app.stop.drained(HANG).await);
}

#[tokio::test]
async fn a_request_to_a_port_has_at_most_256_headers() {
    let server = start(16, &[]);
    let ask = async |count: usize| {
        let headers: String = (2..count).map(|n| format!("x-a-{n}: 1\r\n")).collect();
        let head = "GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n";
        server.ask(&format!("{head}{headers}\r\n")).await
    };
    assert!(ask(256).await.starts_with("HTTP/1.1 200"));
    assert!(ask(257).await.starts_with("HTTP/1.1 431"));
}

#[tokio::test]
async fn a_body_that_stops_is_refused() {
    let server = start(16, &[]);
    let stopped = server.ask("PUT / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nabc").await;
    assert!(stopped.starts_with("HTTP/1.1 408") && stopped.contains("refused"), "{stopped}");
}

#[tokio::test]
async fn only_pages_of_permitted_origins_may_read_and_ask_for_headers() {
    let server = start(16, &["https://app.example.com"]);
    let preflight = |origin: &str| {
        format!(
            "OPTIONS /b/k HTTP/1.1\r\nhost: x\r\norigin: {origin}\r\naccess-control-request-method: PUT\r\n\
             access-control-request-headers: x-amz-meta-a\r\nconnection: close\r\n\r\n"
        )
    };
    let permitted = server.ask(&preflight("https://app.example.com")).await;
    assert!(permitted.starts_with("HTTP/1.1 204"), "{permitted}");
    assert!(permitted.contains("access-control-allow-headers: x-amz-meta-a"), "{permitted}");
    let other = server.ask(&preflight("https://evil.example.com")).await;
    assert!(!other.contains("access-control-allow"), "{other}");
}
