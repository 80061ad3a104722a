//! The manifest: the list of segments, and where the log continues
//! (`docs/formats/event-manifest.md`).

#![expect(clippy::cast_possible_truncation, reason = "the number of segments is bounded")]

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_base::fs::FileSystem;

use super::error::{Disk, OpenError};
use super::seal::{FileKey, Kind, SEAL_SIZE, Sealer, UNAUTHENTIC, checked, unchecked};
use super::whole_file::{self, damaged};
use crate::merkle::{Hash, TILE_WIDTH};

const MAGIC: &[u8; 8] = b"FBEVMAN4";
/// Without the hashes after the last complete tile.
const MAGIC_3: &[u8; 8] = b"FBEVMAN3";
/// Without a code: of a store without proofs, or of one whose files were not authenticated.
const MAGIC_2: &[u8; 8] = b"FBEVMAN2";
/// Of a store that removed events without recording it.
const MAGIC_1: &[u8; 8] = b"FBEVMAN1";
const NAME: &str = "manifest";
const NEW_NAME: &str = "manifest.new";
const FIXED_SIZE: usize = 8 + 1 + 8 + 8 + 8 + 16 + 8 + 4;
const SEGMENT_SIZE: usize = 8 * 7 + 32;
/// What follows the segments in a manifest with a code, without the hashes at the edge of the tree.
const SEALED_SIZE: usize = 32 + 8 + 8;
/// Maximum size of the hashes at the edge of the tree, and of their number.
const EDGE_SIZE_MAX: usize = 2 + (TILE_WIDTH - 1) * size_of::<Hash>();
/// Maximum number of segments in a manifest.
const SEGMENTS_MAX: usize = 1 << 20;

/// A segment of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SegmentEntry {
    /// Names its file.
    pub(crate) number: u64,
    pub(crate) first_seq: u64,
    pub(crate) end_seq: u64,
    /// Number of its events, without pruned ones.
    pub(crate) rows: u64,
    pub(crate) time_min_ns: i64,
    pub(crate) time_max_ns: i64,
    pub(crate) file_size: u64,
    /// BLAKE3 of the whole file.
    pub(crate) digest: [u8; 32],
}

/// The contents of a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Manifest {
    /// Whether what is removed is recorded: false for a store of version 1 until it is upgraded.
    pub(crate) recording: bool,
    /// Whether the store's own files have codes: false for one without proofs, and for one of an
    /// earlier version until it is upgraded.
    pub(crate) sealed: bool,
    /// Whether the store keeps proofs: fixed when it was created.
    pub(crate) merkle: bool,
    /// The number of the next segment.
    pub(crate) segment_next: u64,
    /// Every position below is in a segment.
    pub(crate) flushed_seq: u64,
    /// Position in the log of the first batch that is in no segment.
    pub(crate) log_position: u64,
    /// The log to which the positions belong.
    pub(crate) log_id: [u8; 16],
    /// Position of the newest entry with retention rules.
    pub(crate) policy: Option<u64>,
    /// In order of sequence, without gaps.
    pub(crate) segments: Vec<SegmentEntry>,
    /// The root of the tree of all flushed events, if it is known; only if sealed.
    pub(crate) root: Option<Hash>,
    /// The generation of the newest file of requests, which is at least this; only if sealed.
    pub(crate) requests: u64,
    /// Position in the log from which entries have codes; only if sealed.
    pub(crate) codes_from: u64,
    /// Hashes of the flushed events that no complete tile covers, so that the tree can grow while a
    /// block with them is damaged; empty if there are none or they are not known. Only if sealed.
    pub(crate) edge: Arc<[Hash]>,
}

/// A manifest that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReadManifest {
    pub(crate) manifest: Manifest,
    /// Why it may be that of another, if it has no valid code although it must.
    pub(crate) unauthentic: Option<&'static str>,
}

impl Manifest {
    /// * `key`: of a sealed one.
    fn encode(&self, key: Option<&FileKey>) -> Vec<u8> {
        let key = key.filter(|_| self.sealed);
        let size = FIXED_SIZE + self.segments.len() * SEGMENT_SIZE + SEALED_SIZE + SEAL_SIZE;
        let mut out = Vec::with_capacity(size + EDGE_SIZE_MAX);
        out.extend_from_slice(match (key.is_some(), self.recording) {
            (true, _) => MAGIC,
            (false, true) => MAGIC_2,
            (false, false) => MAGIC_1,
        });
        out.push(u8::from(self.merkle));
        for number in [self.segment_next, self.flushed_seq, self.log_position] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&self.log_id);
        if self.recording {
            out.extend_from_slice(&self.policy.map_or(0, |seq| seq + 1).to_le_bytes());
        }
        out.extend_from_slice(&(self.segments.len() as u32).to_le_bytes());
        for segment in &self.segments {
            for number in [segment.number, segment.first_seq, segment.end_seq, segment.rows] {
                out.extend_from_slice(&number.to_le_bytes());
            }
            out.extend_from_slice(&segment.time_min_ns.to_le_bytes());
            out.extend_from_slice(&segment.time_max_ns.to_le_bytes());
            out.extend_from_slice(&segment.file_size.to_le_bytes());
            out.extend_from_slice(&segment.digest);
        }
        let Some(key) = key else { return checked(out) };
        out.extend_from_slice(&self.root.unwrap_or_default().0);
        out.extend_from_slice(&self.requests.to_le_bytes());
        out.extend_from_slice(&self.codes_from.to_le_bytes());
        out.extend_from_slice(&(self.edge.len() as u16).to_le_bytes());
        for hash in &*self.edge {
            out.extend_from_slice(&hash.0);
        }
        Sealer { key, log_id: &self.log_id }.seal(Kind::Manifest, out)
    }

    fn decode(bytes: &[u8], key: Option<&FileKey>) -> Result<ReadManifest, &'static str> {
        let bytes = unchecked(bytes)?;
        let mut rest = Fields { bytes };
        let (recording, sealed, with_edge) = match rest.take::<8>()? {
            magic if magic == *MAGIC => (true, true, true),
            magic if magic == *MAGIC_3 => (true, true, false),
            magic if magic == *MAGIC_2 => (true, false, false),
            magic if magic == *MAGIC_1 => (false, false, false),
            _ => return Err("it has another format or version"),
        };
        let merkle = match rest.take::<1>()? {
            [0] => false,
            [1] => true,
            _ => return Err("its flag for proofs is invalid"),
        };
        let (segment_next, flushed_seq, log_position) =
            (rest.number()?, rest.number()?, rest.number()?);
        let log_id = rest.take::<16>()?;
        let policy = if recording { rest.number()?.checked_sub(1) } else { None };
        let count = u32::from_le_bytes(rest.take::<4>()?) as usize;
        if count > SEGMENTS_MAX || rest.bytes.len() < count * SEGMENT_SIZE {
            return Err("its number of segments does not match its size");
        }
        let mut segments = Vec::with_capacity(count);
        let mut expected = 0;
        for _ in 0..count {
            let segment = rest.segment()?;
            if segment.first_seq != expected || segment.end_seq < segment.first_seq {
                return Err("its segments do not follow one another");
            }
            expected = segment.end_seq;
            segments.push(segment);
        }
        if expected != flushed_seq {
            return Err("its segments do not end at the stated position");
        }
        let (mut root, mut requests, mut codes_from, mut unauthentic) = (None, 0, 0, None);
        let mut edge = Arc::default();
        if sealed {
            root = Some(Hash(rest.take()?)).filter(|root| *root != Hash::default());
            requests = rest.number()?;
            codes_from = rest.number()?;
            if with_edge {
                edge = rest.edge(flushed_seq)?;
            }
            rest.take::<{ SEAL_SIZE - 4 }>()?;
            unauthentic = match key {
                Some(key) => Sealer { key, log_id: &log_id }.unseal(Kind::Manifest, bytes).err(),
                None => Some(UNAUTHENTIC),
            };
        }
        if !rest.bytes.is_empty() {
            return Err("its number of segments does not match its size");
        }
        let manifest = Self {
            recording,
            sealed,
            merkle,
            segment_next,
            flushed_seq,
            log_position,
            log_id,
            policy,
            segments,
            root,
            requests,
            codes_from,
            edge,
        };
        Ok(ReadManifest { manifest, unauthentic })
    }

    /// Reads the manifest in `dir`; `None` if there is none.
    ///
    /// * `key`: that of the store, if it has one.
    pub(crate) fn read(
        fs: &dyn FileSystem,
        dir: &Path,
        key: Option<&FileKey>,
    ) -> Result<Option<ReadManifest>, OpenError> {
        let path = dir.join(NAME);
        let tail = SEALED_SIZE + EDGE_SIZE_MAX + SEAL_SIZE;
        let size_max = FIXED_SIZE + SEGMENTS_MAX * SEGMENT_SIZE + tail;
        let Some(bytes) = whole_file::read(fs, &path, size_max)? else { return Ok(None) };
        Self::decode(&bytes, key).map(Some).map_err(|reason| damaged(&path, reason))
    }

    /// Replaces the manifest.
    pub(crate) fn write(
        &self,
        fs: &dyn FileSystem,
        dir: &Path,
        key: Option<&FileKey>,
    ) -> Result<(), Disk> {
        whole_file::replace(fs, dir, (NAME, NEW_NAME), &self.encode(key))
    }
}

/// Removes a file if it exists.
pub(crate) fn remove(fs: &dyn FileSystem, path: &Path) -> Result<(), Disk> {
    match fs.remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result.map_err(|source| Disk::new("remove", path, source)),
    }
}

/// Returns the path of a segment's file.
pub(crate) fn segment_path(dir: &Path, number: u64) -> PathBuf {
    segments_dir(dir).join(format!("{number:016x}.segment"))
}

/// Returns the directory of the segments.
pub(crate) fn segments_dir(dir: &Path) -> PathBuf {
    dir.join("segments")
}

struct Fields<'a> {
    bytes: &'a [u8],
}

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], &'static str> {
        let (found, rest) = self.bytes.split_first_chunk::<N>().ok_or("it is truncated")?;
        self.bytes = rest;
        Ok(*found)
    }

    fn number(&mut self) -> Result<u64, &'static str> {
        self.take::<8>().map(u64::from_le_bytes)
    }

    /// Hashes at the edge of the tree of `flushed_seq` events.
    fn edge(&mut self, flushed_seq: u64) -> Result<Arc<[Hash]>, &'static str> {
        let count = u16::from_le_bytes(self.take()?);
        if count != 0 && u64::from(count) != flushed_seq % TILE_WIDTH as u64 {
            return Err("its number of hashes does not match its number of events");
        }
        (0..count).map(|_| self.take().map(Hash)).collect()
    }

    fn segment(&mut self) -> Result<SegmentEntry, &'static str> {
        Ok(SegmentEntry {
            number: self.number()?,
            first_seq: self.number()?,
            end_seq: self.number()?,
            rows: self.number()?,
            time_min_ns: i64::from_le_bytes(self.take()?),
            time_max_ns: i64::from_le_bytes(self.take()?),
            file_size: self.number()?,
            digest: self.take()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let segment = |number, first_seq, end_seq| SegmentEntry {
            number,
            first_seq,
            end_seq,
            rows: end_seq - first_seq,
            time_min_ns: -5,
            time_max_ns: 9,
            file_size: 77,
            digest: [7; 32],
        };
        Manifest {
            recording: true,
            sealed: true,
            merkle: true,
            segment_next: 9,
            flushed_seq: 30,
            log_position: 4096,
            log_id: [3; 16],
            policy: Some(12),
            segments: vec![segment(7, 0, 10), segment(8, 10, 30)],
            root: Some(Hash([5; 32])),
            requests: 4,
            codes_from: 64,
            edge: (0..30).map(|seed| Hash([seed; 32])).collect(),
        }
    }

    /// One of a store whose files were not authenticated.
    fn unsealed() -> Manifest {
        let (root, requests, codes_from, edge) = (None, 0, 0, Arc::default());
        Manifest { sealed: false, root, requests, codes_from, edge, ..manifest() }
    }

    fn key(seed: u8) -> FileKey {
        FileKey::of(&crate::checkpoint::SigningKey::from_seed("o", [seed; 32]).unwrap())
    }

    fn found(manifest: Manifest) -> Result<ReadManifest, &'static str> {
        Ok(ReadManifest { manifest, unauthentic: None })
    }

    #[test]
    fn a_manifest_survives_and_no_flipped_bit_or_cut_of_it_passes() {
        let key = key(1);
        let bytes = manifest().encode(Some(&key));
        assert_eq!(Manifest::decode(&bytes, Some(&key)), found(manifest()));
        for place in 0..bytes.len() {
            assert!(Manifest::decode(&bytes[..place], Some(&key)).is_err());
            for bit in 0..8 {
                let mut bytes = bytes.clone();
                bytes[place] ^= 1 << bit;
                assert!(Manifest::decode(&bytes, Some(&key)).is_err());
            }
        }
    }

    #[test]
    fn no_changed_manifest_is_authentic_though_its_checksum_is_right() {
        let (own, other) = (key(1), key(2));
        let bytes = manifest().encode(Some(&own));
        for place in 8..bytes.len() - 4 {
            let mut forged = bytes[..bytes.len() - 4].to_vec();
            forged[place] ^= 1;
            let read = Manifest::decode(&checked(forged), Some(&own));
            assert!(read.is_err() || read.unwrap().unauthentic.is_some(), "{place}");
        }
        for key in [None, Some(&other)] {
            let read = Manifest::decode(&bytes, key).unwrap();
            assert_eq!((read.unauthentic, read.manifest), (Some(UNAUTHENTIC), manifest()));
        }
    }

    #[test]
    fn a_manifest_of_version_3_is_read_and_has_no_hashes() {
        let key = key(1);
        let whole = Manifest { edge: Arc::default(), ..manifest() };
        let mut bytes = whole.encode(Some(&key));
        bytes.truncate(bytes.len() - SEAL_SIZE - 2);
        bytes[..8].copy_from_slice(MAGIC_3);
        let bytes = Sealer { key: &key, log_id: &[3; 16] }.seal(Kind::Manifest, bytes);
        assert_eq!(Manifest::decode(&bytes, Some(&key)), found(whole));
    }

    #[test]
    fn a_manifest_of_version_2_has_no_code_and_no_fields_of_later_ones() {
        let old = unsealed();
        let bytes = old.encode(Some(&key(1)));
        assert_eq!((&bytes[..8], bytes.len()), (MAGIC_2.as_slice(), 61 + 2 * SEGMENT_SIZE + 4));
        assert_eq!(Manifest::decode(&bytes, None), found(old));
    }

    #[test]
    fn a_manifest_of_version_1_is_read_and_written_as_it_was() {
        let old = Manifest { recording: false, policy: None, ..unsealed() };
        let bytes = old.encode(None);
        assert_eq!((&bytes[..8], bytes.len()), (MAGIC_1.as_slice(), 53 + 2 * SEGMENT_SIZE + 4));
        assert_eq!(Manifest::decode(&bytes, None), found(old));
    }

    #[test]
    fn segments_with_a_gap_between_them_are_refused() {
        let mut gap = manifest();
        gap.segments[1].first_seq = 11;
        assert!(Manifest::decode(&gap.encode(None), None).is_err());
        let mut short = manifest();
        short.flushed_seq = 31;
        assert!(Manifest::decode(&short.encode(None), None).is_err());
    }
}
