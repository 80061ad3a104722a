//! Takes a snapshot while the same keys are written repeatedly, and kills the server during the
//! writes.
//!
//! Invariants: the measured snapshot began after it was requested, though the server may be
//! taking another one by itself; the server outlives the writers, so that an error here never shows as
//! the lost connections it would cause.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, anyhow, bail};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::items::Item;
use super::load::{Load, connect};
use super::oracle::{Oracle, Write};
use crate::tour::HANGS_AFTER;
use crate::tour::first::First;
use forebay_console::cache_client::{Client, Reply};

/// Interval between checks for the snapshot.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Number of writes acknowledged after it, before the server is killed.
const WRITES_AFTER: u64 = 500;
/// Reply to BGSAVE while a snapshot is being taken.
const IN_PROGRESS: &str = "already in progress";

/// The log entry of a snapshot.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct SnapshotLog {
    /// When it was completed.
    #[serde(skip_serializing)]
    timestamp: String,
    pub(super) keys: u64,
    pub(super) bytes: u64,
    pub(super) took_ms: f64,
    pub(super) longest_pause_ms: f64,
}

/// The result.
#[derive(Debug)]
pub(super) struct SnapshotRun {
    pub(super) logged: SnapshotLog,
    /// Writes that may or may not have been executed.
    pub(super) unanswered: Vec<Write>,
    /// Longest wait for the replies to a batch of writes while the snapshot was taken.
    pub(super) longest_wait: Duration,
}

/// Takes a snapshot under load and kills the server a little later.
///
/// * `log`: path of the server's log.
/// * `kill`: kills the server; called at most once, and not after an earlier failure.
///
/// # Errors
/// The first error: there was no snapshot, or a connection was lost before the kill.
pub(super) fn under_load(
    load: &Load<'_>,
    log: &Path,
    kill: &mut dyn FnMut() -> anyhow::Result<()>,
    items: &[Item<'_>],
    oracle: &Mutex<Oracle>,
) -> anyhow::Result<SnapshotRun> {
    let (taking, over, first) = (AtomicBool::new(false), AtomicBool::new(false), First::default());
    let (logged, written) = std::thread::scope(|scope| {
        let writing = scope.spawn(|| load.rewrite(items, oracle, &taking, &over, &first));
        let stage = Stage { load, log, oracle, first: &first, idle: &|| writing.is_finished() };
        let logged = first.keep(stage.take_and_kill(&taking, kill));
        if logged.is_none() {
            over.store(true, Ordering::Relaxed);
        }
        let written = writing.join();
        (logged, first.keep(written.map_err(|_| anyhow!("a writing thread panicked"))))
    });
    first.result()?;
    let (unanswered, longest_wait) = written.context("the writes have no result")?;
    Ok(SnapshotRun {
        logged: logged.context("the server did not log its snapshot")?,
        unanswered,
        longest_wait,
    })
}

/// The thread that takes the snapshot, while others write.
struct Stage<'a> {
    load: &'a Load<'a>,
    log: &'a Path,
    oracle: &'a Mutex<Oracle>,
    first: &'a First,
    /// Whether the writers have ended.
    idle: &'a dyn Fn() -> bool,
}

impl Stage<'_> {
    fn take_and_kill(
        &self,
        taking: &AtomicBool,
        kill: &mut dyn FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<SnapshotLog> {
        // The load is running when the snapshot begins.
        let begun = self.oracle.lock().writes;
        self.written("before the snapshot", begun + 1)?;
        let logged = std::fs::metadata(self.log)
            .with_context(|| format!("cannot read {}", self.log.display()))?
            .len();
        let asked = self.ask(&mut connect(self.load.address)?)?;
        taking.store(true, Ordering::Relaxed);
        let mut taken = None;
        self.wait_until("no snapshot was taken", &mut || {
            let lines = super::logged_since::<SnapshotLog>(self.log, "snapshot taken", logged)?;
            taken = lines.into_iter().find(|snapshot| snapshot.began_after(asked));
            let failed = super::logged_since::<serde_json::Value>(
                self.log,
                "no snapshot could be taken",
                logged,
            )?;
            match failed.first() {
                Some(failed) => bail!("no snapshot could be taken: {failed}"),
                None => Ok(taken.is_some()),
            }
        })?;
        taking.store(false, Ordering::Relaxed);
        let after = self.oracle.lock().writes + WRITES_AFTER;
        self.written("after the snapshot", after)?;
        self.load.dying.store(true, Ordering::SeqCst);
        kill()?;
        taken.context("the server did not log its snapshot")
    }

    /// Requests a snapshot until the server begins one in response; returns when it was requested.
    ///
    /// The server also takes one by itself when its log has grown, and refuses another meanwhile. On a
    /// slow disk that one may still be in progress.
    fn ask(&self, client: &mut Client) -> anyhow::Result<SystemTime> {
        let mut asked = SystemTime::now();
        self.wait_until("the snapshot in progress did not end", &mut || {
            asked = SystemTime::now();
            match client.ask(&["BGSAVE"])? {
                Reply::Error(text) if text.contains(IN_PROGRESS) => Ok(false),
                Reply::Error(text) => bail!("BGSAVE was answered {text}"),
                _ => Ok(true),
            }
        })?;
        Ok(asked)
    }

    /// Waits until this many writes were acknowledged, or the writers have ended.
    fn written(&self, when: &str, writes: u64) -> anyhow::Result<()> {
        self.wait_until(&format!("too little was written {when}"), &mut || {
            Ok((self.idle)() || self.oracle.lock().writes >= writes)
        })
    }

    fn wait_until(
        &self,
        what: &str,
        there: &mut dyn FnMut() -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        let deadline = Instant::now() + HANGS_AFTER;
        while !there()? {
            self.load.interrupt.check()?;
            // The cause was recorded before this error, and is what is reported.
            if self.first.is_noted() {
                bail!("the writers failed");
            }
            if Instant::now() >= deadline {
                bail!("{what} within {} s", HANGS_AFTER.as_secs());
            }
            std::thread::park_timeout(POLL_INTERVAL);
        }
        Ok(())
    }
}

impl SnapshotLog {
    /// Returns whether it began at `time` or later; the server uses the same clock.
    fn began_after(&self, time: SystemTime) -> bool {
        let Ok(done) = self.timestamp.parse::<jiff::Timestamp>() else { return false };
        let took = Duration::try_from_secs_f64(self.took_ms / 1_000.0).unwrap_or_default();
        SystemTime::from(done).checked_sub(took).is_some_and(|begun| begun >= time)
    }
}

#[cfg(test)]
mod tests;
