//! The pipelines' part of `/openapi.json`.

use serde_json::{Value, json};
use utoipa::openapi::OpenApi;

/// The document; a description that does not parse would be a bug of ours, caught by its test.
pub(super) fn document() -> OpenApi {
    serde_json::from_value(description())
        .unwrap_or_else(|_| utoipa::openapi::OpenApiBuilder::new().build())
}

const WRONG: (&str, &str) = ("400", "The name, a parameter or the body is wrong");
const MISSING: (&str, &str) = ("404", "There is no such pipeline, or no such run of it");
const FILE: (&str, &str) = ("409", "Its file cannot be used; the message has line and field");

fn description() -> Value {
    let name = ("name", "The pipeline: what its file is called, without .yaml");
    let run = ("run", "The run's id");
    json!({
        "openapi": "3.1.0",
        "info": { "title": "Forebay pipelines", "version": env!("CARGO_PKG_VERSION") },
        "tags": [{ "name": "pipelines", "description":
            "Rows from databases and files to others: what is copied, when, and how that went." }],
        "paths": {
            "/v1/pipelines": { "get": operation("List the pipelines", &[], &[
                ("200", "pipelines: name, source, destination, streams, running, every_seconds, \
                         due_at_ms, last_run; error where the file cannot be used")]) },
            "/v1/pipelines/page": { "get": operation("The pipelines as a page", &[],
                &[("200", "The page, which also says what is wrong")]) },
            "/v1/pipelines/{name}": { "get": operation("A pipeline", &[name],
                &[("200", "As in the list"), WRONG, MISSING]) },
            "/v1/pipelines/{name}/plan": { "get": operation(
                "What a run would read and write; asks both sides and changes nothing", &[name],
                &[("200", "streams: columns, units, rows, bytes and statements of each"),
                  WRONG, MISSING, FILE, ("502", "A connector's database or files do not answer")]) },
            "/v1/pipelines/{name}/runs": {
                "post": begin(operation("Begin a run", &[name], &[
                    ("202", "It has begun; Location is where it is told"), WRONG, MISSING,
                    ("409", "A run of it is under way, or its file cannot be used"),
                    ("429", "As many runs as pipelines.runs_max allows are under way")])),
                "get": limited(operation("Its runs, the newest first", &[name],
                    &[("200", "runs: run, outcome, began_at_ms, ended_at_ms, rows_committed"), WRONG])),
            },
            "/v1/pipelines/{name}/runs/{run}": {
                "get": operation("A run and its report", &[name, run],
                    &[("200", "outcome: running, done, failed, cancelled or killed; report"),
                      WRONG, MISSING]),
                "delete": operation("Stop a run at its next commit boundary", &[name, run],
                    &[("202", "It ends soon; the next run goes on after it"), WRONG, MISSING,
                      ("409", "It has ended")]),
            },
        }
    })
}

fn operation(summary: &str, path: &[(&str, &str)], answers: &[(&str, &str)]) -> Value {
    let parameters = path.iter().map(|(name, text)| {
        json!({ "name": name, "in": "path", "required": true, "description": text,
                "schema": { "type": "string" } })
    });
    let answers = answers.iter().map(|(status, text)| {
        let schema = if status.starts_with('2') {
            json!({ "type": "object" })
        } else {
            json!({ "$ref": "#/components/schemas/Problem" })
        };
        let kind = if summary.ends_with("a page") { "text/html" } else { "application/json" };
        let content = json!({ kind: { "schema": schema } });
        ((*status).to_owned(), json!({ "description": text, "content": content }))
    });
    json!({ "tags": ["pipelines"], "summary": summary,
            "parameters": parameters.collect::<Vec<_>>(),
            "responses": Value::Object(answers.collect()) })
}

fn begin(mut operation: Value) -> Value {
    operation["requestBody"] = json!({ "required": false, "content": { "application/json": { "schema": {
        "type": "object",
        "properties": {
            "once": { "type": "string", "description":
                "Name of the run: where one of this name is over already, nothing is copied" },
            "from_scratch": { "type": "boolean", "description":
                "Give up loads that were not finished, instead of going on with them" },
        }
    } } } });
    operation
}

fn limited(mut operation: Value) -> Value {
    if let Some(parameters) = operation["parameters"].as_array_mut() {
        parameters.push(json!({ "name": "limit", "in": "query", "required": false,
            "description": "1 to 1000, by default 20", "schema": { "type": "integer" } }));
    }
    operation
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_is_one() {
        let document = serde_json::to_value(document()).unwrap();
        assert_eq!(document["paths"].as_object().unwrap().len(), 6);
        let runs = &document["paths"]["/v1/pipelines/{name}/runs"];
        assert_eq!(runs["get"]["parameters"][1]["name"], "limit");
        assert!(runs["post"]["requestBody"].is_object());
    }
}
