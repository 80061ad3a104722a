//! The checksums of S3: their names, and how each is computed.
//!
//! Those that came last, from SHA-512 on, can be given for whole objects, but not for parts: the types of
//! `s3s` have no fields for them, so no list of parts could carry them. They are compared and returned as the
//! others are.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use crc_fast::CrcAlgorithm;
use md5::Md5;
use s3s::crypto::Checksum as _;
use s3s::{S3Result, s3_error};
use sha2::{Digest as _, Sha512};
use xxhash_rust::xxh3::Xxh3;
use xxhash_rust::xxh64::Xxh64;

/// Checksums of S3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Crc32,
    Crc32c,
    Crc64Nvme,
    Sha1,
    Sha256,
    Sha512,
    Md5,
    XxHash64,
    XxHash3,
    XxHash128,
}

impl Algorithm {
    pub(crate) const ALL: [Self; 10] = [
        Self::Crc32,
        Self::Crc32c,
        Self::Crc64Nvme,
        Self::Sha1,
        Self::Sha256,
        Self::Sha512,
        Self::Md5,
        Self::XxHash64,
        Self::XxHash3,
        Self::XxHash128,
    ];

    /// Its name in `ChecksumAlgorithm`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Crc32 => "CRC32",
            Self::Crc32c => "CRC32C",
            Self::Crc64Nvme => "CRC64NVME",
            Self::Sha1 => "SHA1",
            Self::Sha256 => "SHA256",
            Self::Sha512 => "SHA512",
            Self::Md5 => "MD5",
            Self::XxHash64 => "XXHASH64",
            Self::XxHash3 => "XXHASH3",
            Self::XxHash128 => "XXHASH128",
        }
    }

    /// The header that carries it.
    pub(crate) fn header(self) -> &'static str {
        match self {
            Self::Crc32 => "x-amz-checksum-crc32",
            Self::Crc32c => "x-amz-checksum-crc32c",
            Self::Crc64Nvme => "x-amz-checksum-crc64nvme",
            Self::Sha1 => "x-amz-checksum-sha1",
            Self::Sha256 => "x-amz-checksum-sha256",
            Self::Sha512 => "x-amz-checksum-sha512",
            Self::Md5 => "x-amz-checksum-md5",
            Self::XxHash64 => "x-amz-checksum-xxhash64",
            Self::XxHash3 => "x-amz-checksum-xxhash3",
            Self::XxHash128 => "x-amz-checksum-xxhash128",
        }
    }

    pub(crate) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name().eq_ignore_ascii_case(name))
    }

    /// The checksum that a header or trailer carries.
    pub(crate) fn of_header(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.header().eq_ignore_ascii_case(name))
    }

    /// Its code in notes of parts.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Crc32 => 1,
            Self::Crc32c => 2,
            Self::Crc64Nvme => 3,
            Self::Sha1 => 4,
            Self::Sha256 => 5,
            Self::Sha512 => 6,
            Self::Md5 => 7,
            Self::XxHash64 => 8,
            Self::XxHash3 => 9,
            Self::XxHash128 => 10,
        }
    }

    pub(crate) fn of_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.code() == code)
    }

    pub(crate) fn size(self) -> usize {
        match self {
            Self::Crc32 | Self::Crc32c => 4,
            Self::Crc64Nvme | Self::XxHash64 | Self::XxHash3 => 8,
            Self::Md5 | Self::XxHash128 => 16,
            Self::Sha1 => 20,
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }

    /// Whether the inputs and outputs of `s3s` have fields for it.
    pub(crate) fn has_fields(self) -> bool {
        use Algorithm::{Crc32, Crc32c, Crc64Nvme, Sha1, Sha256};
        matches!(self, Crc32 | Crc32c | Crc64Nvme | Sha1 | Sha256)
    }

    /// Checks that parts can have it.
    ///
    /// # Errors
    /// `InvalidRequest`.
    pub(crate) fn check_of_parts(self) -> S3Result<()> {
        if self.has_fields() {
            return Ok(());
        }
        let name = self.name();
        Err(s3_error!(InvalidRequest, "The checksum {name} is not supported for uploads in parts"))
    }

    /// The CRC, if it is one: those of parts can be combined.
    fn crc(self) -> Option<CrcAlgorithm> {
        match self {
            Self::Crc32 => Some(CrcAlgorithm::Crc32IsoHdlc),
            Self::Crc32c => Some(CrcAlgorithm::Crc32Iscsi),
            Self::Crc64Nvme => Some(CrcAlgorithm::Crc64Nvme),
            _ => None,
        }
    }

    /// Returns the checksum of two parts together; `None` if it is not a CRC, or they are no checksums.
    pub(crate) fn combine(self, first: &[u8], second: &[u8], second_size: u64) -> Option<Vec<u8>> {
        let value = |bytes: &[u8]| {
            let mut whole = [0; 8];
            let at = whole.len().checked_sub(bytes.len())?;
            whole.get_mut(at..)?.copy_from_slice(bytes);
            Some(u64::from_be_bytes(whole))
        };
        let (first, second) = (value(first)?, value(second)?);
        let whole = crc_fast::checksum_combine(self.crc()?, first, second, second_size);
        Some(whole.to_be_bytes()[8 - self.size()..].to_vec())
    }

    /// Returns the checksum of bytes in memory.
    pub(crate) fn of(self, bytes: &[u8]) -> Vec<u8> {
        let mut running = Running::new(self);
        running.update(bytes);
        running.finish()
    }

    /// Reads a value as headers and XML carry it.
    ///
    /// # Errors
    /// `InvalidRequest`: it is not Base64 of this checksum's size.
    pub(crate) fn decode(self, text: &str) -> S3Result<Vec<u8>> {
        let decoded = STANDARD.decode(text).ok().filter(|value| value.len() == self.size());
        decoded.ok_or_else(|| {
            s3_error!(InvalidRequest, "Value for {} header is invalid.", self.header())
        })
    }
}

/// A checksum being computed.
pub(crate) enum Running {
    Crc(Algorithm, crc_fast::Digest),
    Sha1(s3s::crypto::Sha1),
    Sha256(s3s::crypto::Sha256),
    Sha512(Sha512),
    Md5(Md5),
    XxHash64(Xxh64),
    XxHash3(Box<Xxh3>),
    XxHash128(Box<Xxh3>),
}

impl Running {
    pub(crate) fn new(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Crc32 => Self::crc(algorithm, CrcAlgorithm::Crc32IsoHdlc),
            Algorithm::Crc32c => Self::crc(algorithm, CrcAlgorithm::Crc32Iscsi),
            Algorithm::Crc64Nvme => Self::crc(algorithm, CrcAlgorithm::Crc64Nvme),
            Algorithm::Sha1 => Self::Sha1(s3s::crypto::Sha1::new()),
            Algorithm::Sha256 => Self::Sha256(s3s::crypto::Sha256::new()),
            Algorithm::Sha512 => Self::Sha512(Sha512::new()),
            Algorithm::Md5 => Self::Md5(Md5::new()),
            Algorithm::XxHash64 => Self::XxHash64(Xxh64::new(0)),
            Algorithm::XxHash3 => Self::XxHash3(Box::default()),
            Algorithm::XxHash128 => Self::XxHash128(Box::default()),
        }
    }

    fn crc(algorithm: Algorithm, crc: CrcAlgorithm) -> Self {
        Self::Crc(algorithm, crc_fast::Digest::new(crc))
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Crc(_, digest) => digest.update(bytes),
            Self::Sha1(digest) => digest.update(bytes),
            Self::Sha256(digest) => digest.update(bytes),
            Self::Sha512(digest) => digest.update(bytes),
            Self::Md5(digest) => digest.update(bytes),
            Self::XxHash64(digest) => digest.update(bytes),
            Self::XxHash3(digest) | Self::XxHash128(digest) => digest.update(bytes),
        }
    }

    /// Returns the checksum; numbers in the order of the network.
    pub(crate) fn finish(self) -> Vec<u8> {
        match self {
            Self::Crc(algorithm, digest) => {
                digest.finalize().to_be_bytes()[8 - algorithm.size()..].to_vec()
            }
            Self::Sha1(digest) => digest.finalize().as_ref().to_vec(),
            Self::Sha256(digest) => digest.finalize().as_ref().to_vec(),
            Self::Sha512(digest) => digest.finalize().to_vec(),
            Self::Md5(digest) => digest.finalize().to_vec(),
            Self::XxHash64(digest) => digest.digest().to_be_bytes().to_vec(),
            Self::XxHash3(digest) => digest.digest().to_be_bytes().to_vec(),
            Self::XxHash128(digest) => digest.digest128().to_be_bytes().to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_the_standards() {
        let of = |algorithm: Algorithm, text: &[u8]| hex::encode(algorithm.of(text));
        for (algorithm, value) in [
            (Algorithm::Crc32, "cbf43926"),
            (Algorithm::Crc32c, "e3069283"),
            (Algorithm::Crc64Nvme, "ae8b14860a799888"),
            (Algorithm::Sha1, "f7c3bc1d808e04732adf679965ccc34ca7ae3441"),
            (Algorithm::Md5, "25f9e794323b453885f5181f1b624d0b"),
            (Algorithm::XxHash64, "8cb841db40e6ae83"),
        ] {
            assert_eq!(of(algorithm, b"123456789"), value, "{}", algorithm.name());
        }
        // The empty input: FIPS 180-4, and the specification of xxHash.
        assert!(of(Algorithm::Sha512, b"").starts_with("cf83e1357eefb8bdf1542850d66d8007"));
        assert_eq!(of(Algorithm::XxHash64, b""), "ef46db3751d8e999");
        assert_eq!(of(Algorithm::XxHash3, b""), "2d06800538d394c2");
        assert_eq!(of(Algorithm::XxHash128, b""), "99aa06d3014798d86001c324468d497f");
    }

    #[test]
    fn each_has_one_name_header_code_and_size() {
        for algorithm in Algorithm::ALL {
            assert_eq!(Algorithm::parse(algorithm.name()), Some(algorithm));
            assert_eq!(Algorithm::of_header(algorithm.header()), Some(algorithm));
            assert_eq!(Algorithm::of_code(algorithm.code()), Some(algorithm));
            assert_eq!(algorithm.of(b"x").len(), algorithm.size());
        }
    }

    #[test]
    fn checksums_of_parts_combine_to_that_of_the_whole() {
        let text = b"123456789";
        for algorithm in [Algorithm::Crc32, Algorithm::Crc32c, Algorithm::Crc64Nvme] {
            let (first, second) = text.split_at(4);
            let whole = algorithm.combine(&algorithm.of(first), &algorithm.of(second), 5);
            assert_eq!(whole, Some(algorithm.of(text)));
        }
        assert_eq!(Algorithm::Sha1.combine(&[0; 20], &[0; 20], 1), None);
        assert_eq!(Algorithm::Crc32.combine(&[0; 9], &[0; 4], 1), None);
    }
}
