//! What is made of rows between source and destination.
//!
//! A transform is a stream around streams: it reads those below it and is read like them. `mask` and
//! `validate` keep the units of the stream they stand around; `sql` sees whole streams, so what it makes
//! is one unit.

mod mask;
pub mod settings;
mod sql;
mod validate;

pub use settings::{MaskSettings, SqlSettings, TransformSettings, ValidateSettings};
