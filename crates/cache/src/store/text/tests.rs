//! Long strings: changed in place, counted, held by readers.

use super::super::tests::{KEY, get, keyspace, noise, put, share, with};
use super::super::{Codec, Deadline, Key, Keyspace, Shard};
use super::*;

fn text() -> Vec<u8> {
    br#"{"id":1,"name":"basin","tags":["water","power"],"ok":true},"#.repeat(3_000)
}

/// The address of the string's bytes.
fn place(space: &Keyspace) -> *const u8 {
    with(space, |shard, key| shard.text(key).unwrap().unwrap().stored.as_ptr())
}

#[test]
fn a_long_string_is_changed_where_it_lies() {
    let space = keyspace();
    put(&space, &noise(1 << 20));
    let before = place(&space);
    for n in 0..20_000 {
        with(&space, |shard, key| shard.overwrite(key, n * 50, b"x")).unwrap();
    }
    assert_eq!(place(&space), before);
}

#[test]
fn a_string_appended_to_moves_a_few_dozen_times_and_wastes_an_eighth_at_most() {
    let space = keyspace();
    put(&space, &noise(SHARED_MIN));
    let (mut moves, mut before) = (0, place(&space));
    let mut expected = noise(SHARED_MIN);
    for n in 0..100_000_u32 {
        let tail = n.to_le_bytes();
        expected.extend_from_slice(&tail);
        let len = with(&space, |shard, key| shard.append(key, &tail)).unwrap();
        assert_eq!(len, expected.len());
        let capacity = with(&space, |shard, key| {
            let at = shard.find(key).unwrap();
            shard.text_at(at).unwrap().shared.unwrap().capacity()
        });
        assert!(capacity <= len + len / GROWTH, "{capacity} for {len}");
        let now = place(&space);
        moves += u32::from(now != before);
        before = now;
    }
    // Each move makes room for an eighth more: log(26) / log(9/8) of them.
    assert!(moves < 30, "{moves} moves");
    assert_eq!(get(&space, KEY, 1).unwrap(), expected);
}

#[test]
fn a_string_from_a_larger_buffer_keeps_no_spare_room() {
    let bytes = noise(SHARED_MIN);
    let mut roomy = Vec::with_capacity(64 * SHARED_MIN);
    roomy.extend_from_slice(&bytes);
    let text = SharedText::new(Form::Plain, roomy);
    assert_eq!(*text.bytes, bytes);
    // The allocator may round up.
    assert!(text.bytes.capacity() <= SHARED_MIN + 64, "{}", text.bytes.capacity());
    assert!(text.bytes() <= SHARED_MIN + 64 + OVERHEAD, "{}", text.bytes());
}

#[test]
fn a_compressed_string_is_decompressed_by_the_first_change_alone() {
    let space = keyspace();
    let mut expected = text();
    put(&space, &expected);
    let stored = |space: &Keyspace| {
        with(space, |shard, key| {
            let at = shard.find(key).unwrap();
            shard.stored_len(at)
        })
    };
    assert!(stored(&space).0 == Codec::Lz4 && stored(&space).1 < expected.len() / 50);
    with(&space, |shard, key| shard.overwrite(key, 7, b"2")).unwrap();
    expected[7] = b'2';
    assert_eq!(stored(&space), (Codec::None, expected.len()));
    let before = place(&space);
    with(&space, |shard, key| shard.overwrite(key, 9, b"3")).unwrap();
    expected[9] = b'3';
    assert_eq!(place(&space), before);
    assert_eq!(get(&space, KEY, 1).unwrap(), expected);
    put(&space, &expected);
    assert_eq!(stored(&space).0, Codec::Lz4, "written whole it is compressed again");
}

#[test]
fn what_a_reader_holds_stays_what_it_was() {
    let changes: [fn(&mut Shard, &Key<'_>); 5] = [
        |shard, key| shard.put_string(key, b"new", Deadline::None),
        |shard, key| assert!(shard.overwrite(key, 0, b"new").is_ok()),
        |shard, key| assert!(shard.append(key, b"new").is_ok()),
        |shard, key| assert!(shard.remove(key)),
        |shard, _| drop(shard.clear()),
    ];
    for value in [noise(100_000), br#"{"a":1,"b":"#.iter().copied().chain(noise(20_000)).collect()]
    {
        for change in changes {
            let space = keyspace();
            put(&space, &value);
            let held = share(&space);
            with(&space, change);
            assert_eq!(held.text().plain(), &value[..]);
            assert_ne!(get(&space, KEY, 1), Some(value.clone()));
        }
    }
}

#[test]
fn a_string_short_or_long_is_lengthened_over_every_bound_it_is_kept_by() {
    for start in [0, 1, 60, 1_000, 1_025, 16_383, 16_384, 70_000] {
        for (offset, size) in
            [(0, 1), (5, 2_000), (1_020, 10), (16_380, 10), (80_000, 1), (0, 66_000)]
        {
            for value in [noise(start), text()[..start].to_vec()] {
                let space = keyspace();
                if start > 0 {
                    with(&space, |shard, key| shard.put_string(key, &value, Deadline::At(99)));
                }
                let mut expected = value.clone();
                write_over(&mut expected, offset, &noise(size));
                let len = with(&space, |shard, key| shard.overwrite(key, offset, &noise(size)));
                assert_eq!(len, Ok(expected.len()));
                assert_eq!(get(&space, KEY, 1).unwrap(), expected);
                let deadline = with(&space, |shard, key| {
                    let at = shard.find(key).unwrap();
                    shard.deadline_ms(at)
                });
                assert_eq!(deadline, (start > 0).then_some(99));
            }
        }
    }
}

#[test]
fn a_part_of_a_string_is_cut_to_what_is_there() {
    for value in [noise(40_000), text()] {
        let space = keyspace();
        put(&space, &value);
        for range in [0..5, 39_990..40_000, 100..100, 39_999..90_000_000, 80_000_000..90_000_000] {
            let mut out = b"before".to_vec();
            with(&space, |shard, key| {
                shard.text(key).unwrap().unwrap().append_range_to(range.clone(), &mut out);
            });
            let end = range.end.min(value.len());
            let expected = &value[range.start.min(end)..end];
            assert_eq!(&out[6..], expected);
        }
    }
}

#[test]
fn what_long_strings_take_is_counted_to_the_byte() {
    let space = keyspace();
    put(&space, b"short");
    let empty = space.used();
    put(&space, &noise(100_000));
    let own = |space: &Keyspace| space.used() - empty;
    assert!((100_000..100_000 + 1_500).contains(&own(&space)), "{}", own(&space));
    let held = share(&space);
    with(&space, |shard, key| shard.append(key, b"x")).unwrap();
    drop(held);
    let capacity = with(&space, |shard, key| {
        let at = shard.find(key).unwrap();
        shard.text_at(at).unwrap().shared.unwrap().capacity()
    });
    assert!((capacity..capacity + 1_500).contains(&own(&space)));
    with(&space, |shard, key| shard.remove(key));
    put(&space, b"short");
    assert!(own(&space) < 1_500, "{}", own(&space));
}
