//! XML of requests as clients write it.

use axum::body::Body;
use bytes::Bytes;
use ring::digest;

use crate::support::{Answer, Key, Server, sign, with_bucket};

/// Sends XML whose digest is signed.
async fn send(server: &Server, key: &Key, method: &str, target: &str, xml: &str) -> Answer {
    let sha256 = hex::encode(digest::digest(&digest::SHA256, xml.as_bytes()));
    let length = xml.len().to_string();
    let request = sign(key, method, target, &[("content-length", &length)], &sha256);
    server.send(request.body(Body::from(xml.to_owned())).unwrap()).await
}

#[tokio::test]
async fn keys_are_deleted_however_xml_writes_them() {
    let (server, key) = with_bucket().await;
    for name in ["%F0%9F%98%80", "a%26b", "c%3Cd", "e"] {
        assert_eq!(server.call(&key, "PUT", &format!("/data/{name}"), &[], "x").await.status, 200);
    }
    let keys = ["&#128512;", "<![CDATA[a&b]]>", "c&lt;<![CDATA[d]]>", "<!-- f -->e"];
    let objects: String =
        keys.iter().map(|key| format!("<Object><Key>{key}</Key></Object>")).collect();
    let xml = format!("<?xml version=\"1.0\"?><Delete>{objects}</Delete>");
    let deleted = send(&server, &key, "POST", "/data?delete=", &xml).await;
    assert_eq!(deleted.status, 200, "{}", deleted.text());
    assert_eq!(deleted.text().matches("<Deleted>").count(), 4, "{}", deleted.text());
    let listed = server.call(&key, "GET", "/data", &[], "").await.text();
    assert!(!listed.contains("<Key>"), "{listed}");
}

#[tokio::test]
async fn an_empty_key_deletes_nothing() {
    let (server, key) = with_bucket().await;
    server.call(&key, "PUT", "/data/k", &[], "x").await;
    for empty in ["<Key></Key>", "<Key/>", "<Key><![CDATA[]]></Key>"] {
        let xml = format!("<Delete><Object><Key>k</Key></Object><Object>{empty}</Object></Delete>");
        let refused = send(&server, &key, "POST", "/data?delete=", &xml).await;
        assert_eq!(refused.element("Code").as_deref(), Some("MalformedXML"), "{empty}");
    }
    assert_eq!(server.call(&key, "GET", "/data/k", &[], "").await.status, 200);
}

#[tokio::test]
async fn a_tag_in_a_section_is_stored_and_the_bytes_of_an_object_are_not_rewritten() {
    let (server, key) = with_bucket().await;
    let bytes = "<a><![CDATA[b]]>&#128512;</a>";
    for target in ["/data/k", "/data/k?unknown=1", "/data/k?x-id=PutObject"] {
        assert_eq!(send(&server, &key, "PUT", target, bytes).await.status, 200);
        let found = server.call(&key, "GET", "/data/k", &[], "").await;
        assert_eq!(found.body, Bytes::from_static(bytes.as_bytes()), "{target}");
    }
    let xml =
        "<Tagging><TagSet><Tag><Key>a</Key><Value><![CDATA[b c]]></Value></Tag></TagSet></Tagging>";
    assert_eq!(send(&server, &key, "PUT", "/data/k?tagging=", xml).await.status, 200);
    let tags = server.call(&key, "GET", "/data/k?tagging=", &[], "").await.text();
    assert!(tags.contains("<Key>a</Key><Value>b c</Value>"), "{tags}");
}

#[tokio::test]
async fn xml_that_is_not_what_was_signed_is_refused_and_so_is_a_key_without_the_scope() {
    let (server, key) = with_bucket().await;
    server.call(&key, "PUT", "/data/k", &[], "x").await;
    let xml = "<Delete><Object><Key>k</Key></Object></Delete>";
    let length = xml.len().to_string();
    let sha256 = hex::encode(digest::digest(&digest::SHA256, b"other"));
    let request = sign(&key, "POST", "/data?delete=", &[("content-length", &length)], &sha256);
    let refused = server.send(request.body(Body::from(xml)).unwrap()).await;
    assert_eq!(refused.element("Code").as_deref(), Some("XAmzContentSHA256Mismatch"));
    let mut wrong = key.clone();
    wrong.secret = "0".repeat(64);
    let refused = send(&server, &wrong, "POST", "/data?delete=", xml).await;
    assert_eq!(refused.element("Code").as_deref(), Some("SignatureDoesNotMatch"));
    let reader = server.key(&[forebay_api::keys::Scope::Read], &[]);
    assert_eq!(send(&server, &reader, "POST", "/data?delete=", xml).await.status, 403);
    let limited = server.key(&[forebay_api::keys::Scope::Write], &["files:other"]);
    assert_eq!(send(&server, &limited, "POST", "/data?delete=", xml).await.status, 403);
    assert_eq!(server.call(&key, "GET", "/data/k", &[], "").await.status, 200);
}

#[tokio::test]
async fn xml_above_its_limit_is_refused_as_too_large() {
    let (server, key) = with_bucket().await;
    let xml = format!("<Delete>{}</Delete>", " ".repeat(8 << 20));
    let refused = send(&server, &key, "POST", "/data?delete=", &xml).await;
    let code = refused.element("Code");
    assert_eq!((refused.status, code.as_deref()), (400, Some("MaxMessageLengthExceeded")));
    let declared = [("content-length", "99999999")];
    let request = sign(&key, "POST", "/data?delete=", &declared, crate::support::UNSIGNED);
    let refused = server.send(request.body(Body::empty()).unwrap()).await;
    assert_eq!(refused.element("Code").as_deref(), Some("MaxMessageLengthExceeded"));
    let pieces = (0..9).map(|_| Ok::<_, std::io::Error>(Bytes::from(vec![b' '; 1 << 20])));
    let request =
        sign(&key, "POST", "/data?delete=", &[("content-length", "10")], crate::support::UNSIGNED);
    let endless = Body::from_stream(futures_util::stream::iter(pieces));
    let refused = server.send(request.body(endless).unwrap()).await;
    assert_eq!(refused.element("Code").as_deref(), Some("MaxMessageLengthExceeded"));
}
