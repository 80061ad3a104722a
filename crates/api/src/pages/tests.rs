//! Claims about the pages.

use serde_json::json;

use super::schema::words;
use super::{DOCS_JS, Status, docs_page, landing_page, shell_api};

#[test]
fn the_docs_page_lists_every_operation_and_schema_of_the_document() {
    let document = serde_json::to_value(shell_api()).unwrap();
    let page = docs_page(&document);
    for part in ["/healthz", "/readyz", "/metrics", "/openapi.json", "schema-Health", "reason"] {
        assert!(page.contains(part), "{part}");
    }
    assert!(
        !page.contains("<script>") && !page.contains("style="),
        "the policy forbids inline code"
    );
}

#[test]
fn text_of_a_document_cannot_become_markup() {
    let evil = "<img src=x onerror=alert(1)>";
    let document = json!({
        "info": { "title": evil, "description": format!("a `{evil}` b") },
        "paths": { "/v1/x/{id}": { "post": {
            "summary": evil, "tags": [evil],
            "parameters": [{ "name": "\"><b>", "in": "path", "required": true, "schema": { "enum": [evil] } }],
            "requestBody": { "content": { "application/json": { "schema": { "$ref": "#/nowhere" } } } },
            "responses": { "200": { "$ref": "#/components/responses/missing" } }
        } } },
        "components": { "schemas": { "A": { "type": "string" } } }
    });
    let page = docs_page(&document);
    assert!(!page.contains("<img") && !page.contains("<b>"), "{page}");
    assert!(page.contains("&lt;img"));
}

#[test]
fn a_document_without_anything_still_makes_a_page() {
    assert!(docs_page(&json!({})).contains("</html>"));
    assert!(DOCS_JS.contains("fetch"));
}

#[test]
fn schemas_read_as_words() {
    for (schema, text) in [
        (json!({ "$ref": "#/components/schemas/File" }), "File"),
        (
            json!({ "type": "array", "items": { "type": "string", "format": "uuid" } }),
            "array of string (uuid)",
        ),
        (json!({ "type": ["string", "null"] }), "string or null"),
        (json!({ "oneOf": [{ "type": "null" }, { "$ref": "#/x/B" }] }), "null or B"),
        (
            json!({ "type": "object", "required": ["a"], "properties": { "a": {}, "b": {} } }),
            "object {a, b?}",
        ),
        (json!({}), "anything"),
    ] {
        assert_eq!(words(&schema), text, "{schema}");
    }
}

#[test]
fn the_landing_page_says_why_it_is_not_ready() {
    let page = landing_page(&Status {
        address: "https://files.example.com".to_owned(),
        readiness: Err("still <opening>".to_owned()),
        degraded: Vec::new(),
        logged_in: None,
        subsystems: vec!["intake", "jobs"],
        uptime_ms: 61_000,
        connections: 3,
        connections_total: 9,
        keys_required: true,
    });
    assert!(page.contains("still &lt;opening&gt;") && page.contains("intake"));
    assert!(page.contains("required for /v1"));
    assert!(page.contains("Bearer $KEY&quot; https://files.example.com/v1/files/notes/hello.txt"));
    assert!(page.contains("/v1/jobs/page") && !page.contains("/v1/pipelines/page"));
}
