//! Hostile input: each is refused or stored as plain bytes, and the intake continues.

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use forebay_api::intake::router;
use forebay_base::fs::RealFs;
use forebay_intake::fsck::fsck;
use futures_util::StreamExt as _;
use tokio::sync::mpsc;

use super::support::{BOUNDARY, Form, House, MULTIPART, noise, pieces, send, text};

/// The intake works, its views run, and nothing in its directory is damaged.
async fn still_sound(house: House) {
    house.intake.ready().unwrap();
    assert_eq!(house.put("sound/check", "fine").await.status, 201);
    assert_eq!(house.get("/v1/files/sound/check").await.body, "fine");
    assert_eq!(house.documents("sound", "{\"a\":1}").await.status, 201);
    assert_eq!(house.get("/v1/documents/sound").await.json()["count"], 1);
    house.intake.ready().unwrap();
    assert_eq!(house.files_below("staging"), [""; 0]);
    let (options, _dir) = house.close();
    let report = fsck(&options.dir, Arc::new(RealFs), |_| {}).unwrap();
    assert!(report.findings.is_empty(), "{report:?}");
    assert_eq!(report.torn_tail_bytes, 0);
}

#[tokio::test]
async fn no_name_from_outside_climbs_out_of_its_namespace() {
    let house = House::new();
    for path in [
        "n/..%2f..%2fescape",
        "n/..%2F..%2F..%2F..%2F..%2Ftmp%2Fescape",
        "n/%2e%2e/escape",
        "n/a/../../escape",
        "n/%2fetc%2fpasswd",
        "n/..%5c..%5cescape",
        "n/a%00b",
        "n/a%0d%0aset-cookie:%20x",
        "n/%e2%80%aegpj.exe",
        "n/a//b",
        "n/a/",
        "..%2f..%2fn/escape",
        "../n/escape",
        "%2e%2e/escape",
        "UPPER/a",
        "n%00/a",
        "n/%ff%fe",
    ] {
        let put = house.put(path, "x").await;
        assert!(matches!(put.status, 400 | 404), "{path}: {put:?}");
        let got = house.get(&format!("/v1/files/{path}")).await;
        assert!(matches!(got.status, 400 | 404), "{path}: {got:?}");
        assert!(matches!(house.delete(path).await.status, 400 | 404), "{path}");
    }
    for path in ["..%2f..%2fescape", "%2e%2e", "a%2fb", "a%27--", "%00"] {
        assert_eq!(
            house.documents(path, "{\"a\":1}").await.error(),
            (400, "name".into()),
            "{path}"
        );
        let page = house.get(&format!("/v1/documents/{path}")).await;
        assert_eq!(page.error(), (400, "name".into()), "{path}");
    }
    let answer = Form::default()
        .field("namespace", "../../..")
        .file("../../escape", b"x")
        .file("/etc/passwd", b"x")
        .part("name=\"files\"; filename*=UTF-8''..%2f..%2fescape", b"x")
        .send(&house)
        .await;
    assert_eq!(answer.error(), (400, "name".into()));
    assert_eq!(house.list("").await.0, [""; 0]);
    let outside = std::fs::read_dir(house.options.dir.parent().unwrap()).unwrap().count();
    assert_eq!(outside, 1, "only the intake's own directory is there");
    still_sound(house).await;
}

#[tokio::test]
async fn documents_made_to_exhaust_the_reader_are_refused_by_themselves() {
    let house = House::new();
    let key = "k".repeat(10 << 20);
    let huge_key = format!("{{\"{key}\":1}}");
    let long_key = format!("{{\"{}\":1}}", "k".repeat(1_025));
    let nested_key = format!("{{\"a\":[{{\"b\":{long_key}}}]}}");
    let deep_objects = format!("{}1{}", "{\"a\":".repeat(10_000), "}".repeat(10_000));
    let deep_lists = format!("{{\"a\":{}{}}}", "[".repeat(10_000), "]".repeat(10_000));
    let unclosed = "{\"a\":".repeat(10_000);
    let unclosed_list = format!("{{\"a\":{}", "[".repeat(1 << 20));
    for (what, document) in [
        ("10 MiB key", &huge_key),
        ("long key", &long_key),
        ("long key in a list", &nested_key),
        ("deep objects", &deep_objects),
        ("deep lists", &deep_lists),
        ("unclosed", &unclosed),
        ("unclosed list", &unclosed_list),
    ] {
        let alone = house.documents("hard", document.clone()).await;
        assert!(matches!(alone.status, 400 | 422), "{what}: {}", alone.status);
        assert_eq!(house.get("/v1/documents/hard").await.status, 404, "{what}");
        let among = format!("{{\"a\":1}}\n{document}\n{{\"a\":2}}\n");
        let among = house
            .send("POST", "/v1/documents/among", &[("content-type", "application/x-ndjson")], among)
            .await;
        assert_eq!((among.status, &among.json()["accepted"]), (207, &2.into()), "{what}");
        assert_eq!(among.json()["errors"][0]["line"], 2, "{what}");
        assert!(among.body.len() < 20_000, "{what}: the answer repeats the input");
    }
    // As a file it is bytes like any other.
    let answer = Form::default()
        .field("namespace", "f")
        .file("deep.json", deep_objects.as_bytes())
        .file("key.json", huge_key.as_bytes())
        .send(&house)
        .await;
    assert_eq!(answer.json()["parts"][0]["status"], "stored", "{answer:?}");
    assert_eq!(house.get("/v1/files/f/deep.json").await.body, deep_objects);
    assert!(house.get("/v1/files/f/key.json").await.body == huge_key);
    assert_eq!(house.get("/v1/documents/f").await.status, 404);
    still_sound(house).await;
}

#[tokio::test]
async fn odd_but_valid_documents_are_kept_as_they_came() {
    let house = House::new();
    let digits = "7".repeat(100_000);
    let deep = format!("{{\"a\":{}1{}}}", "[".repeat(98), "]".repeat(98));
    let wide: String = (0..5_000).map(|n| format!("\"f{n}\":{n},")).collect();
    let documents = [
        "{\"a\":1,\"a\":\"two\",\"a\":[3]}".to_owned(),
        "{\"s\":\"\\ud800\",\"t\":\"\\udc00\\ud800\"}".to_owned(),
        "{\"\\ud800\":1}".to_owned(),
        "{\"\":1,\"\\u0000\":\"\\u0000\",\"a.b\":1,\"a\":{\"b\":2}}".to_owned(),
        format!("{{\"n\":{digits},\"m\":-{digits}.{digits}e{digits}}}"),
        "{\"n\":1e999999999,\"m\":-1e-999999999,\"o\":-0.0}".to_owned(),
        deep,
        format!("{{{wide}\"last\":1}}"),
        "{}".to_owned(),
    ];
    for (at, document) in documents.iter().enumerate() {
        for target in ["auto", "table", "collection"] {
            let path = format!("odd-{at}-{target}");
            let taken = house.documents(&format!("{path}?target={target}"), document.clone()).await;
            if target == "table" && taken.status == 409 {
                assert!(at >= 7, "{at}: {taken:?}");
                continue;
            }
            let accepted = taken.status == 201;
            assert!(accepted || taken.status == 422, "{at}: {taken:?}");
            let page = house
                .get_with(&format!("/v1/documents/{path}"), &[("accept", "application/x-ndjson")])
                .await;
            if accepted {
                assert!(page.body == format!("{document}\n"), "{at} {target}");
            } else {
                assert_eq!(
                    (at, page.status),
                    (2, 404),
                    "only a key that is no Unicode may be refused"
                );
            }
            house.intake.ready().unwrap();
        }
    }
    still_sound(house).await;
}

#[tokio::test]
async fn bytes_that_are_no_text_are_refused_as_documents_and_kept_as_files() {
    let house = House::new();
    let body = b"{\"a\":\"\xff\xfe\"}\n{\"a\":\"ok\"}\n{\"\xc3\":1}\n".as_slice();
    let taken = house.documents("utf8", body).await;
    assert_eq!((taken.status, &taken.json()["accepted"]), (207, &1.into()), "{taken:?}");
    assert_eq!(taken.json()["errors"][0]["line"], 1);
    let answer = Form::default().field("namespace", "utf8").file("d.json", body).send(&house).await;
    assert!(matches!(answer.status, 201 | 207), "{answer:?}");
    assert_eq!(&house.get("/v1/files/utf8/d.json").await.body[..], body);
    // If the envelope itself is not text, the request is refused and nothing else.
    let mut raw =
        format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"files\"; filename=\"")
            .into_bytes();
    raw.extend_from_slice(b"\xff\xfe\"\r\n\r\nx\r\n");
    raw.extend_from_slice(format!("--{BOUNDARY}--\r\n").as_bytes());
    let answer = house.send("POST", "/v1/ingest", &[MULTIPART], raw).await;
    assert!(matches!(answer.status, 201 | 207 | 400 | 422), "{answer:?}");
    let listed = house.get("/v1/files?prefix=%ff%fe").await;
    assert!(matches!(listed.status, 200 | 400));
    still_sound(house).await;
}

#[tokio::test]
async fn broken_envelopes_keep_the_parts_that_were_whole() {
    let house = House::new();
    let whole = || Form::default().field("namespace", "cut").file("whole", b"all of it");
    let mut cut = whole().file("half", &noise(1, 100_000)).unfinished();
    cut.truncate(cut.len() - 50_000);
    let answer = house.send("POST", "/v1/ingest", &[MULTIPART], cut).await;
    assert_eq!(answer.status, 207, "{answer:?}");
    assert!(answer.json()["error"]["code"].is_string());
    assert_eq!(house.list("").await.0, ["cut/whole"]);
    let unended = house.send("POST", "/v1/ingest", &[MULTIPART], whole().unfinished()).await;
    assert!(matches!(unended.status, 200 | 201 | 207 | 400), "{unended:?}");
    for (kind, body) in [
        ("multipart/form-data; boundary=another", whole().finish()),
        ("multipart/form-data", whole().finish()),
        ("multipart/form-data; boundary=", whole().finish()),
        ("application/json", b"{}".to_vec()),
        ("multipart/form-data; boundary=a-boundary", b"no boundary at all".to_vec()),
        ("multipart/form-data; boundary=a-boundary", Vec::new()),
        (
            "multipart/form-data; boundary=a-boundary",
            format!("--{BOUNDARY}\r\nno header").into_bytes(),
        ),
    ] {
        let answer = house.send("POST", "/v1/ingest", &[("content-type", kind)], body).await;
        assert_eq!(answer.status, 400, "{kind}: {answer:?}");
    }
    assert_eq!(house.list("").await.0, ["cut/whole"]);
    still_sound(house).await;
}

#[tokio::test]
async fn a_hundred_thousand_parts_are_taken_up_to_the_limit_which_is_reported() {
    let house = House::with(|options| options.limits.parts_max = 2_000);
    let mut form = Form::default().field("namespace", "tiny");
    for n in 0..100_000 {
        form = form.file(&format!("{n}"), b"t");
    }
    let answer =
        house.send("POST", "/v1/ingest", &[MULTIPART], pieces(&form.finish(), 65_536)).await;
    assert_eq!(answer.status, 207);
    let json = answer.json();
    assert_eq!(text(&json["error"]["code"]), "too_many_parts");
    assert_eq!(json["parts"].as_array().unwrap().len(), 1_999);
    assert_eq!(house.intake.totals().await.unwrap().files, 1_999);
    still_sound(house).await;
}

#[tokio::test]
async fn sql_in_keys_names_and_values_is_only_text() {
    let house = House::new();
    house.documents("first", "[{\"id\":1},{\"id\":2}]").await;
    let keys = [
        "x\\\"); DROP TABLE first; --",
        "'; DELETE FROM files; --",
        "a\\\" INTEGER, b TEXT); ATTACH '/tmp/x' AS y; --",
        "`",
        "]",
        "id",
        "ID",
        "_id",
        "rowid",
        "oid",
        "_rowid_",
        "document",
        "select",
        "NULL",
        "?1",
        ":a",
        "sqlite_sequence",
        " ",
        "é\u{1F600}",
    ];
    for (at, key) in keys.iter().enumerate() {
        let namespace = format!("sql-{at}");
        let value = "'); DROP TABLE namespaces; --";
        let body = format!("[{{\"{key}\":\"{value}\"}},{{\"{key}\":\"{value}\"}}]");
        let taken = house.documents(&format!("{namespace}?target=table"), body).await;
        assert_eq!(
            (taken.status, text(&taken.json()["target"])),
            (201, "table"),
            "{key}: {taken:?}"
        );
        let page = house.get(&format!("/v1/documents/{namespace}")).await.json();
        assert_eq!(
            (&page["count"], page["columns"].as_array().unwrap().len()),
            (&2.into(), 1),
            "{key}"
        );
    }
    let all: Vec<String> = keys.iter().map(|key| format!("\"{key}\":1")).collect();
    let all = format!("{{{}}}", all.join(","));
    let taken = house.documents("sql-all?target=table", all.clone()).await;
    assert_eq!(taken.json()["columns_added"].as_array().unwrap().len(), keys.len(), "{taken:?}");
    assert_eq!(house.get("/v1/documents/sql-all/1").await.body, all);
    for namespace in ["first;drop", "a'b", "a\"b", "a--", "sqlite_master", "main.first"] {
        let escaped = namespace.replace('"', "%22");
        let taken = house.documents(&escaped, "{\"id\":1}").await;
        let plain = namespace.bytes().all(|b| b.is_ascii_lowercase() || b"._-".contains(&b));
        assert_eq!(taken.status, if plain { 201 } else { 400 }, "{namespace}: {taken:?}");
    }
    let name = "files/'%3B%20DROP%20TABLE%20files%3B%20--";
    assert_eq!(house.put(name, "x").await.status, 201);
    assert_eq!(house.list("?prefix='%20OR%201=1%20--").await.0, [""; 0]);
    assert_eq!(house.list("?mime=x/'%20OR%20'1'='1").await.0, [""; 0]);
    assert_eq!(house.list("?namespace=files").await.0.len(), 1);
    assert_eq!(house.get("/v1/documents/first").await.json()["count"], 2);
    let listed = house.get("/v1/documents").await.json();
    assert_eq!(listed["namespaces"].as_array().unwrap().len(), 1 + keys.len() + 1 + 3);
    still_sound(house.reopen()).await;
}

#[tokio::test]
async fn gigantic_range_headers_cost_one_whole_answer_at_most() {
    let house = House::new();
    let bytes = noise(1, 200_000);
    house.put("n/a", bytes.clone()).await;
    let nines = "9".repeat(20_000);
    for (range, status) in [
        (format!("bytes={}", "0-0,".repeat(8_000)), 200),
        (format!("bytes={}", "0-,".repeat(16)), 200),
        (format!("bytes=0-{nines}"), 206),
        (format!("bytes=-{nines}"), 206),
        (format!("bytes={nines}-"), 416),
        (format!("bytes={nines}-0"), 200),
        ("bytes=18446744073709551615-18446744073709551615".to_owned(), 416),
        ("bytes=0-18446744073709551615".to_owned(), 206),
        (format!("bytes={}", ",".repeat(20_000)), 200),
        ("bytes=-".to_owned(), 200),
        ("bytes=--1".to_owned(), 200),
    ] {
        let got = house.get_with("/v1/files/n/a", &[("range", &range)]).await;
        assert_eq!(got.status, status, "{:.40}", range);
        assert!(status == 416 || got.body == bytes, "{:.40}", range);
    }
    still_sound(house).await;
}

#[tokio::test]
async fn bodies_over_the_limits_are_refused_and_leave_nothing() {
    let house = House::with(|options| {
        options.limits.file_size_max = 200_000;
        options.limits.packed_size_max = 1_000;
        options.limits.document_size_max = 10_000;
        options.limits.documents_per_request_max = 100;
    });
    let bytes = noise(1, 200_001);
    let declared = [("content-length", "200001")];
    let refused = house.send("PUT", "/v1/files/n/a", &declared, bytes.clone()).await;
    assert_eq!(refused.error(), (413, "too_large".into()));
    assert_eq!(house.put("n/a", pieces(&bytes, 8_192)).await.error(), (413, "too_large".into()));
    assert_eq!(house.put("n/b", pieces(&bytes[..200_000], 8_192)).await.status, 201);
    assert_eq!(house.list("").await.0, ["n/b"]);
    assert_eq!(house.files_below("blobs").len(), 1);
    let large = format!("{{\"a\":\"{}\"}}", "x".repeat(10_000));
    assert_eq!(house.documents("d", large).await.status, 422);
    let many = "{\"a\":1}\n".repeat(101);
    assert_eq!(house.documents("d", many).await.error(), (400, "too_many_documents".into()));
    assert_eq!(house.get("/v1/documents/d").await.status, 404);
    assert_eq!(house.documents("d", "{\"a\":1}\n".repeat(100)).await.status, 201);
    still_sound(house).await;
}

#[tokio::test]
async fn content_under_a_false_extension_is_what_it_is_and_never_runs() {
    let house = House::new();
    let mut elf = b"\x7fELF\x02\x01\x01".to_vec();
    elf.resize(64, 0);
    for (name, bytes, kind, active) in [
        ("photo.png", elf.as_slice(), "application/x-executable", true),
        ("notes.txt", b"PK\x03\x04\x14\0\0\0\0\0", "application/zip", true),
        ("data.json", b"\n <!DOCTYPE html><script>alert(1)</script>", "text/html", true),
        ("photo.jpg", b"<html><script>alert(1)</script>", "text/html", true),
        ("photo.gif", b"<?xml version=\"1.0\"?><svg onload=\"alert(1)\"/>", "image/svg+xml", true),
        ("page.html", b"only words", "text/html", true),
        ("code.js", b"alert(1)", "text/javascript", true),
        ("movie.mp4", b"\0\x01\x02\x03\x04", "application/octet-stream", true),
        ("page.html", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "image/png", false),
    ] {
        let put = house.put(&format!("lies/{name}"), bytes.to_vec()).await.json();
        assert_eq!(text(&put["mime"]), kind, "{name}");
        let got = house.get(&format!("/v1/files/lies/{name}")).await;
        let attachment = got.header("content-disposition").starts_with("attachment");
        assert_eq!(attachment, active, "{name}: {kind}");
        assert_eq!(got.header("x-content-type-options"), "nosniff");
        assert!(got.header("content-security-policy").starts_with("sandbox;"));
    }
    still_sound(house).await;
}

/// A body whose pieces are given by hand.
fn by_hand() -> (mpsc::Sender<Result<Bytes, std::io::Error>>, Body) {
    let (sender, receiver) = mpsc::channel(1);
    let stream = futures_util::stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|piece| (piece, receiver))
    });
    (sender, Body::from_stream(stream.boxed()))
}

#[tokio::test]
async fn a_body_that_breaks_off_leaves_nothing_and_its_key_is_free_again() {
    let house = House::with(|options| options.limits.packed_size_max = 1_000);
    for size in [10, 500, 5_000, 300_000] {
        let bytes = noise(size as u64, size);
        let whole = bytes.chunks(4_096).map(|piece| Ok(Bytes::copy_from_slice(piece)));
        let broken = whole.chain([Err(std::io::Error::other("the line went dead"))]);
        let body = Body::from_stream(futures_util::stream::iter(broken.collect::<Vec<_>>()));
        let key = [("idempotency-key", "broken")];
        let answer = house.send("PUT", "/v1/files/n/a", &key, body).await;
        assert_eq!(answer.error(), (400, "body_incomplete".into()), "{size}");
        assert_eq!(house.get("/v1/files/n/a").await.status, 404);
    }
    let broken = [Ok("{\"a\":1}\n{\"a\":2}\n"), Err(std::io::Error::other("the line went dead"))];
    let body = Body::from_stream(futures_util::stream::iter(broken));
    assert_eq!(house.documents("n", body).await.error(), (400, "body_incomplete".into()));
    assert_eq!(house.get("/v1/documents/n").await.status, 404, "no document of it is seen");
    let key = [("idempotency-key", "broken")];
    assert_eq!(house.send("PUT", "/v1/files/n/a", &key, "whole").await.status, 201);
    assert_eq!(house.files_below("blobs"), [""; 0]);
    still_sound(house).await;
}

#[tokio::test]
async fn a_body_that_stands_still_is_given_up() {
    let house = House::with(|options| {
        options.limits.body_idle = std::time::Duration::from_millis(20);
        options.limits.packed_size_max = 1_000;
    });
    for sent in [0, 10, 5_000] {
        for path in ["/v1/files/n/a", "/v1/documents/n", "/v1/ingest"] {
            let (sender, body) = by_hand();
            if sent > 0 {
                sender.send(Ok(noise(1, sent).into())).await.unwrap();
            }
            let method = if path.contains("files") { "PUT" } else { "POST" };
            let answer = house.send(method, path, &[MULTIPART], body).await;
            let found = answer.error();
            // Noise is neither JSON nor multipart; the first fault is reported.
            assert!(matches!(found.0, 400 | 408), "{path} {sent}: {found:?}");
            assert!(
                sent > 0 && !path.contains("files") || found.0 == 408,
                "{path} {sent}: {found:?}"
            );
            drop(sender);
        }
    }
    assert_eq!(house.list("").await.0, [""; 0]);
    still_sound(house).await;
}

#[tokio::test]
async fn more_large_uploads_than_allowed_and_keys_in_use_get_retry_after() {
    let house = House::with(|options| {
        options.limits.large_uploads_max = 1;
        options.limits.packed_size_max = 1_000;
    });
    let (sender, body) = by_hand();
    let router = router(&house.intake);
    let first = tokio::spawn(async move {
        send(router, "PUT", "/v1/files/n/first", &[("idempotency-key", "k")], body).await
    });
    // The channel holds one piece: three sent means that the upload has begun to be written.
    for _ in 0..4 {
        sender.send(Ok(noise(1, 2_000).into())).await.unwrap();
    }
    let refused = house.put("n/second", noise(2, 2_000)).await;
    assert_eq!(refused.error(), (429, "busy".into()));
    assert_eq!(refused.header("retry-after"), "1");
    let same_key = house.send("PUT", "/v1/files/n/first", &[("idempotency-key", "k")], "x").await;
    assert_eq!(same_key.error(), (409, "idempotency_key_in_use".into()));
    assert_eq!(house.put("n/small", "goes on").await.status, 201);
    drop(sender);
    assert_eq!(first.await.unwrap().status, 201);
    assert_eq!(house.put("n/second", noise(2, 2_000)).await.status, 201);
    still_sound(house).await;
}
