//! The layout of a pack: blobs one after another in one object of a bucket, and their index at its end.
//!
//! ```text
//! "FBPK" | version (4) | id (8) | blob file | blob file | ... | index | end (32)
//! index: for each blob  digest (32) | offset (8) | size (8)
//! end:   offset of the index (8) | blobs (8) | id (8) | CRC32C of index and the 24 bytes before (4) | "FBPE"
//! ```
//!
//! Numbers are little-endian. `docs/formats/blob-pack.md` describes it, and the blobs are as in
//! [`blocks`](crate::blocks).
//!
//! Invariants: a pack is accepted only under the key of its id; an index that is accepted names blobs that
//! lie one after another between header and index; nothing here indexes bytes from outside.

use std::fmt;

use bytes::{Bytes, BytesMut};
use forebay_base::checksum;

use crate::blocks::{BLOCK_SIZE, TRAILER_SIZE};
use crate::digest::Digest;

/// Size of the header of a pack, in bytes.
pub(crate) const HEADER_SIZE: u64 = 16;
/// Size of the end of a pack, in bytes.
pub(crate) const END_SIZE: u64 = 32;
/// Size of an entry of the index, in bytes.
const ENTRY_SIZE: u64 = 48;

const MARK: [u8; 4] = *b"FBPK";
const VERSION: u32 = 1;
const END_MARK: [u8; 4] = *b"FBPE";
/// Where packs are below the prefix.
pub(crate) const PACKS: &str = "packs";

/// The id of a pack: its epoch and its number. A larger one is a later one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PackId(pub(crate) u64);

impl PackId {
    pub(crate) fn new(epoch: u32, number: u32) -> Self {
        Self(u64::from(epoch) << 32 | u64::from(number))
    }

    pub(crate) fn epoch(self) -> u32 {
        u32::try_from(self.0 >> 32).unwrap_or(u32::MAX)
    }

    /// The name of its object.
    pub(crate) fn name(self) -> String {
        format!("{}/{:08x}", epoch_name(self.epoch()), self.0 & u64::from(u32::MAX))
    }

    /// The pack with this name.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        let (epoch, number) = name.strip_prefix(PACKS)?.strip_prefix('/')?.split_once('/')?;
        let hex = |text: &str| u32::from_str_radix(text, 16).ok();
        let id = Self::new(hex(epoch)?, hex(number)?);
        (id.name() == name).then_some(id)
    }
}

/// The name below which the packs of an epoch are.
pub(crate) fn epoch_name(epoch: u32) -> String {
    format!("{PACKS}/{epoch:08x}")
}

impl fmt::Display for PackId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

/// A blob in a pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) digest: Digest,
    /// Where its blob file begins.
    pub(crate) offset: u64,
    /// Number of the bytes of the blob.
    pub(crate) size: u64,
}

impl Member {
    /// Number of bytes that it takes in the pack.
    pub(crate) fn len(&self) -> u64 {
        file_len(self.size)
    }
}

/// Number of bytes of the blob file of a blob of `size` bytes.
pub(crate) fn file_len(size: u64) -> u64 {
    let blocks = size.div_ceil(BLOCK_SIZE as u64);
    size.saturating_add(blocks.saturating_mul(4)).saturating_add(TRAILER_SIZE as u64)
}

pub(crate) fn header(id: PackId) -> [u8; 16] {
    let mut header = [0; 16];
    let (mark, rest) = header.split_at_mut(4);
    let (version, number) = rest.split_at_mut(4);
    mark.copy_from_slice(&MARK);
    version.copy_from_slice(&VERSION.to_le_bytes());
    number.copy_from_slice(&id.0.to_le_bytes());
    header
}

/// What follows the last blob.
pub(crate) fn index_and_end(id: PackId, members: &[Member]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for member in members {
        bytes.extend_from_slice(&member.digest.0);
        bytes.extend_from_slice(&member.offset.to_le_bytes());
        bytes.extend_from_slice(&member.size.to_le_bytes());
    }
    let index_at = members.last().map_or(HEADER_SIZE, |last| last.offset + last.len());
    bytes.extend_from_slice(&index_at.to_le_bytes());
    bytes.extend_from_slice(&(members.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&id.0.to_le_bytes());
    let checksum = checksum::crc32c(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes.extend_from_slice(&END_MARK);
    bytes
}

/// A pack that is made in memory.
#[derive(Debug)]
pub(crate) struct PackBuilder {
    id: PackId,
    bytes: BytesMut,
    members: Vec<Member>,
}

impl PackBuilder {
    pub(crate) fn new(id: PackId) -> Self {
        Self { id, bytes: BytesMut::from(&header(id)[..]), members: Vec::new() }
    }

    /// Adds a blob.
    ///
    /// * `file`: its blob file.
    pub(crate) fn push(&mut self, digest: Digest, size: u64, file: &[u8]) {
        self.members.push(Member { digest, offset: self.bytes.len() as u64, size });
        self.bytes.extend_from_slice(file);
    }

    /// Returns the object and what it has.
    pub(crate) fn finish(mut self) -> (Bytes, Vec<Member>) {
        self.bytes.extend_from_slice(&index_and_end(self.id, &self.members));
        (self.bytes.freeze(), self.members)
    }
}

/// The end of a pack, of which more may have to be read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The index begins here, before the bytes that were given.
    Before(u64),
    /// The index.
    Members(Vec<Member>),
}

/// Reads the index of a pack.
///
/// * `tail`: its last bytes, at least [`END_SIZE`].
/// * `size`: number of its bytes.
///
/// # Errors
/// It is no pack, not this one, or damaged.
pub(crate) fn read_end(tail: &[u8], size: u64, id: PackId) -> Result<End, &'static str> {
    const SHORT: &str = "it is shorter than a pack";
    let tail_at = size.checked_sub(tail.len() as u64).ok_or(SHORT)?;
    let end_size = usize::try_from(END_SIZE).unwrap_or(usize::MAX);
    let (before, end) =
        tail.len().checked_sub(end_size).and_then(|at| tail.split_at_checked(at)).ok_or(SHORT)?;
    let (numbers, rest) = end.split_at_checked(24).ok_or(SHORT)?;
    let (stored, mark) = rest.split_at_checked(4).ok_or(SHORT)?;
    if mark != END_MARK {
        return Err("it does not end like a pack");
    }
    let mut numbers_read = numbers.chunks_exact(8).filter_map(|bytes| bytes.try_into().ok());
    let mut number = || numbers_read.next().map(u64::from_le_bytes).ok_or(SHORT);
    let (index_at, count, of) = (number()?, number()?, number()?);
    let index_size = count.checked_mul(ENTRY_SIZE).ok_or("its index is longer than the pack")?;
    let expected = index_at.checked_add(index_size).and_then(|at| at.checked_add(END_SIZE));
    if expected != Some(size) || index_at < HEADER_SIZE {
        return Err("its index does not fit its size");
    }
    let Some(skipped) = index_at.checked_sub(tail_at) else { return Ok(End::Before(index_at)) };
    let skipped = usize::try_from(skipped).map_err(|_| SHORT)?;
    let (_, index) = before.split_at_checked(skipped).ok_or(SHORT)?;
    let checksum = checksum::extend(checksum::crc32c(index), numbers);
    if checksum.to_le_bytes() != *stored {
        return Err("its index does not match its checksum");
    }
    if of != id.0 {
        return Err("it is another pack");
    }
    members(index, index_at).map(End::Members)
}

fn members(index: &[u8], index_at: u64) -> Result<Vec<Member>, &'static str> {
    const GAP: &str = "its blobs do not follow each other";
    let entry_size = usize::try_from(ENTRY_SIZE).unwrap_or(usize::MAX);
    let mut next = HEADER_SIZE;
    let mut members = Vec::with_capacity(index.len() / entry_size);
    for entry in index.chunks_exact(entry_size) {
        let (digest, rest) = entry.split_at_checked(32).ok_or(GAP)?;
        let (offset, size) = rest.split_at_checked(8).ok_or(GAP)?;
        let number = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).map_err(|_| GAP);
        let member = Member {
            digest: Digest(digest.try_into().map_err(|_| GAP)?),
            offset: number(offset)?,
            size: number(size)?,
        };
        if member.offset != next {
            return Err(GAP);
        }
        next = next.checked_add(member.len()).ok_or(GAP)?;
        members.push(member);
    }
    if next == index_at { Ok(members) } else { Err(GAP) }
}

/// Reads bytes as the end of a pack, and as an index whose end is right, for the fuzz target. Returns the number of
/// blobs of the second. Not part of the public interface.
///
/// # Panics
/// An index that is accepted is not the one that would be written.
#[cfg(feature = "fuzzing")]
#[must_use]
pub fn pack_end(bytes: &[u8]) -> usize {
    let id = PackId::new(1, 1);
    let size = bytes.len() as u64;
    let accepted = |tail: &[u8], size: u64| match read_end(tail, size, id) {
        Ok(End::Members(members)) => {
            assert!(tail.ends_with(&index_and_end(id, &members)));
            members.len()
        }
        Ok(End::Before(at)) => {
            assert!(at < size - tail.len() as u64);
            0
        }
        Err(_) => 0,
    };
    for size in [size, size.saturating_mul(2), u64::MAX] {
        let _members = accepted(bytes, size);
    }
    let entry_size = usize::try_from(ENTRY_SIZE).unwrap_or(usize::MAX);
    let entries = bytes.chunks_exact(entry_size);
    let Some(last) = entries.clone().last() else { return 0 };
    // The index begins where the last of its blobs would end.
    let number = |at: usize| {
        let bytes = last.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u64::from_le_bytes)
    };
    let index_at = number(32).saturating_add(file_len(number(40)));
    let mut tail = entries.clone().flatten().copied().collect::<Vec<_>>();
    for number in [index_at, entries.len() as u64, id.0] {
        tail.extend_from_slice(&number.to_le_bytes());
    }
    tail.extend_from_slice(&checksum::crc32c(&tail).to_le_bytes());
    tail.extend_from_slice(&END_MARK);
    accepted(&tail, index_at.saturating_add(tail.len() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::encode;

    fn pack(id: PackId, blobs: &[&[u8]]) -> (Bytes, Vec<Member>) {
        let mut builder = PackBuilder::new(id);
        for blob in blobs {
            let digest = Digest::of(blob);
            builder.push(digest, blob.len() as u64, &encode(digest, blob));
        }
        builder.finish()
    }

    #[test]
    fn a_pack_names_its_blobs_however_much_of_its_end_is_read_first() {
        let id = PackId::new(7, 9);
        let large = vec![3; 3 * BLOCK_SIZE + 1];
        let (bytes, members) = pack(id, &[b"one", b"", &large]);
        let size = bytes.len() as u64;
        let index_at = size - END_SIZE - 3 * ENTRY_SIZE;
        for tail in [bytes.len(), 400, 176, 175, 32] {
            let tail = &bytes[bytes.len() - tail..];
            let expected = match (tail.len() as u64) < 3 * ENTRY_SIZE + END_SIZE {
                true => End::Before(index_at),
                false => End::Members(members.clone()),
            };
            assert_eq!(read_end(tail, size, id), Ok(expected), "{}", tail.len());
        }
        for member in &members {
            let at = usize::try_from(member.offset).unwrap();
            let found = &bytes[at..at + usize::try_from(member.size).unwrap()];
            assert_eq!(Digest::of(found), member.digest);
        }
        assert_eq!(PackId::of_name(&id.name()), Some(id));
        for name in ["packs/7/9", "packs/00000007/0000000G", "packs/00000007", "claim.json"] {
            assert_eq!(PackId::of_name(name), None, "{name}");
        }
    }

    #[test]
    fn no_altered_or_shortened_end_is_accepted_and_none_makes_the_reader_panic() {
        let id = PackId::new(1, 1);
        let (bytes, _) = pack(id, &[b"one", b"two"]);
        let end = usize::try_from(END_SIZE + 2 * ENTRY_SIZE).unwrap();
        for at in bytes.len() - end..bytes.len() {
            let mut altered = bytes.to_vec();
            altered[at] ^= 1;
            assert!(
                !matches!(read_end(&altered, bytes.len() as u64, id), Ok(End::Members(_))),
                "byte {at}"
            );
        }
        for len in 0..bytes.len() {
            let found = read_end(&bytes[..len], len as u64, id);
            assert!(!matches!(found, Ok(End::Members(_))), "{len} bytes");
            let found = read_end(&bytes[..len], bytes.len() as u64, id);
            assert!(!matches!(found, Ok(End::Members(_))), "{len} bytes of a longer one");
        }
        let size = bytes.len() as u64;
        assert_eq!(read_end(&bytes, size, PackId::new(1, 2)), Err("it is another pack"));
        assert_eq!(read_end(&bytes, u64::MAX, id), Err("its index does not fit its size"));
    }
}
