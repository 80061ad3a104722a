//! Operations: the effects of a command, as words that repeat them.
//!
//! ```text
//! operation = database (1), number of words (varint), words
//! word      = length (varint), bytes
//! ```
//!
//! An operation concerns one key, its word 1, and leads from the same value to the same value
//! whenever it runs; times in it are absolute. There are two exceptions. [`FLUSH`] is a single word
//! that concerns all keys of its database. A reference (RENAME, COPY, MOVE) gives a second key the
//! value of the first; it is not logged while a snapshot has read only one of the two, so that a
//! snapshot holds the result at both keys or at neither. Numbers are LEB128, at most ten bytes.
//!
//! Pure: nothing here accesses files. `docs/formats/cache-log.md` describes the entries.

use smallvec::SmallVec;

use crate::number::parse_u64;
use crate::store::DATABASES;

/// The operation that removes every key of its database.
pub const FLUSH: &[u8] = b"FLUSHDB";

/// Maximum capacity kept after the operations of a command have been written.
const KEPT_SIZE_MAX: usize = 1 << 20;

/// Words of one operation, the command's name first.
pub type Words<'a> = SmallVec<[&'a [u8]; 8]>;

/// The changes of one command, or of one transaction: all of them are kept, or none.
#[derive(Debug, Default, Clone)]
pub struct Ops {
    bytes: Vec<u8>,
    count: usize,
    /// Whether one of them is a reference.
    refers: bool,
}

impl Ops {
    /// Adds an operation on one key of a database.
    ///
    /// [`FLUSH`] may be added only while all shards of the database are locked, until it is in the
    /// log: it must follow every operation that it undoes and precede every one that it does not.
    ///
    /// * `words`: the name of the command, the key, and the remaining words.
    pub fn push(&mut self, database: usize, words: &[&[u8]]) {
        self.begin(database, words.len());
        words.iter().for_each(|word| self.word(word));
    }

    /// Adds a reference: RENAME, COPY or MOVE. Requires [`Journal::takes_reference`] while the
    /// shards of both keys are locked.
    ///
    /// [`Journal::takes_reference`]: super::Journal::takes_reference
    pub(crate) fn push_reference(&mut self, database: usize, words: &[&[u8]]) {
        self.refers = true;
        self.push(database, words);
    }

    /// Whether one of the operations is a reference.
    #[must_use]
    pub(crate) fn refers(&self) -> bool {
        self.refers
    }

    /// Begins an operation of `words` words; each is then added by [`Ops::word`].
    pub fn begin(&mut self, database: usize, words: usize) {
        debug_assert!(database < DATABASES && words > 0, "an operation of some database");
        self.bytes.push(u8::try_from(database).unwrap_or(u8::MAX));
        put_number(&mut self.bytes, words as u64);
        self.count += 1;
    }

    /// Adds the next word of the operation that was begun last.
    pub fn word(&mut self, word: &[u8]) {
        put_number(&mut self.bytes, word.len() as u64);
        self.bytes.extend_from_slice(word);
    }

    /// Adds the operations of another record, which is empty afterwards; costs nothing if this one
    /// is empty.
    pub(crate) fn append(&mut self, other: &mut Self) {
        if self.is_empty() {
            return std::mem::swap(self, other);
        }
        self.bytes.extend_from_slice(&other.bytes);
        self.count += other.count;
        self.refers |= other.refers;
        other.clear();
    }

    /// Whether nothing was changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Number of operations.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Removes all operations. The capacity is kept unless it is large.
    pub fn clear(&mut self) {
        self.count = 0;
        self.refers = false;
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_SIZE_MAX);
    }

    /// Returns the encoded operations.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// What is wrong with bytes that should be operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpsFault {
    /// A number does not end, or exceeds 64 bits.
    #[error("invalid number at byte {at} of the operations")]
    Number {
        /// Where.
        at: usize,
    },
    /// There is no such database.
    #[error("database {database} at byte {at} of the operations: there are only {DATABASES}")]
    Database {
        /// The number found.
        database: u8,
        /// Where.
        at: usize,
    },
    /// An operation without words, or without the key it needs.
    #[error("{words} words at byte {at} of the operations are not an operation")]
    Words {
        /// The stated number of words.
        words: u64,
        /// Where.
        at: usize,
    },
    /// A word, or the number of words, exceeds the available bytes.
    #[error("byte {at} of the operations announces {size} bytes, but {room} are left")]
    Size {
        /// The announced size; for words, one byte each.
        size: u64,
        /// Where.
        at: usize,
        /// Bytes left.
        room: usize,
    },
}

/// A decoded operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decoded<'a> {
    /// Its database.
    pub database: usize,
    /// Its words: at least two, except for [`FLUSH`].
    pub words: Words<'a>,
}

impl<'a> Decoded<'a> {
    /// Returns its key; `None` for [`FLUSH`].
    #[must_use]
    pub fn key(&self) -> Option<&'a [u8]> {
        self.words.get(1).copied()
    }

    /// Returns the second key of a reference, with its database.
    #[must_use]
    pub fn second_key(&self) -> Option<(usize, &'a [u8])> {
        let word = |at: usize| self.words.get(at).copied();
        let database = |at| parse_u64(word(at)?).and_then(|n| usize::try_from(n).ok());
        match word(0)? {
            b"RENAME" => Some((self.database, word(2)?)),
            b"COPY" => Some((database(4)?, word(2)?)),
            b"MOVE" => Some((database(2)?, word(1)?)),
            _ => None,
        }
    }
}

/// Decodes operations one after another.
#[derive(Debug)]
pub(crate) struct OpsReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> OpsReader<'a> {
    /// Returns a reader of the bytes of [`Ops::as_bytes`].
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// The next operation, `None` after the last.
    pub(crate) fn next(&mut self) -> Result<Option<Decoded<'a>>, OpsFault> {
        let at = self.at;
        let Some(&database) = self.bytes.get(at) else { return Ok(None) };
        if usize::from(database) >= DATABASES {
            return Err(OpsFault::Database { database, at });
        }
        self.at += 1;
        let count = self.number()?;
        let room = self.bytes.len() - self.at;
        // Every word takes at least one byte, so no number of words makes this reserve more than
        // there is.
        let words_max = usize::try_from(count).ok().filter(|&count| count <= room);
        let count = words_max.ok_or(OpsFault::Size { size: count, at, room })?;
        let mut words = Words::with_capacity(count);
        for _ in 0..count {
            words.push(self.word()?);
        }
        let sound = count >= 2 || words.first().is_some_and(|word| *word == FLUSH);
        if !sound {
            return Err(OpsFault::Words { words: count as u64, at });
        }
        Ok(Some(Decoded { database: usize::from(database), words }))
    }

    fn number(&mut self) -> Result<u64, OpsFault> {
        let (number, size) =
            number(&self.bytes[self.at..]).ok_or(OpsFault::Number { at: self.at })?;
        self.at += size;
        Ok(number)
    }

    fn word(&mut self) -> Result<&'a [u8], OpsFault> {
        let at = self.at;
        let size = self.number()?;
        let rest = &self.bytes[self.at..];
        let word = usize::try_from(size).ok().and_then(|size| rest.get(..size));
        let word = word.ok_or(OpsFault::Size { size, at, room: rest.len() })?;
        self.at += word.len();
        Ok(word)
    }
}

/// Appends a number as LEB128.
pub(crate) fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push((number & 0x7F) as u8 | 0x80);
        number >>= 7;
    }
    out.push((number & 0x7F) as u8);
}

/// Reads a LEB128 number in its shortest form; returns it and the number of bytes read.
pub(crate) fn number(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut number = 0_u64;
    for (at, &byte) in bytes.iter().take(10).enumerate() {
        let part = u64::from(byte & 0x7F);
        if at == 9 && part > 1 {
            return None;
        }
        number |= part << (7 * at);
        if byte & 0x80 == 0 {
            let shortest = byte != 0 || at == 0;
            return shortest.then_some((number, at + 1));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    type Plain = (usize, Vec<Vec<u8>>);

    fn decode(bytes: &[u8]) -> Result<Vec<Plain>, OpsFault> {
        let mut reader = OpsReader::new(bytes);
        let mut found = Vec::new();
        while let Some(op) = reader.next()? {
            found.push((op.database, op.words.iter().map(|word| word.to_vec()).collect()));
        }
        Ok(found)
    }

    #[test]
    fn operations_of_any_bytes_are_read_back() {
        let mut ops = Ops::default();
        let long = vec![b'|'; 300];
        ops.push(0, &[b"SET", b"a\r\n\0", &long]);
        ops.push(15, &[FLUSH]);
        ops.push(3, &[b"DEL", b""]);
        assert_eq!(ops.len(), 3);
        let found = decode(ops.as_bytes()).unwrap();
        assert_eq!(found[0], (0, vec![b"SET".to_vec(), b"a\r\n\0".to_vec(), long]));
        assert_eq!(found[1], (15, vec![FLUSH.to_vec()]));
        assert_eq!(found[2], (3, vec![b"DEL".to_vec(), Vec::new()]));
        ops.clear();
        assert!(ops.is_empty() && ops.as_bytes().is_empty());
    }

    #[test]
    fn numbers_are_read_back_and_only_in_their_shortest_form() {
        for value in [0, 1, 127, 128, 300, 1 << 35, u64::MAX - 1, u64::MAX] {
            let mut bytes = Vec::new();
            put_number(&mut bytes, value);
            assert_eq!(number(&bytes), Some((value, bytes.len())));
            assert_eq!(number(&bytes[..bytes.len() - 1]), None);
        }
        assert_eq!(number(&[0x80, 0]), None, "a zero in two bytes");
        assert_eq!(number(&[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 2]), None);
    }

    #[test]
    fn no_cut_and_no_flipped_bit_of_operations_is_read_beyond_them() {
        let mut ops = Ops::default();
        ops.push(1, &[b"RPUSH", b"list", b"x", b"yy"]);
        ops.push(2, &[b"DEL", b"k"]);
        let bytes = ops.as_bytes();
        for cut in 0..bytes.len() {
            if let Ok(found) = decode(&bytes[..cut]) {
                assert!(found.len() < 2);
            }
        }
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            decode(&bytes).ok();
        }
        let announced = [0, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F, 1];
        assert!(matches!(decode(&announced), Err(OpsFault::Size { .. })));
        assert!(matches!(decode(&[16, 1]), Err(OpsFault::Database { database: 16, .. })));
        assert!(matches!(decode(&[0, 1, 3, b'D', b'E', b'L']), Err(OpsFault::Words { .. })));
    }
}
