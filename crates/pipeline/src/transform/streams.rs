//! Finding the streams and columns that a step refers to.

use std::collections::BTreeSet;
use std::sync::Arc;

use forebay_pgcopy::Column;
use forebay_sdk::connector::{Result, SourceStream};
use forebay_sdk::error::ConnectorError;

use super::settings::TransformSettings;

/// Maximum number of names listed in an error.
const LISTED_MAX: usize = 30;

/// A stream and its name at the destination.
pub(super) type Named = (String, Arc<dyn SourceStream>);

/// The index of the stream that a step is for: the one it names, or the only one.
pub(super) fn find(streams: &[Named], said: Option<&str>, step: &str) -> Result<usize> {
    let names = || listed(streams.iter().map(|(name, _)| name.as_str()));
    match said {
        Some(said) => streams.iter().position(|(name, _)| name == said).ok_or_else(|| {
            ConnectorError::unsupported(
                format!("{step} refers to the stream {said:?}, which does not exist at this step"),
                format!("the streams are {}", names()),
            )
        }),
        None if streams.len() == 1 => Ok(0),
        None => Err(ConnectorError::unsupported(
            format!("{step} does not name its stream"),
            format!("set `stream` to one of {}", names()),
        )),
    }
}

/// The index of a column.
pub(super) fn column(columns: &[Column], name: &str, step: &str) -> Result<usize> {
    columns.iter().position(|column| column.name == name).ok_or_else(|| {
        ConnectorError::unsupported(
            format!("{step} refers to the column {name:?}, which does not exist"),
            format!(
                "the columns are {}",
                listed(columns.iter().map(|column| column.name.as_str()))
            ),
        )
    })
}

/// Columns of a stream that later steps mask: their values must not be shown earlier either.
///
/// A query may rename a column, or compute another of it, in any stream: with a mask behind one all
/// columns count.
pub(super) fn masked_later(
    later: &[TransformSettings],
    stream: &str,
    columns: &[Column],
) -> BTreeSet<String> {
    let mut masked = BTreeSet::new();
    let mut is_behind_query = false;
    for step in later {
        match step {
            TransformSettings::Sql(_) => is_behind_query = true,
            TransformSettings::Mask(mask) => {
                let is_for = mask.stream.as_deref().is_none_or(|name| name == stream);
                if is_behind_query && !mask.columns.is_empty() {
                    return columns.iter().map(|column| column.name.clone()).collect();
                }
                if is_for {
                    masked.extend(mask.columns.keys().cloned());
                }
            }
            // Like a query, it may give a column another name.
            TransformSettings::Component(_) => is_behind_query = true,
            TransformSettings::Validate(_) => {}
        }
    }
    masked
}

/// A limited list of names.
pub(super) fn listed<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let more = names.len().saturating_sub(LISTED_MAX);
    let mut list = names.take(LISTED_MAX).collect::<Vec<_>>().join(", ");
    if more > 0 {
        list.push_str(&format!(" and {more} more"));
    }
    if list.is_empty() { "none".into() } else { list }
}

#[cfg(test)]
mod tests {
    use forebay_pgcopy::Wire;

    use super::masked_later;
    use crate::transform::testing::{column, settings};

    #[test]
    fn behind_a_query_which_may_rename_columns_a_mask_counts_for_all() {
        let columns = [column("id", Wire::Int4, "integer"), column("email", Wire::Text, "text")];
        let mask = "- mask: { columns: { email: redact } }";
        let other = "- mask: { stream: other, columns: { e: redact } }";
        let query = "- sql: { query: 'select id, email as e from t' }";
        for (yaml, expected) in [
            (String::from(mask), &["email"][..]),
            (String::from(other), &[]),
            (format!("{query}\n{other}"), &["email", "id"]),
            (format!("{mask}\n{query}"), &["email"]),
        ] {
            let masked = masked_later(&settings(&yaml), "t", &columns);
            assert_eq!(masked.into_iter().collect::<Vec<_>>(), expected, "{yaml}");
        }
    }
}
