//! Settings of the connectors for files.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use forebay_base::ByteSize;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::permissions::Reach;
use crate::config::{Secret, Text};

/// How a bucket is reached.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct S3Settings {
    /// URL of the server, unless it is Amazon's.
    pub endpoint: Option<Text>,
    /// Region; `us-east-1` where it is not given.
    pub region: Option<Text>,
    /// Id of the key. Without keys, requests are not signed.
    pub access_key_id: Option<Text>,
    /// The key.
    pub secret_access_key: Option<Secret>,
    /// The token that goes with a key for some time.
    pub session_token: Option<Secret>,
    /// Name the bucket in the path, not in the name of the host.
    pub path_style: bool,
    /// Permit an endpoint without TLS.
    pub allow_http: bool,
}

/// What a path and the settings of its bucket lead to.
pub(crate) fn reach(path: &Text, s3: &S3Settings) -> Reach {
    if !path.0.starts_with("s3://") {
        return Reach::path(&path.0);
    }
    let Some(endpoint) = &s3.endpoint else {
        let region = s3.region.as_ref().map_or("us-east-1", |region| &region.0);
        return Reach::host(&format!("s3.{region}.amazonaws.com"), Some(443));
    };
    let url: Option<reqwest::Url> = endpoint.0.parse().ok();
    let host = url.as_ref().and_then(|url| Some((url.host_str()?, url.port_or_known_default())));
    host.map_or_else(Reach::default, |(host, port)| Reach::host(host, port))
}

/// How a file is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Compression {
    /// As the name ends: `.gz`, `.zst`, anything else is not compressed.
    #[default]
    Auto,
    /// Not at all.
    None,
    /// gzip.
    Gzip,
    /// Zstandard.
    Zstd,
}

/// Rows that are looked at to find types.
fn sample_rows() -> NonZeroU32 {
    const { NonZeroU32::new(10_000).expect("not zero") }
}

fn yes() -> bool {
    true
}

/// A character that stands between fields: one byte of ASCII.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
#[schemars(with = "String")]
pub struct Delimiter(pub(super) u8);

impl Default for Delimiter {
    fn default() -> Self {
        Self(b',')
    }
}

impl<'de> Deserialize<'de> for Delimiter {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.as_bytes() {
            [byte] if byte.is_ascii() && !b"\"\r\n".contains(byte) => Ok(Self(*byte)),
            _ => Err(serde::de::Error::custom(format_args!(
                "{text:?} cannot stand between fields: it is one character of ASCII, not a quote or line end"
            ))),
        }
    }
}

/// Parquet files as a source.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ParquetSource {
    /// Directory the streams' names are in: a path, or `s3://BUCKET/PREFIX`.
    pub path: Text,
    /// How a bucket is reached.
    #[serde(default)]
    pub s3: S3Settings,
}

/// CSV files as a source.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CsvSource {
    /// Directory the streams' names are in: a path, or `s3://BUCKET/PREFIX`.
    pub path: Text,
    /// How a bucket is reached.
    #[serde(default)]
    pub s3: S3Settings,
    /// How files are compressed.
    #[serde(default)]
    pub compression: Compression,
    /// What stands between fields.
    #[serde(default)]
    pub delimiter: Delimiter,
    /// Whether the first line has the names of columns; else they are `column_1` and so on.
    #[serde(default = "yes")]
    pub header: bool,
    /// The text that is NULL where it is not quoted in the file. (In YAML `null` by itself is no text.)
    #[serde(default)]
    pub null_text: String,
    /// Types of columns by their names, as in SQL; those of others are found by looking.
    #[serde(default)]
    pub columns: BTreeMap<String, String>,
    /// Rows of the first file that are looked at to find types.
    #[serde(default = "sample_rows")]
    pub sample_rows: NonZeroU32,
}

/// Files with a JSON object a line, as a source.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NdjsonSource {
    /// Directory the streams' names are in: a path, or `s3://BUCKET/PREFIX`.
    pub path: Text,
    /// How a bucket is reached.
    #[serde(default)]
    pub s3: S3Settings,
    /// How files are compressed.
    #[serde(default)]
    pub compression: Compression,
    /// Types of columns by their names, as in SQL; those of others are found by looking.
    #[serde(default)]
    pub columns: BTreeMap<String, String>,
    /// Lines of the first file that are looked at to find columns and types.
    #[serde(default = "sample_rows")]
    pub sample_rows: NonZeroU32,
}

/// How the pages of a Parquet file are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ParquetCompression {
    /// Zstandard, level 1.
    Zstd,
    /// Snappy: what every reader knows, and the quickest to write.
    #[default]
    Snappy,
    /// LZ4.
    Lz4,
    /// Not at all.
    None,
}

fn row_group_size() -> ByteSize {
    ByteSize(16 << 20)
}

/// Parquet files as a destination.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ParquetDestination {
    /// Directory: a path, or `s3://BUCKET/PREFIX`. A stream's files are in a directory of its name in it.
    pub path: Text,
    /// How a bucket is reached.
    #[serde(default)]
    pub s3: S3Settings,
    /// How pages are compressed.
    #[serde(default)]
    pub compression: ParquetCompression,
    /// Bytes of a row group; each unit that is written at once holds one in memory.
    #[serde(default = "row_group_size")]
    #[schemars(with = "String")]
    pub row_group_size: ByteSize,
}

/// CSV files as a destination.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CsvDestination {
    /// Directory: a path, or `s3://BUCKET/PREFIX`. A stream's files are in a directory of its name in it.
    pub path: Text,
    /// How a bucket is reached.
    #[serde(default)]
    pub s3: S3Settings,
    /// How files are compressed: `gzip`, `zstd`, or not at all.
    #[serde(default)]
    pub compression: Compression,
    /// What stands between fields.
    #[serde(default)]
    pub delimiter: Delimiter,
    /// Whether the first line has the names of columns.
    #[serde(default = "yes")]
    pub header: bool,
    /// What stands for NULL; texts that are the same are quoted.
    #[serde(default)]
    pub null_text: String,
}

/// Files with a JSON object a line, as a destination.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NdjsonDestination {
    /// Directory: a path, or `s3://BUCKET/PREFIX`. A stream's files are in a directory of its name in it.
    pub path: Text,
    /// How a bucket is reached.
    #[serde(default)]
    pub s3: S3Settings,
    /// How files are compressed: `gzip`, `zstd`, or not at all.
    #[serde(default)]
    pub compression: Compression,
}
