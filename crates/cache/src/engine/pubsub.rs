//! Subscriptions to channels.
//!
//! Invariants: a subscription here is also in its session's sets; both change together. All
//! subscribers of a channel receive its messages in one order.

use std::hash::BuildHasher as _;
use std::sync::Arc;

use foldhash::HashMap;
use foldhash::fast::FixedState;
use parking_lot::{Mutex, RwLock};

use super::Mailbox;
use crate::glob;
use crate::resp::{Proto, Reply};

#[derive(Debug, Clone)]
struct Listener {
    id: u64,
    protocol: Proto,
    mailbox: Arc<Mailbox>,
}

/// The kind of a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// A channel (`SUBSCRIBE`).
    Channel,
    /// Channels whose names match (`PSUBSCRIBE`).
    Pattern,
    /// A shard channel (`SSUBSCRIBE`).
    Shard,
}

type Listeners = HashMap<Box<[u8]>, Vec<Listener>>;

/// All subscriptions.
#[derive(Debug, Default)]
pub struct PubSub {
    channels: RwLock<Listeners>,
    patterns: RwLock<Listeners>,
    shards: RwLock<Listeners>,
    /// Held while a message is given to the subscribers of a channel, so that all of them receive
    /// its messages in the same order, however many clients publish. Channels share locks by hash.
    order: Orders,
}

/// Number of locks that channels share.
const ORDERS: usize = 64;

#[derive(Debug)]
struct Orders([Mutex<()>; ORDERS]);

impl Default for Orders {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Mutex::default()))
    }
}

impl Orders {
    fn of(&self, channel: &[u8]) -> &Mutex<()> {
        let hash = FixedState::default().hash_one(channel);
        &self.0[usize::try_from(hash % ORDERS as u64).unwrap_or_default()]
    }
}

impl PubSub {
    fn of(&self, scope: Scope) -> &RwLock<Listeners> {
        match scope {
            Scope::Channel => &self.channels,
            Scope::Pattern => &self.patterns,
            Scope::Shard => &self.shards,
        }
    }

    /// Subscribes a client, which must not be subscribed there yet.
    pub fn subscribe(
        &self,
        scope: Scope,
        name: &[u8],
        id: u64,
        protocol: Proto,
        mailbox: &Arc<Mailbox>,
    ) {
        let listener = Listener { id, protocol, mailbox: mailbox.clone() };
        self.of(scope).write().entry(name.into()).or_default().push(listener);
    }

    /// Ends a subscription.
    pub fn unsubscribe(&self, scope: Scope, name: &[u8], id: u64) {
        let mut listeners = self.of(scope).write();
        if let Some(held) = listeners.get_mut(name) {
            held.retain(|listener| listener.id != id);
            if held.is_empty() {
                listeners.remove(name);
            }
        }
    }

    /// Sends a message to all subscribers; returns their number.
    ///
    /// * `post`: puts encoded bytes into a mailbox.
    pub(super) fn publish(
        &self,
        scope: Scope,
        channel: &[u8],
        message: &[u8],
        post: &dyn Fn(&Mailbox, &[u8]),
    ) -> usize {
        let mut sent = 0;
        let _one = self.order.of(channel).lock();
        let word = if scope == Scope::Shard { "smessage" } else { "message" };
        if let Some(listeners) = self.of(scope).read().get(channel) {
            sent += listeners.len();
            send(listeners, &[word.as_bytes(), channel, message], post);
        }
        if scope == Scope::Channel {
            for (pattern, listeners) in self.patterns.read().iter() {
                if glob::matches(pattern, channel) {
                    sent += listeners.len();
                    send(listeners, &[b"pmessage", pattern, channel, message], post);
                }
            }
        }
        sent
    }

    /// Channels with at least one subscriber whose names match.
    #[must_use]
    pub fn active(&self, scope: Scope, pattern: Option<&[u8]>) -> Vec<Box<[u8]>> {
        let listeners = self.of(scope).read();
        let names = listeners.keys();
        let wanted =
            names.filter(|name| pattern.is_none_or(|pattern| glob::matches(pattern, name)));
        wanted.cloned().collect()
    }

    /// Number of subscribers of one channel.
    #[must_use]
    pub fn listeners(&self, scope: Scope, name: &[u8]) -> usize {
        self.of(scope).read().get(name).map_or(0, Vec::len)
    }

    /// Number of distinct names with subscriptions.
    #[must_use]
    pub fn names(&self, scope: Scope) -> usize {
        self.of(scope).read().len()
    }
}

fn send(listeners: &[Listener], words: &[&[u8]], post: &dyn Fn(&Mailbox, &[u8])) {
    let encoded = |protocol| {
        let mut reply = Reply::new(protocol);
        reply.push(words.len());
        for word in words {
            reply.bulk(word);
        }
        reply.take()
    };
    let (mut plain, mut typed) = (None, None);
    for listener in listeners {
        let held = match listener.protocol {
            Proto::Resp2 => &mut plain,
            Proto::Resp3 => &mut typed,
        };
        let bytes: &Vec<u8> = held.get_or_insert_with(|| encoded(listener.protocol));
        post(&listener.mailbox, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Silent;

    impl crate::engine::Notify for Silent {
        fn notify(&self, _connection: u64) {}
    }

    #[test]
    fn all_subscribers_receive_the_messages_of_a_channel_in_one_order() {
        let pubsub = PubSub::default();
        let mailboxes: [Arc<Mailbox>; 3] =
            std::array::from_fn(|id| Arc::new(Mailbox::new(Arc::new(Silent), id as u64)));
        for (id, mailbox) in mailboxes.iter().enumerate() {
            pubsub.subscribe(Scope::Channel, b"news", id as u64, Proto::Resp2, mailbox);
        }
        std::thread::scope(|scope| {
            for publisher in 0..4 {
                let pubsub = &pubsub;
                scope.spawn(move || {
                    for number in 0..500 {
                        let message = format!("{publisher}:{number}");
                        let sent = pubsub.publish(
                            Scope::Channel,
                            b"news",
                            message.as_bytes(),
                            &|mailbox, bytes| mailbox.send(bytes, 0),
                        );
                        assert_eq!(sent, 3);
                    }
                });
            }
        });
        let [first, second, third] = mailboxes.map(|mailbox| {
            let mut out = Reply::default();
            mailbox.drain(&mut out);
            out.take()
        });
        assert!(first == second && second == third, "the orders differ");
        let count = first.windows(9).filter(|bytes| bytes.starts_with(b"$7\r\nmessa")).count();
        assert_eq!(count, 2_000);
    }
}
