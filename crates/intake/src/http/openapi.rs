//! The intake's part of `/openapi.json`.
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
        "info": { "title": "Forebay intake", "version": env!("CARGO_PKG_VERSION") },
        "tags": [
            { "name": "files", "description": "Bytes under a name, stored once however many names they have." },
            { "name": "documents", "description": "JSON documents, as rows of a table or members of a collection." }
        ],
        "paths": {
            "/v1/files": { "get": list_files() },
            "/v1/files/{id}": { "get": get_file("Get a file by its id", &[path("id", "16 hexadecimal digits told when the file was put")]) },
            "/v1/files/{namespace}/{name}": {
                "put": put_file(),
                "get": get_file("Get a file by its name", &name_parameters()),
                "delete": delete_file()
            },
            "/v1/ingest": { "post": ingest() },
            "/v1/database": { "get": operation("documents", "Ask how the database is that documents are forwarded to", vec![], vec![("200", "Its state, what waits for it, and why; as text where text/plain is asked for"), ("404", "Documents are forwarded to none")]) },
            "/v1/documents": { "get": operation("documents", "List the namespaces of documents", vec![], vec![("200", "Namespaces with their target and count")]) },
            "/v1/documents/{namespace}": { "post": post_documents(), "get": page_documents() },
            "/v1/documents/{namespace}/{id}": { "get": operation(
                "documents", "Get one document, byte for byte",
                vec![path("namespace", "The namespace"), path("id", "The document's id")],
                vec![("200", "The document"), ("404", "There is none")],
            ) }
        }
    })
}

fn operation(
    tag: &str,
    summary: &str,
    parameters: Vec<Value>,
    responses: Vec<(&str, &str)>,
) -> Value {
    let responses: serde_json::Map<String, Value> = responses
        .into_iter()
        .map(|(status, text)| {
            let content = match status.as_bytes().first() {
                Some(b'2') => json!({ "application/json": { "schema": { "type": "object" } } }),
                _ => json!({ "application/json": { "schema": {
                    "type": "object",
                    "properties": { "error": { "type": "object", "properties": {
                        "code": { "type": "string" },
                        "message": { "type": "string" },
                        "request_id": { "type": "string" }
                    } } }
                } } }),
            };
            let bodiless = matches!(status, "204" | "304");
            let response = if bodiless {
                json!({ "description": text })
            } else {
                json!({ "description": text, "content": content })
            };
            (status.to_owned(), response)
        })
        .collect();
    json!({
        "tags": [tag], "summary": summary, "parameters": parameters, "responses": responses
    })
}

fn path(name: &str, text: &str) -> Value {
    json!({ "name": name, "in": "path", "required": true, "description": text,
            "schema": { "type": "string" } })
}

fn option(name: &str, kind: &str, text: &str) -> Value {
    json!({ "name": name, "in": "query", "required": false, "description": text,
            "schema": { "type": kind } })
}

fn header(name: &str, text: &str) -> Value {
    json!({ "name": name, "in": "header", "required": false, "description": text,
            "schema": { "type": "string" } })
}

fn idempotency_key() -> Value {
    header(
        "Idempotency-Key",
        "Up to 255 printable characters; the same key and request answer the same once more",
    )
}

fn name_parameters() -> [Value; 2] {
    [
        path("namespace", "1 to 64 of a-z 0-9 . _ -, beginning with a letter or digit"),
        path("name", "The file's name; may hold slashes"),
    ]
}

fn list_files() -> Value {
    operation(
        "files",
        "List files by namespace and name",
        vec![
            option("namespace", "string", "Only this namespace"),
            option("prefix", "string", "Only names that begin so"),
            option(
                "category",
                "string",
                "image, video, audio, document, archive, text, json, font, executable or other",
            ),
            option("mime", "string", "Only this media type"),
            option("sha256", "string", "Only these bytes"),
            option("size_min", "integer", "At least this many bytes"),
            option("size_max", "integer", "At most this many bytes"),
            option(
                "created_from",
                "string",
                "Named at or after this time (RFC 3339 or milliseconds)",
            ),
            option("created_to", "string", "Named before this time"),
            option("limit", "integer", "1 to 1000, by default 100"),
            option("cursor", "string", "next_cursor of the page before"),
        ],
        vec![
            ("200", "A page of files and the cursor of the next"),
            ("400", "A parameter is wrong"),
        ],
    )
}

fn get_file(summary: &str, parameters: &[Value]) -> Value {
    let mut parameters = parameters.to_vec();
    parameters.push(option("download", "boolean", "Ask for an attachment even of harmless types"));
    parameters.push(header("Range", "bytes=first-last, several allowed"));
    parameters.push(header("If-None-Match", "ETags the client has"));
    parameters.push(header("If-Range", "ETag or date the range belongs to"));
    let mut operation = operation(
        "files",
        summary,
        parameters,
        vec![
            ("200", "The bytes"),
            ("206", "The asked parts"),
            ("304", "Unchanged"),
            ("404", "There is no such file"),
            ("416", "No such range"),
        ],
    );
    for status in ["200", "206"] {
        operation["responses"][status]["content"] = json!({ "application/octet-stream": { "schema": { "type": "string", "format": "binary" } } });
    }
    operation
}

fn put_file() -> Value {
    let mut parameters = name_parameters().to_vec();
    parameters.push(option("comment", "string", "Kept with the file"));
    parameters.push(idempotency_key());
    parameters.push(header("If-None-Match", "* puts only where the name is free"));
    parameters.push(header("If-Match", "An ETag: puts only over those bytes"));
    let mut operation = operation(
        "files",
        "Put a file under a name",
        parameters,
        vec![
            ("201", "The name is new"),
            ("200", "The name was there: replaced, or the same bytes"),
            ("400", "The name or body is wrong"),
            ("408", "The body came too slowly"),
            ("409", "A request with this Idempotency-Key is under way"),
            ("503", "Storage has failed; nothing is acknowledged until a restart"),
            ("507", "The disk is full"),
            ("412", "The condition does not hold"),
            ("413", "Larger than the limit"),
            ("422", "The Idempotency-Key belongs to another request"),
            ("429", "Too much is under way"),
        ],
    );
    operation["requestBody"] = json!({ "content": { "application/octet-stream": {
        "schema": { "type": "string", "format": "binary" } } } });
    operation
}

fn delete_file() -> Value {
    let mut parameters = name_parameters().to_vec();
    parameters.push(idempotency_key());
    parameters.push(header("If-Match", "An ETag: removes only if the name stands for those bytes"));
    operation(
        "files",
        "Remove a name; the bytes go when no name is left",
        parameters,
        vec![
            ("204", "Removed"),
            ("400", "The name is wrong"),
            ("404", "There is no such file"),
            ("409", "A request with this Idempotency-Key is under way"),
            ("412", "The condition does not hold"),
            ("503", "Storage has failed; nothing is acknowledged until a restart"),
        ],
    )
}

fn ingest() -> Value {
    let mut operation = operation(
        "files",
        "Take in files and JSON in one request",
        vec![idempotency_key()],
        vec![
            ("201", "Everything was taken, something of it new"),
            ("200", "Everything was there already"),
            ("207", "Some parts were taken and some refused; each has its result"),
            ("422", "Every part was refused"),
            ("400", "Not a multipart body"),
        ],
    );
    operation["requestBody"] = json!({ "required": true, "content": { "multipart/form-data": {
        "schema": { "type": "object", "properties": {
            "files": { "type": "array", "items": { "type": "string", "format": "binary" } },
            "namespace": { "type": "string", "description": "Best put first; \"default\" without it" },
            "comment": { "type": "string" },
            "target": { "type": "string", "enum": ["auto", "table", "collection"] },
            "json": { "type": "string", "enum": ["both", "file", "documents"] },
            "documents": { "type": "string", "description": "JSON documents as text" }
        } } } } });
    operation
}

fn post_documents() -> Value {
    let mut operation = operation(
        "documents",
        "Take in one document, an array of them, or one a line",
        vec![
            path("namespace", "1 to 64 of a-z 0-9 . _ -"),
            option("dry_run", "boolean", "Only tell the decision, its reasons and the DDL"),
            option(
                "on_error",
                "string",
                "skip (default): good documents are taken; reject: all or nothing",
            ),
            option("target", "string", "auto (default), table or collection"),
            option("comment", "string", "Whole words such as \"sql\" or \"nosql\" count as a wish"),
            idempotency_key(),
        ],
        vec![
            ("201", "All taken"),
            ("200", "A dry run, or nothing to take"),
            ("207", "Some were refused; each with its line and reason"),
            ("400", "The body is not JSON"),
            ("422", "All were refused, or the Idempotency-Key belongs to another request"),
        ],
    );
    operation["requestBody"] = json!({ "required": true, "content": {
        "application/json": { "schema": { "type": "object" } },
        "application/x-ndjson": { "schema": { "type": "string" } } } });
    operation
}

fn page_documents() -> Value {
    operation(
        "documents",
        "Page through a namespace's documents in the order they were taken",
        vec![
            path("namespace", "The namespace"),
            option("limit", "integer", "1 to 1000, by default 100"),
            option("cursor", "string", "next_cursor of the page before"),
            header("Accept", "application/x-ndjson for one document a line"),
        ],
        vec![("200", "A page of documents"), ("404", "There is no such namespace")],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_parses_and_names_every_route() {
        let parsed: OpenApi = serde_json::from_value(description()).unwrap();
        assert_eq!(parsed.paths.paths.len(), 8);
    }
}
