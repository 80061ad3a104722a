//! Documents: accepted whatever their framing, stored byte for byte, decided on with reasons.

use forebay_api::intake::router;
use http_body_util::BodyExt as _;
use tower::ServiceExt as _;

use super::support::{House, noise, text};

#[tokio::test]
async fn an_object_an_array_and_lines_are_the_same_documents() {
    let house = House::new();
    for (namespace, kind, body) in [
        ("one", "application/json", "{\"id\":1,\"n\":\"a\"}"),
        ("array", "application/json", " [ {\"id\":1,\"n\":\"a\"} , {\"id\":2,\"n\":\"b\"} ] "),
        ("lines", "application/x-ndjson", "{\"id\":1,\"n\":\"a\"}\r\n\n{\"id\":2,\"n\":\"b\"}"),
        ("declared", "", "{\"id\":1,\"n\":\"a\"}\n{\"id\":2,\"n\":\"b\"}\n"),
        ("bom", "", "\u{feff}[{\"id\":1,\"n\":\"a\"}]"),
    ] {
        let path = format!("/v1/documents/{namespace}");
        let taken = house.send("POST", &path, &[("content-type", kind)], body).await;
        assert_eq!(taken.status, 201, "{namespace}: {taken:?}");
        let page = house.get(&path).await.json();
        let documents = page["documents"].as_array().unwrap();
        let count = if matches!(namespace, "one" | "bom") { 1 } else { 2 };
        assert_eq!((documents.len(), page["count"].as_u64()), (count, Some(count as u64)));
        assert_eq!(text(&page["target"]), "table");
        for (at, document) in documents.iter().enumerate() {
            assert_eq!(document["document"]["id"], at + 1, "{namespace}");
            let one = house.get(&format!("{path}/{}", document["id"])).await;
            assert_eq!(one.json(), document["document"]);
        }
    }
    let listed = house.get("/v1/documents").await.json();
    assert_eq!(listed["namespaces"].as_array().unwrap().len(), 5);
}

#[tokio::test]
async fn numbers_and_text_come_back_byte_for_byte() {
    let house = House::new();
    let documents = [
        "{\"n\":9007199254740993,\"id\":1}",
        "{\"n\":0.1,\"id\":2}",
        "{\"n\":1e400,\"id\":3}",
        "{\"n\":-0,\"id\":4}",
        "{\"n\":123456789012345678901234567890.50,\"id\":5}",
        "{ \"n\" : 1.0 , \"id\":6, \"t\":\"\\u00e9\\/é\" }",
        "{\"id\":7,\"n\":1,\"n\":2}",
        "{\"id\":8,\"t\":\"\\ud800\"}",
    ];
    let taken = house.documents("exact", documents.join("\n")).await;
    assert_eq!(taken.status, 201, "{taken:?}");
    let house = house.reopen();
    let lines = house.get_with("/v1/documents/exact", &[("accept", "application/x-ndjson")]).await;
    assert_eq!(lines.body, documents.join("\n") + "\n");
    for (at, document) in documents.iter().enumerate() {
        let one = house.get(&format!("/v1/documents/exact/{}", at + 1)).await;
        assert_eq!(one.body, *document);
    }
}

#[tokio::test]
async fn a_bad_line_is_reported_with_its_position_and_affects_no_other() {
    let house = House::new();
    let body = "{\"a\":1}\n{\"a\":\n\n[1]\n{\"a\":2}\n7\n{\"a\":3}\n";
    let taken = house.documents("lines", body).await;
    assert_eq!(taken.status, 207, "{taken:?}");
    let json = taken.json();
    assert_eq!((json["accepted"].as_u64(), json["rejected"].as_u64()), (Some(3), Some(3)));
    let errors = json["errors"].as_array().unwrap();
    let lines: Vec<u64> = errors.iter().map(|error| error["line"].as_u64().unwrap()).collect();
    assert_eq!(lines, [2, 4, 6]);
    assert_eq!(errors[0]["byte"], 8);
    assert_eq!(errors[1]["index"], 2);
    assert_eq!(house.get("/v1/documents/lines").await.json()["count"], 3);
}

#[tokio::test]
async fn on_error_reject_takes_all_or_nothing() {
    let house = House::new();
    let refused = house.documents("all?on_error=reject", "{\"a\":1}\nnonsense\n").await;
    assert_eq!(refused.status, 422, "{refused:?}");
    assert_eq!(refused.json()["accepted"], 0);
    assert_eq!(refused.json()["errors"][0]["line"], 2);
    assert_eq!(house.get("/v1/documents/all").await.status, 404);
    // Also where most of the body was on its way to the log before the bad line came.
    let mut body: String =
        (0..20_000).map(|n| format!("{{\"n\":{n},\"pad\":\"{n:0>60}\"}}\n")).collect();
    body.push_str("{\"n\":}\n");
    let refused = house.documents("all?on_error=reject", body.clone()).await;
    assert_eq!((refused.status, &refused.json()["accepted"]), (422, &0.into()));
    assert_eq!(house.get("/v1/documents/all").await.status, 404);
    let taken = house.documents("all", body).await;
    assert_eq!((taken.status, &taken.json()["accepted"]), (207, &20_000.into()));
    assert_eq!(taken.json()["errors"][0]["line"], 20_001);
    assert_eq!(house.get("/v1/documents/all?limit=1").await.json()["count"], 20_000);
}

#[tokio::test]
async fn a_dry_run_shows_the_decision_and_the_statements_and_writes_nothing() {
    let house = House::new();
    let body = "[{\"id\":1,\"Name\":\"a\"},{\"id\":2,\"Name\":\"b\"}]";
    let dry = house.documents("plan?dry_run=true", body).await;
    assert_eq!(dry.status, 200, "{dry:?}");
    let json = dry.json();
    assert_eq!((&json["dry_run"], text(&json["target"])), (&true.into(), "table"));
    assert!(text(&json["ddl"][0]).starts_with("CREATE TABLE"), "{json}");
    let rules: Vec<&str> =
        json["rules"].as_array().unwrap().iter().map(|r| text(&r["rule"])).collect();
    for rule in [
        "existing",
        "wish",
        "fields",
        "depth",
        "embedded",
        "presence",
        "type_agreement",
        "relations",
    ] {
        assert!(rules.contains(&rule), "{rule} in {rules:?}");
    }
    assert!(json["rules"].as_array().unwrap().iter().all(|rule| !rule["measured"].is_null()));
    assert_eq!(house.get("/v1/documents/plan").await.status, 404);
    let real = house.documents("plan", body).await.json();
    for what in ["target", "decided_by", "rules", "ddl", "columns_added"] {
        assert_eq!(real[what], json[what], "{what}");
    }
}

#[tokio::test]
async fn a_table_grows_a_column_when_its_documents_do() {
    let house = House::new();
    assert_eq!(house.documents("grow", "[{\"id\":1},{\"id\":2}]").await.status, 201);
    let dry = house.documents("grow?dry_run", "{\"id\":3,\"mail\":\"a@b\"}").await.json();
    assert!(text(&dry["ddl"][0]).starts_with("ALTER TABLE"), "{dry}");
    let grown = house.documents("grow", "{\"id\":3,\"mail\":\"a@b\"}").await.json();
    assert_eq!((&grown["ddl"], text(&grown["decided_by"])), (&dry["ddl"], "existing"));
    assert_eq!(text(&grown["columns_added"][0]["path"]), "mail");
    let house = house.reopen();
    let page = house.get("/v1/documents/grow").await.json();
    let columns: Vec<&str> =
        page["columns"].as_array().unwrap().iter().map(|c| text(&c["path"])).collect();
    assert_eq!(columns, ["id", "mail"]);
    assert_eq!(
        house.documents("grow", "{\"id\":4,\"mail\":\"c@d\"}").await.json()["ddl"],
        serde_json::json!([])
    );
}

#[tokio::test]
async fn documents_that_do_not_agree_become_a_collection_with_the_reason() {
    let house = House::new();
    for (namespace, query, body, target, rule) in [
        ("mixed", "", "[{\"a\":1},{\"b\":[1]},{\"c\":{\"d\":1}}]", "collection", "presence"),
        ("wished", "?target=collection", "[{\"a\":1}]", "collection", "wish"),
        ("said", "?comment=plain+nosql+please", "[{\"a\":1}]", "collection", "wish"),
        ("not-said", "?comment=identity+of+mysqldump", "[{\"a\":1}]", "table", "stable"),
    ] {
        let taken = house.documents(&format!("{namespace}{query}"), body).await.json();
        assert_eq!(
            (text(&taken["target"]), text(&taken["decided_by"])),
            (target, rule),
            "{namespace}"
        );
    }
}

#[tokio::test]
async fn pages_follow_the_cursor_to_the_end_without_gap_or_repeat() {
    let house = House::new();
    let body: String = (0..250).map(|n| format!("{{\"n\":{n}}}\n")).collect();
    house.documents("pages", body).await;
    let (mut seen, mut cursor, mut last_id) = (0, String::new(), 0);
    loop {
        let page = house.get(&format!("/v1/documents/pages?limit=70{cursor}")).await.json();
        for document in page["documents"].as_array().unwrap() {
            assert_eq!(document["document"]["n"], seen);
            assert!(document["id"].as_u64().unwrap() > last_id);
            last_id = document["id"].as_u64().unwrap();
            seen += 1;
        }
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(seen, 250);
    let lines =
        house.get_with("/v1/documents/pages?limit=3", &[("accept", "application/x-ndjson")]).await;
    assert_eq!(lines.body, "{\"n\":0}\n{\"n\":1}\n{\"n\":2}\n");
    assert_eq!(lines.header("x-next-cursor"), "3");
    assert_eq!(house.get("/v1/documents/pages/251").await.error(), (404, "not_found".into()));
    assert_eq!(house.get("/v1/documents/nowhere").await.error(), (404, "not_found".into()));
}

#[tokio::test]
async fn a_repeated_key_takes_documents_once() {
    let mut house = House::new();
    let key = [("idempotency-key", "docs 1")];
    let body = "[{\"a\":1},{\"a\":2}]";
    let first = house.send("POST", "/v1/documents/once", &key, body).await;
    assert_eq!(first.status, 201);
    for _ in 0..2 {
        let again = house.send("POST", "/v1/documents/once", &key, body).await;
        assert_eq!((again.status, &again.body), (201, &first.body));
        assert_eq!(again.header("idempotent-replay"), "true");
        let other = house.send("POST", "/v1/documents/once", &key, "[{\"a\":1}]").await;
        assert_eq!(other.error(), (422, "idempotency_key_reused".into()));
        assert_eq!(house.get("/v1/documents/once").await.json()["count"], 2);
        house = house.reopen();
    }
}

#[tokio::test]
async fn a_body_of_many_chunks_is_all_there_after_a_reopening() {
    let house = House::new();
    let pad = hex::encode(noise(5, 200));
    let body: String = (0..6_000).map(|n| format!("{{\"n\":{n},\"pad\":\"{pad}\"}}\n")).collect();
    let taken = house
        .send("POST", "/v1/documents/many", &[], super::support::pieces(body.as_bytes(), 60_000))
        .await;
    assert_eq!((taken.status, &taken.json()["accepted"]), (201, &6_000.into()));
    let house = house.reopen();
    let page = house.get("/v1/documents/many?limit=1&cursor=5999").await.json();
    assert_eq!(
        (&page["count"], &page["documents"][0]["document"]["n"]),
        (&6_000.into(), &5_999.into())
    );
}

#[tokio::test]
async fn a_document_larger_than_any_buffer_on_its_way_is_kept_whole() {
    let house = House::with(|options| options.limits.document_size_max = 40 << 20);
    let document = format!("{{\"id\":1,\"text\":\"{}\"}}", "x".repeat(30 << 20));
    let body = format!("{{\"id\":0}}\n{document}\n{{\"id\":2}}\n");
    let pieces = super::support::pieces(body.as_bytes(), 65_536);
    let taken = house.documents("large", pieces).await;
    assert_eq!((taken.status, &taken.json()["accepted"]), (201, &3.into()));
    assert!(house.get("/v1/documents/large/2").await.body == document);
    let house = house.reopen();
    assert!(house.get("/v1/documents/large/2").await.body == document);
    assert_eq!(house.get("/v1/documents/large/3").await.body, "{\"id\":2}");
}

#[tokio::test]
async fn a_namespace_is_decided_when_it_has_enough_documents() {
    let house = House::with(|options| options.decision.documents_min = 3);
    for n in 1..=4 {
        let document = format!("{{\"id\":{n},\"name\":\"x\"}}");
        let dry = house.documents("few?dry_run", document.clone()).await.json();
        let taken = house.documents("few", document).await.json();
        let (target, undecided, rule) = match n {
            1 | 2 => ("collection", true, "documents"),
            3 => ("table", false, "stable"),
            _ => ("table", false, "existing"),
        };
        for answer in [dry, taken] {
            assert_eq!(answer["undecided"], undecided, "{answer}");
            assert_eq!((text(&answer["target"]), text(&answer["decided_by"])), (target, rule));
        }
        let listed = house.get("/v1/documents").await.json();
        assert_eq!(listed["namespaces"][0]["undecided"], undecided);
    }
    let page = house.get("/v1/documents/few").await.json();
    assert_eq!((text(&page["target"]), page["columns"].as_array().unwrap().len()), ("table", 2));
    assert_eq!(
        house.documents("few?target=collection", "{}").await.error(),
        (409, "target".into())
    );
}

#[tokio::test]
async fn a_schema_is_decided_again_on_demand() {
    let house = House::new();
    let schema = async |query: &str| {
        house.send("POST", &format!("/v1/documents/logs/schema{query}"), &[], "").await
    };
    assert_eq!(schema("").await.error(), (404, "not_found".into()));
    for n in 0..20 {
        house.documents("logs?target=table", format!("{{\"field_{n}\":{n}}}")).await;
    }
    for (query, code) in
        [("?bogus=1", "query"), ("?target=stone", "query"), ("?dry_run=2", "query")]
    {
        assert_eq!(schema(query).await.error(), (400, code.into()), "{query}");
    }
    let before = house.get("/v1/documents/logs").await.json();
    assert_eq!(text(&before["target"]), "table");
    let dry = schema("?dry_run=true").await.json();
    assert_eq!((text(&dry["target"]), text(&dry["target_before"])), ("collection", "table"));
    assert_eq!(house.get("/v1/documents/logs").await.json(), before);
    let done = schema("").await;
    assert_eq!(done.status, 200, "{done:?}");
    assert_eq!(done.json()["columns_removed"].as_array().unwrap().len(), 20);
    assert_eq!(done.json()["documents"], 20);
    let after = house.get("/v1/documents/logs").await.json();
    assert_eq!((text(&after["target"]), &after["columns"]), ("collection", &serde_json::json!([])));
    assert_eq!(after["documents"], before["documents"]);
    let table = schema("?target=table").await.json();
    assert_eq!(table["columns"].as_array().unwrap().len(), 20);
    house.documents("empty", "{}").await;
    let refused = house.send("POST", "/v1/documents/empty/schema?target=table", &[], "").await;
    assert_eq!(refused.error(), (409, "target".into()));
}

#[tokio::test]
async fn a_query_returns_what_passes_page_by_page_and_a_mistake_is_named() {
    let house = House::new();
    let lines: Vec<_> =
        (0..250).map(|n| format!("{{\"n\":{n},\"even\":{}}}", n % 2 == 0)).collect();
    house.documents("d", lines.join("\n")).await;
    let (mut found, mut cursor) = (Vec::new(), String::new());
    loop {
        let path = format!("/v1/documents/d?where=even%3Dtrue%20and%20n%3E%3D100&limit=40{cursor}");
        let page = house.get(&path).await.json();
        let documents = page["documents"].as_array().unwrap().iter();
        found.extend(documents.map(|document| document["document"]["n"].as_u64().unwrap()));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(found, (100..250).step_by(2).collect::<Vec<_>>());
    let refused = house.get("/v1/documents/d?where=n%20is%205").await;
    assert_eq!(refused.error(), (400, "query".to_owned()));
    let message = refused.json()["error"]["message"].to_string();
    assert!(message.contains("at byte 2"), "{message}");
    assert_eq!(house.get("/v1/documents/none?where=a=1").await.status, 404);
}

#[tokio::test]
async fn a_follower_receives_each_document_once_and_ends_when_the_server_stops() {
    let house = House::new();
    house.documents("d", "{\"n\":1}\n{\"n\":2}").await;
    let mut followers = Vec::new();
    for query in ["follow=true&cursor=1", "follow=true", "follow=true&where=n%3E3"] {
        let request = http::Request::get(format!("/v1/documents/d?{query}"));
        let request = request.body(axum::body::Body::empty()).unwrap();
        let response = router(&house.intake).oneshot(request).await.unwrap();
        assert_eq!(response.headers()["content-type"], "application/x-ndjson");
        followers.push(tokio::spawn(response.into_body().collect()));
    }
    for n in 3..6 {
        house.documents("d", format!("{{\"n\":{n}}}")).await;
        // The view has it, and so have those who follow it before they end.
        house.get("/v1/documents/d").await;
    }
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    house.intake.drain();
    for (follower, expected) in followers.into_iter().zip(["2 3 4 5", "3 4 5", "4 5"]) {
        let body = follower.await.unwrap().unwrap().to_bytes();
        let lines = std::str::from_utf8(&body).unwrap().lines();
        let found = lines.map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            line["document"]["n"].to_string()
        });
        assert_eq!(found.collect::<Vec<_>>().join(" "), expected);
    }
    for query in ["", "&cursor=0", "&where=n=1"] {
        let missing = house.get(&format!("/v1/documents/none?follow=true{query}")).await;
        assert_eq!(missing.error(), (404, "not_found".to_owned()), "{query}");
    }
    let limited = house.get("/v1/documents/d?follow=true&limit=3").await;
    assert_eq!(limited.error(), (400, "query".to_owned()));
}
