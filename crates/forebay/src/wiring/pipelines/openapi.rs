//! The pipelines' part of `/openapi.json`.

use serde_json::{Value, json};
use utoipa::openapi::OpenApi;

/// Returns the document. A description that does not parse would be a bug of ours, found by its
/// test.
pub(super) fn document() -> OpenApi {
    serde_json::from_value(description())
        .unwrap_or_else(|_| utoipa::openapi::OpenApiBuilder::new().build())
}

const WRONG: (&str, &str) = ("400", "The name, a parameter or the body is not valid");
const MISSING: (&str, &str) = ("404", "There is no such pipeline, or no such run of it");
const FILE: (&str, &str) =
    ("409", "The pipeline file is not valid; the message names line and field");

fn description() -> Value {
    let name = ("name", "Name of the pipeline: its file name without .yaml");
    let run = ("run", "Id of the run");
    json!({
        "openapi": "3.1.0",
        "info": { "title": "Forebay pipelines", "version": env!("CARGO_PKG_VERSION") },
        "tags": [{ "name": "pipelines", "description":
            "Pipelines that copy rows between databases and files, and their runs." }],
        "paths": {
            "/v1/pipelines": { "get": operation("List the pipelines", &[], &[
                ("200", "pipelines: name, source, destination, streams, running, every_seconds, \
                         due_at_ms, last_run; error if the file cannot be used")]) },
            "/v1/pipelines/page": { "get": operation("Get the pipelines as a page", &[],
                &[("200", "The page, or an error page")]) },
            "/v1/pipelines/{name}": { "get": operation("Get a pipeline", &[name],
                &[("200", "As in the list"), WRONG, MISSING]) },
            "/v1/pipelines/{name}/plan": { "get": operation(
                "Get the plan of a run; queries both sides and changes nothing", &[name],
                &[("200", "streams: columns, units, rows, bytes and statements of each"),
                  WRONG, MISSING, FILE, ("502", "A database or file storage cannot be accessed")]) },
            "/v1/pipelines/{name}/runs": {
                "post": begin(operation("Start a run", &[name], &[
                    ("202", "The run has started; Location is its URL"), WRONG, MISSING,
                    ("409", "The pipeline is already running, or its file cannot be used"),
                    ("429", "The limit pipelines.runs_max is reached")])),
                "get": limited(operation("List the runs, the newest first", &[name],
                    &[("200", "runs: run, outcome, began_at_ms, ended_at_ms, rows_committed"), WRONG])),
            },
            "/v1/pipelines/{name}/runs/{run}": {
                "get": operation("Get a run and its report", &[name, run],
                    &[("200", "outcome: running, done, failed, cancelled or killed; report"),
                      WRONG, MISSING]),
                "delete": operation("Stop a run at its next commit boundary", &[name, run],
                    &[("202", "The run ends soon; the next run continues after it"), WRONG, MISSING,
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
                "Name of the run; if a run of this name has completed, nothing is copied" },
            "from_scratch": { "type": "boolean", "description":
                "Start unfinished loads over, instead of continuing them" },
        }
    } } } });
    operation
}

fn limited(mut operation: Value) -> Value {
    if let Some(parameters) = operation["parameters"].as_array_mut() {
        parameters.push(json!({ "name": "limit", "in": "query", "required": false,
            "description": "1 to 1000 [default: 20]", "schema": { "type": "integer" } }));
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
