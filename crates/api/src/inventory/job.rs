//! `POST` and `DELETE /v1/inventories/{name}`, and the running build.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;

use anyhow::Context as _;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::Response;
use forebay_base::clock::{Clock as _, SystemClock};
use forebay_base::error_chain::chain;
use forebay_base::fs::{FileSystem, RealFs};
use forebay_inventory::builder::{BuildError, Built, OnBadRow, Options, build};
use forebay_inventory::object::Classes;
use forebay_inventory::source::Columns;
use http::header::LOCATION;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Deserialize;
use utoipa::ToSchema;

use super::Shared;
use super::builds::{End, Job, Refused};
use super::registry::Name;
use super::sources::{Reading, Requested, open_source, wanted};
use crate::answer::{answer, json, no_content};
use crate::blocking::on_thread;
use crate::problem::Problem;
use crate::work::{Started, Work};

/// Maximum size of the body of a build request.
const BODY_SIZE_MAX: usize = 512 << 10;

/// A request to build an inventory.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = InventoryBuildRequest)]
pub(super) struct BuildRequest {
    /// The sources: `forebay:blobs`, or sources permitted by inventory.sources: DIR, FILE, fs:DIR,
    /// s3://, s3-list://
    from: OneOrMany,
    /// Fail unless the sources have exactly this many rows.
    expect_rows: Option<u64>,
    /// What is done about a row that is not valid.
    #[serde(default)]
    on_bad_row: Verdict,
    /// What is done about a key that is listed twice.
    #[serde(default)]
    on_duplicate: Verdict,
    /// Character that separates the components of a key [default: /]
    delimiter: Option<char>,
    /// Whether sizes and ages are counted [default: true]
    histograms: Option<bool>,
    /// Columns of a table: `key=Name,size=Length,...`
    columns: Option<String>,
    /// Whether keys are percent-encoded.
    #[serde(default)]
    percent_encoded: bool,
}

/// One source, or several.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged)]
#[schema(as = InventorySources)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

/// What is done about a row.
#[derive(Debug, Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = InventoryVerdict)]
enum Verdict {
    /// The build fails.
    #[default]
    Fail,
    /// The row is skipped.
    Skip,
}

impl From<Verdict> for OnBadRow {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Fail => Self::Fail,
            Verdict::Skip => Self::Skip,
        }
    }
}

/// A build order: parsed, validated and permitted.
struct Order {
    wanted: Requested,
    reading: Reading,
    options: Options,
}

/// A build of this name is running.
pub(super) fn building(name: &str) -> Problem {
    let text = format!("inventory {name} is being built; wait for the build to end, or cancel it");
    Problem::new(StatusCode::CONFLICT, "building", text)
}

pub(super) async fn start(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    answer(begin(&shared, &name, body).await, &headers)
}

async fn begin(shared: &Arc<Shared>, name: &str, body: Body) -> Result<Response, Problem> {
    shared.check_running()?;
    let name = Name::parse(name)?;
    let body = axum::body::to_bytes(body, BODY_SIZE_MAX).await.map_err(|_| {
        let text = "the body exceeds 512 KiB, or ended early";
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", text)
    })?;
    let asked: BuildRequest = serde_json::from_slice(&body)
        .map_err(|error| Problem::bad("body", format!("invalid build request: {error}")))?;
    let from = match &asked.from {
        OneOrMany::One(source) => vec![source.clone()],
        OneOrMany::Many(sources) => sources.clone(),
    };
    let now_ms = SystemClock::new().now_ms();
    let ordering = Arc::clone(shared);
    let (sources, its) = (from.clone(), name.clone());
    // Resolving links accesses the disk.
    let order = on_thread(move || {
        let wanted = wanted(&sources, &ordering.sources)?;
        check_room(&ordering, &its)?;
        order(&ordering, wanted, &asked, now_ms)
    })
    .await?;
    if matches!(order.wanted, Requested::Blobs) {
        // Files stored before this request must be in the index.
        shared.files.totals().await.map_err(|error| Problem::closed(chain(&error).to_string()))?;
    }
    let (inner, its) = (Arc::clone(shared), name.clone());
    let started = shared
        .builds
        .start(&name, Job::new(from, now_ms), move |job| run(&inner, &its, job, &order));
    let job = started.map_err(|refused| match refused {
        Refused::SameName => building(name.as_str()),
        Refused::TooMany => Problem::busy("inventory.builds_max"),
        Refused::Closing => Problem::closed("the server is shutting down"),
        Refused::NoThread => Problem::closed("the system cannot start a thread"),
    })?;
    let mut response = json(StatusCode::ACCEPTED, &job.describe(&name));
    let location = format!("/v1/inventories/{}/build", name.as_str());
    if let Ok(location) = HeaderValue::try_from(location) {
        response.headers_mut().insert(LOCATION, location);
    }
    Ok(Started::mark(Build { name, job }, response))
}

/// A running build, as the queue of jobs sees it.
struct Build {
    name: Name,
    job: Arc<Job>,
}

impl Work for Build {
    fn progress(&self) -> (u64, u64) {
        let progress = self.job.monitor.progress();
        (progress.bytes, progress.bytes_total.unwrap_or(0))
    }

    fn cancel(&self) {
        self.job.monitor.cancel();
    }

    fn ended(self: Arc<Self>) -> Pin<Box<dyn Future<Output = Response> + Send>> {
        Box::pin(async move {
            self.job.ended().await;
            json(StatusCode::OK, &self.job.describe(&self.name))
        })
    }
}

fn check_room(shared: &Shared, name: &Name) -> Result<(), Problem> {
    let names = shared.registry.names();
    let names = names.map_err(|error| super::problem::internal(&error.into()))?;
    if names.len() >= shared.indexes_max as usize && !names.contains(name) {
        let text = "the number of inventories has reached inventory.indexes_max";
        return Err(Problem::new(StatusCode::CONFLICT, "too_many_inventories", text));
    }
    Ok(())
}

fn order(
    shared: &Shared,
    wanted: Requested,
    asked: &BuildRequest,
    now_ms: u64,
) -> Result<Order, Problem> {
    let columns = asked.columns.as_deref().map(str::parse::<Columns>).transpose();
    let columns = columns.map_err(|error| Problem::bad("columns", error.to_string()))?;
    let delimiter = match asked.delimiter {
        None => b'/',
        Some(delimiter) => u8::try_from(delimiter).ok().filter(u8::is_ascii).ok_or_else(|| {
            Problem::bad("delimiter", "the delimiter must be one ASCII character")
        })?,
    };
    let options = Options {
        memory: shared.build_memory,
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        delimiter,
        histograms: asked.histograms.unwrap_or(true),
        on_bad_row: asked.on_bad_row.into(),
        on_duplicate: asked.on_duplicate.into(),
        expect_rows: asked.expect_rows,
        replace: true,
        now_ms,
    };
    let reading = Reading { columns, percent_encoded: asked.percent_encoded };
    Ok(Order { wanted, reading, options })
}

/// Runs a build on its thread, and records its result.
fn run(shared: &Shared, name: &Name, job: &Job, order: &Order) {
    let built = catch_unwind(AssertUnwindSafe(|| build_index(shared, name, job, order)));
    let rows = job.monitor.progress().rows;
    let end = match built {
        Ok(Ok(built)) => End::Built(Box::new(built)),
        Ok(Err(error)) if is_cancelled(&error) => End::Cancelled,
        Ok(Err(error)) => End::Failed(chain(error.as_ref()).to_string()),
        Err(_) => End::Failed("the build failed; the server's log has the details".to_owned()),
    };
    metrics::counter!("forebay_inventory_builds_total", "result" => end.word()).increment(1);
    metrics::counter!("forebay_inventory_build_rows_total").increment(rows);
    match &end {
        End::Failed(why) => {
            tracing::warn!(inventory = name.as_str(), why, "cannot build an index")
        }
        end => {
            tracing::info!(inventory = name.as_str(), rows, end = end.word(), "index build ended")
        }
    }
    job.end(end);
}

fn build_index(shared: &Shared, name: &Name, job: &Job, order: &Order) -> anyhow::Result<Built> {
    let classes = Arc::new(Classes::new());
    let source = open_source(shared, &order.wanted, &order.reading, &classes, &order.options)?;
    let fs: Arc<dyn FileSystem> = Arc::new(RealFs);
    let to = shared.registry.path(name);
    let built = build(&fs, &*source, &classes, &to, &order.options, &job.monitor);
    // An index that was never built before leaves no directory.
    if built.is_err() && !to.join("index.json").exists() {
        shared.registry.sweep(name).context("remove the remains of a build")?;
    }
    Ok(built?)
}

fn is_cancelled(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(BuildError::Cancelled))
}

pub(super) async fn status(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Response {
    let described =
        job_of(&shared, &name).map(|(name, job)| json(StatusCode::OK, &job.describe(&name)));
    answer(described, &headers)
}

fn job_of(shared: &Shared, name: &str) -> Result<(Name, Arc<Job>), Problem> {
    let name = Name::parse(name)?;
    let job = shared.builds.get(&name).ok_or_else(|| {
        Problem::not_found(format!(
            "there was no build of {} since the server's start",
            name.as_str()
        ))
    })?;
    Ok((name, job))
}

pub(super) async fn cancel(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Response {
    let described = job_of(&shared, &name).and_then(|(name, job)| {
        if !job.is_running() {
            let text = format!("the build of {} has ended", name.as_str());
            return Err(Problem::new(StatusCode::CONFLICT, "not_running", text));
        }
        job.monitor.cancel();
        Ok(json(StatusCode::ACCEPTED, &job.describe(&name)))
    });
    answer(described, &headers)
}

pub(super) async fn delete(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Response {
    let deleted = async {
        let name = Name::parse(&name)?;
        on_thread(move || {
            let deleted = shared.builds.unless_running(&name, || shared.registry.delete(&name));
            deleted.unwrap_or_else(|| Err(building(name.as_str())))
        })
        .await?;
        Ok(no_content())
    };
    answer(deleted.await, &headers)
}
