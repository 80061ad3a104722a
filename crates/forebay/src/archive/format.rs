//! The manifest and the lines of an archive (docs/formats/export.md).
//!
//! Invariant: what [`FileLine::check`] and [`DocumentLine::bytes`] return keeps the rules that the server has
//! for it.

use std::collections::BTreeMap;

use forebay_intake::attributes::{AttributeKind, Attributes};
use forebay_intake::digest::Digest;
use forebay_intake::names::{FileName, Namespace, check_comment};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// Word that every manifest begins with.
pub(super) const FORMAT: &str = "forebay-namespace";
/// Version of the format that is written. Those before it are read.
pub(super) const VERSION: u32 = 3;
/// The first version with settings.
const VERSION_OF_SETTINGS: u32 = 2;
/// The first version whose manifest has its own digest.
const VERSION_OF_DIGEST: u32 = 3;
/// Maximum size of a manifest, in bytes.
pub(super) const MANIFEST_SIZE_MAX: u64 = 128 << 10;
/// Maximum number of files of an archive.
pub(crate) const FILES_MAX: u64 = 5_000_000;
/// Maximum size of a line of `files.ndjson`, in bytes.
pub(super) const FILE_LINE_SIZE_MAX: u64 = 128 << 10;
/// Maximum size of a line of `documents.ndjson`, in bytes.
pub(super) const DOCUMENT_LINE_SIZE_MAX: u64 = 256 << 20;

/// Counts, sizes and digests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Manifest {
    /// [`FORMAT`].
    pub(super) format: String,
    /// At most [`VERSION`].
    pub(super) version: u32,
    /// Where the files and documents were.
    pub(crate) namespace: String,
    /// When the export began, RFC 3339.
    pub(super) created: String,
    /// Version of the program.
    pub(super) forebay: String,
    /// The files.
    pub(crate) files: FilesPart,
    /// The documents.
    pub(crate) documents: DocumentsPart,
    /// The settings of the namespace of files; `None` if it had none, or the archive is of version 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) settings: Option<Settings>,
    /// The SHA-256 of the bytes before this field, which is the last. `None` before it is written, and up
    /// to version 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sha256: Option<String>,
}

/// What a namespace of files may hold, and how it is labelled.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    /// Whether earlier versions of files are kept.
    pub(crate) versions: bool,
    /// Maximum number of files.
    pub(crate) quota_files: Option<u64>,
    /// Maximum size of all files and versions, in bytes.
    pub(crate) quota_bytes: Option<u64>,
    /// The tags of the namespace.
    pub(crate) tags: BTreeMap<String, String>,
}

impl Settings {
    /// Those of a namespace as a server describes it; `None` if it has none.
    pub(crate) fn of(namespace: &Value) -> Option<Self> {
        let quota = |name: &str| namespace["quota"][name].as_u64();
        let tags = namespace["tags"].as_object().into_iter().flatten();
        let tags =
            tags.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
        let settings = Self {
            versions: namespace["versions"] == true,
            quota_files: quota("files"),
            quota_bytes: quota("bytes"),
            tags: tags.collect(),
        };
        Some(settings).filter(|settings| *settings != Self::default())
    }

    /// Checks the rules for tags.
    fn check(&self) -> Result<(), String> {
        let mut attributes = Attributes::default();
        for (name, value) in &self.tags {
            let set = attributes.set(AttributeKind::Tag, name, value);
            set.map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

/// The files of an archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FilesPart {
    /// Number of names.
    pub(crate) count: u64,
    /// Sum of the sizes of all names.
    pub(crate) bytes: u64,
    /// Number of different contents.
    pub(crate) contents: u64,
    /// Sum of their sizes.
    pub(crate) content_bytes: u64,
    /// Size of `files.ndjson`.
    pub(super) size: u64,
    /// Its SHA-256.
    #[serde(with = "digest_text")]
    pub(super) sha256: Digest,
}

/// The documents of an archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DocumentsPart {
    /// Number of documents.
    pub(crate) count: u64,
    /// Where they were stored; `None` if that was undecided.
    pub(crate) target: Option<Target>,
    /// Size of `documents.ndjson`.
    pub(super) size: u64,
    /// Its SHA-256.
    #[serde(with = "digest_text")]
    pub(super) sha256: Digest,
}

/// Where documents are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Target {
    /// In a table with columns.
    Table,
    /// As a whole.
    Collection,
}

impl Target {
    /// The word for it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Collection => "collection",
        }
    }

    /// Reads the word of a server.
    pub(crate) fn parse(word: &str) -> Option<Self> {
        [Self::Table, Self::Collection].into_iter().find(|target| target.as_str() == word)
    }
}

/// The last field of a manifest, which has the digest of the bytes before.
fn digest_field(before: &[u8]) -> String {
    format!(",\"sha256\":\"{}\"}}", Digest::of(before))
}

impl Manifest {
    /// The bytes of the manifest, with their digest.
    ///
    /// # Errors
    /// None that can happen: all of its texts can be encoded.
    pub(super) fn encode(&self) -> serde_json::Result<Vec<u8>> {
        let mut text = serde_json::to_vec(self)?;
        // The brace that ends the object follows the digest.
        text.pop();
        let field = digest_field(&text);
        text.extend_from_slice(field.as_bytes());
        Ok(text)
    }

    /// Compares the bytes with the digest at their end.
    fn check_digest(bytes: &[u8]) -> Result<(), String> {
        let size = digest_field(&[]).len();
        let at = bytes.len().saturating_sub(size);
        let (before, field) = bytes.split_at(at);
        if field == digest_field(before).as_bytes() {
            Ok(())
        } else {
            Err("it is damaged: its SHA-256 does not match".to_owned())
        }
    }

    /// Reads a manifest.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        /// What every version has.
        #[derive(Deserialize)]
        struct Kind {
            format: String,
            version: u32,
        }
        let kind: Kind = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if kind.format != FORMAT {
            return Err(format!("this is {:?}, not an exported namespace", kind.format));
        }
        if !(1..=VERSION).contains(&kind.version) {
            let version = kind.version;
            return Err(format!(
                "version {version} of the format is not known; use a newer forebay"
            ));
        }
        let manifest: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if kind.version >= VERSION_OF_DIGEST || manifest.sha256.is_some() {
            Self::check_digest(bytes)?;
        }
        Namespace::parse(&manifest.namespace).map_err(|error| error.to_string())?;
        if let Some(settings) = &manifest.settings {
            if kind.version < VERSION_OF_SETTINGS {
                return Err("version 1 of the format has no settings".to_owned());
            }
            settings.check()?;
        }
        Ok(manifest)
    }
}

/// A name, and what is stored beside its bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileLine {
    /// The name inside the namespace.
    pub(crate) name: String,
    /// SHA-256 of the bytes.
    #[serde(with = "digest_text")]
    pub(crate) sha256: Digest,
    /// Their number.
    pub(crate) size: u64,
    /// Media type.
    pub(crate) mime: String,
    /// The comment; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) comment: String,
    /// The metadata.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) metadata: BTreeMap<String, String>,
    /// The tags.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) tags: BTreeMap<String, String>,
    /// When the name was given, RFC 3339.
    pub(crate) created: String,
}

impl FileLine {
    /// Checks the rules for names, comments, metadata and tags, and returns the name.
    ///
    /// # Errors
    /// The rule that is broken.
    pub(crate) fn check(&self) -> Result<FileName, String> {
        let name = FileName::parse(&self.name).map_err(|error| error.to_string())?;
        check_comment(&self.comment).map_err(|error| error.to_string())?;
        let mut attributes = Attributes::default();
        for (kind, values) in
            [(AttributeKind::Metadata, &self.metadata), (AttributeKind::Tag, &self.tags)]
        {
            for (name, value) in values {
                attributes.set(kind, name, value).map_err(|error| error.to_string())?;
            }
        }
        Ok(name)
    }

    /// Whether both have the same bytes.
    pub(crate) fn has_bytes_of(&self, other: &Self) -> bool {
        (self.sha256, self.size) == (other.sha256, other.size)
    }

    /// Whether what is stored beside the bytes is the same, times apart.
    pub(crate) fn has_details_of(&self, other: &Self) -> bool {
        self.comment == other.comment && self.metadata == other.metadata && self.tags == other.tags
    }
}

/// A document, with its bytes in one of two forms.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DocumentLine {
    /// Its id.
    pub(crate) id: u64,
    /// When it was received, RFC 3339.
    received: String,
    /// Its bytes, if they fit on a line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    document: Option<Box<RawValue>>,
    /// Its bytes, if they have line ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    text: Option<String>,
}

impl DocumentLine {
    /// The line of a document.
    pub(crate) fn new(id: u64, received: String, document: Box<RawValue>) -> Self {
        if document.get().contains(['\n', '\r']) {
            let text = Some(document.get().to_owned());
            return Self { id, received, document: None, text };
        }
        Self { id, received, document: Some(document), text: None }
    }

    /// The bytes of the document.
    ///
    /// # Errors
    /// They are not exactly one JSON object.
    pub(crate) fn bytes(&self) -> Result<&str, String> {
        let bytes = match (&self.document, &self.text) {
            (Some(document), None) => document.get(),
            (None, Some(text)) => {
                let value: &RawValue =
                    serde_json::from_str(text).map_err(|error| format!("its text: {error}"))?;
                if value.get().len() != text.len() {
                    return Err("its text begins or ends with white space".to_owned());
                }
                text
            }
            _ => return Err("it must have either document or text".to_owned()),
        };
        match bytes.starts_with('{') {
            true => Ok(bytes),
            false => Err("a document is a JSON object".to_owned()),
        }
    }
}

/// A digest as 64 hexadecimal digits in lower case.
mod digest_text {
    use forebay_intake::digest::Digest;
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(digest: &Digest, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(digest)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Digest, D::Error> {
        let text = String::deserialize(from)?;
        super::super::members::digest_of(text.as_bytes())
            .ok_or_else(|| D::Error::custom("a SHA-256 has 64 hexadecimal digits in lower case"))
    }
}
