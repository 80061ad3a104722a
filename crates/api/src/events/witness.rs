//! The routes of a witness for the logs of others (C2SP tlog-witness). They need no API key: what counts
//! is the signature of the log.
//!
//! Invariants:
//! - A body is received up to the size of the largest valid one, by a limited number of requests.
//! - A status that the protocol names has the body it names; errors of other kinds are problems.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use axum::routing::{get, post};
use forebay_base::error_chain::chain;
use forebay_events::checkpoint::ADD_CHECKPOINT_SIZE_MAX;
use forebay_events::witness::{WitnessRefusal, WitnessService};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode};

use super::problem::{self, Problem};
use super::{Shared, closing};
use crate::blocking::on_thread;

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
/// The type of a size in an answer of status 409.
const SIZE: HeaderValue = HeaderValue::from_static("text/x.tlog.size");

/// The routes.
pub(super) fn routes() -> Router<Arc<Shared>> {
    Router::new()
        .route("/witness/add-checkpoint", post(add_checkpoint))
        .route("/witness/key", get(key))
}

fn plain(status: StatusCode, kind: HeaderValue, text: String) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

async fn key(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    let key = witness(&shared).map(|witness| format!("{}\n", witness.key()));
    problem::answer(key.map(|key| plain(StatusCode::OK, TEXT, key)), &headers)
}

async fn add_checkpoint(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    problem::answer(answer(&shared, body).await, &headers)
}

fn witness(shared: &Shared) -> Result<Arc<WitnessService>, Problem> {
    // Closed with the store: its lock covers the files of the witness.
    shared.store()?;
    shared.witness.clone().ok_or_else(|| Problem::not_found("this server is not a witness"))
}

async fn answer(shared: &Shared, body: Body) -> Result<Response, Problem> {
    let witness = witness(shared)?;
    let permit = Arc::clone(&shared.witnessing).try_acquire_owned().map_err(|_| {
        let text = "too many requests to the witness are in progress";
        Problem::new(StatusCode::TOO_MANY_REQUESTS, "busy", text)
    })?;
    let body =
        tokio::time::timeout(shared.body_idle, axum::body::to_bytes(body, ADD_CHECKPOINT_SIZE_MAX));
    let body = body.await.map_err(|_| {
        let text = "the body did not arrive in time";
        Problem::new(StatusCode::REQUEST_TIMEOUT, "slow", text)
    })?;
    let body = body.map_err(|_| {
        let text = format!("the body was cut, or exceeds {ADD_CHECKPOINT_SIZE_MAX} bytes");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", text)
    })?;
    // While it is processed the store stays open.
    let store = shared.store().map_err(|_| closing())?;
    on_thread(move || {
        let added = witness.add_checkpoint(&body);
        drop(store);
        drop(permit);
        match added {
            Ok(line) => Ok(plain(StatusCode::OK, TEXT, line)),
            Err(refusal) => refused(refusal),
        }
    })
    .await
}

/// The answer of a status that the protocol names.
fn refused(refusal: WitnessRefusal) -> Result<Response, Problem> {
    let (status, code) = match &refusal {
        WitnessRefusal::Conflict { size } => {
            return Ok(plain(StatusCode::CONFLICT, SIZE, format!("{size}\n")));
        }
        WitnessRefusal::Malformed { .. } => (StatusCode::BAD_REQUEST, "request"),
        WitnessRefusal::UnknownLog { .. } => (StatusCode::NOT_FOUND, "unknown_log"),
        WitnessRefusal::NotSigned => (StatusCode::FORBIDDEN, "not_signed"),
        WitnessRefusal::Inconsistent => {
            tracing::error!("a log asked for a cosignature of a checkpoint that contradicts it");
            (StatusCode::UNPROCESSABLE_ENTITY, "inconsistent")
        }
        error => {
            tracing::error!(error = %chain(error), "the witness cannot store a checkpoint");
            (StatusCode::INTERNAL_SERVER_ERROR, "storage")
        }
    };
    Err(Problem::new(status, code, refusal.to_string()))
}

#[cfg(test)]
mod tests {
    use forebay_base::clock::{Clock, SystemClock};
    use forebay_base::fs::RealFs;
    use forebay_events::checkpoint::{
        AddCheckpoint, Checkpoint, NoteSignature, SignedNote, SigningKey,
    };
    use forebay_events::merkle::Tree;
    use forebay_events::{Options, Store};
    use http::Request;
    use tower::ServiceExt as _;

    use super::super::{Settings, subsystem};
    use super::*;

    fn router(dir: &std::path::Path, log: Option<&SigningKey>) -> Router {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let open = Store::open(Arc::new(RealFs), Arc::clone(&clock), dir, Options::default());
        let (store, _) = open.unwrap();
        let witness = log.map(|log| {
            let logs = vec![log.verifier().clone()];
            let dir = dir.join("witness");
            let open = WitnessService::open(Arc::new(RealFs), clock, &dir, "w", logs);
            Arc::new(open.unwrap())
        });
        let settings = Settings {
            witness,
            mappings: Default::default(),
            appends_max: 1,
            reads_max: 1,
            followers_max: 1,
            body_size_max: 1 << 20,
            body_memory_max: 1 << 20,
            body_idle: std::time::Duration::from_secs(10),
        };
        subsystem(store, &settings).router()
    }

    async fn send(router: &Router, body: String) -> (u16, String, String) {
        let request = Request::post("/witness/add-checkpoint").body(Body::from(body)).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        let kind = response.headers()[CONTENT_TYPE].to_str().unwrap().to_owned();
        let status = response.status().as_u16();
        let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (status, kind, String::from_utf8(body.to_vec()).unwrap())
    }

    fn request(key: &SigningKey, old: u64) -> AddCheckpoint {
        let origin = key.verifier().name().to_owned();
        let root = Tree::new().root();
        let checkpoint = Checkpoint { origin, size: 0, root, extensions: Vec::new() };
        AddCheckpoint { old, proof: Vec::new(), note: checkpoint.sign(key).unwrap() }
    }

    #[tokio::test]
    async fn every_answer_has_the_status_and_type_of_the_protocol() {
        let dir = tempfile::tempdir().unwrap();
        let log = SigningKey::from_seed("log.example", [1; 32]).unwrap();
        let router = router(dir.path(), Some(&log));
        let asked = request(&log, 0);
        let (status, kind, line) = send(&router, asked.encode()).await;
        assert_eq!((status, &*kind), (200, "text/plain; charset=utf-8"));
        let found = router
            .clone()
            .oneshot(Request::get("/witness/key").body(Body::empty()).unwrap())
            .await
            .unwrap();
        let key = axum::body::to_bytes(found.into_body(), 1 << 10).await.unwrap();
        let key: forebay_events::checkpoint::CosignerKey =
            str::from_utf8(&key).unwrap().trim().parse().unwrap();
        let mut note: SignedNote = asked.note.clone();
        note.add(NoteSignature::parse(line.trim_end()).unwrap()).unwrap();
        assert!(key.verify(&note).is_ok());

        let stranger = SigningKey::from_seed("other.example", [1; 32]).unwrap();
        let namesake = SigningKey::from_seed("log.example", [2; 32]).unwrap();
        let mut long = asked.clone();
        long.proof.push(Tree::new().root());
        for (body, expected) in [
            (request(&stranger, 0).encode(), 404),
            (request(&namesake, 0).encode(), 403),
            (request(&log, 1).encode(), 400),
            (long.encode(), 422),
            ("hello".to_owned(), 400),
            ("x".repeat(ADD_CHECKPOINT_SIZE_MAX + 1), 413),
        ] {
            let (status, ..) = send(&router, body).await;
            assert_eq!(status, expected);
        }
    }

    #[test]
    fn a_conflict_is_answered_with_the_size_alone() {
        let response = refused(WitnessRefusal::Conflict { size: 17 }).unwrap();
        assert_eq!((response.status().as_u16(), &response.headers()[CONTENT_TYPE]), (409, &SIZE));
        assert!(refused(WitnessRefusal::NotSigned).is_err());
    }

    #[tokio::test]
    async fn a_server_without_logs_to_witness_has_no_such_route() {
        let dir = tempfile::tempdir().unwrap();
        let (status, ..) = {
            let request = Request::post("/witness/add-checkpoint").body(Body::empty()).unwrap();
            let response = router(dir.path(), None).oneshot(request).await.unwrap();
            (response.status().as_u16(),)
        };
        assert_eq!(status, 404);
    }
}
