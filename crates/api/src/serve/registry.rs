//! The open connections, and which of them are closed in favour of others.
//!
//! If no more connections may be opened, idle ones are closed to make room: first those between
//! requests or before their first, then those whose client is slow with a body or with reading. Of
//! each kind the first is from the address that has the most, the longest waiting first. An address
//! with more than its share makes room for others sooner: any of its connections that waits for its
//! client may be closed. So neither idle connections nor slow ones of one address shut clients out.

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

    /// Closes some connections that wait for their clients. Returns how many are being closed.
    ///
    /// * `by`: the address that needs the room.
    /// * `percent`: the part of all connections that is one address's share.
    pub(super) fn make_room(&self, now_ms: u64, by: &Arc<Share>, percent: usize) -> usize {
        let mut of_client = HashMap::<*const Share, usize>::new();
        let (mut waiting, mut open, mut leaving) = (Vec::new(), 0_usize, 0);
        self.0.lock().values().filter_map(Weak::upgrade).for_each(|state| {
            open += 1;
            let client = Arc::as_ptr(&state.share);
            *of_client.entry(client).or_default() += 1;
            if state.is_cut() {
                leaving += 1;
            } else if let Some(waits) = state.waits() {
                waiting.push((waits, client, state));
            }
        });
        if leaving > 0 {
            return leaving;
        }
        let share = open.saturating_mul(percent) / 100;
        let mut candidates: Vec<_> = waiting
            .into_iter()
            .filter_map(|(waits, client, state)| {
                let ms = now_ms.saturating_sub(waits.since_ms);
                let others = of_client.get(&client).copied().unwrap_or_default();
                let is_greedy = client != Arc::as_ptr(by) && others > share;
                let kind = match waits.in_request {
                    false if ms >= IDLE_MS_MIN => Kind::Idle,
                    true if ms >= SLOW_MS_MIN => Kind::Slow,
                    true if is_greedy => Kind::Greedy,
                    _ => return None,
                };
                Some((kind, Reverse(others), waits.since_ms, state))
            })
            .collect();
        candidates.sort_by_key(|(kind, others, since_ms, _)| (*kind, *others, *since_ms));
        // Of those that are not slow, no more than needed.
        let patient = candidates.iter().take_while(|(kind, ..)| *kind != Kind::Greedy).count();
        let count = patient.min(open / ROOM_PART + 1).max(1).min(candidates.len());
        candidates.iter().take(count).for_each(|(.., state)| state.give_way());
        count
    }
}

/// Why a connection may be closed in favour of another, in the order in which they are closed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// It waits for a request.
    Idle,
    /// Its client is slow in the middle of a request.
    Slow,
    /// Its client's address has more than its share of the connections.
    Greedy,
}
