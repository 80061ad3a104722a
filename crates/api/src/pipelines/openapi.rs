//! The pipelines' part of `/openapi.json`. Answers are described by the types that are serialised.

use forebay_pipeline::run::Plan;
use utoipa::openapi::OpenApi;

use super::answers::{PipelineAnswer, PipelineList, RunAnswer, RunList, Started};
use super::routes::RunRequest;
use crate::describe::{Kind, Operation, PAGE, Routes, path, query};
use crate::jobs::accepts_jobs_or;

const TAG: &str = "pipelines";
const ABOUT: &str = "Pipelines that copy rows between databases and files, and their runs.";

const WRONG: (u16, &str) = (400, "The name, a parameter or the body is not valid");
const MISSING: (u16, &str) = (404, "There is no such pipeline, or no such run of it");
const FILE: (u16, &str) = (409, "The pipeline file is not valid; the message names line and field");
const CLOSED: (u16, &str) = (503, "The files or the record of runs cannot be read");

/// Returns the document.
pub(super) fn document() -> OpenApi {
    let runs = "/v1/pipelines/{name}/runs";
    let run = "/v1/pipelines/{name}/runs/{run}";
    Routes::new("Forebay pipelines")
        .tag(TAG, ABOUT)
        .get(
            "/v1/pipelines",
            operation("list_pipelines", "List the pipelines")
                .json::<PipelineList>(200, "The pipelines, also those whose file cannot be used")
                .problems(&[CLOSED]),
        )
        .get(
            "/v1/pipelines/page",
            operation("list_pipelines_page", "Get the pipelines as a page")
                .words(200, PAGE, "The page")
                .error_pages(&[CLOSED]),
        )
        .get(
            "/v1/pipelines/{name}",
            named("get_pipeline", "Get a pipeline")
                .json::<PipelineAnswer>(200, "As in the list")
                .problems(&[WRONG, MISSING, CLOSED]),
        )
        .get(
            "/v1/pipelines/{name}/plan",
            named(
                "get_pipeline_plan",
                "Get the plan of a run; queries both sides and changes nothing",
            )
            .json::<Plan>(200, "What a run would do with each stream")
            .problems(&[
                WRONG,
                MISSING,
                FILE,
                (502, "A database or file storage cannot be accessed"),
            ]),
        )
        .post(runs, start())
        .get(
            runs,
            named("list_pipeline_runs", "List the runs, the newest first")
                .parameter(query(
                    "limit",
                    Kind::Count(1, 1_000),
                    "Maximum number of runs [default: 20]",
                ))
                .json::<RunList>(200, "The runs")
                .problems(&[WRONG, CLOSED]),
        )
        .get(
            run,
            of_run("get_pipeline_run", "Get a run and its report")
                .json::<RunAnswer>(200, "The run")
                .problems(&[WRONG, MISSING, CLOSED]),
        )
        .delete(
            run,
            of_run("stop_pipeline_run", "Stop a run at its next commit boundary")
                .json::<RunAnswer>(202, "The run ends soon; the next run continues after it")
                .problems(&[WRONG, MISSING, (409, "It has ended"), CLOSED]),
        )
        .document()
}

fn operation(id: &str, summary: &str) -> Operation {
    Operation::new(TAG, id, summary)
}

fn named(id: &str, summary: &str) -> Operation {
    let text = "Name of the pipeline: its file name without .yaml";
    operation(id, summary).parameter(path("name", text))
}

fn of_run(id: &str, summary: &str) -> Operation {
    named(id, summary).parameter(path("run", "Id of the run"))
}

fn start() -> Operation {
    let operation = named("start_pipeline_run", "Start a run")
        .takes::<RunRequest>(false, "How the run is done");
    accepts_jobs_or::<Started>(operation, "The run has started")
        .header(202, "Location", "URL path of the run")
        .problems(&[
            WRONG,
            MISSING,
            (409, "The pipeline is already running, or its file cannot be used"),
            (413, "The body exceeds 64 KiB"),
            (429, "The limit pipelines.runs_max is reached"),
            CLOSED,
        ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_is_described_with_the_types_of_its_answers() {
        let document = serde_json::to_value(document()).unwrap();
        assert_eq!(document["paths"].as_object().unwrap().len(), 6);
        let runs = &document["paths"]["/v1/pipelines/{name}/runs"];
        assert_eq!(runs["get"]["parameters"][1]["name"], "limit");
        assert!(runs["post"]["requestBody"].is_object());
        let schemas = &document["components"]["schemas"];
        for name in ["PipelineReport", "PipelineStreamPlan", "PipelineRunOutcome"] {
            assert!(schemas[name].is_object(), "{name}");
        }
    }
}
