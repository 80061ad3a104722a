//! The pipeline file: what is read from where, what is made of it, and where it goes.
//!
//! One YAML file a pipeline; [`load()`] reads it, and [`json_schema`] tells editors what may stand in it.
//! Unknown fields are errors. Texts may name variables of the environment (`${NAME}`) and files
//! (`${file:/run/secrets/x}`); what they stand for is resolved while the file is read, and a [`Secret`]
//! is never printed.

mod load;
pub(crate) mod permissions;
pub(crate) mod section;
mod text;

use std::num::{NonZeroU32, NonZeroU64};

use forebay_base::{ByteSize, HumanDuration};
use schemars::JsonSchema;
use serde::Deserialize;

pub use load::{LoadError, json_schema, load};
pub use permissions::{Env, Fs, Limits, Network, Permissions};
pub use section::{DestinationSection, SourceSection};
pub use text::{Resolve, Secret, Text};

use crate::native::postgres::Settings as PostgresSettings;
use crate::transform::TransformSettings;

/// A whole pipeline file.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PipelineFile {
    /// Version of this format: 1.
    pub version: Version,
    /// Name of the pipeline: the key of its state and of its ledger.
    pub pipeline: Name,
    /// Where rows come from.
    pub source: SourceSection,
    /// What is made of them on the way, in order.
    #[serde(default)]
    pub transforms: Vec<TransformSettings>,
    /// Where they go.
    pub destination: DestinationSection,
    /// Where runs are remembered.
    #[serde(default)]
    pub state: StateSettings,
    /// What a run may take.
    #[serde(default)]
    pub resources: Resources,
}

impl PipelineFile {
    /// How many threads a run does best with on a machine of so many processors.
    ///
    /// Where rows are only handed on from one PostgreSQL to another, each unit keeps two processes of the
    /// servers busy. If these take all processors there are, every further thread here only takes turns
    /// with them; one moves more rows than four processors of a server give or take.
    #[must_use]
    pub fn threads(&self, processors: usize) -> usize {
        use crate::native::{DestinationSettings, SourceSettings};
        let hands_on = matches!(self.source.connector, SourceSettings::Postgres(_))
            && matches!(self.destination.connector, DestinationSettings::Postgres(_))
            && self.transforms.is_empty();
        let servers = self.resources.units_at_once(processors).saturating_mul(2);
        if hands_on && servers > processors { processors.div_ceil(4) } else { processors.max(1) }
    }
}

/// The version of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
#[schemars(with = "u32")]
pub struct Version;

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u64::deserialize(deserializer)? {
            1 => Ok(Self),
            other => Err(serde::de::Error::custom(format_args!(
                "this Forebay reads version 1, the file says {other}"
            ))),
        }
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
                "the name {name:?} is not 1 to 128 letters, digits, '.', '_' or '-'"
            )));
        }
        Ok(Self(name))
    }
}

/// How a stream is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SyncMode {
    /// All of it, every time.
    #[default]
    FullRefresh,
    /// What came after the last time, by a cursor field.
    Incremental,
    /// By the changes the database logs. Refused until it exists.
    Cdc,
}

/// A stream to be read.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StreamSettings {
    /// Its name in the source: `schema.table`, a collection, a pattern of files.
    pub name: String,
    /// Its name in the destination; the last part of `name` where it is not given.
    #[serde(default)]
    pub into: Option<String>,
    /// How it is read.
    #[serde(default)]
    pub sync_mode: SyncMode,
    /// Column that grows with every change, for `incremental`.
    #[serde(default)]
    pub cursor_field: Option<String>,
    /// Column that tells rows of the same cursor value apart, for `incremental`.
    #[serde(default)]
    pub tie_breaker_field: Option<String>,
    /// Column whose ranges are read at once.
    #[serde(default)]
    pub partition_key: Option<String>,
    /// Columns to be read, in this order; all where it is empty.
    #[serde(default)]
    pub columns: Vec<String>,
}

/// How rows meet those that are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WriteMode {
    /// They are added.
    #[default]
    Append,
    /// They take the place of all there are, at once, when all of them are there.
    Replace,
    /// They take the place of those with the same key.
    Upsert,
}

/// What happens with a row the destination does not take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnDataError {
    /// The run fails, and nothing of the unit is written.
    #[default]
    Fail,
    /// It is left out and counted.
    Skip,
    /// It is put aside, with the reason and where it came from.
    Dlq,
}

/// How rows are handed to a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LoadMethod {
    /// By binary COPY.
    #[default]
    Copy,
    /// By INSERT of many rows.
    Insert,
}

/// What happens when the source has a column the destination has not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NewColumn {
    /// It is added.
    #[default]
    Add,
    /// It is left out.
    Ignore,
    /// The run fails.
    Fail,
}

/// What happens when the destination has a column the source has not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RemovedColumn {
    /// It stays and gets its default.
    #[default]
    Ignore,
    /// The run fails.
    Fail,
}

/// What happens when a column has another type than in the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TypeChange {
    /// The run fails.
    #[default]
    Fail,
    /// The column is given the source's type, where its values can be cast.
    Alter,
}

/// What happens when a column that may not be NULL in the destination may be in the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NullabilityChange {
    /// The column is allowed NULL.
    #[default]
    Allow,
    /// The run fails.
    Fail,
}

/// How the destination follows the source's columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SchemaEvolution {
    /// A column only the source has.
    pub new_column: NewColumn,
    /// A column only the destination has.
    pub removed_column: RemovedColumn,
    /// A column of another type.
    pub type_change: TypeChange,
    /// A column that may be NULL in the source alone.
    pub nullability_change: NullabilityChange,
}

/// Where one stream goes, and how.
#[derive(Debug, Clone)]
pub struct TargetSettings {
    /// Name of the pipeline.
    pub pipeline: String,
    /// Name of the stream in the source.
    pub stream: String,
    /// Its name in the destination.
    pub into: String,
    /// How rows meet those that are there.
    pub write_mode: WriteMode,
    /// The key for `upsert`.
    pub primary_key: Vec<String>,
    /// What happens with rows that are not taken.
    pub on_data_error: OnDataError,
    /// How the destination follows the source's columns.
    pub schema_evolution: SchemaEvolution,
    /// How rows are handed over.
    pub load_method: LoadMethod,
}

/// Where runs are remembered.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StateSettings {
    /// What keeps them, beside the data directory.
    pub backend: StateBackend,
    /// Of `postgres`: how the server is reached.
    pub config: Option<PostgresSettings>,
}

/// What remembers runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StateBackend {
    /// A file `pipelines.sqlite` in the data directory.
    #[default]
    Sqlite,
    /// The table `pipeline_runs` of a PostgreSQL, in its `ledger_schema`: for several machines.
    Postgres,
}

/// How batches are compressed while they wait between two stages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// LZ4: little effort.
    Lz4,
    /// Zstandard: smaller.
    Zstd,
}

/// What a run may take, and how it goes about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Resources {
    /// Bytes that batches on their way may take together.
    #[schemars(with = "String")]
    pub max_memory: ByteSize,
    /// Bytes of a batch; larger where a single row is. By default 256 KiB where rows go through as they
    /// are, 1 MiB as Arrow.
    #[schemars(with = "Option<String>")]
    pub max_batch_bytes: Option<ByteSize>,
    /// Batches that wait between two stages at most.
    pub max_inflight_batches: Option<NonZeroU32>,
    /// Whether batches are compressed while they wait.
    pub compression: Compression,
    /// Whether parallelism and the parts of a table are chosen by the machine and the table, where nothing
    /// is said of them.
    pub autotune: bool,
    /// Units that are copied at once.
    pub parallelism: Option<NonZeroU32>,
    /// Bytes after which a unit is committed, where a stream can be divided.
    #[schemars(with = "String")]
    pub checkpoint_interval_bytes: ByteSize,
    /// Rows after which one is, if that is sooner and the source knows about how many it has.
    pub checkpoint_interval_rows: Option<NonZeroU64>,
    /// Seconds after which one is, if that is sooner: as many bytes as 64 MiB a second make.
    pub checkpoint_interval_seconds: Option<NonZeroU32>,
    /// How often a unit is tried again after a failure that may pass.
    pub max_retries: u32,
    /// How long to wait before the first of them; twice as long before each further.
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
    /// Units that are copied at once on a machine of so many processors.
    #[must_use]
    pub fn units_at_once(&self, processors: usize) -> usize {
        let by_itself = if self.autotune { processors } else { 1 };
        let said = self.parallelism.map(|said| usize::try_from(said.get()).unwrap_or(usize::MAX));
        said.unwrap_or(by_itself).max(1)
    }
}

/// Bytes a second that time is turned into.
const RATE: u64 = 64 << 20;

impl Resources {
    /// Bytes a unit should have at most, as far as that is known before a stream is open.
    pub(crate) fn unit_size(&self) -> u64 {
        let bytes = self.checkpoint_interval_bytes.0;
        let seconds = self.checkpoint_interval_seconds;
        seconds.map_or(bytes, |seconds| bytes.min(RATE.saturating_mul(seconds.get().into())))
    }

    /// The same of a stream of about so many rows and bytes.
    pub(crate) fn unit_size_of(&self, rows: u64, bytes: u64) -> u64 {
        let by_rows = self.checkpoint_interval_rows.map(|each| {
            let size = u128::from(each.get()) * u128::from(bytes) / u128::from(rows.max(1));
            u64::try_from(size).unwrap_or(u64::MAX).max(1)
        });
        by_rows.map_or(u64::MAX, |size| size).min(self.unit_size())
    }
}

/// Endings of files that are no part of what they hold.
const ENDINGS: [&str; 9] =
    ["parquet", "csv", "tsv", "ndjson", "jsonl", "json", "gz", "gzip", "zst"];

impl StreamSettings {
    /// Its name in the destination: `into`, or what `name` ends with. Of `sales/orders-*.csv.gz` that is
    /// `orders`, of `sales/*.csv` it is `sales`, of `public.orders` it is `orders`.
    #[must_use]
    pub fn target(&self) -> &str {
        if let Some(into) = &self.into {
            return into;
        }
        let mut path = self.name.as_str();
        while let Some((before, ending)) = path.rsplit_once('.')
            && ENDINGS.contains(&ending)
        {
            path = before;
        }
        let is_file = path.len() < self.name.len() || self.name.contains(['/', '*']);
        if !is_file {
            return path.rsplit('.').next().unwrap_or(path);
        }
        let mut named = path.rsplit('/').filter_map(|part| {
            let literal = part.split(['*', '?', '[', '{']).next().unwrap_or_default();
            let literal = literal.trim_end_matches(['-', '_', '.']);
            (!literal.is_empty()).then_some(literal)
        });
        named.next().unwrap_or(&self.name)
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

    #[test]
    fn a_stream_goes_into_what_its_name_is_about() {
        for (name, target) in [
            ("orders", "orders"),
            ("public.orders", "orders"),
            ("orders.csv", "orders"),
            ("sales/orders-*.csv.gz", "orders"),
            ("sales/*.parquet", "sales"),
            ("*.csv", "*.csv"),
            ("sales/2026/", "2026"),
        ] {
            let stream: StreamSettings =
                serde_json::from_value(serde_json::json!({ "name": name })).unwrap();
            assert_eq!(stream.target(), target, "{name}");
        }
    }
}
