//! Uploads in parts, and their checksums.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::support::{Answer, Key, Server, completion, with_bucket};

/// Begins an upload of `/data/big`.
async fn begin(server: &Server, key: &Key) -> String {
    let begun = server.call(key, "POST", "/data/big?uploads=", &[("x-amz-meta-a", "1")], "").await;
    begun.element("UploadId").unwrap()
}

async fn complete(server: &Server, key: &Key, id: &str, parts: &[(u32, &str)]) -> Answer {
    let xml = completion(parts);
    let length = xml.len().to_string();
    let target = format!("/data/big?uploadId={id}");
    server.call(key, "POST", &target, &[("content-length", &length)], xml).await
}

#[tokio::test]
async fn parts_become_an_object_once_and_their_upload_is_over() {
    let (server, key) = with_bucket().await;
    let id = begin(&server, &key).await;
    let (first, last) = (vec![1_u8; 5 << 20], vec![2_u8; 100]);
    let part = async |number: u32, bytes: &[u8]| {
        let target = format!("/data/big?partNumber={number}&uploadId={id}");
        let sent = server.call(&key, "PUT", &target, &[], bytes.to_vec()).await;
        assert_eq!(sent.status, 200, "{}", sent.text());
        sent.header("etag").unwrap().to_owned()
    };
    part(1, &last).await;
    let one = part(1, &first).await;
    let two = part(2, &last).await;
    let listed = server.call(&key, "GET", "/data", &[], "").await.text();
    assert!(!listed.contains("big"), "an open upload is no object: {listed}");
    let uploads = server.call(&key, "GET", "/data?uploads=", &[], "").await.text();
    assert!(uploads.contains(&id), "{uploads}");
    let parts = server.call(&key, "GET", &format!("/data/big?uploadId={id}"), &[], "").await;
    assert_eq!(parts.text().matches("<Part>").count(), 2, "{}", parts.text());
    assert_eq!(parts.element("NextPartNumberMarker"), None, "there are no more");
    let page = format!("/data/big?max-parts=1&uploadId={id}");
    let page = server.call(&key, "GET", &page, &[], "").await;
    assert_eq!(page.element("NextPartNumberMarker").as_deref(), Some("1"));
    let code =
        async |parts: &[(u32, &str)]| complete(&server, &key, &id, parts).await.element("Code");
    assert_eq!(code(&[]).await.as_deref(), Some("MalformedXML"));
    assert_eq!(code(&[(2, &two), (1, &one)]).await.as_deref(), Some("InvalidPartOrder"));
    assert_eq!(code(&[(1, &two)]).await.as_deref(), Some("InvalidPart"));
    assert_eq!(code(&[(3, &two)]).await.as_deref(), Some("InvalidPart"));
    let done = complete(&server, &key, &id, &[(1, &one), (2, &two)]).await;
    assert_eq!(done.status, 200, "{}", done.text());
    let again = complete(&server, &key, &id, &[(1, &one), (2, &two)]).await;
    assert_eq!((again.status, again.element("ETag")), (200, done.element("ETag")), "repeated");
    assert_eq!(code(&[(1, &one)]).await.as_deref(), Some("InvalidPart"), "other parts");
    assert_eq!(code(&[(7, "beef")]).await.as_deref(), Some("InvalidPart"), "other parts");
    let whole = server.call(&key, "GET", "/data/big", &[], "").await;
    assert!(whole.body == [first.clone(), last.clone()].concat());
    assert_eq!(whole.header("x-amz-meta-a"), Some("1"));
    assert!(whole.header("etag").unwrap().ends_with("-2\""), "{:?}", whole.header("etag"));
    let second = server.call(&key, "GET", "/data/big?partNumber=2", &[], "").await;
    assert_eq!((second.status, &second.body[..]), (206, &last[..]));
    assert_eq!(second.header("x-amz-mp-parts-count"), Some("2"));
    let copied = [("x-amz-copy-source", "/data/big")];
    server.call(&key, "PUT", "/data/copy", &copied, "").await;
    let copy = server.call(&key, "HEAD", "/data/copy", &[], "").await;
    let etag = copy.header("etag").unwrap();
    assert_eq!((etag.len(), etag.ends_with("-1\"")), (68, true), "{etag} is a SHA-256, and no MD5");
    let former = etag.replace("-1\"", "\"");
    for tag in [etag, &former] {
        let known = server.call(&key, "GET", "/data/copy", &[("if-none-match", tag)], "").await;
        assert_eq!(known.status, 304, "{tag}");
        let stored = [("if-match", tag), copied[0]];
        let stored = server.call(&key, "PUT", "/data/copy", &stored, "").await;
        assert_eq!(stored.status, 200, "{tag}");
    }
    assert!(!server.call(&key, "GET", "/data?uploads=", &[], "").await.text().contains(&id));
}

#[tokio::test]
async fn a_small_part_that_is_not_the_last_is_refused_and_an_aborted_upload_is_gone() {
    let (server, key) = with_bucket().await;
    let id = begin(&server, &key).await;
    let mut tags = Vec::new();
    for number in [1, 2] {
        let target = format!("/data/big?partNumber={number}&uploadId={id}");
        let sent = server.call(&key, "PUT", &target, &[], "x").await;
        tags.push(sent.header("etag").unwrap().to_owned());
    }
    let done = complete(&server, &key, &id, &[(1, &tags[0]), (2, &tags[1])]).await;
    assert_eq!(done.element("Code").as_deref(), Some("EntityTooSmall"));
    let target = format!("/data/big?uploadId={id}");
    assert_eq!(server.call(&key, "DELETE", &target, &[], "").await.status, 204);
    let done = complete(&server, &key, &id, &[(1, &tags[0])]).await;
    assert_eq!((done.status, done.element("Code").as_deref()), (404, Some("NoSuchUpload")));
    let other = "/data/other?partNumber=1&uploadId=".to_owned() + &begin(&server, &key).await;
    assert_eq!(server.call(&key, "PUT", &other, &[], "x").await.status, 404, "of another key");
}

#[tokio::test]
async fn parts_copied_from_one_whole_object_are_a_copy_of_it() {
    let (server, key) = with_bucket().await;
    let bytes: Vec<u8> = (0..11_u32 << 20).map(|n| n.to_le_bytes()[1]).collect();
    server.call(&key, "PUT", "/data/source", &[], bytes.clone()).await;
    let before = server.intake.totals().await.unwrap();
    let id = begin(&server, &key).await;
    let mut tags = Vec::new();
    for (number, range) in [(1, "bytes=0-5242879"), (2, "bytes=5242880-11534335")] {
        let target = format!("/data/big?partNumber={number}&uploadId={id}");
        let headers = [("x-amz-copy-source", "/data/source"), ("x-amz-copy-source-range", range)];
        let sent = server.call(&key, "PUT", &target, &headers, "").await;
        tags.push(sent.element("ETag").unwrap().replace("&quot;", "\""));
    }
    let done = complete(&server, &key, &id, &[(1, &tags[0]), (2, &tags[1])]).await;
    assert_eq!(done.status, 200, "{}", done.text());
    assert!(server.call(&key, "GET", "/data/big", &[], "").await.body == bytes);
    let after = server.intake.totals().await.unwrap();
    assert_eq!(after.blob_bytes, before.blob_bytes, "no byte was copied");
}

#[tokio::test]
async fn a_checksum_of_a_completion_is_that_of_the_object() {
    let (server, key) = with_bucket().await;
    // CRC32 and CRC32C of "123456789", and the SHA-256 of its SHA-256.
    for (algorithm, name, right) in [
        ("CRC32", "x-amz-checksum-crc32", "y/Q5Jg=="),
        ("CRC32C", "x-amz-checksum-crc32c", "4waSgw=="),
        ("SHA256", "x-amz-checksum-sha256", ""),
    ] {
        let kind = if algorithm == "SHA256" { "COMPOSITE" } else { "FULL_OBJECT" };
        let headers = [("x-amz-checksum-algorithm", algorithm), ("x-amz-checksum-type", kind)];
        let begun = server.call(&key, "POST", "/data/sum?uploads=", &headers, "").await;
        let id = begun.element("UploadId").unwrap();
        let target = format!("/data/sum?partNumber=1&uploadId={id}");
        let part = server.call(&key, "PUT", &target, &[], "123456789").await;
        let etag = part.header("etag").unwrap();
        let value = part.header(name).unwrap();
        let composite = {
            let bytes = STANDARD.decode(value).unwrap();
            let digest = ring::digest::digest(&ring::digest::SHA256, &bytes);
            format!("{}-1", STANDARD.encode(digest))
        };
        let right = if right.is_empty() { composite.as_str() } else { right };
        let listed = format!("<Checksum{algorithm}>{value}</Checksum{algorithm}></Part>");
        let xml = completion(&[(1, etag)]).replace("</Part>", &listed);
        let target = format!("/data/sum?uploadId={id}");
        let wrong = format!("A{}", &right[1..]);
        let length = xml.len().to_string();
        let headers = [("content-length", &*length), (name, &*wrong)];
        let refused = server.call(&key, "POST", &target, &headers, xml.clone()).await;
        assert_eq!(refused.element("Code").as_deref(), Some("BadDigest"), "{algorithm}");
        let headers = [("content-length", &*length), (name, right)];
        let done = server.call(&key, "POST", &target, &headers, xml).await;
        assert_eq!(done.status, 200, "{algorithm}: {}", done.text());
        let asked = [("x-amz-checksum-mode", "ENABLED")];
        let head = server.call(&key, "HEAD", "/data/sum", &asked, "").await;
        assert_eq!(head.header(name), Some(right), "{algorithm}");
        let head = server.call(&key, "HEAD", "/data/sum?partNumber=1", &asked, "").await;
        assert_eq!(
            (head.header(name), head.header("x-amz-checksum-type")),
            (Some(value), Some(kind))
        );
        let asked = [("x-amz-object-attributes", "ObjectParts")];
        let known = server.call(&key, "GET", "/data/sum?attributes=", &asked, "").await;
        let element = format!("<Checksum{algorithm}>{value}</Checksum{algorithm}>");
        assert!(known.text().contains(&element), "{}", known.text());
    }
}

#[tokio::test]
async fn a_checksum_that_a_completion_lists_is_compared_or_refused() {
    let (server, key) = with_bucket().await;
    // Those of "123456789".
    let (crc32, crc32c) = ("y/Q5Jg==", "4waSgw==");
    for (kind, listed, header, expected) in [
        ("FULL_OBJECT", format!("<ChecksumCRC32>{crc32}</ChecksumCRC32>"), "FULL_OBJECT", None),
        ("FULL_OBJECT", String::new(), "FULL_OBJECT", None),
        ("FULL_OBJECT", String::new(), "COMPOSITE", Some("InvalidRequest")),
        ("FULL_OBJECT", String::new(), "WHOLE", Some("InvalidRequest")),
        (
            "FULL_OBJECT",
            format!("<ChecksumCRC32>{crc32c}</ChecksumCRC32>"),
            "",
            Some("InvalidPart"),
        ),
        (
            "FULL_OBJECT",
            format!("<ChecksumCRC32C>{crc32c}</ChecksumCRC32C>"),
            "",
            Some("BadDigest"),
        ),
        (
            "FULL_OBJECT",
            format!(
                "<ChecksumCRC32>{crc32}</ChecksumCRC32><ChecksumCRC32C>{crc32c}</ChecksumCRC32C>"
            ),
            "",
            Some("InvalidArgument"),
        ),
        ("COMPOSITE", String::new(), "", Some("InvalidRequest")),
        ("COMPOSITE", format!("<ChecksumCRC32>{crc32}</ChecksumCRC32>"), "COMPOSITE", None),
    ] {
        let headers = [("x-amz-checksum-algorithm", "CRC32"), ("x-amz-checksum-type", kind)];
        let begun = server.call(&key, "POST", "/data/sum?uploads=", &headers, "").await;
        let id = begun.element("UploadId").unwrap();
        let target = format!("/data/sum?partNumber=1&uploadId={id}");
        let part = server.call(&key, "PUT", &target, &[], "123456789").await;
        let xml = completion(&[(1, part.header("etag").unwrap())]);
        let xml = xml.replace("</Part>", &format!("{listed}</Part>"));
        let length = xml.len().to_string();
        let mut headers = vec![("content-length", &*length)];
        if !header.is_empty() {
            headers.push(("x-amz-checksum-type", header));
        }
        let target = format!("/data/sum?uploadId={id}");
        let done = server.call(&key, "POST", &target, &headers, xml).await;
        let case = format!("{kind} {listed} {header}: {}", done.text());
        assert_eq!(done.element("Code").as_deref(), expected, "{case}");
        assert_eq!(done.status, if expected.is_some() { 400 } else { 200 }, "{case}");
    }
}

#[tokio::test]
async fn checksums_of_parts_are_kept_only_if_the_upload_chose_an_algorithm() {
    let (server, key) = with_bucket().await;
    let id = begin(&server, &key).await;
    let target = format!("/data/big?partNumber=1&uploadId={id}");
    let sent = [("x-amz-checksum-crc32", "y/Q5Jg==")];
    let part = server.call(&key, "PUT", &target, &sent, "123456789").await;
    assert_eq!(part.header("x-amz-checksum-crc32"), Some("y/Q5Jg=="));
    let done = complete(&server, &key, &id, &[(1, part.header("etag").unwrap())]).await;
    assert_eq!(done.status, 200, "{}", done.text());
    let asked = [("x-amz-checksum-mode", "ENABLED")];
    let head = server.call(&key, "HEAD", "/data/big?partNumber=1", &asked, "").await;
    assert_eq!((head.status, head.header("x-amz-checksum-crc32")), (206, None));
}

#[tokio::test]
async fn a_checksum_without_a_list_of_parts_is_compared_and_returned() {
    let (server, key) = with_bucket().await;
    // Those of "123456789".
    let md5 = "JfnnlDI7RTiF9RgfG2JNCw==";
    let xxhash = "jLhB20DmroM=";
    let asked = [("x-amz-checksum-mode", "ENABLED")];
    for (algorithm, name, right) in
        [("MD5", "x-amz-checksum-md5", md5), ("XXHASH64", "x-amz-checksum-xxhash64", xxhash)]
    {
        let put = server.call(&key, "PUT", "/data/sum", &[(name, right)], "123456789").await;
        assert_eq!((put.status, put.header(name)), (200, Some(right)), "{algorithm}");
        let wrong = server.call(&key, "PUT", "/data/sum", &[(name, right)], "12345678").await;
        assert_eq!((wrong.status, wrong.element("Code").as_deref()), (400, Some("BadDigest")));
        for method in ["GET", "HEAD"] {
            let read = server.call(&key, method, "/data/sum", &asked, "").await;
            assert_eq!(read.header(name), Some(right), "{algorithm} {method}");
            assert_eq!(read.header("x-amz-checksum-type"), Some("FULL_OBJECT"));
        }
        let listed = server.call(&key, "GET", "/data?list-type=2", &[], "").await.text();
        let element = format!("<ChecksumAlgorithm>{algorithm}</ChecksumAlgorithm>");
        assert!(listed.contains(&element), "{listed}");
        let headers = [("x-amz-checksum-algorithm", algorithm)];
        let refused = server.call(&key, "POST", "/data/sum?uploads=", &headers, "").await;
        assert_eq!(refused.element("Code").as_deref(), Some("InvalidRequest"), "{algorithm}");
        let id = begin(&server, &key).await;
        let target = format!("/data/big?partNumber=1&uploadId={id}");
        let refused = server.call(&key, "PUT", &target, &[(name, right)], "123456789").await;
        assert_eq!(refused.element("Code").as_deref(), Some("InvalidRequest"), "{algorithm}");
        let part = server.call(&key, "PUT", &target, &[], "123456789").await;
        let xml = completion(&[(1, part.header("etag").unwrap())]);
        let length = xml.len().to_string();
        let complete = format!("/data/big?uploadId={id}");
        let headers = [("content-length", length.as_str()), (name, right)];
        let refused = server.call(&key, "POST", &complete, &headers, xml).await;
        assert_eq!(refused.element("Code").as_deref(), Some("InvalidRequest"), "{algorithm}");
    }
    for headers in [
        [("x-amz-checksum-blake3", md5)],
        [("x-amz-sdk-checksum-algorithm", "BLAKE3")],
        [("x-amz-trailer", "x-amz-checksum-blake3")],
    ] {
        let refused = server.call(&key, "PUT", "/data/other", &headers, "123456789").await;
        assert_eq!(refused.element("Code").as_deref(), Some("InvalidRequest"), "{headers:?}");
    }
    assert_eq!(server.call(&key, "HEAD", "/data/other", &[], "").await.status, 404);
}
