//! Presigned URLs as the AWS SDK for JavaScript makes them, with headers in the query.

use axum::body::Body;
use bytes::Bytes;
use forebay_api::keys::Scope;
use http::Request;

use crate::support::{Answer, Key, Server, presign_with};

async fn with_source() -> (Server, Key) {
    let server = Server::start();
    let key = server.all();
    server.call(&key, "PUT", "/data", &[], "").await;
    server.call(&key, "PUT", "/data/source", &[("x-amz-meta-a", "1")], "bytes").await;
    (server, key)
}

async fn send(server: &Server, key: &Key, path: &str, more: &str, body: &'static str) -> Answer {
    let url = presign_with(key, "PUT", path, 60, more);
    let request = Request::put(url).header("host", "localhost:9000");
    let request = request.header("content-length", body.len().to_string());
    server.send(request.body(Body::from(body)).unwrap()).await
}

#[tokio::test]
async fn a_copy_whose_source_is_in_the_query_copies() {
    let (server, key) = with_source().await;
    server.call(&key, "PUT", "/data/k", &[], "before").await;
    let more = "x-amz-copy-source=data%2Fsource&x-id=CopyObject";
    let copied = send(&server, &key, "/data/k", more, "").await;
    assert_eq!(copied.status, 200, "{}", copied.text());
    let found = server.call(&key, "GET", "/data/k", &[], "").await;
    assert_eq!(found.body, Bytes::from_static(b"bytes"));
    let twice = "x-amz-copy-source=data%2Fsource&X-Amz-Copy-Source=data%2Fsource";
    let refused = send(&server, &key, "/data/k", twice, "").await;
    assert_eq!(refused.element("Code").as_deref(), Some("InvalidArgument"));
    let writer = server.key(&[Scope::Write], &[]);
    let refused = send(&server, &writer, "/data/l", more, "").await;
    assert_eq!(refused.status, 403, "the signer may not read");
}

#[tokio::test]
async fn a_part_whose_source_is_in_the_query_is_copied() {
    let (server, key) = with_source().await;
    let begun = server.call(&key, "POST", "/data/big?uploads=", &[], "").await;
    let id = begun.element("UploadId").unwrap();
    let more = format!(
        "partNumber=1&uploadId={id}&x-amz-copy-source=data%2Fsource&x-amz-copy-source-range=bytes%3D1-2"
    );
    let copied = send(&server, &key, "/data/big", &more, "").await;
    assert!(copied.text().contains("<CopyPartResult"), "{}", copied.text());
    let listed = server.call(&key, "GET", &format!("/data/big?uploadId={id}"), &[], "").await;
    assert_eq!(listed.element("Size").as_deref(), Some("2"), "{}", listed.text());
}

#[tokio::test]
async fn metadata_and_tags_in_the_query_are_stored_and_the_checksum_of_nothing_is_not_compared() {
    let (server, key) = with_source().await;
    let more = "x-amz-meta-a=2&x-amz-tagging=t%3D3&x-amz-checksum-crc32=AAAAAA%3D%3D\
                &x-amz-sdk-checksum-algorithm=CRC32&x-id=PutObject";
    let stored = send(&server, &key, "/data/k", more, "hello").await;
    assert_eq!(stored.status, 200, "{}", stored.text());
    let found = server.call(&key, "GET", "/data/k", &[], "").await;
    assert_eq!((&found.body[..], found.header("x-amz-meta-a")), (&b"hello"[..], Some("2")));
    let tags = server.call(&key, "GET", "/data/k?tagging=", &[], "").await.text();
    assert!(tags.contains("<Key>t</Key><Value>3</Value>"), "{tags}");
    for (more, code) in [
        ("x-amz-acl=public-read", "AccessControlListNotSupported"),
        ("x-amz-storage-class=GLACIER", "InvalidStorageClass"),
    ] {
        let refused = send(&server, &key, "/data/k", more, "").await;
        assert_eq!(refused.element("Code").as_deref(), Some(code));
    }
    let found = server.call(&key, "GET", "/data/k", &[], "").await;
    assert_eq!(&found.body[..], b"hello");
}
