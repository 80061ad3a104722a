//! Settings of `mask`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::{Secret, Text};

/// Bytes a salt has at least: less could be tried through.
const SALT_SIZE_MIN: usize = 8;

/// Columns whose values must not be seen at the destination.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(try_from = "MaskSaid")]
#[schemars(with = "MaskSaid")]
pub struct MaskSettings {
    /// The stream, by its name at the destination; the only one where it is not given.
    pub stream: Option<String>,
    /// Key of `hash`.
    pub salt: Option<Secret>,
    /// What is done with which column.
    pub columns: BTreeMap<String, Mask>,
}

/// What is done with the values of a column. NULL stays NULL.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Mask {
    /// HMAC-SHA-256 of the value under `salt`, as 64 hexadecimal digits: equal values stay equal, so
    /// that keys and joins still work. The column becomes `text`.
    Hash,
    /// A value that says nothing: `***` for texts, 0, `false`, 1970-01-01, an empty array.
    Redact,
    /// NULL.
    Nullify,
    /// This text. The column becomes `text`.
    Text(Text),
    /// A star for every character but some at the beginning or end. Only for texts.
    Partial(Partial),
}

/// Which characters stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Partial {
    /// Characters at the beginning that stay.
    pub first: u16,
    /// Characters at the end that stay. A text that has no more than both together becomes stars
    /// altogether.
    pub last: u16,
}

/// Columns whose values must not be seen at the destination.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MaskSaid {
    /// The stream, by its name at the destination; the only one where it is not given.
    #[serde(default)]
    stream: Option<String>,
    /// Key of `hash`, at least 8 bytes: `${MASK_SALT}`. Who knows it can try values through.
    #[serde(default)]
    salt: Option<Secret>,
    /// What is done with which column: `email: hash`, `name: redact`, `card: {partial: {last: 4}}`.
    columns: BTreeMap<String, Mask>,
}

impl TryFrom<MaskSaid> for MaskSettings {
    type Error = String;

    fn try_from(said: MaskSaid) -> Result<Self, String> {
        let MaskSaid { stream, salt, columns } = said;
        if columns.is_empty() {
            return Err("`mask` names no column".into());
        }
        if columns.values().any(|mask| *mask == Mask::Hash) {
            let size = salt.as_ref().map_or(0, |salt| salt.expose().len());
            if size < SALT_SIZE_MIN {
                return Err(format!(
                    "`hash` needs a `salt` of at least {SALT_SIZE_MIN} bytes (`salt: ${{MASK_SALT}}`), \
                     else whoever reads the hashes can find the values by trying"
                ));
            }
        }
        Ok(Self { stream, salt, columns })
    }
}
