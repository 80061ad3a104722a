//! Files: stored, shown, listed, deleted.

use forebay_intake::digest::Digest;

use super::support::{House, noise, pieces, text};

#[tokio::test]
async fn a_file_is_stored_found_by_name_and_id_and_survives_a_reopening() {
    let house = House::new();
    let put = house.put("docs/a/b%20c.txt?comment=a+note", "hello").await;
    assert_eq!(put.status, 201, "{put:?}");
    let json = put.json();
    assert_eq!(text(&json["status"]), "stored");
    assert_eq!((text(&json["namespace"]), text(&json["name"])), ("docs", "a/b c.txt"));
    assert_eq!((json["size"].as_u64(), text(&json["comment"])), (Some(5), "a note"));
    assert_eq!(text(&json["sha256"]), Digest::of(b"hello").to_hex());
    assert_eq!((text(&json["mime"]), text(&json["category"])), ("text/plain", "text"));
    assert_eq!(text(&json["created"]), "2026-01-02T03:04:05Z");
    assert_eq!(put.header("location"), text(&json["url"]));
    let id = format!("/v1/files/{}", text(&json["id"]));
    let house = house.reopen();
    for path in [text(&json["url"]), &id] {
        let got = house.get(path).await;
        assert_eq!((got.status, &got.body[..]), (200, b"hello".as_slice()), "{path}");
        assert_eq!(got.header("etag"), put.header("etag"));
        let head = house.send("HEAD", path, &[], "").await;
        assert_eq!((head.status, head.header("content-length")), (200, "5"));
        assert!(head.body.is_empty());
    }
}

#[tokio::test]
async fn the_same_bytes_are_a_duplicate_and_other_bytes_replace() {
    let house = House::new();
    for round in 0..2 {
        let namespace = format!("n{round}");
        let first = house.put(&format!("{namespace}/a"), format!("one {round}")).await;
        assert_eq!((first.status, text(&first.json()["status"])), (201, "stored"));
        let again = house.put(&format!("{namespace}/a"), format!("one {round}")).await;
        assert_eq!((again.status, text(&again.json()["status"])), (200, "duplicate"));
        assert_eq!(again.json()["id"], first.json()["id"]);
        let other = house.put(&format!("{namespace}/b"), format!("one {round}")).await;
        assert_eq!((other.status, text(&other.json()["status"])), (201, "duplicate"));
        let new = house.put(&format!("{namespace}/a"), format!("two {round}")).await;
        assert_eq!(new.status, 200);
        assert_eq!(
            (text(&new.json()["status"]), &new.json()["replaced"]),
            ("stored", &true.into())
        );
        assert_eq!(
            house.get(&format!("/v1/files/{namespace}/a")).await.body,
            format!("two {round}")
        );
        assert_eq!(
            house.get(&format!("/v1/files/{namespace}/b")).await.body,
            format!("one {round}")
        );
        let id = format!("/v1/files/{}", text(&first.json()["id"]));
        assert_eq!(house.get(&id).await.status, 404, "the name stands for something else now");
        // The second round queries the catalogue instead of the queue.
        assert_eq!(house.list("?limit=1").await.0.len(), 1);
    }
}

#[tokio::test]
async fn deleting_a_name_leaves_the_others_of_the_same_bytes() {
    let house = House::new();
    for bytes in [noise(1, 100), noise(2, 100_000)] {
        house.put("n/a", bytes.clone()).await;
        house.put("n/b", bytes.clone()).await;
        assert_eq!(house.delete("n/a").await.status, 204);
        assert_eq!(house.delete("n/a").await.error(), (404, "not_found".into()));
        assert_eq!(house.get("/v1/files/n/a").await.error(), (404, "not_found".into()));
        assert_eq!(house.get("/v1/files/n/b").await.body, bytes);
        assert_eq!(house.list("").await.0, ["n/b"]);
        assert_eq!(house.delete("n/b").await.status, 204);
        // Removed bytes are stored again.
        assert_eq!(house.put("n/c", bytes.clone()).await.status, 201);
        assert_eq!(house.get("/v1/files/n/c").await.body, bytes);
        assert_eq!(house.delete("n/c").await.status, 204);
    }
    let house = house.reopen();
    assert_eq!(house.list("").await, (vec![], None));
}

#[tokio::test]
async fn ranges_are_served_singly_in_parts_and_refused_beyond_the_end() {
    let house = House::new();
    for (name, size) in [("small", 1_000), ("large", 300_000)] {
        let bytes = noise(3, size);
        let put = house.put(&format!("n/{name}"), bytes.clone()).await;
        let (etag, path) = (put.header("etag").to_owned(), format!("/v1/files/n/{name}"));
        let one = house.get_with(&path, &[("range", "bytes=10-19")]).await;
        assert_eq!((one.status, &one.body[..]), (206, &bytes[10..20]));
        assert_eq!(one.header("content-range"), format!("bytes 10-19/{size}"));
        let tail = house.get_with(&path, &[("range", "bytes=-7")]).await;
        assert_eq!((tail.status, &tail.body[..]), (206, &bytes[size - 7..]));
        let several = house.get_with(&path, &[("range", "bytes=0-1,700-709")]).await;
        assert_eq!(several.status, 206);
        assert_eq!(several.header("content-length"), several.body.len().to_string());
        check_parts(
            &several.body,
            several.header("content-type"),
            &[&bytes[..2], &bytes[700..710]],
        );
        let beyond = house.get_with(&path, &[("range", &format!("bytes={size}-"))]).await;
        assert_eq!(beyond.status, 416);
        assert_eq!(beyond.header("content-range"), format!("bytes */{size}"));
        for (if_range, status) in
            [(etag.as_str(), 206), ("\"other\"", 200), ("Fri, 02 Jan 2026 03:04:05 GMT", 206)]
        {
            let headers = [("range", "bytes=0-0"), ("if-range", if_range)];
            assert_eq!(house.get_with(&path, &headers).await.status, status, "{if_range}");
        }
        let head = house.send("HEAD", &path, &[("range", "bytes=0-0")], "").await;
        assert_eq!((head.status, head.header("content-length")), (200, &*size.to_string()));
    }
}

fn check_parts(body: &[u8], kind: &str, expected: &[&[u8]]) {
    let boundary = kind.strip_prefix("multipart/byteranges; boundary=").unwrap();
    let mut rest = body;
    for part in expected {
        let head = format!("\r\n--{boundary}\r\n");
        rest = rest.strip_prefix(head.as_bytes()).unwrap();
        let end = rest.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
        assert!(std::str::from_utf8(&rest[..end]).unwrap().contains("Content-Range: bytes "));
        rest = rest[end..].strip_prefix(*part).unwrap();
    }
    assert_eq!(rest, format!("\r\n--{boundary}--\r\n").as_bytes());
}

#[tokio::test]
async fn what_the_client_has_is_not_sent_again() {
    let house = House::new();
    let put = house.put("n/a", "content").await;
    let etag = put.header("etag").to_owned();
    let weak = format!("\"x\", W/{etag}");
    for (name, value, status) in [
        ("if-none-match", etag.as_str(), 304),
        ("if-none-match", weak.as_str(), 304),
        ("if-none-match", "*", 304),
        ("if-none-match", "\"x\"", 200),
        ("if-modified-since", "Fri, 02 Jan 2026 03:04:05 GMT", 304),
        ("if-modified-since", "Fri, 02 Jan 2026 03:04:04 GMT", 200),
        ("if-modified-since", "whenever", 200),
    ] {
        let got = house.get_with("/v1/files/n/a", &[(name, value)]).await;
        assert_eq!(got.status, status, "{name}: {value}");
        assert_eq!(got.body.is_empty(), status == 304);
        assert_eq!(got.header("etag"), etag);
    }
}

#[tokio::test]
async fn conditional_writes_happen_only_where_their_condition_holds() {
    let house = House::new();
    let put = async |headers: &[(&str, &str)], body: &'static str| {
        house.send("PUT", "/v1/files/n/a", headers, body).await
    };
    assert_eq!(put(&[("if-match", "*")], "x").await.error(), (412, "precondition".into()));
    let first = put(&[("if-none-match", "*")], "one").await;
    assert_eq!(first.status, 201);
    assert_eq!(put(&[("if-none-match", "*")], "two").await.error(), (412, "precondition".into()));
    let etag = first.header("etag").to_owned();
    assert_eq!(put(&[("if-match", &etag)], "two").await.status, 200);
    assert_eq!(put(&[("if-match", &etag)], "three").await.error(), (412, "precondition".into()));
    for (name, value) in [("if-match", "nonsense"), ("if-none-match", "x")] {
        assert_eq!(put(&[(name, value)], "x").await.error(), (400, "condition".into()), "{value}");
    }
    let deleted = house.send("DELETE", "/v1/files/n/a", &[("if-match", &etag)], "").await;
    assert_eq!(deleted.error(), (412, "precondition".into()));
    assert_eq!(house.get("/v1/files/n/a").await.body, "two");
}

#[tokio::test]
async fn listings_narrow_by_every_filter_and_page_by_cursor() {
    let house = House::new();
    house.put("logs/2026/a.json", "{\"a\":1}").await;
    house.put("logs/2026/b.txt", "words").await;
    house.put("logs/2027_c", "x".repeat(2_000)).await;
    house.put("media/pic%25", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".as_slice()).await;
    let digest = Digest::of(b"words").to_hex();
    let by_digest = format!("?sha256={digest}");
    for (query, names) in [
        ("", &["logs/2026/a.json", "logs/2026/b.txt", "logs/2027_c", "media/pic%"][..]),
        ("?namespace=media", &["media/pic%"]),
        ("?namespace=logs&prefix=2026/", &["logs/2026/a.json", "logs/2026/b.txt"]),
        ("?prefix=2027_", &["logs/2027_c"]),
        ("?prefix=202__", &[]),
        ("?prefix=%25", &[]),
        ("?category=image", &["media/pic%"]),
        ("?category=json", &["logs/2026/a.json"]),
        ("?mime=text/plain&size_max=10", &["logs/2026/b.txt"]),
        ("?size_min=1000", &["logs/2027_c"]),
        (&by_digest, &["logs/2026/b.txt"]),
        ("?created_from=2026-01-02T03:04:05Z&limit=1000&size_max=6", &["logs/2026/b.txt"]),
        ("?created_to=2026-01-02T03:04:05Z", &[]),
        ("?namespace=nowhere", &[]),
    ] {
        assert_eq!(
            house.list(query).await,
            (names.iter().map(|n| (*n).into()).collect(), None),
            "{query}"
        );
    }
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let (page, next) = house.list(&format!("?limit=1{cursor}")).await;
        seen.extend(page);
        let Some(next) = next else { break };
        cursor = format!("&cursor={}", next.replace('%', "%25"));
    }
    assert_eq!(seen, ["logs/2026/a.json", "logs/2026/b.txt", "logs/2027_c", "media/pic%"]);
}

#[tokio::test]
async fn what_is_not_understood_is_refused_and_not_guessed() {
    let house = House::new();
    house.put("n/a", "x").await;
    for path in [
        "/v1/files?colour=red",
        "/v1/files?limit=0",
        "/v1/files?limit=1001",
        "/v1/files?limit=ten",
        "/v1/files?cursor=nowhere",
        "/v1/files?category=poetry",
        "/v1/files?sha256=12",
        "/v1/files?created_from=yesterday",
        "/v1/files/n/a?downlod=1",
        "/v1/files/n/a?download=perhaps",
        "/v1/documents/n?page=2",
        "/v1/documents/n?cursor=first",
    ] {
        assert_eq!(house.get(path).await.error(), (400, "query".into()), "{path}");
    }
    assert_eq!(house.put("n/b?overwrite=1", "x").await.error(), (400, "query".into()));
    assert_eq!(house.documents("n?dryrun=1", "{}").await.error(), (400, "query".into()));
    assert_eq!(house.documents("n?on_error=panic", "{}").await.error(), (400, "query".into()));
    assert_eq!(house.list("").await.0, ["n/a"]);
}

#[tokio::test]
async fn a_repeated_key_answers_the_same_once_more_and_another_body_is_refused() {
    let mut house = House::new();
    let key = [("idempotency-key", "upload 1")];
    let first = house.send("PUT", "/v1/files/n/a", &key, "one").await;
    assert_eq!(first.status, 201);
    for _ in 0..2 {
        let again = house.send("PUT", "/v1/files/n/a", &key, "one").await;
        assert_eq!((again.status, &again.body), (201, &first.body));
        assert_eq!(again.header("idempotent-replay"), "true");
        for (path, body) in [("/v1/files/n/a", "two"), ("/v1/files/n/b", "one")] {
            let other = house.send("PUT", path, &key, body).await;
            assert_eq!(other.error(), (422, "idempotency_key_reused".into()));
        }
        assert_eq!(house.send("DELETE", "/v1/files/n/a", &key, "").await.status, 422);
        house = house.reopen();
    }
    assert_eq!(house.get("/v1/files/n/a").await.body, "one");
}

#[tokio::test]
async fn a_repeated_key_with_another_condition_is_another_request() {
    let house = House::new();
    let keyed = |condition| [("idempotency-key", "k"), ("if-none-match", condition)];
    assert_eq!(house.send("PUT", "/v1/files/n/a", &keyed("*"), "x").await.status, 201);
    let again = house.send("PUT", "/v1/files/n/a", &keyed("*"), "x").await;
    assert_eq!((again.status, again.header("idempotent-replay")), (201, "true"));
    let others = [keyed("\"1\"").to_vec(), vec![("idempotency-key", "k"), ("if-match", "*")]];
    for headers in others.iter().map(Vec::as_slice).chain([&keyed("*")[..1]]) {
        let other = house.send("PUT", "/v1/files/n/a", headers, "x").await;
        assert_eq!(other.error(), (422, "idempotency_key_reused".into()), "{headers:?}");
    }
}

#[tokio::test]
async fn a_repeated_delete_does_not_take_what_was_put_meanwhile() {
    let house = House::new();
    house.put("n/a", "one").await;
    let key = [("idempotency-key", "d-1")];
    assert_eq!(house.send("DELETE", "/v1/files/n/a", &key, "").await.status, 204);
    house.put("n/a", "two").await;
    let house = house.reopen();
    let again = house.send("DELETE", "/v1/files/n/a", &key, "").await;
    assert_eq!((again.status, again.header("idempotent-replay")), (204, "true"));
    assert_eq!(house.get("/v1/files/n/a").await.body, "two");
}

#[tokio::test]
async fn a_key_whose_request_failed_may_be_used_again() {
    let house = House::new();
    let key = ("idempotency-key", "k");
    let failed = house.send("PUT", "/v1/files/n/a", &[key, ("if-match", "*")], "one").await;
    assert_eq!(failed.status, 412);
    assert_eq!(house.send("PUT", "/v1/files/n/a", &[key], "one").await.status, 201);
    let long = "k".repeat(256);
    for bad in ["", long.as_str()] {
        let refused = house.send("PUT", "/v1/files/n/b", &[("idempotency-key", bad)], "x").await;
        assert_eq!(refused.error(), (400, "idempotency_key".into()));
    }
}

#[tokio::test]
async fn a_file_larger_than_a_segment_streams_in_and_out() {
    let house = House::new();
    let bytes = noise(7, 6_000_001);
    for (name, piece) in [("even", 65_536), ("odd", 10_007)] {
        let put = house.put(&format!("big/{name}"), pieces(&bytes, piece)).await;
        assert_eq!(put.status, 201, "{put:?}");
        assert_eq!(text(&put.json()["sha256"]), Digest::of(&bytes).to_hex());
        let got = house.get(&format!("/v1/files/big/{name}")).await;
        assert!(got.status == 200 && got.body == bytes);
    }
    assert_eq!(house.files_below("blobs").len(), 1, "the same bytes are kept once");
    assert_eq!(house.files_below("staging"), [""; 0]);
    let house = house.reopen();
    let got = house.get_with("/v1/files/big/odd", &[("range", "bytes=5999999-")]).await;
    assert_eq!(&got.body[..], &bytes[5_999_999..]);
}

#[tokio::test]
async fn sizes_around_the_packing_limit_come_back_whole() {
    let house = House::with(|options| options.limits.packed_size_max = 1_000);
    for (size, files) in [(999, 0), (1_000, 0), (1_001, 1)] {
        let bytes = noise(size as u64, size);
        for (name, body) in [
            ("whole", bytes.clone().into()),
            ("pieces", pieces(&bytes, 300)),
            ("rest", pieces(&bytes, 998)),
        ] {
            let path = format!("n/{name}-{size}");
            assert_eq!(house.put(&path, body).await.status, 201);
            assert_eq!(house.get(&format!("/v1/files/{path}")).await.body, bytes, "{path}");
        }
        assert_eq!(house.files_below("blobs").len(), files, "{size}");
    }
}

#[tokio::test]
async fn an_empty_file_is_a_file() {
    let house = House::new();
    assert_eq!(house.put("n/empty", "").await.status, 201);
    let house = house.reopen();
    let got = house.get("/v1/files/n/empty").await;
    assert_eq!((got.status, got.header("content-length"), got.body.len()), (200, "0", 0));
    let range = house.get_with("/v1/files/n/empty", &[("range", "bytes=0-")]).await;
    assert_eq!(range.status, 416);
    assert_eq!(house.get("/v1/files?size_max=0").await.json()["files"][0]["size"], 0);
}

#[tokio::test]
async fn names_at_their_limits_are_taken_and_beyond_them_refused() {
    let house = House::new();
    let (namespace, name) = ("n".repeat(64), "a".repeat(1_024));
    let path = format!("{namespace}/{name}");
    assert_eq!(house.put(&path, "x").await.status, 201);
    assert_eq!(house.get(&format!("/v1/files/{path}")).await.body, "x");
    assert_eq!(house.put(&format!("{namespace}n/a"), "x").await.error(), (400, "name".into()));
    assert_eq!(house.put(&format!("{path}a"), "x").await.error(), (400, "name".into()));
    let comment = "c".repeat(4_096);
    assert_eq!(house.put(&format!("n/a?comment={comment}"), "x").await.status, 201);
    assert_eq!(
        house.put(&format!("n/b?comment={comment}c"), "x").await.error(),
        (400, "name".into())
    );
    assert_eq!(house.documents(&namespace, "{\"a\":1}").await.status, 201);
    assert_eq!(house.documents(&format!("{namespace}n"), "{}").await.error(), (400, "name".into()));
}

#[tokio::test]
async fn what_a_browser_could_run_is_an_attachment_in_a_sandbox() {
    let house = House::new();
    for (name, bytes, kind, how) in [
        (
            "page.html",
            "<!DOCTYPE html><script>alert(1)</script>",
            "text/html; charset=utf-8",
            "attachment",
        ),
        ("picture.png", "<svg onload=alert(1)>", "image/svg+xml", "attachment"),
        ("feed.xml", "<?xml version='1.0'?><x/>", "text/xml; charset=utf-8", "attachment"),
        ("notes.txt", "plain words", "text/plain; charset=utf-8", "inline"),
        ("data.json", "{\"a\":1}", "application/json", "inline"),
    ] {
        house.put(&format!("web/{name}"), bytes).await;
        let got = house.get(&format!("/v1/files/web/{name}")).await;
        assert_eq!(got.header("content-type"), kind);
        assert_eq!(got.header("content-disposition"), format!("{how}; filename*=UTF-8''{name}"));
        assert_eq!(got.header("x-content-type-options"), "nosniff");
        let policy = got.header("content-security-policy");
        assert!(
            policy.starts_with("sandbox; default-src 'none'") && !policy.contains("allow-scripts")
        );
        let asked = house.get(&format!("/v1/files/web/{name}?download=true")).await;
        assert!(asked.header("content-disposition").starts_with("attachment;"));
    }
}

#[tokio::test]
async fn hostile_names_cannot_leave_their_header() {
    let house = House::new();
    for (path, name) in [
        ("n/%22%3B%20filename=evil.exe", "%22%3B%20filename%3Devil.exe"),
        ("n/a'%2525.txt", "a%27%2525.txt"),
        ("n/%E6%97%A5%20%E6%9C%AC", "%E6%97%A5%20%E6%9C%AC"),
        ("n/dir/<b>.txt".replace('<', "%3C").replace('>', "%3E").as_str(), "%3Cb%3E.txt"),
    ] {
        let put = house.put(path, "words").await;
        assert_eq!(put.status, 201, "{path}: {put:?}");
        let got = house.get(text(&put.json()["url"])).await;
        let disposition = got.header("content-disposition").to_owned();
        assert_eq!(disposition.rsplit("UTF-8''").next().unwrap(), name, "{path}");
        assert!(disposition.is_ascii());
    }
}

#[tokio::test]
async fn all_names_of_bytes_are_found_by_digest_whatever_became_of_the_first() {
    let house = House::with(|options| options.limits.packed_size_max = 1_000);
    for (size, kind) in [(500, "small"), (5_000, "large")] {
        let bytes = super::support::noise(7, size);
        let query = format!("?sha256={}", Digest::of(&bytes).to_hex());
        let names = |wanted: &[&str]| -> Vec<String> {
            wanted.iter().map(|name| format!("{kind}/{name}")).collect()
        };
        assert!(house.list(&query).await.0.is_empty());
        for name in ["m", "z", "a"] {
            house.put(&format!("{kind}/{name}"), bytes.clone()).await;
        }
        house.put(&format!("{kind}/other"), "other").await;
        assert_eq!(house.list(&query).await.0, names(&["a", "m", "z"]));
        let (page, next) = house.list(&format!("{query}&limit=2")).await;
        assert_eq!(page, names(&["a", "m"]));
        let rest = house.list(&format!("{query}&cursor={}", next.unwrap())).await;
        assert_eq!(rest, (names(&["z"]), None));
        assert_eq!(house.list(&format!("{query}&prefix=m")).await.0, names(&["m"]));
        // The first name is deleted, another is given to other bytes, and the first is given again.
        house.delete(&format!("{kind}/m")).await;
        house.put(&format!("{kind}/a"), "other").await;
        assert_eq!(house.list(&query).await.0, names(&["z"]));
        house.put(&format!("{kind}/m"), bytes.clone()).await;
        assert_eq!(house.list(&query).await.0, names(&["m", "z"]));
        // All are deleted, and the bytes are stored again.
        for name in ["m", "z"] {
            house.delete(&format!("{kind}/{name}")).await;
        }
        house.intake.reclaim().await.unwrap();
        assert!(house.list(&query).await.0.is_empty());
        house.put(&format!("{kind}/b"), bytes.clone()).await;
        house.put(&format!("{kind}/c"), bytes).await;
        assert_eq!(house.list(&query).await.0, names(&["b", "c"]));
    }
}

#[tokio::test]
async fn a_key_is_remembered_or_refused_and_there_is_only_one() {
    let house = House::new();
    let key = ("idempotency-key", "k");
    for (method, path) in [
        ("PUT", "/v1/namespaces/n"),
        ("DELETE", "/v1/namespaces/n"),
        ("POST", "/v1/database/replay"),
        ("POST", "/v1/blobs/move"),
        ("POST", "/v1/documents/n/schema"),
    ] {
        let refused = house.send(method, path, &[key], r#"{"versions":true}"#).await;
        assert_eq!(refused.error(), (400, "idempotency_key".to_owned()), "{method} {path}");
    }
    let listed = house.get_with("/v1/namespaces", &[key]).await;
    assert_eq!(
        (listed.status, listed.json()["namespaces"].as_array().map(Vec::len)),
        (200, Some(0))
    );
    let twice = house.send("PUT", "/v1/files/n/a", &[key, ("idempotency-key", "l")], "x").await;
    assert_eq!(twice.error(), (400, "idempotency_key".to_owned()));
    assert_eq!(house.get("/v1/files/n/a").await.status, 404);
}

#[tokio::test]
async fn characters_that_xml_cannot_contain_are_refused_in_names_and_tags() {
    let house = House::new();
    for path in ["n/a%EF%BF%BF", "n/%EF%BF%BE/b"] {
        let refused = house.put(path, "x").await;
        assert_eq!(refused.status, 400, "{refused:?}");
    }
    assert_eq!(house.put("n/a", "x").await.status, 201);
    let tags = "{\"tags\":{\"a\":\"\u{FFFF}\"}}";
    let refused = house.send("PATCH", "/v1/files/n/a", &[], tags).await;
    assert_eq!(refused.status, 400, "{refused:?}");
}
