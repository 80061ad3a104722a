//! Settings of `sql`.

use schemars::JsonSchema;
use serde::Deserialize;

/// A query over whole streams.
///
/// Every stream is a table of the name it has at the destination. The streams the query names are
/// consumed by it, and what it gives becomes one stream; all others flow on as they are.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SqlSettings {
    /// One `SELECT`, with `WITH` and `UNION` if need be. Names that are not plain lower case stand in
    /// double quotes.
    pub query: String,
    /// Name of the result at the destination. Where it is not given, that of the one stream the query
    /// names.
    #[serde(default)]
    pub into: Option<String>,
}
