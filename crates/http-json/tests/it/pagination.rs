//! How pages lead to each other, and that every reading ends.

use serde_json::json;

use crate::reading::{failure, ids, source};
use crate::server::{Server, answer, json as body};

/// Records with these ids.
fn records(ids: std::ops::Range<u32>) -> String {
    let records: Vec<_> = ids.map(|id| format!("{{\"id\":{id}}}")).collect();
    format!("[{}]", records.join(","))
}

/// The number in a parameter.
fn number(request: &crate::server::Request, name: &str) -> u32 {
    request.parameter(name).and_then(|value| value.parse().ok()).unwrap_or(0)
}

#[tokio::test]
async fn one_page_is_requested_once() {
    let server = Server::start(|_| body(&records(0..3)));
    let source = source(&server, json!({ "path": "/items", "query": { "a": "b c" } }), json!({}));
    assert_eq!(ids(&source).await.unwrap(), [0, 1, 2]);
    assert_eq!(server.targets(), ["/items?a=b+c"]);
}

#[tokio::test]
async fn numbers_of_pages_lead_to_the_first_one_without_records() {
    let server = Server::start(|request| {
        let page = number(request, "p");
        body(&records(page * 10..page * 10 + if page < 3 { 2 } else { 0 }))
    });
    let pagination = json!({ "page": { "param": "p", "size_param": "n", "size": 50 } });
    let source = source(&server, json!({ "pagination": pagination }), json!({}));
    assert_eq!(ids(&source).await.unwrap(), [10, 11, 20, 21]);
    assert_eq!(server.targets(), ["/?p=1&n=50", "/?p=2&n=50", "/?p=3&n=50"]);
}

#[tokio::test]
async fn offsets_count_the_records_that_came_however_many_were_requested() {
    let server = Server::start(|request| {
        let from = number(request, "offset");
        body(&records(from..(from + 3).min(7)))
    });
    let pagination = json!({ "offset": { "size_param": "limit", "size": 100 } });
    let source = source(&server, json!({ "pagination": pagination }), json!({}));
    assert_eq!(ids(&source).await.unwrap(), (0..7).collect::<Vec<_>>());
    let offsets: Vec<_> = server.requests().iter().map(|it| number(it, "offset")).collect();
    assert_eq!(offsets, [0, 3, 6, 7]);
}

#[tokio::test]
async fn values_of_pages_lead_to_the_next_also_over_an_empty_page() {
    let server = Server::start(|request| match request.parameter("after") {
        None => body(r#"{"data": [{"id": 1}], "next": "a&b"}"#),
        Some("a%26b") => body(r#"{"data": [], "next": 17}"#),
        Some("17") => body(r#"{"data": [{"id": 2}], "next": null}"#),
        other => panic!("{other:?}"),
    });
    let pagination = json!({ "cursor": { "param": "after", "pointer": "/next" } });
    let settings = json!({ "records": "/data", "pagination": pagination, "query": { "x": "y" } });
    let source = source(&server, settings, json!({}));
    assert_eq!(ids(&source).await.unwrap(), [1, 2]);
    assert_eq!(server.targets(), ["/?x=y", "/?x=y&after=a%26b", "/?x=y&after=17"]);
}

#[tokio::test]
async fn links_and_addresses_in_pages_are_followed_also_relative_ones() {
    let server = Server::start(|request| match &*request.target {
        "/items?q=1" => answer("200 OK", "link: <?page=2>; rel=\"next\"\r\n", &records(0..2)),
        "/items?page=2" => answer("200 OK", "link: </more>; rel=next\r\n", &records(2..3)),
        "/more" => answer("200 OK", "link: </items>; rel=first\r\n", &records(3..4)),
        other => panic!("{other}"),
    });
    let settings = json!({ "path": "items", "query": { "q": "1" }, "pagination": "link" });
    assert_eq!(ids(&source(&server, settings, json!({}))).await.unwrap(), [0, 1, 2, 3]);

    let server = Server::start(|request| match &*request.target {
        "/items" => body(r#"{"data": [{"id": 1}], "links": {"next": "/items?p=\u0032"}}"#),
        "/items?p=2" => body(r#"{"data": [{"id": 2}], "links": {}}"#),
        other => panic!("{other}"),
    });
    let pagination = json!({ "next_url": { "pointer": "/links/next" } });
    let settings = json!({ "path": "items", "records": "/data", "pagination": pagination });
    assert_eq!(ids(&source(&server, settings, json!({}))).await.unwrap(), [1, 2]);
}

#[tokio::test]
async fn pages_without_an_end_are_an_error() {
    let same = r#"{"data": [{"id": 1}], "next": "again", "url": "/?again"}"#;
    let changing = |request: &crate::server::Request| {
        body(&format!(
            r#"{{"data": [{{"id": {0}}}], "next": "{0}", "url": "/?{0}"}}"#,
            request.index
        ))
    };
    let own = r#"{"data": [{"id": 1}], "url": "/"}"#;
    let page = json!({ "page": {} });
    let offset = json!({ "offset": {} });
    let cursor = json!({ "cursor": { "pointer": "/next" } });
    let url = json!({ "next_url": { "pointer": "/url" } });
    for (pagination, text, expected) in [
        (&page, same, "ignore the parameter \"page\""),
        (&offset, same, "ignore the parameter \"offset\""),
        (&cursor, same, "used before"),
        (&url, same, "used before"),
        (&url, own, "used before"),
    ] {
        let server = Server::start(move |_| body(text));
        let settings = json!({ "records": "/data", "pagination": pagination });
        let error = failure(&source(&server, settings, json!({}))).await;
        assert!(error.contains("s page ") && error.contains(expected), "{error}");
        assert!(server.requests().len() <= 3);
    }
    for pagination in [page, offset, cursor, url] {
        let server = Server::start(changing);
        let settings = json!({ "records": "/data", "pagination": pagination });
        let error = failure(&source(&server, settings, json!({ "max_pages": 4 }))).await;
        assert!(error.contains("`max_pages`, 4"), "{error}");
        assert_eq!(server.requests().len(), 4);
    }
}

#[tokio::test]
async fn a_page_that_leads_to_another_server_is_refused_unless_it_is_named() {
    let other = Server::start(|_| body(r#"{"data": [{"id": 2}]}"#));
    let elsewhere = other.url();
    let server = Server::start(move |_| {
        body(&format!(r#"{{"data": [{{"id": 1}}], "url": "{elsewhere}/x"}}"#))
    });
    let pagination = json!({ "next_url": { "pointer": "/url" } });
    let settings = json!({ "records": "/data", "pagination": pagination });
    let headers = json!({ "headers": { "authorization": "Bearer geheim" } });
    let error = failure(&source(&server, settings.clone(), headers.clone())).await;
    assert!(error.contains("`other_hosts`") && !error.contains("geheim"), "{error}");
    assert_eq!(other.requests().len(), 0);
    let more = json!({ "other_hosts": [other.address.to_string()], "headers": headers["headers"] });
    assert_eq!(ids(&source(&server, settings, more)).await.unwrap(), [1, 2]);
    assert_eq!(server.requests()[0].header("authorization"), Some("Bearer geheim"));
    assert_eq!(other.requests()[0].header("authorization"), None);
}

#[tokio::test]
async fn a_page_that_cannot_be_understood_is_an_error_that_names_it() {
    for (text, expected) in [
        (r#"{"data": [{"id": 1}"#, "not JSON"),
        (r#"<html>"#, "begins with \"<html>\""),
        (r#"{"other": []}"#, "there is nothing at /data"),
        (r#"{"data": {}}"#, "is not an array"),
        (r#"{"data": [], "data": [{"id": 9}]}"#, "occurs twice"),
        (r#"{"data": [{"id": 1}], "next": {}}"#, "neither text nor number"),
        (r#"{"data": [1]}"#, "record 1"),
    ] {
        let server = Server::start(move |request| match request.index {
            0 => body(r#"{"data": [{"id": 1}], "next": "x"}"#),
            _ => body(text),
        });
        let pagination = json!({ "cursor": { "pointer": "/next" } });
        let settings = json!({ "records": "/data", "pagination": pagination });
        let error = failure(&source(&server, settings, json!({}))).await;
        assert!(error.contains("s page 2") && error.contains(expected), "{text}: {error}");
    }
    let server = Server::start(|_| body("{}"));
    let error = failure(&source(&server, json!({}), json!({}))).await;
    assert!(error.contains("set `records`"), "{error}");
}
