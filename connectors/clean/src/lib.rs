//! A transform that trims texts, and makes empty ones NULL: the shortest example of one.
//!
//! Invariant: rows stay in their order, and only texts change.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, RecordBatch, StringArray};
use arrow::datatypes::SchemaRef;
use forebay_pgcopy::column::schema;
use forebay_pgcopy::{Column, Wire};
use forebay_sdk::ConnectorError;
use forebay_sdk::connector::Result;
use forebay_sdk::registry::ConnectorSettings;
use forebay_sdk::settings::Reach;
use forebay_sdk::transform::{Applied, Position, Transform, TransformSettings};
use schemars::JsonSchema;
use serde::Deserialize;

/// Settings of the transform.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Columns whose texts are trimmed. An empty list stands for all columns of type text.
    pub columns: Vec<String>,
    /// Whether empty texts stay as they are.
    pub keep_empty: bool,
}

impl ConnectorSettings for Settings {
    fn reach(&self) -> Reach {
        Reach::default()
    }
}

#[async_trait::async_trait]
impl TransformSettings for Settings {
    async fn transform(&self, stream: &str, columns: &[Column]) -> Result<Arc<dyn Transform>> {
        let is_text = |column: &Column| column.wire == Wire::Text && column.sql_type != "json";
        for name in &self.columns {
            match columns.iter().find(|column| &column.name == name) {
                None => {
                    return Err(ConnectorError::unsupported(
                        format!("{stream} has no column {name:?}"),
                        "correct `columns`",
                    ));
                }
                Some(column) if !is_text(column) => {
                    return Err(ConnectorError::unsupported(
                        format!("{name:?} is {}, which has no spaces to trim", column.sql_type),
                        "remove it from `columns`",
                    ));
                }
                Some(_) => {}
            }
        }
        let is_cleaned = |column: &Column| match self.columns.as_slice() {
            [] => is_text(column),
            wanted => wanted.contains(&column.name),
        };
        let cleaned: Vec<bool> = columns.iter().map(is_cleaned).collect();
        let mut after = columns.to_vec();
        for (column, is_cleaned) in after.iter_mut().zip(&cleaned) {
            column.nullable |= *is_cleaned && !self.keep_empty;
        }
        Ok(Arc::new(Clean {
            schema: schema(&after).into(),
            columns: after,
            cleaned,
            keep_empty: self.keep_empty,
        }))
    }
}

/// The transform of a stream.
struct Clean {
    columns: Vec<Column>,
    schema: SchemaRef,
    /// Of each column whether it is cleaned.
    cleaned: Vec<bool>,
    keep_empty: bool,
}

impl Clean {
    fn cleaned(&self, texts: &ArrayRef) -> Result<ArrayRef> {
        let Some(texts) = texts.as_string_opt::<i32>() else {
            let found = format!("a text is {}", texts.data_type());
            return Err(ConnectorError::data("the rows", found));
        };
        let trimmed = texts
            .iter()
            .map(|text| text.map(str::trim).filter(|text| self.keep_empty || !text.is_empty()));
        Ok(Arc::new(trimmed.collect::<StringArray>()))
    }
}

#[async_trait::async_trait]
impl Transform for Clean {
    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn is_stable(&self) -> bool {
        true
    }

    fn note(&self) -> String {
        let cleaned = self.columns.iter().zip(&self.cleaned).filter(|(_, is_cleaned)| **is_cleaned);
        let names: Vec<&str> = cleaned.map(|(column, _)| column.name.as_str()).collect();
        format!("trims {}", names.join(", "))
    }

    async fn apply(&self, _: Position<'_>, records: RecordBatch) -> Result<Applied> {
        let arrays = records.columns().iter().zip(&self.cleaned);
        let arrays = arrays.map(|(array, is_cleaned)| match is_cleaned {
            true => self.cleaned(array),
            false => Ok(Arc::clone(array)),
        });
        let arrays = arrays.collect::<Result<Vec<_>>>()?;
        let records = RecordBatch::try_new(Arc::clone(&self.schema), arrays)
            .map_err(|error| ConnectorError::data("the rows", error.to_string()))?;
        Ok(Applied { records, dead: Vec::new(), skipped: 0 })
    }
}

#[cfg(target_family = "wasm")]
forebay_guest::transform!(Settings);
