//! Delta tables pass the acceptance suite, and what is particular to them.

mod faults;
mod foreign;
mod interrupted;
mod readers;
mod upkeep;

use std::path::Path;
use std::sync::Arc;

use forebay_sdk::acceptance::{self, Capabilities};
use forebay_sdk::connector::Destination;
use forebay_sdk::registry::DestinationSettings as _;
use serde_json::json;

use super::super::location::Location;
use super::super::settings::DeltaDestination;
use super::DeltaTables;
use crate::Bucket;

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source())
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

fn tables(path: &Path) -> Arc<dyn Destination> {
    let settings = json!({ "path": path, "row_group_size": "1MiB" });
    serde_json::from_value::<DeltaDestination>(settings).unwrap().destination()
}

async fn passes(destination: Arc<dyn Destination>) {
    let capabilities = Capabilities { replace: true, upsert: false };
    if let Err(failure) = acceptance::destination(&destination, capabilities).await {
        panic!("{}", chain(&failure));
    }
}

#[tokio::test]
async fn tables_on_disk_are_a_destination() {
    let directory = tempfile::tempdir().unwrap();
    passes(tables(directory.path())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_in_a_bucket_are_a_destination() {
    let store = Arc::new(object_store::memory::InMemory::new());
    let bucket = Bucket::new(store, "b", "some/where".into());
    passes(Arc::new(DeltaTables::at(Location::Bucket(bucket)))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_of_a_server_of_s3_are_a_destination() {
    let server = super::super::tests::bucket::S3::start().await;
    let settings = server.settings("any where", "test-secret");
    passes(serde_json::from_value::<DeltaDestination>(settings).unwrap().destination()).await;
}
