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

/// Number of long strings that were copied under a lock, and whether all memory is counted right.
fn copied_locked(engine: &Engine) -> u64 {
    let shards = (0..crate::store::SHARDS).map(|shard| engine.keyspace().lock(0, shard, 0));
    shards
        .map(|shard| {
            assert!(shard.is_counted_right());
            shard.copied_locked()
        })
        .sum()
}

fn noise(size: usize) -> Vec<u8> {
    let mut state = 7u64;
    let mut byte = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state.to_le_bytes()[5]
    };
    (0..size).map(|_| byte()).collect()
}

fn raw(engine: &Engine, session: &mut Session, args: &[&[u8]]) -> Vec<u8> {
    let mut out = Reply::new(session.protocol);
    engine.execute(session, args, &mut out);
    out.take()
}

#[test]
fn clients_that_change_one_large_string_that_is_referenced_lose_no_change_and_copy_unlocked() {
    const THREADS: usize = 3;
    const BITS: usize = 400;
    let engine = Engine::in_memory(3);
    let (mut one, _) = session(&engine);
    raw(&engine, &mut one, &[b"SET", b"k", &vec![0; 300_000]]);
    raw(&engine, &mut one, &[b"SETRANGE", b"k", b"0", b"\0"]);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let engine = &engine;
            scope.spawn(move || {
                let (mut own, _) = session(engine);
                for n in 0..BITS {
                    let bit = (n * THREADS + thread) * 1_500;
                    let reply = reply_to(engine, &mut own, &format!("SETBIT k {bit} 1"));
                    assert_eq!(reply, ":0\r\n");
                    if n % 50 == 0 {
                        // The copy references the string, so the next change needs another.
                        reply_to(engine, &mut own, &format!("COPY k copy:{thread} REPLACE"));
                    }
                }
            });
        }
    });
    let set = reply_to(&engine, &mut one, "BITCOUNT k");
    assert_eq!(set, format!(":{}\r\n", THREADS * BITS));
    assert_eq!(reply_to(&engine, &mut one, "STRLEN k"), ":300000\r\n");
    // Only a client that others overtook as often as it may be overtaken copies under the lock.
    assert!(copied_locked(&engine) <= 3, "{}", copied_locked(&engine));
}

#[test]
fn a_large_string_that_is_referenced_is_changed_without_a_copy_under_the_lock() {
    for line in ["SETBIT k 8000007 1", "SETRANGE k 5 xyz", "APPEND k xyz", "SETRANGE k 2500000 z"] {
        let engine = Engine::in_memory(3);
        let (mut one, _) = session(&engine);
        let mut expected = noise(1_000_000);
        expected.extend_from_slice(&[0; 10]);
        raw(&engine, &mut one, &[b"SET", b"k", &expected]);
        assert_eq!(reply_to(&engine, &mut one, "COPY k held"), ":1\r\n");
        reply_to(&engine, &mut one, line);
        let words: Vec<&str> = line.split(' ').collect();
        match words[0] {
            "SETBIT" => expected[1_000_000] |= 1,
            "APPEND" => expected.extend_from_slice(b"xyz"),
            _ => {
                let at: usize = words[2].parse().unwrap();
                expected.resize(expected.len().max(at + words[3].len()), 0);
                expected[at..at + words[3].len()].copy_from_slice(words[3].as_bytes());
            }
        }
        let reply = raw(&engine, &mut one, &[b"GET", b"k"]);
        assert!(reply[reply.len() - 2 - expected.len()..reply.len() - 2] == expected, "{line}");
        assert_eq!(copied_locked(&engine), 0, "{line}");
        // Again, now in place.
        reply_to(&engine, &mut one, line);
        assert_eq!(copied_locked(&engine), 0, "{line} twice");
    }
}

#[test]
fn bits_of_large_strings_are_combined_as_those_of_short_ones() {
    let (left, right) = (noise(600_000), noise(400_001).split_off(100_000));
    for operation in ["AND", "OR", "XOR", "NOT"] {
        let engine = Engine::in_memory(3);
        let (mut one, _) = session(&engine);
        raw(&engine, &mut one, &[b"SET", b"a", &left]);
        raw(&engine, &mut one, &[b"SET", b"b", &right]);
        let line = match operation {
            "NOT" => "BITOP NOT a a".to_owned(),
            _ => format!("BITOP {operation} a a b none"),
        };
        assert_eq!(reply_to(&engine, &mut one, &line), ":600000\r\n");
        let expected: Vec<u8> = (0..left.len())
            .map(|at| {
                let (one, other) = (left[at], right.get(at).copied().unwrap_or(0));
                match operation {
                    "AND" => 0,
                    "OR" => one | other,
                    "XOR" => one ^ other,
                    _ => !one,
                }
            })
            .collect();
        let reply = raw(&engine, &mut one, &[b"GET", b"a"]);
        assert!(reply.ends_with(&[&expected[..], b"\r\n"].concat()), "{operation}");
        assert_eq!(copied_locked(&engine), 0);
    }
}

#[test]
fn a_large_string_that_is_replaced_or_removed_is_still_the_reply() {
    let value = noise(200_000);
    let text = b"the basin below the dam; ".repeat(9_000);
    for value in [value, text] {
        for words in
            ["SET k new GET", "GETSET k new", "GETDEL k", "GETEX k EX 100", "SET k v NX GET"]
        {
            let engine = Engine::in_memory(3);
            let (mut one, _) = session(&engine);
            raw(&engine, &mut one, &[b"SET", b"k", &value]);
            let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
            let reply = raw(&engine, &mut one, &words);
            let head = format!("${}\r\n", value.len());
            assert!(reply == [head.as_bytes(), &value, b"\r\n"].concat(), "{words:?}");
            reply_to(&engine, &mut one, "MULTI");
            raw(&engine, &mut one, &[b"SET", b"k", &value]);
            raw(&engine, &mut one, &words);
            let reply = reply_to(&engine, &mut one, "EXEC");
            assert!(reply.starts_with(&format!("*2\r\n+OK\r\n${}\r\n", value.len())));
        }
    }
}
