//! Finding the streams and columns that a step names.

use std::collections::BTreeSet;
use std::sync::Arc;

use forebay_pgcopy::Column;

use super::settings::TransformSettings;
use crate::connector::{Result, SourceStream};
use crate::error::ConnectorError;

/// Names that are listed where one is not known.
const LISTED_MAX: usize = 30;

/// A stream and the name it has at the destination.
pub(super) type Named = (String, Arc<dyn SourceStream>);

/// The index of the stream a step is for: the one it names, or the only one there is.
pub(super) fn find(streams: &[Named], said: Option<&str>, step: &str) -> Result<usize> {
    let names = || listed(streams.iter().map(|(name, _)| name.as_str()));
    match said {
        Some(said) => streams.iter().position(|(name, _)| name == said).ok_or_else(|| {
            ConnectorError::unsupported(
                format!("{step} is for the stream {said:?}, which does not come to it"),
                format!("those that do are {}", names()),
            )
        }),
        None if streams.len() == 1 => Ok(0),
        None => Err(ConnectorError::unsupported(
            format!("{step} does not say which stream it is for"),
            format!("add `stream:` with one of {}", names()),
        )),
    }
}

/// The index of a column.
pub(super) fn column(columns: &[Column], name: &str, step: &str) -> Result<usize> {
    columns.iter().position(|column| column.name == name).ok_or_else(|| {
        ConnectorError::unsupported(
            format!("{step} names the column {name:?}, which is not there"),
            format!(
                "those that are: {}",
                listed(columns.iter().map(|column| column.name.as_str()))
            ),
        )
    })
}

/// Columns of a stream that later steps mask: their values are not to be seen before either.
///
/// Behind a query any stream may have them, so all masks there count.
pub(super) fn masked_later(later: &[TransformSettings], stream: &str) -> BTreeSet<String> {
    let mut masked = BTreeSet::new();
    let mut is_behind_query = false;
    for step in later {
        match step {
            TransformSettings::Sql(_) => is_behind_query = true,
            TransformSettings::Mask(mask) => {
                let is_for = mask.stream.as_deref().is_none_or(|name| name == stream);
                if is_for || is_behind_query {
                    masked.extend(mask.columns.keys().cloned());
                }
            }
            TransformSettings::Validate(_) => {}
        }
    }
    masked
}

/// Names in a row, not too many.
pub(super) fn listed<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let more = names.len().saturating_sub(LISTED_MAX);
    let mut list = names.take(LISTED_MAX).collect::<Vec<_>>().join(", ");
    if more > 0 {
        list.push_str(&format!(" and {more} more"));
    }
    if list.is_empty() { "none".into() } else { list }
}
