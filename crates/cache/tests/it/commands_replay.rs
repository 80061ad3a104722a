//! Replaying the logged operations of commands leads to the same data.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use forebay_base::Durability;
use forebay_base::clock::ManualClock;
use forebay_base::fs::sim::{Rng, SimFs};
use forebay_cache::resp::Proto;
use forebay_cache::{Cache, CacheOptions};

use crate::commands_random::{CHANCE, TEMPLATES, command};
use crate::commands_support::Ours;
use crate::crash_model::{DIR, State, dump, options};

/// Runs commands on an empty cache, and again from its log; returns what both lead to.
fn replayed(seed: u64, act: impl FnOnce(&mut Ours<'_>, &ManualClock)) -> State {
    let disk = Arc::new(SimFs::new(seed));
    let clock = Arc::new(ManualClock::new(1_700_000_000_000));
    let mut persist = options(Durability::Os);
    // No snapshot: everything must come from the log.
    persist.snapshot_log_min = u64::MAX;
    let options =
        CacheOptions { dir: Some(PathBuf::from(DIR)), persist, ..CacheOptions::default() };
    let open = || Cache::open(disk.clone(), clock.clone(), &options).unwrap();
    let now_ms = |clock: &ManualClock| forebay_base::clock::Clock::now_ms(clock);
    let before = {
        let cache = open();
        let mut ours = Ours::new(cache.engine(), Proto::Resp3);
        act(&mut ours, &clock);
        cache.engine().settle().unwrap();
        let state = dump(cache.engine().keyspace(), now_ms(&clock));
        cache.close().unwrap();
        state
    };
    assert!(before.len() > 5, "there is something to compare");
    let cache = open();
    let after = dump(cache.engine().keyspace(), now_ms(&clock));
    for (key, value) in &before {
        assert_eq!(after.get(key), Some(value), "seed {seed}: {key:?}");
    }
    assert_eq!(before.len(), after.len(), "seed {seed}: nothing else is there");
    before
}

#[test]
fn a_replay_leads_to_the_same_data() {
    let templates = [TEMPLATES, CHANCE, CHANCE, &["PEXPIRE {k} {n}0", "EXPIRE {k} 1"]].concat();
    for seed in 1..=4 {
        replayed(seed, |ours, clock| {
            let mut rng = Rng::new(seed);
            for _ in 0..3_000 {
                ours.run(&command(&mut rng, &templates));
                clock.advance(Duration::from_millis(rng.next_u64() % 8));
            }
        });
    }
}

#[test]
fn large_values_that_get_another_name_are_replayed_whole_and_stay_apart() {
    let long = "a line of words, all different: 0123456789 abcdefghijklmnop. ".repeat(1_500);
    let found = replayed(5, |ours, _| {
        for n in 0..1_300 {
            ours.line(&format!("RPUSH list {n}"));
            ours.line(&format!("SADD set member{n}"));
            ours.line(&format!("HSET hash field{n} {n}"));
            ours.line(&format!("ZADD zset {n}.5 member{n}"));
        }
        let mut rng = Rng::new(9);
        let noise: Vec<u8> = (0..8_000).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
        ours.run(&[b"SET".to_vec(), b"long".to_vec(), long.clone().into_bytes()]);
        ours.run(&[b"SET".to_vec(), b"noise".to_vec(), noise]);
        for key in ["list", "set", "hash", "zset", "long", "noise"] {
            ours.line(&format!("COPY {key} {key}.copy"));
            ours.line(&format!("RENAME {key} {key}.new"));
            ours.line(&format!("COPY {key}.new {key}.moved"));
            ours.line(&format!("MOVE {key}.moved 3"));
            assert_eq!(ours.line(&format!("EXISTS {key}")).text(), "0");
        }
        ours.line("SETRANGE long.new 1 X");
        ours.line("SETRANGE noise.copy 100 X");
        ours.line("ZREMRANGEBYRANK zset.new 100 1199");
        ours.line("LTRIM list.new 1000 -1");
    });
    assert_eq!(found.len(), 18);
    let value = |key: &str| &found[&(0, key.as_bytes().to_vec())].0;
    assert!(value("long.copy") != value("long.new") && value("noise.copy") != value("noise.new"));
}

#[test]
fn a_large_value_that_gets_another_name_takes_few_bytes_of_the_log() {
    let disk = Arc::new(SimFs::new(6));
    let clock = Arc::new(ManualClock::new(1_700_000_000_000));
    let options = CacheOptions {
        dir: Some(PathBuf::from(DIR)),
        persist: forebay_cache::persist::PersistOptions {
            durability: Durability::Os,
            ..forebay_cache::persist::PersistOptions::default()
        },
        ..CacheOptions::default()
    };
    let open = || Cache::open(disk.clone(), clock.clone(), &options).unwrap();
    let cache = open();
    let mut ours = Ours::new(cache.engine(), Proto::Resp3);
    for n in 0..20_000 {
        ours.line(&format!("SADD set member{n}"));
    }
    ours.line(&format!("SET text {}", "words of a long text, ".repeat(9_000).replace(' ', "_")));
    ours.line("PEXPIRE set 90000");
    // The target has expired, which a replay at an earlier time would not know.
    ours.run(&[b"SELECT".to_vec(), b"3".to_vec()]);
    ours.line("SET set old PX 5");
    ours.line("SELECT 0");
    clock.advance(Duration::from_millis(10));
    let appended = || cache.engine().journal().unwrap().log().stats().appended_bytes;
    let before = appended();
    for line in
        ["RENAME set other", "COPY other set", "RENAMENX text words", "COPY words text DB 2"]
    {
        assert!(!ours.line(line).text().starts_with('!'), "{line}");
    }
    assert_eq!(ours.line("MOVE set 3").text(), "1");
    let grown = appended() - before;
    assert!(grown < 1_000, "{grown} bytes for names");
    ours.line("SADD other one more");
    ours.line("APPEND words more");
    cache.engine().settle().unwrap();
    let expected = dump(cache.engine().keyspace(), 1_700_000_000_010);
    assert_eq!(expected.len(), 4);
    cache.close().unwrap();
    drop(cache);
    let cache = open();
    assert!(dump(cache.engine().keyspace(), 1_700_000_000_010) == expected);
}
