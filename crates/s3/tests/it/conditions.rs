//! Conditions of requests, on what is read, replaced and copied.

use bytes::Bytes;

use crate::support::{Key, Server, completion};

async fn with_objects() -> (Server, Key) {
    let server = Server::start();
    let key = server.all();
    server.call(&key, "PUT", "/data", &[], "").await;
    server.call(&key, "PUT", "/data/source", &[], "new").await;
    server.call(&key, "PUT", "/data/k", &[], "old").await;
    (server, key)
}

#[tokio::test]
async fn a_copy_overwrites_only_what_its_conditions_permit() {
    let (server, key) = with_objects().await;
    let source = ("x-amz-copy-source", "data/source");
    let copy = async |target: &str, name: &str, value: &str| {
        let answer = server.call(&key, "PUT", target, &[source, (name, value)], "").await;
        let message = answer.element("Message").unwrap_or_default();
        (answer.status, message.split(": ").nth(1).unwrap_or_default().to_owned())
    };
    let etag = server.call(&key, "HEAD", "/data/k", &[], "").await;
    let etag = etag.header("etag").unwrap().to_owned();
    for (name, value, which) in [
        ("if-none-match", "*", "If-None-Match"),
        ("if-match", "\"0123\"", "If-Match"),
        ("x-amz-copy-source-if-match", "\"0123\"", "x-amz-copy-source-if-match"),
        ("x-amz-copy-source-if-none-match", "*", "x-amz-copy-source-if-none-match"),
    ] {
        assert_eq!(copy("/data/k", name, value).await, (412, which.to_owned()));
        let kept = server.call(&key, "GET", "/data/k", &[], "").await;
        assert_eq!(kept.body, Bytes::from_static(b"old"), "{name}");
    }
    assert_eq!(copy("/data/k", "if-match", "x\"").await.0, 400);
    assert_eq!(copy("/data/none", "if-match", &etag).await.0, 404);
    assert_eq!(copy("/data/k", "if-match", &etag).await.0, 200);
    assert_eq!(copy("/data/l", "if-none-match", "*").await.0, 200);
    assert_eq!(copy("/data/l", "if-none-match", "*").await.0, 412);
    let copied = server.call(&key, "GET", "/data/k", &[], "").await;
    assert_eq!(copied.body, Bytes::from_static(b"new"));
}

#[tokio::test]
async fn a_completed_upload_overwrites_only_what_its_conditions_permit() {
    let (server, key) = with_objects().await;
    let begun = server.call(&key, "POST", "/data/k?uploads=", &[], "").await;
    let id = begun.element("UploadId").unwrap();
    let target = format!("/data/k?partNumber=1&uploadId={id}");
    let part = server.call(&key, "PUT", &target, &[], "part").await;
    let etag = part.header("etag").unwrap();
    let xml = completion(&[(1, etag)]);
    let length = xml.len().to_string();
    let complete = async |name, value| {
        let headers = [("content-length", length.as_str()), (name, value)];
        let target = format!("/data/k?uploadId={id}");
        server.call(&key, "POST", &target, &headers, xml.clone()).await.status
    };
    assert_eq!(complete("if-none-match", "*").await, 412);
    assert_eq!(complete("if-match", "\"0123\"").await, 412);
    assert_eq!(complete("if-match", "*").await, 200);
}

#[tokio::test]
async fn dates_that_no_one_can_read_are_no_conditions_even_where_they_are_signed() {
    let (server, key) = with_objects().await;
    let get = async |name: &str, value: &str| {
        server.call(&key, "GET", "/data/k", &[(name, value)], "").await.status
    };
    for date in ["yesterday", "2015-10-21T07:28:00Z", "0"] {
        assert_eq!(get("if-modified-since", date).await, 200, "{date}");
        assert_eq!(get("if-unmodified-since", date).await, 200, "{date}");
    }
    for date in [
        "Wed, 21 Oct 2015 07:28:00 GMT",
        "Wednesday, 21-Oct-15 07:28:00 GMT",
        "Wed Oct 21 07:28:00 2015",
    ] {
        assert_eq!(get("if-modified-since", date).await, 200, "{date}");
        assert_eq!(get("if-unmodified-since", date).await, 412, "{date}");
        let head = server.call(&key, "HEAD", "/data/k", &[("if-unmodified-since", date)], "").await;
        assert_eq!(head.status, 412, "{date}");
        let source = ("x-amz-copy-source", "data/source");
        let copy = [source, ("x-amz-copy-source-if-unmodified-since", date)];
        assert_eq!(server.call(&key, "PUT", "/data/l", &copy, "").await.status, 412, "{date}");
    }
    let copy = [
        ("x-amz-copy-source", "data/source"),
        ("x-amz-copy-source-if-unmodified-since", "yesterday"),
    ];
    assert_eq!(server.call(&key, "PUT", "/data/l", &copy, "").await.status, 200);
    let found = server.call(&key, "GET", "/data/k", &[("range", "bytes=0-0,2-2")], "").await;
    assert_eq!((found.status, &found.body[..]), (200, &b"old"[..]), "a range that is signed");
}
