//! Routing rules of the configuration, as clients of each protocol see them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::s3_client::{Reply, send};
use crate::support::{Server, agent, run, run_ok, stderr};

const RULES: &str = "[intake]\nrules = [\n  \"name=*.log -> namespace=logs tag.kind=log keep=30d\",\n  \
                     \"type=application/json -> namespace=data\",\n]\n";

fn start(dir: &TempDir) -> Server {
    std::fs::write(dir.path().join("forebay.toml"), RULES).unwrap();
    Server::start(dir, &["--config", "forebay.toml"])
}

fn body(reply: &Reply) -> Value {
    serde_json::from_slice(reply.body.as_deref().unwrap()).unwrap()
}

fn ingest(server: &Server, namespace: Option<&str>) -> Value {
    let field = namespace.map(|namespace| {
        format!("--b\r\ncontent-disposition: form-data; name=\"namespace\"\r\n\r\n{namespace}\r\n")
    });
    let file = |name: &str, text: &str| {
        let names = format!("form-data; name=\"files\"; filename=\"{name}\"");
        format!("--b\r\ncontent-disposition: {names}\r\n\r\n{text}\r\n")
    };
    let parts = [
        field.unwrap_or_default(),
        file("a.log", "a line\n"),
        file("d.json", r#"{"n":1}"#),
        file("plain", "text"),
    ];
    let text = format!("{}--b--\r\n", parts.concat());
    let kind = [("content-type", "multipart/form-data; boundary=b")];
    let url = format!("{}/v1/ingest", server.url);
    let reply = send(&agent(), "POST", &url, &kind, text.as_bytes()).unwrap();
    assert!(matches!(reply.status, 200 | 201), "{}", reply.text());
    body(&reply)
}

/// Namespace, tags and whether it expires, of each file of a batch.
fn stored(batch: &Value) -> Value {
    let parts = batch["parts"].as_array().unwrap().iter().map(|part| {
        let file = &part["file"];
        json!([file["namespace"], file["tags"]["kind"], file["expires"].is_string()])
    });
    parts.collect()
}

#[test]
fn files_without_a_namespace_are_routed_with_their_documents() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(&dir);
    let routed = ingest(&server, None);
    let expected = json!([["logs", "log", true], ["data", null, false], ["default", null, false]]);
    assert_eq!(stored(&routed), expected, "{routed}");
    let documents = server.ask("GET", "/v1/documents/data", "");
    assert_eq!(documents.json()["count"], 1, "{}", documents.body);
    assert_eq!(server.ask("GET", "/v1/files/logs/a.log", "").body, "a line\n");
    assert_eq!(server.ask("GET", "/v1/documents/default", "").status, 404);
    // Where the request names a namespace, only the tags and the time are added.
    let named = ingest(&server, Some("mine"));
    let expected = json!([["mine", "log", true], ["mine", null, false], ["mine", null, false]]);
    assert_eq!(stored(&named), expected, "{named}");
    let found = server.ask("GET", "/v1/files?tag=kind%3Dlog", "").json();
    assert_eq!(found["files"].as_array().unwrap().len(), 2, "{found}");
    let metrics = server.ask("GET", "/metrics", "").body;
    assert!(metrics.contains("forebay_intake_files_routed_total 4\n"), "{metrics}");
}

#[test]
fn an_upload_is_routed_unless_its_key_is_limited_to_namespaces() {
    let dir = tempfile::tempdir().unwrap();
    let key = |args: &[&str]| {
        let args = [&["key", "new", "--json", "--scope", "read", "--scope", "write"], args];
        let made: Value = serde_json::from_str(&run_ok(&dir, &args.concat())).unwrap();
        format!("Bearer {}", made["key"].as_str().unwrap())
    };
    let (all, limited) =
        (key(&["--name", "all"]), key(&["--name", "l", "--only", "files:default"]));
    let server = start(&dir);
    let upload = |key: &str, name: &str| {
        let metadata = format!("filename {}", BASE64.encode(name));
        let headers = [
            ("authorization", key),
            ("tus-resumable", "1.0.0"),
            ("upload-length", "5"),
            ("upload-metadata", &*metadata),
            ("content-type", "application/offset+octet-stream"),
        ];
        let url = format!("{}/v1/uploads", server.url);
        let reply = send(&agent(), "POST", &url, &headers, b"line\n").unwrap();
        assert_eq!(reply.status, 201, "{}", reply.text());
        reply.header("upload-file").unwrap().to_owned()
    };
    assert_eq!(upload(&all, "b.log"), "/v1/files/logs/b.log");
    assert_eq!(upload(&limited, "b.log"), "/v1/files/default/b.log");
}

#[test]
fn a_wrong_rule_stops_the_start_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let refused = run(&dir, &["serve", "--set", "intake.rules=name=*.log -> namespce=logs"]);
    assert_eq!(refused.status.code(), Some(2));
    let error = stderr(&refused);
    assert!(error.contains("intake.rules") && error.contains("unknown action"), "{error}");
}
