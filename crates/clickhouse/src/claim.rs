//! Ensures that only one run writes a table, on a server that has neither locks nor transactions.
//!
//! ```text
//! _forebay_claims   { key, holder, process, beat, state, at }   the newest row of a holder counts, by `beat`
//! ```
//!
//! A run adds a row for itself, and then reads those of others: since a row is visible to every query once it is added,
//! of two runs at least one sees the other. Both give way then, and try again after different delays. A holder adds a
//! row with the next number every [`BEAT_EVERY`]. Another run that finds it watches that number: if it changes, the holder
//! is alive; if it does not for [`TAKEN_AFTER`] by the watcher's own clock, or its process of the same machine has ended,
//! the watcher adds a last row for it, whose number nothing exceeds, and takes over.
//!
//! That row is the fence: every statement that adds rows or records has the condition that its holder still has the
//! claim ([`Held::holds`]), which the server evaluates after the statement has begun. A statement that began before is in
//! `system.processes`, and the new holder waits until it has ended. So no statement of an earlier run adds anything
//! after the new holder has begun to read, whenever it arrives.

use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_base::backoff::Backoff;
use forebay_base::process;
use forebay_sdk::bridge::run_in_drop;
use forebay_sdk::connector::{Claim, Result};
use forebay_sdk::error::ConnectorError;
use parking_lot::Mutex;

use crate::client::{Body, Server};
use crate::columns::DURABLE;
use crate::error::{Failed, LOST, THROW_IF, UNKNOWN_TABLE};
use crate::sql;

pub(crate) const CLAIMS: &str = "_forebay_claims";
/// The first word of the comment of every statement that a claim covers.
const COMMENT: &str = "forebay-write";

/// How often a holder shows that it is alive.
const BEAT_EVERY: Duration = Duration::from_secs(2);
/// A holder that could not do so for this long does not write any more.
const LOST_AFTER: Duration = Duration::from_secs(10);
/// A claim whose number did not change for this long is abandoned.
const TAKEN_AFTER: Duration = Duration::from_secs(15);
/// How often a watcher looks.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Number of times that a run gives way to another one that tries at the same moment.
const ATTEMPTS_MAX: u32 = 20;
/// How long statements of an earlier run may take to end.
const DRAINED_WITHIN: Duration = Duration::from_secs(120);
/// Timeout of releasing a claim.
const GIVEN_BACK_WITHIN: Duration = Duration::from_secs(2);

/// A held claim.
#[derive(Debug)]
pub(crate) struct Held {
    server: Server,
    key: String,
    holder: String,
    process: String,
    /// When it was last known to be held.
    ours_at: Mutex<Option<Instant>>,
}

/// Another holder, as the table has it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Other {
    holder: String,
    process: String,
    beat: String,
}

impl Held {
    /// Checks that it is still held, as far as this process knows.
    ///
    /// # Errors
    /// It is not, or that is not known.
    pub(crate) fn check(&self) -> Result<()> {
        let ours = self.ours_at.lock().is_some_and(|at| at.elapsed() < LOST_AFTER);
        ours.then_some(()).ok_or_else(|| ConnectorError::Refused {
            act: "continue to write".into(),
            source: "the server was unreachable for too long; another run may be writing".into(),
        })
    }

    /// A condition of SQL under which a statement fails: another run has taken the claim, or it was released.
    pub(crate) fn holds(&self) -> String {
        let (key, holder) = (sql::text(&self.key), sql::text(&self.holder));
        let state = format!(
            "SELECT argMax(state, beat) FROM {CLAIMS} WHERE key = {key} AND holder = {holder}"
        );
        format!("throwIf(({state}) != 'held', '{LOST}') = 0")
    }

    /// The comment of a statement that it covers.
    pub(crate) fn comment(&self, unit: &str) -> String {
        format!("{COMMENT} {} {} {unit}", self.key, self.holder)
    }

    async fn put(
        &self,
        holder: &str,
        beat: u64,
        state: &str,
        condition: &str,
    ) -> Result<(), Failed> {
        let values = [&*self.key, holder, &self.process].map(sql::text).join(", ");
        let sql = format!(
            "INSERT INTO {CLAIMS} (key, holder, process, beat, state) SELECT {values}, {beat}, '{state}'{condition}"
        );
        // The newest row counts, so it may be added twice.
        self.server.ask_again(&sql, COMMENT).await.map(drop)
    }

    /// The other holders.
    async fn others(&self) -> Result<Vec<Other>, Failed> {
        let (key, holder) = (sql::text(&self.key), sql::text(&self.holder));
        let sql = format!(
            "SELECT holder, argMax(process, beat), toString(max(beat)) FROM {CLAIMS} \
             WHERE key = {key} AND holder != {holder} GROUP BY holder HAVING argMax(state, beat) = 'held'"
        );
        let rows = self.server.try_rows(&sql).await?;
        let other = |row: Vec<String>| {
            let [holder, process, beat] = row.try_into().ok()?;
            Some(Other { holder, process, beat })
        };
        Ok(rows.into_iter().filter_map(other).collect())
    }

    /// Shows that it is alive until the claim is dropped or lost.
    ///
    /// * `beat`: its number so far.
    async fn keep(&self, mut beat: u64) {
        let mut every = tokio::time::interval(BEAT_EVERY);
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let condition = format!(" WHERE {}", self.holds());
        loop {
            every.tick().await;
            beat += 1;
            let begun = Instant::now();
            match self.put(&self.holder, beat, "held", &condition).await {
                Ok(()) => *self.ours_at.lock() = Some(begun),
                Err(failed) if failed.code() == Some(THROW_IF) => {
                    *self.ours_at.lock() = None;
                    tracing::warn!(
                        server = self.server.name(),
                        "the claim was taken by another run"
                    );
                    return;
                }
                Err(error) => {
                    tracing::debug!(server = self.server.name(), %error, "could not renew a claim");
                }
            }
        }
    }

    async fn release(&self) {
        if let Err(error) = self.put(&self.holder, u64::MAX, "released", "").await {
            tracing::debug!(server = self.server.name(), %error, "could not release a claim");
        }
    }

    /// Waits until no statement of another holder is in progress.
    async fn drain(&self) -> Result<()> {
        let (all, own) = (
            sql::text(&format!("{COMMENT} {} ", self.key)),
            sql::text(&format!("{COMMENT} {} {} ", self.key, self.holder)),
        );
        let comment = "Settings['log_comment']";
        let condition =
            format!("startsWith({comment}, {all}) AND NOT startsWith({comment}, {own})");
        drained(&self.server, &condition).await
    }

    /// Waits until no statement for a unit is in progress.
    pub(crate) async fn drain_unit(server: &Server, comment: &str) -> Result<()> {
        drained(server, &format!("Settings['log_comment'] = {}", sql::text(comment))).await
    }
}

/// Waits until no statement with a property is in progress.
async fn drained(server: &Server, condition: &str) -> Result<()> {
    let sql = format!("SELECT count() FROM system.processes WHERE {condition}");
    let begun = Instant::now();
    let mut backoff = Backoff::new(LOOK_EVERY / 10, LOOK_EVERY);
    while server.number("list the statements in progress", &sql).await? > 0 {
        if begun.elapsed() > DRAINED_WITHIN {
            return Err(ConnectorError::Busy {
                act: "start to write".into(),
                source: "an INSERT of an earlier run is still in progress on the server".into(),
            });
        }
        tokio::time::sleep(backoff.delay()).await;
    }
    Ok(())
}

/// A claim that is released when it is dropped.
pub(crate) struct Claimed {
    held: Arc<Held>,
    beating: tokio::task::JoinHandle<()>,
}

impl Claim for Claimed {}

impl Claimed {
    pub(crate) fn held(&self) -> &Arc<Held> {
        &self.held
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        self.beating.abort();
        *self.held.ours_at.lock() = None;
        let held = Arc::clone(&self.held);
        // The next run then need not wait until this one is considered gone.
        run_in_drop(GIVEN_BACK_WITHIN, async move { held.release().await });
    }
}

/// Claims a table.
///
/// * `key`: what identifies it.
/// * `into`: its name in messages.
///
/// # Errors
/// [`ConnectorError::Busy`] if another run has it.
pub(crate) async fn claim(server: &Server, key: &str, into: &str) -> Result<Claimed> {
    let held = Held {
        server: server.clone(),
        key: key.to_owned(),
        holder: uuid::Uuid::new_v4().simple().to_string(),
        process: process::this().unwrap_or_default(),
        ours_at: Mutex::new(None),
    };
    create(server).await?;
    let act = format!("claim {into}");
    let failed = |failed: Failed| server.failed(&act, failed);
    let mut backoff = Backoff::new(LOOK_EVERY, LOOK_EVERY * 10);
    let mut beat = 0;
    for _ in 0..ATTEMPTS_MAX {
        watch(&held, into).await?;
        let begun = Instant::now();
        // Each attempt has a greater number than the one that gave way.
        let others = match held.put(&held.holder, beat, "held", "").await {
            Ok(()) => held.others().await,
            Err(failed) => Err(failed),
        };
        let others = match others {
            Ok(others) => others,
            Err(error) => {
                // It may be there although its answer was lost.
                held.release().await;
                return Err(failed(error));
            }
        };
        if others.is_empty() {
            *held.ours_at.lock() = Some(begun);
            let held = Arc::new(held);
            let kept = Arc::clone(&held);
            let beating = tokio::spawn(async move { kept.keep(beat).await });
            let claimed = Claimed { held, beating };
            claimed.held.drain().await?;
            return Ok(claimed);
        }
        if let Err(error) = held.put(&held.holder, beat + 1, "waiting", "").await {
            held.release().await;
            return Err(failed(error));
        }
        beat += 2;
        tokio::time::sleep(backoff.delay()).await;
    }
    Err(taken(into))
}

/// Returns once no other run has the table. Takes it from one that is gone.
async fn watch(held: &Held, into: &str) -> Result<()> {
    let act = format!("claim {into}");
    let failed = |failed: Failed| held.server.failed(&act, failed);
    let mut watched: Vec<(Other, Instant)> = Vec::new();
    loop {
        let others = held.others().await.map_err(failed)?;
        if others.is_empty() {
            return Ok(());
        }
        for other in others {
            let before = watched.iter().find(|(before, _)| before.holder == other.holder);
            let is_gone = process::is_gone(&other.process);
            let is_silent = match before {
                Some((before, _)) if *before != other && !is_gone => return Err(taken(into)),
                Some((_, since)) => since.elapsed() >= TAKEN_AFTER,
                None => {
                    watched.push((other.clone(), Instant::now()));
                    false
                }
            };
            if is_gone || is_silent {
                held.put(&other.holder, u64::MAX, "lost", "").await.map_err(failed)?;
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn taken(into: &str) -> ConnectorError {
    ConnectorError::Busy {
        act: format!("write {into}"),
        source: "another run is writing it".into(),
    }
}

/// Creates the table of claims, unless it exists.
async fn create(server: &Server) -> Result<()> {
    match server.try_rows(&format!("SELECT 1 FROM {CLAIMS} LIMIT 0")).await {
        Ok(_) => return Ok(()),
        Err(failed) if failed.code() == Some(UNKNOWN_TABLE) => {}
        Err(failed) => return Err(server.failed("read the claims", failed)),
    }
    // A row is of no use once its holder is gone for certain.
    let sql = format!(
        "CREATE TABLE IF NOT EXISTS {CLAIMS} (key String, holder String, process String, beat UInt64, \
         state LowCardinality(String), at DateTime DEFAULT now()) ENGINE = ReplacingMergeTree(beat) \
         ORDER BY (key, holder) TTL at + INTERVAL 30 DAY SETTINGS {DURABLE}"
    );
    server.ensure(&format!("create the table {CLAIMS}"), &sql).await
}

/// Adds rows under conditions that the server evaluates when the statement has begun.
///
/// * `head`: an INSERT with its columns.
/// * `select`: what it adds, from `input` if there is a body.
/// * `conditions`: all of them, each of which makes the statement fail if it does not hold.
pub(crate) async fn insert_if(
    server: &Server,
    head: &str,
    select: &str,
    conditions: &[String],
    body: (Body, &str),
    comment: &str,
) -> Result<(), Failed> {
    let condition = match conditions {
        [] => String::new(),
        all => format!(" WHERE {}", all.join(" AND ")),
    };
    let (body, format) = body;
    let sql = format!("{head} {select}{condition} FORMAT {format}");
    server.insert(&sql, body, comment).await
}
