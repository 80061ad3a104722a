//! The JSON that clients receive, built from records alone so that a replay produces the same.

use std::collections::BTreeMap;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;

use crate::attributes::AttributeKind;
use crate::catalogue::FileRecord;

/// Characters that the path of a URL keeps as they are (RFC 3986, "pchar" without sub-delimiters,
/// and `/`).
const PATH: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// A file.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[schema(as = FileInfo)]
pub struct FileAnswer<'a> {
    /// The id that `/v1/files/{id}` takes.
    pub id: String,
    /// Namespace.
    pub namespace: &'a str,
    /// Name inside it.
    pub name: &'a str,
    /// Its URL path.
    pub url: String,
    /// Size in bytes.
    pub size: u64,
    /// SHA-256 in hexadecimal.
    pub sha256: String,
    /// Media type, detected from the content.
    pub mime: &'a str,
    /// image, video, audio, document, archive, text, json, font, executable or other.
    pub category: &'static str,
    /// Comment stored with it; absent if it has none.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub comment: &'a str,
    /// When the name was given, RFC 3339.
    pub created: String,
    /// When it is deleted, RFC 3339; absent if it is kept for ever.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub expires: Option<String>,
    /// Metadata stored with it; absent if it has none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<&'a str, &'a str>,
    /// Tags; absent if it has none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<&'a str, &'a str>,
}

/// Whether bytes were stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = StoredFileStatus)]
pub enum PutStatus {
    /// The bytes are new.
    Stored,
    /// The bytes were already stored, under this name or another.
    Duplicate,
}

impl PutStatus {
    /// The status of bytes that were already stored, or not.
    #[must_use]
    pub const fn of(duplicate: bool) -> Self {
        if duplicate { Self::Duplicate } else { Self::Stored }
    }

    /// The status as one word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stored => "stored",
            Self::Duplicate => "duplicate",
        }
    }
}

/// The result of storing a file.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[schema(as = StoredFile)]
pub struct PutAnswer<'a> {
    /// `stored`, or `duplicate` if the bytes were already stored.
    pub status: PutStatus,
    /// Whether the name referred to other bytes before.
    pub replaced: bool,
    /// The file.
    #[serde(flatten)]
    pub file: FileAnswer<'a>,
}

impl<'a> FileAnswer<'a> {
    /// Converts a record.
    #[must_use]
    pub fn of(file: &'a FileRecord) -> Self {
        Self {
            id: id_text(file.id),
            namespace: file.namespace.as_str(),
            name: file.name.as_str(),
            url: file_url(file.namespace.as_str(), file.name.as_str()),
            size: file.size,
            sha256: file.digest.to_hex(),
            mime: &file.mime,
            category: file.category.as_str(),
            comment: &file.comment,
            created: time_text(file.created_ms),
            expires: file.expires_ms().map(time_text),
            metadata: file.attributes.of(AttributeKind::Metadata).collect(),
            tags: file.attributes.of(AttributeKind::Tag).collect(),
        }
    }
}

impl<'a> PutAnswer<'a> {
    /// Reports how `file` was stored.
    #[must_use]
    pub fn of(file: &'a FileRecord, duplicate: bool, replaced: bool) -> Self {
        Self { status: PutStatus::of(duplicate), replaced, file: FileAnswer::of(file) }
    }
}

/// The path under which a file is served.
#[must_use]
pub fn file_url(namespace: &str, name: &str) -> String {
    let mut url = String::with_capacity(12 + namespace.len() + name.len());
    url.push_str("/v1/files/");
    url.push_str(namespace);
    url.push('/');
    url.extend(utf8_percent_encode(name, PATH));
    url
}

/// An id as text: 16 hexadecimal digits.
#[must_use]
pub fn id_text(id: u64) -> String {
    hex::encode(id.to_be_bytes())
}

/// Parses the text of an id.
#[must_use]
pub fn id_of(text: &str) -> Option<u64> {
    let digits = text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
    digits.then(|| u64::from_str_radix(text, 16).ok()).flatten()
}

/// Milliseconds since 1970 as RFC 3339 in UTC.
#[must_use]
pub fn time_text(ms: i64) -> String {
    jiff::Timestamp::from_millisecond(ms).map_or_else(|_| ms.to_string(), |time| time.to_string())
}

/// The JSON of a [`PutAnswer`], byte for byte what serialising one gives.
///
/// This is written for every small file, so only text from outside passes through the serialiser;
/// everything else consists of characters that JSON takes as they are.
#[must_use]
pub fn put_json(file: &FileRecord, duplicate: bool, replaced: bool, url: &str) -> Vec<u8> {
    let mut json = Vec::with_capacity(448 + 2 * file.name.as_str().len() + file.comment.len());
    json.extend_from_slice(b"{\"status\":\"");
    json.extend_from_slice(PutStatus::of(duplicate).as_str().as_bytes());
    json.extend_from_slice(b"\",\"replaced\":");
    json.extend_from_slice(if replaced { b"true" } else { b"false" });
    json.extend_from_slice(b",\"id\":\"");
    json.extend_from_slice(&hex16(file.id));
    // A namespace consists of lower-case letters, digits and `._-`.
    json.extend_from_slice(b"\",\"namespace\":\"");
    json.extend_from_slice(file.namespace.as_str().as_bytes());
    json.extend_from_slice(b"\",\"name\":");
    push_text(&mut json, file.name.as_str());
    // The path is already percent-encoded.
    json.extend_from_slice(b",\"url\":\"");
    json.extend_from_slice(url.as_bytes());
    json.extend_from_slice(b"\",\"size\":");
    push_text(&mut json, &file.size);
    json.extend_from_slice(b",\"sha256\":\"");
    json.extend_from_slice(&file.digest.hex());
    json.extend_from_slice(b"\",\"mime\":");
    push_text(&mut json, &file.mime);
    json.extend_from_slice(b",\"category\":\"");
    json.extend_from_slice(file.category.as_str().as_bytes());
    json.push(b'"');
    if !file.comment.is_empty() {
        json.extend_from_slice(b",\"comment\":");
        push_text(&mut json, &file.comment);
    }
    json.extend_from_slice(b",\"created\":\"");
    json.extend_from_slice(time_text(file.created_ms).as_bytes());
    json.push(b'"');
    if let Some(ms) = file.expires_ms() {
        json.extend_from_slice(b",\"expires\":\"");
        json.extend_from_slice(time_text(ms).as_bytes());
        json.push(b'"');
    }
    for (kind, field) in
        [(AttributeKind::Metadata, &b",\"metadata\":"[..]), (AttributeKind::Tag, b",\"tags\":")]
    {
        let values: BTreeMap<&str, &str> = file.attributes.of(kind).collect();
        if !values.is_empty() {
            json.extend_from_slice(field);
            push_text(&mut json, &values);
        }
    }
    json.push(b'}');
    json
}

fn push_text(json: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    serde_json::to_writer(json, value).expect("texts and numbers are always JSON");
}

/// Sixteen lower-case hexadecimal digits.
fn hex16(id: u64) -> [u8; 16] {
    let mut digits = [0; 16];
    hex::encode_to_slice(id.to_be_bytes(), &mut digits).expect("two digits for each byte");
    digits
}

/// Serialises an answer; answers are plain structures of texts and numbers.
///
/// # Panics
/// If a map has a key that is not a text, or a number is not finite: a bug.
pub fn to_json(answer: &impl Serialize) -> Vec<u8> {
    // Capacity for the answer to a file: growing into it would copy it twice.
    let mut json = Vec::with_capacity(512);
    serde_json::to_writer(&mut json, answer)
        .expect("an answer has only text keys and finite numbers");
    json
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::Attributes;

    #[test]
    fn urls_escape_everything_a_path_may_not_hold() {
        assert_eq!(file_url("n", "a b/c?d#é%"), "/v1/files/n/a%20b/c%3Fd%23%C3%A9%25");
    }

    #[test]
    fn the_answer_to_a_put_is_what_serialising_it_gives() {
        for (name, comment) in [("a/b c.txt", ""), ("\u{e9}\"q", "a \"comment\"\n\u{1}")] {
            let mut attributes = Attributes::default();
            if !comment.is_empty() {
                attributes.set(AttributeKind::Tag, "a\"", "b").unwrap();
                attributes.set(AttributeKind::Metadata, "c", "\\").unwrap();
                attributes.set(AttributeKind::Internal, "hidden", "x").unwrap();
                attributes.set_keep(std::time::Duration::from_secs(86_400)).unwrap();
            }
            let file = FileRecord {
                id: 0x1234_5678_9abc_def0,
                namespace: crate::names::Namespace::parse("a.b-c_d").unwrap(),
                name: crate::names::FileName::parse(name).unwrap(),
                digest: crate::digest::Digest::of(name.as_bytes()),
                size: 4_096,
                mime: "text/plain".into(),
                category: crate::classify::Category::Text,
                comment: comment.to_owned(),
                created_ms: 1_795_000_000_123,
                attributes,
            };
            for (duplicate, replaced) in [(false, false), (true, true)] {
                let url = file_url(file.namespace.as_str(), name);
                let ours = put_json(&file, duplicate, replaced, &url);
                let theirs = to_json(&PutAnswer::of(&file, duplicate, replaced));
                assert_eq!(String::from_utf8(ours).unwrap(), String::from_utf8(theirs).unwrap());
            }
        }
    }

    #[test]
    fn ids_are_sixteen_digits_and_nothing_else() {
        assert_eq!(id_of(&id_text(77)), Some(77));
        for bad in ["", "4d", "00000000000000zz", "+000000000000001"] {
            assert_eq!(id_of(bad), None, "{bad}");
        }
    }
}
