//! The state of webhooks that do not run: checking it, and pausing the hooks of a restored copy.

use std::path::Path;

use crate::error::OpenError;
use crate::judge::disable;
use crate::store::{FILE, Store};

/// What a state has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checked {
    /// Number of hooks.
    pub hooks: u64,
    /// Number of deliveries that are remembered.
    pub deliveries: u64,
    /// [`Secrets::fingerprint`](crate::Secrets::fingerprint) of the secrets that the hooks use.
    pub fingerprint: Option<[u8; 16]>,
}

/// Reads and verifies everything in the state of `dir`; `None` if there is no state.
///
/// # Errors
/// [`OpenError`]: what is damaged.
pub fn check(dir: &Path) -> Result<Option<Checked>, OpenError> {
    let path = dir.join(FILE);
    if !path.exists() {
        return Ok(None);
    }
    let checked = Store::open_stopped(&path).and_then(|store| {
        let fingerprint = store.fingerprint()?;
        let hooks = store.load()?.len() as u64;
        Ok(Checked { hooks, deliveries: store.verify_deliveries()?, fingerprint })
    });
    checked.map(Some).map_err(|source| OpenError::State { path, source })
}

/// Disables every hook in the state of `dir`, for a copy whose original sends the same events. Returns how many.
///
/// * `reason`: what the hooks say.
///
/// # Errors
/// [`OpenError`]: some may be disabled already.
pub fn pause_all(dir: &Path, reason: &str) -> Result<usize, OpenError> {
    let path = dir.join(FILE);
    if !path.exists() {
        return Ok(0);
    }
    let paused = Store::open_stopped(&path).and_then(|mut store| {
        let mut count = 0;
        for (id, kept) in store.load()? {
            let mut hook = kept.hook;
            if hook.is_enabled {
                disable(&mut hook, reason.to_owned());
                store.change(id, &hook)?;
                count += 1;
            }
        }
        Ok(count)
    });
    paused.map_err(|source| OpenError::State { path, source })
}
