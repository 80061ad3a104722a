//! A transform.

use std::cell::RefCell;
use std::sync::Arc;

use forebay_sdk::ConnectorError;
use forebay_sdk::component::{Become as _, Column, PartReader, PartWriter};
use forebay_sdk::transform::{Position, Transform, TransformSettings};
use serde::de::DeserializeOwned;

use super::{columns, failed, not_open, settings};
use crate::runtime::run;
use crate::wit::{transform as wit, types};

pub use super::{spec, validate};

/// A transform, and the columns of the rows that it gets.
type Open = (Arc<dyn Transform>, Vec<Column>);

thread_local! {
    static OPEN: RefCell<Option<Open>> = const { RefCell::new(None) };
}

/// Prepares for a stream.
///
/// # Errors
/// Those of the transform.
pub fn open<S>(
    config: &str,
    stream: &str,
    of: Vec<types::Column>,
) -> Result<wit::OpenedTransform, types::Error>
where
    S: TransformSettings + DeserializeOwned,
{
    let columns = columns(of).map_err(failed)?;
    let settings = settings::<S>(config).map_err(failed)?;
    let transform = run(settings.transform(stream, &columns)).map_err(failed)?;
    let opened = wit::OpenedTransform {
        columns: transform.columns().iter().map(Into::into).collect(),
        is_stable: transform.is_stable(),
        note: transform.note(),
    };
    OPEN.set(Some((transform, columns)));
    Ok(opened)
}

/// Transforms rows.
///
/// # Errors
/// Those of the transform.
pub fn apply(position: &wit::Position, rows: types::Rows) -> Result<wit::Applied, types::Error> {
    let open = OPEN.with_borrow(Clone::clone);
    let (transform, columns) = open.ok_or_else(|| not_open("stream"))?;
    let types::Rows::Records(part) = rows else {
        return Err(failed(ConnectorError::data("rows of the host", "they are not records")));
    };
    let records = PartReader::new(&columns).records(part).map_err(failed)?;
    let records = records
        .ok_or_else(|| failed(ConnectorError::data("rows of the host", "the batch is empty")))?;
    let position = Position { unit: &position.unit, rows_before: position.rows_before };
    let applied = run(transform.apply(position, records)).map_err(failed)?;
    let part = PartWriter::new(transform.columns()).part(&applied.records).map_err(failed)?;
    Ok(wit::Applied {
        rows: types::Rows::Records(part),
        dead: applied.dead.into_other(),
        skipped: applied.skipped,
    })
}
