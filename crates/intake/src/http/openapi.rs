//! The intake's part of `/openapi.json`.
//!
//! Written beside the routes rather than derived from handlers: handlers take whole requests, so
//! that bodies stream, and their signatures say nothing about parameters.

use serde_json::{Value, json};
use utoipa::openapi::OpenApi;

/// The document. A description that does not parse would be a bug, caught by its test.
pub(super) fn document() -> OpenApi {
    serde_json::from_value(description())
        .unwrap_or_else(|_| utoipa::openapi::OpenApiBuilder::new().build())
}

fn description() -> Value {
    json!({
        "openapi": "3.1.0",
        "info": { "title": "Forebay intake", "version": env!("CARGO_PKG_VERSION") },
        "tags": [
            { "name": "files", "description": "Bytes under a name. Identical bytes are stored once, whatever the number of names." },
            { "name": "documents", "description": "JSON documents, as rows of a table or members of a collection." }
        ],
        "paths": {
            "/v1/files": { "get": list_files() },
            "/v1/files/{id}": { "get": get_file("Get a file by its id", &[path("id", "The file's id, 16 hexadecimal digits")]) },
            "/v1/files/{namespace}/{name}": {
                "put": put_file(),
                "get": get_file("Get a file by its name", &name_parameters()),
                "delete": delete_file()
            },
            "/v1/ingest": { "post": ingest() },
            "/v1/database": { "get": operation("documents", "Report the state of the database that documents are forwarded to", vec![], vec![("200", "Its state, the documents that wait for it, and the reason; as text if the client accepts text/plain"), ("404", "No database is configured")]) },
            "/v1/documents": { "get": operation("documents", "List the namespaces of documents", vec![], vec![("200", "Namespaces with their target and count")]) },
            "/v1/documents/{namespace}": { "post": post_documents(), "get": page_documents() },
            "/v1/documents/{namespace}/{id}": { "get": operation(
                "documents", "Get one document, byte for byte",
                vec![path("namespace", "The namespace"), path("id", "The document's id")],
                vec![("200", "The document"), ("404", "There is no such document")],
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
        "Up to 255 printable characters. A repeated request with the same key gets the same answer",
    )
}

fn name_parameters() -> [Value; 2] {
    [
        path("namespace", "1 to 64 of a-z 0-9 . _ -, beginning with a letter or digit"),
        path("name", "The file's name; may contain slashes"),
    ]
}

fn list_files() -> Value {
    operation(
        "files",
        "List files by namespace and name",
        vec![
            option("namespace", "string", "Only this namespace"),
            option("prefix", "string", "Only names that begin with this text"),
            option(
                "category",
                "string",
                "image, video, audio, document, archive, text, json, font, executable or other",
            ),
            option("mime", "string", "Only this media type"),
            option("sha256", "string", "Only files with this SHA-256"),
            option("size_min", "integer", "Only files of at least this many bytes"),
            option("size_max", "integer", "Only files of at most this many bytes"),
            option(
                "created_from",
                "string",
                "Only files named at or after this time (RFC 3339 or milliseconds since 1970)",
            ),
            option("created_to", "string", "Only files named before this time"),
            option("limit", "integer", "Maximum number of results, 1 to 1000; the default is 100"),
            option("cursor", "string", "next_cursor of the previous page"),
        ],
        vec![
            ("200", "A page of files and the cursor of the next"),
            ("400", "A parameter is invalid"),
        ],
    )
}

fn get_file(summary: &str, parameters: &[Value]) -> Value {
    let mut parameters = parameters.to_vec();
    parameters.push(option(
        "download",
        "boolean",
        "Send as an attachment even if the type is harmless",
    ));
    parameters.push(header("Range", "bytes=first-last; several ranges are allowed"));
    parameters.push(header("If-None-Match", "ETags that the client has"));
    parameters.push(header("If-Range", "ETag or date that the range refers to"));
    let mut operation = operation(
        "files",
        summary,
        parameters,
        vec![
            ("200", "The bytes"),
            ("206", "The requested ranges"),
            ("304", "Unchanged"),
            ("404", "There is no such file"),
            ("416", "The requested range does not exist"),
        ],
    );
    for status in ["200", "206"] {
        operation["responses"][status]["content"] = json!({ "application/octet-stream": { "schema": { "type": "string", "format": "binary" } } });
    }
    operation
}

fn put_file() -> Value {
    let mut parameters = name_parameters().to_vec();
    parameters.push(option("comment", "string", "Comment stored with the file"));
    parameters.push(idempotency_key());
    parameters.push(header("If-None-Match", "*: stores the file only if the name does not exist"));
    parameters.push(header(
        "If-Match",
        "An ETag: stores the file only if the name refers to those bytes",
    ));
    let mut operation = operation(
        "files",
        "Store a file under a name",
        parameters,
        vec![
            ("201", "The name is new"),
            ("200", "The name existed: its bytes were replaced, or are the same"),
            ("400", "The name or body is invalid"),
            ("408", "The body was too slow"),
            ("409", "A request with this Idempotency-Key is in progress"),
            ("503", "Storage has failed; nothing is acknowledged until a restart"),
            ("507", "The disk is full"),
            ("412", "The condition does not hold"),
            ("413", "Larger than the limit"),
            ("422", "The Idempotency-Key belongs to another request"),
            ("429", "Too many operations are in progress"),
        ],
    );
    operation["requestBody"] = json!({ "content": { "application/octet-stream": {
        "schema": { "type": "string", "format": "binary" } } } });
    operation
}

fn delete_file() -> Value {
    let mut parameters = name_parameters().to_vec();
    parameters.push(idempotency_key());
    parameters
        .push(header("If-Match", "An ETag: removes the name only if it refers to those bytes"));
    operation(
        "files",
        "Remove a name. Its bytes are removed with their last name",
        parameters,
        vec![
            ("204", "Removed"),
            ("400", "The name is invalid"),
            ("404", "There is no such file"),
            ("409", "A request with this Idempotency-Key is in progress"),
            ("412", "The condition does not hold"),
            ("503", "Storage has failed; nothing is acknowledged until a restart"),
        ],
    )
}

fn ingest() -> Value {
    let mut operation = operation(
        "files",
        "Store files and JSON documents in one request",
        vec![idempotency_key()],
        vec![
            ("201", "Everything was stored, and something of it is new"),
            ("200", "Everything was stored before"),
            ("207", "Some parts were stored and some refused; each has its own result"),
            ("422", "Every part was refused"),
            ("400", "Not a multipart body"),
        ],
    );
    operation["requestBody"] = json!({ "required": true, "content": { "multipart/form-data": {
        "schema": { "type": "object", "properties": {
            "files": { "type": "array", "items": { "type": "string", "format": "binary" } },
            "namespace": { "type": "string", "description": "Namespace of the files, best sent first; \"default\" if absent" },
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
        "Store one document, an array of documents, or one document per line",
        vec![
            path("namespace", "1 to 64 of a-z 0-9 . _ -"),
            option("dry_run", "boolean", "Only report the decision, its reasons and the DDL"),
            option(
                "on_error",
                "string",
                "skip (the default): store the valid documents; reject: store all or none",
            ),
            option("target", "string", "auto (default), table or collection"),
            option(
                "comment",
                "string",
                "Whole words such as \"sql\" or \"nosql\" express a preferred target",
            ),
            idempotency_key(),
        ],
        vec![
            ("201", "All documents were stored"),
            ("200", "A dry run, or there was nothing to store"),
            ("207", "Some documents were refused; each is listed with its line and reason"),
            ("400", "The body is not JSON"),
            (
                "422",
                "All documents were refused, or the Idempotency-Key belongs to another request",
            ),
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
        "List a namespace's documents in the order they were stored",
        vec![
            path("namespace", "The namespace"),
            option(
                "limit",
                "integer",
                "Maximum number of documents, 1 to 1000; the default is 100",
            ),
            option("cursor", "string", "next_cursor of the previous page"),
            header("Accept", "application/x-ndjson for one document per line"),
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
