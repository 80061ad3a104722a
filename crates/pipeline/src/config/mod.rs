//! The pipeline file: where rows are read, how they are transformed, and where they are written.
//!
//! One YAML file per pipeline. [`load()`] reads it, and [`json_schema`] describes it for editors.
//! Unknown fields are errors. Texts may contain names of environment variables (`${NAME}`) and of
//! files (`${file:/run/secrets/x}`); they are resolved while the file is read, and a [`Secret`](forebay_sdk::settings::Secret) is
//! never printed.

mod alerts;
mod aside;
mod in_use;
mod load;
mod permissions;
mod position;
mod section;

use std::num::{NonZeroU32, NonZeroU64};

use forebay_base::{ByteSize, HumanDuration};
use forebay_postgres::connector::Settings as PostgresSettings;
use forebay_sdk::settings::Compression;
use schemars::JsonSchema;
use serde::Deserialize;

pub use alerts::AlertSettings;
pub(crate) use in_use::current as registry_in_use;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use load::parse;
pub use load::{LoadError, json_schema, load};
pub use permissions::{Env, Fs, Limits, Network, Permissions};
pub use section::{DestinationSection, SourceSection};

use crate::transform::TransformSettings;

/// A pipeline file.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PipelineFile {
    /// Version of this format: 1.
    pub version: Version,
    /// Name of the pipeline. It identifies its state and its ledger.
    pub pipeline: Name,
    /// Where rows are read from.
    pub source: SourceSection,
    /// Transforms of the rows, in order.
    #[serde(default)]
    pub transforms: Vec<TransformSettings>,
    /// Where rows are written to.
    pub destination: DestinationSection,
    /// Where runs are recorded.
    #[serde(default)]
    pub state: StateSettings,
    /// Limits on the resources of a run.
    #[serde(default)]
    pub resources: Resources,
    /// Where runs report that they failed or fall behind.
    pub alerts: Option<AlertSettings>,
}

impl PipelineFile {
    /// Recommended number of threads of a run on a machine with this many processors.
    ///
    /// If rows are only copied from one PostgreSQL to another, each unit keeps two server processes
    /// busy. If these use all processors, every further thread here only competes with them; one
    /// thread moves more rows than four processors of a server produce or consume.
    #[must_use]
    pub fn threads(&self, processors: usize) -> usize {
        let hands_on = self.source.connector.occupies_server()
            && self.destination.connector.occupies_server()
            && self.transforms.is_empty();
        let servers = self.resources.units_at_once(processors).saturating_mul(2);
        if hands_on && servers > processors { processors.div_ceil(4) } else { processors.max(1) }
    }
}

/// The version of the format: `1`. Other tools write it as `"1.0"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version;

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct VersionVisitor;
        impl serde::de::Visitor<'_> for VersionVisitor {
            type Value = String;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("the version 1")
            }

            fn visit_u64<E>(self, version: u64) -> Result<String, E> {
                Ok(version.to_string())
            }

            fn visit_i64<E>(self, version: i64) -> Result<String, E> {
                Ok(version.to_string())
            }

            fn visit_f64<E>(self, version: f64) -> Result<String, E> {
                Ok(version.to_string())
            }

            fn visit_str<E>(self, version: &str) -> Result<String, E> {
                Ok(version.to_owned())
            }
        }
        match deserializer.deserialize_any(VersionVisitor)?.as_str() {
            "1" | "1.0" => Ok(Self),
            other => Err(serde::de::Error::custom(format_args!(
                "this Forebay reads version 1, but the file has version {other}"
            ))),
        }
    }
}

impl JsonSchema for Version {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Version".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "enum": [1, "1", "1.0"] })
    }
}

/// A name of 1 to 128 letters, digits, `.`, `_` and `-`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, JsonSchema)]
#[schemars(with = "String")]
pub struct Name(String);

impl Name {
    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if name.is_empty() || name.len() > 128 || !name.bytes().all(fits) {
            return Err(serde::de::Error::custom(format_args!(
                "the name {name:?} is invalid; use 1 to 128 letters, digits, '.', '_' or '-'"
            )));
        }
        Ok(Self(name))
    }
}

/// Where runs are recorded.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StateSettings {
    /// Where the records are kept.
    pub backend: StateBackend,
    /// Settings of the server, for `backend: postgres`.
    pub config: Option<PostgresSettings>,
}

/// Where runs are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StateBackend {
    /// In the file `pipelines.sqlite` in the data directory.
    #[default]
    Sqlite,
    /// In the table `pipeline_runs` of a PostgreSQL, in its `ledger_schema`, to share it between
    /// machines.
    Postgres,
}

/// Limits on the resources of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Resources {
    /// Maximum size in bytes of all batches in transit together.
    #[schemars(with = "String")]
    pub max_memory: ByteSize,
    /// Size of a batch in bytes; larger if a single row is. The default is 256 KiB if rows pass
    /// through unchanged, and 1 MiB as Arrow.
    #[schemars(with = "Option<String>")]
    pub max_batch_bytes: Option<ByteSize>,
    /// Maximum number of batches that wait between two stages; at most 64.
    #[schemars(range(max = 64))]
    pub max_inflight_batches: Option<NonZeroU32>,
    /// Whether and how batches are compressed while they wait.
    pub compression: Compression,
    /// Whether the number of parallel units and the parts of a table are chosen from the machine
    /// and the table if they are not set.
    pub autotune: bool,
    /// Number of units copied in parallel.
    pub parallelism: Option<NonZeroU32>,
    /// Size in bytes after which a unit is committed, if a stream can be divided.
    #[schemars(with = "String")]
    pub checkpoint_interval_bytes: ByteSize,
    /// Number of rows after which a unit is committed, if that is sooner and the source has an
    /// estimate of its rows.
    pub checkpoint_interval_rows: Option<NonZeroU64>,
    /// Seconds after which a unit is committed, if that is sooner. Converted to bytes at 64 MiB a
    /// second.
    pub checkpoint_interval_seconds: Option<NonZeroU32>,
    /// Number of times a unit is tried again after a failure that may be transient.
    pub max_retries: u32,
    /// Maximum delay before the first retry. It doubles before each further one, and each is
    /// shortened at random by up to half.
    #[schemars(with = "String")]
    pub retry_after: HumanDuration,
}

impl Default for Resources {
    fn default() -> Self {
        Self {
            max_memory: ByteSize(32 << 20),
            max_batch_bytes: None,
            max_inflight_batches: None,
            compression: Compression::None,
            autotune: true,
            parallelism: None,
            checkpoint_interval_bytes: ByteSize(256 << 20),
            checkpoint_interval_rows: None,
            checkpoint_interval_seconds: None,
            max_retries: 5,
            retry_after: HumanDuration(std::time::Duration::from_millis(200)),
        }
    }
}

impl Resources {
    /// Number of units copied in parallel on a machine with this many processors.
    #[must_use]
    pub fn units_at_once(&self, processors: usize) -> usize {
        let by_itself = if self.autotune { processors } else { 1 };
        let said = self.parallelism.map(|said| usize::try_from(said.get()).unwrap_or(usize::MAX));
        said.unwrap_or(by_itself).max(1)
    }
}

/// Bytes a second used to convert time.
const RATE: u64 = 64 << 20;

impl Resources {
    /// Maximum size in bytes of a unit, as far as known before a stream is open.
    pub(crate) fn unit_size(&self) -> u64 {
        let bytes = self.checkpoint_interval_bytes.0;
        let seconds = self.checkpoint_interval_seconds;
        seconds.map_or(bytes, |seconds| bytes.min(RATE.saturating_mul(seconds.get().into())))
    }

    /// The same for a stream with an estimated number of rows and bytes.
    pub(crate) fn unit_size_of(&self, rows: u64, bytes: u64) -> u64 {
        let by_rows = self.checkpoint_interval_rows.map(|each| {
            let size = u128::from(each.get()) * u128::from(bytes) / u128::from(rows.max(1));
            u64::try_from(size).unwrap_or(u64::MAX).max(1)
        });
        by_rows.map_or(u64::MAX, |size| size).min(self.unit_size())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_end_after_bytes_rows_or_seconds_whichever_is_first() {
        let said = |yaml: &str| serde_saphyr::from_str::<Resources>(yaml).unwrap();
        let bytes = said("checkpoint_interval_bytes: 100MiB");
        assert_eq!(bytes.unit_size_of(1_000, 1_000_000), 100 << 20);
        let rows = said("{checkpoint_interval_bytes: 100MiB, checkpoint_interval_rows: 50}");
        assert_eq!(rows.unit_size_of(1_000, 1_000_000), 50_000);
        assert_eq!(rows.unit_size_of(0, 0), 1);
        assert_eq!(rows.unit_size_of(1, u64::MAX), 100 << 20);
        let seconds = said("{checkpoint_interval_bytes: 100MiB, checkpoint_interval_seconds: 1}");
        assert_eq!(seconds.unit_size(), 64 << 20);
        assert!(serde_saphyr::from_str::<Resources>("checkpoint_interval_rows: 0").is_err());
    }
}
