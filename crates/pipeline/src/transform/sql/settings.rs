//! Settings of `sql`.

use schemars::JsonSchema;
use serde::Deserialize;

/// A query over whole streams.
///
/// Every stream is a table with its name at the destination. The query consumes the streams it
/// names, and its result becomes one stream. All others pass through unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SqlSettings {
    /// One `SELECT`, optionally with `WITH` and `UNION`. Names that are not lower case need double
    /// quotes.
    pub query: String,
    /// Name of the result at the destination. The default is the name of the stream that the query
    /// reads, if there is only one.
    #[serde(default)]
    pub into: Option<String>,
}
