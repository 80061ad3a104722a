//! The checksum of an object that consists of parts.
//!
//! It is either that of all bytes, made of those of the parts without reading them again, or that of the parts'
//! checksums (composite). Which of both is possible depends on the algorithm.

use s3s::dto::{ChecksumAlgorithm, ChecksumType, CompleteMultipartUploadInput};
use s3s::{S3Result, s3_error};

use crate::algorithm::Algorithm;
use crate::multipart::Group;
use crate::object::StoredChecksum;
use crate::parts::Part;
use crate::write::text_of;

/// Whether the checksum of an object is that of its parts' checksums.
pub(crate) fn composite(algorithm: Option<Algorithm>, asked: Option<&str>) -> S3Result<bool> {
    let Some(algorithm) = algorithm else { return Ok(false) };
    let by_default = !matches!(algorithm, Algorithm::Crc64Nvme);
    let composite = asked.map_or(by_default, |asked| asked == ChecksumType::COMPOSITE);
    let possible = match algorithm {
        Algorithm::Crc64Nvme => !composite,
        Algorithm::Sha1 | Algorithm::Sha256 => composite,
        Algorithm::Crc32 | Algorithm::Crc32c => true,
        // Refused for parts.
        _ => false,
    };
    if possible {
        return Ok(composite);
    }
    Err(s3_error!(
        InvalidRequest,
        "The {} checksum type cannot be used with the {} checksum algorithm.",
        asked.unwrap_or_default(),
        algorithm.name()
    ))
}

pub(crate) fn checksum_type(composite: bool) -> ChecksumType {
    ChecksumType::from_static(if composite {
        ChecksumType::COMPOSITE
    } else {
        ChecksumType::FULL_OBJECT
    })
}

/// The algorithm as XML names it.
pub(crate) fn algorithm(algorithm: Algorithm) -> ChecksumAlgorithm {
    ChecksumAlgorithm::from_static(algorithm.name())
}

/// The checksum of parts together, if each has one of the same kind.
pub(crate) fn joined_checksum(group: &Group, parts: &[Part]) -> Option<StoredChecksum> {
    let (first, _) = parts.first()?.checksum.as_ref()?;
    let algorithm = group.algorithm.unwrap_or(*first);
    let values = parts.iter().map(|part| match &part.checksum {
        Some((known, value)) if *known == algorithm => Some((value.as_slice(), part.size)),
        _ => None,
    });
    let values: Vec<(&[u8], u64)> = values.collect::<Option<_>>()?;
    if group.composite {
        let all: Vec<u8> = values.iter().flat_map(|(value, _)| value.iter().copied()).collect();
        let text = format!("{}-{}", text_of(&algorithm.of(&all)), parts.len());
        return Some(StoredChecksum { algorithm, composite: true, text });
    }
    let mut values = values.into_iter();
    let (mut whole, _) = values.next().map(|(value, size)| (value.to_vec(), size))?;
    for (value, size) in values {
        whole = algorithm.combine(&whole, value, size)?;
    }
    Some(StoredChecksum { algorithm, composite: false, text: text_of(&whole) })
}

/// Compares the kind of checksum that a client gives with the one it chose.
pub(crate) fn check_type(input: &CompleteMultipartUploadInput, group: &Group) -> S3Result<()> {
    let Some(given) = &input.checksum_type else { return Ok(()) };
    if ![true, false].map(checksum_type).contains(given) {
        return Err(s3_error!(InvalidRequest, "Value for x-amz-checksum-type header is invalid."));
    }
    let chosen = checksum_type(group.composite);
    if group.algorithm.is_some() && *given != chosen {
        return Err(s3_error!(
            InvalidRequest,
            "The upload was created using the {} checksum mode. The complete request must use the same \
             checksum mode.",
            chosen.as_str()
        ));
    }
    Ok(())
}

/// Compares the checksum that a client gives for the object.
pub(crate) fn compare_checksum(
    input: &CompleteMultipartUploadInput,
    checksum: Option<&StoredChecksum>,
) -> S3Result<()> {
    for (algorithm, given) in [
        (Algorithm::Crc32, &input.checksum_crc32),
        (Algorithm::Crc32c, &input.checksum_crc32c),
        (Algorithm::Crc64Nvme, &input.checksum_crc64nvme),
        (Algorithm::Sha1, &input.checksum_sha1),
        (Algorithm::Sha256, &input.checksum_sha256),
    ] {
        let Some(given) = given else { continue };
        let Some(found) = checksum.filter(|found| found.algorithm == algorithm) else {
            return Err(s3_error!(
                InvalidRequest,
                "The parts of the upload do not have the checksum {}",
                algorithm.name()
            ));
        };
        // A composite one may be given without the number of parts.
        let bare = found.text.rsplit_once('-').map_or(found.text.as_str(), |(value, _)| value);
        if *given != found.text && !(found.composite && given == bare) {
            return Err(s3_error!(
                BadDigest,
                "The {} you specified did not match the calculated checksum.",
                algorithm.name()
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_is_of_the_kind_that_its_algorithm_permits() {
        assert_eq!(composite(Some(Algorithm::Sha256), None).ok(), Some(true));
        assert_eq!(composite(Some(Algorithm::Crc64Nvme), None).ok(), Some(false));
        assert_eq!(composite(Some(Algorithm::Crc32), Some("FULL_OBJECT")).ok(), Some(false));
        assert!(composite(Some(Algorithm::Sha1), Some("FULL_OBJECT")).is_err());
        assert!(composite(Some(Algorithm::Crc64Nvme), Some("COMPOSITE")).is_err());
    }
}
