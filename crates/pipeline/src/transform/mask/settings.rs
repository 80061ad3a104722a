//! Settings of `mask`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use forebay_sdk::settings::{Secret, Text};

/// Minimum length of a salt in bytes: a shorter one could be found by trying.
const SALT_SIZE_MIN: usize = 8;

/// Columns whose values are hidden from the destination.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(try_from = "MaskSaid")]
#[schemars(with = "MaskSaid")]
pub struct MaskSettings {
    /// Name of the stream at the destination. Not needed if there is only one.
    pub stream: Option<String>,
    /// Key of `hash`.
    pub salt: Option<Secret>,
    /// The mask of each column.
    pub columns: BTreeMap<String, Mask>,
}

/// How the values of a column are masked. NULL stays NULL.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Mask {
    /// HMAC-SHA-256 of the value under `salt`, as 64 hexadecimal digits. Equal values stay equal,
    /// so keys and joins still work. The column becomes `text`.
    Hash,
    /// A neutral value: `***` for texts, 0, `false`, 1970-01-01, an empty array.
    Redact,
    /// NULL.
    Nullify,
    /// A constant text. The column becomes `text`.
    Text(Text),
    /// A star for every character except some at the beginning or end. Only for texts.
    Partial(Partial),
}

/// Which characters stay visible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Partial {
    /// Number of visible characters at the beginning.
    pub first: u16,
    /// Number of visible characters at the end. A text that is not longer than both together
    /// becomes stars completely.
    pub last: u16,
}

/// Columns whose values are hidden from the destination.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MaskSaid {
    /// Name of the stream at the destination. Not needed if there is only one.
    #[serde(default)]
    stream: Option<String>,
    /// Key of `hash`, at least 8 bytes: `${MASK_SALT}`. Anyone who knows it can find values by
    /// trying.
    #[serde(default)]
    salt: Option<Secret>,
    /// The mask of each column: `email: hash`, `name: redact`, `card: {partial: {last: 4}}`.
    columns: BTreeMap<String, Mask>,
}

impl TryFrom<MaskSaid> for MaskSettings {
    type Error = String;

    fn try_from(said: MaskSaid) -> Result<Self, String> {
        let MaskSaid { stream, salt, columns } = said;
        if columns.is_empty() {
            return Err("`mask` lists no column".into());
        }
        if columns.values().any(|mask| *mask == Mask::Hash) {
            let size = salt.as_ref().map_or(0, |salt| salt.expose().len());
            if size < SALT_SIZE_MIN {
                return Err(format!(
                    "`hash` needs a `salt` of at least {SALT_SIZE_MIN} bytes (`salt: ${{MASK_SALT}}`), \
                     without it, values can be found from their hashes by trying"
                ));
            }
        }
        Ok(Self { stream, salt, columns })
    }
}
