//! The event store's part of `/openapi.json`.
//!
//! Written beside the routes rather than derived from handlers: handlers take whole requests, so
//! that bodies stream, and say nothing about their parameters.

use serde_json::{Value, json};
use utoipa::openapi::OpenApi;

/// The document; a description that does not parse would be a bug of ours, caught by its test.
pub(super) fn document() -> OpenApi {
    serde_json::from_value(description())
        .unwrap_or_else(|_| utoipa::openapi::OpenApiBuilder::new().build())
}

fn description() -> Value {
    json!({
        "openapi": "3.1.0",
        "info": { "title": "Forebay events", "version": env!("CARGO_PKG_VERSION") },
        "tags": [{ "name": "events", "description":
            "Events, kept exactly, found by id, time and field, and provable to whoever holds a \
             signed checkpoint." }],
        "paths": {
            "/v1/events": { "post": append(false), "get": list() },
            "/v1/events/{name}": { "post": append(true), "get": get(
                "Get one event",
                vec![path("name", "The event's id: a ULID or a UUID"), option(
                    "raw", "boolean", "The bytes as their source wrote them, and nothing else")],
                "application/json",
                vec![("200", "The event"), ("400", "That is no id"), ("404", "There is none")],
            ) },
            "/v1/events/{name}/proof": { "get": get(
                "Prove that an event is stored",
                vec![path("name", "The event's id")],
                "application/json",
                vec![("200", "leaf_index, tree_size, leaf_hash, leaf_base64, audit_path and the \
                     signed checkpoint; `forebay events verify-proof` checks it offline"),
                     ("404", "There is no such event, or the store keeps no proofs")],
            ) },
            "/v1/events/proof/consistency": { "get": get(
                "Prove that the first events are still what they were",
                vec![option("first", "integer", "The earlier size"),
                     option("second", "integer", "The later size; without it, everything stored")],
                "application/json",
                vec![("200", "first, second, path, first_root, second_root, and the checkpoint \
                     where the second size is the newest signed one"),
                     ("400", "There are not that many events")],
            ) },
            "/v1/events/checkpoint": { "get": get(
                "Sign for everything stored", vec![], "text/plain",
                vec![("200", "A signed note (C2SP tlog-checkpoint)")],
            ) },
            "/v1/events/key": { "get": get(
                "The key checkpoints are verified with", vec![], "text/plain",
                vec![("200", "A verifier key (C2SP signed-note)")],
            ) },
            "/v1/events/stats": { "get": get(
                "Counts and sizes", vec![], "application/json", vec![("200", "Counts and sizes")],
            ) },
            "/v1/events/search": { "get": get(
                "The newest events as a page, with a form to find others", vec![], "text/html",
                vec![("200", "The page; it takes the parameters of a search")],
            ) },
            "/v1/events/tlog/checkpoint": { "get": get(
                "The newest checkpoint that was signed", vec![], "text/plain",
                vec![("200", "A signed note")],
            ) },
            "/v1/events/tlog/tile/{path}": { "get": get(
                "A tile of the tree, or a bundle of events (C2SP tlog-tiles)",
                vec![path("path", "<L>/<N>[.p/<W>] or entries/<N>[.p/<W>]; N in groups as x001/234")],
                "application/octet-stream",
                vec![("200", "Hashes of 32 bytes each, or events each behind its length in two \
                     bytes"), ("404", "There is none, or it was pruned, or an event is too large")],
            ) }
        }
    })
}

fn get(summary: &str, parameters: Vec<Value>, kind: &str, answers: Vec<(&str, &str)>) -> Value {
    json!({ "tags": ["events"], "summary": summary, "parameters": parameters,
            "responses": responses(kind, answers) })
}

fn responses(kind: &str, answers: Vec<(&str, &str)>) -> Value {
    let answers = answers.into_iter().map(|(status, text)| {
        let content = if status.starts_with('2') {
            json!({ kind: { "schema": { "type": if kind.ends_with("json") { "object" } else { "string" } } } })
        } else {
            json!({ "application/json": { "schema": { "$ref": "#/components/schemas/Problem" } } })
        };
        (status.to_owned(), json!({ "description": text, "content": content }))
    });
    Value::Object(answers.collect())
}

fn path(name: &str, text: &str) -> Value {
    json!({ "name": name, "in": "path", "required": true, "description": text,
            "schema": { "type": "string" } })
}

fn option(name: &str, kind: &str, text: &str) -> Value {
    json!({ "name": name, "in": "query", "required": false, "description": text,
            "schema": { "type": kind } })
}

fn append(named: bool) -> Value {
    let formats = "auto, ndjson, ocsf, zeek, suricata, cef, leef, syslog or raw";
    let mut parameters = vec![option("stream", "string", "Stream of events that name none")];
    if named {
        parameters.push(path("name", &format!("The format: {formats}")));
    } else {
        let text = format!("The format, before that of the content type: {formats}");
        parameters.push(option("format", "string", &text));
    }
    let answers = vec![
        ("200", "accepted, rejected, first_id and last_id: everything is stored"),
        (
            "207",
            "The same: some records were no events; rejects has the first with line and reason",
        ),
        ("400", "Nothing was accepted, or the body broke off; what is told as accepted is stored"),
        ("413", "The body is larger than events.body_size_max"),
        ("415", "No format has this content type"),
        ("429", "As many requests as events.appends_max allows are running"),
        ("503", "The store takes nothing; the message says why"),
    ];
    json!({
        "tags": ["events"],
        "summary": if named { "Append events of a named format" } else { "Append events" },
        "description": "One JSON object, an array of them, NDJSON, or lines of any log format. The \
                        body is read as it comes, however large.",
        "parameters": parameters,
        "requestBody": { "required": true, "content": {
            "application/x-ndjson": { "schema": { "type": "string" } },
            "application/json": { "schema": { "type": "object" } },
            "text/plain": { "schema": { "type": "string" } }
        } },
        "responses": responses("application/json", answers)
    })
}

fn list() -> Value {
    let parameters = vec![
        option("from", "string", "Not before: RFC 3339, a date, or seconds since 1970"),
        option("to", "string", "Before"),
        option("stream", "string", "Of this stream"),
        option("type", "string", "Of this type"),
        option("host", "string", "Of this machine"),
        option("ip", "string", "Of this address"),
        option("severity", "string", "At least: informational, low, medium, high, critical, fatal"),
        option("contains", "string", "Whose raw bytes contain this; may be given often"),
        option("regex", "string", "Whose raw bytes match this regular expression"),
        option(
            "order",
            "string",
            "oldest (the default) or newest first; or position: as they were accepted, seq ascending",
        ),
        option("limit", "integer", "1 to 1000, by default 100; of a stream as many as wanted"),
        option(
            "cursor",
            "string",
            "next of the page before; with order=position the seq of the last event that is known",
        ),
        option("before", "integer", "With order=position: only events of a seq below this"),
        option("proof", "boolean", "Each event with the proof that it is stored"),
        option("follow", "boolean", "A stream of the newest limit events, then of those that come"),
    ];
    let mut operation = get(
        "Search events, in order of time or of acceptance",
        parameters,
        "application/json",
        vec![
            (
                "200",
                "events, and next: the cursor of the next page, or null behind the last. With \
                     Accept: application/x-ndjson, or follow, a stream of one event a line",
            ),
            ("400", "A parameter is wrong"),
            ("429", "As many searches as events.reads_max allows are running"),
        ],
    );
    operation["responses"]["200"]["content"]["application/x-ndjson"] =
        json!({ "schema": { "type": "string" } });
    operation
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_is_one() {
        let document = serde_json::to_value(document()).unwrap();
        assert_eq!(document["paths"].as_object().unwrap().len(), 10);
        let limit = &document["paths"]["/v1/events"]["get"]["parameters"][10]["name"];
        assert_eq!(limit, "limit");
    }
}
