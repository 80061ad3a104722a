//! Several runs, loads and attempts at once.

use std::time::Duration;

use forebay_sdk::ConnectorError;
use forebay_sdk::batch::{Batch, Rows};
use forebay_sdk::settings::WriteMode;
use serde_json::json;

use crate::large::{columns, rows};
use crate::server::{Database, entry, load, open, target, text, unit, write};

#[tokio::test(flavor = "multi_thread")]
async fn of_runs_that_begin_together_at_most_one_writes() {
    let Some(database) = Database::create() else { return };
    let settings = target("t", WriteMode::Append);
    let destinations: Vec<_> = (0..4).map(|_| database.destination(json!({}))).collect();
    let claims = destinations.iter().map(|destination| {
        let (destination, settings) = (destination.clone(), settings.clone());
        tokio::spawn(async move { destination.claim(&settings).await })
    });
    let mut held = Vec::new();
    for claim in claims.collect::<Vec<_>>() {
        match claim.await.unwrap() {
            Ok(claim) => held.push(claim),
            Err(error) => assert!(matches!(error, ConnectorError::Busy { .. }), "{}", text(&error)),
        }
    }
    assert!(held.len() <= 1, "{} runs have the claim", held.len());
    drop(held);
    drop(destinations[0].claim(&settings).await.unwrap());
    // Another table is another claim.
    let one = destinations[0].claim(&settings).await.unwrap();
    let other = destinations[1].claim(&target("u", WriteMode::Append)).await.unwrap();
    drop((one, other));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_another_one_has_taken_over_from_adds_nothing() {
    let Some(database) = Database::create() else { return };
    let destination = database.destination(json!({}));
    let settings = target("t", WriteMode::Append);
    let claim = destination.claim(&settings).await.unwrap();
    let load = load("l", &["a", "b"]);
    let opened = open(&destination, &settings, &columns()).await.unwrap();
    opened.prepare(&load).await.unwrap();
    write(&opened, &settings, &load, "a", &[rows(0..10)]).await.unwrap();
    let mut writer = opened.writer(&load, &unit("b")).await.unwrap();
    writer.write(Batch::unbounded(Rows::Records(rows(10..20)))).await.unwrap();
    // As a run on another machine does that has not seen a sign of life.
    database.query(
        "INSERT INTO _forebay_claims (key, holder, process, beat, state) \
         SELECT key, holder, '', 18446744073709551615, 'lost' FROM _forebay_claims WHERE state = 'held' LIMIT 1",
    );
    let error = text(&writer.commit(entry(&settings, &load, "b")).await.unwrap_err());
    assert!(error.contains("another run"), "{error}");
    let error = text(&opened.finish(&load).await.unwrap_err());
    assert!(error.contains("another run"), "{error}");
    assert_eq!(database.count("SELECT count() FROM t"), 10);
    let (known, entries) = destination.last_load(&settings).await.unwrap().unwrap();
    assert_eq!((known.is_finished, entries.len()), (false, 1));
    drop(claim);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_that_ends_at_any_moment_and_the_next_one_store_a_unit_once() {
    let Some(database) = Database::create() else { return };
    let destination = database.destination(json!({}));
    let settings = target("t", WriteMode::Append);
    let names: Vec<String> = (0..40).map(|number| format!("unit {number}")).collect();
    let load = load("l", &names.iter().map(|name| &**name).collect::<Vec<_>>());
    let opened = open(&destination, &settings, &columns()).await.unwrap();
    opened.prepare(&load).await.unwrap();
    for (at, name) in (0..).zip(&names) {
        let batch = [rows(at * 50..at * 50 + 50)];
        // The server may still execute what it was sent.
        let limit = Duration::from_millis(u64::try_from(at).unwrap() * 2);
        let first =
            tokio::time::timeout(limit, write(&opened, &settings, &load, name, &batch)).await;
        if !matches!(first, Ok(Ok(_))) {
            let second = loop {
                match write(&opened, &settings, &load, name, &batch).await {
                    // What the first one has sent arrives now.
                    Err(error) if error.is_retryable() => {}
                    second => break second,
                }
            };
            let second = second.unwrap_or_else(|error| panic!("{}", text(&error)));
            assert_eq!(second.rows, 50);
        }
    }
    assert_eq!(database.query("SELECT count(), uniqExact(id) FROM t"), "2000\t2000");
    let (_, entries) = destination.last_load(&settings).await.unwrap().unwrap();
    assert_eq!(entries.iter().map(|entry| entry.rows).sum::<u64>(), 2_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_of_an_earlier_load_adds_nothing() {
    let Some(database) = Database::create() else { return };
    let destination = database.destination(json!({}));
    let settings = target("t", WriteMode::Append);
    let (first, second) = (load("l1", &["a"]), load("l2", &["a"]));
    let opened = open(&destination, &settings, &columns()).await.unwrap();
    opened.prepare(&first).await.unwrap();
    let mut writer = opened.writer(&first, &unit("a")).await.unwrap();
    writer.write(Batch::unbounded(Rows::Records(rows(0..10)))).await.unwrap();
    let other = open(&destination, &settings, &columns()).await.unwrap();
    other.prepare(&second).await.unwrap();
    let error = text(&writer.commit(entry(&settings, &first, "a")).await.unwrap_err());
    assert!(error.contains("another run"), "{error}");
    write(&other, &settings, &second, "a", &[rows(0..10)]).await.unwrap();
    assert_eq!(database.count("SELECT count() FROM t"), 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_that_is_forgotten_leaves_its_rows_and_the_next_one_begins_again() {
    let Some(database) = Database::create() else { return };
    let destination = database.destination(json!({}));
    let settings = target("t", WriteMode::Upsert);
    crate::server::copy(&destination, &settings, &columns(), "l1", &[rows(0..10)]).await.unwrap();
    let claim = destination.claim(&settings).await.unwrap();
    assert_eq!(destination.forget(&settings).await.unwrap(), 1);
    assert_eq!(destination.forget(&settings).await.unwrap(), 0);
    assert!(destination.last_load(&settings).await.unwrap().is_none());
    drop(claim);
    assert_eq!(database.count("SELECT count() FROM t FINAL"), 10);
    // Its versions are greater than those of the load that was forgotten.
    crate::server::copy(&destination, &settings, &columns(), "l2", &[rows(5..15)]).await.unwrap();
    assert_eq!(database.count("SELECT count() FROM t FINAL"), 15);
    let newest = "SELECT count() FROM t FINAL WHERE _forebay_load LIKE 'l2/%'";
    assert_eq!(database.count(newest), 10);
}
