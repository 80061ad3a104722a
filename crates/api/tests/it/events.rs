//! What the routes of the event store promise: requests with a key, searches by words, verification.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forebay_api::Subsystem;
use forebay_api::events::{Settings, subsystem};
use forebay_base::clock::SystemClock;
use forebay_base::fs::RealFs;
use forebay_events::input::Mappings;
use forebay_events::{Options, Store};
use tempfile::TempDir;

use crate::intake::support::{Answer, directory, send};

const KEY: (&str, &str) = ("idempotency-key", "one");
const LINES: (&str, &str) = ("content-type", "application/x-ndjson");

fn open(dir: &Path) -> Arc<dyn Subsystem> {
    let options = Options { batch_events: 10, ..Options::balanced() };
    let clock = Arc::new(SystemClock::new());
    let (store, _) = Store::open(Arc::new(RealFs), clock, dir, options).unwrap();
    let settings = Settings {
        witness: None,
        mappings: Mappings::default(),
        appends_max: 4,
        reads_max: 4,
        followers_max: 4,
        body_size_max: 1 << 20,
        body_memory_max: 4 << 20,
        body_idle: Duration::from_secs(30),
    };
    subsystem(store, &settings)
}

/// A running event store.
struct House {
    events: Arc<dyn Subsystem>,
    dir: TempDir,
}

impl House {
    fn new() -> Self {
        let dir = directory();
        Self { events: open(&dir.path().join("events")), dir }
    }

    async fn reopen(self) -> Self {
        let Self { events, dir } = self;
        events.stop().await.unwrap();
        Self { events: open(&dir.path().join("events")), dir }
    }

    async fn post(&self, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        send(self.events.router(), "POST", path, headers, body.to_owned()).await
    }

    async fn get(&self, path: &str) -> Answer {
        send(self.events.router(), "GET", path, &[], "").await
    }

    async fn count(&self) -> usize {
        let answer = self.get("/v1/events?limit=1000").await;
        answer.json()["events"].as_array().unwrap().len()
    }
}

fn lines(count: usize) -> String {
    (0..count).map(|number| format!("{{\"n\":{number}}}\n")).collect()
}

#[tokio::test]
async fn a_request_with_a_key_is_stored_once_also_after_a_restart() {
    let mut house = House::new();
    let first = house.post("/v1/events", &[KEY, LINES], &lines(25)).await;
    assert_eq!((first.status, first.header("idempotent-replay")), (200, ""));
    for _ in 0..2 {
        let again = house.post("/v1/events", &[KEY, LINES], &lines(25)).await;
        assert_eq!((again.status, again.header("idempotent-replay")), (200, "true"));
        assert_eq!(again.json(), first.json());
        assert_eq!(house.count().await, 25);
        house = house.reopen().await;
    }
    let rejected =
        house.post("/v1/events/cef", &[("idempotency-key", "two")], "x\nCEF:0|a|b|c|d|e|1|\n");
    let rejected = rejected.await;
    assert_eq!(rejected.status, 207);
    let again =
        house.post("/v1/events/cef", &[("idempotency-key", "two")], "x\nCEF:0|a|b|c|d|e|1|\n");
    let again = again.await;
    assert_eq!((again.status, again.json()), (207, rejected.json()));
}

#[tokio::test]
async fn a_key_with_another_body_stream_or_format_is_422_and_a_wrong_one_400() {
    let house = House::new();
    assert_eq!(house.post("/v1/events", &[KEY, LINES], &lines(3)).await.status, 200);
    for (path, body) in [
        ("/v1/events", lines(2)),
        ("/v1/events", lines(4)),
        ("/v1/events?stream=other", lines(3)),
        ("/v1/events/text", lines(3)),
    ] {
        let answer = house.post(path, &[KEY], &body).await;
        assert_eq!(answer.error(), (422, "idempotency_key_reused".to_owned()), "{path}");
    }
    assert_eq!(house.count().await, 3);
    let long = "a".repeat(256);
    for key in ["", long.as_str()] {
        let answer = house.post("/v1/events", &[("idempotency-key", key)], &lines(1)).await;
        assert_eq!(answer.error(), (400, "idempotency_key".to_owned()));
    }
}

#[tokio::test]
async fn whole_words_are_found() {
    let house = House::new();
    let body = "was rejected, twice\nunrejected\nrejected10\nfrom 10.1.2.3:80\n";
    assert_eq!(house.post("/v1/events/raw", &[], body).await.status, 200);
    for (query, expected) in
        [("word=rejected", 1), ("contains=rejected", 3), ("word=10.1.2.3", 1), ("word=10.1.2", 1)]
    {
        let answer = house.get(&format!("/v1/events?{query}")).await;
        assert_eq!(answer.json()["events"].as_array().unwrap().len(), expected, "{query}");
    }
    assert_eq!(house.get("/v1/events?word=").await.status, 400);
}

#[tokio::test]
async fn a_store_is_verified_while_it_serves() {
    let house = House::new();
    assert_eq!(house.post("/v1/events", &[LINES], &lines(30)).await.status, 200);
    let answer = house.get("/v1/events/verify").await;
    let json = answer.json();
    assert_eq!((answer.status, &json["sound"], &json["events"]), (200, &true.into(), &30.into()));
    assert_eq!(json["faults"].as_array().unwrap().len(), 0);
    assert_eq!(house.get("/v1/events/verify?since=1").await.error().0, 400);
}
