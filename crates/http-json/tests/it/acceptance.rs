//! The promises of every source.

use forebay_pgcopy::ContentHash;
use forebay_sdk::acceptance;
use serde_json::json;

use crate::reading::{source, stream};
use crate::server::{Server, json as body};

/// Number of records.
const RECORDS: u32 = 500;

/// The hash of all rows, by the bytes of their tuples.
fn expected() -> ContentHash {
    let mut expected = ContentHash::default();
    for id in 1..=i64::from(RECORDS) {
        let name = format!("number {id}");
        let mut tuple = vec![0, 2, 0, 0, 0, 8];
        tuple.extend_from_slice(&id.to_be_bytes());
        tuple.extend_from_slice(&u32::try_from(name.len()).unwrap().to_be_bytes());
        tuple.extend_from_slice(name.as_bytes());
        expected.add(&tuple);
    }
    expected
}

#[tokio::test]
async fn an_api_keeps_the_promises_of_every_source() {
    let server = Server::start(|request| {
        let from = request.parameter("offset").unwrap().parse::<u32>().unwrap();
        let ids = from + 1..=(from + 60).min(RECORDS);
        let records = ids.map(|id| json!({ "id": id, "name": format!("number {id}") }));
        body(&serde_json::Value::Array(records.collect()).to_string())
    });
    let columns = json!([{ "name": "id", "type": "bigint" }, { "name": "name", "type": "text" }]);
    for columns in [columns, json!([])] {
        let settings = json!({ "columns": columns, "pagination": { "offset": {} } });
        let source = source(&server, settings, json!({}));
        acceptance::source(&source, &stream(json!({})), expected()).await.unwrap();
    }
}
