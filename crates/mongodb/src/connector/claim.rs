//! Ensures that only one run writes a collection, on a server that has no locks for that.
//!
//! A run that claims a collection stores a document with its name, and increments its counter every
//! [`BEAT_EVERY`]. Another run that finds it watches the counter: if it changes, the holder is
//! alive; if it does not for [`TAKEN_AFTER`] by the watcher's own clock, the holder is gone and the
//! claim is taken over. Clocks of different machines are never compared. A process of the watcher's
//! own machine that has ended is detected at once.
//!
//! Invariant: a holder that could not increment the counter for [`LOST_AFTER`], which is shorter,
//! considers its claim lost and commits nothing more. One case remains: a process that is suspended
//! for longer than that between checking its claim and the end of a command in progress. That
//! command's documents then meet those of the other run by their ids.

use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_base::backoff::Backoff;
use forebay_base::process;
use forebay_sdk::bridge::run_in_drop;
use forebay_sdk::connector::{Claim, Result};
use forebay_sdk::error::ConnectorError;
use mongodb::Collection;
use mongodb::bson::{Document, doc};
use parking_lot::Mutex;

use super::connect::{Server, is_duplicate, refused};

/// How often a holder increments the counter. Four times as often in tests, which wait for it.
const BEAT_EVERY: Duration = Duration::from_millis(if cfg!(test) { 500 } else { 2_000 });
/// A holder that could not do so for this long has lost its claim.
const LOST_AFTER: Duration = Duration::from_millis(if cfg!(test) { 1_250 } else { 5_000 });
/// A claim whose counter did not change for this long is abandoned.
const TAKEN_AFTER: Duration = Duration::from_millis(if cfg!(test) { 2_000 } else { 8_000 });
/// How often a watcher checks.
const LOOK_EVERY_MAX: Duration = Duration::from_millis(200);
/// Timeout of releasing a claim.
const GIVEN_BACK_WITHIN: Duration = Duration::from_secs(2);

const CLAIMS: &str = "_forebay_claims";

/// A held claim.
#[derive(Debug)]
pub(super) struct Held {
    collection: Collection<Document>,
    key: String,
    holder: String,
    /// When it was last known to be held.
    ours_at: Mutex<Option<Instant>>,
}

impl Held {
    /// Checks that it is still held.
    ///
    /// # Errors
    /// It is not, or that is not known.
    pub(super) fn check(&self) -> Result<()> {
        let ours = self.ours_at.lock().is_some_and(|at| at.elapsed() < LOST_AFTER);
        ours.then_some(()).ok_or_else(|| ConnectorError::Refused {
            act: format!("continue to write {:?}", self.key),
            source: "the server was unreachable for too long; another run may be writing".into(),
        })
    }

    fn mine(&self) -> Document {
        doc! { "_id": &self.key, "holder": &self.holder }
    }

    /// Increments the counter until the claim is dropped or lost.
    async fn keep(&self) {
        let mut every = tokio::time::interval(BEAT_EVERY);
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            every.tick().await;
            let begun = Instant::now();
            let counted =
                self.collection.update_one(self.mine(), doc! { "$inc": { "beat": 1_i64 } });
            match counted.await {
                Ok(counted) if counted.matched_count == 1 => *self.ours_at.lock() = Some(begun),
                Ok(_) => {
                    *self.ours_at.lock() = None;
                    tracing::warn!(collection = self.key, "the claim was taken by another run");
                    return;
                }
                Err(error) => {
                    tracing::debug!(collection = self.key, %error, "could not renew a claim");
                }
            }
        }
    }
}

/// A claim that is released when it is dropped.
pub(super) struct Claimed {
    held: Arc<Held>,
    beating: tokio::task::JoinHandle<()>,
}

impl Claim for Claimed {}

impl Claimed {
    pub(super) fn held(&self) -> &Arc<Held> {
        &self.held
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        self.beating.abort();
        *self.held.ours_at.lock() = None;
        let held = Arc::clone(&self.held);
        // The next run then need not wait until this one is considered gone.
        run_in_drop(GIVEN_BACK_WITHIN, async move {
            if let Err(error) = held.collection.delete_one(held.mine()).await {
                tracing::debug!(collection = held.key, %error, "could not release a claim");
            }
        });
    }
}

/// Claims a collection.
///
/// # Errors
/// [`ConnectorError::Busy`] if another run has it.
pub(super) async fn claim(server: &Server, key: &str) -> Result<Claimed> {
    let collection = server.database().await?.collection::<Document>(CLAIMS);
    let holder = uuid::Uuid::new_v4().simple().to_string();
    let process = process::this().unwrap_or_default();
    let act = |error| refused(format!("claim {key:?}"), error);
    let mut watched: Option<(Document, Instant)> = None;
    // Several runs may watch it, and only one can take it.
    let mut backoff = Backoff::new(LOOK_EVERY_MAX, LOOK_EVERY_MAX);
    let begun = loop {
        let begun = Instant::now();
        let mine = doc! { "_id": key, "holder": &holder, "process": &process, "beat": 0_i64 };
        match collection.insert_one(mine).await {
            Ok(_) => break begun,
            Err(error) if is_duplicate(&error) => {}
            Err(error) => return Err(act(error)),
        }
        let found = collection.find_one(doc! { "_id": key }).await.map_err(act)?;
        let Some(found) = found else {
            // Released in between.
            watched = None;
            continue;
        };
        let (before, since) = watched.get_or_insert_with(|| (found.clone(), Instant::now()));
        let is_gone = found.get_str("process").is_ok_and(process::is_gone);
        if found != *before && !is_gone {
            return Err(ConnectorError::Busy {
                act: format!("write {key:?}"),
                source: "another run is writing it".into(),
            });
        }
        if is_gone || since.elapsed() >= TAKEN_AFTER {
            let begun = Instant::now();
            let set = doc! { "$set": { "holder": &holder, "process": &process, "beat": 0_i64 } };
            if collection.update_one(found, set).await.map_err(act)?.modified_count == 1 {
                break begun;
            }
            watched = None;
        }
        tokio::time::sleep(backoff.delay()).await;
    };
    let ours_at = Mutex::new(Some(begun));
    let held = Arc::new(Held { collection, key: key.to_owned(), holder, ours_at });
    let kept = Arc::clone(&held);
    let beating = tokio::spawn(async move { kept.keep().await });
    Ok(Claimed { held, beating })
}
