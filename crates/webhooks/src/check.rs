//! The state of webhooks that do not run: checking it, and pausing the hooks of a restored copy.

use std::path::Path;

use crate::error::OpenError;
use crate::judge::disable;
use crate::store::{FILE, Store};

/// Reads and verifies everything in the state of `dir`. Returns the number of hooks and of deliveries; `None` if
/// there is no state.
///
/// # Errors
/// [`OpenError`]: what is damaged.
pub fn check(dir: &Path) -> Result<Option<(u64, u64)>, OpenError> {
    let path = dir.join(FILE);
    if !path.exists() {
        return Ok(None);
    }
    let checked = Store::open_stopped(&path).and_then(|store| {
        store.fingerprint()?;
        Ok((store.load()?.len() as u64, store.verify_deliveries()?))
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
