//! Redirects, retries, limits, and answers that are none.

use std::time::Duration;

use forebay_sdk::connector::Division;
use forebay_sdk::run::Context;
use serde_json::json;

use crate::reading::{failure, ids, opening, source, stream};
use crate::server::{Server, answer, json as body};

const RECORDS: &str = r#"[{"id": 1}]"#;

#[tokio::test]
async fn headers_of_the_settings_are_sent_and_a_connection_is_used_again() {
    let server = Server::start(|request| match request.parameter("page") {
        Some("3") => body("[]"),
        page => body(&format!(r#"[{{"id": {}}}]"#, page.unwrap())),
    });
    let more = json!({ "headers": { "Authorization": "Bearer x", "User-Agent": "mine" } });
    let source = source(&server, json!({ "pagination": { "page": {} } }), more);
    assert_eq!(ids(&source).await.unwrap(), [1, 2]);
    for request in server.requests() {
        assert_eq!(request.header("authorization"), Some("Bearer x"));
        assert_eq!(request.header("user-agent"), Some("mine"));
        assert_eq!(request.header("accept-encoding"), Some("identity"));
        assert_eq!(request.header("host"), Some(&*server.address.to_string()));
    }
}

#[tokio::test]
async fn transient_answers_are_repeated_as_the_server_asks() {
    for status in ["429 Too Many Requests", "503 Service Unavailable", "502 Bad Gateway"] {
        let server = Server::start(move |request| match request.index {
            0 | 1 => answer(status, "retry-after: 0\r\n", "wait"),
            _ => body(RECORDS),
        });
        assert_eq!(ids(&source(&server, json!({}), json!({}))).await.unwrap(), [1]);
        assert_eq!(server.requests().len(), 3);
    }
    let server = Server::start(|_| answer("503 Unavailable", "retry-after: 0\r\n", "in repair"));
    let error = failure(&source(&server, json!({}), json!({ "retries": 2 }))).await;
    assert!(
        error.contains("temporarily") && error.contains("503") && error.contains("in repair"),
        "{error}"
    );
    assert_eq!(server.requests().len(), 3);
    let server = Server::start(|_| answer("429 Too Many Requests", "retry-after: 3600\r\n", ""));
    let error = failure(&source(&server, json!({}), json!({ "retry_after_max": "1s" }))).await;
    assert!(error.contains("`retry_after_max`") && error.contains("3600s"), "{error}");
}

#[tokio::test]
async fn a_connection_that_is_lost_is_made_again() {
    let server = Server::start(|request| {
        match request.index {
        0 => b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\nconnection: close\r\n\r\n[{".to_vec(),
        1 => b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n5\r\n[{\"id\r\n".to_vec(),
        _ => body(RECORDS),
    }
    });
    assert_eq!(ids(&source(&server, json!({}), json!({}))).await.unwrap(), [1]);
    assert_eq!(server.requests().len(), 3);
    let server = Server::start(|_| {
        b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\nconnection: close\r\n\r\n[".to_vec()
    });
    let error = failure(&source(&server, json!({}), json!({ "retries": 0 }))).await;
    assert!(error.contains("cannot reach http://127.0.0.1"), "{error}");
}

#[tokio::test]
async fn a_server_that_is_silent_is_given_up() {
    let server = Server::start(|_| b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n[".to_vec());
    let more = json!({ "retries": 0, "timeout": "50ms" });
    let error = failure(&source(&server, json!({}), more)).await;
    assert!(error.contains("time limit"), "{error}");
}

#[tokio::test]
async fn a_run_that_is_stopped_does_not_wait_for_a_server() {
    let server = Server::start(|_| answer("503 Unavailable", "retry-after: 100\r\n", ""));
    let source = source(&server, json!({}), json!({}));
    let (context, cancel) = Context::new("test");
    cancel.cancel();
    let opening = opening(None, Division::Any);
    let settings = stream(json!({}));
    let opened = source.open(&settings, &opening, &context);
    let opened = tokio::time::timeout(Duration::from_secs(20), opened).await.unwrap();
    assert!(matches!(opened, Err(forebay_sdk::ConnectorError::Stopped)));
}

#[tokio::test]
async fn what_a_server_refuses_is_reported_with_what_it_says_and_without_secrets() {
    let server = Server::start(|_| {
        answer("401 Unauthorized", "", "bad token geheim42\x1b[31m\r\nfor key=schluessel")
    });
    let more = json!({ "headers": { "authorization": "Bearer geheim42" } });
    let settings = json!({ "path": "/x", "query": { "key": "schluessel" } });
    let error = failure(&source(&server, settings, more)).await;
    assert!(
        error.contains("401 Unauthorized") && error.contains("bad token ***\\u{1b}[31m"),
        "{error}"
    );
    assert!(
        error.contains("/x") && !error.contains("geheim") && !error.contains("schluessel"),
        "{error}"
    );
    assert_eq!(server.requests().len(), 1);
    for status in ["206 Partial Content", "404 Not Found", "500 Oops", "304 Not Modified"] {
        let server = Server::start(move |_| answer(status, "", ""));
        let error = failure(&source(&server, json!({}), json!({}))).await;
        assert!(error.contains(status.split(' ').next().unwrap()), "{error}");
    }
}

#[tokio::test]
async fn redirects_are_followed_with_headers_on_the_same_server_only() {
    let other = Server::start(|_| body(RECORDS));
    let elsewhere = other.url();
    let server = Server::start(move |request| match &*request.target {
        "/a" => answer("302 Found", "location: /b?x=1\r\n", "moved"),
        "/b?x=1" => answer("308 Permanent Redirect", &format!("location: {elsewhere}/c#d\r\n"), ""),
        other => panic!("{other}"),
    });
    let settings = json!({ "path": "a" });
    let headers = json!({ "authorization": "geheim" });
    let more = json!({ "headers": headers, "other_hosts": ["127.0.0.1"] });
    assert_eq!(ids(&source(&server, settings.clone(), more)).await.unwrap(), [1]);
    let sent = server.requests();
    assert!(
        sent.len() == 2 && sent.iter().all(|it| it.header("authorization").is_some()),
        "{sent:?}"
    );
    let sent = other.requests();
    assert_eq!((sent[0].header("authorization"), &*sent[0].target), (None, "/c"));
    let error = failure(&source(&server, settings, json!({ "headers": headers }))).await;
    assert!(error.contains("is on another server"), "{error}");
    assert_eq!(other.requests().len(), 1);
}

#[tokio::test]
async fn redirects_without_end_or_target_are_errors() {
    for (location, expected) in [
        ("location: /\r\n", "more than 5 times"),
        ("", "no valid address"),
        ("location: http://[\r\n", "no valid address"),
        ("location: file:///etc/passwd\r\n", "not an address of HTTP"),
    ] {
        let server = Server::start(move |_| answer("301 Moved", location, ""));
        let error = failure(&source(&server, json!({}), json!({}))).await;
        assert!(error.contains(expected), "{location}: {error}");
        assert!(server.requests().len() <= 6);
    }
}

#[tokio::test]
async fn an_answer_that_is_too_large_is_refused_before_it_is_in_memory() {
    let announced = "HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n[";
    let chunk = format!("800\r\n{}\r\n", " ".repeat(0x800));
    let chunked =
        format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{}", chunk.repeat(3));
    let endless = format!("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{}", " ".repeat(5_000));
    for text in [announced.to_owned(), chunked, endless] {
        let server = Server::start(move |_| text.clone().into_bytes());
        let error =
            failure(&source(&server, json!({}), json!({ "max_response_size": "4KiB" }))).await;
        assert!(error.contains("`max_response_size`, 4096 bytes"), "{error}");
        assert_eq!(server.requests().len(), 1);
    }
}

#[tokio::test]
async fn what_is_not_http_is_an_error() {
    let many: String = (0..200).map(|index| format!("x-{index}: y\r\n")).collect();
    let long = format!("x: {}\r\n", "y".repeat(100_000));
    for text in [
        "nonsense\r\n\r\n".to_owned(),
        format!("HTTP/1.1 200 OK\r\n{many}\r\n[]"),
        format!("HTTP/1.1 200 OK\r\n{long}\r\n[]"),
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n[]]".to_owned(),
        "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n[]".to_owned(),
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n[]\r\n".to_owned(),
        String::new(),
    ] {
        let server = Server::start(move |_| {
            let mut bytes = text.clone().into_bytes();
            bytes.extend_from_slice(b"\r\n\r\n");
            bytes
        });
        let more = json!({ "retries": 0, "timeout": "500ms" });
        let error = failure(&source(&server, json!({}), more)).await;
        assert!(error.contains("cannot reach"), "{error}");
    }
}

#[tokio::test]
async fn an_encoded_answer_is_refused_and_one_without_body_has_no_records() {
    let server = Server::start(|_| answer("200 OK", "content-encoding: gzip\r\n", "\x1f"));
    let error = failure(&source(&server, json!({}), json!({}))).await;
    assert!(error.contains("encoded as gzip"), "{error}");
    let server = Server::start(|_| b"HTTP/1.1 204 No Content\r\n\r\n".to_vec());
    let columns = json!([{ "name": "id", "type": "bigint" }]);
    let settings = json!({ "records": "/data", "columns": columns });
    assert_eq!(ids(&source(&server, settings, json!({}))).await.unwrap(), Vec::<i64>::new());
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named() {
    let server = Server::start(|_| Vec::new());
    let closed = {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        listener.local_addr().unwrap()
    };
    let more = json!({ "url": format!("http://{closed}"), "retries": 0 });
    let error = failure(&source(&server, json!({}), more)).await;
    assert!(error.contains(&closed.to_string()), "{error}");
}
