//! Settings of `validate`.

use std::fmt;

use forebay_base::ByteSize;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::{self, Deserializer};

use crate::transform::settings::Columns;

/// Bytes a compiled pattern may take.
const PATTERN_SIZE_MAX: usize = 1 << 20;

/// Rules the rows of a stream have to keep.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ValidateSettings {
    /// The stream, by its name at the destination; the only one where it is not given.
    #[serde(default)]
    pub stream: Option<String>,
    /// What happens with a row that breaks a rule.
    #[serde(default)]
    pub on_failure: OnFailure,
    /// The rules. A row has to keep all of them.
    #[schemars(length(min = 1))]
    pub rules: Vec<Rule>,
}

/// What happens with a row that breaks a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// The run fails, and nothing of the unit is written.
    #[default]
    Fail,
    /// It is left out and counted.
    Skip,
    /// It is put aside at the destination, with the reason and where it came from.
    Dlq,
}

/// A rule. All but `not_null` take NULL as kept.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Rule {
    /// None of these columns is NULL.
    NotNull(Columns),
    /// A text matches a pattern.
    Regex(RegexRule),
    /// A number, date or time lies between two bounds, which belong to the range.
    Range(RangeRule),
    /// No two rows read in one run have the same values in these columns.
    Unique(UniqueRule),
    /// A value is one of a list.
    Enum(EnumRule),
}

/// A text matches a pattern.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RegexRule {
    /// The column.
    pub column: String,
    /// The pattern, found anywhere in the text unless it says `^` and `$`.
    pub pattern: Pattern,
}

/// A number, date or time lies between two bounds.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RangeRule {
    /// The column.
    pub column: String,
    /// The least value there may be.
    #[serde(default)]
    pub min: Option<Scalar>,
    /// The greatest value there may be.
    #[serde(default)]
    pub max: Option<Scalar>,
}

/// No two rows have the same values in some columns.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UniqueRule {
    /// The columns. A row with a NULL in one of them is like no other.
    pub columns: Columns,
    /// Memory for the keys that were seen (about 50 bytes each), beside that of the run. The run fails
    /// when it is used up.
    #[serde(default = "unique_memory")]
    #[schemars(with = "String")]
    pub memory: ByteSize,
}

/// A value is one of a list.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EnumRule {
    /// The column.
    pub column: String,
    /// The values there may be.
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
    /// Whether it is found in `text`.
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

/// A number, text, date or truth value, as it stands in the file.
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
            "description": "A number, text, date or truth value.",
            "type": ["number", "string", "boolean"],
        })
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // As a text: what a number looks like in the file is exact, a float need not be.
        String::deserialize(deserializer).map(Self)
    }
}
