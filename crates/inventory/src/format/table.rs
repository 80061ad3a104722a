//! The table that finds a prefix by the hash of its components: buckets of one cache line, in 256
//! partitions, so that a table larger than memory is made one partition at a time.
//!
//! A bucket has ten slots of a tag (one byte of the hash) and a position in `nodes`, and a
//! checksum; a slot without a position is free. A prefix whose bucket is full is stored in the next
//! one of its partition.

use xxhash_rust::xxh3::xxh3_64;

use super::{CHECKSUM_SIZE, POSITION_SIZE, checksum, position, position_bytes};

/// Bytes of a bucket.
pub const BUCKET_SIZE: usize = 64;
/// Number of slots of a bucket.
pub const PLACES: usize = 10;
/// Number of partitions of a table.
pub const PARTITIONS: usize = 256;
/// Of ten slots, the number filled when a partition is sized.
const FILL: usize = 7;
/// Size of the header before the buckets: the first bucket of each partition, one beyond the last,
/// and a checksum.
pub const DIRECTORY_SIZE: usize =
    BUCKET_SIZE * ((PARTITIONS + 1) * 8 + CHECKSUM_SIZE).div_ceil(BUCKET_SIZE);

/// The hash of the empty prefix.
pub const ROOT_HASH: u64 = 0x466F_7265_6261_7931;

/// The hash of a prefix one component longer.
#[inline]
#[must_use]
pub fn hash_child(parent: u64, name: &[u8]) -> u64 {
    const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
    let product = u128::from(parent ^ xxh3_64(name)) * u128::from(ODD);
    let [low, high] = [product, product >> 64].map(|half| {
        let [low @ .., _, _, _, _, _, _, _, _] = half.to_le_bytes();
        u64::from_le_bytes(low)
    });
    low ^ high
}

/// The partition of a hash.
#[inline]
#[must_use]
pub fn partition(hash: u64) -> usize {
    (hash >> 56) as usize
}

/// The first bucket for a hash, of this many in its partition.
#[inline]
#[must_use]
pub fn bucket(hash: u64, buckets: u64) -> u64 {
    ((hash >> 24 & 0xFFFF_FFFF) * buckets) >> 32
}

/// The tag of a hash.
#[inline]
#[must_use]
pub fn tag(hash: u64) -> u8 {
    hash.to_le_bytes()[0]
}

/// Number of buckets of a partition with this many prefixes.
#[must_use]
pub fn buckets_for(prefixes: usize) -> usize {
    prefixes / FILL + 1
}

/// A bucket in its stored form.
pub type Bucket = [u8; BUCKET_SIZE];

/// Inserts a prefix into its partition; returns `false` if that is full.
pub(crate) fn insert(partition: &mut [Bucket], hash: u64, at: u64) -> bool {
    let count = partition.len();
    let first = usize::try_from(bucket(hash, count as u64)).unwrap_or(0);
    for i in 0..count {
        let Some(bucket) = partition.get_mut((first + i) % count) else { return false };
        for place in 0..PLACES {
            if position_at(bucket, place) == 0 {
                bucket[place] = tag(hash);
                let start = PLACES + place * POSITION_SIZE;
                if let Some(bytes) = bucket.get_mut(start..start + POSITION_SIZE) {
                    bytes.copy_from_slice(&position_bytes(at));
                }
                return true;
            }
        }
    }
    false
}

/// Sets the checksum of a complete bucket.
pub(crate) fn seal(bucket: &mut Bucket) {
    let (data, sum) = bucket.split_at_mut(BUCKET_SIZE - CHECKSUM_SIZE);
    sum.copy_from_slice(&checksum(data));
}

/// Whether a bucket is undamaged.
#[must_use]
pub fn is_sound(bucket: &Bucket) -> bool {
    let (data, sum) = bucket.split_at(BUCKET_SIZE - CHECKSUM_SIZE);
    checksum(data) == sum
}

/// The position in a slot, 0 if it is free.
#[inline]
#[must_use]
pub fn position_at(bucket: &Bucket, place: usize) -> u64 {
    let start = PLACES + place * POSITION_SIZE;
    bucket
        .get(start..)
        .and_then(|rest| rest.first_chunk::<POSITION_SIZE>())
        .map_or(0, |bytes| position(*bytes))
}

/// The positions in a bucket whose tag is that of `hash`.
#[inline]
pub fn candidates(bucket: &Bucket, hash: u64) -> impl Iterator<Item = u64> + '_ {
    let tag = tag(hash);
    (0..PLACES)
        .filter(move |&place| bucket[place] == tag)
        .map(|place| position_at(bucket, place))
        .filter(|&at| at != 0)
}

/// Whether a bucket has no free slot, so that the search continues in the next one.
#[inline]
#[must_use]
pub fn is_full(bucket: &Bucket) -> bool {
    position_at(bucket, PLACES - 1) != 0
}

/// The directory of partitions with these numbers of buckets.
pub(crate) fn directory(buckets: &[u64; PARTITIONS]) -> [u8; DIRECTORY_SIZE] {
    let mut bytes = [0; DIRECTORY_SIZE];
    let (data, sum) = bytes.split_at_mut(DIRECTORY_SIZE - CHECKSUM_SIZE);
    let mut first = 0_u64;
    let places = data.as_chunks_mut::<8>().0;
    for (place, count) in places.iter_mut().zip(buckets.iter().chain([&0])) {
        *place = first.to_le_bytes();
        first += count;
    }
    sum.copy_from_slice(&checksum(data));
    bytes
}

/// Start of each partition, and end of the last, in buckets; `None` if the directory is damaged.
#[must_use]
pub fn read_directory(table: &[u8]) -> Option<Box<[u64; PARTITIONS + 1]>> {
    let bytes = table.first_chunk::<DIRECTORY_SIZE>()?;
    let (data, sum) = bytes.split_at(DIRECTORY_SIZE - CHECKSUM_SIZE);
    if checksum(data) != sum {
        return None;
    }
    let mut firsts = Box::new([0; PARTITIONS + 1]);
    for (first, bytes) in firsts.iter_mut().zip(data.as_chunks::<8>().0) {
        *first = u64::from_le_bytes(*bytes);
    }
    let in_order = firsts.is_sorted();
    let buckets = (table.len() - DIRECTORY_SIZE) as u64 / BUCKET_SIZE as u64;
    let whole = (table.len() - DIRECTORY_SIZE).is_multiple_of(BUCKET_SIZE);
    (in_order && whole && firsts.last() == Some(&buckets)).then_some(firsts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_in_is_found_and_a_changed_byte_is_noticed() {
        let mut partition = vec![[0; BUCKET_SIZE]; buckets_for(1000)];
        let hash = |i: u64| hash_child(ROOT_HASH, &i.to_le_bytes());
        assert!((1..=1000).all(|i| insert(&mut partition, hash(i), i * 1000)));
        partition.iter_mut().for_each(seal);
        for i in 1..=1000 {
            let first = bucket(hash(i), partition.len() as u64);
            let mut at = usize::try_from(first).unwrap();
            while !candidates(&partition[at], hash(i)).any(|found| found == i * 1000) {
                assert!(is_full(&partition[at]));
                at = (at + 1) % partition.len();
            }
        }
        for bit in 0..BUCKET_SIZE * 8 {
            let mut changed = partition[3];
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_sound(&changed));
        }
    }

    #[test]
    fn a_directory_comes_back_and_a_changed_byte_is_noticed() {
        let mut counts = [0; PARTITIONS];
        counts[3] = 2;
        counts[255] = 1;
        let mut table = directory(&counts).to_vec();
        table.extend_from_slice(&[0; 3 * BUCKET_SIZE]);
        let firsts = read_directory(&table).unwrap();
        assert_eq!((firsts[3], firsts[4], firsts[255], firsts[256]), (0, 2, 2, 3));
        for byte in 0..DIRECTORY_SIZE {
            table[byte] ^= 1;
            assert!(read_directory(&table).is_none());
            table[byte] ^= 1;
        }
        table.pop();
        assert!(read_directory(&table).is_none());
    }
}
