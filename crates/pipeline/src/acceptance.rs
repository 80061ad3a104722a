//! What every connector promises, as one suite that every connector passes.
//!
//! A source or destination is brought in as a place that can be opened again and again. The suite
//! answers with a [`Failure`] instead of panicking, so that it can run anywhere:
//!
//! ```no_run
//! # async fn run(destination: std::sync::Arc<dyn forebay_pipeline::connector::Destination>)
//! # -> Result<(), forebay_pipeline::acceptance::Failure> {
//! use forebay_pipeline::acceptance::{self, Capabilities};
//!
//! let capabilities = Capabilities { replace: true, upsert: false };
//! acceptance::destination(&destination, capabilities).await?;
//! # Ok(())
//! # }
//! ```
//!
//! Rows have every type there is, NULL in every column, and names with quotes, spaces and letters that
//! are not ASCII: [`columns`], [`rows()`].

mod destination;
mod rows;
mod source;

use crate::error::ConnectorError;

pub use destination::{Capabilities, Lacks, destination, destination_lacking, fill};
pub use rows::{columns, finite_rows, plain_columns, rows};
pub use source::{open_source, source};

/// Why a connector does not pass.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// It failed where it should not have.
    #[error("{claim}: it failed")]
    Failed {
        /// What was being tried.
        claim: &'static str,
        /// How it failed.
        #[source]
        source: ConnectorError,
    },
    /// It did otherwise than promised.
    #[error("{claim}: {found}")]
    Broken {
        /// What is promised.
        claim: &'static str,
        /// What was found instead.
        found: String,
    },
}

/// What is tried, for the messages of its failures.
#[derive(Debug, Clone, Copy)]
struct Claim(&'static str);

impl Claim {
    /// What must succeed.
    fn ok<T>(self, result: Result<T, ConnectorError>) -> Result<T, Failure> {
        result.map_err(|source| Failure::Failed { claim: self.0, source })
    }

    /// What must be so.
    fn holds(self, is_so: bool, found: impl FnOnce() -> String) -> Result<(), Failure> {
        match is_so {
            true => Ok(()),
            false => Err(Failure::Broken { claim: self.0, found: found() }),
        }
    }

    /// What must be the same.
    fn same<T: PartialEq + std::fmt::Debug>(self, found: T, expected: T) -> Result<(), Failure> {
        self.holds(found == expected, || format!("{found:?} instead of {expected:?}"))
    }
}
