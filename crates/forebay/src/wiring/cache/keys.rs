//! API keys for the cache: provides the server's key file as the cache's [`Authority`].
//!
//! It has a separate ring over the same file, because the cache opens before or without the HTTP
//! server's. A thread checks once a second whether the file changed, so a revoked key stops
//! working on open connections within about a second.
//!
//! Invariant: the generation changes after the ring, so a reader of the new one sees the new keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use forebay_api::keys::{self, Area, KeyFile, KeyRing, Scope};
use forebay_base::error_chain::chain;
use forebay_cache::engine::{Authority, Grant};

use crate::config::Config;

/// Interval between checks of the file.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The keys, and the number of their changes.
#[derive(Debug)]
pub(super) struct Keys {
    ring: KeyRing,
    generation: AtomicU64,
}

impl Keys {
    /// Loads the keys of the data directory.
    ///
    /// # Errors
    /// The file exists and cannot be used.
    pub(super) fn open(config: &Config) -> anyhow::Result<Arc<Self>> {
        let file = KeyFile::in_data_dir(&config.process.data);
        let ring =
            KeyRing::open(file, config.server.auth.into()).context("cannot load the API keys")?;
        Ok(Arc::new(Self { ring, generation: AtomicU64::new(1) }))
    }

    fn reload(&self) {
        match self.ring.reload() {
            Ok(true) => {
                self.generation.fetch_add(1, Ordering::Release);
                tracing::info!(keys = self.ring.len(), "the cache's API keys reloaded");
            }
            Ok(false) => {}
            Err(error) => {
                let error = chain(&error);
                tracing::error!(%error, "cannot reload the cache's API keys; keeping the old ones");
            }
        }
    }
}

/// Returns what a key permits in the cache; `None` if it is limited to other resources.
fn permitted(key: &keys::Grant) -> Option<Grant> {
    let may = |scope| key.allow(scope).is_ok();
    key.reaches(Area::Cache).then(|| Grant {
        id: key.id.into(),
        user: String::from_utf8_lossy(&key.id).into_owned(),
        read: may(Scope::Read),
        write: may(Scope::Write),
        admin: may(Scope::Admin) && !key.is_limited(),
        prefixes: key.names(Area::Cache).map(|prefix| prefix.as_bytes().into()).collect(),
    })
}

impl Authority for Keys {
    fn required(&self) -> bool {
        self.ring.required()
    }

    /// The user name is ignored: the key identifies its owner.
    fn check(&self, _user: Option<&[u8]>, secret: &[u8]) -> Option<Grant> {
        permitted(&self.ring.grant(Some(secret)).ok()?)
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    fn recheck(&self, id: &[u8]) -> Option<Grant> {
        permitted(&self.ring.still(id.try_into().ok()?)?)
    }
}

/// The thread that watches the key file; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Following {
    running: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Following {
    /// Watches the file of `keys`.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn start(keys: Arc<Keys>) -> anyhow::Result<Self> {
        let (running, stopped) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("cache-keys".to_owned())
            .spawn(move || {
                while stopped.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
                    keys.reload();
                }
            })
            .context("cannot start the thread that watches the API keys")?;
        Ok(Self { running: Some(running), thread: Some(thread) })
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        drop(self.running.take());
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that watches the API keys panicked");
        }
    }
}
