//! What the port refuses, each by the fault that it prevents.

use axum::body::Body;
use bytes::Bytes;
use forebay_api::keys::Scope;
use http::Request;

use crate::support::{Server, presign, sign};

const CHUNKED: &str = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";

#[tokio::test]
async fn a_request_without_a_signature_or_with_a_wrong_one_is_refused() {
    let server = Server::start();
    let key = server.all();
    let anonymous =
        Request::get("/data/k").header("host", "localhost").body(Body::empty()).unwrap();
    let answer = server.send(anonymous).await;
    assert_eq!((answer.status, answer.element("Code").as_deref()), (403, Some("AccessDenied")));
    assert_eq!(answer.element("RequestId").as_deref(), Some("r-1"));
    let mut wrong = key.clone();
    wrong.secret = "0".repeat(64);
    let answer = server.call(&wrong, "GET", "/", &[], "").await;
    assert_eq!(answer.element("Code").as_deref(), Some("SignatureDoesNotMatch"));
    let mut unknown = key.clone();
    unknown.id = "000000000000".to_owned();
    let answer = server.call(&unknown, "GET", "/", &[], "").await;
    assert_eq!(answer.element("Code").as_deref(), Some("InvalidAccessKeyId"));
    assert_eq!(server.call(&key, "GET", "/", &[], "").await.status, 200);
}

#[tokio::test]
async fn a_revoked_key_signs_nothing() {
    let server = Server::start();
    let key = server.all();
    assert_eq!(server.call(&key, "PUT", "/data", &[], "").await.status, 200);
    let url = presign(&key, "GET", "/data", 60);
    server.file.revoke(&key.id).unwrap();
    server.ring.reload().unwrap();
    assert_eq!(server.call(&key, "GET", "/data", &[], "").await.status, 403);
    let request = Request::get(url).header("host", "localhost:9000").body(Body::empty()).unwrap();
    assert_eq!(server.send(request).await.status, 403);
}

#[tokio::test]
async fn the_holder_of_a_presigned_put_cannot_copy_another_object() {
    let server = Server::start();
    let key = server.all();
    server.call(&key, "PUT", "/data", &[], "").await;
    server.call(&key, "PUT", "/data/secret", &[], "secret").await;
    let put = |header: Option<(&str, &str)>| {
        let url = presign(&key, "PUT", "/data/mine", 60);
        let mut request =
            Request::put(url).header("host", "localhost:9000").header("content-length", "1");
        if let Some((name, value)) = header {
            request = request.header(name, value);
        }
        request.body(Body::from("x")).unwrap()
    };
    let answer = server.send(put(Some(("x-amz-copy-source", "/data/secret")))).await;
    assert_eq!((answer.status, answer.element("Code").as_deref()), (403, Some("AccessDenied")));
    assert_eq!(server.call(&key, "GET", "/data/mine", &[], "").await.status, 404);
    assert_eq!(server.send(put(None)).await.status, 200);
}

#[tokio::test]
async fn a_key_reaches_its_namespaces_and_scope_only() {
    let server = Server::start();
    let all = server.all();
    for bucket in ["open", "shut"] {
        assert_eq!(server.call(&all, "PUT", &format!("/{bucket}"), &[], "").await.status, 200);
        server.call(&all, "PUT", &format!("/{bucket}/k"), &[], "bytes").await;
    }
    let limited = server.key(&[Scope::Read, Scope::Write], &["files:open"]);
    let status = async |method, target, headers: &[(&str, &str)]| {
        server.call(&limited, method, target, headers, "").await.status
    };
    assert_eq!(status("GET", "/open/k", &[]).await, 200);
    assert_eq!(status("GET", "/shut/k", &[]).await, 403);
    assert_eq!(status("DELETE", "/shut/k", &[]).await, 403);
    let source = [("x-amz-copy-source", "/shut/k")];
    assert_eq!(status("PUT", "/open/copy", &source).await, 403, "the source of a copy");
    let listed = server.call(&limited, "GET", "/", &[], "").await.text();
    assert!(listed.contains("<Name>open</Name>") && !listed.contains("shut"), "{listed}");
    let reader = server.key(&[Scope::Read], &[]);
    assert_eq!(server.call(&reader, "GET", "/open/k", &[], "").await.status, 200);
    assert_eq!(server.call(&reader, "PUT", "/open/new", &[], "x").await.status, 403);
    let appender = server.key(&[Scope::Append], &[]);
    let new = [("if-none-match", "*")];
    assert_eq!(server.call(&appender, "PUT", "/open/new", &new, "x").await.status, 200);
    assert_eq!(server.call(&appender, "PUT", "/open/new", &new, "y").await.status, 412);
    assert_eq!(server.call(&appender, "PUT", "/open/new", &[], "y").await.status, 403);
    assert_eq!(server.call(&appender, "GET", "/open/new", &[], "").await.status, 403);
}

#[tokio::test]
async fn a_cut_or_altered_upload_is_not_acknowledged() {
    let server = Server::start();
    let key = server.all();
    server.call(&key, "PUT", "/data", &[], "").await;
    let chunked = |body: &'static str, declared: &str| {
        let headers = [
            ("content-encoding", "aws-chunked"),
            ("x-amz-decoded-content-length", declared),
            ("x-amz-trailer", "x-amz-checksum-crc32"),
        ];
        sign(&key, "PUT", "/data/k", &headers, CHUNKED).body(Body::from(body)).unwrap()
    };
    // The CRC32 of "hello" is 3610a686.
    let whole = "5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n";
    for (body, declared, code) in [
        ("5\r\nhello\r\n", "5", "IncompleteBody"),
        ("5\r\nhel", "5", "IncompleteBody"),
        (whole, "6", "IncompleteBody"),
        (whole, "4", "IncompleteBody"),
        ("5\r\nhello\r\n0\r\n\r\n", "5", "MalformedTrailerError"),
        ("5\r\nhellO\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n", "5", "BadDigest"),
    ] {
        let answer = server.send(chunked(body, declared)).await;
        assert_eq!(
            (answer.status, answer.element("Code").as_deref()),
            (400, Some(code)),
            "{body:?}"
        );
        assert_eq!(server.call(&key, "HEAD", "/data/k", &[], "").await.status, 404, "{body:?}");
    }
    // A checksum that no header announces is not computed.
    let headers = [("content-encoding", "aws-chunked"), ("x-amz-decoded-content-length", "5")];
    let unannounced = sign(&key, "PUT", "/data/k", &headers, CHUNKED).body(Body::from(whole));
    let answer = server.send(unannounced.unwrap()).await;
    assert_eq!(answer.element("Code").as_deref(), Some("MalformedTrailerError"));
    assert_eq!(server.call(&key, "HEAD", "/data/k", &[], "").await.status, 404);
    let answer = server.send(chunked(whole, "5")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("x-amz-checksum-crc32"), Some("NhCmhg=="));
    let read = server.call(&key, "GET", "/data/k", &[("x-amz-checksum-mode", "ENABLED")], "").await;
    assert_eq!(read.body, Bytes::from_static(b"hello"));
    assert_eq!(read.header("content-encoding"), None, "aws-chunked is of the request");
    assert_eq!(read.header("x-amz-checksum-crc32"), Some("NhCmhg=="));
    let wrong = [("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==")];
    let answer = server.call(&key, "PUT", "/data/other", &wrong, "hello").await;
    assert_eq!((answer.status, answer.element("Code").as_deref()), (400, Some("BadDigest")));
    assert_eq!(server.call(&key, "HEAD", "/data/other", &[], "").await.status, 404);
    let xml = "<Delete><Object><Key>k</Key></Object></Delete>";
    let length = xml.len().to_string();
    let headers = [wrong[0], ("content-length", &length)];
    let answer = server.call(&key, "POST", "/data?delete", &headers, xml).await;
    assert_eq!((answer.status, answer.element("Code").as_deref()), (400, Some("BadDigest")));
    assert_eq!(server.call(&key, "HEAD", "/data/k", &[], "").await.status, 200, "not deleted");
}

#[tokio::test]
async fn a_body_that_is_not_the_signed_one_stores_nothing() {
    let server = Server::start();
    let key = server.all();
    server.call(&key, "PUT", "/data", &[], "").await;
    let payload = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    let headers = [("content-length", "5")];
    for (body, status) in [("jello", 400), ("hello", 200)] {
        let request = sign(&key, "PUT", "/data/k", &headers, payload);
        let answer = server.send(request.body(Body::from(body)).unwrap()).await;
        assert_eq!(answer.status, status, "{}", answer.text());
        let found = server.call(&key, "HEAD", "/data/k", &[], "").await.status;
        assert_eq!(found, if status == 200 { 200 } else { 404 });
    }
}

#[tokio::test]
async fn names_that_a_namespace_cannot_have_never_become_paths() {
    let server = Server::start();
    let key = server.all();
    server.call(&key, "PUT", "/data", &[], "").await;
    for target in
        ["/data/a/../b", "/data/a//b", "/data/..", "/data/%2e%2e/x", "/data/a%0Ab", "/data/a%5Cb"]
    {
        let answer = server.call(&key, "PUT", target, &[], "x").await;
        // A path that is not written canonically has another signature.
        assert!(matches!(answer.status, 400 | 403), "{target}: {}", answer.text());
        let found = server.call(&key, "GET", target, &[], "").await.status;
        assert!(matches!(found, 403 | 404), "{target}: {found}");
    }
    for target in ["/%2e%2e", "/UPPER", "/a%2Fb"] {
        let answer = server.call(&key, "PUT", target, &[], "").await;
        assert!((400..500).contains(&answer.status), "{target}: {}", answer.status);
    }
}

#[tokio::test]
async fn a_body_that_is_not_what_was_signed_is_the_clients_error_whatever_the_request() {
    let server = Server::start();
    let key = server.all();
    server.call(&key, "PUT", "/data", &[], "").await;
    server.call(&key, "PUT", "/data/k", &[], "x").await;
    let other = "e".repeat(64);
    for (method, target, body) in [
        ("PUT", "/data/k", ""),
        ("PUT", "/data/k", "bytes"),
        ("PUT", "/data/k?tagging=", ""),
        ("PUT", "/data/k?tagging=", "<Tagging><TagSet></TagSet></Tagging>"),
        ("PUT", "/data?versioning=", ""),
        ("PUT", "/data?tagging=", "<Tagging>"),
        ("POST", "/data?delete=", "<Delete></Delete>"),
        ("GET", "/data/k", ""),
        ("GET", "/data", ""),
        ("DELETE", "/data/k", ""),
        ("PUT", "/new", ""),
    ] {
        let length = body.len().to_string();
        let headers = [("content-length", length.as_str())];
        let request = sign(&key, method, target, &headers, &other).body(Body::from(body)).unwrap();
        let answer = server.send(request).await;
        let code = answer.element("Code");
        let found = (answer.status, code.as_deref());
        assert_eq!(found, (400, Some("XAmzContentSHA256Mismatch")), "{method} {target} {body:?}");
    }
    let kept = server.call(&key, "GET", "/data/k", &[], "").await;
    assert_eq!((kept.status, &kept.body[..]), (200, &b"x"[..]));
    assert_eq!(server.call(&key, "HEAD", "/new", &[], "").await.status, 404);
}
