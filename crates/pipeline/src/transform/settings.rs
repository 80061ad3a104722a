//! `transforms` of the pipeline file.
//!
//! A step is a mapping with one key, which selects its kind: `- mask: {...}`. What can be checked
//! without knowing the columns (patterns, masks without a salt) is checked while the file is read,
//! so that the error has a line.

use std::fmt;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor};

pub use super::component::settings::ComponentSettings;
pub use super::mask::settings::{Mask, MaskSettings, Partial};
pub use super::sql::settings::SqlSettings;
pub use super::validate::settings::{
    EnumRule, OnFailure, Pattern, RangeRule, RegexRule, Rule, Scalar, UniqueRule, ValidateSettings,
};

/// One step of `transforms`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TransformSettings {
    /// A query over whole streams. Its result replaces the streams it names.
    Sql(SqlSettings),
    /// Rules that the rows of a stream have to satisfy.
    Validate(ValidateSettings),
    /// Columns whose values are hidden from the destination.
    Mask(MaskSettings),
    /// A component that transforms the rows of a stream.
    Component(ComponentSettings),
}

/// Names of columns: a single name, or a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Columns(pub Vec<String>);

impl<'de> Deserialize<'de> for Columns {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ColumnsVisitor)
    }
}

impl JsonSchema for Columns {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Columns".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "Names of columns: a single name, or a list.",
            "anyOf": [
                { "type": "string" },
                { "type": "array", "items": { "type": "string" }, "minItems": 1 },
            ],
        })
    }
}

struct ColumnsVisitor;

impl<'de> Visitor<'de> for ColumnsVisitor {
    type Value = Columns;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a column or a list of names")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<Columns, E> {
        Ok(Columns(vec![name.to_owned()]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut names: A) -> Result<Columns, A::Error> {
        let mut columns = Vec::new();
        while let Some(name) = names.next_element::<String>()? {
            if columns.contains(&name) {
                return Err(de::Error::custom(format_args!("{name:?} is listed twice")));
            }
            columns.push(name);
        }
        if columns.is_empty() {
            return Err(de::Error::custom("no column is listed"));
        }
        Ok(Columns(columns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(yaml: &str) -> Result<Vec<TransformSettings>, String> {
        serde_saphyr::from_str(yaml).map_err(|error| error.to_string())
    }

    #[test]
    fn every_step_is_read() {
        let yaml = r#"
- sql: { query: "select 1", into: totals }
- validate:
    stream: orders
    on_failure: dlq
    rules:
      - not_null: [id, email]
      - not_null: name
      - regex: { column: email, pattern: '^[^@]+@[^@]+$' }
      - range: { column: amount, min: 0.10, max: 12345678901234567890.123 }
      - range: { column: day, min: 2020-01-01 }
      - unique: { columns: [id, region], memory: 16MiB }
      - enum: { column: status, values: [open, paid, 3, true] }
- mask:
    salt: a long enough salt
    columns: { email: hash, name: redact, phone: nullify, note: { text: gone }, card: { partial: { last: 4 } } }
"#;
        let steps = read(yaml).unwrap();
        let [
            TransformSettings::Sql(sql),
            TransformSettings::Validate(validate),
            TransformSettings::Mask(mask),
        ] = steps.as_slice()
        else {
            panic!("{steps:?}")
        };
        assert_eq!(sql.into.as_deref(), Some("totals"));
        assert_eq!(validate.rules.len(), 7);
        let Rule::Range(range) = &validate.rules[3] else { panic!("{:?}", validate.rules[3]) };
        assert_eq!(range.min, Some(Scalar("0.10".into())));
        assert_eq!(range.max, Some(Scalar("12345678901234567890.123".into())), "numbers are exact");
        let Rule::Enum(one_of) = &validate.rules[6] else { panic!("{:?}", validate.rules[6]) };
        assert_eq!(one_of.values[3], Scalar("true".into()));
        assert_eq!(mask.columns["card"], Mask::Partial(Partial { first: 0, last: 4 }));
        assert_eq!(mask.columns["phone"], Mask::Nullify);
    }

    #[test]
    fn what_cannot_be_is_said_where_it_stands() {
        for (yaml, expected) in [
            ("- mask: { columns: { a: hash } }", "salt"),
            ("- mask: { salt: short, columns: { a: hash } }", "8 bytes"),
            ("- mask: { columns: {} }", "no column"),
            ("- mask: { columns: { a: scramble } }", "scramble"),
            ("- validate: { rules: [{ regex: { column: a, pattern: '(' } }] }", "unclosed group"),
            ("- validate: { rules: [{ not_null: [] }] }", "no column"),
            ("- validate: { rules: [{ not_null: [a, a] }] }", "twice"),
            ("- validate: { rules: [{ odd: a }] }", "odd"),
            ("- sql: { querry: x }", "querry"),
        ] {
            let error = read(yaml).unwrap_err();
            assert!(error.contains(expected), "{yaml}: {error}");
        }
    }

    #[test]
    fn salts_are_not_printed() {
        let steps = read("- mask: { salt: a long enough salt, columns: { a: hash } }").unwrap();
        assert!(!format!("{steps:?}").contains("long enough"), "{steps:?}");
    }
}
