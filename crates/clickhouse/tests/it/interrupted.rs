//! Requests and answers that are lost, one after the other: whatever is lost, the next attempt or the next run
//! leaves every row there once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use arrow::array::RecordBatch;
use forebay_sdk::connector::{Destination, Load, Result};
use forebay_sdk::registry::DestinationSettings as _;
use forebay_sdk::settings::{TargetSettings, WriteMode};
use forebay_testing::{Fate, HttpProxy};
use serde_json::json;

use crate::large::{columns, rows};
use crate::server::{Database, load, open, target, text, write};

/// Number of rows of each of the two units.
const ROWS: i64 = 60;

/// Copies what is missing, as the engine does: units that the destination does not have, then the end.
async fn go_on(
    destination: &Arc<dyn Destination>,
    settings: &TargetSettings,
    to: &Load,
) -> Result<()> {
    let claim = destination.claim(settings).await?;
    let last = destination.last_load(settings).await?;
    let (known, entries) = match last {
        Some((known, entries)) if known.id == to.id => (known, entries),
        _ => (to.clone(), Vec::new()),
    };
    if known.is_finished {
        return Ok(());
    }
    let opened = open(destination, settings, &columns()).await?;
    opened.prepare(to).await?;
    for (name, batch) in units() {
        if entries.iter().all(|entry| entry.unit != name) {
            write(&opened, settings, to, name, &[batch]).await?;
        }
    }
    opened.finish(to).await?;
    drop(claim);
    Ok(())
}

fn units() -> [(&'static str, RecordBatch); 2] {
    [("a", rows(0..ROWS)), ("it's \\b`", rows(ROWS..2 * ROWS))]
}

/// Loses one request after the other, and lets the same process or the next one continue.
async fn cut_everywhere(fate: Fate, mode: WriteMode, next_process: bool) {
    let Some(database) = Database::create() else { return };
    let mut at = 0;
    loop {
        let count = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&count);
        let proxy = HttpProxy::start(database.server.port(), move |head, _| {
            // The rows of claims that are renewed come at any time.
            let is_beat = head.contains("log_comment=forebay-write&");
            // Whether a request or its answer is lost makes no difference to what only reads.
            let is_read = fate != Fate::Lose && head.contains("log_comment=forebay-read&");
            if is_beat || is_read {
                return Fate::Pass;
            }
            match counted.fetch_add(1, Ordering::SeqCst) == at {
                true => fate,
                false => Fate::Pass,
            }
        });
        let settings = target(&format!("{fate:?}{mode:?}{next_process}{at}"), mode);
        let to = load("load-1", &["a", "it's \\b`"]);
        let first = database.settings(proxy.port(), json!({})).destination();
        let mut result = go_on(&first, &settings, &to).await;
        let was_cut = count.load(Ordering::SeqCst) > at;
        let direct = database.destination(json!({}));
        let again = if next_process { &direct } else { &first };
        for _ in 0..3 {
            if result.is_err() {
                result = go_on(again, &settings, &to).await;
            }
        }
        result.unwrap_or_else(|error| panic!("{fate:?} {mode:?} {at}: {}", text(&error)));
        let last = if mode == WriteMode::Upsert { "FINAL" } else { "" };
        let found = format!(
            "SELECT count(), uniqExact(id), min(id), max(id) FROM `{}` {last}",
            settings.into
        );
        assert_eq!(database.query(&found), "120\t120\t0\t119", "{fate:?} {mode:?} {at}");
        let (known, entries) = direct.last_load(&settings).await.unwrap().unwrap();
        assert!(known.is_finished, "{fate:?} {mode:?} {at}");
        let counts: Vec<u64> = entries.iter().map(|entry| entry.rows).collect();
        assert_eq!(counts, [60, 60], "{fate:?} {mode:?} {at}");
        if !was_cut {
            assert!(at > 8, "a load has many requests, and each of them was lost once");
            return;
        }
        at += 1;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_lost_doubles_nothing_with_append() {
    cut_everywhere(Fate::LoseAnswer, WriteMode::Append, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_lost_doubles_nothing_in_the_next_run() {
    cut_everywhere(Fate::LoseAnswer, WriteMode::Append, true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_lost_doubles_nothing_with_replace() {
    cut_everywhere(Fate::LoseAnswer, WriteMode::Replace, true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_lost_doubles_nothing_with_upsert() {
    cut_everywhere(Fate::LoseAnswer, WriteMode::Upsert, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_cut_off_loses_and_doubles_nothing() {
    cut_everywhere(Fate::CutBody, WriteMode::Append, true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_lost_loses_nothing() {
    cut_everywhere(Fate::Lose, WriteMode::Replace, false).await;
}
