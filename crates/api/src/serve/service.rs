//! One request: its admission, the router, and the common form of the response.
//!
//! In this order, cheapest first: the gate (host and origin), the stage, the key, the limit of
//! requests in progress. Health and metrics pass the gate alone.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use axum::body::Body;
use axum::response::Response;
use futures_util::FutureExt as _;
use http::header::{
    ACCEPT, ACCESS_CONTROL_EXPOSE_HEADERS, CONNECTION, EXPECT, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request};
use hyper::body::{Body as _, Incoming};
use tower::Service as _;

use super::body::{Running, Slot, Tracked};
use super::connection::Connection;
use super::followers::Endless;
use super::gate::{From, Gate};
use super::http_metrics::RouteClass;
use super::pace::PacedBody;
use super::problem::normalise;
use super::protocol::{Protocol, Refusal};
use super::shares::Full;
use super::shutdown::Stage;
use super::{auth, login, presign, request_id, whole};
use crate::idempotency;
use crate::keys::Grant;
use crate::problem::Problem;

const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// Responds to `request`. Never fails: every error becomes a response.
pub(super) async fn answer(
    conn: Arc<Connection>,
    mut request: Request<Incoming>,
) -> http::Response<Tracked> {
    let class = RouteClass::of(request.uri().path());
    let id = conn.app.ids.of(request.headers());
    request.headers_mut().insert(request_id::HEADER, id.clone());
    let started = Instant::now();
    conn.state.request_begun(conn.app.elapsed_ms_at(started));
    let has_body = !request.body().is_end_stream();
    let asks = request.headers().contains_key(EXPECT);
    let slot = Arc::new(Slot::new(Arc::clone(&conn), has_body));
    let (status, follower) = (None, None);
    let mut running = Running { started, class, slot, status, conn, follower };

    let (mut response, from) = match running.app().gate.check(&request, running.conn.state.local) {
        Ok(from) => (behind_gate(&running, request, &id, &from).await, from),
        Err(problem) => {
            running.app().metrics.requests_foreign.fetch_add(1, Relaxed);
            (problem.response(&id), From::Direct)
        }
    };
    running.slot.end();
    if response.extensions_mut().remove::<Endless>().is_some() {
        response = follow(&mut running, response, &id);
    }
    // A client that asks whether to send its body was answered.
    if !asks {
        running.slot.read_rest().await;
    }
    let headers = response.headers_mut();
    headers.insert(request_id::HEADER, id);
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(RESOURCE_POLICY, HeaderValue::from_static("same-origin"));
    Gate::open_to(&from, headers);
    close_unless_usable(&running, headers);
    running.status = Some(response.status());
    response.map(|body| Tracked::new(body, running))
}

/// Counts the client of a response without an end, or refuses it.
fn follow(running: &mut Running, response: Response, id: &HeaderValue) -> Response {
    running.follower = running.app().followers.admit();
    if running.follower.is_some() {
        return response;
    }
    running.app().metrics.followers_refused.fetch_add(1, Relaxed);
    Problem::FOLLOWERS.response(id)
}

/// Informs the client that the connection is closed after this response. Otherwise it may send its next
/// request on a connection that is being closed, and get no response.
fn close_unless_usable(running: &Running, headers: &mut HeaderMap) {
    // The connection may not have been polled since the stop.
    if running.app().stop.stage() != Stage::Running || running.slot.has_unread_body() {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
}

/// Responds to a `request` on another port. Never fails either.
pub(super) async fn answer_port(
    conn: Arc<Connection>,
    port: Arc<dyn Protocol>,
    mut request: Request<Incoming>,
) -> http::Response<Tracked> {
    let id = conn.app.ids.of(request.headers());
    request.headers_mut().insert(request_id::HEADER, id.clone());
    let started = Instant::now();
    conn.state.request_begun(conn.app.elapsed_ms_at(started));
    let has_body = !request.body().is_end_stream();
    let asks = request.headers().contains_key(EXPECT);
    let slot = Arc::new(Slot::new(Arc::clone(&conn), has_body));
    let class = RouteClass::S3;
    let (status, follower) = (None, None);
    let mut running = Running { started, class, slot, status, conn, follower };
    let from = running.app().gate.sender(&request);
    let mut response = match Gate::preflight(&from, &request) {
        Some(answer) => Gate::for_port(answer, &request),
        None => on_port(&running, &port, request, &id).await,
    };
    running.slot.end();
    // A client that asks whether to send its body was answered.
    if !asks {
        running.slot.read_rest().await;
    }
    let headers = response.headers_mut();
    headers.insert(request_id::HEADER, id);
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(RESOURCE_POLICY, HeaderValue::from_static("same-origin"));
    Gate::open_to(&from, headers);
    if matches!(from, From::Permitted(_)) {
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("*"));
        headers.insert(RESOURCE_POLICY, HeaderValue::from_static("cross-origin"));
    }
    close_unless_usable(&running, headers);
    running.status = Some(response.status());
    response.map(|body| Tracked::new(body, running))
}

async fn on_port(
    running: &Running,
    port: &Arc<dyn Protocol>,
    request: Request<Incoming>,
    id: &HeaderValue,
) -> Response {
    let refuse = |problem| port.refuse(&Refusal::new(problem), id);
    if running.app().stop.stage() != Stage::Running {
        return refuse(Problem::STOPPING);
    }
    if let Err(full) = running.slot.admit(None) {
        running.app().metrics.requests_refused.fetch_add(1, Relaxed);
        return refuse(match full {
            Full::All => Problem::BUSY,
            Full::Client => Problem::CLIENT_BUSY,
        });
    }
    let slot = Arc::clone(&running.slot);
    let request = request.map(|body| Body::new(PacedBody::new(body, slot)));
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let answerer = Arc::clone(port);
    let called = AssertUnwindSafe(async move { answerer.answer(request).await });
    let Ok(response) = called.catch_unwind().await else {
        running.app().metrics.panics.fetch_add(1, Relaxed);
        tracing::error!(request_id = ?id, "request handler panicked; the response is 500");
        return refuse(Problem::INTERNAL);
    };
    let status = response.status().as_u16();
    let took_us = running.started.elapsed().as_micros();
    tracing::debug!(request_id = ?id, ?method, ?path, status, took_us, "request");
    if running.slot.was_slow() && status >= 400 {
        return refuse(Problem::BODY_SLOW);
    }
    response
}

async fn behind_gate(
    running: &Running,
    mut request: Request<Incoming>,
    id: &HeaderValue,
    from: &From,
) -> Response {
    if let Some(answer) = Gate::preflight(from, &request) {
        return answer;
    }
    match admit(running, &request, from) {
        Err(problem) if problem.asks_for_key() && is_page(&request) => {
            return login::redirect(&request);
        }
        Err(problem) => return problem.response(id),
        Ok(None) => {}
        Ok(Some(grant)) => {
            presign::strip(&mut request);
            idempotency::bind(request.headers_mut(), &String::from_utf8_lossy(&grant.id));
            request.extensions_mut().insert(grant);
        }
    }
    if let Err(problem) = whole::check(&request) {
        return problem.response(id);
    }
    if let Some(login) = login::route(running.app(), &running.conn.state, &request, from) {
        return Box::pin(login.answer(running, request, id)).await;
    }
    let slot = Arc::clone(&running.slot);
    let request = request.map(|body| Body::new(PacedBody::new(body, slot)));
    let response = if tracing::enabled!(tracing::Level::DEBUG) {
        Box::pin(logged(running, request, id)).await
    } else {
        run(running, request, id).await
    };
    // Whatever a handler responded to a body that ended early, this is the reason.
    if running.slot.was_slow() && response.status().as_u16() >= 400 {
        return Problem::BODY_SLOW.response(id);
    }
    response
}

/// Makes every decision before a handler runs, cheapest first.
///
/// Returns what the request's key permits, if it needs one.
fn admit(
    running: &Running,
    request: &Request<Incoming>,
    from: &From,
) -> Result<Option<Grant>, Problem> {
    let app = running.app();
    if running.class == RouteClass::HEALTH {
        return Ok(None);
    }
    if app.stop.stage() != Stage::Running {
        return Err(Problem::STOPPING);
    }
    let grant = if running.class.is_api() {
        auth::check(app, request, from).inspect_err(|_| {
            app.metrics.requests_denied.fetch_add(1, Relaxed);
        })?
    } else {
        None
    };
    let key = grant.as_ref().map(|grant| app.shares.of_key(grant.id));
    running.slot.admit(key).map_err(|full| {
        app.metrics.requests_refused.fetch_add(1, Relaxed);
        match full {
            Full::All => Problem::BUSY,
            Full::Client => Problem::CLIENT_BUSY,
        }
    })?;
    Ok(grant)
}

/// Returns whether the client is a browser that loads a page, not a program.
fn is_page<B>(request: &Request<B>) -> bool {
    let accept = request.headers().get(ACCEPT).map(HeaderValue::as_bytes).unwrap_or_default();
    request.method() == Method::GET && accept.windows(9).any(|word| word == b"text/html")
}

async fn run(running: &Running, request: Request<Body>, id: &HeaderValue) -> Response {
    let app = running.app();
    let Some(opened) = app.opened.get() else {
        return super::shell_routes::while_starting(app, &request, id);
    };
    let method = request.method().clone();
    // Calling the handler may panic as well as its future: both happen inside the caught one.
    let called = AssertUnwindSafe(async {
        let answer = running.conn.routers(&opened.routers).of(request.uri()).call(request);
        answer.await
    });
    match called.catch_unwind().await {
        Ok(Ok(response)) if response.status().as_u16() < 400 => response,
        Ok(Ok(response)) => Box::pin(normalise(response, &method, id)).await,
        Ok(Err(impossible)) => match impossible {},
        Err(_) => {
            app.metrics.panics.fetch_add(1, Relaxed);
            tracing::error!(request_id = ?id, "request handler panicked; the response is 500");
            Problem::INTERNAL.response(id)
        }
    }
}

/// The same with a log line: only at debug, since at full rate logging would be most of
/// the work.
async fn logged(running: &Running, request: Request<Body>, id: &HeaderValue) -> Response {
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let response = run(running, request, id).await;
    let status = response.status().as_u16();
    let took_us = running.started.elapsed().as_micros();
    tracing::debug!(request_id = ?id, ?method, ?path, status, took_us, "request");
    response
}
