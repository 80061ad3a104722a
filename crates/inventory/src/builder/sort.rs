//! Sorts many strings with long common prefixes: eight bytes at a time, so that most comparisons
//! are of two adjacent numbers.

/// A string to be sorted: eight of its bytes, and its number.
type Item = (u64, u32);

/// The numbers from 0 to `count` (exclusive) in the order of their strings.
///
/// * `string`: returns the string of a number; all are different.
pub(crate) fn sort<'a>(count: u32, string: &impl Fn(u32) -> &'a [u8]) -> Vec<u32> {
    let mut items: Vec<Item> = (0..count).map(|id| (0, id)).collect();
    sort_from(&mut items, 0, string);
    items.into_iter().map(|(_, id)| id).collect()
}

/// Sorts strings that are equal in their first `at` bytes.
fn sort_from<'a>(items: &mut [Item], at: usize, string: &impl Fn(u32) -> &'a [u8]) {
    if items.len() < 2 {
        return;
    }
    if items.len() < 12 {
        let rest = |id: u32| string(id).get(at..).unwrap_or_default();
        items.sort_unstable_by(|a, b| rest(a.1).cmp(rest(b.1)));
        return;
    }
    for item in &mut *items {
        item.0 = eight(string(item.1), at);
    }
    items.sort_unstable_by_key(|item| item.0);
    for same in items.chunk_by_mut(|a, b| a.0 == b.0) {
        if same.len() < 2 {
            continue;
        }
        // Strings that end within these eight bytes precede those that continue with zeros.
        let mut ended = 0;
        if same.first().is_some_and(|item| item.0.trailing_zeros() >= 8) {
            let left = |id: u32| string(id).len().saturating_sub(at).min(8);
            same.sort_unstable_by_key(|item| left(item.1));
            ended = same.partition_point(|item| left(item.1) < 8);
        }
        if let Some(going_on) = same.get_mut(ended..) {
            sort_from(going_on, at + 8, string);
        }
    }
}

/// Eight bytes from `at`, zeros beyond the end, as a number with the same order.
#[inline]
fn eight(string: &[u8], at: usize) -> u64 {
    let rest = string.get(at..).unwrap_or_default();
    match rest.first_chunk::<8>() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; 8];
            bytes.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
            u64::from_be_bytes(bytes)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn strings_are_sorted_as_the_standard_library_sorts_them(
            strings in proptest::collection::btree_set(
                proptest::collection::vec(prop_oneof![Just(0), Just(b'/'), Just(b'a'), any::<u8>()], 0..40),
                0..200,
            ),
            prefix in proptest::collection::vec(any::<u8>(), 0..20),
            turn in 0_usize..200,
        ) {
            let sorted: BTreeSet<Vec<u8>> =
                strings.iter().map(|rest| [prefix.as_slice(), rest].concat()).collect();
            let mut mixed: Vec<Vec<u8>> = sorted.iter().cloned().collect();
            let len = mixed.len().max(1);
            mixed.rotate_left(turn % len);
            mixed.reverse();
            let count = u32::try_from(mixed.len()).unwrap();
            let order = sort(count, &|id| mixed[id as usize].as_slice());
            let ours: Vec<&Vec<u8>> = order.iter().map(|&id| &mixed[id as usize]).collect();
            let expected: Vec<&Vec<u8>> = sorted.iter().collect();
            prop_assert_eq!(ours, expected);
        }
    }
}
