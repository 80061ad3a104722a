//! The server's own routes: health, readiness, metrics, the API description and its pages.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY};
use http::header::{RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use utoipa::OpenApi as _;

use super::app::App;
use super::problem::Problem;
use super::process_metrics;
use super::request_id;
use super::subsystem::Subsystem;
use crate::web;

/// The whole router: the shell's routes and every subsystem's.
///
/// # Errors
/// The API description cannot be written as JSON.
pub(super) fn build(app: &Arc<App>, subsystems: &[Arc<dyn Subsystem>]) -> anyhow::Result<Router> {
    let mut api = web::ShellApi::openapi();
    let mut router = Router::new();
    for subsystem in subsystems {
        api.merge(subsystem.openapi());
        router = router.merge(subsystem.router());
    }
    let document: Bytes = api.to_json()?.into();
    let docs: Bytes = web::docs_page(&serde_json::from_slice(&document)?).into();
    let page = |kind: &'static str, body: Bytes| get(move || async move { fixed(kind, body) });
    const JS: &str = "text/javascript; charset=utf-8";
    const CSS: &str = "text/css; charset=utf-8";
    const HTML: &str = "text/html; charset=utf-8";
    let (live, ready, metrics, landing) =
        (Arc::clone(app), Arc::clone(app), Arc::clone(app), Arc::clone(app));
    Ok(router
        .route("/healthz", get(move || async move { health(&live) }))
        .route("/readyz", get(move || async move { readiness(&ready) }))
        .route("/metrics", get(move || async move { scrape(&metrics) }))
        .route("/openapi.json", page("application/json", document))
        .route("/docs", page(HTML, docs))
        .route("/docs/app.js", page(JS, Bytes::from_static(web::DOCS_JS.as_bytes())))
        .route("/docs/style.css", page(CSS, Bytes::from_static(web::STYLE_CSS.as_bytes())))
        .route("/", get(move || async move { fixed(HTML, front_page(&landing).into()) }))
        .fallback(|headers: HeaderMap| async move { Problem::NOT_FOUND.response(&id(&headers)) })
        .method_not_allowed_fallback(|headers: HeaderMap| async move {
            Problem::METHOD.response(&id(&headers))
        }))
}

/// What is answered before the subsystems are open: health, readiness and metrics as ever, all
/// else 503.
pub(super) fn while_starting<B>(app: &App, request: &Request<B>, id: &HeaderValue) -> Response {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    match request.uri().path() {
        "/healthz" | "/readyz" | "/metrics" if !is_read => {
            let mut response = Problem::METHOD.response(id);
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET,HEAD"));
            response
        }
        "/healthz" => health(app),
        "/readyz" => readiness(app),
        "/metrics" => scrape(app),
        _ => Problem::STARTING.response(id),
    }
}

fn id(headers: &HeaderMap) -> HeaderValue {
    headers.get(request_id::HEADER).cloned().unwrap_or_else(|| HeaderValue::from_static("-"))
}

/// Alive: the process answers. Nothing is checked, so a busy disk does not get it restarted.
fn health(_app: &App) -> Response {
    json(StatusCode::OK, &serde_json::json!({ "status": "ok" }))
}

fn readiness(app: &App) -> Response {
    match app.readiness() {
        Ok(()) => match app.degraded() {
            reasons if reasons.is_empty() => {
                json(StatusCode::OK, &serde_json::json!({ "status": "ready" }))
            }
            reasons => {
                let reason = reasons.join("; ");
                let body = serde_json::json!({ "status": "degraded", "reason": reason });
                json(StatusCode::OK, &body)
            }
        },
        Err(why) => {
            let body = serde_json::json!({ "status": "not ready", "reason": why });
            let mut response = json(StatusCode::SERVICE_UNAVAILABLE, &body);
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
            response
        }
    }
}

fn scrape(app: &App) -> Response {
    for subsystem in app.opened.get().map_or(&[][..], |opened| &opened.subsystems) {
        subsystem.measure();
    }
    let mut text = app.recorder.render();
    app.metrics.render(&mut text, app.stop.open(), app.in_flight());
    process_metrics::render(&mut text);
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

fn front_page(app: &App) -> String {
    let subsystems = app.opened.get().map_or(&[][..], |opened| &opened.subsystems);
    web::landing_page(&web::Status {
        readiness: app.readiness(),
        degraded: app.degraded(),
        subsystems: subsystems.iter().map(|subsystem| subsystem.name()).collect(),
        uptime_ms: app.elapsed_ms(),
        connections: app.stop.open(),
        connections_total: app.metrics.connections.load(Relaxed),
        keys_required: app.keys.required(),
    })
}

fn json(status: StatusCode, value: &serde_json::Value) -> Response {
    let headers = [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")];
    (status, headers, value.to_string()).into_response()
}

/// A page or its parts: ours only, nothing from elsewhere, in nobody's frame.
fn fixed(kind: &'static str, body: Bytes) -> Response {
    const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
         connect-src 'self'; img-src 'self' data:; form-action 'none'; base-uri 'none'; \
         frame-ancestors 'none'";
    let headers = [
        (CONTENT_TYPE, kind),
        (CACHE_CONTROL, "no-cache"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
    ];
    (headers, Body::from(body)).into_response()
}
