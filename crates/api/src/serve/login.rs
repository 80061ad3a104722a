//! `GET /login`, `POST /login` and `POST /logout`: login sessions of browsers.
//!
//! Without keys there is nothing to log in to, and the page says so. The page to return to comes
//! from the address and may only be a path of this server.

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION, REFERRER_POLICY, SET_COOKIE,
};
use http::{HeaderValue, Method, Request, StatusCode};
use hyper::body::Incoming;

use super::app::App;
use super::auth;
use super::body::Running;
use super::connection::ConnState;
use super::gate::From;
use super::pace::PacedBody;
use crate::pages as web;
use crate::problem::Problem;
use crate::query;

/// Maximum size of the form.
const FORM_SIZE_MAX: usize = 8 << 10;
/// The page after a login if none was requested.
const HOME: &str = "/";

/// The kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Login {
    /// The login page.
    Show,
    /// A key, from the form of the page.
    Enter,
    /// The logout.
    Leave,
    /// A form that was not sent by a page of this server.
    Foreign,
}

/// Returns the kind of a request, if it concerns the login.
pub(super) fn route(
    app: &App,
    _conn: &ConnState,
    request: &Request<Incoming>,
    from: &From,
) -> Option<Login> {
    app.opened.get()?;
    let login = match (request.method(), request.uri().path()) {
        (&Method::GET, "/login") => return Some(Login::Show),
        (&Method::POST, "/login") => Login::Enter,
        (&Method::POST, "/logout") => Login::Leave,
        _ => return None,
    };
    // A login or logout is a change like any other.
    Some(if *from == From::Own { login } else { Login::Foreign })
}

/// Redirects a user who must log in to the login page, and back afterwards.
pub(super) fn redirect<B>(request: &Request<B>) -> Response {
    let target = request.uri().path_and_query().map_or(HOME, |target| target.as_str());
    let next: String = url::form_urlencoded::byte_serialize(target.as_bytes()).collect();
    see_other(&format!("/login?next={next}"))
}

impl Login {
    /// Responds to the request.
    pub(super) async fn answer(
        self,
        running: &Running,
        request: Request<Incoming>,
        id: &HeaderValue,
    ) -> Response {
        let (app, tls) = (running.app(), running.conn.state.tls);
        match self {
            Self::Foreign => Problem::ORIGIN.response(id),
            Self::Show => show(StatusCode::OK, &next_of(request.uri().query()), false),
            Self::Leave => {
                let mut response = see_other("/login");
                let cookie = app.sessions.end(request.headers(), tls);
                response.headers_mut().insert(SET_COOKIE, cookie);
                response
            }
            Self::Enter => {
                let body = PacedBody::new(request.into_body(), Arc::clone(&running.slot));
                match axum::body::to_bytes(Body::new(body), FORM_SIZE_MAX).await {
                    Ok(form) => enter(app, &form, tls),
                    Err(_) if running.slot.was_slow() => Problem::BODY_SLOW.response(id),
                    Err(_) => Problem::FORM.response(id),
                }
            }
        }
    }
}

/// Handles the form.
fn enter(app: &App, form: &[u8], tls: bool) -> Response {
    let form = String::from_utf8_lossy(form);
    let field = |name| query::first(&form, name).map(|value| value.trim().to_owned());
    let next = path_of_ours(field("next").as_deref());
    let entered = app
        .keys
        .grant(field("key").as_deref().map(str::as_bytes))
        .map_err(auth::problem)
        .and_then(|grant| app.sessions.begin(grant.id, tls).map_err(|_| Problem::INTERNAL));
    match entered {
        Ok(cookie) => {
            let mut response = see_other(&next);
            response.headers_mut().insert(SET_COOKIE, cookie);
            response
        }
        Err(problem) if problem.asks_for_key() => show(StatusCode::UNAUTHORIZED, &next, true),
        Err(problem) => problem.response(&HeaderValue::from_static("-")),
    }
}

fn next_of(query: Option<&str>) -> String {
    path_of_ours(query::first(query.unwrap_or_default(), "next").as_deref())
}

/// Returns a path of this server, or the home page: `//host` and `/\host` lead elsewhere.
fn path_of_ours(next: Option<&str>) -> String {
    let ours = next.filter(|next| {
        next.starts_with('/')
            && !next.starts_with("//")
            && !next.contains('\\')
            && next.bytes().all(|byte| byte.is_ascii_graphic())
    });
    ours.unwrap_or(HOME).to_owned()
}

fn show(status: StatusCode, next: &str, refused: bool) -> Response {
    const POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self' data:; \
         form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
    let mut response = Response::new(Body::from(web::login_page(next, refused)));
    *response.status_mut() = status;
    for (name, value) in [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CACHE_CONTROL, "no-store"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (REFERRER_POLICY, "same-origin"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

fn see_other(target: &str) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    let target = HeaderValue::from_str(target).unwrap_or(HeaderValue::from_static(HOME));
    response.headers_mut().insert(LOCATION, target);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_to_return_to_is_the_first_that_is_named() {
        for (query, target) in [
            (Some("next=%2Fdocs%3Fa%3Db"), "/docs?a=b"),
            (Some("n%65xt=/docs&next=/"), "/docs"),
            (Some("next=%2F%2Fevil.test&next=/docs"), "/"),
            (Some("next=/%FF"), "/"),
            (Some("next"), "/"),
            (None, "/"),
        ] {
            assert_eq!(next_of(query), target, "{query:?}");
        }
    }

    #[test]
    fn redirects_lead_only_to_a_path_of_this_server() {
        for (next, target) in [
            (Some("/v1/events/search?q=a%20b"), "/v1/events/search?q=a%20b"),
            (Some("//evil.test"), "/"),
            (Some("/\\evil.test"), "/"),
            (Some("https://evil.test"), "/"),
            (Some("/a\r\nset-cookie: x"), "/"),
            (Some(""), "/"),
            (None, "/"),
        ] {
            assert_eq!(path_of_ours(next), target, "{next:?}");
        }
    }
}
