//! The inventory's part of `/openapi.json`.
//!
//! Written beside the routes rather than derived from handlers, because handlers take whole
//! requests and do not declare their parameters.

use serde_json::{Value, json};
use utoipa::openapi::OpenApi;

/// Returns the document. A description that does not parse would be a bug of ours, found by its
/// test.
pub(super) fn document() -> OpenApi {
    serde_json::from_value(description())
        .unwrap_or_else(|_| utoipa::openapi::OpenApiBuilder::new().build())
}

const PREFIX: (&str, &str, &str) =
    ("prefix", "string", "Prefix, with the delimiter at its end [default: the whole index]");
const SORT: (&str, &str, &str) = ("sort", "string", "bytes (default), objects or name");
const DEPTH: (&str, &str, &str) =
    ("depth", "integer", "Number of levels below the prefix [default: any]");
const COUNT: (&str, &str, &str) = ("k", "integer", "Number of prefixes, 1 to 10000 [default: 100]");

const MISSING: (&str, &str) =
    ("404", "There is no such inventory or prefix; there may name the prefix that was meant");
const BUSY: (&str, &str) = ("429", "The limit inventory.queries_max is reached");
const WRONG: (&str, &str) = ("400", "The name or a parameter is not valid");
const ITEMS: &str = "One object per line with Accept: application/x-ndjson, else in items";

fn description() -> Value {
    let of = |summary: &str, options: &[(&str, &str, &str)], answer: &str, json: bool| {
        let kind = if json { "application/json" } else { "application/x-ndjson" };
        operation(summary, options, kind, &[("200", answer), WRONG, MISSING, BUSY])
    };
    json!({
        "openapi": "3.1.0",
        "info": { "title": "Forebay inventories", "version": env!("CARGO_PKG_VERSION") },
        "tags": [{ "name": "inventories", "description":
            "Indexes of object store inventories: objects, bytes, classes, sizes and costs of any \
             prefix." }],
        "paths": {
            "/v1/inventories": { "get": unnamed("List the inventories", "application/json",
                "inventories: name, objects, bytes, prefixes, built_at_ms, complete") },
            "/v1/inventories/page": { "get": unnamed(
                "Get the inventories as a page", "text/html", "The page") },
            "/v1/inventories/{name}": {
                "get": of("Get the figures and the source of an inventory", &[],
                    "Counts, classes and provenance", true),
                "post": build(),
                "delete": operation("Delete an inventory", &[], "application/json",
                    &[("204", "It is deleted; running queries are completed"), WRONG,
                      ("404", "There is no such inventory"), ("409", "It is being built")]),
            },
            "/v1/inventories/{name}/build": {
                "get": operation("Get the progress of a build, or the result of the last one", &[],
                    "application/json",
                    &[("200", "state: running, cancelling, built, failed or cancelled; rows, seconds"),
                      WRONG, ("404", "There is no build")]),
                "delete": operation("Cancel a build", &[], "application/json",
                    &[("202", "It ends soon; an earlier index stays unchanged"), WRONG,
                      ("404", "There is no build"), ("409", "It has ended")]),
            },
            "/v1/inventories/{name}/page": { "get": operation(
                "Get a prefix as a page",
                &[PREFIX, SORT, ("offset", "integer", "Number of children to skip")],
                "text/html", &[("200", "The page, or an error page")]) },
            "/v1/inventories/{name}/prefix": { "get": of("Get the figures of a prefix", &[PREFIX],
                "objects, bytes, depth, descendants, classes, noncurrent, histograms", true) },
            "/v1/inventories/{name}/children": { "get": of(
                "List the prefixes one level below a prefix",
                &[PREFIX, SORT, ("offset", "integer", "Number of children to skip"),
                  ("limit", "integer", "1 to 1000 [default: 100]")],
                &format!("{ITEMS}, with total and next: the offset of the next page, or null"), true) },
            "/v1/inventories/{name}/top": { "get": of(
                "List the largest prefixes below a prefix, exactly",
                &[PREFIX, COUNT, DEPTH, SORT], ITEMS, true) },
            "/v1/inventories/{name}/descendants": { "get": of(
                "List the prefixes below a prefix, by name",
                &[PREFIX, DEPTH,
                  ("min_bytes", "string", "Only prefixes with at least this many bytes"),
                  ("min_objects", "integer", "Only prefixes with at least this many objects"),
                  ("limit", "integer", "1 to 10000000 [default: 100000]")],
                "One prefix per line, in order of name", false) },
            "/v1/inventories/{name}/histogram": { "get": of("Get the sizes and ages of a prefix",
                &[PREFIX], "sizes, sizes_by_class, months", true) },
            "/v1/inventories/{name}/cost": { "get": of("Get the monthly cost of a prefix", &[PREFIX],
                "total, classes, unpriced, and the region and date of the prices", true) },
            "/v1/inventories/{name}/small-files": { "get": of("List prefixes by small objects",
                &[PREFIX, COUNT, DEPTH, ("under", "string", "A power of two [default: 128KiB]")],
                &format!("{ITEMS}, with the total"), true) },
            "/v1/inventories/{name}/diff": { "get": of("List changes since an earlier inventory",
                &[("old", "string", "The earlier inventory"),
                  ("top", "integer", "Number of prefixes, 1 to 10000 [default: 100]"),
                  ("rank", "string", "change (default), growth or shrinkage"), DEPTH],
                ITEMS, true) },
        }
    })
}

fn operation(
    summary: &str,
    options: &[(&str, &str, &str)],
    kind: &str,
    answers: &[(&str, &str)],
) -> Value {
    let mut parameters = vec![json!({
        "name": "name", "in": "path", "required": true, "schema": { "type": "string" },
        "description": "Name of the inventory: 1 to 64 of a-z 0-9 . _ -" })];
    parameters.extend(options.iter().map(|(name, kind, text)| {
        json!({ "name": name, "in": "query", "required": *name == "old", "description": text,
                "schema": { "type": kind } })
    }));
    json!({ "tags": ["inventories"], "summary": summary, "parameters": parameters,
            "responses": responses(kind, answers) })
}

fn unnamed(summary: &str, kind: &str, answer: &str) -> Value {
    json!({ "tags": ["inventories"], "summary": summary,
            "responses": responses(kind, &[("200", answer)]) })
}

fn responses(kind: &str, answers: &[(&str, &str)]) -> Value {
    let answers = answers.iter().map(|(status, text)| {
        let content = if *status == "204" {
            json!({})
        } else if status.starts_with('2') {
            let schema = if kind.ends_with("/json") { "object" } else { "string" };
            json!({ kind: { "schema": { "type": schema } } })
        } else {
            json!({ "application/json": { "schema": { "$ref": "#/components/schemas/Problem" } } })
        };
        ((*status).to_owned(), json!({ "description": text, "content": content }))
    });
    Value::Object(answers.collect())
}

fn build() -> Value {
    let mut operation = operation(
        "Build or rebuild an inventory",
        &[],
        "application/json",
        &[
            ("202", "The build has started; Location is the URL of its progress"),
            ("400", "The name, the body, a source or the delimiter is not valid"),
            ("403", "inventory.sources does not permit this source"),
            ("409", "It is being built, or the limit inventory.indexes_max is reached"),
            ("429", "The limit inventory.builds_max is reached"),
        ],
    );
    operation["description"] = "An existing index is used until the new one is \
        complete, and remains if the build fails."
        .into();
    let boolean = json!({ "type": "boolean" });
    let text = json!({ "type": "string" });
    let verdict = json!({ "type": "string", "enum": ["fail", "skip"] });
    operation["requestBody"] = json!({ "required": true, "content": { "application/json": { "schema": {
        "type": "object",
        "required": ["from"],
        "properties": {
            "from": { "type": "array", "items": text, "description":
                "forebay:blobs, or a source permitted by inventory.sources: \
                 DIR, FILE, fs:DIR, s3://, s3-list://" },
            "expect_rows": { "type": "integer" },
            "on_bad_row": verdict,
            "on_duplicate": verdict,
            "delimiter": text,
            "histograms": boolean,
            "columns": text,
            "percent_encoded": boolean,
        }
    } } } });
    operation
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_is_one() {
        let document = serde_json::to_value(document()).unwrap();
        assert_eq!(document["paths"].as_object().unwrap().len(), 13);
        let old = &document["paths"]["/v1/inventories/{name}/diff"]["get"]["parameters"][1];
        assert_eq!((&old["name"], &old["required"]), (&json!("old"), &json!(true)));
    }
}
