//! Listing objects: version 1 and version 2.
//!
//! Invariants: a page shows at most 1,000 entries, and says so if there are more, whatever was asked for; a
//! token carries the last entry shown; everything that a client reads as URL-encoded is encoded.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use forebay_intake::catalogue::{Browse, Browsed};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use s3s::dto::{
    ChecksumAlgorithm, CommonPrefix, EncodingType, ListObjectsInput, ListObjectsOutput,
    ListObjectsV2Input, ListObjectsV2Output, ObjectStorageClass,
};
use s3s::{S3Result, s3_error};

use crate::buckets::owner;
use crate::error::of_intake;
use crate::object::Object;
use crate::read::kind;
use crate::service::Service;

/// Maximum number of entries on a page.
const PAGE_MAX: usize = 1_000;
/// What stays as it is in an encoded key. Not `+`, which clients read as a space.
const KEPT: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/').remove(b'*');

/// How keys are written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Encoding(bool);

impl Encoding {
    /// # Errors
    /// `InvalidArgument`.
    pub(crate) fn of(asked: Option<&EncodingType>) -> S3Result<Self> {
        match asked.map(EncodingType::as_str) {
            None | Some("") => Ok(Self(false)),
            Some(EncodingType::URL) => Ok(Self(true)),
            Some(_) => {
                Err(s3_error!(InvalidArgument, "Invalid Encoding Method specified in Request"))
            }
        }
    }

    pub(crate) fn write(self, text: impl Into<String>) -> String {
        let text = text.into();
        if self.0 { utf8_percent_encode(&text, KEPT).to_string() } else { text }
    }
}

/// Reads the maximum number of entries.
///
/// # Errors
/// `InvalidArgument`.
pub(crate) fn page_size(asked: Option<i32>, name: &str) -> S3Result<usize> {
    match asked.map(usize::try_from) {
        None => Ok(PAGE_MAX),
        Some(Ok(max)) => Ok(max.min(PAGE_MAX)),
        Some(Err(_)) => Err(s3_error!(
            InvalidArgument,
            "Argument {name} must be an integer between 0 and 2147483647"
        )),
    }
}

pub(crate) fn number(count: usize) -> Option<i32> {
    i32::try_from(count).ok()
}

impl Service {
    async fn page(
        &self,
        bucket: &str,
        prefix: Option<&str>,
        delimiter: Option<&str>,
        after: Option<String>,
        max: usize,
    ) -> S3Result<Browsed> {
        let namespace = self.bucket(bucket).await?;
        if max == 0 {
            return Ok(Browsed::default());
        }
        let browse = Browse {
            namespace,
            prefix: prefix.unwrap_or_default().to_owned(),
            delimiter: delimiter.unwrap_or_default().to_owned(),
            after: after.filter(|after| !after.is_empty()),
        };
        self.intake.browse(browse, max).await.map_err(of_intake)
    }

    pub(crate) async fn list_v1(&self, input: ListObjectsInput) -> S3Result<ListObjectsOutput> {
        let encoding = Encoding::of(input.encoding_type.as_ref())?;
        let max = page_size(input.max_keys, "max-keys")?;
        let delimiter = input.delimiter.clone().filter(|text| !text.is_empty());
        let page = self
            .page(
                &input.bucket,
                input.prefix.as_deref(),
                delimiter.as_deref(),
                input.marker.clone(),
                max,
            )
            .await?;
        let Browsed { files, prefixes, next } = page;
        Ok(ListObjectsOutput {
            name: Some(input.bucket),
            prefix: Some(encoding.write(input.prefix.unwrap_or_default())),
            marker: Some(encoding.write(input.marker.unwrap_or_default())),
            max_keys: number(max),
            is_truncated: Some(next.is_some()),
            contents: Some(files.iter().map(|file| entry(Object(file), encoding, true)).collect()),
            common_prefixes: Some(common(prefixes, encoding)),
            // S3 leaves it out without a delimiter; clients then take the last key, which is the same.
            next_marker: next.map(|next| encoding.write(next)),
            delimiter: delimiter.map(|text| encoding.write(text)),
            encoding_type: input.encoding_type,
            request_charged: None,
        })
    }

    pub(crate) async fn list_v2(&self, input: ListObjectsV2Input) -> S3Result<ListObjectsV2Output> {
        let encoding = Encoding::of(input.encoding_type.as_ref())?;
        let max = page_size(input.max_keys, "max-keys")?;
        let delimiter = input.delimiter.clone().filter(|text| !text.is_empty());
        let after = match &input.continuation_token {
            Some(token) => Some(read_token(token)?),
            None => input.start_after.clone(),
        };
        let page = self
            .page(&input.bucket, input.prefix.as_deref(), delimiter.as_deref(), after, max)
            .await?;
        let Browsed { files, prefixes, next } = page;
        let owner = input.fetch_owner == Some(true);
        Ok(ListObjectsV2Output {
            name: Some(input.bucket),
            prefix: Some(encoding.write(input.prefix.unwrap_or_default())),
            max_keys: number(max),
            key_count: number(files.len() + prefixes.len()),
            continuation_token: input.continuation_token,
            is_truncated: Some(next.is_some()),
            next_continuation_token: next.map(|next| URL_SAFE_NO_PAD.encode(next)),
            contents: Some(files.iter().map(|file| entry(Object(file), encoding, owner)).collect()),
            common_prefixes: Some(common(prefixes, encoding)),
            delimiter: delimiter.map(|text| encoding.write(text)),
            encoding_type: input.encoding_type,
            start_after: input.start_after.map(|text| encoding.write(text)),
            request_charged: None,
        })
    }
}

pub(crate) fn common(prefixes: Vec<String>, encoding: Encoding) -> Vec<CommonPrefix> {
    let prefix = |text: String| CommonPrefix { prefix: Some(encoding.write(text)) };
    prefixes.into_iter().map(prefix).collect()
}

fn entry(object: Object<'_>, encoding: Encoding, with_owner: bool) -> s3s::dto::Object {
    let checksum = object.checksum();
    s3s::dto::Object {
        checksum_algorithm: checksum
            .as_ref()
            .map(|checksum| vec![algorithm(checksum.algorithm.name())]),
        checksum_type: checksum.as_ref().map(kind),
        e_tag: Some(object.tag()),
        key: Some(encoding.write(object.0.name.as_str())),
        last_modified: Some(object.modified()),
        owner: with_owner.then(owner),
        size: Some(object.size()),
        storage_class: Some(ObjectStorageClass::from_static(ObjectStorageClass::STANDARD)),
        ..s3s::dto::Object::default()
    }
}

fn algorithm(name: &'static str) -> ChecksumAlgorithm {
    ChecksumAlgorithm::from_static(name)
}

/// Reads a continuation token: the last entry of the page before.
fn read_token(token: &str) -> S3Result<String> {
    let text = URL_SAFE_NO_PAD.decode(token).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    text.filter(|text| !text.is_empty())
        .ok_or_else(|| s3_error!(InvalidArgument, "The continuation token provided is incorrect"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encoded_key_has_no_plus_and_no_space() {
        let url = EncodingType::from_static(EncodingType::URL);
        let encoding = Encoding::of(Some(&url)).unwrap();
        assert_eq!(encoding.write("a b+c/d%é&<"), "a%20b%2Bc/d%25%C3%A9%26%3C");
        assert_eq!(Encoding::of(None).unwrap().write("a b+c"), "a b+c");
        assert!(Encoding::of(Some(&EncodingType::from("xml".to_owned()))).is_err());
    }

    #[test]
    fn a_page_has_at_most_a_thousand_entries() {
        assert_eq!(page_size(None, "max-keys").unwrap(), 1_000);
        assert_eq!(page_size(Some(5_000), "max-keys").unwrap(), 1_000);
        assert_eq!(page_size(Some(0), "max-keys").unwrap(), 0);
        assert!(page_size(Some(-1), "max-keys").is_err());
    }

    #[test]
    fn only_our_tokens_continue_a_listing() {
        assert_eq!(read_token(&URL_SAFE_NO_PAD.encode("a/b")).unwrap(), "a/b");
        for wrong in ["", "%%", "a", "_w"] {
            assert!(read_token(wrong).is_err(), "{wrong}");
        }
    }
}
