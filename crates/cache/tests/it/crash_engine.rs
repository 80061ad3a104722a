//! The real commands: replaying the log has the same result, with and without a snapshot, for one
//! client or several at once.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use forebay_base::clock::ManualClock;
use forebay_base::fs::sim::{Rng, SimFs};
use forebay_cache::engine::Engine;
use forebay_cache::persist::PersistOptions;
use forebay_cache::resp::{Proto, Reply};
use forebay_cache::{Cache, CacheOptions};

use crate::crash_model::{DIR, State, dump, options};

/// Commands, with places for what is drawn: `T`, `L`, `H`, `S`, `Z` a key of each type, `K` any
/// key, `e` an element, `n` a number, `f` a fraction, `d` a deadline from now in ms.
const COMMANDS: &str = "
    SET T e|SET T e KEEPTTL|SET T e PX d|SET T n XX GET|SETNX T e|SETEX T 1 e|PSETEX T d e|GETSET T e|GETDEL T
    GETEX T PX d|GETEX T PERSIST|APPEND T e|SETRANGE T n e|INCR T|INCRBY T n|DECRBY T n|INCRBYFLOAT T f
    MSET T e T e|MSETNX T e T n|DEL K K|UNLINK K|EXPIRE K 1|PEXPIRE K d|PEXPIRE K d GT|PERSIST K
    RENAME K K|RENAMENX K K|COPY K K|COPY K K DB 3 REPLACE|MOVE K 3|TOUCH K
    LPUSH L e e|RPUSH L e e e|LPUSHX L e|RPUSHX L e|LPOP L|RPOP L 2|LMOVE L L LEFT RIGHT|RPOPLPUSH L L
    LSET L 1 e|LINSERT L BEFORE e e|LREM L n e|LTRIM L 0 9|LMPOP 2 L L LEFT COUNT 2|BLPOP L L 0.001
    HSET H e e e n|HSETNX H e e|HDEL H e e|HINCRBY H e n|HINCRBYFLOAT H e f|HMSET H e e
    SADD S e e n|SREM S e e|SPOP S|SPOP S 2|SMOVE S S e|SUNIONSTORE S S S|SINTERSTORE S S S|SDIFFSTORE S S S
    ZADD Z f e n e|ZADD Z GT CH f e|ZADD Z INCR f e|ZINCRBY Z f e|ZREM Z e e|ZPOPMIN Z|ZPOPMAX Z 2
    ZMPOP 2 Z Z MIN COUNT 2|ZREMRANGEBYRANK Z 0 1|ZREMRANGEBYSCORE Z -2 0|ZREMRANGEBYLEX Z [a [b
    ZUNIONSTORE Z 2 Z Z|ZINTERSTORE Z 2 Z Z WEIGHTS 2 3|ZDIFFSTORE Z 2 Z Z|ZRANGESTORE Z Z 0 3|BZPOPMIN Z Z 0.001
    SETBIT T 7 1|BITOP OR T T T|BITFIELD T SET u8 0 9|PFADD T e|SORT L ALPHA STORE L|GET T|LRANGE L 0 -1|HGETALL H
    SELECT 3|SELECT 0|FLUSHDB|SWAPDB 0 3";

fn fill(rng: &mut Rng, word: &str) -> Vec<u8> {
    let key = |rng: &mut Rng, kind: &str| format!("{kind}:{}", rng.below(5));
    let text = match word {
        "T" | "L" | "H" | "S" | "Z" => key(rng, word),
        "K" => {
            let kind = ["T", "L", "H", "S", "Z"][rng.below(5)];
            key(rng, kind)
        }
        // RENAME, COPY and MOVE of a value of this size are logged by reference.
        "e" if rng.one_in(30) => "very long element ".repeat(500),
        "e" if rng.one_in(12) => "long element ".repeat(1 + rng.below(60)),
        "e" => format!("e{}|\r\n", rng.below(9)),
        "n" => (rng.below(20).cast_signed() - 5).to_string(),
        "f" => format!("{}.{}", rng.below(9), rng.below(100)),
        "d" => (1 + rng.below(400)).to_string(),
        other => other.to_owned(),
    };
    text.into_bytes()
}

fn command(rng: &mut Rng) -> Vec<Vec<u8>> {
    let all: Vec<&str> =
        COMMANDS.split(['|', '\n']).map(str::trim).filter(|text| !text.is_empty()).collect();
    let chosen = loop {
        let chosen = all[rng.below(all.len())];
        // Commands that remove everything are drawn less often.
        if !(chosen.starts_with("FLUSH") || chosen.starts_with("SWAP")) || rng.one_in(8) {
            break chosen;
        }
    };
    chosen.split(' ').map(|word| fill(rng, word)).collect()
}

fn open(disk: &SimFs, clock: &Arc<ManualClock>) -> Cache {
    let options = CacheOptions {
        dir: Some(PathBuf::from(DIR)),
        persist: PersistOptions {
            segment_size: 64 << 10,
            snapshot_log_min: 1 << 20,
            ..options("os".parse().unwrap())
        },
        ..CacheOptions::default()
    };
    let clock = Arc::<ManualClock>::clone(clock);
    Cache::open(Arc::new(disk.clone()), clock, &options).unwrap()
}

/// Runs this many commands, some of them as transactions; returns how many were refused.
fn work(cache: &Cache, rng: &mut Rng, clock: &ManualClock, count: usize) -> usize {
    let engine = cache.engine();
    let mut session = engine.inner_session();
    let mut refused = 0;
    let mut run = |words: &[Vec<u8>]| {
        let words: Vec<&[u8]> = words.iter().map(|word| &**word).collect();
        let mut out = Reply::new(Proto::Resp3);
        engine.begin_turn();
        engine.execute(&mut session, &words, &mut out);
        engine.end_turn();
        // A blocked command would take later elements: it is ended.
        if session.waiter.is_some() {
            engine.time_out(&mut session, &mut out);
        }
        engine.settle().unwrap();
        refused += usize::from(out.as_bytes().starts_with(b"-"));
    };
    for _ in 0..count {
        if rng.one_in(10) {
            run(&[b"MULTI".to_vec()]);
            (0..2 + rng.below(3)).for_each(|_| run(&command(rng)));
            run(&[b"EXEC".to_vec()]);
        } else {
            run(&command(rng));
        }
        clock.advance(Duration::from_millis(rng.below(30) as u64));
    }
    engine.close(session);
    refused
}

fn state(cache: &Cache) -> State {
    dump(cache.engine().keyspace(), cache.engine().now_ms())
}

fn assert_same(expected: &State, found: &State, seed: u64) {
    for key in expected.keys().chain(found.keys()) {
        let (before, after) = (expected.get(key), found.get(key));
        let name = String::from_utf8_lossy(&key.1);
        assert!(before == after, "seed {seed}, {} {name}: {before:?} became {after:?}", key.0);
    }
}

#[test]
fn whatever_commands_did_the_log_does_again() {
    for seed in 0..12 {
        let mut rng = Rng::new(seed);
        let clock = Arc::new(ManualClock::new(1_000_000));
        let mut disk = SimFs::new(seed);
        let mut cache = open(&disk, &clock);
        for round in 0..4 {
            let refused = work(&cache, &mut rng, &clock, 150);
            assert!(refused < 130, "{refused} commands refused: the list of commands is wrong");
            if round % 2 == 1 {
                let mut out = Reply::new(Proto::Resp3);
                let mut session = cache.engine().inner_session();
                cache.engine().execute(&mut session, &[b"SAVE"], &mut out);
                assert!(out.as_bytes().starts_with(b"+OK"), "{:?}", out.as_bytes().escape_ascii());
                work(&cache, &mut rng, &clock, 40);
            }
            let expected = state(&cache);
            disk = disk.kill();
            drop(cache);
            cache = open(&disk, &clock);
            assert_eq!(cache.recovered().unwrap().snapshot.is_some(), round > 0);
            assert_same(&expected, &state(&cache), seed);
        }
    }
}

#[test]
fn whatever_several_clients_did_at_once_the_log_does_again() {
    for seed in 100..104 {
        let clock = Arc::new(ManualClock::new(1_000_000));
        let disk = SimFs::new(seed);
        let cache = open(&disk, &clock);
        std::thread::scope(|scope| {
            for client in 0..3 {
                let (cache, clock) = (&cache, &clock);
                let mut rng = Rng::new(seed * 10 + client);
                scope.spawn(move || work(cache, &mut rng, clock, 400));
            }
            scope.spawn(|| {
                let mut session = cache.engine().inner_session();
                for _ in 0..3 {
                    let mut out = Reply::new(Proto::Resp3);
                    cache.engine().execute(&mut session, &[b"SAVE"], &mut out);
                }
            });
        });
        let expected = state(&cache);
        let disk = disk.kill();
        drop(cache);
        let cache = open(&disk, &clock);
        assert!(cache.recovered().unwrap().snapshot.is_some());
        assert_same(&expected, &state(&cache), seed);
    }
}

/// Runs a command and writes what it logged.
fn run_settled(engine: &Engine, line: &str) {
    let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    let mut out = Reply::new(Proto::Resp3);
    engine.execute(&mut engine.inner_session(), &words, &mut out);
    engine.settle().unwrap();
}

#[test]
fn names_that_change_while_a_snapshot_reads_keys_lose_no_large_value() {
    let (wholes, references) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    for seed in 0..8 {
        let clock = Arc::new(ManualClock::new(1_000_000));
        let disk = SimFs::new(seed);
        let cache = open(&disk, &clock);
        let engine = cache.engine();
        let run = |line: &str| run_settled(engine, line);
        for key in 0..8 {
            run(&format!("RPUSH key:{key} {}", "element ".repeat(2_000).trim_end()));
        }
        let rng = std::cell::RefCell::new(Rng::new(seed));
        let journal = engine.journal().unwrap();
        // A line whose effect is logged by reference, or as a whole value.
        let count = |line: &str| {
            let before = journal.end().0;
            run(line);
            let size = journal.end().0 - before;
            let counted = if size > 10_000 { &wholes } else { &references };
            counted.set(counted.get() + u32::from(size > 0));
        };
        let rename = |_: &forebay_cache::persist::SnapshotProgress| {
            let mut rng = rng.borrow_mut();
            if !rng.one_in(20) {
                return;
            }
            let (from, to) = (rng.below(16), rng.below(16));
            // All values stay large, and none is overwritten.
            match rng.below(8) {
                0..4 => count(&format!("RENAMENX key:{from} key:{to}")),
                4 => count(&format!("COPY key:{from} copy:{to} DB 3 REPLACE")),
                5 => count(&format!("COPY key:{from} copy:{to} DB 7 REPLACE")),
                6 => count(&format!("MOVE key:{from} 3")),
                _ => {
                    let texts = [from, to].map(|key| [format!("key:{key}"), format!("t:{key}")]);
                    let commands: Vec<Vec<&[u8]>> = texts
                        .iter()
                        .map(|[from, to]| vec![&b"RENAMENX"[..], from.as_bytes(), to.as_bytes()])
                        .collect();
                    let mut out = Reply::new(Proto::Resp3);
                    engine.transaction(&mut engine.inner_session(), &commands, &mut out);
                    engine.settle().unwrap();
                    [from, to].iter().for_each(|key| run(&format!("RENAMENX t:{key} key:{key}")));
                }
            }
            run(&format!("RPUSHX key:{} more", rng.below(16)));
        };
        let never = std::sync::atomic::AtomicBool::new(false);
        for _ in 0..2 {
            let now_ms = engine.now_ms();
            forebay_cache::persist::snapshot(engine.keyspace(), journal, now_ms, &never, &rename)
                .unwrap();
            run("RENAME key:1 key:2");
            run("COPY key:2 key:1");
        }
        let expected = state(&cache);
        assert!(expected.len() > 2);
        let disk = disk.kill();
        drop(cache);
        let cache = open(&disk, &clock);
        assert!(cache.recovered().unwrap().snapshot.is_some());
        assert_same(&expected, &state(&cache), seed);
    }
    // Some keys were on the same side of what the snapshot had read, and some were not.
    assert!(references.get() > 20 && wholes.get() > 20, "{references:?} {wholes:?}");
}

#[test]
fn names_that_clients_change_at_once_while_snapshots_are_taken_lose_no_large_value() {
    for seed in 0..3 {
        let clock = Arc::new(ManualClock::new(1_000_000));
        let disk = SimFs::new(seed);
        let cache = open(&disk, &clock);
        let engine = cache.engine();
        let run = |line: &str| run_settled(engine, line);
        for key in 0..12 {
            let elements = format!("element-{key} ").repeat(1_000 + 400 * key);
            run(&format!("RPUSH key:{key} {}", elements.trim_end()));
            run(&format!("SET text:{key} {}", "0123456789".repeat(2_000 * (key + 1))));
        }
        std::thread::scope(|scope| {
            let clients: Vec<_> = (0..2)
                .map(|client| {
                    scope.spawn(move || {
                        let mut rng = Rng::new(seed * 10 + client);
                        for _ in 0..400 {
                            let (from, to) = (rng.below(24), rng.below(24));
                            let kind = if rng.one_in(2) { "key" } else { "text" };
                            match rng.below(8) {
                                0..5 => run(&format!("RENAMENX {kind}:{from} {kind}:{to}")),
                                5 => run(&format!("COPY {kind}:{from} {kind}:{to} DB 5 REPLACE")),
                                6 => run(&format!("MOVE {kind}:{from} {}", 1 + rng.below(4))),
                                _ => run(&format!("APPEND text:{from} more")),
                            }
                        }
                    })
                })
                .collect();
            while !clients.iter().all(std::thread::ScopedJoinHandle::is_finished) {
                run("SAVE");
            }
        });
        let expected = state(&cache);
        assert!(expected.len() > 12);
        let disk = disk.kill();
        drop(cache);
        let cache = open(&disk, &clock);
        assert!(cache.recovered().unwrap().snapshot.is_some());
        assert_same(&expected, &state(&cache), seed);
    }
}

#[test]
fn a_turn_that_began_before_a_key_expired_does_not_bring_it_back() {
    let clock = Arc::new(ManualClock::new(1_000_000));
    let disk = SimFs::new(1);
    let cache = open(&disk, &clock);
    let engine = cache.engine();
    let run = |words: &[&[u8]]| {
        let mut out = Reply::new(Proto::Resp3);
        engine.execute(&mut engine.inner_session(), words, &mut out);
        engine.settle().unwrap();
    };
    run(&[b"SET", b"key", b"old", b"PX", b"100"]);
    engine.begin_turn();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Another thread's turn begins later, and meets the key after its deadline.
            clock.advance(Duration::from_millis(200));
            engine.begin_turn();
            run(&[b"GET", b"key"]);
            engine.end_turn();
        });
    });
    run(&[b"APPEND", b"key", b"new"]);
    engine.end_turn();
    let expected = state(&cache);
    let disk = disk.kill();
    drop(cache);
    assert_same(&expected, &state(&open(&disk, &clock)), 0);
}
