//! The types of `wit/connector.wit` and those of this crate, converted into each other.
//!
//! The host of a component and the component itself have bindings of their own, made of the same file by different
//! tools. [`component_conversions!`](crate::component_conversions) writes the conversions for both. It expects the
//! bindings in `crate::wit`: `types`, `source`, `destination`, `changes`, `change_source` and `change_target`.
//!
//! Invariant: what comes from a component is checked where it is converted: names of types are parsed
//! ([`column()`]), and forms of values are known ones.

mod conversions;
mod rows;

use forebay_pgcopy::TypeName;
pub use forebay_pgcopy::{Column, ContentHash, Wire};

pub use rows::{PartReader, PartWriter, tuples_hash, tuples_records};

use crate::changes::encoded::check_position;
use crate::changes::feed::{FeedColumn, FeedStream};
use crate::error::ConnectorError;

/// Maximum number of bytes of a name that a component gives.
pub const NAME_SIZE_MAX: usize = 1 << 10;
/// Maximum number of columns of a stream.
pub const COLUMNS_MAX: usize = 10_000;
/// Maximum number of streams of a feed.
pub const STREAMS_MAX: usize = 100_000;
/// What a source recognizes a stream by: a partitioned table has one for each attached partition.
const MARKS_MAX: usize = 100_000;

/// A column of a component.
///
/// # Errors
/// The type is not the name of one, the form of values is unknown, or there is none for the type.
pub fn column(
    name: String,
    sql_type: String,
    wire: &str,
    nullable: bool,
) -> Result<Column, ConnectorError> {
    let refused = |found: String| {
        Err(ConnectorError::data(format!("the column {name:?} of the component"), found))
    };
    if name.len() > NAME_SIZE_MAX || sql_type.len() > NAME_SIZE_MAX {
        let shown: String = name.chars().take(40).collect();
        let found = format!("its name or type has more than {NAME_SIZE_MAX} bytes");
        return Err(ConnectorError::data(
            format!("the column {shown:?}... of the component"),
            found,
        ));
    }
    if TypeName::parse(&sql_type).is_none() {
        return refused(format!("{sql_type:?} is not the name of a type"));
    }
    if wire.is_empty() {
        return refused(format!("the form of its values ({sql_type}) is missing"));
    }
    match Wire::from_name(wire) {
        Some(wire) => Ok(Column { name, sql_type, wire, nullable }),
        None => refused(format!("{wire:?} is not a form of values")),
    }
}

/// A column of a feed of a component.
///
/// # Errors
/// The type is not the name of one, or the form of values is unknown.
pub fn feed_column(
    name: String,
    sql_type: String,
    is_key: bool,
    number: i16,
    wire: Option<&str>,
) -> Result<FeedColumn, ConnectorError> {
    // The form is checked where there is one; any other is as good for the rest.
    let checked = column(name, sql_type, wire.unwrap_or("opaque"), true)?;
    let wire = wire.map(|_| checked.wire);
    Ok(FeedColumn { name: checked.name, sql_type: checked.sql_type, is_key, number, wire })
}

/// A text and all causes of an error.
#[must_use]
pub fn cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(next) = source {
        let part = next.to_string();
        if !text.ends_with(&part) {
            text.push_str(": ");
            text.push_str(&part);
        }
        source = next.source();
    }
    text
}

/// Streams of a feed of a component: at most [`STREAMS_MAX`], each with columns.
///
/// # Errors
/// There are more, a name or a position is too long, or a stream has too many columns, or none.
pub fn check_feed_streams(streams: &[FeedStream]) -> Result<(), ConnectorError> {
    let refused = |found: String| Err(ConnectorError::data("the streams of a feed", found));
    if streams.len() > STREAMS_MAX {
        return refused(format!("there are more than {STREAMS_MAX}"));
    }
    for stream in streams {
        if stream.stream.len() > NAME_SIZE_MAX {
            return refused(format!("a name has more than {NAME_SIZE_MAX} bytes"));
        }
        if stream.columns.is_empty() || stream.columns.len() > COLUMNS_MAX {
            let name = &stream.stream;
            return refused(format!("{name:?} has no column, or more than {COLUMNS_MAX}"));
        }
        if let Some(from) = &stream.from {
            check_position(from)?;
        }
        let is_long = |mark: &String| mark.len() > NAME_SIZE_MAX || mark.contains('\0');
        if stream.known_by.len() > MARKS_MAX || stream.known_by.iter().any(is_long) {
            let name = &stream.stream;
            return refused(format!("what {name:?} is recognized by is too long"));
        }
    }
    Ok(())
}

/// A conversion that reaches into lists and optional values.
pub trait Become<T> {
    /// Converts.
    fn into_other(self) -> T;
}

impl<A, B: From<A>> Become<Option<B>> for Option<A> {
    fn into_other(self) -> Option<B> {
        self.map(B::from)
    }
}

impl<A, B: From<A>> Become<Vec<B>> for Vec<A> {
    fn into_other(self) -> Vec<B> {
        self.into_iter().map(B::from).collect()
    }
}
