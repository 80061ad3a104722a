//! The manifest of an S3 Inventory: the contents of `manifest.json`, parsed and checked.
//!
//! Compatible servers write it, too. Its names are untrusted: a name never becomes a path that
//! leads out of the directory of the manifest's files ([`resolve`]).

use serde::Deserialize;

use super::SourceError;
use super::foreign::Foreign;
use super::input::Expected;

pub(crate) mod resolve;
pub(crate) mod schema;

/// Maximum size of a manifest in bytes.
pub(crate) const MANIFEST_SIZE_MAX: u64 = 256 << 20;
/// File name of an inventory's manifest.
pub(crate) const NAME: &str = "manifest.json";
/// The file beside it that contains its MD5.
pub(crate) const CHECKSUM_NAME: &str = "manifest.checksum";

/// The format of an inventory's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Csv,
    Parquet,
}

/// An inventory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Manifest {
    /// The listed bucket.
    pub(crate) source: String,
    /// The bucket that contains its files.
    pub(crate) destination: Option<String>,
    /// Start of the listing, in milliseconds since 1970.
    pub(crate) created_ms: Option<u64>,
    pub(crate) format: Format,
    /// Names of the columns.
    pub(crate) fields: Vec<String>,
    pub(crate) files: Vec<DataFile>,
}

/// A file of an inventory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DataFile {
    pub(crate) key: String,
    pub(crate) size: u64,
    /// Lower-case hexadecimal digits.
    pub(crate) md5: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    source_bucket: String,
    destination_bucket: Option<String>,
    creation_timestamp: Option<Stamp>,
    file_format: String,
    file_schema: String,
    files: Vec<WrittenFile>,
}

#[derive(Deserialize)]
struct WrittenFile {
    key: String,
    size: u64,
    #[serde(rename = "MD5checksum")]
    md5: Option<String>,
}

/// Milliseconds: S3 writes them in quotes, others as a number.
#[derive(Deserialize)]
#[serde(untagged)]
enum Stamp {
    Text(String),
    Number(u64),
}

impl Manifest {
    /// Parses a manifest with the path `name`.
    ///
    /// # Errors
    /// [`SourceError::Manifest`], with an alternative if the format of its files is unsupported.
    pub(crate) fn decode(name: &str, json: &[u8]) -> Result<Self, SourceError> {
        let wrong = |reason: String| SourceError::Manifest { manifest: name.to_owned(), reason };
        let json = json.strip_prefix("\u{feff}".as_bytes()).unwrap_or(json);
        let written: Written =
            serde_json::from_slice(json).map_err(|e| match Foreign::of_manifest(json) {
                Some(foreign) => wrong(foreign.reason()),
                None => wrong(format!("it is not the manifest of an S3 Inventory: {e}")),
            })?;
        let format = match written.file_format.as_str() {
            format if format.eq_ignore_ascii_case("csv") => Format::Csv,
            format if format.eq_ignore_ascii_case("parquet") => Format::Parquet,
            format if format.eq_ignore_ascii_case("orc") => {
                let reason = "its files are ORC, which is not supported; configure the inventory \
                              of this bucket for Parquet (best) or CSV, and use the next one";
                return Err(wrong(reason.to_owned()));
            }
            format => {
                return Err(wrong(format!(
                    "its files are {format:?}; only Parquet and CSV are supported"
                )));
            }
        };
        let fields = schema::fields(&written.file_schema).map_err(&wrong)?;
        let mut files = Vec::with_capacity(written.files.len());
        let mut keys = hashbrown::HashSet::new();
        for file in written.files {
            if !keys.insert(file.key.clone()) {
                return Err(wrong(format!("it lists the file {:?} twice", file.key)));
            }
            let md5 = file.md5.filter(|md5| !md5.is_empty()).map(|md5| md5.to_ascii_lowercase());
            if md5.as_ref().is_some_and(|md5| !is_md5(md5)) {
                return Err(wrong(format!("the MD5 of its file {:?} is invalid", file.key)));
            }
            files.push(DataFile { key: file.key, size: file.size, md5 });
        }
        let created_ms = match written.creation_timestamp {
            None => None,
            Some(Stamp::Number(ms)) => Some(ms),
            Some(Stamp::Text(text)) => {
                let ms = text.parse();
                Some(ms.map_err(|_| {
                    wrong(format!("its creationTimestamp {text:?} is not a number"))
                })?)
            }
        };
        let destination = written.destination_bucket;
        let destination = destination.map(|bucket| bucket_name(&bucket).to_owned());
        Ok(Self {
            source: written.source_bucket,
            destination: destination.filter(|bucket| !bucket.is_empty()),
            created_ms,
            format,
            fields,
            files,
        })
    }

    /// Whether it has a column for a field with this name, ignoring case and separators.
    pub(crate) fn has(&self, field: &str) -> bool {
        self.fields.iter().any(|name| super::columns::plain(name) == field)
    }
}

impl DataFile {
    /// Its expected properties; without its MD5 if that is not to be verified.
    pub(crate) fn expected(&self, verify: bool) -> Expected {
        Expected { size: Some(self.size), md5: self.md5.clone().filter(|_| verify) }
    }
}

/// The MD5 in a `manifest.checksum`.
///
/// # Errors
/// It contains none.
pub(crate) fn checksum(name: &str, content: &[u8]) -> Result<String, SourceError> {
    let digits = content.trim_ascii().to_ascii_lowercase();
    let digits = String::from_utf8(digits).ok().filter(|digits| is_md5(digits));
    digits.ok_or_else(|| SourceError::Manifest {
        manifest: name.to_owned(),
        reason: "it does not contain the MD5 of the manifest".to_owned(),
    })
}

fn is_md5(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The name of a bucket, which may be given as an ARN.
fn bucket_name(bucket: &str) -> &str {
    let arn = bucket.strip_prefix("arn:").and_then(|arn| arn.split_once(":::"));
    arn.map_or(bucket, |(_, name)| name)
}

#[cfg(test)]
mod tests;
