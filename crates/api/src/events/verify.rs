//! `GET /v1/events/verify`: the store verifies itself while it serves.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::State;
use axum::response::Response;
use forebay_base::waiting::Waiting;
use forebay_events::store::Verified;
use http::header::CACHE_CONTROL;
use http::{HeaderMap, HeaderValue, StatusCode, Uri};

use super::Shared;
use super::answers::Verification;
use super::problem::{self, Problem};
use crate::answer::pairs;
use crate::blocking::on_thread;

/// Maximum number of faults in an answer.
const FAULTS_MAX: usize = 1_000;

pub(super) async fn verify(
    State(shared): State<Arc<Shared>>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    problem::answer(answer(&shared, &uri).await, &headers)
}

async fn answer(shared: &Shared, uri: &Uri) -> Result<Response, Problem> {
    if !pairs(uri).is_empty() {
        return Err(Problem::bad("query", "this route has no query parameters"));
    }
    let one = Arc::clone(&shared.verifying).try_acquire_owned().map_err(|_| {
        let text = "another verification is in progress";
        Problem::new(StatusCode::TOO_MANY_REQUESTS, "busy", text)
    })?;
    let permit = shared.permit(&shared.reads, "events.reads_max")?;
    let store = shared.store()?;
    // Dropped with the request: a client that has disconnected does not keep the slot.
    let waiting = Waiting::default();
    let gone = waiting.gone();
    let verified = on_thread(move || {
        let started = Instant::now();
        let verified = store.verify(&[], &gone)?;
        drop(store);
        drop(permit);
        drop(one);
        Ok((verified, started.elapsed().as_secs_f64()))
    });
    let (verified, seconds) = verified.await?;
    drop(waiting);
    let mut response = problem::json(StatusCode::OK, &verification(&verified, seconds));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

fn verification(verified: &Verified, seconds: f64) -> Verification {
    let faults = &verified.faults;
    Verification {
        sound: faults.is_empty(),
        events: verified.events,
        pruned: verified.pruned,
        pruned_before_recording: verified.pruned_before_recording,
        leaf_bytes: verified.leaf_bytes,
        file_bytes: verified.file_bytes,
        segments: verified.segments,
        checkpoints: verified.checkpoints,
        unsigned_events: verified.unsigned,
        cosigned_events: verified.witnessed.map(|it| it.events),
        witnesses: verified.witnessed.map_or(0, |it| it.witnesses as u64),
        root: verified.root.map(|root| root.to_string()),
        seconds,
        faults: faults.iter().take(FAULTS_MAX).map(ToString::to_string).collect(),
        more_faults: faults.len().saturating_sub(FAULTS_MAX) as u64,
    }
}

#[cfg(test)]
mod tests {
    use forebay_events::store::Fault;

    use super::*;

    #[test]
    fn an_answer_names_a_limited_number_of_faults_and_counts_the_others() {
        let mut verified = Verified::default();
        assert!(verification(&verified, 1.0).sound);
        let fault = |first| Fault::Absent { first, last: first };
        verified.faults = (0..1_003).map(fault).collect();
        let answer = verification(&verified, 1.0);
        assert_eq!((answer.sound, answer.faults.len(), answer.more_faults), (false, 1_000, 3));
        assert!(answer.faults[7].starts_with("event 7 is absent"));
    }
}
