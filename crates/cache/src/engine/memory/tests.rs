//! The memory limit under random commands and buffers.

use proptest::prelude::*;

use super::*;
use crate::engine::Session;
use crate::resp::{Proto, Reply};
use crate::store::Policy;

const MAX: usize = 6 << 20;

fn reply_to(engine: &Engine, session: &mut Session, words: &[&[u8]]) -> Vec<u8> {
    let mut out = Reply::new(Proto::Resp2);
    engine.execute(session, words, &mut out);
    out.take()
}

/// The memory of all shards, computed by visiting each of them.
fn counted(engine: &Engine) -> usize {
    let mut sum = 0;
    for database in (0..DATABASES).filter(|&database| engine.keyspace().is_made(database)) {
        for number in 0..SHARDS {
            let shard = engine.keyspace().lock(database, number, 0);
            assert!(shard.is_counted_right());
            sum += shard.bytes();
        }
    }
    sum
}

/// Returns the words of the command encoded by a few numbers.
fn words(op: u8, key: u16, size: usize) -> Vec<Vec<u8>> {
    let text = |text: String| text.into_bytes();
    let value = |size: usize| -> Vec<u8> {
        (0..size).map(|at| (at * at / 7 * (size + 3)).to_le_bytes()[0]).collect()
    };
    let key = text(format!("key:{key}"));
    let size = if size.is_multiple_of(17) { size * 20 } else { size };
    match op {
        0..=3 => vec![b"SET".to_vec(), key, value(size)],
        4 => vec![b"SET".to_vec(), key, b"the basin below the dam; ".repeat(size / 4)],
        5 => vec![b"APPEND".to_vec(), key, value(size / 8)],
        6 => vec![b"SETRANGE".to_vec(), key, text((size * 90).to_string()), b"x".to_vec()],
        7 => vec![b"SETBIT".to_vec(), key, text((size * 700).to_string()), b"1".to_vec()],
        8 => vec![b"RPUSH".to_vec(), key, value(size), value(size / 2)],
        9 => vec![b"HSET".to_vec(), key, value(size / 9), value(size)],
        10 => vec![b"DEL".to_vec(), key],
        11 => vec![b"EXPIRE".to_vec(), key, b"1000".to_vec()],
        12 => {
            vec![b"MSET".to_vec(), key.clone(), value(size), [&key[..], b"'"].concat(), value(size)]
        }
        _ => vec![b"COPY".to_vec(), key.clone(), [&key[..], b"\""].concat()],
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn data_and_index_stay_within_the_bound_whatever_is_asked_and_buffers_push_nothing_out(
        policy in 0usize..3,
        ops in proptest::collection::vec((0u8..14, 0u16..500, 0usize..6_000, 0usize..200_000), 500..1_500),
    ) {
        let policy = [Policy::S3Fifo, Policy::Random, Policy::Lru][policy];
        let engine = Engine::in_memory(3);
        engine.keyspace().rules().set_policy(policy);
        let mut session = engine.inner_session();
        engine.keyspace().rules().set_max_memory(MAX);
        let mut buffers = 0usize;
        for (op, key, size, buffer) in ops {
            let words = words(op, key, size);
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            reply_to(&engine, &mut session, &words);
            prop_assert!(engine.keyspace().used() <= MAX, "{} after {op}", engine.keyspace().used());
            if buffer % 5 == 0 {
                let evicted = engine.statistics().evicted.load(Ordering::Relaxed);
                buffers = buffer * 100;
                engine.hold(&session.info, buffers);
                engine.background(Duration::ZERO);
                prop_assert_eq!(engine.statistics().evicted.load(Ordering::Relaxed), evicted);
            }
        }
        prop_assert_eq!(counted(&engine) + buffers, engine.used_memory());
        prop_assert!(engine.statistics().evicted.load(Ordering::Relaxed) > 0);
    }
}

#[test]
fn a_value_that_can_never_fit_is_refused_and_evicts_nothing() {
    let engine = Engine::in_memory(3);
    let mut session = engine.inner_session();
    engine.keyspace().rules().set_policy(Policy::S3Fifo);
    engine.keyspace().rules().set_max_memory(MAX);
    reply_to(&engine, &mut session, &[b"SET", b"k", b"v"]);
    let large = vec![7; MAX];
    assert!(reply_to(&engine, &mut session, &[b"SET", b"l", &large]).starts_with(b"-OOM"));
    assert!(
        reply_to(&engine, &mut session, &[b"SETRANGE", b"l", b"90000000", b"x"])
            .starts_with(b"-OOM")
    );
    assert!(
        reply_to(&engine, &mut session, &[b"SETBIT", b"l", b"900000000", b"1"])
            .starts_with(b"-OOM")
    );
    assert_eq!(reply_to(&engine, &mut session, &[b"GET", b"k"]), b"$1\r\nv\r\n");
    assert_eq!(engine.statistics().evicted.load(Ordering::Relaxed), 0);
}

#[test]
fn without_eviction_writes_are_refused_at_the_bound_and_reads_are_not() {
    let engine = Engine::in_memory(3);
    let mut session = engine.inner_session();
    assert_eq!(engine.keyspace().rules().policy(), Policy::NoEviction, "unless asked for another");
    engine.keyspace().rules().set_max_memory(MAX);
    let mut state = 7u64;
    let mut noise = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state.to_le_bytes()[5]
    };
    let value: Vec<u8> = (0..3_000).map(|_| noise()).collect();
    let mut refused = 0;
    for n in 0..4_000_u32 {
        let reply = reply_to(&engine, &mut session, &[b"SET", &n.to_le_bytes(), &value]);
        refused += usize::from(reply.starts_with(b"-OOM"));
        assert!(engine.used_memory() <= MAX, "{}", engine.used_memory());
    }
    assert!(refused > 1_000);
    assert!(reply_to(&engine, &mut session, &[b"GET", &0u32.to_le_bytes()]).starts_with(b"$3000"));
    assert_eq!(reply_to(&engine, &mut session, &[b"DEL", &0u32.to_le_bytes()]), b":1\r\n");
    assert_eq!(reply_to(&engine, &mut session, &[b"SET", b"k", b"small"]), b"+OK\r\n");
}
