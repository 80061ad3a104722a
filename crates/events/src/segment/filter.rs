//! A split-block Bloom filter over a block's tags, the words of its raw bytes, and the addresses
//! that its events name.
//!
//! A term is represented by eight bits, one in each word of one 32-byte bucket (Putze, Sanders and
//! Singler, "Cache-, Hash- and Space-Efficient Bloom Filters"; the multipliers are those of Apache
//! Parquet).

#![expect(clippy::cast_possible_truncation, reason = "hashes are cut on purpose")]

use std::net::IpAddr;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::event::Subnet;

/// Bytes of a bucket.
const BUCKET_SIZE: usize = 32;
/// One odd number per word.
const SALTS: [u32; 8] = [
    0x47b6_137b,
    0x4497_4d91,
    0x8824_ad5b,
    0xa2b7_289d,
    0x7054_95c7,
    0x2df1_424b,
    0x9efc_4947,
    0x5c6b_fb31,
];
/// Sizes in bytes of the words of raw bytes that are used.
const WORD_SIZES: std::ops::RangeInclusive<usize> = 2..=64;

/// The field of a term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// The stream.
    Stream,
    /// The type.
    Kind,
    /// The host.
    Host,
    /// The address among the tags, in segments of version 1.
    Ip,
    /// A word of the raw bytes.
    Word,
    /// An address that is named anywhere in the event, or a prefix of one.
    Address,
}

/// The sizes in bits of the prefixes of addresses that are terms.
const PREFIXES_4: [u8; 4] = [8, 16, 24, 32];
const PREFIXES_6: [u8; 4] = [32, 48, 64, 128];

/// What a filter must include for a term to be looked for in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Part {
    /// Every filter does.
    Tags,
    Words,
    Addresses,
}

/// A term: the hash of a field's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Term {
    hash: u64,
    part: Part,
}

impl Term {
    /// A value of a field.
    #[must_use]
    pub fn of(field: Field, value: &[u8]) -> Self {
        let (seed, part) = match field {
            Field::Stream => (1, Part::Tags),
            Field::Kind => (2, Part::Tags),
            Field::Host => (3, Part::Tags),
            Field::Ip => (4, Part::Tags),
            Field::Word => (5, Part::Words),
            Field::Address => (6, Part::Addresses),
        };
        Self { hash: xxh3_64_with_seed(value, seed), part }
    }

    /// The address among the tags.
    pub(super) fn of_ip(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(address) => Self::of(Field::Ip, &address.octets()),
            IpAddr::V6(address) => Self::of(Field::Ip, &address.octets()),
        }
    }

    /// An address that is named anywhere: itself and its prefixes.
    pub(super) fn of_address(ip: IpAddr) -> [Self; 4] {
        let prefixes = if ip.to_canonical().is_ipv4() { PREFIXES_4 } else { PREFIXES_6 };
        prefixes.map(|prefix| Self::of_prefix(&Subnet::around(ip, prefix)))
    }

    /// What all addresses of a subnet have in common; `None`: no term.
    pub(crate) fn of_subnet(subnet: &Subnet) -> Option<Self> {
        let prefixes = if subnet.first().is_ipv4() { PREFIXES_4 } else { PREFIXES_6 };
        let prefix = prefixes.into_iter().rev().find(|prefix| *prefix <= subnet.prefix())?;
        Some(Self::of_prefix(&Subnet::around(subnet.first(), prefix)))
    }

    fn of_prefix(subnet: &Subnet) -> Self {
        let mut value = [0; 17];
        let octets: &mut [u8] = match subnet.first() {
            IpAddr::V4(address) => {
                value[1..5].copy_from_slice(&address.octets());
                &mut value[..5]
            }
            IpAddr::V6(address) => {
                value[1..].copy_from_slice(&address.octets());
                &mut value
            }
        };
        octets[0] = subnet.prefix();
        Self::of(Field::Address, octets)
    }

    /// The words that raw bytes must have to contain `needle`: those delimited within it on both
    /// sides.
    #[must_use]
    pub fn of_needle(needle: &[u8]) -> Vec<Self> {
        let mut terms = Vec::new();
        words(needle, |start, word| {
            if start > 0 && start + word.len() < needle.len() {
                terms.push(Self::of_word(word));
            }
        });
        terms
    }

    /// The words that raw bytes must have to contain `phrase` as whole words: all of its words.
    #[must_use]
    pub fn of_phrase(phrase: &[u8]) -> Vec<Self> {
        let mut terms = Vec::new();
        Self::of_words(phrase, |term| terms.push(term));
        terms
    }

    fn of_word(word: &[u8]) -> Self {
        let mut lower = [0; 64];
        let lower = &mut lower[..word.len().min(64)];
        lower.copy_from_slice(&word[..lower.len()]);
        lower.make_ascii_lowercase();
        Self::of(Field::Word, lower)
    }

    /// What a filter must include to contain it.
    pub(super) fn part(self) -> Part {
        self.part
    }

    /// Every word of raw bytes.
    pub(crate) fn of_words(raw: &[u8], mut each: impl FnMut(Self)) {
        words(raw, |_, word| each(Self::of_word(word)));
    }
}

/// Whether a byte belongs to a word: letters, digits, and bytes beyond ASCII.
pub(crate) fn in_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte >= 0x80
}

/// Calls `each` with offset and bytes of every word.
fn words<'a>(bytes: &'a [u8], mut each: impl FnMut(usize, &'a [u8])) {
    let mut start = 0;
    for (place, &byte) in bytes.iter().enumerate() {
        if !in_word(byte) {
            if WORD_SIZES.contains(&(place - start)) {
                each(start, &bytes[start..place]);
            }
            start = place + 1;
        }
    }
    if WORD_SIZES.contains(&(bytes.len() - start)) {
        each(start, &bytes[start..]);
    }
}

/// Builds the filter of a block's terms, which must be distinct.
pub(crate) fn build(terms: impl ExactSizeIterator<Item = Term>, bits_per_key: u32) -> Vec<u8> {
    let bits = terms.len().saturating_mul(bits_per_key as usize);
    let buckets = bits.div_ceil(BUCKET_SIZE * 8).max(1);
    build_sized(terms, buckets * BUCKET_SIZE)
}

/// Builds the filter of a block's terms with a size in bytes; empty unless it has whole buckets.
pub(crate) fn build_sized(terms: impl Iterator<Item = Term>, size: usize) -> Vec<u8> {
    if size == 0 || !size.is_multiple_of(BUCKET_SIZE) {
        return Vec::new();
    }
    let buckets = size / BUCKET_SIZE;
    let mut filter = vec![0; size];
    for term in terms {
        let (bucket, masks) = place(term, buckets);
        let words = &mut filter[bucket * BUCKET_SIZE..(bucket + 1) * BUCKET_SIZE];
        for (word, mask) in words.as_chunks_mut::<4>().0.iter_mut().zip(masks) {
            *word = (u32::from_le_bytes(*word) | mask).to_le_bytes();
        }
    }
    filter
}

/// Whether a filter may have been built from a term.
pub(crate) fn may_have(filter: &[u8], term: Term) -> bool {
    let (bucket, masks) = place(term, filter.len() / BUCKET_SIZE);
    let words = filter.get(bucket * BUCKET_SIZE..(bucket + 1) * BUCKET_SIZE).unwrap_or_default();
    let words = words.as_chunks::<4>().0;
    words.len() == masks.len()
        && words.iter().zip(masks).all(|(word, mask)| u32::from_le_bytes(*word) & mask != 0)
}

fn place(term: Term, buckets: usize) -> (usize, [u32; 8]) {
    let bucket = ((term.hash >> 32) * buckets as u64) >> 32;
    let low = term.hash as u32;
    (bucket as usize, SALTS.map(|salt| 1 << (low.wrapping_mul(salt) >> 27)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_needle_is_looked_for_only_by_words_that_are_whole_in_it() {
        let words = |needle: &str| Term::of_needle(needle.as_bytes());
        assert_eq!(words("rejected"), []);
        assert_eq!(words("was Rejected by"), [Term::of(Field::Word, b"rejected")]);
        assert_eq!(words(" x "), [], "one letter is no word");
        assert_eq!(words("=10.1.2.3 "), [Term::of(Field::Word, b"10")]);
    }

    #[test]
    fn a_phrase_is_looked_for_by_all_of_its_words() {
        let words = |phrase: &str| Term::of_phrase(phrase.as_bytes());
        let word = |word: &str| Term::of(Field::Word, word.as_bytes());
        assert_eq!(words("rejected"), [word("rejected")]);
        assert_eq!(words("10.1.2.30"), [word("10"), word("30")], "one digit is no word");
        assert_eq!(words("=Failed password"), [word("failed"), word("password")]);
        assert_eq!(words("x"), []);
    }

    #[test]
    fn what_was_put_in_is_found_and_little_else() {
        let term = |number: u32| Term::of(Field::Host, &number.to_le_bytes());
        let filter = build((0..1000).map(term), 10);
        assert!((0..1000).all(|number| may_have(&filter, term(number))));
        let wrong = (1000..11_000).filter(|&number| may_have(&filter, term(number))).count();
        assert!(wrong < 300, "{wrong} of 10000");
    }
}
