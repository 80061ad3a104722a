//! One request: its id, whether it may run, the router, and the answer's common form.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use axum::response::Response;
use futures_util::FutureExt as _;
use http::{HeaderValue, Request};
use hyper::body::Incoming;
use tower::Service as _;

use super::app::App;
use super::auth;
use super::body::{Running, Tracked};
use super::connection::ConnState;
use super::http_metrics::RouteClass;
use super::problem::{Problem, normalise};
use super::request_id;
use super::shutdown::Stage;

/// Answers `request`. Never fails: whatever goes wrong becomes an answer.
pub(super) async fn answer(
    app: Arc<App>,
    conn: Arc<ConnState>,
    mut request: Request<Incoming>,
) -> http::Response<Tracked> {
    let class = RouteClass::of(request.uri().path());
    let id = app.ids.of(request.headers());
    request.headers_mut().insert(request_id::HEADER, id.clone());
    conn.request_begun(app.elapsed_ms());
    let mut running =
        Running { started: Instant::now(), class, admitted: false, status: None, conn, app };

    let mut response = match admit(&mut running, &request) {
        Ok(()) if tracing::enabled!(tracing::Level::DEBUG) => logged(&running, request, &id).await,
        Ok(()) => run(&running.app, request, &id).await,
        Err(problem) => problem.response(&id),
    };
    response.headers_mut().insert(request_id::HEADER, id);
    running.status = Some(response.status());
    response.map(|body| Tracked::new(body, running))
}

/// Everything that is decided before a handler runs, cheapest first.
fn admit(running: &mut Running, request: &Request<Incoming>) -> Result<(), Problem> {
    let app = &running.app;
    if running.class == RouteClass::HEALTH {
        return Ok(());
    }
    if app.stop.stage() != Stage::Running {
        return Err(Problem::STOPPING);
    }
    if running.class.is_api() {
        let path = request.uri().path();
        auth::check(&app.keys, request.method(), path, request.headers()).inspect_err(|_| {
            app.metrics.requests_denied.fetch_add(1, Relaxed);
        })?;
    }
    running.admitted = app.admit();
    if running.admitted {
        Ok(())
    } else {
        app.metrics.requests_refused.fetch_add(1, Relaxed);
        Err(Problem::BUSY)
    }
}

async fn run(app: &App, request: Request<Incoming>, id: &HeaderValue) -> Response {
    let Some(opened) = app.opened.get() else {
        return super::shell_routes::while_starting(app, &request, id);
    };
    let method = request.method().clone();
    let mut router = opened.router.clone();
    // Calling the handler may panic as well as its future: both happen inside the caught one.
    let called = AssertUnwindSafe(async move { router.call(request).await });
    match called.catch_unwind().await {
        Ok(Ok(response)) if response.status().as_u16() < 400 => response,
        Ok(Ok(response)) => normalise(response, &method, id).await,
        Ok(Err(impossible)) => match impossible {},
        Err(_) => {
            app.metrics.panics.fetch_add(1, Relaxed);
            tracing::error!(request_id = ?id, "a handler panicked; its request was answered 500");
            Problem::INTERNAL.response(id)
        }
    }
}

/// The same with a line in the log: only at debug, since at full rate logging would be most of
/// the work.
async fn logged(running: &Running, request: Request<Incoming>, id: &HeaderValue) -> Response {
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let response = run(&running.app, request, id).await;
    let status = response.status().as_u16();
    let took_us = running.started.elapsed().as_micros();
    tracing::debug!(request_id = ?id, ?method, ?path, status, took_us, "request");
    response
}
