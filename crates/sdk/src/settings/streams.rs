//! Settings of a stream: which rows are read, and how they are written to a target.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a stream is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SyncMode {
    /// All rows, in every run.
    #[default]
    FullRefresh,
    /// Rows that are new since the last run, by a cursor field.
    Incremental,
    /// All rows once, and then every change, from the database's log.
    Cdc,
}

/// A stream to read.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StreamSettings {
    /// Name in the source: `schema.table`, a collection, or a pattern of files.
    pub name: String,
    /// Name in the destination. The default is the last part of `name`.
    #[serde(default)]
    pub into: Option<String>,
    /// Which rows are read.
    #[serde(default)]
    pub sync_mode: SyncMode,
    /// Column that increases with every change, for `incremental`.
    #[serde(default)]
    pub cursor_field: Option<String>,
    /// Column that distinguishes rows with the same cursor value, for `incremental`.
    #[serde(default)]
    pub tie_breaker_field: Option<String>,
    /// Column whose ranges are read in parallel.
    #[serde(default)]
    pub partition_key: Option<String>,
    /// Columns to read, in this order. An empty list reads all.
    #[serde(default)]
    pub columns: Vec<String>,
}

/// How rows are combined with existing rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WriteMode {
    /// Rows are appended.
    #[default]
    Append,
    /// Rows replace all existing rows, at once, when the load is complete.
    Replace,
    /// Rows replace existing rows with the same key.
    Upsert,
}

/// What to do with a row that the destination refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnDataError {
    /// Fail the run and write nothing of the unit.
    #[default]
    Fail,
    /// Skip the row and count it.
    Skip,
    /// Store the row as a dead letter, with the reason and its origin.
    Dlq,
}

/// What becomes of a row that was deleted at a source whose changes are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeletedRows {
    /// It is deleted at the destination.
    #[default]
    Delete,
    /// It stays, with the time of its deletion in the column `_deleted_at`.
    Mark,
}

/// What to do when the source no longer has the changes that follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnLost {
    /// Fail the run.
    #[default]
    Fail,
    /// Copy the tables again, in the place of what is at the destination, and follow them from there.
    CopyAgain,
}

/// What changes become at a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FeedForm {
    /// The rows, as they are at the source.
    #[default]
    Apply,
    /// The same, but deleted rows stay, with the time of their deletion.
    Mark,
    /// A row for each change.
    Log,
}

/// How rows are sent to a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LoadMethod {
    /// By binary COPY.
    #[default]
    Copy,
    /// By multi-row INSERT.
    Insert,
}

/// What to do when the source has a column that the destination lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NewColumn {
    /// Add the column.
    #[default]
    Add,
    /// Leave the column out.
    Ignore,
    /// Fail the run.
    Fail,
}

/// What to do when the destination has a column that the source lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RemovedColumn {
    /// Keep the column. New rows get its default.
    #[default]
    Ignore,
    /// Fail the run.
    Fail,
}

/// What to do when a column has another type than in the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TypeChange {
    /// Fail the run.
    #[default]
    Fail,
    /// Change the column to the source's type, if its values can be cast.
    Alter,
}

/// What to do when a column is NOT NULL in the destination, but nullable in the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NullabilityChange {
    /// Make the column nullable.
    #[default]
    Allow,
    /// Fail the run.
    Fail,
}

/// How the destination follows changes of the source's columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SchemaEvolution {
    /// A column that only the source has.
    pub new_column: NewColumn,
    /// A column that only the destination has.
    pub removed_column: RemovedColumn,
    /// A column whose type differs.
    pub type_change: TypeChange,
    /// A column that is nullable only in the source.
    pub nullability_change: NullabilityChange,
}

/// Where and how one stream is written.
#[derive(Debug, Clone)]
pub struct TargetSettings {
    /// Name of the pipeline.
    pub pipeline: String,
    /// Name of the stream in the source.
    pub stream: String,
    /// Its name in the destination.
    pub into: String,
    /// How rows are combined with existing rows.
    pub write_mode: WriteMode,
    /// Key columns for `upsert`.
    pub primary_key: Vec<String>,
    /// What to do with refused rows.
    pub on_data_error: OnDataError,
    /// How the destination follows changes of the source's columns.
    pub schema_evolution: SchemaEvolution,
    /// How rows are sent.
    pub load_method: LoadMethod,
    /// What changes become, if they are followed.
    pub feed: FeedForm,
}

/// How batches are compressed while they wait between two stages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Compression {
    /// No compression.
    #[default]
    None,
    /// LZ4: fast.
    Lz4,
    /// Zstandard: smaller.
    Zstd,
}

/// Suffixes of files that do not describe their contents.
const ENDINGS: [&str; 9] =
    ["parquet", "csv", "tsv", "ndjson", "jsonl", "json", "gz", "gzip", "zst"];

impl StreamSettings {
    /// Name in the destination: `into`, or the last part of `name`. For `sales/orders-*.csv.gz`
    /// that is `orders`, for `sales/*.csv` it is `sales`, for `public.orders` it is `orders`. A part in quotes loses them if
    /// it is the same without.
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
            return last_part(path);
        }
        let mut named = path.rsplit('/').filter_map(|part| {
            let literal = part.split(['*', '?', '[', '{']).next().unwrap_or_default();
            let literal = literal.trim_end_matches(['-', '_', '.']);
            (!literal.is_empty()).then_some(literal)
        });
        named.next().unwrap_or(&self.name)
    }
}

/// The last part of a name whose parts are separated by dots, and may be in double quotes.
fn last_part(name: &str) -> &str {
    let (mut is_quoted, mut start) = (false, 0);
    for (at, byte) in name.bytes().enumerate() {
        match byte {
            b'"' => is_quoted = !is_quoted,
            b'.' if !is_quoted => start = at + 1,
            _ => {}
        }
    }
    if is_quoted {
        // Quotes that are a part of the name.
        return name.rsplit('.').next().unwrap_or(name);
    }
    let part = name.get(start..).unwrap_or(name);
    let inner = part.strip_prefix('"').and_then(|part| part.strip_suffix('"'));
    inner.filter(|inner| !inner.is_empty() && !inner.contains(['.', '"'])).unwrap_or(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_at_the_destination_is_the_last_part_of_the_name() {
        for (name, target) in [
            ("orders", "orders"),
            ("public.orders", "orders"),
            ("orders.csv", "orders"),
            ("sales/orders-*.csv.gz", "orders"),
            ("sales/*.parquet", "sales"),
            ("*.csv", "*.csv"),
            ("sales/2026/", "2026"),
            ("public.\"a.b\"", "\"a.b\""),
            ("\"a.b\".\"T\"", "T"),
            ("\"a\"\"b\"", "\"a\"\"b\""),
            ("db.odd\"name", "odd\"name"),
        ] {
            let stream: StreamSettings =
                serde_json::from_value(serde_json::json!({ "name": name })).unwrap();
            assert_eq!(stream.target(), target, "{name}");
        }
    }
}
