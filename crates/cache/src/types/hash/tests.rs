//! Hashes compared with a map.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// The exact number of bytes, computed from scratch.
fn counted(hash: &Hash) -> usize {
    match &hash.0 {
        Repr::Packed { buf, .. } => buf.capacity(),
        Repr::Dict { dict, .. } => {
            dict.bytes() + dict.entries().iter().map(Pair::heap).sum::<usize>()
        }
    }
}

#[derive(Debug, Clone)]
enum Op {
    Set(u16, Vec<u8>),
    Remove(u16),
}

fn field(number: u16) -> Vec<u8> {
    // Some fields are too long to be packed.
    format!("{number:0width$}", width = if number % 97 == 96 { 70 } else { 1 }).into_bytes()
}

fn ops(fields: u16, count: usize) -> impl Strategy<Value = Vec<Op>> {
    let value = proptest::collection::vec(any::<u8>(), 0..68);
    let op = prop_oneof![
        3 => (0..fields, value).prop_map(|(field, value)| Op::Set(field, value)),
        2 => (0..fields).prop_map(Op::Remove),
    ];
    proptest::collection::vec(op, 0..count)
}

fn check(ops: Vec<Op>) -> Result<(), TestCaseError> {
    let (mut hash, mut model) = (Hash::new(), BTreeMap::<Vec<u8>, Vec<u8>>::new());
    for op in ops {
        match op {
            Op::Set(number, value) => {
                let new = model.insert(field(number), value.clone()).is_none();
                prop_assert_eq!(hash.set(&field(number), &value), new);
                prop_assert_eq!(hash.get(&field(number)), Some(&value[..]));
            }
            Op::Remove(number) => {
                let there = model.remove(&field(number)).is_some();
                prop_assert_eq!(hash.remove(&field(number)), there);
                prop_assert!(!hash.contains(&field(number)));
            }
        }
        prop_assert_eq!(hash.len(), model.len());
    }
    prop_assert_eq!(hash.bytes(), counted(&hash));
    prop_assert_eq!(hash.clone().iter().len(), model.len());
    let found: BTreeMap<Vec<u8>, Vec<u8>> =
        hash.iter().map(|(field, value)| (field.to_vec(), value.to_vec())).collect();
    let picked: BTreeMap<Vec<u8>, Vec<u8>> = (0..hash.len())
        .filter_map(|index| hash.nth(index))
        .map(|(field, value)| (field.to_vec(), value.to_vec()))
        .collect();
    prop_assert_eq!(&found, &model);
    prop_assert_eq!(&picked, &model);
    prop_assert_eq!(hash.nth(hash.len()), None);
    Ok(())
}

proptest! {
    #[test]
    fn small_hashes_equal_a_map(ops in ops(12, 60)) {
        check(ops)?;
    }

}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn large_hashes_equal_a_map(ops in ops(400, 900)) {
        check(ops)?;
    }

    #[test]
    fn a_scan_meets_everything_that_stays(
        removed in proptest::collection::vec(200u16..500, 0..200),
        count in 1usize..40,
    ) {
        let mut hash = Hash::new();
        (0..500).for_each(|number| {
 hash.set(&field(number), b"v");
});
        let (mut met, mut cursor, mut removed) = (BTreeMap::new(), 0, removed.into_iter());
        loop {
            cursor = hash.scan(cursor, count, |field, _| *met.entry(field.to_vec()).or_insert(0) += 1);
            if cursor == 0 {
                break;
            }
            removed.by_ref().take(7).for_each(|number| {
 hash.remove(&field(number));
});
            hash.set(format!("new {cursor}").as_bytes(), b"");
        }
        prop_assert!((0..200).all(|number| met.contains_key(&field(number))));
    }
}

#[test]
fn five_small_fields_are_one_small_allocation() {
    let mut hash = Hash::new();
    for number in 0..5 {
        assert!(hash.set(format!("field{number}").as_bytes(), b"0123456789"));
    }
    assert_eq!(hash.encoding(), "listpack");
    assert_eq!(hash.bytes(), (5 * (6 + 10 + 2usize)).next_multiple_of(16));
}

#[test]
fn a_hash_turns_large_by_number_and_by_size() {
    let mut hash = Hash::new();
    (0..128u32).for_each(|number| assert!(hash.set(&number.to_le_bytes(), b"v")));
    assert_eq!(hash.encoding(), "listpack");
    hash.set(b"one more", b"v");
    assert_eq!(hash.encoding(), "hashtable");
    let mut hash = Hash::new();
    hash.set(b"f", &[b'v'; 65]);
    assert_eq!((hash.encoding(), hash.get(b"f")), ("hashtable", Some(&[b'v'; 65][..])));
}

#[test]
fn an_emptied_hash_gives_its_memory_back() {
    let mut hash = Hash::new();
    (0..10_000u32).for_each(|number| assert!(hash.set(&number.to_le_bytes(), b"v")));
    let full = hash.bytes();
    (0..9_990u32).for_each(|number| assert!(hash.remove(&number.to_le_bytes())));
    assert!(hash.bytes() < full / 50, "{} of {full}", hash.bytes());
}
