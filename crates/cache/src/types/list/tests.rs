//! Lists compared with a vector.
#![expect(clippy::cast_possible_truncation, reason = "the indices of the model are small")]

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Op {
    PushFront(Vec<u8>),
    PushBack(Vec<u8>),
    PopFront(u8),
    PopBack(u8),
    Set(i64, Vec<u8>),
    Insert(bool, Vec<u8>, Vec<u8>),
    Remove(i64, Vec<u8>),
    Trim(i64, i64),
}

/// Few distinct elements, so that they repeat; of all sizes, so that chunks are added and removed.
fn element() -> impl Strategy<Value = Vec<u8>> {
    (0u8..6, prop_oneof![8 => Just(3usize), 4 => Just(200), 2 => Just(1500), 1 => Just(9000)])
        .prop_map(|(byte, len)| vec![byte; if byte == 0 { 0 } else { len }])
}

fn op() -> impl Strategy<Value = Op> {
    let index = -40i64..40;
    prop_oneof![
        12 => element().prop_map(Op::PushFront),
        12 => element().prop_map(Op::PushBack),
        2 => (1u8..5).prop_map(Op::PopFront),
        2 => (1u8..5).prop_map(Op::PopBack),
        3 => (index.clone(), element()).prop_map(|(at, element)| Op::Set(at, element)),
        6 => (any::<bool>(), element(), element()).prop_map(|(b, p, e)| Op::Insert(b, p, e)),
        2 => (-3i64..4, element()).prop_map(|(count, element)| Op::Remove(count, element)),
        1 => (index.clone(), index).prop_map(|(start, stop)| Op::Trim(start, stop)),
    ]
}

fn slice(model: &[Vec<u8>], start: i64, stop: i64) -> &[Vec<u8>] {
    let len = model.len() as i64;
    let start = if start < 0 { (start + len).max(0) } else { start };
    let stop = (if stop < 0 { stop + len } else { stop }).min(len - 1);
    if start > stop { &[] } else { &model[start as usize..=stop as usize] }
}

fn remove(model: &mut Vec<Vec<u8>>, count: i64, element: &[u8]) -> usize {
    let mut same: Vec<usize> = (0..model.len()).filter(|&at| model[at] == element).collect();
    if count < 0 {
        same.reverse();
    }
    if count != 0 {
        same.truncate(count.unsigned_abs() as usize);
    }
    same.sort_unstable();
    same.iter().rev().for_each(|&at| drop(model.remove(at)));
    same.len()
}

fn apply(list: &mut List, model: &mut Vec<Vec<u8>>, op: Op) -> Result<(), TestCaseError> {
    match op {
        Op::PushFront(element) => {
            list.push_front(&element);
            model.insert(0, element);
        }
        Op::PushBack(element) => {
            list.push_back(&element);
            model.push(element);
        }
        Op::PopFront(count) => {
            for _ in 0..count {
                let expected = (!model.is_empty()).then(|| model.remove(0));
                prop_assert_eq!(list.pop_front().map(<[u8]>::into_vec), expected);
            }
        }
        Op::PopBack(count) => {
            for _ in 0..count {
                prop_assert_eq!(list.pop_back().map(<[u8]>::into_vec), model.pop());
            }
        }
        Op::Set(index, element) => {
            let len = model.len() as i64;
            let at = if index < 0 { index + len } else { index };
            let there = (0..len).contains(&at);
            prop_assert_eq!(list.set(index, &element), there);
            if there {
                model[at as usize] = element;
            }
        }
        Op::Insert(before, pivot, element) => {
            let at = model.iter().position(|other| *other == pivot);
            let done = if before {
                list.insert_before(&pivot, &element)
            } else {
                list.insert_after(&pivot, &element)
            };
            prop_assert_eq!(done, at.is_some());
            if let Some(at) = at {
                model.insert(at + usize::from(!before), element);
            }
        }
        Op::Remove(count, element) => {
            prop_assert_eq!(list.remove(count, &element), remove(model, count, &element));
        }
        Op::Trim(start, stop) => {
            list.trim(start, stop);
            *model = slice(model, start, stop).to_vec();
        }
    }
    Ok(())
}

fn check(list: &List, model: &[Vec<u8>], start: i64, stop: i64) -> Result<(), TestCaseError> {
    prop_assert_eq!(list.len(), model.len());
    prop_assert!(list.iter().eq(model.iter()));
    prop_assert!(list.iter().rev().eq(model.iter().rev()));
    prop_assert!(list.range(start, stop).eq(slice(model, start, stop)));
    prop_assert!(list.range(start, stop).rev().eq(slice(model, start, stop).iter().rev()));
    for index in -(model.len() as i64) - 1..=model.len() as i64 {
        let at = if index < 0 { index + model.len() as i64 } else { index };
        let expected = usize::try_from(at).ok().and_then(|at| model.get(at));
        prop_assert_eq!(list.get(index), expected.map(Vec::as_slice));
    }
    let chunks: Vec<&Chunk> = (0..list.chunks.count()).map(|at| list.chunks.get(at)).collect();
    prop_assert_eq!(list.heap, chunks.iter().map(|chunk| chunk.heap()).sum::<usize>());
    prop_assert!(list.is_empty() || chunks.iter().all(|chunk| !chunk.is_empty()));
    Ok(())
}

proptest! {
    #[test]
    fn lists_equal_a_vector(
        ops in proptest::collection::vec(op(), 0..120),
        start in -50i64..50,
        stop in -50i64..50,
    ) {
        let (mut list, mut model) = (List::new(), Vec::new());
        for op in ops {
            apply(&mut list, &mut model, op)?;
            prop_assert_eq!(list.len(), model.len());
        }
        check(&list, &model, start, stop)?;
        check(&list.clone(), &model, start, stop)?;
    }

    #[test]
    fn positions_equal_those_of_a_vector(
        elements in proptest::collection::vec(0u8..4, 0..40),
        rank in -6i64..6,
        count in 0usize..4,
        maxlen in 0usize..50,
    ) {
        let mut list = List::new();
        elements.iter().for_each(|&element| list.push_back(&[element]));
        let len = elements.len();
        let within = if maxlen == 0 { len } else { maxlen.min(len) };
        let order: Vec<usize> =
            if rank < 0 { (len - within..len).rev().collect() } else { (0..within).collect() };
        let skipped = rank.unsigned_abs().saturating_sub(1) as usize;
        let expected: Vec<usize> = order
            .into_iter()
            .filter(|&at| elements[at] == 2)
            .skip(skipped)
            .take(if count == 0 { len } else { count })
            .collect();
        prop_assert_eq!(list.position(&[2], rank, count, maxlen), expected);
    }
}

#[test]
fn extreme_indices_are_indices_like_others() {
    let mut list = List::new();
    assert_eq!(list.range(0, -1).count(), 0);
    assert_eq!(list.pop_front(), None);
    assert_eq!((list.get(0), list.get(-1)), (None, None));
    (0..5u8).for_each(|byte| list.push_back(&[byte]));
    assert_eq!(list.range(i64::MIN, i64::MAX).len(), 5);
    assert_eq!(list.range(i64::MAX, i64::MIN).len(), 0);
    assert_eq!((list.get(i64::MIN), list.get(i64::MAX)), (None, None));
    assert_eq!(list.remove(i64::MIN, &[3]), 1);
    assert_eq!(list.position(&[1], i64::MIN, 0, 0), Vec::<usize>::new());
    list.trim(i64::MIN, i64::MAX);
    assert_eq!(list.len(), 4);
}

#[test]
fn small_lists_are_one_allocation_and_large_ones_have_little_overhead() {
    let mut list = List::new();
    (0..10).for_each(|_| list.push_back(b"0123456789"));
    assert_eq!((list.encoding(), list.bytes()), ("listpack", 128));
    for front in [false, true] {
        let mut list = List::new();
        for _ in 0..100_000 {
            if front { list.push_front(b"0123456789") } else { list.push_back(b"0123456789") }
        }
        assert_eq!(list.encoding(), "quicklist");
        assert!(list.bytes() < 100_000 * 13, "{} bytes", list.bytes());
        while list.pop_back().is_some() {}
        assert_eq!(list.encoding(), "listpack");
        assert!(list.bytes() <= 64, "{} bytes of nothing", list.bytes());
    }
}
