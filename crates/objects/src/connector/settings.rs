//! Settings of the connectors for files.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use forebay_base::error_chain::chain;
use forebay_base::{ByteSize, HumanDuration};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::settings::{Reach, Secret, Text, Within};

use crate::{Address, Addressing, Environment, Keys, Profile, Settings};
use schemars::JsonSchema;
use serde::Deserialize;

use super::location::At;

/// The shortest time that removed files of a table stay.
const KEEP_REMOVED_MIN: Duration = Duration::from_hours(1);

/// Connection settings of a bucket.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct S3Settings {
    /// URL of the server. The default is Amazon's.
    pub endpoint: Option<Text>,
    /// Region. The default is `us-east-1`.
    pub region: Option<Text>,
    /// Access key id. Without keys, requests are not signed.
    pub access_key_id: Option<Text>,
    /// Secret access key.
    pub secret_access_key: Option<Secret>,
    /// Session token of a temporary key.
    pub session_token: Option<Secret>,
    /// Name of a profile in `~/.aws` of the user that runs the pipeline, with keys, region and
    /// endpoint. `access_key_id`, `region` and `endpoint` take precedence over it.
    pub profile: Option<NamedProfile>,
    /// Whether the bucket is named in the path instead of the host name.
    pub path_style: bool,
    /// Whether an endpoint without TLS is permitted.
    pub allow_http: bool,
}

impl S3Settings {
    /// The connection that they describe.
    pub(super) fn connection(&self) -> Result<Settings, ConnectorError> {
        if let Some(NamedProfile { name, loaded: None }) = &self.profile {
            return Err(ConnectorError::unsupported(
                format!("the profile {name} was not loaded"),
                "give the keys in the settings, or register the connector with in_environment",
            ));
        }
        let keys = match (&self.access_key_id, &self.secret_access_key) {
            (Some(id), Some(secret)) => {
                let token = self.session_token.as_ref().map(|token| token.expose().to_owned());
                Some(Keys::new(&*id.0, secret.expose(), token))
            }
            (None, None) => None,
            _ => {
                return Err(ConnectorError::unsupported(
                    "one half of the key to a bucket is missing",
                    "give both access_key_id and secret_access_key, or neither",
                ));
            }
        };
        Ok(Settings { keys, ..self.server() })
    }

    /// The same without keys.
    fn server(&self) -> Settings {
        Settings {
            endpoint: self.endpoint.as_ref().map(|endpoint| endpoint.0.clone()),
            region: self.region.as_ref().map(|region| region.0.clone()),
            keys: None,
            profile: self.profile.as_ref().and_then(|named| named.loaded.clone()),
            addressing: if self.path_style { Addressing::Path } else { Addressing::Auto },
            allow_http: self.allow_http,
        }
    }
}

/// The name of a profile in `~/.aws`, and the profile once [`in_environment`] has loaded it.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(from = "Text")]
#[schemars(with = "String")]
pub struct NamedProfile {
    name: Text,
    loaded: Option<Profile>,
}

impl From<Text> for NamedProfile {
    fn from(name: Text) -> Self {
        Self { name, loaded: None }
    }
}

/// Returns what completes settings of files that were read: the profile that they name is loaded from
/// the files of `environment`. For [`Registry::source_with`] and `destination_with`.
///
/// [`Registry::source_with`]: forebay_sdk::registry::Registry::source_with
pub fn in_environment<S: FileSettings>(
    environment: &Environment,
) -> impl Fn(&mut S) -> Result<(), String> + Send + Sync + 'static {
    let environment = environment.clone();
    move |settings| {
        if let Some(NamedProfile { name, loaded }) = &mut settings.s3().profile {
            let profile = Profile::load(&name.0, &environment);
            *loaded = Some(profile.map_err(|error| chain(&error).to_string())?);
        }
        Ok(())
    }
}

/// Settings of files that may be in a bucket.
pub trait FileSettings: 'static {
    /// The connection settings of the bucket.
    fn s3(&mut self) -> &mut S3Settings;
}

/// What a path and the settings of its bucket refer to.
pub(super) fn reach(path: &Text, s3: &S3Settings) -> Reach {
    let mut reach = match path.0.parse() {
        Ok(Address::Bucket(_)) => {
            let host = s3.server().host();
            host.map_or_else(Reach::default, |(host, port)| Reach::host(&host, port))
        }
        _ => Reach::path(&path.0),
    };
    if let Some(NamedProfile { loaded: Some(profile), .. }) = &s3.profile {
        reach.paths.extend(profile.files().iter().cloned());
    }
    reach
}

/// How a file is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Compression {
    /// By the suffix of the name: `.gz` or `.zst`; otherwise uncompressed.
    #[default]
    Auto,
    /// Uncompressed.
    None,
    /// gzip.
    Gzip,
    /// Zstandard.
    Zstd,
}

/// Number of rows examined to infer types.
fn sample_rows() -> NonZeroU32 {
    const { NonZeroU32::new(10_000).expect("not zero") }
}

fn yes() -> bool {
    true
}

/// The delimiter between fields: one ASCII character.
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
                "{text:?} cannot be a delimiter; use one ASCII character other than a quote or \
                 line end"
            ))),
        }
    }
}

/// Parquet files as a source.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ParquetSource {
    /// Directory that the streams' names are relative to: a path, or `s3://BUCKET/PREFIX`.
    pub path: Text,
    /// Connection settings of the bucket.
    #[serde(default)]
    pub s3: S3Settings,
    /// Where files may be.
    #[serde(skip)]
    #[schemars(skip)]
    pub(crate) within: Within,
}

/// CSV files as a source.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CsvSource {
    /// Directory that the streams' names are relative to: a path, or `s3://BUCKET/PREFIX`.
    pub path: Text,
    /// Connection settings of the bucket.
    #[serde(default)]
    pub s3: S3Settings,
    /// Where files may be.
    #[serde(skip)]
    #[schemars(skip)]
    pub(crate) within: Within,
    /// How files are compressed.
    #[serde(default)]
    pub compression: Compression,
    /// The delimiter between fields.
    #[serde(default)]
    pub delimiter: Delimiter,
    /// Whether the first line has the names of the columns. Otherwise they are `column_1` and so
    /// on.
    #[serde(default = "yes")]
    pub header: bool,
    /// The text that represents NULL unless it is quoted in the file. (In YAML a bare `null` is not
    /// a text.)
    #[serde(default)]
    pub null_text: String,
    /// Types of columns by name, as in SQL. The types of the others are inferred.
    #[serde(default)]
    pub columns: BTreeMap<String, String>,
    /// Number of rows of the first file that are examined to infer types.
    #[serde(default = "sample_rows")]
    pub sample_rows: NonZeroU32,
}

/// Files with one JSON object per line, as a source.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NdjsonSource {
    /// Directory that the streams' names are relative to: a path, or `s3://BUCKET/PREFIX`.
    pub path: Text,
    /// Connection settings of the bucket.
    #[serde(default)]
    pub s3: S3Settings,
    /// Where files may be.
    #[serde(skip)]
    #[schemars(skip)]
    pub(crate) within: Within,
    /// How files are compressed.
    #[serde(default)]
    pub compression: Compression,
    /// Types of columns by name, as in SQL. The types of the others are inferred.
    #[serde(default)]
    pub columns: BTreeMap<String, String>,
    /// Number of lines of the first file that are examined to infer columns and types.
    #[serde(default = "sample_rows")]
    pub sample_rows: NonZeroU32,
}

/// How the pages of a Parquet file are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ParquetCompression {
    /// Zstandard, level 1.
    Zstd,
    /// Snappy: supported by every reader, and the fastest to write.
    #[default]
    Snappy,
    /// LZ4.
    Lz4,
    /// Uncompressed.
    None,
}

fn row_group_size() -> ByteSize {
    ByteSize(16 << 20)
}

/// Parquet files as a destination.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ParquetDestination {
    /// Directory: a path, or `s3://BUCKET/PREFIX`. A stream's files are in a subdirectory with its
    /// name.
    pub path: Text,
    /// Connection settings of the bucket.
    #[serde(default)]
    pub s3: S3Settings,
    /// Where files may be.
    #[serde(skip)]
    #[schemars(skip)]
    pub(crate) within: Within,
    /// How pages are compressed.
    #[serde(default)]
    pub compression: ParquetCompression,
    /// Size of a row group in bytes. Each unit that is being written holds one in memory.
    #[serde(default = "row_group_size")]
    #[schemars(with = "String")]
    pub row_group_size: ByteSize,
}

/// Delta tables as a destination.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeltaDestination {
    /// Directory: a path, or `s3://BUCKET/PREFIX`. A stream's table is a subdirectory with its name.
    pub path: Text,
    /// Connection settings of the bucket.
    #[serde(default)]
    pub s3: S3Settings,
    /// Where files may be.
    #[serde(skip)]
    #[schemars(skip)]
    pub(crate) within: Within,
    /// How pages are compressed.
    #[serde(default)]
    pub compression: ParquetCompression,
    /// Size of a row group in bytes. Each unit that is being written holds one in memory.
    #[serde(default = "row_group_size")]
    #[schemars(with = "String")]
    pub row_group_size: ByteSize,
    /// Number of files of about one size, written by this stream, of which a run makes one when it ends. `write_mode: append`
    /// only. Zero: none are merged.
    #[serde(default)]
    #[schemars(range(max = 1_000))]
    pub merge_files: MergeFiles,
    /// How long data files stay after a merge, or a load with `write_mode: replace`, has taken them out of the table:
    /// readers of earlier versions need them. At least `1h`. Without it they stay until another program removes them.
    #[serde(default)]
    pub keep_removed: Option<KeepRemoved>,
}

/// The number of files that are merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, JsonSchema)]
#[schemars(with = "u32")]
pub struct MergeFiles(u32);

impl MergeFiles {
    /// The number; zero: none are merged.
    #[must_use]
    pub fn get(self) -> u32 {
        self.0
    }
}

impl<'de> Deserialize<'de> for MergeFiles {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u32::deserialize(deserializer)? {
            files @ (0 | 2..=1_000) => Ok(Self(files)),
            files => Err(serde::de::Error::custom(format!(
                "{files} files: use 2 to 1000, or 0 to merge none"
            ))),
        }
    }
}

/// How long removed files stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
#[schemars(with = "String")]
pub struct KeepRemoved(Duration);

impl KeepRemoved {
    /// The time.
    #[must_use]
    pub fn get(self) -> Duration {
        self.0
    }
}

impl<'de> Deserialize<'de> for KeepRemoved {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let kept = HumanDuration::deserialize(deserializer)?.get();
        if kept < KEEP_REMOVED_MIN {
            return Err(serde::de::Error::custom(
                "programs that read an earlier version need its files: use at least 1h",
            ));
        }
        Ok(Self(kept))
    }
}

/// CSV files as a destination.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CsvDestination {
    /// Directory: a path, or `s3://BUCKET/PREFIX`. A stream's files are in a subdirectory with its
    /// name.
    pub path: Text,
    /// Connection settings of the bucket.
    #[serde(default)]
    pub s3: S3Settings,
    /// Where files may be.
    #[serde(skip)]
    #[schemars(skip)]
    pub(crate) within: Within,
    /// How files are compressed: `gzip`, `zstd`, or `none`.
    #[serde(default)]
    pub compression: Compression,
    /// The delimiter between fields.
    #[serde(default)]
    pub delimiter: Delimiter,
    /// Whether the first line has the names of the columns.
    #[serde(default = "yes")]
    pub header: bool,
    /// The text that represents NULL. Equal texts are quoted.
    #[serde(default)]
    pub null_text: String,
}

/// Files with one JSON object per line, as a destination.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NdjsonDestination {
    /// Directory: a path, or `s3://BUCKET/PREFIX`. A stream's files are in a subdirectory with its
    /// name.
    pub path: Text,
    /// Connection settings of the bucket.
    #[serde(default)]
    pub s3: S3Settings,
    /// Where files may be.
    #[serde(skip)]
    #[schemars(skip)]
    pub(crate) within: Within,
    /// How files are compressed: `gzip`, `zstd`, or `none`.
    #[serde(default)]
    pub compression: Compression,
}

macro_rules! at {
    ($($settings:ty),*) => {$(
        impl $settings {
            /// The location of its files.
            pub(super) fn at(&self) -> At {
                At::Named(self.path.clone(), Box::new(self.s3.clone()), self.within.clone())
            }
        }
    )*};
}

macro_rules! file_settings {
    ($($settings:ty),*) => {$(
        impl FileSettings for $settings {
            fn s3(&mut self) -> &mut S3Settings {
                &mut self.s3
            }
        }
    )*};
}

at!(ParquetSource, CsvSource, NdjsonSource, ParquetDestination, CsvDestination, NdjsonDestination);
#[cfg(feature = "delta")]
at!(DeltaDestination);
file_settings!(
    ParquetSource,
    CsvSource,
    NdjsonSource,
    ParquetDestination,
    DeltaDestination,
    CsvDestination,
    NdjsonDestination
);
