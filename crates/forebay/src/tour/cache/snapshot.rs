//! A snapshot while the same keys are written again and again, and SIGKILL while that goes on.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::items::Item;
use super::load::{Load, connect};
use super::oracle::{Oracle, Write};
use crate::cache_client::Reply;
use crate::child::Server;

/// A snapshot of what a tour writes takes longer only where something hangs.
const LIMIT: Duration = Duration::from_secs(120);
/// How often is looked whether it is there.
const GLANCE: Duration = Duration::from_millis(2);
/// Writes acknowledged after it, before the server is killed.
const WRITES_AFTER: u64 = 500;

/// What the server logged about a snapshot.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct SnapshotTold {
    pub(super) keys: u64,
    pub(super) bytes: u64,
    pub(super) took_ms: f64,
    pub(super) longest_pause_ms: f64,
}

/// How it went.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) told: SnapshotTold,
    /// Writes of which nobody knows whether they were done.
    pub(super) unanswered: Vec<Write>,
    /// Longest wait for the replies to a batch of writes while the snapshot was taken.
    pub(super) longest_wait: Duration,
}

/// Takes a snapshot under load and kills the server a little later.
///
/// * `log`: where the server logs.
///
/// # Errors
/// There was no snapshot, or a connection was lost before the kill.
pub(super) fn under_load(
    load: &Load<'_>,
    log: &Path,
    server: Server,
    items: &[Item<'_>],
    oracle: &Mutex<Oracle>,
) -> anyhow::Result<Taken> {
    let (taking, over) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| load.rewrite(items, oracle, &taking, &over));
        let told = take_and_kill(load, log, server, oracle, &taking, &|| writing.is_finished());
        if told.is_err() {
            over.store(true, Ordering::Relaxed);
        }
        let written = match writing.join() {
            Ok(written) => written,
            Err(_) => bail!("a writing thread panicked"),
        };
        // A lost connection is why there was no snapshot, not the other way round.
        let (unanswered, longest_wait) = written?;
        Ok(Taken { told: told?, unanswered, longest_wait })
    })
}

fn take_and_kill(
    load: &Load<'_>,
    log: &Path,
    server: Server,
    oracle: &Mutex<Oracle>,
    taking: &AtomicBool,
    idle: &dyn Fn() -> bool,
) -> anyhow::Result<SnapshotTold> {
    let wait_until = |what: &str, there: &mut dyn FnMut() -> anyhow::Result<bool>| {
        let deadline = Instant::now() + LIMIT;
        while !there()? {
            load.interrupt.check()?;
            if Instant::now() >= deadline {
                bail!("{what} within {} s", LIMIT.as_secs());
            }
            std::thread::park_timeout(GLANCE);
        }
        Ok(())
    };
    // The load is under way when the snapshot begins.
    let begun = oracle.lock().writes;
    wait_until("nothing was written", &mut || Ok(idle() || oracle.lock().writes > begun))?;
    let logged =
        std::fs::metadata(log).with_context(|| format!("cannot read {}", log.display()))?;
    let logged = usize::try_from(logged.len()).unwrap_or(usize::MAX);
    taking.store(true, Ordering::Relaxed);
    if let Reply::Error(text) = connect(load.address)?.ask(&["BGSAVE"])? {
        bail!("BGSAVE was answered {text}");
    }
    let mut told: Option<SnapshotTold> = None;
    wait_until("no snapshot was taken", &mut || {
        told = super::last_told(log, "snapshot taken", logged)?;
        let failed: Option<serde_json::Value> =
            super::last_told(log, "no snapshot could be taken", logged)?;
        match failed {
            Some(failed) => bail!("no snapshot could be taken: {failed}"),
            None => Ok(told.is_some()),
        }
    })?;
    taking.store(false, Ordering::Relaxed);
    let after = oracle.lock().writes + WRITES_AFTER;
    wait_until("nothing was written", &mut || Ok(idle() || oracle.lock().writes >= after))?;
    load.dying.store(true, Ordering::SeqCst);
    server.kill()?;
    told.context("the server did not log its snapshot")
}
