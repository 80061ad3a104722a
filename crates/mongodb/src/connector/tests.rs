//! A server of MongoDB's protocol passes the acceptance suite in both directions, and what is particular
//! to it.

mod feeds;
mod reading;
mod values;
mod writing;

use std::sync::Arc;

use forebay_sdk::connector::{Destination, Source};
use forebay_sdk::settings::StreamSettings;
use mongodb::bson::{Bson, Document, doc};
use serde_json::{Value, json};

use super::{MongoDestination, MongoSource};
use crate::settings::Settings;

use forebay_testing::Ferret;

/// Settings for a server, with others.
fn settings(ferret: &Ferret, other: Value) -> Settings {
    let mut settings = json!({ "url": ferret.url("t"), "wait_for_late_writes": "0s" });
    if let (Some(settings), Value::Object(other)) = (settings.as_object_mut(), other) {
        settings.extend(other);
    }
    serde_json::from_value(settings).unwrap()
}

/// Settings that lose nothing on a server without decimals.
fn as_text(ferret: &Ferret) -> Settings {
    settings(ferret, json!({ "json": "text", "decimals": "text", "moments": "text" }))
}

fn source(settings: &Settings) -> Arc<dyn Source> {
    Arc::new(MongoSource::new(settings))
}

fn destination(settings: &Settings) -> Arc<dyn Destination> {
    Arc::new(MongoDestination::new(settings))
}

fn stream(value: Value) -> StreamSettings {
    serde_json::from_value(value).unwrap()
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source())
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

async fn database(ferret: &Ferret) -> mongodb::Database {
    mongodb::Client::with_uri_str(ferret.url("t")).await.unwrap().database("t")
}

/// Puts documents into a collection.
async fn fill(ferret: &Ferret, collection: &str, documents: Vec<Document>) {
    let database = database(ferret).await;
    database.collection::<Document>(collection).insert_many(documents).await.unwrap();
}

/// Names of the collections that are there, but for the ledger's own.
async fn collections(ferret: &Ferret) -> Vec<String> {
    let mut names = database(ferret).await.list_collection_names().await.unwrap();
    let ledger = [
        "_forebay_loads",
        "_forebay_ledger",
        "_forebay_undone",
        "_forebay_claims",
        "_forebay_dead_letters",
    ];
    names.retain(|name| !ledger.contains(&name.as_str()));
    names.sort_unstable();
    names
}

async fn count(ferret: &Ferret, collection: &str) -> u64 {
    database(ferret)
        .await
        .collection::<Document>(collection)
        .count_documents(doc! {})
        .await
        .unwrap()
}
