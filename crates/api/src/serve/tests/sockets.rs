//! Tests of the server on real loopback sockets, with handlers made for the test.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use forebay_base::bytes::ByteSize;
use forebay_base::duration::HumanDuration;
use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{Notify, Semaphore};

use crate::Subsystem;
use crate::keys::{Auth, KeyFile, KeyRing, Scope};
use crate::serve::app::{App, Opened};
use crate::serve::shutdown::Stage;
use crate::serve::{Settings, listener, shell_routes};

/// A time limit that is reached only if something hangs.
const HANG: Duration = Duration::from_secs(30);

/// A subsystem whose handlers wait for the test.
struct Gated {
    entered: Arc<Notify>,
    gate: Arc<Semaphore>,
}

impl Subsystem for Gated {
    fn name(&self) -> &'static str {
        "gated"
    }

    fn router(&self) -> Router {
        let (entered, gate) = (Arc::clone(&self.entered), Arc::clone(&self.gate));
        let wait = async move || {
            entered.notify_one();
            gate.acquire().await.map(drop).map_or("closed", |()| "finished")
        };
        let wait = Arc::new(wait);
        let endless = || async {
            let chunk = bytes::Bytes::from_static(&[0; 65536]);
            Body::from_stream(futures_util::stream::repeat(Ok::<_, std::convert::Infallible>(
                chunk,
            )))
        };
        Router::new()
            .route("/v1/wait", get(move || async move { wait().await }))
            .route("/v1/endless", get(endless))
            .route("/v1/panic", get(|| async { panic!("by the test") as &'static str }))
            .route("/v1/echo", get(|| async { "echo" }).put(|body: String| async { body }))
    }

    fn openapi(&self) -> utoipa::openapi::OpenApi {
        utoipa::openapi::OpenApi::default()
    }

    fn readiness(&self) -> Result<(), String> {
        if self.gate.is_closed() { Err("the gate is closed".to_owned()) } else { Ok(()) }
    }

    fn image(&self, _image: &mut forebay_base::image::Image) -> anyhow::Result<()> {
        // It keeps nothing.
        Ok(())
    }

    fn stop(&self) -> Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send + '_>> {
        Box::pin(async { Ok(()) })
    }
}

struct TestServer {
    app: Arc<App>,
    address: SocketAddr,
    entered: Arc<Notify>,
    gate: Arc<Semaphore>,
    data: tempfile::TempDir,
}

/// Starts a server with these settings on top of the defaults.
async fn server(settings: &[&str]) -> TestServer {
    let server = unopened(settings).await;
    let gated = Gated { entered: Arc::clone(&server.entered), gate: Arc::clone(&server.gate) };
    let subsystems: Vec<Arc<dyn Subsystem>> = vec![Arc::new(gated)];
    let routers = shell_routes::build(&server.app, &subsystems).unwrap();
    assert!(server.app.opened.set(Opened { routers, subsystems }).is_ok());
    server
}

/// Settings with these on top of the defaults, and the maximum number of connections.
fn settings_with(changes: &[&str]) -> (Settings, usize) {
    let seconds = Duration::from_secs;
    let mut settings = Settings {
        hosts: Vec::new(),
        cors_origins: Vec::new(),
        requests_in_flight_max: 1_024,
        client_share_max: 75,
        followers_max: 2,
        header_size_max: 32 << 10,
        header_read_timeout: seconds(10),
        idle_timeout: seconds(75),
        write_stall_timeout: seconds(60),
        body_idle_timeout: seconds(30),
        rate_min: 1_024,
        rate_grace: seconds(30),
        output_memory_max: 16 << 20,
    };
    let mut connections_max = 4_096;
    let time = |text: &str| text.parse::<HumanDuration>().unwrap().get();
    let size = |text: &str| usize::try_from(text.parse::<ByteSize>().unwrap().bytes()).unwrap();
    for change in changes {
        let (key, value) = change.split_once('=').unwrap();
        match key {
            "server.connections_max" => connections_max = value.parse().unwrap(),
            "server.requests_in_flight_max" => {
                settings.requests_in_flight_max = value.parse().unwrap();
            }
            "server.hosts" => settings.hosts = vec![value.to_owned()],
            "server.cors_origins" => settings.cors_origins = vec![value.to_owned()],
            "server.header_size_max" => settings.header_size_max = size(value),
            "server.output_memory_max" => settings.output_memory_max = size(value),
            "server.header_read_timeout" => settings.header_read_timeout = time(value),
            "server.idle_timeout" => settings.idle_timeout = time(value),
            "server.write_stall_timeout" => settings.write_stall_timeout = time(value),
            "server.body_idle_timeout" => settings.body_idle_timeout = time(value),
            _ => panic!("no test sets {key}"),
        }
    }
    (settings, connections_max)
}

/// The same, before its subsystems are open.
async fn unopened(settings: &[&str]) -> TestServer {
    let (settings, max) = settings_with(settings);
    let data = tempfile::tempdir().unwrap();
    let keys = KeyRing::open(KeyFile::in_data_dir(data.path()), Auth::Auto).unwrap();
    let recorder = PrometheusBuilder::new().build_recorder().handle();
    let app = Arc::new(App::new(&settings, keys, recorder, 1));
    let listener = listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(listener::run(Arc::clone(&app), listener, None, max));
    let (entered, gate) = (Arc::new(Notify::new()), Arc::new(Semaphore::new(0)));
    TestServer { app, address, entered, gate, data }
}

impl TestServer {
    async fn connect(&self, bytes: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(bytes.as_bytes()).await.unwrap();
        stream
    }

    /// Sends `head` and reads until the server closes.
    async fn ask(&self, head: &str) -> String {
        read_to_close(self.connect(head).await).await
    }

    async fn get(&self, path: &str) -> String {
        self.ask(&format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"))
            .await
    }
}

async fn read_to_close(mut stream: TcpStream) -> String {
    let mut text = Vec::new();
    tokio::time::timeout(HANG, stream.read_to_end(&mut text)).await.expect("hangs").unwrap();
    String::from_utf8(text).unwrap()
}

/// Reads one response head from a connection that stays open.
async fn read_head(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\n") {
        let byte = tokio::time::timeout(HANG, stream.read_u8()).await.expect("hangs").unwrap();
        text.push(byte);
    }
    String::from_utf8(text).unwrap()
}

const WAIT: &str = "GET /v1/wait HTTP/1.1\r\nhost: localhost\r\n\r\n";

#[tokio::test]
async fn a_request_begun_before_the_stop_is_finished_and_its_connection_closed() {
    let server = server(&[]).await;
    let running = server.connect(WAIT).await;
    server.entered.notified().await;
    let silent = TcpStream::connect(server.address).await.unwrap();
    let mut kept = server.connect("GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    read_head(&mut kept).await;
    server.app.stop.advance(Stage::Draining);
    assert_eq!(read_to_close(silent).await, "", "a connection without a request is closed at once");
    assert!(read_to_close(kept).await.contains("ok"), "so is one between requests");
    assert!(TcpStream::connect(server.address).await.is_err() || server.app.stop.open() <= 1);
    assert!(!server.app.stop.drained(Duration::ZERO).await, "the running one holds the stop up");
    server.gate.add_permits(1);
    let answer = read_to_close(running).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("finished"), "{answer}");
    assert!(server.app.stop.drained(HANG).await);
}

#[tokio::test]
async fn the_limit_cuts_what_does_not_finish() {
    let server = server(&[]).await;
    let running = server.connect(WAIT).await;
    server.entered.notified().await;
    server.app.stop.advance(Stage::Draining);
    server.app.stop.advance(Stage::Aborting);
    assert_eq!(read_to_close(running).await, "");
    assert!(server.app.stop.drained(HANG).await);
    assert_eq!(server.app.shares.in_flight(), 0);
}

#[tokio::test]
async fn requests_beyond_the_limit_are_answered_429_and_health_still_200() {
    let server = server(&["server.requests_in_flight_max=1"]).await;
    let running = server.connect(WAIT).await;
    server.entered.notified().await;
    let refused = server.get("/v1/echo").await;
    assert!(refused.starts_with("HTTP/1.1 429") && refused.contains("retry-after: 1"), "{refused}");
    assert!(server.get("/healthz").await.starts_with("HTTP/1.1 200"));
    server.gate.add_permits(1);
    server.app.stop.advance(Stage::Draining);
    assert!(read_to_close(running).await.starts_with("HTTP/1.1 200"));
    assert_eq!(server.app.metrics.requests_refused.load(Relaxed), 1);
}

#[tokio::test]
async fn connections_beyond_the_limit_are_answered_503_and_closed() {
    let server = server(&["server.connections_max=1"]).await;
    let first = server.connect(WAIT).await;
    server.entered.notified().await;
    let second = server.get("/healthz").await;
    assert!(
        second.starts_with("HTTP/1.1 503") && second.contains("too_many_connections"),
        "{second}"
    );
    server.gate.add_permits(1);
    drop(first);
    assert!(server.app.stop.drained(HANG).await, "the first one's place is free again");
    assert!(server.get("/healthz").await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn idle_connections_shut_no_one_out() {
    let server = server(&["server.connections_max=20"]).await;
    let mut idle = Vec::new();
    for at in 0..20 {
        let asked = ["GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n", "GET /heal", ""][at % 3];
        idle.push(server.connect(asked).await);
    }
    let deadline = tokio::time::Instant::now() + HANG;
    let mut served = 0;
    while served < 5 {
        let answer = server.get("/healthz").await;
        served = if answer.starts_with("HTTP/1.1 200") { served + 1 } else { 0 };
        assert!(tokio::time::Instant::now() < deadline, "{answer}");
    }
    assert!(server.app.metrics.cut_crowded.load(Relaxed) > 0);
    drop(idle);
}

#[tokio::test]
async fn one_address_leaves_slots_to_others() {
    let server = server(&["server.requests_in_flight_max=4"]).await;
    let mut running = Vec::new();
    for _ in 0..3 {
        running.push(server.connect(WAIT).await);
        server.entered.notified().await;
    }
    let refused = server.get("/v1/echo").await;
    assert!(refused.starts_with("HTTP/1.1 429"), "{refused}");
    assert!(refused.contains("too_many_requests_of_client"), "{refused}");
    assert!(server.get("/healthz").await.starts_with("HTTP/1.1 200"));
    // Another address of this machine.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let mut other = socket.connect(server.address).await.unwrap();
    let head = "GET /v1/echo HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    other.write_all(head.as_bytes()).await.unwrap();
    assert!(read_to_close(other).await.starts_with("HTTP/1.1 200"));
    server.gate.add_permits(3);
    drop(running);
    assert!(server.app.stop.drained(HANG).await);
    assert_eq!(server.app.shares.in_flight(), 0);
}

#[tokio::test]
async fn a_client_that_dribbles_its_head_is_cut() {
    let server = server(&["server.header_read_timeout=50ms"]).await;
    assert_eq!(server.ask("GET /healthz HTTP/1.1\r\nhost:").await, "");
    assert_eq!(server.app.metrics.timeouts_head.load(Relaxed), 1);
}

#[tokio::test]
async fn a_kept_alive_connection_without_further_requests_is_closed() {
    let server = server(&["server.idle_timeout=50ms"]).await;
    let answer = server.ask("GET /v1/echo HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    assert!(answer.ends_with("echo"), "{answer}");
    assert_eq!(server.app.metrics.timeouts_idle.load(Relaxed), 1);
}

#[tokio::test]
async fn a_client_that_does_not_read_its_answer_is_cut() {
    let server = server(&["server.write_stall_timeout=50ms"]).await;
    let mut stream = server.connect("GET /v1/endless HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    read_head(&mut stream).await;
    assert!(server.app.stop.drained(HANG).await);
    assert_eq!(server.app.metrics.timeouts_write.load(Relaxed), 1);
    assert_eq!(server.app.shares.in_flight(), 0);
}

#[tokio::test]
async fn a_client_that_closed_its_sending_half_still_gets_its_answer() {
    let server = server(&[]).await;
    let mut stream = server.connect(WAIT).await;
    stream.shutdown().await.unwrap();
    server.entered.notified().await;
    server.gate.add_permits(1);
    assert!(read_to_close(stream).await.ends_with("finished"));
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let server = server(&[]).await;
    let one = "PUT /v1/echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: 3\r\n\r\none";
    let two = "PUT /v1/echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: 3\r\nconnection: close\r\n\r\ntwo";
    let answers = server.ask(&format!("{one}{two}")).await;
    let (first, second) =
        (answers.find("\r\n\r\none").unwrap(), answers.find("\r\n\r\ntwo").unwrap());
    assert!(first < second, "{answers}");
}

#[tokio::test]
async fn a_connection_is_closed_with_notice_if_a_body_was_not_read_and_is_kept_otherwise() {
    let server = server(&[]).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let put = |path: &str, size: usize| {
        format!("PUT {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {size}\r\n\r\n")
    };
    for body in ["", "hello"] {
        let request = put("/v1/echo", body.len()) + body;
        stream.write_all(request.as_bytes()).await.unwrap();
        let head = read_head(&mut stream).await;
        assert!(head.starts_with("HTTP/1.1 200") && !head.contains("connection:"), "{head}");
        let mut echoed = vec![0; body.len()];
        stream.read_exact(&mut echoed).await.unwrap();
        assert_eq!(echoed, body.as_bytes());
    }
    // Refused by its head; the body has arrived, and is read nevertheless.
    stream.write_all((put("/v1/nothing", 5) + "hello").as_bytes()).await.unwrap();
    let head = read_head(&mut stream).await;
    assert!(head.starts_with("HTTP/1.1 404") && !head.contains("connection:"), "{head}");
    let size = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut problem = vec![0; size.parse().unwrap()];
    stream.read_exact(&mut problem).await.unwrap();
    // The body does not arrive.
    stream.write_all(put("/v1/nothing", 5).as_bytes()).await.unwrap();
    let answer = read_to_close(stream).await;
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    assert!(answer.contains("connection: close\r\n"), "{answer}");
}

#[tokio::test]
async fn a_panicking_handler_is_a_500_and_the_connection_continues() {
    let server = server(&[]).await;
    let next = "GET /v1/echo HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let answers =
        server.ask(&format!("GET /v1/panic HTTP/1.1\r\nhost: localhost\r\n\r\n{next}")).await;
    assert!(answers.starts_with("HTTP/1.1 500") && answers.contains("\"internal\""), "{answers}");
    assert!(answers.ends_with("echo"), "{answers}");
}

#[tokio::test]
async fn a_head_over_the_limit_is_431() {
    let server = server(&["server.header_size_max=1KiB"]).await;
    let long = "x".repeat(5000);
    let answer = server.ask(&format!("GET /v1/{long} HTTP/1.1\r\nhost: localhost\r\n\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
}

#[tokio::test]
async fn a_request_has_at_most_100_headers() {
    let server = server(&[]).await;
    let ask = async |count: usize| {
        let headers: String = (2..count).map(|n| format!("x-a-{n}: 1\r\n")).collect();
        let head = "GET /v1/echo HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n";
        server.ask(&format!("{head}{headers}\r\n")).await
    };
    assert!(ask(100).await.starts_with("HTTP/1.1 200"));
    assert!(ask(101).await.starts_with("HTTP/1.1 431"));
}

#[tokio::test]
async fn before_the_data_is_open_only_health_answers() {
    let server = unopened(&[]).await;
    assert!(server.get("/healthz").await.starts_with("HTTP/1.1 200"));
    assert!(server.get("/readyz").await.starts_with("HTTP/1.1 503"));
    let refused = server.get("/v1/echo").await;
    assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("\"starting\""), "{refused}");
}

#[tokio::test]
async fn a_subsystem_that_is_not_ready_is_named() {
    let server = server(&[]).await;
    assert!(server.get("/readyz").await.starts_with("HTTP/1.1 200"));
    server.gate.close();
    let answer = server.get("/readyz").await;
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("gated: the gate"), "{answer}");
}

#[tokio::test]
async fn without_keys_other_web_sites_are_kept_out_and_with_keys_strangers_are() {
    let server = server(&[]).await;
    let cross = "GET /v1/echo HTTP/1.1\r\nhost: localhost\r\nsec-fetch-site: cross-site\r\nconnection: close\r\n\r\n";
    let answer = server.ask(cross).await;
    assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("\"origin\""), "{answer}");
    assert!(server.get("/v1/echo").await.starts_with("HTTP/1.1 200"));
    let (token, _) =
        KeyFile::in_data_dir(server.data.path()).add("reader", &[Scope::Read], &[]).unwrap();
    server.app.keys.reload().unwrap();
    let answer = server.get("/v1/echo").await;
    assert!(answer.starts_with("HTTP/1.1 401") && answer.contains("www-authenticate"), "{answer}");
    let with = |method: &str, key: &str| {
        format!(
            "{method} /v1/echo HTTP/1.1\r\nhost: localhost\r\nx-api-key: {key}\r\nconnection: close\r\n\r\n"
        )
    };
    assert!(server.ask(&with("GET", token.reveal())).await.starts_with("HTTP/1.1 200"));
    assert!(server.ask(&with("PUT", token.reveal())).await.starts_with("HTTP/1.1 403"));
    assert!(server.ask(&with("GET", "fbk_nonsense")).await.starts_with("HTTP/1.1 401"));
    assert!(server.get("/healthz").await.starts_with("HTTP/1.1 200"), "health needs no key");
    assert_eq!(server.app.metrics.requests_denied.load(Relaxed), 3);
}

#[tokio::test]
async fn a_request_id_comes_back_and_a_bad_one_is_replaced() {
    let server = server(&[]).await;
    let ask = |id: &str| {
        format!(
            "GET /v1/none HTTP/1.1\r\nhost: localhost\r\nx-request-id: {id}\r\nconnection: close\r\n\r\n"
        )
    };
    let answer = server.ask(&ask("trace-7")).await;
    assert!(
        answer.contains("x-request-id: trace-7") && answer.contains("\"request_id\":\"trace-7\"")
    );
    let answer = server.ask(&ask("a b\"c")).await;
    assert!(answer.contains("x-request-id: 00000001-00"), "{answer}");
}

/// Sends a request with these headers besides `connection: close`.
async fn with(server: &TestServer, method: &str, path: &str, headers: &str) -> String {
    server.ask(&format!("{method} {path} HTTP/1.1\r\n{headers}connection: close\r\n\r\n")).await
}

#[tokio::test]
async fn a_request_for_another_host_or_from_another_origin_runs_nothing() {
    let server = server(&["server.hosts=files.example.com"]).await;
    for path in ["/healthz", "/metrics", "/v1/echo", "/"] {
        for (headers, status) in [
            ("", "400"),
            ("host: localhost\r\nhost: localhost\r\n", "400"),
            ("host: evil.test\r\n", "421"),
            ("host: localhost\r\norigin: null\r\n", "403"),
            ("host: localhost\r\norigin: http://evil.test\r\n", "403"),
            ("host: localhost\r\nsec-fetch-site: cross-site\r\n", "403"),
        ] {
            let answer = with(&server, "GET", path, headers).await;
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status}")),
                "{path} {headers}: {answer}"
            );
            assert!(!answer.to_lowercase().contains("access-control-allow-origin"), "{answer}");
        }
    }
    let named = with(&server, "GET", "/v1/echo", "host: files.example.com\r\n").await;
    assert!(named.ends_with("echo"), "{named}");
    assert!(named.contains("x-content-type-options: nosniff"), "{named}");
    assert!(server.app.metrics.requests_foreign.load(Relaxed) >= 24);
}

#[tokio::test]
async fn a_page_of_a_permitted_origin_may_ask_and_read() {
    let server = server(&["server.cors_origins=https://app.example.com"]).await;
    let from = "host: localhost\r\norigin: https://app.example.com\r\n";
    let asked = format!("{from}access-control-request-method: PUT\r\n");
    let preflight = with(&server, "OPTIONS", "/v1/echo", &asked).await;
    assert!(preflight.starts_with("HTTP/1.1 204"), "{preflight}");
    assert!(preflight.contains("access-control-allow-origin: https://app.example.com"));
    let answer = with(&server, "GET", "/v1/echo", from).await;
    assert!(answer.contains("access-control-allow-origin: https://app.example.com"), "{answer}");
}

#[tokio::test]
async fn silent_bodies_take_no_slot_and_are_answered_408() {
    let server =
        server(&["server.requests_in_flight_max=1", "server.body_idle_timeout=200ms"]).await;
    let head = "PUT /v1/echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n";
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(server.connect(head).await);
    }
    assert!(server.get("/v1/echo").await.ends_with("echo"), "the one place is free");
    for stream in silent {
        let answer = read_to_close(stream).await;
        assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
        assert!(answer.contains("body_too_slow"), "{answer}");
    }
    assert_eq!(server.app.shares.in_flight(), 0);
    assert_eq!(server.app.metrics.timeouts_body.load(Relaxed), 20);
}

#[tokio::test]
async fn clients_that_do_not_read_hold_a_limited_amount_of_memory() {
    let server = server(&["server.output_memory_max=1MiB"]).await;
    let mut stalled = Vec::new();
    for _ in 0..40 {
        let mut stream =
            server.connect("GET /v1/endless HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
        read_head(&mut stream).await;
        stalled.push(stream);
    }
    // A piece is 64 KiB, so 40 of them exceed the limit.
    let deadline = tokio::time::Instant::now() + HANG;
    while server.app.metrics.cut_output.load(Relaxed) == 0 {
        let more = server.connect("GET /v1/endless HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
        stalled.push(more);
        assert!(
            tokio::time::Instant::now() < deadline && stalled.len() < 4_000,
            "no connection is cut"
        );
        tokio::task::yield_now().await;
    }
    assert!(server.get("/v1/echo").await.ends_with("echo"));
    drop(stalled);
    assert!(server.app.stop.drained(HANG).await);
    assert_eq!(server.app.output.held(), 0);
}

#[tokio::test]
async fn a_user_logs_in_with_a_key_and_pages_work_until_the_logout() {
    let server = server(&[]).await;
    let file = KeyFile::in_data_dir(server.data.path());
    let (token, _) = file.add("person", &[Scope::Read, Scope::Write], &[]).unwrap();
    server.app.keys.reload().unwrap();
    let page = "host: localhost\r\naccept: text/html\r\n";
    let turned = with(&server, "GET", "/v1/echo?a=b", page).await;
    assert!(turned.starts_with("HTTP/1.1 303"), "{turned}");
    assert!(turned.contains("location: /login?next=%2Fv1%2Fecho%3Fa%3Db"), "{turned}");
    let post = |path: &str, origin: &str, cookie: &str, form: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\n{origin}{cookie}content-length: {}\r\n\
             connection: close\r\n\r\n{form}",
            form.len()
        )
    };
    let own = "origin: http://localhost\r\n";
    let form = format!("next=%2Fv1%2Fecho&key={}", token.reveal());
    let unsaid = server.ask(&post("/login", "", "", &form)).await;
    assert!(unsaid.starts_with("HTTP/1.1 403"), "no page of ours sent it: {unsaid}");
    let wrong = server.ask(&post("/login", own, "", "key=fbk_x")).await;
    assert!(wrong.starts_with("HTTP/1.1 401") && wrong.contains("not valid"), "{wrong}");
    let entered = server.ask(&post("/login", own, "", &form)).await;
    assert!(
        entered.starts_with("HTTP/1.1 303") && entered.contains("location: /v1/echo"),
        "{entered}"
    );
    let set = entered.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    let cookie = format!("cookie: {}\r\n", set.split(';').next().unwrap());
    let with_cookie = format!("host: localhost\r\n{cookie}");
    assert!(with(&server, "GET", "/v1/echo", &with_cookie).await.ends_with("echo"));
    let change = "content-length: 1\r\nconnection: close\r\n\r\nx";
    let alone = server.ask(&format!("PUT /v1/echo HTTP/1.1\r\n{with_cookie}{change}")).await;
    assert!(alone.starts_with("HTTP/1.1 401"), "a cookie alone permits no change: {alone}");
    let ours = server.ask(&format!("PUT /v1/echo HTTP/1.1\r\n{with_cookie}{own}{change}")).await;
    assert!(ours.starts_with("HTTP/1.1 200"), "{ours}");
    server.ask(&post("/logout", own, &cookie, "")).await;
    assert!(with(&server, "GET", "/v1/echo", &with_cookie).await.starts_with("HTTP/1.1 401"));
}
