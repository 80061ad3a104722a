//! Tests of deadlines, stages and problems that need no socket; those that do are in `sockets` and
//! `port`.

mod port;
mod sockets;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, Method, StatusCode};

use super::app::Deadlines;
use super::connection::{ConnState, Overdue};
use super::output::Output;
use super::pace::Pace;
use super::problem::normalise;
use super::registry::Registry;
use super::shares::Share;
use super::shutdown::{Stage, Stop};
use crate::problem::Problem;

const DEADLINES: Deadlines = Deadlines {
    head: Duration::from_millis(100),
    idle: Duration::from_millis(500),
    write: Duration::from_millis(300),
    pace: Pace { idle: Duration::from_secs(1), rate_min: 1_000, grace: Duration::from_secs(1) },
};

fn connection(now_ms: u64) -> Arc<ConnState> {
    of_share(now_ms, Arc::default())
}

fn of_share(now_ms: u64, share: Arc<Share>) -> Arc<ConnState> {
    Arc::new(ConnState::new(now_ms, None, false, share))
}

fn output(limit: usize) -> (Arc<Registry>, Output) {
    let registry = Arc::<Registry>::default();
    (Arc::clone(&registry), Output::new(limit, registry))
}

#[test]
fn a_first_head_has_a_deadline_and_later_ones_the_idle_timeout() {
    let state = connection(1000);
    assert_eq!(state.check(1050, DEADLINES), Ok(1100));
    assert_eq!(state.check(1100, DEADLINES), Err(Overdue::Head));
    state.request_begun(1060);
    assert_eq!(state.check(9000, DEADLINES), Ok(9100), "a running handler has no deadline here");
    state.request_over(9000);
    assert_eq!(state.check(9450, DEADLINES), Ok(9500), "looks again exactly at the idle deadline");
    assert_eq!(state.check(9500, DEADLINES), Err(Overdue::Idle));
}

#[test]
fn the_next_check_is_never_later_than_a_deadline_that_starts_now() {
    let state = connection(0);
    state.request_over(0);
    assert_eq!(state.check(10, DEADLINES), Ok(110), "a head begun at 10 is overdue at 110");
}

#[test]
fn beyond_the_output_limit_the_longest_stalled_connection_is_closed() {
    let (registry, output) = output(1_000);
    let (reading, first, second) = (connection(0), connection(0), connection(0));
    for state in [&reading, &first, &second] {
        registry.register(state);
    }
    let give = |state: &Arc<ConnState>, bytes, now_ms| {
        state.hold(bytes);
        output.count(state, now_ms);
    };
    give(&first, 400, 0);
    first.stall(1_000);
    give(&second, 400, 0);
    second.stall(2_000);
    assert!(output.has_room(0) && !output.has_room(1), "above half, one piece each");
    give(&reading, 400, 5_000);
    assert!(first.is_cut() && !second.is_cut() && !reading.is_cut());
    give(&reading, 400, 5_000);
    assert!(second.is_cut(), "a connection that is being cut already is not counted on again");
    output.forget(&first);
    assert_eq!(output.held(), 1_200);
}

#[test]
fn a_client_that_has_only_just_stalled_is_not_cut() {
    let (registry, output) = output(100);
    let state = connection(0);
    registry.register(&state);
    state.stall(1_000);
    state.hold(200);
    output.count(&state, 1_100);
    assert!(!state.is_cut(), "it stalled a tenth of a second ago");
}

#[test]
fn idle_connections_of_the_greediest_client_are_closed_first_and_running_requests_never() {
    let registry = Registry::default();
    let (greedy, other) = (Arc::<Share>::default(), Arc::<Share>::default());
    let newcomer = Arc::<Share>::default();
    let [busy, slow, first, second] = [1, 2, 4, 3].map(|ms| of_share(ms, Arc::clone(&greedy)));
    let idle = of_share(0, other);
    busy.request_begun(1);
    slow.request_begun(2);
    slow.want_body(2);
    let all = [&busy, &slow, &first, &second, &idle];
    for state in all {
        registry.register(state);
    }
    let now_ms = 10_000;
    assert_eq!(registry.make_room(100, &newcomer, 100), 0, "none has waited for long");
    let mut order = Vec::new();
    while registry.make_room(now_ms, &newcomer, 100) > 0 {
        let at = all.iter().position(|state| state.is_cut()).unwrap();
        assert_eq!(all[at].check(now_ms, DEADLINES), Err(Overdue::Crowded));
        assert_eq!(registry.make_room(now_ms, &newcomer, 100), 1, "one is on its way out");
        registry.forget(all[at]);
        order.push(at);
        all[at].request_begun(now_ms);
        all[at].have_body();
        assert!(all[at].check(now_ms, DEADLINES).is_ok(), "a request that came stays");
    }
    assert_eq!(order, [3, 2, 4, 1], "the second, the first, another's, then the slow one");
}

#[test]
fn an_address_with_more_than_its_share_makes_room_for_others_in_the_middle_of_requests() {
    let registry = Registry::default();
    let (greedy, other) = (Arc::<Share>::default(), Arc::<Share>::default());
    let [first, second, third] = [1, 2, 3].map(|ms| of_share(ms, Arc::clone(&greedy)));
    let modest = of_share(0, Arc::clone(&other));
    // It waits the longest.
    first.want_body(9_000);
    for state in [&first, &second, &third, &modest] {
        registry.register(state);
        state.request_begun(10_000);
        state.want_body(10_000);
    }
    third.have_body();
    assert_eq!(registry.make_room(10_001, &greedy, 50), 0, "its own connections are no room");
    assert_eq!(registry.make_room(10_001, &other, 75), 0, "three of four are within the share");
    assert_eq!(registry.make_room(10_001, &other, 74), 1);
    let cut = [&first, &second, &third, &modest].map(|state| state.is_cut());
    assert_eq!(cut, [true, false, false, false], "one that waits for its client");
}

#[test]
fn an_answer_that_is_read_too_slowly_is_overdue() {
    let state = connection(0);
    state.request_begun(0);
    state.stall(100);
    assert!(state.check(399, DEADLINES).is_ok());
    state.read_by_client(500);
    assert!(state.check(1_000, DEADLINES).is_ok(), "the grace has not passed");
    assert_eq!(state.check(1_100, DEADLINES), Err(Overdue::Write), "500 bytes of 1,000 a second");
    state.stall(1_200);
    state.read_by_client(5_000);
    assert!(state.check(2_100, DEADLINES).is_ok());
}

#[test]
fn stages_only_advance() {
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
