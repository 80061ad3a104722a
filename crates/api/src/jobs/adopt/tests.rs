//! Work of a test, started by a route that the queue is around.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::post;
use forebay_base::clock::SystemClock;
use forebay_base::fs::RealFs;
use forebay_jobs::{Filter, JobView, Options, Queue, Status};
use http::Method;
use tokio::sync::{Notify, watch};
use tower::ServiceExt as _;

use super::super::Jobs;
use super::*;
use crate::Subsystem as _;
use crate::answer::json;

const PATH: &str = "/v1/pipelines/orders/runs";

/// Work that ends when the test says so.
struct Fake {
    cancelled: AtomicBool,
    end: watch::Sender<bool>,
}

impl Fake {
    fn new() -> Arc<Self> {
        Arc::new(Self { cancelled: AtomicBool::new(false), end: watch::channel(false).0 })
    }
}

struct Handle(Arc<Fake>);

impl Work for Handle {
    fn progress(&self) -> (u64, u64) {
        (1, 2)
    }

    fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::SeqCst);
        self.0.end.send_replace(true);
    }

    fn ended(self: Arc<Self>) -> Pin<Box<dyn Future<Output = Response> + Send>> {
        Box::pin(async move {
            let mut end = self.0.end.subscribe();
            end.wait_for(|end| *end).await.unwrap();
            let cancelled = self.0.cancelled.load(Ordering::SeqCst);
            let outcome = if cancelled { "cancelled" } else { "done" };
            json(StatusCode::OK, &serde_json::json!({ "outcome": outcome }))
        })
    }
}

fn queue(dir: &tempfile::TempDir) -> Queue {
    let options = Options::new(dir.path().join("jobs"));
    Queue::open(Arc::new(RealFs), Arc::new(SystemClock::new()), options).unwrap()
}

/// A route that starts `work` after `before`, with the queue around it.
fn routes<F: Future<Output = ()> + Send + 'static>(
    jobs: &Jobs,
    work: &Arc<Fake>,
    before: impl Fn() -> F + Clone + Send + Sync + 'static,
) -> Router {
    let work = Arc::clone(work);
    let start = move |body: Bytes| async move {
        before().await;
        if body == "bad" {
            return Problem::bad("body", "it is bad").answer(&http::HeaderMap::new());
        }
        Started::mark(Handle(work), json(StatusCode::ACCEPTED, &"started"))
    };
    let bare = Router::new().route(PATH, post(start));
    jobs.start(&bare, &bare);
    bare.route_layer(from_fn_with_state(jobs.0.clone(), adopt))
}

fn request(body: &'static str) -> Request {
    let mut request = Request::new(Body::from(body));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = PATH.parse().unwrap();
    request
}

async fn once(queue: &Queue, wanted: impl Fn(&JobView) -> bool) -> JobView {
    let mut changes = queue.changes();
    let wait = async {
        loop {
            if let Some(job) = queue.list(Filter::default(), 1).0.pop().filter(&wanted) {
                return job;
            }
            changes.recv().await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(30), wait).await.unwrap()
}

#[tokio::test]
async fn work_is_a_job_from_its_202_on_and_ends_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let (queue, work) = (queue(&dir), Fake::new());
    let routes = routes(&Jobs::new(queue.clone()), &work, || async {});
    let refused = routes.clone().oneshot(request("bad")).await.unwrap();
    assert_eq!(
        (refused.status(), queue.list(Filter::default(), 1).0.len()),
        (StatusCode::BAD_REQUEST, 0)
    );
    let response = routes.oneshot(request("body")).await.unwrap();
    let job = queue.list(Filter::default(), 1).0.remove(0);
    assert_eq!((job.status, job.body_size), (Status::Running, 4));
    let link = format!("</v1/jobs/{}>; rel=\"monitor\"", job.id);
    assert_eq!(response.headers()[LINK], link.as_str());
    work.end.send_replace(true);
    let job = once(&queue, |job| job.status.is_ended()).await;
    assert_eq!(job.status, Status::Completed);
    queue.close(Duration::from_secs(5)).await.unwrap();
}

#[tokio::test]
async fn work_whose_client_went_away_is_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let (queue, work) = (queue(&dir), Fake::new());
    let (entered, gate) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (enter, open) = (Arc::clone(&entered), Arc::clone(&gate));
    let routes = routes(&Jobs::new(queue.clone()), &work, move || {
        let (enter, open) = (Arc::clone(&enter), Arc::clone(&open));
        async move {
            enter.notify_one();
            open.notified().await;
        }
    });
    tokio::select! {
        _ = routes.oneshot(request("")) => panic!("the gate is closed"),
        () = entered.notified() => {}
    }
    gate.notify_one();
    once(&queue, |job| job.status == Status::Running).await;
    work.end.send_replace(true);
    once(&queue, |job| job.status == Status::Completed).await;
    queue.close(Duration::from_secs(5)).await.unwrap();
}

#[tokio::test]
async fn work_that_cannot_be_recorded_is_cancelled() {
    let dir = tempfile::tempdir().unwrap();
    let (queue, work) = (queue(&dir), Fake::new());
    let closing = queue.clone();
    let routes = routes(&Jobs::new(queue.clone()), &work, move || {
        let queue = closing.clone();
        // The queue is closed while the work starts.
        async move { queue.interrupt() }
    });
    let refused = routes.clone().oneshot(request("")).await.unwrap();
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(work.cancelled.load(Ordering::SeqCst));
    assert_eq!(queue.stats().by_status, [0; 5]);
    queue.close(Duration::from_secs(5)).await.unwrap();
}

#[tokio::test]
async fn a_schedule_waits_for_a_job_of_the_same_work() {
    let dir = tempfile::tempdir().unwrap();
    let (queue, work) = (queue(&dir), Fake::new());
    let routes = routes(&Jobs::new(queue.clone()), &work, || async {});
    let scheduled = || {
        let mut request = request("");
        request.extensions_mut().insert(Scheduled);
        routes.clone().oneshot(request)
    };
    assert_eq!(scheduled().await.unwrap().status(), StatusCode::ACCEPTED);
    let busy = scheduled().await.unwrap();
    assert_eq!(busy.status(), StatusCode::CONFLICT);
    let body = axum::body::to_bytes(busy.into_body(), 10_000).await.unwrap();
    assert!(String::from_utf8_lossy(&body).contains("\"running\""), "{body:?}");
    work.end.send_replace(true);
    let first = once(&queue, |job| job.status == Status::Completed).await.id;
    // The next one takes its place.
    assert_eq!(scheduled().await.unwrap().status(), StatusCode::ACCEPTED);
    let next = once(&queue, |job| job.status == Status::Completed && job.id != first).await;
    let (jobs, _) = queue.list(Filter::default(), 10);
    assert_eq!(jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [next.id]);
    queue.close(Duration::from_secs(5)).await.unwrap();
}
