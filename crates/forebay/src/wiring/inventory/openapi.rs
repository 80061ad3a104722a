//! The inventory's part of `/openapi.json`.
//!
//! Written beside the routes rather than derived from handlers: handlers take whole requests and say
//! nothing about their parameters.

use serde_json::{Value, json};
use utoipa::openapi::OpenApi;

/// The document; a description that does not parse would be a bug of ours, caught by its test.
pub(super) fn document() -> OpenApi {
    serde_json::from_value(description())
        .unwrap_or_else(|_| utoipa::openapi::OpenApiBuilder::new().build())
}

const PREFIX: (&str, &str, &str) =
    ("prefix", "string", "The prefix, with the delimiter at its end; without it, everything");
const SORT: (&str, &str, &str) = ("sort", "string", "bytes (the default), objects or name");
const DEPTH: (&str, &str, &str) =
    ("depth", "integer", "Components below the prefix; without it, any number");
const COUNT: (&str, &str, &str) = ("k", "integer", "How many, 1 to 10000, by default 100");

const MISSING: (&str, &str) =
    ("404", "There is no such inventory, or no such prefix; there may name the one that was meant");
const BUSY: (&str, &str) = ("429", "As many questions as inventory.queries_max allows are running");
const WRONG: (&str, &str) = ("400", "The name or a parameter is wrong");
const ITEMS: &str = "One a line with Accept: application/x-ndjson, else in items";

fn description() -> Value {
    let of = |summary: &str, options: &[(&str, &str, &str)], answer: &str, json: bool| {
        let kind = if json { "application/json" } else { "application/x-ndjson" };
        operation(summary, options, kind, &[("200", answer), WRONG, MISSING, BUSY])
    };
    json!({
        "openapi": "3.1.0",
        "info": { "title": "Forebay inventories", "version": env!("CARGO_PKG_VERSION") },
        "tags": [{ "name": "inventories", "description":
            "Indexes over what object stores have: objects, bytes, classes, sizes and costs of any \
             prefix." }],
        "paths": {
            "/v1/inventories": { "get": unnamed("List the inventories", "application/json",
                "inventories: name, objects, bytes, prefixes, built_at_ms, complete") },
            "/v1/inventories/page": { "get": unnamed(
                "The inventories as a page", "text/html", "The page") },
            "/v1/inventories/{name}": {
                "get": of("What an inventory is of, and what it was built from", &[],
                    "Counts, classes and provenance", true),
                "post": build(),
                "delete": operation("Delete an inventory", &[], "application/json",
                    &[("204", "It is gone; questions under way have their answer"), WRONG,
                      ("404", "There is none"), ("409", "It is being built")]),
            },
            "/v1/inventories/{name}/build": {
                "get": operation("How far a build is, or how the last one ended", &[],
                    "application/json",
                    &[("200", "state: running, cancelling, built, failed or cancelled; rows, seconds"),
                      WRONG, ("404", "None is known")]),
                "delete": operation("Cancel a build", &[], "application/json",
                    &[("202", "It ends soon and leaves nothing; the index before stays"), WRONG,
                      ("404", "None is known"), ("409", "It has ended")]),
            },
            "/v1/inventories/{name}/page": { "get": operation(
                "A prefix as a page", &[PREFIX, SORT, ("offset", "integer", "Children to pass over")],
                "text/html", &[("200", "The page, which also says what is wrong")]) },
            "/v1/inventories/{name}/prefix": { "get": of("All that is known of a prefix", &[PREFIX],
                "objects, bytes, depth, descendants, classes, noncurrent, histograms", true) },
            "/v1/inventories/{name}/children": { "get": of("The prefixes right below one",
                &[PREFIX, SORT, ("offset", "integer", "Children to pass over"),
                  ("limit", "integer", "1 to 1000, by default 100")],
                &format!("{ITEMS}, with total and next: the offset of the next page, or null"), true) },
            "/v1/inventories/{name}/top": { "get": of("The largest prefixes below one, exactly",
                &[PREFIX, COUNT, DEPTH, SORT], ITEMS, true) },
            "/v1/inventories/{name}/descendants": { "get": of("The prefixes below one, by their names",
                &[PREFIX, DEPTH, ("min_bytes", "string", "With at least so many bytes"),
                  ("min_objects", "integer", "With at least so many objects"),
                  ("limit", "integer", "1 to 10000000, by default 100000")],
                "A prefix a line; all that is larger than a prefix left out is there", false) },
            "/v1/inventories/{name}/histogram": { "get": of("Sizes and months of a prefix", &[PREFIX],
                "sizes, sizes_by_class, months", true) },
            "/v1/inventories/{name}/cost": { "get": of("What a prefix costs in a month", &[PREFIX],
                "total, classes, unpriced, and of where and when the prices are", true) },
            "/v1/inventories/{name}/small-files": { "get": of("Where the small objects are",
                &[PREFIX, COUNT, DEPTH, ("under", "string", "A power of two, by default 128KiB")],
                &format!("{ITEMS}, with the total"), true) },
            "/v1/inventories/{name}/diff": { "get": of("What changed since an earlier inventory",
                &[("old", "string", "The earlier inventory; needed"),
                  ("top", "integer", "How many, 1 to 10000, by default 100"),
                  ("rank", "string", "change (the default), growth or shrinkage"), DEPTH],
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
        "description": "The inventory: 1 to 64 of a-z 0-9 . _ -" })];
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
        "Build an inventory, or build it anew",
        &[],
        "application/json",
        &[
            ("202", "It has begun; Location is where its progress is told"),
            ("400", "The name, the body, a source or the delimiter is wrong"),
            ("403", "inventory.sources does not permit this source"),
            ("409", "It is being built, or there are as many as inventory.indexes_max allows"),
            ("429", "As many builds as inventory.builds_max allows are running"),
        ],
    );
    operation["description"] = "The index before, if there is one, answers until the new one is \
        complete, and stays where the build fails."
        .into();
    let boolean = json!({ "type": "boolean" });
    let text = json!({ "type": "string" });
    let verdict = json!({ "type": "string", "enum": ["fail", "skip"] });
    operation["requestBody"] = json!({ "required": true, "content": { "application/json": { "schema": {
        "type": "object",
        "required": ["from"],
        "properties": {
            "from": { "type": "array", "items": text, "description":
                "forebay:blobs, or what inventory.sources permits: DIR, FILE, fs:DIR, s3://, s3-list://" },
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
