//! Sorted sets compared with a map and a sort.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

type Model = BTreeMap<Vec<u8>, f64>;

#[derive(Debug, Clone)]
enum Op {
    Insert(Vec<u8>, f64),
    Remove(Vec<u8>),
    RemoveRange(usize, usize),
    PopMin,
    PopMax,
}

fn sorted(model: &Model) -> Vec<(&[u8], f64)> {
    let mut all: Vec<(&[u8], f64)> = model.iter().map(|(m, s)| (&m[..], *s)).collect();
    all.sort_by(|left, right| left.1.partial_cmp(&right.1).unwrap().then(left.0.cmp(right.0)));
    all
}

fn score() -> impl Strategy<Value = f64> {
    prop_oneof![
        8 => (-5i8..5).prop_map(f64::from),
        8 => -100.0..100.0f64,
        1 => proptest::sample::select(vec![f64::INFINITY, f64::NEG_INFINITY, -0.0, 5e-324]),
    ]
}

fn member(range: u16) -> impl Strategy<Value = Vec<u8>> {
    // A member in two hundred is too long to be packed.
    (0..range).prop_map(|number| {
        let width = if number % 200 == 199 { 70 } else { 1 };
        format!("{number:0width$}").into_bytes()
    })
}

fn ops(range: u16, count: usize) -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        40 => (member(range), score()).prop_map(|(member, score)| Op::Insert(member, score)),
        14 => member(range).prop_map(Op::Remove),
        1 => (0usize..60, 0usize..8).prop_map(|(from, count)| Op::RemoveRange(from, from + count)),
        1 => (0usize..60, 0usize..200)
            .prop_map(|(from, count)| Op::RemoveRange(from, from + count)),
        1 => Just(Op::PopMin),
        1 => Just(Op::PopMax),
    ];
    proptest::collection::vec(op, 0..count)
}

fn apply(zset: &mut ZSet, model: &mut Model, op: Op) -> Result<(), TestCaseError> {
    match op {
        Op::Insert(member, score) => {
            let expected = match model.get(&member) {
                None => Upsert::Added,
                Some(&old) if old == score => Upsert::Same,
                Some(_) => Upsert::Updated,
            };
            prop_assert_eq!(zset.insert(&member, score), expected);
            model.insert(member, score);
        }
        Op::Remove(member) => prop_assert_eq!(zset.remove(&member), model.remove(&member)),
        Op::RemoveRange(from, to) => {
            let doomed: Vec<Vec<u8>> =
                sorted(model).iter().skip(from).take(to - from).map(|(m, _)| m.to_vec()).collect();
            prop_assert_eq!(zset.remove_range(from..to).0, doomed.len());
            doomed.iter().for_each(|member| {
                model.remove(member);
            });
        }
        Op::PopMin | Op::PopMax => {
            let all = sorted(model);
            let first = if matches!(op, Op::PopMin) { all.first() } else { all.last() };
            let expected = first.map(|(member, score)| (member.to_vec(), *score));
            let popped = if matches!(op, Op::PopMin) { zset.pop_min() } else { zset.pop_max() };
            let popped = popped.map(|(member, score)| (member.into_vec(), score));
            prop_assert_eq!(&popped, &expected);
            popped.map(|(member, _)| model.remove(&member));
        }
    }
    prop_assert_eq!(zset.len(), model.len());
    Ok(())
}

fn counted(zset: &ZSet) -> usize {
    let Repr::Tree(tree) = &zset.0 else { return zset.bytes() };
    let (kept, counted) = tree.order.counted_capacity();
    assert_eq!(kept, counted);
    let members = tree.dict.entries().iter();
    size_of::<Tree>()
        + tree.dict.bytes()
        + tree.order.bytes()
        + members.map(|entry| pack::allocated(entry.member.len())).sum::<usize>()
}

fn check(zset: &ZSet, model: &Model) -> Result<(), TestCaseError> {
    let all = sorted(model);
    prop_assert!(zset.iter().eq(all.iter().copied()));
    prop_assert!(zset.iter().rev().eq(all.iter().rev().copied()));
    prop_assert_eq!(zset.bytes(), counted(zset));
    for (rank, (member, score)) in all.iter().enumerate() {
        prop_assert_eq!(zset.rank(member), Some(rank));
        prop_assert_eq!(zset.score(member), Some(*score));
        prop_assert_eq!(zset.nth(rank), Some((*member, *score)));
    }
    prop_assert_eq!((zset.nth(all.len()), zset.rank(b"none")), (None, None));
    let mut scanned = Model::new();
    let mut visit = |member: &[u8], score| {
        scanned.insert(member.to_vec(), score);
    };
    let mut cursor = zset.scan(0, 9, &mut visit);
    while cursor != 0 {
        cursor = zset.scan(cursor, 9, &mut visit);
    }
    prop_assert_eq!(&scanned, model);
    Ok(())
}

fn run(ops: Vec<Op>) -> Result<(), TestCaseError> {
    let (mut zset, mut model) = (ZSet::new(), Model::new());
    for op in ops {
        apply(&mut zset, &mut model, op)?;
    }
    check(&zset, &model)?;
    check(&zset.clone(), &model)
}

fn score_bound() -> impl Strategy<Value = ScoreBound> {
    prop_oneof![score().prop_map(ScoreBound::Inclusive), score().prop_map(ScoreBound::Exclusive)]
}

fn lex_bound(text: &str, inclusive: bool) -> LexBound<'_> {
    if inclusive {
        LexBound::Inclusive(text.as_bytes())
    } else {
        LexBound::Exclusive(text.as_bytes())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn large_sorted_sets_equal_a_sorted_map(ops in ops(1500, 2500)) {
        run(ops)?;
    }
}

proptest! {
    #[test]
    fn small_sorted_sets_equal_a_sorted_map(ops in ops(30, 80)) {
        run(ops)?;
    }

    #[test]
    fn ranges_of_scores_and_ranks_equal_filters(
        scores in proptest::collection::vec(score(), 0..300),
        min in score_bound(),
        max in score_bound(),
        from in 0usize..320,
        to in 0usize..320,
    ) {
        let mut zset = ZSet::new();
        let mut model = Model::new();
        for (number, score) in scores.iter().enumerate() {
            zset.insert(number.to_string().as_bytes(), *score);
            model.insert(number.to_string().into_bytes(), *score);
        }
        let above = |score: f64| match min {
            ScoreBound::Inclusive(min) => score >= min,
            ScoreBound::Exclusive(min) => score > min,
        };
        let below = |score: f64| match max {
            ScoreBound::Inclusive(max) => score <= max,
            ScoreBound::Exclusive(max) => score < max,
        };
        let all = sorted(&model);
        let expected: Vec<_> =
            all.iter().copied().filter(|(_, score)| above(*score) && below(*score)).collect();
        let range = zset.score_range(min, max);
        prop_assert_eq!(range.len(), expected.len());
        prop_assert_eq!(zset.range(range.clone()).collect::<Vec<_>>(), expected.clone());
        prop_assert!(zset.range(range).rev().eq(expected.into_iter().rev()));
        let within = all.get(from.min(all.len())..to.min(all.len()).max(from.min(all.len())));
        prop_assert_eq!(zset.range(from..to).collect::<Vec<_>>(), within.unwrap().to_vec());
    }

    #[test]
    fn ranges_of_members_equal_filters(
        members in proptest::collection::btree_set("[a-d]{0,4}", 0..200),
        min in "[a-d]{0,3}",
        max in "[a-d]{0,3}",
        inclusive: (bool, bool),
    ) {
        let mut zset = ZSet::new();
        members.iter().for_each(|member| assert_eq!(zset.insert(member.as_bytes(), 1.0), Upsert::Added));
        let range = zset.lex_range(lex_bound(&min, inclusive.0), lex_bound(&max, inclusive.1));
        let expected: Vec<&[u8]> = members
            .iter()
            .filter(|member| **member > min || (inclusive.0 && **member == min))
            .filter(|member| **member < max || (inclusive.1 && **member == max))
            .map(String::as_bytes)
            .collect();
        prop_assert_eq!(zset.range(range).map(|(member, _)| member).collect::<Vec<_>>(), expected);
        prop_assert_eq!(zset.lex_range(LexBound::Min, LexBound::Max), 0..members.len());
        prop_assert_eq!(zset.lex_range(LexBound::Max, LexBound::Min).len(), 0);
    }
}

#[test]
fn added_in_order_chunks_stay_full() {
    let mut zset = ZSet::new();
    for number in 0..100_000u32 {
        zset.insert(&number.to_be_bytes(), f64::from(number));
    }
    let Repr::Tree(tree) = &zset.0 else { panic!("it is large") };
    assert!(tree.order.bytes() < 100_000 * 17, "{} bytes", tree.order.bytes());
    assert_eq!(zset.rank(&77_777u32.to_be_bytes()), Some(77_777));
    let before = zset.bytes();
    let (count, removed) = zset.remove_range(10..99_990);
    assert_eq!(count, 99_980);
    assert!(removed.bytes() > before - 20_000, "{} bytes of {before}", removed.bytes());
    assert_eq!((zset.len(), zset.rank(&99_990u32.to_be_bytes())), (20, Some(10)));
    assert!(zset.bytes() < 20_000, "{} bytes", zset.bytes());
}

#[test]
fn a_part_of_a_large_set_is_removed_wherever_it_is() {
    for (from, count) in [(0, 1), (0, 1_000), (511, 2), (512, 512), (4_321, 1_200), (9_000, 1_000)]
    {
        let mut zset = ZSet::new();
        // Equal scores, and members in another order than that of their places.
        let members: Vec<u32> = (0..10_000u32).map(|number| number * 7_919 % 10_000).collect();
        for member in &members {
            zset.insert(&member.to_be_bytes(), f64::from(member / 100));
        }
        let (removed, _) = zset.remove_range(from..from + count);
        assert_eq!((removed, zset.len()), (count, 10_000 - count));
        let left =
            (0..10_000u32).filter(|member| !(from..from + count).contains(&(*member as usize)));
        let left: Vec<(Vec<u8>, f64)> =
            left.map(|member| (member.to_be_bytes().to_vec(), f64::from(member / 100))).collect();
        let found: Vec<(Vec<u8>, f64)> =
            zset.iter().map(|(member, score)| (member.to_vec(), score)).collect();
        assert!(found == left, "{count} from {from}");
        for (rank, (member, score)) in left.iter().enumerate().step_by(97) {
            assert_eq!((zset.rank(member), zset.score(member)), (Some(rank), Some(*score)));
        }
        assert_eq!(zset.bytes(), counted(&zset), "{count} from {from}");
    }
}

#[test]
fn no_score_is_a_score_and_both_zeros_are_one() {
    let mut zset = ZSet::new();
    assert_eq!(zset.insert(b"a", f64::NAN), Upsert::Added);
    assert_eq!(zset.insert(b"a", -0.0), Upsert::Same);
    assert_eq!(zset.score(b"a"), Some(0.0));
}

#[test]
fn bounds_are_read_as_clients_write_them() {
    for (text, bound) in [
        ("1.5", Some(ScoreBound::Inclusive(1.5))),
        ("(-1", Some(ScoreBound::Exclusive(-1.0))),
        ("+inf", Some(ScoreBound::Inclusive(f64::INFINITY))),
        ("(", None),
        ("[1", None),
        ("nan", None),
    ] {
        assert_eq!(ScoreBound::parse(text.as_bytes()), bound, "{text:?}");
    }
    for (text, bound) in [
        ("-", Some(LexBound::Min)),
        ("+", Some(LexBound::Max)),
        ("[", Some(LexBound::Inclusive(b""))),
        ("[a", Some(LexBound::Inclusive(b"a"))),
        ("(a", Some(LexBound::Exclusive(b"a"))),
        ("a", None),
        ("", None),
        ("-a", None),
    ] {
        assert_eq!(LexBound::parse(text.as_bytes()), bound, "{text:?}");
    }
}
