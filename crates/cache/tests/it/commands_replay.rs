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
use crate::crash_model::{DIR, dump, options};

fn replayed(seed: u64, steps: usize) {
    let disk = Arc::new(SimFs::new(seed));
    let clock = Arc::new(ManualClock::new(1_700_000_000_000));
    let mut persist = options(Durability::Os);
    // No snapshot: everything must come from the log.
    persist.snapshot_log_min = u64::MAX;
    let options =
        CacheOptions { dir: Some(PathBuf::from(DIR)), persist, ..CacheOptions::default() };
    let open = || Cache::open(disk.clone(), clock.clone(), &options).unwrap();
    let templates = [TEMPLATES, CHANCE, CHANCE, &["PEXPIRE {k} {n}0", "EXPIRE {k} 1"]].concat();
    let mut rng = Rng::new(seed);
    let now_ms = |clock: &ManualClock| forebay_base::clock::Clock::now_ms(clock);
    let before = {
        let cache = open();
        let mut ours = Ours::new(cache.engine(), Proto::Resp3);
        for _ in 0..steps {
            ours.run(&command(&mut rng, &templates));
            clock.advance(Duration::from_millis(rng.next_u64() % 8));
        }
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
}

#[test]
fn a_replay_leads_to_the_same_data() {
    (1..=4).for_each(|seed| replayed(seed, 3_000));
}
