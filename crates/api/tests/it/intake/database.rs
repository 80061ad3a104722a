//! The database that documents are forwarded to, as clients see it.

use std::sync::Arc;

use forebay_intake::{Database, ForwardOptions};
use forebay_sink::{OpenError, RowSink, ServerError};

use super::support::House;

/// A database that cannot be reached.
#[derive(Debug)]
struct Away;

impl Database for Away {
    fn name(&self) -> String {
        "elsewhere".into()
    }

    fn open(&self) -> Result<Box<dyn RowSink>, OpenError> {
        let (act, server) = ("connect".into(), "elsewhere".into());
        let source = "it is away".into();
        Err(OpenError::Server(ServerError::Unreachable { act, server, source }))
    }
}

#[tokio::test]
async fn a_replay_is_accepted_for_namespaces_that_the_database_refuses() {
    let house = House::with(|options| options.forward = Some(ForwardOptions::new(Arc::new(Away))));
    assert_eq!(house.documents("n", "{\"n\":1}").await.status, 201);
    let replay = async |query: &str| {
        house.send("POST", &format!("/v1/database/replay{query}"), &[], "").await
    };
    assert_eq!(replay("?namespace=n").await.error(), (404, "not_found".into()));
    assert_eq!(replay("?namespace=..").await.error(), (400, "name".into()));
    assert_eq!(replay("?bogus=1").await.error(), (400, "query".into()));
    let asked = replay("").await;
    assert_eq!(asked.status, 202, "{asked:?}");
    let (asked, state) = (asked.json(), house.get("/v1/database").await.json());
    for status in [asked, state] {
        assert_eq!(status["database"], "elsewhere", "{status}");
        assert_eq!(status["quarantined"], serde_json::json!([]), "{status}");
    }
}

#[tokio::test]
async fn without_a_database_there_is_no_state_and_no_replay() {
    let house = House::new();
    assert_eq!(house.get("/v1/database").await.error(), (404, "not_found".into()));
    let replay = house.send("POST", "/v1/database/replay", &[], "").await;
    assert_eq!(replay.error(), (404, "not_found".into()));
}
