//! Jobs over HTTP: requests that are accepted once they are durable and run later, and what people and
//! programs do with them (decision 0021).
//!
//! A job is a stored request. Its worker sends it to the same routes that would have answered it, with an
//! `Idempotency-Key`, so that every route which takes data can be asynchronous without a second
//! implementation. Requests that start long work at once are jobs, too: the queue adopts what they started.

mod accept;
mod adopt;
mod answers;
mod openapi;
mod order;
mod routes;
mod stream;
mod worker;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use forebay_base::image::Image;
use forebay_jobs::{Queue, Workers};
use tokio::sync::{Semaphore, watch};

use crate::Subsystem;
pub(crate) use openapi::{accepts_jobs, accepts_jobs_or};
use worker::{RequestWorker, Sender};

/// Maximum time that closing waits for running jobs.
const CLOSE_LIMIT: Duration = Duration::from_secs(10);

/// Method and target of the request of a job; `None` if its order is of another version.
pub(crate) fn request_of(order: &[u8]) -> Option<(String, String)> {
    order::Order::decode(order).map(|order| (order.method, order.target))
}

/// Maximum number of clients that follow jobs.
const FOLLOWERS_MAX: usize = 1_000;

/// State of every handler.
#[derive(Clone)]
struct Shared {
    queue: Queue,
    sender: Arc<Sender>,
    /// Whether the server stops.
    closing: watch::Sender<bool>,
    /// Clients that may follow a job.
    followers: Arc<Semaphore>,
}

impl Shared {
    /// Completes when the server stops.
    async fn closing(&self) {
        let mut closing = self.closing.subscribe();
        // An error would mean that the sender, which is this one, went away.
        drop(closing.wait_for(|closing| *closing).await);
    }
}

/// The subsystem.
pub struct Jobs(Shared);

impl Jobs {
    /// Serves a queue, which is started once all routes are there.
    #[must_use]
    pub fn new(queue: Queue) -> Self {
        let followers = Arc::new(Semaphore::new(FOLLOWERS_MAX));
        Self(Shared { queue, sender: Arc::default(), closing: watch::channel(false).0, followers })
    }
}

impl Subsystem for Jobs {
    fn name(&self) -> &'static str {
        "jobs"
    }

    fn router(&self) -> Router {
        Router::new()
            .route("/jobs", get(routes::to_page))
            .route("/v1/jobs", get(routes::list))
            .route("/v1/jobs/page", get(routes::page))
            .route("/v1/jobs/stats", get(routes::stats))
            .route("/v1/jobs/{id}", get(routes::one).delete(routes::remove))
            .route("/v1/jobs/{id}/cancel", post(routes::cancel))
            .route("/v1/jobs/{id}/requeue", post(routes::requeue))
            .route("/v1/jobs/{id}/events", get(stream::events))
            .route(accept::INGEST_ASYNC, post(accept::ingest))
            .with_state(self.0.clone())
    }

    fn start(&self, bare: &Router, _routes: &Router) {
        // Jobs run from here on: every route is there.
        if self.0.sender.router.set(bare.clone()).is_ok() {
            let worker = Arc::new(RequestWorker(Arc::clone(&self.0.sender)));
            self.0.queue.start(Workers::default().with(order::WORK, worker));
        }
    }

    fn around_queries(&self, routes: Router) -> Router {
        routes.route_layer(from_fn_with_state(self.0.clone(), accept::accept))
    }

    fn around_work(&self, routes: Router) -> Router {
        routes.route_layer(from_fn_with_state(self.0.clone(), adopt::adopt))
    }

    fn openapi(&self) -> utoipa::openapi::OpenApi {
        openapi::document()
    }

    fn readiness(&self) -> Result<(), String> {
        let ready = self.0.queue.ready();
        ready.map_err(|error| forebay_base::error_chain::chain(&error).to_string())
    }

    fn measure(&self) {
        let stats = self.0.queue.stats();
        let [queued, running, ..] = stats.by_status;
        #[expect(clippy::cast_precision_loss, reason = "counts of a queue")]
        for (name, value) in [
            ("forebay_jobs_queued", queued as f64),
            ("forebay_jobs_running", running as f64),
            ("forebay_jobs_bodies_bytes", stats.bodies_bytes as f64),
            ("forebay_jobs_oldest_queued_seconds", stats.oldest_waiting_ms as f64 / 1e3),
        ] {
            metrics::gauge!(name).set(value);
        }
    }

    fn image(&self, image: &mut Image) -> anyhow::Result<()> {
        Ok(self.0.queue.image(image)?)
    }

    fn drain(&self) {
        self.0.queue.interrupt();
        self.0.closing.send_replace(true);
    }

    fn stop(&self) -> Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send + '_>> {
        self.drain();
        let queue = self.0.queue.clone();
        Box::pin(async move {
            queue.close(CLOSE_LIMIT).await.context("cannot write the record of jobs")
        })
    }
}
