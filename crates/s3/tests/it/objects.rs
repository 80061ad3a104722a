//! Buckets, objects, listings and copies.

use bytes::Bytes;
use forebay_api::keys::Scope;
use forebay_intake::catalogue::{NamespaceRecord, Quota};
use forebay_intake::names::Namespace;

use crate::support::{completion, with_bucket};

#[tokio::test]
async fn a_bucket_exists_without_objects_and_is_removed_only_when_empty() {
    let (server, key) = with_bucket().await;
    let call = async |method, target| server.call(&key, method, target, &[], "").await;
    assert_eq!(
        call("PUT", "/data").await.element("Code").as_deref(),
        Some("BucketAlreadyOwnedByYou")
    );
    let head = call("HEAD", "/data").await;
    assert_eq!((head.status, head.header("x-amz-bucket-region")), (200, Some("forebay")));
    assert!(call("GET", "/data?location=").await.text().contains(">forebay</LocationConstraint>"));
    assert!(call("GET", "/").await.text().contains("<Name>data</Name>"));
    server.call(&key, "PUT", "/data/k", &[], "x").await;
    assert_eq!(call("DELETE", "/data").await.element("Code").as_deref(), Some("BucketNotEmpty"));
    assert_eq!(call("DELETE", "/data/k").await.status, 204);
    assert_eq!(call("DELETE", "/data/k").await.status, 204, "a missing key is deleted already");
    assert_eq!(call("DELETE", "/data").await.status, 204);
    assert_eq!(call("HEAD", "/data").await.status, 404);
    assert_eq!(call("PUT", "/data/k").await.element("Code").as_deref(), Some("NoSuchBucket"));
    assert_eq!(call("PUT", "/a_b").await.element("Code").as_deref(), Some("InvalidBucketName"));
}

#[tokio::test]
async fn an_expires_that_is_no_date_is_returned_as_it_was_sent() {
    let (server, key) = with_bucket().await;
    let date = "Sun, 06 Nov 1994 08:49:37 GMT";
    for expires in ["0", "-1", "next week", "2026-11-28T10:00:00Z", date] {
        let headers = [("expires", expires)];
        let put = server.call(&key, "PUT", "/data/put", &headers, "content").await;
        assert_eq!(put.status, 200, "{expires}: {}", put.text());
        let from = [("x-amz-copy-source", "/data/put"), headers[0]];
        let replaced = [from[0], from[1], ("x-amz-metadata-directive", "REPLACE")];
        for (target, headers) in [("/data/kept", &from[..1]), ("/data/replaced", &replaced)] {
            let copied = server.call(&key, "PUT", target, headers, "").await;
            assert_eq!(copied.status, 200, "{expires}: {}", copied.text());
        }
        let upload = server.call(&key, "POST", "/data/parts?uploads=", &headers, "").await;
        let id = upload.element("UploadId").unwrap();
        let part = format!("/data/parts?partNumber=1&uploadId={id}");
        let part = server.call(&key, "PUT", &part, &[], "content").await;
        let etag = part.header("etag").unwrap();
        let xml = completion(&[(1, etag)]);
        let length = xml.len().to_string();
        let complete = format!("/data/parts?uploadId={id}");
        let length = [("content-length", length.as_str())];
        assert_eq!(server.call(&key, "POST", &complete, &length, xml).await.status, 200);
        for name in ["put", "kept", "replaced", "parts"] {
            for method in ["GET", "HEAD"] {
                let got = server.call(&key, method, &format!("/data/{name}"), &[], "").await;
                assert_eq!(got.header("expires"), Some(expires), "{method} {name}");
                if method == "GET" {
                    assert_eq!(got.text(), "content", "{expires} {name}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_bucket_answers_what_one_without_a_configuration_answers() {
    let (server, key) = with_bucket().await;
    for (name, status, expected) in [
        ("logging", 200, "<BucketLoggingStatus"),
        ("notification", 200, "<NotificationConfiguration"),
        ("accelerate", 200, "<AccelerateConfiguration"),
        ("requestPayment", 200, "<Payer>BucketOwner</Payer>"),
        ("website", 404, "<Code>NoSuchWebsiteConfiguration<"),
        ("replication", 404, "<Code>ReplicationConfigurationNotFoundError<"),
        ("publicAccessBlock", 404, "<Code>NoSuchPublicAccessBlockConfiguration<"),
        ("ownershipControls", 404, "<Code>OwnershipControlsNotFoundError<"),
    ] {
        let found = server.call(&key, "GET", &format!("/data?{name}="), &[], "").await;
        assert_eq!(found.status, status, "{name}");
        assert!(found.text().contains(expected), "{name}: {}", found.text());
        let missing = server.call(&key, "GET", &format!("/none?{name}="), &[], "").await;
        assert_eq!(missing.element("Code").as_deref(), Some("NoSuchBucket"), "{name}");
    }
}

#[tokio::test]
async fn an_object_comes_back_as_it_was_sent() {
    let (server, key) = with_bucket().await;
    let headers = [
        ("content-type", "text/html; charset=latin1"),
        ("cache-control", "no-store"),
        ("x-amz-meta-mtime", "12.5"),
        ("x-amz-tagging", "a=1&b=2"),
    ];
    let put = server.call(&key, "PUT", "/data/dir/file", &headers, "hello").await;
    assert_eq!(put.header("etag"), Some("\"5d41402abc4b2a76b9719d911017c592\""), "an MD5");
    for method in ["GET", "HEAD"] {
        let got = server.call(&key, method, "/data/dir/file", &[], "").await;
        assert_eq!(got.status, 200);
        assert_eq!(got.header("content-type"), Some("text/html; charset=latin1"));
        assert_eq!(got.header("cache-control"), Some("no-store"));
        assert_eq!(got.header("x-amz-meta-mtime"), Some("12.5"));
        assert_eq!(got.header("etag"), put.header("etag"));
        assert_eq!(got.header("content-length"), Some("5"));
        let policy = got.header("content-security-policy").unwrap();
        assert!(policy.contains("sandbox"), "{policy}");
    }
    let tags = server.call(&key, "GET", "/data/dir/file?tagging=", &[], "").await.text();
    assert!(tags.contains("<Key>b</Key><Value>2</Value>"), "{tags}");
    let large = vec![7_u8; 3 << 20];
    let put = server.call(&key, "PUT", "/data/large", &[], large.clone()).await;
    assert_eq!(put.status, 200, "{}", put.text());
    let part =
        server.call(&key, "GET", "/data/large", &[("range", "bytes=1048576-1048579")], "").await;
    assert_eq!((part.status, part.body.len()), (206, 4));
    assert_eq!(part.header("content-range"), Some("bytes 1048576-1048579/3145728"));
    assert!(server.call(&key, "GET", "/data/large", &[], "").await.body == large);
    let beyond = server.call(&key, "GET", "/data/large", &[("range", "bytes=9999999-")], "").await;
    assert_eq!(beyond.element("Code").as_deref(), Some("InvalidRange"));
}

#[tokio::test]
async fn a_bucket_has_the_tags_that_were_set_last() {
    let (server, key) = with_bucket().await;
    let call = async |method: &str, target: &str| server.call(&key, method, target, &[], "").await;
    let set = async |target: &str, tags: &[(String, &str)]| {
        let tags: String = tags
            .iter()
            .map(|(name, value)| format!("<Tag><Key>{name}</Key><Value>{value}</Value></Tag>"))
            .collect();
        let xml = format!("<Tagging><TagSet>{tags}</TagSet></Tagging>");
        let length = xml.len().to_string();
        server.call(&key, "PUT", target, &[("content-length", &length)], xml).await
    };
    let none = call("GET", "/data?tagging=").await;
    assert_eq!((none.status, none.element("Code").as_deref()), (404, Some("NoSuchTagSet")));
    for tags in [&[("team".to_owned(), "a"), ("b".to_owned(), "")][..], &[("cost".to_owned(), "7")]]
    {
        let stored = set("/data?tagging=", tags).await;
        assert_eq!(stored.status, 204, "{}", stored.text());
        let found = call("GET", "/data?tagging=").await.text();
        assert_eq!(found.matches("<Tag>").count(), tags.len(), "{found}");
        for (name, value) in tags {
            let tag = format!("<Key>{name}</Key><Value>{value}</Value>");
            let empty = format!("<Key>{name}</Key><Value/>");
            assert!(found.contains(&tag) || found.contains(&empty), "{found}");
        }
    }
    // What is stored beside the tags stays.
    let versioned = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    let length = versioned.len().to_string();
    let headers = [("content-length", length.as_str())];
    server.call(&key, "PUT", "/data?versioning=", &headers, versioned).await;
    let many: Vec<(String, &str)> = (0..51).map(|n| (format!("t{n}"), "x")).collect();
    assert_eq!(set("/data?tagging=", &many[..50]).await.status / 100, 2);
    for (wrong, code) in [
        (&many[..], "BadRequest"),
        (&[(String::new(), "x")], "InvalidTag"),
        (&[("aws:x".to_owned(), "x")], "InvalidTag"),
    ] {
        let refused = set("/data?tagging=", wrong).await;
        assert_eq!((refused.status, refused.element("Code").as_deref()), (400, Some(code)));
    }
    assert_eq!(call("GET", "/data?tagging=").await.text().matches("<Tag>").count(), 50);
    assert_eq!(call("DELETE", "/data?tagging=").await.status, 204);
    assert_eq!(call("GET", "/data?tagging=").await.status, 404);
    let status = call("GET", "/data?versioning=").await.element("Status");
    assert_eq!(status.as_deref(), Some("Enabled"));
    let missing = set("/none?tagging=", &many[..1]).await;
    assert_eq!(missing.element("Code").as_deref(), Some("NoSuchBucket"));
    assert_eq!(call("DELETE", "/none?tagging=").await.status, 404);
}

#[tokio::test]
async fn conditions_hold_or_fail_with_their_codes() {
    let (server, key) = with_bucket().await;
    let put = async |headers: &[(&str, &str)], body: &'static str| {
        server.call(&key, "PUT", "/data/k", headers, body).await
    };
    assert_eq!(
        put(&[("if-match", "\"x\"")], "a").await.element("Code").as_deref(),
        Some("NoSuchKey")
    );
    let first = put(&[("if-none-match", "*")], "a").await;
    let etag = first.header("etag").unwrap().to_owned();
    assert_eq!(put(&[("if-none-match", "*")], "b").await.status, 412);
    assert_eq!(put(&[("if-match", "\"x\"")], "b").await.status, 412);
    assert_eq!(put(&[("if-match", &etag)], "b").await.status, 200);
    let get = async |headers: &[(&str, &str)]| {
        server.call(&key, "GET", "/data/k", headers, "").await.status
    };
    assert_eq!(get(&[("if-match", &etag)]).await, 412);
    assert_eq!(get(&[("if-none-match", &etag)]).await, 200);
    assert_eq!(get(&[("if-none-match", "\"92eb5ffee6ae2fec3ad71c777531578f\"")]).await, 304);
}

#[tokio::test]
async fn listings_have_prefixes_markers_and_tokens() {
    let (server, key) = with_bucket().await;
    for name in ["a", "dir/", "dir/x", "dir/y", "e%20f%2B", "z"] {
        assert_eq!(
            server.call(&key, "PUT", &format!("/data/{name}"), &[], "x").await.status,
            200,
            "{name}"
        );
    }
    let list =
        async |query: &str| server.call(&key, "GET", &format!("/data?{query}"), &[], "").await;
    let page = list("delimiter=%2F&encoding-type=url&list-type=2").await;
    assert_eq!(page.element("KeyCount").as_deref(), Some("4"));
    assert!(page.text().contains("<Key>e%20f%2B</Key>"), "{}", page.text());
    assert!(page.text().contains("<Prefix>dir/</Prefix>"));
    let (mut names, mut token) = (Vec::new(), None::<String>);
    loop {
        let next = token.map(|token| format!("continuation-token={token}&")).unwrap_or_default();
        let page = list(&format!("{next}delimiter=%2F&list-type=2&max-keys=1")).await;
        let shown = page.element("Key").or_else(|| {
            page.text()
                .split("<CommonPrefixes><Prefix>")
                .nth(1)?
                .split('<')
                .next()
                .map(str::to_owned)
        });
        names.extend(shown);
        token = page.element("NextContinuationToken");
        if token.is_none() {
            break;
        }
    }
    assert_eq!(names, ["a", "dir/", "e f+", "z"]);
    let first = list("max-keys=2").await;
    assert_eq!(first.element("IsTruncated").as_deref(), Some("true"));
    let rest = list("marker=dir%2F").await.text();
    assert!(!rest.contains("<Key>dir/</Key>") && rest.contains("<Key>dir/x</Key>"), "{rest}");
    let none = list("list-type=2&max-keys=0").await;
    assert_eq!(none.element("IsTruncated").as_deref(), Some("false"));
    assert_eq!(list("list-type=2&max-keys=-1").await.status, 400);
    let versions = list("versions=").await.text();
    assert!(versions.contains("<VersionId>null</VersionId>"), "{versions}");
}

#[tokio::test]
async fn a_copy_takes_what_it_should_and_nothing_of_the_upload() {
    let (server, key) = with_bucket().await;
    let headers = [("content-type", "text/x-a"), ("x-amz-meta-a", "1")];
    server.call(&key, "PUT", "/data/a%20b", &headers, "hello").await;
    let source = ("x-amz-copy-source", "data/a%20b");
    let copied = server.call(&key, "PUT", "/data/c", &[source], "").await;
    assert_eq!(copied.status, 200, "{}", copied.text());
    assert!(copied.text().contains("5d41402abc4b2a76b9719d911017c592"));
    let head = server.call(&key, "HEAD", "/data/c", &[], "").await;
    assert_eq!(
        (head.header("content-type"), head.header("x-amz-meta-a")),
        (Some("text/x-a"), Some("1"))
    );
    let own = ("x-amz-copy-source", "/data/c");
    let refused = server.call(&key, "PUT", "/data/c", &[own], "").await;
    assert_eq!(refused.element("Code").as_deref(), Some("InvalidRequest"));
    let replace = [own, ("x-amz-metadata-directive", "REPLACE"), ("x-amz-meta-b", "2")];
    assert_eq!(server.call(&key, "PUT", "/data/c", &replace, "").await.status, 200);
    let head = server.call(&key, "HEAD", "/data/c", &[], "").await;
    assert_eq!((head.header("x-amz-meta-a"), head.header("x-amz-meta-b")), (None, Some("2")));
    assert_eq!(
        server.call(&key, "GET", "/data/c", &[], "").await.body,
        Bytes::from_static(b"hello")
    );
    let failing = [source, ("x-amz-copy-source-if-match", "\"x\"")];
    assert_eq!(server.call(&key, "PUT", "/data/d", &failing, "").await.status, 412);
}

#[tokio::test]
async fn many_objects_are_deleted_by_one_request() {
    let (server, key) = with_bucket().await;
    for name in ["a", "b"] {
        server.call(&key, "PUT", &format!("/data/{name}"), &[], "x").await;
    }
    let xml = "<Delete><Object><Key>a</Key></Object><Object><Key>missing</Key></Object>\
               <Object><Key>b</Key><VersionId>v1</VersionId></Object></Delete>";
    let length = xml.len().to_string();
    let deleted =
        server.call(&key, "POST", "/data?delete=", &[("content-length", &length)], xml).await;
    assert_eq!(deleted.status, 200, "{}", deleted.text());
    assert_eq!(deleted.text().matches("<Deleted>").count(), 2, "{}", deleted.text());
    assert!(deleted.text().contains("<Code>NoSuchVersion</Code>"), "each has its own code");
    let listed = server.call(&key, "GET", "/data", &[], "").await.text();
    assert!(!listed.contains("<Key>a</Key>") && listed.contains("<Key>b</Key>"), "{listed}");
}

#[tokio::test]
async fn what_is_stored_over_http_is_an_object() {
    let (server, _) = with_bucket().await;
    let key = server.key(&[Scope::Read], &[]);
    let name: forebay_intake::names::FileName =
        forebay_intake::names::FileName::parse("note.txt").unwrap();
    let namespace = forebay_intake::names::Namespace::parse("a_b").unwrap();
    let upload = forebay_intake::upload::Upload::in_memory(Bytes::from_static(b"plain words"));
    let new = forebay_intake::NewFile {
        is_routed: false,
        sender: forebay_intake::rules::Sender::default(),
        classified: upload.classify(&name).await,
        key: (namespace, name),
        comment: String::new(),
        attributes: forebay_intake::attributes::Attributes::default(),
        condition: forebay_intake::Condition::None,
        idempotency: None,
    };
    server.intake.put(new, upload).await.unwrap();
    let got = server.call(&key, "GET", "/a_b/note.txt", &[], "").await;
    assert_eq!((got.status, got.header("content-type")), (200, Some("text/plain")));
    let etag = got.header("etag").unwrap();
    assert_eq!((etag.len(), etag.ends_with("-1\"")), (68, true), "a SHA-256, and no MD5");
    let listed = server.call(&key, "GET", "/", &[], "").await.text();
    assert!(listed.contains("<Name>a_b</Name>"), "{listed}");
    assert!(
        !listed.contains("<CreationDate>1970"),
        "a bucket that was never created has a date: {listed}"
    );
}

#[tokio::test]
async fn what_a_client_has_already_is_named_and_tags_are_counted() {
    let (server, key) = with_bucket().await;
    let tagged = [("x-amz-tagging", "a=1&b=2")];
    let put = server.call(&key, "PUT", "/data/k", &tagged, "bytes").await;
    let etag = put.header("etag").unwrap();
    for method in ["GET", "HEAD"] {
        let known = server.call(&key, method, "/data/k", &[("if-none-match", etag)], "").await;
        assert_eq!((known.status, known.header("etag")), (304, Some(etag)), "{method}");
        let read = server.call(&key, method, "/data/k", &[], "").await;
        assert_eq!(read.header("x-amz-tagging-count"), Some("2"), "{method}");
    }
}

#[tokio::test]
async fn what_exceeds_the_quota_of_a_bucket_is_refused_whole_or_in_parts() {
    let (server, key) = with_bucket().await;
    let bucket = Namespace::parse("data").unwrap();
    let quota = Quota { files: None, bytes: Some(10) };
    let limited = server.intake.limit_namespace(&bucket, |attributes, _| {
        Ok(NamespaceRecord::with_quota(attributes, quota).unwrap())
    });
    limited.await.unwrap();
    let put = |name: &'static str, body: &'static str| server.call(&key, "PUT", name, &[], body);
    assert_eq!(put("/data/a", "12345678").await.status, 200);
    let refused = put("/data/b", "123").await;
    assert_eq!((refused.status, refused.element("Code").as_deref()), (403, Some("QuotaExceeded")));
    let begun = server.call(&key, "POST", "/data/c?uploads=", &[], "").await;
    let id = begun.element("UploadId").unwrap();
    let part = format!("/data/c?partNumber=1&uploadId={id}");
    let etag = server.call(&key, "PUT", &part, &[], "1234567").await;
    let etag = etag.header("etag").unwrap().to_owned();
    let xml = completion(&[(1, &etag)]);
    let length = xml.len().to_string();
    let headers = [("content-length", &*length)];
    let target = format!("/data/c?uploadId={id}");
    let refused = server.call(&key, "POST", &target, &headers, xml.clone()).await;
    assert_eq!(refused.element("Code").as_deref(), Some("QuotaExceeded"), "{}", refused.text());
    // Its parts are still there.
    assert_eq!(server.call(&key, "DELETE", "/data/a", &[], "").await.status, 204);
    let done = server.call(&key, "POST", &target, &headers, xml).await;
    assert_eq!(done.status, 200, "{}", done.text());
    assert_eq!(server.call(&key, "GET", "/data/c", &[], "").await.text(), "1234567");
}
