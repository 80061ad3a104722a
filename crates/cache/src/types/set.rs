//! A set of members.
//!
//! At most 512 integers ([`packing::SET_INTEGERS`]): sorted, 8 bytes each. At most 128 members of
//! at most 64 bytes ([`packing::SET`]): one buffer of `length member ...`. Large: a dictionary.

use std::ops::Deref;

use super::dict::Dict;
use super::{pack, packing};
use crate::number;

/// Distinct members.
#[derive(Debug, Clone)]
pub struct Set(Repr);

#[derive(Debug, Clone)]
enum Repr {
    Integers(Vec<i64>),
    Packed {
        buf: Vec<u8>,
        count: usize,
    },
    /// `heap`: bytes of the members' own allocations.
    Dict {
        dict: Dict<Box<[u8]>>,
        heap: usize,
    },
}

/// A member, borrowed from the set, or formatted if the set stores it as an integer.
#[derive(Clone)]
pub struct Member<'a>(Text<'a>);

#[derive(Clone)]
enum Text<'a> {
    Bytes(&'a [u8]),
    Integer { text: [u8; 20], len: u8 },
}

impl<'a> Member<'a> {
    const fn bytes(bytes: &'a [u8]) -> Self {
        Self(Text::Bytes(bytes))
    }

    fn integer(value: i64) -> Self {
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(value).as_bytes();
        let mut text = [0; 20];
        text[..digits.len()].copy_from_slice(digits);
        Self(Text::Integer { text, len: u8::try_from(digits.len()).unwrap_or(20) })
    }
}

impl Deref for Member<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Text::Bytes(bytes) => bytes,
            Text::Integer { text, len } => &text[..usize::from(*len)],
        }
    }
}

impl std::fmt::Debug for Member<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\"{}\"", self.escape_ascii())
    }
}

/// The member at the start of packed bytes, and the remaining bytes.
#[inline]
fn first(buf: &[u8]) -> (&[u8], &[u8]) {
    buf[1..].split_at(usize::from(buf[0]))
}

/// Where `member` is in packed bytes.
fn find(buf: &[u8], member: &[u8]) -> Option<usize> {
    let mut rest = buf;
    while !rest.is_empty() {
        let (found, after) = first(rest);
        if found == member {
            return Some(buf.len() - rest.len());
        }
        rest = after;
    }
    None
}

impl Default for Set {
    fn default() -> Self {
        Self::new()
    }
}

impl Set {
    /// No members.
    #[must_use]
    pub const fn new() -> Self {
        Self(Repr::Integers(Vec::new()))
    }

    /// Returns the number of members.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.0 {
            Repr::Integers(integers) => integers.len(),
            Repr::Packed { count, .. } => *count,
            Repr::Dict { dict, .. } => dict.len(),
        }
    }

    /// Whether there are no members.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Heap memory, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match &self.0 {
            Repr::Integers(integers) => integers.capacity() * size_of::<i64>(),
            Repr::Packed { buf, .. } => buf.capacity(),
            Repr::Dict { dict, heap } => dict.bytes() + heap,
        }
    }

    /// The name in `OBJECT ENCODING`.
    #[must_use]
    pub const fn encoding(&self) -> &'static str {
        match self.0 {
            Repr::Integers(_) => "intset",
            Repr::Packed { .. } => "listpack",
            Repr::Dict { .. } => "hashtable",
        }
    }

    /// Whether `member` is in it.
    #[must_use]
    pub fn contains(&self, member: &[u8]) -> bool {
        match &self.0 {
            Repr::Integers(integers) => number::parse_i64(member)
                .is_some_and(|integer| integers.binary_search(&integer).is_ok()),
            Repr::Packed { buf, .. } => find(buf, member).is_some(),
            Repr::Dict { dict, .. } => dict.find(member).is_some(),
        }
    }

    /// Adds a member and returns whether it is new.
    pub fn insert(&mut self, member: &[u8]) -> bool {
        if let Repr::Integers(integers) = &mut self.0 {
            let integer = number::parse_i64(member);
            match integer.map(|integer| (integer, integers.binary_search(&integer))) {
                Some((_, Ok(_))) => return false,
                Some((integer, Err(at))) if integers.len() < packing::SET_INTEGERS.get() => {
                    if integers.len() == integers.capacity() {
                        integers.reserve_exact((integers.len() / 4).next_multiple_of(2).max(2));
                    }
                    integers.insert(at, integer);
                    return true;
                }
                _ => self.leave_integers(),
            }
        }
        if let Repr::Packed { buf, count } = &mut self.0 {
            if find(buf, member).is_some() {
                return false;
            }
            if member.len() <= packing::SET.item_size.get() && *count < packing::SET.len.get() {
                let end = buf.len();
                pack::splice(buf, end, 0, &[&pack::prefix(member.len()), member]);
                *count += 1;
                return true;
            }
            self.unpack();
        }
        let Repr::Dict { dict, heap } = &mut self.0 else { return false };
        if dict.find(member).is_some() {
            return false;
        }
        dict.push(member.into());
        *heap += pack::allocated(member.len());
        true
    }

    fn leave_integers(&mut self) {
        if self.len() >= packing::SET.len.get() {
            return self.unpack();
        }
        let (mut buf, count) = (Vec::new(), self.len());
        for member in self.iter() {
            let end = buf.len();
            pack::splice(&mut buf, end, 0, &[&pack::prefix(member.len()), &member]);
        }
        self.0 = Repr::Packed { buf, count };
    }

    /// Converts it into a dictionary.
    fn unpack(&mut self) {
        let mut dict = Dict::with_capacity(self.len() + 1);
        let mut heap = 0;
        for member in self.iter() {
            heap += pack::allocated(member.len());
            dict.push((*member).into());
        }
        self.0 = Repr::Dict { dict, heap };
    }

    /// Removes a member and returns whether it existed.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        match &mut self.0 {
            Repr::Integers(integers) => {
                let Some(integer) = number::parse_i64(member) else { return false };
                let Ok(at) = integers.binary_search(&integer) else { return false };
                integers.remove(at);
            }
            Repr::Packed { buf, count } => {
                let Some(at) = find(buf, member) else { return false };
                pack::splice(buf, at, 1 + member.len(), &[]);
                pack::shrink(buf);
                *count -= 1;
            }
            Repr::Dict { dict, heap } => {
                let Some(at) = dict.find(member) else { return false };
                *heap -= pack::allocated(dict.swap_remove(at).len());
            }
        }
        true
    }

    /// The member at an index below [`Set::len`]. O(1) unless packed.
    #[must_use]
    pub fn nth(&self, index: usize) -> Option<Member<'_>> {
        match &self.0 {
            Repr::Integers(integers) => integers.get(index).copied().map(Member::integer),
            Repr::Packed { .. } => self.iter().nth(index),
            Repr::Dict { dict, .. } => {
                dict.entries().get(index).map(|member| Member::bytes(member))
            }
        }
    }

    /// Removes the member at an index below [`Set::len`] and returns it. The indices of others may
    /// change.
    pub fn remove_nth(&mut self, index: usize) -> Option<Box<[u8]>> {
        if let Repr::Dict { dict, heap } = &mut self.0 {
            if index >= dict.len() {
                return None;
            }
            let member = dict.swap_remove(index);
            *heap -= pack::allocated(member.len());
            return Some(member);
        }
        let member: Box<[u8]> = (*self.nth(index)?).into();
        self.remove(&member);
        Some(member)
    }

    /// All members: integers in order, others in no particular order.
    #[must_use]
    pub fn iter(&self) -> SetIter<'_> {
        let walk = match &self.0 {
            Repr::Integers(integers) => Walk::Integers(integers.iter()),
            Repr::Packed { buf, .. } => Walk::Packed(buf),
            Repr::Dict { dict, .. } => Walk::Dict(dict.entries().iter()),
        };
        SetIter { walk, left: self.len() }
    }

    /// Visits about `count` members from `cursor` (0: the start), and returns the cursor to
    /// continue with (0: finished). A small set is visited completely.
    pub fn scan(&self, cursor: u64, count: usize, mut visit: impl FnMut(&[u8])) -> u64 {
        if let Repr::Dict { dict, .. } = &self.0 {
            return dict.scan(cursor, count, |member| visit(member));
        }
        self.iter().for_each(|member| visit(&member));
        0
    }
}

impl<'a> IntoIterator for &'a Set {
    type Item = Member<'a>;
    type IntoIter = SetIter<'a>;

    fn into_iter(self) -> SetIter<'a> {
        self.iter()
    }
}

/// The members of a set.
#[derive(Debug, Clone)]
pub struct SetIter<'a> {
    walk: Walk<'a>,
    left: usize,
}

#[derive(Debug, Clone)]
enum Walk<'a> {
    Integers(std::slice::Iter<'a, i64>),
    Packed(&'a [u8]),
    Dict(std::slice::Iter<'a, Box<[u8]>>),
}

impl<'a> Iterator for SetIter<'a> {
    type Item = Member<'a>;

    #[inline]
    fn next(&mut self) -> Option<Member<'a>> {
        self.left = self.left.checked_sub(1)?;
        match &mut self.walk {
            Walk::Integers(integers) => integers.next().copied().map(Member::integer),
            Walk::Packed(rest) => {
                let (member, after) = first(rest);
                *rest = after;
                Some(Member::bytes(member))
            }
            Walk::Dict(members) => members.next().map(|member| Member::bytes(member)),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for SetIter<'_> {}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn counted(set: &Set) -> usize {
        match &set.0 {
            Repr::Dict { dict, .. } => {
                dict.bytes() + dict.iter_lens().map(pack::allocated).sum::<usize>()
            }
            _ => set.bytes(),
        }
    }

    impl Dict<Box<[u8]>> {
        fn iter_lens(&self) -> impl Iterator<Item = usize> {
            self.entries().iter().map(|member| member.len())
        }
    }

    /// Members that are mostly integers, sometimes not, and sometimes too long to be packed.
    fn member(range: i64, text: u32) -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            40 => (-range..range).prop_map(|integer| integer.to_string().into_bytes()),
            text => (0..range).prop_map(|number| format!("m{number}").into_bytes()),
            text => Just(b"01".to_vec()),
            text => (0..range).prop_map(|number| format!("{number:070}").into_bytes()),
        ]
    }

    fn check(ops: Vec<(u8, Vec<u8>)>) -> Result<(), TestCaseError> {
        let (mut set, mut model) = (Set::new(), BTreeSet::<Vec<u8>>::new());
        for (op, member) in ops {
            match op {
                0..=5 => prop_assert_eq!(set.insert(&member), model.insert(member)),
                6..=8 => prop_assert_eq!(set.remove(&member), model.remove(&member)),
                _ => {
                    let index = member.iter().map(|&byte| usize::from(byte)).sum::<usize>();
                    let index = index % (set.len() + 1);
                    let lent = set.nth(index).map(|member| member.to_vec());
                    let removed = set.remove_nth(index).map(<[u8]>::into_vec);
                    prop_assert_eq!(&lent, &removed);
                    prop_assert_eq!(removed.is_some(), index < model.len());
                    prop_assert!(removed.is_none_or(|removed| model.remove(&removed)));
                }
            }
            prop_assert_eq!(set.len(), model.len());
        }
        prop_assert_eq!(set.bytes(), counted(&set));
        let found: BTreeSet<Vec<u8>> = set.iter().map(|member| member.to_vec()).collect();
        prop_assert_eq!(&found, &model);
        prop_assert!(model.iter().all(|member| set.contains(member)));
        let mut scanned = BTreeSet::new();
        let mut cursor = set.scan(0, 7, |member| {
            scanned.insert(member.to_vec());
        });
        while cursor != 0 {
            cursor = set.scan(cursor, 7, |member| {
                scanned.insert(member.to_vec());
            });
        }
        prop_assert_eq!(&scanned, &model);
        Ok(())
    }

    proptest! {
        #[test]
        fn integers_equal_a_set(
            ops in proptest::collection::vec((0u8..10, member(40, 0)), 0..100),
        ) {
            check(ops)?;
        }

        #[test]
        fn mixed_members_equal_a_set(
            ops in proptest::collection::vec((0u8..10, member(20, 4)), 0..60),
        ) {
            check(ops)?;
        }

    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn large_sets_equal_a_set(
            ops in proptest::collection::vec((0u8..10, member(2000, 1)), 0..1200),
        ) {
            check(ops)?;
        }
    }

    #[test]
    fn a_set_is_as_compact_as_its_members_let_it_be() {
        let mut set = Set::new();
        (0..512i64).for_each(|number| assert!(set.insert(number.to_string().as_bytes())));
        assert_eq!(set.encoding(), "intset");
        assert!(set.bytes() <= 512 * 8 * 5 / 4);
        set.insert(b"512");
        assert_eq!((set.encoding(), set.len()), ("hashtable", 513));
        let mut set = Set::new();
        set.insert(b"7");
        set.insert(b"seven");
        assert_eq!(set.encoding(), "listpack");
        assert!(set.contains(b"7") && !set.contains(b"07"));
        set.insert(&[b'x'; 65]);
        assert_eq!((set.encoding(), set.len()), ("hashtable", 3));
    }
}
