//! Counts the requests in progress: in total, by address, and by key.
//!
//! One client may use `server.client_share_max` percent of all slots, so that some remain free for
//! others. A client is the address of a connection (of IPv6 the first 64 bits, which one customer
//! usually has all of), and, if a request presents a key, that key too.
//!
//! Invariant: an admitted request counts against each of its clients until it is released.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::keys::KeyId;

/// The requests in progress of one client.
#[derive(Debug, Default)]
pub(super) struct Share(AtomicUsize);

impl Share {
    /// Takes one of at most `max` slots.
    fn take(&self, max: usize) -> bool {
        let taken = self.0.fetch_add(1, Relaxed) < max;
        if !taken {
            self.give_back();
        }
        taken
    }

    fn give_back(&self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Why a request is not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// The limit for all requests is reached.
    All,
    /// The limit for one client is reached.
    Client,
}

/// The key under which a client is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Client {
    Address(IpAddr),
    Key(KeyId),
}

/// The slots of the server.
#[derive(Debug)]
pub(super) struct Shares {
    all: Share,
    max: usize,
    client_max: usize,
    percent: usize,
    clients: Mutex<HashMap<Client, Weak<Share>>>,
}

impl Shares {
    /// * `percent`: the part of the `max` slots that one client may use; at least one slot.
    pub(super) fn new(max: usize, percent: usize) -> Self {
        let client_max = (max.saturating_mul(percent) / 100).max(1);
        Self { all: Share::default(), max, client_max, percent, clients: Mutex::default() }
    }

    /// Returns the part that one client may use.
    pub(super) fn percent(&self) -> usize {
        self.percent
    }

    /// Returns the number of requests in progress.
    pub(super) fn in_flight(&self) -> usize {
        self.all.0.load(Relaxed)
    }

    /// Returns the share of an address.
    pub(super) fn of_address(&self, address: IpAddr) -> Arc<Share> {
        self.of(Client::Address(network(address)))
    }

    /// Returns the share of a key.
    pub(super) fn of_key(&self, key: KeyId) -> Arc<Share> {
        self.of(Client::Key(key))
    }

    fn of(&self, client: Client) -> Arc<Share> {
        let mut clients = self.clients.lock();
        if let Some(share) = clients.get(&client).and_then(Weak::upgrade) {
            return share;
        }
        // Clients without requests are removed before the table grows.
        if clients.len() == clients.capacity() {
            clients.retain(|_, share| share.strong_count() > 0);
        }
        let share = Arc::default();
        clients.insert(client, Arc::downgrade(&share));
        share
    }

    /// Takes a slot of each of `clients`, or none.
    ///
    /// # Errors
    /// [`Full`]: none is free.
    pub(super) fn admit<'a>(
        &self,
        clients: impl Iterator<Item = &'a Share> + Clone,
    ) -> Result<(), Full> {
        // Clients first: a request beyond its client's share takes no slot of the total, not even
        // for a moment.
        for (count, share) in clients.clone().enumerate() {
            if !share.take(self.client_max) {
                clients.take(count).for_each(Share::give_back);
                return Err(Full::Client);
            }
        }
        if self.all.take(self.max) {
            return Ok(());
        }
        clients.for_each(Share::give_back);
        Err(Full::All)
    }

    /// Takes a slot of each of `clients`, regardless of the limit.
    pub(super) fn enter<'a>(&self, clients: impl Iterator<Item = &'a Share>) {
        self.all.0.fetch_add(1, Relaxed);
        clients.for_each(|share| _ = share.0.fetch_add(1, Relaxed));
    }

    /// Releases the slots.
    pub(super) fn release<'a>(&self, clients: impl Iterator<Item = &'a Share>) {
        self.all.give_back();
        clients.for_each(Share::give_back);
    }
}

/// Returns the part of an address that identifies a client.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn one_client_leaves_slots_to_others() {
        let shares = Shares::new(8, 75);
        let (greedy, other) = (shares.of_address(address("10.0.0.1")), shares.of_key([1; 12]));
        for _ in 0..6 {
            shares.admit([&*greedy].into_iter()).unwrap();
        }
        assert_eq!(shares.admit([&*greedy].into_iter()), Err(Full::Client));
        assert_eq!(shares.admit([&*greedy, &*other].into_iter()), Err(Full::Client));
        for _ in 0..2 {
            shares.admit([&*other].into_iter()).unwrap();
        }
        assert_eq!(shares.admit([&*other].into_iter()), Err(Full::All));
        shares.release([&*greedy].into_iter());
        assert_eq!(shares.in_flight(), 7);
        shares.admit([&*other].into_iter()).unwrap();
    }

    #[test]
    fn each_client_has_at_least_one_slot() {
        let shares = Shares::new(1, 75);
        let (first, second) = (shares.of_key([1; 12]), shares.of_key([2; 12]));
        shares.admit([&*first].into_iter()).unwrap();
        assert_eq!(shares.admit([&*first].into_iter()), Err(Full::Client));
        assert_eq!(shares.admit([&*second].into_iter()), Err(Full::All));
        shares.release([&*first].into_iter());
        shares.admit([&*second].into_iter()).unwrap();
    }

    #[test]
    fn addresses_of_one_network_share_and_those_that_left_are_forgotten() {
        let shares = Shares::new(8, 75);
        let first = shares.of_address(address("2001:db8::1"));
        assert!(Arc::ptr_eq(&first, &shares.of_address(address("2001:db8::2"))));
        assert!(!Arc::ptr_eq(&first, &shares.of_address(address("2001:db8:0:1::1"))));
        let plain = shares.of_address(address("10.0.0.1"));
        assert!(Arc::ptr_eq(&plain, &shares.of_address(address("::ffff:10.0.0.1"))));
        for last in 0..10_000u32 {
            shares.of_address(IpAddr::V4((last + (11 << 24)).into()));
        }
        assert!(shares.clients.lock().len() < 100);
    }
}
