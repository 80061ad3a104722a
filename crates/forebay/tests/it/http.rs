//! Responses of the server's own routes.

use std::io::{Read as _, Write as _};

use crate::support::Server;

#[test]
fn a_fresh_server_prints_its_address_and_is_healthy() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &["--ready-file", "ready"]);
    assert!(server.url.starts_with("http://127.0.0.1:") && server.address.port() != 0);
    let ready = std::fs::read_to_string(dir.path().join("ready")).unwrap();
    assert_eq!(ready.trim(), server.url);
    assert_eq!(server.get("/healthz").json()["status"], "ok");
    assert_eq!(server.get("/readyz").json()["status"], "ready");
    let page = server.get("/");
    assert!(page.status == 200 && page.body.contains("<h1>Forebay</h1>"));
    assert!(page.head.contains("content-security-policy: default-src 'none'"), "{}", page.head);
}

#[test]
fn metrics_count_requests_and_read_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    server.get("/healthz");
    let metrics = server.get("/metrics");
    assert!(metrics.head.contains("content-type: text/plain; version=0.0.4"));
    let value = |name: &str| {
        let line = metrics.body.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("{name}")).trim().parse::<f64>().unwrap()
    };
    assert!(value("forebay_http_requests_total{route=\"health\",status=\"2xx\"}") >= 1.0);
    assert!(value("process_resident_memory_bytes") > 1e6);
    assert!(value("process_open_fds") > 3.0);
    assert!(value("process_start_time_seconds") > 1.7e9);
}

#[test]
fn unknown_routes_and_wrong_methods_are_json_problems_with_the_requests_id() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    let answer = server.ask("GET", "/v1/nowhere/at/all", "x-request-id: mine-1\r\n");
    assert_eq!(answer.status, 404);
    assert_eq!(answer.json()["error"]["code"], "not_found");
    assert_eq!(answer.json()["error"]["request_id"], "mine-1");
    assert!(answer.head.contains("x-request-id: mine-1"));
    let answer = server.ask("DELETE", "/healthz", "");
    assert_eq!(
        (answer.status, answer.json()["error"]["code"].as_str()),
        (405, Some("method_not_allowed"))
    );
    assert!(answer.head.contains("allow: get"), "{}", answer.head);
}

#[test]
fn the_api_description_is_valid_and_lists_the_routes_the_page_shows() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    let document = server.get("/openapi.json").json();
    assert_eq!(document["openapi"], "3.1.0");
    let page = server.get("/docs");
    assert!(page.head.contains("script-src 'self'") && page.body.contains("/docs/app.js"));
    let paths = document["paths"].as_object().unwrap();
    assert!(paths.contains_key("/healthz") && paths.contains_key("/metrics"));
    assert!(paths.keys().any(|path| path.starts_with("/v1/files")), "subsystems' routes are in it");
    for path in paths.keys() {
        assert!(page.body.contains(path), "{path} is on the page");
    }
    // Every reference inside the document has a target.
    let text = document.to_string();
    for reference in text.split("\"$ref\":\"#").skip(1) {
        let pointer = reference.split('"').next().unwrap();
        assert!(document.pointer(pointer).is_some(), "{pointer}");
    }
    assert!(server.get("/docs/app.js").head.contains("content-type: text/javascript"));
    assert!(server.get("/docs/style.css").head.contains("content-type: text/css"));
}

#[test]
fn a_client_that_never_finishes_its_head_is_cut_while_others_are_served() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &["--set", "server.header_read_timeout=200ms"]);
    let mut slow = server.connect();
    slow.write_all(b"GET /healthz HTTP/1.1\r\nx-slow: ").unwrap();
    assert_eq!(server.get("/healthz").status, 200);
    let mut rest = Vec::new();
    slow.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"", "closed without an answer");
    let metrics = server.get("/metrics").body;
    assert!(metrics.contains("forebay_http_timeouts_total{kind=\"head\"} 1"), "{metrics}");
}

#[test]
fn bytes_that_are_not_a_request_are_refused_and_the_server_continues() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    for garbage in [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a TLS greeting \r\n\r\n".as_slice(),
        b"GET / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: localhost\r\nbad header\x00: x\r\n\r\n",
        b"\r\n\r\n\r\nNOTHING\r\n\r\n",
    ] {
        let mut stream = server.connect();
        stream.write_all(garbage).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        // A reset instead of a response is an acceptable refusal.
        stream.read_to_end(&mut answer).unwrap_or_default();
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 400"), "{answer:?}");
    }
    assert_eq!(server.get("/healthz").status, 200);
}
