//! The store compared with a plain model, and its limits.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;

use proptest::prelude::*;

use super::*;

pub(super) fn keyspace() -> Keyspace {
    Keyspace::new(Rules::new(7))
}

/// Calls `act` with the shard of a key.
pub(super) fn on<R>(
    space: &Keyspace,
    key: &[u8],
    now_ms: u64,
    act: impl FnOnce(&mut Shard, &Key<'_>) -> R,
) -> R {
    let key = space.key(key);
    act(&mut space.lock(0, key.shard(), now_ms), &key)
}

pub(super) fn get(space: &Keyspace, key: &[u8], now_ms: u64) -> Option<Vec<u8>> {
    on(space, key, now_ms, |shard, key| shard.string(key).unwrap().map(|text| text.into_owned()))
}

/// The key of the tests of one long string.
pub(super) const KEY: &[u8] = b"key";

/// Bytes that do not compress.
pub(super) fn noise(size: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let mut byte = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state.to_le_bytes()[5]
    };
    (0..size).map(|_| byte()).collect()
}

pub(super) fn with<R>(space: &Keyspace, act: impl FnOnce(&mut Shard, &Key<'_>) -> R) -> R {
    on(space, KEY, 1, act)
}

pub(super) fn put(space: &Keyspace, value: &[u8]) {
    with(space, |shard, key| shard.put_string(key, value, Deadline::None));
}

pub(super) fn share(space: &Keyspace) -> text::SharedText {
    with(space, |shard, key| shard.text(key).unwrap().unwrap().share().unwrap())
}

proptest! {
    #[test]
    fn strings_and_deadlines_follow_a_plain_map(
        ops in proptest::collection::vec((0u8..6, 0u16..60, 0usize..2_500, 0u64..40), 1..400)
    ) {
        let space = keyspace();
        let mut model: HashMap<Vec<u8>, (Vec<u8>, Option<u64>)> = HashMap::new();
        let mut now_ms = 1_000;
        for (op, key, size, extra) in ops {
            now_ms += 1;
            model.retain(|_, (_, deadline)| deadline.is_none_or(|ms| ms > now_ms));
            let key = format!("key:{key}").into_bytes();
            let byte = |at: usize| u8::try_from((at * 7 + size) % 251).unwrap_or(0);
            let value: Vec<u8> = (0..size).map(byte).collect();
            match op {
                0 | 1 => {
                    let deadline = (extra % 3 == 0).then_some(now_ms + extra);
                    on(&space, &key, now_ms, |shard, key| {
                        let at = deadline.map_or(Deadline::None, Deadline::At);
                        shard.put_string(key, &value, at);
                    });
                    model.insert(key.clone(), (value, deadline.filter(|&ms| ms > now_ms)));
                    if deadline == Some(now_ms) { model.remove(&key); }
                }
                2 => {
                    let removed = on(&space, &key, now_ms, |shard, key| shard.remove(key));
                    prop_assert_eq!(removed, model.remove(&key).is_some());
                }
                3 => {
                    let len = on(&space, &key, now_ms, |shard, key| shard.append(key, &value).unwrap());
                    let held = model.entry(key.clone()).or_default();
                    held.0.extend_from_slice(&value);
                    prop_assert_eq!(len, held.0.len());
                }
                4 => {
                    let deadline = (extra > 5).then_some(now_ms + extra);
                    let found = on(&space, &key, now_ms, |shard, key| shard.set_deadline(key, deadline));
                    prop_assert_eq!(found, model.contains_key(&key));
                    if let Some(held) = model.get_mut(&key) { held.1 = deadline; }
                }
                _ => {
                    let len = on(&space, &key, now_ms, |shard, key| shard.string_len(key).unwrap());
                    prop_assert_eq!(len, model.get(&key).map_or(0, |held| held.0.len()));
                }
            }
            prop_assert_eq!(get(&space, &key, now_ms), model.get(&key).map(|held| held.0.clone()));
        }
        for (key, (value, deadline)) in &model {
            prop_assert_eq!(get(&space, key, now_ms), Some(value.clone()));
            let found = on(&space, key, now_ms, |shard, key| {
                let at = shard.find(key).unwrap();
                shard.deadline_ms(at)
            });
            prop_assert_eq!(found, *deadline);
        }
    }
}

#[test]
fn an_overwritten_key_does_not_keep_the_old_deadline() {
    let space = keyspace();
    on(&space, b"k", 1, |shard, key| shard.put_string(key, b"old", Deadline::At(10)));
    on(&space, b"k", 5, |shard, key| shard.put_string(key, b"new", Deadline::None));
    assert_eq!(get(&space, b"k", 1_000).unwrap(), b"new");
}

#[test]
fn what_two_million_short_values_take_is_counted_and_small() {
    let space = keyspace();
    let mut state = 1u64;
    let mut value = [0u8; 100];
    const KEYS: usize = 200_000;
    for n in 0..KEYS {
        for byte in &mut value {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *byte = b'0' + (state >> 58) as u8;
        }
        let key = format!("key:{n:012}");
        on(&space, key.as_bytes(), 1, |shard, key| shard.put_string(key, &value, Deadline::None));
    }
    let each = space.used() / KEYS;
    assert!((116..135).contains(&each), "{each} bytes a key of 16 and 100");
    assert_eq!(space.count(0), (KEYS, 0));
}

#[test]
fn a_scan_resumed_between_inserts_meets_everything_that_stayed() {
    let space = keyspace();
    let name = |n: usize| format!("k{n}");
    for n in 0..5_000 {
        on(&space, name(n).as_bytes(), 1, |shard, key| shard.put_string(key, b"v", Deadline::None));
    }
    let mut seen = std::collections::HashSet::new();
    let mut added = 5_000;
    for number in 0..SHARDS {
        let mut position = Some(0);
        while let Some(at) = position {
            position = space.lock(0, number, 1).scan(at, &mut |shard, at| {
                seen.insert(shard.key(at).to_vec());
            });
            for n in added..added + 3 {
                on(&space, name(n).as_bytes(), 1, |shard, key| {
                    shard.put_string(key, b"v", Deadline::None);
                });
            }
            added += 3;
        }
    }
    assert!((0..5_000).all(|n| seen.contains(name(n).as_bytes())));
}

#[test]
fn a_watched_key_raises_its_flag_on_every_kind_of_change() {
    let changes: [fn(&mut Shard, &Key<'_>); 5] = [
        |shard, key| shard.put_string(key, b"x", Deadline::None),
        |shard, key| assert!(shard.remove(key)),
        |shard, key| assert!(shard.append(key, b"x").is_ok()),
        |shard, key| assert!(shard.set_deadline(key, Some(99))),
        |shard, _| drop(shard.clear()),
    ];
    for change in changes {
        let space = keyspace();
        let flag = Arc::new(AtomicBool::new(false));
        on(&space, b"k", 1, |shard, key| {
            shard.put_string(key, b"v", Deadline::None);
            shard.watch(b"k", &flag);
        });
        on(&space, b"other", 1, |shard, key| shard.put_string(key, b"v", Deadline::None));
        on(&space, b"k", 1, change);
        assert!(flag.load(Ordering::Acquire));
    }
}

#[test]
fn every_policy_makes_room_and_what_is_used_often_stays_under_s3_fifo() {
    for policy in Policy::ALL {
        let space = keyspace();
        space.rules().set_max_memory(1 << 30);
        space.rules().set_policy(policy);
        for n in 0..2_000 {
            let deadline = if policy.volatile() { Deadline::At(1 << 40) } else { Deadline::None };
            on(&space, format!("k{n}").as_bytes(), 1, |shard, key| {
                shard.put_string(key, b"value", deadline);
            });
        }
        for round in 0..3 {
            for n in 0..100 {
                assert!(get(&space, format!("k{n}").as_bytes(), 2 + round).is_some());
            }
        }
        let mut gone = 0;
        for number in 0..SHARDS {
            let mut shard = space.lock(0, number, 3);
            let target = shard.len() / 2;
            while shard.len() > target && shard.evict(&mut |_| {}) {
                gone += 1;
            }
        }
        if policy == Policy::NoEviction {
            assert_eq!(gone, 0);
        } else {
            assert!(gone >= 900, "{gone} under {}", policy.as_str());
        }
        if policy == Policy::S3Fifo {
            let left = (0..100).filter(|n| get(&space, format!("k{n}").as_bytes(), 4).is_some());
            assert_eq!(left.count(), 100, "what was used stays");
        }
    }
}
