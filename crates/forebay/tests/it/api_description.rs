//! The API description of a running server: complete, consistent, and true of its answers.

use std::collections::BTreeSet;
use std::time::Instant;

use serde_json::{Map, Value, json};

use crate::events_support::{numbered, post};
use crate::support::{Answer, HANG, Server};

/// Every operation of a document: its path, its method and itself.
fn operations(document: &Value) -> impl Iterator<Item = (&str, &str, &Value)> {
    document["paths"].as_object().unwrap().iter().flat_map(|(path, methods)| {
        let methods = methods.as_object().unwrap().iter();
        methods.map(move |(method, operation)| (path.as_str(), method.as_str(), operation))
    })
}

fn resolve<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    match schema["$ref"].as_str() {
        Some(reference) => {
            let pointer = reference.strip_prefix('#').unwrap();
            document.pointer(pointer).unwrap_or_else(|| panic!("{reference} has no target"))
        }
        None => schema,
    }
}

fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(members) => {
            found.extend(members.get("$ref").and_then(Value::as_str));
            members.values().for_each(|member| references(member, found));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

#[test]
fn every_operation_has_a_name_its_parameters_and_the_types_of_its_answers() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    let document = server.get("/openapi.json").json();
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(found.len() > 100, "{}", found.len());
    for reference in found {
        resolve(&document, &json!({ "$ref": reference }));
    }
    let mut ids = BTreeSet::new();
    for (path, method, operation) in operations(&document) {
        let at = format!("{method} {path}");
        let id = operation["operationId"].as_str().unwrap_or_else(|| panic!("{at} has no id"));
        assert!(ids.insert(id), "{id} is used twice");
        assert!(id.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{id}");
        assert!(operation["summary"].is_string() && operation["tags"][0].is_string(), "{at}");
        let empty = Vec::new();
        let parameters = operation["parameters"].as_array().unwrap_or(&empty);
        for part in path.split('/').filter_map(|part| part.strip_prefix('{')) {
            let name = part.strip_suffix('}').unwrap();
            let is_there = parameters.iter().any(|it| it["in"] == "path" && it["name"] == name);
            assert!(is_there, "{at} does not describe {name}");
        }
        for parameter in parameters {
            assert!(parameter["schema"].is_object() && parameter["description"].is_string());
            let in_path = parameter["in"] == "path";
            assert!(
                !in_path || path.contains(&format!("{{{}}}", parameter["name"].as_str().unwrap()))
            );
        }
        for (status, response) in operation["responses"].as_object().unwrap() {
            assert!(response["description"].is_string(), "{at} {status}");
            let Some(schema) = response["content"].get("application/json") else { continue };
            let schema = resolve(&document, &schema["schema"]);
            let is_typed = ["properties", "additionalProperties", "oneOf", "allOf"]
                .iter()
                .any(|key| !schema[key].is_null());
            assert!(is_typed, "{at} {status}: {schema}");
        }
    }
    for id in ["put_file", "list_files", "get_file_by_name", "list_inventory_children"] {
        assert!(ids.contains(id), "{id}");
    }
}

#[test]
fn every_operation_refuses_parameters_that_it_does_not_know() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    let document = server.get("/openapi.json").json();
    let mut checked = 0;
    for (path, method, _) in operations(&document) {
        if !path.starts_with("/v1/") {
            continue;
        }
        let filled: Vec<&str> =
            path.split('/').map(|part| if part.starts_with('{') { "1" } else { part }).collect();
        let target = format!("{}?bogus=1", filled.join("/"));
        let answer = server.ask(&method.to_uppercase(), &target, "");
        assert_eq!(answer.status, 400, "{method} {target}: {answer:?}");
        // The answer to HEAD has no body.
        if method != "head" {
            let error = &answer.json()["error"];
            assert_eq!(error["code"], "query", "{method} {target}: {error}");
        }
        checked += 1;
    }
    assert!(checked > 30, "{checked}");
}

/// Checks values against schemas of the document, as far as this server's use JSON Schema. A member
/// that the schema does not name is wrong, too.
struct Checker<'a>(&'a Value);

impl Checker<'_> {
    fn check(&self, schema: &Value, value: &Value) -> Result<(), String> {
        let schema = resolve(self.0, schema);
        if let Some(choices) = schema["oneOf"].as_array() {
            let fits = choices.iter().filter(|choice| self.check(choice, value).is_ok()).count();
            return if fits == 1 {
                Ok(())
            } else {
                Err(format!("{value} fits {fits} of {schema}"))
            };
        }
        if let Some(words) = schema["enum"].as_array() {
            return if words.contains(value) { Ok(()) } else { Err(format!("{value}: {schema}")) };
        }
        let kinds: Vec<&str> = match &schema["type"] {
            Value::String(kind) => vec![kind.as_str()],
            Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
            _ if schema["allOf"].is_array() => vec!["object"],
            _ => return Ok(()),
        };
        let kind = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
            Value::Number(number) if number.is_f64() => "number",
            Value::Number(_) if kinds.contains(&"number") => "number",
            Value::Number(_) => "integer",
        };
        if !kinds.contains(&kind) {
            return Err(format!("{value} is {kind}, not {kinds:?}"));
        }
        match value {
            Value::Array(items) => {
                items.iter().try_for_each(|item| self.check(&schema["items"], item))
            }
            Value::Object(members) => self.object(schema, members),
            _ => Ok(()),
        }
    }

    fn object(&self, schema: &Value, members: &Map<String, Value>) -> Result<(), String> {
        let (mut known, mut required) = (Map::new(), Vec::new());
        self.members(schema, &mut known, &mut required);
        if let Some(missing) = required.iter().find(|name| !members.contains_key(*name)) {
            return Err(format!("{missing} is missing in {members:?}"));
        }
        let others = &schema["additionalProperties"];
        for (name, value) in members {
            let checked = match known.get(name) {
                Some(schema) => self.check(schema, value),
                None if others.is_object() => self.check(others, value),
                None if others == &Value::Bool(true) => Ok(()),
                None => Err("it is not in the schema".to_owned()),
            };
            checked.map_err(|error| format!("{name}: {error}"))?;
        }
        Ok(())
    }

    /// Collects the properties of a schema, and of those it consists of.
    fn members(&self, schema: &Value, known: &mut Map<String, Value>, required: &mut Vec<String>) {
        let schema = resolve(self.0, schema);
        for part in schema["allOf"].as_array().into_iter().flatten() {
            self.members(part, known, required);
        }
        let properties = schema["properties"].as_object().cloned();
        known.extend(properties.unwrap_or_default());
        let names = schema["required"].as_array().into_iter().flatten();
        required.extend(names.filter_map(Value::as_str).map(str::to_owned));
    }
}

/// Asserts that an answer is what the operation of this id describes, and returns it.
fn described(document: &Value, id: &str, answer: &Answer) -> Value {
    let mut all = operations(document);
    let (.., operation) = all.find(|(.., it)| it["operationId"] == id).unwrap();
    let response = &operation["responses"][answer.status.to_string()];
    assert!(response.is_object(), "{id} does not describe {}: {}", answer.status, answer.body);
    let value = answer.json();
    let schema = &response["content"]["application/json"]["schema"];
    if let Err(error) = Checker(document).check(schema, &value) {
        panic!("{id} {}: {error}", answer.status);
    }
    value
}

fn put(server: &Server, path: &str, body: &str) -> Answer {
    let mut stream = server.connect();
    let headers = format!("content-length: {}\r\n", body.len());
    crate::support::send(&mut stream, "PUT", path, &headers);
    std::io::Write::write_all(&mut stream, body.as_bytes()).unwrap();
    Answer::read(&mut stream)
}

#[test]
fn answers_about_files_and_documents_are_as_described() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    let document = server.get("/openapi.json").json();
    let check = |id: &str, answer: &Answer| described(&document, id, answer);
    let get = |id: &str, path: &str| check(id, &server.get(path));
    check("put_file", &put(&server, "/v1/files/n/a.txt?comment=c", "text"));
    let twice = check("put_file", &put(&server, "/v1/files/n/b.txt", "text"));
    assert_eq!(twice["status"], "duplicate");
    check("put_file", &put(&server, "/v1/files/n%20n/b.txt", "text"));
    let page = get("list_files", "/v1/files?limit=1");
    assert_eq!(page["files"][0]["comment"], "c");
    get("list_files", &format!("/v1/files?cursor={}", page["next_cursor"].as_str().unwrap()));
    get("list_files", "/v1/files?limit=0");
    get("list_files", "/v1/files?sort=largest&limit=1&namespace=n&delimiter=/");
    get("list_files", "/v1/files?sort=size");
    assert_eq!(get("get_file_statistics", "/v1/files/statistics?namespace=n")["files"], 2);
    get("get_file_statistics", "/v1/files/statistics?limit=1");
    get("get_file", "/v1/files/0000000000000000");
    let stored = check(
        "post_documents",
        &post(&server, "/v1/documents/d", "", b"[{\"a\":1,\"b\":\"x\"},{\"a\":2}]"),
    );
    assert_eq!(stored["accepted"], 2);
    check("post_documents", &post(&server, "/v1/documents/d", "", b"[{\"a\":3},7]"));
    check("post_documents", &post(&server, "/v1/documents/d", "", b"[7]"));
    check("post_documents", &post(&server, "/v1/documents/d?dry_run", "", b"{\"a\":3}"));
    check("post_documents", &post(&server, "/v1/documents/d", "", b"{"));
    get("list_document_namespaces", "/v1/documents");
    get("list_documents", "/v1/documents/d?limit=1");
    let found = get("list_documents", "/v1/documents/d");
    let id = found["documents"][0]["id"].as_u64().unwrap();
    get("get_document", &format!("/v1/documents/d/{id}"));
    get("list_documents", "/v1/documents/none");
    let schema = "/v1/documents/d/schema";
    let dry = post(&server, &format!("{schema}?dry_run=true"), "", b"");
    assert_eq!(check("decide_document_schema", &dry)["documents"], 3);
    check("decide_document_schema", &post(&server, schema, "", b""));
    check("decide_document_schema", &post(&server, "/v1/documents/none/schema", "", b""));
    get("get_blobs", "/v1/blobs");
    check("move_blobs", &post(&server, "/v1/blobs/move", "", b""));
    get("get_database", "/v1/database");
    check("replay_database", &post(&server, "/v1/database/replay", "", b""));
    let form = "--x\r\ncontent-disposition: form-data; name=\"files\"; filename=\"f.json\"\r\n\r\n\
                {\"a\":1}\r\n--x\r\ncontent-disposition: form-data; name=\"files\"; filename=\"../f\"\
                \r\n\r\nx\r\n--x--\r\n";
    let kind = "content-type: multipart/form-data; boundary=x\r\n";
    let batch = check("ingest", &post(&server, "/v1/ingest", kind, form.as_bytes()));
    assert_eq!(batch["parts"][1]["status"], "rejected", "{batch}");
    check("ingest", &post(&server, "/v1/ingest", "", b""));
}

#[test]
fn answers_about_inventories_are_as_described() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    let document = server.get("/openapi.json").json();
    let check = |id: &str, answer: &Answer| described(&document, id, answer);
    let get = |id: &str, path: &str| check(id, &server.get(&format!("/v1/inventories{path}")));
    put(&server, "/v1/files/n/a/b.txt", "text");
    put(&server, "/v1/files/n/c.txt", "other text");
    for name in ["old", "new"] {
        let body = json!({ "from": "forebay:blobs" }).to_string();
        let begun = post(&server, &format!("/v1/inventories/{name}"), "", body.as_bytes());
        check("build_inventory", &begun);
        let deadline = Instant::now() + HANG;
        while get("get_inventory_build", &format!("/{name}/build"))["state"] != "built" {
            assert!(Instant::now() < deadline, "{name} is not built");
        }
        put(&server, "/v1/files/n/d.txt", "new");
    }
    get("list_inventories", "");
    get("get_inventory", "/new");
    get("get_inventory_prefix", "/new/prefix?prefix=n/");
    let children = get("list_inventory_children", "/new/children?limit=1");
    assert_eq!(children["items"][0]["prefix"], "n/");
    get("list_inventory_top", "/new/top");
    get("get_inventory_histogram", "/new/histogram");
    get("get_inventory_cost", "/new/cost");
    get("list_inventory_small_files", "/new/small-files");
    let changes = get("list_inventory_changes", "/new/diff?old=old");
    assert_eq!(changes["items"][0]["status"], "changed");
    get("get_inventory", "/none");
}

#[test]
fn answers_about_events_pipelines_and_the_server_are_as_described() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    let document = server.get("/openapi.json").json();
    let check = |id: &str, answer: &Answer| described(&document, id, answer);
    let get = |id: &str, path: &str| check(id, &server.get(path));
    let kind = "content-type: application/x-ndjson\r\n";
    let append =
        |text: &str| check("append_events", &post(&server, "/v1/events", kind, text.as_bytes()));
    assert_eq!(append(&numbered(2))["accepted"], 2);
    assert_eq!(append(&format!("{}{{\n", numbered(1)))["rejected"], 1);
    let page = get("list_events", "/v1/events?limit=2&proof=true");
    let id = page["events"][0]["id"].as_str().unwrap();
    get("get_event", &format!("/v1/events/{id}"));
    get("get_event_proof", &format!("/v1/events/{id}/proof"));
    get("get_event_consistency_proof", "/v1/events/proof/consistency?first=1");
    get("get_event_stats", "/v1/events/stats");
    get("get_event", "/v1/events/x");
    get("list_pipelines", "/v1/pipelines");
    get("get_pipeline", "/v1/pipelines/none");
    get("list_pipeline_runs", "/v1/pipelines/none/runs");
    get("get_health", "/healthz");
    get("get_readiness", "/readyz");
    get("get_openapi", "/openapi.json");
}
