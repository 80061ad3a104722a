//! Settings of `validate`.

use std::fmt;

use forebay_base::ByteSize;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::{self, Deserializer};

use crate::transform::settings::Columns;

/// Maximum size of a compiled pattern in bytes.
const PATTERN_SIZE_MAX: usize = 1 << 20;

/// Rules that the rows of a stream have to satisfy.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ValidateSettings {
    /// Name of the stream at the destination. Not needed if there is only one.
    #[serde(default)]
    pub stream: Option<String>,
    /// What to do with a row that violates a rule.
    #[serde(default)]
    pub on_failure: OnFailure,
    /// The rules. A row has to satisfy all of them.
    #[schemars(length(min = 1))]
    pub rules: Vec<Rule>,
}

/// What to do with a row that violates a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// Fail the run and write nothing of the unit.
    #[default]
    Fail,
    /// Skip the row and count it.
    Skip,
    /// Store the row as a dead letter at the destination, with the reason and its origin.
    Dlq,
}

/// A rule. All except `not_null` accept NULL.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Rule {
    /// These columns are not NULL.
    NotNull(Columns),
    /// A text matches a pattern.
    Regex(RegexRule),
    /// A number, date or time lies in a range, limits included.
    Range(RangeRule),
    /// Rows that are read in one run have different values in these columns.
    Unique(UniqueRule),
    /// A value is in a list.
    Enum(EnumRule),
}

/// A text matches a pattern.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RegexRule {
    /// The column.
    pub column: String,
    /// The pattern. It may match anywhere in the text unless it has `^` and `$`.
    pub pattern: Pattern,
}

/// A number, date or time lies in a range.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RangeRule {
    /// The column.
    pub column: String,
    /// The minimum, inclusive.
    #[serde(default)]
    pub min: Option<Scalar>,
    /// The maximum, inclusive.
    #[serde(default)]
    pub max: Option<Scalar>,
}

/// Rows have different values in these columns.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UniqueRule {
    /// The columns. A row with a NULL in one of them differs from all others.
    pub columns: Columns,
    /// Maximum memory for the keys seen (about 50 bytes each), in addition to that of the run. The
    /// run fails at the limit.
    #[serde(default = "unique_memory")]
    #[schemars(with = "String")]
    pub memory: ByteSize,
}

/// A value is in a list.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EnumRule {
    /// The column.
    pub column: String,
    /// The permitted values.
    #[schemars(length(min = 1))]
    pub values: Vec<Scalar>,
}

fn unique_memory() -> ByteSize {
    ByteSize(64 << 20)
}

/// A regular expression.
#[derive(Clone, JsonSchema)]
#[schemars(with = "String")]
pub struct Pattern(regex::Regex);

impl Pattern {
    /// Whether it matches `text`.
    #[must_use]
    pub fn is_found_in(&self, text: &str) -> bool {
        self.0.is_match(text)
    }

    /// As it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let built = regex::RegexBuilder::new(&text).size_limit(PATTERN_SIZE_MAX).build();
        built.map(Self).map_err(|error| de::Error::custom(format_args!("{error}")))
    }
}

/// A number, text, date or boolean, as in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scalar(pub String);

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl JsonSchema for Scalar {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Scalar".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "A number, text, date or boolean.",
            "type": ["number", "string", "boolean"],
        })
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // As a text: a number's text in the file is exact, a float is not necessarily.
        String::deserialize(deserializer).map(Self)
    }
}
