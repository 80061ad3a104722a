//! What a request says is done or refused, never ignored: conditions, digests, encodings, parameters,
//! and the settings of a batch.

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use sha2::{Digest as _, Sha256};

use super::support::{Form, House, text};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn content_digest(bytes: &[u8]) -> String {
    format!("sha-256=:{}:", BASE64.encode(Sha256::digest(bytes)))
}

#[tokio::test]
async fn a_batch_whose_documents_are_refused_is_not_reported_as_stored() {
    let house = House::new();
    let form = |content: &str, json: &str| {
        Form::default()
            .field("namespace", "n")
            .field("json", json)
            .file("d.json", content.as_bytes())
    };
    let some = form("{\"a\":1}\n[1]\n{\"a\":2}\n", "documents").send(&house).await;
    assert_eq!(some.status, 207, "{some:?}");
    let part = &some.json()["parts"][0]["documents"];
    assert_eq!((&part["accepted"], &part["rejected"]), (&2.into(), &1.into()));
    let none = form("[1, 2]", "documents").send(&house).await;
    assert_eq!(none.status, 422, "{none:?}");
    // The file is stored, its documents are not.
    let both = form("[1, 2]", "both").send(&house).await;
    assert_eq!(both.status, 207, "{both:?}");
    assert_eq!(text(&both.json()["parts"][0]["status"]), "stored");
    let broken = form("[{\"a\":1}, {\"a\":", "both").send(&house).await;
    assert_eq!(broken.status, 207, "{broken:?}");
}

#[tokio::test]
async fn a_batch_with_a_wrong_setting_stores_nothing_under_another() {
    for (field, value, code) in [
        ("namespace", "UPPER", "name"),
        ("namespace", "", "name"),
        ("target", "stone", "query"),
        ("json", "maybe", "query"),
        ("comment", "\u{1}", "name"),
        ("colour", "red", "field"),
    ] {
        let house = House::new();
        let before = Form::default().field(field, value).file("a", b"x").send(&house).await;
        assert_eq!(before.error(), (400, code.into()), "{field}={value}");
        let after = Form::default().file("a", b"x").field(field, value).send(&house).await;
        assert_eq!(after.error(), (400, code.into()), "{field}={value}");
        assert_eq!(house.list("").await.0, [""; 0], "{field}={value}");
        // What was stored before the wrong field is reported, and nothing after it is stored.
        let form = Form::default().field("namespace", "n").file("a", b"x");
        let answer = form.field(field, value).file("b", b"y").send(&house).await;
        assert_eq!(answer.status, 207, "{answer:?}");
        assert_eq!(text(&answer.json()["error"]["code"]), code);
        assert_eq!(answer.json()["parts"].as_array().unwrap().len(), 1);
        assert_eq!(house.list("").await.0, ["n/a"], "{field}={value}");
    }
    let house = House::new();
    let two = Form::default().field("namespace", "a").file("x", b"x").field("namespace", "b");
    let answer = two.file("y", b"y").send(&house).await;
    assert_eq!((answer.status, text(&answer.json()["error"]["code"])), (207, "field"));
    assert_eq!(house.list("").await.0, ["a/x"]);
}

#[tokio::test]
async fn an_interrupted_batch_stores_nothing_in_a_namespace_that_was_never_named() {
    let house = House::new();
    let whole = Form::default().file("a", b"x").field("namespace", "late").finish();
    for cut in 0..whole.len() - 10 {
        let answer = house
            .send("POST", "/v1/ingest", &[super::support::MULTIPART], whole[..cut].to_vec())
            .await;
        assert_eq!(answer.status, 400, "cut at {cut}: {answer:?}");
        assert_eq!(house.list("").await.0, [""; 0], "cut at {cut}");
    }
}

#[tokio::test]
async fn a_batch_that_was_cut_can_be_sent_again_whole_with_its_key() {
    let house = House::new();
    let headers = [super::support::MULTIPART, ("idempotency-key", "k")];
    let whole = Form::default().field("namespace", "n").file("a", b"x").file("b", b"y").finish();
    let at = whole.windows(3).position(|window| window == b"\"b\"").unwrap();
    let cut = house.send("POST", "/v1/ingest", &headers, whole[..at].to_vec()).await;
    assert_eq!(cut.status, 207, "{cut:?}");
    assert_eq!(house.list("").await.0, ["n/a"]);
    let again = house.send("POST", "/v1/ingest", &headers, whole).await;
    assert_eq!(again.status, 201, "{again:?}");
    assert_eq!(house.list("").await.0, ["n/a", "n/b"]);
}

#[tokio::test]
async fn a_part_of_a_file_never_replaces_it() {
    let house = House::new();
    house.put("n/a", "whole").await;
    for range in ["bytes 0-1/5", "bytes 0-4/5", "nonsense"] {
        let put = house.send("PUT", "/v1/files/n/a", &[("content-range", range)], "wh").await;
        assert_eq!(put.error(), (400, "content_range".into()));
    }
    assert_eq!(house.get("/v1/files/n/a").await.body, "whole");
    let part = [("content-range", "bytes 0-6/100")];
    for (method, path) in [("PUT", "/v1/documents/n/1"), ("POST", "/v1/documents/n")] {
        let put = house.send(method, path, &part, "{\"a\":9}").await;
        assert_eq!(put.error(), (400, "content_range".into()), "{method} {path}");
    }
}

#[tokio::test]
async fn a_body_with_another_digest_than_it_declares_is_not_stored() {
    let house = House::new();
    let digest = content_digest(b"whole");
    let md5 = "m8wPNfEc/WFFhd3eE7vwhw==";
    for (header, value) in
        [("content-digest", digest.as_str()), ("repr-digest", &digest), ("content-md5", md5)]
    {
        let cut = house.send("PUT", "/v1/files/n/a", &[(header, value)], "whol").await;
        assert_eq!(cut.error(), (400, "digest_mismatch".into()), "{header}");
        let documents =
            house.send("POST", "/v1/documents/n", &[(header, value)], "{\"a\":1}").await;
        assert_eq!(documents.error(), (400, "digest_mismatch".into()), "{header}");
        let batch = house.send("POST", "/v1/ingest", &[(header, value)], "x").await;
        assert_eq!(batch.error(), (400, "digest".into()), "{header}");
    }
    assert_eq!(house.list("").await.0, [""; 0]);
    assert_eq!(house.get("/v1/documents/n").await.status, 404);
    assert_eq!(house.files_below("staging"), [""; 0]);
    let right = house.send("PUT", "/v1/files/n/a", &[("content-digest", &digest)], "whole").await;
    let wrong = [("content-md5", md5)];
    let changed = house.send("PATCH", "/v1/files/n/a", &wrong, "{\"tags\":[\"x\"]}").await;
    assert_eq!(changed.error(), (400, "digest_mismatch".into()));
    let named = "{\"files\":[{\"namespace\":\"n\",\"name\":\"a\"}]}";
    let deleted = house.send("POST", "/v1/files/delete", &wrong, named).await;
    assert_eq!(deleted.error(), (400, "digest_mismatch".into()));
    assert_eq!(house.get("/v1/files/n/a").await.body, "whole");
    assert_eq!(right.status, 201, "{right:?}");
}

#[tokio::test]
async fn a_part_of_a_batch_has_the_digest_and_the_encoding_that_its_headers_say() {
    let house = House::new();
    let (right, other) = (content_digest(b"whole"), content_digest(b"other"));
    let encoded = gzip(b"whole");
    let mut body = Form::default().field("namespace", "n").unfinished();
    for (name, header, bytes) in [
        ("right", format!("Content-Digest: {right}"), &b"whole"[..]),
        ("wrong", format!("Content-Digest: {other}"), b"whole"),
        ("encoded", "Content-Encoding: gzip".to_owned(), &encoded),
        ("br", "Content-Encoding: br".to_owned(), b"whole"),
        ("last", "X-Other: 1".to_owned(), b"last"),
    ] {
        let head = format!(
            "--{}\r\nContent-Disposition: form-data; name=\"f\"; filename=\"{name}\"\r\n{header}\r\n\r\n",
            super::support::BOUNDARY
        );
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(bytes);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(format!("--{}--\r\n", super::support::BOUNDARY).as_bytes());
    let answer = house.send("POST", "/v1/ingest", &[super::support::MULTIPART], body).await;
    assert_eq!(answer.status, 207, "{answer:?}");
    let json = answer.json();
    assert_eq!(text(&json["parts"][1]["error"]["code"]), "digest_mismatch");
    assert_eq!(text(&json["parts"][3]["error"]["code"]), "encoding");
    assert_eq!(house.list("").await.0, ["n/encoded", "n/last", "n/right"]);
    assert_eq!(house.get("/v1/files/n/encoded").await.body, "whole");
}

#[tokio::test]
async fn an_encoded_body_is_stored_decoded_or_refused() {
    let house = House::new();
    let (plain, encoded) = (b"{\"a\":1}\n{\"a\":2}\n", gzip(b"{\"a\":1}\n{\"a\":2}\n"));
    let header = [("content-encoding", "gzip")];
    let put = house.send("PUT", "/v1/files/n/a", &header, encoded.clone()).await;
    assert_eq!(put.status, 201, "{put:?}");
    assert_eq!(&house.get("/v1/files/n/a").await.body[..], plain);
    let posted = house.send("POST", "/v1/documents/n", &header, encoded.clone()).await;
    assert_eq!((posted.status, &posted.json()["accepted"]), (201, &2.into()));
    let other = b"{\"b\":3}\n";
    let form = Form::default().field("namespace", "b").file("a", other).finish();
    let headers = [super::support::MULTIPART, ("content-encoding", "gzip")];
    let batch = house.send("POST", "/v1/ingest", &headers, gzip(&form)).await;
    assert_eq!(batch.status, 201, "{batch:?}");
    assert_eq!(&house.get("/v1/files/b/a").await.body[..], other);
    let cut = encoded[..encoded.len() - 1].to_vec();
    let put = house.send("PUT", "/v1/files/n/cut", &header, cut).await;
    assert_eq!(put.error(), (400, "encoded_body".into()));
    let put = house.send("PUT", "/v1/files/n/br", &[("content-encoding", "br")], "x").await;
    assert_eq!(put.error(), (415, "encoding".into()));
    assert_eq!(put.header("accept-encoding"), "gzip, zstd");
    assert_eq!(house.list("?namespace=n").await.0, ["n/a"]);
}

#[tokio::test]
async fn an_encoded_body_has_the_limits_of_what_it_decodes_to() {
    let house = House::with(|options| options.limits.file_size_max = 1 << 20);
    let encoded = gzip(&vec![0; 4 << 20]);
    let header = [("content-encoding", "gzip")];
    let put = house.send("PUT", "/v1/files/n/a", &header, encoded).await;
    assert_eq!(put.error(), (413, "too_large".into()));
    assert_eq!(house.list("").await.0, [""; 0]);
}

#[tokio::test]
async fn a_read_under_a_condition_that_does_not_hold_is_refused() {
    let house = House::new();
    let tag = house.put("n/a", "one").await.header("etag").to_owned();
    let weak = format!("W/{tag}");
    let several = format!("\"x\", {tag}");
    for (name, value, status) in [
        ("if-match", tag.as_str(), 200),
        ("if-match", &several, 200),
        ("if-match", "*", 200),
        ("if-match", "\"x\"", 412),
        ("if-match", &weak, 412),
        ("if-match", "nonsense", 412),
        ("if-unmodified-since", "Fri, 02 Jan 2026 03:04:05 GMT", 200),
        ("if-unmodified-since", "Fri, 02 Jan 2026 03:04:04 GMT", 412),
        ("if-unmodified-since", "whenever", 200),
    ] {
        for method in ["GET", "HEAD"] {
            let got = house.send(method, "/v1/files/n/a", &[(name, value)], "").await;
            assert_eq!(got.status, status, "{method} {name}: {value}");
        }
        let range = [(name, value), ("range", "bytes=0-0")];
        let got = house.get_with("/v1/files/n/a", &range).await;
        assert_eq!(got.status, if status == 200 { 206 } else { 412 }, "{name}: {value}");
    }
}

#[tokio::test]
async fn a_write_under_a_tag_of_another_server_fails_its_condition() {
    let house = House::new();
    let tag = house.put("n/a", "one").await.header("etag").to_owned();
    let precondition = (412, "precondition".to_owned());
    for value in ["\"x\"", "\"\"", "W/\"abc\"", "\"a,b\""] {
        for method in ["PUT", "DELETE"] {
            let got = house.send(method, "/v1/files/n/a", &[("if-match", value)], "two").await;
            assert_eq!(got.error(), precondition, "{method} {value}");
        }
    }
    let other = "\"0000000000000000000000000000000000000000000000000000000000000000\"";
    let several = format!("{other}, {tag}");
    let put = house.send("PUT", "/v1/files/n/a", &[("if-none-match", &several)], "two").await;
    assert_eq!(put.error(), precondition);
    let put = house.send("PUT", "/v1/files/n/a", &[("if-match", &several)], "two").await;
    assert_eq!(put.status, 200, "{put:?}");
    let put = house.send("PUT", "/v1/files/n/a", &[("if-none-match", &several)], "three").await;
    assert_eq!(put.status, 200, "{put:?}");
    let before = [("if-unmodified-since", "Fri, 02 Jan 2026 03:04:04 GMT")];
    let since = [("if-unmodified-since", "Fri, 02 Jan 2026 03:04:05 GMT")];
    for (method, path, status) in [
        ("PUT", "/v1/files/n/a", 412),
        ("DELETE", "/v1/files/n/a", 412),
        ("PUT", "/v1/files/n/absent", 412),
    ] {
        assert_eq!(house.send(method, path, &before, "x").await.status, status, "{method} {path}");
    }
    let both = [("if-match", "*"), ("if-none-match", "*")];
    let put = house.send("PUT", "/v1/files/n/a", &both, "x").await;
    assert_eq!(put.error(), (400, "condition".into()));
    assert_eq!(house.get("/v1/files/n/a").await.body, "three");
    assert_eq!(house.send("DELETE", "/v1/files/n/a", &since, "").await.status, 204);
}

#[tokio::test]
async fn an_empty_key_is_no_other_key() {
    let house = House::new();
    let document = "{\"a\":1,\"\":{\"a\":2},\"b\":{\"\":3},\"\\u0000\":4}";
    for _ in 0..30 {
        assert_eq!(house.documents("n", document).await.status, 201);
    }
    let page = house.get("/v1/documents/n").await.json();
    let paths: Vec<&str> =
        page["columns"].as_array().unwrap().iter().map(|column| text(&column["path"])).collect();
    let unique: std::collections::BTreeSet<_> = paths.iter().collect();
    assert_eq!(unique.len(), paths.len(), "{paths:?}");
    assert!(page["target"] == "collection" || paths.len() == 4, "{paths:?}");
}

#[tokio::test]
async fn values_that_do_not_fit_their_column_are_reported_by_path() {
    let house = House::new();
    let first = house.documents("n", "{\"price\":10,\"name\":\"a\",\"share\":0.5}").await;
    assert_eq!(first.json()["values_without_column"], serde_json::json!([]));
    let documents = "{\"price\":9.99,\"name\":7,\"share\":9007199254740993}\n\
        {\"price\":8,\"name\":\"\\ud800\",\"share\":1e999}\n\
        {\"price\":null,\"name\":null,\"share\":1}\n";
    for dry_run in [true, false] {
        let answer = house.documents(&format!("n?dry_run={dry_run}"), documents).await;
        let unfit: Vec<(String, u64)> = answer.json()["values_without_column"]
            .as_array()
            .unwrap()
            .iter()
            .map(|unfit| (text(&unfit["path"]).to_owned(), unfit["values"].as_u64().unwrap()))
            .collect();
        assert_eq!(unfit, [("name".to_owned(), 2)], "{answer:?}");
        let widened = serde_json::json!([
            { "path": "price", "column": "price", "from": "integer", "to": "real" },
            { "path": "share", "column": "share", "from": "real", "to": "decimal" },
        ]);
        assert_eq!(answer.json()["columns_widened"], widened);
    }
}

#[tokio::test]
async fn a_target_that_contradicts_the_namespace_is_refused_and_a_comment_is_not() {
    let house = House::new();
    let first = house.documents("t?target=table", "{\"a\":1}").await;
    assert_eq!(text(&first.json()["target"]), "table");
    for dry_run in [true, false] {
        let path = format!("t?target=collection&dry_run={dry_run}");
        let refused = house.documents(&path, "{\"a\":2}").await;
        assert_eq!(refused.error(), (409, "target".into()));
    }
    let form = Form::default().field("namespace", "t").field("target", "collection");
    let part = form.field("documents", "{\"a\":3}").send(&house).await;
    assert_eq!((part.status, text(&part.json()["parts"][0]["error"]["code"])), (422, "target"));
    assert_eq!(house.documents("t?comment=as+a+collection", "{\"a\":4}").await.status, 201);
    assert_eq!(house.documents("t?target=auto", "{\"a\":5}").await.status, 201);
    assert_eq!(house.documents("e?target=table", "{}").await.error(), (409, "target".into()));
    assert_eq!(house.get("/v1/documents/t").await.json()["count"], 3);
}
