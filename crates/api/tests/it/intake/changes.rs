//! One document that is read, replaced, merged and deleted, and a namespace that is dropped.

use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::support::{Answer, House, text};

fn tag(body: &str) -> String {
    format!("\"{}\"", hex::encode(Sha256::digest(body)))
}

async fn house() -> House {
    let house = House::new();
    let body = "{\"id\":1,\"n\":1}\n{\"id\":2,\"n\":2}\n{\"id\":3,\"n\":3}";
    assert_eq!(house.documents("d", body).await.status, 201);
    house
}

async fn ids(house: &House, query: &str) -> Vec<u64> {
    let page = house.get(&format!("/v1/documents/d{query}")).await.json();
    page["documents"].as_array().unwrap().iter().map(|it| it["id"].as_u64().unwrap()).collect()
}

fn code(answer: &Answer) -> (u16, String) {
    (answer.status, text(&answer.json()["error"]["code"]).to_owned())
}

#[tokio::test]
async fn a_document_has_an_entity_tag_that_conditions_compare() {
    let house = house().await;
    let (path, first) = ("/v1/documents/d/1", "{\"id\":1,\"n\":1}");
    let read = house.get(path).await;
    assert_eq!((read.status, &read.body[..]), (200, first.as_bytes()));
    assert_eq!(read.headers["etag"], tag(first));
    let known = house.get_with(path, &[("if-none-match", &tag(first))]).await;
    assert_eq!((known.status, &known.body[..]), (304, &b""[..]));
    assert_eq!(known.headers["etag"], tag(first));
    assert_eq!(house.get_with(path, &[("if-match", "\"x\"")]).await.status, 412);

    let second = "{ \"id\":1, \"n\":10.50 }";
    let put = house.send("PUT", path, &[("if-match", &tag(first))], second).await;
    assert_eq!((put.status, &put.json()["id"]), (200, &json!(1)), "{put:?}");
    assert_eq!(put.headers["etag"], tag(second));
    assert_eq!(format!("\"{}\"", text(&put.json()["sha256"])), tag(second));
    assert_eq!(house.get(path).await.body, second);
    for method in ["PUT", "PATCH", "DELETE"] {
        let late = house.send(method, path, &[("if-match", &tag(first))], "{}").await;
        assert_eq!(code(&late), (412, "precondition".to_owned()), "{method}");
        let wrong = house.send(method, path, &[("if-match", "nonsense")], "{}").await;
        assert_eq!(code(&wrong), (400, "condition".to_owned()), "{method}");
    }
    let merge = [("content-type", "application/merge-patch+json"), ("if-match", "*")];
    let merged = house.send("PATCH", path, &merge, "{\"id\":null,\"x\":{\"y\":null}}").await;
    assert_eq!(merged.status, 200, "{merged:?}");
    assert_eq!(house.get(path).await.body, "{\"n\":10.50,\"x\":{}}");
    let of = tag("{\"n\":10.50,\"x\":{}}");
    assert_eq!(house.send("DELETE", path, &[("if-match", &of)], "").await.status, 204);
    assert_eq!(house.get(path).await.status, 404);
    assert_eq!(ids(&house, "").await, [2, 3]);
    assert_eq!(ids(&house, "?where=n%20%3E%3D%201").await, [2, 3]);
}

#[tokio::test]
async fn what_cannot_be_changed_is_refused_with_a_reason() {
    let house = house().await;
    for (method, path, headers, body, status, expected) in [
        ("PUT", "d/9", vec![], "{}", 404, "not_found"),
        ("PUT", "d/x", vec![], "{}", 404, "not_found"),
        ("PUT", "none/1", vec![], "{}", 404, "not_found"),
        ("PUT", "d/1", vec![], "[]", 400, "document"),
        ("PUT", "d/1?x=1", vec![], "{}", 400, "query"),
        ("PUT", "d/1", vec![("if-none-match", "*")], "{}", 412, "precondition"),
        ("PATCH", "d/1", vec![], "1", 400, "document"),
        (
            "PATCH",
            "d/1",
            vec![("content-type", "application/json-patch+json")],
            "[]",
            415,
            "media_type",
        ),
        ("DELETE", "d/9", vec![], "", 404, "not_found"),
        ("DELETE", "d/9", vec![("if-match", "*")], "", 412, "precondition"),
        ("DELETE", "d", vec![], "", 400, "confirm"),
        ("DELETE", "d?confirm=e", vec![], "", 400, "confirm"),
        ("DELETE", "none?confirm=none", vec![], "", 404, "not_found"),
    ] {
        let path = format!("/v1/documents/{path}");
        let refused = house.send(method, &path, &headers, body).await;
        assert_eq!(code(&refused), (status, expected.to_owned()), "{method} {path}: {refused:?}");
    }
    let patch = [("content-type", "text/plain")];
    let refused = house.send("PATCH", "/v1/documents/d/1", &patch, "{}").await;
    assert_eq!(refused.headers["accept-patch"], "application/merge-patch+json");
    let large = format!("{{\"a\":\"{}\"}}", "x".repeat(house.options.limits.document_size_max));
    let refused = house.send("PUT", "/v1/documents/d/1", &[], large).await;
    assert_eq!(code(&refused), (413, "too_large".to_owned()));
    assert_eq!(ids(&house, "").await, [1, 2, 3]);
}

#[tokio::test]
async fn a_repeated_request_with_a_key_gets_the_same_answer_also_after_a_restart() {
    let mut house = house().await;
    let key = |key| [("idempotency-key", key)];
    let put = house.send("PUT", "/v1/documents/d/1", &key("p"), "{\"n\":7}").await;
    let gone = house.send("DELETE", "/v1/documents/d/2", &key("d"), "").await;
    assert_eq!((put.status, gone.status), (200, 204));
    for _ in 0..2 {
        let again = house.send("PUT", "/v1/documents/d/1", &key("p"), "{\"n\":7}").await;
        assert_eq!((again.status, &again.body), (200, &put.body));
        assert_eq!(again.headers["idempotent-replay"], "true");
        let again = house.send("DELETE", "/v1/documents/d/2", &key("d"), "").await;
        assert_eq!(
            (again.status, &again.headers["idempotent-replay"]),
            (204, &"true".parse().unwrap())
        );
        for (method, path) in [("PUT", "d/3"), ("PATCH", "d/1"), ("DELETE", "d/1")] {
            let path = format!("/v1/documents/{path}");
            let other = house.send(method, &path, &key("p"), "{\"n\":7}").await;
            assert_eq!(other.status, 422, "{method} {path}");
        }
        house = house.reopen();
    }
    let path = "/v1/documents/d?confirm=d";
    assert_eq!(house.send("DELETE", path, &key("x"), "").await.status, 204);
    assert_eq!(house.documents("d", "{\"id\":4}").await.json()["first_id"], 4);
    let again = house.send("DELETE", path, &key("x"), "").await;
    assert_eq!(
        (again.status, &again.headers["idempotent-replay"]),
        (204, &"true".parse().unwrap())
    );
    assert_eq!(ids(&house, "").await, [4]);
}

#[tokio::test]
async fn a_dropped_namespace_is_not_listed_and_a_file_of_documents_can_be_sent_again() {
    let house = House::new();
    let (kind, form) = (
        "multipart/form-data; boundary=b",
        "--b\r\ncontent-disposition: form-data; name=\"files\"; filename=\"a.json\"\r\n\r\n\
         [{\"n\":1},{\"n\":2}]\r\n--b--\r\n",
    );
    let headers = [("content-type", kind)];
    let ingest = || house.send("POST", "/v1/ingest", &headers, form);
    assert_eq!(ingest().await.status, 201);
    ingest().await;
    let path = "/v1/documents/default";
    let count = |page: Value| page["count"].as_u64();
    assert_eq!(count(house.get(path).await.json()), Some(2), "once");
    assert_eq!(house.send("DELETE", &format!("{path}/1"), &[], "").await.status, 204);
    ingest().await;
    assert_eq!(count(house.get(path).await.json()), Some(3), "again after a deletion");
    let dropped = house.send("DELETE", &format!("{path}?confirm=default"), &[], "").await;
    assert_eq!(dropped.status, 204);
    assert_eq!(house.get(path).await.status, 404);
    assert_eq!(house.get("/v1/documents").await.json(), json!({ "namespaces": [] }));
    ingest().await;
    assert_eq!(count(house.get(path).await.json()), Some(2), "again after the drop");
}

/// The next line of a followed namespace.
async fn next(body: &mut axum::body::Body, lines: &mut Vec<Value>) -> Value {
    while lines.is_empty() {
        let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
        let text = String::from_utf8(frame.to_vec()).unwrap();
        lines.extend(text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()));
    }
    lines.remove(0)
}

async fn follow(house: &House, query: &str) -> axum::body::Body {
    use tower::ServiceExt as _;
    let uri = format!("/v1/documents/d?follow=true{query}");
    let request = http::Request::get(uri).body(axum::body::Body::empty()).unwrap();
    let router = forebay_api::intake::router(&house.intake);
    router.oneshot(request).await.unwrap().into_body()
}

#[tokio::test]
async fn the_feed_reports_changes_and_deletions_and_continues_at_a_cursor() {
    let house = house().await;
    let (mut body, mut lines) = (follow(&house, "&cursor=1").await, Vec::new());
    for id in [2, 3] {
        assert_eq!(next(&mut body, &mut lines).await["id"], id);
    }
    house.send("PUT", "/v1/documents/d/2", &[], "{\"n\":20}").await;
    let replaced = next(&mut body, &mut lines).await;
    assert_eq!(
        (&replaced["change"], &replaced["document"]),
        (&json!("replaced"), &json!({"n":20}))
    );
    let cursor = text(&replaced["cursor"]).to_owned();
    house.send("DELETE", "/v1/documents/d/1", &[], "").await;
    let deleted = next(&mut body, &mut lines).await;
    assert_eq!((&deleted["id"], &deleted["change"]), (&json!(1), &json!("deleted")));
    assert!(deleted.get("document").is_none());
    house.documents("d", "{\"n\":4}").await;
    let stored = next(&mut body, &mut lines).await;
    assert_eq!((&stored["id"], stored.get("change")), (&json!(4), None));
    house.send("DELETE", "/v1/documents/d?confirm=d", &[], "").await;
    let dropped = next(&mut body, &mut lines).await;
    assert_eq!((&dropped["id"], &dropped["change"]), (&json!(4), &json!("dropped")));
    house.documents("d", "{\"n\":5}").await;
    assert_eq!(next(&mut body, &mut lines).await["id"], 5);

    // Nothing before the drop is there to be reported: it is one line.
    let (mut body, mut lines) = (follow(&house, &format!("&cursor={cursor}")).await, Vec::new());
    let seen = [next(&mut body, &mut lines).await, next(&mut body, &mut lines).await];
    assert_eq!((&seen[0]["id"], &seen[1]["change"]), (&json!(5), &json!("dropped")));
    let filter = "&where=n%20%3D%205&cursor=4";
    let (mut body, mut lines) = (follow(&house, filter).await, Vec::new());
    assert_eq!(next(&mut body, &mut lines).await["id"], 5);
    house.send("PUT", "/v1/documents/d/5", &[], "{\"n\":6}").await;
    let excluded = next(&mut body, &mut lines).await;
    assert_eq!((&excluded["id"], &excluded["change"]), (&json!(5), &json!("excluded")));
}
