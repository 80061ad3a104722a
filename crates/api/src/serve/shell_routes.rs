//! The server's own routes: health, readiness, metrics, the API description and its pages.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use axum::body::Body;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY};
use http::header::{HOST, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};

use super::app::App;
use super::auth;
use super::http_metrics::Now;
use super::parameters::{self, Known};
use super::process_metrics;
use super::request_id;
use crate::Subsystem;
use crate::pages::{self as web, Health, State};
use crate::problem::Problem;

/// The complete routes: the shell's and those of all subsystems.
#[derive(Clone)]
pub(super) struct Routers {
    plain: Router,
    /// The same routes with everything around them that looks at the parameters in a query.
    with_query: Router,
}

impl Routers {
    /// Returns the router for a request. What is around routes costs each request that passes through it
    /// several allocations, and most have no query.
    pub(super) fn of(&mut self, uri: &Uri) -> &mut Router {
        if uri.query().is_some() { &mut self.with_query } else { &mut self.plain }
    }
}

/// Builds the complete routes.
///
/// # Errors
/// The API description cannot be serialized.
pub(super) fn build(app: &Arc<App>, subsystems: &[Arc<dyn Subsystem>]) -> anyhow::Result<Routers> {
    let mut api = web::shell_api();
    let (mut plain, mut work) = (Router::new(), Router::new());
    for subsystem in subsystems {
        api.merge(subsystem.openapi());
        plain = plain.merge(subsystem.router());
        work = work.merge(subsystem.work());
    }
    let bare = plain.clone().merge(work.clone());
    if work.has_routes() {
        work = subsystems.iter().fold(work, |work, subsystem| subsystem.around_work(work));
    }
    let plain = plain.merge(work);
    let mut with_query = plain.clone();
    for subsystem in subsystems {
        subsystem.start(&bare, &plain);
        with_query = subsystem.around_queries(with_query);
    }
    let document: Bytes = api.to_json()?.into();
    let described: serde_json::Value = serde_json::from_slice(&document)?;
    let docs: Bytes = web::docs_page(&described).into();
    let known = Arc::new(Known::of(&described));
    let checked =
        with_links(app, with_query).route_layer(from_fn_with_state(known, parameters::check));
    Ok(Routers {
        plain: with_shell(app, with_links(app, plain), document.clone(), docs.clone()),
        with_query: with_shell(app, checked, document, docs),
    })
}

/// Adds the routes that make signed URLs and images of the data directory.
fn with_links(app: &Arc<App>, router: Router) -> Router {
    let (signer, imager) = (Arc::clone(app), Arc::clone(app));
    router
        .route(
            super::presign::PATH,
            post(move |request: Request<Body>| {
                super::presign::create(Arc::clone(&signer), request)
            }),
        )
        .route(
            super::image::PATH,
            post(move |headers: HeaderMap| super::image::create(Arc::clone(&imager), headers)),
        )
}

/// Adds the shell's own routes, and responses for requests that match none.
fn with_shell(app: &Arc<App>, router: Router, document: Bytes, docs: Bytes) -> Router {
    let page = |kind: &'static str, body: Bytes| get(move || async move { fixed(kind, body) });
    const JS: &str = "text/javascript; charset=utf-8";
    const CSS: &str = "text/css; charset=utf-8";
    const HTML: &str = "text/html; charset=utf-8";
    let (live, ready, metrics, landing) =
        (Arc::clone(app), Arc::clone(app), Arc::clone(app), Arc::clone(app));
    router
        .route("/healthz", get(move || async move { health(&live) }))
        .route("/readyz", get(move |headers: HeaderMap| async move { readiness(&ready, &headers) }))
        .route("/metrics", get(move || async move { scrape(&metrics) }))
        .route("/openapi.json", page("application/json", document))
        .route("/docs", page(HTML, docs))
        .route("/docs/app.js", page(JS, Bytes::from_static(web::DOCS_JS.as_bytes())))
        .route("/docs/style.css", page(CSS, Bytes::from_static(web::STYLE_CSS.as_bytes())))
        .route(
            "/",
            get(move |headers: HeaderMap| async move {
                fixed(HTML, front_page(&landing, &headers).into())
            }),
        )
        .fallback(|headers: HeaderMap| async move { Problem::NOT_FOUND.response(&id(&headers)) })
        .method_not_allowed_fallback(|headers: HeaderMap| async move {
            Problem::METHOD.response(&id(&headers))
        })
}

/// Responds before the subsystems are open: health, readiness and metrics as usual, anything
/// else with 503.
pub(super) fn while_starting<B>(app: &App, request: &Request<B>, id: &HeaderValue) -> Response {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    match request.uri().path() {
        "/healthz" | "/readyz" | "/metrics" if !is_read => {
            let mut response = Problem::METHOD.response(id);
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET,HEAD"));
            response
        }
        "/healthz" => health(app),
        "/readyz" => readiness(app, request.headers()),
        "/metrics" => scrape(app),
        _ => Problem::STARTING.response(id),
    }
}

fn id(headers: &HeaderMap) -> HeaderValue {
    headers.get(request_id::HEADER).cloned().unwrap_or_else(|| HeaderValue::from_static("-"))
}

/// Liveness: the process responds. Nothing is checked, so that a slow disk does not cause a
/// restart.
fn health(_app: &App) -> Response {
    json(StatusCode::OK, Health::new(State::Ok))
}

/// Readiness: whether the server accepts work, and why not.
///
/// The reasons name paths, hosts and users, so once keys exist they are shown only with a key.
/// Without one the response names only the subsystem.
fn readiness(app: &App, headers: &HeaderMap) -> Response {
    let detailed = auth::may_see_details(app, headers);
    let shown = |why: &str| match why.split_once(": ") {
        Some((subsystem, _)) if !detailed => {
            format!("{subsystem}: see the server's log, or send an API key")
        }
        _ => why.to_owned(),
    };
    match app.readiness() {
        Ok(()) => match app.degraded() {
            reasons if reasons.is_empty() => json(StatusCode::OK, Health::new(State::Ready)),
            reasons => {
                let reasons: Vec<_> = reasons.iter().map(|why| shown(why)).collect();
                json(StatusCode::OK, Health::because(State::Degraded, reasons.join("; ")))
            }
        },
        Err(why) => {
            let health = Health::because(State::NotReady, shown(&why));
            let mut response = json(StatusCode::SERVICE_UNAVAILABLE, health);
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
    let now = Now {
        connections: app.stop.open(),
        in_flight: app.shares.in_flight(),
        followers: app.followers.count(),
        output: app.output.held(),
    };
    app.metrics.render(&mut text, &now);
    process_metrics::render(&mut text);
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

fn front_page(app: &App, headers: &HeaderMap) -> String {
    let subsystems = app.opened.get().map_or(&[][..], |opened| &opened.subsystems);
    let detailed = auth::may_see_details(app, headers);
    let shown = |why: String| match why.split_once(": ") {
        Some((subsystem, _)) if !detailed => format!("{subsystem} (log in for the reason)"),
        _ => why,
    };
    // The gate has found it to be a name of this server.
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or("localhost");
    let scheme = if app.tls { "https" } else { "http" };
    web::landing_page(&web::Status {
        address: format!("{scheme}://{host}"),
        readiness: app.readiness().map_err(shown),
        degraded: app.degraded().into_iter().map(shown).collect(),
        logged_in: app.keys.required().then(|| app.sessions.find(headers).is_some()),
        subsystems: subsystems.iter().map(|subsystem| subsystem.name()).collect(),
        uptime_ms: app.elapsed_ms(),
        connections: app.stop.open(),
        connections_total: app.metrics.connections.load(Relaxed),
        keys_required: app.keys.required(),
    })
}

fn json(status: StatusCode, health: Health) -> Response {
    let headers = [(CACHE_CONTROL, "no-store")];
    (status, headers, Json(health)).into_response()
}

/// Headers of a page or its parts: nothing may be loaded from other sites, and no page may frame
/// it.
fn fixed(kind: &'static str, body: Bytes) -> Response {
    const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
         connect-src 'self'; img-src 'self' data:; form-action 'self'; base-uri 'none'; \
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
