//! Routing rules of the configuration, as clients of each protocol see them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::s3_client::{Reply, S3, send};
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
fn rules_see_the_key_and_the_protocol_of_a_file_also_in_a_job_and_a_multipart_upload() {
    let dir = tempfile::tempdir().unwrap();
    let key = |name: &str| -> Value {
        let scopes = ["--scope", "read", "--scope", "write"];
        let args = [&["key", "new", "--json", "--name", name][..], &scopes].concat();
        serde_json::from_str(&run_ok(&dir, &args)).unwrap()
    };
    let (phone, other) = (key("phone"), key("other"));
    let id = phone["id"].as_str().unwrap();
    let rules = ["tus", "s3", "http"]
        .map(|protocol| format!("  \"key={id} protocol={protocol} -> tag.kind={protocol}\",\n"));
    let config = format!("[intake]\nrules = [\n{}]\n", rules.concat());
    std::fs::write(dir.path().join("forebay.toml"), config).unwrap();
    let secret = run_ok(&dir, &["s3", "secret", id, "--json"]);
    let secret: Value = serde_json::from_str(&secret).unwrap();
    let args = ["--config", "forebay.toml", "--set", "s3.listen=127.0.0.1:0"];
    let server = Server::start(&dir, &args);
    let bearer = |key: &Value| format!("Bearer {}", key["key"].as_str().unwrap());
    let ask = |key: &Value, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]| {
        let authorization = bearer(key);
        let headers = [&[("authorization", &*authorization)], headers].concat();
        send(&agent(), method, &format!("{}{path}", server.url), &headers, body).unwrap()
    };
    let kind = |name: &str| {
        let found = ask(&phone, "GET", &format!("/v1/files?namespace=n&prefix={name}"), &[], b"");
        body(&found)["files"][0]["tags"]["kind"].clone()
    };
    assert_eq!(ask(&phone, "PUT", "/v1/files/n/put", &[], b"put").status, 201);
    assert_eq!(ask(&other, "PUT", "/v1/files/n/foreign", &[], b"foreign").status, 201);
    let accepted = ask(&phone, "PUT", "/v1/files/n/later?async=true", &[], b"later");
    assert_eq!(accepted.status, 202);
    let job = accepted.header("location").unwrap().to_owned();
    let ended = ask(&phone, "GET", &format!("{job}/events"), &[], b"").text();
    assert!(ended.contains("\"status\":\"completed\""), "{ended}");
    let metadata = format!("filename {},namespace {}", BASE64.encode("tus"), BASE64.encode("n"));
    let headers = [
        ("tus-resumable", "1.0.0"),
        ("upload-length", "3"),
        ("upload-metadata", &*metadata),
        ("content-type", "application/offset+octet-stream"),
    ];
    assert_eq!(ask(&phone, "POST", "/v1/uploads", &headers, b"tus").status, 201);
    let s3 =
        S3::new(server.s3_url.as_ref().unwrap(), id, secret["secret_access_key"].as_str().unwrap());
    let sent = |method: &str, name: &str, query: &[(&str, &str)], body: &[u8]| {
        let reply = s3.send(method, &format!("/n/{name}"), query, &[], body).unwrap();
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply
    };
    sent("PUT", "object", &[], b"object");
    let begun = sent("POST", "parts", &[("uploads", "")], b"");
    let upload = begun.elements("UploadId").remove(0);
    let part = sent("PUT", "parts", &[("partNumber", "1"), ("uploadId", &upload)], b"part");
    let list = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{}</ETag></Part>\
         </CompleteMultipartUpload>",
        part.header("etag").unwrap()
    );
    sent("POST", "parts", &[("uploadId", &upload)], list.as_bytes());
    let kinds = ["put", "foreign", "later", "tus", "object", "parts"].map(kind);
    assert_eq!(json!(kinds), json!(["http", null, "http", "tus", "s3", "s3"]));
}

#[test]
fn a_wrong_rule_stops_the_start_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let refused = run(&dir, &["serve", "--set", "intake.rules=name=*.log -> namespce=logs"]);
    assert_eq!(refused.status.code(), Some(2));
    let error = stderr(&refused);
    assert!(error.contains("intake.rules") && error.contains("unknown action"), "{error}");
}
