//! Sessions on one engine: transactions, blocking, the memory limit.

use std::sync::Arc;
use std::time::Duration;

use super::*;

#[derive(Debug)]
struct Silent;

impl Notify for Silent {
    fn notify(&self, _connection: u64) {}
}

fn session(engine: &Engine) -> (Session, Arc<Mailbox>) {
    let mailbox = Arc::new(Mailbox::new(Arc::new(Silent), 1));
    let peer = Peer { address: "test".into(), local: "test".into(), via: Via::Resp };
    (engine.session(peer, mailbox.clone()), mailbox)
}

fn run(engine: &Engine, session: &mut Session, line: &str) -> (String, Flow) {
    let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    let mut out = Reply::new(session.protocol);
    let flow = engine.execute(session, &args, &mut out);
    (String::from_utf8_lossy(out.as_bytes()).into_owned(), flow)
}

fn reply_to(engine: &Engine, session: &mut Session, line: &str) -> String {
    run(engine, session, line).0
}

#[test]
fn commands_over_all_keys_run_inside_a_transaction() {
    let engine = Engine::in_memory(3);
    let (mut one, _) = session(&engine);
    reply_to(&engine, &mut one, "MSET a 1 b 2 c 3");
    reply_to(&engine, &mut one, "MULTI");
    for line in ["SET d 4", "DBSIZE", "INFO", "RANDOMKEY", "SCAN 0", "MEMORY STATS", "KEYS *"] {
        assert_eq!(reply_to(&engine, &mut one, line), "+QUEUED\r\n");
    }
    reply_to(&engine, &mut one, "FLUSHALL");
    reply_to(&engine, &mut one, "CLIENT UNBLOCK 99");
    let replies = reply_to(&engine, &mut one, "EXEC");
    assert!(replies.starts_with("*9\r\n+OK\r\n:4\r\n"), "{replies}");
    assert_eq!(reply_to(&engine, &mut one, "DBSIZE"), ":0\r\n");
}

#[test]
fn a_reply_that_names_one_value_over_and_over_keeps_to_the_bound() {
    let engine = Engine::in_memory(1);
    let (mut one, _) = session(&engine);
    engine.config().output_max.store(200_000, std::sync::atomic::Ordering::Relaxed);
    let value = "some words; ".repeat(4_000);
    reply_to(&engine, &mut one, &format!("HSET hash field {}", value.replace(' ', "_")));
    reply_to(&engine, &mut one, &format!("SET long {}", value.replace(' ', "_")));
    for (four, five) in [
        ("MGET long long long long", "MGET long long long long long"),
        ("HMGET hash field field field field", "HMGET hash field field field field field"),
    ] {
        assert!(reply_to(&engine, &mut one, four).starts_with("*4\r\n$48000\r\nsome_words;"));
        let reply = reply_to(&engine, &mut one, five);
        assert_eq!(reply, "-ERR the reply would exceed its size limit\r\n");
    }
}

#[test]
fn who_waits_longest_is_served_first_and_only_once() {
    let engine = Engine::in_memory(3);
    let (mut first, first_mail) = session(&engine);
    let (mut second, second_mail) = session(&engine);
    let (mut giver, _) = session(&engine);
    for waiting in [&mut first, &mut second] {
        let (reply, flow) = run(&engine, waiting, "BLPOP k other 0");
        assert_eq!((reply.as_str(), flow), ("", Flow::Blocked { deadline: None }));
    }
    assert_eq!(engine.blocked(), 2);
    assert_eq!(reply_to(&engine, &mut giver, "RPUSH k x"), ":1\r\n");
    let mut out = Reply::new(Proto::Resp2);
    assert!(first_mail.drain(&mut out).unblocked && !second_mail.drain(&mut out).unblocked);
    assert_eq!(out.as_bytes(), b"*2\r\n$1\r\nk\r\n$1\r\nx\r\n");
    assert_eq!(reply_to(&engine, &mut giver, "EXISTS k"), ":0\r\n");
    // The second times out, and an element that comes later stays.
    let mut out = Reply::new(Proto::Resp2);
    engine.time_out(&mut second, &mut out);
    assert_eq!(out.as_bytes(), b"*-1\r\n");
    reply_to(&engine, &mut giver, "RPUSH k y");
    assert_eq!((reply_to(&engine, &mut giver, "LLEN k").as_str(), engine.blocked()), (":1\r\n", 0));
}

#[test]
fn a_transaction_does_nothing_when_a_watched_key_changed() {
    let engine = Engine::in_memory(3);
    let (mut one, _) = session(&engine);
    let (mut other, _) = session(&engine);
    for (change, expected) in [("SET k 2", "*-1\r\n"), ("SET another 2", "*1\r\n+OK\r\n")] {
        reply_to(&engine, &mut one, "WATCH k");
        reply_to(&engine, &mut other, change);
        reply_to(&engine, &mut one, "MULTI");
        reply_to(&engine, &mut one, "SET k 3");
        assert_eq!(reply_to(&engine, &mut one, "EXEC"), expected, "after {change}");
    }
}

#[test]
fn memory_stays_below_its_bound_under_every_policy_that_evicts() {
    for policy in crate::store::Policy::ALL {
        let engine = Engine::in_memory(3);
        engine.keyspace().rules().set_policy(policy);
        let (mut one, _) = session(&engine);
        reply_to(&engine, &mut one, "SET warm up");
        let max = engine.used_memory() + (1 << 20);
        engine.keyspace().rules().set_max_memory(max);
        let value = "v0123456789".repeat(30);
        let mut refused = 0;
        for n in 0..12_000 {
            let reply = reply_to(&engine, &mut one, &format!("SET key:{n} {value} EX 1000"));
            refused += usize::from(reply.starts_with("-OOM"));
            // One command may need one page more than there was.
            assert!(engine.used_memory() <= max + (1 << 20), "{}", policy.as_str());
        }
        let never = policy == crate::store::Policy::NoEviction;
        assert_eq!(refused > 0, never, "{refused} refused under {}", policy.as_str());
    }
}

#[test]
fn a_sweep_removes_what_has_expired_without_anybody_asking() {
    let engine = Engine::in_memory(3);
    let (mut one, _) = session(&engine);
    for n in 0..1_000 {
        reply_to(&engine, &mut one, &format!("SET k{n} v PXAT 1"));
        reply_to(&engine, &mut one, &format!("SET stay{n} v"));
    }
    engine.background(Duration::from_secs(5));
    engine.background(Duration::from_secs(5));
    assert_eq!(engine.keyspace().count(0), (1_000, 0));
}
