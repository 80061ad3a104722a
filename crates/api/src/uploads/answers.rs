//! Uploads as JSON.

use forebay_intake::answer::{PutAnswer, time_text};
use forebay_intake::uploads::{UploadKind, UploadStatus};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::PATH;
use super::metadata::{attribute, length};

/// A page of uploads.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct UploadPage<'a> {
    /// The uploads, by id. Damaged ones are left out.
    pub(super) uploads: Vec<UploadAnswer<'a>>,
    /// `cursor` of the next page; null after the last.
    #[schema(required)]
    pub(super) next_cursor: Option<String>,
}

/// An upload.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Upload)]
pub(super) struct UploadAnswer<'a> {
    /// The id.
    id: String,
    /// Its URL path.
    url: String,
    /// resumable, partial, final, multipart (of the S3 API) or part.
    kind: &'static str,
    /// Number of bytes that are stored. 0 for a final or multipart upload, whose bytes are in others.
    offset: u64,
    /// Number of bytes in all; null while it is not known.
    #[schema(required)]
    length: Option<u64>,
    /// Namespace of the file it becomes; null where another part of the server decides.
    #[schema(required)]
    namespace: Option<&'a str>,
    /// Name of the file it becomes; null if the client gave none: then it is the id.
    #[schema(required)]
    name: Option<&'a str>,
    /// When it was created, RFC 3339.
    created: String,
    /// When it expires if nothing is appended, RFC 3339.
    expires: String,
    /// The file it became; null while it is unfinished.
    #[schema(required, value_type = Option<PutAnswer<'static>>)]
    file: Option<&'a RawValue>,
}

impl<'a> UploadAnswer<'a> {
    pub(super) fn of(status: &'a UploadStatus) -> Self {
        let attribute = |name: &str| status.new.attributes.get(name).map(String::as_str);
        let result = status.result.as_deref();
        Self {
            id: status.id.to_string(),
            url: format!("{PATH}/{}", status.id),
            kind: match status.new.kind {
                UploadKind::Resumable => "resumable",
                UploadKind::Partial => "partial",
                UploadKind::Final => "final",
                UploadKind::Multipart => "multipart",
                UploadKind::Part { .. } => "part",
            },
            // A final upload receives no bytes: it has those of its parts.
            offset: match (status.new.kind, length(status)) {
                (UploadKind::Final, Some(length)) if result.is_some() => length,
                _ => status.offset,
            },
            length: length(status),
            namespace: attribute(attribute::NAMESPACE),
            name: attribute(attribute::NAME),
            created: time_text(status.created_ms.try_into().unwrap_or(i64::MAX)),
            expires: time_text(status.expires_ms.try_into().unwrap_or(i64::MAX)),
            file: result.and_then(|result| serde_json::from_slice(result).ok()),
        }
    }
}

/// The URL path of the file in a result.
pub(super) fn url_of(result: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Stored {
        url: String,
    }
    serde_json::from_slice::<Stored>(result).ok().map(|stored| stored.url)
}
