//! Parts of an upload: what is known of each, and what they are together.

use std::collections::BTreeMap;

use forebay_intake::digest::Digest;
use forebay_intake::uploads::{Note, UploadId, UploadKind, UploadStatus};
use md5::{Digest as _, Md5};
use s3s::dto::CompletedPart;
use s3s::{S3Result, s3_error};

use crate::algorithm::Algorithm;
use crate::write::text_of;

/// Highest number of a part.
pub(crate) const PARTS_MAX: u32 = 10_000;

/// A part that is complete.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    pub(crate) number: u32,
    pub(crate) size: u64,
    /// Without quotes.
    pub(crate) etag: String,
    pub(crate) modified_ms: u64,
    pub(crate) checksum: Option<(Algorithm, Vec<u8>)>,
    pub(crate) bytes: Bytes,
}

/// Where the bytes of a part are.
#[derive(Debug, Clone)]
pub(crate) enum Bytes {
    Upload(UploadId),
    Copied(Copied),
}

/// A range of another object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Copied {
    pub(crate) bucket: String,
    pub(crate) key: String,
    /// Id of the file.
    pub(crate) version: u64,
    pub(crate) digest: Digest,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl Copied {
    pub(crate) fn attributes(&self) -> BTreeMap<String, String> {
        [
            ("copied-bucket", self.bucket.clone()),
            ("copied-key", self.key.clone()),
            ("copied-version", self.version.to_string()),
            ("copied-digest", self.digest.to_hex()),
            ("copied-start", self.start.to_string()),
            ("copied-end", self.end.to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    fn parse(attributes: &BTreeMap<String, String>) -> Option<Self> {
        let get = |name: &str| attributes.get(name);
        let copied = Self {
            bucket: get("copied-bucket")?.clone(),
            key: get("copied-key")?.clone(),
            version: get("copied-version")?.parse().ok()?,
            digest: Digest::from_hex(get("copied-digest")?)?,
            start: get("copied-start")?.parse().ok()?,
            end: get("copied-end")?.parse().ok()?,
        };
        (copied.start <= copied.end).then_some(copied)
    }

    /// A tag of its own: its bytes were not read, so it is no MD5 and does not look like one.
    pub(crate) fn etag(&self) -> String {
        let (start, end) = (self.start.to_le_bytes(), self.end.to_le_bytes());
        Digest::of_parts(&[b"part", &self.digest.0, &start, &end]).to_hex()
    }
}

/// What is noted of a part: the MD5, then the code of a checksum and its value.
pub(crate) fn note(md5: [u8; 16], algorithm: Algorithm, value: &[u8]) -> Note {
    let bytes = [&md5[..], &[algorithm.code()], value].concat();
    Note::new(&bytes).unwrap_or_default()
}

impl Part {
    pub(crate) fn of(status: &UploadStatus) -> Option<Self> {
        let UploadKind::Part { number, .. } = status.new.kind else { return None };
        if let Some(copied) = Copied::parse(&status.new.attributes) {
            return Some(Self {
                number,
                size: copied.end - copied.start,
                etag: copied.etag(),
                modified_ms: status.created_ms,
                checksum: None,
                bytes: Bytes::Copied(copied),
            });
        }
        let (md5, rest) = status.note.as_bytes().split_first_chunk::<16>()?;
        let (code, value) = rest.split_first()?;
        let algorithm = Algorithm::of_code(*code)?;
        status.is_complete().then(|| Self {
            number,
            size: status.offset,
            etag: hex::encode(md5),
            modified_ms: status.created_ms,
            checksum: Some((algorithm, value.to_vec())),
            bytes: Bytes::Upload(status.id),
        })
    }

    /// The bytes that its ETag stands for.
    pub(crate) fn tag_bytes(&self) -> Vec<u8> {
        hex::decode(&self.etag).unwrap_or_default()
    }
}

/// Reads the number of a part.
pub(crate) fn part_number(number: i32) -> S3Result<u32> {
    let number = u32::try_from(number).ok().filter(|number| (1..=PARTS_MAX).contains(number));
    number.ok_or_else(|| {
        s3_error!(InvalidArgument, "Part number must be an integer between 1 and 10000, inclusive.")
    })
}

/// Reads `bytes=FIRST-LAST`, both of which the source must have.
pub(crate) fn copied_range(range: Option<&str>, size: u64) -> S3Result<(u64, u64)> {
    let Some(range) = range else { return Ok((0, size)) };
    let wrong = || {
        s3_error!(
            InvalidArgument,
            "The x-amz-copy-source-range value must be of the form bytes=first-last where first and last \
             are the zero-based offsets of the first and last bytes to copy"
        )
    };
    let (first, last) =
        range.strip_prefix("bytes=").and_then(|range| range.split_once('-')).ok_or_else(wrong)?;
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse::<u64>().ok()).flatten().ok_or_else(wrong)
    };
    let (first, last) = (number(first)?, number(last)?);
    if first > last {
        return Err(wrong());
    }
    if last >= size {
        return Err(s3_error!(
            InvalidArgument,
            "Range specified is not valid for source object of size: {size}"
        ));
    }
    Ok((first, last + 1))
}

/// Compares the checksum that a client lists with that of a part. One that cannot be compared is refused.
///
/// * `needed`: the algorithm of which each listed part needs a checksum.
pub(crate) fn check_part(
    asked: &CompletedPart,
    part: &Part,
    needed: Option<Algorithm>,
) -> S3Result<()> {
    let all = [
        (Algorithm::Crc32, &asked.checksum_crc32),
        (Algorithm::Crc32c, &asked.checksum_crc32c),
        (Algorithm::Crc64Nvme, &asked.checksum_crc64nvme),
        (Algorithm::Sha1, &asked.checksum_sha1),
        (Algorithm::Sha256, &asked.checksum_sha256),
    ];
    let mut given =
        all.into_iter().filter_map(|(algorithm, given)| Some((algorithm, given.as_deref()?)));
    let Some((algorithm, value)) = given.next() else {
        return match needed {
            None => Ok(()),
            Some(algorithm) => Err(s3_error!(
                InvalidRequest,
                "The upload was created using a {} checksum. The complete request must include the checksum \
                 for each part. It was missing for part {} in the request.",
                algorithm.name(),
                part.number
            )),
        };
    };
    if given.next().is_some() {
        return Err(s3_error!(
            InvalidArgument,
            "A part has one checksum, part {} several",
            part.number
        ));
    }
    match &part.checksum {
        Some((known, stored)) if *known == algorithm && value != text_of(stored) => Err(s3_error!(
            InvalidPart,
            "The checksum of part {} is not the one it was uploaded with",
            part.number
        )),
        Some((known, _)) if *known != algorithm => Err(s3_error!(
            BadDigest,
            "The {} you specified for part {} did not match what we received.",
            algorithm.name(),
            part.number
        )),
        _ => Ok(()),
    }
}

/// The ETag of parts together: an MD5 of their tags, and their number.
pub(crate) fn joined_etag(parts: &[Part]) -> String {
    etag_of(parts.iter().map(Part::tag_bytes))
}

/// The ETag of an upload of the parts that a client lists; `None` if a tag is none of a part.
pub(crate) fn listed_etag(asked: &[CompletedPart]) -> Option<String> {
    let tags = asked.iter().map(|part| hex::decode(part.e_tag.as_ref()?.value()).ok());
    Some(etag_of(tags.collect::<Option<Vec<_>>>()?.into_iter()))
}

fn etag_of(tags: impl ExactSizeIterator<Item = Vec<u8>>) -> String {
    let (mut md5, count) = (Md5::new(), tags.len());
    tags.for_each(|tag| md5.update(tag));
    format!("{}-{count}", hex::encode(md5.finalize()))
}

/// The checksums of parts, if each has one, and all of one algorithm.
pub(crate) fn parts_checksums(parts: &[Part]) -> Option<(Algorithm, Vec<&[u8]>)> {
    let (algorithm, _) = parts.first()?.checksum.as_ref()?;
    let values = parts.iter().map(|part| match &part.checksum {
        Some((known, value)) if known == algorithm => Some(value.as_slice()),
        _ => None,
    });
    Some((*algorithm, values.collect::<Option<_>>()?))
}

/// The object that the parts are a copy of, if they are all of one, in order and from its beginning.
pub(crate) fn whole_copy(parts: &[Part]) -> Option<&Copied> {
    let mut end = 0;
    let mut whole: Option<&Copied> = None;
    for part in parts {
        let Bytes::Copied(copied) = &part.bytes else { return None };
        let follows = whole.is_none_or(|first| {
            first.digest == copied.digest
                && first.bucket == copied.bucket
                && first.key == copied.key
        });
        if !follows || copied.start != end {
            return None;
        }
        end = copied.end;
        whole = whole.or(Some(copied));
    }
    whole
}

#[cfg(test)]
mod tests {
    use forebay_intake::uploads::NewUpload;

    use super::*;

    fn part(number: u32, bytes: &[u8]) -> Part {
        Part {
            number,
            size: bytes.len() as u64,
            etag: hex::encode(Md5::digest(bytes)),
            modified_ms: 0,
            checksum: Some((Algorithm::Crc32, Algorithm::Crc32.of(bytes))),
            bytes: Bytes::Upload(UploadId::default()),
        }
    }

    #[test]
    fn the_etag_of_parts_is_the_md5_of_their_md5s_and_their_number() {
        let etag = joined_etag(&[part(1, b"hello"), part(2, b"world")]);
        let both = [Md5::digest(b"hello"), Md5::digest(b"world")].concat();
        assert_eq!(etag, format!("{}-2", hex::encode(Md5::digest(&both))));
    }

    #[test]
    fn only_parts_that_are_one_whole_object_in_order_are_a_copy() {
        let copied = |start, end, key: &str| {
            let copied = Copied {
                bucket: "b".to_owned(),
                key: key.to_owned(),
                version: 9,
                digest: Digest::of(b"x"),
                start,
                end,
            };
            Part { bytes: Bytes::Copied(copied), ..part(1, b"") }
        };
        assert!(whole_copy(&[copied(0, 5, "k"), copied(5, 9, "k")]).is_some());
        assert!(whole_copy(&[copied(5, 9, "k"), copied(0, 5, "k")]).is_none());
        assert!(whole_copy(&[copied(0, 5, "k"), copied(5, 9, "l")]).is_none());
        assert!(whole_copy(&[copied(0, 5, "k"), part(2, b"x")]).is_none());
        assert!(whole_copy(&[]).is_none());
    }

    #[test]
    fn a_range_to_copy_lies_inside_its_source() {
        assert_eq!(copied_range(None, 9).unwrap(), (0, 9));
        assert_eq!(copied_range(Some("bytes=2-8"), 9).unwrap(), (2, 9));
        for wrong in ["bytes=2-9", "bytes=3-2", "bytes=-2", "bytes=2-", "2-3", "bytes=+1-2", ""] {
            assert!(copied_range(Some(wrong), 9).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_noted_of_a_part_reads_back() {
        let received = note([7; 16], Algorithm::Sha256, &[9; 32]);
        let kind = UploadKind::Part { group: UploadId([1; 16]), number: 3 };
        let new = NewUpload { kind, length: None, kept_ms: 1, attributes: BTreeMap::new() };
        let status = UploadStatus {
            id: UploadId([2; 16]),
            new,
            length: Some(5),
            offset: 5,
            created_ms: 1,
            expires_ms: 2,
            note: received,
            result: None,
        };
        let part = Part::of(&status).unwrap();
        assert_eq!((part.number, part.size, part.etag), (3, 5, "07".repeat(16)));
        assert_eq!(part.checksum, Some((Algorithm::Sha256, vec![9; 32])));
        let unsealed = UploadStatus { note: Note::default(), ..status };
        assert!(Part::of(&unsealed).is_none());
    }
}
