//! What a client says of an upload: `Upload-Metadata` and `Upload-Concat`, and what becomes of them.
//!
//! Both are kept as they were sent, since the protocol returns them; what they mean is kept beside them,
//! checked, in attributes whose names are here.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use forebay_intake::names::{FileName, Namespace, check_comment};
use forebay_intake::rules::{Protocol, Sender};
use forebay_intake::uploads::{UploadId, UploadStatus};
use forebay_intake::{Condition, NameKey};
use http::HeaderMap;
use http::header::IF_NONE_MATCH;

use super::headers::{CONCAT, METADATA, bad, one};
use super::problem::Refused;

/// Namespace of files of which the client names none.
const NAMESPACE: &str = "default";

/// Names of attributes.
pub(super) mod attribute {
    pub(in super::super) const NAMESPACE: &str = "namespace";
    pub(in super::super) const NAME: &str = "name";
    pub(in super::super) const COMMENT: &str = "comment";
    /// The header as it was sent.
    pub(in super::super) const METADATA: &str = "upload-metadata";
    /// The header as it was sent.
    pub(in super::super) const CONCAT: &str = "upload-concat";
    /// Ids of the uploads that a final one consists of, separated by spaces.
    pub(in super::super) const PARTS: &str = "parts";
    /// Bytes of a final upload.
    pub(in super::super) const SIZE: &str = "size";
    /// Id of the limited key that began a partial upload without a namespace.
    pub(in super::super) const KEY: &str = "key";
    /// Id of the key that began an upload.
    pub(in super::super) const SENDER: &str = "sender";
    /// Present if a routing rule may choose another namespace.
    pub(in super::super) const ROUTED: &str = "routed";
    /// Present if the name must not exist before.
    pub(in super::super) const ABSENT: &str = "absent";
}

/// What `Upload-Concat` says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Concat {
    /// There is no such header.
    None,
    Partial,
    Final(Vec<UploadId>),
}

/// What is kept of the headers that begin an upload.
#[derive(Debug)]
pub(super) struct Described {
    pub(super) attributes: BTreeMap<String, String>,
    pub(super) concat: Concat,
    /// The name, if the client gave one.
    pub(super) key: Option<NameKey>,
    /// Whether the client named a namespace.
    pub(super) names_namespace: bool,
    pub(super) is_new_only: bool,
}

/// Reads what a client says of a new upload.
pub(super) fn read(headers: &HeaderMap) -> Result<Described, Refused> {
    let mut attributes = BTreeMap::new();
    let mut named = BTreeMap::new();
    if let Some(text) = one(headers, &METADATA)? {
        named = pairs(text)?;
        attributes.insert(attribute::METADATA.to_owned(), text.to_owned());
    }
    let concat = match one(headers, &CONCAT)? {
        None => Concat::None,
        Some(text) => {
            attributes.insert(attribute::CONCAT.to_owned(), text.to_owned());
            concat(text)?
        }
    };
    let namespace = named.get("namespace").map_or(NAMESPACE, String::as_str);
    let name = named.get("name").or_else(|| named.get("filename"));
    let comment = named.get("comment").map(String::as_str).unwrap_or_default();
    check_comment(comment).map_err(forebay_intake::IntakeError::from)?;
    let namespace = Namespace::parse(namespace).map_err(forebay_intake::IntakeError::from)?;
    let names_namespace = named.contains_key("namespace");
    attributes.insert(attribute::NAMESPACE.to_owned(), namespace.as_str().to_owned());
    if !names_namespace {
        attributes.insert(attribute::ROUTED.to_owned(), String::new());
    }
    attributes.insert(attribute::COMMENT.to_owned(), comment.to_owned());
    let mut key = None;
    if let Some(name) = name {
        let name = FileName::parse(name).map_err(forebay_intake::IntakeError::from)?;
        attributes.insert(attribute::NAME.to_owned(), name.as_str().to_owned());
        key = Some((namespace, name));
    }
    let is_new_only = match one(headers, &IF_NONE_MATCH)? {
        None => false,
        Some("*") => true,
        Some(_) => return Err(bad(&IF_NONE_MATCH, "* where an upload begins")),
    };
    if is_new_only {
        attributes.insert(attribute::ABSENT.to_owned(), String::new());
    }
    Ok(Described { attributes, concat, key, names_namespace, is_new_only })
}

/// Reads pairs of a name and a value in Base64. Values that are not text are left out, unless they name
/// the file.
fn pairs(text: &str) -> Result<BTreeMap<String, String>, Refused> {
    let wrong = |reason: &str| {
        let rule = "names and values in Base64, separated by a space; pairs separated by commas";
        Refused::bad("upload_metadata", format!("Upload-Metadata has {rule}: {reason}"))
    };
    let mut found = BTreeMap::new();
    for pair in text.split(',').map(str::trim) {
        if pair.is_empty() && text.trim().is_empty() {
            break;
        }
        let (name, value) = pair.split_once(' ').unwrap_or((pair, ""));
        if name.is_empty() {
            return Err(wrong("a name is empty"));
        }
        let value = BASE64.decode(value.trim()).map_err(|_| wrong("a value is not Base64"))?;
        let is_ours = matches!(name, "namespace" | "name" | "filename" | "comment" | "filetype");
        let value = match String::from_utf8(value) {
            Ok(value) => value,
            Err(_) if is_ours => return Err(wrong("a value that names the file is not UTF-8")),
            Err(_) => String::new(),
        };
        if found.insert(name.to_owned(), value).is_some() {
            return Err(wrong("a name occurs twice"));
        }
    }
    Ok(found)
}

/// Reads `partial`, or `final;` and the URLs of the partial uploads.
fn concat(text: &str) -> Result<Concat, Refused> {
    let wrong = || bad(&CONCAT, "partial, or final; and the URLs of partial uploads");
    if text == "partial" {
        return Ok(Concat::Partial);
    }
    let urls = text.strip_prefix("final;").ok_or_else(wrong)?;
    let ids = urls.split_ascii_whitespace().map(id_of).collect::<Option<Vec<_>>>();
    match ids {
        Some(ids) if !ids.is_empty() => Ok(Concat::Final(ids)),
        _ => Err(wrong()),
    }
}

/// The upload that a URL stands for: absolute or relative, also below the path of a proxy.
fn id_of(url: &str) -> Option<UploadId> {
    let (before, id) = url.rsplit_once('/').unwrap_or(("uploads", url));
    (before == "uploads" || before.ends_with("/uploads")).then(|| id.parse().ok()).flatten()
}

/// The name that an upload is stored under.
pub(super) struct Target {
    pub(super) key: NameKey,
    pub(super) comment: String,
    pub(super) condition: Condition,
    /// Whether a routing rule may choose the namespace.
    pub(super) is_routed: bool,
    pub(super) sender: Sender,
}

/// Returns where a complete upload is stored.
pub(super) fn target(status: &UploadStatus) -> Result<Target, forebay_intake::IntakeError> {
    let attributes = &status.new.attributes;
    let get = |name: &str| attributes.get(name).map(String::as_str);
    let namespace = Namespace::parse(get(attribute::NAMESPACE).unwrap_or(NAMESPACE))?;
    let id = status.id.to_string();
    let name = FileName::parse(get(attribute::NAME).unwrap_or(&id))?;
    let comment = get(attribute::COMMENT).unwrap_or_default().to_owned();
    let is_new_only = attributes.contains_key(attribute::ABSENT);
    let condition = if is_new_only { Condition::Absent } else { Condition::None };
    let is_routed = attributes.contains_key(attribute::ROUTED);
    let key = get(attribute::SENDER).and_then(|id| id.as_bytes().try_into().ok());
    let sender = Sender { protocol: Protocol::Tus, key };
    Ok(Target { key: (namespace, name), comment, condition, is_routed, sender })
}

/// Returns the uploads that a final upload consists of.
pub(super) fn parts(status: &UploadStatus) -> Vec<UploadId> {
    let parts = status.new.attributes.get(attribute::PARTS).map(String::as_str);
    parts.unwrap_or_default().split(' ').filter_map(|id| id.parse().ok()).collect()
}

/// Returns the number of bytes of an upload, if it is known.
pub(super) fn length(status: &UploadStatus) -> Option<u64> {
    let size = status.new.attributes.get(attribute::SIZE);
    size.and_then(|size| size.parse().ok()).or(status.length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_has_names_and_values_in_base64() {
        let found = pairs("filename d29ybGQ=, is_confidential,empty ").unwrap();
        assert_eq!(found["filename"], "world");
        assert_eq!((&*found["is_confidential"], &*found["empty"]), ("", ""));
        assert!(pairs("").unwrap().is_empty());
        assert_eq!(pairs("raw /w==").unwrap()["raw"], "");
        for wrong in ["a !", "filename /w==", ",", "a YQ==,", "a YQ==,a YQ=="] {
            assert!(pairs(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_final_upload_names_partial_ones_by_url() {
        let id: UploadId = "0123456789abcdef0123456789abcdef".parse().unwrap();
        for url in [
            format!("/v1/uploads/{id}"),
            format!("http://localhost:8090/v1/uploads/{id}"),
            format!("https://files.example.com/behind/a/proxy/v1/uploads/{id}"),
            format!("uploads/{id}"),
            id.to_string(),
        ] {
            assert_eq!(concat(&format!("final;{url} {url}")).unwrap(), Concat::Final(vec![id, id]));
        }
        assert_eq!(concat("partial").unwrap(), Concat::Partial);
        for wrong in ["", "final", "final;", "final; ", "Partial", "final;/v1/uploads/x"] {
            assert!(concat(wrong).is_err(), "{wrong:?}");
        }
        assert!(concat(&format!("final;/v1/files/{id}")).is_err());
    }
}
