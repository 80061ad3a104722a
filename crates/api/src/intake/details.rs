//! Metadata, tags and comments: in the headers of an upload and a download, and changed by `PATCH`.
//!
//! ```text
//! Forebay-Meta-Author: ada             one name of the metadata, in lower case
//! Forebay-Tags: project=x&stage=raw    tags, encoded as a form
//! PATCH {"tags": {"stage": "done", "project": null}}      a JSON merge patch (RFC 7396)
//! ```
//!
//! Invariants: a change is made of what the file has when the change becomes valid, so two at once both
//! happen; the bytes are never touched; what cannot be sent as a header is only in the JSON.

use std::collections::{BTreeMap, BTreeSet};

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use forebay_intake::answer::{PutAnswer, to_json};
use forebay_intake::attributes::{AttributeError, AttributeKind, Attributes};
use forebay_intake::catalogue::FileRecord;
use forebay_intake::names::check_comment;
use forebay_intake::{FileDetails, Intake, IntakeError};
use http::header::ETAG;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Deserializer};
use utoipa::ToSchema;

use super::condition::{self, etag};
use super::files::name_key;
use super::{Turn, claim, json, json_body, problem};

const META: &str = "forebay-meta-";
/// Maximum number of headers with metadata in a response: many clients accept 100 headers.
const SENT_MAX: usize = 64;
const TAGS: HeaderName = HeaderName::from_static("forebay-tags");

/// A change of what is stored with a file beside its bytes. What is absent stays as it is.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FilePatch {
    /// The comment; null removes it.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>)]
    comment: Option<Option<String>>,
    /// Metadata by name; null removes one name, or all.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<BTreeMap<String, Option<String>>>)]
    metadata: AttributePatch,
    /// Tags by name; null removes one tag, or all.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<BTreeMap<String, Option<String>>>)]
    tags: AttributePatch,
}

/// A change of attributes of one kind, by name: null removes one, or all; what is absent stays.
pub(super) type AttributePatch = Option<Option<BTreeMap<String, Option<String>>>>;

/// Changes the attributes of one kind.
pub(super) fn apply(
    patch: &AttributePatch,
    kind: AttributeKind,
    attributes: &mut Attributes,
) -> Result<(), AttributeError> {
    match patch {
        None => {}
        Some(None) => attributes.retain(|of, _| of != kind),
        Some(Some(values)) => {
            // What is removed makes room for what is set.
            for (name, _) in values.iter().filter(|(_, value)| value.is_none()) {
                attributes.remove(kind, name);
            }
            let mut names = BTreeSet::new();
            for (name, value) in values {
                let Some(value) = value else { continue };
                if !names.insert(kind.stored_name(name)) {
                    return Err(AttributeError::repeated(kind, name));
                }
                attributes.set(kind, name, value)?;
            }
        }
    }
    Ok(())
}

/// Reads a member that may be null, which differs from one that is absent.
pub(super) fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

impl FilePatch {
    pub(super) fn new(
        comment: Option<Option<String>>,
        metadata: AttributePatch,
        tags: AttributePatch,
    ) -> Self {
        Self { comment, metadata, tags }
    }

    /// What a file is to have from what it has.
    ///
    /// # Errors
    /// The comment, a name or a value breaks a rule.
    pub(super) fn apply(&self, file: &FileRecord) -> Result<FileDetails, IntakeError> {
        let comment = match &self.comment {
            None => file.comment.clone(),
            Some(comment) => comment.clone().unwrap_or_default(),
        };
        check_comment(&comment)?;
        let mut attributes = file.attributes.clone();
        apply(&self.metadata, AttributeKind::Metadata, &mut attributes)?;
        apply(&self.tags, AttributeKind::Tag, &mut attributes)?;
        Ok(FileDetails { comment, attributes })
    }
}

pub(super) async fn patch(
    State(intake): State<Intake>,
    Path((namespace, name)): Path<(String, String)>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path();
    match patch_file(&intake, (&namespace, &name), path, &parts.headers, body).await {
        Ok(response) => response,
        Err(error) => problem::answer(&error, &parts.headers),
    }
}

async fn patch_file(
    intake: &Intake,
    (namespace, name): (&str, &str),
    path: &str,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, IntakeError> {
    let key = name_key(namespace, name)?;
    let condition = condition::of_write(headers)?;
    let keyed = claim(intake, headers).await?;
    let body = json_body::bytes(body, headers, intake.limits()).await?;
    let print = || condition::fingerprint(&[b"PATCH", path.as_bytes(), &body], headers);
    let (record, _held) = match keyed.turn(print)? {
        Turn::Act(record, held) => (record, held),
        Turn::Replay(answer) => return Ok(answer),
    };
    let patch: FilePatch = json_body::parse(&body)?;
    let change = |file: &FileRecord| patch.apply(file);
    let put = intake.change_details(&key, condition, record, change).await?;
    let mut response = json(200, to_json(&PutAnswer::of(&put.file, put.duplicate, put.replaced)));
    response.headers_mut().insert(ETAG, etag(put.file.digest));
    Ok(response)
}

/// Reads metadata and tags from the headers of an upload.
///
/// # Errors
/// [`IntakeError::Rejected`] with the code `attributes`: one breaks a rule.
pub(super) fn of_upload(headers: &HeaderMap) -> Result<Attributes, IntakeError> {
    let mut attributes = Attributes::default();
    let refused = |text: String| IntakeError::rejected("attributes", text);
    for (header, value) in headers {
        let Some(name) = header.as_str().strip_prefix(META) else { continue };
        let value = std::str::from_utf8(value.as_bytes())
            .map_err(|_| refused(format!("the header {header} is not UTF-8")))?;
        if attributes.get(AttributeKind::Metadata, name).is_some() {
            return Err(refused(format!("the header {header} is repeated")));
        }
        attributes.set(AttributeKind::Metadata, name, value)?;
    }
    for value in headers.get_all(TAGS) {
        for (name, value) in url::form_urlencoded::parse(value.as_bytes()) {
            if attributes.get(AttributeKind::Tag, &name).is_some() {
                return Err(refused(format!("the tag {name:?} is repeated")));
            }
            attributes.set(AttributeKind::Tag, &name, &value)?;
        }
    }
    Ok(attributes)
}

/// Adds metadata and tags to the headers of a download.
pub(super) fn describe(headers: &mut HeaderMap, attributes: &Attributes) {
    if attributes.is_empty() {
        return;
    }
    let mut sent = 0;
    for (name, value) in attributes.of(AttributeKind::Metadata) {
        if sent == SENT_MAX {
            break;
        }
        let name = HeaderName::from_bytes(format!("{META}{name}").as_bytes());
        // White space at the ends is no part of a header's value.
        if value.trim_matches([' ', '\t']) != value {
            continue;
        }
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value.as_bytes())) {
            headers.append(name, value);
            sent += 1;
        }
    }
    let mut tags = url::form_urlencoded::Serializer::new(String::new());
    tags.extend_pairs(attributes.of(AttributeKind::Tag));
    let tags = tags.finish();
    if !tags.is_empty()
        && let Ok(value) = HeaderValue::from_str(&tags)
    {
        headers.insert(TAGS, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(attributes: Attributes) -> FileRecord {
        FileRecord {
            id: 1,
            namespace: forebay_intake::names::Namespace::parse("n").unwrap(),
            name: forebay_intake::names::FileName::parse("f").unwrap(),
            digest: forebay_intake::digest::Digest::of(b""),
            size: 0,
            mime: "text/plain".into(),
            category: forebay_intake::classify::Category::Text,
            comment: "before".to_owned(),
            created_ms: 0,
            attributes,
        }
    }

    #[test]
    fn a_patch_sets_removes_and_leaves_what_it_does_not_name() {
        let mut attributes = Attributes::default();
        for name in ["a", "b"] {
            attributes.set(AttributeKind::Tag, name, "1").unwrap();
            attributes.set(AttributeKind::Metadata, name, "1").unwrap();
        }
        let patch = |text: &str| serde_json::from_str::<FilePatch>(text);
        let done = |text: &str| patch(text).unwrap().apply(&file(attributes.clone())).unwrap();
        let of = |details: &FileDetails, kind| {
            let all = details.attributes.of(kind);
            all.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
        };
        let same = done("{}");
        assert_eq!((same.comment.as_str(), &same.attributes), ("before", &attributes));
        let changed = done(r#"{"comment":null,"tags":{"a":null,"c":"3"},"metadata":null}"#);
        assert_eq!(changed.comment, "");
        assert_eq!(of(&changed, AttributeKind::Tag), "b=1 c=3");
        assert_eq!(of(&changed, AttributeKind::Metadata), "");
        let changed = done(r#"{"tags":{"B":"2"},"metadata":{"A":null,"B":"2"}}"#);
        assert_eq!(of(&changed, AttributeKind::Tag), "B=2 a=1 b=1");
        assert_eq!(of(&changed, AttributeKind::Metadata), "b=2");
        let twice = patch(r#"{"metadata":{"X":"1","x":"2"}}"#).unwrap();
        assert!(twice.apply(&file(attributes.clone())).is_err());
        for wrong in [r#"{"tag":{}}"#, r#"{"tags":[]}"#, r#"{"tags":{"a":1}}"#, ""] {
            assert!(patch(wrong).is_err(), "{wrong}");
        }
        let long = format!(r#"{{"tags":{{"{}":""}}}}"#, "n".repeat(200));
        assert!(patch(&long).unwrap().apply(&file(Attributes::default())).is_err());
    }

    #[test]
    fn a_value_that_a_header_would_trim_is_only_in_the_json() {
        let mut attributes = Attributes::default();
        for (name, value) in [("a", " x"), ("b", "x\t"), ("c", "x y")] {
            attributes.set(AttributeKind::Metadata, name, value).unwrap();
        }
        let mut sent = HeaderMap::new();
        describe(&mut sent, &attributes);
        assert_eq!((sent.len(), &sent["forebay-meta-c"]), (1, &HeaderValue::from_static("x y")));
        for name in 0..100 {
            attributes.set(AttributeKind::Metadata, &format!("n{name}"), "x").unwrap();
        }
        let mut sent = HeaderMap::new();
        describe(&mut sent, &attributes);
        assert_eq!(sent.len(), SENT_MAX, "clients accept no more");
    }

    #[test]
    fn headers_of_an_upload_come_back_with_the_download() {
        let mut sent = HeaderMap::new();
        sent.insert("forebay-meta-author", HeaderValue::from_bytes("Ada é".as_bytes()).unwrap());
        sent.insert("forebay-tags", HeaderValue::from_static("a=1&b=x%20%26+y&c"));
        let attributes = of_upload(&sent).unwrap();
        assert_eq!(attributes.get(AttributeKind::Tag, "b"), Some("x & y"));
        let mut received = HeaderMap::new();
        describe(&mut received, &attributes);
        assert_eq!(of_upload(&received).unwrap(), attributes);
        assert_eq!(received["forebay-meta-author"], sent["forebay-meta-author"]);
        for (name, value) in [
            ("forebay-tags", &b"a=1&a=2"[..]),
            ("forebay-meta-x", b"\xff"),
            ("forebay-meta-", b"x"),
        ] {
            let value = HeaderValue::from_bytes(value).unwrap();
            let wrong = HeaderMap::from_iter([(HeaderName::from_static(name), value)]);
            assert!(of_upload(&wrong).is_err(), "{name}");
        }
    }
}
