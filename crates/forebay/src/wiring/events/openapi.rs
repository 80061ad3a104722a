//! The event store's part of `/openapi.json`.
//!
//! Written beside the routes rather than derived from handlers, because handlers take whole
//! requests, so that bodies stream, and do not declare their parameters.

use serde_json::{Value, json};
use utoipa::openapi::OpenApi;

/// Returns the document. A description that does not parse would be a bug of ours, found by its
/// test.
pub(super) fn document() -> OpenApi {
    serde_json::from_value(description())
        .unwrap_or_else(|_| utoipa::openapi::OpenApiBuilder::new().build())
}

fn description() -> Value {
    json!({
        "openapi": "3.1.0",
        "info": { "title": "Forebay events", "version": env!("CARGO_PKG_VERSION") },
        "tags": [{ "name": "events", "description":
            "Events, stored unchanged, found by id, time and field, and provable to any holder of a \
             signed checkpoint." }],
        "paths": {
            "/v1/events": { "post": append(false), "get": list() },
            "/v1/events/{name}": { "post": append(true), "get": get(
                "Get one event",
                vec![path("name", "The event's id: a ULID or a UUID"), option(
                    "raw", "boolean", "Return only the raw bytes, as the source wrote them")],
                "application/json",
                vec![("200", "The event"), ("400", "The id is not valid"),
                     ("404", "There is no such event")],
            ) },
            "/v1/events/{name}/proof": { "get": get(
                "Prove that an event is stored",
                vec![path("name", "The event's id")],
                "application/json",
                vec![("200", "leaf_index, tree_size, leaf_hash, leaf_base64, audit_path and the \
                     signed checkpoint; `forebay events verify-proof` checks it offline"),
                     ("404", "There is no such event, or the store has no proofs")],
            ) },
            "/v1/events/proof/consistency": { "get": get(
                "Prove that the first events are unchanged",
                vec![option("first", "integer", "The earlier size"),
                     option("second", "integer", "The later size [default: all events]")],
                "application/json",
                vec![("200", "first, second, path, first_root, second_root, and the checkpoint \
                     if the second size is the newest signed one"),
                     ("400", "There are fewer events")],
            ) },
            "/v1/events/checkpoint": { "get": get(
                "Sign a checkpoint of all stored events", vec![], "text/plain",
                vec![("200", "A signed note (C2SP tlog-checkpoint)")],
            ) },
            "/v1/events/key": { "get": get(
                "Get the key that verifies checkpoints", vec![], "text/plain",
                vec![("200", "A verifier key (C2SP signed-note)")],
            ) },
            "/v1/events/stats": { "get": get(
                "Get counts and sizes", vec![], "application/json",
                vec![("200", "Counts and sizes")],
            ) },
            "/v1/events/search": { "get": get(
                "Get the newest events as a page with a search form", vec![], "text/html",
                vec![("200", "The page; it accepts the parameters of a search")],
            ) },
            "/v1/events/tlog/checkpoint": { "get": get(
                "Get the newest signed checkpoint", vec![], "text/plain",
                vec![("200", "A signed note")],
            ) },
            "/v1/events/tlog/tile/{path}": { "get": get(
                "Get a tile of the tree, or a bundle of events (C2SP tlog-tiles)",
                vec![path("path", "<L>/<N>[.p/<W>] or entries/<N>[.p/<W>]; N in groups as x001/234")],
                "application/octet-stream",
                vec![("200", "Hashes of 32 bytes, or events, each preceded by its length in two \
                     bytes"), ("404", "It does not exist or was pruned, or an event is too large")],
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
    let mut parameters = vec![option("stream", "string", "Stream of events that name no stream")];
    if named {
        parameters.push(path("name", &format!("Format: {formats}")));
    } else {
        let text = format!("Format, which overrides the content type: {formats}");
        parameters.push(option("format", "string", &text));
    }
    let answers = vec![
        ("200", "accepted, rejected, first_id and last_id: everything is stored"),
        (
            "207",
            "The same; some records were rejected, and rejects lists the first with line and reason",
        ),
        ("400", "Nothing was accepted, or the body ended early; reported events are stored"),
        ("413", "The body is larger than events.body_size_max"),
        ("415", "No format has this content type"),
        ("429", "The limit events.appends_max or events.body_memory_max is reached"),
        ("507", "The disk is full; events are accepted again when there is space"),
        ("503", "The store accepts nothing; the message says why"),
    ];
    json!({
        "tags": ["events"],
        "summary": if named { "Append events of a named format" } else { "Append events" },
        "description": "One JSON object, an array of them, NDJSON, or lines of any log format. The \
                        body is processed as it arrives, so it may be large.",
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
        option("from", "string", "Only events at or after (RFC 3339, a date, or Unix seconds)"),
        option("to", "string", "Only events before"),
        option("stream", "string", "Only events in this stream"),
        option("type", "string", "Only events of this type"),
        option("host", "string", "Only events from this host"),
        option("ip", "string", "Only events with this address"),
        option(
            "severity",
            "string",
            "Only events of at least informational, low, medium, high, critical or fatal severity",
        ),
        option("contains", "string", "Only events whose raw bytes contain this; may be repeated"),
        option("regex", "string", "Only events whose raw bytes match this regular expression"),
        option(
            "order",
            "string",
            "oldest (default), newest, or position: in order of acceptance, by seq",
        ),
        option("limit", "integer", "1 to 1000 [default: 100]; unlimited for NDJSON"),
        option(
            "cursor",
            "string",
            "next of the previous page; with order=position, the seq of the last known event",
        ),
        option("before", "integer", "With order=position: only events with a lower seq"),
        option("proof", "boolean", "Add to each event the proof that it is stored"),
        option("follow", "boolean", "Stream the newest limit events, then new ones as they arrive"),
    ];
    let mut operation = get(
        "Search events, in order of time or acceptance",
        parameters,
        "application/json",
        vec![
            (
                "200",
                "events, and next: the cursor of the next page, or null after the last. With \
                     Accept: application/x-ndjson, or follow, a stream of one event per line",
            ),
            ("400", "A parameter is not valid"),
            ("429", "The limit events.reads_max or events.followers_max is reached"),
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
