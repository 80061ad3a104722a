//! What every sink in a database says of its open transaction, and the numbers a database can hold.
//!
//! Invariant: a failed transaction stays failed until its owner was informed and has rolled
//! back.

use crate::error::SinkError;
use crate::sink::Position;

/// The state of the open transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transaction {
    /// There is none.
    Idle,
    /// Writes up to a position wait for the commit.
    Open {
        /// The largest position written, if anything was.
        written: Option<Position>,
    },
    /// A write failed; everything is refused until the caller rolls back.
    Failed,
}

/// `value` as databases store it.
///
/// * `what`: the number's name in the error.
///
/// # Errors
/// [`SinkError::TooLarge`]
pub fn check_number(what: &'static str, value: u64) -> Result<i64, SinkError> {
    i64::try_from(value).map_err(|_| SinkError::TooLarge { what, value })
}
