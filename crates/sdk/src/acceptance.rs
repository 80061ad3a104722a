//! The promises of every connector, as one test suite that every connector passes.
//!
//! A source or destination is passed as a value that can be opened again and again. The suite
//! returns a [`Failure`] instead of panicking, so that it can run anywhere:
//!
//! ```no_run
//! # async fn run(destination: std::sync::Arc<dyn forebay_sdk::connector::Destination>)
//! # -> Result<(), forebay_sdk::acceptance::Failure> {
//! use forebay_sdk::acceptance::{self, Capabilities};
//!
//! let capabilities = Capabilities { replace: true, upsert: false };
//! acceptance::destination(&destination, capabilities).await?;
//! # Ok(())
//! # }
//! ```
//!
//! The rows have every type, NULL in every column, and names with quotes, spaces and letters that
//! are not ASCII: [`columns`], [`rows()`].
//!
//! An author of a connector wants all faults at once, and has no second copy of the rows to compare with:
//! [`examine_source`], [`examine_target`] and [`examine_transform`] return one [`Finding`] for each promise.

mod destination;
mod findings;
mod rows;
mod source;
mod target;
mod transform;

use crate::error::ConnectorError;

pub use destination::{Capabilities, Lacks, destination, destination_lacking, fill};
pub use findings::{Finding, Findings, Outcome, Tested};
pub use rows::{columns, plain_columns, rows, rows_lacking, try_rows};
pub use source::{UNIT_SIZE, check_source, discover_source, examine_source, open_source, source};
pub use target::{check_destination, examine_target};
pub use transform::examine_transform;

/// Why a connector does not pass.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// An operation failed.
    #[error("{claim}: the operation failed")]
    Failed {
        /// The promise being tested.
        claim: &'static str,
        /// The failure.
        #[source]
        source: ConnectorError,
    },
    /// A promise was not kept.
    #[error("{claim}: {found}")]
    Broken {
        /// The promise.
        claim: &'static str,
        /// What happened instead.
        found: String,
    },
}

/// A promise under test, for the messages of failures.
#[derive(Debug, Clone, Copy)]
pub struct Claim(pub &'static str);

impl Claim {
    /// Returns the value of an operation that must succeed.
    ///
    /// # Errors
    /// It did not.
    pub fn ok<T>(self, result: Result<T, ConnectorError>) -> Result<T, Failure> {
        result.map_err(|source| Failure::Failed { claim: self.0, source })
    }

    /// Fails unless the condition holds.
    ///
    /// # Errors
    /// The condition does not hold: what was found.
    pub fn holds(self, is_so: bool, found: impl FnOnce() -> String) -> Result<(), Failure> {
        match is_so {
            true => Ok(()),
            false => Err(Failure::Broken { claim: self.0, found: found() }),
        }
    }

    /// Fails unless both are equal.
    fn same<T: PartialEq + std::fmt::Debug>(self, found: T, expected: T) -> Result<(), Failure> {
        self.holds(found == expected, || format!("expected {expected:?}, found {found:?}"))
    }
}
