//! Encoded values: the elements one after another, without an end mark or a count.
//!
//! ```text
//! string = bytes                      list, set  = element*
//! hash   = (field, value)*            sorted set = (score (8, the bits of a double), member)*
//! ```
//!
//! Every element is its length (varint) and its bytes. An element is never split; a string may be
//! split anywhere.

use super::entry::{EntryReader, put_bytes};
use super::format::SnapshotFault;
use crate::store::{Kind, Object, Value};
use crate::types::{Hash, List, Set, Upsert, ZSet};

/// Appends elements of a collection, from index `from` on, until `size_max` bytes are reached;
/// returns the index of the next element.
pub(crate) fn put_elements(
    object: &Object,
    from: usize,
    size_max: usize,
    out: &mut Vec<u8>,
) -> usize {
    let start = out.len();
    let mut next = from;
    // Counts an element; returns whether it was the last that fits.
    let mut full = |out: &Vec<u8>| {
        next += 1;
        out.len() - start >= size_max
    };
    // Iteration continues by number, an index into any collection large enough to be split.
    let whole = from == 0;
    match object {
        Object::List(list) => {
            for element in list.range(i64::try_from(from).unwrap_or(i64::MAX), -1) {
                put_bytes(out, element);
                if full(out) {
                    break;
                }
            }
        }
        Object::Hash(hash) => {
            let all = whole.then(|| hash.iter()).into_iter().flatten();
            let rest = (from..).map_while(|at| if whole { None } else { hash.nth(at) });
            for (field, value) in all.chain(rest) {
                put_bytes(out, field);
                put_bytes(out, value);
                if full(out) {
                    break;
                }
            }
        }
        Object::Set(set) => {
            let all = whole.then(|| set.iter()).into_iter().flatten();
            let rest = (from..).map_while(|at| if whole { None } else { set.nth(at) });
            for member in all.chain(rest) {
                put_bytes(out, &member);
                if full(out) {
                    break;
                }
            }
        }
        Object::ZSet(zset) => {
            for (member, score) in zset.range(from..usize::MAX) {
                out.extend_from_slice(&score.to_bits().to_le_bytes());
                put_bytes(out, member);
                if full(out) {
                    break;
                }
            }
        }
    }
    next
}

/// A value being assembled from its pieces.
#[derive(Debug)]
pub(crate) enum Building {
    String(Vec<u8>),
    List(List),
    Hash(Hash),
    Set(Set),
    ZSet(ZSet),
}

impl Building {
    /// Returns an empty value of a type.
    pub(crate) fn new(kind: Kind) -> Self {
        match kind {
            Kind::String => Self::String(Vec::new()),
            Kind::List => Self::List(List::default()),
            Kind::Hash => Self::Hash(Hash::default()),
            Kind::Set => Self::Set(Set::default()),
            Kind::ZSet => Self::ZSet(ZSet::default()),
        }
    }

    /// Adds any number of complete elements.
    pub(crate) fn add(&mut self, bytes: &[u8]) -> Result<(), SnapshotFault> {
        let wrong = SnapshotFault::Malformed { what: "element" };
        let mut rest = EntryReader::new(bytes);
        if let Self::String(text) = self {
            text.extend_from_slice(bytes);
            return Ok(());
        }
        while !rest.bytes.is_empty() {
            let mut element = || rest.sized().ok_or_else(|| wrong.clone());
            let fresh = match self {
                Self::String(_) => true,
                Self::List(list) => {
                    list.push_back(element()?);
                    true
                }
                Self::Hash(hash) => {
                    let field = element()?;
                    hash.set(field, element()?)
                }
                Self::Set(set) => set.insert(element()?),
                Self::ZSet(zset) => {
                    let bits = rest.take(8).and_then(|bits| bits.try_into().ok());
                    let bits = bits.map(u64::from_le_bytes).ok_or_else(|| wrong.clone())?;
                    let member = rest.sized().ok_or_else(|| wrong.clone())?;
                    let score = f64::from_bits(bits);
                    !score.is_nan() && zset.insert(member, score) == Upsert::Added
                }
            };
            if !fresh {
                return Err(SnapshotFault::Malformed {
                    what: "collection with a duplicate element",
                });
            }
        }
        Ok(())
    }

    /// Returns the value; `None` for an empty collection, which no key can hold.
    pub(crate) fn finish(self) -> Option<Value> {
        let object = match self {
            Self::String(text) => return Some(Value::String(text)),
            Self::List(list) => Object::List(Box::new(list)),
            Self::Hash(hash) => Object::Hash(Box::new(hash)),
            Self::Set(set) => Object::Set(Box::new(set)),
            Self::ZSet(zset) => Object::ZSet(Box::new(zset)),
        };
        (!object.is_empty()).then_some(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objects() -> Vec<Object> {
        let (mut list, mut hash) = (List::default(), Hash::default());
        let (mut set, mut zset) = (Set::default(), ZSet::default());
        let mut integers = Set::default();
        for n in 0..700_u32 {
            let text = format!("element {n}");
            list.push_back(text.as_bytes());
            hash.set(text.as_bytes(), format!("|{n}\r\n").as_bytes());
            set.insert(text.as_bytes());
            integers.insert((n * 3).to_string().as_bytes());
            zset.insert(text.as_bytes(), f64::from(n % 50) - 25.5);
        }
        zset.insert(b"least", f64::NEG_INFINITY);
        let small = {
            let mut small = Hash::default();
            small.set(b"", b"");
            small.set(b"f", b"v");
            small
        };
        vec![
            Object::List(Box::new(list)),
            Object::Hash(Box::new(hash)),
            Object::Set(Box::new(set)),
            Object::Set(Box::new(integers)),
            Object::ZSet(Box::new(zset)),
            Object::Hash(Box::new(small)),
        ]
    }

    fn whole(object: &Object) -> Vec<u8> {
        let mut bytes = Vec::new();
        assert_eq!(put_elements(object, 0, usize::MAX, &mut bytes), object.len());
        bytes
    }

    #[test]
    fn a_collection_put_together_from_pieces_of_any_size_is_the_same() {
        for object in objects() {
            let expected = whole(&object);
            for size_max in [1, 100, 4_000, usize::MAX] {
                let mut building = Building::new(object.kind());
                let (mut next, mut all) = (0, Vec::new());
                while next < object.len() {
                    let mut piece = Vec::new();
                    next = put_elements(&object, next, size_max, &mut piece);
                    building.add(&piece).unwrap();
                    all.extend_from_slice(&piece);
                }
                assert_eq!(all, expected);
                let Some(Value::Object(built)) = building.finish() else { panic!("no object") };
                assert_eq!((built.kind(), built.len()), (object.kind(), object.len()));
                let mut before: Vec<_> = elements(&expected, object.kind());
                let mut after = elements(&whole(&built), object.kind());
                if object.kind() != Kind::List {
                    before.sort();
                    after.sort();
                }
                assert_eq!(before, after);
            }
        }
    }

    fn elements(bytes: &[u8], kind: Kind) -> Vec<Vec<u8>> {
        let mut rest = EntryReader::new(bytes);
        let mut found = Vec::new();
        while !rest.bytes.is_empty() {
            let score = if kind == Kind::ZSet { rest.take(8).unwrap() } else { &[] };
            let mut element = [score, rest.sized().unwrap()].concat();
            if kind == Kind::Hash {
                element.extend_from_slice(rest.sized().unwrap());
            }
            found.push(element);
        }
        found
    }

    #[test]
    fn cut_and_doubled_elements_are_refused() {
        for object in objects() {
            let bytes = whole(&object);
            let mut building = Building::new(object.kind());
            assert!(building.add(&bytes[..bytes.len() - 1]).is_err());
            if object.kind() != Kind::List {
                let mut building = Building::new(object.kind());
                assert!(building.add(&[&bytes[..], &bytes].concat()).is_err());
            }
        }
        assert!(Building::new(Kind::List).finish().is_none());
        assert!(Building::new(Kind::String).finish().is_some());
    }
}
