//! The memory of clients.

use super::*;
use crate::engine::{Mailbox, Notify, Peer, Scope, Via};
use crate::resp::Reply;

#[derive(Debug)]
struct Deaf;

impl Notify for Deaf {
    fn notify(&self, _connection: u64) {}
}

fn session(engine: &Engine) -> Session {
    let peer = Peer { address: String::new(), local: String::new(), via: Via::Resp };
    engine.session(peer, Arc::new(Mailbox::new(Arc::new(Deaf), 0)))
}

fn ask(engine: &Engine, session: &mut Session, words: &[&[u8]]) -> String {
    let mut out = Reply::default();
    engine.execute(session, words, &mut out);
    String::from_utf8_lossy(&out.take()).into_owned()
}

fn bounded(max: usize) -> Engine {
    let engine = Engine::in_memory(1);
    engine.config().clients_memory_max.store(max, Ordering::Relaxed);
    engine
}

#[test]
fn the_clients_that_hold_most_are_closed_and_no_key_is_evicted() {
    let engine = bounded(1_000_000);
    engine.keyspace().rules().set_max_memory(1 << 20);
    engine.keyspace().rules().set_policy(crate::store::Policy::S3Fifo);
    let mut writer = session(&engine);
    for n in 0..100u32 {
        assert_eq!(ask(&engine, &mut writer, &[b"SET", &n.to_le_bytes(), &[7; 1_000]]), "+OK\r\n");
    }
    let sizes = [100_000, 300_000, 50_000, 250_000, 200_000];
    let clients: Vec<Session> = sizes.iter().map(|_| session(&engine)).collect();
    for (client, size) in clients.iter().zip(sizes) {
        engine.hold(&client.info, size);
    }
    assert!(engine.clients().len() == 6, "900,000 bytes fit");
    engine.hold(&clients[2].info, 160_000);
    let open: Vec<bool> = clients.iter().map(|it| !it.info.mailbox.is_closing()).collect();
    assert_eq!(open, [true, false, true, true, true], "the largest makes room enough");
    engine.background(std::time::Duration::ZERO);
    assert_eq!(engine.keyspace().count(0).0, 100);
    assert_eq!(engine.statistics().evicted_clients.load(Ordering::Relaxed), 1);
    clients.into_iter().for_each(|client| engine.close(client));
    assert_eq!(engine.clients_memory(), 0, "everything counted is subtracted");
}

#[test]
fn clients_that_asked_to_be_spared_go_last_but_go() {
    let engine = bounded(1_000_000);
    let (mut spared, other) = (session(&engine), session(&engine));
    ask(&engine, &mut spared, &[b"CLIENT", b"NO-EVICT", b"ON"]);
    engine.hold(&other.info, 300_000);
    engine.hold(&spared.info, 800_000);
    assert!(other.info.mailbox.is_closing() && !spared.info.mailbox.is_closing());
    engine.hold(&spared.info, 1_100_000);
    assert!(spared.info.mailbox.is_closing());
}

#[test]
fn unread_messages_are_counted_as_they_are_sent_and_bounded() {
    let engine = bounded(10 << 20);
    let mut listeners: Vec<Session> = (0..50).map(|_| session(&engine)).collect();
    for listener in &mut listeners {
        ask(&engine, listener, &[b"SUBSCRIBE", b"c"]);
    }
    let message = vec![b'm'; 1 << 20];
    for _ in 0..100 {
        engine.publish(Scope::Channel, b"c", &message);
        // One message above the limit may be on its way.
        assert!(engine.clients_memory() <= 14 << 20, "{}", engine.clients_memory());
    }
    assert!(engine.statistics().evicted_clients.load(Ordering::Relaxed) >= 40);
    listeners.into_iter().for_each(|client| engine.close(client));
    assert_eq!(engine.clients_memory(), 0);
}

#[test]
fn a_mailbox_beyond_the_hard_bound_of_its_kind_closes_its_connection_and_is_emptied() {
    let engine = bounded(0);
    engine.config().pubsub_output.set(OutputBound { hard: 10_000, ..OutputBound::default() });
    let mut listener = session(&engine);
    ask(&engine, &mut listener, &[b"SUBSCRIBE", b"c"]);
    for _ in 0..12 {
        engine.publish(Scope::Channel, b"c", &[b'm'; 1_000]);
    }
    assert_eq!(engine.clients_memory(), 0);
    assert!(listener.info.mailbox.drain(&mut Reply::default()).close);
}

#[test]
fn what_a_session_keeps_counts_and_is_taken_back() {
    let engine = bounded(0);
    let mut session = session(&engine);
    let long = [b'n'; 1_000];
    for name in 0..10u8 {
        let name = [&[name][..], &long].concat();
        ask(&engine, &mut session, &[b"WATCH", &name]);
    }
    let watched = session.held();
    assert!(watched > 10_000);
    ask(&engine, &mut session, &[b"MULTI"]);
    ask(&engine, &mut session, &[b"SET", b"k", &[7; 50_000]]);
    assert!(session.held() > watched + 50_000);
    ask(&engine, &mut session, &[b"DISCARD"]);
    assert_eq!(session.held(), 0);
    for name in 0..10u8 {
        let name = [&[name][..], &long].concat();
        ask(&engine, &mut session, &[b"SUBSCRIBE", &name]);
        ask(&engine, &mut session, &[b"PSUBSCRIBE", &name]);
    }
    assert!(session.held() > 20_000);
    ask(&engine, &mut session, &[b"UNSUBSCRIBE"]);
    ask(&engine, &mut session, &[b"PUNSUBSCRIBE"]);
    assert_eq!(session.held(), 0);
    ask(&engine, &mut session, &[b"BLPOP", &long, b"0"]);
    assert!(session.held() > 2_000);
    engine.close(session);
    assert_eq!(engine.clients_memory(), 0);
}

#[test]
fn a_soft_bound_is_passed_only_by_who_stays_above_it() {
    let bound = OutputBound { hard: 100, soft: 10, soft_seconds: 60 };
    let (now, mut since) = (Instant::now(), None);
    let later = |seconds| now + Duration::from_secs(seconds);
    assert!(bound.is_passed(101, now, &mut since), "the hard one at once");
    assert!(!bound.is_passed(11, now, &mut since));
    assert!(!bound.is_passed(11, later(60), &mut since));
    assert!(!bound.is_passed(10, later(61), &mut since), "below it once, it begins again");
    assert!(!bound.is_passed(50, later(62), &mut since));
    assert!(bound.is_passed(50, later(123), &mut since));
    assert!(!OutputBound::default().is_passed(usize::MAX, now, &mut None));
}
