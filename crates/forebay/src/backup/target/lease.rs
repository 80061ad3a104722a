//! Who holds a prefix in a bucket (`docs/formats/backup.md`): an object below `locks/` that its holder renews.
//!
//! A holder first writes its lock and then lists all, so that of two that exclude each other at least one sees the
//! other. Backups do not exclude each other; a prune excludes everything. A lock that was not renewed for [`EXPIRY`] is
//! that of a killed command. One that excludes it revokes it, by an object that says so, before anything else: a holder
//! that was only stopped finds the revocation when it checks.
//!
//! Invariants: ages are compared by the clock of the server alone; a holder gives up long before others may revoke its
//! lock, by a clock that runs while the machine is suspended.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use forebay_objects::{Bucket, Failure, Item};
use futures_util::TryStreamExt as _;
use parking_lot::{Condvar, Mutex};
use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;

use super::{Hold, Purpose};
use crate::out;

const DIR: &str = "locks";
const REVOKED: &str = ".revoked";
/// Age from which on a lock is that of a killed command.
const EXPIRY: Duration = Duration::from_secs(600);
/// Time between two renewals.
const RENEWAL: Duration = Duration::from_secs(60);
/// Time until a renewal that failed is attempted again.
const RENEWAL_AGAIN: Duration = Duration::from_secs(10);
/// A lock that was not renewed for so long counts as lost for its holder. A request that begins before ends before the
/// lock expires: it is limited to 300 s with its retries 330 s.
const LOST: Duration = Duration::from_secs(240);
/// Age at which a revocation is removed.
const REVOCATION_AGE_MAX: Duration = Duration::from_secs(7 * 24 * 3_600);
/// Maximum number of objects below `locks/`.
const LOCKS_MAX: usize = 10_000;
/// Maximum size of a lock, in bytes.
const LOCK_SIZE_MAX: u64 = 4_096;

/// What a lock says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Text {
    purpose: Word,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Word {
    Backup,
    Prune,
}

impl Word {
    fn excludes(self, other: Self) -> bool {
        self == Self::Prune || other == Self::Prune
    }

    fn shown(self) -> &'static str {
        match self {
            Self::Backup => "a backup is being made",
            Self::Prune => "backups are being removed",
        }
    }
}

/// A lock that is renewed until it is dropped.
#[derive(Debug)]
pub(super) struct Lease {
    shared: Arc<Shared>,
    renewing: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    runtime: Arc<Runtime>,
    bucket: Bucket,
    name: String,
    text: Vec<u8>,
    word: Word,
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Debug)]
struct State {
    /// Since the machine started, also while it was suspended.
    renewed: Duration,
    is_revoked: bool,
    is_ended: bool,
}

/// Whether an item belongs to the locks.
pub(super) fn is_lock(name: &str) -> bool {
    name.strip_prefix(DIR).is_some_and(|rest| rest.starts_with('/'))
}

impl Lease {
    /// Holds a prefix.
    ///
    /// # Errors
    /// A command that excludes this one holds it, or a request failed.
    pub(super) fn acquire(
        runtime: Arc<Runtime>,
        bucket: Bucket,
        purpose: Purpose,
    ) -> anyhow::Result<Self> {
        let word = match purpose {
            Purpose::Backup => Word::Backup,
            Purpose::Prune => Word::Prune,
        };
        let name = format!("{DIR}/{}", uuid::Uuid::new_v4().simple());
        let text = serde_json::to_vec(&Text { purpose: word })?;
        let state = State { renewed: uptime(), is_revoked: false, is_ended: false };
        let (state, wake) = (Mutex::new(state), Condvar::new());
        let shared = Arc::new(Shared { runtime, bucket, name, text, word, state, wake });
        let shown = shared.bucket.url(&shared.bucket.key(DIR));
        let written = shared.runtime.block_on(shared.write());
        // From here on the lock is removed, whatever fails.
        let mut lease = Self { shared: Arc::clone(&shared), renewing: None };
        written.with_context(|| format!("cannot write a lock below {shown}"))?;
        shared
            .runtime
            .block_on(shared.exclude())
            .with_context(|| format!("cannot lock {shown}"))?;
        let renewing = std::thread::Builder::new().name("backup-lock".into());
        let renewing = renewing.spawn(move || shared.renew()).context("cannot start a thread")?;
        lease.renewing = Some(renewing);
        Ok(lease)
    }
}

impl Hold for Lease {
    fn check(&self) -> anyhow::Result<()> {
        let shared = &self.shared;
        let is_revoked = shared.runtime.block_on(shared.is_revoked());
        let is_revoked =
            is_revoked.context("cannot find out whether the backups are still held")?;
        let state = shared.state.lock();
        let since = uptime().saturating_sub(state.renewed);
        ensure!(
            !is_revoked && !state.is_revoked && since < LOST,
            "the lock on the backups could not be renewed for {} s, and another command may use them now; start \
             again",
            since.as_secs()
        );
        Ok(())
    }

    fn is_exclusive(&self) -> bool {
        self.shared.word == Word::Prune
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.shared.state.lock().is_ended = true;
        self.shared.wake.notify_all();
        if let Some(renewing) = self.renewing.take()
            && renewing.join().is_err()
        {
            out::note("the thread that renews the lock on the backups has failed");
        }
        let names = [self.shared.name.clone()];
        if let Err(error) = self.shared.runtime.block_on(self.shared.bucket.remove(&names)) {
            out::note(format_args!(
                "cannot remove the lock on the backups, which expires in {} minutes: {error}",
                EXPIRY.as_secs() / 60
            ));
        }
    }
}

impl Shared {
    async fn write(&self) -> Result<(), Failure> {
        self.bucket.put(&self.bucket.key(&self.name), self.text.clone()).await
    }

    async fn is_revoked(&self) -> Result<bool, Failure> {
        Ok(self.bucket.find(&format!("{}{REVOKED}", self.name)).await?.is_some())
    }

    /// Fails if a command holds the prefix that excludes this one, and revokes expired locks of such.
    async fn exclude(&self) -> anyhow::Result<()> {
        let mut items: Vec<Item> = Vec::new();
        let mut listed = self.bucket.items(DIR);
        while let Some(item) = listed.try_next().await? {
            ensure!(items.len() < LOCKS_MAX, "it has more than {LOCKS_MAX} objects");
            items.push(item);
        }
        let own = items.iter().find(|item| item.name == self.name);
        let now_ms =
            own.context("the server does not list an object that it has stored")?.written_ms;
        let age = |item: &Item| {
            Duration::from_millis(
                u64::try_from(now_ms.saturating_sub(item.written_ms)).unwrap_or(0),
            )
        };
        let mut expired = Vec::new();
        for item in items.iter().filter(|item| item.name != self.name) {
            if item.name.ends_with(REVOKED) {
                continue;
            }
            let Some(text) = self.bucket.read(&item.name, LOCK_SIZE_MAX).await? else { continue };
            // One of a later version may mean anything.
            let word = serde_json::from_slice(&text).map_or(Word::Prune, |text: Text| text.purpose);
            if !word.excludes(self.word) {
                continue;
            }
            if age(item) < EXPIRY {
                let left = EXPIRY.saturating_sub(age(item)).as_secs().div_ceil(60);
                bail!(
                    "{} by another command; wait until it has ended, or, if it was killed, {left} minutes for its \
                     lock to expire",
                    word.shown()
                );
            }
            expired.push(item.name.clone());
        }
        for name in &expired {
            let revoked = self.bucket.key(&format!("{name}{REVOKED}"));
            self.bucket.put(&revoked, self.text.clone()).await?;
        }
        let old = items.iter().filter(|item| item.name.ends_with(REVOKED));
        let old = old.filter(|item| age(item) > REVOCATION_AGE_MAX).map(|item| item.name.clone());
        expired.extend(old);
        Ok(self.bucket.remove(&expired).await?)
    }

    /// Renews the lock until the holder ends.
    fn renew(&self) {
        let mut wait = RENEWAL;
        loop {
            {
                let mut state = self.state.lock();
                if !state.is_ended {
                    self.wake.wait_for(&mut state, wait);
                }
                if state.is_ended {
                    return;
                }
            }
            let begun = uptime();
            let renewed = self.runtime.block_on(async {
                if self.is_revoked().await? {
                    return Ok(false);
                }
                self.write().await.map(|()| true)
            });
            match renewed {
                Ok(true) => {
                    self.state.lock().renewed = begun;
                    wait = RENEWAL;
                }
                Ok(false) => {
                    self.state.lock().is_revoked = true;
                    return;
                }
                // The holder fails when this lasts.
                Err::<_, Failure>(error) => {
                    tracing::debug!(%error, "cannot renew the lock on the backups");
                    wait = RENEWAL_AGAIN;
                }
            }
        }
    }
}

/// Time since the machine started, with the time during which it was suspended.
fn uptime() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or(0))
}
