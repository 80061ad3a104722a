//! Listing the parts of an upload, and the uploads of a bucket.

use s3s::dto::{
    CommonPrefix, Initiator, ListMultipartUploadsInput, ListMultipartUploadsOutput, ListPartsInput,
    ListPartsOutput, MultipartUpload, StorageClass,
};
use s3s::{S3Result, s3_error};

use forebay_intake::uploads::{UploadId, UploadKind, UploadStatus};

use crate::algorithm::Algorithm;
use crate::buckets::owner;
use crate::joined::algorithm;
use crate::list::{Encoding, page_size};
use crate::multipart::{object_of, of_upload};
use crate::object::timestamp;
use crate::service::Service;
use crate::write::text_of;

fn number(count: usize) -> Option<i32> {
    i32::try_from(count).ok()
}

fn time(ms: u64) -> s3s::dto::Timestamp {
    timestamp(i64::try_from(ms).unwrap_or(i64::MAX))
}

fn initiator() -> Initiator {
    let owner = owner();
    Initiator { display_name: owner.display_name, id: owner.id }
}

fn standard() -> StorageClass {
    StorageClass::from_static(StorageClass::STANDARD)
}

/// An upload as it is listed.
fn listed(status: &UploadStatus, key: String, id: String) -> MultipartUpload {
    MultipartUpload {
        initiated: Some(time(status.created_ms)),
        initiator: Some(initiator()),
        key: Some(key),
        owner: Some(owner()),
        storage_class: Some(standard()),
        upload_id: Some(id),
        ..MultipartUpload::default()
    }
}

impl Service {
    pub(crate) async fn list_parts(&self, input: ListPartsInput) -> S3Result<ListPartsOutput> {
        let group = self.open_upload(&input.bucket, &input.key, &input.upload_id).await?;
        let max = page_size(input.max_parts, "max-parts")?;
        let after = match input.part_number_marker.map(u32::try_from) {
            None => 0,
            Some(Ok(marker)) => marker,
            Some(Err(_)) => {
                return Err(s3_error!(
                    InvalidArgument,
                    "Argument part-number-marker must be an integer between 0 and 2147483647"
                ));
            }
        };
        let parts = self.parts(group.id).await?;
        let mut later = parts.iter().filter(|part| part.number > after);
        let page: Vec<_> = later.by_ref().take(max).collect();
        let more = max > 0 && later.next().is_some();
        let listed = page.iter().map(|part| {
            let of = |wanted: Algorithm| {
                let (known, value) = part.checksum.as_ref()?;
                (*known == wanted && group.algorithm == Some(wanted)).then(|| text_of(value))
            };
            s3s::dto::Part {
                checksum_crc32: of(Algorithm::Crc32),
                checksum_crc32c: of(Algorithm::Crc32c),
                checksum_crc64nvme: of(Algorithm::Crc64Nvme),
                checksum_sha1: of(Algorithm::Sha1),
                checksum_sha256: of(Algorithm::Sha256),
                e_tag: Some(s3s::dto::ETag::Strong(part.etag.clone())),
                last_modified: Some(time(part.modified_ms)),
                part_number: i32::try_from(part.number).ok(),
                size: i64::try_from(part.size).ok(),
            }
        });
        let last = page.last().and_then(|part| i32::try_from(part.number).ok());
        Ok(ListPartsOutput {
            bucket: Some(input.bucket),
            checksum_algorithm: group.algorithm.map(algorithm),
            initiator: Some(initiator()),
            is_truncated: Some(more),
            key: Some(input.key),
            max_parts: number(max),
            next_part_number_marker: last.filter(|_| more),
            owner: Some(owner()),
            part_number_marker: Some(input.part_number_marker.unwrap_or(0)),
            parts: Some(listed.collect()),
            storage_class: Some(standard()),
            upload_id: Some(input.upload_id),
            ..ListPartsOutput::default()
        })
    }

    /// All open uploads of a bucket, by key and then by time.
    async fn open_uploads(&self, bucket: &str) -> S3Result<Vec<UploadStatus>> {
        let (mut found, mut after) = (Vec::new(), None::<UploadId>);
        loop {
            let page = self.intake.uploads().list(after, 1_000).await.map_err(of_upload)?;
            found.extend(page.into_iter().filter(|status| {
                status.new.kind == UploadKind::Multipart
                    && status.result.is_none()
                    && object_of(status).is_some_and(|(of, _)| of == bucket)
            }));
            after = self.intake.uploads().next_after(after, 1_000);
            if after.is_none() {
                break;
            }
        }
        found.sort_by(|a, b| {
            let key = |status: &UploadStatus| object_of(status).map(|(_, key)| key.to_owned());
            key(a).cmp(&key(b)).then(a.created_ms.cmp(&b.created_ms)).then(a.id.cmp(&b.id))
        });
        Ok(found)
    }

    pub(crate) async fn list_uploads(
        &self,
        input: ListMultipartUploadsInput,
    ) -> S3Result<ListMultipartUploadsOutput> {
        self.bucket(&input.bucket).await?;
        let encoding = Encoding::of(input.encoding_type.as_ref())?;
        let max = page_size(input.max_uploads, "max-uploads")?;
        let prefix = input.prefix.clone().unwrap_or_default();
        let delimiter = input.delimiter.clone().filter(|text| !text.is_empty());
        let key_marker = input.key_marker.clone().unwrap_or_default();
        // Without a key it means nothing.
        let id_marker = input.upload_id_marker.clone().filter(|_| !key_marker.is_empty());
        let all = self.open_uploads(&input.bucket).await?;
        let (mut uploads, mut prefixes) = (Vec::new(), Vec::<String>::new());
        let (mut last, mut more) = (None, false);
        // Uploads of the marker's key are shown behind the one that the marker names.
        let mut is_behind = id_marker.is_none();
        for status in &all {
            let Some((_, key)) = object_of(status) else { continue };
            let id = status.id.to_string();
            if key < key_marker.as_str() || !key.starts_with(&prefix) {
                continue;
            }
            if key == key_marker && !(is_behind && id_marker.is_some()) {
                is_behind |= id_marker.as_deref() == Some(&*id);
                continue;
            }
            let group = delimiter.as_deref().and_then(|delimiter| {
                let rest = key.get(prefix.len()..)?;
                key.get(..prefix.len() + rest.find(delimiter)? + delimiter.len())
            });
            if let Some(group) = group
                && (prefixes.last().is_some_and(|known| known == group) || group == key_marker)
            {
                continue;
            }
            if uploads.len() + prefixes.len() >= max {
                more = max > 0;
                break;
            }
            match group {
                Some(group) => {
                    last = Some((group.to_owned(), None));
                    prefixes.push(group.to_owned());
                }
                None => {
                    last = Some((key.to_owned(), Some(id.clone())));
                    uploads.push(listed(status, encoding.write(key), id));
                }
            }
        }
        let (next_key, next_id) = last.filter(|_| more).unzip();
        let prefix_of = |text: String| CommonPrefix { prefix: Some(encoding.write(text)) };
        Ok(ListMultipartUploadsOutput {
            bucket: Some(input.bucket),
            common_prefixes: Some(prefixes.into_iter().map(prefix_of).collect()),
            delimiter: delimiter.map(|text| encoding.write(text)),
            encoding_type: input.encoding_type,
            is_truncated: Some(more),
            key_marker: Some(encoding.write(key_marker)),
            max_uploads: number(max),
            next_key_marker: next_key.map(|key| encoding.write(key)),
            next_upload_id_marker: next_id.flatten(),
            prefix: Some(encoding.write(prefix)),
            upload_id_marker: Some(input.upload_id_marker.unwrap_or_default()),
            uploads: Some(uploads),
            ..ListMultipartUploadsOutput::default()
        })
    }
}
