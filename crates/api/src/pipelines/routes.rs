//! The routes: list pipelines and their runs, start and stop runs.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::Response;
use forebay_base::error_chain::chain;
use forebay_pipeline::run::{Options, Pipeline};
use forebay_pipeline::state::RunRecord;
use forebay_sdk::run::Context;
use http::header::LOCATION;
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use serde::Deserialize;
use serde_json::json as value;
use utoipa::ToSchema;

use super::Schedule;
use super::answers::{PipelineAnswer, PipelineList, RunAnswer, RunList, Started, StreamAnswer};
use super::catalogue::Name;
use super::now_ms;
use super::runner::{Begun, Refused};
use super::{Shared, clock, unremembered};
use crate::answer::{PAGE, answer, found_or_problem, json, moved, pairs};
use crate::blocking::on_thread;
use crate::pages::{PipelineRow, pipelines_page};
use crate::problem::Problem;
use crate::work::{self, RUNNING, Work};

/// Maximum size of the body of a run request.
const BODY_SIZE_MAX: usize = 64 << 10;
/// Number of times that the record of a run which has ended is read until it can be.
const LOOKS_MAX: u32 = 120;
/// Delay between them.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// Default number of listed runs.
const RUNS: u32 = 20;
/// Maximum number of listed runs.
const RUNS_MAX: u32 = 1_000;

/// A request to start a run.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = PipelineRunRequest)]
pub(super) struct RunRequest {
    /// Name of the run; if a run of this name has completed, nothing is copied.
    #[serde(default)]
    once: Option<String>,
    /// Start unfinished loads over, instead of continuing them.
    #[serde(default)]
    from_scratch: bool,
    /// Follow changes until the run is cancelled, and not only up to the present (`sync_mode: cdc`). Such a run
    /// continues after a restart of the server.
    #[serde(default)]
    follow: bool,
}

/// Returns what is known of a pipeline without reading its data.
fn known(shared: &Shared, name: &Name) -> Result<PipelineAnswer, Problem> {
    let last = shared.runner.remembered(|state| state.runs(Some(name.as_str()), 1, now_ms()));
    let last = last.map_err(|error| unremembered(&error))?.pop();
    let schedule = shared.schedules.iter().find(|it| it.pipeline == name.as_str());
    let due = |schedule: &Schedule| clock::due_ms(schedule, last.as_ref().map(|run| run.began_ms));
    let mut known = PipelineAnswer {
        destination: None,
        due_at_ms: schedule.map(due),
        error: None,
        every_seconds: schedule.map(|schedule| schedule.every.as_secs()),
        last_run: last.as_ref().map(|run| RunAnswer::of(run, false)),
        name: name.as_str().to_owned(),
        running: shared.runner.running(name.as_str()),
        source: None,
        streams: None,
    };
    match shared.catalogue.load(name) {
        Ok(file) => {
            known.source = Some(file.source.uses.as_str().to_owned());
            known.destination = Some(file.destination.uses.as_str().to_owned());
            let streams = file.source.streams.iter().map(|stream| StreamAnswer {
                into: stream.target().to_owned(),
                stream: stream.name.to_string(),
            });
            known.streams = Some(streams.collect());
        }
        Err(problem) => known.error = Some(problem.into_message()),
    }
    Ok(known)
}

fn all(shared: &Shared) -> Result<Vec<PipelineAnswer>, Problem> {
    shared.catalogue.names()?.iter().map(|name| known(shared, name)).collect()
}

pub(super) async fn list(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    let listed = on_thread(move || Ok(PipelineList { pipelines: all(&shared)? }));
    answer(listed.await.map(|listed| json(StatusCode::OK, &listed)), &headers)
}

pub(super) async fn pipeline(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Response {
    let known = on_thread(move || {
        let name = Name::parse(&name)?;
        if shared.catalogue.names()?.contains(&name) {
            return known(&shared, &name);
        }
        Err(Problem::not_found(format!("there is no pipeline {}", name.as_str())))
    });
    answer(known.await.map(|known| json(StatusCode::OK, &known)), &headers)
}

pub(super) async fn plan(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Response {
    let planned = async {
        let file = on_thread(move || shared.catalogue.load(&Name::parse(&name)?)).await?;
        let (context, _cancel) = Context::new("plan");
        let plan = Pipeline::new(&file).plan(&context).await;
        let failed = |error: &dyn std::error::Error| {
            Problem::new(StatusCode::BAD_GATEWAY, "connector", chain(error).to_string())
        };
        let plan = plan.map_err(|error| failed(&error))?;
        Ok(plan)
    };
    answer(planned.await.map(|plan| json(StatusCode::OK, &plan)), &headers)
}

pub(super) async fn start(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    answer(begin(shared, &name, body).await, &headers)
}

async fn begin(shared: Arc<Shared>, name: &str, body: Body) -> Result<Response, Problem> {
    let name = Name::parse(name)?;
    let body = axum::body::to_bytes(body, BODY_SIZE_MAX).await.map_err(|_| {
        let text = "the body exceeds 64 KiB, or ended early";
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", text)
    })?;
    let asked: RunRequest = match body.is_empty() {
        true => RunRequest::default(),
        false => serde_json::from_slice(&body)
            .map_err(|error| Problem::bad("body", format!("invalid run request: {error}")))?,
    };
    if asked.from_scratch && asked.once.is_some() {
        return Err(Problem::bad("body", "once and from_scratch cannot be combined"));
    }
    if asked.follow && asked.once.is_some() {
        return Err(Problem::bad("body", "once and follow cannot be combined"));
    }
    let once = asked.once.as_deref().map(super::run_name).transpose();
    let once = once.map_err(|expected| Problem::bad("body", format!("once: {expected}")))?;
    let options = Options { from_scratch: asked.from_scratch, once, follow: asked.follow };
    let (its, starting) = (name.clone(), Arc::clone(&shared));
    let begun = on_thread(move || {
        let file = starting.catalogue.load(&its)?;
        Ok(starting.runner.start(file, options))
    });
    let begun = begun.await?.map_err(|refused| match refused {
        Refused::Running(run) => {
            let name = name.as_str();
            let text = format!("run {run} of {name} is running; wait for it to end, or cancel it");
            Problem::new(StatusCode::CONFLICT, RUNNING, text).beside(value!({ "run": run }))
        }
        Refused::TooMany => Problem::busy("pipelines.runs_max"),
        Refused::Closing => Problem::closed("the server is shutting down"),
        Refused::State(error) => unremembered(&error),
    })?;
    let location = format!("/v1/pipelines/{}/runs/{}", name.as_str(), begun.id);
    let started = Started { pipeline: name.as_str().to_owned(), run: begun.id.clone() };
    let mut response = json(StatusCode::ACCEPTED, &started);
    if let Ok(location) = HeaderValue::try_from(location) {
        response.headers_mut().insert(LOCATION, location);
    }
    Ok(work::Started::mark(Run { shared, name, begun }, response))
}

/// A run in progress, as the queue of jobs sees it.
struct Run {
    shared: Arc<Shared>,
    name: Name,
    begun: Begun,
}

impl Work for Run {
    fn progress(&self) -> (u64, u64) {
        (self.begun.bytes_read(), 0)
    }

    fn cancel(&self) {
        self.begun.cancel();
    }

    fn ended(self: Arc<Self>) -> Pin<Box<dyn Future<Output = Response> + Send>> {
        Box::pin(async move {
            self.begun.ended().await;
            let mut looks = 1;
            loop {
                let run = Arc::clone(&self);
                let found = on_thread(move || {
                    Ok(RunAnswer::of(&find(&run.shared, &run.name, &run.begun.id)?, true))
                });
                match found.await {
                    Ok(found) => return json(StatusCode::OK, &found),
                    // Another may write the record.
                    Err(_) if looks < LOOKS_MAX => tokio::time::sleep(LOOK_AGAIN).await,
                    Err(problem) => return problem.answer(&HeaderMap::new()),
                }
                looks += 1;
            }
        })
    }
}

pub(super) async fn runs(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    let listed = async {
        let name = Name::parse(&name)?;
        let limit = limit(&uri)?;
        on_thread(move || {
            let ask = |state: &forebay_pipeline::state::State| {
                state.runs(Some(name.as_str()), limit, now_ms())
            };
            let runs = shared.runner.remembered(ask).map_err(|error| unremembered(&error))?;
            Ok(RunList { runs: runs.iter().map(|run| RunAnswer::of(run, false)).collect() })
        })
        .await
    };
    answer(listed.await.map(|runs| json(StatusCode::OK, &runs)), &headers)
}

fn limit(uri: &Uri) -> Result<u32, Problem> {
    let mut limit = RUNS;
    for (name, text) in pairs(uri) {
        if name != "limit" {
            return Err(Problem::bad("parameter", format!("unknown query parameter {name:?}")));
        }
        let text = String::from_utf8_lossy(&text);
        let said = text.parse().ok().filter(|limit| (1..=RUNS_MAX).contains(limit));
        limit = said.ok_or_else(|| {
            Problem::bad("limit", format!("limit must be 1 to {RUNS_MAX}, not {text:?}"))
        })?;
    }
    Ok(limit)
}

/// Finds a run of a pipeline.
fn find(shared: &Shared, name: &Name, run: &str) -> Result<RunRecord, Problem> {
    let found = shared.runner.remembered(|state| state.run(run, now_ms()));
    let found = found.map_err(|error| unremembered(&error))?;
    found.filter(|found| found.pipeline == name.as_str()).ok_or_else(|| {
        Problem::not_found(format!("there is no run of {} with this id", name.as_str()))
    })
}

pub(super) async fn run(
    State(shared): State<Arc<Shared>>,
    Path((name, run)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    let found = on_thread(move || {
        let name = Name::parse(&name)?;
        Ok(RunAnswer::of(&find(&shared, &name, &run)?, true))
    });
    answer(found.await.map(|run| json(StatusCode::OK, &run)), &headers)
}

pub(super) async fn cancel(
    State(shared): State<Arc<Shared>>,
    Path((name, run)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    let cancelled = on_thread(move || {
        let name = Name::parse(&name)?;
        if shared.runner.cancel(name.as_str(), &run) {
            return Ok(RunAnswer::of(&find(&shared, &name, &run)?, false));
        }
        find(&shared, &name, &run)?;
        let text = "the run has ended, or was not started by this server";
        Err(Problem::new(StatusCode::CONFLICT, "not_running", text))
    });
    answer(cancelled.await.map(|run| json(StatusCode::ACCEPTED, &run)), &headers)
}

pub(super) async fn to_page() -> Response {
    moved("/v1/pipelines/page")
}

pub(super) async fn page(State(shared): State<Arc<Shared>>) -> Response {
    let found = on_thread(move || {
        let rows = all(&shared)?.iter().map(|one| PipelineRow::of(&value!(one))).collect();
        Ok((rows, shared.catalogue.dir().display().to_string()))
    });
    found_or_problem(found.await, PAGE, pipelines_page)
}
