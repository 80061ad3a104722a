//! Copies made ahead are used for the string they were made from, and for no other.

use super::super::Keyspace;
use super::super::tests::{KEY, get, keyspace, noise, put, share, with};
use super::*;

/// Overwrites a part, with the copy made ahead if one is requested.
fn overwrite(space: &Keyspace, offset: usize, bytes: &[u8]) -> usize {
    let mut copy: Option<CopyAhead> = None;
    loop {
        let done =
            with(space, |shard, key| shard.overwrite_ahead(key, offset, bytes, copy.as_mut()));
        match done.unwrap() {
            Overwritten::Done(len) => return len,
            Overwritten::CopyFirst(mut first) => {
                first.make();
                copy = Some(first);
            }
        }
    }
}

fn copied(space: &Keyspace) -> u64 {
    with(space, |shard, _| shard.copied_locked())
}

#[test]
fn a_string_that_is_referenced_or_compressed_is_not_copied_under_the_lock() {
    let text = br#"{"id":1,"name":"basin","tags":["water","power"],"ok":true},"#.repeat(30_000);
    for value in [noise(1 << 20), text] {
        for (offset, size) in [(0, 1), (500_000, 2_000), (value.len(), 9), (3 << 20, 5)] {
            let space = keyspace();
            put(&space, &value);
            let held = share(&space);
            let mut expected = value.clone();
            expected.resize(expected.len().max(offset + size), 0);
            expected[offset..offset + size].fill(b'x');
            assert_eq!(overwrite(&space, offset, &vec![b'x'; size]), expected.len());
            assert!(get(&space, KEY, 1).unwrap() == expected, "{size} at {offset}");
            assert!(held.text().plain() == value, "what is held stays what it was");
            assert_eq!(copied(&space), 0);
            assert!(with(&space, |shard, _| shard.is_counted_right()));
        }
    }
}

#[test]
fn a_string_that_no_one_else_references_is_changed_in_place() {
    let space = keyspace();
    put(&space, &noise(1 << 20));
    for (offset, size) in [(0, 1), (1 << 20, 200_000), (1_300_000, 1)] {
        let bytes = vec![1; size];
        let done = with(&space, |shard, key| shard.overwrite_ahead(key, offset, &bytes, None));
        assert!(matches!(done, Ok(Overwritten::Done(_))), "{size} at {offset}");
    }
    assert_eq!(copied(&space), 0);
}

#[test]
fn a_copy_is_not_used_for_a_string_that_was_changed_meanwhile() {
    let changes: [fn(&Keyspace); 3] = [
        |space| put(space, &noise(300_000)),
        |space| assert_eq!(overwrite(space, 1, b"changed"), 1 << 20),
        |space| {
            with(space, |shard, key| shard.remove(key));
            put(space, b"short");
        },
    ];
    for change in changes {
        let space = keyspace();
        put(&space, &noise(1 << 20));
        let _held = share(&space);
        let asked = with(&space, |shard, key| shard.overwrite_ahead(key, 3, b"abc", None));
        let Ok(Overwritten::CopyFirst(mut copy)) = asked else { panic!("no copy is requested") };
        copy.make();
        change(&space);
        let mut expected = get(&space, KEY, 1).unwrap();
        expected.resize(expected.len().max(6), 0);
        expected[3..6].copy_from_slice(b"abc");
        with(&space, |shard, key| {
            let done = shard.overwrite_ahead(key, 3, b"abc", Some(&mut copy));
            assert!(matches!(done, Ok(Overwritten::Done(_))));
        });
        assert!(get(&space, KEY, 1).unwrap() == expected);
    }
}
