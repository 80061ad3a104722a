//! The open connections, and which of them are closed in favour of others.
//!
//! If no more connections may be opened, idle ones are closed to make room: first those between
//! requests or before their first, then those whose client is slow with a body or with reading. Of
//! each kind the first is from the address that has the most, the longest waiting first. So idle
//! connections cannot shut clients out.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::connection::ConnState;
use super::shares::Share;

/// The fraction of all connections that is closed at a time: one in 64.
const ROOM_PART: usize = 64;
/// Minimum time a connection waits for a request before it may be closed.
const IDLE_MS_MIN: u64 = 250;
/// Minimum time it waits in the middle of a request.
const SLOW_MS_MIN: u64 = 5_000;

/// The open connections.
#[derive(Debug, Default)]
pub(super) struct Registry(Mutex<HashMap<usize, Weak<ConnState>>>);

impl Registry {
    /// Adds a connection, until [`Registry::forget`].
    pub(super) fn register(&self, state: &Arc<ConnState>) {
        self.0.lock().insert(Arc::as_ptr(state).addr(), Arc::downgrade(state));
    }

    pub(super) fn forget(&self, state: &Arc<ConnState>) {
        self.0.lock().remove(&Arc::as_ptr(state).addr());
    }

    /// Calls `visit` with each connection; does nothing while the registry is in use.
    pub(super) fn try_each(&self, visit: impl FnMut(Arc<ConnState>)) {
        if let Some(states) = self.0.try_lock() {
            states.values().filter_map(Weak::upgrade).for_each(visit);
        }
    }

    /// Closes some idle connections. Returns how many are being closed.
    pub(super) fn make_room(&self, now_ms: u64) -> usize {
        let mut of_client = HashMap::<*const Share, usize>::new();
        let (mut waiting, mut open, mut leaving) = (Vec::new(), 0, 0);
        self.0.lock().values().filter_map(Weak::upgrade).for_each(|state| {
            open += 1;
            let client = Arc::as_ptr(&state.share);
            *of_client.entry(client).or_default() += 1;
            if state.is_cut() {
                leaving += 1;
            } else if let Some(waits) = state.waits() {
                let ms = now_ms.saturating_sub(waits.since_ms);
                if ms >= if waits.in_request { SLOW_MS_MIN } else { IDLE_MS_MIN } {
                    waiting.push((waits, client, state));
                }
            }
        });
        if leaving > 0 {
            return leaving;
        }
        waiting.sort_by_key(|(waits, client, _)| {
            let others = of_client.get(client).copied().unwrap_or_default();
            (waits.in_request, Reverse(others), waits.since_ms)
        });
        let count = waiting.len().min(open / ROOM_PART + 1);
        waiting.iter().take(count).for_each(|(.., state)| state.give_way());
        count
    }
}
