//! Claims about deadlines, stages and problems that need no socket; those that do are in `sockets`.

mod sockets;

use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, Method, StatusCode};

use super::app::Deadlines;
use super::connection::{ConnState, Overdue};
use super::problem::{Problem, normalise};
use super::shutdown::{Stage, Stop};

const DEADLINES: Deadlines = Deadlines {
    head: Duration::from_millis(100),
    idle: Duration::from_millis(500),
    write: Duration::from_millis(300),
};

#[test]
fn a_first_head_must_come_in_time_and_later_ones_may_be_waited_for() {
    let state = ConnState::new(1000);
    assert_eq!(state.check(1050, DEADLINES), Ok(1100));
    assert_eq!(state.check(1100, DEADLINES), Err(Overdue::Head));
    state.request_begun(1060);
    assert_eq!(state.check(9000, DEADLINES), Ok(9100), "a running handler has no deadline here");
    state.request_over(9000);
    assert_eq!(state.check(9450, DEADLINES), Ok(9500), "looks again exactly at the idle deadline");
    assert_eq!(state.check(9500, DEADLINES), Err(Overdue::Idle));
}

#[test]
fn the_next_look_is_never_later_than_a_deadline_that_starts_now() {
    let state = ConnState::new(0);
    state.request_over(0);
    assert_eq!(state.check(10, DEADLINES), Ok(110), "a head begun at 10 is overdue at 110");
}

#[test]
fn stages_only_go_forward() {
    let stop = Stop::default();
    stop.advance(Stage::Aborting);
    stop.advance(Stage::Draining);
    assert_eq!(stop.stage(), Stage::Aborting);
}

#[test]
fn connections_are_counted_up_to_the_limit() {
    let stop = Stop::default();
    assert!(stop.enter(2) && stop.enter(2) && !stop.enter(2));
    stop.leave();
    assert!(stop.enter(2));
    assert_eq!(stop.open(), 2);
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn body(response: Response) -> serde_json::Value {
    let bytes = block_on(axum::body::to_bytes(response.into_body(), 1 << 16)).unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

#[test]
fn a_problem_has_code_message_and_the_requests_id() {
    let response = Problem::BUSY.response(&HeaderValue::from_static("id-1"));
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(response.headers()[RETRY_AFTER], "1");
    let value = body(response);
    assert_eq!(value["error"]["code"], "too_many_requests");
    assert_eq!(value["error"]["request_id"], "id-1");
    let response = Problem::KEY_MISSING.response(&HeaderValue::from_static("id-1"));
    assert!(response.headers().contains_key(WWW_AUTHENTICATE));
}

#[test]
fn a_raw_problem_is_a_whole_http_message() {
    let raw = Problem::CONNECTIONS.raw();
    let (head, body) = raw.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{head}");
    assert!(head.contains(&format!("content-length: {}", body.len())), "{head}");
}

#[test]
fn plain_text_errors_become_problems_and_others_stay() {
    let id = HeaderValue::from_static("id-2");
    let plain = (StatusCode::PAYLOAD_TOO_LARGE, "length limit exceeded").into_response();
    let response = block_on(normalise(plain, &Method::PUT, &id));
    assert_eq!(response.headers()[CONTENT_TYPE], "application/json");
    let value = body(response);
    assert_eq!(value["error"]["code"], "payload_too_large");
    assert_eq!(value["error"]["message"], "length limit exceeded");
    let empty = StatusCode::NOT_ACCEPTABLE.into_response();
    assert_eq!(
        body(block_on(normalise(empty, &Method::GET, &id)))["error"]["message"],
        "Not Acceptable"
    );
    let mut own = Response::new(Body::from("{\"mine\":1}"));
    *own.status_mut() = StatusCode::CONFLICT;
    own.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    assert_eq!(body(block_on(normalise(own, &Method::GET, &id)))["mine"], 1);
}
