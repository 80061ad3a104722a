//! A hash: values by field.
//!
//! Small ([`packing::HASH`]: at most 128 fields, each and its value at most 64 bytes): one buffer
//! of `length field length value ...` in order of insertion, one byte per length.
//! Large: a dictionary whose entries are one allocation each, `varint(field length) field value`.

use super::dict::{Dict, Keyed};
use super::pack::{self, Varint};
use super::packing;

/// Values by field.
#[derive(Debug, Clone)]
pub struct Hash(Repr);

#[derive(Debug, Clone)]
enum Repr {
    Packed {
        buf: Vec<u8>,
        count: usize,
    },
    /// `heap`: bytes of the entries' own allocations.
    Dict {
        dict: Dict<Pair>,
        heap: usize,
    },
}

/// A field and its value in one allocation.
#[derive(Debug, Clone)]
struct Pair(Box<[u8]>);

impl Pair {
    fn new(field: &[u8], value: &[u8]) -> Self {
        Self([Varint::new(field.len()).as_bytes(), field, value].concat().into_boxed_slice())
    }

    #[inline]
    fn parts(&self) -> (&[u8], &[u8]) {
        let (len, size) = Varint::read(&self.0);
        self.0[size..].split_at(len)
    }

    fn heap(&self) -> usize {
        pack::allocated(self.0.len())
    }
}

impl Keyed for Pair {
    #[inline]
    fn key(&self) -> &[u8] {
        self.parts().0
    }
}

/// The location of a field in packed bytes.
struct FieldSpan {
    at: usize,
    /// Offset of the value's length.
    value: usize,
    end: usize,
}

/// The field and the value at `at`, and where the next ones begin.
#[inline]
fn pair_at(buf: &[u8], at: usize) -> (&[u8], &[u8], usize) {
    let value = at + 1 + usize::from(buf[at]);
    let end = value + 1 + usize::from(buf[value]);
    (&buf[at + 1..value], &buf[value + 1..end], end)
}

fn find(buf: &[u8], field: &[u8]) -> Option<FieldSpan> {
    let mut at = 0;
    while at < buf.len() {
        let (found, value, end) = pair_at(buf, at);
        if found == field {
            return Some(FieldSpan { at, value: end - value.len() - 1, end });
        }
        at = end;
    }
    None
}

impl Default for Hash {
    fn default() -> Self {
        Self::new()
    }
}

impl Hash {
    /// No fields.
    #[must_use]
    pub const fn new() -> Self {
        Self(Repr::Packed { buf: Vec::new(), count: 0 })
    }

    /// Returns the number of fields.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.0 {
            Repr::Packed { count, .. } => *count,
            Repr::Dict { dict, .. } => dict.len(),
        }
    }

    /// Whether there are no fields.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Heap memory, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match &self.0 {
            Repr::Packed { buf, .. } => buf.capacity(),
            Repr::Dict { dict, heap } => dict.bytes() + heap,
        }
    }

    /// The name in `OBJECT ENCODING`.
    #[must_use]
    pub const fn encoding(&self) -> &'static str {
        match self.0 {
            Repr::Packed { .. } => "listpack",
            Repr::Dict { .. } => "hashtable",
        }
    }

    /// The value of `field`.
    #[must_use]
    pub fn get(&self, field: &[u8]) -> Option<&[u8]> {
        match &self.0 {
            Repr::Packed { buf, .. } => {
                find(buf, field).map(|found| &buf[found.value + 1..found.end])
            }
            Repr::Dict { dict, .. } => dict.get(field).map(|pair| pair.parts().1),
        }
    }

    /// Whether `field` exists.
    #[must_use]
    pub fn contains(&self, field: &[u8]) -> bool {
        self.get(field).is_some()
    }

    /// Sets a field and returns whether it is new.
    pub fn set(&mut self, field: &[u8], value: &[u8]) -> bool {
        if let Repr::Packed { buf, count } = &mut self.0 {
            let found = find(buf, field);
            let fits = field.len().max(value.len()) <= packing::HASH.item_size.get();
            match found {
                Some(found) if fits => {
                    let prefix = pack::prefix(value.len());
                    pack::splice(buf, found.value, found.end - found.value, &[&prefix, value]);
                    return false;
                }
                None if fits && *count < packing::HASH.len.get() => {
                    let prefixes = (pack::prefix(field.len()), pack::prefix(value.len()));
                    let end = buf.len();
                    pack::splice(buf, end, 0, &[&prefixes.0, field, &prefixes.1, value]);
                    *count += 1;
                    return true;
                }
                _ => self.unpack(),
            }
        }
        self.set_in_dict(field, value)
    }

    fn set_in_dict(&mut self, field: &[u8], value: &[u8]) -> bool {
        let Repr::Dict { dict, heap } = &mut self.0 else { return false };
        let Some(at) = dict.find(field) else {
            let pair = Pair::new(field, value);
            *heap += pair.heap();
            dict.push(pair);
            return true;
        };
        let pair = dict.at_mut(at);
        let start = pair.0.len() - pair.parts().1.len();
        if pair.0.len() - start == value.len() {
            pair.0[start..].copy_from_slice(value);
        } else {
            *heap -= pair.heap();
            *pair = Pair::new(field, value);
            *heap += pair.heap();
        }
        false
    }

    /// Converts packed fields into a dictionary.
    fn unpack(&mut self) {
        let mut dict = Dict::with_capacity(self.len() + 1);
        let mut heap = 0;
        for (field, value) in self.iter() {
            let pair = Pair::new(field, value);
            heap += pair.heap();
            dict.push(pair);
        }
        self.0 = Repr::Dict { dict, heap };
    }

    /// Removes a field and returns whether it existed.
    pub fn remove(&mut self, field: &[u8]) -> bool {
        match &mut self.0 {
            Repr::Packed { buf, count } => {
                let Some(found) = find(buf, field) else { return false };
                pack::splice(buf, found.at, found.end - found.at, &[]);
                pack::shrink(buf);
                *count -= 1;
            }
            Repr::Dict { dict, heap } => {
                let Some(at) = dict.find(field) else { return false };
                *heap -= dict.swap_remove(at).heap();
            }
        }
        true
    }

    /// All fields with their values, in no particular order.
    #[must_use]
    pub fn iter(&self) -> HashIter<'_> {
        let walk = match &self.0 {
            Repr::Packed { buf, .. } => Walk::Packed(buf),
            Repr::Dict { dict, .. } => Walk::Dict(dict.entries().iter()),
        };
        HashIter { walk, left: self.len() }
    }

    /// The field and value at an index below [`Hash::len`]. O(1) when large.
    #[must_use]
    pub fn nth(&self, index: usize) -> Option<(&[u8], &[u8])> {
        match &self.0 {
            Repr::Packed { .. } => self.iter().nth(index),
            Repr::Dict { dict, .. } => dict.entries().get(index).map(Pair::parts),
        }
    }

    /// Visits about `count` fields from `cursor` (0: the start), and returns the cursor to continue
    /// with (0: finished). A small hash is visited completely.
    pub fn scan(&self, cursor: u64, count: usize, mut visit: impl FnMut(&[u8], &[u8])) -> u64 {
        match &self.0 {
            Repr::Packed { .. } => {
                self.iter().for_each(|(field, value)| visit(field, value));
                0
            }
            Repr::Dict { dict, .. } => dict.scan(cursor, count, |pair| {
                let (field, value) = pair.parts();
                visit(field, value);
            }),
        }
    }
}

impl<'a> IntoIterator for &'a Hash {
    type Item = (&'a [u8], &'a [u8]);
    type IntoIter = HashIter<'a>;

    fn into_iter(self) -> HashIter<'a> {
        self.iter()
    }
}

/// The fields of a hash.
#[derive(Debug, Clone)]
pub struct HashIter<'a> {
    walk: Walk<'a>,
    left: usize,
}

#[derive(Debug, Clone)]
enum Walk<'a> {
    Packed(&'a [u8]),
    Dict(std::slice::Iter<'a, Pair>),
}

impl<'a> Iterator for HashIter<'a> {
    type Item = (&'a [u8], &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        match &mut self.walk {
            Walk::Packed(rest) => {
                let (field, value, end) = pair_at(rest, 0);
                *rest = &rest[end..];
                Some((field, value))
            }
            Walk::Dict(pairs) => pairs.next().map(Pair::parts),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for HashIter<'_> {}

#[cfg(test)]
mod tests;
